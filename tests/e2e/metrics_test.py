#!/usr/bin/env python3
"""--metrics-port: the metrics of a running job agree with the job's own files."""
import http.client
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import threading
import time
import unittest

from emulated_job import QUICK, JobTest
from failures_test import free_port

# Ends only on request; an epoch, and therefore an evaluation, takes a few steps.
ENDLESS = """
[model]
name = small-cnn
[data]
source = synthetic:images=1x28x28,classes=10,items=1280
micro-batch-size = 64
[training]
steps = 1000000
schedule = constant
"""

SAMPLE = re.compile(r'(\w+)(?:\{(\w+)="([^"]*)"\})? (\S+)')


def get(port, path="/metrics", host="127.0.0.1", tls=False):
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    connection = (http.client.HTTPSConnection(host, port, timeout=10, context=context) if tls else
                  http.client.HTTPConnection(host, port, timeout=10))
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.getheader("Content-Type"), answer.read().decode()
    finally:
        connection.close()


def scrape(port, tls):
    """Returns the samples by name, or by name and label value: {"poprun_emu_step": 7.0, ("poprun_emu_phase",
    "running"): 1.0}"""
    status, kind, page = get(port, tls=tls)
    assert (status, kind) == (200, "text/plain; version=0.0.4; charset=utf-8"), (status, kind)
    samples = {}
    for line in page.splitlines():
        if not line.startswith("#"):
            name, _, label, value = SAMPLE.fullmatch(line).groups()
            samples[(name, label) if label is not None else name] = float(value)
    return samples


def nine_digits(number):
    """Returns the number as metrics.csv contains it."""
    return f"{float(number):.9g}"


class Metrics(JobTest):
    def wait_for(self, job, port, name, least=0, tls=False):
        """Returns the first samples in which `name` is at least `least`."""
        deadline = time.monotonic() + 90
        while True:
            try:
                samples = scrape(port, tls)
                if samples.get(name, least - 1) >= least:
                    return samples
            except (ConnectionError, http.client.HTTPException, ssl.SSLError):  # The command is still starting or restarting.
                pass
            self.assertTrue(time.monotonic() < deadline and job.process.poll() is None, f"no {name}\n{job.stderr}")
            time.sleep(0.05)

    def test_are_those_of_the_files(self):
        port = free_port()
        began = time.time()
        job = self.start("-n", 2, "--metrics-port", port, config=ENDLESS)
        scrapes = [self.wait_for(job, port, "poprun_emu_step", least) for least in (1, 5, 20)]
        scrapes.append(self.wait_for(job, port, "poprun_emu_slowest_replica"))
        if shutil.which("promtool"):
            checked = subprocess.run(["promtool", "check", "metrics"], input=get(port)[2], text=True, timeout=60,
                                     capture_output=True)
            self.assertEqual((checked.returncode, checked.stdout + checked.stderr), (0, ""))
        self.assertIn(f"poprun-emu: metrics: http://127.0.0.1:{port}/metrics\n", job.stderr)
        self.assertEqual(get(port, "/healthz"), (200, "text/plain; charset=utf-8", "ok\n"))
        self.assertIn(f"poprun-emu: live page: http://127.0.0.1:{port}/\n", job.stderr)
        self.assertEqual(get(port, "/page.js")[0], 404)
        with self.assertRaises(ConnectionRefusedError):
            get(port, host="127.0.0.2")  # Only 127.0.0.1 was requested.

        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143, job.stderr)
        with self.assertRaises(ConnectionRefusedError):
            get(port)
        rows = job.metrics()
        trained = {int(row["step"]): row for row in rows if row["split"] == "train"}
        tested = [row for row in rows if row["split"] == "test"]
        self.assertTrue(tested)
        for samples in scrapes:
            row = trained[int(samples["poprun_emu_step"])]
            self.assertEqual(samples["poprun_emu_epoch"], int(row["epoch"]))
            self.assert_same(samples["poprun_emu_loss"], row["loss"])
            self.assert_same(samples["poprun_emu_accuracy_ratio"], row["accuracy"])
            self.assertEqual(samples["poprun_emu_last_step"], 1000000)
            self.assertEqual((samples["poprun_emu_replicas"], samples["poprun_emu_instances"],
                              samples["poprun_emu_instances_joined"]), (2, 2, 2))
            self.assertEqual([label[1] for label, value in samples.items()
                              if label[0] == "poprun_emu_phase" and value == 1], ["running"])
            self.assertLess(abs(samples["poprun_emu_start_time_seconds"] - began), 5)
            self.assertTrue(0 <= samples["poprun_emu_heartbeat_age_seconds"] < 10, samples)
        last = scrapes[-1]
        self.assertIn(last["poprun_emu_slowest_replica"], (0, 1))
        self.assertGreaterEqual(last["poprun_emu_slowest_replica_step_seconds"],
                                last["poprun_emu_other_replicas_step_seconds"])
        evaluated = (last["poprun_emu_evaluation_loss"], last["poprun_emu_evaluation_accuracy_ratio"])
        self.assertIn(tuple(nine_digits(number) for number in evaluated),
                      [(nine_digits(row["loss"]), nine_digits(row["accuracy"])) for row in tested])
        self.assert_speed(last, trained)

    def assert_same(self, sample, text):
        """Compares with a number in metrics.csv."""
        self.assertEqual(nine_digits(sample), nine_digits(text))

    def assert_speed(self, samples, trained):
        """Checks the speed, which is that of the seconds before the scrape."""
        end = int(samples["poprun_emu_step"])
        begin = max(1, min(step for step in trained
                           if float(trained[step]["wall_seconds"]) > float(trained[end]["wall_seconds"]) - 5.5) - 1)
        seconds = float(trained[end]["wall_seconds"]) - float(trained[begin]["wall_seconds"])
        speed = (end - begin) * 128 / seconds
        self.assertTrue(0.7 * speed < samples["poprun_emu_samples_per_second"] < 1.4 * speed, (speed, samples))

    def test_whoever_reads_them_and_how_changes_no_result(self):
        config = QUICK.replace("steps = 5", "steps = 60")
        alone = self.run_job("-n", 2, config=config).weights_hash()
        port = free_port()
        job = self.start("-n", 2, "--metrics-port", port, "--metrics-address", "0.0.0.0", config=config)
        self.wait_for(job, port, "poprun_emu_replicas", 2, tls=True)
        self.assertEqual(get(port, "/healthz", host="127.0.0.2", tls=True)[0], 200)
        self.assertIn(f"metrics: https://0.0.0.0:{port}/metrics\n", job.stderr)
        with self.assertRaises((http.client.HTTPException, ConnectionError)):
            get(port)  # Other hosts can listen in, so nothing is sent in plain text.
        over = threading.Event()
        attackers = [threading.Thread(target=attack, args=(port, over)) for _ in range(2)]
        for attacker in attackers:
            attacker.start()
        try:
            self.assertEqual(job.wait(), 0, job.stderr)
        finally:
            over.set()
            for attacker in attackers:
                attacker.join()
        self.assertEqual(job.weights_hash(), alone)
        self.assert_gone(job)

    def test_tell_of_checkpoints_and_restarts(self):
        port = free_port()
        job = self.start("-n", 2, "--metrics-port", port, "--checkpoint-every", 5, "--restarts", 1, config=ENDLESS)
        samples = self.wait_for(job, port, "poprun_emu_checkpoint_step", 10)
        before = samples["poprun_emu_checkpoint_step"]
        self.assertEqual(before % 5, 0)
        self.assertLess(samples["poprun_emu_checkpoint_age_seconds"], 60)
        self.assertEqual(samples["poprun_emu_restarts_total"], 0)
        os.kill(job.replica_pid(1), signal.SIGKILL)
        samples = self.wait_for(job, port, "poprun_emu_restarts_total", 1)
        self.assertGreaterEqual(samples["poprun_emu_checkpoint_step"], before)
        self.wait_for(job, port, "poprun_emu_checkpoint_step", samples["poprun_emu_checkpoint_step"] + 5)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143, job.stderr)

    def test_need_a_free_port_before_anything_starts(self):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            job = self.run_job("-n", 2, "--metrics-port", port, code=69)
        self.assertEqual(job.stderr, f"poprun-emu: cannot serve metrics: port {port} on 127.0.0.1 is in use; choose "
                                     "a different port with --metrics-port\n")
        self.assertFalse(job.output_dir.exists())

    def test_need_an_address_of_this_machine(self):
        job = self.run_job("-n", 2, "--metrics-port", free_port(), "--metrics-address", "192.0.2.1", code=64)
        self.assert_first_line(job, "192.0.2.1", "choose a different address or port with --metrics-address")


def attack(port, over):
    """Opens up to 20,000 connections: silent ones, incomplete and huge requests, garbage, and resets."""
    requests = [b"", b"GET /met", b"GET /metrics HTTP/1.1\r\n\r\n" * 20, b"\0\xff" * 5000, b"GET /" + b"a" * 100000]
    open_ones = []
    for i in range(20000):
        if over.is_set():
            break
        try:
            client = socket.create_connection(("127.0.0.1", port), timeout=2)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.sendall(requests[i % len(requests)])
            open_ones.append(client)
        except OSError:  # Refused, reset or slow: all allowed.
            time.sleep(0.001)
        if len(open_ones) > 30:
            open_ones.pop(0).close()
    for client in open_ones:
        client.close()


if __name__ == "__main__":
    unittest.main()
