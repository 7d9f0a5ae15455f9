"""One rank of PyTorch's DistributedDataParallel over gloo on the model of `bert-base` at bert-mini's size.

usage: ddp_bert_mini.py STEPS     with RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT in the environment

The same network as ours: pretraining heads on the masked positions, decoder tied to the word embedding, no dropout,
Adam. The batch is made up once and never changes, so the peer pays nothing for its data. Rank 0 prints a line of JSON.
"""
import json
import sys
import time

import torch
from torch import distributed, nn

VOCABULARY, HIDDEN, LAYERS, HEADS, LENGTH, MASKS = 8192, 256, 4, 4, 128, 20
MICRO_BATCH = 2
WARM_UP_STEPS = 3


class BertMini(nn.Module):
    def __init__(self):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, HIDDEN)
        self.places = nn.Embedding(LENGTH, HIDDEN)
        self.types = nn.Embedding(2, HIDDEN)
        for table in (self.words, self.places, self.types):
            nn.init.normal_(table.weight, std=0.02)
        self.norm = nn.LayerNorm(HIDDEN)
        layer = nn.TransformerEncoderLayer(HIDDEN, HEADS, 4 * HIDDEN, 0.0, "gelu", batch_first=True)
        self.layers = nn.TransformerEncoder(layer, LAYERS)
        self.pooler = nn.Linear(HIDDEN, HIDDEN)
        self.next_sentence = nn.Linear(HIDDEN, 2)
        self.transform = nn.Sequential(nn.Linear(HIDDEN, HIDDEN), nn.GELU(), nn.LayerNorm(HIDDEN))
        self.bias = nn.Parameter(torch.zeros(VOCABULARY))

    def forward(self, tokens, segments, positions):
        x = self.words(tokens) + self.types(segments) + self.places.weight
        x = self.layers(self.norm(x))
        masked = torch.gather(x, 1, positions[..., None].expand(-1, -1, HIDDEN))
        logits = nn.functional.linear(self.transform(masked), self.words.weight, self.bias)
        return logits, self.next_sentence(torch.tanh(self.pooler(x[:, 0])))


def main():
    steps = int(sys.argv[1])
    torch.set_num_threads(1)
    distributed.init_process_group("gloo")
    rank, replicas = distributed.get_rank(), distributed.get_world_size()
    torch.manual_seed(rank)
    model = nn.parallel.DistributedDataParallel(BertMini())
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4)
    loss_function = nn.CrossEntropyLoss()
    tokens = torch.randint(0, VOCABULARY, (MICRO_BATCH, LENGTH))
    segments = torch.zeros(MICRO_BATCH, LENGTH, dtype=torch.long)
    positions = torch.stack([torch.randperm(LENGTH)[:MASKS] for _ in range(MICRO_BATCH)])
    labels = torch.randint(0, VOCABULARY, (MICRO_BATCH, MASKS))
    follows = torch.randint(0, 2, (MICRO_BATCH,))

    def step():
        optimizer.zero_grad()
        logits, sentences = model(tokens, segments, positions)
        loss = loss_function(logits.flatten(0, 1), labels.flatten()) + loss_function(sentences, follows)
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
