#!/usr/bin/env python3
"""Shows what each technique saves and costs in BERT-Large, planned for 4 replicas of 4 IPUs.

The first row uses no technique, and each of the next rows uses one. The last rows use all techniques
(deploy/examples/pods/bert-large.cfg), and all except recomputation. Columns per IPU: KiB of its fullest tile, and MiB
of the IPU that are always live, not always live, and in its Streaming Memory, all at its peak; then device time per
step and utilisation. Nothing is executed.

Exit code 0 if the whole configuration fits and compiles in time and does not fit without recomputation, 1 if not.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile
import time

import emulated_job as job

CONFIG = job.ROOT / "deploy/examples/pods/bert-large.cfg"
IPUS = 4
SECONDS_MAX = 15
FITS, OUT_OF_MEMORY = 0, 86
WITHOUT = {  # Options that turn each technique off.
    "recomputation": ["--pipeline.recomputation", "none"],
    "state off the chip": ["--memory.optimizer-state", "on-chip"],
    "sharded state": ["--memory.replicated-tensor-sharding", "none"],
    "embedding in slices": ["--model.embedding-serialisation-factor", "1"],
    "outlining": ["--memory.outlining", "off"],
}


def options_of(techniques):
    return [word for technique, words in WITHOUT.items() if technique not in techniques for word in words]


def profile(bin_folder, techniques):
    """Returns (exit code, seconds, profile)."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        command = [bin_folder / "poprun-emu", "profile", "--no-run", "-n", "4", "--ipus-per-replica", str(IPUS),
                   "--output-dir", f"{folder}/profile", *options_of(techniques), CONFIG]
        done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
        seconds = time.monotonic() - began
        if done.returncode not in (FITS, OUT_OF_MEMORY):
            job.fail(f"exit code {done.returncode}: {' '.join(map(str, command))}\n{done.stderr[-2000:]}")
        return done.returncode, seconds, json.loads(pathlib.Path(f"{folder}/profile/profile.json").read_text())


def row(name, code, seconds, result):
    memory = result["plannedMemory"]
    per_ipu = "  ".join(f"{m['fullestTilePeak'] / 1024:5.0f} {m['alwaysLive'] / 2**20:5.0f} "
                        f"{(m['peak'] - m['alwaysLive']) / 2**20:5.0f} {m.get('streamingPeak', 0) / 2**20:4.0f}"
                        for m in memory)
    device = result["device"]
    print(f"{name:20} {'fits' if code == FITS else 'no':4}  {per_ipu}  {device['stepSeconds']:6.2f} s "
          f"{100 * device['utilisation']:5.1f} %  {seconds:4.1f} s", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=job.ROOT / "build/release/bin", metavar="DIR")
    bin_folder = job.find_bin(parser.parse_args().bin)
    print(f"{'':25}  " + "  ".join(f"{f'IPU {i}':22}" for i in range(IPUS)))
    print(f"{'BERT-Large':25}  " + "  ".join([" tile  live other  off"] * IPUS) + "      step     busy  compiled")
    row("plain", *profile(bin_folder, []))
    for technique in WITHOUT:
        row(f"+ {technique}", *profile(bin_folder, [technique]))
    every = profile(bin_folder, WITHOUT)
    row("all", *every)
    without = profile(bin_folder, [technique for technique in WITHOUT if technique != "recomputation"])
    row("all but recomputed", *without)
    good = every[0] == FITS and every[1] < SECONDS_MAX and without[0] == OUT_OF_MEMORY
    print("all limits are met" if good else
          f"required: all techniques fit, in less than {SECONDS_MAX} s, but not without recomputation")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
