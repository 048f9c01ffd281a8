# SPDX-License-Identifier: Apache-2.0
# links.py ROOT: every relative link of README.md, CONTRIBUTING.md, CHANGELOG.md and docs/*.md leads to a file, and every #anchor to a heading of it, by the names that code hosts give them. A
# page that sources name (docs/NAME.md) exists. Rows of a table have as many cells as the line under its head. No network.
import re
import sys
from pathlib import Path

LINK = re.compile(r"(?<!!)\[(?:[^\]\[]|\[[^\]]*\])*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")


def without_code(text):  # fences become empty lines, so that numbers of lines stay
    return re.sub(r"^```.*?^```$", lambda block: "\n" * block.group(0).count("\n"), text, flags=re.M | re.S)


def anchors(text):
    seen, found = {}, set()
    for heading in re.findall(r"^#{1,6} +(.+?) *#*$", without_code(text), flags=re.M):
        words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        slug = re.sub(r"[^\w\- ]", "", words.lower()).replace(" ", "-")
        found.add(slug if slug not in seen else f"{slug}-{seen[slug]}")
        seen[slug] = seen.get(slug, 0) + 1
    return found


def cells(row):
    return len(re.split(r"(?<!\\)\|", row.strip().strip("|")))


def uneven_tables(text):
    """Lines, counted from 1, whose cells are not as many as those of the line under their table's head."""
    lines = text.split("\n")
    for under in (k for k, line in enumerate(lines) if k > 0 and re.fullmatch(r"\|[-:| ]*-[-:| ]*\|", line)):
        k = under - 1
        while k < len(lines) and lines[k].startswith("|"):
            if cells(lines[k]) != cells(lines[under]):
                yield k + 1
            k += 1


def main(root):
    pages = [root / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")] + sorted((root / "docs").glob("*.md"))
    wrong, count = [], 0
    for page in (page for page in pages if page.exists()):
        text = without_code(page.read_text(encoding="utf-8"))
        wrong += [f"{page.relative_to(root)}:{number}: a row with other cells than its table's head" for number in uneven_tables(text)]
        for number, line in enumerate(text.split("\n"), 1):
            for first, second in LINK.findall(line):
                target = first or second
                if "://" in target or target.startswith("mailto:"):
                    continue
                count += 1
                path, _, anchor = target.partition("#")
                file = (page.parent / path) if path else page
                where = f"{page.relative_to(root)}:{number}"
                if not file.exists():
                    wrong.append(f"{where}: {path} does not exist")
                elif anchor and anchor not in anchors(file.read_text(encoding="utf-8")):
                    wrong.append(f"{where}: {path or page.name} has no heading #{anchor}")
    for folder in ("include", "c", "cmake", "tests", "bench", "examples", "packaging"):
        for file in (root / folder).rglob("*"):
            if file.suffix in (".hpp", ".cpp", ".cuh", ".cu", ".h", ".c", ".cmake", ".py", ".txt") and Path(__file__).parent not in file.parents:
                for named in re.findall(r"(?<![\w/])docs/[\w/]+\.md\b", file.read_text(encoding="utf-8", errors="replace")):
                    count += 1
                    if not (root / named).exists():
                        wrong.append(f"{file.relative_to(root)} names {named}, which does not exist")
    for line in wrong:
        print(line)
    print(f"{count} links, and tables: {len(wrong)} wrong")
    return 1 if wrong or count == 0 else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
