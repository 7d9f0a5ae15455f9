#!/usr/bin/env python3
"""Runs poprun-emu check on jobs of every kind: 1 to 16 replicas, as processes and as threads, on 2, 3 and 4 IPUs.

Each row is one run of the command. All rows take an hour or more on two cores, so this is not a test;
tests/e2e/check_test.py has small versions of two of these jobs. `--jobs resnet --replicas 16` selects rows.

Exit code 0 if every run of every row was bit-identical, 1 if not or if something went wrong.
"""
import argparse
import pathlib
import re
import subprocess
import sys
import tempfile
import time

import emulated_job as job

TEXT = f"""
[data]
source = text:{job.ROOT}/ARCHITECTURE.md
sequence-length = 16
micro-batch-size = 2
"""
IMAGES = """
[data]
source = fashion-mnist
micro-batch-size = 2
"""
BLOCKS = """
layers = 4
hidden = 32
heads = 2
vocabulary = 257
sequence-length = 16
dropout = 0.1
"""
STEPS = """
[training]
steps = 100
gradient-accumulation = 4
"""
JOBS = {
    "small-cnn": "[model]\nname = small-cnn" + IMAGES + STEPS + "optimizer = momentum\nlearning-rate = 0.05\n",
    # The first steps overflow, so the loss scale skips them.
    "half": "[model]\nname = small-cnn\nprecision = half" + IMAGES + STEPS +
            "optimizer = momentum\nlearning-rate = 0.05\nloss-scaling = auto\nstochastic-rounding = true\n",
    "bert": "[model]\nname = bert-base" + BLOCKS + TEXT + "task = masked-lm\nmasks = 3\n" + STEPS +
            "optimizer = lamb\nclip-norm = 1\nlearning-rate = 0.001\n",
    "gpt2": "[model]\nname = gpt2" + BLOCKS + TEXT + STEPS + "optimizer = adamw\nlearning-rate = 0.001\n",
    "resnet": "[model]\nname = resnet18" + IMAGES + STEPS + "optimizer = adam\nlearning-rate = 0.002\n",
}


def run(bin_folder, name, replicas, instances, steps):
    """Returns the summary line, or what went wrong, and whether all runs were equal."""
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder) / "job.cfg"
        config.write_text(JOBS[name], encoding="utf-8")
        command = [bin_folder / "poprun-emu", "check", "-n", str(replicas), "--num-instances", str(instances),
                   "--check-ipus", "2,3,4", "--check-steps", str(steps), "--output-dir", f"{folder}/out", config]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=7200, check=False)
        except subprocess.TimeoutExpired:
            return "no end within 2 hours", False
    summary = re.search(r"^(\d+) of (\d+) runs equal.*$", done.stdout, re.MULTILINE)
    if done.returncode != 0 or summary is None or summary[1] != summary[2]:
        return f"exit code {done.returncode}: {(done.stderr or done.stdout).strip().splitlines()[-1:]}", False
    return summary[0], True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=job.ROOT / "build/release/bin", metavar="DIR")
    parser.add_argument("--jobs", nargs="+", choices=JOBS, default=list(JOBS))
    parser.add_argument("--replicas", nargs="+", type=int, default=[1, 2, 4, 16])
    parser.add_argument("--steps", type=int, default=3)
    arguments = parser.parse_args()
    bin_folder = job.find_bin(arguments.bin)
    good = True
    for name in arguments.jobs:
        for replicas in arguments.replicas:
            for instances in sorted({replicas, 1}, reverse=True):
                begin = time.monotonic()
                text, equal = run(bin_folder, name, replicas, instances, arguments.steps)
                good = good and equal
                seconds = time.monotonic() - begin
                print(f"{name:10} {replicas:3} replicas {instances:3} processes  {seconds:6.0f} s  {text}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
