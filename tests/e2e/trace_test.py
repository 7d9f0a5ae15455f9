#!/usr/bin/env python3
"""report.trace-steps: what every replica of a run did, on the wall clock."""
import collections
import itertools
import os
import signal
import unittest

from emulated_job import QUICK, JobTest
from perfetto_trace import read_trace

LONG = QUICK.replace("steps = 5", "steps = 100000")


class Trace(JobTest):
    def test_of_a_run_shows_all_replicas_and_joins_their_all_reduces(self):
        job = self.run_job("-n", 4, "--report.trace-steps", "2-4", "--training.evaluate-every-epochs", 1,
                           "--checkpoint-every", 3)
        self.assertIn(f"trace of steps 2 to 4 of 4 replicas in {job.output_dir}/trace.pftrace", job.stderr)
        slices = read_trace(job.output_dir / "trace.pftrace")
        by_process = collections.defaultdict(lambda: collections.defaultdict(list))
        for slice in slices:
            by_process[slice.process][slice.track].append(slice)
        device = by_process.pop("replica on the device clock")
        self.assertIn("IPU 0", device)
        self.assertEqual(len(by_process), 4)
        for tracks in by_process.values():
            self.assertEqual(set(tracks), {"steps", "operators", "collectives", "host streams"})
            steps = [slice for slice in tracks["steps"] if slice.name == "step"]
            self.assertEqual([step.values["step"] for step in steps], [2, 3, 4])
            for slice in itertools.chain(tracks["operators"], tracks["collectives"], tracks["host streams"]):
                inside = [step for step in steps if step.begin <= slice.begin and slice.end <= step.end]
                self.assertEqual(len(inside), 1, slice)
            self.assertTrue(any("conv2d 'conv1'" in slice.name for slice in tracks["operators"]))
        # Without sharding, replica 0 alone stores the state.
        self.assertEqual([(slice.process.split(",")[0], slice.values["step"]) for slice in slices
                          if slice.name == "checkpoint"], [("replica 0", 3)])
        flows = collections.defaultdict(list)
        for slice in slices:
            if slice.flow:
                flows[slice.flow].append(slice)
        self.assertGreaterEqual(len(flows), 3)
        for met in flows.values():
            self.assertEqual(len({slice.process for slice in met}), 4)
            self.assertEqual(len({(slice.name, slice.values["step"]) for slice in met}), 1)
            # No replica leaves before all have entered.
            self.assertLessEqual(max(slice.begin for slice in met), min(slice.end for slice in met))
        self.assertEqual(min(slice.begin for slice in slices), 0)

    def test_comes_from_processes_and_threads_alike(self):
        job = self.run_job("-n", 4, "--num-instances", 2, "--report.trace-steps", 5)
        self.assertIn("trace of step 5 of 4 replicas", job.stderr)
        processes = {slice.process.split(",")[0] for slice in read_trace(job.output_dir / "trace.pftrace")}
        self.assertEqual(processes, {f"replica {r}" for r in range(4)} | {"replica on the device clock"})

    def test_is_written_while_the_job_runs_and_survives_its_end(self):
        job = self.start("-n", 2, "--report.trace-steps", "1-3", config=LONG)
        file = job.output_dir / "trace.pftrace"
        job.wait_until(lambda: file.exists() and file.stat().st_size > 0, "the trace", 60)
        self.assertTrue(read_trace(file))
        written = file.read_bytes()
        job.process.send_signal(signal.SIGINT)
        job.wait(30)
        self.assertEqual(file.read_bytes(), written)

    def test_of_a_job_that_ends_early_holds_the_steps_so_far(self):
        job = self.start("-n", 2, "--report.trace-steps", "1-1000", config=LONG)
        job.wait_for_step(25)
        job.process.send_signal(signal.SIGINT)
        job.wait(60)
        self.assertRegex(job.stderr, r"trace of steps 1 to \d+ of 2 replicas in .*trace\.pftrace\n")
        steps = {slice.values["step"] for slice in read_trace(job.output_dir / "trace.pftrace") if slice.name == "step"}
        self.assertGreater(len(steps), 20)

    def test_of_an_earlier_attempt_is_kept(self):
        job = self.start("-n", 2, "--report.trace-steps", "1-3", "--restarts", 1, "--checkpoint-every", 20,
                         config=QUICK.replace("steps = 5", "steps = 400"))
        job.wait_for_step(45)
        os.kill(job.replica_pid(1), signal.SIGKILL)
        self.assertEqual(job.wait(120), 0, job.stderr)
        self.assertEqual(job.stderr.count("trace of steps 1 to 3 of 2 replicas"), 1, job.stderr)
        self.assertNotIn("no trace was written", job.stderr)
        self.assertTrue(read_trace(job.output_dir / "trace.pftrace"))

    def test_of_more_steps_than_the_job_has_shows_them_all(self):
        job = self.run_job("-n", 2, "--report.trace-steps", "4-9223372036854775807")
        self.assertIn("trace of steps 4 to 5 of 2 replicas", job.stderr)
        self.assertNotIn("left out", job.stderr)

    def test_of_steps_that_the_job_does_not_have_is_explained(self):
        job = self.run_job("-n", 2, "--report.trace-steps", "10-12")
        self.assertIn("note: the job ended after step 5, before the steps of report.trace-steps; no trace was written",
                      job.stderr)
        self.assertFalse((job.output_dir / "trace.pftrace").exists())

    def test_changes_no_result(self):
        plain = self.run_job("-n", 2)
        traced = self.run_job("-n", 2, "--report.trace-steps", "1-5")
        self.assertEqual(plain.weights_hash(), traced.weights_hash())

    def test_of_wrong_requests_says_so(self):
        for value, message in (("0", "STEP or FIRST-LAST"), ("5-3", "STEP or FIRST-LAST"), ("x", "STEP or FIRST-LAST")):
            job = self.run_job("--report.trace-steps", value, code=64)
            self.assert_first_line(job, "--report.trace-steps", message)
        job = self.run_job("--report.trace-steps", "1-2", "--report.dump-tensors", "conv@1", code=64)
        self.assert_first_line(job, "report.trace-steps cannot be combined with report.dump-tensors")


if __name__ == "__main__":
    unittest.main()
