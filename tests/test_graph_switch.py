"""tests/gpu/graph_switch.c on the test double: what it tells of each way, and of ways that die. Arguments: graph_switch, the double's folder."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

PROGRAM, DOUBLE = sys.argv.pop(1), sys.argv.pop(1)
SHAPES = ["same", "grid", "shared", "off", "pair", "cluster"]


class Switch(unittest.TestCase):
    def run_it(self, *sizes, settings="", rc=0):
        with tempfile.TemporaryDirectory(prefix="kfit-switch-") as home:
            pathlib.Path(home, "kfit-double").write_text(settings)
            out = pathlib.Path(home, "out.json")
            p = subprocess.run([PROGRAM, out, *map(str, sizes)], text=True, capture_output=True, timeout=100,
                               env={**os.environ, "LD_LIBRARY_PATH": DOUBLE, "HOME": home})
            self.assertEqual(p.returncode, rc, p.stdout + p.stderr)
            return json.loads(out.read_text()), p.stdout

    def test_each_way(self):
        found, table = self.run_it(10, 37)
        self.assertEqual(found["device"], "kfit test double")
        self.assertEqual([(r["way"], r["nodes"]) for r in found["runs"]],
                         [(w, n) for n in (10, 37) for w in ("original", "clone_node", "exec_of_clone", "update", "swap", "destroyed_node")])
        self.assertEqual(len(table.splitlines()), 13)
        for r in found["runs"]:
            tenth = -(-r["nodes"] // 10)
            self.assertEqual((r["ended"], r["made"]["right"]), (0, r["nodes"]), r)
            # known by the nodes of the graph that it was made from, while that is there
            works = r["way"] in ("original", "exec_of_clone", "update", "swap")
            for name in SHAPES if works else SHAPES[:1]:
                if (r["way"], name) == ("update", "off"):
                    self.assertNotIn(name, r)
                    continue
                s = r[name]
                self.assertEqual((s["others_as_before"], s["replay"]), (r["nodes"] - tenth, ""), (r["way"], name))
                if (r["way"], name) in (("original", "cluster"), ("exec_of_clone", "cluster")):
                    # the parameters of an executable's node have no place for a cluster, and the graph's own node has no such grid
                    self.assertEqual((s["error"], s["switched"], s["right"]), ("CUDA_ERROR_INVALID_CLUSTER_SIZE", 0, 0), r["way"])
                    continue
                self.assertEqual((s["error"], s["switched"], s["of"]), ("", tenth, tenth) if works else ("CUDA_ERROR_INVALID_VALUE", 0, tenth), (r["way"], name))
                self.assertEqual((s["right"], s["still_the_first"]), (tenth, 0) if works else (0, tenth), (r["way"], name))
                self.assertEqual(s["back"], works, (r["way"], name))
            if works:
                self.assertEqual((r["all"]["status"], r["all"]["right"], r["all"]["right_back"]), (0, r["nodes"], r["nodes"]))
                self.assertEqual((r["in_flight"]["under_way_ran"], r["in_flight"]["next_ran"]), ("first", "second"))
            else:
                self.assertNotIn("in_flight", r)
            self.assertEqual("clone" in r["made"], r["way"] not in ("original", "destroyed_node"))

    def test_no_gpu_is_said(self):
        found, table = self.run_it(settings="gpus 0\n", rc=77)
        self.assertIn("no GPU", found["skipped"])
        self.assertIn("skipped", table)
        found, _ = self.run_it(settings="cc 80\n", rc=77)
        self.assertIn("no clusters", found["skipped"])

    def test_a_way_that_fails_is_told_and_the_others_go_on(self):
        """Where memory is short for the larger size alone, its runs say why, whole lines only, and the control's failure is the exit status."""
        found, table = self.run_it(10, 20000, settings="memory 100000\n", rc=1)
        self.assertTrue(all("all" in r for r in found["runs"][:1]))
        for r in found["runs"][6:]:
            self.assertEqual(r["ended"], 1)
            self.assertIn("CUDA_ERROR_OUT_OF_MEMORY", r["failed"])
        self.assertEqual(table.count(": failed"), 6)

    def test_wrong_sizes(self):
        for words in ([], ["-"], ["out.json", "9"], ["out.json", "x"]):
            p = subprocess.run([PROGRAM, *words], text=True, capture_output=True)
            self.assertEqual((p.returncode, "usage" in p.stderr), (2, True))


if __name__ == "__main__":
    unittest.main()
