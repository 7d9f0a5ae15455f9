"""The model of `small-cnn` under DistributedDataParallel (ddp_rank.py): what a user would run instead."""
import ddp_rank
import torch
from torch import nn

MICRO_BATCH = 16


def small_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))


def make_loss():
    images = torch.randn(MICRO_BATCH, 1, 28, 28)
    labels = torch.randint(0, 10, (MICRO_BATCH,))
    return lambda model: nn.functional.cross_entropy(model(images), labels)


if __name__ == "__main__":
    ddp_rank.main(MICRO_BATCH, small_cnn, lambda parameters: torch.optim.SGD(parameters, lr=0.05, momentum=0.9),
                  make_loss)
