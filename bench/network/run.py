#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Shows on a real network stack that communication is hidden: makes hosts as network namespaces joined by links that `tc tbf` limits, pins one
computing thread a rank, runs every schedule, and prints step times beside their limits, bytes on the wire beside theory, and peers. Needs root and iproute2.

  bench/network/run.py overlap [--hosts 2|4] [--backends gloo,mpi] [--loads synthetic,toy_gpt] [--schedules ...] [--ratios 0.25,0.5,1,2] [--plot overlap.svg]
  bench/network/run.py pieces                     the size of pieces, on a fast link and a slow one
  bench/network/run.py checksums [--repeat 5]     what the checksums of messages cost, on links of 10 and 1 Gbit/s
  bench/network/run.py coarse [--ratios 0.5,1,1.5] [--loads synthetic] [--plot coarse.svg]     encoded rounds beside full ones, 8 micro-batches a step
  bench/network/run.py layouts [--layers 96]      one nameless tensor beside the tensors of a deep GPT with and without decay, traced or not
  bench/network/run.py splits                     auto_pace beside every fixed split, on loads whose best split is 4 + 4, 6 + 2 and 7 + 1
  bench/network/run.py heterogeneous              one rank at half speed: elastic_pace against synchronous
  bench/network/run.py peers --data TEXT [--plot peers.svg]    PyTorch DDP and ZeroRedundancyOptimizer on the same link
  bench/network/run.py family [--ratios 1,4,16] [--schedules ...] [--repeat 3]     every schedule, over Gloo, on links that are as slow as the computation, and slower
  bench/network/run.py fair --data TEXT [--python PY]     what ACCO's published baseline sends, beside a baseline that sends what it must
  bench/network/run.py groups [--repeat 3]        two fast groups of two ranks over one link ten times as slow: two levels beside one
  bench/network/run.py published                  what ACCO's published times say of a fair baseline: arithmetic, needs nothing
  bench/network/run.py check                      a short run that fails when little is hidden or the bytes are wrong
"""
import argparse
import itertools
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SCHEDULES = ["synchronous", "delayed", "two_phase", "weight_prediction"]
HEADERS = 1448 / 1514  # of a full Ethernet frame, the share that is TCP payload
CORES = len(os.sched_getaffinity(0))


def run(*words, **more):
    return subprocess.run(words, check=True, capture_output=True, text=True, **more).stdout


def why_not():
    """Why namespaces cannot be made here, or None."""
    if os.geteuid() != 0:
        return "needs root, to make network namespaces"
    for program in ("ip", "tc", "taskset"):
        if not shutil.which(program):
            return f"needs {program} (Debian: iproute2, util-linux)"
    try:
        with Hosts(2, 100e6):
            return None
    except subprocess.CalledProcessError as e:
        return f"network namespaces or tbf are not allowed here: {' '.join(e.cmd)}: {e.stderr.strip()}"


class Hosts:
    """N network namespaces; each one's link carries `rate` bits a second in each direction (None: unlimited). Two are joined directly, more by a bridge."""

    serial = 0

    def __init__(self, count, rate, burst=128_000, ranks=1, inside=None):
        Hosts.serial += 1
        self.ranks, self.inside = ranks, inside  # on each host; bits a second among them (None: unlimited)
        self.burst = burst  # at least, in bytes: so much passes at once after a pause
        self.rate, self.tag = rate, f"{os.getpid() % 100000}x{Hosts.serial}"
        self.names = [f"acco{self.tag}h{i}" for i in range(count)]
        self.cards = [f"a{self.tag}h{i}"[:15] for i in range(count)]
        self.addresses = [f"10.77.0.{i + 1}" for i in range(count)]
        self.spaces = list(self.names)

    def __enter__(self):
        try:
            for name in self.names:
                run("ip", "netns", "add", name)
            if len(self.names) == 2:
                run("ip", "link", "add", self.cards[0], "netns", self.names[0], "type", "veth", "peer", "name", self.cards[1], "netns", self.names[1])
            else:
                bridge = f"acco{self.tag}b"
                run("ip", "netns", "add", bridge)
                self.spaces.append(bridge)
                run("ip", "-n", bridge, "link", "add", "switch", "type", "bridge")
                run("ip", "-n", bridge, "link", "set", "switch", "up")
                for i, (name, card) in enumerate(zip(self.names, self.cards)):
                    run("ip", "link", "add", card, "netns", name, "type", "veth", "peer", "name", f"port{i}", "netns", bridge)
                    run("ip", "-n", bridge, "link", "set", f"port{i}", "master", "switch", "up")
                    self.limit(bridge, f"port{i}")
            for name, card, address in zip(self.names, self.cards, self.addresses):
                run("ip", "-n", name, "addr", "add", address + "/24", "dev", card)
                run("ip", "-n", name, "link", "set", card, "up")
                run("ip", "-n", name, "link", "set", "lo", "up")
                if self.inside:
                    run("ip", "-n", name, "link", "set", "lo", "mtu", "1500")
                    self.limit(name, "lo", self.inside)
                self.limit(name, card)
            self.agent = os.path.join(tempfile.mkdtemp(), "agent")
            with open(self.agent, "w") as script:  # what mpirun takes for ssh: a host is a namespace with a host name of its own
                script.write("#!/bin/sh\nhost=$1\nshift\ncase $host in\n")
                for name, address in zip(self.names, self.addresses):
                    script.write(f"{address}) exec ip netns exec {name} unshare -u sh -c \"hostname {name}; $*\" ;;\n")
                script.write("esac\n")
            os.chmod(self.agent, 0o755)
            return self
        except BaseException:
            self.__exit__()
            raise

    def __exit__(self, *_):
        for name in self.spaces:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)

    def limit(self, space, card, rate=None):
        rate = rate or self.rate
        if rate:
            burst = max(self.burst, int(rate / 8 / 250 * 1.5))  # what passes in one tick of the kernel's clock
            run("ip", "netns", "exec", space, "tc", "qdisc", "add", "dev", card, "root", "tbf", "rate", f"{int(rate)}bit", "burst", str(burst), "latency", "50ms")

    def sent(self, i):
        return int(run("ip", "netns", "exec", self.names[i], "cat", f"/sys/class/net/{self.cards[i]}/statistics/tx_bytes"))

    def start(self, i, words, **environment):
        host = i // self.ranks
        settings = dict(os.environ, RANK=str(i), WORLD_SIZE=str(len(self.names) * self.ranks), MASTER_ADDR=self.addresses[0], MASTER_PORT="29500",
                        GLOO_SOCKET_IFNAME=self.cards[host], OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1", **environment)
        return subprocess.Popen(["ip", "netns", "exec", self.names[host], "taskset", "-c", str(i % CORES), *words], env=settings, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def everywhere(self, words, backend="gloo", seconds=300):
        """Runs a program as one rank a host; gives rank 0's output, or that of all, and the bytes that host 0 sent."""
        before = self.sent(0)
        if backend == "mpi":
            wrapper = 'exec taskset -c $((OMPI_COMM_WORLD_RANK % ' + str(CORES) + ')) "$@"'
            processes = [subprocess.Popen(
                ["ip", "netns", "exec", self.names[0], "unshare", "-u", "sh", "-c", f"hostname {self.names[0]}; exec \"$@\"", "sh", shutil.which("mpirun.openmpi") or "mpirun", "--allow-run-as-root",
                 "--mca", "plm_rsh_agent", self.agent, "--mca", "oob_tcp_if_include", "10.77.0.0/24", "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include",
                 "10.77.0.0/24", "--mca", "plm_rsh_no_tree_spawn", "1", "--bind-to", "none", "-x", "OPENBLAS_NUM_THREADS", "-H",
                 ",".join(self.addresses), "-n", str(len(self.names)), "sh", "-c", wrapper, "sh", *words],
                env=dict(os.environ, OPENBLAS_NUM_THREADS="1"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)]
        else:
            processes = [self.start(i, words) for i in range(len(self.names) * self.ranks)]
        outputs = []
        for each in processes:
            try:
                out, err = each.communicate(timeout=seconds)
            except subprocess.TimeoutExpired:
                for other in processes:
                    other.kill()
                raise
            if each.returncode != 0:
                for other in processes:
                    other.kill()
                sys.exit(f"{' '.join(words)}\nended with {each.returncode}:\n{out}\n{err}")
            outputs.append(out)
        return outputs[0], self.sent(0) - before

    def goodput(self):
        """Bytes a second that one TCP stream carries while another one runs the other way: the physical limit."""
        code = """
import socket, sys, threading, time
me, mine, other = int(sys.argv[1]), sys.argv[2], sys.argv[3]
listener = socket.socket(); listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); listener.bind((mine, 29600)); listener.listen()
to = None
for _ in range(200):
    try: to = socket.create_connection((other, 29600)); break
    except OSError: time.sleep(0.05)
source, _ = listener.accept()
def send():
    block, end = bytes(1 << 18), time.time() + 2.5
    try:
        while time.time() < end: to.sendall(block)
        to.shutdown(socket.SHUT_WR)
    except OSError: pass
threading.Thread(target=send).start()
buffer, total, first, marks = bytearray(1 << 18), 0, None, []
while True:
    n = source.recv_into(buffer)
    if n == 0: break
    total += n; marks.append((time.time(), total))
begin = next(m for m in marks if m[0] > marks[0][0] + 0.5)
end = [m for m in marks if m[0] < marks[0][0] + 2.3][-1]
print((end[1] - begin[1]) / (end[0] - begin[0]))
"""
        both = [self.start(i * self.ranks, [sys.executable, "-c", code, str(i), self.addresses[i], self.addresses[1 - i]]) for i in (0, 1)]
        return min(float(p.communicate(timeout=60)[0]) for p in both)


class Programs:
    def __init__(self, build):
        self.toy = os.path.join(build, "examples/toy_gpt/toy_gpt")
        self.synthetic = os.path.join(build, "bench/bench_network_synthetic")

    def load(self, name, backend, schedule, a, hosts, more=()):
        """One run: (seconds a step, seconds of computation in it, bytes a step by the report, theory of all, summary)."""
        if name == "synthetic":
            words = [self.synthetic, "--backend", backend, "--schedule", schedule, "--parameters", str(a.parameters), "--milliseconds", str(a.milliseconds),
                     "--steps", str(a.steps), *more]
            out, sent = hosts.everywhere(words, backend)
            result = json.loads(out.strip().splitlines()[-1])
            result["computation"] = a.synthetic_micro * result["alone_seconds"]
            result["single"] = 1 / result["alone_seconds"]
            parameters = a.parameters
        else:
            log = os.path.join(tempfile.mkdtemp(), "log.jsonl")
            words = [f"{self.toy}_{backend}", *a.toy_flags, *toy_schedule(schedule, a.toy_micro, a.split), "--samples",
                     str(len(hosts.names) * a.toy_batch * a.toy_micro * a.steps), "--validations", "1", "--quiet", "--log", log, *more]
            _, sent = hosts.everywhere(words, backend)
            result = json.loads(open(log).read().strip().splitlines()[-1])
            result.update(step_seconds=result["seconds"] / result["steps"], total_bytes_sent=result["bytes_sent"], computation=a.toy_batch * a.toy_micro / a.toy_single, single=a.toy_single)
            result["bytes_sent"] = result["total_bytes_sent"] / result["steps"]
            parameters = result["parameters"]
        n = result["ranks"]
        whole = 4 * parameters
        # the first broadcast, and the gather by which weight_prediction shows committed weights at the end
        shows = 1 if schedule == "weight_prediction" else 0
        result["theory"] = result["total_bytes_sent"] + whole * 2 * (n - 1) / n + shows * whole * (n - 1) / n
        result["wire"] = sent
        return result

    def names(self):
        """All schedules of the synthetic load; and of those that are local updates, whether they wait for an exchange."""
        lines = [line.split() for line in run(self.synthetic, "--list").splitlines()]
        return [words[1] for words in lines], {words[1]: "waits" in words for words in lines if words[0] == "local"}

    def unit(self, hosts):
        """Arithmetic of a millisecond of the synthetic load, while all ranks compute: given to every run, so that all have the same work."""
        units = []
        for _ in range(5):
            out, _ = hosts.everywhere([self.synthetic, "--schedule", "synchronous", "--parameters", "1000", "--milliseconds", "1", "--steps", "1"])
            units.append(json.loads(out.strip().splitlines()[-1])["unit"])
        return max(units)  # the run that was disturbed least

    def toy_single(self, flags):
        log = os.path.join(tempfile.mkdtemp(), "log.jsonl")
        speeds = []
        for _ in range(3):
            run("taskset", "-c", "0", self.toy, "--ranks", "1", "--schedule", "synchronous", *flags, "--samples", "512", "--quiet", "--log", log)
            speeds.append(json.loads(open(log).read().strip().splitlines()[-1])["samples_per_second"])
        return statistics.median(speeds)


def toy_schedule(label, micro_batches, split=None):
    """Flags of toy_gpt for a schedule with so many micro-batches a step; a split (7:1) is for schedules of two rounds."""
    schedule, _, wire = label.partition("+")
    if schedule != "two_phase":
        split = str(micro_batches)
    elif not split:
        split = f"{micro_batches // 2}:{micro_batches - micro_batches // 2}"
    flags = ["--schedule", schedule, "--micro-batches", split]
    if wire == "coded":
        return flags + ["--commit", "coded"]
    return flags + (["--estimate", wire] if wire else [])


def row(result, schedule, goodput):
    computation, communication = result["computation"], result["bytes_sent"] / goodput
    limit = computation + communication if schedule == "synchronous" else max(computation, communication)
    possible = 0 if schedule == "synchronous" else min(1, computation / communication)
    return dict(step=result["step_seconds"], limit=limit, over=result["step_seconds"] / limit, hidden=result["hidden_fraction"], possible=possible,
                wire=result["wire"] / result["theory"], speed=result["samples_per_second"], of_single=result["samples_per_second"] / result["ranks"] / result["single"])


def gnuplot(script, file):
    if not shutil.which("gnuplot"):
        print(f"no {file}: gnuplot is not installed")
        return
    subprocess.run(["gnuplot"], input=f"set terminal svg size 1100,460 font 'sans,13'\nset output '{file}'\n{script}", text=True, check=True)


def overlap(a, programs):
    points = {}
    print(f"{a.hosts} hosts, {CORES} cores. limit: computation + communication for synchronous, the larger of both for the others, at the link's measured goodput.")
    print("| load | backend | T_comm/T_comp | link, Mbit/s | schedule | step, ms | limit, ms | step/limit | hidden | could be hidden | wire/theory | samples/s | of N single |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    for load in a.loads.split(","):
        if load == "toy_gpt":
            a.toy_single = programs.toy_single(a.toy_flags)
            computation, whole = a.toy_batch * a.toy_micro / a.toy_single, 4 * 834304
        else:
            computation, whole = 2e-3 * a.milliseconds, 4 * a.parameters
        for ratio in [float(r) for r in a.ratios.split(",")]:
            rate = whole * 2 * (a.hosts - 1) / a.hosts * 8 / (ratio * computation) / HEADERS
            with Hosts(a.hosts, rate) as hosts:
                goodput = hosts.goodput()
                for backend in a.backends.split(","):
                    for schedule in a.schedules.split(","):
                        results = [row(programs.load(load, backend, schedule, a, hosts, ("--piece", str(a.piece)) if a.piece else ()), schedule, goodput) for _ in range(a.repeat)]
                        r = sorted(results, key=lambda each: each["over"])[len(results) // 2]
                        points.setdefault((load, backend, schedule), []).append((ratio, r["over"], r["hidden"], r["of_single"]))
                        print(f"| {load} | {backend} | {ratio:g} | {rate / 1e6:.0f} ({goodput * 8e-6:.0f}) | {schedule} | {1e3 * r['step']:.1f} | {1e3 * r['limit']:.1f} | "
                              f"{r['over']:.3f} | {100 * r['hidden']:.0f} % | {100 * r['possible']:.0f} % | {r['wire']:.3f} | {r['speed']:.1f} | {r['of_single']:.3f} |", flush=True)
    if a.plot:
        script = "set multiplot layout 1,2\nset grid lc rgb '#dddddd'\nset xlabel 'communication / computation of one synchronous step'\nset logscale x 2\nset yrange [0:1.05]\n"
        names = {key: f"$d{k}" for k, key in enumerate(points)}
        for key, name in names.items():
            script += f"{name} << END\n" + "".join(" ".join(map(str, p)) + "\n" for p in points[key]) + "END\n"
        for column, label in ((4, "samples/s over N times the single rank"), (3, "communication hidden")):
            script += f"set ylabel '{label}'\nset key bottom left\nplot " + ", ".join(
                f"{name} using 1:{column} with linespoints pt {7 if key[1] == 'gloo' else 6} dt {1 if key[0] == 'synthetic' else 2} lc {SCHEDULES.index(key[2]) + 1} "
                f"title '{key[2]}, {key[1]}, {key[0]}' noenhanced" for key, name in names.items()) + "\n"
        gnuplot(script + "unset multiplot\n", a.plot)


BYTES = {"full": 4.0, "int8": 260 / 256, "int4": 132 / 256, "gauss4": 130 / 256, "gauss3": 98 / 256}  # of a number on the wire


def parts(schedule, n, parameters):
    """Bytes that a rank sends in the round that does not commit, and in the one that does."""
    name, _, wire = schedule.partition("+")
    once = parameters * (n - 1) / n
    commit = once * (BYTES["gauss4"] + BYTES["gauss3"] if wire == "coded" else 2 * BYTES["full"])
    if name != "two_phase":
        return 0, commit
    if wire.startswith("own"):  # parameters only
        return once * BYTES["full"], commit
    return 2 * once * BYTES["int4" if wire in ("coded", "int4") else "int8" if wire == "int8" else "full"], commit


def coarse(a, programs):
    """Steps of 8 micro-batches: encoded rounds beside full ones on the same link in the same run."""
    a.synthetic_micro, a.toy_micro, a.toy_batch, a.toy_flags = 8, 8, 8, ["--batch", "8"]
    configurations = [("synchronous", None), ("delayed", None), ("weight_prediction", None), ("two_phase", "4:4"), ("two_phase+int8", "7:1"), ("two_phase+int4", "7:1"),
                      ("two_phase+int4", "auto"), ("two_phase+coded", "7:1"), ("two_phase+coded", "auto"), ("synchronous+coded", None), ("delayed+coded", None)]
    print(f"{a.hosts} hosts, {CORES} cores, {a.backends}, 8 micro-batches a step; medians of {a.repeat} runs, ratios within each. limit of two_phase: the longer of computation and communication in each part of a step.")
    print("| load | T_comm/T_comp | link, Mbit/s | schedule | split | step, ms | limit, ms | step/limit | hidden | bytes a parameter and step | samples/s | x synchronous | x delayed |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    points = {}
    for load in a.loads.split(","):
        if load == "toy_gpt":
            a.toy_single = programs.toy_single(a.toy_flags)
            computation, parameters = a.toy_batch * a.toy_micro / a.toy_single, 834304
        else:
            computation, parameters = 8e-3 * a.milliseconds, a.parameters
        for ratio in [float(r) for r in a.ratios.split(",")]:
            rate = 4 * parameters * 2 * (a.hosts - 1) / a.hosts * 8 / (ratio * computation) / HEADERS
            with Hosts(a.hosts, rate) as hosts:
                goodput = hosts.goodput()
                results = {each: [] for each in configurations}
                for _ in range(a.repeat):  # in turn, so that a slower hour of the machine meets all of them
                    for schedule, split in configurations:
                        auto = split == "auto"
                        a.split = None if auto else split
                        more = ["--auto-pace"] if auto else []
                        if load == "synthetic":
                            first, second = ((4, 4) if auto or not split else map(int, split.split(":")))
                            more += ["--micro-batches", str(first), "--second", str(second)]
                        results[schedule, split].append(programs.load(load, a.backends, schedule, a, hosts, more))
                speeds = {each: [r["samples_per_second"] for r in runs] for each, runs in results.items()}
                times = lambda each, base: statistics.median(x / y for x, y in zip(speeds[each], speeds[base, None]))
                for (schedule, split), runs in results.items():
                    r = sorted(runs, key=lambda each: each["step_seconds"])[len(runs) // 2]
                    estimate, commit = (bytes_ / goodput for bytes_ in parts(schedule, a.hosts, parameters))
                    c = r["computation"] / 8
                    if schedule.startswith("two_phase"):
                        limit = max(r["first"] * c, commit) + max(r["second"] * c, estimate)
                    else:
                        limit = 8 * c + commit if schedule.startswith("synchronous") else max(8 * c, commit)
                    found = ", found" if split == "auto" else ""
                    shown = f"{r['first']} + {r['second']}{found}" if schedule.startswith("two_phase") else ""
                    faster = times((schedule, split), "synchronous")
                    if not found:
                        points.setdefault(f"{schedule} {shown}".strip(), []).append((ratio, faster))
                    print(f"| {load} | {ratio:g} | {rate / 1e6:.0f} ({goodput * 8e-6:.0f}) | {schedule} | {shown} | {1e3 * r['step_seconds']:.1f} | {1e3 * limit:.1f} | "
                          f"{r['step_seconds'] / limit:.3f} | {100 * r['hidden_fraction']:.0f} % | {r['bytes_sent'] * a.hosts / (a.hosts - 1) / parameters:.2f} | "
                          f"{statistics.median(speeds[schedule, split]):.1f} | {faster:.2f} | {times((schedule, split), 'delayed'):.2f} |", flush=True)
    if a.plot:
        plot_speeds(points, a.plot)


def layouts(a, programs):
    """What a layout of many small tensors in two groups, or a trace, costs: steps on the same link, in turn."""
    a.synthetic_micro = 2
    flat, deep = (), ("--layers", str(a.layers))
    variants = {"one tensor": flat, f"{a.layers} layers": deep, "one tensor, traced": (*flat, "--traced"), f"{a.layers} layers, traced": (*deep, "--traced")}
    whole, computation = 4 * a.parameters, 2e-3 * a.milliseconds
    print(f"{a.hosts} hosts, {CORES} cores; communication of a round over its computation: {a.ratios}; medians of {a.repeat} runs, ratios within each.")
    print("| backend | T_comm/T_comp | schedule | layout | step, ms | exposed, ms | hidden | step, of one tensor's |\n|---|---|---|---|---|---|---|---|")
    for backend, ratio in itertools.product(a.backends.split(","), [float(r) for r in a.ratios.split(",")]):
        with Hosts(a.hosts, whole * 2 * (a.hosts - 1) / a.hosts * 8 / (ratio * computation) / HEADERS) as hosts:
            for schedule in a.schedules.split(","):
                runs = {each: [] for each in variants}
                for _ in range(a.repeat):
                    for each, more in variants.items():
                        runs[each].append(programs.load("synthetic", backend, schedule, a, hosts, more))
                for each, results in runs.items():
                    r = sorted(results, key=lambda one: one["step_seconds"])[len(results) // 2]
                    of_flat = statistics.median(x["step_seconds"] / y["step_seconds"] for x, y in zip(results, runs["one tensor"]))
                    print(f"| {backend} | {ratio:g} | {schedule} | {each} | {1e3 * r['step_seconds']:.1f} | {1e3 * r['exposed_seconds']:.1f} | {100 * r['hidden_fraction']:.0f} % | {of_flat:.3f} |", flush=True)


def splits(a, programs):
    """auto_pace beside every fixed split of 8 micro-batches. Each load has its own best one: the commit fills the first part, the estimate the second."""
    a.synthetic_micro = 8
    computation = 1e-3 * a.milliseconds
    print(f"{a.hosts} hosts, {CORES} cores; medians of {a.repeat} runs.")
    print("| backend | schedule | commit, micro-batches | estimate | split | step, ms | of the best fixed split's |\n|---|---|---|---|---|---|---|")
    loads = (("two_phase", 3.7), ("two_phase+int8", 5.6), ("two_phase+int4", 6.5))
    for backend, (schedule, commit) in itertools.product(a.backends.split(","), loads):
        estimate_bytes, commit_bytes = parts(schedule, a.hosts, a.parameters)
        rate = commit_bytes * 8 / (commit * computation) / HEADERS
        with Hosts(a.hosts, rate) as hosts:
            results = {}
            for _ in range(a.repeat):
                for second in (1, 2, 3, 4, 5, "found"):
                    pace = ("--auto-pace", "--micro-batches", "4", "--second", "4") if second == "found" else ("--micro-batches", str(8 - second), "--second", str(second))
                    results.setdefault(second, []).append(programs.load("synthetic", backend, schedule, a, hosts, pace))
            step = {second: statistics.median(r["step_seconds"] for r in runs) for second, runs in results.items()}
            best = min(seconds for second, seconds in step.items() if second != "found")
            for second, runs in results.items():
                found = ", ".join(f"{r['first']} + {r['second']}" for r in runs)
                shown = f"found: {found}" if second == "found" else f"{8 - second} + {second}"
                print(f"| {backend} | {schedule} | {commit:g} | {commit * estimate_bytes / commit_bytes:.2f} | {shown} | {1e3 * step[second]:.1f} | {step[second] / best:.3f} |", flush=True)


def plot_speeds(points, file):
    """points: for every schedule its (ratio, samples/s in units of synchronous)."""
    script = "set grid lc rgb '#dddddd'\nset xlabel 'communication / computation of one synchronous step'\nset ylabel 'samples/s, synchronous = 1'\nset key outside\n"
    for k, values in enumerate(points.values()):
        script += f"$d{k} << END\n" + "".join(f"{x} {y}\n" for x, y in sorted(values)) + "END\n"
    lines = [f"$d{k} using 1:2 with linespoints lw 2 lc {k % 7 + 1} dt {k // 7 + 1} pt 7 ps 0.5 title '{name}' noenhanced" for k, name in enumerate(points)]
    gnuplot(script + "plot " + ", ".join(lines) + "\n", file)


def pieces(a, programs):
    a.parameters, a.milliseconds, a.steps = 8_000_000, 10, 12
    print("| backend | link, Mbit/s | KiB a piece | synchronous step, ms | over the limit |\n|---|---|---|---|---|")
    for rate in (None, 1e9):
        with Hosts(2, rate) as hosts:
            goodput = hosts.goodput()
            for backend in a.backends.split(","):
                for kib in (32, 64, 128, 256, 512):
                    results = [row(programs.load("synthetic", backend, "synchronous", a, hosts, ("--piece", str(kib))), "synchronous", goodput) for _ in range(a.repeat)]
                    r = sorted(results, key=lambda each: each["step"])[len(results) // 2]
                    print(f"| {backend} | {'unlimited' if rate is None else f'{rate / 1e6:.0f}'} ({goodput * 8e-6:.0f}) | {kib} | {1e3 * r['step']:.1f} | {r['over']:.3f} |", flush=True)


def checksums(a, programs):
    a.parameters = 8_000_000
    print(f"{a.parameters / 1e6:g} M parameters, 2 hosts, runs with checksums and without in turn, {a.repeat} of each; computation: as long as communication")
    print("| backend | link, Mbit/s | schedule | step without, ms | with / without, median | lowest | highest |\n|---|---|---|---|---|---|---|")
    for rate in (10e9, 1e9):
        with Hosts(2, rate, burst=max(128_000, int(rate / 8 * 0.0005))) as hosts:
            a.milliseconds, a.steps = 1e3 * a.parameters * 4 * 8 / rate / a.synthetic_micro, 24 if rate > 5e9 else 6
            for backend in a.backends.split(","):
                for schedule in ("synchronous", "two_phase"):
                    runs = {sums: [] for sums in ("none", "always")}
                    for _ in range(a.repeat):
                        for sums, steps in runs.items():
                            steps.append(programs.load("synthetic", backend, schedule, a, hosts, ("--checksums", sums))["step_seconds"])
                    ratios = sorted(with_them / without for without, with_them in zip(runs["none"], runs["always"]))
                    print(f"| {backend} | {rate / 1e6:.0f} | `{schedule}` | {1e3 * statistics.median(runs['none']):.1f} | {statistics.median(ratios):.3f} | {ratios[0]:.3f} | {ratios[-1]:.3f} |", flush=True)


def groups(a, programs):
    """Two hosts of two ranks each; inside a host messages are ten times as fast as between hosts, whose link both ranks share."""
    slow, a.milliseconds = 100e6, 1
    print(f"2 hosts of 2 ranks, {CORES} cores, {a.parameters / 1e6:g} M parameters, {slow / 1e6:.0f} Mbit/s between hosts, {slow / 1e5:.0f} inside; {a.repeat} runs in turn, ratios within each")
    print("| schedule | levels | bytes between hosts, of a host and step | MB sent by a rank | step, ms | x one level |\n|---|---|---|---|---|---|")
    with Hosts(2, slow, ranks=2, inside=10 * slow) as hosts:
        for schedule in ("synchronous", "synchronous+coded"):
            runs = {levels: [] for levels in (1, 2)}
            for _ in range(a.repeat):
                for levels in runs:
                    runs[levels].append(programs.load("synthetic", "gloo", schedule, a, hosts, ("--ranks-a-group", "2") if levels == 2 else ()))
            for levels, each in runs.items():
                r = sorted(each, key=lambda run: run["step_seconds"])[len(each) // 2]
                speed = statistics.median(one["step_seconds"] / run["step_seconds"] for one, run in zip(runs[1], each))
                between = f"{2 * r['bytes_between'] / 1e6:.2f} MB" if levels == 2 else "-"
                print(f"| {schedule} | {levels} | {between} | {r['bytes_sent'] / 1e6:.2f} | {1e3 * r['step_seconds']:.1f} | {speed:.2f} |", flush=True)


def heterogeneous(a, programs):
    a.steps = 30
    computation, whole = 2e-3 * a.milliseconds, 4 * a.parameters
    rate = whole * 8 / computation / HEADERS * 2  # communication takes half of the computation
    print("Rank 1 computes everything twice. Sum of the single-rank speeds: 1.5 times rank 0's.")
    print("| load | schedule | pace | samples/s | of the sum of single speeds | validation loss |\n|---|---|---|---|---|---|")
    with Hosts(2, rate) as hosts:
        for schedule, pace in (("synchronous", "fixed"), ("delayed", "fixed"), ("delayed", "elastic"), ("two_phase", "fixed"), ("two_phase", "elastic")):
            more = ("--slow-rank", "1") + (("--elastic",) if pace == "elastic" else ())
            shares, speeds = [], []
            for _ in range(a.repeat):
                r = programs.load("synthetic", "gloo", schedule, a, hosts, more)
                speeds.append(r["samples_per_second"])
                shares.append(r["samples_per_second"] / (1.5 * r["single"]))
            print(f"| synthetic | {schedule} | {pace} | {statistics.median(speeds):.1f} | {statistics.median(shares):.3f} | |", flush=True)
        a.toy_single = programs.toy_single(a.toy_flags)
        for schedule, pace in (("synchronous", "fixed"), ("two_phase", "fixed"), ("two_phase", "elastic")):
            log = os.path.join(tempfile.mkdtemp(), "log.jsonl")
            words = [f"{programs.toy}_gloo", "--schedule", schedule, *a.toy_flags, "--micro-batches", "1" if schedule == "two_phase" else "2", "--samples",
                     "6000", "--quiet", "--log", log, "--slow-rank", "1"] + (["--elastic"] if pace == "elastic" else [])
            hosts.everywhere(words)
            r = json.loads(open(log).read().strip().splitlines()[-1])
            print(f"| toy_gpt | {schedule} | {pace} | {r['samples_per_second']:.1f} | {r['samples_per_second'] / (1.5 * a.toy_single):.3f} | {r['validation_loss']:.4f} |", flush=True)


def seconds_to(loss, curve):
    """When a validation curve of (samples, seconds, loss) first reaches a loss, between its points."""
    before = None
    for _, seconds, now in curve:
        if now <= loss:
            return f"{seconds if before is None else before[0] + (before[1] - loss) / (before[1] - now) * (seconds - before[0]):.1f}"
        before = (seconds, now)
    return "-"


def peers(a, programs):
    flags = ["--data", a.data, "--batch", "8", "--seed", "1"]
    a.toy_single = programs.toy_single(flags)
    torch = os.path.join(ROOT, "bench/peers/torch_ddp.py")
    python = a.python
    single = json.loads(run("taskset", "-c", "0", python, torch, "--mode", "single", "--data", a.data, "--samples", "512", "--batch", "16", "--micro-batches", "4",
                            env=dict(os.environ, OMP_NUM_THREADS="1")))["samples_per_second"]
    rate = 4 * 834304 * 8 / (64 / a.toy_single) / HEADERS
    curves = []
    with Hosts(2, rate) as hosts:
        print(f"Link of {rate / 1e6:.0f} Mbit/s (measured goodput {hosts.goodput() * 8e-6:.0f}); fp32 on the wire, but for encoded rounds; {a.samples} sequences, 128 a step.")
        print(f"Single rank: toy_gpt {a.toy_single:.1f} sequences/s, PyTorch {single:.1f}.")
        print(f"| program | micro-batches | samples/s | of N single | seconds | validation loss | seconds to {a.loss} |\n|---|---|---|---|---|---|---|")
        for schedule, split in [("synchronous", None), ("delayed", None), ("two_phase", "4:4"), ("weight_prediction", None), ("two_phase+int4", "7:1"), ("two_phase+coded", "7:1")]:
            log = os.path.join(tempfile.mkdtemp(), "log.jsonl")
            hosts.everywhere([f"{programs.toy}_gloo", *flags, *toy_schedule(schedule, 8, split), "--validations", "16",
                              "--samples", str(a.samples), "--quiet", "--log", log], seconds=900)
            curves.append((json.loads(open(log).read().strip().splitlines()[-1]), a.toy_single))
        for mode in ("ddp", "zero"):
            out, _ = hosts.everywhere([python, torch, "--mode", mode, "--data", a.data, "--batch", "16", "--samples", str(a.samples)], seconds=900)
            curves.append((json.loads(out.strip().splitlines()[-1]), single))
    for r, alone in curves:
        split = f"{r['first']} + {r['second']}" if r["schedule"].startswith("two_phase") else ""
        print(f"| {r['schedule']} | {split} | {r['samples_per_second']:.1f} | {r['samples_per_second'] / 2 / alone:.3f} | {r['seconds']:.1f} | {r['validation_loss']:.4f} | {seconds_to(a.loss, r['validation'])} |")
    if a.plot:
        script = "set grid lc rgb '#dddddd'\nset xlabel 'seconds'\nset ylabel 'validation loss (nats per byte)'\n"
        for k, (r, _) in enumerate(curves):
            script += f"$d{k} << END\n" + "".join(f"{p[1]} {p[2]}\n" for p in r["validation"]) + "END\n"
        script += "plot " + ", ".join(f"$d{k} using 1:2 with linespoints lw 2 pt 7 ps 0.5 title '{r['schedule']}' noenhanced" for k, (r, _) in enumerate(curves)) + "\n"
        gnuplot(script, a.plot)


# --exchange of these is looked at, too
ENCODED_EXCHANGES = ["diloco+int4", "streaming_diloco+int4"]


class Member:
    """One of the family: its flags, its bytes by the formula, and the limit of its step. Steps of 8 micro-batches."""

    def __init__(self, label, local_steps, local):
        """`local`: methods of local updates, and whether they wait for an exchange."""
        self.label, self.local_steps = label, local_steps
        self.method, _, wire = label.partition("+")
        self.local = self.method in local
        self.waits = self.method == "synchronous" or local.get(self.method, False)
        self.fragments = next(p for p in (4, 3, 2, 1) if local_steps % p == 0)
        self.split = (7, 1) if label == "two_phase+int4" else (6, 2)
        self.exchange = BYTES[wire or "full"] if self.local else None
        if self.local:
            self.schedule, self.shown = self.method, f"every {local_steps}" + (f", {self.fragments} fragments" if self.method == "streaming_diloco" else "")
            self.flags = ["--local-steps", str(local_steps), "--exchange", wire or "full", "--fragments", str(self.fragments)]
        else:
            self.schedule, self.shown, self.flags = label, f"{self.split[0]} + {self.split[1]}" if self.method == "two_phase" else "", []
        self.flags += ["--micro-batches", str(self.split[0]), "--second", str(self.split[1])]

    def bytes(self, n, parameters):
        """Bytes that a rank sends in a step: of the round that does not commit, and of the one that does, or of the exchange."""
        if self.local:
            return 0, 2 * self.exchange * parameters * (n - 1) / n / self.local_steps
        return parts(self.label, n, parameters)

    def limit(self, micro_batch, n, parameters, goodput):
        """Seconds of a step in which the link and the processor never wait for anything but each other."""
        computation = 8 * micro_batch
        estimate, commit = (each / goodput for each in self.bytes(n, parameters))
        if self.waits:
            return computation + commit
        if self.method == "two_phase":
            return max(self.split[0] * micro_batch, commit) + max(self.split[1] * micro_batch, estimate)
        if self.method == "streaming_diloco":  # a fragment is under way for one step
            stretch = self.local_steps // self.fragments
            return (max(computation, commit * stretch) + (stretch - 1) * computation) / stretch
        return max(computation, commit)


def family(a, programs):
    """All schedules in turn on one link after the other. The slower the link, the shorter the computation, so that no step is long."""
    if a.hosts < 2:
        sys.exit("family: --hosts is less than 2, and nothing is sent then")
    a.synthetic_micro, milliseconds, ratios = 8, a.milliseconds, [float(r) for r in a.ratios.split(",")]
    schedules, local = programs.names()
    known = schedules + ENCODED_EXCHANGES
    labels = known if a.schedules is None else a.schedules.split(",")
    unknown = [each for each in labels if each not in known]
    if unknown:
        sys.exit(f"family: no schedule is called {', '.join(unknown)}; there are {', '.join(known)}")
    members = [Member(each, a.local_steps, local) for each in dict.fromkeys(["synchronous", *labels])]
    unit = a.parameters * (a.hosts - 1) / a.hosts
    print(f"{a.hosts} hosts, {CORES} cores, Gloo, {a.parameters} fp32 parameters, 8 micro-batches a step; medians of {a.repeat} runs, ratios within each. A step is one update of the rank; of local updates the mean "
          "of whole rounds. Bytes: that a rank sends, a parameter and step, in units of (N-1)/N. limit: computation + communication where the computation waits, else the longer of both, of two_phase in each "
          "part of a step, of streaming_diloco in each step; at the link's measured goodput, without updates and encoding. Memory: bytes a parameter of a rank, where parameter and gradient are 8; the transport's buffers, which do not grow with the model, are not in it.")
    print("| T_comm/T_comp | link, Mbit/s | computation, ms | schedule | split | bytes | by formula | step, ms | limit, ms | step/limit | hidden | x synchronous | memory |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|")
    speed, hidden, sent, memory, unit_of_work = {}, {}, {}, {}, []
    for ratio in ratios:
        a.milliseconds = max(1, round(milliseconds / ratio**0.5))
        rate = 8 * unit * 8 / (ratio * 8e-3 * a.milliseconds) / HEADERS
        with Hosts(a.hosts, rate, 32_000) as hosts:
            goodput, unit_of_work = hosts.goodput(), unit_of_work or ["--unit", str(programs.unit(hosts))]
            results = {m.label: [] for m in members}
            for _ in range(a.repeat):  # in turn, so that a slower hour of the machine meets all of them
                for m in members:
                    results[m.label].append(programs.load("synthetic", "gloo", m.schedule, a, hosts, m.flags + unit_of_work))
        micro_batch = statistics.median(r["alone_seconds"] for runs in results.values() for r in runs)
        for m in members:
            runs = results[m.label]
            faster = statistics.median(base["step_seconds"] / r["step_seconds"] for r, base in zip(runs, results["synchronous"]))
            step = statistics.median(r["step_seconds"] for r in runs)
            share = max(0, statistics.median(r["hidden_fraction"] for r in runs))
            limit, formula = m.limit(micro_batch, a.hosts, a.parameters, goodput), sum(m.bytes(a.hosts, a.parameters)) / unit
            speed[m.label, ratio], hidden[m.label, ratio] = faster, share
            sent[m.label], memory[m.label] = (statistics.median(r["bytes_sent"] for r in runs) / unit, formula), runs[0]["memory_slope"]
            print(f"| {ratio:g} | {rate / 1e6:.0f} ({goodput * 8e-6:.0f}) | {8e3 * micro_batch:.0f} | {m.label} | {m.shown} | {sent[m.label][0]:.3f} | {formula:.3f} | {1e3 * step:.1f} | {1e3 * limit:.1f} | "
                  f"{step / limit:.3f} | {100 * share:.0f} % | {faster:.2f} | {memory[m.label]:.1f} |", flush=True)
    of = lambda table, label, shown: " | ".join(shown(table[label, ratio]) for ratio in ratios)
    titles = lambda title: " | ".join(f"{title} {ratio:g}" for ratio in ratios)
    print(f"\n| schedule | split | bytes a parameter and step (formula) | {titles('x at')} | {titles('hidden at')} | memory, bytes a parameter |\n|" + "---|" * (4 + 2 * len(ratios)))
    for m in members:
        print(f"| `{m.label}` | {m.shown} | {sent[m.label][0]:.2f} ({sent[m.label][1]:.2f}) | {of(speed, m.label, lambda x: f'{x:.2f}')} | {of(hidden, m.label, lambda x: f'{100 * x:.0f} %')} | {memory[m.label]:.1f} |")
    wrong = [f"{label} sent {measured:.3f} bytes a parameter and step, and the formula says {formula:.3f}" for label, (measured, formula) in sent.items() if abs(measured - formula) > 0.02 * formula]
    if wrong:
        sys.exit("\n".join(wrong))


def step_by_bytes(schedule, split, computation, goodput, parameters):
    """Seconds of a step of two ranks: computation + communication where the computation waits, of two_phase the longer of both in each part of a step."""
    estimate, commit = (each / goodput for each in parts(schedule, 2, parameters))
    if not schedule.startswith("two_phase"):
        return computation + commit
    first, second = (computation * int(each) / 8 for each in split.split(":"))
    return max(first, commit) + max(second, estimate)


def fair(a, programs):
    """The published baseline's traffic, ours and PyTorch's, on a link whose fp32 exchange takes as long as the computation of a step, and on one four times as slow."""
    accumulate = [int(each) for each in a.accumulate.split(",")]
    if any(each not in (2, 4, 8, 16) for each in accumulate):
        sys.exit(f"fair: --accumulate {a.accumulate}: a step's 64 sequences of a rank are cut into so many micro-batches; give some of 2, 4, 8, 16")
    flags, torch = ["--data", a.data, "--batch", "8", "--seed", "1"], os.path.join(ROOT, "bench/peers/torch_ddp.py")
    ours = [("synchronous", None), ("synchronous+coded", None), ("two_phase", "4:4"), ("two_phase+int4", "7:1"), ("two_phase+coded", "7:1")]
    shown = lambda schedule, split: f"`{schedule}`" + (f" {split.replace(':', ' + ')}" if split else "")
    formula = lambda schedule: sum(parts(schedule, 2, 1)) * 2  # bytes a parameter, in units of (N-1)/N
    names = {"as_released": "PyTorch, as released", "zero": "PyTorch DDP, no_sync, ZeRO", "ddp": "PyTorch DDP, no_sync"}
    theirs = []
    help_of_torch = subprocess.run([a.python, torch, "--help"], capture_output=True, text=True)
    if help_of_torch.returncode != 0:
        print(f"without PyTorch: {a.python} {torch} --help says: {help_of_torch.stderr.strip().splitlines()[-1]}")
    else:
        theirs = [("as_released", each) for each in accumulate if "as_released" in help_of_torch.stdout] + [("zero", 4), ("ddp", 4)]
        single = json.loads(run("taskset", "-c", "0", a.python, torch, "--mode", "single", "--data", a.data, "--samples", "512", "--batch", "16", "--micro-batches", "4",
                                env=dict(os.environ, OMP_NUM_THREADS="1")).strip().splitlines()[-1])["samples_per_second"]
    a.toy_single = programs.toy_single(flags)
    print(f"2 hosts, {CORES} cores, Gloo, fp32 parameters and gradients; all rows of a load have the same samples a step; medians of {a.repeat} runs in turn. as released: an exchange for each of A micro-batches. "
          "Bytes: that a rank sends, a parameter and step, in units of (N-1)/N, by the formula, and as the engine reports them (PyTorch: on the wire over the whole run, without its first broadcast). By the bytes: "
          "computation + communication at the link's measured goodput where the computation waits, of two_phase the longer of both in each part of a step. Saved: of a step's time, against as released, by A, and "
          "against the fair baseline, `synchronous` (PyTorch's rows: DDP with no_sync). A step of the GPT includes its share of the last rounds, which nothing hides.")
    print("| T_comm/T_comp | link, Mbit/s | load | what | bytes | sent | step, s | by the bytes, s | " + " | ".join(f"saved, A = {each}" for each in accumulate) + " | saved, fair |\n|" + "---|" * (9 + len(accumulate)))

    def show(ratio, link, load, rows, released, baseline_of):
        """rows: name -> (bytes by the formula, seconds of a step by the bytes, (bytes sent, seconds of a step) of each run)."""
        seconds = {name: [step for _, step in runs] for name, (_, _, runs) in rows.items()}
        for name, (bytes_, limit, runs) in rows.items():
            saved = [f"{100 * (1 - statistics.median(x / y for x, y in zip(seconds[name], seconds[other]))):.0f} %" if other in rows else "-" for other in [*released, baseline_of(name)]]
            print(f"| {ratio:g} | {link} | {load} | {name} | {bytes_:.2f} | {statistics.median(sent for sent, _ in runs):.2f} | {statistics.median(seconds[name]):.4f} | {limit:.4f} | {' | '.join(saved)} |", flush=True)

    micro, a.synthetic_micro, unit_of_work = a.milliseconds, 8, []
    for ratio in (1, 4):
        # one engine for all rows: a load of exact computation
        unit, rows, computation = a.parameters / 2, {}, []
        released = {f"`synchronous`, as released, A = {each}": each for each in accumulate}
        with Hosts(2, 8 * unit * 8 / (ratio * 8e-3 * micro) / HEADERS) as hosts:
            goodput, unit_of_work = hosts.goodput(), unit_of_work or ["--unit", str(programs.unit(hosts))]
            runs = {name: [] for name in [*released, *itertools.starmap(shown, ours)]}
            for _ in range(a.repeat):
                for name, each in released.items():
                    a.milliseconds = 8 * micro / each
                    r = programs.load("synthetic", "gloo", "synchronous", a, hosts, ["--every-micro-batch", "--micro-batches", str(each // 2), *unit_of_work])
                    runs[name].append((r["bytes_sent"] / unit, r["step_seconds"]))
                a.milliseconds = micro
                for schedule, split in ours:
                    first, second = (split or "4:4").split(":")
                    r = programs.load("synthetic", "gloo", schedule, a, hosts, ["--micro-batches", first, "--second", second, *unit_of_work])
                    runs[shown(schedule, split)].append((r["bytes_sent"] / unit, r["step_seconds"]))
                    computation.append(r["computation"])
            c = statistics.median(computation)
            rows = {name: (8 * each, c + 8 * each * unit / goodput, runs[name]) for name, each in released.items()}
            rows.update({shown(*each): (formula(each[0]), step_by_bytes(*each, c, goodput, a.parameters), runs[shown(*each)]) for each in ours})
            show(ratio, f"{hosts.rate / 1e6:.0f} ({goodput * 8e-6:.0f})", "synthetic", rows, list(released), lambda _: "`synchronous`")
        # a GPT, beside PyTorch
        parameters, c = 834304, 64 / a.toy_single
        with Hosts(2, 4 * parameters * 8 / (ratio * c) / HEADERS) as hosts:
            goodput, rows = hosts.goodput(), {}
            for mode, each in theirs:
                bytes_ = {"as_released": 8 * each + 4, "zero": 12, "ddp": 8}[mode]
                rows[names[mode] + (f", A = {each}" if mode == "as_released" else "")] = (bytes_, 64 / single + bytes_ * parameters / 2 / goodput, [])
            rows.update({shown(*each): (formula(each[0]), step_by_bytes(*each, c, goodput, parameters), []) for each in ours})
            for _ in range(a.repeat):
                for (mode, each), (_, _, runs) in zip(theirs, rows.values()):
                    out, sent = hosts.everywhere([a.python, torch, "--mode", mode, "--data", a.data, "--batch", str(64 // each), "--micro-batches", str(each), "--samples", str(a.samples)], seconds=1200)
                    r = json.loads(out.strip().splitlines()[-1])
                    runs.append(((sent - 4 * parameters) / r["steps"] / (parameters / 2), r["seconds"] / r["steps"]))
                for schedule, split in ours:
                    log = os.path.join(tempfile.mkdtemp(), "log.jsonl")
                    hosts.everywhere([f"{programs.toy}_gloo", *flags, *toy_schedule(schedule, 8, split), "--validations", "1", "--samples", str(a.samples), "--quiet", "--log", log], seconds=1200)
                    r = json.loads(open(log).read().strip().splitlines()[-1])
                    rows[shown(schedule, split)][2].append((r["bytes_sent"] / r["steps"] / (parameters / 2), r["seconds"] / r["steps"]))
            show(ratio, f"{hosts.rate / 1e6:.0f} ({goodput * 8e-6:.0f})", "GPT", rows, [f"{names['as_released']}, A = {each}" for each in accumulate],
                 lambda name: names["ddp"] if name.startswith("PyTorch") else "`synchronous`")


def published(a, programs):
    """Arithmetic alone: published times and bytes a step give the minutes of a byte, if the baseline hides nothing; and these the time of a baseline that sends what it must."""
    # of arXiv 2406.02613: micro-batches of a step, minutes of the baseline, of ACCO, and of the computation. The latter: pre-training, ACCO's own (it hides all); fine-tuning, ACCO's on one machine.
    runs = (("pre-training, 4 machines of 8 GPUs", 2, 14 * 60 + 41, 10 * 60 + 55, 10 * 60 + 55), ("fine-tuning, 2 machines of 4 GPUs", 4, 3 * 60 + 46, 29, 25))
    fp32, bf16, both = 8, 4, 8  # bytes a parameter and step of a fair baseline, and of ACCO in bfloat16, which has two rounds
    table = {}
    for what, accumulate, baseline, acco, computation in runs:
        released = 8 * accumulate + 4
        byte = (baseline - computation) / released
        same = max(computation, both * byte)
        saved = lambda mine, other: f"{100 * (1 - mine / other):.0f} %"
        column = {"micro-batches of a step, A": accumulate, "bytes a parameter and step, baseline as released": released, "fair baseline in fp32, in bf16": f"{fp32}, {bf16}", "ACCO in bf16": both,
                  "minutes, published: baseline, ACCO": f"{baseline}, {acco}", "saved, published": saved(acco, baseline), "minutes of the computation": computation, "minutes of a byte": f"{byte:.1f}",
                  "minutes of a fair baseline in fp32, in bf16": f"{computation + fp32 * byte:.0f}, {computation + bf16 * byte:.0f}", "minutes of ACCO with A micro-batches a step": f"{same:.0f}",
                  "saved by that against fp32, against bf16": f"{saved(same, computation + fp32 * byte)}, {saved(same, computation + bf16 * byte)}",
                  "saved by ACCO as published against fp32, against bf16": f"{saved(acco, computation + fp32 * byte)}, {saved(acco, computation + bf16 * byte)}"}
        table[what] = column
    print(f"| | {' | '.join(table)} |\n|---|" + "---|" * len(runs))
    for key in next(iter(table.values())):
        print(f"| {key} | {' | '.join(str(column[key]) for column in table.values())} |")


def check(a, programs):
    a.parameters, a.milliseconds, a.steps = 1_000_000, 60, 10
    reason = why_not()
    if reason:
        print(f"skipped: {reason}")
        return
    if not os.path.exists(programs.synthetic):
        sys.exit(f"{programs.synthetic} is not built")
    bad = []
    rate = 4 * a.parameters * 8 / (2e-3 * a.milliseconds * 0.4)  # communication takes 0.4 of the computation; twice that for two_phase
    with Hosts(2, rate) as hosts:
        goodput = hosts.goodput()
        for backend in ("gloo", "mpi"):
            for schedule in ("synchronous", "delayed", "two_phase"):
                for _ in range(5):  # other programs on this machine delay the thread that moves messages: try again
                    r = row(programs.load("synthetic", backend, schedule, a, hosts), schedule, goodput)
                    if schedule == "synchronous" or r["hidden"] >= 0.6:
                        break
                print(f"{backend:5} {schedule:12} step {1e3 * r['step']:6.1f} ms, limit {1e3 * r['limit']:6.1f}, hidden {100 * r['hidden']:3.0f} %, wire/theory {r['wire']:.3f}", flush=True)
                if schedule != "synchronous" and r["hidden"] < 0.6:
                    bad.append(f"{backend} {schedule} hides {100 * r['hidden']:.0f} % of its communication, less than 60 %")
                if not 0.99 < r["wire"] < 1.03:
                    bad.append(f"{backend} {schedule} put {r['wire']:.3f} of the theory's bytes on the wire")
    if bad:
        sys.exit("\n".join(bad))
    print("overlap: passed")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["overlap", "coarse", "layouts", "splits", "pieces", "checksums", "heterogeneous", "peers", "family", "fair", "groups", "published", "check"])
    parser.add_argument("--build", default=os.path.join(ROOT, "build/release"))
    parser.add_argument("--synthetic", help="the program, where it is not in --build")
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--backends", default="gloo,mpi")
    parser.add_argument("--loads", default="synthetic,toy_gpt")
    parser.add_argument("--piece", type=int, help="KiB; default: the backend's own")
    parser.add_argument("--schedules", help="default: " + ",".join(SCHEDULES) + "; of family: all")
    parser.add_argument("--ratios", help="default: 0.25,0.5,1,2; of family: 1,4,16")
    parser.add_argument("--parameters", type=int, default=1_000_000)
    parser.add_argument("--layers", type=int, default=96, help="of the deep model, for layouts")
    parser.add_argument("--milliseconds", type=float, help="of arithmetic in a micro-batch, default: 120; of family, at a ratio of 1, and of fair: 24")
    parser.add_argument("--steps", type=int, help="default: 24; of family and fair: 6")
    parser.add_argument("--local-steps", type=int, default=8, help="of local updates, from one exchange to the next")
    parser.add_argument("--accumulate", default="2,4", help="micro-batches of a step of the published baseline, for fair")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each configuration; the median is printed")
    parser.add_argument("--loss", type=float, default=2.8, help="validation loss that peers are to reach")
    parser.add_argument("--data", help="text for peers and fair")
    parser.add_argument("--samples", type=int, help="sequences, for peers (default: 9600) and fair (2560)")
    parser.add_argument("--python", default="/usr/bin/python3", help="a Python that has torch, for peers and fair")
    parser.add_argument("--plot", help="SVG file to draw (needs gnuplot)")
    a = parser.parse_args()
    short = a.what in ("family", "fair")
    a.milliseconds, a.steps = a.milliseconds or (24 if short else 120), a.steps or (6 if short else 24)
    a.samples = a.samples or (2560 if a.what == "fair" else 9600)
    if a.what != "family":
        a.schedules = a.schedules or ",".join(SCHEDULES)
    a.ratios = a.ratios or ("1,4,16" if a.what == "family" else "0.25,0.5,1,2")
    if a.what == "fair" and not a.data:
        parser.error("fair trains on a text: --data FILE")
    a.toy_flags, a.toy_batch, a.toy_micro, a.synthetic_micro, a.split = ["--batch", "16"], 16, 4, 2, None
    if a.what == "coarse" and "," in a.backends:
        parser.error("coarse takes one backend: --backends gloo")
    programs = Programs(a.build)
    programs.synthetic = a.synthetic or programs.synthetic
    if a.what not in ("check", "published"):
        reason = why_not()
        if reason:
            sys.exit(reason)
    began = time.time()
    {"overlap": overlap, "coarse": coarse, "layouts": layouts, "splits": splits, "pieces": pieces, "checksums": checksums, "heterogeneous": heterogeneous, "peers": peers, "family": family, "fair": fair, "groups": groups, "published": published, "check": check}[a.what](a, programs)
    if a.what not in ("check", "published"):
        print(f"({time.time() - began:.0f} s)")


if __name__ == "__main__":
    main()
