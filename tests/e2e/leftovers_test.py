#!/usr/bin/env python3
"""The next job removes the files of jobs whose processes were all killed at once, and no other files."""
import os
import signal
import time
import unittest

from emulated_job import JobTest, QUICK

LONG = QUICK.replace("steps = 5", "steps = 100000")


class Leftovers(JobTest):
    """The jobs' temporary files and shared memory are in the test's own folders."""

    def setUp(self):
        super().setUp()
        self.places = self.folder / "places"
        for name in ("files", "memory"):
            (self.places / name).mkdir(parents=True)

    def start_here(self, *arguments, **keywords):
        return self.start(*arguments, environment={
            "TMPDIR": str(self.places / "files"),
            "OMPI_MCA_btl_vader_backing_directory": str(self.places / "memory")}, **keywords)

    def left(self):
        return sorted(str(path.relative_to(self.places)) for path in self.places.glob("*/*"))

    def run_next(self):
        job = self.start_here("-n", 2)
        self.assertEqual(job.wait(), 0, job.stderr)
        self.assert_gone(job)

    def kill_in_training(self):
        job = self.start_here("-n", 4, config=LONG)
        job.wait_for_step(3)
        job.kill_everything()
        self.assert_gone(job)
        return job

    def test_of_a_job_in_training_are_removed_by_the_next(self):
        self.kill_in_training()
        left = self.left()
        self.assertEqual(len([name for name in left if name.startswith("memory/vader_segment.")]), 4, left)
        self.assertEqual(len([name for name in left if name.startswith("files/poprun-emu.")]), 1, left)
        self.run_next()
        self.assertEqual(self.left(), [])

    def test_of_jobs_killed_while_they_start_are_removed_by_the_next(self):
        for delay in (0.03, 0.06, 0.09, 0.12, 0.15, 0.2, 0.25, 0.3, 0.4):
            job = self.start_here("-n", 4, config=LONG)
            time.sleep(delay)
            job.kill_everything()
            self.assert_gone(job)
        self.run_next()
        self.assertEqual(self.left(), [])

    def test_are_removed_beside_a_job_that_runs_on(self):
        running = self.start_here("-n", 2, config=LONG)
        running.wait_for_step(3)
        before = self.left()
        self.kill_in_training()
        self.run_next()
        self.assertEqual(self.left(), before)
        running.wait_for_step(int(running.metrics()[-1]["step"]) + 3)
        running.process.send_signal(signal.SIGTERM)
        self.assertEqual(running.wait(), 143, running.stderr)
        self.assertEqual(self.left(), [])

    def test_of_many_jobs_are_removed_by_many_that_start_at_once(self):
        for _ in range(2):
            self.kill_in_training()
        jobs = [self.start_here("-n", 2) for _ in range(4)]
        for job in jobs:
            self.assertEqual(job.wait(), 0, job.stderr)
        self.assertEqual(self.left(), [])

    def test_of_other_programs_stay(self):
        user = os.geteuid()
        host = os.uname().nodename
        for name in (f"files/ompi.{host}.{user}/pid.4194303/contact.txt", f"files/ompi.{host}.{user}/jf.3/file",
                     f"memory/vader_segment.{host}.{user}.30001.0", "files/poprun-emu.others"):
            (self.places / name).parent.mkdir(parents=True, exist_ok=True)
            (self.places / name).write_text("")
        before = sorted(self.places.rglob("*"))
        self.kill_in_training()
        self.run_next()
        self.assertEqual(sorted(self.places.rglob("*")), before)

    def test_in_an_output_folder_are_removed_by_the_next_job_there(self):
        job = self.run_job("-n", 2)
        parts = [job.output_dir / name for name in ("weights.safetensors.part", ".poprun-emu-4194303")]
        kept = job.output_dir / "another.part"
        for path in (*parts, kept):
            path.write_text("")
        self.run_job("-n", 2, "--output-dir", job.output_dir, "--overwrite")
        self.assertEqual([path for path in (*parts, kept) if path.exists()], [kept])


if __name__ == "__main__":
    unittest.main()
