#!/usr/bin/env python3
"""Compares models that torch.onnx.export writes, through the real command, with PyTorch itself.

Each model is exported for training and takes one step from the exported weights; its gradients are compared with those
of PyTorch in float64. Exported for evaluation, its outputs are compared.
"""
import copy
import math
import unittest
import warnings

from torch_arrays import read  # First, because it finds PyTorch.

import numpy
import torch
import torch.nn.functional as F
from emulated_job import JobTest
from onnx_file import field, int64s, integer, node, real, tensor, value_info
from torch import nn

BATCH, TOKENS, VOCABULARY, CLASSES, HIDDEN, HEADS = 4, 12, 31, 5, 24, 3


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(HIDDEN, 3 * HIDDEN)
        self.out = nn.Linear(HIDDEN, HIDDEN)

    def forward(self, x, mask):
        B, N, C = x.shape
        q, k, v = self.qkv(x).reshape(B, N, 3, HEADS, C // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
        scores = mask(q @ k.transpose(-2, -1) * (C // HEADS) ** -0.5)
        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(B, N, C))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(HIDDEN), nn.LayerNorm(HIDDEN)
        self.attention = Attention()
        self.mlp = nn.Sequential(nn.Linear(HIDDEN, 48), nn.GELU(), nn.Linear(48, HIDDEN))

    def forward(self, x, mask):
        x = x + self.attention(self.norm1(x), mask)
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    """A decoder with the ways in which published models mask later tokens."""

    def __init__(self, way):
        super().__init__()
        self.way = way
        self.tokens, self.places = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(TOKENS, HIDDEN)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.norm = nn.LayerNorm(HIDDEN)
        self.register_buffer("seen", torch.ones(TOKENS, TOKENS).tril())
        self.register_buffer("added", torch.full((TOKENS, TOKENS), -math.inf).triu(1))

    def mask(self, scores):
        if self.way == "fill":
            return scores.masked_fill(self.seen == 0, -math.inf)
        if self.way == "add":
            return scores + self.added
        least = torch.tensor(torch.finfo(torch.float32).min)
        return torch.where(self.seen.bool(), scores, least)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(torch.arange(TOKENS).unsqueeze(0))
        for block in self.blocks:
            x = block(x, self.mask)
        return self.norm(x) @ self.tokens.weight.T


class Encoder(nn.Module):
    """A classifier of texts that masks padding."""

    def __init__(self):
        super().__init__()
        self.words, self.kinds = nn.Embedding(VOCABULARY, HIDDEN), nn.Embedding(2, HIDDEN)
        self.places, self.block = nn.Embedding(2 * TOKENS, HIDDEN), Block()
        self.distances = nn.Embedding(4, HEADS)
        self.head = nn.Linear(HIDDEN, CLASSES)

    def forward(self, input_ids, attention_mask, token_type_ids):
        hidden = (1.0 - attention_mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
        counted = torch.cumsum(attention_mask, 1) * attention_mask  # RoBERTa's positions.
        x = self.words(input_ids) + self.kinds(token_type_ids) + self.places(counted + 1)
        apart = (torch.arange(TOKENS)[:, None] - torch.arange(TOKENS)[None, :]).abs()
        bias = self.distances(torch.min(apart, torch.tensor(3))).permute(2, 0, 1)  # T5's.
        x = self.block(x, lambda scores: scores + bias + hidden)
        last = x[torch.arange(BATCH), attention_mask.sum(1) - 1]
        return self.head(torch.tanh(x[:, 0] + last))


class Segmenter(nn.Module):
    """Classifies pixels: downsampling, upsampling in two ways, and skip connections."""

    def __init__(self):
        super().__init__()

        def stage(channels, features):
            return nn.Sequential(nn.Conv2d(channels, features, 3, padding=1),
                                 nn.GroupNorm(4, features), nn.LeakyReLU(0.2))

        self.down, self.bottom, self.across = stage(3, 8), stage(8, 16), stage(16, 8)
        self.up, self.head = nn.ConvTranspose2d(16, 8, 2, 2), nn.Conv2d(16, CLASSES, 1)

    def forward(self, x):
        down = self.down(x)
        y = self.bottom(F.max_pool2d(down, 4))
        y = F.interpolate(self.up(y), scale_factor=2, mode="bilinear", align_corners=False)
        return self.head(torch.cat([self.across(torch.cat([y, down], 1)), down], 1))


class Mobile(nn.Module):
    """Depthwise convolutions, squeeze and excitation, and related layers."""

    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 16, 3, 2, 1, bias=False), nn.BatchNorm2d(16, eps=1e-3)
        self.deep = nn.Conv2d(16, 16, 5, padding=2, groups=16)
        self.squeeze, self.excite = nn.Conv2d(16, 4, 1), nn.Conv2d(4, 16, 1)
        self.norm2, self.head = nn.LayerNorm(16), nn.Linear(16, CLASSES)

    def forward(self, x):
        x = F.hardswish(self.norm(self.stem(x)))
        share = self.excite(F.silu(self.squeeze(F.adaptive_avg_pool2d(x, 1))))
        x = x + F.relu6(self.deep(x)) * F.hardsigmoid(share)
        return self.head(F.gelu(self.norm2(x.permute(0, 2, 3, 1)))
                         .permute(0, 3, 1, 2).mean((2, 3)))


class Sound(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv1d(4, 8, 5, 2, 2), nn.Conv1d(8, 8, 3, padding=2, dilation=2)
        self.head = nn.Linear(8, CLASSES)

    def forward(self, x):
        x = F.max_pool1d(F.mish(self.first(x)), 2)
        return self.head(F.softplus(self.second(x)).mean(-1))


class Sums(nn.Module):
    """One Einsum of weights and features, followed by a layer to classes."""

    def __init__(self, equation, shapes, features):
        super().__init__()
        self.equation = equation
        self.weights = nn.ParameterList([nn.Parameter(torch.randn(shape)) for shape in shapes])
        self.head = nn.Linear(features, CLASSES)

    def forward(self, x):
        return self.head(torch.einsum(self.equation, x, *self.weights).reshape(BATCH, -1))


@torch.jit.script
def wide_or_not(x, w):
    """Exported as an If whose condition depends only on sizes."""
    if x.shape[2] > 4:
        y = x * w
    else:
        y = x - w
    return y


class Scripted(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide, self.narrow = nn.Parameter(torch.randn(6)), nn.Parameter(torch.randn(6))
        self.head = nn.Linear(6, CLASSES)

    def forward(self, x):
        x = wide_or_not(x[..., :6], self.wide)
        return self.head(wide_or_not(x[:, :, :4], self.narrow).mean((1, 2)))


class Jumps(nn.Module):
    """Comparisons, integers and indices, through which no gradient passes, and weights of one element."""

    def __init__(self):
        super().__init__()
        self.first, self.active = nn.Linear(12, 16), nn.PReLU()
        self.rows, self.head = nn.Embedding(16, 16), nn.Linear(16, CLASSES)
        self.scale, self.power = nn.Parameter(torch.tensor(1.5)), nn.Parameter(torch.ones(1) * 3)

    def forward(self, x):
        x = self.active(self.first(x)) * self.scale
        x = x + (x.abs() + 0.5).pow(self.power) / 10
        kept = x * (x > 0.1) + self.rows(x.argmax(1)) * (x != x.amax(1, keepdim=True)).float()
        steps = torch.div(x, 0.5, rounding_mode="trunc") + torch.remainder(x, 0.7)
        top = F.one_hot(x.argmin(1), 16) - (2 * x).long() % 3
        return self.head(kept + steps * top.clamp(min=0))


class Recurrent(nn.Module):
    """Reads a sequence [N,S,I] with layers of one kind, both ways and stacked, and classifies its last state."""

    def __init__(self, kind, **options):
        super().__init__()
        self.layers = kind(6, 10, batch_first=True, **options)
        self.head = nn.Linear(20 if options.get("bidirectional") else 10, CLASSES)

    def forward(self, x):
        return self.head(self.layers(x)[0][:, -1])


class Volumes(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv3d(2, 6, (3, 3, 2), stride=(2, 1, 1), padding=(1, 1, 0))
        self.norm = nn.GroupNorm(3, 6)
        self.second = nn.Conv3d(6, 4, 3, padding=2, dilation=2, groups=2, bias=False)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        x = x.reshape(-1, 2, 7, 6, 6)  # Datasets have no volumes.
        x = F.avg_pool3d(F.mish(self.norm(self.first(x))), 2)
        return self.head(F.hardswish(self.second(x)).mean((2, 3, 4)))


class Newest(nn.Module):
    """A decoder block of operators that ONNX has had since opset 23, which this PyTorch cannot export."""
    STEPS, WIDTH, QUERIES, SIZE = 5, 12, 3, 4

    def __init__(self, interleaved):
        super().__init__()
        self.interleaved = interleaved
        shapes = {"wq": (12, 12), "wk": (12, 4), "wv": (12, 4), "wo": (12, 12), "up": (12, 16), "down": (16, 12),
                  "last": (12, CLASSES)}
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.randn(shape) / 3))
        self.norm = nn.Parameter(1 + torch.randn(self.WIDTH) / 5)
        angles = torch.arange(self.STEPS)[:, None] * torch.tensor([1.0, 0.3])
        self.register_buffer("cosines", angles.cos()[None])
        self.register_buffer("sines", angles.sin()[None])

    def rms(self, x):
        return x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt() * self.norm

    def rotated(self, x, heads):
        x = x.unflatten(-1, (heads, self.SIZE))
        a, b = (x[..., 0::2], x[..., 1::2]) if self.interleaved else x.chunk(2, -1)
        cosines, sines = self.cosines[:, :, None].to(x), self.sines[:, :, None].to(x)
        pair = (a * cosines - b * sines, b * cosines + a * sines)
        return torch.stack(pair, -1).flatten(-2) if self.interleaved else torch.cat(pair, -1)

    def forward(self, x):
        x = x.reshape(-1, self.STEPS, self.WIDTH)
        h = self.rms(x)
        q, k = self.rotated(h @ self.wq, self.QUERIES).transpose(1, 2), self.rotated(h @ self.wk, 1).transpose(1, 2)
        scores = (2 * (q @ k.transpose(-1, -2) / 2 / 2).tanh()).masked_fill(
            torch.ones(self.STEPS, self.STEPS).triu(1).bool(), -math.inf)
        attended = (scores.softmax(-1) @ (h @ self.wv)[:, None]).transpose(1, 2).flatten(-2)
        x = x + attended @ self.wo
        up = self.rms(x) @ self.up
        x = x + (up * (1.5 * up).sigmoid()) @ self.down
        return F.gelu(x, approximate="tanh").mean(1) @ self.last

    def file(self):
        rope = [integer("interleaved", int(self.interleaved))]
        nodes = [
            node("Reshape", ["x", "shape"], "x0"), node("RMSNormalization", ["x0", "norm"], "h"),
            node("MatMul", ["h", "wq"], "q0"), node("MatMul", ["h", "wk"], "k0"), node("MatMul", ["h", "wv"], "v"),
            node("RotaryEmbedding", ["q0", "cosines", "sines"], "q", attributes=[*rope, integer("num_heads", 3)]),
            node("RotaryEmbedding", ["k0", "cosines", "sines"], "k", attributes=[*rope, integer("num_heads", 1)]),
            node("Attention", ["q", "k", "v"], "a", attributes=[
                integer("q_num_heads", 3), integer("kv_num_heads", 1), integer("is_causal", 1), real("softcap", 2.0)]),
            node("MatMul", ["a", "wo"], "a1"), node("Add", ["x0", "a1"], "x1"),
            node("RMSNormalization", ["x1", "norm"], "h1"), node("MatMul", ["h1", "up"], "u"),
            node("Swish", ["u"], "s", attributes=[real("alpha", 1.5)]), node("MatMul", ["s", "down"], "d"),
            node("Add", ["x1", "d"], "x2"), node("Gelu", ["x2"], "g", attributes=[text("approximate", "tanh")]),
            node("ReduceMean", ["g", "axes"], "m", attributes=[integer("keepdims", 0)]),
            node("MatMul", ["m", "last"], "y")]
        tensors = {**dict(self.named_parameters()), "cosines": self.cosines, "sines": self.sines}
        graph = b"".join([
            *(field(1, n) for n in nodes), field(2, "newest"),
            *(field(5, tensor(name, list(t.shape), t.detach().flatten().tolist())) for name, t in tensors.items()),
            field(5, int64s("shape", [3], [-1, self.STEPS, self.WIDTH])), field(5, int64s("axes", [1], [1])),
            field(11, value_info("x", ["N", self.STEPS * self.WIDTH])), field(12, value_info("y", ["N", CLASSES]))])
        return field(1, 13) + field(7, graph) + field(8, field(1, "") + field(2, 24))


class Warped(nn.Module):
    """Reads images, or volumes, between their pixels, at places that depend on the input: a spatial transformer."""
    opset = 16

    def __init__(self, volumes, **options):
        super().__init__()
        self.options, self.dims = options, 3 if volumes else 2
        self.size = (3, 4, 5)[-self.dims:]
        self.where, self.head = nn.Linear(8, self.dims * (self.dims + 1)), nn.Linear(2 * math.prod(self.size), CLASSES)
        self.first = nn.Linear(120, 2 * math.prod(self.size))
        axes = torch.meshgrid(*(torch.linspace(-1, 1, n) for n in self.size), indexing="ij")
        self.register_buffer("base", torch.stack([*reversed(axes), torch.ones(self.size)], -1).flatten(0, -2))

    def forward(self, x):
        image = self.first(x).reshape(-1, 2, *self.size)
        theta = self.where(x[:, :8]).reshape(-1, self.dims, self.dims + 1)
        grid = (self.base.to(x) @ theta.transpose(1, 2)).reshape(-1, *self.size, self.dims)
        return self.head(F.grid_sample(image, grid, **self.options).flatten(1))


class Quantised(nn.Module):
    """Training with fake quantisation of the weights, by channel, and of activations."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(12, 16), nn.Linear(16, CLASSES)
        self.register_buffer("scales", torch.linspace(0.002, 0.006, 16))
        self.register_buffer("zeros", torch.zeros(16, dtype=torch.int32))

    def forward(self, x):
        w = torch.fake_quantize_per_channel_affine(self.first.weight, self.scales.float(), self.zeros, 0, -128, 127)
        h = F.linear(x, w, self.first.bias)
        h = torch.fake_quantize_per_tensor_affine(h, 0.0117, 100, 0, 255)
        return self.second(h)


class Growing(nn.Module):
    """Transposed convolution and maximum pooling of volumes."""

    def __init__(self):
        super().__init__()
        self.first = nn.ConvTranspose3d(2, 4, 3, stride=(2, 1, 2), padding=1, output_padding=(1, 0, 1), groups=2)
        self.second = nn.ConvTranspose3d(4, 3, (2, 3, 1), dilation=(2, 1, 1), bias=False)
        self.head = nn.Linear(3, CLASSES)

    def forward(self, x):
        x = torch.tanh(self.first(x.reshape(-1, 2, 3, 4, 3)))
        return self.head(F.max_pool3d(self.second(x), 2).mean((2, 3, 4)))


class Stepwise(nn.Module):
    """A recurrent layer as a loop over its steps, which a scripted module exports as a Loop that grows a list."""

    def __init__(self):
        super().__init__()
        self.step, self.head = nn.Linear(6, 6), nn.Linear(6, CLASSES)

    def forward(self, x):
        states = []
        h = x[:, 0]
        for t in range(x.shape[1]):
            h = torch.tanh(self.step(h) + x[:, t])
            states.append(h)
        return self.head(torch.stack(states, 1).mean(1))


def text(name, value):
    return field(1, name) + field(4, value) + field(20, 3)


def integers(name, values):
    return field(1, name) + b"".join(field(8, v) for v in values) + field(20, 7)


class Placed(nn.Module):
    """Operators that put elements in other places, most of which this PyTorch cannot export."""
    PLACES = [[0, 3, 3, 5, 26, 7], [1, 1, 1, 2, 9, 8], [4, 20, 4, 20, 6, 0], [13, 12, 11, 11, 11, 10]]

    def __init__(self, reduction):
        super().__init__()
        self.reduction = reduction
        shapes = {"w": (36, 72), "offsets": (36, 72), "kernel": (3, 2, 2, 2), "bias": (3,), "up": (36, 6),
                  "last": (27, CLASSES)}
        for name, shape in shapes.items():
            setattr(self, name, nn.Parameter(torch.randn(shape) / 6))

    def forward(self, x):
        image = F.fold((x @ self.w).reshape(-1, 8, 9), (4, 4), 2)
        offsets = (x @ self.offsets).reshape(-1, 4, 2, 3, 3)
        rows, columns = torch.meshgrid(torch.arange(3.0), torch.arange(3.0), indexing="ij")
        y = self.bias[:, None, None]
        for k in range(4):
            at = torch.stack([columns.to(x) + k % 2 + offsets[:, k, 1], rows.to(x) + k // 2 + offsets[:, k, 0]], -1)
            read = F.grid_sample(image, at * 2 / 3 - 1, align_corners=True)
            y = y + torch.einsum("bchw,oc->bohw", read, self.kernel[:, :, k // 2, k % 2])
        y = torch.cumprod(1 + torch.tanh(y) / 2, 3).flatten(1)
        kind = {"mul": "prod", "max": "amax", "min": "amin", "add": "sum"}[self.reduction]
        return y.scatter_reduce(1, torch.tensor(self.PLACES), 1.2 + x @ self.up, reduce=kind) @ self.last

    def file(self):
        nodes = [
            node("MatMul", ["x", "w"], "c0"), node("Reshape", ["c0", "columns"], "c"),
            node("Col2Im", ["c", "image", "block"], "i"),
            node("MatMul", ["x", "offsets"], "o0"), node("Reshape", ["o0", "moved"], "o"),
            node("DeformConv", ["i", "kernel", "o", "bias"], "y0", attributes=[
                integers("kernel_shape", [2, 2]), integers("pads", [0, 0, 0, 0])]),
            node("Tanh", ["y0"], "y1"), node("Div", ["y1", "two"], "y2"), node("Add", ["y2", "one"], "y3"),
            node("CumProd", ["y3", "axis"], "y4"), node("Flatten", ["y4"], "y5"),
            node("MatMul", ["x", "up"], "u0"), node("Add", ["u0", "shift"], "u"),
            node("ScatterElements", ["y5", "places", "u"], "y6", attributes=[
                integer("axis", 1), text("reduction", self.reduction)]),
            node("MatMul", ["y6", "last"], "y")]
        numbers = {"one": 1.0, "two": 2.0, "shift": 1.2}
        graph = b"".join([
            *(field(1, n) for n in nodes), field(2, "placed"),
            *(field(5, tensor(name, list(p.shape), p.detach().flatten().tolist()))
              for name, p in self.named_parameters()),
            *(field(5, tensor(name, [], [value])) for name, value in numbers.items()),
            field(5, int64s("columns", [3], [-1, 8, 9])), field(5, int64s("moved", [4], [-1, 8, 3, 3])),
            field(5, int64s("image", [2], [4, 4])), field(5, int64s("block", [2], [2, 2])),
            field(5, int64s("axis", [], [3])), field(5, int64s("places", [4, 6], sum(self.PLACES, []))),
            field(11, value_info("x", ["N", 36])), field(12, value_info("y", ["N", CLASSES]))])
        return field(1, 13) + field(7, graph) + field(8, field(1, "") + field(2, 26))


class Torch(JobTest):
    LIMITS = {"float": 2e-5, "half": 5e-2}

    def setUp(self):
        super().setUp()
        torch.manual_seed(81)

    def images(self, *shape):
        return {"x_train": torch.randn(BATCH, *shape)}

    def tokens(self):
        return {"tokens": torch.randint(2, VOCABULARY, (BATCH, TOKENS))}

    def export(self, model, inputs, training):
        path = self.folder / f"model-{training}.onnx"
        if hasattr(model, "file"):
            path.write_bytes(model.file())
            return path
        names = list(inputs) if len(inputs) > 1 else ["x"]
        kind = torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            exported = torch.jit.script(model) if isinstance(model, Stepwise) else model
            torch.onnx.export(exported, tuple(inputs.values()), str(path), opset_version=getattr(model, "opset", 14),
                              input_names=names, output_names=["y"], training=kind,
                              dynamic_axes={name: {0: "N"} for name in names},
                              do_constant_folding=not training)
        return path

    def compare(self, name, make, inputs, labels, precision="float"):
        torch.manual_seed(81)
        model = make()
        reference = copy.deepcopy(model).double()
        wide = [x.double() if x.is_floating_point() else x for x in inputs.values()]
        labels[(0,) * labels.dim()] = labels.max()  # So that counting the classes finds all of them.
        numbers = {key: x.numpy() if x.is_floating_point() else x.int().numpy()
                   for key, x in inputs.items()}
        numbers["y_train" if "x_train" in inputs else "labels"] = labels.int().numpy()
        data = self.folder / "data.npz"
        numpy.savez(data, **numbers)
        scale = 256 if precision == "half" else 1

        def run(training, *arguments):
            path = self.export(model.train(training), inputs, training)
            return self.run_job(*arguments, config=(
                f"[model]\nonnx = {path}\nprecision = {precision}\n[data]\nsource = npz:{data}\n"
                f"order = sequential\nmicro-batch-size = {BATCH}\n[training]\nsteps = 1\n"
                f"evaluate = false\noptimizer = sgd\nloss-scaling = {scale}\n"))

        trained = run(True, "--report.dump-tensors", "gradient$@1")
        got = read(trained.output_dir / "dump-step-1.safetensors")
        y = reference.train()(*wide)
        # PyTorch's classes come after the batch, except for sequences.
        loss = F.cross_entropy(y.flatten(0, -2) if labels.shape == y.shape[:-1] else y,
                               labels.flatten() if labels.shape == y.shape[:-1] else labels)
        loss.backward()
        self.assertAlmostEqual(float(trained.metrics()[0]["loss"]), loss.item(),
                               delta=self.LIMITS[precision])
        gradients = {key: p.grad for key, p in reference.named_parameters() if p.grad is not None}
        largest = max(gradient.norm().item() for gradient in gradients.values())
        def ours(key, want):  # A parameter that no gradient reaches has none; PyTorch's is zero.
            return got.get(key + ".gradient.exchanged", torch.zeros_like(want)).double() / scale
        worst = max(((ours(key, want) - want).norm().item() / max(want.norm().item(), 1e-2 * largest), key)
                    for key, want in gradients.items())

        outputs = numpy.load(run(False, "--model.mode", "inference").output_dir / "outputs.npy")
        with torch.no_grad():
            y = reference.eval()(*wide)
        if y.shape != outputs.shape:  # The classes of pixels come last.
            y = y.movedim(1, -1)
        off = (torch.tensor(outputs).double() - y).abs().max().item() / y.abs().max().item()
        print(f"{name} {precision}: {len(gradients)} gradients, worst error {worst[0]:.1e} "
              f"({worst[1]}), outputs {off:.1e}")
        self.assertLess(worst[0], self.LIMITS[precision], worst[1])
        self.assertLess(off, self.LIMITS[precision])

    def test_decoders_with_masks_of_infinities_and_of_the_least_float(self):
        labels = torch.randint(0, VOCABULARY, (BATCH, TOKENS))
        for way in ("fill", "add", "where"):
            for precision in ("float", "half"):
                self.compare(f"decoder that masks by {way}", lambda: Decoder(way), self.tokens(),
                             labels, precision)

    def test_encoders_of_texts(self):
        inputs = {"input_ids": self.tokens()["tokens"],
                  "attention_mask": (torch.arange(TOKENS) < torch.tensor([[12], [7], [1], [9]])).int(),
                  "token_type_ids": torch.randint(0, 2, (BATCH, TOKENS))}
        for precision in ("float", "half"):
            self.compare("encoder", Encoder, inputs, torch.randint(0, CLASSES, (BATCH,)), precision)

    def test_sums_of_products_by_name(self):
        for equation, shapes, features in (
                ("bcde->b", [], 1), ("bcde->ebcd", [], 210), ("bcde,fd->bfec", [(3, 6)], 105),
                ("bcde,ce->bd", [(5, 7)], 6), ("b...e,eg->b...g", [(7, 2)], 60),
                ("b...,b...->b...", [(4, 5, 6, 7)], 210), ("bcde,gc,hd", [(2, 5), (3, 6)], 42),
                ("bcde,bxcd,xf->bfx", [(4, 3, 5, 6), (3, 2)], 6), ("bcde,f->bf", [(3,)], 3)):
            self.compare(f"einsum {equation}", lambda: Sums(equation, shapes, features),
                         self.images(5, 6, 7), torch.randint(0, CLASSES, (BATCH,)))

    def test_branches_that_sizes_decide(self):
        self.compare("scripted", Scripted, self.images(5, 6, 7),
                     torch.randint(0, CLASSES, (BATCH,)))

    def test_jumps_pass_no_gradient(self):
        self.compare("jumps", Jumps, {"x_train": torch.randn(BATCH, 12)},
                     torch.randint(0, CLASSES, (BATCH,)))

    def test_recurrent_layers(self):
        x = {"x_train": torch.randn(BATCH, 7, 6)}
        labels = torch.randint(0, CLASSES, (BATCH,))
        for name, make in (("LSTM", lambda: Recurrent(nn.LSTM, bidirectional=True, num_layers=2)),
                           ("GRU", lambda: Recurrent(nn.GRU, bidirectional=True)),
                           ("RNN", lambda: Recurrent(nn.RNN, nonlinearity="relu"))):
            self.compare(name, make, x, labels)

    def test_operators_that_are_newer_than_this_pytorch(self):
        for interleaved in (False, True):
            for precision in ("float", "half"):
                self.compare(f"newest, interleaved {interleaved}", lambda: Newest(interleaved),
                             {"x_train": torch.randn(BATCH, 60)}, torch.randint(0, CLASSES, (BATCH,)), precision)

    def test_networks_of_volumes(self):
        self.compare("volumes", Volumes, {"x_train": torch.randn(BATCH, 504)}, torch.randint(0, CLASSES, (BATCH,)))

    def test_volumes_are_spread_by_transposed_convolutions(self):
        self.compare("growing", Growing, {"x_train": torch.randn(BATCH, 72)}, torch.randint(0, CLASSES, (BATCH,)))

    def test_images_are_read_between_their_pixels(self):
        for volumes, options in ((False, {"padding_mode": "zeros", "align_corners": False}),
                                 (False, {"padding_mode": "border", "align_corners": True}),
                                 (False, {"padding_mode": "reflection", "align_corners": False}),
                                 (False, {"mode": "bicubic", "align_corners": False}),
                                 (False, {"mode": "nearest", "align_corners": False}),
                                 (True, {"padding_mode": "reflection", "align_corners": True})):
            self.compare(f"warped {volumes} {options}", lambda: Warped(volumes, **options),
                         {"x_train": torch.randn(BATCH, 120)}, torch.randint(0, CLASSES, (BATCH,)))

    def test_fake_quantisation_passes_the_gradient_straight_through(self):
        self.compare("quantised", Quantised, {"x_train": torch.randn(BATCH, 12)}, torch.randint(0, CLASSES, (BATCH,)))

    def test_loops_of_scripts_are_unrolled(self):
        self.compare("stepwise", Stepwise, {"x_train": torch.randn(BATCH, 5, 6)},
                     torch.randint(0, CLASSES, (BATCH,)))

    def test_elements_are_put_in_other_places(self):
        for reduction in ("add", "mul", "max", "min"):
            self.compare(f"placed, {reduction}", lambda: Placed(reduction), {"x_train": torch.randn(BATCH, 36)},
                         torch.randint(0, CLASSES, (BATCH,)))

    def test_networks_of_images_and_of_sound(self):
        for precision in ("float", "half"):
            self.compare("mobile network", Mobile, self.images(3, 16, 16),
                         torch.randint(0, CLASSES, (BATCH,)), precision)
            self.compare("segmenter", Segmenter, self.images(3, 16, 16),
                         torch.randint(0, CLASSES, (BATCH, 16, 16)), precision)
            self.compare("sound", Sound, self.images(4, 40), torch.randint(0, CLASSES, (BATCH,)),
                         precision)


if __name__ == "__main__":
    unittest.main()
