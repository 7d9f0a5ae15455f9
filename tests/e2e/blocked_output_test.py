#!/usr/bin/env python3
"""A reader that stops reading must not stop the job or its results."""
import os
import pty
import shutil
import subprocess
import termios
import threading
import unittest

from emulated_job import Job, QUICK
from launcher_test import LauncherTest

STEPS = QUICK.replace("steps = 5", "steps = 200")


def full_pipe():
    """Returns both ends of a full pipe."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)
    try:
        while True:
            os.write(writing, b"\n" * 4096)
    except BlockingIOError:
        os.set_blocking(writing, True)
    return reading, writing


class OnDescriptor(LauncherTest):
    def start_on(self, descriptor, *arguments, **keywords):
        """Starts a job whose standard output and error are the descriptor, which then belongs to the job alone."""

        class Attached(Job):
            def popen(self, command, **keywords):
                return subprocess.Popen(command, **{**keywords, "stdout": descriptor, "stderr": descriptor})

        folder = self.folder / "job"
        folder.mkdir()
        job = Attached(folder, "-n", 4, "--heartbeat-timeout", 10, *arguments, **keywords)
        self.addCleanup(job.end)
        os.close(descriptor)
        return job

    def ends_with_results(self, job, reading, release):
        """Checks that the results are complete while nobody reads, and that the reader then gets the summary."""
        job.wait_until(lambda: (job.output_dir / "profile.json").exists(), "results", 60)
        release()
        text = bytearray()

        def read_on():
            try:
                while data := os.read(reading, 65536):
                    text.extend(data)
            except OSError:  # A terminal reports its end in this way.
                pass

        reader = threading.Thread(target=read_on)
        reader.start()
        self.assertEqual(job.wait(30), 0)
        reader.join()
        self.assertIn(b"results in", text)
        return text.decode(errors="replace")


class Blocked(OnDescriptor):
    def setUp(self):
        super().setUp()
        shutil.copy(self.real / "poprun-emu-replica", self.bin)

    def test_pipe_that_nobody_reads(self):
        reading, writing = full_pipe()
        self.addCleanup(os.close, reading)
        job = self.start_on(writing, "-vv", "--print-topology", config=STEPS)
        self.assertIn("200 steps done", self.ends_with_results(job, reading, lambda: None))
        self.assertEqual(len(job.metrics()), 200)

    def test_terminal_that_was_stopped(self):
        reading, terminal = pty.openpty()
        self.addCleanup(os.close, reading)
        keyboard = os.dup(terminal)
        termios.tcflow(keyboard, termios.TCOOFF)  # As Ctrl-S does.

        def go_on():
            termios.tcflow(keyboard, termios.TCOON)
            os.close(keyboard)

        job = self.start_on(terminal, "-vv", config=STEPS)
        self.ends_with_results(job, reading, go_on)

    def test_reader_that_goes_away_after_the_first_line(self):
        shell = ("bash", "-c", '"$@" 2>&1 | head -1; exit ${PIPESTATUS[0]}', "bash")
        job = self.run_job("-n", 2, "-v", wrapper=shell)
        self.assertEqual(len(job.metrics()), 5)
        self.assertTrue(job.weights_hash())


class Flooded(OnDescriptor):
    def test_pipe_that_nobody_reads_leaves_lines_out_and_says_so(self):
        reading, writing = full_pipe()
        self.addCleanup(os.close, reading)
        job = self.start_on(writing, environment={"FAKE_MODE": "floods", "FAKE_INSTANCE": "2", "FAKE_STEPS": "20"})
        log = job.output_dir / "logs" / "replica-02.log"

        def all_lines_have_come():
            return log.exists() and log.stat().st_size > 12_000_000

        text = self.ends_with_results(job, reading, lambda: job.wait_until(all_lines_have_come, "all lines", 30))
        self.assertTrue("lines left out here" in text, "nothing was left out")


if __name__ == "__main__":
    unittest.main()
