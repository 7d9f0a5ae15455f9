"""Compares our training speed with that of the same model under PyTorch's DistributedDataParallel over gloo."""
import argparse
import dataclasses
import json
import os
import pathlib
import socket
import subprocess

import emulated_job as job

PEERS = pathlib.Path(__file__).resolve().parent / "peers"


@dataclasses.dataclass
class Comparison:
    """A comparison in samples per second, and the required ratio."""
    title: str
    config: pathlib.Path
    peer: str                   # A file in peers/.
    parameters: int             # The same for both.
    required_ratio: float
    steps: int                  # Our steps per round.
    peer_steps: int
    tokens_per_sample: int = 1  # 1: the unit is samples.


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def peer_environment(rank, port):
    return {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank),
            "WORLD_SIZE": str(job.REPLICAS), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}


def run_peer(comparison, python, steps):
    """Returns DDP's samples per second. Ends all ranks."""
    port = free_port()
    script = PEERS / comparison.peer
    others = [subprocess.Popen([python, script, str(steps)], env=peer_environment(rank, port),
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
              for rank in range(1, job.REPLICAS)]
    try:
        result = json.loads(job.run([python, script, str(steps)], 600, env=peer_environment(0, port)))
    finally:
        for process in others:
            process.kill()
            process.wait()
    if result["parameters"] != comparison.parameters or result["replicas"] != job.REPLICAS:
        job.fail(f"the peer trained a different job: {result}")
    job.check_learning("DDP", result["first_loss"], result["last_loss"])
    return result["samples_per_second"]


def run_ours(comparison, bin_folder, steps):
    """Runs our job; returns its profile.json."""
    profile, losses = job.run_job(bin_folder, comparison.config, steps)
    if int(profile["parameterCount"]) != comparison.parameters:
        job.fail(f"our model has {profile['parameterCount']} parameters, the peer's {comparison.parameters}")
    # Each step sees different samples, so compare averages.
    few = max(1, steps // 10)
    job.check_learning("poprun-emu", sum(losses[:few]) / few, sum(losses[-few:]) / few)
    return profile


def check_blas(python):
    """Skips the benchmark if the system's BLAS, which PyTorch uses, is the reference BLAS, which is too slow."""
    script = "import torch; print([line.split()[-1] for line in open('/proc/self/maps') if 'blas' in line])"
    libraries = subprocess.run([python, "-c", script], capture_output=True, text=True, check=True).stdout
    if "openblas" not in libraries and "/blas/libblas" in libraries:
        job.skip("PyTorch would use the reference BLAS, ten times too slow; install libopenblas0")


def compare(comparison, description, after_rounds=lambda bin_folder, samples_per_second: None):
    """Runs the rounds, prints them, and returns the exit code. `after_rounds` may print more."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", type=pathlib.Path, default=job.ROOT / "build/release/bin", help="folder with programs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=comparison.steps, help="our steps per round, at least 20")
    parser.add_argument("--peer-steps", type=int, default=comparison.peer_steps, help="the peer's steps per round")
    parser.add_argument("--python", default="/usr/bin/python3", help="an interpreter that has torch")
    options = parser.parse_args()
    if options.rounds < 1 or options.steps < 20 or options.peer_steps < 1:
        parser.error("needs at least 1 round, 20 steps and 1 peer step")
    if subprocess.run([options.python, "-c", "import torch"], stderr=subprocess.DEVNULL, check=False).returncode != 0:
        job.skip(f"{options.python} has no torch; install python3-torch")
    check_blas(options.python)
    bin_folder = job.find_bin(options.bin)

    unit = "samples/s" if comparison.tokens_per_sample == 1 else "tokens/s"
    rows = []
    for _ in range(options.rounds):
        profile = run_ours(comparison, bin_folder, options.steps)
        ours = profile["wall"]["samplesPerSecond"] * comparison.tokens_per_sample
        peer = run_peer(comparison, options.python, options.peer_steps) * comparison.tokens_per_sample
        rows.append((ours, peer, ours / peer))
    print(f"{comparison.title}: training {unit} (wall)")
    medians = job.print_rounds((f"poprun-emu {unit}", f"DDP gloo {unit}", "ratio"), rows)
    after_rounds(bin_folder, medians[0] / comparison.tokens_per_sample)
    required = comparison.required_ratio
    return job.verdict(f"{unit} of poprun-emu to DDP over gloo, median of rounds", medians[2],
                       medians[2] >= required, f"at least {required} x required")
