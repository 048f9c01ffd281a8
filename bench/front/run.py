#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The front of loss against bytes: what bench_quality_codes has kept in its --results, each method at the best of its learning rates, beside PyTorch's hooks, and what a link makes of it.
A method is on the front where no other one of that table, by the same rule (Muon or AdamW), has less loss at as few bytes.

  bench/front/run.py codes.txt [--hooks hooks.txt] [--samples 12800] [--model 2,64] [--seeds 3] [--rate 2e-3] [--plot front.svg] [--top 6]

--hooks: the table that bench/quality/peers.py has printed; its losses count over its own DDP. --samples: so many of a training. --model: layers and width. --seeds: rows with fewer are left out, and counted. --rate: all rows at this one.
--plot: of the smallest world, by AdamW; it needs gnuplot. --top: percent of loss at its upper edge; what has more is left out.

memory: of parameters, gradients and all that the optimizer keeps, bytes a parameter and rank.
speed at r: samples a second, as a share of those of all ranks alone, at the limit, where an exchange of all gradients and parameters in fp32 takes r times a step's computation:
1 / (1 + X) where ranks wait, 1 / max(1, X) where rounds are hidden, X = r (bytes / 8); where halves of an exchange every H steps travel behind one step each, Y = X H / 2, and it is
(H / 2) / (max(1, Y) + H / 2 - 1). bench/network/run.py measures how near schedules come to it.
time at r: until the loss that synchronous has at the end, over its time. Who ends with more loss needs more samples, by the power of samples with which the loss of synchronous falls between its
two longest trainings of that model and world that are in the results; where there is one only, the column is missing.
Exponents: b of loss / (loss of synchronous) ~ N^b, for methods that are there for several worlds, at as many samples in all.
"""
import argparse
import collections
import math
import re
import shutil
import statistics
import subprocess
import sys

RATIOS = (0.5, 1, 4, 16, 64)
TIME_AT = (4, 16)
NAME = re.compile(r"(.*); ranks (\d+), samples (\d+), steps (\d+), rate ([^,]+), seed (\d+)(?:, layers (\d+), width (\d+))?$")
Run = collections.namedtuple("Run", "loss bytes memory")
World = collections.namedtuple("World", "layers width ranks")
Row = collections.namedtuple("Row", "name loss percent bytes memory apart rate hidden halves front")  # halves: steps between exchanges of which each half is hidden behind one; 0


def lines_of(file):
    try:
        return open(file).read().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        sys.exit(f"{file}: {getattr(error, 'strerror', None) or 'it is no text'}")


def read(file, only):
    """By samples, world and name: by rate, the runs."""
    found = collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(lambda: collections.defaultdict(list))))
    seen = set()
    for line in lines_of(file):
        key, _, values = line.partition("\t")
        match = NAME.match(key)
        if not match or len(values.split()) != 3 or (only and float(match[5]) != only):
            continue
        local = re.match(r"local_sgd|diloco|streaming_diloco|mu_loco", match[1])
        label = f"{match[1]}, H = {match[4]}" if local else match[1]  # --steps are of local updates: for all others the same run
        world = World(int(match[7] or 2), int(match[8] or 64), int(match[2]))
        samples, rate = int(match[3]), float(match[5])
        if (label, world, samples, rate, match[6]) not in seen:
            seen.add((label, world, samples, rate, match[6]))
            found[samples][world][label][rate].append(Run(*map(float, values.split())))
    return found


def best(by_rate, seeds):
    """Of the rates that all seeds have trained at; None where there is none."""
    whole = [(rate, runs) for rate, runs in by_rate.items() if len(runs) >= seeds]
    return min(whole, key=lambda each: statistics.mean(run.loss for run in each[1])) if whole else None


def rows_of(methods, seeds):
    chosen = {name: best(by_rate, seeds) for name, by_rate in methods.items()}
    if not chosen.get("synchronous"):
        return []
    base = statistics.mean(run.loss for run in chosen["synchronous"][1])
    rows = []
    for name, (rate, runs) in ((name, found) for name, found in chosen.items() if found):
        losses = [run.loss for run in runs]
        loss = statistics.mean(losses)
        hidden = re.match(r"two_phase|delayed|.*: two_phase", name) is not None
        late = re.match(r"(?:.*halves a step late|streaming_diloco).*, H = (\d+)$", name)
        rows.append(Row(name, loss, 100 * (loss / base - 1), statistics.mean(run.bytes for run in runs), runs[0].memory, max(losses) - min(losses), rate, hidden, int(late[1]) if late else 0, False))
    rows.sort(key=lambda row: (-row.bytes, row.loss))
    rivals = lambda row: (other for other in rows if other is not row and by_muon(other) == by_muon(row))
    return [row._replace(front=all(other.loss >= row.loss or other.bytes > row.bytes for other in rivals(row))) for row in rows]


def by_muon(row):
    return ", muon" in row.name


def hooks_of(file):
    """Of peers.py's table: name, bytes, loss over DDP."""
    found, base = [], None
    for line in lines_of(file):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) < 3 or not re.fullmatch(r"[\d.]+", cells[1]) or not re.match(r"[\d.]+", cells[2]):
            continue
        loss = float(re.match(r"[\d.]+", cells[2])[0])
        base = base or loss
        found.append((cells[0], float(cells[1]), 100 * (loss / base - 1)))
    return found


def power_of_samples(found, world, seeds):
    """With which the loss of synchronous falls; None where it is not known."""
    known = [(samples, row.loss) for samples in sorted(found) for row in rows_of(found[samples][world], seeds) if row.name == "synchronous"]
    if len(known) < 2:
        return None
    (few, more_loss), (many, less_loss) = known[-2:]
    return math.log(more_loss / less_loss) / math.log(many / few)


def speed(row, ratio):
    exchange = ratio * row.bytes / 8
    if row.halves:
        steps = row.halves / 2
        return steps / (max(1, steps * exchange) + steps - 1)
    return 1 / max(1, exchange) if row.hidden else 1 / (1 + exchange)


def table(rows, samples, world, hooks, power):
    print(f"\nN = {world.ranks}, {world.layers} layers of width {world.width}, {samples} samples\n")
    times = TIME_AT if power else ()
    if power:
        print(f"The loss of synchronous falls with the samples to the power of {-power:.3f}.\n")
    heads = [f"speed at {ratio:g}" for ratio in RATIOS] + [f"time at {ratio:g}" for ratio in times]
    print("| | bytes a parameter and step | loss | over synchronous | seeds apart | rate | memory | " + " | ".join(heads) + " |")
    print("|---|---|---|---|---|---|---|" + "---|" * len(heads))
    waiting = next(row for row in rows if row.name == "synchronous")
    for row in rows:
        name = f"**{row.name}**" if row.front else row.name
        cells = [f"{100 * speed(row, ratio):.0f} %" for ratio in RATIOS]
        cells += [f"{(row.loss / waiting.loss) ** (1 / power) * speed(waiting, ratio) / speed(row, ratio):.2f}" for ratio in times]
        print(f"| {name} | {row.bytes:.4g} | {row.loss:.4f} | {row.percent:+.2f} % | {row.apart:.4f} | {row.rate:g} | {row.memory:.1f} | " + " | ".join(cells) + " |")
    for name, sent, percent in hooks:
        print(f"| PyTorch: {name} | {sent:.4g} | | {percent:+.2f} % | | | | " + " | " * (len(heads) - 1) + " |")


def exponents(found, samples, seeds):
    """Of loss over that of synchronous in the number of ranks, by model."""
    percents = collections.defaultdict(dict)
    for world in sorted(found[samples]):
        for row in rows_of(found[samples][world], seeds):
            percents[world[:2], row.name][world.ranks] = math.log1p(row.percent / 100)
    lines = [(model, name, by_ranks) for (model, name), by_ranks in percents.items() if len(by_ranks) > 1 and name != "synchronous"]
    if not lines:
        return
    print(f"\nExponents, {samples} samples\n\n| layers, width | | N | b |\n|---|---|---|---|")
    for (layers, width), name, by_ranks in lines:
        few, many = min(by_ranks), max(by_ranks)
        print(f"| {layers}, {width} | {name} | {few}, {many} | {(by_ranks[many] - by_ranks[few]) / math.log(many / few):+.4f} |")


def beaten(rows, hooks):
    """Hooks that no row of at most their bytes equals."""
    return [name for name, sent, percent in hooks if not any(row.bytes <= 1.01 * sent and row.percent <= percent for row in rows if not by_muon(row))]


def plot(rows, hooks, ranks, file, top):
    if not shutil.which("gnuplot"):
        return print(f"no {file}: gnuplot is not installed")
    rows, hooks = [row for row in rows if row.percent <= top and not by_muon(row)], [hook for hook in hooks if hook[2] <= top]
    front = [row for row in rows if row.front]
    data = "$all << END\n" + "".join(f"{row.bytes} {row.percent}\n" for row in rows) + "END\n"
    data += "$front << END\n" + "".join(f"{row.bytes} {row.percent}\n" for row in front) + "END\n"
    data += "$hooks << END\n" + "".join(f"{sent} {percent}\n" for _, sent, percent in hooks) + "END\n"
    words = "".join(f"set label '{row.name}' at {row.bytes},{row.percent} offset 0.8,{0.6 if k % 2 else -0.6} font ',10' noenhanced\n" for k, row in enumerate(front))
    script = f"""set terminal svg size 1000,520 font 'sans,13'
set output '{file}'
set logscale x
set grid lc rgb '#dddddd'
set xlabel 'bytes a rank sends for a parameter and step, N = {ranks}'
set ylabel 'validation loss over synchronous fp32, %'
set key top right
set offsets graph 0.02, graph 0.15, graph 0.05, graph 0.05
{data}{words}plot $front using 1:2 with lines lw 2 lc 2 title 'the front', $all using 1:2 with points pt 7 ps 0.7 lc 1 title 'acco'"""
    script += ", $hooks using 1:2 with points pt 4 ps 0.9 lc 7 title 'PyTorch''s hooks'\n" if hooks else "\n"
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def model_of(words):
    layers, width = map(int, words.split(","))
    return layers, width


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("--hooks")
    parser.add_argument("--samples", type=int, default=12800)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--model", type=model_of, default="2,64")
    parser.add_argument("--plot")
    parser.add_argument("--top", type=float, default=6)
    a = parser.parse_args()
    found = read(a.results, a.rate)
    hooks = hooks_of(a.hooks) if a.hooks else []
    shown = False
    for world in sorted(found[a.samples]):
        if world[:2] != a.model:
            continue
        methods = found[a.samples][world]
        rows = rows_of(methods, a.seeds)
        if rows:
            table(rows, a.samples, world, hooks, power_of_samples(found, world, a.seeds))
        lacking = sum(best(by_rate, a.seeds) is None for by_rate in methods.values())
        if lacking:
            print(f"\nN = {world.ranks}: left out because no rate has {a.seeds} seeds: {lacking} of {len(methods)} rows")
        if not rows:
            print(f"\nN = {world.ranks}: no table, because synchronous has none")
            continue
        shown = True
        if hooks:
            lost = beaten(rows, hooks)
            print("\nNo hook has less loss at its bytes." if not lost else "\nLess loss at their bytes have: " + ", ".join(lost))
        if a.plot:
            plot(rows, hooks, world.ranks, a.plot, a.top)
        hooks, a.plot = [], None  # of the first world
    if not shown:
        sys.exit(f"{a.results}: no rows of {a.samples} samples, layers and width {a.model[0]},{a.model[1]}, and {a.seeds} seeds are left")
    exponents(found, a.samples, a.seeds)


if __name__ == "__main__":
    main()
