"""Compares the update operators with torch.optim over 20 steps. Skips (exit code 77) if PyTorch is not installed.

usage: optimizer_torch_test.py PATH_OF_optimizer_trace
"""

import math
import subprocess
import sys

try:
    import torch
except ImportError:
    print("skipped: needs PyTorch")
    sys.exit(77)

ADAM = {"lr": 0.01, "betas": (0.9, 0.99), "eps": 1e-6, "weight_decay": 0.1}
SGD = {"lr": 0.01, "weight_decay": 0.1}
RULES = {
    "sgd": lambda w: torch.optim.SGD([w], **SGD),
    "momentum": lambda w: torch.optim.SGD([w], momentum=0.9, **SGD),
    "nesterov": lambda w: torch.optim.SGD([w], momentum=0.9, nesterov=True, **SGD),
    "adam": lambda w: torch.optim.Adam([w], **ADAM),
    "adamw": lambda w: torch.optim.AdamW([w], **ADAM),
}


def torch_weights(make_optimizer):
    weights = torch.tensor([math.sin(i + 1) for i in range(100)], dtype=torch.float32)
    optimizer = make_optimizer(weights)
    for t in range(1, 21):
        wave = torch.tensor([math.cos(3 * i + t) for i in range(100)], dtype=torch.float32)
        weights.grad = wave + 0.5 * weights
        optimizer.step()
    return weights.tolist()


def main():
    failed = False
    for name, make_optimizer in RULES.items():
        lines = subprocess.run([sys.argv[1], name], check=True, capture_output=True, text=True)
        ours = [float(line) for line in lines.stdout.split()]
        theirs = torch_weights(make_optimizer)
        assert len(ours) == len(theirs), (name, len(ours), len(theirs))
        worst = max(abs(a - b) for a, b in zip(ours, theirs))
        print(f"{name}: largest difference {worst:.2e}")
        failed = failed or not worst < 2e-6
    sys.exit(1 if failed else 0)


main()
