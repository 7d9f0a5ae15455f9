#!/usr/bin/env python3
"""The data server on its own: what it serves, to whom, and how it ends."""
import os
import pathlib
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


class Server(JobTest):
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

    def test_beyond_this_host_it_needs_a_token(self):
        self.assert_refused(64, "--bind", "0.0.0.0", parts=["--bind 0.0.0.0", "POPRUN_EMU_TOKEN"])
        self.address(self.server("--bind", "0.0.0.0", token="secret"))

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


if __name__ == "__main__":
    unittest.main()
