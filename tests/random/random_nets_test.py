#!/usr/bin/env python3
"""Random ONNX nets with random techniques through the real command: no internal error, no signal, PyTorch's results.

Each run tries a few nets with a fixed seed; if PyTorch is installed, the trained ones are compared with it in float64.
For more, as in a nightly run, from the root of the project:

  POPRUN_EMU_BIN=build/release/bin POPRUN_EMU_ROOT=. POPRUN_EMU_RANDOM_NETS=1000 POPRUN_EMU_RANDOM_TRAINED=300 \\
    tests/random/random_nets_test.py

  POPRUN_EMU_RANDOM_FIRST    number of the first net (0)
  POPRUN_EMU_RANDOM_VERBOSE  if set, each net is printed with its outcome
"""
import collections
import concurrent.futures
import csv
import importlib.util
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile
import unittest

TESTS = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(TESTS / "e2e"))
if importlib.util.find_spec("torch") is None and os.path.exists("/usr/lib/python3/dist-packages/torch"):
    os.execv("/usr/bin/python3", ["/usr/bin/python3", "-B", *sys.argv])

import safetensors_file
from emulated_job import BIN
from random_net import Net

STEPS, LEARNING_RATE = 3, 0.05
TOLERANCE = 1e-4  # For losses and weights: float32 compared with float64.
PLAIN_CODES = {0: "done", 64: "refused", 86: "out of memory"}

CONFIG = """
[model]
onnx = net.onnx
loss = {loss}
[data]
source = npz:data.npz
order = sequential
micro-batch-size = {batch}
[training]
steps = {steps}
gradient-accumulation = {accumulation}
optimizer = sgd
learning-rate = {rate}
schedule = constant
evaluate = false
"""


def number_from(variable, otherwise):
    return int(os.environ.get(variable, otherwise))


class Trial:
    """One net as a job: its outcome, and the comparison with PyTorch."""

    def __init__(self, number, is_trained):
        self.number, self.is_trained, self.net = number, is_trained, Net(number)
        draw = self.net.draw
        self.replicas = 1 if is_trained else draw.choice([1, 2, 2, 4])
        self.accumulation = draw.choice([1, 1, 2, 3, 4])
        self.words = self.net.techniques(self.replicas, self.accumulation)
        if not is_trained:
            self.words += draw.choice([[], [], ["--model.precision", "half"], ["--training.optimizer", "adamw"],
                                       ["--training.clip-norm", "1"], ["--training.optimizer", "lamb"],
                                       [] if self.net.kind == "tokens" else ["--training.evaluate", "true"], ["--model.mode", "inference"]])

    def outcome(self):
        """Returns a word of PLAIN_CODES, or "wrong: ..."."""
        with tempfile.TemporaryDirectory(prefix="poprun-emu-net-") as folder:
            folder = pathlib.Path(folder)
            x, y = self.net.data(STEPS * self.accumulation * self.net.batch * self.replicas)
            (folder / "net.onnx").write_bytes(self.net.onnx())
            (folder / "data.npz").write_bytes(self.net.npz(x, y))
            (folder / "job.cfg").write_text(CONFIG.format(
                loss="mean-squared-error" if self.net.regression else "cross-entropy", batch=self.net.batch, steps=STEPS,
                accumulation=self.accumulation, rate=LEARNING_RATE))
            ended = self.run(folder)
            message = self.wrong_code(ended)
            if message is None and ended.returncode == 0 and self.is_trained:
                message = self.differences(folder / "out", x, y)
            return f"wrong: {message}" if message else PLAIN_CODES[ended.returncode]

    def run(self, folder):
        mode = [] if self.is_trained else ["--dry-run"]
        command = [BIN / "poprun-emu", "-n", str(self.replicas), *mode, *self.words, "job.cfg"]
        return subprocess.run([*command, "--output-dir", "out"], cwd=folder, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL, timeout=180)

    def wrong_code(self, ended):
        lines = [line for line in ended.stderr.splitlines() if line.startswith("poprun-emu: ")]
        if ended.returncode not in PLAIN_CODES:
            return f"exit code {ended.returncode}: {ended.stderr[-600:]}"
        if re.search(r"its proof failed|this bug", ended.stdout + ended.stderr):
            return f"not proven: {ended.stderr[-600:]}"
        return "no reason given" if ended.returncode == 64 and not lines else None

    def differences(self, out, x, y):
        """Describes the difference from PyTorch; None if there is none, or if PyTorch is not installed."""
        stored = safetensors_file.read(out / "weights.safetensors")
        missing = set(self.net.parameters) - set(stored)
        added = set(stored) - set(self.net.parameters) - set(self.net.buffers)
        if missing or added:
            return f"untrained parameters: {sorted(missing)}; trained constants: {sorted(added)}"
        if importlib.util.find_spec("torch") is None:
            return None
        import numpy
        import torch
        torch.set_num_threads(1)
        losses, parameters = self.net.trained_by_torch(torch, x, y, STEPS, self.accumulation, LEARNING_RATE)
        with open(out / "metrics.csv", newline="") as file:
            printed = [float(row["loss"]) for row in csv.DictReader(file) if row["split"] == "train"]
        for step, (ours, theirs) in enumerate(zip(printed, losses, strict=True), 1):
            if not abs(ours - theirs) <= TOLERANCE * max(1, abs(theirs)):
                return f"loss of step {step} is {ours}, PyTorch's is {theirs}"
        for name, theirs in parameters.items():
            dtype, shape, data = stored[name]
            ours = torch.tensor(numpy.frombuffer(data, numpy.float32).astype(float).reshape(shape))
            difference = ((ours - theirs).abs() / theirs.abs().clamp(min=1)).max().item()
            if not difference <= TOLERANCE:
                return f"weight {name!r} differs from PyTorch's by {difference}"
        return None

    def __str__(self):
        net = self.net
        ops = " ".join(sorted({n.op for n in net.nodes} - {"Constant"}))
        return (f"net {self.number} ({net.kind}, names {net.names}, batch {net.batch}, accumulation {self.accumulation}, "
                f"-n {self.replicas}; {ops}) {shlex.join(self.words)}")


class RandomNets(unittest.TestCase):
    def try_all(self, numbers, is_trained):
        verbose = "POPRUN_EMU_RANDOM_VERBOSE" in os.environ
        counts, wrong = collections.Counter(), []
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            trials = [Trial(number, is_trained) for number in numbers]
            for trial, outcome in zip(trials, pool.map(Trial.outcome, trials)):
                counts[outcome.split(":")[0]] += 1
                if verbose:
                    print(f"{trial}: {outcome}", flush=True)
                if outcome.startswith("wrong"):
                    wrong.append(f"{trial}: {outcome}")
        print(dict(counts))
        self.assertFalse(wrong, "\n".join(wrong))
        self.assertGreater(counts["done"], len(trials) / 2, "most nets should make sense")

    def test_compile_with_any_techniques_or_are_refused_with_a_reason(self):
        first = number_from("POPRUN_EMU_RANDOM_FIRST", 0)
        self.try_all(range(first, first + number_from("POPRUN_EMU_RANDOM_NETS", 16)), False)

    def test_train_to_the_numbers_of_pytorch(self):
        first = 1_000_000 + number_from("POPRUN_EMU_RANDOM_FIRST", 0)
        self.try_all(range(first, first + number_from("POPRUN_EMU_RANDOM_TRAINED", 6)), True)


if __name__ == "__main__":
    unittest.main()
