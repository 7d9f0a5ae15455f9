#!/usr/bin/python3
"""Gradients of a 2-block GPT-2 and a 2-layer BERT against PyTorch's automatic differentiation.

Usage: language_model_gradients_test.py PROGRAM. Skipped (exit 77) without PyTorch and NumPy.

The models are written here from the papers and Hugging Face's state dict, in float64, and take the
parameters and inputs that PROGRAM wrote. Each gradient's error is measured against its own largest
element, and must stay below 1e-4.
"""

import json
import math
import pathlib
import struct
import subprocess
import sys
import tempfile

try:
    import numpy
    import torch
    import torch.nn.functional as F
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

HEADS = 3
LIMIT = 1e-4


def read(path):
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    tensors = {}
    for name, entry in json.loads(data[8 : 8 + length]).items():
        begin, end = (8 + length + offset for offset in entry["data_offsets"])
        kind = {"F32": numpy.float32, "I32": numpy.int32}[entry["dtype"]]
        array = numpy.frombuffer(data[begin:end], kind).reshape(entry["shape"])
        tensors[name] = torch.tensor(array)
    return tensors


def norm(p, name, x, epsilon):
    return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], epsilon)


def attention(q, k, v, mask, kept):
    def cut(x):
        return x.view(x.shape[0], x.shape[1], HEADS, -1).transpose(1, 2)

    q, k, v = cut(q), cut(k), cut(v)
    scores = q @ k.transpose(-1, -2) / math.sqrt(q.shape[-1])
    if mask is not None:
        scores = scores.masked_fill(~mask, float("-inf"))
    if kept is not None:  # As Hugging Face's models do it.
        scores = scores + (1 - kept[:, None, None, :]) * torch.finfo(torch.float32).min
    y = torch.softmax(scores, -1) @ v
    return y.transpose(1, 2).flatten(2)


def gpt2(p, inputs):
    def conv1d(name, x):
        return x @ p[name + ".weight"] + p[name + ".bias"]

    tokens, labels, kept = inputs["tokens"], inputs["labels"], inputs.get("attention_mask")
    count = tokens.shape[1]
    mask = torch.ones(count, count).tril().bool()
    x = p["transformer.wte.weight"][tokens] + p["transformer.wpe.weight"][:count]
    for layer in range(2):
        name = f"transformer.h.{layer}"
        q, k, v = conv1d(name + ".attn.c_attn", norm(p, name + ".ln_1", x, 1e-5)).chunk(3, -1)
        x = x + conv1d(name + ".attn.c_proj", attention(q, k, v, mask, kept))
        y = conv1d(name + ".mlp.c_fc", norm(p, name + ".ln_2", x, 1e-5))
        y = 0.5 * y * (1 + torch.tanh(math.sqrt(2 / math.pi) * (y + 0.044715 * y**3)))
        x = x + conv1d(name + ".mlp.c_proj", y)
    logits = norm(p, "transformer.ln_f", x, 1e-5) @ p["transformer.wte.weight"].T
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-1)


def bert(p, inputs):
    def dense(name, x):
        return F.linear(x, p[name + ".weight"], p[name + ".bias"])

    tokens, kept = inputs["tokens"], inputs.get("attention_mask")
    segments = inputs.get("segments", torch.zeros_like(tokens))
    name = "bert.embeddings."
    words = p[name + "word_embeddings.weight"]
    x = words[tokens] + p[name + "token_type_embeddings.weight"][segments]
    x = x + p[name + "position_embeddings.weight"][: tokens.shape[1]]
    x = norm(p, name + "LayerNorm", x, 1e-12)
    for layer in range(2):
        name = f"bert.encoder.layer.{layer}."
        q, k, v = (dense(name + "attention.self." + part, x) for part in ("query", "key", "value"))
        y = dense(name + "attention.output.dense", attention(q, k, v, None, kept))
        x = norm(p, name + "attention.output.LayerNorm", x + y, 1e-12)
        y = dense(name + "output.dense", F.gelu(dense(name + "intermediate.dense", x)))
        x = norm(p, name + "output.LayerNorm", x + y, 1e-12)
    masked = x
    if "positions" in inputs:
        masked = torch.stack([x[b, inputs["positions"][b]] for b in range(len(x))])
    y = F.gelu(dense("cls.predictions.transform.dense", masked))
    y = norm(p, "cls.predictions.transform.LayerNorm", y, 1e-12)
    logits = F.linear(y, words, p["cls.predictions.bias"])
    masks = F.cross_entropy(logits.flatten(0, 1), inputs["labels"].flatten(), ignore_index=-1)
    if "next_sentence" not in inputs:
        return masks
    pooled = torch.tanh(dense("bert.pooler.dense", x[:, 0]))
    sentences = dense("cls.seq_relationship", pooled)
    return masks + F.cross_entropy(sentences, inputs["next_sentence"], ignore_index=-1)


def compare(model, variant, program, folder):
    path = pathlib.Path(folder) / "tensors.safetensors"
    name = {gpt2: "gpt2", bert: "bert-base"}[model] + variant
    subprocess.run([program, name, str(path)], check=True)
    tensors = read(path)
    inputs = {n: t.long() for n, t in tensors.items() if t.dtype == torch.int32}
    parameters = {
        n: tensors[n].double().requires_grad_() for n in tensors if n + ".gradient" in tensors
    }
    loss = model(parameters, inputs)
    loss.backward()
    assert all(p.grad is not None for p in parameters.values())
    worst = abs(loss.item() - tensors["loss"].item()) / loss.item()
    print(f"{name}: loss {tensors['loss'].item():.7f}, PyTorch {loss.item():.7f}")
    # A key's bias moves all scores of a query alike, so its gradient is zero but for rounding:
    # it is measured against the model's largest element.
    largest = max(p.grad.abs().max().item() for p in parameters.values())
    for parameter, reference in parameters.items():
        own = reference.grad.abs().max().item()
        scale = own if own > 1e-9 * largest else largest
        error = (tensors[parameter + ".gradient"] - reference.grad).abs().max().item() / scale
        worst = max(worst, error)
        if not error <= LIMIT:
            print(f"{name}: {parameter}: relative error {error:.2e}")
    print(f"{name}: {len(parameters)} gradients, worst relative error {worst:.2e}")
    return worst <= LIMIT


def main():
    with tempfile.TemporaryDirectory() as folder:
        good = [
            compare(model, variant, sys.argv[1], folder)
            for model in (gpt2, bert)
            for variant in ("", ":masked")
        ]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
