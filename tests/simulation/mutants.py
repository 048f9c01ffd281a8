#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Breaks the engine on purpose, one place at a time, and counts how many of the mutants the simulation finds.

  tests/simulation/mutants.py [--seeds 3000] [--jobs 2] [--only WORDS]
  tests/simulation/mutants.py --fast [--enough 40]

A mutant dies when a seed, or one of regressions.txt, fails, or when it does not end in time. Fails where more than two survive that are
not known to change nothing.

With --fast: does `ctest -L fast` notice enough of them? First the simulation alone, with few seeds. Of its survivors each gets a build
of the programs of `fast`, and `ctest -L fast`, until enough have died. Fails where fewer die."""
import argparse
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent

FAST_SEEDS = 500  # of the simulation, in what carries the label `fast`
FAST_PROGRAMS = ["acco_tests", "acco_simulation"]  # all programs of the label


def fast_tests(folder):
    return ["ctest", "--test-dir", folder, "-L", "^fast$", "--output-on-failure", "--no-tests=error", "--stop-on-failure"]


PIPELINE, WORKS, DECISION = "stage/pipeline.hpp", "round/tasks.hpp", "stage/decision.hpp"
LOOP, RECORD, VIEW = "round/step_loop.hpp", "round/run_record.hpp", "wire/round_view.hpp"
CODED, OWN = "wire/coded.hpp", "wire/own.hpp"
MEMBERSHIP, ACCUMULATOR, STATE = "round/membership.hpp", "round/gradient_accumulator.hpp", "round/sharded_state.hpp"
TRANSFER = "round/state_transfer.hpp"

# what is broken, where, from, to, and for those that change nothing: why
MUTANTS = [
    ("a bucket does not wait for the stage before it", PIPELINE, "      queue_.after(behind_[k]);\n", ""),
    ("a stage of each bucket is behind nothing", PIPELINE, "      behind_[k] = queue_.mark();\n", ""),
    ("the decision does not wait for all buckets", PIPELINE, "queue_.after(behind_.back());", ""),
    ("the decision does not wait for the last bucket", PIPELINE, "queue_.after(behind_.back());", "queue_.after(behind_.front());"),
    ("nothing waits for the decision", PIPELINE,
     "stage's buckets stand in one lane, in order\n    work();\n    std::fill(behind_.begin(), behind_.end(), queue_.mark());",
     "stage's buckets stand in one lane, in order\n    work();"),
    ("the round ends before its last update", PIPELINE, "queue_.after(updated);", "",
     "every gather, on the other lane, stands behind the updates already; of averages the tests of checkpoints tell"),
    ("kept gradients are added where they should be replaced", WORKS, "view_.adds = plan_.gradients != carried::fresh;",
     "view_.adds = plan_.gradients == carried::fresh;"),
    ("a skipped update leaves its gradients behind", WORKS,
     "Storage::clear_if(queue_, &n->skip, view_.reduced, shares_.slice_size());", "{}"),
    ("the second rate of commit_and_predict is the first", WORKS, "position_.samples + n.step_weight,", "position_.samples,"),
    ("the second rate of commit_and_predict counts no step", WORKS, "position_.steps + (n.apply ? 1 : 0)", "position_.steps"),
    ("the rule is told one update less", WORKS, "state_.prepare({position.steps + 1, position.rate, position.late});",
     "state_.prepare({position.steps, position.rate, position.late});"),
    ("gradients of a fresh start are late", WORKS, "position.rate, position.late});", "position.rate, true});"),
    ("no gradient is late", WORKS, "position.rate, position.late});", "position.rate, false});"),
    ("own gradients are not brought to the weight of all", DECISION, "{scale * n->own, ", "{scale, "),
    ("own gradients are those of rank 0's share", VIEW,
     "return gradients(b) + shares.share_of_rank(rank) * b.share;", "return gradients(b);"),
    ("the others' mean is that of all", DECISION, "n->others = {factor, -factor,", "n->others = {factor, 0,"),
    ("the others' mean stands for all samples", DECISION, "combination{1, (all - mine) * loss_scale}",
     "combination{1, all * loss_scale}"),
    ("the first estimate has others", OWN, "v.steps > 0, v.loss_scale}", "true, v.loss_scale}"),
    ("what stood still has moved", "storage/elementwise.hpp", "block.count, Master(0));", "block.count, Master(1));"),
    ("what the accumulator keeps is encoded after the trainer went on", CODED, "if (!v.encoded_early) stages.each",
     "stages.each"),
    ("kept samples do not count", DECISION, "n.all.weight + (fresh ? 0 : n.step_weight)", "n.all.weight"),
    ("a round without new samples is empty, whatever was kept", DECISION,
     "(n.all.commits_rest == 0 || n.step_weight == 0)", "(n.all.commits_rest == 0 || n.all.weight == 0)"),
    ("a round is never empty", DECISION, "(n.all.commits_rest == 0 || n.step_weight == 0)", "false"),
    ("an incomplete step is committed all the same", DECISION, "(n.all.commits_rest == 0 || n.step_weight == 0)", "n.step_weight == 0"),
    ("an incomplete step is dropped all the same", DECISION, " && (n.all.commits_rest == 0 || n.step_weight == 0);", ";"),
    ("gradients that are not finite keep their weight", DECISION, "  n.not_finite = raises && !n.spike;\n  n.step_weight = 0;", "  n.not_finite = raises && !n.spike;"),
    ("what is not finite is applied", DECISION, "  n.apply = false;\n  n.skip = !raises;", "  n.skip = !raises;",
     "its square overflows, and that is refused too; of spikes the tests of rounds tell"),
    ("what is not finite is skipped where it should be raised", DECISION, "n.skip = !raises;\n  n.not_finite = raises && !n.spike;",
     "n.skip = true;\n  n.not_finite = false;"),
    ("squares of the round before are added", DECISION, "    n->squares_mine = 0;\n", ""),
    ("the first bucket's squares are forgotten", DECISION, "std::size_t k = 0; k < count; ++k) n->squares_mine",
     "std::size_t k = 1; k < count; ++k) n->squares_mine"),
    ("skipped updates count as steps", RECORD, "if (n.apply && commit) {", "if (commit) {"),
    ("kept samples are not told", RECORD, "run.samples += n.step_weight;", "run.samples += n.all.weight;"),
    ("an empty round leaves its gradients behind", LOOP, "(void)tasks_.take_flight();\n      accumulator_.drop(queue());", "(void)tasks_.take_flight();"),
    ("finish forgets that it commits the rest", LOOP, "mine_ = {.commits_rest = mine_.commits_rest};", "mine_ = {};"),
    ("who has completed a part says that it is finishing", LOOP, "mine_.finishing = completes && rest == unfinished::drop ? 0 : 1;",
     "mine_.finishing = 1;"),
    ("what was dropped is not told", LOOP, "record_.totals.dropped += n.step_weight;", ""),
    ("a step's loss is its last round's", RECORD, "if (plan.gradients == carried::fresh) run.step_weight = run.step_loss_sum = 0;",
     "run.step_weight = run.step_loss_sum = 0;"),
    ("a skipped part counts in its step", RECORD, "  if (n.skip) run.step_weight = run.step_loss_sum = 0;\n", ""),
    ("training goes on in the middle of a step", LOOP,
     "while (!schedule_.starts(record_.run.round)) ++record_.run.round;\n    if (visible_", "if (visible_"),
    ("finish ends before the last commit", LOOP,
     "return commits(plan) && tasks_.numbers().all.finishing", "return tasks_.numbers().all.finishing"),
    ("a part takes one micro-batch more", LOOP, "if (micro_batches_ < least || (",
     "if (micro_batches_ <= least || ("),
    ("the pace is that of the round before", LOOP, "record_.run.round + (in_flight() ? 1 : 0)", "record_.run.round"),
    ("a pace is told this rank's own seconds", LOOP,
     "schedule_.measured({n.all.micro_batch_seconds / ranks, n.all.estimate_seconds / ranks, n.all.commit_seconds / ranks});",
     "schedule_.measured({queue().clock().micro_batch_seconds() / ranks * ranks, run.estimate_seconds, run.commit_seconds});"),
    ("estimates are shown after finish", LOOP, "if (visible_ != visible::masters) show_masters();", ""),
    ("gather_committed forgets the frozen ones", TRANSFER,
     "accumulator_.copy_parameters(queue(), out);  // the frozen elements", ""),
    ("nobody hears of who leaves", MEMBERSHIP, "ranks_.abort(reason);", ""),
    ("who is destroyed in training leaves in peace", MEMBERSHIP, "if (state_ == state::finished) {", "if (state_ != state::failed) {"),
    ("optimizers share a channel", MEMBERSHIP, "ranks_.duplicate();", ""),
    ("an error of all ranks is told as one rank's", MEMBERSHIP, "      found_together_ = true;\n", ""),
    ("an accumulator that should keep is cleared, and the reverse", ACCUMULATOR, "full_ = !in_place;", "full_ = in_place;"),
    ("a launched accumulator is not emptied", ACCUMULATOR, "if (std::exchange(full_, false)) clear(q, gradients_);", ""),
    ("padding is not cleared", ACCUMULATOR,
     "Storage::clear(q, carried + behind, shares_.padded_size() - behind);", ""),
    ("an exchanged accumulator keeps the old parameters", ACCUMULATOR,
     "gradients_ = gradients_in(std::exchange(parameters_, arrived));\n        clear(q, gradients_);",
     "gradients_ = gradients_in(std::exchange(parameters_, arrived));"),
    ("the first launch forgets what was accumulated", ACCUMULATOR, "Storage::copy(q, gradients_, spare_, shares_.padded_size());", ""),
    ("all elements belong to the first group", STATE, "static_cast<std::uint32_t>(regions.of_tensor(tensor));",
     "static_cast<std::uint32_t>(regions.of_tensor(tensor) * 0);"),
    ("the last slice has no padding", "layout/partition.hpp", "(left < last_share_ ? left : last_share_)", "last_share_"),
    ("exact steps and encoded ones change places", "round/schedule_in_use.hpp", "step % exact_every != 0", "step % exact_every == 0"),
    ("a round that ended goes on in the other lane", "storage/host_queue.hpp", "ended_.store(true, std::memory_order_release);", ""),
    ("tasks of the other lane need not have ended", "storage/host_queue.hpp", " && mine.next().needs <= other_than(mine).done()", ""),
]


def build(folder, include, compiler):
    """The simulation, as one file: every engine is compiled once."""
    text = "".join(f'#include "{path}"\n' for path in sorted(HERE.glob("*.cpp")))
    level = "-O0" if "clang" in compiler else "-O1"
    return subprocess.run([compiler, "-std=c++20", level, f"-I{include}", f"-I{HERE.parent}", "-pthread", "-x", "c++", "-", "-o", f"{folder}/simulation"],
                          input=text, capture_output=True, text=True)


def first_error(text):
    return next((line for line in text.splitlines() if "error" in line), text[-300:])


def stale(mutant):
    """Why the mutant cannot be made; empty: it can."""
    where, old = mutant[1:3]
    times = (ROOT / "include/acco" / where).read_text().count(old)
    return "" if times == 1 else f"'{old}' stands {times} times in acco/{where}"


def mutated(mutant):
    where, old, new = mutant[1:4]
    return (ROOT / "include/acco" / where).read_text().replace(old, new)


def fate(index, mutant, arguments):
    """Of the simulation."""
    if stale(mutant):
        return index, "stale", stale(mutant)
    with tempfile.TemporaryDirectory() as folder:
        include = f"{folder}/include"
        shutil.copytree(ROOT / "include", include)
        (pathlib.Path(include) / "acco" / mutant[1]).write_text(mutated(mutant))
        built = build(folder, include, arguments.compiler)
        if built.returncode != 0:
            return index, "stale", "does not compile: " + first_error(built.stderr)
        for run in ([f"--seeds={arguments.seeds}", f"--from={arguments.start}"], [f"--list={HERE}/regressions.txt"]):
            command = [f"{folder}/simulation", *[word for each in run for word in each.split("=")]]
            try:
                done = subprocess.run(command, capture_output=True, text=True, timeout=arguments.limit)
            except subprocess.TimeoutExpired:
                return index, "died", "did not end in time"
            hangs = re.search(r"seed (\d+) hangs", done.stdout)
            if hangs:  # or the machine was too busy: once more
                done = subprocess.run([f"{folder}/simulation", "--from", hangs[1], "--seeds", "1"], capture_output=True, text=True)
            if done.returncode != 0:
                words = (done.stdout + done.stderr).strip().splitlines()
                return index, "died", next((line for line in words if line.startswith("seed")), words[-1] if words else f"exit {done.returncode}")
        return index, "survived", ""


class Tree:
    """A copy of this checkout, built as the test command builds it: one mutant at a time gets the tests of `fast`."""

    def __init__(self, folder, jobs):
        self.source, self.build, self.jobs = pathlib.Path(folder) / "source", f"{folder}/source/build/test", str(jobs)
        files = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True,
                               check=True).stdout.split("\0")
        for name in filter(lambda each: each and (ROOT / each).exists(), files):
            (self.source / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, self.source / name)
        subprocess.run(["cmake", "-DPRESET=test", "-DONLY=configure", "-P", "cmake/test.cmake"], cwd=self.source, check=True, stdout=subprocess.DEVNULL)

    def fate(self, mutant):
        header = self.source / "include/acco" / mutant[1]
        header.write_text(mutated(mutant))
        try:
            built = subprocess.run(["cmake", "--build", self.build, "--parallel", self.jobs, "--target", *FAST_PROGRAMS], capture_output=True, text=True)
            if built.returncode != 0:
                return "stale", "does not compile: " + first_error(built.stdout)
            done = subprocess.run(fast_tests(self.build), capture_output=True, text=True)
        finally:
            header.write_text((ROOT / "include/acco" / mutant[1]).read_text())  # newer than what was built of the mutant
        if done.returncode == 0:
            return "survived", ""
        dead = re.search(r"\d+ - (\S+) \((?!Skipped|Disabled|Not Run)", done.stdout)
        return ("died", dead[1]) if dead else ("stale", "no test failed, and ctest did: " + (done.stdout + done.stderr)[-300:])

    def sound(self):
        """Without a mutant everything passes: whatever dies, dies of its mutant."""
        subprocess.run(["cmake", "--build", self.build, "--parallel", self.jobs, "--target", *FAST_PROGRAMS], check=True, stdout=subprocess.DEVNULL)
        return subprocess.run(fast_tests(self.build), stdout=subprocess.DEVNULL).returncode == 0


def told(what, mutant, why):
    print(f"{what:8}  {mutant[1]:30} {mutant[0]}{': ' + why[:150] if why else ''}", flush=True)


def fast(chosen, arguments):
    """Whether the label `fast` kills enough of the mutants."""
    fates, survivors = [], []
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for index, what, why in pool.map(lambda each: fate(*each, arguments), chosen):
            told(what, MUTANTS[index], why)
            if what == "survived":
                survivors.append(index)
            else:
                fates.append(what)
    by_simulation = fates.count("died")
    print(f"{by_simulation} died of the simulation's {arguments.seeds} seeds; {len(survivors)} survived them", flush=True)
    with tempfile.TemporaryDirectory() as folder:
        tree = None
        while survivors and fates.count("died") < arguments.enough:
            if not tree:
                tree = Tree(folder, arguments.jobs)
                if not tree.sound():
                    print("the tests of `fast` fail without a mutant")
                    return 1
            mutant = MUTANTS[survivors.pop(0)]
            what, why = tree.fate(mutant)
            fates.append(what)
            told(what, mutant, why)
    print(f"{fates.count('died')} of {len(chosen)} died, {by_simulation} of the simulation; {fates.count('survived')} survived, "
          f"{fates.count('stale')} stale, {len(survivors)} not tried further; {arguments.enough} are enough")
    return 0 if fates.count("died") >= arguments.enough and "stale" not in fates else 1


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, help=f"3000, or {FAST_SEEDS} with --fast")
    parser.add_argument("--start", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300, help="seconds for each run")
    parser.add_argument("--compiler", default="clang++-19" if shutil.which("clang++-19") else "c++")
    parser.add_argument("--fresh", action="store_true", help="build nothing: is each mutant's line still there, once?")
    parser.add_argument("--only", default="", help="mutants whose description contains this")
    parser.add_argument("--fast", action="store_true", help="are enough of them noticed by ctest -L fast?")
    parser.add_argument("--enough", type=int, default=40, help="for --fast")
    arguments = parser.parse_args()
    arguments.seeds = arguments.seeds or (FAST_SEEDS if arguments.fast else 3000)
    if arguments.fresh:
        old = [m for m in MUTANTS if stale(m)]
        for mutant in old:
            print(f"stale: '{mutant[0]}': {stale(mutant)}")
        print(f"{len(MUTANTS)} mutants: {len(old)} stale")
        return 1 if old or not MUTANTS else 0
    chosen = [(k, m) for k, m in enumerate(MUTANTS) if arguments.only in m[0]]
    if arguments.fast:
        return fast(chosen, arguments)
    counts = {"died": 0, "survived": 0, "stale": 0, "equal": 0}
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for index, what, why in pool.map(lambda each: fate(*each, arguments), chosen):
            mutant = MUTANTS[index]
            if what == "survived" and len(mutant) > 4:
                what, why = "equal", mutant[4]
            counts[what] += 1
            told(what, mutant, why)
    print(f"{counts['died']} of {len(chosen) - counts['equal']} died, {counts['survived']} survived, {counts['stale']} stale; "
          f"{counts['equal']} more change nothing")
    return 1 if counts["stale"] or counts["survived"] > 2 else 0


if __name__ == "__main__":
    sys.exit(main())
