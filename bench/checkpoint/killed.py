#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains toy_gpt once in peace, and once with kill -9 at moments that nobody chose; compares every number but the times, and draws both.

python3 bench/checkpoint/killed.py [--toy-gpt build/demo/examples/toy_gpt/toy_gpt] [--kills 4] [--seed 1] [--plot FILE.svg] [-- flags of toy_gpt]
"""
import argparse
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

TIMES = {"seconds", "compute_seconds", "communication_seconds", "exposed_seconds", "bytes_sent"}


def rounds(log):
    """The rounds of a log, by number, without what depends on clocks."""
    found = {}
    with open(log, encoding="utf-8") as file:
        for line in file:
            try:
                each = json.loads(line)
            except ValueError:  # cut short by the kill
                break
            if "round" in each:
                found[each["round"]] = {key: value for key, value in each.items() if key not in TIMES}
    return found


def last_line(log):
    with open(log, encoding="utf-8") as file:
        return json.loads(file.read().splitlines()[-1])


def draw(whole, pieces, file, words):
    bins = 8

    def points(of):  # means of a few rounds, where all of them are there
        numbers = sorted(set(k // bins for k in of))
        full = [b for b in numbers if all(b * bins + k in of for k in range(bins))]
        return [(of[b * bins]["samples"], sum(of[b * bins + k]["loss"] for k in range(bins)) / bins) for b in full]

    lines = ["set terminal svg size 1000,380 font 'sans,13'", f"set output '{file}'", "set grid lc rgb '#dddddd'", "set key outside right top",
             "set xlabel 'sequences'", "set ylabel 'training loss (nats a byte)'", "set xrange [0:*]", "set autoscale xfixmax"]
    for name, of in [("whole", whole)] + [(f"piece{k}", of) for k, of in enumerate(pieces)]:
        lines.append(f"${name} << END")
        lines += [f"{x:.10g} {y:.10g}" for x, y in points(of)]
        lines.append("END")
    for k, of in enumerate(pieces[:-1]):
        at = of[max(of)]["samples"]
        lines.append(f"set arrow from {at}, graph 0 to {at}, graph 1 nohead lc rgb '#cc3333' dt 2")
        lines.append(f"set label 'kill -9' at {at}, graph 0.97 rotate by 90 right offset -0.6,0 tc rgb '#cc3333' font ',11'")
    colours = ["#1f77b4", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf", "#8c564b"]
    plots = ["$whole with lines lw 7 lc rgb '#d0d0d0' title 'never stopped'"]
    for k in range(len(pieces)):
        plots.append(f"$piece{k} with lines lw 1.6 lc rgb '{colours[k % len(colours)]}' title '{words[k]}'")
    lines.append("plot " + ", ".join(plots))
    subprocess.run(["gnuplot"], input="\n".join(lines) + "\n", text=True, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--toy-gpt", default="build/demo/examples/toy_gpt/toy_gpt")
    parser.add_argument("--kills", type=int, default=4)
    parser.add_argument("--save-every", type=int, default=20, help="steps")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--plot")
    parser.add_argument("flags", nargs="*", help="of toy_gpt")
    given = parser.parse_args()
    if given.plot and shutil.which("gnuplot") is None:
        sys.exit("--plot needs gnuplot: apt-get install gnuplot-nox")
    random.seed(given.seed)
    with tempfile.TemporaryDirectory() as folder:
        program = [os.path.abspath(given.toy_gpt), "--quiet"] + given.flags
        whole_log = folder + "/whole.jsonl"
        subprocess.run(program + ["--log", whole_log], check=True, stdout=subprocess.DEVNULL)
        whole, end = rounds(whole_log), last_line(whole_log)
        kills = sorted(random.sample(range(len(whole) // 10, len(whole) * 9 // 10), given.kills))

        saving = program + ["--save", folder + "/run", "--save-every", str(given.save_every)]
        pieces, logs = [], []
        for k in range(given.kills + 1):
            log = f"{folder}/{k}.jsonl"
            logs.append(log)
            has = os.path.isdir(folder + "/run") and any(name.startswith("step-") for name in os.listdir(folder + "/run"))
            process = subprocess.Popen(saving + ["--log", log] + (["--resume"] if has else []), stdout=subprocess.DEVNULL)
            while k < given.kills and process.poll() is None:
                told = rounds(log) if os.path.exists(log) else {}
                if told and max(told) >= kills[k]:
                    process.send_signal(signal.SIGKILL)
                    break
                time.sleep(0.01)
            status = process.wait()
            if status != (-signal.SIGKILL if k < given.kills else 0):
                sys.exit(f"process {k} ended with {status}")
            pieces.append(rounds(log))
        finished = last_line(logs[-1])

    different = 0
    words = []
    for k, piece in enumerate(pieces):
        first, last = min(piece), max(piece)
        different += sum(piece[r] != whole[r] for r in piece)
        lost = max(pieces[k - 1]) + 1 - first if k else 0
        words.append(f"process {k + 1}")
        print(f"process {k + 1}: rounds {first:5} to {last:5}" + (f", {lost:3} of them for the second time" if k else "") +
              (", killed" if k < given.kills else ", the end"))
    missing = set(whole) - set().union(*pieces)
    for key in ("train_loss", "validation_loss", "steps", "samples"):
        different += end[key] != finished[key]
    print(f"{len(whole)} rounds, {len(missing)} missing, {different} that differ; "
          f"validation loss {end['validation_loss']!r} and {finished['validation_loss']!r}")
    if given.plot:
        draw(whole, pieces, given.plot, words)
    return 1 if missing or different else 0


if __name__ == "__main__":
    sys.exit(main())
