#!/usr/bin/env python3
"""ONNX models through the real command: cases with known outputs, and a file that is trained.

The trained file is written by onnx_file.py, so that no ONNX package is needed.
"""
import math
import os
import pathlib
import random
import shutil
import struct
import subprocess
import tarfile
import tempfile
import time
import unittest

import npy_file
import safetensors_file
from emulated_job import BIN, ROOT, JobTest
from onnx_file import external, field, int64s, integer, node, real, tensor, truth, value_info

SHARED = pathlib.Path(os.environ.get("POPRUN_EMU_SHARED", ROOT.parent / "shared")) / "onnx"
NODES = SHARED / "node-1.23.tar.xz"
DEBIAN = pathlib.Path("/usr/share/libonnx-testdata/data")


def with_head(nodes, tensors, features, opset=13, imports=(), functions=(), outputs=True, ir=8):
    """Returns a model for images [N,1,8,8]: `nodes` compute "features" [N,features], followed by a dense layer of 4."""
    rng = random.Random(5)
    head = [rng.uniform(-0.2, 0.2) for _ in range(features * 4)]
    graph = b"".join([
        *(field(1, n) for n in nodes),
        field(1, node("Gemm", ["features", "head.weight", "head.bias"], "logits")),
        field(2, "export"),
        *(field(5, t) for t in tensors),
        field(5, tensor("head.weight", [features, 4], head)),
        field(5, tensor("head.bias", [4], [0.0] * 4)),
        field(11, value_info("image", ["N", 1, 8, 8])),
        *([field(12, value_info("logits", ["N", 4]))] if outputs else []),
    ])
    domains = [("", opset), *imports]
    return (field(1, ir) + field(7, graph)
            + b"".join(field(8, field(1, d) + field(2, v)) for d, v in domains)
            + b"".join(field(25, f) for f in functions))


def classifier(pixels, classes, last="Softmax", opset=13):
    """Returns a classifier of flattened images [N,1,8,8] with a hidden layer of 16."""
    rng = random.Random(7)
    weights = [rng.uniform(-0.2, 0.2) for _ in range(pixels * 16)]
    head = [rng.uniform(-0.2, 0.2) for _ in range(16 * classes)]
    graph = b"".join([
        field(1, node("Flatten", ["image"], "flat")),
        field(1, node("Gemm", ["flat", "hidden.weight", "hidden.bias"], "hidden")),
        field(1, node("Relu", ["hidden"], "active")),
        field(1, node("Gemm", ["active", "head.weight", "head.bias"], "logits")),
        field(1, node(last, ["logits"], "probabilities")),
        field(2, "classifier"),
        field(5, tensor("hidden.weight", [pixels, 16], weights)),
        field(5, tensor("hidden.bias", [16], [0.0] * 16)),
        field(5, tensor("head.weight", [16, classes], head)),
        field(5, tensor("head.bias", [classes], [0.0] * classes)),
        field(11, value_info("image", ["N", 1, 8, 8])),
        field(12, value_info("probabilities", ["N", classes])),
    ])
    return field(1, 7) + field(7, graph) + field(8, field(1, "") + field(2, opset))


CONFIG = """
[model]
onnx = {file}
{more}
[data]
source = synthetic:images=1x8x8,classes=4,items=1000
micro-batch-size = 8
[training]
steps = 40
optimizer = momentum
learning-rate = 0.05
"""


def check(*directories):
    command = [BIN / "poprun-emu", "--check-onnx", *directories]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=900)


class Training(JobTest):
    def config(self, content, more=""):
        file = pathlib.Path(self.folder) / "model.onnx"
        file.write_bytes(content)
        return CONFIG.format(file=file, more=more)

    def assert_refused(self, code, config, *parts):
        job = self.run_job("-n", 1, config=config, code=code)
        self.assert_first_line(job, *parts)
        return job

    def test_a_file_trains_the_same_for_any_number_of_instances(self):
        config = self.config(classifier(64, 4))
        job = self.run_job("-n", 4, config=config)
        losses = [float(row["loss"]) for row in job.metrics() if row["split"] == "train"]
        self.assertLess(sum(losses[-3:]), 0.75 * sum(losses[:3]), losses)
        self.assertIn(b"hidden.weight", (job.output_dir / "weights.safetensors").read_bytes())
        self.assertIn("Softmax", job.stdout + job.stderr)
        again = self.run_job("-n", 4, "--num-instances", 1, config=config)
        self.assertEqual(job.weights_hash(), again.weights_hash())

    def test_mean_squared_error_trains_too(self):
        job = self.run_job("-n", 2, config=self.config(classifier(64, 4),
                                                      "loss = mean-squared-error"))
        losses = [float(row["loss"]) for row in job.metrics() if row["split"] == "train"]
        self.assertLess(sum(losses[-3:]), sum(losses[:3]), losses)

    def test_numbers_are_learnt_from_float_labels_and_padding_does_not_count(self):
        """A linear model with weights of zero, kept there by a tiny learning rate: the loss is the labels' mean
        square."""
        graph = b"".join([
            field(1, node("Gemm", ["x", "w", "b"], "y")), field(2, "regression"),
            field(5, tensor("w", [3, 2], [0.0] * 6)), field(5, tensor("b", [2], [0.0] * 2)),
            field(11, value_info("x", ["N", 3])), field(12, value_info("y", ["N", 2]))])
        model = field(1, 7) + field(7, graph) + field(8, field(1, "") + field(2, 13))
        rng = random.Random(3)
        labels = {part: [rng.uniform(-9, 9) for _ in range(2 * n)] for part, n in (("train", 8), ("test", 7))}
        data = self.folder / "data"
        data.mkdir()
        for part, values in labels.items():
            rows = len(values) // 2
            (data / f"x_{part}.npy").write_bytes(npy_file.floats((rows, 3), [0.5] * 3 * rows))
            (data / f"y_{part}.npy").write_bytes(npy_file.floats((rows, 2), values))
        config = (self.config(model, "loss = mean-squared-error")
                  .replace("synthetic:images=1x8x8,classes=4,items=1000", f"npy:{data}\norder = sequential")
                  .replace("size = 8", "size = 2").replace("steps = 40", "epochs = 1").replace("0.05", "1e-30"))
        job = self.run_job("-n", 2, config=config)
        squares = [v * v for v in labels["train"]]
        expected = [sum(squares[:8]) / 8, sum(squares[8:]) / 8,
                    sum(v * v for v in labels["test"]) / 14]
        for row, loss in zip(job.metrics(), expected, strict=True):
            self.assertAlmostEqual(float(row["loss"]), loss, delta=1e-5 * loss)
        self.assertEqual(job.profile()["outcome"]["testItems"], 7)
        self.assertEqual({row["accuracy"] for row in job.metrics()}, {""})
        self.assertNotIn("accuracy", job.stdout + job.stderr)
        self.assert_refused(64, config.replace("mean-squared-error", "cross-entropy"),
                            "cross-entropy needs labels of type i32", "f32[2,2]", "mean-squared-error")
        (data / "y_train.npy").write_bytes(npy_file.floats((8, 2), labels["train"][:-1] + [math.nan]))
        self.assert_refused(65, config, "y_train.npy: item 7", "it is nan")

    def test_padding_takes_no_part(self):
        """A classifier by directions, x / |x|: rows of zeros, which the data does not contain, would give NaN."""
        squares = [node("Mul", ["x", "x"], "xx"), node("MatMul", ["xx", "ones"], "n2"), node("Sqrt", ["n2"], "n"),
                   node("Div", ["x", "n"], "u"), node("MatMul", ["u", "w"], "y")]
        rng = random.Random(4)
        w = [rng.uniform(-1, 1) for _ in range(6)]
        graph = b"".join([*(field(1, n) for n in squares), field(2, "directions"),
                          field(5, tensor("w", [2, 3], w)), field(5, tensor("ones", [2, 1], [1.0, 1.0])),
                          field(11, value_info("x", ["N", 2])), field(12, value_info("y", ["N", 3]))])
        model = field(1, 7) + field(7, graph) + field(8, field(1, "") + field(2, 13))
        points = [[rng.uniform(1, 2), rng.uniform(-2, -1)] for _ in range(12)]
        classes = [rng.randrange(3) for _ in points]
        numbers = [[rng.uniform(-1, 1) for _ in range(3)] for _ in points]
        outputs = [[sum(x * w[3 * d + k] for d, x in enumerate(point)) / math.hypot(*point) for k in range(3)]
                   for point in points[:5]]
        cross_entropy = sum(math.log(sum(map(math.exp, y))) - y[c] for y, c in zip(outputs, classes)) / 5
        mean_square = sum((a - b) ** 2 for y, t in zip(outputs, numbers) for a, b in zip(y, t)) / 15
        for loss, labels, expected in (("cross-entropy", classes, cross_entropy),
                                       ("mean-squared-error", numbers, mean_square)):
            data = self.folder / loss
            data.mkdir()
            for part, rows in (("train", 12), ("test", 5)):
                (data / f"x_{part}.npy").write_bytes(npy_file.floats((rows, 2), sum(points[:rows], [])))
                (data / f"y_{part}.npy").write_bytes(
                    npy_file.floats((rows, 3), sum(labels[:rows], [])) if loss == "mean-squared-error" else
                    npy_file.content("<i4", (rows,), struct.pack(f"<{rows}i", *labels[:rows])))
            config = (self.config(model, f"loss = {loss}")
                      .replace("synthetic:images=1x8x8,classes=4,items=1000", f"npy:{data}")
                      .replace("size = 8", "size = 4").replace("steps = 40", "steps = 1").replace("0.05", "1e-30"))
            # With three replicas, one has an item and three of padding, and one has only padding.
            for replicas, precision, delta in ((1, "float", 1e-6), (3, "half", 3e-3)):
                job = self.run_job("-n", replicas, "--num-instances", 1, "--model.precision", precision, config=config)
                last = job.metrics()[-1]
                self.assertEqual((last["split"], job.profile()["outcome"]["testItems"]), ("test", 5))
                self.assertAlmostEqual(float(last["loss"]), expected, delta=delta)
        inference = self.run_job("-n", 3, "--num-instances", 1, "--model.mode", "inference", config=config)
        got = struct.unpack("<15f", (inference.output_dir / "outputs.npy").read_bytes()[-60:])
        for value, wanted in zip(got, sum(outputs, []), strict=True):
            self.assertAlmostEqual(value, wanted, delta=1e-6)

    def test_a_mean_over_labels_is_that_of_the_whole_batch_however_it_is_cut(self):
        """A step of softmax regression on four sequences with 4, 1, 1 and 2 labels, by hand."""
        rng = random.Random(8)
        graph = b"".join([
            field(1, node("MatMul", ["x", "w"], "y")), field(2, "positions"),
            field(5, tensor("w", [3, 2], [0.5, -0.5, 0.25, 1.0, -1.0, 0.125])),
            field(11, value_info("x", ["N", 4, 3])), field(12, value_info("y", ["N", 4, 2]))])
        model = field(1, 7) + field(7, graph) + field(8, field(1, "") + field(2, 13))
        w = [[0.5, -0.5], [0.25, 1.0], [-1.0, 0.125]]
        x = [[[rng.uniform(-1, 1) for _ in range(3)] for _ in range(4)] for _ in range(4)]
        labels = [[0, 1, 1, 0], [-1, 1, -1, -1], [0, -1, -1, -1], [-1, -1, 1, 0]]
        data = self.folder / "data"
        data.mkdir()
        flat = [v for sample in x for row in sample for v in row]
        (data / "x_train.npy").write_bytes(npy_file.floats((4, 4, 3), flat))
        (data / "y_train.npy").write_bytes(
            npy_file.content("<i4", (4, 4), struct.pack("<16i", *sum(labels, []))))

        def gradient(samples):
            """Returns the gradient of the sum over the labels of these samples, and the number of labels."""
            total, count = [[0.0, 0.0] for _ in w], 0
            for n in samples:
                for row, label in zip(x[n], labels[n]):
                    if label < 0:
                        continue
                    count += 1
                    y = [math.exp(sum(row[d] * w[d][k] for d in range(3))) for k in range(2)]
                    for d in range(3):
                        for k in range(2):
                            total[d][k] += row[d] * (y[k] / sum(y) - (k == label))
            return total, count

        def stepped(parts, rate=0.5):
            """Returns the weights after a step with the mean of the means over these parts of the batch."""
            moved = [row[:] for row in w]
            for part in parts:
                total, count = gradient(part)
                for d in range(3):
                    for k in range(2):
                        moved[d][k] -= rate * total[d][k] / count / len(parts)
            return sum(moved, [])

        config = (self.config(model)
                  .replace("synthetic:images=1x8x8,classes=4,items=1000", f"npy:{data}\norder = sequential")
                  .replace("size = 8", "size = 4").replace("steps = 40", "steps = 1\nevaluate = false")
                  .replace("0.05", "0.5").replace("momentum", "sgd"))

        def weights(*arguments):
            job = self.run_job("--num-instances", 1, *arguments, config=config)
            self.notes = job.stdout + job.stderr
            _, _, raw = safetensors_file.read(job.output_dir / "weights.safetensors")["w"]
            size = len(raw) // 6  # Halves agree within their precision.
            return struct.unpack("<6f" if size == 4 else "<6e", raw)

        def assert_near(got, wanted, delta=1e-6):
            for value, expected in zip(got, wanted, strict=True):
                self.assertAlmostEqual(value, expected, delta=delta)

        micro, steps = "--data.micro-batch-size", "--training.gradient-accumulation"
        whole = weights()
        assert_near(whole, stepped([range(4)]))
        self.assertNotIn("labels each", self.notes)
        assert_near(weights(micro, 1, steps, 2, "-n", 2), stepped([[0], [1], [2], [3]]))
        self.assertIn("1 to 4 labels each", self.notes)
        assert_near(weights(micro, 2, "-n", 2), stepped([[0, 1], [2, 3]]))
        self.assertIn("3 to 5 labels each", self.notes)

        kind, reduction = "--training.gradient-accumulation-kind", "--training.gradient-reduction"
        for cut in ([], ["--data.compute-batch-size", 1],
                    [micro, 1, steps, 2, "-n", 2, kind, "sum", reduction, "sum", "--training.clip-norm", 100],
                    [micro, 1, steps, 2, "-n", 2, kind, "running-mean", reduction, "every-micro-batch"],
                    [micro, 1, "-n", 4, "--training.gradient-bucket", 1e-6]):
            assert_near(weights("--training.loss-mean", "tokens", *cut), stepped([range(4)]))
            self.assertNotIn("labels each", self.notes)
        half = ["--training.loss-mean", "tokens", "--model.precision", "half", "--training.master-weights", "true"]
        assert_near(weights(micro, 1, steps, 2, "-n", 2, *half), stepped([range(4)]), delta=2e-3)
        # A norm of at most 0.01 of the same gradient: clipping uses the mean over the labels.
        clipped = ["--training.loss-mean", "tokens", "--training.clip-norm", 0.01]
        assert_near(weights(micro, 1, steps, 4, *clipped), weights(*clipped), delta=1e-7)

    def test_frozen_statistics_of_a_batch_norm_are_used_and_stay_as_they_are(self):
        """A step of softmax regression on normalised points, by hand; and the mean of a batch, if it is not frozen."""
        rng = random.Random(9)
        norm = {"g": [0.5, 2.0], "be": [0.25, -1.0], "mu": [0.75, -0.5], "va": [1.5, 0.25]}
        w = [rng.uniform(-1, 1) for _ in range(6)]
        graph = b"".join([
            field(1, node("BatchNormalization", ["x", *norm], "u", attributes=[real("momentum", 0.75)])),
            field(1, node("MatMul", ["u", "w"], "y")), field(2, "normalised"),
            *(field(5, tensor(name, [2], values)) for name, values in norm.items()), field(5, tensor("w", [2, 3], w)),
            field(11, value_info("x", ["N", 2])), field(12, value_info("y", ["N", 3]))])
        model = field(1, 7) + field(7, graph) + field(8, field(1, "") + field(2, 13))
        points = [[rng.uniform(-2, 2), rng.uniform(-2, 2)] for _ in range(4)]
        labels = [0, 2, 1, 1]
        (self.folder / "x_train.npy").write_bytes(npy_file.floats((4, 2), sum(points, [])))
        (self.folder / "y_train.npy").write_bytes(npy_file.content("<i4", (4,), struct.pack("<4i", *labels)))
        config = (self.config(model)
                  .replace("synthetic:images=1x8x8,classes=4,items=1000", f"npy:{self.folder}\norder = sequential")
                  .replace("size = 8", "size = 4").replace("steps = 40", "steps = 1\nevaluate = false")
                  .replace("0.05", "0.5").replace("momentum", "sgd"))

        def saved(*arguments):
            job = self.run_job("-n", 1, *arguments, config=config)
            return {name: struct.unpack(f"<{len(data) // 4}f", data) for name, (_, _, data)
                    in safetensors_file.read(job.output_dir / "weights.safetensors").items()}

        def assert_near(got, wanted):
            for value, expected in zip(got, wanted, strict=True):
                self.assertAlmostEqual(value, expected, delta=1e-5)

        stepped = list(w)
        for point, label in zip(points, labels):
            u = [(x - norm["mu"][d]) / math.sqrt(norm["va"][d] + 1e-5) * norm["g"][d] + norm["be"][d]
                 for d, x in enumerate(point)]
            y = [math.exp(u[0] * w[k] + u[1] * w[3 + k]) for k in range(3)]
            for d in range(2):
                for k in range(3):
                    stepped[3 * d + k] -= 0.5 / 4 * u[d] * (y[k] / sum(y) - (k == label))
        frozen = saved("--training.frozen", "^(g|be|mu|va)$")
        assert_near(frozen["w"], stepped)
        for name, values in norm.items():
            self.assertEqual(list(frozen[name]), values, name)

        moved = saved("--training.frozen", "^(g|be)$")
        assert_near(moved["mu"], [0.75 * norm["mu"][d] + 0.25 * sum(point[d] for point in points) / 4 for d in range(2)])
        one = self.run_job("-n", 1, "--training.frozen", "^mu$", config=config, code=64)
        self.assert_first_line(one, "training.frozen = ^mu$ matches only one of the statistics 'mu' and 'va'")

    def test_constants_are_trained_if_they_are_asked_for(self):
        matrix = [1.0, 0.5, -0.25, 0.125] * 64
        value = field(1, "value") + field(5, tensor("fixed", [64, 4], matrix)) + field(20, 4)
        model = with_head([node("Flatten", ["image"], "flat"), node("Constant", [], "fixed", attributes=[value]),
                           node("MatMul", ["flat", "fixed"], "features")], [], features=4)
        config = self.config(model).replace("steps = 40", "steps = 1")
        fixed = self.run_job("-n", 1, config=config)
        weights = safetensors_file.read(fixed.output_dir / "weights.safetensors")
        self.assertEqual(sorted(weights), ["head.bias", "head.weight"])
        self.assertIn("not trained: 'fixed' (a Constant node); to change that: training.frozen = REGEX, "
                      "model.trained-constants = REGEX", fixed.stderr)
        trained = self.run_job("-n", 1, "--model.trained-constants", "^fixed$", config=config)
        weights = safetensors_file.read(trained.output_dir / "weights.safetensors")
        self.assertEqual(sorted(weights), ["fixed", "head.bias", "head.weight"])
        self.assertNotEqual(bytes(weights["fixed"][2]), struct.pack("<256f", *matrix))
        self.assertNotIn("not trained", trained.stderr)

    def test_what_cannot_be_trained_is_refused_in_a_line(self):
        bad = self.assert_refused(65, self.config(b"no model"), "model.onnx", "not an ONNX model")
        self.assertFalse(bad.output_dir.exists(), "refused before anything starts")
        missing = self.assert_refused(64, self.config(classifier(64, 4, last="Det")), "Det")
        self.assertFalse(missing.output_dir.exists())
        self.assert_refused(64, self.config(classifier(64, 4, opset=29)), "opset 29")
        missing = CONFIG.format(file="/nowhere/model.onnx", more="")
        self.assert_refused(65, missing, "/nowhere/model.onnx", "No such file")
        config = self.config(classifier(64, 4)).replace("images=1x8x8", "images=3x9x9")
        self.assert_refused(64, config, "[N,1,8,8]", "[N,3,9,9]")

    def test_a_file_without_outputs_is_refused(self):
        model = with_head([node("Flatten", ["image"], "features")], [], 64, outputs=False)
        job = self.assert_refused(65, self.config(model), "model.onnx", "no outputs")
        self.assertEqual(job.stderr.count("\n"), 1, job.stderr)

    def test_a_known_index_out_of_range_is_refused(self):
        model = with_head(
            [node("Flatten", ["image"], "flat"),
             node("Gather", ["flat", "columns"], "features", name="pick",
                  attributes=[integer("axis", 1)])],
            [int64s("columns", [3], [0, 64, 5])], 3)
        self.assert_refused(65, self.config(model), "Gather 'pick'",
                            "index 64 in element 1 of 'columns'", "-64 to 63")

    def test_an_index_of_the_data_out_of_range_ends_the_job(self):
        model = with_head(
            [node("Flatten", ["image"], "flat"),
             node("ArgMax", ["flat"], "brightest", attributes=[integer("axis", 1)]),
             node("Add", ["brightest", "sixty"], "place"),
             node("GatherElements", ["flat", "place"], "features", name="pick",
                  attributes=[integer("axis", 1)])],
            [int64s("sixty", [1, 1], [60])], 1)
        self.assert_refused(65, self.config(model), "is out of range for gather_elements",
                            "'features'", "-64 to 63", "step 1")

    def test_a_file_exported_in_training_mode_drops_in_training_alone(self):
        dropout = [node("Flatten", ["image"], "flat"),
                   node("Dropout", ["flat", "ratio", "mode"], "features", "mask")]
        tensors = [tensor("ratio", [], [0.25]), truth("mode", 1)]
        job = self.run_job("-n", 1, config=self.config(with_head(dropout, tensors, 64)))
        self.assertIn("test", {row["split"] for row in job.metrics()})
        plain = [node("Flatten", ["image"], "features")]
        other = self.run_job("-n", 1, config=self.config(with_head(plain, [], 64)))
        self.assertNotEqual(job.weights_hash(), other.weights_hash(), "nothing was dropped")

    def test_functions_of_the_file_are_what_their_nodes_are(self):
        """Two calls of a function, and the same model without a function, are bit-identical."""
        scale = [tensor("a", [64], [0.5] * 64), tensor("b", [64], [2.0] * 64)]
        function = b"".join([
            field(1, "Scale"), field(4, "x"), field(4, "s"), field(5, "y"), field(6, "slope"),
            field(7, node("Mul", ["x", "s"], "t")),
            field(7, node("LeakyRelu", ["t"], "y", attributes=[
                field(1, "alpha") + field(21, "slope") + field(20, 1)])),
            field(9, field(1, "") + field(2, 13)), field(10, "mine")])
        slope = real("slope", 0.1)
        alpha = real("alpha", 0.1)
        calls = with_head(
            [node("Flatten", ["image"], "flat"),
             node("Scale", ["flat", "a"], "once", name="first", domain="mine", attributes=[slope]),
             node("Scale", ["once", "b"], "features", name="second", domain="mine",
                  attributes=[slope])],
            scale, 64, imports=[("mine", 1)], functions=[function])
        spelled_out = with_head(
            [node("Flatten", ["image"], "flat"),
             node("Mul", ["flat", "a"], "t1"),
             node("LeakyRelu", ["t1"], "once", attributes=[alpha]),
             node("Mul", ["once", "b"], "t2"),
             node("LeakyRelu", ["t2"], "features", attributes=[alpha])], scale, 64)
        job = self.run_job("-n", 1, config=self.config(calls))
        other = self.run_job("-n", 1, config=self.config(spelled_out))
        self.assertEqual(job.weights_hash(), other.weights_hash())

    def test_a_restart_of_a_job_that_never_had_its_folder_keeps_the_results_there(self):
        bin_folder = self.folder / "bin"
        bin_folder.mkdir()
        for name in ("poprun-emu", "poprun-emu-hostio"):
            shutil.copy(BIN / name, bin_folder / name)
        killed_once = bin_folder / "poprun-emu-replica"
        killed_once.write_text("#!/bin/sh\n"
                               f"[ \"$1\" = --check-model ] && mkdir {self.folder}/once && kill -9 $$\n"
                               f"exec {BIN}/poprun-emu-replica \"$@\"\n")
        killed_once.chmod(0o755)
        precious = self.folder / "out/weights.safetensors"
        precious.parent.mkdir()
        precious.write_text("precious")
        config = self.folder / "train.cfg"
        config.write_text(self.config(classifier(64, 4)))
        job = subprocess.run([bin_folder / "poprun-emu", "-n", "1", "--restarts", "1", "--output-dir", precious.parent,
                              config], capture_output=True, text=True, timeout=120)
        self.assertIn("restart 1 of 1", job.stderr)
        self.assertIn("holds the results of an earlier run (weights.safetensors)", job.stderr)
        self.assertEqual(job.returncode, 64, job.stderr)
        self.assertEqual(precious.read_text(), "precious")

    def test_weights_in_another_file_are_weights_like_others(self):
        rng = random.Random(5)
        values = [rng.uniform(-0.2, 0.2) for _ in range(256)]

        def model(weight):
            graph = b"".join([
                field(1, node("Flatten", ["image"], "flat")), field(1, node("MatMul", ["flat", "w"], "logits")),
                field(2, "linear"), field(5, weight), field(11, value_info("image", ["N", 1, 8, 8])),
                field(12, value_info("logits", ["N", 4]))])
            return field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 13))

        whole = self.run_job("-n", 2, config=self.config(model(tensor("w", [64, 4], values)))).weights_hash()
        data = pathlib.Path(self.folder) / "sub" / "weights.bin"
        data.parent.mkdir()
        data.write_bytes(b"other" + struct.pack("<256f", *values) + b"more")
        parts = self.run_job("-n", 2, config=self.config(model(external("w", [64, 4], "sub/weights.bin", 5, 1024))))
        self.assertEqual(parts.weights_hash(), whole)
        for location, offset, reason in (
                ("none.bin", 0, "which is missing in"), ("sub/weights.bin", 10, "which has 1,033 B, but the tensor needs 1,024 B"),
                ("../weights.bin", 0, "which is not in the folder of the model"),
                ("/etc/passwd", 0, "which is not in the folder of the model")):
            self.assert_refused(65, self.config(model(external("w", [64, 4], location, offset, 1024))),
                                f"tensor 'w': its data are in the file '{location}', {reason}")
        (data.parent / "link.bin").symlink_to("/etc/passwd")
        self.assert_refused(65, self.config(model(external("w", [64, 4], "sub/link.bin", 0, 1024))),
                            "which is not in the folder of the model; move it there")

    def test_noise_is_drawn_anew_in_every_step_and_the_same_for_any_number_of_instances(self):
        noise = [node("RandomNormalLike", ["image"], "noise"), node("Add", ["image", "noise"], "noisy"),
                 node("Flatten", ["noisy"], "features")]
        config = self.config(with_head(noise, [], 64)).replace("0.05", "1e-30").replace("items=1000", "items=16")
        job = self.run_job("-n", 2, config=config)
        losses = [row["loss"] for row in job.metrics() if row["split"] == "train"]
        self.assertEqual(len(set(losses)), len(losses), "each step sees other noise")
        again = self.run_job("-n", 2, "--num-instances", 1, config=config)
        self.assertEqual([row["loss"] for row in again.metrics() if row["split"] == "train"], losses)

    def test_a_model_beyond_2_gib_is_planned_without_its_weights(self):
        """Its weights are in a sparse file of 2.4 GB, which a dry run does not read."""
        n, layers = 8192, 9
        with open(self.folder / "weights.bin", "wb") as f:
            f.truncate(4 * (64 * n + layers * n * n + n * 4))
        sizes = [(64, n)] + [(n, n)] * layers + [(n, 4)]
        graph, offset = field(1, node("Flatten", ["image"], "h0")) + field(2, "perceptron"), 0
        for i, (rows, columns) in enumerate(sizes):
            product = "logits" if columns == 4 else f"product{i}"
            graph += field(5, external(f"w{i}", [rows, columns], "weights.bin", offset, 4 * rows * columns))
            graph += field(1, node("MatMul", [f"h{i}", f"w{i}"], product))
            if columns != 4:
                graph += field(1, node("Relu", [product], f"h{i + 1}"))
            offset += 4 * rows * columns
        graph += field(11, value_info("image", ["N", 1, 8, 8])) + field(12, value_info("logits", ["N", 4]))
        config = self.config(field(1, 8) + field(7, graph) + field(8, field(1, "") + field(2, 13)))
        config += "[job]\nipus-per-replica = 16\n"
        job = self.run_job("-n", 1, "--dry-run", "--model.precision", "half", config=config)
        self.assertIn("604,536,832", job.stdout)

    def test_a_file_beyond_any_limit_is_refused_by_its_size(self):
        """Uses sparse files of 1 TB: neither is read."""
        for key, name, parts in (("onnx", "huge.onnx", ["1,099,511,627,776", "at most 2,147,483,647 B"]),
                                 ("initial-weights", "huge.safetensors", ["huge.safetensors"])):
            file = self.folder / name
            with open(file, "wb") as f:
                f.truncate(1 << 40)
            config = f"[model]\n{key} = {file}\n[data]\nsource = fashion-mnist\n"
            begin = time.monotonic()
            self.assert_refused(65, config, *parts)
            self.assertLess(time.monotonic() - begin, 10)


# W2 is a weight; these are names that the compiler, the loops, the datasets and the formats use.
AWKWARD = [
    "W2.gradient", "W2.gradient.1", "W2.momentum", "W2.momentum.shard", "W2.m", "W2.master", "W2.accumulator",
    "W2.accumulator.1", "W2.gradient.mean", "W2.gradient.sum-of-squares", "W2.sums-of-squares", "W2.shard", "W2.remote",
    "W2.recomputed", "W2@ipu0", "W2@ipu1", "W2@stage1", "W2.stash", "W2.restored", "W2.sent", "W2.arrived",
    "W2.updated", "W2.exchanged", "W2.1", "W2~2", "first.gradient", "first.recomputed", "first.stash",
    "first@stage1", "gradient-factor", "learning-rate", "step", "loss-scale", "train.metrics",
    "evaluate/metrics", "evaluate/W2", "evaluate/first", "evaluate/loss", "evaluate/images", "constants/W2",
    "constants/half", "constants~/half", "loss", "loss~", "loss.gradient", "loss.correct", "images", "labels",
    "image.normalized", "images.normalized", "outlined.0", "outlined.0/W2", "train", "load", "relu", "linear", "W 2",
    " ", "0", ".", "..", "a/b/../c", "/", "\u00df\u2192\u91cd", "#", "'", '"', "\\", "{}", "%s", "-", "true",
    "the loss", "n" * 300]


def scaled(names, activations, output):
    """Returns a model that applies W2 to images and one scaling weight per name; `activations` names the last
    values."""
    rng = random.Random(7)
    nodes = [node("Flatten", ["image"], "first"), node("MatMul", ["first", "W2"], "second"),
             node("Mul", ["second", "half"], "v0")]
    tensors = [tensor("W2", [64, 4], [rng.uniform(-0.2, 0.2) for _ in range(256)]),
               tensor("half", [4], [0.5, 0.25, 0.5, 0.75])]
    value = "v0"
    for k, name in enumerate(names):
        tensors.append(tensor(name, [4], [rng.uniform(0.9, 1.1) for _ in range(4)]))
        made = output if k + 1 == len(names) else activations.get(k, f"v{k + 1}")
        nodes.append(node("Mul", [value, name], made))
        value = made
    graph = b"".join([*(field(1, n) for n in nodes), field(2, "scaled"), *(field(5, t) for t in tensors),
                      field(11, value_info("image", ["N", 1, 8, 8])), field(12, value_info(output, ["N", 4]))])
    return field(1, 7) + field(7, graph) + field(8, field(1, "") + field(2, 13))


class Names(JobTest):
    """Tensors train in the same way under any name, and are saved under the file's own names."""

    def train(self, model, *arguments):
        file = self.folder / "model.onnx"
        file.write_bytes(model)
        config = (CONFIG.format(file=file, more="").replace("steps = 40", "steps = 2\nclip-norm = 1\n"
                                                             "gradient-accumulation = 2\n"
                                                             "gradient-reduction = every-micro-batch"))
        return self.run_job("-n", 2, *arguments, config=config)

    def saved(self, job, file="weights.safetensors"):
        return {name: bytes(data) for name, (_, _, data) in safetensors_file.read(job.output_dir / file).items()}

    TECHNIQUES = ("--ipus-per-replica", 2, "--pipeline.recomputation", "all", "--memory.optimizer-state", "off-chip",
                  "--memory.off-chip-min-elements", 2, "--memory.sharding-min-elements", 2, "--memory.outlining", "on",
                  "--memory.replicated-tensor-sharding", "weights optimizer-state accumulators")

    def test_train_as_plain_ones_do(self):
        plain_names = [f"p{k}" for k in range(len(AWKWARD))]
        plain = self.train(scaled(plain_names, {}, "out"))
        awkward_values = {10: "W2.sent.1", 11: "step.1", 12: "images.1", 13: "evaluate/v3", 14: "W2.v"}
        model = scaled(AWKWARD, awkward_values, "labels.1")
        wanted = self.saved(plain)
        for plain_name, name in zip(plain_names, AWKWARD, strict=True):
            wanted[name] = wanted.pop(plain_name)
        for techniques in ((), self.TECHNIQUES):
            job = self.train(model, *techniques)
            self.assertEqual(self.saved(job), wanted, techniques)
            self.assertEqual([row["loss"] for row in job.metrics()], [row["loss"] for row in plain.metrics()])

    def test_key_random_draws(self):
        self.train(scaled(AWKWARD, {}, "out"), "--model.precision", "half", "--training.stochastic-rounding", "true")

    def test_stay_in_checkpoints_dumps_and_expressions(self):
        model = scaled(AWKWARD, {}, "out")
        whole = self.train(model, "--training.steps", 4)
        ways = (*self.TECHNIQUES, "--memory.outlining", "off", "--memory.location", "^W2[.]gradient$=on-chip")
        first = self.train(model, "--checkpoint-every", 2, "--report.dump-tensors", "^W2@1", *ways)
        dump = self.saved(first, "dump-step-1.safetensors")
        rng = random.Random(7)
        self.assertEqual(dump["W2"], struct.pack("<256f", *(rng.uniform(-0.2, 0.2) for _ in range(256))))
        for name in ("W2.gradient", "W2.momentum", "W2.updated", "W2.shard"):
            self.assertEqual(len(dump[name]), 16, f"the weight {name} of 4 elements")
        resumed = self.train(model, "--resume", first.output_dir, "--training.steps", 4, *ways)
        self.assertEqual(self.saved(resumed), self.saved(whole))
        frozen = self.saved(self.train(model, "--training.frozen", "^W2[.]"))
        trained = self.saved(self.train(model))
        before = self.saved(self.train(model, "--training.learning-rate", 1e-30))
        for name in AWKWARD + ["W2"]:
            self.assertEqual(frozen[name] == before[name], name.startswith("W2."), name)
            self.assertNotEqual(trained[name], before[name], name)

    def test_each_name_trains_beside_w2(self):
        for name, more in (("W2.gradient", ()), ("W2.momentum", ()), ("gradient-factor", ()),
                           ("W2.shard", self.TECHNIQUES)):
            self.assertIn(name, self.saved(self.train(scaled([name], {}, "out"), *more)))

    def test_names_unfit_for_files_are_changed_or_refused(self):
        job = self.train(scaled(["__metadata__"], {}, "out"))
        self.assertIn("__metadata__~", self.saved(job))
        self.assertIn("'__metadata__~'", job.stdout + job.stderr)
        file = self.folder / "model.onnx"
        file.write_bytes(scaled([b"\xff\xfe"], {}, "out"))
        refused = self.run_job("-n", 1, config=CONFIG.format(file=file, more=""), code=65)
        self.assert_first_line(refused, "not UTF-8")


class Cases(unittest.TestCase):
    def test_a_folder_without_cases_is_bad_input(self):
        result = check(ROOT / "proto")
        self.assertEqual(result.returncode, 65, result.stderr)

    def test_an_expected_infinity_is_a_value_like_another(self):
        graph = b"".join([
            field(1, node("Sqrt", ["x"], "y")), field(2, "root"),
            field(11, value_info("x", [3])), field(12, value_info("y", [3]))])
        model = field(1, 7) + field(7, graph) + field(8, field(1, "") + field(2, 13))
        for expected, words in ((2.0, "1 pass, 0 FAIL"), (3.0, "0 pass, 1 FAIL")):
            with tempfile.TemporaryDirectory() as folder:
                data = pathlib.Path(folder) / "root" / "test_data_set_0"
                data.mkdir(parents=True)
                (data.parent / "model.onnx").write_bytes(model)
                (data / "input_0.pb").write_bytes(tensor("x", [3], [4.0, -1.0, math.inf]))
                (data / "output_0.pb").write_bytes(tensor("y", [3], [expected, math.nan, math.inf]))
                self.assertIn(words, check(folder).stdout)

    @unittest.skipUnless(SHARED.is_dir(), "no folder of ONNX cases beside the repository")
    def test_every_shared_case_passes(self):
        result = check(SHARED)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertNotIn("unsupported  ", result.stdout)

    @unittest.skipUnless(NODES.is_file(), "no archive of ONNX's newest node cases beside the repository")
    def test_no_case_of_the_newest_opsets_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            with tarfile.open(NODES) as archive:
                archive.extractall(folder)
            result = check(folder)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertIn(", 0 FAIL, ", result.stdout)
        self.assertGreaterEqual(result.stdout.count("pass  "), 665, result.stdout)

    @unittest.skipUnless(DEBIAN.is_dir(), "needs Debian's package libonnx-testdata")
    def test_no_case_of_the_onnx_project_fails(self):
        result = check(DEBIAN)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertGreater(result.stdout.count("pass  "), 800, result.stdout)


if __name__ == "__main__":
    unittest.main()
