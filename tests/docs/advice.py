#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What acco::advise says, on the pages: docs/links.md has the table that bench_advice prints, measured_ways the losses and bytes of docs/performance.md, and that the rows that bench/front/run.py makes.

  tests/docs/advice.py ROOT COMPILER [FLAGS ...]
"""
import os
import re
import subprocess
import sys
import tempfile

root, compiler = sys.argv[1], sys.argv[2:]
WAYS = """
#include <cstdio>
#include <acco/schedule/advice.hpp>
int main() {
  for (acco::way const& w : acco::measured_ways)
    std::printf("%s|%g|%.4f\\n", w.name, w.loss_percent, (w.hides == acco::hidden_part::parts ? (w.estimate == acco::way::in_full ? 8 : w.estimate) : 0) + (w.commit == acco::way::in_full ? 8 : w.commit));
}
"""


def output_of(source, folder):
    program = os.path.join(folder, "program")
    subprocess.run([*compiler, "-std=c++20", source, "-o", program], check=True)
    return subprocess.run([program], check=True, capture_output=True, text=True).stdout


def rows(page, heading):
    """The cells of the first table below a heading."""
    text = open(os.path.join(root, "docs", page)).read()
    lines = text[text.index(heading):].splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith("|"))
    last = next(k for k, line in enumerate(lines) if k > first and not line.startswith("|"))
    return [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines[first:last]]


wrong = []
with tempfile.TemporaryDirectory() as folder:
    printed = output_of(os.path.join(root, "bench/front/advice.cpp"), folder).splitlines()
    told = ["| " + " | ".join(cells) + " |" for cells in rows("links.md", "Without measuring, by M / C")]
    squeezed = lambda line: line.replace(" ", "")
    wrong += [f"docs/links.md says {line}, and bench_advice {other}" for line, other in zip(told, printed) if squeezed(line) != squeezed(other)]
    if len(told) != len(printed):
        wrong.append(f"docs/links.md has a table of {len(told)} lines, and bench_advice prints {len(printed)}")
    source = os.path.join(folder, "ways.cpp")
    with open(source, "w") as out:
        out.write(WAYS)
    ways = [line.split("|") for line in output_of(source, folder).splitlines()]
measured = {}
for cells in rows("performance.md", "## The front of loss against bytes")[2:]:
    changes = [float(found.group(1)) for found in (re.match(r"\S+ ([+-]\S+) %", cell) for cell in cells[3:5]) if found]
    measured.setdefault(cells[0], []).append((cells[1], float(cells[2]), changes))
for name, loss, sent in ways:
    of = measured.get(name, [])
    split = [one for one in of if one[0] == "6 + 2"] if name.startswith("two_phase") else of
    if len(split) != 1 or len(split[0][2]) != 2:
        wrong.append(f"{name}: docs/performance.md has no one row with losses on 4 and 8 ranks")
        continue
    mean = max(0, sum(split[0][2]) / 2)
    if abs(mean - float(loss)) > 0.0101:
        wrong.append(f"{name}: loss_percent is {loss}, docs/performance.md says {mean:.3f}")
    if not 0 <= split[0][1] - float(sent) <= max(0.04 * float(sent), 0.012):  # the little messages of a round are in what was measured
        wrong.append(f"{name}: {sent} bytes, docs/performance.md says {split[0][1]}")
sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(root, "bench", "front"))
import run as front  # noqa: E402

made = [[front.name_of(row), row[1].replace(":", " + ") + (f", every {row[2]} steps" if row[2] else "")] for row in front.ROWS]
shown = [cells[:2] for cells in rows("performance.md", "## The front of loss against bytes")[2:]]
wrong += [f"docs/performance.md lacks the row {row} of bench/front/run.py" for row in made if row not in shown]
wrong += [f"bench/front/run.py has not got the row {row} of docs/performance.md" for row in shown if row not in made]
wrong += [f"bench/front/run.py names {name} in its plot, and has no such row" for name in front.NAMED if name not in [row[0] for row in made]]
if f"the loss of {len(made)} rows" not in open(os.path.join(root, "docs/encodings.md")).read():
    wrong.append(f"docs/encodings.md does not say 'the loss of {len(made)} rows'")
print("\n".join(wrong))
print(f"{len(printed)} lines and {len(ways)} ways: {len(wrong)} wrong")
sys.exit(bool(wrong or len(ways) < 5))
