#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""bench/cuda/everything.sh over the stand-in: every part runs and tells its figures, a part that fails or hangs ends alone, and
what is not reached is said. And what it makes of figures."""
import argparse
import importlib.util
import json
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import types

parser = argparse.ArgumentParser()
parser.add_argument("--script", type=pathlib.Path)
parser.add_argument("--compiler")
parser.add_argument("--work", type=pathlib.Path)
parser.add_argument("--tests", help="the program of the tests over the stand-in")
chosen = parser.parse_args()
wrong = []


def check(holds, words):
    if not holds:
        wrong.append(words)
        print("wrong:", words)


def run(name, *arguments):
    """Its JSON, its page and its exit status."""
    out = chosen.work / name
    command = [str(chosen.script), "--stand-in", "--compiler", chosen.compiler, "--out", str(out), "--build", str(chosen.work / "build"), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=550)
    print(done.stdout)
    return json.loads((out / "everything.json").read_text()), (out / "everything.md").read_text(), done.returncode


def states(found):
    return {p["name"]: p["status"] for p in found["parts"]}


def whole_run():
    have = [f"--have=conformance_{name}={chosen.tests}" for name in ("storage", "schedules", "model")]
    found, page, code = run("whole", *have)
    check(code == 0, f"exit status {code}")
    for part in found["parts"]:
        expected = "skipped" if part["name"] in ("memcheck", "racecheck", "synccheck", "torch", "b8_own_pools", "b9_accesses") else "passed"
        check(part["status"] == expected, f"{part['name']} is {part['status']} ({part['reason']}), not {expected}: {part.get('tail', '')}")
        check(f"| {part['name']} | {expected} |" in page, f"the page lacks {part['name']}")
    figures = {}
    for part in found["parts"]:
        for figure in part["figures"]:
            figures.setdefault(figure["figure"], []).append(figure)
    expected = {"update": (24, "us gb_per_s copy_gb_per_s of_copy"), "squares": (5, "us of_copy"), "coding": (60, "us of_copy"), "convert": (8, "us of_copy"),
                "overlap": (60, "step_ms limit_ms over load_alone_ms load_meanwhile_ms communication_alone_ms communication_meanwhile_ms hidden"),
                "curve": (2, "first_loss last_loss host_last_loss apart_early ms_a_step host_ms_a_step"), "nccl_ranks": (4, "from_host"),
                "boundary": (4, "host_us host_us_least round_us"), "b1_priority": (6, "priority max_ctas"), "b2_gap": (2, "gap_us clear_us"),
                "b3_naps": (3, "step_ms round_alone_ms between_rounds_us over"), "b5_capture": (3, "possible words"), "b6_non_finite": (4, "us found"), "b10_order": (1, "refused words")}
    for kind, (count, keys) in expected.items():
        check(len(figures.get(kind, [])) == count, f"{len(figures.get(kind, []))} figures of {kind}, not {count}")
        check(f"## {kind}\n" in page, f"the page has no table of {kind}")
        for figure in figures.get(kind, []):
            check(all(figure.get(key) is not None for key in keys.split()), f"a figure lacks a number: {figure}")
    check([t["target"] for t in found["targets"] if t["worst"] is None] == ["adamw ahead of PyTorch's fused AdamW"], f"targets: {found['targets']}")
    check(all(t["met"] is None for t in found["targets"]), "the stand-in meets no target")
    check("us: microseconds of one launch" in page and "cases of each test" in page, "the page explains nothing")
    check(not found["not_reached"], f"not reached: {found['not_reached']}")
    check(len(found["b9_bfloat16"]) == 12, f"bfloat16 beside float: {len(found['b9_bfloat16'])} rows")


def broken_runs():
    found, page, code = run("broken", "--parts", "update,coding,b2_gap,b10_order", "--break", "coding", "--hang", "b2_gap")
    check(code == 1, f"exit status {code} where parts failed")
    check(states(found) == {"update": "passed", "coding": "failed", "b2_gap": "failed", "b10_order": "passed"}, f"a part that fails: {states(found)}")
    reasons = {p["name"]: p["reason"] for p in found["parts"]}
    check(reasons["coding"] == "broken on purpose" and "not over after" in reasons["b2_gap"], f"reasons: {reasons}")
    check("| coding | failed | broken on purpose |" in page, "the page does not say what failed")
    check(found["build"]["seconds"] == 0, "what was built is not taken again")
    found, _, code = run("no_time", "--minutes", "0.0001")
    check(code == 3 and set(states(found).values()) == {"not reached"}, f"without minutes: {code}, {states(found)}")
    check(len(found["not_reached"]) == len(found["parts"]) > 20, "what is not reached is not said")
    ended_by_signal()
    refused()
    silent = chosen.work / "silent_part"
    silent.write_text("#!/bin/sh\n")
    silent.chmod(0o755)
    found, _, code = run("silent", "--parts", "update", f"--have=update={silent}")
    check(code == 1 and found["parts"][0]["reason"] == "it told no figures", f"a part that measures nothing: {code}, {found['parts']}")
    found, _, code = run("cut", "--parts", "update", "--hang", "update", "--hang-seconds", "100", "--minutes", "0.07")
    check(code == 3 and "the minutes were over" in found["parts"][0]["reason"], f"a part that the minutes cut: {code}, {found['parts']}")
    found, _, code = run("no_compiler", "--parts", "update,torch", "--compiler", shutil.which("false"), "--build", str(chosen.work / "empty"))
    check(code == 1 and states(found) == {"update": "failed", "torch": "skipped"}, f"a compiler that fails: {code}, {states(found)}")


def refused():
    """One line, and a status of its own, for what cannot be meant."""
    file = chosen.work / "a_file"
    file.write_text("")
    for arguments in (["--minutes", "0"], ["--parts", ","], ["--parts", "update,nothing"], ["--have", "update"], ["--have", "nothing=/bin/true"], ["--have", "update=/nowhere"],
                      ["--compiler", "/nowhere/nvcc"], ["--include", "/nowhere"], ["--out", str(file)], ["--out", str(file / "below")]):
        done = subprocess.run([str(chosen.script), "--stand-in", "--out", str(chosen.work / "refused"), *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, check=False, timeout=60)
        check(done.returncode == 2 and "Traceback" not in done.stderr and ": error: " in done.stderr, f"{arguments}: {done.returncode}, {done.stderr}")
    link = chosen.work / "link.sh"
    link.symlink_to(chosen.script.resolve())
    done = subprocess.run([str(link), "--help"], stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    check(done.returncode == 0 and "--stand-in" in done.stdout, "through a link it does not start")


def ended_by_signal():
    """Who ends the script ends what it runs, and finds the page; Ctrl-C is no traceback."""
    for number in (signal.SIGTERM, signal.SIGINT):
        ended_by(number)


def ended_by(number):
    out = chosen.work / f"ended_{number}"
    command = [str(chosen.script), "--stand-in", "--compiler", chosen.compiler, "--out", str(out), "--build", str(chosen.work / "build"), "--parts", "update,b10_order", "--hang", "update",
               "--hang-seconds", "100"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as script:
        log = out / "update.log"
        until = time.monotonic() + 30
        while time.monotonic() < until and not (log.is_file() and log.stat().st_size):
            time.sleep(0.1)
        time.sleep(0.5)
        script.send_signal(number)
        words, _ = script.communicate(timeout=30)
        check(script.returncode == 128 + number and "Traceback" not in words and "interrupted: " in words, f"after {number} it ends with {script.returncode}: {words}")
    found = json.loads((out / "everything.json").read_text())
    check(states(found) == {"update": "not reached", "b10_order": "not reached"}, f"after {number}: {states(found)}")
    check(found["interrupted"] and "**Interrupted.**" in (out / "everything.md").read_text(), "the page does not say that it was interrupted")
    alive = subprocess.run(["ps", "-eo", "args"], stdout=subprocess.PIPE, text=True, check=False).stdout
    check("sleep 98765" not in alive, "what hung is still alive")


def judgement():
    """Figures as a GPU could give them."""
    spec = importlib.util.spec_from_file_location("everything", chosen.script.with_suffix(".py"))
    script = importlib.util.module_from_spec(spec)
    sys.modules["everything"] = script
    spec.loader.exec_module(script)

    def met(*figures):
        return {t["target"]: (t["met"], t["worst"]) for t in script.targets(list(figures), 1 << 24) if t["worst"] is not None}

    def update(share, us=10.0, elements=1 << 28, **more):
        return {"figure": "update", "part": "update", "rule": "adamw", "kind": "commit", "type": "float", "groups": "1", "odd": False, "elements": elements, "of_copy": share, "us": us, **more}

    one = "update in float, one group"
    check(met(update(0.95), update(0.93))[one] == (True, "0.93"), "an update that is fast enough")
    check(met(update(0.95), update(0.91))[one] == (False, "0.91"), "the slowest update counts")
    check(one not in met(update(0.5, elements=1 << 20)), "a launch of a few microseconds is no bandwidth")
    odd = update(0.9, groups="96 x 8, odd sizes", odd=True, type="bfloat16")
    check(met(odd) == {"update in bfloat16, odd sizes or beginnings": (False, "0.9")}, "odd sizes are judged apart")
    torch = {"figure": "torch_adamw", "part": "torch", "elements": 1 << 28, "tensors": 1, "us": 11.0}
    check(met(update(0.95), torch)["adamw ahead of PyTorch's fused AdamW"] == (True, "1.1 times"), "ahead of PyTorch")
    boundaries = [{"figure": "boundary", "part": "b7_boundary", "schedule": "delayed", "host_us": us} for us in (12.0, 31.0)]
    check(met(*boundaries)["the host's time at a boundary"] == (False, "31 us"), "the slowest boundary counts")
    steps = [{"figure": "overlap", "part": "overlap_threads", "schedule": s, "load": "exact time", "over": over} for s, over in (("synchronous", 2.0), ("delayed", 1.04))]
    check(met(*steps)["step beside an exact load"] == (True, "1.04"), "rounds that are hidden")

    tool = next(p for p in script.PARTS if p.name == "memcheck")
    check(script.verdict(tool, 86, "Error: Device not supported", [], 9)[0] == "skipped", "a sanitizer that does not know the machine")
    check(script.verdict(tool, 0, "========= ERROR SUMMARY: 0 errors", [{}], 9)[0] == "passed", "a sanitizer that finds nothing")
    check(script.verdict(tool, 86, "========= ERROR SUMMARY: 2 errors", [{}], 9)[0] == "failed", "a sanitizer that finds something")
    suite = next(p for p in script.PARTS if p.name == "conformance_storage")
    check(script.verdict(suite, 0, "[doctest] test cases:  0 |  0 passed", [], 9)[0] == "failed", "a suite of which nothing ran")
    rows = ['"ID","Kernel Name","Metric Name","Metric Value"']
    rows += [f'"0","for_table","l1tex__t_{what}_pipe_lsu_mem_global_op_ld.sum","{value}"' for what, value in (("requests", "1,000"), ("sectors", "16,000"))]
    check(script.counters_of("== noise\n" + "\n".join(rows))[0]["sectors_a_request_ld"] == 16, "counters of ncu")
    check(script.figures_of('{"figure": "a"}\n{"figure": "b", "us"') == ([{"figure": "a"}], ['{"figure": "b", "us"']), "a line that was cut off")
    part = next(p for p in script.PARTS if p.name == "update")
    lines = '{"figure": "a", "us": -nan, "of_copy": inf, "sets": NaN}'
    check("3 figures are no numbers" in script.verdict(part, 0, lines, script.figures_of(lines)[0], 9)[1], "figures that are no numbers")
    rows = [update(0.95, groups="1", type=kind, us="nan") for kind in ("float", "bfloat16")] + [torch]
    session = types.SimpleNamespace(results={p.name: {"name": p.name, "what": "", "status": "failed", "reason": "", "seconds": 0, "limit": 1, "figures": rows if p.name == "update" else []} for p in script.PARTS},
                                    parts=script.PARTS, chosen=types.SimpleNamespace(stand_in=False, minutes=1), started=0, commit="", versions={}, device=[], interrupted=False, out=chosen.work)
    script.write(session, types.SimpleNamespace(wall=0, seconds={}, failed={}), 1)
    check("| nan |" in (chosen.work / "everything.md").read_text(), "the page of figures that are no numbers")
    check(script.verdict(part, 0, "", [{}], 9, ["{"])[0] == "failed", "a line that cannot be read")
    unfinished = [t for t in script.targets([update(0.95)], 1 << 24, {"update"}) if t["target"] == one]
    check(unfinished[0]["met"] is None and "did not end well" in unfinished[0]["wanted"], "half a part meets no target")


shutil.rmtree(chosen.work, ignore_errors=True)
chosen.work.mkdir(parents=True)
judgement()
whole_run()
broken_runs()
sys.exit(1 if wrong else 0)
