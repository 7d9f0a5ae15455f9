#!/usr/bin/env python3
"""Compares one training step of every built-in model with PyTorch's automatic differentiation.

The models are written here from the papers, with the parameter names of torchvision and Hugging
Face, and computed in float64 from the weights and data that --report.dump-tensors wrote. If the derivative has a jump,
the reference takes the same side as the job, and checks that both sides were near: a relu whose input is within
rounding of zero, the largest of equals in a pool. Dropout drops the same elements as the job.

An error is measured against the gradient's own largest element (float), or as the norm of the
difference over the norm of the gradient (half).

In half precision, a hundred normalised layers amplify the rounding of every tensor until gradients differ by a quarter
of their norm or more. Following the job shows that this is only rounding: every stored tensor is one rounding from the
float64 result of the tensors before it, and the gradients, computed in float64 through the stored tensors, equal the
job's except for their own rounding.
"""
import math
import unittest

from torch_arrays import read, write  # First, because it finds PyTorch.

import numpy
import torch
import torch.nn.functional as F
from emulated_job import JobTest


DUMPED = (r"(weight|bias|gradient|relu\d?|conv\d|bn\d|downsample\.\d|add|features|fc|drop|dropout"
          r"|loss|cls_token|^vit.embeddings.position_embeddings|^normalized|^labels|^tokens|^segments|^positions"
          r"|^next_sentence|^attention_mask)$@1")


class Step:
    """The contents of a dump: `p` holds the parameters, to be differentiated; all tensors are available by name.

    With `follows`, a convolutional network continues from the tensors that the job stored, after checking them.
    """

    def __init__(self, path, slack, follows=False):
        self.dumped = read(path)
        self.p = {name: tensor.double().requires_grad_() for name, tensor in self.dumped.items()
                  if name.endswith(("weight", "bias", "cls_token")) or name == "vit.embeddings.position_embeddings"}
        self.slack = slack
        self.follows = follows

    def stored(self, name, x):
        if not self.follows:
            return x
        had, size = self.dumped[name].double(), x.detach().abs()
        off = (had - x.detach()).abs()
        # Half a unit in float16's last place; sums in float32 may add a little.
        assert (off <= 2**-11 * size + 1e-6 * size.max() + 2**-25).all(), (name, off.max(), size.max())
        return x + (had - x).detach()

    def ids(self, name):
        return self.dumped[name].long()

    def relu(self, name, x):
        passes = self.dumped[name] > 0
        doubtful = x.detach()[passes != (x > 0)]
        assert doubtful.numel() == 0 or \
            doubtful.abs().max() <= self.slack * x.detach().abs().max(), name
        return x * passes

    def max_pool(self, before, x, *geometry):
        """`before` is the name of the tensor that is pooled."""
        _, places = F.max_pool2d(self.dumped[before].float(), *geometry, return_indices=True)
        y = x.flatten(2).gather(2, places.flatten(2)).view(places.shape)
        largest = F.max_pool2d(x, *geometry)
        assert (largest - y).max() <= self.slack * largest.abs().max(), before
        return y

    def dropout(self, name, x):
        """Drops the same elements as the job, if it has dropout."""
        return x * (self.dumped[name] != 0) / (1 - DROPPED) if name in self.dumped else x

    def linear(self, name, x):
        return F.linear(x, self.p[name + ".weight"], self.p.get(name + ".bias"))

    def conv(self, name, x, **geometry):
        y = F.conv2d(x, self.p[name + ".weight"], self.p.get(name + ".bias"), **geometry)
        return self.stored(name, y)

    def layer_norm(self, name, x, epsilon):
        return F.layer_norm(x, x.shape[-1:], self.p[name + ".weight"], self.p[name + ".bias"], epsilon)

    def batch_norm(self, name, x):
        y = F.batch_norm(x, None, None, self.p[name + ".weight"], self.p[name + ".bias"],
                         training=True)
        return self.stored(name, y)

    def cross_entropy(self, logits, labels):
        return F.cross_entropy(logits.flatten(0, -2), self.ids(labels).flatten(), ignore_index=-1)


def mlp(s):
    x = s.dumped["normalized"].double().flatten(1)
    for layer in (1, 2):
        x = s.relu(f"relu{layer}", s.linear(f"fc{layer}", x))
    return s.cross_entropy(s.linear("fc3", x), "labels")


def small_cnn(s):
    x = s.dumped["normalized"].double()
    for layer in (1, 2):
        x = s.relu(f"relu{layer}", s.conv(f"conv{layer}", x, padding=1))
        x = s.max_pool(f"relu{layer}", x, 2)
    x = s.relu("relu3", s.linear("fc1", x.flatten(1)))
    return s.cross_entropy(s.linear("fc2", x), "labels")


def resnet(s, blocks, bottlenecks, groups=1):
    x = s.batch_norm("bn1", s.conv("conv1", s.dumped["normalized"].double(), stride=2, padding=3))
    x = s.max_pool("relu", s.relu("relu", x), 3, 2, 1)
    for stage, count in enumerate(blocks):
        for block in range(count):
            name = f"layer{stage + 1}.{block}"
            stride = 2 if block == 0 and stage > 0 else 1
            if bottlenecks:
                convolutions = [{}, {"stride": stride, "padding": 1, "groups": groups}, {}]
            else:
                convolutions = [{"stride": stride, "padding": 1}, {"padding": 1}]
            y = x
            for i, geometry in enumerate(convolutions, 1):
                y = s.batch_norm(f"{name}.bn{i}", s.conv(f"{name}.conv{i}", y, **geometry))
                if i < len(convolutions):
                    y = s.relu(f"{name}.relu{i}", y)
            if f"{name}.downsample.0.weight" in s.p:
                x = s.batch_norm(f"{name}.downsample.1",
                                 s.conv(f"{name}.downsample.0", x, stride=stride))
            x = s.relu(f"{name}.relu{len(convolutions)}", s.stored(f"{name}.add", x + y))
    x = s.stored("features", x.mean((2, 3)))
    return s.cross_entropy(s.stored("fc", s.linear("fc", x)), "labels")


def efficientnet_b0(s):
    def silu(x):
        return x * torch.sigmoid(x)

    def normalised(name, x, **geometry):
        return s.batch_norm(f"{name}.1", s.conv(f"{name}.0", x, **geometry))

    x = silu(normalised("features.0", s.dumped["normalized"].double(), stride=2, padding=1))
    stages = [(3, 1, 1), (3, 2, 2), (5, 2, 2), (3, 2, 3), (5, 1, 3), (5, 2, 4), (3, 1, 1)]
    for stage, (kernel, stride, count) in enumerate(stages, 1):
        for block in range(count):
            name = f"features.{stage}.{block}.block"
            y, part = x, 0
            if stage > 1:
                y, part = silu(normalised(f"{name}.0", y)), 1
            y = silu(normalised(f"{name}.{part}", y, stride=1 if block else stride, padding=kernel // 2,
                                groups=y.shape[1]))
            gate = silu(s.conv(f"{name}.{part + 1}.fc1", y.mean((2, 3), keepdim=True)))
            y = y * torch.sigmoid(s.conv(f"{name}.{part + 1}.fc2", gate))
            y = normalised(f"{name}.{part + 2}", y)
            x = x + y if block else y
    x = silu(normalised("features.8", x)).mean((2, 3))
    return s.cross_entropy(s.linear("classifier.1", x), "labels")


HEADS = 3
DROPPED = 0.1
LIMITS = {"float": 1e-4, "half": 2e-2}


def attention(s, name, q, k, v, mask, kept):
    def cut(x):
        return x.view(x.shape[0], x.shape[1], HEADS, -1).transpose(1, 2)

    q, k, v = cut(q), cut(k), cut(v)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if kept is not None:  # As in Hugging Face's models.
        scores = scores + (1 - kept[:, None, None, :]) * torch.finfo(torch.float32).min
    weights = s.dropout(name + ".attn_dropout", torch.softmax(scores, -1))
    return (weights @ v).transpose(1, 2).flatten(2)


def gpt2(s):
    def conv1d(name, x):
        return x @ s.p[name + ".weight"] + s.p[name + ".bias"]

    tokens, kept = s.ids("tokens"), s.dumped.get("attention_mask")
    count = tokens.shape[1]
    mask = torch.ones(count, count).tril().bool()
    x = s.p["transformer.wte.weight"][tokens] + s.p["transformer.wpe.weight"][:count]
    x = s.dropout("transformer.drop", x)
    for layer in range(2):
        name = f"transformer.h.{layer}"
        q, k, v = conv1d(name + ".attn.c_attn", s.layer_norm(name + ".ln_1", x, 1e-5)).chunk(3, -1)
        y = conv1d(name + ".attn.c_proj", attention(s, name + ".attn", q, k, v, mask, kept))
        x = x + s.dropout(name + ".attn.resid_dropout", y)
        y = conv1d(name + ".mlp.c_fc", s.layer_norm(name + ".ln_2", x, 1e-5))
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
        x = x + s.dropout(name + ".mlp.resid_dropout", conv1d(name + ".mlp.c_proj", y))
    logits = s.layer_norm("transformer.ln_f", x, 1e-5) @ s.p["transformer.wte.weight"].T
    return s.cross_entropy(logits, "labels")


def encoded(s):
    """Returns the result of BERT's last layer, and the table of words."""
    tokens, kept = s.ids("tokens"), s.dumped.get("attention_mask")
    segments = s.ids("segments") if "segments" in s.dumped else torch.zeros_like(tokens)
    name = "bert.embeddings."
    words = s.p[name + "word_embeddings.weight"]
    x = words[tokens] + s.p[name + "token_type_embeddings.weight"][segments]
    x = x + s.p[name + "position_embeddings.weight"][: tokens.shape[1]]
    x = s.dropout(name + "dropout", s.layer_norm(name + "LayerNorm", x, 1e-12))
    for layer in range(2):
        name = f"bert.encoder.layer.{layer}."
        q, k, v = (s.linear(name + "attention.self." + part, x) for part in ("query", "key", "value"))
        y = attention(s, name + "attention.self", q, k, v, None, kept)
        y = s.dropout(name + "attention.output.dropout", s.linear(name + "attention.output.dense", y))
        x = s.layer_norm(name + "attention.output.LayerNorm", x + y, 1e-12)
        y = s.linear(name + "output.dense", F.gelu(s.linear(name + "intermediate.dense", x)))
        y = s.dropout(name + "output.dropout", y)
        x = s.layer_norm(name + "output.LayerNorm", x + y, 1e-12)
    return x, words


def bert_squad(s):
    x, _ = encoded(s)
    return s.cross_entropy(s.linear("qa_outputs", x).transpose(1, 2), "labels")


def bert(s):
    x, words = encoded(s)
    masked = x
    if "positions" in s.dumped:
        masked = torch.stack([x[b, s.ids("positions")[b]] for b in range(len(x))])
    y = F.gelu(s.linear("cls.predictions.transform.dense", masked))
    y = s.layer_norm("cls.predictions.transform.LayerNorm", y, 1e-12)
    loss = s.cross_entropy(F.linear(y, words, s.p["cls.predictions.bias"]), "labels")
    if "next_sentence" in s.dumped:
        pooled = torch.tanh(s.linear("bert.pooler.dense", x[:, 0]))
        loss = loss + s.cross_entropy(s.linear("cls.seq_relationship", pooled), "next_sentence")
    return loss


def vit(s):
    name = "vit.embeddings."
    patches = s.conv(name + "patch_embeddings.projection", s.dumped["normalized"].double(), stride=16)
    x = torch.cat([s.p[name + "cls_token"].expand(len(patches), 1, -1), patches.flatten(2).transpose(1, 2)], 1)
    x = s.dropout(name + "dropout", x + s.p[name + "position_embeddings"])
    for layer in range(2):
        name = f"vit.encoder.layer.{layer}."
        y = s.layer_norm(name + "layernorm_before", x, 1e-12)
        q, k, v = (s.linear(name + "attention.attention." + part, y) for part in ("query", "key", "value"))
        y = s.linear(name + "attention.output.dense", attention(s, name + "attention.attention", q, k, v, None, None))
        x = x + s.dropout(name + "attention.output.dropout", y)
        y = F.gelu(s.linear(name + "intermediate.dense", s.layer_norm(name + "layernorm_after", x, 1e-12)))
        x = x + s.dropout(name + "output.dropout", s.linear(name + "output.dense", y))
    return s.cross_entropy(s.linear("classifier", s.layer_norm("vit.layernorm", x, 1e-12)[:, 0]), "labels")


VOCABULARY, TOKENS, MASKS = 37, 10, 4
LANGUAGE = {"layers": 2, "hidden": 24, "heads": HEADS, "vocabulary": VOCABULARY,
            "sequence-length": TOKENS + 2}


def images(channels, size, classes=10):
    return f"synthetic:images={channels}x{size}x{size},classes={classes},items=64"


class TorchStep(JobTest):
    def sequences(self, *names, items=6):
        """Writes an npz of random language data with these arrays."""
        random = numpy.random.default_rng(81)
        shape = (items, MASKS if "positions" in names else TOKENS)
        arrays = {
            "tokens": random.integers(0, VOCABULARY, (items, TOKENS)),
            "labels": random.integers(-1, VOCABULARY, shape),
            "segments": random.integers(0, 2, (items, TOKENS)),
            "positions": random.integers(0, TOKENS, shape),
            "next_sentence": random.integers(0, 2, items),
            # Every sequence begins with a token: rows that see only padding have no meaning.
            "attention_mask": numpy.maximum(random.integers(0, 2, (items, TOKENS)),
                                            numpy.arange(TOKENS) == 0),
        }
        if "answers" in names:
            arrays["labels"] = random.integers(-1, TOKENS, (items, 2))
            names = [name.replace("answers", "labels") for name in names]
        path = self.folder / f"{'-'.join(names)}.npz"
        numpy.savez(path, **{name: arrays[name].astype(numpy.int32) for name in names})
        return f"npz:{path}"

    def compare(self, reference, model, source, batch, precision="float", sizes=None,
                deviation=None, limit=None,
                follows=False):
        """Compares one step of `model` with `reference`; weights are normal if `deviation` is given.

        In half precision, the reference follows the job if `follows` is set: see Step.
        """
        config = "\n".join([
            "[model]", f"name = {model}", f"precision = {precision}",
            *(f"{name} = {value}" for name, value in (sizes or {}).items()),
            "[data]", f"source = {source}", f"micro-batch-size = {batch}",
            "[training]", "steps = 1", "optimizer = sgd", "evaluate = false", "learning-rate = 0.1",
            f"loss-scaling = {1 if precision == 'float' else 256}", ""])
        if deviation is not None:
            first = self.run_job(config=config)
            random = numpy.random.default_rng(81)
            path = self.folder / f"{model}-{precision}.safetensors"
            weights = read(first.output_dir / "weights.safetensors")
            write(path, {name: random.normal(0, deviation, tuple(tensor.shape))
                         for name, tensor in weights.items()})
            config = config.replace("[data]", f"initial-weights = {path}\n[data]")
        # Only numbers matter, not memory: with dumps, equal layers do not share code.
        job = self.run_job("--report.dump-tensors", DUMPED, "--allow-out-of-memory", config=config)
        half = precision == "half"
        limit = limit or LIMITS[precision]
        step = Step(job.output_dir / "dump-step-1.safetensors", limit, half and follows)
        loss = reference(step)
        loss.backward()
        if sizes and "dropout" in sizes:
            seen = [tensor for name, tensor in step.dumped.items()
                    if name.endswith(("resid_dropout", "output.dropout"))]
            kept = torch.cat([tensor.flatten() for tensor in seen]) != 0
            self.assertAlmostEqual(kept.double().mean().item(), 1 - DROPPED, delta=0.02)

        scale = 256 if half else 1
        got_loss = next(tensor.item() for name, tensor in reversed(step.dumped.items())
                        if name.endswith("loss"))
        worst, worst_name = 0, "none"
        largest = max(p.grad.abs().max().item() for p in step.p.values())
        for name, parameter in step.p.items():
            got = step.dumped[name + ".gradient.exchanged"].double() / scale
            want = parameter.grad
            if half:
                size, error = want.norm().item(), (got - want).norm().item()
                floor = 1e-3 * largest * math.sqrt(want.numel())
            else:
                size, error = want.abs().max().item(), (got - want).abs().max().item()
                floor = 1e-9 * largest
            # A key's bias shifts all scores of a query equally, so its gradient is zero except for rounding: it is
            # measured against the model's largest element.
            error /= size if size > floor else largest * (math.sqrt(want.numel()) if half else 1)
            worst, worst_name = max((worst, worst_name), (error, name))
        print(f"{model} {precision}: {len(step.p)} gradients, worst relative error {worst:.1e} "
              f"({worst_name}); loss {got_loss:.6f}, PyTorch {loss.item():.6f}")
        self.assertLess(worst, limit, worst_name)
        self.assertAlmostEqual(got_loss / loss.item(), 1, delta=5e-3 if half else 1e-5)

    def test_of_dense_layers_and_of_the_small_network(self):
        for precision in ("float", "half"):
            self.compare(mlp, "mlp", images(1, 28), 6, precision)
            self.compare(small_cnn, "small-cnn", images(1, 28), 6, precision)

    def test_of_a_resnet_of_basic_blocks(self):
        for precision in ("float", "half"):
            self.compare(lambda s: resnet(s, (2, 2, 2, 2), False), "resnet18", images(3, 96), 8,
                         precision)

    def compare_bottlenecks(self, model, blocks, precisions, groups=1):
        # Fifty normalised layers lose a digit: PyTorch's own float32 is 1.1e-4 from its float64.
        for precision in precisions:
            size, limit = (96, 3e-4) if precision == "float" else (64, 1e-2)
            self.compare(lambda s: resnet(s, blocks, True, groups), model, images(3, size), 8, precision, limit=limit,
                         follows=True)

    def test_of_resnets_of_bottlenecks(self):
        self.compare_bottlenecks("resnet50", (3, 4, 6, 3), ("float", "half"))
        self.compare_bottlenecks("resnet101", (3, 4, 23, 3), ("half",))

    def test_of_resnexts(self):
        self.compare_bottlenecks("resnext50-32x4d", (3, 4, 6, 3), ("float", "half"), 32)
        self.compare_bottlenecks("resnext101-32x8d", (3, 4, 23, 3), ("half",), 32)

    def test_of_an_efficientnet(self):
        self.compare(efficientnet_b0, "efficientnet-b0", images(3, 64), 8)

    def test_of_vision_transformers(self):
        sizes = {"layers": 2, "hidden": 24, "heads": HEADS}
        for precision in ("float", "half"):
            self.compare(vit, "vit-base-16", images(3, 48), 6, precision, sizes, 0.15)
            self.compare(vit, "vit-base-16", images(3, 48), 24, precision, {**sizes, "dropout": DROPPED}, 0.15)

    def test_of_gpt2(self):
        for names in (("tokens", "labels"), ("tokens", "attention_mask", "labels")):
            for precision in ("float", "half"):
                self.compare(gpt2, "gpt2", self.sequences(*names), 3, precision, LANGUAGE, 0.15)

    def test_of_language_models_that_drop_out(self):
        sizes = {**LANGUAGE, "dropout": DROPPED}
        for precision in ("float", "half"):
            self.compare(gpt2, "gpt2", self.sequences("tokens", "labels", items=24), 24, precision,
                         sizes, 0.15)
            self.compare(bert, "bert-base",
                         self.sequences("tokens", "attention_mask", "labels", items=24), 24,
                         precision, sizes, 0.15)

    def test_of_bert(self):
        for names in (("tokens", "segments", "positions", "labels", "next_sentence"),
                      ("tokens", "attention_mask", "labels")):
            for precision in ("float", "half"):
                self.compare(bert, "bert-base", self.sequences(*names), 3, precision, LANGUAGE, 0.15)

    def test_of_bert_with_the_head_for_squad(self):
        # The gradients of a sequence's scores add up to zero, so those of the last layers' biases nearly cancel, and
        # rounding is a larger part of the rest than in other models, also in PyTorch's own float32.
        for names in (("tokens", "segments", "answers"), ("tokens", "attention_mask", "answers")):
            for precision, limit in (("float", 3e-4), ("half", 4e-2)):
                self.compare(bert_squad, "bert-base-squad", self.sequences(*names), 3, precision, LANGUAGE, 0.15,
                             limit=limit)


if __name__ == "__main__":
    unittest.main()
