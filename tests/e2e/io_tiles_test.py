#!/usr/bin/env python3
"""device.io-tiles, through the real command."""
import unittest

from emulated_job import ACCUMULATING, ROOT, JobTest

TRAIN = ACCUMULATING + "[memory]\noptimizer-state = off-chip\n"

BERT = f"""
[model]
name = bert-base
layers = 2
hidden = 32
heads = 2
vocabulary = 257
sequence-length = 16
dropout = 0.1
precision = half
[data]
source = text:{ROOT}/ARCHITECTURE.md
sequence-length = 16
task = masked-lm
masks = 3
micro-batch-size = 2
[training]
steps = 2
gradient-accumulation = 6
optimizer = lamb
learning-rate = 0.001
evaluate = false
[memory]
activations = off-chip
optimizer-state = off-chip
"""

IO_TILES = ("--device.io-tiles", 32)


def losses(job):
    return [(row["step"], row["split"], row["loss"], row["accuracy"]) for row in job.metrics()]


class IoTiles(JobTest):
    def test_change_no_bit_and_hide_what_comes_from_the_host(self):
        for replicas in (1, 2):
            with self.subTest(replicas=replicas):
                job = ("-n", replicas, "--num-instances", 1)
                plain = self.run_job(*job, config=TRAIN)
                io = self.run_job(*job, *IO_TILES, config=TRAIN)
                self.assertEqual(io.weights_hash(), plain.weights_hash())
                self.assertEqual(losses(io), losses(plain))
                before, now = plain.profile()["device"], io.profile()["device"]
                self.assertLess(now["stepSeconds"], before["stepSeconds"])
                self.assertLess(now["host"]["streamSeconds"], before["host"]["streamSeconds"])
                self.assertGreater(now["ioSeconds"], now["ioWaitedSeconds"])
                self.assertIn("I/O tiles", io.stdout)
                self.assertNotIn("I/O tiles", plain.stdout)

    def test_change_no_bit_of_bert_in_a_pipeline_with_activations_off_the_chip(self):
        job = ("-n", 2, "--num-instances", 1, "--ipus-per-replica", 2, "--memory.poison-dead", "true")
        plain = self.run_job(*job, config=BERT)
        io = self.run_job(*job, *IO_TILES, config=BERT)
        self.assertEqual(io.weights_hash(), plain.weights_hash())

    def test_pass_a_check(self):
        self.run_job("check", "-n", 2, "--num-instances", 1, *IO_TILES, "--data.micro-batch-size", 4,
                     "--training.steps", 1, config=TRAIN)


if __name__ == "__main__":
    unittest.main()
