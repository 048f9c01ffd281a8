# SPDX-License-Identifier: Apache-2.0
"""The model, the text and the batches of examples/toy_gpt, in PyTorch: same shapes, same split, same places drawn (only the initial numbers differ)."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, CONTEXT, VOCABULARY = 4, 128, 4, 64, 256  # read when a model is made
MASK = 2**64 - 1


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.future = torch.ones(CONTEXT, CONTEXT).triu(1).bool()  # no buffer: Gloo cannot send booleans

    def forward(self, x):
        batch, context, width = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(batch, context, 3, HEADS, width // HEADS).permute(2, 0, 3, 1, 4)
        share = (q @ k.transpose(-2, -1) * (width // HEADS) ** -0.5).masked_fill(self.future, float("-inf")).softmax(-1)
        x = x + self.project((share @ v).transpose(1, 2).reshape(batch, context, width))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.token, self.place = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(CONTEXT, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x, y):
        z = self.token(x) + self.place(torch.arange(x.shape[1]))
        for block in self.blocks:
            z = block(z)
        return F.cross_entropy((self.norm(z) @ self.token.weight.T).view(-1, VOCABULARY), y.reshape(-1))

    def initialise(self):
        """Normal numbers of deviation 0.02, smaller into the residual stream; ones for gains, zeros for biases."""
        for name, p in self.named_parameters():
            if p.dim() == 2:
                nn.init.normal_(p, std=0.02 / (math.sqrt(2 * LAYERS) if "project" in name or "down" in name else 1))
            elif name.endswith("bias"):
                nn.init.zeros_(p)


class Text:
    """Of every ten stretches of 4 KiB the last one validates."""

    def __init__(self, path):
        text = open(path, "rb").read()
        parts = {True: [], False: []}
        for k in range(0, (len(text) + 4095) // 4096):
            parts[k % 10 == 9].append(text[4096 * k : 4096 * (k + 1)])
        self.training, self.validation = (torch.tensor(list(b"".join(parts[v]))) for v in (False, True))

    @staticmethod
    def fill(source, sequences, state):
        starts = []
        for _ in range(sequences):
            state = (state + 0x9E3779B97F4A7C15) & MASK  # splitmix64
            x = ((state ^ state >> 30) * 0xBF58476D1CE4E5B9) & MASK
            x = ((x ^ x >> 27) * 0x94D049BB133111EB) & MASK
            starts.append((x ^ x >> 31) % (len(source) - CONTEXT - 1))
        return torch.stack([source[a : a + CONTEXT] for a in starts]), torch.stack([source[a + 1 : a + CONTEXT + 1] for a in starts])

    def draw(self, sequences, seed, rank, number):
        return self.fill(self.training, sequences, ((seed * 1000003 + rank) * 0x9E3779B97F4A7C15 + number * 0xD1342543DE82EF95) & MASK)

    def draw_validation(self, sequences, k):
        return self.fill(self.validation, sequences, (0x5BD1E995 + k * 0x2545F4914F6CDD1D) & MASK)
