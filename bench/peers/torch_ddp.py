#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The peer of toy_gpt over a network: the same model, text, batches and rule, trained by PyTorch's DistributedDataParallel over Gloo. One rank a process,
from RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. Rank 0 prints one JSON object. Modes:

  ddp           gradients of the last micro-batch of a step are reduced, in fp32, all others under no_sync
  zero          the same, with ZeroRedundancyOptimizer, which broadcasts the parameters
  as_released   the baseline of ACCO's released code: zero, but without no_sync, so that every micro-batch is reduced
  bf16          ddp, gradients in bfloat16, summed in bfloat16 too (bf16_compress_hook; PyTorch 2: before, the hook asks for CUDA)
  powersgd      ddp, gradients as matrices of rank --matrix-rank (powerSGD_hook, error feedback; the first 10 steps in full)
  post_local    post-local SGD: every rank by itself, the mean of all models every --local-steps (PostLocalSGDOptimizer; the first tenth as ddp)

"bytes" are what a rank sends of a parameter in a step, in units of (N-1)/N, by formula, in full operation; "bytes_of_all" the mean over this training, with the steps at its beginning that powersgd
and post_local send in full, and the mean of all models that post_local ends with. "bytes_measured" is what the latter should be: the mean over the ranks of what their interface (GLOO_SOCKET_IFNAME)
has sent, headers included; null where that is the loopback, which all ranks of a machine share."""
import argparse
import json
import math
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import gpt
from gpt import GPT, Text

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--mode", choices=["single", "ddp", "zero", "as_released", "bf16", "powersgd", "post_local"], default="ddp")
parser.add_argument("--matrix-rank", type=int, default=2, help="of powersgd")
parser.add_argument("--local-steps", type=int, default=8, help="of post_local")
parser.add_argument("--layers", type=int, default=gpt.LAYERS)
parser.add_argument("--width", type=int, default=gpt.WIDTH)
parser.add_argument("--heads", type=int, default=gpt.HEADS)
parser.add_argument("--context", type=int, default=gpt.CONTEXT)
parser.add_argument("--validations", type=int, default=8)
parser.add_argument("--data", required=True)
parser.add_argument("--samples", type=int, default=2000, help="sequences, over all ranks")
parser.add_argument("--batch", type=int, default=8)
parser.add_argument("--micro-batches", type=int, default=4, help="of a step, on each rank")
parser.add_argument("--learning-rate", type=float, default=3e-3)
parser.add_argument("--warmup", type=float, default=1000)
parser.add_argument("--clip", type=float, default=1.0)
parser.add_argument("--seed", type=int, default=1)
a = parser.parse_args()
for name in ("matrix_rank", "local_steps", "layers", "width", "heads", "context", "validations", "samples", "batch", "micro_batches"):
    if getattr(a, name) < 1:
        parser.error(f"--{name.replace('_', '-')} {getattr(a, name)}: expected a number above 0")
if a.width % a.heads:
    parser.error(f"--heads {a.heads}: it must divide --width {a.width}")
missing = [name for name in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
if a.mode != "single" and missing:
    parser.error(f"--mode {a.mode}: not in the environment: {', '.join(missing)}; set them for every process, or use torchrun")

NAMES = {"single": "PyTorch, one rank", "ddp": "PyTorch DDP", "zero": "PyTorch DDP + ZeRO", "as_released": "PyTorch DDP + ZeRO, as released", "bf16": "PyTorch DDP, bf16",
         "powersgd": f"PyTorch DDP, PowerSGD rank {a.matrix_rank}", "post_local": f"PyTorch post-local SGD, H = {a.local_steps}"}
gpt.LAYERS, gpt.WIDTH, gpt.HEADS, gpt.CONTEXT = a.layers, a.width, a.heads, a.context
torch.set_num_threads(1)
torch.set_flush_denormal(True)  # as toy_gpt
torch.manual_seed(a.seed)
rank, ranks = (0, 1) if a.mode == "single" else (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
try:
    text = Text(a.data)
except OSError as e:
    parser.error(f"--data: {e}")
if min(len(text.training), len(text.validation)) < a.context + 2:
    parser.error(f"--data {a.data}: too short for --context {a.context}: its {len(text.training)} bytes to learn and {len(text.validation)} to validate must be {a.context + 2} each")
plain = GPT()
plain.initialise()
model = plain
if a.mode != "single":
    dist.init_process_group("gloo")
    model = DistributedDataParallel(plain)
decayed = [p for p in plain.parameters() if p.dim() == 2]
others = [p for p in plain.parameters() if p.dim() != 2]
rule = dict(lr=a.learning_rate, betas=(0.9, 0.99), weight_decay=0.1)
if a.mode in ("zero", "as_released"):
    optimizer = ZeroRedundancyOptimizer([{"params": decayed}, {"params": others, "weight_decay": 0.0}], torch.optim.AdamW, **rule)
else:
    optimizer = torch.optim.AdamW([{"params": decayed}, {"params": others, "weight_decay": 0.0}], **rule)
total_steps = math.ceil(a.samples / (a.batch * a.micro_batches * ranks))
if a.mode == "bf16":
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks

    if int(torch.__version__.split(".")[0]) < 2:
        sys.exit(f"--mode bf16: PyTorch {torch.__version__} refuses bf16_compress_hook without CUDA and NCCL: take PyTorch 2")
    model.register_comm_hook(None, default_hooks.bf16_compress_hook)
elif a.mode == "powersgd":
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook

    model.register_comm_hook(powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=a.matrix_rank, start_powerSGD_iter=10), powerSGD_hook.powerSGD_hook)
elif a.mode == "post_local":
    from torch.distributed.algorithms.ddp_comm_hooks import post_localSGD_hook
    from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
    from torch.distributed.optim import PostLocalSGDOptimizer

    alone = [dist.new_group([k]) for k in range(ranks)][rank]  # new_subgroups asks for CUDA in PyTorch 1.13
    begin = total_steps // 10  # steps as ddp
    model.register_comm_hook(post_localSGD_hook.PostLocalSGDState(None, alone, begin), post_localSGD_hook.post_localSGD_hook)
    optimizer = PostLocalSGDOptimizer(optimizer, PeriodicModelAverager(period=a.local_steps, warmup_steps=begin))


def bytes_sent():
    if a.mode == "powersgd":  # P and Q of each matrix for which that is less than half, all else in full
        numbers = 0
        for p in plain.parameters():
            rows, columns = p.shape[0], p.numel() // p.shape[0]
            few = a.matrix_rank * (rows + columns)
            numbers += few if p.dim() > 1 and 2 * few < p.numel() else p.numel()
        return 8 * numbers / sum(p.numel() for p in plain.parameters())
    return {"single": 0, "ddp": 8, "zero": 12, "as_released": 8 * a.micro_batches + 4, "bf16": 4, "post_local": 8 / a.local_steps}[a.mode]


def bytes_of_all():
    if a.mode == "powersgd":
        full = min(10, total_steps)
        return (8 * full + (total_steps - full) * bytes_sent()) / total_steps
    if a.mode == "post_local":
        means = -(-(total_steps - begin) // a.local_steps) + 1
        return 8 * (begin + means) / total_steps
    return bytes_sent()


def interface_sent():
    """Bytes that this process's network interface has sent since it is there, or None where ranks share the loopback."""
    name = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    with open("/proc/net/dev") as lines:
        sent = {line.split(":")[0].strip(): int(line.split(":")[1].split()[8]) for line in lines if ":" in line}
    return None if name == "lo" or ranks == 1 else sent.get(name)


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
next_validation = a.samples / a.validations
if ranks > 1:
    dist.barrier()
sent_before = interface_sent()
start = time.perf_counter()
while steps < total_steps:
    for group in optimizer.param_groups:
        group["lr"] = a.learning_rate * factor(samples)
    optimizer.zero_grad(set_to_none=False)
    for k in range(a.micro_batches):
        x, y = text.draw(a.batch, a.seed, rank, number)
        number += 1
        if ranks > 1 and a.mode != "as_released" and k < a.micro_batches - 1:
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
        next_validation += a.samples / a.validations
        began = time.perf_counter()
        loss = validate()
        points.append([samples, began - start - paused, loss])
        paused += time.perf_counter() - began
if a.mode == "post_local":  # what all have come to
    for p in plain.parameters():
        dist.all_reduce(p.data)
        p.data /= ranks
seconds = time.perf_counter() - start - paused
parameters, bytes_measured = sum(p.numel() for p in plain.parameters()), None
if sent_before is not None:
    dist.barrier()  # all has left
    sent = torch.tensor([interface_sent() - sent_before], dtype=torch.float64)
    dist.all_reduce(sent)
    bytes_measured = sent.item() / (ranks - 1) / parameters / steps
loss = validate()
points.append([samples, seconds, loss])
if rank == 0:
    print(json.dumps(dict(schedule=NAMES[a.mode], ranks=ranks, steps=steps, bytes=bytes_sent(), bytes_of_all=bytes_of_all(), bytes_measured=bytes_measured, torch=torch.__version__,
                          samples=samples, seconds=seconds, samples_per_second=samples / seconds, validation_loss=loss, validation=points,
                          parameters=parameters)))
sys.stdout.flush()
if ranks > 1:
    try:
        dist.barrier()  # rank 0 has the store that all others ask
    except RuntimeError:
        pass  # another one has gone already, and all work is done
    os._exit(0)  # without destructors: those of PyTorch 2.13 abort now and then ("terminate called without an active exception")
