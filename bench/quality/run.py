#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Validation loss at equal samples and equal samples a step, for schedules, encodings and splits: toy_gpt with all ranks in one process, several seeds,
learning rates and numbers of ranks. Every finished run is kept in --results; a second call goes on where the first one ended, and prints the table of all.

  bench/quality/run.py --data TEXT [--results quality.jsonl] [--ranks 2,4,8] [--rates 1e-3,3e-3] [--seeds 1,2,3] [--samples 25600] [--minutes 60]

With --rules, what a delay of one step costs each update rule, at the best of four learning rates of its own:

  bench/quality/run.py --data TEXT --rules adamw,sgd,lion,muon [--ranks 4] [...]
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
RULE_RATES = {"adamw": ("3e-4", "1e-3", "3e-3", "1e-2"), "sgd": ("0.03", "0.1", "0.3", "1"), "lion": ("3e-4", "1e-3", "3e-3", "1e-2"), "muon": ("1e-3", "3e-3", "1e-2", "3e-2")}
RULE_CONFIGURATIONS = [("synchronous", "8"), ("delayed", "8"), ("two_phase", "6:2")]
MODEL = ["--layers", "2", "--width", "64", "--heads", "4", "--context", "64", "--batch", "4"]


def flags_of(label, split):
    schedule, _, wire = label.partition("+")
    flags = ["--schedule", schedule, "--micro-batches", split]
    if wire == "coded":
        return flags + ["--estimate", "int4", "--commit", "coded"]
    return flags + (["--estimate", wire] if wire else [])


class Runs:
    """Finished runs, and those that are still to be made while there is time."""

    def __init__(self, toy, arguments):
        self.toy, self.a, self.began, self.left, self.done = toy, arguments, time.time(), 0, {}
        self.text = os.path.basename(arguments.data) if arguments.data else "this repository"
        if os.path.exists(arguments.results):
            for line in open(arguments.results):
                r = json.loads(line)
                self.done[tuple(r["key"])] = r["loss"]

    def key(self, label, split, ranks, rate, seed, rule):
        key = (" ".join(MODEL), self.text, self.a.samples, label, split, ranks, rate, seed)
        return key if rule == "adamw" else key + (rule,)

    def loss(self, *of):
        return self.done.get(self.key(*of))

    def make(self, label, split, ranks, rate, seed, rule):
        key = self.key(label, split, ranks, rate, seed, rule)
        if key in self.done:
            return
        if time.time() - self.began > 60 * self.a.minutes:
            self.left += 1
            return
        log = os.path.join(tempfile.mkdtemp(), "log.jsonl")
        warmup = ["--warmup", str(self.a.samples // 20)]
        words = [self.toy, *MODEL, *flags_of(label, split), "--rule", rule, "--ranks", ranks, "--learning-rate", rate, "--seed", seed, "--samples", str(self.a.samples), *warmup,
                 "--quiet", "--validations", "1", "--log", log] + (["--data", self.a.data] if self.a.data else [])
        subprocess.run(words, check=True, capture_output=True)
        last = json.loads(open(log).read().strip().splitlines()[-1])
        self.done[key] = last["validation_loss"]
        with open(self.a.results, "a") as out:
            out.write(json.dumps({"key": key, "loss": last["validation_loss"], "seconds": last["seconds"]}) + "\n")


def by_rule(runs, a, rules):
    for seed in a.seeds.split(","):
        for ranks in a.ranks.split(","):
            for rule in rules:
                for rate in RULE_RATES[rule]:
                    for label, split in RULE_CONFIGURATIONS:
                        runs.make(label, split, ranks, rate, seed, rule)
    for ranks in a.ranks.split(","):
        print(f"\n{runs.text}, {a.samples} sequences, {ranks} ranks: mean validation loss at the best of four learning rates (which), and its difference to synchronous at its best\n")
        print("| rule | " + " | ".join(label for label, _ in RULE_CONFIGURATIONS) + " |")
        print("|---|" + "---|" * len(RULE_CONFIGURATIONS))
        for rule in rules:
            cells, base = [], None
            for label, split in RULE_CONFIGURATIONS:
                found = []
                for rate in RULE_RATES[rule]:
                    losses = [runs.loss(label, split, ranks, rate, seed, rule) for seed in a.seeds.split(",")]
                    if None not in losses:
                        found.append((statistics.mean(losses), rate))
                if len(found) < len(RULE_RATES[rule]):
                    cells.append("-")
                    continue
                loss, rate = min(found)
                base = loss if base is None else base
                cells.append(f"{loss:.4f} ({rate})" + ("" if label == "synchronous" else f" {loss - base:+.4f}"))
            print(f"| {rule} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"))
    parser.add_argument("--data", help="text; without it, the repository's own")
    parser.add_argument("--results", default="quality.jsonl", help="finished runs, one JSON object a line")
    parser.add_argument("--ranks", default="2,4,8")
    parser.add_argument("--rates", default="1e-3,3e-3")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--samples", type=int, default=25600)
    parser.add_argument("--rules", help="compare these rules")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no run after so long")
    a = parser.parse_args()
    toy = os.path.join(a.build, "examples/toy_gpt/toy_gpt")
    if not os.path.exists(toy):
        sys.exit(f"{toy} is not built: cmake --preset release && cmake --build build/release --target toy_gpt")
    runs = Runs(toy, a)
    if a.rules:
        by_rule(runs, a, a.rules.split(","))
        if runs.left:
            print(f"{runs.left} runs are left: call again")
        return
    for seed in a.seeds.split(","):  # the outer loop: a table with few seeds is complete early
        for ranks in a.ranks.split(","):
            for rate in a.rates.split(","):
                for label, split in CONFIGURATIONS:
                    runs.make(label, split, ranks, rate, seed, "adamw")
    if runs.left:
        print(f"{runs.left} runs are left: call again")
    for rate in a.rates.split(","):
        print(f"\n{runs.text}, {a.samples} sequences, learning rate {rate}: mean validation loss (spread), and the mean difference to synchronous at the same seed\n")
        print("| schedule | micro-batches | " + " | ".join(f"N = {n}" for n in a.ranks.split(",")) + " |")
        print("|---|---|" + "---|" * len(a.ranks.split(",")))
        for label, split in CONFIGURATIONS:
            cells = []
            for ranks in a.ranks.split(","):
                losses, changes = [], []
                for seed in a.seeds.split(","):
                    loss = runs.loss(label, split, ranks, rate, seed, "adamw")
                    base = runs.loss("synchronous", "8", ranks, rate, seed, "adamw")
                    if loss is not None and base is not None:
                        losses.append(loss)
                        changes.append(100 * (loss / base - 1))
                cells.append(f"{statistics.mean(losses):.4f} ({max(losses) - min(losses):.4f}) {statistics.mean(changes):+.2f} %" if losses else "-")
            print(f"| {label} | {split.replace(':', ' + ')} | " + " | ".join(cells) + " |")


if __name__ == "__main__":
    main()
