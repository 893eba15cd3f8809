"""kfit explain and kfit report. Arguments: see cli_helpers.py."""
import json
import os
import pathlib

from cli_helpers import Staged, key, main

GOLDEN = pathlib.Path(__file__).parent / "golden" / "report.json"


class Reports(Staged):
    def test_explain(self):
        self.c("approve", "--all")
        self.assertIn(key(64), self.c("explain", "--threads", "1", key(64))[0])
        out, _ = self.c("explain", "--threads", "1", key(2048))
        self.assertIn("no kernel for this key", out)
        self.trace((key(64), 300, 0), (key(256), 100, 0))
        rows = json.loads(self.c("explain", "--json", self.traces)[0])
        self.assertEqual({r["key"] for r in rows}, {key(64), key(256)})
        self.assertIn("the generic was kept", {r["key"]: r for r in rows}[key(256)]["explanation"])
        _, err = self.c("explain", "gemm/bf17", rc=2)
        self.assertIn("no file, and no key", err)

    def test_report(self):
        self.c("approve", "--all")
        self.trace((key(64), 600, 600), (key(128), 200, 150), (key(256), 100, 0), (key(512), 10, 0))
        out, _ = self.c("report", "--json=report.json", self.traces)
        first = out.splitlines()[0]
        self.assertRegex(first, r"^\d+ % of the recorded time in known ops is in calls kfit can replace; \d+ % was replaced; "
                                r"the program gains at most \d+ % \[\d+, \d+\], estimated$")
        self.assertIn("slow:behind", out)
        self.assertIn("no kernel for this key in the generation", out)
        written = json.loads((self.dir / "report.json").read_text())
        self.assertEqual(written, json.loads(self.c("report", "--json", self.traces)[0]))
        if os.environ.get("KFIT_GOLDEN_WRITE"):
            GOLDEN.write_text((self.dir / "report.json").read_text())
        self.assertEqual(written, json.loads(GOLDEN.read_text()))
        known = 600 + 200 + 100
        shares = {k["key"]: k["share"] for k in written["keys"]}
        self.assertAlmostEqual(shares[key(64)] / shares[key(256)], 6, places=2)
        self.assertAlmostEqual(sum(shares.values()), 1, places=3)
        c = written["coverage"]
        left = 1 - shares[key(512)]
        self.assertAlmostEqual(c["share_replaceable"], left * 800 / known, places=3)
        self.assertAlmostEqual(c["share_replaced"], left * 750 / known, places=3)
        self.assertAlmostEqual(c["gain"], left * (600 * 0.6 + 200 / 3) / known, places=3)
        self.assertEqual([k["basis"] for k in written["keys"] if k["key"] == key(512)], ["estimated"])

    def test_report_shows_the_floor(self):
        self.trace((key(64), 600, 0), (key(128), 200, 0), (key(256), 100, 0))
        out, _ = self.c("report", self.traces)
        rows = {line.split()[-1]: line.split() for line in out.splitlines() if line.endswith("align=16")}
        self.assertEqual(rows[key(64)][2:8], ["1.00", "us", "400", "ns", "200", "ns"])  # before, after, floor
        self.assertEqual(rows[key(64)][8], "2.00")  # 400 / 200
        self.assertEqual(rows[key(128)][6:8], ["-", "-"])
        keys = {k["key"]: k for k in json.loads(self.c("report", "--json", self.traces)[0])["keys"]}
        self.assertEqual([keys[key(n)]["floor_ns"] for n in (64, 128, 256)], [200, None, 200])

    def alone(self, *args):
        """kfit report where /dev/shm holds nobody's traces."""
        script = 'mount -t tmpfs -o mode=1777 kfit /dev/shm || exit 99; exec "$K" report "$@"'
        return self.private(script, *args)

    def test_report_shows_results_that_no_trace_has(self):
        rc, out, err = self.alone("--cache", self.cache)
        self.assertEqual(rc, 0, err)
        self.assertIn("results of 3 keys, without shares", out)
        self.assertRegex(out, r"(?m)^ +- +0 .* 2\.50 \[.* promoted +" + key(64) + "$")
        report = json.loads(self.alone("--json", "--cache", self.cache)[1])
        self.assertEqual({(k["key"], k["calls"]) for k in report["keys"]}, {(key(n), 0) for n in (64, 128, 256)})
        self.trace((key(64), 600, 600))
        self.assertEqual(len(json.loads(self.c("report", "--json", self.traces)[0])["keys"]), 1)  # asked for these
        rc, _, err = self.alone("--cache", self.dir / "none")
        self.assertEqual(rc, 1)
        self.assertIn("no traces and no results; make some", err)

    def test_report_says_that_a_tune_settled_nothing(self):
        cache = self.dir / "unsettled"
        self.fixture("wait", cache, key(64))  # an evaluation, and nothing staged
        rc, _, err = self.alone("--cache", cache)
        self.assertEqual(rc, 1)
        self.assertIn("unsettled: nothing was settled in 1 evaluations", err)

    def test_report_weighs_a_launch_on_a_gpu(self):
        """A small product takes a GPU as long as a launch does, and a CPU nearly nothing."""
        small, large = key(16), key(4096)
        shares = {}
        for gpu in ("", "0"):
            self.env.update(FIXTURE_GPU=gpu) if gpu else None
            traces = self.dir / f"weighed{gpu}"
            self.fixture("trace", traces, "x", small, 100, 0, large, 100, 0)
            report = json.loads(self.c("report", "--json", "--cache", self.dir / "none", traces)[0])
            shares[gpu] = {k["key"]: k["share"] for k in report["keys"]}
        self.assertLess(shares[""][small], 0.02)
        self.assertGreater(shares["0"][small], 0.3)

    def test_report_without_gain(self):
        self.trace((key(256), 100, 0))
        out, _ = self.c("report", self.traces)
        self.assertTrue(out.splitlines()[0].endswith("; no gain"), out)
        _, err = self.c("report", self.dir / "none", rc=1)
        self.assertIn("none: No such file", err)


if __name__ == "__main__":
    main()
