#!/usr/bin/env python3
"""Many techniques at once, in processes, give the bits of the plain job. (tests/random tries far more, in threads.)"""
import unittest

from emulated_job import JobTest

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


if __name__ == "__main__":
    unittest.main()
