#!/usr/bin/env python3
"""Wall time of pipelines compared with the plain job: bert-mini, gradient accumulation 8, 16 replicas of 4 IPUs.

All variants run in turn, for several rounds, on this machine; times are wall times without the first step. One thread
runs all IPUs of a replica, so a pipeline does as much work as the plain job. With recomputation, it does one more
forward pass and therefore reaches at most 75 % of the speed. Losses must be bit-identical.

Exit code 0 if the ratios are within the limits, 1 if not or if something went wrong.
"""
import argparse
import csv
import pathlib
import statistics
import sys
import tempfile

import emulated_job as job

CONFIG = job.ROOT / "deploy/examples/bert-mini.cfg"
TOKENS = 128
WAYS = {  # Options, and the fraction of the plain job's speed that they must reach.
    "plain": ([], 1.0),
    "pipeline": (["--ipus-per-replica", "4", "--pipeline.recomputation", "none"], 0.90),
    "recomputed": (["--ipus-per-replica", "4", "--pipeline.recomputation", "all"], 0.65),
}


def run(bin_folder, steps, options):
    """Returns (tokens per second without the first step, losses)."""
    with tempfile.TemporaryDirectory() as folder:
        output = pathlib.Path(folder) / "run"
        job.run([bin_folder / "poprun-emu", "-n", str(job.REPLICAS), "--training.steps", str(steps),
                 "--training.gradient-accumulation", "8", "--output-dir", output, *options, CONFIG], 600)
        with open(output / "metrics.csv", newline="", encoding="utf-8") as lines:
            rows = [row for row in csv.DictReader(lines) if row["split"] == "train"]
    seconds = float(rows[-1]["wall_seconds"]) - float(rows[0]["wall_seconds"])
    return (steps - 1) * job.REPLICAS * 8 * 2 * TOKENS / seconds, [row["loss"] for row in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=job.ROOT / "build/release/bin", metavar="DIR")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=4)
    arguments = parser.parse_args()
    bin_folder = job.find_bin(arguments.bin)
    rows = []
    for _ in range(arguments.rounds):
        results = [run(bin_folder, arguments.steps, options) for options, _ in WAYS.values()]
        if any(losses != results[0][1] for _, losses in results):
            job.fail("the losses differ; the speed of a wrong answer means nothing")
        rows.append([speed for speed, _ in results])
    job.print_rounds([f"{way} tokens/s" for way in WAYS], rows)
    good = True
    for column, (way, (_, limit)) in enumerate(WAYS.items()):
        ratio = statistics.median(row[column] / row[0] for row in rows)
        good = good and ratio >= limit
        print(f"{way}: {ratio:.3f} of the plain job's speed, {limit} required")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
