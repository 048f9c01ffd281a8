# SPDX-License-Identifier: Apache-2.0
"""Kills, or lets fail, system calls of the threads that write checkpoints, in four processes, one call at a time.

kill:   SIGKILL right before the k-th call of a kind, of every kind and all k, on each rank. Afterwards the old checkpoint is
        found or the new one, whole; the other ranks end in time; and after the next save nothing half-written is left.
errors: the k-th call of a kind fails with EIO. The training goes on, and its next save works.

A thread is traced by strace, which it waits for (kill_matrix.cpp). Of every kind, ACCO_THOROUGH=1 tries all k; else some.
"""
import argparse
import collections
import concurrent.futures
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

RANKS = 4
CHANGES = "mkdir openat fallocate pwrite64 fsync flock close rename unlink rmdir".split()
READS = "pread64 getdents64 newfstatat fstat".split()
PATIENCE = 40  # seconds in which all ranks must have ended

port_lock = threading.Lock()
next_port = 20000 + os.getpid() * 7 % 5000


def free_port():
    global next_port
    with port_lock:
        while True:
            next_port += 1
            with socket.socket() as one:
                try:
                    one.bind(("127.0.0.1", next_port))
                    return next_port
                except OSError:
                    continue


def train(program, run, work, saves=1, traced=None, strace=()):
    """Ends of all ranks (a negative number is a signal), what they said, and whether one had to be stopped."""
    common = dict(os.environ, WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
    ranks, outputs = [], []
    for rank in range(RANKS):
        mine = dict(common, RANK=str(rank))
        if rank == traced:
            mine["ACCO_WRITER"] = str(work / "thread")
        outputs.append(open(work / f"output-{rank}", "w+"))
        ranks.append(subprocess.Popen([program, "train", str(run), str(saves)], env=mine, stdout=outputs[-1], stderr=subprocess.STDOUT))
    tracer = None
    until = time.monotonic() + PATIENCE
    if traced is not None:
        while not (work / "thread").exists() and time.monotonic() < until and ranks[traced].poll() is None:
            time.sleep(0.005)
        if (work / "thread").exists():
            tracer = subprocess.Popen(["strace", "-qq", *strace, "-p", (work / "thread").read_text()], stdout=subprocess.DEVNULL,
                                      stderr=subprocess.DEVNULL)
    hung = False
    for each in ranks:
        try:
            each.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            hung = True
            each.kill()
            each.wait()
    if tracer:
        try:
            tracer.wait(10)
        except subprocess.TimeoutExpired:
            tracer.kill()
            tracer.wait()
    said = []
    for each in outputs:
        each.seek(0)
        said.append(each.read().strip())
        each.close()
    return [each.returncode for each in ranks], said, hung


def check(program, run):
    """The newest checkpoint, what is damaged, and what is left half-written."""
    done = subprocess.run([program, "check", str(run)], stdout=subprocess.PIPE, text=True, timeout=60)
    found = collections.defaultdict(list)
    for line in done.stdout.splitlines():
        what, _, rest = line.partition(" ")
        found[what].append(rest)
    return found["latest"][0] if found["latest"] else "none", found["damaged"], found["left"]


def trial(program, base, old, folder, way, rank, call, k):
    """What went wrong; empty: nothing. And what was found: "old", "new", "" where something went wrong, or "not reached": how often
    a rank looks for what others write depends on the machine, so there may be fewer calls than when they were counted."""
    work = pathlib.Path(tempfile.mkdtemp(dir=folder))
    try:
        run = work / "run"
        shutil.copytree(base, run)
        inject = f"inject={call}:signal=KILL:when={k}" if way == "kill" else f"inject={call}:error=EIO:when={k}"
        ends, said, hung = train(program, run, work, saves=1 if way == "kill" else 2, traced=rank,
                                 strace=["-o", str(work / "trace"), "-e", f"trace={call}", "-e", inject])
        if hung:
            return f"a rank hangs: {ends} {said}", ""
        latest, damaged, left = check(program, run)
        found = "old" if latest == old else "new" if latest > old else "none"
        if damaged or found == "none":
            return f"latest is {latest}, {damaged}", found
        if way == "errors":
            if ends != [0] * RANKS or any(not each.endswith("saved") for each in said):
                return f"{ends} {said}", found
            if "INJECTED" not in (work / "trace").read_text():
                return "", "not reached"
            return (f"left: {left}" if left else ""), found
        if ends[rank] != -signal.SIGKILL:
            saved = ends == [0] * RANKS and all(each.endswith("saved") for each in said)
            return ("", "not reached") if saved else (f"was not killed: {ends} {said}", "")
        ends, said, hung = train(program, run, work)
        if hung or ends != [0] * RANKS:
            return f"could not go on: {ends} {said}", found
        after, damaged, left = check(program, run)
        if damaged or left or after <= latest:
            return f"after the next save: latest {after} (before: {latest}), damaged {damaged}, left {left}", found
        return "", found
    except Exception as e:  # of one trial; the others go on
        return f"{type(e).__name__}: {e}", ""
    finally:
        shutil.rmtree(work, ignore_errors=True)


def main():
    options = argparse.ArgumentParser()
    options.add_argument("way", choices=["kill", "errors"])
    options.add_argument("program")
    options.add_argument("--at-once", type=int, default=6)
    chosen = options.parse_args()
    thorough = os.environ.get("ACCO_THOROUGH") is not None
    if shutil.which("strace") is None:
        print("skipped: strace is not here")
        return 0
    probe = subprocess.run(["strace", "-qq", "-o", os.devnull, "true"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if probe.returncode != 0:
        print("skipped: strace may not trace here: " + probe.stdout.strip())
        return 0
    where = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    folder = pathlib.Path(tempfile.mkdtemp(prefix="acco-kill-", dir=where))
    began = time.monotonic()
    try:
        base = folder / "base"
        (folder / "first").mkdir()
        ends, said, hung = train(chosen.program, base, folder / "first", saves=2)
        if hung or ends != [0] * RANKS:
            sys.exit(f"the first checkpoints: {ends} {said}")
        old = check(chosen.program, base)[0]
        kinds = CHANGES if chosen.way == "kill" else CHANGES + READS
        points = []
        for rank in range(RANKS):  # how often each is called
            work = folder / f"count-{rank}"
            work.mkdir()
            shutil.copytree(base, work / "run")
            ends, said, hung = train(chosen.program, work / "run", work, traced=rank,
                                     strace=["-o", str(work / "trace"), "-e", "trace=" + ",".join(kinds)])
            calls = collections.Counter(line.split("(")[0] for line in (work / "trace").read_text().splitlines() if "(" in line)
            if hung or ends != [0] * RANKS or not calls:
                if ends == [0] * RANKS and not calls:
                    print("skipped: strace may not trace a running process here")
                    return 0
                sys.exit(f"counting calls of rank {rank}: {ends} {said}")
            print(f"rank {rank}: " + ", ".join(f"{call} {calls[call]}" for call in kinds if calls[call]), flush=True)
            for call in kinds:
                # newfstatat is also how a rank looks whether others have come: how often depends on the machine
                count = min(calls[call], 3) if call == "newfstatat" else calls[call]
                points += [(rank, call, k) for k in range(1, count + 1)]
        total = len(points)
        if not thorough:
            points = points[::max(1, total // 24)]
        found = collections.Counter()
        problems = []
        with concurrent.futures.ThreadPoolExecutor(chosen.at_once) as pool:
            tries = {pool.submit(trial, chosen.program, base, old, folder, chosen.way, *point): point for point in points}
            for each in concurrent.futures.as_completed(tries):
                problem, what = each.result()
                found[what] += 1
                if problem:
                    problems.append(f"rank {tries[each][0]}, {tries[each][1]} {tries[each][2]}: {problem}")
                    print(problems[-1], flush=True)
        if 10 * found["not reached"] > len(points):
            problems.append("more than a tenth of the calls were not reached")
            print(problems[-1], flush=True)
        print(f"{chosen.way}: {len(points)} of {total} calls tried, {dict(found)}, {len(problems)} problems, {time.monotonic() - began:.0f} s")
        return 1 if problems else 0
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
