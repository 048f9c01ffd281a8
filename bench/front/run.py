#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The front of loss against bytes: what bench_quality_codes has kept in its --results, each method at the best of its learning rates, beside PyTorch's hooks, and what a link makes of it.
A method is on the front where no other one of that world has less loss at as few bytes.

  bench/front/run.py codes.txt [--hooks hooks.txt] [--samples 12800] [--seeds 3] [--rate 2e-3] [--plot front.svg]

--hooks: the table that bench/quality/peers.py has printed; its losses count over its own DDP. --seeds: rows with fewer are left out. --rate: all rows at this one. The plot needs gnuplot.

speed at r: samples a second, as a share of those of all ranks alone, at the limit, where an exchange of all gradients and parameters in fp32 takes r times a step's computation:
1 / (1 + X) where ranks wait, 1 / max(1, X) where rounds are hidden, X = r (bytes / 8). bench/network/run.py measures how near schedules come to it.
"""
import argparse
import collections
import re
import shutil
import statistics
import subprocess

RATIOS = (0.5, 1, 4, 16, 64)
NAME = re.compile(r"(.*); ranks (\d+), samples (\d+), steps (\d+), rate ([^,]+), seed (\d+)(?:, layers (\d+), width (\d+))?$")
Run = collections.namedtuple("Run", "loss bytes")
Row = collections.namedtuple("Row", "name loss percent bytes apart rate hidden front")


def read(file, samples, only):
    """By model, ranks and name: by rate, the runs."""
    found = collections.defaultdict(lambda: collections.defaultdict(list))
    seen = set()
    for line in open(file):
        key, _, values = line.rstrip("\n").partition("\t")
        match = NAME.match(key)
        if not match or int(match[3]) != samples or (only and float(match[5]) != only):
            continue
        name, ranks, steps, rate, seed, layers, width = match[1], int(match[2]), match[4], float(match[5]), match[6], int(match[7] or 2), int(match[8] or 64)
        local = re.match(r"local_sgd|diloco|mu_loco", name)
        if (name, ranks, rate, seed, layers, width, steps if local else "") in seen:  # --steps are of local updates: for all others the same run
            continue
        seen.add((name, ranks, rate, seed, layers, width, steps if local else ""))
        label = f"{name}, H = {steps}" if local else name
        loss, sent = map(float, values.split())
        found[(layers, width), ranks, label][rate].append(Run(loss, sent))
    return found


def rows_of(found, model, ranks, seeds):
    rows = []
    best = {}
    for (of_model, of_ranks, name), by_rate in found.items():
        whole = {rate: runs for rate, runs in by_rate.items() if len(runs) >= seeds}
        if (of_model, of_ranks) == (model, ranks) and whole:
            best[name] = min(whole.items(), key=lambda item: statistics.mean(run.loss for run in item[1]))
    if "synchronous" not in best:
        return []
    base = statistics.mean(run.loss for run in best["synchronous"][1])
    for name, (rate, runs) in best.items():
        losses = [run.loss for run in runs]
        loss = statistics.mean(losses)
        hidden = re.match(r"two_phase|delayed|.*: two_phase", name) is not None
        rows.append(Row(name, loss, 100 * (loss / base - 1), statistics.mean(run.bytes for run in runs), max(losses) - min(losses), rate, hidden, False))
    rows.sort(key=lambda row: (-row.bytes, row.loss))
    return [row._replace(front=all(other.loss >= row.loss or other.bytes > row.bytes for other in rows if other is not row)) for row in rows]


def hooks_of(file):
    """Of peers.py's table: name, bytes, loss over DDP."""
    found, base = [], None
    for line in open(file):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if len(cells) < 3 or not re.fullmatch(r"[\d.]+", cells[1]) or not re.match(r"[\d.]+", cells[2]):
            continue
        loss = float(re.match(r"[\d.]+", cells[2])[0])
        base = base or loss
        found.append((cells[0], float(cells[1]), 100 * (loss / base - 1)))
    return found


def speed(row, ratio):
    exchange = ratio * row.bytes / 8
    return 1 / max(1, exchange) if row.hidden else 1 / (1 + exchange)


def table(rows, ranks, model, hooks):
    print(f"\nN = {ranks}, {model[0]} layers of width {model[1]}\n")
    print("| | bytes a parameter and step | loss | over synchronous | seeds apart | rate | " + " | ".join(f"speed at {ratio:g}" for ratio in RATIOS) + " |")
    print("|---|---|---|---|---|---|" + "---|" * len(RATIOS))
    for row in rows:
        name = f"**{row.name}**" if row.front else row.name
        speeds = " | ".join(f"{100 * speed(row, ratio):.0f} %" for ratio in RATIOS)
        print(f"| {name} | {row.bytes:.4g} | {row.loss:.4f} | {row.percent:+.2f} % | {row.apart:.4f} | {row.rate:g} | {speeds} |")
    for name, sent, percent in hooks:
        print(f"| PyTorch: {name} | {sent:.4g} | | {percent:+.2f} % | | | " + " | " * (len(RATIOS) - 1) + " |")


def beaten(rows, hooks):
    """Hooks that no row of at most their bytes equals."""
    return [name for name, sent, percent in hooks if not any(row.bytes <= 1.01 * sent and row.percent <= percent for row in rows)]


def plot(rows, hooks, ranks, file):
    if not shutil.which("gnuplot"):
        return print(f"no {file}: gnuplot is not installed")
    front = [row for row in rows if row.front]
    data = "$all << END\n" + "".join(f"{row.bytes} {row.percent}\n" for row in rows) + "END\n"
    data += "$front << END\n" + "".join(f"{row.bytes} {row.percent} {re.sub(r'[ ,;:]+', '_', row.name)}\n" for row in front) + "END\n"
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
    script += ", $hooks using 1:2 with points pt 4 ps 0.9 lc 7 title 'PyTorch\\'s hooks'\n".replace("\\'", "''") if hooks else "\n"
    subprocess.run(["gnuplot"], input=script, text=True, check=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("--hooks")
    parser.add_argument("--samples", type=int, default=12800)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rate", type=float)
    parser.add_argument("--plot")
    a = parser.parse_args()
    found = read(a.results, a.samples, a.rate)
    hooks = hooks_of(a.hooks) if a.hooks else []
    worlds = sorted({(model, ranks) for model, ranks, _ in found})
    for k, (model, ranks) in enumerate(worlds):
        rows = rows_of(found, model, ranks, a.seeds)
        if not rows:
            continue
        mine = hooks if k == 0 else []
        table(rows, ranks, model, mine)
        if mine:
            lost = beaten(rows, mine)
            print("\nNo hook has less loss at its bytes." if not lost else "\nLess loss at their bytes have: " + ", ".join(lost))
        if a.plot and k == 0:
            plot(rows, mine, ranks, a.plot)


if __name__ == "__main__":
    main()
