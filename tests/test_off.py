"""`kfit off` and `on` reach every running process within one call.
Arguments: see cli_helpers.py; then the shim and tests/preload's `calls`."""
import json
import os
import subprocess
import sys

SHIM, CALLS = map(os.path.abspath, sys.argv[5:7])
del sys.argv[5:7]

from cli_helpers import Case, main  # noqa: E402 (reads the arguments)

KEY = "gemm/f32,f32,f32/acc=f32/m=4,n=4,k=4/nn/lda=4,ldb=4,ldc=4/alpha=1,beta=0/align=16"
# of 16 floats behind rdx it makes 42: mov ecx, 16; 1: mov dword [rdx], 42f; add rdx, 4; dec ecx; jnz 1b; ret
WRITES_42 = "b910000000" "c70200002842" "4883c204" "ffc9" "75f2" "c3"
ANSWERS = {"42": 0, "0.390625": 1}  # of the kernel, of the original


class Fleet:
    """Programs under the shim that multiply once each time they are asked. The published kernel writes 42, so that an
    answer says who gave it."""

    def __init__(self, case, count):
        self.case, self.traces = case, str(case.dir / "fleet")
        if not (case.dir / "cache").exists():
            case.env["FIXTURE_IMAGE"] = WRITES_42
            case.fixture("stage", case.cache, KEY, 2)
            case.kfit("approve", "--all", "--cache", case.cache)
        env = {**case.env, "LD_PRELOAD": SHIM, "KFIT_CACHE": case.cache, "KFIT_TRACE": self.traces, "OPENBLAS_NUM_THREADS": "1"}
        self.programs = [subprocess.Popen([CALLS, "lines"], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
                         for _ in range(count)]
        case.addCleanup(self.end)

    def ask(self):
        """One call in each, all at once; how many answers are the original's."""
        for p in self.programs:
            p.stdin.write("\n")
            p.stdin.flush()
        return sum(ANSWERS[p.stdout.readline().strip()] for p in self.programs)

    def switch(self, command, *where):
        """`kfit off` or `on`, for this fleet's traces or (no traces) the usual places; the pids it names."""
        out, _ = self.case.kfit(command, "--cache", self.case.cache, "--json", *where)
        return {p["pid"] for p in json.loads(out) if p["reached"]}

    def pids(self):
        return {p.pid for p in self.programs}

    def end(self):
        for p in self.programs:
            p.stdin.close()
        for p in self.programs:
            p.wait(60)
            p.stdout.close()


class Off(Case):
    def test_off_and_on_reach_all_within_one_call(self):
        fleet = Fleet(self, 24)
        self.assertEqual(fleet.ask(), 0)
        for _ in range(3):
            self.assertEqual(fleet.switch("off", fleet.traces), fleet.pids())
            self.assertEqual(fleet.ask(), 24)  # the very next call of each
            self.assertEqual(fleet.switch("on", fleet.traces), fleet.pids())
            self.assertEqual(fleet.ask(), 0)
        fleet.switch("off", fleet.traces)
        later = Fleet(self, 2)  # what starts while it is off stays with the original
        self.assertEqual((fleet.ask(), later.ask()), (24, 2))
        fleet.switch("on", fleet.traces)
        self.assertEqual((fleet.ask(), later.ask()), (0, 2))
        fleet.end()
        states = [p["state"] for p in json.loads(self.kfit("status", "--json", fleet.traces)[0])["processes"]]
        self.assertEqual(sorted(states), ["none"] * 24 + ["off"] * 2)


if __name__ == "__main__":
    main()
