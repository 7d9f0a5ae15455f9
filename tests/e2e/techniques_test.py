#!/usr/bin/env python3
"""Many techniques at once, in processes, are bit-identical to the plain job. (tests/random tries more, in threads.)"""
import random
import unittest

import npy_file
from emulated_job import JobTest
from onnx_file import field, node, tensor, value_info

TRANSFORMER = """
[model]
layers = 4
hidden = 32
heads = 2
vocabulary = 96
sequence-length = 12
dropout = 0.1
[data]
source = synthetic:tokens,vocabulary=96,items=512
sequence-length = 12
micro-batch-size = 2
[training]
steps = 2
gradient-accumulation = 3
gradient-reduction = every-micro-batch
learning-rate = 0.001
clip-norm = 1
"""

BERT = TRANSFORMER.replace("[model]", "[model]\nname = bert-base\nprecision = half").replace(
    "[training]", "task = masked-lm\nmasks = 3\n[training]\noptimizer = lamb\nstochastic-rounding = true")
GPT2 = TRANSFORMER.replace("[model]", "[model]\nname = gpt2").replace("[training]", "[training]\noptimizer = adamw")

IMAGES = """
[model]
name = {model}
[data]
source = synthetic:images={shape},classes=10,items=512
micro-batch-size = 2
[training]
steps = 2
gradient-accumulation = 4
learning-rate = 0.001
evaluate = false
"""

REGRESSION = """
[model]
onnx = {folder}/net.onnx
loss = mean-squared-error
[data]
source = npy:{folder}
micro-batch-size = 4
[training]
steps = 2
gradient-accumulation = 3
evaluate = false
"""

OFF_CHIP = [word for kind in ("weights", "optimizer-state", "accumulators", "activations")
            for word in (f"--memory.{kind}", "off-chip")]
SHARDED = ["--memory.sharding-min-elements", 8, "--memory.replicated-tensor-sharding"]


class Techniques(JobTest):
    def assert_equal_bits(self, config, replicas, *techniques):
        plain = self.run_job("-n", replicas, "--num-instances", 1, config=config)
        job = self.run_job("-n", replicas, "--num-instances", 2, "--memory.poison-dead", "true", *techniques,
                           config=config)
        self.assertEqual(job.weights_hash(), plain.weights_hash())
        self.assertEqual([row["loss"] for row in job.metrics()], [row["loss"] for row in plain.metrics()])

    def test_of_a_pipeline_whose_head_shares_an_ipu_with_the_embeddings(self):
        self.assert_equal_bits(BERT, 4, "--ipus-per-replica", 2, "--pipeline.layers-per-ipu", "0 4 0",
                               "--pipeline.device-mapping", "0 1 0", "--pipeline.schedule", "interleaved",
                               "--pipeline.recomputation", "layer", *OFF_CHIP, *SHARDED,
                               "weights,optimizer-state,accumulators", "--memory.sharding-group", 2,
                               "--memory.outlining", "on")

    def test_of_phases_on_two_ipus(self):
        self.assert_equal_bits(GPT2, 2, "--ipus-per-replica", 2, "--memory.phases", 4, "--memory.phase-ipus", 2,
                               *OFF_CHIP, *SHARDED, "weights,optimizer-state", "--memory.outlining", "on")

    def test_of_exact_tiles(self):
        self.assert_equal_bits(IMAGES.format(model="small-cnn", shape="1x28x28"), 2, "--ipus-per-replica", 2,
                               "--pipeline.split", "conv2 fc2", "--pipeline.device-mapping", "1 0 1", "--device.tiles", 24,
                               "--device.bytes-per-tile", 4 << 20, "--memory.tiles", "exact", *OFF_CHIP, *SHARDED,
                               "weights,optimizer-state")

    def test_of_running_statistics(self):
        self.assert_equal_bits(IMAGES.format(model="resnet18", shape="3x16x16"), 2, "--ipus-per-replica", 2,
                               "--pipeline.recomputation", "all", *OFF_CHIP, *SHARDED, "weights,optimizer-state")

    def test_of_norms_over_groups_of_replicas(self):
        config = IMAGES.format(model="resnet18", shape="3x16x16").replace("[data]", "norm-span = 2\n[data]")
        self.assert_equal_bits(config, 4, "--ipus-per-replica", 2, "--pipeline.recomputation", "all", *OFF_CHIP,
                               *SHARDED, "weights,optimizer-state", "--memory.outlining", "on")

    def test_of_slices_of_the_sequence(self):
        config = GPT2.replace("[data]", "serialised-sequence = lm_head=5 mlp.c_fc=3\n[data]")
        self.assert_equal_bits(config, 2, "--ipus-per-replica", 2, "--pipeline.recomputation", "all",
                               "--pipeline.recompute", "lm_head", *OFF_CHIP, *SHARDED, "weights,optimizer-state",
                               "--memory.outlining", "on")

    def test_of_a_regression(self):
        """Its loss divides by a number that no layer computes and that the backward pass reads."""
        rng = random.Random(3)
        def draw(*shape):
            count = 1
            for size in shape:
                count *= size
            return [rng.uniform(-1, 1) for _ in range(count)]
        graph = b"".join([
            field(1, node("MatMul", ["x", "W1"], "a")), field(1, node("Relu", ["a"], "b")),
            field(1, node("MatMul", ["b", "W2"], "y")), field(2, "regression"),
            field(5, tensor("W1", [6, 5], draw(6, 5))), field(5, tensor("W2", [5, 3], draw(5, 3))),
            field(11, value_info("x", ["N", 6])), field(12, value_info("y", ["N", 3]))])
        (self.folder / "net.onnx").write_bytes(field(1, 7) + field(7, graph) + field(8, field(1, "") + field(2, 13)))
        for name, features in (("x", 6), ("y", 3)):
            (self.folder / f"{name}_train.npy").write_bytes(npy_file.floats((64, features), draw(64, features)))
        config = REGRESSION.format(folder=self.folder)
        self.assert_equal_bits(config, 2, "--pipeline.recomputation", "all")
        check = self.run_job("check", "-n", 2, "--num-instances", 1, "--check-ipus", 2, "--check-steps", 2, config=config)
        self.assertRegex(check.stdout, r"\n(\d+) of \1 runs bit-identical to the reference, over 2 steps")


class RoundingApart(JobTest):
    """These techniques change the last bits of losses only."""

    def assert_equal_losses(self, one, other):
        for a, b in zip(one.metrics(), other.metrics(), strict=True):
            self.assertAlmostEqual(float(a["loss"]), float(b["loss"]), delta=2e-5 * abs(float(a["loss"])))

    def test_norms_over_two_replicas_are_those_of_one_with_twice_the_micro_batch(self):
        # A model without kinks, at which rounding would matter.
        config = IMAGES.format(model="efficientnet-b0", shape="3x32x32").replace("[training]", "order = sequential\n[training]")
        config = config.replace("accumulation = 4", "accumulation = 1")  # So that both have the same micro-batches.
        one = self.run_job("-n", 1, "--data.micro-batch-size", 16, config=config)
        two = self.run_job("-n", 2, "--data.micro-batch-size", 8, "--model.norm-span", 2, config=config)
        self.assert_equal_losses(one, two)
        apart = self.run_job("-n", 2, "--data.micro-batch-size", 8, config=config)
        self.assertGreater(abs(float(apart.metrics()[1]["loss"]) - float(one.metrics()[1]["loss"])), 1e-3)

    def test_slices_of_the_sequence_have_the_losses_of_the_whole(self):
        whole = self.run_job("-n", 2, config=GPT2)
        slices = self.run_job("-n", 2, "--model.serialised-sequence", "lm_head=5", config=GPT2)
        self.assert_equal_losses(whole, slices)

    def test_groups_must_divide_the_replicas(self):
        config = IMAGES.format(model="resnet18", shape="3x16x16")
        job = self.run_job("-n", 4, "--model.norm-span", 3, config=config, code=64)
        self.assert_first_line(job, "model.norm-span = 3: 4 replicas cannot be divided into groups of 3")


if __name__ == "__main__":
    unittest.main()
