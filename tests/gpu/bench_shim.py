"""What the shim adds to a call, in ns: bench_shim.py BENCH_SHIM SHIM [--cache DIR] [--shape M,N,K] [--runs N] [--seconds S] [--cold] [--json FILE].

Runs the C program bench_shim, which compares two ways of each call within itself, under the shim, several times: the median
of runs, and the widest of their 95 % intervals. `none`, without the shim, is what the measurement itself sees. `record` only
counts. With --cache, whose generation has a kernel for --shape, `hit` replaces the GEMM calls (its figures are what the
whole call costs less, or more: our launch instead of cuBLAS's), and `miss` is a shape that the generation does not have.
All these are as calls are made; `warm-none`, `warm-record` and `warm-miss` are the same in a hot loop around a library and a
driver whose calls do nothing. The difference is what the caches cost that a call of cuBLAS leaves behind, and branches that it
makes forget. On test doubles (LD_LIBRARY_PATH=build/tests/double) with --cold the others show what a real driver makes of our
calls: whatever it runs in between has pushed our code and data out of the near caches. Exit status 77 where there is no GPU, 1 if
a way failed: the others' rows are there, and `failed` says why.
"""
import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile


class Failed(Exception):
    pass


def run(a, manner, shape, **env):
    """One process; by call: added, lower, upper, without, pairs."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("KFIT_") and k != "LD_PRELOAD"}
    if env:
        clean.update(LD_PRELOAD=a.shim, **env)
    p = subprocess.run([a.bench, manner, str(a.seconds), *shape.split(","), *([a.cublas] if a.cublas else [])], env=clean, text=True, capture_output=True, timeout=300)
    if p.returncode == 77:
        print(p.stderr, end="", file=sys.stderr)
        sys.exit(77)
    if p.returncode:
        raise Failed(p.stderr.strip() or f"exit status {p.returncode}")
    return {name: [float(v) for v in values] for name, *values in (line.split() for line in p.stdout.splitlines())}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("bench")
    p.add_argument("shim")
    p.add_argument("--cache")
    p.add_argument("--shape", default="4,2048,2048")
    p.add_argument("--other-shape", default="3,1024,1024")
    p.add_argument("--cublas", help="libcublas to load; default: what the loader finds")
    p.add_argument("--runs", type=int, default=3)
    p.add_argument("--seconds", type=float, default=15, help="the most that a process measures for")
    p.add_argument("--cold", action="store_true", help="run other code and read other data before each call, but those in hot loops")
    p.add_argument("--json")
    a = p.parse_args()
    a.shim = os.path.realpath(a.shim)
    rows, failed = [], {}
    with tempfile.TemporaryDirectory(prefix="kfit-bench-shim-") as temp:
        kfit = dict(KFIT_TRACE=temp, KFIT_STATE="/dev/null")
        record = dict(kfit, KFIT_MODE="record")
        place = "cold" if a.cold else "place"
        ways = {"none": (place, a.shape, {}), "record": (place, a.shape, record), "warm-none": ("warm", a.shape, {}), "warm-record": ("warm", a.shape, record)}
        if a.cache:
            both = dict(kfit, KFIT_MODE="both", KFIT_CACHE=os.path.realpath(a.cache))
            ways.update({"hit": (place, a.shape, both), "miss": (place, a.other_shape, both), "warm-miss": ("warm", a.other_shape, both)})
        for way, (manner, shape, env) in ways.items():
            try:
                runs = [run(a, manner, shape, **env) for _ in range(a.runs)]
            except Failed as why:  # no reason to lose the others
                failed[way] = str(why)
                print(f"{way:11} {why}", file=sys.stderr, flush=True)
                continue
            for name in runs[0]:
                added, lo, hi, without, pairs = zip(*(r[name] for r in runs))
                rows.append(dict(way=way, call=name, added_ns=statistics.median(added), lo=min(lo), hi=max(hi),
                                 without_ns=statistics.median(without), runs=len(runs), added_by_run=added, pairs=[int(n) for n in pairs]))
                print(f"{way:11} {name:13} {rows[-1]['added_ns']:+9.1f} ns [{min(lo):+.1f}, {max(hi):+.1f}] on {rows[-1]['without_ns']:.0f}", flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(dict(shape=a.shape, cold=a.cold, rows=rows, failed=failed), f, indent=1)
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
