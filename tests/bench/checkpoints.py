#!/usr/bin/env python3
"""Measures the cost of checkpoints, and checks that nothing is lost.

  checkpoints.py cost CONFIG     samples/s with a checkpoint every 50 steps and without, in alternating pairs of
                                 runs; the weights must be equal. Exit code 1 if the median cost exceeds --limit.
                                 Many short pairs show more than a few long ones if the machine's speed drifts:
                                 --steps 110 --rounds 9.
  checkpoints.py cost-within CONFIG
                                 the same within one run, in which changes of the machine's speed matter less: of
                                 every 50 steps, the 25 during which the checkpoint is stored against the other 25.
                                 Weights are not compared.
  checkpoints.py killed          jobs with momentum, Adam, and half precision with dropout are killed with SIGKILL, all
                                 their processes at once, at random moments, and resumed on 16, 4 and 1 instances;
                                 weights and metrics (except wall seconds) must be those of an uninterrupted job.

All times are wall times, with 16 replicas on this machine.
"""
import argparse
import csv
import hashlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid

import emulated_job as job

CNN = """
[model]
name = small-cnn
[data]
source = synthetic:images=1x28x28,classes=10,items=6400
micro-batch-size = 4
[training]
optimizer = {}
learning-rate = {}
epochs = 3
"""

JOBS = {
    "momentum": CNN.format("momentum", 0.02),
    "adam": CNN.format("adam", 0.001),
    "half, dropout": """
[model]
name = bert-base
layers = 2
hidden = 64
heads = 2
vocabulary = 512
precision = half
dropout = 0.1
[data]
source = synthetic:tokens,vocabulary=512,items=6400
task = masked-lm
sequence-length = 16
micro-batch-size = 4
[training]
optimizer = adam
learning-rate = 0.001
stochastic-rounding = true
epochs = 3
"""}


def sha256(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def metrics(path):
    with open(path, newline="", encoding="utf-8") as lines:
        return [{key: value for key, value in row.items() if key != "wall_seconds"} for row in csv.DictReader(lines)]


def train(programs, config, out, *options, deadline=3600):
    return job.run([programs / "poprun-emu", "-n", str(job.REPLICAS), "--output-dir", out, *options, config], deadline)


def ends_of_steps(out):
    """Returns the wall seconds at the end of each step."""
    with open(out / "metrics.csv", newline="", encoding="utf-8") as lines:
        return {int(row["step"]): float(row["wall_seconds"]) for row in csv.DictReader(lines)}


def speed(out):
    """Returns samples/s from the end of the first step to the end of the last, including the time between steps."""
    ends = ends_of_steps(out)
    batch = json.loads((out / "profile.json").read_text())["batchSizes"]["globalBatchSize"]
    return batch * (len(ends) - 1) / (ends[len(ends)] - ends[1])


def cost(arguments, programs):
    losses = []
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        folder = pathlib.Path(folder)
        for number in range(arguments.rounds):
            speeds, hashes = {}, {}
            order = ["without", "with"] if number % 2 == 0 else ["with", "without"]
            for kind in order:
                out = folder / kind
                shutil.rmtree(out, ignore_errors=True)
                options = ["--checkpoint-every", "50"] if kind == "with" else []
                text = train(programs, arguments.config, out, "--training.steps", str(arguments.steps),
                             "--training.evaluate", "false", *options)
                speeds[kind] = speed(out)
                hashes[kind] = sha256(out / "weights.safetensors")
            if hashes["with"] != hashes["without"]:
                job.fail("the weights differ")
            last = [line for line in (text if order[1] == "with" else "").splitlines() if line.startswith("checkpoints")]
            losses.append(1 - speeds["with"] / speeds["without"])
            print(f"pair {number + 1}: without {speeds['without']:,.1f} samples/s, with {speeds['with']:,.1f}: "
                  f"{100 * losses[-1]:+.2f} % lost" + "".join(f"; {line.split(':', 1)[1].strip()}" for line in last),
                  flush=True)
    return judge(losses, arguments.limit)


def cost_within(arguments, programs):
    """Compares the two halves of every 50 steps: a checkpoint is stored only during the first half."""
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        out = pathlib.Path(folder) / "out"
        # 25 more steps: the job prints the time of its last checkpoint, which must also be stored during training.
        text = train(programs, arguments.config, out, "--training.steps", str(arguments.steps + 25),
                     "--training.evaluate", "false", "--checkpoint-every", "50")
        ends = ends_of_steps(out)
    told = next(line for line in text.splitlines() if line.startswith("checkpoints"))
    print(told)
    half = 25 * (ends[arguments.steps] - ends[1]) / (arguments.steps - 1)
    if float(re.search(r" in ([\d.]+) s$", told)[1]) > half:
        job.fail(f"storing a checkpoint takes longer than 25 steps ({half:.2f} s), so the halves cannot be compared")
    losses = []
    for step in range(50, arguments.steps - 49, 50):
        # From the end of the previous step: the replica copies its state at the end of this one.
        during, after = ends[step + 24] - ends[step - 1], ends[step + 49] - ends[step + 24]
        losses.append(1 - 2 * after / (during + after))
        print(f"checkpoint after step {step}: 25 steps in {during:.2f} s, the next 25 in {after:.2f} s: "
              f"{100 * losses[-1]:+.2f} % lost", flush=True)
    print(f"mean of {len(losses)}: {100 * statistics.mean(losses):+.2f} %")
    return judge(losses, arguments.limit)


def judge(losses, limit):
    median = statistics.median(losses)
    print(f"median of {len(losses)}: {100 * median:+.2f} % of samples/s, at most {100 * limit:g} %")
    return 0 if median <= limit else 1


def pids_of(token):
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            environment = pathlib.Path(f"/proc/{entry}/environ").read_bytes()
        except OSError:
            continue
        if f"POPRUN_EMU_TOKEN={token}".encode() in environment.split(b"\0"):
            found.append(int(entry))
    return found


def kill_at(programs, config, out, seconds):
    """Returns whether it was killed: it may have ended first."""
    token = uuid.uuid4().hex
    process = subprocess.Popen([programs / "poprun-emu", "-n", str(job.REPLICAS), "--output-dir", out,
                                "--checkpoint-every", "20", config], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                               stdin=subprocess.DEVNULL, env={**os.environ, "POPRUN_EMU_TOKEN": token})
    try:
        process.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        pass
    pids = pids_of(token)
    while pids:
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        process.wait()
        time.sleep(0.05)
        pids = pids_of(token)
    return True


def killed(arguments, programs):
    moments = random.Random(arguments.seed)
    wrong = 0
    with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
        folder = pathlib.Path(folder)
        for name, text in JOBS.items():
            config = folder / "job.cfg"
            config.write_text(text)
            began = time.monotonic()
            shutil.rmtree(folder / "whole", ignore_errors=True)
            train(programs, config, folder / "whole")
            whole_seconds = time.monotonic() - began
            expected = sha256(folder / "whole/weights.safetensors"), metrics(folder / "whole/metrics.csv")
            resumed, anew = 0, 0
            for _ in range(arguments.moments):
                out = folder / "killed"
                while True:
                    shutil.rmtree(out, ignore_errors=True)
                    if kill_at(programs, config, out, moments.uniform(0.2, whole_seconds)):
                        break
                if any((out / "checkpoints").glob("step-*[0-9]")) if out.exists() else False:
                    resumed += 1
                else:
                    anew += 1
                for instances in (16, 4, 1):
                    again = folder / "again"
                    shutil.rmtree(again, ignore_errors=True)
                    if out.exists():
                        shutil.copytree(out, again)
                    train(programs, config, again, "--num-instances", str(instances), "--resume", "auto",
                          "--checkpoint-every", "20")
                    if (sha256(again / "weights.safetensors"), metrics(again / "metrics.csv")) != expected:
                        wrong += 1
                        print(f"{name}: results differ on {instances} instances; kept in {arguments.folder or '.'}")
                        shutil.copytree(again, pathlib.Path(arguments.folder or ".") / f"wrong-{wrong}")
            print(f"{name}: killed at {arguments.moments} moments of {whole_seconds:.1f} s, {resumed} of them after a "
                  f"checkpoint, each resumed on 16, 4 and 1 instances: {wrong} with different results", flush=True)
    return 1 if wrong else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["cost", "cost-within", "killed"])
    parser.add_argument("config", nargs="?", default=job.ROOT / "train.cfg", type=pathlib.Path)
    parser.add_argument("--bin", default=job.ROOT / "build/release/bin", type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=5, help="pairs of runs")
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--limit", type=float, default=0.02, help="fraction of samples/s that may be lost")
    parser.add_argument("--moments", type=int, default=20, help="moments at which each job is killed")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--folder", help="where jobs write (default: the temporary folder)")
    arguments = parser.parse_args()
    programs = job.find_bin(arguments.bin)
    return {"cost": cost, "cost-within": cost_within, "killed": killed}[arguments.what](arguments, programs)


if __name__ == "__main__":
    sys.exit(main())
