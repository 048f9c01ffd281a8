#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's fused AdamW on a GPU, beside bench/cuda/update.cu: microseconds a step and GB/s of the bytes that it has to move.

One tensor, and 96 x 8 of two groups in turn; several sets of them where they would fit into the cache. One JSON object a line."""
import json
import statistics
import time

try:
    import torch
except ImportError as e:
    print(f"skipped: {e}")
    raise SystemExit
if not torch.cuda.is_available():
    print("skipped: PyTorch sees no GPU")
    raise SystemExit


def optimizer_of(count, tensors):
    groups = [{"params": []}, {"params": [], "weight_decay": 0.0}]
    for k in range(tensors):
        size = count // tensors | 1 if tensors > 1 else count
        parameter = torch.zeros(size, device="cuda", requires_grad=True)
        parameter.grad = torch.full((size,), 1e-3, device="cuda")
        groups[k % 2]["params"].append(parameter)
    return torch.optim.AdamW([g for g in groups if g["params"]], fused=True)


def seconds_of_step(count, tensors):
    """Batches of steps between two events; the GPU is busy when the first is enqueued, so that the host is ahead of it."""
    cache = torch.cuda.get_device_properties(0).L2_cache_size
    sets = [optimizer_of(count, tensors) for _ in range(max(1, min(16, 4 * cache // (28 * count))))]
    for each in sets:
        each.step()
    torch.cuda.synchronize()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    all_times, launches = [], 4 if count >= 1 << 26 else 20
    for _ in range(5):
        torch.cuda._sleep(launches * 1_000_000)  # clock cycles
        begin.record()
        for k in range(launches):
            sets[k % len(sets)].step()
        end.record()
        torch.cuda.synchronize()
        all_times.append(begin.elapsed_time(end) * 1e-3 / launches)
    return statistics.median(all_times)


def main():
    print(json.dumps({"figure": "torch", "version": torch.__version__, "cuda": torch.version.cuda, "device": torch.cuda.get_device_name()}))
    started = time.monotonic()
    for exponent in (28, 24, 20, 30):
        for tensors in (1, 768):
            count = 1 << exponent
            if time.monotonic() - started > 30 or 16 * count > 0.8 * torch.cuda.mem_get_info()[0]:
                print(json.dumps({"figure": "torch_adamw", "elements": count, "tensors": tensors, "left_out": "no time, or no memory"}), flush=True)
                continue
            seconds = seconds_of_step(count, tensors)
            torch.cuda.empty_cache()
            row = {"figure": "torch_adamw", "elements": count, "tensors": tensors, "type": "float", "us": 1e6 * seconds, "gb_per_s": 28e-9 * count / seconds}
            print(json.dumps(row), flush=True)


main()
