#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of toy_gpt over a network: the same model, text, batches and rule, trained by PyTorch's DistributedDataParallel over Gloo, alone or with
ZeroRedundancyOptimizer. fp32 on the wire. One rank a process, from RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Rank 0 prints one JSON object."""
import argparse
import json
import math
import os
import time

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

from gpt import GPT, Text

parser = argparse.ArgumentParser(description=__doc__)
parser.add_argument("--mode", choices=["single", "ddp", "zero"], default="ddp")
parser.add_argument("--data", required=True)
parser.add_argument("--samples", type=int, default=2000, help="sequences, over all ranks")
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--micro-batches", type=int, default=4, help="of a step, on each rank")
parser.add_argument("--learning-rate", type=float, default=3e-3)
parser.add_argument("--warmup", type=float, default=1000)
parser.add_argument("--clip", type=float, default=1.0)
parser.add_argument("--seed", type=int, default=1)
a = parser.parse_args()

torch.set_num_threads(1)
torch.manual_seed(a.seed)
rank, ranks = (0, 1) if a.mode == "single" else (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
text = Text(a.data)
plain = GPT()
plain.initialise()
model = plain
if a.mode != "single":
    dist.init_process_group("gloo")
    model = DistributedDataParallel(plain)
decayed = [p for p in plain.parameters() if p.dim() == 2]
others = [p for p in plain.parameters() if p.dim() != 2]
rule = dict(lr=a.learning_rate, betas=(0.9, 0.99), weight_decay=0.1)
if a.mode == "zero":
    optimizer = ZeroRedundancyOptimizer([{"params": decayed}, {"params": others, "weight_decay": 0.0}], torch.optim.AdamW, **rule)
else:
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0}], **rule)


def factor(samples):  # acco::warmup_cosine
    if samples < a.warmup:
        return (samples + 1) / (a.warmup + 1)
    share = min(1.0, (samples - a.warmup) / max(1.0, a.samples - a.warmup))
    return 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * share))


def validate():
    sums = torch.zeros(2, dtype=torch.float64)
    with torch.no_grad():
        for k in range(rank, 24, ranks):
            sums += torch.tensor([plain(*text.draw_validation(16, k)).item() * 16, 16.0], dtype=torch.float64)
    if ranks > 1:
        dist.all_reduce(sums)
    return (sums[0] / sums[1]).item()


samples, number, steps, paused, points = 0, 0, 0, 0.0, []
next_validation = a.samples / 8
if ranks > 1:
    dist.barrier()
start = time.perf_counter()
while samples < a.samples:
    for group in optimizer.param_groups:
        group["lr"] = a.learning_rate * factor(samples)
    optimizer.zero_grad(set_to_none=False)
    for k in range(a.micro_batches):
        x, y = text.draw(a.batch, a.seed, rank, number)
        number += 1
        if ranks > 1 and k < a.micro_batches - 1:
            with model.no_sync():
                (model(x, y) / a.micro_batches).backward()
        else:
            (model(x, y) / a.micro_batches).backward()
    if a.clip > 0:
        torch.nn.utils.clip_grad_norm_(plain.parameters(), a.clip)
    optimizer.step()
    steps += 1
    samples += a.batch * a.micro_batches * ranks
    if samples >= next_validation and samples < a.samples:
        next_validation += a.samples / 8
        began = time.perf_counter()
        loss = validate()
        points.append([samples, began - start - paused, loss])
        paused += time.perf_counter() - began
seconds = time.perf_counter() - start - paused
loss = validate()
points.append([samples, seconds, loss])
if rank == 0:
    print(json.dumps(dict(schedule={"single": "PyTorch, one rank", "ddp": "PyTorch DDP", "zero": "PyTorch DDP + ZeRO"}[a.mode], ranks=ranks, steps=steps,
                          samples=samples, seconds=seconds, samples_per_second=samples / seconds, validation_loss=loss, validation=points,
                          parameters=sum(p.numel() for p in plain.parameters()))))
if ranks > 1:  # newer versions abort where the other process has gone while they end
    dist.barrier()
    dist.destroy_process_group()
