"""Shared by the peers: one rank of PyTorch's DistributedDataParallel over gloo, trained and timed.

usage of a peer: PEER.py STEPS     with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT in the environment

The batch is generated once and never changes, so the peer spends no time on data. Rank 0 prints one line of JSON.
"""
import json
import sys
import time

import torch
from torch import distributed, nn

WARM_UP_STEPS = 3


def main(micro_batch, make_model, make_optimizer, make_loss):
    """`make_optimizer` takes the parameters; `make_loss` generates the batch and returns a model's loss on it."""
    steps = int(sys.argv[1])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, replicas = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(rank)
    model = nn.parallel.DistributedDataParallel(make_model())
    optimizer = make_optimizer(model.parameters())
    loss_of = make_loss()

    def step():
        optimizer.zero_grad()
        loss = loss_of(model)
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
            "samples_per_second": micro_batch * replicas * steps / seconds,
            "parameters": sum(parameter.numel() for parameter in model.parameters()),
            "replicas": replicas, "first_loss": first_loss, "last_loss": last_loss}))
