"""What the shim adds to a call, in ns: bench_shim.py BENCH_SHIM SHIM [--cache DIR] [--shape M,N,K] [--pairs N] [--json FILE].

Runs the C program bench_shim without and with the shim in turn, in random order, as processes of their own, and takes the
differences: the median of pairs, and its 95 % interval by order statistics. `record` only counts. With --cache, whose
generation has a kernel for --shape, `hit` replaces the GEMM calls (its figures are what the whole call costs less, or
more: our launch instead of cuBLAS's), and `miss` is a shape that the generation does not have.
Exit status 77 where there is no GPU.
"""
import argparse
import json
import math
import os
import random
import statistics
import subprocess
import sys
import tempfile


def interval(values):
    v, n, tail, k = sorted(values), len(values), 0.0, 0
    while k < n // 2 and (tail := tail + math.comb(n, k) * 0.5**n) <= 0.025:
        k += 1
    return statistics.median(v), v[max(k - 1, 0)], v[n - max(k, 1)]


def run(a, shape, **env):
    """One process; ns by call."""
    clean = {k: v for k, v in os.environ.items() if not k.startswith("KFIT_") and k != "LD_PRELOAD"}
    if env:
        clean.update(LD_PRELOAD=a.shim, **env)
    p = subprocess.run([a.bench, *shape.split(","), *([a.cublas] if a.cublas else [])], env=clean, text=True, capture_output=True, timeout=300)
    if p.returncode:
        print(p.stderr, end="", file=sys.stderr)
        sys.exit(77 if p.returncode == 77 else 1)
    return {name: float(ns) for name, ns in (line.split() for line in p.stdout.splitlines())}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("bench")
    p.add_argument("shim")
    p.add_argument("--cache")
    p.add_argument("--shape", default="4,2048,2048")
    p.add_argument("--other-shape", default="3,1024,1024")
    p.add_argument("--cublas", help="libcublas to load; default: what the loader finds")
    p.add_argument("--pairs", type=int, default=9)
    p.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    p.add_argument("--json")
    a = p.parse_args()
    a.shim = os.path.realpath(a.shim)
    order, differences, plain = random.Random(a.seed), {}, {}
    with tempfile.TemporaryDirectory(prefix="kfit-bench-shim-") as temp:
        ways = {"record": (a.shape, dict(KFIT_MODE="record", KFIT_TRACE=temp, KFIT_STATE="/dev/null"))}
        if a.cache:
            both = dict(KFIT_MODE="both", KFIT_TRACE=temp, KFIT_CACHE=os.path.realpath(a.cache), KFIT_STATE="/dev/null")
            ways.update(hit=(a.shape, both), miss=(a.other_shape, both))
        for _ in range(a.pairs):
            for way, (shape, env) in order.sample(list(ways.items()), len(ways)):
                sides = [lambda: run(a, shape), lambda: run(a, shape, **env)]
                first = order.randrange(2)
                got = [None, None]
                for i in (first, 1 - first):
                    got[i] = sides[i]()
                for name in got[0]:
                    plain.setdefault(name, []).append(got[0][name])
                    differences.setdefault((way, name), []).append(got[1][name] - got[0][name])
    rows = []
    for (way, name), d in differences.items():
        ns, lo, hi = interval(d)
        rows.append(dict(way=way, call=name, added_ns=ns, lo=lo, hi=hi, without_ns=statistics.median(plain[name]), pairs=len(d)))
        print(f"{way:7} {name:13} {ns:+9.1f} ns [{lo:+.1f}, {hi:+.1f}] on {rows[-1]['without_ns']:.0f}")
    if a.json:
        with open(a.json, "w") as f:
            json.dump(dict(shape=a.shape, seed=a.seed, burst=64, rows=rows), f, indent=1)


if __name__ == "__main__":
    main()
