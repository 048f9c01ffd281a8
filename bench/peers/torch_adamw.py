#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's fused AdamW on a GPU, beside bench/cuda/update.cu: microseconds a step and GB/s of the bytes that it has to move."""
import statistics

import torch

if not torch.cuda.is_available():
    print("skipped: PyTorch sees no GPU")
    raise SystemExit
print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}\n| parameters | us | GB/s |\n|---|---|---|")
for exponent in (20, 24, 28):
    count = 1 << exponent
    parameter = torch.zeros(count, device="cuda", requires_grad=True)
    parameter.grad = torch.zeros(count, device="cuda")
    optimizer = torch.optim.AdamW([parameter], fused=True)
    times = []
    for k in range(18):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        optimizer.step()
        end.record()
        torch.cuda.synchronize()
        if k >= 3:
            times.append(begin.elapsed_time(end) * 1e-3)
    seconds = statistics.median(times)
    print(f"| {count} | {1e6 * seconds:.1f} | {28 * count / seconds * 1e-9:.0f} |")
