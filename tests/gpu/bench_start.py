"""How long a PyTorch process takes that makes one call: bench_start.py KFIT [--python P] [--rounds N] [--json FILE].

In turn: without kfit, with a shim that is preloaded and off, and under `kfit run`, which records. The first round fills the file
cache and is left out. What is added is the difference of the fastest starts; the median of the rounds' differences stands beside
it. Exit status 77 where the program cannot run.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

CASES = pathlib.Path(__file__).resolve().parent / "torch_cases.py"
GOAL_MS = 50


def commands(kfit, python, folder, cases=CASES):
    """By way: a command, and variables. One given a round's number fills its traces there."""
    shim = pathlib.Path(kfit).resolve().parent.parent / "preload/libkfit_preload.so"  # as built
    return dict(without=([python, cases, "first"], {}),
                off=([python, cases, "first"], dict(LD_PRELOAD=str(shim), KFIT_MODE="off")),
                record=([kfit, "run", "--quiet", "--trace", pathlib.Path(folder) / "start-{round}", "--", python, cases, "first"], {}))


def measure(ways, rounds, env):
    """By way: seconds of each round, the best, and what is added to those of `without`. Traces are recorded where servers have
    them, on tmpfs."""
    env = {k: v for k, v in env.items() if k != "XDG_RUNTIME_DIR"}
    seconds = {way: [] for way in ways}
    for i in range(rounds + 1):
        for way in list(ways)[i % len(ways):] + list(ways)[:i % len(ways)]:
            words, more = ways[way]
            start = time.monotonic()
            subprocess.run([str(w).format(round=i) for w in words], check=True, env={**env, **more}, stdout=subprocess.DEVNULL, timeout=120)
            if i:
                seconds[way].append(time.monotonic() - start)
    without = seconds["without"]
    return {way: dict(seconds=s, best_s=min(s), added_ms=1e3 * (min(s) - min(without)),
                      median_added_ms=1e3 * statistics.median(x - y for x, y in zip(s, without))) for way, s in seconds.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kfit")
    p.add_argument("--python", default="python3", help="with PyTorch")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--json")
    a = p.parse_args()
    env = {k: v for k, v in os.environ.items() if not k.startswith("KFIT_") and k != "LD_PRELOAD"}
    p = subprocess.run([a.python, "-c", "import torch; torch.cuda.init()"], text=True, capture_output=True)
    if p.returncode:
        print(f"skipped: {a.python} has no PyTorch, or that sees no GPU: {p.stderr.strip()[-200:]}")
        sys.exit(77)
    with tempfile.TemporaryDirectory(prefix="kfit-start-") as temp:
        found = measure(commands(a.kfit, a.python, temp), a.rounds, dict(env, KFIT_STATE="/dev/null"))
    for way, f in found.items():
        print(f"{way:8} {f['best_s']:.3f} s, {f['added_ms']:+.0f} ms, median of {a.rounds} differences {f['median_added_ms']:+.0f} ms", flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(dict(goal_ms=GOAL_MS, rounds=a.rounds, ways=found), f, indent=1)


if __name__ == "__main__":
    main()
