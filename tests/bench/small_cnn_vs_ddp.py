#!/usr/bin/env python3
"""Training speed of the default job beside PyTorch DDP over gloo: same model, 16 processes, micro-batch 16.

Both run in turn, several rounds, on this machine. Wall time. Exit code 0 when the job is fast enough, 1 when not or
when something went wrong, 77 where Debian's python3-torch is missing.
"""
import argparse
import json
import os
import pathlib
import socket
import subprocess
import sys

import emulated_job as job

PEER = pathlib.Path(__file__).resolve().parent / "peers/ddp_small_cnn.py"
REQUIRED_RATIO = 3.0
PARAMETERS = 421642


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def peer_environment(rank, port):
    return {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank),
            "WORLD_SIZE": str(job.REPLICAS), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def run_peer(python, steps):
    """Samples per second of DDP. All ranks are gone afterwards."""
    port = free_port()
    others = [subprocess.Popen([python, PEER, str(steps)], env=peer_environment(rank, port),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
              for rank in range(1, job.REPLICAS)]
    try:
        result = json.loads(job.run([python, PEER, str(steps)], 600, env=peer_environment(0, port)))
    finally:
        for process in others:
            process.kill()
            process.wait()
    if result["parameters"] != PARAMETERS or result["replicas"] != job.REPLICAS:
        job.fail(f"the peer trained another job: {result}")
    job.check_learning("DDP", result["first_loss"], result["last_loss"])
    return result["samples_per_second"]


def run_ours(bin_folder, steps):
    profile, losses = job.run_job(bin_folder, steps)
    if int(profile["parameterCount"]) != PARAMETERS:
        job.fail(f"our model has {profile['parameterCount']} parameters, the peer's {PARAMETERS}")
    # Each step sees other samples, so compare averages.
    few = max(1, steps // 10)
    job.check_learning("poprun-emu", sum(losses[:few]) / few, sum(losses[-few:]) / few)
    return profile["wall"]["samplesPerSecond"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=job.ROOT / "build/release/bin", help="folder of the programs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100, help="of ours in a round, at least 20")
    parser.add_argument("--peer-steps", type=int, default=20, help="of the peer in a round")
    parser.add_argument("--python", default="/usr/bin/python3", help="the one that has torch")
    options = parser.parse_args()
    if options.rounds < 1 or options.steps < 20 or options.peer_steps < 1:
        parser.error("needs at least 1 round, 20 steps and 1 peer step")
    if subprocess.run([options.python, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        job.skip(f"{options.python} has no torch; Debian's package is python3-torch")
    bin_folder = job.find_bin(options.bin)

    rows = []
    for _ in range(options.rounds):
        ours = run_ours(bin_folder, options.steps)
        peer = run_peer(options.python, options.peer_steps)
        rows.append((ours, peer, ours / peer))
    print(f"small-cnn, {job.REPLICAS} processes, micro-batch 16, float32: training samples/s (wall)")
    medians = job.print_rounds(("poprun-emu samples/s", "DDP gloo samples/s", "ratio"), rows)
    return job.verdict("samples/s of poprun-emu to DDP over gloo, median of rounds", medians[2],
                       medians[2] >= REQUIRED_RATIO, f"at least {REQUIRED_RATIO} x wanted")


if __name__ == "__main__":
    sys.exit(main())
