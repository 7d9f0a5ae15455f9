"""Shared by the benchmarks: runs our job once, checks its results, returns its profile."""
import csv
import json
import math
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
REPLICAS = 16
SKIPPED = 77


def skip(reason):
    print(f"{pathlib.Path(sys.argv[0]).name}: skipped, {reason}")
    sys.exit(SKIPPED)


def fail(reason):
    print(f"{pathlib.Path(sys.argv[0]).name}: {reason}", file=sys.stderr)
    sys.exit(1)


def run(command, deadline_seconds, **keywords):
    """Returns the standard output of `command`. Ends its process group in any case."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL,
                               text=True, start_new_session=True, **keywords)
    try:
        out, err = process.communicate(timeout=deadline_seconds)
    except subprocess.TimeoutExpired:
        fail(f"still running after {deadline_seconds} s: {' '.join(map(str, command))}")
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
    if process.returncode != 0:
        fail(f"exit code {process.returncode}: {' '.join(map(str, command))}\n{out[-4000:]}{err[-4000:]}")
    return out


def find_bin(folder):
    if not (folder / "poprun-emu").is_file():
        fail(f"no poprun-emu in {folder}; build it with deploy/build, or name its folder with --bin")
    return folder.resolve()


def run_job(bin_folder, config, steps, deadline_seconds=300, options=()):
    """Trains the job of a train.cfg for `steps` steps without evaluation; returns (profile.json, losses)."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "run"
        run([bin_folder / "poprun-emu", "-n", str(REPLICAS), "--training.steps", str(steps),
             "--training.evaluate", "false", "--output-dir", output, *options, config], deadline_seconds)
        profile = json.loads((output / "profile.json").read_text())
        with open(output / "metrics.csv", newline="", encoding="utf-8") as lines:
            losses = [float(row["loss"]) for row in csv.DictReader(lines) if row["loss"]]
    if int(profile["outcome"]["steps"]) != steps or len(losses) != steps:
        fail(f"requested {steps} steps, trained {profile['outcome']['steps']}, metrics.csv has {len(losses)}")
    if not all(map(math.isfinite, losses)):
        fail("a loss is not finite; the speed of a wrong answer means nothing")
    return profile, losses


def check_learning(who, first, last):
    """Fails if the job has not learned: its speed would mean nothing."""
    if not (math.isfinite(first) and math.isfinite(last) and last < first):
        fail(f"{who}: the loss went from {first:.4f} to {last:.4f}; the speed of a wrong answer means nothing")


def print_rounds(header, rows):
    """Prints a row of numbers per round and their medians, and returns the medians."""
    print(f"{'round':>6}" + "".join(f"{name:>22}" for name in header))
    for number, row in enumerate(rows, 1):
        print(f"{number:>6}" + "".join(f"{value:>22.2f}" for value in row))
    medians = [statistics.median(column) for column in zip(*rows)]
    print(f"{'median':>6}" + "".join(f"{value:>22.2f}" for value in medians))
    return medians


def verdict(what, ratio, within, limit):
    print(f"{what}: {ratio:.2f} x, {limit}: {'yes' if within else 'NO'}")
    return 0 if within else 1
