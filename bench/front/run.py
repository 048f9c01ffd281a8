#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The front of loss against bytes: validation loss of a small GPT at equal samples and equal samples a step, for codes of gradients and parameters, with and
without feedback, under schedules that wait, that hide, and that exchange rarely. Each method at the best of three learning rates, which are tried with the first
seed; the other seeds run at the best one. Every finished run is kept in --results; a second call goes on where the first one ended, and prints the table of all.

  bench/front/run.py --data TEXT [--results front.jsonl] [--ranks 4,8] [--rates 1e-3,3e-3,1e-2] [--seeds 1,2,3] [--samples 25600] [--only WORDS] [--minutes 60] [--plot front.svg]
  bench/front/run.py --data TEXT --speeds FILE [--loss 1] ...   time to a loss: FILE is what bench/network/run.py front has printed

Needs toy_gpt_family: cmake --preset release && cmake --build build/release --target toy_gpt_family. The plot needs gnuplot.
"""
import argparse
import os
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
sys.path.insert(0, os.path.join(ROOT, "bench", "quality"))
import run as quality  # noqa: E402

# label (schedule + estimate;commit^feedback, codes of gradients/parameters), micro-batches, steps from one exchange to the next, and, where it is not adamw, the rule
ROWS = [
    ("synchronous", "8", 0),
    ("synchronous+;bfloat16/bfloat16", "8", 0),
    ("synchronous+;int8/int4", "8", 0),
    ("synchronous+;int8/ternary", "8", 0),
    ("synchronous+;int4/int4", "8", 0),
    ("synchronous+;gauss4/gauss4", "8", 0),
    ("synchronous+;gauss4/gauss3", "8", 0),
    ("synchronous+;gauss4/ternary", "8", 0),
    ("synchronous+;gauss3/ternary", "8", 0),
    ("synchronous+;gauss3/ternary^1", "8", 0),
    ("synchronous+;gauss3/ternary^0.9", "8", 0),
    ("synchronous+;gauss3/ternary^0.9:int8", "8", 0),  # what is lost is kept in 8 bits
    ("synchronous+;gauss3/ternary^ef21", "8", 0),  # EF21
    ("synchronous+;gauss2/ternary^ef21", "8", 0),
    ("synchronous+;top16/ternary^ef21", "8", 0),
    ("synchronous+;rotated3/ternary", "8", 0),
    ("synchronous+;rotated3/ternary^0.9", "8", 0),
    ("synchronous+;gauss2/ternary^1", "8", 0),
    ("synchronous+;gauss2/ternary^0.9", "8", 0),
    ("synchronous+;rotated2/ternary^0.9", "8", 0),
    ("synchronous+;ternary/ternary^1", "8", 0),
    ("synchronous+;ternary/ternary^0.9", "8", 0),
    ("synchronous+;sign/ternary^1", "8", 0),
    ("synchronous+;sign/sign^1", "8", 0),
    ("synchronous+;random32/ternary^0.9", "8", 0),
    ("synchronous+;dct16/ternary^0.9", "8", 0),
    ("synchronous+;top32/ternary^1", "8", 0),
    ("synchronous+;top32/ternary^0.9", "8", 0),
    ("synchronous+;top16/ternary^1", "8", 0),
    ("synchronous+;top16/ternary^0.9", "8", 0),
    ("synchronous+;power1/float32", "8", 0),  # PowerSGD
    ("synchronous+;power4/float32", "8", 0),
    ("synchronous+;power4/int4", "8", 0),
    ("synchronous+;power16/int4", "8", 0),
    ("delayed+;power4/int4", "8", 0),
    ("synchronous", "8", 0, "signum"),
    ("synchronous+;vote/sign", "8", 0, "signum"),
    ("synchronous+;dct16/sign^0.9", "8", 0, "signum"),  # DeMo, sharded
    ("synchronous+;dct16/sign^0.99", "8", 0, "signum"),
    ("synchronous+;dct16/sign^0.999", "8", 0, "signum"),
    ("synchronous+;dct16/none^0.99", "8", 0, "signum"),  # as published, over replicas
    ("synchronous+;senders16/sign^0.99", "8", 0, "signum"),  # with the mean over senders
    ("synchronous+;senders16/none^0.99", "8", 0, "signum"),
    ("delayed+;dct16/sign^0.99", "8", 0, "signum"),
    ("two_phase+dct16/sign;dct16/sign^0.99", "7:1", 0, "signum"),  # ACCO with DeMo
    ("two_phase", "6:2", 0),
    ("two_phase+coded", "7:1", 0),
    ("two_phase+own/gauss4;gauss4/gauss4", "7:1", 0),
    ("two_phase+own/gauss4;gauss4/gauss4", "6:2", 0),
    ("two_phase+own/gauss3;gauss4/gauss4", "7:1", 0),
    ("two_phase+own/gauss3;gauss4/gauss4", "6:2", 0),
    ("two_phase+gauss4/gauss4;gauss4/ternary", "7:1", 0),
    ("two_phase+gauss2/gauss3;gauss4/gauss3", "7:1", 0),
    ("two_phase+ternary/ternary;gauss4/ternary", "7:1", 0),
    ("two_phase+own/gauss3;gauss4/gauss3", "7:1", 0),
    ("two_phase+own/gauss3;gauss4/gauss3", "6:2", 0),
    ("two_phase+own/gauss3;gauss4/ternary", "6:2", 0),
    ("two_phase+own/ternary;gauss4/ternary", "6:2", 0),
    ("delayed+;gauss4/ternary", "8", 0),
    ("galore32:50+synchronous", "8", 0),  # matrices in bases of 32 directions, renewed every 50 updates
    ("galore16:50+synchronous", "8", 0),
    ("galore16:50+two_phase", "6:2", 0),
    ("local_sgd", "8", 8),
    ("local_sgd+int4", "8", 8),
    ("streaming_diloco", "8", 8),
    ("streaming_diloco+int4", "8", 8),
]


RATES_OF_SIGNS = ["3e-4", "1e-3", "3e-3"]  # every step has the rate's size
RATES_OF_BASES = ["3e-3", "1e-2", "3e-2", "1e-1"]  # updates of matrices count a quarter


# rows that the plot names: in what words, to the right of their point or to the left, how far above
NAMED = {
    "synchronous": ("fp32", True, -0.5),
    "synchronous+;bfloat16/bfloat16": ("bfloat16", True, 0.35),
    "synchronous+;gauss4/ternary": ("4 bits, ternary back", True, -1.5),
    "synchronous+;top16/ternary^1": ("top-k", True, -0.35),
    "synchronous+;vote/sign, signum": ("majority vote", False, -0.45),
    "synchronous+;dct16/sign^0.999, signum": ("DeMo", True, 0),
    "delayed+;gauss4/ternary": ("a step late", True, -0.35),
    "two_phase": ("ACCO in fp32", False, 0.5),
    "two_phase+coded": ("ACCO, int8 and int4", True, 0.4),
    "two_phase+own/gauss3;gauss4/gauss3": ("ACCO in 4 and 3 bits", True, -0.55),
    "streaming_diloco+int4": ("Streaming DiLoCo in 4 bits", True, 1.35),
}


def rates_of(row, a):
    return RATES_OF_BASES if row[0].startswith("galore") else a.rates.split(",") if rule_of(row) == "adamw" else RATES_OF_SIGNS


def rule_of(row):
    return row[3] if len(row) > 3 else "adamw"


def name_of(row):
    return row[0] + (f", {row[3]}" if len(row) > 3 else "")


def plot(points, path, ranks):
    """points: (name, bytes, loss over synchronous in percent). What is far off lies at the upper edge."""
    kinds = {"waits": [], "hidden in two parts (two_phase)": [], "hidden, a step late (delayed)": [], "exchanges every 8 steps": []}
    top = 10
    for name, sent, more in points:
        if name.startswith("galore"):  # another training, far below
            continue
        kind = ("hidden in two parts (two_phase)" if "two_phase" in name else "hidden, a step late (delayed)" if name.startswith("delayed") else "waits" if "synchronous" in name
                else "exchanges every 8 steps")
        kinds[kind].append((name, sent, min(more, top)))
    script = [f'set terminal svg size 960,600 font "sans,13" background "white"\nset output "{path}"\nset logscale x 2\nset xtics (0.125, 0.25, 0.5, 1, 2, 4, 8, 16)\nset xlabel "bytes that a rank sends, a parameter and step"',
              'set ylabel "validation loss over synchronous in fp32, %"', f'set title "Loss against bytes, N = {ranks}: left and low is good"\nset grid lc rgb "#dddddd"\nset key at graph 0.98,0.86 noenhanced\nset xrange [0.09:20]\nset yrange [-3.5:{top + 0.7}]',
              f'set arrow from 0.09,0 to 20,0 nohead lc rgb "#888888"\nset label "{top} % and more" at 0.1,{top + 0.35} font ",10"']
    named = dict(NAMED)
    serial = 10
    for of in kinds.values():
        for name, sent, more in of:
            if name in named:
                serial += 1
                words, right, up = named.pop(name)  # once
                script.append(f'set label {serial} "{words}" at {sent * (1.05 if right else 0.95)},{more + up} {"left" if right else "right"} noenhanced font ",12"')
    for k, of in enumerate(kinds.values()):
        script.append(f"$kind{k} << END\n" + "\n".join(f"{sent} {more}" for _, sent, more in of) + "\nEND")
    script.append("plot " + ", ".join(f'$kind{k} using 1:2 with points pt {(7, 5, 13, 9)[k]} ps 1.1 lc {k + 1} title "{kind}"' for k, kind in enumerate(kinds) if kinds[kind]))
    subprocess.run(["gnuplot"], input="\n".join(script), text=True, check=True)


def parse_speeds(file):
    """{ratio: {(label, split): milliseconds of a step}} of a table that bench/network/run.py front has printed."""
    speeds = {}
    for line in open(file):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) == 13 and cells[0].replace(".", "").isdigit():
            speeds.setdefault(cells[0], {})[cells[3], cells[4]] = float(cells[7])
    if not speeds:
        sys.exit(f"{file} has no table of bench/network/run.py front")
    return speeds


def steps_to(loss, curve, samples_a_step):
    """Steps until a curve of (samples, loss) first reaches a loss, between its points; None where it never does."""
    before = None
    for samples, now in curve:
        if now <= loss:
            return (samples if before is None else before[0] + (before[1] - loss) / (before[1] - now) * (samples - before[0])) / samples_a_step
        before = (samples, now)
    return None


def time_to_loss(runs, a, ranks):
    """What bench/network/run.py front has timed, trained with its split at the best rate of its row here: steps to a loss, times the step's time on each link."""
    speeds = parse_speeds(a.speeds)
    seeds = a.seeds.split(",")
    batch = int(ranks) * 8 * int(quality.MODEL[quality.MODEL.index("--batch") + 1])
    steps, base = {}, None
    for label, split in list(speeds.values())[0]:
        row = next((row for row in ROWS if row[0] == label and row[1].replace(":", " + ") == split), None) or next((row for row in ROWS if row[0] == label), None)
        if row is None:
            continue
        micro_batches = split.replace(" + ", ":") if "+" in split else row[1]
        runs.validations = 1
        tuned = runs.tuned(row[0], row[1], ranks, rates_of(row, a), seeds, rule_of(row), row[2])
        if tuned is None:
            continue
        runs.validations = 20
        of = [(row[0], micro_batches, ranks, tuned[1], seed, rule_of(row), row[2]) for seed in seeds]
        for one in of:
            runs.make(*one)
        if None in [runs.loss(*one) for one in of]:
            continue
        base = base or statistics.mean(runs.loss(*one) for one in of)  # of the first row, synchronous
        target = base * (1 + a.loss / 100)
        reached = [steps_to(target, runs.done[runs.key(*one)]["curve"], batch) for one in of]
        steps[label, split] = None if None in reached else statistics.mean(reached)
    if not steps:
        sys.exit(f"{runs.left} runs are left: call again")
    print(f"\n{runs.text}, N = {ranks}, {a.samples} sequences, seeds {a.seeds}. Steps to a validation loss of {target:.4f}, which is {a.loss:g} % over synchronous in fp32 at its end, or - where not every seed reaches it; and how many\n"
          f"times as fast as synchronous in fp32 that is on a link of each T_comm/T_comp, with the steps timed in {os.path.basename(a.speeds)} (2 hosts)\n")
    print("| method | split | steps | " + " | ".join(speeds) + " |\n|---|---|---|" + "---|" * len(speeds))
    first = list(steps)[0]
    for (label, split), count in steps.items():
        times = [f"{steps[first] * of[first] / (count * of[label, split]):.2f}" if count else "-" for of in speeds.values()]
        print(f"| {label} | {split} | {f'{count:.0f}' if count else '-'} | " + " | ".join(times) + " |")
    if runs.left:
        print(f"{runs.left} runs are left: call again")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"))
    parser.add_argument("--data", help="text; without it, the repository's own")
    parser.add_argument("--results", default="front.jsonl", help="finished runs, one JSON object a line")
    parser.add_argument("--ranks", default="4,8")
    parser.add_argument("--rates", default="1e-3,3e-3,1e-2")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--samples", type=int, default=25600)
    parser.add_argument("--only", help="rows whose name has one of these words, and synchronous")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no run after so long")
    parser.add_argument("--plot", help="an SVG file, of the first of --ranks")
    parser.add_argument("--speeds", help="what bench/network/run.py front has printed: print the time to a loss, of the first of --ranks")
    parser.add_argument("--loss", type=float, default=1, help="of --speeds: in percent over synchronous at its end")
    a = parser.parse_args()
    toy = os.path.join(a.build, "examples/toy_gpt/toy_gpt_family")
    if not os.path.exists(toy):
        sys.exit(f"{toy} is not built: cmake --preset release && cmake --build build/release --target toy_gpt_family")
    rows = [row for row in ROWS if row == ROWS[0] or not a.only or any(word in name_of(row) for word in a.only.split(","))]
    runs = quality.Runs(toy, a)
    if a.speeds:
        return time_to_loss(runs, a, a.ranks.split(",")[0])
    seeds, counts = a.seeds.split(","), a.ranks.split(",")
    found = {(row, ranks): runs.tuned(row[0], row[1], ranks, rates_of(row, a), seeds, rule_of(row), row[2]) for ranks in counts for row in rows}
    print(f"\n{runs.text}, {a.samples} sequences, seeds {a.seeds}, rates {a.rates} (of signum {','.join(RATES_OF_SIGNS)}, of galore {','.join(RATES_OF_BASES)}). Bytes that a rank sends, a parameter and step, in units of (N-1)/N; mean validation loss at the best rate; the mean difference to\n"
          "synchronous at its best, seed by seed (from, to); that rate\n")
    print("| method | micro-batches | bytes | " + " | ".join(f"N = {n}" for n in counts) + " |")
    print("|---|---|---|" + "---|" * len(counts))
    points = []
    for row in rows:
        cells, sent = [], "-"
        for ranks in counts:
            one, base = found[row, ranks], found[rows[0], ranks]
            if one is None or base is None:
                cells.append("-")
                continue
            losses, rate, first = one
            changes = [100 * (loss / of - 1) for loss, of in zip(losses, base[0])]
            sent = f"{first['bytes']:.2f}"
            cells.append(f"{statistics.mean(losses):.4f} {statistics.mean(changes):+.2f} % ({min(changes):+.2f} to {max(changes):+.2f}), {rate}")
            if ranks == counts[0]:
                points.append((name_of(row), first["bytes"], statistics.mean(changes)))
        print(f"| {name_of(row)} | {row[1].replace(':', ' + ')}{f', every {row[2]} steps' if row[2] else ''} | {sent} | " + " | ".join(cells) + " |")
    if runs.left:
        print(f"{runs.left} runs are left: call again")
    if a.plot:
        plot(points, a.plot, counts[0])


if __name__ == "__main__":
    main()
