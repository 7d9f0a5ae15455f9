#!/usr/bin/env python3
"""memory.tiles = exact, through the real command: small models of every kind are bit-identical to the same models
with contiguous tensors."""
import itertools
import unittest

from emulated_job import ROOT, JobTest

# A small IPU, so that tiles are written and read quickly; the plans still split what they can.
FEW_TILES = ("--memory.tiles", "exact", "--device.tiles", 24)

TEXT = f"""
[model]
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
[training]
steps = 2
gradient-accumulation = 3
learning-rate = 0.001
evaluate = false
"""

BERT = TEXT.replace("[model]", "[model]\nname = bert-base").replace(
    "[training]", "task = masked-lm\nmasks = 3\n[training]\noptimizer = lamb\nclip-norm = 1")

GPT2 = TEXT.replace("[model]", "[model]\nname = gpt2").replace("[training]", "[training]\noptimizer = adamw")

RESNET = """
[model]
name = resnet18
[data]
source = synthetic:images=3x32x32,classes=5,items=40
micro-batch-size = 4
[training]
steps = 1
gradient-accumulation = 2
optimizer = momentum
learning-rate = 0.0001
"""

PLAIN = ()
PIPELINED = ("--ipus-per-replica", 2, "--pipeline.recomputation", "layer", "--memory.in-place", "true")


def losses(job):
    return [(row["step"], row["split"], row["loss"]) for row in job.metrics()]


class ExactTiles(JobTest):
    def assert_equal_bits(self, config, bytes_per_tile, precisions=("float", "half"), replicas=(1, 2)):
        """Checks that each variant of `config` on tiles is bit-identical to the plain job and uses tiles as planned."""
        exact = (*FEW_TILES, "--device.bytes-per-tile", bytes_per_tile)
        for precision, count in itertools.product(precisions, replicas):
            job = ("-n", count, "--num-instances", 1, "--model.precision", precision)
            plain = self.run_job(*job, config=config)
            for ways in (PLAIN, PIPELINED):
                with self.subTest(precision=precision, replicas=count, ways=ways):
                    tiled = self.run_job(*job, *exact, *ways, config=config)
                    self.assertEqual(tiled.weights_hash(), plain.weights_hash())
                    self.assertEqual(losses(tiled), losses(plain))
                    profile = tiled.profile()
                    self.assertEqual(profile["measuredPeakBytes"], [ipu["peak"] for ipu in profile["plannedMemory"]])

    def test_give_bert_with_dropout_the_bits_of_tensors_in_one_piece(self):
        self.assert_equal_bits(BERT, 1 << 20)

    def test_give_gpt2_with_tied_embeddings_the_bits_of_tensors_in_one_piece(self):
        self.assert_equal_bits(GPT2, 1 << 20)

    def test_give_resnet_the_bits_of_tensors_in_one_piece(self):
        self.assert_equal_bits(RESNET, 10 << 20, precisions=("float",), replicas=(1,))
        self.assert_equal_bits(RESNET, 10 << 20, precisions=("half",), replicas=(2,))

    def test_give_inference_the_bits_of_tensors_in_one_piece(self):
        exact = (*FEW_TILES, "--device.bytes-per-tile", 10 << 20)
        inference = RESNET.replace("[model]", "[model]\nmode = inference").split("[training]")[0]
        plain = self.run_job("-n", 2, "--num-instances", 1, config=inference)
        for ways in (PLAIN, PIPELINED):
            tiled = self.run_job("-n", 2, "--num-instances", 1, *exact, *ways, config=inference)
            self.assertEqual((tiled.output_dir / "outputs.npy").read_bytes(),
                             (plain.output_dir / "outputs.npy").read_bytes())


if __name__ == "__main__":
    unittest.main()
