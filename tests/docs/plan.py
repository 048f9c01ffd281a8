# SPDX-License-Identifier: Apache-2.0
# plan.py ROOT PROGRAM: what docs/links.md says that acco_plan prints is what it prints: the block behind each command, and, of --table, the table.
import re
import subprocess
import sys
from pathlib import Path

page = (Path(sys.argv[1]) / "docs/links.md").read_text(encoding="utf-8")
compared, wrong = 0, []
for command, shown in re.findall(r"^```sh\n\S*acco_plan ([^\n]*)\n```\n+(```text\n.*?^```|\|.*?\n(?!\|))", page, flags=re.M | re.S):
    said = [line for line in shown.split("\n") if line and not line.startswith("```")]
    printed = subprocess.run([sys.argv[2], *command.split()], check=True, capture_output=True, text=True).stdout
    told = [line for line in printed.split("\n") if line]
    compared += 1
    wrong += [f"acco_plan {command}: the page says\n  {a}\nand it prints\n  {b}" for a, b in zip(said, told) if a != b]
    if len(said) != len(told):
        wrong.append(f"acco_plan {command}: the page has {len(said)} lines, and it prints {len(told)}")
print("\n".join(wrong))
print(f"{compared} commands: {len(wrong)} wrong")
sys.exit(bool(wrong) or compared < 2)
