#!/usr/bin/env python3
"""data.compute-batch-size, through the real command."""
import unittest

from emulated_job import ACCUMULATING, JobTest


def losses(job):
    return [(row["step"], row["split"], row["loss"], row["accuracy"]) for row in job.metrics()]


class ComputeBatches(JobTest):
    def test_have_the_samples_of_their_micro_batches_in_their_order(self):
        # On one replica, so that micro-batches of 16 have the same order as the parts of micro-batches of 64.
        pieces = self.run_job("--data.compute-batch-size", 16, config=ACCUMULATING)
        small = self.run_job("--data.micro-batch-size", 16, "--training.gradient-accumulation", 16, config=ACCUMULATING)
        self.assertEqual(pieces.weights_hash(), small.weights_hash())
        self.assertEqual(losses(pieces), losses(small))
        self.assertEqual(pieces.profile()["outcome"]["testItems"], small.profile()["outcome"]["testItems"])
        self.assertEqual(pieces.profile()["batchSizes"],
                         {"computeBatchSize": 16, "microBatchSize": 64, "replicaBatchSize": 256, "globalBatchSize": 256})
        whole = self.run_job(config=ACCUMULATING)
        self.assertLess(float(pieces.profile()["plannedMemory"][0]["peak"]),
                        float(whole.profile()["plannedMemory"][0]["peak"]))

    def test_are_shown_by_a_dry_run_and_go_with_several_replicas(self):
        dry = self.run_job("--dry-run", "-n", 2, "--data.compute-batch-size", 8, config=ACCUMULATING)
        self.assertIn("compute 8, micro 64, replica 256, global 512 samples", dry.stdout)
        apart = self.run_job("-n", 2, "--data.compute-batch-size", 8, config=ACCUMULATING)
        together = self.run_job("-n", 2, "--num-instances", 1, "--data.compute-batch-size", 8, config=ACCUMULATING)
        self.assertEqual(apart.weights_hash(), together.weights_hash())
        self.assertEqual(losses(apart), losses(together))

    def test_pass_a_check(self):
        self.run_job("check", "-n", 2, "--num-instances", 1, "--data.micro-batch-size", 4, "--data.compute-batch-size", 2,
                     "--training.steps", 1, config=ACCUMULATING)

    def test_are_refused_with_batch_norm_and_where_they_do_not_divide(self):
        job = self.run_job("--model.name", "resnet18", "--data.compute-batch-size", 8, "--data.source",
                           "synthetic:images=3x32x32,classes=5,items=640", config=ACCUMULATING, code=64)
        self.assert_first_line(job, "data.compute-batch-size = 8: resnet18 normalises over the micro-batch")
        job = self.run_job("--data.compute-batch-size", 24, config=ACCUMULATING, code=64)
        self.assert_first_line(job, "data.compute-batch-size = 24 does not divide data.micro-batch-size = 64; use 16")


if __name__ == "__main__":
    unittest.main()
