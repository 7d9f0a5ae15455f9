#!/usr/bin/env python3
"""Training speed of bert-mini compared with PyTorch DDP over gloo: same model, 16 processes, micro-batch 2, Adam.

bert-mini: 4 layers, hidden 256, 4 heads, vocabulary 8,192, sequences of 128 tokens, 20 of them masked. Both run
alternately, for several rounds, on this machine; times are wall times. Also prints the fraction of the machine's peak
that the matrix products of the forward and backward passes reach; the peak is oneDNN's sgemm of 1024 x 1024 matrices on
every core at once (sgemm_peak).

Exit code 0 if the job is fast enough, 1 if not or if something went wrong, 77 if python3-torch is missing.
"""
import os
import subprocess
import sys

import ddp
import emulated_job as job

VOCABULARY, HIDDEN, LAYERS, LENGTH, MASKS = 8192, 256, 4, 128, 20
PEAK_SECONDS = 3


def training_flops_per_sample():
    """Returns the work of the matrix products: forward, and twice as much backward. n multiply-adds count as 2 n."""
    layer = LENGTH * 12 * HIDDEN**2 + 2 * LENGTH**2 * HIDDEN
    heads = MASKS * (HIDDEN**2 + HIDDEN * VOCABULARY) + HIDDEN**2
    return 3 * 2 * (LAYERS * layer + heads)


def sgemm_peak(bin_folder):
    """Returns the GFLOP/s of all cores together."""
    program = bin_folder.parent / "tests/bench/sgemm_peak"
    if not program.is_file():
        job.fail(f"{program} is missing; build it with deploy/build")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    running = [subprocess.Popen([program, str(PEAK_SECONDS)], stdout=subprocess.PIPE, text=True, env=environment)
               for _ in range(os.cpu_count())]
    return sum(float(process.communicate(timeout=60)[0]) for process in running)


def print_share_of_peak(bin_folder, samples_per_second):
    reached = samples_per_second * training_flops_per_sample() / 1e9
    peak = sgemm_peak(bin_folder)
    print(f"matrix products: {reached:.1f} GFLOP/s of {peak:.1f} GFLOP/s that sgemm reaches here: {reached / peak:.0%}")


if __name__ == "__main__":
    sys.exit(ddp.compare(
        ddp.Comparison(title="bert-mini, 16 processes, micro-batch 2, float32",
                       config=job.ROOT / "deploy/examples/bert-mini.cfg", peer="ddp_bert_mini.py", parameters=5430786,
                       required_ratio=1.7, steps=60, peer_steps=10, tokens_per_sample=LENGTH),
        __doc__, print_share_of_peak))
