#!/usr/bin/env python3
"""Golden hashes of the weights of small models after a few steps, which must not change a bit.

Arithmetic is fixed: placement, stages, schedules, recomputation and any other technique that moves work must not change
a bit of these results. An intended change must be listed in the CHANGELOG, with the new hashes here; a failure prints
them.

Bits also depend on the instruction set, oneDNN and the C library (ARCHITECTURE.md): the jobs run with --cpu-isa avx2,
and are skipped if the libraries are not those of RECORDED_WITH.
"""
import pathlib
import platform
import unittest

from emulated_job import JobTest

RECORDED_WITH = {"oneDNN": "2.6.3", "libc": "glibc 2.36"}

IMAGES = """
[model]
name = small-cnn
[data]
source = synthetic:images=1x28x28,classes=10,items=2048
micro-batch-size = 4
[training]
steps = 4
learning-rate = 0.05
evaluate = false
"""
BERT = """
[model]
name = bert-base
layers = 2
hidden = 64
heads = 4
vocabulary = 256
sequence-length = 16
[data]
source = synthetic:tokens,vocabulary=256,items=2048
task = masked-lm
sequence-length = 16
micro-batch-size = 2
[training]
steps = 4
learning-rate = 0.01
evaluate = false
"""
GPT2 = BERT.replace("bert-base", "gpt2").replace("task = masked-lm\n", "")
RESNET = IMAGES.replace("small-cnn", "resnet18").replace("1x28x28", "3x32x32")


def options(**values):
    """Returns training.NAME options; keywords of other sections are written section__name."""
    arguments = []
    for key, value in values.items():
        section, _, name = key.rpartition("__")
        arguments += [f"--{section or 'training'}.{name.replace('_', '-')}", value]
    return arguments


# Name: configuration, arguments, and the first 16 digits of weights_hash.
JOBS = {
    "small-cnn": (IMAGES, options(), "c3e57f8f50dfde93"),
    "small-cnn, sum": (
        IMAGES, options(gradient_accumulation=3, gradient_accumulation_kind="sum", gradient_reduction="sum"),
        "ba5d8338085cfcae"),
    "small-cnn, mean": (IMAGES, options(gradient_accumulation=3), "b1b6346c36b51e80"),
    "small-cnn, running mean": (
        IMAGES, options(gradient_accumulation=3, gradient_accumulation_kind="running-mean"), "c23d1790e558f63d"),
    # The learning rate is so high that a gradient overflows: a step is skipped, and the loss scale falls.
    "small-cnn, half, stochastic, scaled, clipped": (
        IMAGES, options(model__precision="half", stochastic_rounding="true", loss_scaling="auto", clip_norm=0.5,
                        optimizer="sgd", learning_rate=10, steps=8, gradient_accumulation=2), "b6fb463d6889aae4"),
    "small-cnn, half, float accumulators, masters": (
        IMAGES, options(model__precision="half", accumulator_precision="float", master_weights="true",
                        gradient_accumulation=2), "ffd083f66218abd2"),
    "resnet18, batch norm": (RESNET, options(optimizer="sgd", gradient_accumulation=2), "ef74c34f789544ec"),
    "bert, dropout, adam": (BERT, options(optimizer="adam", model__dropout=0.1), "590864b43b0bae85"),
    "bert, lamb, clipped, accumulated": (
        BERT, options(optimizer="lamb", clip_norm=0.5, gradient_accumulation=2), "5707c19dde07a03f"),
    "gpt2, tied, dropout, accumulated": (
        GPT2, options(optimizer="sgd", model__dropout=0.1, gradient_accumulation=2), "3039b0b121e41b62"),
    "bert, dropout, adam, outlined": (
        BERT, options(optimizer="adam", model__dropout=0.1, memory__outlining="on"), "590864b43b0bae85"),
    "bert, lamb, clipped, accumulated, outlined on tiles": (
        BERT, options(optimizer="lamb", clip_norm=0.5, gradient_accumulation=2, memory__outlining="on",
                      memory__tiles="exact", device__tiles=24, device__bytes_per_tile=1 << 20), "5707c19dde07a03f"),
    "gpt2, tied, dropout, accumulated, outlined": (
        GPT2, options(optimizer="sgd", model__dropout=0.1, gradient_accumulation=2, memory__outlining="on"),
        "3039b0b121e41b62"),
    "gpt2, tied, half, lamb": (
        GPT2, options(optimizer="lamb", model__precision="half", gradient_accumulation=2), "a490744a50f69d00"),
}


@unittest.skipUnless(" avx2 " in pathlib.Path("/proc/cpuinfo").read_text(), "needs avx2")
class Golden(JobTest):
    def test_weights_are_the_recorded_ones_to_the_last_bit(self):
        for name, (config, arguments, golden) in JOBS.items():
            with self.subTest(name):
                job = self.run_job("-n", 2, "--num-instances", 1, "--cpu-isa", "avx2", *arguments, config=config)
                with_what = {"oneDNN": job.profile()["libraryVersions"]["oneDNN"],
                             "libc": " ".join(platform.libc_ver())}
                if with_what != RECORDED_WITH:
                    self.skipTest(f"recorded with {RECORDED_WITH}, here {with_what}")
                self.assertEqual(job.weights_hash()[:16], golden)


if __name__ == "__main__":
    unittest.main()
