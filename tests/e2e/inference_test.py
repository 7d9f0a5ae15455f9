#!/usr/bin/env python3
"""mode = inference: each test item once and in order, for every placement."""
import math
import random
import struct
import unittest

import npy_file
import safetensors_file
from emulated_job import ROOT, JobTest

SIDE, CLASSES, HIDDEN = 4, 3, 8
MLP = """
[model]
name = mlp
mode = inference
initial-weights = {folder}/weights.safetensors
layers = 1
hidden = 8
[data]
source = idx:{folder}
micro-batch-size = 4
"""
GPT2 = f"""
[model]
name = gpt2
mode = inference
layers = 1
hidden = 32
heads = 2
vocabulary = 257
sequence-length = 32
[data]
source = text:{ROOT}/ARCHITECTURE.md
sequence-length = 32
micro-batch-size = 3
"""


def write_idx(path, dimensions, data):
    header = struct.pack(">HBB", 0, 8, len(dimensions)) + struct.pack(f">{len(dimensions)}I",
                                                                     *dimensions)
    path.write_bytes(header + bytes(data))


def read_npy(path):
    """Returns shape and bytes of a float32 .npy file of format 1.0."""
    raw = path.read_bytes()
    assert raw[:8] == b"\x93NUMPY\x01\x00", raw[:10]
    length = struct.unpack("<H", raw[8:10])[0]
    assert (10 + length) % 64 == 0 and raw[9 + length:10 + length] == b"\n"
    header = eval(raw[10:10 + length].decode(), {"__builtins__": {}})  # Our own literal.
    assert header["descr"] == "<f4" and header["fortran_order"] is False, header
    assert len(raw) == 10 + length + 4 * math.prod(header["shape"])
    return header["shape"], raw[10 + length:]


class Mlp:
    """Images, labels and weights of a small network, and its outputs."""

    def __init__(self, folder, items):
        draw = random.Random(7)
        self.images = [[draw.randrange(256) for _ in range(SIDE * SIDE)] for _ in range(items)]
        self.labels = [draw.randrange(CLASSES) for _ in range(items)]
        for prefix in ("train", "t10k"):
            write_idx(folder / f"{prefix}-images-idx3-ubyte", [items, SIDE, SIDE],
                      [pixel for image in self.images for pixel in image])
            write_idx(folder / f"{prefix}-labels-idx1-ubyte", [items], self.labels)
        self.weights = {name: (shape, [draw.uniform(-0.5, 0.5) for _ in range(math.prod(shape))])
                        for name, shape in (("fc1.weight", [HIDDEN, SIDE * SIDE]),
                                            ("fc1.bias", [HIDDEN]),
                                            ("fc2.weight", [CLASSES, HIDDEN]),
                                            ("fc2.bias", [CLASSES]))}
        safetensors_file.write(folder / "weights.safetensors", {
            name: ("F32", shape, struct.pack(f"<{len(values)}f", *values))
            for name, (shape, values) in self.weights.items()})

    def logits(self, image):
        x = [(pixel / 255 - 0.5) / 0.5 for pixel in image]  # The normalisation of idx: sources.
        x = [max(0.0, value) for value in self.dense("fc1", x)]
        return self.dense("fc2", x)

    def dense(self, name, x):
        weight, bias = self.weights[f"{name}.weight"][1], self.weights[f"{name}.bias"][1]
        return [bias[o] + sum(weight[o * len(x) + i] * x[i] for i in range(len(x)))
                for o in range(len(bias))]


class Outputs(JobTest):
    def outputs(self, job):
        return read_npy(job.output_dir / "outputs.npy")

    def test_are_the_models_for_every_item_in_order(self):
        items = 23  # Not divisible by micro-batches of 4 or by the replicas.
        mlp = Mlp(self.folder, items)
        config = MLP.format(folder=self.folder)
        single = self.run_job("-n", 1, config=config)
        shape, reference = self.outputs(single)
        self.assertEqual(shape, (items, CLASSES))
        got = struct.unpack(f"<{items * CLASSES}f", reference)
        expected = [mlp.logits(image) for image in mlp.images]
        for item in range(items):
            for c in range(CLASSES):
                self.assertAlmostEqual(got[item * CLASSES + c], expected[item][c], places=4)
        right = sum(max(range(CLASSES), key=lambda c: row[c]) == label
                    for row, label in zip(expected, mlp.labels))
        self.assertEqual([row["split"] for row in single.metrics()], ["test"])
        self.assertAlmostEqual(float(single.metrics()[0]["accuracy"]), right / items, places=6)
        self.assertEqual(single.profile()["outcome"]["testItems"], items)
        self.assertFalse((single.output_dir / "weights.safetensors").exists())
        self.assertNotIn("random", single.stderr)
        for replicas, instances in ((3, 3), (4, 2), (4, 1), (8, 8)):
            with self.subTest(replicas=replicas, instances=instances):
                job = self.run_job("-n", replicas, "--num-instances", instances,
                                   "--memory.poison-dead", "true", config=config)
                self.assertEqual(self.outputs(job), (shape, reference))

    def test_need_no_labels_and_no_test_part(self):
        mlp = Mlp(self.folder, 23)
        config = MLP.format(folder=self.folder)
        labelled = self.outputs(self.run_job("-n", 2, config=config))
        pixels = bytes(pixel for image in mlp.images for pixel in image)
        (self.folder / "images.npy").write_bytes(npy_file.content("|u1", (23, SIDE, SIDE), pixels))
        config = config.replace(f"idx:{self.folder}", f"npy:{self.folder}/images.npy")
        job = self.run_job("-n", 2, "--model.classes", CLASSES, config=config)
        self.assertEqual(self.outputs(job), labelled)
        self.assertIn("the data has no test part, so inference runs on all items", job.stderr)
        self.assertRegex(job.stderr, "poprun-emu: [0-9]+ of 23 items")
        self.assertNotIn("test accuracy", job.stdout)
        self.assertEqual(job.metrics(), [])
        unknown = self.run_job("-n", 2, config=config, code=64)
        self.assert_first_line(unknown, "model.classes: the dataset has no labels")
        training = self.run_job("-n", 2, "--model.mode", "training", "--model.classes", CLASSES,
                                config=config, code=64)
        self.assert_first_line(training, "the model needs labels, but the dataset has images")

    def test_of_sequences_stream_and_stay_in_order(self):
        reference = self.run_job("-n", 1, config=GPT2)
        self.assertIn("note: model.mode = inference without model.initial-weights: the weights are "
                      "random", reference.stderr)
        shape, values = self.outputs(reference)
        self.assertEqual(shape[1:], (32, 257))
        self.assertEqual(32 * shape[0], reference.profile()["outcome"]["testItems"], "tokens")
        self.assertEqual(self.outputs(self.run_job("-n", 4, "--num-instances", 2, config=GPT2)),
                         (shape, values))


if __name__ == "__main__":
    unittest.main()
