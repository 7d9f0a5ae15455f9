#!/usr/bin/env python3
"""Trains a small model of a family for 60 steps and compares the losses and weights with PyTorch in float64, from the
same weights and the same rows of the data: U-Net, DLRM, LSTM and VAE; the losses of ONNX models; and classifiers that
torch.onnx.export writes: an LSTM, a MobileNetV3 and an EfficientNet.
"""
import copy
import io
import json
import math
import unittest
import warnings

from torch_arrays import read, write  # First, because it finds PyTorch.

import numpy
import torch
import torch.nn.functional as F
from emulated_job import JobTest
from onnx_file import attribute, field, int64s, node, tensor, value_info
from torch import nn

STEPS = 60


class FamilyTest(JobTest):
    def assert_check_passes(self, config):
        """Checks that all ways to run the job on 2 replicas and 2 IPUs are bit-identical."""
        job = self.run_job("check", "-n", 2, "--num-instances", 1, "--check-ipus", 2, "--check-steps", 2,
                           "--training.gradient-accumulation", 2, config=config)
        verdicts = [run["verdict"] for run in json.loads((job.output_dir / "check.json").read_text())["runs"]]
        self.assertEqual(set(verdicts[1:]), {"EQUAL"}, job.stdout)


class Trained:
    """The real command's losses and weights, and PyTorch's."""

    def __init__(self, test, model, keys, arrays, weights, loss, *, replicas=2, micro_batch=3, rate=0.05,
                 precision="float", options=(), noise=None, buffers=(), module=None, together=False):
        """`model` is a name, or the bytes of an ONNX file with the weights. `loss` reads the weights from its first
        argument, or from `module`, which then has them. It is called for each replica's rows, or, with `together`, for
        those of all replicas."""
        self.replicas, self.micro_batch, self.loss = replicas, micro_batch, loss
        self.arrays = {name: torch.tensor(array) for name, array in arrays.items()}
        data, start = test.folder / "data.npz", test.folder / "start.safetensors"
        numpy.savez(data, **arrays)
        write(start, {**weights, **dict(buffers)})
        if isinstance(model, bytes):
            (test.folder / "net.onnx").write_bytes(model)
            keys = {"onnx": test.folder / "net.onnx", **keys}
        else:
            keys = {"name": model, "initial-weights": start, **keys}
        self.config = "\n".join([
            "[model]", *(f"{key} = {value}" for key, value in keys.items()), f"precision = {precision}",
            "[data]", f"source = npz:{data}", "order = sequential", f"micro-batch-size = {micro_batch}",
            "[training]", f"steps = {STEPS}", "optimizer = momentum", "momentum = 0.9", f"learning-rate = {rate}",
            "evaluate = false", ""])
        self.job = job = test.run_job("-n", replicas, "--num-instances", 1, *options, config=self.config)
        self.losses = [float(row["loss"]) for row in job.metrics() if row["split"] == "train"]
        self.weights = read(job.output_dir / "weights.safetensors")
        p = {name: torch.tensor(array).double().requires_grad_() for name, array in weights.items()}
        p = dict(module.named_parameters()) if module else p
        optimizer = torch.optim.SGD(p.values(), lr=rate, momentum=0.9)
        self.theirs = []
        for step in range(STEPS):
            optimizer.zero_grad()
            total = 0
            parts, size = (1, replicas * micro_batch) if together else (replicas, micro_batch)
            for part in range(parts):
                begin = (step * parts + part) * size
                rows = {name: array[begin:begin + size] for name, array in self.arrays.items()}
                mean = loss(p, rows, *([] if noise is None else [noise(job, step)])) / parts
                mean.backward()
                total += mean.item()
            self.theirs.append(total)
            optimizer.step()
        self.expected = p

    def check(self, test, name):
        test.assertEqual(len(self.losses), STEPS)
        error = abs(self.losses[-1] - self.theirs[-1])
        worst = max(((self.weights[key].double() - want).abs().max() / want.abs().max().clamp(min=1e-3)).item()
                    for key, want in self.expected.items())
        print(f"{name}: loss {self.theirs[0]:.6f} -> {self.theirs[-1]:.6f}, last loss off by {error:.1e}, "
              f"worst weight by {worst:.1e}")
        test.assertLess(self.theirs[-1], 0.95 * self.theirs[0], "nothing is learnt, so nothing is tested")
        test.assertLess(error, 1e-4)
        test.assertLess(worst, 1e-3)


def drawn(seed, shapes, deviation=0.3):
    numbers = numpy.random.default_rng(seed)
    return {name: numbers.normal(0, deviation, shape).astype(numpy.float32) for name, shape in shapes.items()}


def repeated(array, rows, of=24):
    """Repeats the first rows, so that 60 steps learn them."""
    return numpy.concatenate([array[:of]] * (rows // of + 1))[:rows]


ITEMS = STEPS * 2 * 3


class Lstm(JobTest):
    V, H, T = 11, 8, 5

    def weights(self):
        gates = {f"rnn.{kind}_l{k}": shape for k in range(2) for kind, shape in (
            ("weight_ih", (4 * self.H, self.H)), ("weight_hh", (4 * self.H, self.H)), ("bias_ih", (4 * self.H,)),
            ("bias_hh", (4 * self.H,)))}
        return drawn(1, {"encoder.weight": (self.V, self.H), **gates, "decoder.weight": (self.V, self.H),
                         "decoder.bias": (self.V,)})

    def loss(self, p, rows):
        rnn = torch.nn.LSTM(self.H, self.H, num_layers=2, batch_first=True).double()
        names = [name for name, _ in rnn.named_parameters()]
        x = F.embedding(rows["input_ids"].long(), p["encoder.weight"])
        zero = torch.zeros(2, x.shape[0], self.H, dtype=torch.float64)
        x = torch._VF.lstm(x, (zero, zero), [p[f"rnn.{name}"] for name in names], True, 2, 0.0, True, False, True)[0]
        logits = F.linear(x, p["decoder.weight"], p["decoder.bias"])
        return F.cross_entropy(logits.flatten(0, 1), rows["labels"].long().flatten())

    def test_follows_pytorch(self):
        numbers = numpy.random.default_rng(2)
        tokens = repeated(numbers.integers(0, self.V, (24, self.T + 1)).astype(numpy.int32), ITEMS)
        arrays = {"input_ids": tokens[:, :-1].copy(), "labels": tokens[:, 1:].copy()}
        keys = {"hidden": self.H, "layers": 2, "vocabulary": self.V, "sequence-length": self.T}
        Trained(self, "lstm", keys, arrays, self.weights(), self.loss, rate=0.1).check(self, "lstm")
        half = Trained(self, "lstm", keys, arrays, self.weights(), self.loss, rate=0.1, precision="half")
        self.assertAlmostEqual(half.losses[-1], half.theirs[-1], delta=0.05)


class Dlrm(JobTest):
    DENSE, TABLES, ROWS, D = 5, 3, 7, 4

    def weights(self):
        inputs = self.D + (self.TABLES + 1) * self.TABLES // 2
        return drawn(3, {"bot_l.0.weight": (64, self.DENSE), "bot_l.0.bias": (64,), "bot_l.2.weight": (self.D, 64),
                         "bot_l.2.bias": (self.D,), "top_l.0.weight": (64, inputs), "top_l.0.bias": (64,),
                         "top_l.2.weight": (1, 64), "top_l.2.bias": (1,),
                         **{f"emb_l.{k}.weight": (self.ROWS, self.D) for k in range(self.TABLES)}})

    def loss(self, p, rows):
        layer = lambda name, x: F.linear(x, p[name + ".weight"], p[name + ".bias"])
        x = F.relu(layer("bot_l.2", F.relu(layer("bot_l.0", rows["dense"].double()))))
        features = torch.stack([x] + [F.embedding(rows["sparse"][:, k].long(), p[f"emb_l.{k}.weight"])
                                      for k in range(self.TABLES)], 1)
        products = features @ features.transpose(1, 2)
        below = torch.tril_indices(self.TABLES + 1, self.TABLES + 1, -1)
        z = torch.cat([x, products[:, below[0], below[1]]], 1)
        logit = layer("top_l.2", F.relu(layer("top_l.0", z)))[:, 0]
        return F.binary_cross_entropy_with_logits(logit, rows["labels"].double())

    def test_follows_pytorch(self):
        numbers = numpy.random.default_rng(4)
        arrays = {"dense": repeated(numbers.normal(0, 1, (24, self.DENSE)).astype(numpy.float32), ITEMS),
                  "sparse": repeated(numbers.integers(0, self.ROWS, (24, self.TABLES)).astype(numpy.int32), ITEMS),
                  "labels": repeated(numbers.integers(0, 2, 24).astype(numpy.int32), ITEMS)}
        keys = {"hidden": self.D, "vocabulary": self.ROWS}
        Trained(self, "dlrm-mini", keys, arrays, self.weights(), self.loss, rate=0.02).check(self, "dlrm-mini")
        soft = {**arrays, "labels": repeated(numbers.uniform(0, 1, 24).astype(numpy.float32), ITEMS)}
        soft = Trained(self, "dlrm-mini", keys, soft, self.weights(), self.loss, rate=0.02, precision="half")
        self.assertAlmostEqual(soft.losses[-1], soft.theirs[-1], delta=0.02)


class Unet(JobTest):
    C, GROUPS = 4, 0

    def weights(self):
        shapes = {}

        def double(name, inputs, channels):
            for k, i in ((0, inputs), (3, channels)):
                shapes[f"{name}.double_conv.{k}.weight"] = (channels, i, 3, 3)
                for kind in ("weight", "bias"):
                    shapes[f"{name}.double_conv.{k + 1}.{kind}"] = (channels,)

        double("inc", 3, self.C)
        double("down1.maxpool_conv.1", self.C, 2 * self.C)
        double("down2.maxpool_conv.1", 2 * self.C, 4 * self.C)
        for level, channels in ((1, 4 * self.C), (2, 2 * self.C)):
            shapes[f"up{level}.up.weight"] = (channels, channels // 2, 2, 2)
            shapes[f"up{level}.up.bias"] = (channels // 2,)
            double(f"up{level}.conv", channels, channels // 2)
        shapes["outc.conv.weight"], shapes["outc.conv.bias"] = (3, self.C, 1, 1), (3,)
        weights = drawn(5, shapes)
        return {name: array + 1 if array.ndim == 1 and name.endswith(".weight") else array
                for name, array in weights.items()}

    def loss(self, p, rows):
        def double(name, x):
            for k in (0, 3):
                x = F.conv2d(x, p[f"{name}.double_conv.{k}.weight"], padding=1)
                norm = f"{name}.double_conv.{k + 1}."
                scale = p[norm + "weight"], p[norm + "bias"]
                x = F.group_norm(x, math.gcd(self.GROUPS, x.shape[1]), *scale) if self.GROUPS else \
                    F.batch_norm(x, None, None, *scale, training=True)
                x = F.relu(x)
            return x

        x1 = double("inc", rows["images"].double())
        x2 = double("down1.maxpool_conv.1", F.max_pool2d(x1, 2))
        x = double("down2.maxpool_conv.1", F.max_pool2d(x2, 2))
        for level, skipped in ((1, x2), (2, x1)):
            name = f"up{level}."
            x = F.conv_transpose2d(x, p[name + "up.weight"], p[name + "up.bias"], stride=2)
            x = double(name + "conv", torch.cat([skipped, x], 1))
        logits = F.conv2d(x, p["outc.conv.weight"], p["outc.conv.bias"])
        return F.cross_entropy(logits, rows["labels"].long(), ignore_index=-1)

    def arrays(self):
        numbers = numpy.random.default_rng(6)
        images = repeated(numbers.normal(0, 1, (24, 3, 16, 16)).astype(numpy.float32), ITEMS)
        labels = (images[:, 0] > 0).astype(numpy.int32) + (images[:, 1] > 0.5)
        labels[:, 3, 5] = -1  # One pixel of each image does not count.
        return {"images": images, "labels": labels.astype(numpy.int32)}

    def test_follows_pytorch(self):
        arrays, weights, keys = self.arrays(), self.weights(), {"hidden": self.C, "layers": 2}
        norms = [name.removesuffix(".bias") for name, array in weights.items()
                 if name.endswith(".bias") and weights[name.removesuffix("bias") + "weight"].ndim == 1]
        buffers = {f"{norm}.{kind}": numpy.full(weights[norm + ".bias"].shape, value, numpy.float32)
                   for norm in norms for kind, value in (("running_mean", 0), ("running_var", 1))}
        common = {"rate": 0.01, "buffers": buffers}
        Trained(self, "unet", keys, arrays, weights, self.loss, **common).check(self, "unet")
        half = Trained(self, "unet", keys, arrays, weights, self.loss, **common, precision="half")
        self.assertAlmostEqual(half.losses[-1], half.theirs[-1], delta=0.05)

    def test_of_group_norms_follows_pytorch(self):
        self.C, self.GROUPS = 16, 32  # So that the lowest level has 64 channels in 32 groups.
        keys = {"hidden": self.C, "layers": 2, "normalisation": "group"}
        trained = Trained(self, "unet", keys, self.arrays(), self.weights(), self.loss, rate=0.003)
        trained.check(self, "unet, group norms")


class Vae(JobTest):
    PIXELS, H, Z, MICRO_BATCH = 12, 16, 3, 6

    def weights(self):
        shapes = {"fc1": (self.H, self.PIXELS), "fc21": (self.Z, self.H), "fc22": (self.Z, self.H),
                  "fc3": (self.H, self.Z), "fc4": (self.PIXELS, self.H)}
        return drawn(7, {f"{name}.{kind}": shape if kind == "weight" else shape[:1]
                         for name, shape in shapes.items() for kind in ("weight", "bias")})

    def loss(self, p, rows, noise):
        layer = lambda name, x: F.linear(x, p[name + ".weight"], p[name + ".bias"])
        x = rows["images"].double()
        h = F.relu(layer("fc1", x))
        mean, log_variance = layer("fc21", h), layer("fc22", h)
        z = mean + (0.5 * log_variance).exp() * noise
        logits = layer("fc4", F.relu(layer("fc3", z)))
        entropy = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).sum()
        return (entropy + divergence) / len(x)

    def noise(self, job, step):
        return read(job.output_dir / f"dump-step-{step + 1}.safetensors")["noise"].double()

    def test_follows_pytorch_with_the_same_noise(self):
        numbers = numpy.random.default_rng(8)
        arrays = {"images": repeated(numbers.uniform(0, 1, (24, self.PIXELS)).round().astype(numpy.float32), ITEMS),
                  "labels": numpy.zeros(ITEMS, numpy.int32)}
        dumped = "^noise$@" + ",".join(str(step + 1) for step in range(STEPS))
        trained = Trained(self, "vae", {"hidden": self.H, "latent": self.Z}, arrays, self.weights(), self.loss,
                          replicas=1, micro_batch=self.MICRO_BATCH, rate=0.005,
                          options=["--report.dump-tensors", dumped], noise=self.noise)
        trained.check(self, "vae")
        noise = torch.stack([self.noise(trained.job, step) for step in range(STEPS)])
        size = noise.numel()
        self.assertLess(abs(noise.mean()), 4 / size**0.5)
        self.assertLess(abs(noise.var() - 1), 4 * (2 / size)**0.5)
        correlation = (noise[1:] * noise[:-1]).mean()
        print(f"vae: noise of {size} numbers, mean {noise.mean():.4f}, variance {noise.var():.4f}, "
              f"correlation of steps {correlation:.4f}")
        self.assertLess(abs(correlation), 4 / size**0.5)


def onnx_model(nodes, weights, output, constants=()):
    """`output` is the shape of y, or the shapes of all outputs by name."""
    outputs = output if isinstance(output, dict) else {"y": output}
    graph = b"".join([*(field(1, one) for one in nodes), field(2, "net"),
                      *(field(5, tensor(name, w.shape, w.flatten().tolist())) for name, w in weights.items()),
                      *(field(5, constant) for constant in constants),
                      field(11, value_info("x", ["N", Losses.FEATURES])),
                      *(field(12, value_info(name, shape)) for name, shape in outputs.items())])
    return field(1, 7) + field(7, graph) + field(8, field(1, "") + field(2, 13))


class Losses(FamilyTest):
    """Losses of ONNX models that no other test compares with PyTorch."""
    FEATURES = 6

    def setUp(self):
        super().setUp()
        numbers = numpy.random.default_rng(9)
        self.x = repeated(numbers.normal(0, 1, (24, self.FEATURES)).astype(numpy.float32), ITEMS)
        self.numbers = numbers

    def train(self, name, model, weights, labels, loss, keys=None, **keywords):
        arrays, keys = {"x": self.x, "y": labels}, keys or {"loss": name}
        for precision in ("float", "half"):
            trained = Trained(self, model, keys, arrays, weights, loss, precision=precision, **keywords)
            if precision == "float":
                trained.check(self, name)
            else:
                self.assertAlmostEqual(trained.losses[-1], trained.theirs[-1], delta=0.03 * trained.theirs[0])

    def test_binary_cross_entropy_of_several_labels(self):
        weights = drawn(10, {"w": (self.FEATURES, 4)})
        model = onnx_model([node("MatMul", ["x", "w"], "y")], weights, ["N", 4])
        labels = repeated(self.numbers.uniform(0, 1, (24, 4)).round(1).astype(numpy.float32), ITEMS)
        self.train("binary-cross-entropy", model, weights, labels,
                   lambda p, rows: F.binary_cross_entropy_with_logits(rows["x"].double() @ p["w"], rows["y"].double()))

    def test_contrastive_loss_of_pairs(self):
        weights = drawn(11, {"a": (self.FEATURES, 5), "b": (self.FEATURES, 5)})
        model = onnx_model([node("MatMul", ["x", "a"], "left"), node("MatMul", ["x", "b"], "right"),
                            node("Transpose", ["right"], "columns", attributes=[attribute("perm", [1, 0])]),
                            node("MatMul", ["left", "columns"], "y")], weights, ["N", "N"])

        def loss(p, rows):
            logits = (rows["x"].double() @ p["a"]) @ (rows["x"].double() @ p["b"]).T
            own = torch.arange(len(logits))
            return (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2

        self.train("contrastive", model, weights, numpy.zeros(ITEMS, numpy.int32), loss, rate=0.02)

    def test_contrastive_loss_of_the_pairs_of_all_replicas(self):
        weights = {**drawn(13, {"a": (self.FEATURES, 5), "b": (self.FEATURES, 5)}), "log": numpy.float32(1.5)}
        nodes = [node("Exp", ["log"], "factor")]
        for side, weight in (("left", "a"), ("right", "b")):  # Of length 1, as in CLIP.
            nodes += [node("MatMul", ["x", weight], side + ".long"),
                      node("ReduceL2", [side + ".long"], side + ".length", attributes=[attribute("axes", [1])]),
                      node("Div", [side + ".long", side + ".length"], side)]
        model = onnx_model(nodes, weights, {"left": ["N", 5], "right": ["N", 5], "factor": []})

        def loss(p, rows):
            left, right = (F.normalize(rows["x"].double() @ p[name]) for name in "ab")
            logits = p["log"].exp() * left @ right.T
            own = torch.arange(len(logits))
            return (F.cross_entropy(logits, own) + F.cross_entropy(logits.T, own)) / 2

        labels = numpy.zeros(ITEMS, numpy.int32)
        keys = {"loss": "global-contrastive", "trained-constants": "^log$"}
        self.train("global-contrastive", model, weights, labels, loss, keys, rate=0.005, together=True)
        x = numpy.resize(self.x, (8 * STEPS, self.FEATURES))
        runs = [Trained(self, model, keys, {"x": x, "y": numpy.zeros(len(x), numpy.int32)}, weights, loss, rate=0.005,
                        replicas=replicas, micro_batch=8 // replicas, together=True) for replicas in (1, 2, 4)]
        for run in runs[1:]:
            off = max(abs(a - b) for a, b in zip(run.losses, runs[0].losses))
            worst = max((run.weights[key] - runs[0].weights[key]).abs().max().item() for key in weights)
            print(f"{run.replicas} replicas x {run.micro_batch} pairs against 1 x 8: losses off by {off:.1e}, "
                  f"weights by {worst:.1e}")
            self.assertLess(off, 2e-6)
            self.assertLess(worst, 1e-5)
        self.assert_check_passes(runs[1].config)

    def test_ctc(self):
        T, C = 7, 4
        weights = drawn(12, {"w": (self.FEATURES, T * C)})
        model = onnx_model([node("MatMul", ["x", "w"], "flat"), node("Reshape", ["flat", "shape"], "y")], weights,
                           ["N", T, C], [int64s("shape", [3], [-1, T, C])])
        labels = self.numbers.integers(1, C, (24, 3)).astype(numpy.int32)
        labels[::3, 2] = -1  # Shorter.
        labels[1::4, 1] = labels[1::4, 0]  # Repeated: needs a blank between.
        labels = repeated(labels, ITEMS)

        def loss(p, rows):
            frames = (rows["x"].double() @ p["w"]).reshape(-1, T, C).log_softmax(2).transpose(0, 1)
            lengths = (rows["y"] >= 0).sum(1)
            inputs = torch.full((len(lengths),), T)
            return F.ctc_loss(frames, rows["y"].clamp(min=0).long(), inputs, lengths, reduction="sum") / lengths.sum()

        self.train("ctc", model, weights, labels, loss)

        too_long = numpy.full((6, T), 1, numpy.int32)  # Equal labels need blanks between them.
        refused = self.run_ctc(model, too_long)
        self.assert_first_line(refused, "infinity", "'loss'", "produced by ctc_loss in step 1",
                               "the labels of a sequence do not fit in its frames", "shorten the labels")

    def run_ctc(self, model, labels):
        net, data = self.folder / "net.onnx", self.folder / "data.npz"
        net.write_bytes(model)
        numpy.savez(data, x=self.x[:len(labels)], y=labels)
        return self.run_job(config=f"[model]\nonnx = {net}\nloss = ctc\n[data]\nsource = npz:{data}\n"
                                   "micro-batch-size = 3\n[training]\nsteps = 1\nevaluate = false\n", code=65)


class TextClassifier(nn.Module):
    """Classifies a sequence of tokens by the last state of an LSTM."""

    def __init__(self, vocabulary, classes):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, 8)
        self.lstm = nn.LSTM(8, 12, num_layers=2, batch_first=True)
        self.head = nn.Linear(12, classes)

    def forward(self, tokens):
        return self.head(self.lstm(self.embedding(tokens))[1][0][-1])


def convolution(inputs, outputs, kernel, active, **options):
    """Returns a convolution without bias, a batch norm and an activation function."""
    return nn.Sequential(nn.Conv2d(inputs, outputs, kernel, padding=kernel // 2, bias=False, **options),
                         nn.BatchNorm2d(outputs), active())


class Inverted(nn.Module):
    """The block of MobileNetV3 and EfficientNet, as in torchvision: it expands the channels, convolves each, weights
    them (squeeze and excitation), and projects them back."""

    def __init__(self, channels, inner, kernel, active, squeezed, gate):
        super().__init__()
        self.expand = convolution(channels, inner, 1, active)
        self.deep = convolution(inner, inner, kernel, active, groups=inner)
        self.fc1, self.fc2 = nn.Conv2d(inner, inner // 4, 1), nn.Conv2d(inner // 4, inner, 1)
        self.squeezed, self.gate = squeezed(), gate()
        self.project = convolution(inner, channels, 1, nn.Identity)

    def forward(self, x):
        y = self.deep(self.expand(x))
        y = y * self.gate(self.fc2(self.squeezed(self.fc1(F.adaptive_avg_pool2d(y, 1)))))
        return x + self.project(y)


def image_network(active, squeezed, gate, head):
    """Returns a small network of two Inverted blocks."""
    return nn.Sequential(convolution(3, 8, 3, active, stride=2), Inverted(8, 16, 3, active, squeezed, gate),
                         Inverted(8, 24, 5, active, squeezed, gate), convolution(8, 16, 1, active),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), *head)


def mobilenet_v3(classes):
    return image_network(nn.Hardswish, nn.ReLU, nn.Hardsigmoid,
                         [nn.Linear(16, 20), nn.Hardswish(), nn.Linear(20, classes)])


def efficientnet(classes):
    return image_network(nn.SiLU, nn.SiLU, nn.Sigmoid, [nn.Linear(16, classes)])


class Exports(FamilyTest):
    """Classifiers that PyTorch exports."""
    CLASSES = 3

    def train(self, name, make, inputs, labels, rate):
        torch.manual_seed(14)
        model = make(self.CLASSES).train()
        reference, file = copy.deepcopy(model).double(), io.BytesIO()
        (key, rows), = inputs.items()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            example = torch.tensor(rows[:3])
            torch.onnx.export(model, example.long() if rows.dtype == numpy.int32 else example, file, opset_version=14,
                              input_names=[key], output_names=["y"], dynamic_axes={key: {0: "N"}},
                              training=torch.onnx.TrainingMode.TRAINING, do_constant_folding=False)

        def loss(_, batch):
            x = batch[key].double() if batch[key].is_floating_point() else batch[key].long()
            return F.cross_entropy(reference(x), batch["labels"].long())

        trained = Trained(self, file.getvalue(), {}, {**inputs, "labels": labels}, {}, loss, rate=rate,
                          module=reference)
        trained.check(self, name)
        return trained.config

    def test_lstm_classifier(self):
        numbers = numpy.random.default_rng(15)
        tokens = repeated(numbers.integers(0, 9, (24, 6)).astype(numpy.int32), ITEMS)
        config = self.train("LSTM classifier", lambda classes: TextClassifier(9, classes), {"tokens": tokens},
                            (tokens[:, :4].sum(1) % self.CLASSES).astype(numpy.int32), 0.2)
        self.assert_check_passes(config)

    def test_networks_of_images(self):
        numbers = numpy.random.default_rng(16)
        images = repeated(numbers.normal(0, 1, (24, 3, 12, 12)).astype(numpy.float32), ITEMS)
        labels = repeated(numbers.integers(0, self.CLASSES, 24).astype(numpy.int32), ITEMS)
        for name, make in (("MobileNetV3", mobilenet_v3), ("EfficientNet", efficientnet)):
            self.train(name, make, {"images": images}, labels, 0.02)


if __name__ == "__main__":
    unittest.main()
