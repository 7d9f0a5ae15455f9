"""The model of `bert-base` at bert-mini's size under DistributedDataParallel (ddp_rank.py).

The same network as ours: pretraining heads on the masked positions, decoder tied to the word embedding, no dropout,
Adam.
"""
import ddp_rank
import torch
from torch import nn

VOCABULARY, HIDDEN, LAYERS, HEADS, LENGTH, MASKS = 8192, 256, 4, 4, 128, 20
MICRO_BATCH = 2


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


def make_loss():
    tokens = torch.randint(0, VOCABULARY, (MICRO_BATCH, LENGTH))
    segments = torch.zeros(MICRO_BATCH, LENGTH, dtype=torch.long)
    positions = torch.stack([torch.randperm(LENGTH)[:MASKS] for _ in range(MICRO_BATCH)])
    labels = torch.randint(0, VOCABULARY, (MICRO_BATCH, MASKS))
    follows = torch.randint(0, 2, (MICRO_BATCH,))

    def loss(model):
        logits, sentences = model(tokens, segments, positions)
        return (nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
                + nn.functional.cross_entropy(sentences, follows))
    return loss


if __name__ == "__main__":
    ddp_rank.main(MICRO_BATCH, BertMini, lambda parameters: torch.optim.Adam(parameters, lr=1e-4), make_loss)
