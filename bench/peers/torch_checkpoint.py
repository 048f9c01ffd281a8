#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's distributed checkpoint, async_save, of the bytes that bench/checkpoint.cpp saves: parameters and AdamW's two moments.

torch_checkpoint.py [FOLDER] [PARAMETERS]: one process; what the trainer's thread waits for, and the seconds until it is on disk. One JSON object a line."""
import json
import shutil
import statistics
import sys
import time
import warnings

try:
    import torch
    import torch.distributed.checkpoint as dcp
except ImportError as e:
    print(f"skipped: {e}")
    raise SystemExit


def main():
    folder = sys.argv[1] if len(sys.argv) > 1 else "bench-torch-checkpoint"
    count = int(sys.argv[2]) if len(sys.argv) > 2 else 4_000_000
    warnings.simplefilter("ignore")
    try:  # async_save wants a group of processes, of the CPU
        torch.distributed.init_process_group("gloo", init_method="tcp://127.0.0.1:29581", rank=0, world_size=1)
    except (RuntimeError, ValueError) as e:
        print(f"skipped: no process group: {e}")
        return
    state = {name: torch.ones(count) for name in ("master", "adamw.0", "adamw.1")}
    waited, written, loaded = [], [], []
    for repeat in range(6):
        shutil.rmtree(folder, ignore_errors=True)
        begin = time.perf_counter()
        future = dcp.async_save(state, checkpoint_id=folder)
        waited.append(time.perf_counter() - begin)
        future.result()
        written.append(time.perf_counter() - begin)
        begin = time.perf_counter()
        dcp.load(state, checkpoint_id=folder)
        loaded.append(time.perf_counter() - begin)
    shutil.rmtree(folder, ignore_errors=True)
    print(json.dumps({"figure": "torch_checkpoint", "version": torch.__version__, "parameters": count, "bytes": 12 * count,
                      "trainer_waits_ms": round(1e3 * statistics.median(waited[1:]), 2), "first_ms": round(1e3 * waited[0], 2),
                      "written_ms": round(1e3 * statistics.median(written[1:]), 1), "load_ms": round(1e3 * statistics.median(loaded[1:]), 1)}))
    torch.distributed.destroy_process_group()


main()
