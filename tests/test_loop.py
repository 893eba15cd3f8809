"""The whole loop as a person runs it, on a real numpy program: record, tune, approve, dispatch; and the tuner killed at
random moments, with its runner or without. What comes after that, to rollback, is in test_operator.py.

  test_loop.py KFIT            needs python3 with numpy and a BLAS; skipped with the reason where they are missing
"""
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time

KFIT = sys.argv[1]
PYTHON = "/usr/bin/python3"
SKIP = 77

# Products of odd and even shapes, sums of integers: exact in float32, so that answers can be compared bit by bit.
PROGRAM = """
import sys, numpy as np
rng = np.random.default_rng(1)
shapes = [(4, 96, 128), (3, 40, 64), (1, 96, 128)]
data = [(rng.integers(-8, 8, (m, k)).astype(np.float32), rng.integers(-8, 8, (k, n)).astype(np.float32)) for m, n, k in shapes]
total = 0
for _ in range(100):
    for x, w in data:
        y = x @ w
        total += int(np.abs(y).astype(np.int64).sum())
print(total)
"""
INPUT = "\n" * 3  # lines, for programs that read them
KEYS = {
    f"gemm/f32,f32,f32/acc=f32/m={m},n={n},k={k}/nn/lda={k},ldb={n},ldc={n}/alpha=1,beta=0/align=16"
    for m, n, k in [(4, 96, 128), (3, 40, 64), (1, 96, 128)]
}


def run(*args, rc=0, **more):
    p = subprocess.run([str(a) for a in args], capture_output=True, text=True, timeout=170, **more)
    assert rc is None or p.returncode == rc, f"{args}: status {p.returncode}\n{p.stdout}\n{p.stderr}"
    return p


class Loop:
    def __init__(self, program=PROGRAM):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="kfit-loop-"))
        self.cache, self.traces = self.dir / "cache", self.dir / "traces"
        self.program = self.dir / "program.py"
        self.program.write_text(program)
        self.expected = run(PYTHON, self.program, input=INPUT).stdout

    def kfit(self, command, *args, **more):
        return run(KFIT, command, *args, **more)

    def served(self, *args):
        """Runs the program under kfit; returns its answer and the calls by reason."""
        where = self.dir / f"served-{time.monotonic_ns()}"
        p = self.kfit("run", "--trace", where, *args, "--", PYTHON, self.program)
        process = json.loads(self.kfit("trace", "export", *where.iterdir()).stdout)
        counts = {}
        for trace in process if isinstance(process, list) else process.get("traces", [process]):
            for key in trace["keys"]:
                for reason, n in key["count"].items():
                    counts[reason] = counts.get(reason, 0) + n
        return p.stdout, counts

    def tune(self, *args):
        return subprocess.Popen([KFIT, "tune", "--wait", "--cache", self.cache, "--min-calls", "50", "--seed", "3", *args, self.traces],
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def records_tunes_and_dispatches(loop):
    answer, counts = loop.served("--mode", "record")
    assert answer == loop.expected
    loop.kfit("run", "--trace", loop.traces, "--", PYTHON, loop.program)
    p = loop.tune("--evaluations", "3", "--json")
    out, err = p.communicate(timeout=170)
    assert p.returncode == 0, err
    keys = json.loads(out)["keys"]
    assert {k["key"] for k in keys} == KEYS, out
    staged = json.loads(loop.kfit("cache", "ls", "--staged", "--json", "--cache", loop.cache).stdout)
    for k in keys:  # nothing is promoted that is slower when its weights come from memory
        if k["verdict"] == "promoted":
            shown = loop.kfit("cache", "show", "--json", "--cache", loop.cache, k["key"]).stdout
            cold = [t for e in json.loads(shown) for t in e["receipt"]["timing"] if t["mode"] == "cold"]
            assert len(cold) == 1 and cold[0]["n"] >= 30 and cold[0]["lo"] > 0.97, shown
    loop.kfit("approve", "--cache", loop.cache, "--all")
    promoted = [k["key"] for k in keys if k["verdict"] == "promoted"]
    answer, counts = loop.served("--cache", loop.cache)
    assert answer == loop.expected, (answer, loop.expected)
    # a run that may only hit the cache hits everywhere a winner was promoted, but
    # where noise left the question open
    assert counts.get("none", 0) == 100 * len(promoted), (counts, promoted)
    assert counts.get("negative", 0) == 100 * (len(staged) - len(promoted)), (counts, staged)
    assert sum(counts.values()) == 300, counts
    report = json.loads(loop.kfit("report", "--cache", loop.cache, "--json", loop.traces).stdout)
    assert {k["key"] for k in report["keys"]} == KEYS


def survives_kills(loop):
    """SIGKILL of tune, or of its runner, at random moments: the store stays whole and the campaign goes on."""
    loop.kfit("run", "--trace", loop.traces, "--", PYTHON, loop.program)
    seed = int(os.environ.get("KFIT_TEST_SEED", time.time_ns()))
    rng = random.Random(seed)
    print(f"  seed: KFIT_TEST_SEED={seed}")
    kept = 0
    for round_ in range(6):
        p = loop.tune("--evaluations", "6")
        time.sleep(rng.uniform(0.3, 2.5))
        if round_ % 2:
            subprocess.run(["pkill", "-KILL", "-P", str(p.pid), "kfit-runner"], check=False)
            time.sleep(rng.uniform(0, 0.5))
        p.kill()
        p.communicate()
        if not loop.cache.exists():
            continue
        loop.kfit("cache", "verify", "--cache", loop.cache)
        now = len(json.loads(loop.kfit("cache", "ls", "--staged", "--json", "--cache", loop.cache).stdout))
        assert now >= kept, f"{now} staged after {kept}"
        kept = now
    p = loop.tune("--evaluations", "6", "--json")
    for _ in range(3):  # the runner alone: the evaluation in flight is done again
        time.sleep(rng.uniform(0.2, 1.0))
        subprocess.run(["pkill", "-KILL", "-P", str(p.pid), "kfit-runner"], check=False)
    out, err = p.communicate(timeout=170)
    assert p.returncode == 0 or "runner ended on its own" in err, err
    p = loop.tune("--evaluations", "6", "--json")
    out, err = p.communicate(timeout=170)
    assert p.returncode == 0, err
    assert {k["key"] for k in json.loads(out)["keys"]} == KEYS
    loop.kfit("cache", "verify", "--cache", loop.cache)


def main():
    try:
        subprocess.run([PYTHON, "-c", "import numpy"], check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        print("  skipped: no python3 with numpy in /usr/bin\nok # SKIP loop")
        return SKIP
    failed = 0
    for case in (records_tunes_and_dispatches, survives_kills):
        loop = Loop()
        os.environ["XDG_STATE_HOME"] = str(loop.dir)  # what this host remembers of crashes is not the test's
        try:
            case(loop)
            print(f"ok {case.__name__}")
        except (AssertionError, subprocess.TimeoutExpired, KeyError, ValueError) as problem:
            failed += 1
            print(f"  {problem!r}\nnot ok {case.__name__}")
        finally:
            shutil.rmtree(loop.dir, ignore_errors=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
