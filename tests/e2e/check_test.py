#!/usr/bin/env python3
"""poprun-emu check: every way to run a small job gives the bits of the plain one."""
import json
import signal
import unittest

from emulated_job import QUICK, ROOT, JobTest

CNN = QUICK.replace("steps = 5", "steps = 5\ngradient-accumulation = 4")

BERT = f"""
[model]
name = bert-base
layers = 2
hidden = 32
heads = 2
vocabulary = 257
sequence-length = 16
dropout = 0.1
[data]
source = text:{ROOT}/ARCHITECTURE.md
sequence-length = 16
micro-batch-size = 2
task = masked-lm
masks = 3
[training]
steps = 100
gradient-accumulation = 3
optimizer = lamb
clip-norm = 1
learning-rate = 0.001
schedule = linear
"""

SCHEDULES = 3
RECOMPUTATIONS = 5


class Check(JobTest):
    def assert_all_equal(self, job):
        """On 1 IPU and on 2: a row on the screen and in check.json for each way."""
        found = json.loads((job.output_dir / "check.json").read_text())
        verdicts = [run["verdict"] for run in found["runs"]]
        ways = RECOMPUTATIONS * (1 + SCHEDULES)
        self.assertEqual(verdicts, ["REFERENCE"] + ["EQUAL"] * (ways - 1), job.stdout)
        self.assertIn(f"{ways - 1} of {ways - 1} runs equal to the reference in every bit, over 2 steps", job.stdout)
        self.assertEqual(len([line for line in job.stdout.splitlines() if "equal" in line]), ways, job.stdout)
        return found

    def test_of_a_convolutional_network_in_processes(self):
        job = self.run_job("check", "-n", 2, "--check-ipus", 2, "--check-steps", 2, config=CNN)
        found = self.assert_all_equal(job)
        self.assertEqual({run["ipus"] for run in found["runs"]}, {1, 2})
        self.assertTrue(all(run["peakBytes"] > 0 and 0 < run["utilisation"] <= 1 for run in found["runs"]))

    def test_of_a_transformer_in_threads(self):
        self.assert_all_equal(self.run_job("check", "-n", 2, "--num-instances", 1, "--check-ipus", 2, "--check-steps", 2,
                                           config=BERT))

    def test_leaves_the_results_of_a_job_alone(self):
        job = self.start("check", "-n", 2, "--check-ipus", 2, "--check-steps", 1000, config=CNN)
        weights = job.output_dir / "weights.safetensors"
        job.output_dir.mkdir(exist_ok=True)
        weights.write_text("mine")
        job.wait_until(lambda: "IPUs  split" in job.stdout, "first row", 60)
        job.process.send_signal(signal.SIGTERM)
        self.assertEqual(job.wait(20), 143, job.stderr)
        self.assertEqual(weights.read_text(), "mine")
        self.assertFalse((job.output_dir / "check.json").exists())
        self.assert_gone(job)

    def test_needs_a_layer_for_each_ipu(self):
        job = self.run_job("check", "--check-ipus", 5, config=CNN, code=64)
        self.assert_first_line(job, "--check-ipus = 5", "small-cnn has 4 layers (conv1, conv2, fc1, fc2)")


if __name__ == "__main__":
    unittest.main()
