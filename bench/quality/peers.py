#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bench/quality/run.py --family measures, of PyTorch: the validation loss of DistributedDataParallel, its communication hooks and post-local SGD (bench/peers/torch_ddp.py), the same model, text,
batches, samples and samples a step, each mode at the best of three learning rates, which are tried with the first seed. N processes of one thread on this machine. Finished runs are kept in --results;
a second call goes on where the first one ended. ZeroRedundancyOptimizer is left out: it computes what DDP computes, to the last digit, and only sends more.

  bench/quality/peers.py --data TEXT [--results peers.jsonl] [--ranks 4,8] [--rates 1e-3,3e-3,1e-2] [--seeds 1,2,3] [--python PYTHON] [--minutes 60]

With --wire, as root: what each mode puts on the wire in --steps steps, N processes on hosts made of network namespaces, beside its formula:

  bench/quality/peers.py --data TEXT --wire [--ranks 4] [--steps 60] [--python PYTHON]
"""
import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
MODEL = ["--layers", "2", "--width", "64", "--heads", "4", "--context", "64", "--batch", "4", "--micro-batches"]
MODES = [("ddp",), ("bf16",), ("powersgd", "--matrix-rank", "2"), ("powersgd", "--matrix-rank", "4"), ("post_local", "--local-steps", "8")]


def together(words, ranks, port, seconds):
    """Runs a program as so many ranks on this machine and gives rank 0's output. When one fails the others are ended: they would wait for it."""
    with tempfile.TemporaryDirectory() as folder:

        def written(what, k):
            return os.path.join(folder, f"{what}{k}")

        processes, began = [], time.monotonic()
        try:
            for k in range(ranks):
                settings = dict(os.environ, OMP_NUM_THREADS="1", RANK=str(k), WORLD_SIZE=str(ranks), MASTER_ADDR="127.0.0.1", MASTER_PORT=port, GLOO_SOCKET_IFNAME="lo")
                with open(written("out", k), "w") as out, open(written("errors", k), "w") as errors:
                    processes.append(subprocess.Popen(words, stdout=out, stderr=errors, env=settings))
            while True:
                codes = [each.poll() for each in processes]
                if any(codes) or None not in codes or time.monotonic() - began > seconds:
                    break
                time.sleep(0.1)
        finally:
            for each in processes:
                if each.poll() is None:
                    each.kill()
                each.wait()
        if any(codes):
            errors = "\n".join(f"rank {k}, exit status {code}:\n{open(written('errors', k)).read()[-2000:]}" for k, code in enumerate(codes) if code)
            sys.exit(f"failed: {' '.join(words)}\n{errors}")
        if None in codes:
            sys.exit(f"not done after {seconds:.0f} s, and ended: {' '.join(words)}\nOn a slow machine: --limit SECONDS. What had finished is kept.")
        return open(written("out", 0)).read()


class Runs:
    def __init__(self, arguments):
        self.a, self.began, self.left, self.done = arguments, time.time(), 0, {}
        self.model = [*MODEL, str(arguments.micro_batches)]
        if os.path.exists(arguments.results):
            for line in open(arguments.results):
                r = json.loads(line)
                self.done[tuple(r["key"])] = r

    def make(self, mode, ranks, rate, seed):
        """The finished run, or None where there is no time for it."""
        key = (" ".join(self.model), os.path.basename(self.a.data), self.a.samples, " ".join(mode), ranks, rate, seed)
        if key in self.done:
            return self.done[key]
        if time.time() - self.began > 60 * self.a.minutes:
            self.left += 1
            return None
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = str(free.getsockname()[1])
        words = [self.a.python, os.path.join(ROOT, "bench/peers/torch_ddp.py"), "--mode", *mode, *self.model, "--data", self.a.data, "--samples", str(self.a.samples), "--warmup",
                 str(self.a.samples // 20), "--learning-rate", rate, "--seed", seed, "--validations", "1"]
        last = json.loads(together(words, int(ranks), port, self.a.limit).strip().splitlines()[-1])
        loss = last["validation_loss"] if last["validation_loss"] == last["validation_loss"] else 5.5452  # not a number: as bad as a guess
        self.done[key] = {"key": key, "name": last["schedule"], "loss": loss, "seconds": last["seconds"], "bytes": last["bytes"], "torch": last["torch"]}
        with open(self.a.results, "a") as out:
            out.write(json.dumps(self.done[key]) + "\n")
        return self.done[key]

    def tuned(self, mode, ranks, rates, seeds):
        """Losses of all seeds at the rate that is best for the first one, that rate, and a run; None while runs are missing."""
        first = {rate: self.make(mode, ranks, rate, seeds[0]) for rate in rates}
        if None in first.values():
            return None
        best = min(rates, key=lambda rate: first[rate]["loss"])
        all_seeds = [self.make(mode, ranks, best, seed) for seed in seeds]
        return None if None in all_seeds else ([each["loss"] for each in all_seeds], best, all_seeds[0])


def wire(a):
    sys.path.insert(0, os.path.join(ROOT, "bench/network"))
    import run as network

    if network.why_not():
        sys.exit(network.why_not())
    print("| mode | hosts | steps | formula, bytes a parameter and step | with the steps in full | measured | validation loss |\n|---|---|---|---|---|---|---|")
    for count in [int(n) for n in a.ranks.split(",")]:
        with network.Hosts(count, None) as hosts:
            for mode in [MODES[0], ("zero",), ("as_released",), *MODES[1:]]:
                samples = 32 * count * a.steps
                words = [a.python, os.path.join(ROOT, "bench/peers/torch_ddp.py"), "--mode", *mode, *MODEL, str(a.micro_batches), "--data", a.data, "--samples", str(samples), "--warmup", str(samples // 20), "--validations", "1"]
                r = json.loads(hosts.everywhere(words)[0].strip().splitlines()[-1])
                print(f"| {r['schedule']} | {count} | {r['steps']} | {r['bytes']:.2f} | {r['bytes_of_all']:.2f} | {r['bytes_measured']:.2f} | {r['validation_loss']:.6f} |", flush=True)
    print(f"PyTorch {r['torch']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--results", default="peers.jsonl", help="finished runs, one JSON object a line")
    parser.add_argument("--ranks", default="4,8")
    parser.add_argument("--rates", default="1e-3,3e-3,1e-2")
    parser.add_argument("--seeds", default="1,2,3")
    parser.add_argument("--samples", type=int, default=25600)
    parser.add_argument("--micro-batches", type=int, default=8, help="a step, of 4 sequences on each rank")
    parser.add_argument("--python", default=sys.executable, help="a Python that has torch")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin no run after so long")
    parser.add_argument("--limit", type=float, default=3600, help="seconds after which a run has failed")
    parser.add_argument("--wire", action="store_true", help="measure bytes, not losses")
    parser.add_argument("--steps", type=int, default=60, help="for --wire")
    a = parser.parse_args()
    if not os.path.isfile(a.data):
        parser.error(f"--data {a.data}: no such file")
    if subprocess.run([a.python, "-c", "import torch.distributed as d; raise SystemExit(not d.is_available())"], stderr=subprocess.DEVNULL).returncode:
        parser.error(f"--python {a.python}: has no torch with torch.distributed: install python3-torch, or name another Python")
    if a.wire:
        return wire(a)
    runs, all_ranks = Runs(a), a.ranks.split(",")
    found = {(ranks, mode): runs.tuned(mode, ranks, a.rates.split(","), a.seeds.split(",")) for ranks in all_ranks for mode in MODES}
    if runs.left:
        print(f"{runs.left} runs are left: call again")
    print(f"\n{os.path.basename(a.data)}, {a.samples} sequences, seeds {a.seeds}, rates {a.rates}: mean validation loss (spread) at the best rate, its difference to DDP at its best (seed by seed: from, to), and that rate\n")
    print("| | " + " | ".join(f"N = {n}" for n in all_ranks) + " | bytes a parameter and step |\n|---|" + "---|" * len(all_ranks) + "---|")
    for mode in MODES:
        cells, name, sent = [], " ".join(mode), "-"
        for ranks in all_ranks:
            one, base = found[ranks, mode], found[ranks, MODES[0]]
            if one is None or base is None:
                cells.append("-")
                continue
            losses, rate, run = one
            name, sent = run["name"], f"{run['bytes']:.2f}"
            change = 100 * (statistics.mean(losses) / statistics.mean(base[0]) - 1)
            by_seed = [100 * (loss / its_base - 1) for loss, its_base in zip(losses, base[0])]
            cells.append(f"{statistics.mean(losses):.4f} ({max(losses) - min(losses):.4f}) {change:+.2f} % ({min(by_seed):+.2f} to {max(by_seed):+.2f}), {rate}")
        print(f"| {name} | " + " | ".join(cells) + f" | {sent} |")


if __name__ == "__main__":
    main()
