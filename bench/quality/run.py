#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Validation loss at equal samples and equal samples a step, for schedules, encodings and splits: toy_gpt with all ranks in one process, several seeds,
learning rates and numbers of ranks. Every finished run is kept in --results; a second call goes on where the first one ended, and prints the table of all.

  bench/quality/run.py --data TEXT [--results quality.jsonl] [--ranks 2,4,8] [--rates 1e-3,3e-3] [--seeds 1,2,3] [--samples 25600] [--minutes 60]

With --family, all schedules, each at the best of three learning rates, which are tried with the first seed; the other seeds run at the best one:

  bench/quality/run.py --data TEXT --family [--ranks 4,8] [--rates 1e-3,3e-3,1e-2] [...]

With --rules, what a delay of one step costs each update rule, at the best of four learning rates of its own, tried with the first seed:

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
# --family: where it is not 8 and 8, the micro-batches of the parts of a step, and the steps from one exchange to the next
SPLITS = {"two_phase": ("4:4", "6:2", "7:1"), "two_phase+own": ("6:2",), "two_phase+own_corrected": ("6:2",)}
LOCAL_STEPS = {"overlap_local_sgd": 2}
ENCODED_EXCHANGES = ["diloco+int4"]
RULE_RATES = {"adamw": ("3e-4", "1e-3", "3e-3", "1e-2"), "sgd": ("0.03", "0.1", "0.3", "1"), "lion": ("3e-4", "1e-3", "3e-3", "1e-2"), "muon": ("3e-3", "1e-2", "3e-2", "1e-1")}
RULE_CONFIGURATIONS = [("synchronous", "8"), ("delayed", "8"), ("two_phase", "6:2")]
MODEL = ["--layers", "2", "--width", "64", "--heads", "4", "--context", "64", "--batch", "4"]


def flags_of(label, split, local_steps=0):
    schedule, _, wire = label.partition("+")
    flags = ["--schedule", schedule, "--micro-batches", split]
    if local_steps:
        return flags + ["--local-steps", str(local_steps)] + (["--exchange", wire] if wire else [])
    if wire in ("coded", "feedback"):
        return flags + ["--commit", wire]
    return flags + (["--estimate", wire] if wire else [])


def names(toy):
    """Pairs (kind, name) of all schedules and rules of the program: kinds are schedule, local, rule."""
    return [tuple(line.split()) for line in subprocess.run([toy, "--list"], check=True, capture_output=True, text=True).stdout.splitlines()]


def family_of(toy):
    """Rows of the table: label, micro-batches, steps from one exchange to the next (0: no local updates)."""
    rows = []
    for kind, label in names(toy) + [("local", each) for each in ENCODED_EXCHANGES]:
        if kind == "local":
            rows.append((label, "8", LOCAL_STEPS.get(label, 8)))
        elif kind == "schedule":
            rows += [(label, split, 0) for split in SPLITS.get(label, ("7:1",) if label.startswith("two_phase") else ("8",))]
    return rows


class Runs:
    """Finished runs, and those that are still to be made while there is time."""

    def __init__(self, toy, arguments):
        self.toy, self.a, self.began, self.left, self.done = toy, arguments, time.time(), 0, {}
        self.text = os.path.basename(arguments.data) if arguments.data else "this repository"
        if os.path.exists(arguments.results):
            for line in open(arguments.results):
                r = json.loads(line)
                self.done[tuple(r["key"])] = r

    def key(self, label, split, ranks, rate, seed, rule, local_steps=0):
        key = (" ".join(MODEL), self.text, self.a.samples, label, split, ranks, rate, seed)
        key = key if rule == "adamw" else key + (rule,)
        return key if not local_steps else key + (local_steps,)

    def loss(self, *of):
        found = self.done.get(self.key(*of))
        return None if found is None else found["loss"]

    def tuned(self, label, split, ranks, rates, seeds, rule="adamw", local_steps=0):
        """Losses of all seeds at the rate that is best for the first one, that rate, and the first run; None while runs are missing."""
        for rate in rates:
            self.make(label, split, ranks, rate, seeds[0], rule, local_steps)
        first = {rate: self.loss(label, split, ranks, rate, seeds[0], rule, local_steps) for rate in rates}
        if None in first.values():
            return None
        best = min(rates, key=first.get)
        for seed in seeds[1:]:
            self.make(label, split, ranks, best, seed, rule, local_steps)
        losses = [self.loss(label, split, ranks, best, seed, rule, local_steps) for seed in seeds]
        return None if None in losses else (losses, best, self.done[self.key(label, split, ranks, best, seeds[0], rule, local_steps)])

    def make(self, label, split, ranks, rate, seed, rule, local_steps=0):
        key = self.key(label, split, ranks, rate, seed, rule, local_steps)
        if key in self.done:
            return
        if time.time() - self.began > 60 * self.a.minutes:
            self.left += 1
            return
        log = os.path.join(tempfile.mkdtemp(), "log.jsonl")
        warmup = ["--warmup", str(self.a.samples // 20)]
        words = [self.toy, *MODEL, *flags_of(label, split, local_steps), "--rule", rule, "--ranks", ranks, "--learning-rate", rate, "--seed", seed, "--samples", str(self.a.samples), *warmup,
                 "--quiet", "--validations", "1", "--log", log] + (["--data", self.a.data] if self.a.data else [])
        ended = subprocess.run(words, capture_output=True, text=True)
        if ended.returncode != 0 and "not finite" not in ended.stderr and "not a number" not in ended.stderr:
            sys.exit(f"{' '.join(words)}\n{ended.stderr}")
        if ended.returncode != 0:  # diverged: as bad as a guess
            last = {"validation_loss": 5.5452, "seconds": 0, "parameters": 1, "steps": 1, "bytes_sent": 0, "memory_bytes": 0}
        else:
            last = json.loads(open(log).read().strip().splitlines()[-1])
            last["validation_loss"] = min(5.5452, last["validation_loss"] or 5.5452)  # not a number is null; nor does a run count worse than one with an error
        per_step = last["bytes_sent"] / last["parameters"] / last["steps"] * int(ranks) / (int(ranks) - 1)
        self.done[key] = {"key": key, "loss": last["validation_loss"], "seconds": last["seconds"], "bytes": per_step, "memory": last["memory_bytes"] / last["parameters"]}
        with open(self.a.results, "a") as out:
            out.write(json.dumps(self.done[key]) + "\n")


def family(runs, a):
    """Every row at its best rate, in the order of the program's list: N by N, so that one N is complete early."""
    seeds, rates, rows = a.seeds.split(","), a.rates.split(","), family_of(runs.toy)
    found = {}
    for ranks in a.ranks.split(","):
        for row in rows:
            label, split, steps = row
            found[row, ranks] = runs.tuned(label, split, ranks, rates, seeds, local_steps=steps)
    print(f"\n{runs.text}, {a.samples} sequences, seeds {a.seeds}, rates {a.rates}: mean validation loss (spread) at the best rate, its difference to synchronous at its best, and that rate\n")
    print("| schedule | micro-batches | H | " + " | ".join(f"N = {n}" for n in a.ranks.split(",")) + " | bytes a parameter and step | memory, bytes a parameter, " + ", ".join(f"N = {n}" for n in a.ranks.split(",")) + " |")
    print("|---|---|---|" + "---|" * len(a.ranks.split(",")) + "---|---|")
    for row in rows:
        label, split, steps = row
        cells, sent, memory = [], "-", []
        for ranks in a.ranks.split(","):
            one, base = found[row, ranks], found[rows[0], ranks]
            if one is None or base is None:
                cells.append("-")
                continue
            losses, rate, first = one
            sent = f"{first['bytes']:.2f}"
            memory.append(f"{first['memory']:.1f}")
            cells.append(f"{statistics.mean(losses):.4f} ({max(losses) - min(losses):.4f}) {100 * (statistics.mean(losses) / statistics.mean(base[0]) - 1):+.2f} %, {rate}")
        print(f"| {label} | {split.replace(':', ' + ')} | {steps or ''} | " + " | ".join(cells) + f" | {sent} | {', '.join(memory) or '-'} |")


def by_rule(runs, a, rules):
    seeds = a.seeds.split(",")
    for ranks in a.ranks.split(","):
        rows = []
        for rule in rules:
            rows.append((rule, [runs.tuned(label, split, ranks, RULE_RATES.get(rule, RULE_RATES["adamw"]), seeds, rule) for label, split in RULE_CONFIGURATIONS]))
        print(f"\n{runs.text}, {a.samples} sequences, {ranks} ranks, seeds {a.seeds}: mean validation loss at the best of four learning rates (which), and its difference to synchronous at its best\n")
        print("| rule | " + " | ".join(label for label, _ in RULE_CONFIGURATIONS) + " |")
        print("|---|" + "---|" * len(RULE_CONFIGURATIONS))
        for rule, found in rows:
            cells = []
            for one in found:
                if one is None or found[0] is None:
                    cells.append("-")
                    continue
                loss, base = statistics.mean(one[0]), statistics.mean(found[0][0])
                cells.append(f"{loss:.4f} ({one[1]})" + ("" if one is found[0] else f" {loss - base:+.4f}"))
            print(f"| {rule} | " + " | ".join(cells) + " |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"))
    parser.add_argument("--data", help="text; without it, the repository's own")
    parser.add_argument("--results", default="quality.jsonl", help="finished runs, one JSON object a line")
    parser.add_argument("--ranks", help="default: 2,4,8; with --family 4,8; with --rules 4")
    parser.add_argument("--rates", help="default: 1e-3,3e-3; with --family 1e-2, too")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--samples", type=int, default=25600)
    parser.add_argument("--rules", help="compare these rules")
    parser.add_argument("--family", action="store_true", help="compare all schedules")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no run after so long")
    a = parser.parse_args()
    a.ranks = a.ranks or ("4,8" if a.family else "4" if a.rules else "2,4,8")
    a.rates = a.rates or ("1e-3,3e-3,1e-2" if a.family else "1e-3,3e-3")
    name = "toy_gpt_family" if a.family or a.rules else "toy_gpt"
    toy = os.path.join(a.build, "examples/toy_gpt", name)
    if not os.path.exists(toy):
        sys.exit(f"{toy} is not built: cmake --preset release && cmake --build build/release --target {name}")
    runs = Runs(toy, a)
    if a.family or a.rules:
        if a.family:
            family(runs, a)
        else:
            rules, known = a.rules.split(","), [name for kind, name in names(toy) if kind == "rule"]
            if not set(rules) <= set(known):
                sys.exit(f"--rules: there are {', '.join(known)}")
            by_rule(runs, a, rules)
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
