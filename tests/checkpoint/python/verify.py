#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Verifies checkpoints, from docs/checkpoints.md alone: it shares no line with the library that writes them.

python3 verify.py FOLDER...           says of each checkpoint in these folders, and below, whether it is whole; exit status 1: one is not
python3 verify.py --flip FOLDER...    must refuse each with any of many bits flipped, and each file cut, missing or made longer

Needs the packages numpy, safetensors and xxhash; where they are missing it says so, and ends with 77.
"""
import json
import os
import re
import shutil
import sys
import tempfile

try:
    import numpy as np
    import safetensors
    import xxhash
except ImportError as missing:
    print(f"skipped: {missing} (pip install numpy safetensors xxhash)")
    sys.exit(77)

BLOCK, CHUNK, MASK = 4096, 1 << 20, (1 << 64) - 1
SIZES = {"F32": 4, "F64": 8, "BF16": 2, "F16": 2}
KEYS = ("format library run session sequence restarts step samples digest master parameter arrays state ranks construction "
        "files sum").split()


class Wrong(Exception):
    pass


def demand(holds, words):
    if not holds:
        raise Wrong(words)


def sum_of_chunk(data, first_block):
    total = 0
    for k in range(0, len(data), BLOCK):
        total += xxhash.xxh3_64_intdigest(data[k : k + BLOCK], seed=first_block + k // BLOCK)
    return total & MASK


def number(text):
    demand(isinstance(text, str) and re.fullmatch("[0-9a-f]{16}", text), f"{text!r} is no sum")
    return int(text, 16)


def mix(x):
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return x ^ (x >> np.uint64(31))


def digest_of_array(bits, first, stride):
    """The part of all elements of one array: element i of the trainable ones has the number first + i * stride."""
    with np.errstate(over="ignore"):
        place = np.arange(len(bits), dtype=np.uint64) * np.uint64(stride) + np.uint64(first)
        return int(np.sum(mix(bits.astype(np.uint64) + place * np.uint64(0x9E3779B97F4A7C15)), dtype=np.uint64))


def read_manifest(folder):
    with open(f"{folder}/manifest.json", "rb") as file:
        raw = file.read()
    end = re.search(rb',\n "sum": "([0-9a-f]{16})"\n}\n\Z', raw)
    demand(end, "manifest.json does not end with its sum")
    demand(xxhash.xxh3_64_intdigest(raw[: end.start()]) == int(end.group(1), 16), "manifest.json: its own sum is wrong")
    manifest = json.loads(raw)
    demand([key for key in manifest if key != "from"] == KEYS, f"manifest.json has the keys {list(manifest)}")
    demand(manifest["format"] == "acco-checkpoint 1", "another format")
    return manifest


def check_tensor_file(name, raw, record, manifest):
    """Returns the tensors' names and shapes, and their data."""
    length = int.from_bytes(raw[:8], "little")
    demand(8 + length == record["data"] and record["data"] % BLOCK == 0, f"{name}: its data begin elsewhere")
    text = raw[8 : 8 + length]
    header = json.loads(text)
    # the spaces reach no further than to the next multiple
    demand(8 + len(text.rstrip(b" ")) > record["data"] - BLOCK and text.rstrip(b" ").endswith(b"}"), f"{name}: more spaces than needed")
    about = header.pop("__metadata__")
    demand(about == {"format": "acco-checkpoint 1", "run": manifest["run"], "step": str(manifest["step"])},
           f"{name} says of itself {about}")
    expected = record["type"]
    at, tensors = 0, []
    for tensor, each in header.items():
        begin, end = each["data_offsets"]
        size = SIZES[each["dtype"]]
        for extent in each["shape"]:
            size *= extent
        demand(each["dtype"] == expected, f"{name}: tensor {tensor!r} is of {each['dtype']}")
        demand(begin == at and end == at + size, f"{name}: tensor {tensor!r} lies at {begin} to {end}")
        at = end
        tensors.append((tensor, tuple(each["shape"])))
    demand(record["data"] + at == record["bytes"], f"{name}: its tensors have {at} bytes")
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as file:  # the package takes it, too
        file.write(raw)
        file.flush()
        with safetensors.safe_open(file.name, "np") as opened:
            demand(set(opened.keys()) == {tensor for tensor, _ in tensors}, f"{name}: safetensors finds other tensors")
            for tensor, shape in tensors:
                demand(tuple(opened.get_slice(tensor).get_shape()) == shape, f"{name}: safetensors finds another shape of {tensor!r}")
    return tensors, raw[record["data"] :]


def slots_of_anchor(manifest):
    """The files of the outer rule's slots."""
    before = "outer: rule = "
    rule = [line.removeprefix(before) for line in manifest["construction"] if line.startswith(before)]
    demand(len(rule) == 1, f"the construction names the outer rules {rule}")
    stem = re.sub("[^A-Za-z0-9_-]", "_", rule[0]) or "rule"
    there, slots = {record["name"] for record in manifest["files"]}, []
    while f"{stem}.{len(slots)}.safetensors" in there:
        slots.append(f"{stem}.{len(slots)}.safetensors")
    return slots


def verify(folder):
    """Throws what is wrong with a checkpoint; returns a line about it."""
    manifest = read_manifest(folder)
    demand(manifest["master"] in ("F32", "F64") and manifest["parameter"] in SIZES, "other types of elements")
    ranks = manifest["ranks"]
    level = ranks[0].get("local updates")
    demand(all(("local updates" in each) == (level is not None) for each in ranks), "some ranks are of local updates")
    arrays = {"shard": [], "whole": []}
    for each in manifest["arrays"]:
        demand(each["type"] in SIZES and each["use"] in ("state", "feedback"), f"the array {each}")
        arrays[each["extent"]].append(each)
    demand(manifest["arrays"] == arrays["shard"] + arrays["whole"], "arrays in another order")
    demand(arrays["shard"][0]["name"] == "master", "the first array are no masters")
    master, parameter = manifest["master"], manifest["parameter"]
    if level is None:  # the types of all files that there may be
        owned = {each["name"] + ".safetensors": each["type"] for each in arrays["shard"]}
        of_ranks = {f"{each['name']}-{rank:05}-of-{len(ranks):05}.safetensors": (k, rank, each["type"])
                    for rank in range(len(ranks)) for k, each in enumerate(arrays["whole"])}
        others = {name: parameter for name in ("shown.safetensors", "arriving.safetensors")}
    else:  # arrays are a worker's, but for the averages
        averages = [each for each in arrays["shard"] if each["name"] == "average"]
        owned = {name: master for name in ["master.safetensors"] + slots_of_anchor(manifest)}
        owned |= {"average.safetensors": master for _ in averages}
        of_ranks = {}
        others = {name: master for name in ("shown.safetensors", "arriving.safetensors")}
        for worker in range(level["workers"]):
            prefix = f"worker-{worker:05}-of-{level['workers']:05}."
            for each in (each for each in manifest["arrays"] if each not in averages):
                ranks_of = range(level["ranks_a_group"]) if each["extent"] == "whole" else [None]
                for rank in ranks_of:
                    end = "" if rank is None else f"-{rank:05}-of-{level['ranks_a_group']:05}"
                    others[f"{prefix}{each['name']}{end}.safetensors"] = each["type"]
            others |= {prefix + name + ".safetensors": parameter for name in ("shown", "arriving")}
            others |= {prefix + name + ".safetensors": master for name in ("kept", "lost")}
    others["frozen.safetensors"] = parameter
    for rank in range(len(ranks)):
        others[f"frozen-{rank:05}-of-{len(ranks):05}.safetensors"] = parameter
        others |= {name: each for name, (_, of, each) in of_ranks.items() if of == rank}
    own = [f"trainer-{rank:05}-of-{len(ranks):05}" for rank, each in enumerate(ranks) if each["trainer"]]
    records = {record["name"]: record for record in manifest["files"]}
    names = list(records)
    demand(len(names) == len(manifest["files"]), "a file is named twice")
    demand(names == list(owned) + [name for name in others if name in records] + own, f"the files are {names}")
    for worker in range(level["workers"] if level else 0):  # all workers have the same
        first, mine = (f"worker-{each:05}-of-{level['workers']:05}." for each in (0, worker))
        same = [mine + name.removeprefix(first) for name in names if name.startswith(first)]
        demand(mine + "master.safetensors" in names and same == [name for name in names if name.startswith(mine)],
               f"worker {worker} has other files than worker 0")
    demand(sorted(os.listdir(folder)) == sorted(names + ["manifest.json"]), f"the folder holds {sorted(os.listdir(folder))}")

    layout, frozen, digest = None, set(), 0
    for name, record in records.items():
        record["type"] = None if name in own else (owned | others)[name]
        with open(f"{folder}/{name}", "rb") as file:
            raw = file.read()
        demand(len(raw) == record["bytes"], f"{name} has {len(raw)} bytes, not {record['bytes']}")
        demand(xxhash.xxh3_64_intdigest(raw[: record["data"]]) == number(record["header"]), f"{name}: its header is damaged")
        data = raw[record["data"] :]
        demand(len(record["chunks"]) == -(-len(data) // CHUNK), f"{name}: another number of chunks")
        for k, told in enumerate(record["chunks"]):
            found = sum_of_chunk(data[k * CHUNK : (k + 1) * CHUNK], k * CHUNK // BLOCK)
            demand(found == number(told), f"{name}: chunk {k} is damaged")
        if name in own:
            demand(record["data"] == 0, f"{name}: its data begin elsewhere")
            continue
        tensors, data = check_tensor_file(name, raw, record, manifest)
        if name.startswith("frozen"):
            frozen |= {tensor for tensor, _ in tensors}
            continue
        layout = layout or tensors
        demand(tensors == layout, f"{name}: other tensors than in master.safetensors")
        bits = np.frombuffer(data, f"<u{SIZES[record['type']]}")
        if name in owned:
            digest += digest_of_array(bits, list(owned).index(name) + 1, len(owned))
        if name in of_ranks:
            array, rank, _ = of_ranks[name]
            digest += digest_of_array(bits, (1 << 63) + rank * len(arrays["whole"]) + array, len(ranks) * len(arrays["whole"]))
    demand(not frozen & {tensor for tensor, _ in layout}, "a tensor is trainable and frozen")

    samples = np.array([manifest["samples"]], "<f8")
    digest += int(mix(np.uint64(manifest["step"] + 1))) + int(mix(samples.view("<u8")[0] + np.uint64(2)))
    demand(digest & MASK == number(manifest["digest"]), f"the digest is {digest & MASK:016x}, not {manifest['digest']}")
    check_numbers(manifest)
    elements = sum(int(np.prod(shape)) for _, shape in layout)
    return (f"{folder}: whole; step {manifest['step']}, {len(layout)} tensors, {elements} elements in {manifest['master']}, "
            f"{len(ranks)} ranks, digest {manifest['digest']}")


STATE = {
    int: "round; updates before; skipped in a row; empty in a row; rounds; "
         "rounds skipped",
    bool: "completed; round applied; round skipped; round spike; round differences; round digested",
    str: "samples before; step weight; step loss sum; estimate seconds; commit seconds; weight dropped; "
         "round squares; round weight; round loss scale; round norm; round clip; round rate; round seconds; "
         "round digest",
    list: "norms; pace; round regions",
    dict: "round counts",
}


LEVEL = {
    int: "workers; ranks_a_group; phase; updates seen; steps before; whole steps; own steps",
    str: "whole samples; own samples",
    bool: "shows; arrives",
    dict: "worker",
    list: "fragments",
}
FRAGMENT = {
    int: "exchanges; exchanges before; bytes_sent",
    str: "samples; samples sent",
    bool: "pending; shows; arrives",
    dict: "state",
}


def check_kinds(what, numbers, kinds):
    expected = {key: kind for kind, keys in kinds.items() for key in keys.split("; ")}
    demand(set(numbers) - {"updates", "own round", "seconds a step"} == set(expected), f"{what} has other keys: {sorted(set(numbers) ^ set(expected))}")
    for key, kind in expected.items():
        demand(type(numbers[key]) is kind, f"{what}: {key!r} is {numbers[key]!r}")
        if kind is str and key != "round digest":
            float.fromhex(numbers[key])


def check_state(state):
    """Returns the steps and the samples that it comes to."""
    check_kinds("state", state, STATE)
    for text in (*state["norms"], *state["pace"], *state["round regions"], *state["round counts"].values()):
        float.fromhex(text)
    number(state["round digest"])
    demand(len(state["pace"]) == 5 and len(state["norms"]) <= 64, "state: other numbers of numbers")
    demand({"weight", "loss"} <= set(state["round counts"]), "round counts: no weight or no loss")
    applied = state["completed"] and state["round applied"]
    return (state["updates before"] + (1 if applied else 0),
            float.fromhex(state["samples before"]) + (float.fromhex(state["round weight"]) if applied else 0))


def check_numbers(manifest):
    steps, samples = check_state(manifest["state"])
    demand(manifest["step"] == steps, "state: the steps do not add up")
    demand(manifest["samples"] == samples, "state: the samples do not add up")
    workers = {}
    for rank, each in enumerate(manifest["ranks"]):
        demand([key for key in each if key != "local updates"] == ["micro_batches", "bytes_sent", "trainer"],
               f"a rank has the keys {list(each)}")
        if "local updates" not in each:
            continue
        level = each["local updates"]
        check_kinds("local updates", level, LEVEL)
        demand(level["workers"] * level["ranks_a_group"] == len(manifest["ranks"]), "local updates: other numbers of ranks")
        worker = workers.setdefault(rank // level["ranks_a_group"], check_state(level["worker"]))
        demand(worker == check_state(level["worker"]), "local updates: ranks of a worker have other steps or samples")
        demand(level["fragments"], "local updates: no fragments")
        for fragment in level["fragments"]:
            check_kinds("fragment", fragment, FRAGMENT)
            check_state(fragment["state"])


def refuses(folder, what):
    try:
        verify(folder)
    except (Wrong, ValueError, KeyError, OSError, UnicodeDecodeError, safetensors.SafetensorError):
        return 1
    sys.exit(f"{folder}: {what} was not noticed")


def flip(original):
    """How often a copy with one thing wrong was refused."""
    count = 0
    random = np.random.default_rng(1)
    with tempfile.TemporaryDirectory() as scratch:
        folder = f"{scratch}/copy"
        shutil.copytree(original, folder)
        for name in sorted(os.listdir(folder)):
            path = f"{folder}/{name}"
            with open(path, "rb") as file:
                raw = file.read()
            places = {0, 7, 8, len(raw) // 2, len(raw) - 1} | {int(k) for k in random.integers(0, max(len(raw), 1), 12)}
            for place in (k for k in sorted(places) if 0 <= k < len(raw)):
                bad = bytearray(raw)
                bad[place] ^= 1 << int(random.integers(0, 8))
                with open(path, "wb") as file:
                    file.write(bad)
                count += refuses(folder, f"a flipped bit of byte {place} of {name}")
            for what, bad in (("a byte less in ", raw[:-1]), ("a byte more in ", raw + b"\0")):
                if bad != raw:
                    with open(path, "wb") as file:
                        file.write(bad)
                    count += refuses(folder, what + name)
            os.remove(path)
            count += refuses(folder, "the lack of " + name)
            with open(path, "wb") as file:
                file.write(raw)
        verify(folder)
    return count


def main(words):
    flips = words[:1] == ["--flip"]
    folders = []
    for each in words[1:] if flips else words:
        below = sorted(found for found, _, files in os.walk(each) if "manifest.json" in files)
        folders += below or [each]
    if not folders:
        sys.exit(__doc__)
    bad = 0
    for folder in folders:
        try:
            print(verify(folder))
            if flips:
                print(f"  and {flip(folder)} damaged copies of it were refused")
        except (Wrong, ValueError, KeyError, OSError) as problem:
            print(f"{folder}: {problem}")
            bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
