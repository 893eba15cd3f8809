"""How long `kfit off` takes to reach 100 running processes, and one. Each reached process runs the original in its very
next call. With the traces' directory named, and as people type it: found in the usual places and through /proc, in a PID
namespace of its own where there may be one, so that no other process of this machine is switched.
Arguments: those of test_off.py."""
import os
import pathlib
import statistics
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
OWN = ["unshare", "-rpf", "--mount-proc", "--kill-child"]
if "KFIT_BENCH_OWN" not in os.environ and os.spawnlp(os.P_WAIT, OWN[0], *OWN, "true") == 0:
    os.execvpe(OWN[0], [*OWN, sys.executable, *sys.argv], {**os.environ, "KFIT_BENCH_OWN": "1"})

from test_off import Case, Fleet  # noqa: E402

ROUNDS = 11


class Bench(Case):
    def runTest(self):
        pass

    def measure(self, fleet, *where):
        """Median seconds of `kfit off`, from its start to its end."""
        seconds = []
        for _ in range(ROUNDS):
            assert fleet.ask() == 0
            start = time.perf_counter()
            reached = fleet.switch("off", *where)
            seconds.append(time.perf_counter() - start)
            assert reached == fleet.pids() and fleet.ask() == len(reached), reached
            fleet.switch("on", *where)
        return statistics.median(seconds), max(seconds)


def main():
    bench = Bench()
    bench.setUp()
    try:
        one = None
        for count in (1, 100):
            fleet = Fleet(bench, count)
            fleet.ask()
            median, worst = bench.measure(fleet, fleet.traces)
            one = one or median
            print(f"off, {count:3} processes, directory named:  {median:.4f} s (worst of {ROUNDS}: {worst:.4f}), "
                  f"{median / one:.2f} times one process")
            if "KFIT_BENCH_OWN" in os.environ:
                median, worst = bench.measure(fleet)
                print(f"off, {count:3} processes, usual places:     {median:.4f} s (worst of {ROUNDS}: {worst:.4f})")
            else:
                print("off, usual places: left out, this machine gives no PID namespace")
            fleet.end()
            fleet.programs = []
    finally:
        bench.doCleanups()
    return 0


if __name__ == "__main__":
    sys.exit(main())
