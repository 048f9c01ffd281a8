# SPDX-License-Identifier: Apache-2.0
# snippets.py ROOT COMPILER [-I... flags]: compiles every ```cpp block of README.md and docs/*.md, and looks up what the commands of every ```sh block name.
#
# A comment in front of a block says where it stands and what stands around it:
#   <!-- compiled: inside a function with world, parameter_count -->      (names.txt has the declarations)
#   <!-- compiled: at file level with model, needs <Eigen/Core> -->
# Without a comment a block stands alone at file level. "..." on a line of its own, or in braces, is left out. Nothing is run. All blocks are one
# translation unit; those that include what is not installed are skipped, with a line that says so. The compiler names file and line of the page.
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

COMMENT = re.compile(r"<!-- compiled: (inside a function|at file level)((?:,? (?:with|needs) .*)?) -->$")
INCLUDE = re.compile(r"\s*#include\s*([<\"][^>\"]+[>\"])")
STANDARD = re.compile(r"<[a-z_]+>$")
FOLDERS = ("cmake", "bench", "docs", "examples", "tests", "include", "packaging", ".ci")


def blocks(text, language):
    """(first line's number, lines, the line in front of the fence) of each block."""
    lines, at = text.split("\n"), 0
    while at < len(lines):
        opening = re.match(r"( *)```(\w*)", lines[at])
        if opening:
            end = next(i for i in range(at + 1, len(lines) + 1) if i == len(lines) or lines[i].strip() == "```")
            if opening.group(2) == language:
                indent = len(opening.group(1))
                yield at + 2, [line[indent:] for line in lines[at + 1:end]], next((line for line in reversed(lines[:at]) if line.strip()), "").strip()
            at = end
        at += 1


def context(comment, where, names):
    """(whether it stands in a function, declarations, headers that it needs)"""
    if not comment.startswith("<!-- compiled:"):
        return False, [], []
    match = COMMENT.match(comment)
    if not match:
        raise SystemExit(f"{where}: cannot read {comment}; tests/docs/snippets.py says how it is written")
    needs = re.findall(r"<[^<>]+>", match.group(2))
    words = re.search(r"with ((?:[\w:]+(?:, )?)+)", match.group(2))
    wanted = [word for word in (words.group(1).split(", ") if words else []) if word and word != "needs"]
    unknown = [name for name in wanted if name not in names]
    if unknown:
        raise SystemExit(f"{where}: tests/docs/names.txt declares no {', '.join(unknown)}")
    return match.group(1) == "inside a function", [names[name] for name in wanted], needs


def cpp(root, pages, compiler, flags):
    here = Path(__file__).parent
    names = {}
    for line in (here / "names.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            name, declaration = line.split(": ", 1)
            names[name] = declaration
    groups, count = defaultdict(list), 0
    for page in pages:
        relative = page.relative_to(root)
        for number, lines, comment in blocks(page.read_text(encoding="utf-8"), "cpp"):
            count += 1
            inside, declarations, headers = context(comment, f"{relative}:{number - 1}", names)
            for i, line in enumerate(lines):
                found = INCLUDE.match(line)
                if found:
                    headers.append(found.group(1))
                    lines[i] = ""
                lines[i] = re.sub(r"\{ \.\.\. \}", "{}", re.sub(r"^\s*\.\.\.\s*(//.*)?$", "", lines[i]))
            name = f"page_{re.sub(r'[^a-z0-9]', '_', str(relative).lower())}_{number}"
            code = f'#line {number} "{relative}"\n' + "\n".join(lines)
            around = " ".join(declarations)
            unit = f"void {name}() {{ {around}\n{code}\n}}\n" if inside else f"namespace {name} {{ {around}\n{code}\n}}\n"
            others = frozenset(header for header in headers if not STANDARD.match(header) and header != "<acco/acco.hpp>" and header != "<acco/any_optimizer.hpp>")
            groups[others].append(("".join(f"#include {h}\n" for h in headers if STANDARD.match(h)), unit))

    def compiled(text, *mode):
        with tempfile.NamedTemporaryFile("w", suffix=".cpp", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            return subprocess.run([*compiler, "-std=c++20", *mode, *flags, f"-I{root}/include", file.name], capture_output=True, text=True)

    text, used, left_out = "", set(), 0
    for others, units in groups.items():
        missing = None
        if others - used:
            tried = compiled("".join(f"#include {header}\n" for header in sorted(others)), "-E", "-o", "/dev/null")
            if tried.returncode != 0:
                missing = next((line for line in tried.stderr.splitlines() if "error" in line), "")
        if missing is not None:
            left_out += len(units)
            print(f"skipped: {len(units)} block(s) with {', '.join(sorted(others))}: {missing}")
            continue
        used |= others
        text = "".join(standard for standard, _ in units) + text + "".join(unit for _, unit in units)
    standard, rest = [line for line in text.splitlines() if line.startswith("#include")], [line for line in text.splitlines() if not line.startswith("#include")]
    includes = [*dict.fromkeys(standard), "#include <acco/acco.hpp>", *(f"#include {header}" for header in sorted(used)), f'#include "{here}/around.hpp"']
    result = compiled("\n".join(includes + rest) + "\n", "-fsyntax-only")
    failed = result.returncode != 0
    if failed:
        print(result.stderr)
    print(f"{count - left_out} of {count} cpp blocks: {'FAILED' if failed else 'compiled'}")
    return failed, count


def shell(root, pages):
    presets = set(re.findall(r'"name": "([a-z-]+)"', (root / "CMakePresets.json").read_text(encoding="utf-8"))) if (root / "CMakePresets.json").exists() else set()
    targets = set()
    for lists in [*root.glob("*/**/CMakeLists.txt"), *root.glob("cmake/*.cmake")]:
        if "build" not in lists.relative_to(root).parts[0]:
            targets |= set(re.findall(r"[a-z_]{4,}", lists.read_text(encoding="utf-8")))
    targets |= {"bench_" + "_".join(path.relative_to(root / "bench").with_suffix("").parts) for path in [*root.glob("bench/**/*.cpp"), *root.glob("bench/**/*.cu")]}
    wrong, count = [], 0
    for page in pages:
        for number, lines, _ in blocks(page.read_text(encoding="utf-8"), "sh"):
            for offset, line in enumerate(lines):
                where = f"{page.relative_to(root)}:{number + offset}"
                count += 1
                for path in re.findall(rf"(?<![\w/.-])((?:{'|'.join(map(re.escape, FOLDERS))})/[\w./-]+)", line):
                    if not (root / path).exists():
                        wrong.append(f"{where}: there is no {path}")
                for preset in re.findall(r"--preset[ =]([\w-]+)", line):
                    if preset not in presets:
                        wrong.append(f"{where}: there is no preset {preset}")
                for listed in re.findall(r"--target ((?:[a-z_]+ ?)+)", line):
                    wrong += [f"{where}: no CMakeLists.txt mentions the target {target}" for target in listed.split() if target not in targets and target.rsplit("_", 1)[0] not in targets]
    for line in wrong:
        print(line)
    print(f"{count} lines of sh blocks: {len(wrong)} wrong")
    return bool(wrong)


if __name__ == "__main__":
    top = Path(sys.argv[1]).resolve()
    pages = sorted([path for path in (top / "README.md", top / "CONTRIBUTING.md") if path.exists()] + list((top / "docs").glob("*.md")))
    failed, count = cpp(top, pages, sys.argv[2].split(), sys.argv[3:])
    sys.exit(shell(top, pages) or failed or count == 0)
