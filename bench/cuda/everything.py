#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds and runs all that a GPU has to say about acco, in order of worth and within the minutes, and writes OUT/everything.json
and OUT/everything.md. A part that fails, or hangs, ends alone. Needs nvcc, and Python's standard library; doctest, NCCL, cuBLASLt,
PyTorch, compute-sanitizer and ncu where they are found. Exit status: 0; 1 where a part failed, 2 for a wrong argument, 3 where
no part ran. Without a GPU it compiles the programs, for one to come (sm_80), and says so.

With --stand-in the same programs are compiled by a host compiler over tests/cuda/emulated, with tiny sizes: no figure means
anything then, but everything runs."""
import argparse
import csv
import dataclasses
import datetime
import glob
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]


@dataclasses.dataclass
class Program:
    sources: list
    needs: tuple = ()  # without which it is not built
    uses: tuple = ()  # with which it does more
    host_flags: tuple = ()  # of its own, for nvcc's host compiler


TEST_MAIN = "tests/cuda/device_main.cpp"
PROGRAMS = {
    "conformance_storage": Program(["tests/cuda/storage.cu", "tests/cuda/levels.cu", "tests/cuda/choices.cu", TEST_MAIN], ("doctest",)),
    "conformance_schedules": Program(["tests/cuda/schedules.cu", "tests/cuda/types.cu", TEST_MAIN], ("doctest",)),
    "update": Program(["bench/cuda/update.cu"]),
    "coding": Program(["bench/cuda/coding.cu"]),
    "experiments": Program(["bench/cuda/experiments.cu"], (), ("cuBLASLt", "NCCL")),
    "overlap": Program(["bench/cuda/overlap.cu"], (), ("cuBLASLt", "NCCL")),
    "conformance_nccl": Program(["tests/cuda/nccl.cu", TEST_MAIN], ("doctest", "NCCL")),
    "conformance_model": Program(["tests/cuda/toy_gpt.cu", TEST_MAIN], ("doctest", "cuBLASLt")),
    "curve": Program(["bench/cuda/curve.cu"], ("cuBLASLt",), (), ("-march=native", "-fno-math-errno", "-fno-trapping-math")),
}


@dataclasses.dataclass
class Part:
    name: str
    what: str
    limit: float  # seconds
    program: str = ""
    arguments: tuple = ()
    timed: bool = False  # wants the machine alone
    tool: tuple = ()  # before the program
    more: tuple = ()  # (program, arguments) that run behind it, in the same part
    environment: dict = dataclasses.field(default_factory=dict)
    stand_in: tuple = None  # arguments over the stand-in, where they differ
    unlike: str = ""  # why it makes no sense over the stand-in

    def tells(self):
        """Whether it has to tell figures: tests do not."""
        return not self.program.startswith("conformance") and not self.tool

    def programs(self):
        return [p for p in (self.program, *(m[0] for m in self.more)) if p]


def sanitizer(tool):
    return Part(tool, f"compute-sanitizer --tool {tool} on every kernel, once", 45, "update", ("--sizes", "12", "--once"),
                tool=("compute-sanitizer", "--tool", tool, "--error-exitcode", "86"), more=(("coding", ("--sizes", "12", "--once")),),
                unlike="there is no GPU to sanitize")


COUNTERS = ",".join(f"l1tex__t_{what}_pipe_lsu_mem_global_op_{op}.sum" for what in ("sectors", "requests") for op in ("ld", "st"))
PARTS = [
    Part("conformance_storage", "storage, rules and encodings: the host's bits", 90, "conformance_storage",
         stand_in=("--test-case=encoded numbers*,levels*,choices*,conversion*",)),
    Part("conformance_schedules", "schedules: the host's results, the same bits in every run", 120, "conformance_schedules",
         stand_in=("--test-case=every combination*",)),
    Part("conformance_model", "the small GPT: the host's losses and gradients", 40, "conformance_model", stand_in=("--test-case=losses and gradients*",)),
    Part("conformance_nccl", "NCCL with one rank: the bits of one rank alone", 60, "conformance_nccl", stand_in=("--test-case=*<float>",)),
    Part("nccl_ranks", "NCCL with a rank a GPU", 60, "experiments", ("--only", "nccl_ranks")),
    sanitizer("memcheck"), sanitizer("racecheck"), sanitizer("synccheck"),
    Part("update", "the update beside a copy of as many bytes", 75, "update", ("--seconds", "60"), timed=True),
    Part("coding", "encode, decode and convert beside a copy of as many bytes", 60, "coding", ("--seconds", "45"), timed=True),
    Part("torch", "PyTorch's fused AdamW", 60, arguments=(sys.executable, str(ROOT / "bench/peers/torch_adamw.py")), timed=True,
         unlike="PyTorch needs a GPU"),
    Part("overlap_threads", "rounds beside a load, ranks as threads on one GPU", 50, "overlap", ("--backend", "threads", "--seconds", "40"), timed=True),
    Part("overlap_nccl", "rounds beside a load, over NCCL", 40, "overlap", ("--backend", "nccl", "--seconds", "25"), timed=True),
    Part("curve", "toy_gpt's losses on the GPU beside the host's", 60, "curve", ("--root", str(ROOT), "--steps", "60"), timed=True, stand_in=("--root", str(ROOT))),
    Part("b7_boundary", "host's time at a boundary, one tensor and 96 x 8 of two groups", 25, "experiments", ("--only", "boundary"), timed=True),
    Part("b1_priority", "priority of the communication stream, and few blocks for the update", 40, "experiments", ("--only", "priorities"), timed=True),
    Part("b2_gap", "from the backward's end to the round's begin", 25, "experiments", ("--only", "gap"), timed=True),
    Part("b3_naps", "what lies between rounds where communication is longer", 25, "experiments", ("--only", "naps"), timed=True),
    Part("b4_lazy_loading", "NCCL between threads with CUDA_MODULE_LOADING=LAZY", 40, "experiments", ("--only", "nccl_ranks"),
         environment={"CUDA_MODULE_LOADING": "LAZY"}),
    Part("b5_capture", "capturing an update and an all-gather of NCCL", 25, "experiments", ("--only", "capture")),
    Part("b6_non_finite", "gradients that are all NaN", 25, "experiments", ("--only", "non_finite"), timed=True),
    Part("b8_own_pools", "threads on two GPUs with pools of the user's own", 25, "experiments", ("--only", "own_pools")),
    Part("b9_accesses", "sectors a request of the update in bfloat16", 40, "update", ("--sizes", "22", "--once", "--only", "adamw"),
         tool=("ncu", "--clock-control", "none", "--kernel-name", "regex:for_table|for_blocks|for_elements|squares_by_block", "--launch-count", "40", "--csv", "--metrics", COUNTERS),
         unlike="there are no counters"),
    Part("b10_order", "two optimizers with elastic_pace over one NCCL world", 25, "experiments", ("--only", "elastic")),
]


# Columns that do not say it themselves; below the tables.
WORDS = {
    "us": "microseconds of one launch, the median of several batches, between us_least and us_most",
    "copy_gb_per_s": "a device-to-device copy that moves as many bytes, measured once a size", "of_copy": "gb_per_s as a share of copy_gb_per_s",
    "sets": "sets of arrays, in turn, so that no cache holds them", "odd": "sizes or beginnings that are no multiple of 16 bytes",
    "ratio": "communication over computation, or in b9 bfloat16's share of the copy over float's", "limit_ms": "the larger of load and communication alone; their sum under synchronous",
    "over": "step_ms over its limit; below 1 the load or the communication alone was measured on a busier machine", "hidden": "the share of the communication that lay under computation",
    "apart_early": "the largest relative distance of a loss from the host's, of the first 20 steps; apart_late of the others: no limit is set for it", "from_host": "the largest distance from the host's numbers",
    "gap_us": "from the computation's end to the round's begin, a median", "clear_us": "clearing the gradients alone, a median", "most_us": "the longest gap",
    "host_us": "the trainer's thread at a boundary, a median",
}


def processors():
    return len(os.sched_getaffinity(0))


def output_of(command, seconds=20):
    """What a command prints, or nothing."""
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, timeout=seconds, text=True, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def start(command, log, environment=None):
    """In a group of its own, so that whatever it starts ends with it."""
    try:
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, cwd=ROOT, start_new_session=True,
                                env={**os.environ, **(environment or {})})
    except OSError as e:
        log.write(f"failed: {e}\n".encode())
        return None


def end(process):
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait()


class Toolchain:
    """Who compiles, and what was found for it."""

    def __init__(self, chosen):
        self.stand_in = chosen.stand_in
        self.includes = [pathlib.Path(d) for d in chosen.include]
        self.found, self.missing, self.flags_of = {}, {}, {}
        if self.stand_in:
            self.compiler = shutil.which(chosen.compiler or os.environ.get("CXX", "") or "g++") or (None if chosen.compiler else shutil.which("c++"))
            self.flags = ["-std=c++20", "-O0", "-Wno-unknown-pragmas", "-DACCO_STAND_IN", "-Itests/cuda/emulated", "-pthread"]
            self.add("NCCL", "tests/cuda/emulated/nccl.h", ["-DACCO_BENCH_NCCL"])
            self.add("cuBLASLt", "tests/cuda/emulated/cublasLt.h", ["-DACCO_BENCH_CUBLASLT"])
        else:
            self.compiler = shutil.which(chosen.compiler or "nvcc") or (None if chosen.compiler else shutil.which("/usr/local/cuda/bin/nvcc"))
            self.flags = ["-std=c++20", "-O3", "--expt-relaxed-constexpr", f"-arch={architecture()}", "-Xcompiler", "-pthread"]
            self.look_for("NCCL", "nccl.h", "libnccl.so", "-DACCO_BENCH_NCCL")
            self.look_for("cuBLASLt", "cublasLt.h", "libcublasLt.so", "-DACCO_BENCH_CUBLASLT")
        self.flags += ["-Iinclude", "-Itests", "-Iexamples/toy_gpt", "-Ibench/trainer"]
        header = self.first("doctest/doctest.h", self.include_folders() + [pathlib.Path(d) for d in glob.glob(str(ROOT / "build/*/_deps/doctest-src"))])
        if header:
            self.add("doctest", str(header), ["-I" + str(header.parents[1])] if header.parents[1] != pathlib.Path("/usr/include") else [])
        else:
            self.missing["doctest"] = "no doctest (doctest/doctest.h, Debian: doctest-dev; --include DIR says where)"

    def add(self, name, where, flags):
        self.found[name], self.flags_of[name] = where, flags

    def include_folders(self):
        home = [pathlib.Path(self.compiler).resolve().parents[1] / "include"] if self.compiler else []
        packages = [pathlib.Path(p) for path in sys.path for p in glob.glob(os.path.join(path, "nvidia/*/include"))]  # of pip, with PyTorch
        return self.includes + home + [pathlib.Path("/usr/include"), pathlib.Path("/usr/local/include")] + packages

    @staticmethod
    def first(name, folders):
        return next((folder / name for folder in folders if (folder / name).is_file()), None)

    def look_for(self, name, header, library, flag):
        """The header, and the library beside it."""
        found = self.first(header, self.include_folders())
        if not found:
            self.missing[name] = f"no {name} ({header}; --include DIR says where)"
            return
        prefix = found.parent.parent
        folders = [prefix / "lib64", prefix / "lib", prefix / f"targets/{platform.machine()}-linux/lib"]
        folders += [pathlib.Path(f"/usr/lib/{platform.machine()}-linux-gnu"), pathlib.Path("/usr/lib64")]
        files = [f for folder in folders for f in sorted(glob.glob(str(folder / (library + "*"))))]
        if not files:
            self.missing[name] = f"no {name} ({library})"
            return
        folder = os.path.dirname(files[0])
        self.add(name, str(found), [flag, f"-I{found.parent}", f"-L{folder}", f"-l:{os.path.basename(files[0])}", "-Xlinker", f"-rpath={folder}"])

    def command(self, program, to):
        wanted = [*program.needs, *(u for u in program.uses if u in self.found)]
        extra = [flag for name in wanted for flag in self.flags_of[name]]
        as_sources = [a for s in program.sources for a in (["-x", "c++", s] if self.stand_in else [s])]
        extra += [] if self.stand_in else [f"-Xcompiler={flag}" for flag in program.host_flags]
        tests = any(s.startswith("tests/") for s in program.sources)
        # the host's part of a test need not be fast, but soon compiled
        flags = ["-O1" if tests and flag == "-O3" else flag for flag in self.flags]
        return [self.compiler, *flags, *([] if tests else ["-DNDEBUG"]), *as_sources, *extra, "-o", str(to)]


def architecture():
    capability = output_of(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"]).splitlines()
    return "sm_" + capability[0].strip().replace(".", "") if capability and capability[0].strip().replace(".", "").isdigit() else "sm_80"


class Builder:
    """Compiles as many programs at a time as there are processors, those that are needed first first."""

    def __init__(self, tools, folder, out, have, wanted):
        self.tools, self.folder, self.out = tools, folder, out
        self.ready, self.failed, self.waiting, self.running = dict(have), {}, [], {}
        self.seconds, self.since, self.wall = {}, time.monotonic(), 0.0
        for name in wanted:
            lacking = [n for n in PROGRAMS[name].needs if n not in tools.found]
            if name in self.ready:
                continue
            if tools.compiler is None:
                self.failed[name] = "skipped: no compiler (g++, or --compiler)" if tools.stand_in else "skipped: no compiler (nvcc of a CUDA toolkit, or --compiler)"
            elif lacking:
                self.failed[name] = "skipped: " + tools.missing[lacking[0]]
            elif self.is_fresh(name):
                self.ready[name] = str(folder / name)
            else:
                self.waiting.append(name)

    def is_fresh(self, name):
        program, note = self.folder / name, self.folder / (name + ".command")
        if not program.is_file() or not note.is_file() or note.read_text() != self.note(name):
            return False
        folders = {"include", "examples/toy_gpt", "bench/trainer", "bench/cuda" if PROGRAMS[name].sources[0].startswith("bench/") else "tests"}
        folders |= {"tests/cuda/emulated"} if self.tools.stand_in else set()
        sources = [p for d in folders for p in (ROOT / d).rglob("*") if p.suffix in (".h", ".hpp", ".cuh", ".cu", ".cpp")]
        return program.stat().st_mtime > max(p.stat().st_mtime for p in sources)

    def note(self, name):
        return " ".join(self.tools.command(PROGRAMS[name], self.folder / name))

    def step(self):
        """Never waits. Whether nothing is compiled any more."""
        for name, (process, log, since) in list(self.running.items()):
            if process.poll() is None:
                continue
            log.close()
            del self.running[name]
            self.seconds[name] = round(time.monotonic() - since, 1)
            self.wall = round(time.monotonic() - self.since, 1)
            print(f"compiled {name} in {self.seconds[name]} s" if process.returncode == 0 else f"{name} does not compile", flush=True)
            if process.returncode == 0:
                self.ready[name] = str(self.folder / name)
                (self.folder / (name + ".command")).write_text(self.note(name))
            else:
                self.failed[name] = f"failed: does not compile: build_{name}.log"
        while self.waiting and len(self.running) < processors():
            name = self.waiting.pop(0)
            log = open(self.out / f"build_{name}.log", "wb")
            process = start(self.tools.command(PROGRAMS[name], self.folder / name), log)
            if process is None:
                self.failed[name] = f"failed: {self.tools.compiler} does not start"
            else:
                self.running[name] = (process, log, time.monotonic())
        return not self.running and not self.waiting

    def words(self, part):
        """What the compiler said first."""
        logs = (self.out / f"build_{name}.log" for name in part.programs() if name in self.failed)
        return "".join(log.read_text(errors="replace")[:2000] for log in logs if log.is_file())

    def stop(self):
        for name, (process, log, _) in self.running.items():
            end(process)
            log.close()
            self.failed[name] = "not reached: not compiled in time"
        for name in self.waiting:
            self.failed[name] = "not reached: not compiled in time"
        self.running, self.waiting = {}, []


class Session:
    def __init__(self, chosen, out):
        self.chosen, self.out = chosen, out
        self.started = time.monotonic()
        self.deadline = self.started + 60 * chosen.minutes
        self.parts = [p for p in PARTS if chosen.parts is None or p.name in chosen.parts]
        self.results, self.interrupted = {}, False

    def left(self):
        return self.deadline - time.monotonic()

    def note(self, part, status, reason="", seconds=0.0, figures=(), clocks=None, tail=""):
        self.results[part.name] = {"name": part.name, "what": part.what, "status": status, "reason": reason, "seconds": round(seconds, 1), "limit": part.limit,
                                   "figures": list(figures), **({"clocks": clocks} if clocks else {}), **({"tail": tail} if tail else {})}
        print(f"{part.name}: {status}{': ' + reason if reason else ''} ({seconds:.1f} s)", flush=True)

    def commands(self, part, builder):
        """Of a part, each with its tool."""
        first = part.stand_in if self.chosen.stand_in and part.stand_in is not None else part.arguments
        if not part.program:
            return [list(first)]
        tests = ("--no-intro",) if part.program.startswith("conformance") else ()
        tool = [self.tool(part.tool[0]), *part.tool[1:]] if part.tool else []
        return [[*tool, builder.ready[program], *arguments, *tests] for program, arguments in ((part.program, first), *part.more)]

    def tool(self, name):
        """Where it is, in PATH or beside the compiler."""
        beside = [os.path.dirname(self.compiler)] if self.compiler else []
        return shutil.which(name, path=os.pathsep.join([os.environ.get("PATH", ""), *beside, "/usr/local/cuda/bin"]))

    def run(self, part, builder):
        since, limit = time.monotonic(), min(part.limit, self.left())
        cut = limit < part.limit  # by the minutes, where it is not over then
        commands = self.commands(part, builder)
        if part.name == self.chosen.break_part:
            commands = [["sh", "-c", "echo broken on purpose; exit 3"]]
        if part.name == self.chosen.hang_part:
            commands, limit, cut = [["sleep", "98765"]], min(limit, self.chosen.hang_seconds), limit < self.chosen.hang_seconds
        code, path = 0, self.out / (part.name + ".log")
        with open(path, "wb") as log:
            for command in commands:
                log.write(("$ " + " ".join(command) + "\n").encode())
                log.flush()
                process = start(command, log, part.environment)
                if process is None:
                    code = 127
                    break
                try:
                    code = process.wait(timeout=max(0.1, limit - (time.monotonic() - since)))
                except subprocess.TimeoutExpired:
                    code = None
                finally:
                    end(process)
                if code != 0:
                    break
        text = path.read_text(errors="replace")
        figures, unreadable = figures_of(text)
        status, reason = verdict(part, code, text, figures, limit, unreadable)
        if code is None and cut:
            status, reason = "not reached", f"cut after {limit:.0f} s, when the minutes were over; it had told {len(figures)} figures"
        if part.tool and part.tool[0] == "ncu":
            figures += counters_of(text)
        self.note(part, status, reason, time.monotonic() - since, figures, clocks_now() if part.timed and not self.chosen.stand_in else None,
                  text[-2000:] if status != "passed" else "")

    def all(self, builder, gpus):
        pending = list(self.parts)
        while pending:
            done = builder.step()
            if self.left() <= 2:
                builder.stop()
                for part in pending:
                    self.note(part, "not reached", "no time was left")
                return
            part = next((p for p in pending if self.settled(p, builder, done)), None)
            if part is None:
                time.sleep(0.1)
                continue
            pending.remove(part)
            bad = next((builder.failed[p] for p in part.programs() if p in builder.failed), None)
            if part.unlike and self.chosen.stand_in:
                self.note(part, "skipped", part.unlike)
            elif bad:
                status, _, reason = bad.partition(": ")
                self.note(part, status, reason, tail=builder.words(part) if status == "failed" else "")
            elif gpus == 0:
                self.note(part, "not reached", "no GPU")
            elif part.tool and not self.tool(part.tool[0]):
                self.note(part, "skipped", f"no {part.tool[0]}")
            else:
                self.run(part, builder)
            write(self, builder, gpus)

    def settled(self, part, builder, done):
        """Whether all that it needs is compiled, or never will be. Who measures waits for the compilers, where they would be in
        its way."""
        known = all(p in builder.ready or p in builder.failed for p in part.programs())
        return known and (done or not part.timed or processors() >= 8)


def figures_of(text):
    """The figures that lines tell, and the lines that are none. What is not finite stays as a word."""
    figures, unreadable = [], []
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        try:
            figures.append(json.loads(re.sub(r":\s*(-?)(nan|inf)\b", r': "\1\2"', line), parse_constant=lambda word: word.lower().replace("infinity", "inf")))
        except ValueError:
            unreadable.append(line)
    return figures, unreadable


def no_numbers(figure):
    """What of it is not finite."""
    return [f"{k} {v}" for k, v in figure.items() if v in ("nan", "-nan", "inf", "-inf")]


def counters_of(text):
    """Sectors a request of each kernel that ncu has looked at."""
    lines = text.splitlines()
    first = next((k for k, line in enumerate(lines) if line.startswith('"ID"')), None)
    kernels = {}
    for row in csv.DictReader(lines[first:]) if first is not None else ():
        kernel = kernels.setdefault(row["ID"], {"figure": "b9_counters", "kernel": row.get("Kernel Name", "")[:160]})
        value = (row.get("Metric Value") or "").replace(",", "")
        what = (row.get("Metric Name") or "").removeprefix("l1tex__t_").replace("_pipe_lsu_mem_global_op", "").removesuffix(".sum")
        kernel[what] = float(value) if value.replace(".", "").isdigit() else None
    for kernel in kernels.values():
        for op in ("ld", "st"):
            if kernel.get("requests_" + op):
                kernel["sectors_a_request_" + op] = (kernel.get("sectors_" + op) or 0) / kernel["requests_" + op]
    return list(kernels.values())


def last_line(text):
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.startswith(("$", "{", "="))]
    told = [line for line in lines if line.startswith("failed: ")]
    return (told or lines or [""])[-1][:300]


def verdict(part, code, text, figures, limit, unreadable=()):
    skipped = [line[len("skipped: "):].strip() for line in text.splitlines() if line.startswith("skipped: ")]
    if code is None:
        return "failed", f"not over after {limit:.0f} s; it had told {len(figures)} figures"
    if part.tool and any(words in text for words in ("Device not supported", "LibraryNotLoaded", "ERR_NVGPUCTRPERM", "doesn't support")):
        return "skipped", f"{part.tool[0]} does not work on this machine: {last_line(text)}"
    if skipped and not figures:
        return "skipped", skipped[0]
    if part.program.startswith("conformance") and re.search(r"test cases: +0 ", text):
        return "failed", "no test was run"
    if code != 0:
        return "failed", last_line(text).removeprefix("failed: ") or f"exit status {code}"
    if part.tool and part.tool[0] == "compute-sanitizer" and "ERROR SUMMARY: 0 errors" not in text and "0 hazards" not in text:
        return "failed", last_line(text)
    if unreadable:
        return "failed", f"{len(unreadable)} lines of figures cannot be read, the first: {unreadable[0][:120]}"
    odd = [words for f in figures for words in no_numbers(f)]
    if odd:
        return "failed", f"{len(odd)} figures are no numbers, the first: {odd[0]}"
    if part.tells() and not figures:
        return "failed", "it told no figures"
    cases = re.search(r"test cases: +(\d+) ", text)
    return "passed", f"{cases[1]} cases" if cases else ""


def clocks_now():
    names = "clocks.sm,clocks.mem,temperature.gpu,power.draw"
    values = output_of(["nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader"]).splitlines()
    return dict(zip(names.split(","), [v.strip() for v in values[0].split(",")])) if values else None


def device():
    names = "name,driver_version,memory.total,memory.used,clocks.sm,clocks.max.sm,clocks.max.mem,power.limit,compute_cap,persistence_mode"
    rows = output_of(["nvidia-smi", f"--query-gpu={names}", "--format=csv,noheader"]).splitlines()
    return [dict(zip(names.split(","), [v.strip() for v in row.split(",")])) for row in rows]


def gpus_here():
    """How many, as far as can be known without a program; None: unknown."""
    rows = [line for line in output_of(["nvidia-smi", "-L"]).splitlines() if line.startswith("GPU ")]
    if rows:
        return len(rows)
    return None if glob.glob("/dev/nvidia[0-9]*") else 0


def versions(tools):
    compiler = output_of([tools.compiler, "--version"]).splitlines() if tools.compiler else []
    release = next((line for line in compiler if "release" in line), compiler[0] if compiler else "none")
    return {"compiler": release, "host compiler": (output_of(["g++", "--version"]).splitlines() or ["none"])[0], "python": platform.python_version(), "system": platform.platform(),
            "processors": processors(), "architecture": next((f[6:] for f in tools.flags if f.startswith("-arch=")), "the host's"), **{f"found {k}": v for k, v in tools.found.items()},
            **{f"missing {k}": v for k, v in tools.missing.items()}}


def commit():
    found = output_of(["git", "-C", str(ROOT), "rev-parse", "HEAD"])
    return found + (" and changes" if found and output_of(["git", "-C", str(ROOT), "status", "--porcelain", "-uno"]) else "") if found else "unknown: no git"


def targets(figures, smallest, unfinished=()):
    """What is wanted, and what was reached. Below `smallest` elements a launch is mostly its own beginning and end; what comes
    from parts that are `unfinished` meets no target."""
    large = [f for f in figures if f.get("elements", 0) >= smallest and "left_out" not in f]
    rows = []

    def add(what, wanted, met_by, found, unit="", better=min, key=None):
        usable = [f for f in found if isinstance(f.get(key), (int, float))]
        if not usable:
            rows.append({"target": what, "wanted": wanted, "worst": None, "value": None, "met": None, "of": "no figure"})
            return
        worst = better(usable, key=lambda f: f[key])
        met = met_by(worst[key])
        if met and any(f["part"] in unfinished for f in found):
            met, wanted = None, wanted + " (a part of it did not end well)"
        where = ", ".join(f"{k} {v}" for k, v in worst.items() if k in ("rule", "kind", "type", "groups", "work", "encoding", "runs", "elements", "schedule", "ratio", "load", "backend", "parameters", "tensors", "odd"))
        rows.append({"target": what, "wanted": wanted, "worst": f"{worst[key]:.3g}{unit}", "value": worst[key], "met": met, "of": where})

    def share(what, least, found):
        add(what, f"{least:.2f} of the copy", lambda v: v >= least, found, key="of_copy")

    updates = [f for f in large if f["figure"] == "update" and f["rule"] == "adamw"]
    for kind in ("float", "bfloat16"):
        of_kind = [f for f in updates if f["type"] == kind]
        share(f"update in {kind}, one group", 0.92, [f for f in of_kind if f["groups"] == "1"])
        share(f"update in {kind}, 96 x 8 tensors", 0.92, [f for f in of_kind if f["groups"] == "96 x 8"])
        share(f"update in {kind}, odd sizes or beginnings", 0.92, [f for f in of_kind if f["odd"]])
    coding = [f for f in large if f["figure"] == "coding"]
    share("encode", 0.80, [f for f in coding if f["work"].startswith("encode")])
    share("decode", 0.80, [f for f in coding if f["work"].startswith("decode")])
    mine = {(f["elements"] // 2 * 2, 1 if f["groups"] == "1" else 768): f["us"] for f in updates if f["kind"] == "commit" and f["type"] == "float" and f["groups"] in ("1", "96 x 8, odd sizes")}
    both = [{**f, "of_torch": f["us"] / mine[f["elements"], f["tensors"]]} for f in large if f["figure"] == "torch_adamw" and (f["elements"], f["tensors"]) in mine]
    add("adamw ahead of PyTorch's fused AdamW", "more than 1 times its speed", lambda v: v > 1, both, " times", key="of_torch")
    add("the host's time at a boundary", "at most 30 us", lambda v: v <= 30, [f for f in figures if f["figure"] == "boundary"], " us", max, "host_us")
    hidden = [f for f in figures if f["figure"] == "overlap" and f["schedule"] != "synchronous"]
    for name, chosen in (("an exact load", [f for f in hidden if f["load"] == "exact time"]), ("matrix products", [f for f in hidden if f["load"] != "exact time"])):
        add(f"step beside {name}", "at most 1.05 of the larger of both", lambda v: v <= 1.05, chosen, "", max, "over")
    return rows


def bfloat16_beside_float(figures):
    """B9: each update in bfloat16 beside the same in floats, as shares of their copies."""
    updates = {(f["rule"], f["kind"], f["groups"], f["elements"], f["type"]): f["of_copy"] for f in figures if f["figure"] == "update" and "of_copy" in f}
    rows = []
    for (rule, kind, groups, elements, kind_of_number), share in updates.items():
        beside = updates.get((rule, kind, groups, elements, "float"))
        if kind_of_number == "bfloat16" and beside:
            rows.append({"figure": "b9_bfloat16", "rule": rule, "kind": kind, "groups": groups, "elements": elements, "bfloat16_of_copy": share, "float_of_copy": beside, "ratio": share / beside})
    return rows


def table(rows, columns=None):
    columns = columns or list(dict.fromkeys(k for row in rows for k in row if k != "figure"))

    def cell(value):
        if isinstance(value, bool) or value is None:
            return {True: "yes", False: "no", None: ""}[value]
        return f"{value:.4g}" if isinstance(value, float) else str(value).replace("|", "/").replace("\n", " ")

    lines = ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
    return "\n".join(lines + ["| " + " | ".join(cell(row.get(c)) for c in columns) + " |" for row in rows])


def page(all_of_it):
    out = ["# What a GPU says about acco", ""]
    if all_of_it["stand_in"]:
        out += ["**Over the stand-in on a host, in tiny sizes, a few cases of each test: no figure here means anything.**", ""]
    if all_of_it["interrupted"]:
        out += ["**Interrupted.**", ""]
    out += [f"{all_of_it['when']}, commit {all_of_it['commit']}, {all_of_it['seconds']:.0f} of {60 * all_of_it['minutes']:.0f} s, "
            f"compiled after {all_of_it['build']['seconds']:.0f} s.", ""]
    if not all_of_it["stand_in"]:
        out += [table(all_of_it["device"]) if all_of_it["device"] else "No GPU is seen by nvidia-smi.", ""]
    out += [table([{"what": k, "version": v} for k, v in all_of_it["versions"].items()]), "", "## Parts", ""]
    parts = [{**p, "figures": len(p["figures"]), "clocks": " ".join((p.get("clocks") or {}).values())} for p in all_of_it["parts"]]
    out += [table(parts, ["name", "status", "reason", "seconds", "limit", "figures", "clocks", "what"]), "", "## Targets", "", table(all_of_it["targets"], ["target", "wanted", "worst", "met", "of"]), ""]
    kinds = {}
    for part in all_of_it["parts"]:
        for figure in part["figures"]:
            kinds.setdefault(figure.get("figure", part["name"]), []).append(figure)
    if all_of_it["b9_bfloat16"]:
        kinds["b9_bfloat16"] = all_of_it["b9_bfloat16"]
    for kind, rows in kinds.items():
        several = len({row.get("part") for row in rows}) > 1
        rows = [{k: v for k, v in row.items() if k != "part" or several} for row in rows]
        words = [f"{column}: {WORDS[column]}" for column in dict.fromkeys(k for row in rows for k in row) if column in WORDS]
        out += [f"## {kind}", "", table(rows), *(["", "; ".join(words) + "."] if words else []), ""]
    return "\n".join(out)


def write(session, builder, gpus):
    parts = [session.results.get(p.name) or {"name": p.name, "what": p.what, "status": "not reached", "reason": "not yet", "seconds": 0, "limit": p.limit, "figures": []} for p in session.parts]
    for part in parts:
        for figure in part["figures"]:
            figure["part"] = part["name"]
    figures = [f for p in parts for f in p["figures"] if "figure" in f and not no_numbers(f)]
    unfinished = {p["name"] for p in parts if p["status"] != "passed"}
    smallest = 1 if session.chosen.stand_in else 1 << 24
    reached = targets(figures, smallest, unfinished)
    if session.chosen.stand_in:
        reached = [{**t, "met": None} for t in reached]
    everything = {
        "when": datetime.datetime.now().isoformat(timespec="seconds"), "commit": session.commit, "stand_in": session.chosen.stand_in, "minutes": session.chosen.minutes,
        "seconds": round(time.monotonic() - session.started, 1), "gpus": gpus, "device": session.device, "versions": session.versions,
        "build": {"seconds": builder.wall, "each": builder.seconds, "not_built": builder.failed}, "parts": parts,
        "interrupted": session.interrupted, "targets": reached, "b9_bfloat16": bfloat16_beside_float(figures), "not_reached": [p["name"] for p in parts if p["status"] == "not reached"]}
    (session.out / "everything.json").write_text(json.dumps(everything, indent=1) + "\n")
    (session.out / "everything.md").write_text(page(everything))


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=9, help="for everything, compiling included (9)")
    parser.add_argument("--out", default=str(ROOT / "build/everything"), help="folder for the page, the JSON and the logs (build/everything)")
    parser.add_argument("--build", help="folder for the programs; what is there and not older than its sources is taken again (default: OUT/build)")
    parser.add_argument("--parts", help="only these, separated by commas: " + ",".join(p.name for p in PARTS))
    parser.add_argument("--include", action="append", default=[], metavar="DIR", help="a folder with doctest/doctest.h, nccl.h or cublasLt.h")
    parser.add_argument("--compiler", help="nvcc, or with --stand-in a host compiler")
    parser.add_argument("--have", action="append", default=[], metavar="NAME=FILE", help="a program that is built already: " + ", ".join(PROGRAMS))
    parser.add_argument("--stand-in", action="store_true", help="over tests/cuda/emulated, on a host")
    parser.add_argument("--break", dest="break_part", help=argparse.SUPPRESS)  # for the test of this script
    parser.add_argument("--hang", dest="hang_part", help=argparse.SUPPRESS)
    parser.add_argument("--hang-seconds", type=float, default=1.5, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if not chosen.minutes > 0:
        parser.error("--minutes: more than 0")
    if chosen.parts is not None:
        chosen.parts = [name for name in chosen.parts.split(",") if name]
        unknown = [name for name in chosen.parts if name not in {p.name for p in PARTS}]
        if unknown or not chosen.parts:
            parser.error(f"--parts: no part is called {', '.join(unknown) or 'so'}; there are {', '.join(p.name for p in PARTS)}")
    if chosen.compiler and not shutil.which(chosen.compiler):
        parser.error(f"--compiler: {chosen.compiler} is no program")
    for folder in chosen.include:
        if not os.path.isdir(folder):
            parser.error(f"--include: {folder} is no folder")
    for entry in chosen.have:
        name, _, file = entry.partition("=")
        if name not in PROGRAMS or not shutil.which(file):
            parser.error(f"--have: NAME=FILE, of {', '.join(PROGRAMS)} and a program that is there, not {entry}")
    try:
        for folder in filter(None, (chosen.out, chosen.build)):
            os.makedirs(folder, exist_ok=True)
    except OSError as e:
        parser.error(f"{folder} cannot be made: {e.strerror}")
    if not os.access(chosen.out, os.W_OK):
        parser.error(f"--out: {chosen.out} cannot be written to")
    return chosen


def main():
    chosen = parse()
    out = pathlib.Path(chosen.out).resolve()
    folder = pathlib.Path(chosen.build).resolve() if chosen.build else out / "build"
    folder.mkdir(parents=True, exist_ok=True)
    session = Session(chosen, out)

    def interrupted(number, _):  # what runs is ended, and the page written
        session.interrupted = True
        sys.exit(128 + number)

    signal.signal(signal.SIGTERM, interrupted)
    signal.signal(signal.SIGINT, interrupted)
    tools = Toolchain(chosen)
    session.commit, session.versions, session.compiler = commit(), versions(tools), tools.compiler
    session.device = [] if chosen.stand_in else device()
    gpus = 1 if chosen.stand_in else gpus_here()
    have = dict(entry.split("=", 1) for entry in chosen.have)
    wanted = [name for name in PROGRAMS if any(name in p.programs() for p in session.parts)]
    builder = Builder(tools, folder, out, have, wanted)
    if gpus == 0:
        print("there is no GPU here: the programs are compiled, and nothing runs", flush=True)
    if builder.waiting:
        print(f"compiling {len(builder.waiting)} programs with {tools.compiler}, {processors()} at a time: minutes, where processors are few", flush=True)
    try:
        session.all(builder, gpus)
    finally:
        builder.stop()
        write(session, builder, gpus)
        if session.interrupted:
            print(f"interrupted: {out / 'everything.md'}", flush=True)
    states = [r["status"] for r in session.results.values()]
    print(", ".join(f"{states.count(s)} {s}" for s in ("passed", "failed", "skipped", "not reached")) + f": {out / 'everything.md'}")
    return 1 if "failed" in states else 0 if "passed" in states else 3


if __name__ == "__main__":
    sys.exit(main())
