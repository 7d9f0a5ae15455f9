#!/usr/bin/env python3
"""The goodput of a job: its parts add up to its wall time, and each cause of lost time is in its part."""
import os
import signal
import time
import unittest

from emulated_job import JobTest

CONFIG = """
[model]
name = small-cnn
[data]
source = synthetic:images=1x28x28,classes=10,items=1280
micro-batch-size = 64
[training]
steps = 120
schedule = constant
"""
PARTS = ("stepSeconds", "evaluationSeconds", "startSeconds", "dataSeconds", "savingSeconds", "redoneSeconds",
         "downSeconds")


class Goodput(JobTest):
    def goodput_of(self, job, wall_seconds):
        goodput = job.profile()["goodput"]
        self.assertAlmostEqual(sum(goodput[part] for part in PARTS), goodput["totalSeconds"], delta=1e-6)
        self.assertTrue(all(goodput[part] >= 0 for part in PARTS), goodput)
        self.assertLessEqual(goodput["totalSeconds"], wall_seconds)
        productive = goodput["stepSeconds"] + goodput["evaluationSeconds"]
        self.assertAlmostEqual(goodput["ratio"], productive / goodput["totalSeconds"], delta=1e-9)
        return goodput

    def test_of_a_job_without_failures_has_no_time_that_a_restart_costs(self):
        began = time.monotonic()
        job = self.run_job("-n", 2, config=CONFIG)
        goodput = self.goodput_of(job, time.monotonic() - began)
        self.assertEqual((goodput["attempts"], goodput["redoneSteps"], goodput["redoneSeconds"],
                          goodput["downSeconds"]), (1, 0, 0, 0))
        for part in ("stepSeconds", "evaluationSeconds", "startSeconds"):
            self.assertGreater(goodput[part], 0, part)
        evaluation = job.profile()["wall"]["evaluationSeconds"]  # Of replica 0, whose messages may be late.
        self.assertAlmostEqual(goodput["evaluationSeconds"], evaluation, delta=0.3 + 0.3 * evaluation)
        self.assertRegex(job.stdout, r"\ngoodput +\d+\.\d % of \d+\.\d\d s wall: steps \d+\.\d\d s, evaluation "
                                     r"\d+\.\d\d s\n  lost +start \d+\.\d\d s, data \d+\.\d\d s, saving \d+\.\d\d s\n")

    def test_names_what_a_killed_replica_and_a_slow_data_server_cost(self):
        began = time.monotonic()
        job = self.start("-n", 2, "--checkpoint-every", 20, "--restarts", 1, config=CONFIG)
        job.wait_for_step(5)
        [server] = job.pids("poprun-emu-hostio")
        os.kill(server, signal.SIGSTOP)
        time.sleep(3)
        os.kill(server, signal.SIGCONT)
        job.wait_until(lambda: len([row for row in job.metrics() if row["split"] == "train"]) > 25, "step 26", 60)
        os.kill(job.replica_pid(1), signal.SIGKILL)
        self.assertEqual(job.wait(), 0, job.stderr)
        goodput = self.goodput_of(job, time.monotonic() - began)
        self.assertEqual(goodput["attempts"], 2)
        self.assertGreater(goodput["redoneSteps"], 0)
        self.assertGreater(goodput["redoneSeconds"], 0)
        self.assertGreaterEqual(goodput["downSeconds"], 1)  # The pause before a restart.
        self.assertGreater(goodput["dataSeconds"], 1)       # Batches that had arrived bridge a part of the 3 s.
        self.assertGreater(goodput["savingSeconds"], 0)
        self.assertRegex(job.stdout, r"redone \d+\.\d\d s \(\d+ steps?\), down \d+\.\d\d s \(1 restart\)\n")


if __name__ == "__main__":
    unittest.main()
