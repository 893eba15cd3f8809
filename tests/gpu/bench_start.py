"""How long a PyTorch process takes that makes one call: bench_start.py KFIT [--python P] [--rounds N] [--json FILE].

In turn: without kfit, with a shim that is preloaded and off, and under `kfit run`, which records. The first round fills the file
cache and is left out. Exit status 77 where the program cannot run.

A process takes seconds, and one differs from the next by more than what is sought. So start_program.py tells when it reached the end of
each phase, by the clock that we start it by:

  python   its first line: the shim is loaded, and `kfit run` has begun
  torch    imported
  init     torch.cuda.init: the driver is up
  context  a context is there
  kernels  the first kernels have run
  gemm     the call is done
  end      the process has been waited for: the trace is whole

What is disturbed is one phase of one round, seldom the same phase in all. A way's time is the sum of its phases' minima, and what is
added is the difference of these sums (added_ms). lo and hi are the 2.5th and 97.5th percentile of that over rounds drawn with
replacement, the same ones for all ways; halves_ms has the odd and the even rounds by themselves. Resampled minima are late by as much
in both ways, so it is the interval's width that tells, more than its middle. Beside these, as they were measured: the fastest process,
the median of the rounds' differences, and what a process took of CPUs, user and system, its children included.
"""
import argparse
import json
import os
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PROGRAM = pathlib.Path(__file__).resolve().parent / "start_program.py"
GOAL_MS = 50
DRAWS = 2000


def commands(kfit, python, folder, program=PROGRAM):
    """By way: a command, and variables. One given a round's number fills its traces there."""
    shim = pathlib.Path(kfit).resolve().parent.parent / "preload/libkfit_preload.so"  # as built
    return dict(without=([python, program], {}),
                off=([python, program], dict(LD_PRELOAD=str(shim), KFIT_MODE="off")),
                record=([kfit, "run", "--quiet", "--trace", pathlib.Path(folder) / "start-{round}", "--", python, program], {}))


def once(words, env):
    """One process: seconds of each phase, and of CPUs."""
    begun = time.monotonic_ns()
    p = subprocess.Popen(words, env=env, stdout=subprocess.PIPE, text=True)
    timer = threading.Timer(120, p.kill)
    timer.start()
    try:
        told = p.stdout.read()
        _, status, used = os.wait4(p.pid, 0)
        ended = time.monotonic_ns()
        p.returncode = os.waitstatus_to_exitcode(status)
    finally:
        timer.cancel()
        p.stdout.close()
    if p.returncode:
        raise subprocess.CalledProcessError(p.returncode, words, told)
    reached = [*json.loads(told.splitlines()[-1]), ["end", ended]]
    times = [begun, *(at for _, at in reached)]
    if times != sorted(times):
        raise RuntimeError(f"phases are not in order, from {begun}: {reached}")
    return {phase: (at - before) * 1e-9 for (phase, at), before in zip(reached, times)}, used.ru_utime + used.ru_stime


def undisturbed(rounds):
    """Seconds: the sum of the phases' minima over rounds."""
    return sum(min(r[phase] for r in rounds) for phase in rounds[0])


def added_ms(way, without, chosen):
    return 1e3 * (undisturbed([way[i] for i in chosen]) - undisturbed([without[i] for i in chosen]))


def estimate(way, without):
    """What a way adds to another, of the phases of their rounds."""
    n, source = len(way), random.Random(1)
    drawn = sorted(added_ms(way, without, source.choices(range(n), k=n)) for _ in range(DRAWS))
    halves = [added_ms(way, without, range(first, n, 2)) for first in (0, 1) if n > 1]
    return dict(added_ms=added_ms(way, without, range(n)), lo=drawn[int(0.025 * DRAWS)], hi=drawn[int(0.975 * DRAWS)], halves_ms=halves)


def measure(ways, rounds, env, seconds=1e9):
    """By way: what the top of this file says. Fewer rounds, but two, where they would take longer than these seconds. Traces are recorded
    where servers have them, on tmpfs."""
    env = {k: v for k, v in env.items() if k != "XDG_RUNTIME_DIR"}
    phases, cpu = {way: [] for way in ways}, {way: [] for way in ways}
    begun = time.monotonic()
    for i in range(rounds + 1):
        if i > 2 and (time.monotonic() - begun) * (i + 1) / i > seconds:
            break
        for way in list(ways)[i % len(ways):] + list(ways)[:i % len(ways)]:
            words, more = ways[way]
            took, used = once([str(w).format(round=i) for w in words], {**env, **more})
            if i:
                phases[way].append(took)
                cpu[way].append(used)
    whole = {way: [sum(r.values()) for r in of] for way, of in phases.items()}
    without = phases["without"]
    return {way: dict(estimate(of, without), seconds=whole[way], best_s=min(whole[way]), undisturbed_s=undisturbed(of),
                      best_added_ms=1e3 * (min(whole[way]) - min(whole["without"])),
                      median_added_ms=1e3 * statistics.median(x - y for x, y in zip(whole[way], whole["without"])),
                      phases_s={name: min(r[name] for r in of) for name in of[0]}, cpu_s=cpu[way],
                      cpu_added_ms=1e3 * (min(cpu[way]) - min(cpu["without"]))) for way, of in phases.items()}


def line(way, f):
    return (f"{way:8} {f['undisturbed_s']:.3f} s, {f['added_ms']:+.0f} ms [{f['lo']:+.0f}, {f['hi']:+.0f}], halves {' '.join(f'{h:+.0f}' for h in f['halves_ms'])}; fastest "
            f"{f['best_s']:.3f} s, {f['best_added_ms']:+.0f}; median of {len(f['seconds'])} {f['median_added_ms']:+.0f}; CPUs {min(f['cpu_s']):.3f} s, {f['cpu_added_ms']:+.0f} ms; "
            + ", ".join(f"{name} {s:.3f}" for name, s in f["phases_s"].items()))


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kfit")
    p.add_argument("--python", default="python3", help="with PyTorch")
    p.add_argument("--rounds", type=int, default=8)
    p.add_argument("--seconds", type=float, default=125, help="fewer rounds where these would take longer")
    p.add_argument("--json")
    a = p.parse_args()
    env = {k: v for k, v in os.environ.items() if not k.startswith("KFIT_") and k != "LD_PRELOAD"}
    p = subprocess.run([a.python, "-c", "import torch; torch.cuda.init()"], text=True, capture_output=True)
    if p.returncode:
        print(f"skipped: {a.python} has no PyTorch, or that sees no GPU: {p.stderr.strip()[-200:]}")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="kfit-start-") as temp:
        found = measure(commands(a.kfit, a.python, temp), a.rounds, dict(env, KFIT_STATE="/dev/null"), a.seconds)
    for way, f in found.items():
        print(line(way, f), flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(dict(goal_ms=GOAL_MS, rounds=len(found["without"]["seconds"]), ways=found), f, indent=1)


if __name__ == "__main__":
    main()
