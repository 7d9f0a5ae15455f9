#!/usr/bin/env python3
"""The live page of --metrics-port, and the data that it shows."""
import http.client
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
import unittest

from emulated_job import JobTest
from failures_test import free_port
from metrics_test import ENDLESS, get

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

NUMBER = (int, float)
MAYBE = (int, float, type(None))
SCHEMA = {
    "version": str, "model": str, "phase": str, "time": NUMBER, "startTime": NUMBER, "instances": int,
    "instancesJoined": int, "heartbeatAgeSeconds": MAYBE, "restarts": int, "step": MAYBE, "lastStep": MAYBE,
    "epoch": MAYBE, "items": MAYBE, "samplesPerSecond": MAYBE, "etaSeconds": MAYBE, "loss": MAYBE, "accuracy": MAYBE,
    "learningRate": MAYBE, "evaluation": (dict, type(None)), "checkpoint": (dict, type(None)),
    "goodput": (dict, type(None)), "slowest": (dict, type(None)), "medianStepSeconds": MAYBE, "replicas": list,
    "curves": dict, "messages": list,
}
INNER = {
    "evaluation": {"loss": NUMBER, "accuracy": MAYBE},
    "checkpoint": {"step": int, "ageSeconds": NUMBER},
    "goodput": {"ratio": NUMBER, "totalSeconds": NUMBER, "pendingSeconds": NUMBER, "redoneSteps": int,
                "seconds": dict},
    "slowest": {"replica": int, "stepSeconds": NUMBER, "othersStepSeconds": NUMBER},
    "curves": {"training": dict, "evaluation": dict},
}
ELEMENTS = {"replicas": {"host": str, "step": int, "activity": str, "stepSeconds": MAYBE},
            "messages": {"time": NUMBER, "text": str}}
HOSTILE = "<img src=x onerror=\"document.title='owned'\">"


class Proxy:
    """Serves a job's pages below /jobs/7, as Kubernetes' API server does, and changes what `change` makes of them."""

    def __init__(self, port, change=lambda body: body):
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                prefix = "/jobs/7"
                path = self.path[len(prefix):] if self.path.startswith(prefix) else None
                if path is None:
                    self.send_error(404)
                    return
                connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
                connection.request("GET", path or "/")
                answer = connection.getresponse()
                body = change(answer.read())
                self.send_response(answer.status)
                for name, value in answer.getheaders():
                    if name not in ("Content-Length", "Connection"):
                        self.send_header(name, value)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/jobs/7"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def end(self):
        self.server.shutdown()
        self.server.server_close()


def rendered(url):
    """Returns the document after a few seconds of the script, and what the browser logged."""
    with tempfile.TemporaryDirectory() as home:
        done = subprocess.run([CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                               f"--user-data-dir={home}", "--virtual-time-budget=5000", "--enable-logging=stderr",
                               "--dump-dom", url], capture_output=True, text=True, timeout=120, check=False,
                              env={**os.environ, "HOME": home})
    return done.stdout, done.stderr


class LivePage(JobTest):
    def start_and_train(self, *arguments):
        self.port = free_port()
        job = self.start("-n", 2, "--metrics-port", self.port, *arguments, config=ENDLESS)
        self.status_when(lambda status: (status["step"] or 0) >= 5 and status["evaluation"])
        return job

    def status(self):
        code, kind, body = get(self.port, "/status.json")
        self.assertEqual((code, kind), (200, "application/json"))
        return json.loads(body, parse_constant=lambda name: self.fail(f"{name} is not JSON"))

    def status_when(self, ready, seconds=90):
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                status = self.status()
                if ready(status):
                    return status
            except (ConnectionError, http.client.HTTPException, socket.timeout):  # Starting or restarting.
                pass
            time.sleep(0.05)
        raise AssertionError("the status never got there")

    def assert_types(self, schema, value, where=""):
        self.assertEqual(list(value), list(schema), where)
        for key, types in schema.items():
            self.assertIsInstance(value[key], types, f"{where}{key}")
            self.assertNotIsInstance(value[key], bool, f"{where}{key}")

    def assert_schema(self, status):
        self.assert_types(SCHEMA, status)
        for key, schema in INNER.items():
            if status[key] is not None:
                self.assert_types(schema, status[key], key + ".")
        for key, schema in ELEMENTS.items():
            for element in status[key]:
                self.assert_types(schema, element, key + ".")
        for curve in status["curves"].values():
            self.assertEqual(list(curve), ["steps", "loss", "accuracy"])
            self.assertEqual(len({len(numbers) for numbers in curve.values()}), 1)

    def test_data_keep_their_schema_from_the_first_moment_over_a_restart(self):
        self.port = free_port()
        job = self.start("-n", 2, "--metrics-port", self.port, "--checkpoint-every", 5, "--restarts", 1, config=ENDLESS)
        self.assert_schema(self.status_when(lambda status: True))
        status = self.status_when(lambda status: status["checkpoint"] and status["evaluation"])
        self.assert_schema(status)
        self.assertEqual((status["model"], status["phase"], status["lastStep"], status["instances"]),
                         ("small-cnn", "running", 1000000, 2))
        self.assertEqual(len(status["replicas"]), 2)
        self.assertEqual(status["curves"]["training"]["steps"][:2], [1, 2])
        seconds = status["goodput"]["seconds"]
        self.assertAlmostEqual(sum(seconds.values()), status["goodput"]["totalSeconds"], delta=1e-6)
        self.assertAlmostEqual(status["time"] - status["startTime"],
                               status["goodput"]["totalSeconds"] + status["goodput"]["pendingSeconds"], delta=0.5)
        os.kill(job.replica_pid(1), signal.SIGKILL)
        # Nothing is redone if a checkpoint was complete after the last step (goodput_test.py waits for such steps).
        status = self.status_when(lambda status: status["restarts"] == 1 and status["goodput"]["seconds"]["down"] > 1)
        self.assert_schema(status)
        self.assertGreater(status["goodput"]["seconds"]["down"], 1)
        self.assertAlmostEqual(status["time"] - status["startTime"],
                               status["goodput"]["totalSeconds"] + status["goodput"]["pendingSeconds"], delta=0.5)
        self.assertTrue(any("restart 1 of 1" in message["text"] for message in status["messages"]), status["messages"])
        steps = status["curves"]["training"]["steps"]
        self.assertEqual(steps, sorted(set(steps)), "the curve has no step twice")

    def test_is_read_by_whoever_may_read_the_metrics(self):
        self.start_and_train()
        answers = {}
        for path in ("/metrics", "/", "/status.json"):
            for token in ("", "wrong"):
                connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
                headers = {"Authorization": f"Bearer {token}", "poprun-token": token} if token else {}
                connection.request("GET", path + (f"?token={token}" if token else ""), headers=headers)
                answer = connection.getresponse()
                body = answer.read()
                self.assertTrue(body)
                answers[path, token] = answer.status
                if path != "/metrics":
                    self.assertEqual(answer.getheader("X-Content-Type-Options"), "nosniff")
                    self.assertTrue(answer.getheader("Content-Security-Policy").startswith("default-src 'none'"))
                    self.assertIsNone(answer.getheader("Access-Control-Allow-Origin"))
                connection.close()
        self.assertEqual(set(answers.values()), {200}, "none of the pages asks for a token")
        for method in ("POST", "PUT", "DELETE"):
            connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
            connection.request(method, "/status.json", body="{}")
            self.assertEqual(connection.getresponse().status, 405)
            connection.close()
        with self.assertRaises(ConnectionRefusedError):
            get(self.port, "/", host="127.0.0.2")

    def test_reveals_no_token(self):
        job = self.start_and_train("-vv")
        for path in ("/", "/status.json", "/metrics"):
            self.assertNotIn(job.token, get(self.port, path)[2])

    @unittest.skipUnless(CHROMIUM, "Chromium is not installed")
    def test_shows_the_job_in_a_browser(self):
        self.start_and_train("--checkpoint-every", 3)
        document, log = rendered(f"http://127.0.0.1:{self.port}/")
        self.assertNotIn("Refused to", log)
        self.assertIn('<h1 id="model">small-cnn</h1>', document)
        self.assertIn('<span id="phase" class="pill">running</span>', document)
        for text in ("samples/s", "last checkpoint", "evaluation accuracy", "steps ", "replica 1 on ",
                     '<path class="training"', '<circle class="evaluation"', "live page: http://"):
            self.assertIn(text, document)
        self.assertRegex(document, r'<p id="trouble" role="alert" hidden="">')

    @unittest.skipUnless(CHROMIUM, "Chromium is not installed")
    def test_works_below_a_path_of_a_proxy_and_shows_hostile_text_as_text(self):
        self.start_and_train()

        def change(body):
            try:
                status = json.loads(body)
            except ValueError:
                return body
            status["model"] = status["replicas"][1]["host"] = HOSTILE
            status["messages"].append({"time": 0, "text": HOSTILE})
            return json.dumps(status).encode()

        proxy = Proxy(self.port, change)
        self.addCleanup(proxy.end)
        for url in (proxy.url + "/", proxy.url):
            document, log = rendered(url)
            self.assertIn('<span id="phase" class="pill">running</span>', document, log)
            self.assertNotIn("Refused to", log)
            self.assertNotIn("<img", document)
            self.assertIn("&lt;img src=x", document)
            self.assertNotIn("<title>owned", document)
            self.assertIn('href="/jobs/7/metrics"', document)


if __name__ == "__main__":
    unittest.main()
