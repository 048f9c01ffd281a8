#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of bench/toy_gpt.cpp: the same model (bytes, tied output, tanh GELU), the same batch, forward and backward by PyTorch on one core."""
import statistics
import time

import torch

from gpt import CONTEXT, GPT, VOCABULARY

BATCH = 8

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
