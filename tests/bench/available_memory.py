#!/usr/bin/env python3
"""Compares our results with table 2.1 of Graphcore's note on the available memory proportion, and with a straight line.

The job of the note is ResNeXt-50 32x4d: inference in float on one Mk2 IPU, with batches of 2 to 24 and proportions of
0.1 to 0.9. Each cell is a dry run: device time of a batch, and whether the fullest tile fits. Below the table are the
cells of batch 20 that the note explains.

Graphcore's figures are samples per second of wall time, which includes the host's share of a call. Our device time plus
b * batch + c is fitted to them on the rows of batches 2, 6, 10, 14 and 18 only; the line is b * batch + c, fitted in the
same way. The other rows show how good the fit is. Nothing is fitted to cells that run out of memory. The sizes of code were
determined from jobs whose layers share no code (replica/compiler/planner/README.md), so outlining is off.

Exit code 0 if all limits are met, 1 if not or if something went wrong.
"""
import argparse
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import emulated_job as job

PROPORTIONS = [p / 10 for p in range(1, 10)]
OOM = None
THEIRS = {  # Samples per second by batch and proportion; OOM: out of memory.
    2: [588.05, 576.55, 591.49, 590.72, 541.5, 597.37, 596.1, 603.72, 608.77],
    4: [835.15, 825.98, 856.77, 883.68, 868.95, 862.76, 879.52, 846.37, 906.57],
    6: [914.28, 972.32, 986.29, 988.13, 979.1, 980.36, 986.01, 951.89, 976.86],
    8: [1025.24, 1064.98, 1058.53, 1069.05, 1061.07, 1088.21, 1066.58, 1060.78, 1072.41],
    10: [994.63, 1155.55, 1229.29, 1186.49, 1196.37, 1176.43, 1182.56, 1196.66, 1218.32],
    12: [1067.39, 1167.34, 1200.66, 1245.29, 1255.65, 1289.58, 1239.25, 1205.83, 1228.99],
    14: [1164.32, 1225.8, 1240.3, 1219.31, 1213.38, 1224.41, 1209.84, 1227.05, 1240.22],
    16: [937.57, 1203.84, 1237.77, 1287.91, 1268.22, 1281.14, 1298.41, 1316.73, 1295.86],
    18: [938.62, 1225.88, 1309.89, 1323.84, 1331.72, 1361.16, OOM, OOM, OOM],
    20: [1058.59, 1107.24, 1317.09, OOM, OOM, OOM, OOM, OOM, OOM],
    22: [1079.51, 1329.22, 1359.47, OOM, OOM, OOM, OOM, OOM, OOM],
    24: [914.74, 1141.68, OOM, OOM, OOM, OOM, OOM, OOM, OOM],
}
FITTED = (2, 6, 10, 14, 18)
CONFIG = """
[model]
name = resnext50-32x4d
mode = inference
fold-batch-norm = true
[data]
source = synthetic:images=3x224x224,classes=1000,items=96,type=float
micro-batch-size = {batch}
[memory]
available-memory-proportion = {proportion}
outlining = off
"""
WARNING = "PL:POPLIN [W] Warning: convolution planner unable to meet memory target. Optimising for minimum memory."
UNITS = {"us": 1e-3, "ms": 1, "s": 1e3}


class Cell:
    """The dry run of one batch and proportion."""

    def __init__(self, bin_folder, batch, proportion):
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder) / "job.cfg"
            config.write_text(CONFIG.format(batch=batch, proportion=proportion), encoding="utf-8")
            done = subprocess.run([bin_folder / "poprun-emu", "--dry-run", "-n", "1", config], capture_output=True,
                                  text=True, timeout=300, check=False)
        time = re.search(r"^device batch +([\d.,]+) (us|ms|s),", done.stdout, re.MULTILINE)
        tile = re.search(r"^  tiles +tile (\d+) is the fullest, ([\d,]+) of", done.stdout, re.MULTILINE)
        always = re.search(r"^IPU 0 memory .* ([\d,.]+) MiB always live", done.stdout, re.MULTILINE)
        if done.returncode not in (0, 86) or not time or not tile or not always:
            job.fail(f"batch {batch}, proportion {proportion}: exit code {done.returncode}: {done.stderr.strip()}")
        self.fits = done.returncode == 0
        self.ms = number(time[1]) * UNITS[time[2]]  # Device time of a batch.
        self.fullest, self.tile_bytes = int(tile[1]), int(number(tile[2]))
        self.always_live_mb = number(always[1]) * 2**20 / 1e6
        self.warned = WARNING in done.stdout


def number(text):
    return float(text.replace(",", ""))


def fit(device):
    """Returns b and c for which device(batch, column) + b * batch + c has the smallest relative error on fitted rows."""
    points = [(batch, batch / theirs * 1e3, device(batch, column)) for batch in FITTED
              for column, theirs in enumerate(THEIRS[batch]) if theirs is not OOM]
    weight = sum(ms ** -2 for _, ms, _ in points)
    batch_mean = sum(batch * ms ** -2 for batch, ms, _ in points) / weight
    rest_mean = sum((ms - own) * ms ** -2 for _, ms, own in points) / weight
    slope = (sum((batch - batch_mean) * (ms - own) * ms ** -2 for batch, ms, own in points)
             / sum((batch - batch_mean) ** 2 * ms ** -2 for batch, ms, _ in points))
    return slope, rest_mean - slope * batch_mean


def errors(fitted, device, held, columns):
    """Returns the relative errors of throughput, in percent."""
    found = []
    for batch, row in THEIRS.items():
        for column in columns:
            if (batch not in FITTED) == held and row[column] is not OOM:
                ms = device(batch, column) + fitted[0] * batch + fitted[1]
                found.append((batch / ms * 1e3 / row[column] - 1) * 100)
    return found


def describe(name, fitted, device):
    held = errors(fitted, device, True, range(1, 9))
    least = errors(fitted, device, True, [0])
    mean, worst = (statistics.mean(map(abs, held)), max(held, key=abs))
    tenth = statistics.mean(map(abs, least))
    print(f"{name:16} rows held back, proportions from 0.2: mean {mean:.2f} %, worst {worst:+.1f} %; "
          f"0.1: mean {tenth:.2f} %")
    return mean, abs(worst), tenth


def explain(cells):
    """Checks the cells of batch 20, by proportion, against the note's explanation of them."""
    for proportion, cell in cells.items():
        print(f"batch 20, {proportion:5}: {'fits' if cell.fits else 'out of memory'}, tile {cell.fullest} needs "
              f"{cell.tile_bytes:,} B, always live {cell.always_live_mb:.1f} MB, {cell.ms:.2f} ms on the device"
              f"{', with the warning' if cell.warned else ''}")
    same = [(cells[a].ms, cells[a].tile_bytes) == (cells[b].ms, cells[b].tile_bytes)
            for a, b in ((0.005, 0.01), (0.75, 0.8))]
    fits = [p for p, cell in cells.items() if cell.fits]
    warned = [p for p, cell in cells.items() if cell.warned]
    always = 225 <= cells[0.35].always_live_mb <= 275 and 225 <= cells[0.6].always_live_mb <= 275
    return all(same) and fits == [0.35] and warned == [0.005, 0.01] and always


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=job.ROOT / "build/release/bin", metavar="DIR")
    arguments = parser.parse_args()
    bin_folder = job.find_bin(arguments.bin)
    cells = {batch: [Cell(bin_folder, batch, p) for p in PROPORTIONS] for batch in THEIRS}

    def planned(batch, column):
        return cells[batch][column].ms

    def line(*_):
        return 0

    per_sample, constant = fit(planned)
    print("samples/s: ours, theirs, and the fullest tile in KiB (limit 624); # does not fit here, ! the two differ")
    right = 0
    for batch, row in THEIRS.items():
        text = f"{batch:3}"
        for column, theirs in enumerate(row):
            cell = cells[batch][column]
            ms = cell.ms + per_sample * batch + constant
            agrees = cell.fits == (theirs is not OOM)
            right += agrees
            ours = f"{batch / ms * 1e3:.0f}" if cell.fits else "OOM"
            other = "OOM" if theirs is OOM else f"{theirs:.0f}"
            marks = f"{' ' if cell.fits else '#'}{' ' if agrees else '!'}"
            text += f"  {ours:>4}/{other:>4} {cell.tile_bytes // 1024:4}{marks}"
        print(text)
    monotone = all(not cell.fits or all(left.fits for left in row[:column])
                   for row in cells.values() for column, cell in enumerate(row))
    kind = "monotone" if monotone else "not monotone"
    print(f"out of memory: {right} of 108 cells right, {kind} in the proportion")
    print(f"ms of a batch = device + {per_sample:.4f} * batch + {constant:.3f}; "
          f"a sample's 602,112 B in that time: {602112 / per_sample / 1e6:.2f} GB/s")
    mean, worst, tenth = describe("planned", (per_sample, constant), planned)
    describe("without planner", fit(line), line)
    explained = explain({p: Cell(bin_folder, 20, p) for p in (0.005, 0.01, 0.35, 0.6, 0.75, 0.8)})
    good = explained and mean <= 3 and worst <= 15 and tenth <= 12 and right >= 97 and monotone
    print("all limits are met" if good else "limits: mean 3 %, worst 15 %, 0.1 12 %, 97 cells, monotone, "
          "and batch 20 as in the note")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
