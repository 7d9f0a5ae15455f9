#!/usr/bin/env python3
"""A model whose weights need four times an IPU's memory trains in phases, bit-identical to an IPU that holds it."""
import unittest

import safetensors_file
from emulated_job import JobTest

LAYERS = 48
TILES, BYTES_PER_TILE = 8, 3_407_872
DEVICE_BYTES = TILES * BYTES_PER_TILE

MODEL = f"""
[model]
name = mlp
layers = {LAYERS}
hidden = 768
[data]
source = synthetic:images=1x16x16,classes=10,items=32
micro-batch-size = 4
[training]
steps = 2
gradient-accumulation = 2
"""

SMALL_DEVICE = ("--device.tiles", TILES, "--device.bytes-per-tile", BYTES_PER_TILE)

# Everything that can be off-chip is. Each layer is a phase.
PHASED = (*SMALL_DEVICE, "--memory.phases", LAYERS + 1,
          *(word for kind in ("weights", "optimizer-state", "accumulators", "activations")
            for word in (f"--memory.{kind}", "off-chip")))

# Two IPUs take turns.
PING_PONG = ("--ipus-per-replica", 2, "--memory.phase-ipus", 2)


class Phases(JobTest):
    def train(self, *arguments):
        return self.run_job("--num-instances", 1, *arguments, config=MODEL)

    def assert_equal_bits(self, jobs, plain):
        for name, job in jobs.items():
            with self.subTest(name):
                self.assertEqual(job.weights_hash(), plain.weights_hash())
                self.assertEqual([row["loss"] for row in job.metrics()], [row["loss"] for row in plain.metrics()])

    def assert_four_times_the_memory(self, job):
        weights = safetensors_file.read(job.output_dir / "weights.safetensors")
        self.assertGreaterEqual(sum(len(data) for _, _, data in weights.values()), 4 * DEVICE_BYTES)
        for memory in job.profile()["plannedMemory"]:
            self.assertEqual(memory["capacity"], DEVICE_BYTES)
            self.assertLessEqual(memory["peak"], DEVICE_BYTES)

    def test_train_a_model_of_four_times_the_memory_to_the_bits_of_an_ipu_where_it_fits(self):
        plain = self.train()
        one = self.train(*PHASED)
        two = self.train(*PHASED, *PING_PONG)
        self.assert_equal_bits({
            "phases": one,
            "phases on two IPUs": two,
            "phases on exact tiles": self.train(*PHASED, "--memory.tiles", "exact"),
        }, plain)
        self.assert_four_times_the_memory(one)
        self.assert_four_times_the_memory(two)

        # One IPU computes while the other one loads.
        times = [job.profile()["device"] for job in (one, two)]
        self.assertLess(times[1]["stepSeconds"], 0.7 * times[0]["stepSeconds"])
        self.assertGreater(sum(ipu["busySeconds"] for ipu in times[1]["ipus"]), 1.5 * times[1]["stepSeconds"])

    def test_train_several_replicas_and_shards(self):
        plain = self.train("-n", 2)
        phased = self.train("-n", 2, *PHASED)
        sharded = self.train("-n", 2, *PHASED, "--memory.replicated-tensor-sharding", "weights,optimizer-state")
        self.assert_equal_bits({"phases": phased, "shards": sharded}, plain)
        self.assert_four_times_the_memory(phased)
        self.assert_four_times_the_memory(sharded)

    def test_go_on_from_weights_with_adam(self):
        weights = self.train("--training.steps", 1).output_dir / "weights.safetensors"
        go_on = ("--model.initial-weights", weights, "--training.optimizer", "adam", "--training.learning-rate", 0.001)
        self.assert_equal_bits({"phases": self.train(*PHASED, *go_on)}, self.train(*go_on))

    def test_are_what_makes_it_fit(self):
        self.run_job("--dry-run", *SMALL_DEVICE, config=MODEL, code=86)


if __name__ == "__main__":
    unittest.main()
