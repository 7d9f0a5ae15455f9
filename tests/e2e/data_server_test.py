#!/usr/bin/env python3
"""The data server on its own: what it serves, to whom, and how it ends."""
import os
import pathlib
import shutil
import signal
import subprocess
import time
import unittest

import npy_file
from emulated_job import BIN, ROOT, JobTest

CONFIG = """
[model]
name = mlp
[data]
source = {source}
micro-batch-size = 2
[training]
steps = 2
evaluate = false
"""


class ServerTest(JobTest):
    def server(self, *arguments, token=""):
        process = subprocess.Popen(
            [str(BIN / "poprun-emu-hostio"), "--port", "0", *map(str, arguments)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
            env=dict(os.environ, POPRUN_EMU_TOKEN=token))
        self.addCleanup(process.wait)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.stderr.close)
        self.addCleanup(process.kill)
        return process

    def address(self, process):
        line = process.stdout.readline()
        self.assertIn("listening on ", line)
        return line.split()[-1]

    def assert_refused(self, code, *arguments, parts):
        process = self.server(*arguments)
        _, errors = process.communicate(timeout=20)
        self.assertEqual(process.returncode, code, errors)
        self.assertEqual(errors.count("\n"), 1, errors)
        for part in parts:
            self.assertIn(part, errors)

    def data(self, name):
        folder = self.folder / name
        folder.mkdir()
        (folder / "x_train.npy").write_bytes(npy_file.floats((8, 3), [0.5] * 24))
        (folder / "y_train.npy").write_bytes(npy_file.floats((8,), [1.0] * 8))
        return folder


class Server(ServerTest):
    def test_beyond_this_host_it_needs_a_token(self):
        self.assert_refused(64, "--bind", "0.0.0.0", parts=["--bind 0.0.0.0", "POPRUN_EMU_TOKEN"])
        self.address(self.server("--bind", "0.0.0.0", token="0123456789abcdef"))
        process = self.server("--bind", "0.0.0.0", token="secret")
        _, errors = process.communicate(timeout=20)
        self.assertEqual(process.returncode, 64, errors)
        self.assertIn("openssl rand -hex 16", errors)

    def test_the_token_of_the_manifests_is_refused(self):
        lines = (ROOT / "deploy/kubernetes/base/kustomization.yaml").read_text().splitlines()
        token = next(line.split("POPRUN_EMU_TOKEN=")[1] for line in lines if line.startswith("  - POPRUN_EMU_TOKEN="))
        file = self.folder / "token"
        file.write_text(token + "\n")
        for arguments, given in (((), token), (("--token-file", file), "")):
            process = self.server(*arguments, token=given)
            _, errors = process.communicate(timeout=20)
            self.assertEqual(process.returncode, 64, errors)
            self.assertEqual(errors.count("\n"), 1, errors)
            self.assertIn("openssl rand -hex 16", errors)
        job = self.run_job("-n", 1, code=64, environment={"POPRUN_EMU_TOKEN": token})
        self.assertEqual(job.stderr.count("\n"), 1, job.stderr)
        self.assert_first_line(job, "POPRUN_EMU_TOKEN", "openssl rand -hex 16")

    def test_it_serves_what_lies_below_its_root_and_what_it_was_started_for(self):
        served, named, other = self.data("served"), self.data("named"), self.data("other")
        (served / "away").symlink_to(other)
        address = self.address(self.server("--root", served, "--source", f"npy:{named}"))
        for source, code in ((served, 0), (named, 0), (other, 64), (served / "../other", 64),
                             (served / "away", 64)):
            config = CONFIG.format(source=f"npy:{source}").replace(
                "name = mlp", "name = mlp\nclasses = 2")
            job = self.start("--dry-run", "--hostio-address", address, config=config,
                             environment={"POPRUN_EMU_TOKEN": ""})
            job.wait(60)
            if code == 0:
                self.assertNotIn("does not serve", job.stderr)
            else:
                self.assertEqual(job.process.returncode, code, job.stderr)
                self.assert_first_line(job, "does not serve this file", "--root")

    def test_a_dataset_beyond_any_memory_is_refused_by_its_size(self):
        config = CONFIG.format(source="synthetic:tokens,vocabulary=50,items=16777216").replace(
            "micro-batch-size = 2", "micro-batch-size = 2\nsequence-length = 65536")
        job = self.run_job("-n", 1, code=65, config=config)
        self.assert_first_line(job, "16,777,216 items of 65,536 tokens", "4,194,304.0 MiB")

    def test_a_pipe_is_no_dataset(self):
        pipe = self.folder / "pipe"
        os.mkfifo(pipe)
        self.assert_refused(65, "--preload", f"text:{pipe}", parts=[str(pipe), "it is a pipe"])

    def test_it_ends_at_once_while_it_loads(self):
        source = "synthetic:tokens,vocabulary=50,items=1000000?sequence-length=256"
        for arguments in (("--preload", source), ()):
            process = self.server(*arguments)
            if not arguments:
                address = self.address(process)
                config = CONFIG.format(source=source.split("?")[0]).replace(
                    "micro-batch-size = 2", "micro-batch-size = 2\nsequence-length = 256")
                job = self.start("--dry-run", "--hostio-address", address, config=config,
                                 environment={"POPRUN_EMU_TOKEN": ""})
                self.addCleanup(job.process.kill)
            time.sleep(0.5)
            process.send_signal(signal.SIGTERM)
            begin = time.monotonic()
            self.assertEqual(process.wait(10), 0)
            self.assertLess(time.monotonic() - begin, 3)

    def test_no_command_line_shows_the_token(self):
        job = self.start("-n", 2)
        seen = set()
        while job.process.poll() is None:
            for pid in job.pids():
                try:
                    seen.add(pathlib.Path(f"/proc/{pid}/cmdline").read_text(errors="replace"))
                except OSError:
                    pass
            time.sleep(0.01)
        self.assertEqual(job.process.returncode, 0, job.stderr)
        self.assertTrue(any("poprun-emu-hostio" in line for line in seen), seen)
        self.assertTrue(any("poprun-emu-replica" in line for line in seen), seen)
        for line in seen:
            self.assertNotIn(job.token, line)


class Certificates(ServerTest):
    """A user's own, on one host."""

    def openssl(self, *arguments):
        subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True, cwd=self.folder)

    def setUp(self):
        super().setUp()
        if shutil.which("openssl") is None:
            self.skipTest("openssl not installed; run deploy/setup")
        new = ("req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2")
        for name in ("ca", "other"):
            self.openssl(*new, "-subj", f"/CN={name}", "-keyout", f"{name}.key", "-out", f"{name}.pem")
        (self.folder / "names").write_text("subjectAltName=DNS:train.example\n")
        self.openssl("req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-subj", "/CN=job",
                     "-keyout", "job.key", "-out", "job.csr")
        self.openssl("x509", "-req", "-in", "job.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                     "-days", "2", "-extfile", "names", "-out", "job.pem")

    def files(self, certificate="job.pem", key="job.key", authorities="ca.pem"):
        return ("--tls-cert", self.folder / certificate, "--tls-key", self.folder / key,
                "--tls-ca", self.folder / authorities)

    def test_guard_all_connections_of_a_job(self):
        reference = self.run_job("-n", 2)
        job = self.run_job("-n", 2, *self.files())
        self.assertEqual(job.weights_hash(), reference.weights_hash())
        self.assertNotIn("warning", job.stderr)
        (self.folder / "job.key").chmod(0o644)
        self.assert_first_line(self.run_job("-n", 1, *self.files()), "job.key can be read by others", "chmod 600")

    def test_guard_a_server_of_the_users_own(self):
        token = "0123456789abcdef"
        address = self.address(self.server(*self.files(), "--source", "fashion-mnist", token=token))
        given = {"environment": {"POPRUN_EMU_TOKEN": token}}
        self.run_job("-n", 2, *self.files(), "--hostio-address", address, **given)
        for stranger in ((), self.files("other.pem", "other.key", "other.pem")):
            job = self.run_job("-n", 1, *stranger, "--hostio-address", address, "--hostio-timeout", 2, code=69, **given)
            self.assert_first_line(job, f"the data server at {address} did not answer for 2 s")

    def test_that_do_not_fit_are_refused_in_a_line(self):
        (self.folder / "text").write_text("no PEM\n")
        for files, code, part in ((self.files("none.pem"), 64, "none.pem: cannot be read: No such file"),
                                  (self.files(key="other.key"), 64, "other.key is not the key of --tls-cert"),
                                  (self.files(authorities="other.pem"), 64, "other.pem does not vouch for --tls-cert"),
                                  (self.files()[:4], 64, "--tls-ca is missing"),
                                  (self.files("text"), 65, "needed certificates as PEM"),
                                  (self.files(key="text"), 65, "needed a private key as PEM")):
            with self.subTest(part):
                job = self.run_job("-n", 1, *files, code=code)
                self.assert_first_line(job, part)
                process = self.server(*files)
                _, errors = process.communicate(timeout=20)
                self.assertEqual(process.returncode, code, errors)
                self.assertIn(part, errors)


if __name__ == "__main__":
    unittest.main()
