#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of bench/toy_gpt.cpp: the same model (bytes, tied output, tanh GELU), the same batch, forward and backward by PyTorch on one core."""
import statistics
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

LAYERS, WIDTH, HEADS, CONTEXT, BATCH, VOCABULARY = 4, 128, 4, 64, 8, 256


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.register_buffer("future", torch.ones(CONTEXT, CONTEXT).triu(1).bool())

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


torch.set_num_threads(1)
torch.manual_seed(1)
model = GPT()
x = torch.randint(VOCABULARY, (BATCH, CONTEXT))
y = torch.randint(VOCABULARY, (BATCH, CONTEXT))


def micro_batch():
    model(x, y).backward()


for _ in range(10):
    micro_batch()
runs = []
for _ in range(5):
    start = time.perf_counter()
    for _ in range(25):
        micro_batch()
    runs.append((time.perf_counter() - start) / 25 * 1e3)
parameters = sum(p.numel() for p in model.parameters())
print(f"torch {torch.__version__}, one thread, {parameters} parameters: median {statistics.median(runs):.2f} ms a micro-batch, best {min(runs):.2f}")
