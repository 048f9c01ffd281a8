#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Validation loss at equal samples and equal samples a step, for schedules, encodings and splits: toy_gpt with all ranks in one process, several seeds,
learning rates and numbers of ranks. Every finished run is kept in --results; a second call goes on where the first one ended, and prints the table of all.

  bench/quality/run.py --data TEXT [--results quality.jsonl] [--ranks 2,4,8] [--rates 1e-3,3e-3] [--seeds 1,2,3] [--samples 25600] [--minutes 60]
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# label on the command line, micro-batches of the parts of a step
CONFIGURATIONS = [("synchronous", "8"), ("delayed", "8"), ("weight_prediction", "8"), ("two_phase", "4:4"), ("two_phase", "7:1"), ("two_phase+int8", "4:4"), ("two_phase+int8", "6:2"),
                  ("two_phase+int8", "7:1"), ("two_phase+int4", "4:4"), ("two_phase+int4", "6:2"), ("two_phase+int4", "7:1"), ("two_phase+coded", "7:1")]
MODEL = ["--layers", "2", "--width", "64", "--heads", "4", "--context", "64", "--batch", "4"]


def flags_of(label, split):
    schedule, _, wire = label.partition("+")
    flags = ["--schedule", schedule, "--micro-batches", split]
    if wire == "coded":
        return flags + ["--estimate", "int4", "--commit", "coded"]
    return flags + (["--estimate", wire] if wire else [])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"))
    parser.add_argument("--data", help="text; without it, the repository's own")
    parser.add_argument("--results", default="quality.jsonl", help="finished runs, one JSON object a line")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--rates", default="1e-3,3e-3")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--samples", type=int, default=25600)
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no run after so long")
    a = parser.parse_args()
    toy = os.path.join(a.build, "examples/toy_gpt/toy_gpt")
    if not os.path.exists(toy):
        sys.exit(f"{toy} is not built: cmake --preset release && cmake --build build/release --target toy_gpt")
    text = os.path.basename(a.data) if a.data else "this repository"
    done = {}
    if os.path.exists(a.results):
        for line in open(a.results):
            r = json.loads(line)
            done[tuple(r["key"])] = r["loss"]
    began = time.time()
    left = 0
    for seed in a.seeds.split(","):  # the outer loop: a table with few seeds is complete early
        for ranks in a.ranks.split(","):
            for rate in a.rates.split(","):
                for label, split in CONFIGURATIONS:
                    key = (" ".join(MODEL), text, a.samples, label, split, ranks, rate, seed)
                    if key in done:
                        continue
                    if time.time() - began > 60 * a.minutes:
                        left += 1
                        continue
                    log = os.path.join(tempfile.mkdtemp(), "log.jsonl")
                    warmup = ["--warmup", str(a.samples // 20)]
                    words = [toy, *MODEL, *flags_of(label, split), "--ranks", ranks, "--learning-rate", rate, "--seed", seed, "--samples", str(a.samples), *warmup,
                             "--quiet", "--validations", "1", "--log", log] + (["--data", a.data] if a.data else [])
                    subprocess.run(words, check=True, capture_output=True)
                    last = json.loads(open(log).read().strip().splitlines()[-1])
                    done[key] = last["validation_loss"]
                    with open(a.results, "a") as out:
                        out.write(json.dumps({"key": key, "loss": last["validation_loss"], "seconds": last["seconds"]}) + "\n")
    if left:
        print(f"{left} runs are left: call again")
    for rate in a.rates.split(","):
        print(f"\n{text}, {a.samples} sequences, learning rate {rate}: mean validation loss (spread), and the mean difference to synchronous at the same seed\n")
        print("| schedule | micro-batches | " + " | ".join(f"N = {n}" for n in a.ranks.split(",")) + " |")
        print("|---|---|" + "---|" * len(a.ranks.split(",")))
        for label, split in CONFIGURATIONS:
            cells = []
            for ranks in a.ranks.split(","):
                losses, changes = [], []
                for seed in a.seeds.split(","):
                    loss = done.get((" ".join(MODEL), text, a.samples, label, split, ranks, rate, seed))
                    base = done.get((" ".join(MODEL), text, a.samples, "synchronous", "8", ranks, rate, seed))
                    if loss is not None and base is not None:
                        losses.append(loss)
                        changes.append(100 * (loss / base - 1))
                cells.append(f"{statistics.mean(losses):.4f} ({max(losses) - min(losses):.4f}) {statistics.mean(changes):+.2f} %" if losses else "-")
            print(f"| {label} | {split.replace(':', ' + ')} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
