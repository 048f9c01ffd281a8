#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Reads what write_some wrote with other people's readers, and compares every element with the parameters that it left beside.

python3 read.py FOLDER            with the package safetensors
python3 read.py --torch FOLDER    with PyTorch: safetensors.torch, and the reader of torch.distributed.checkpoint

Where a package is missing it says so, and ends with 77.
"""
import glob
import json
import os
import sys
import tempfile

with_torch = sys.argv[1] == "--torch"
root = sys.argv[-1]
try:
    import numpy as np
    from safetensors.numpy import load_file

    if with_torch:
        import torch
        import torch.distributed.checkpoint as dcp
        from safetensors.torch import load_file

        reader = dcp.HuggingFaceStorageReader  # that older ones lack
except (ImportError, AttributeError) as missing:
    print(f"skipped: {missing} (pip install numpy safetensors" + (" torch)" if with_torch else ")"))
    sys.exit(77)


def newest(run):
    """The manifest of the newest checkpoint of a run, and its folder."""
    found = []
    for name in glob.glob(glob.escape(run) + "/step-*/manifest.json"):
        with open(name, encoding="utf-8") as file:
            found.append((json.load(file), os.path.dirname(name)))
    return max(found, key=lambda each: each[0]["sequence"])


def read(path):
    weights = load_file(path)
    return {name: each.numpy() if with_torch and each.dtype != torch.bfloat16 else each for name, each in weights.items()}


def bytes_as(values, dtype):
    """The parameters that masters become."""
    if dtype == "BF16":  # numpy has none; to the nearest, ties to even
        bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
        return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype("<u2").tobytes()
    return np.asarray(values).astype({"F32": "<f4", "F64": "<f8", "F16": "<f2"}[dtype]).tobytes()


def raw(each):
    return each.view(torch.uint16).numpy().tobytes() if with_torch and isinstance(each, torch.Tensor) else each.tobytes()


compared = 0
for case in sorted(glob.glob(root + "/*/run")):
    manifest, folder = newest(case)
    dtype = manifest["parameter"]
    masters = read(f"{folder}/master.safetensors")
    still = {}
    if os.path.exists(f"{folder}/frozen.safetensors"):
        if dtype == "BF16" and not with_torch:
            print(f"{case}: frozen tensors are left out: numpy has no bfloat16")
        else:
            still = read(f"{folder}/frozen.safetensors")
    with open(os.path.dirname(case) + "/parameters", "rb") as file:
        expected = file.read()
    lines = [line.removeprefix("layout: ").split(" = ", 1) for line in manifest["construction"] if line.startswith("layout: ")]
    tensors = []
    for what, value in lines:
        if what == "tensor":
            tensors.append((value, []))
        elif what == "extent":
            tensors[-1][1].append(int(value))
    at = 0
    for name, shape in tensors:
        size = int(np.prod(shape)) * (8 if dtype == "F64" else 4 if dtype == "F32" else 2)
        if name in masters:
            assert list(masters[name].shape) == shape, f"{folder}: {name} has the shape {masters[name].shape}"
            assert bytes_as(masters[name], dtype) == expected[at : at + size], f"{folder}: {name} has other elements"
            compared += 1
        elif name in still:
            assert list(still[name].shape) == shape and raw(still[name]) == expected[at : at + size], f"{folder}: frozen {name}"
            compared += 1
        else:
            assert dtype == "BF16" and name.startswith("still."), f"{folder}: there is no {name}"
        at += size
    assert at == len(expected), f"{folder}: {at} bytes of {len(expected)}"
    for path in glob.glob(glob.escape(folder) + "/*.safetensors"):  # slots, averages: the same tensors
        if with_torch or "BF16" not in (dtype if "shown" in path or "arriving" in path or "frozen" in path else ""):
            assert "frozen" in path or set(read(path)) == set(masters), path
    if with_torch:
        with tempfile.TemporaryDirectory() as alone:  # this reader takes all files of a folder for one model
            os.symlink(os.path.abspath(f"{folder}/master.safetensors"), f"{alone}/master.safetensors")
            model = {name: torch.zeros(each.shape, dtype=getattr(torch, str(each.dtype))) for name, each in masters.items()}
            dcp.load(model, storage_reader=reader(alone), no_dist=True)
            for name, each in masters.items():
                assert model[name].numpy().tobytes() == each.tobytes(), f"{folder}: {name}, by PyTorch's reader"
print(f"{compared} tensors have every element")
sys.exit(0 if compared > 20 else 1)
