#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rounds over a long link: two network namespaces, joined by TUN devices that delay, limit and lose (wan.cpp). Needs root, iproute2 and /dev/net/tun.

  bench/wan/run.py [--trips 0.2,30,100,300] [--rate 1000] [--parameters 16e6,64e6] [--rounds 9] [--congestion cubic] [--programs build/release/bench/bench_wan[,...]] [--python PYTHON]
  bench/wan/run.py gpt [--trips 30,100,300] [--gpt build/release/bench/bench_wan_gpt]

Of each round trip: the best of 1, 4, 8, 16, 32 plain TCP streams, both ways at a time; a round of 10,000 parameters, in round trips; and rounds of more, in Mbit/s each way,
as a share of those streams, and of what more parameters take longer than fewer ("further"): the rate without what a round waits for. --congestion: TCP's congestion control of
both; this host's default if it is not given. A second program is an older build of the same, to be beside it. PYTHON has torch, whose all_reduce over Gloo is beside it, too.
gpt: tokens a second of toy GPT on both ranks, of one rank without a link times two.
"""
import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SPACES, CARDS, ADDRESSES = ["accoWanA", "accoWanB"], ["accowana", "accowanb"], ["10.77.1.1", "10.77.1.2"]


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def link(program, trip, rate, queue, congestion=None):
    for name in SPACES:
        subprocess.run(["ip", "netns", "del", name], capture_output=True)
        ip("netns", "add", name)
    carrier = subprocess.Popen([program, "link", *CARDS, str(trip / 2), str(rate), "0", "0", str(queue)], stdout=subprocess.PIPE, text=True)
    try:
        if carrier.stdout.readline().strip() != "ready":
            sys.exit("skipped: TUN devices are not allowed here")
        for name, card, address in zip(SPACES, CARDS, ADDRESSES):
            ip("link", "set", card, "netns", name)
            ip("-n", name, "link", "set", "lo", "up")
            ip("-n", name, "addr", "add", address + "/24", "dev", card)
            ip("-n", name, "link", "set", card, "mtu", "9000", "up")
            if congestion:
                ip("-n", name, "route", "change", ADDRESSES[0].rsplit(".", 1)[0] + ".0/24", "dev", card, "congctl", congestion)
        yield
    finally:
        carrier.kill()
        carrier.wait()
        for name in SPACES:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def both(program, *words, size=2):
    """What the ranks print."""
    both.port = 29500 + (getattr(both, "port", 29500) - 29499) % 400
    ranks = []
    for rank, name in enumerate(SPACES[:size]):
        settings = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(size), MASTER_ADDR=ADDRESSES[0], MASTER_PORT=str(both.port), OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
        settings["GLOO_SOCKET_IFNAME"] = CARDS[rank]
        ranks.append(subprocess.Popen(["ip", "netns", "exec", name, program, *words], env=settings, stdout=subprocess.PIPE, text=True))
        time.sleep(0.2)
    printed = [each.communicate(timeout=900)[0] for each in ranks]
    if any(each.returncode for each in ranks):
        sys.exit(f"{program} {' '.join(words)} failed")
    return printed


TORCH = """
import statistics, sys, time, torch
from torch import distributed
distributed.init_process_group("gloo")
of, seconds = torch.ones(int(float(sys.argv[1]))), []
for _ in range(int(sys.argv[2])):
    distributed.barrier()
    begin = time.monotonic()
    distributed.all_reduce(of)
    seconds.append(time.monotonic() - begin)
distributed.barrier()
distributed.destroy_process_group()
print(seconds[0], statistics.median(seconds[1:]))
"""

GPT = {
    "synchronous": ["--schedule", "synchronous", "--micro-batches", "4"],
    "two_phase, coded": ["--schedule", "two_phase", "--commit", "coded", "--micro-batches", "2:2"],
    "diloco, 30 steps": ["--schedule", "diloco", "--local-steps", "30", "--micro-batches", "4"],
    "diloco, 30 steps, int4": ["--schedule", "diloco", "--local-steps", "30", "--exchange", "int4", "--micro-batches", "4"],
    "streaming_diloco, 30 steps, int4": ["--schedule", "streaming_diloco", "--local-steps", "30", "--exchange", "int4", "--micro-batches", "4"],
}


def gpt(a):
    context, steps, log = 64, 90, os.path.join(tempfile.mkdtemp(), "log.jsonl")

    def tokens(size, flags):
        both(a.gpt, *flags, "--batch", "8", "--samples", str(size * 8 * 4 * steps), "--validations", "1", "--quiet", "--deadline", "60", "--log", log, size=size)
        result = json.loads(open(log).read().strip().splitlines()[-1])
        return context * result["samples_per_second"], result["bytes_sent"] / result["steps"]

    print("| round trip, ms | schedule | tokens/s | of twice one rank's | bytes sent a step and rank |")
    print("|---|---|---|---|---|")
    for trip in map(float, a.trips.split(",")):
        with link(a.programs.split(",")[0], trip, a.rate, 20000, a.congestion):
            alone = [tokens(1, GPT["synchronous"])[0] for _ in range(2)]
            for name, flags in GPT.items():
                speed, sent = tokens(2, flags)
                print(f"| {trip:g} | {name} | {speed:.0f} | {speed / 2 / statistics.mean(alone):.2f} | {sent:.0f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", choices=["rounds", "gpt"], default="rounds")
    parser.add_argument("--trips", help="default: 0.2,30,100,300; of gpt: 30,100,300")
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--parameters", default="16e6,64e6")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--programs", default=os.path.join(ROOT, "build/release/bench/bench_wan"))
    parser.add_argument("--congestion")
    parser.add_argument("--python")
    parser.add_argument("--gpt", default=os.path.join(ROOT, "build/release/bench/bench_wan_gpt"))
    a = parser.parse_args()
    a.trips = a.trips or ("0.2,30,100,300" if a.what == "rounds" else "30,100,300")
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun"):
        sys.exit("skipped: needs root and /dev/net/tun")
    if a.what == "gpt":
        return gpt(a)
    programs = a.programs.split(",")
    print("| round trip, ms | streams, Mbit/s | program | parameters | connections | first round, s | round, s | round trips | Mbit/s each way | of streams | further, of streams | messages, MB |")
    print("|---|---|---|---|---|---|---|---|---|---|---|---|")
    for trip in map(float, a.trips.split(",")):
        with link(programs[0], trip, a.rate, 20000, a.congestion):
            seconds = 6 + 40 * trip / 1000
            best = max((min(map(float, both(programs[0], "streams", str(n), str(seconds)))), n) for n in (1, 4, 8, 16, 32))
            for k, program in enumerate(programs):
                before = None
                for parameters in [1e4, *map(float, a.parameters.split(","))]:
                    first, median, connections, bytes_ = map(float, both(program, "rounds", str(parameters), str(a.rounds))[0].split())
                    rate = 4 * parameters * 8 / median / 1e6  # half of the gradients, half of the parameters
                    few = parameters == 1e4
                    further = 4 * (parameters - before[0]) * 8 / (median - before[1]) / 1e6 if before else 0
                    before = None if few else (parameters, median)
                    print(
                        f"| {trip:g} | {best[0]:.0f} ({best[1]}) | {k + 1} | {parameters / 1e6:g} M | {connections:.0f} | {first:.2f} | {median:.3f} "
                        f"| {median / trip * 1000:.1f} | {'' if few else f'{rate:.0f}'} | {'' if few else f'{100 * rate / best[0]:.0f} %'} | {f'{100 * further / best[0]:.0f} %' if further else ''} | {bytes_ / 1e6:.1f} |",
                        flush=True,
                    )
            for parameters in map(float, a.parameters.split(",") if a.python else []):
                first, median = map(float, both(a.python, "-c", TORCH, str(parameters), str(a.rounds))[0].split())
                rate = 4 * parameters * 8 / median / 1e6
                print(f"| {trip:g} | {best[0]:.0f} ({best[1]}) | torch | {parameters / 1e6:g} M | | {first:.2f} | {median:.3f} | {median / trip * 1000:.1f} | {rate:.0f} | {100 * rate / best[0]:.0f} % | |")


if __name__ == "__main__":
    main()
