"""One rank of PyTorch's DistributedDataParallel over gloo on the model of `small-cnn`: what a user would run instead.

usage: ddp_small_cnn.py STEPS     with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT in the environment

The batch is made up once and never changes, so the peer pays nothing for its data. Rank 0 prints a line of JSON.
"""
import json
import sys
import time

import torch
from torch import distributed, nn

MICRO_BATCH = 16
WARM_UP_STEPS = 3


def small_cnn():
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 7 * 7, 128), nn.ReLU(), nn.Linear(128, 10))


def main():
    steps = int(sys.argv[1])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, replicas = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(rank)
    model = nn.parallel.DistributedDataParallel(small_cnn())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    loss_function = nn.CrossEntropyLoss()
    images = torch.randn(MICRO_BATCH, 1, 28, 28)
    labels = torch.randint(0, 10, (MICRO_BATCH,))

    def step():
        optimizer.zero_grad()
        loss = loss_function(model(images), labels)
        loss.backward()
        optimizer.step()
        return loss.item()

    first_loss = [step() for _ in range(WARM_UP_STEPS)][0]
    distributed.barrier()
    begin = time.perf_counter()
    for _ in range(steps):
        last_loss = step()
    distributed.barrier()
    seconds = time.perf_counter() - begin
    if rank == 0:
        print(json.dumps({
            "samples_per_second": MICRO_BATCH * replicas * steps / seconds,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "replicas": replicas, "first_loss": first_loss, "last_loss": last_loss}))


if __name__ == "__main__":
    main()
