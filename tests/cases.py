"""For tests that are scripts: a line per case, as kfit_test.h prints them."""
import sys

failures = 0


def case(name, ok, why=""):
    global failures
    failures += not ok
    if not ok and why:
        print(f"  {why}")
    print(f"{'ok' if ok else 'not ok'} {name}")


def end():
    """Exit status 1 if any case failed."""
    sys.exit(1 if failures else 0)
