"""tests/gpu/bench_shim.py and its program on the test double: what is before each call is there, is what kfit counts, and is all of the
call where the call itself does nothing. Arguments: see cli_helpers.py, then bench_shim, the shim, the double's folder."""
import json
import pathlib
import subprocess
import sys
import unittest

BENCH, SHIM, DOUBLE = sys.argv[5:8]
del sys.argv[5:8]
from cli_helpers import KFIT, SANITIZER, Case, main  # noqa: E402

SCRIPT = pathlib.Path(__file__).resolve().parent / "gpu/bench_shim.py"
CALLS = ["gemm_ex", "lt_matmul", "launch", "launch_ex", "graph_launch"]
SHAPE, OTHER = "4,32,32", "3,32,32"
KEY = "gemm/bf16,bf16,bf16/acc=f32/m=4,n=32,k=32/nt/lda=32,ldb=32,ldc=32/alpha=1,beta=0/align=16"
SOURCE = """/* kfit-candidate 1
{"op":"gemm","name":"right","device":"cuda","arch":">=80","launches":[{"entry":"kfit_main","grid":[4,1,1],"block":[64,1,1]}]}
*/
// double: ns=5000
extern "C" __global__ void kfit_main(const short *a, const short *b, short *c, unsigned *ws) {}
"""


class Shim(Case):
    def setUp(self):
        super().setUp()
        self.env.update(LD_LIBRARY_PATH=DOUBLE, HOME=str(self.dir), KFIT_NVRTC=DOUBLE + "/libnvrtc.so.13")

    def tune(self):
        (self.dir / "right.cu").write_text(SOURCE)
        self.c("eval", "--wait", "--key", KEY, "--generic", DOUBLE + "/libcublas.so.13", "--trusted", self.dir / "right.cu")
        self.c("approve", "--all")

    def count(self, manner, shape, **env):
        """What one process had counted: its calls by what became of them, its graphs' replays, its other launches."""
        traces = self.dir / f"traces-{manner}-{shape}-{env['KFIT_MODE']}"
        p = subprocess.run([BENCH, manner, "0.05", *shape.split(",")], text=True, capture_output=True, timeout=100,
                           env={**self.env, **env, "LD_PRELOAD": SHIM, "KFIT_STATE": "/dev/null", "KFIT_TRACE": str(traces)})
        self.assertEqual(p.returncode, 0, p.stderr)
        pairs = {int(line.split()[5]) for line in p.stdout.splitlines()}
        self.assertEqual(len(pairs), 1)
        (path,) = traces.glob("*-cuda0.kft")
        trace, (ls,) = json.loads(self.kfit("trace", "export", path)[0]), json.loads(self.kfit("trace", "ls", "--json", path)[0])
        self.assertEqual(trace["unkeyed"], {})
        return {("bias" if "epi=bias" in k["key"] else "plain", why): n for k in trace["keys"] for why, n in k["count"].items()}, ls, pairs.pop() + 50

    def test_what_is_timed_is_what_is_counted(self):
        """Also behind functions that do nothing: with the real ones' answers, a call there is the call that it is elsewhere."""
        self.tune()
        both = dict(KFIT_MODE="both", KFIT_CACHE=str(self.cache))
        for manner, burst in (("place", 16), ("cold", 16), ("warm", 256)):
            for shape, env, why in ((SHAPE, dict(KFIT_MODE="record"), "off"), (OTHER, both, "no_record"), (SHAPE, both, "none")):
                calls, ls, pairs = self.count(manner, shape, **env)
                each = pairs * burst  # by the pointer that a program gets; the others are counted by nobody, unless in graphs
                self.assertEqual(ls["graphs"]["replays"], each, (manner, why))
                self.assertEqual(calls.get(("bias", "no_record" if why == "none" else why)), each, (manner, why, calls))
                self.assertEqual(calls.get(("plain", why)), 1 + each + 4 * each, (manner, why, calls))  # the graph holds four
                # of launches; in place also cuBLAS's, of the calls that nobody counts
                self.assertEqual(ls["launches"]["other"], dict(place=4, cold=4, warm=2)[manner] * each, (manner, why, ls))

    def test_every_way_has_its_rows(self):
        self.tune()
        p = subprocess.run([sys.executable, SCRIPT, BENCH, SHIM, "--cache", self.cache, "--shape", SHAPE, "--other-shape", OTHER, "--runs", "2", "--seconds", "0.1",
                            "--json", self.dir / "shim.json"], text=True, capture_output=True, timeout=100, env=self.env)
        self.assertEqual(p.returncode, 0, p.stderr)
        rows = {(r["way"], r["call"]): r for r in json.loads((self.dir / "shim.json").read_text())["rows"]}
        self.assertEqual(set(rows), {(way, call) for way in ("none", "record", "hit", "miss", "warm-none", "warm-record", "warm-miss") for call in CALLS})
        for call in CALLS:
            for way in ("warm-record", "warm-miss"):
                r, none = rows[way, call], rows["warm-none", call]
                self.assertGreater(r["lo"], none["hi"], (r, none))  # there is something before it
                self.assertTrue(r["lo"] <= r["added_ns"] <= r["hi"] and len(r["pairs"]) == 2 and min(r["pairs"]) >= 100, r)
        for call in ("gemm_ex", "lt_matmul"):  # the double's own products are a thousand of multiplications
            self.assertLess(rows["warm-record", call]["without_ns"], rows["record", call]["without_ns"] / 10)

    def test_nothing_before_the_calls_is_said(self):
        """A library that is preloaded and stands before nothing: its figures would be those of no shim."""
        for manner in ("place", "warm"):
            p = subprocess.run([BENCH, manner, "1", "1", "32", "32"], text=True, capture_output=True, timeout=60, env={**self.env, "LD_PRELOAD": DOUBLE + "/libcupti.so.13"})
            self.assertEqual((p.returncode, p.stderr), (1, "bench_shim: what is preloaded does not stand before cuLaunchKernel\n"))

    def test_a_way_that_fails_is_told_and_the_others_go_on(self):
        out = self.dir / "failed.json"
        p = subprocess.run([sys.executable, SCRIPT, BENCH, DOUBLE + "/libcupti.so.13", "--shape", SHAPE, "--runs", "1", "--seconds", "0.1", "--json", out],
                           text=True, capture_output=True, timeout=100, env=self.env)
        found = json.loads(out.read_text())
        self.assertEqual((p.returncode, sorted(found["failed"]), {r["way"] for r in found["rows"]}), (1, ["record", "warm-record"], {"none", "warm-none"}), p.stderr)
        self.assertIn("does not stand before cuLaunchKernel", found["failed"]["record"])

    def test_arguments(self):
        for words in ([], ["hot", "1", "1", "32", "32"], ["place", "1", "1", "32"], ["warm", "1", "0", "32", "32"]):
            p = subprocess.run([BENCH, *words], text=True, capture_output=True, timeout=60, env=self.env)
            self.assertEqual((p.returncode, p.stderr[:6] in ("usage:", "bench_")), (2, True), words)


if __name__ == "__main__":
    if SANITIZER != "none":
        print("skipped: a shim with a sanitizer cannot be preloaded")
        sys.exit(77)
    main()
