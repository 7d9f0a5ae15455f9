#!/usr/bin/env python3
"""A disk that is full or hangs costs no training: results wait, and are written when the disk accepts them."""
import os
import re
import shutil
import signal
import socket
import subprocess
import time
import unittest
import urllib.request

from emulated_job import JobTest, QUICK
from tensorboard_test import curves

LONG = QUICK.replace("steps = 5", "steps = 100000")


class FullDisk(JobTest):
    """The outputs are on their own small disk."""

    def start_on_disk(self, *arguments, config=LONG, size="8m"):
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "none", self.disk], capture_output=True,
                                 check=False)
        if mounted.returncode != 0:
            self.skipTest("cannot mount here (mount needs CAP_SYS_ADMIN)")
        self.addCleanup(subprocess.run, ["umount", "--lazy", self.disk], check=True)
        job = self.start("-n", 2, "--output-dir", self.disk / "out", *arguments, config=config)
        job.output_dir = self.disk / "out"
        return job

    def fill(self):
        with open(self.disk / "filler", "wb", buffering=0) as filler:
            for size in (1 << 20, 1 << 12):
                try:
                    while True:
                        filler.write(b"x" * size)
                except OSError:
                    pass

    def free(self):
        os.unlink(self.disk / "filler")

    def train_on_a_full_disk(self, job):
        job.wait_for_step(3)
        self.fill()
        job.wait_until(lambda: "note: " in job.stderr, "note", 60)
        self.assertRegex(job.stderr, "note: .*/(metrics.csv|replica-0.*) cannot be written: No space left on device; "
                                     "the job continues, and unwritten results are held in memory\n")

    def files(self, job):
        """Returns the files except the last checkpoint, which is also attempted (checkpoint_test.py), and replicas.csv,
        which exists only if a heartbeat came after a step."""
        others = ("checkpoints", ".poprun-emu.lock", "replicas.csv")
        return sorted(path.name for path in job.output_dir.iterdir() if path.name not in others)

    def assert_metrics_are_whole(self, job):
        rows = (job.output_dir / "metrics.csv").read_text().splitlines(keepends=True)
        self.assertTrue(all(row.endswith("\n") and row.count(",") == 6 for row in rows), rows[-1])
        steps = [int(row.split(",")[0]) for row in rows[1:]]
        self.assertEqual(steps, list(range(1, len(steps) + 1)))
        return len(steps)

    def test_in_training_loses_nothing(self):
        job = self.start_on_disk()
        self.train_on_a_full_disk(job)
        written = self.assert_metrics_are_whole(job)
        self.free()
        job.wait_for_step(written + 3)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(30), 143, job.stderr)
        self.assertEqual(self.assert_metrics_are_whole(job), job.profile()["outcome"]["steps"])
        self.assertEqual(job.stderr.count("cannot be written"), 1, job.stderr)
        self.assertIn("works again", job.stderr)

    def test_loses_no_event_of_tensorboard(self):
        events = self.folder / "disk" / "events"
        job = self.start_on_disk("--tensorboard", events)
        job.wait_for_step(3)
        self.fill()
        job.wait_until(lambda: "No space left on device; the job continues" in job.stderr, "note", 60)
        time.sleep(1)
        self.assertTrue(curves(events)["training/loss"], "the file ends with a whole record")
        self.free()
        job.wait_until(lambda: "works again" in job.stderr, "second note", 60)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(30), 143, job.stderr)
        steps = job.profile()["outcome"]["steps"]
        self.assertEqual(list(curves(events)["training/loss"]), list(range(1, steps + 1)))

    def test_at_the_end_is_waited_for_and_named_with_what_is_needed(self):
        job = self.start_on_disk()
        self.train_on_a_full_disk(job)
        job.process.send_signal(signal.SIGTERM)
        told = "the job will retry for 600 s, then end without these results"
        job.wait_until(lambda: told in job.stderr, "message", 60)
        self.assertRegex(job.stderr, "weights.safetensors cannot be written: No space left on device; it needs 1.6 MiB, "
                                     "but only 0 B is free; make room: " + told)
        self.assertEqual(self.files(job), ["logs", "metrics.csv"])
        self.free()
        self.assertEqual(job.wait(30), 143, job.stderr)
        self.assertTrue(job.weights_hash())
        self.assertEqual(self.assert_metrics_are_whole(job), job.profile()["outcome"]["steps"])

    def test_at_the_end_that_stays_full_leaves_no_partial_result(self):
        job = self.start_on_disk()
        self.train_on_a_full_disk(job)
        for _ in range(2):
            job.process.send_signal(signal.SIGTERM)
            job.wait_until(lambda: "make room" in job.stderr, "message", 60)
        self.assertEqual(job.wait(30), 143, job.stderr)
        self.assertEqual(self.files(job), ["logs", "metrics.csv"])
        self.assertEqual(list((job.output_dir / "checkpoints").glob("*.part")), [])
        self.assert_metrics_are_whole(job)
        self.assert_gone(job)

    def test_at_the_end_until_the_jobs_time_is_up_is_named_and_ends_it_with_75(self):
        job = self.start_on_disk("--timeout", 8, "--training.steps", 300)
        self.train_on_a_full_disk(job)
        self.assertEqual(job.wait(60), 75, job.stderr)
        self.assertRegex(job.stderr, "weights.safetensors cannot be written: .*before --timeout expired; the job "
                                     "ends without these results\n")
        self.assertEqual(self.files(job), ["logs", "metrics.csv"])
        self.assert_gone(job)

    def test_that_is_too_small_for_the_weights_is_named_and_not_tried_again(self):
        job = self.start_on_disk("--restarts", 3, size="1m")
        self.assertEqual(job.wait(60), 75, job.stderr)
        self.assertIn("the weights need 1.6 MiB, but the folder's disk has", job.stderr)
        self.assertNotIn("restart 1 of", job.stderr)
        self.assert_gone(job)


class HungDisk(JobTest):
    """The outputs are on their own file system, which is frozen for a while."""

    def start_on_disk(self, *arguments):
        image, self.disk = self.folder / "image", self.folder / "disk"
        self.disk.mkdir()
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        image.write_bytes(b"")
        os.truncate(image, 64 << 20)
        for command in (["mkfs.ext4", "-q", image], ["mount", "-o", "loop", image, self.disk]):
            if not shutil.which(command[0]) or subprocess.run(command, capture_output=True, check=False).returncode != 0:
                self.skipTest(f"cannot run {command[0]} here")
        self.addCleanup(subprocess.run, ["umount", "--lazy", self.disk], check=True)
        if not self.freeze() or not self.freeze("--unfreeze"):
            self.skipTest("cannot freeze a file system here")
        job = self.start("-n", 2, "--output-dir", self.disk / "out", "--metrics-port", self.port, *arguments, config=LONG)
        self.addCleanup(self.freeze, "--unfreeze")
        job.output_dir = self.disk / "out"
        job.wait_for_step(3)
        return job

    def freeze(self, way="--freeze"):
        return subprocess.run(["fsfreeze", way, self.disk], capture_output=True, check=False).returncode == 0

    def is_healthy(self):
        with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5) as answer:
            return answer.status == 200

    def test_keeps_nobody_waiting_and_loses_nothing(self):
        job = self.start_on_disk()
        self.assertTrue(self.freeze())
        job.wait_until(lambda: "has not responded for" in job.stderr, "note", 60)
        self.assertTrue(self.is_healthy())
        job.process.send_signal(signal.SIGTERM)
        job.wait_until(lambda: "SIGTERM: stopping at the next micro-batch" in job.stderr, "drain", 10)
        self.assertTrue(self.is_healthy())
        time.sleep(1)
        self.assertTrue(self.freeze("--unfreeze"))
        self.assertEqual(job.wait(60), 143, job.stderr)
        steps = job.profile()["outcome"]["steps"]
        self.assertEqual(len(job.metrics()), steps)
        self.assertTrue((job.output_dir / "weights.safetensors").exists())

    def test_for_good_is_given_up_at_the_drain_timeout(self):
        job = self.start_on_disk("--drain-timeout", 3)
        self.assertTrue(self.freeze())
        time.sleep(1)
        job.process.send_signal(signal.SIGTERM)
        job.wait_until(lambda: "has not stopped within 3 s" in job.stderr, "drain timeout", 30)
        job.wait_until(lambda: re.search("the files in .* could not be written yet", job.stderr), "wait for the disk", 30)
        job.process.send_signal(signal.SIGTERM)
        job.wait_until(lambda: "ending before the files in" in job.stderr, "end", 10)
        self.freeze("--unfreeze")  # Until then, the kernel keeps the thread that writes, and with it the process.
        self.assertEqual(job.wait(10), 143, job.stderr)


if __name__ == "__main__":
    unittest.main()
