#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Rounds over a long link: two network namespaces, joined by TUN devices that delay, limit and lose (wan.cpp). Needs root, iproute2 and /dev/net/tun.

  bench/wan/run.py [--trips 0.2,30,100,300] [--rate 1000] [--parameters 16e6,64e6] [--rounds 9] [--programs build/release/bench/bench_wan[,...]]

Of each round trip: the best of 1, 4, 8, 16, 32 plain TCP streams, both ways at a time; a round of 10,000 parameters, in round trips; and rounds of more, in Mbit/s each way,
as a share of those streams. A second program is an older build of the same, to be beside it.
"""
import argparse
import contextlib
import os
import subprocess
import sys
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
SPACES, CARDS, ADDRESSES = ["accoWanA", "accoWanB"], ["accowana", "accowanb"], ["10.77.1.1", "10.77.1.2"]


def ip(*words):
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextlib.contextmanager
def link(program, trip, rate, queue):
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
        yield
    finally:
        carrier.kill()
        carrier.wait()
        for name in SPACES:
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


def both(program, *words):
    """What the two ranks print."""
    both.port = 29500 + (getattr(both, "port", 29500) - 29499) % 400
    ranks = []
    for rank, name in enumerate(SPACES):
        settings = dict(os.environ, RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR=ADDRESSES[0], MASTER_PORT=str(both.port))
        ranks.append(subprocess.Popen(["ip", "netns", "exec", name, program, *words], env=settings, stdout=subprocess.PIPE, text=True))
        time.sleep(0.2)
    printed = [each.communicate(timeout=900)[0] for each in ranks]
    if any(each.returncode for each in ranks):
        sys.exit(f"{program} {' '.join(words)} failed")
    return printed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trips", default="0.2,30,100,300")
    parser.add_argument("--rate", type=float, default=1000)
    parser.add_argument("--parameters", default="16e6,64e6")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--programs", default=os.path.join(ROOT, "build/release/bench/bench_wan"))
    a = parser.parse_args()
    if os.geteuid() != 0 or not os.path.exists("/dev/net/tun"):
        sys.exit("skipped: needs root and /dev/net/tun")
    programs = a.programs.split(",")
    print("| round trip, ms | streams, Mbit/s | program | parameters | connections | first round, s | round, s | round trips | Mbit/s each way | of streams | messages, MB |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for trip in map(float, a.trips.split(",")):
        with link(programs[0], trip, a.rate, 20000):
            seconds = 6 + 40 * trip / 1000
            best = max((min(map(float, both(programs[0], "streams", str(n), str(seconds)))), n) for n in (1, 4, 8, 16, 32))
            for k, program in enumerate(programs):
                for parameters in [1e4, *map(float, a.parameters.split(","))]:
                    first, median, connections, bytes_ = map(float, both(program, "rounds", str(parameters), str(a.rounds))[0].split())
                    rate = 4 * parameters * 8 / median / 1e6  # half of the gradients, half of the parameters
                    few = parameters == 1e4
                    print(
                        f"| {trip:g} | {best[0]:.0f} ({best[1]}) | {k + 1} | {parameters / 1e6:g} M | {connections:.0f} | {first:.2f} | {median:.3f} "
                        f"| {median / trip * 1000:.1f} | {'' if few else f'{rate:.0f}'} | {'' if few else f'{100 * rate / best[0]:.0f} %'} | {bytes_ / 1e6:.1f} |",
                        flush=True,
                    )


if __name__ == "__main__":
    main()
