#!/usr/bin/env python3
"""Models that torch.onnx.export writes, through the real command, against PyTorch itself.

Each is exported for training, takes one step from the exported weights, and its gradients are
compared with those of PyTorch in float64; exported for evaluation, its outputs are.
"""
import copy
import math
import unittest
import warnings

from torch_arrays import read  # First: it finds PyTorch.

import numpy
import torch
import torch.nn.functional as F
from emulated_job import JobTest
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
    """The ways in which published models leave later tokens unseen."""

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


class Torch(JobTest):
    LIMITS = {"float": 2e-5, "half": 1e-2}

    def images(self, *shape):
        return {"x_train": torch.randn(BATCH, *shape)}

    def tokens(self):
        return {"tokens": torch.randint(2, VOCABULARY, (BATCH, TOKENS))}

    def export(self, model, inputs, training):
        path = self.folder / f"model-{training}.onnx"
        names = list(inputs) if len(inputs) > 1 else ["x"]
        kind = torch.onnx.TrainingMode.TRAINING if training else torch.onnx.TrainingMode.EVAL
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.onnx.export(model, tuple(inputs.values()), str(path), opset_version=14,
                              input_names=names, output_names=["y"], training=kind,
                              dynamic_axes={name: {0: "N"} for name in names},
                              do_constant_folding=not training)
        return path

    def compare(self, name, make, inputs, labels, precision="float"):
        torch.manual_seed(81)
        model = make()
        reference = copy.deepcopy(model).double()
        wide = [x.double() if x.is_floating_point() else x for x in inputs.values()]
        labels[(0,) * labels.dim()] = labels.max()  # Whoever counts classes counts all.
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
        # PyTorch's classes are behind the batch, but for sequences.
        loss = F.cross_entropy(y.flatten(0, -2) if labels.shape == y.shape[:-1] else y,
                               labels.flatten() if labels.shape == y.shape[:-1] else labels)
        loss.backward()
        self.assertAlmostEqual(float(trained.metrics()[0]["loss"]), loss.item(),
                               delta=self.LIMITS[precision])
        gradients = {key: p.grad for key, p in reference.named_parameters() if p.grad is not None}
        largest = max(gradient.norm().item() for gradient in gradients.values())
        worst = max(((got[key + ".gradient.exchanged"].double() / scale - want).norm().item() /
                     max(want.norm().item(), 1e-2 * largest), key)
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


if __name__ == "__main__":
    unittest.main()
