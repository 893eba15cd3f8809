"""A GPU's trace as a person sees it: what of the launches is known, what was captured, and what off, on, ban and rollback
cannot take out of it. Arguments: see cli_helpers.py."""
import json
import pathlib
import struct
import threading
import time
import unittest

from cli_helpers import FIXTURE, KFIT, SANITIZER, Held, Staged, key, main

OFF, NO_RECORD, OURS = 1, 2, 0


class Graphs(Held, Staged):
    """64 is called 100 times, 60 of them by kfit; 128 5 times. Kernels: gemm 300 in known ops, norm 100."""

    def gpu(self, graphs="", **env):
        return self.hold((key(64), 100, 60), (key(128), 5, 0), FIXTURE_GPU="0", FIXTURE_GRAPHS=graphs, **env)

    def json(self, *args, rc=0):
        return json.loads(self.kfit(*args, rc=rc)[0])

    def test_ls_counts_replays_and_what_is_known(self):
        p = self.gpu(f"c 0 {OURS};r 0 10;c 1 {NO_RECORD};r 1 100;c 0 {OURS};x 2")
        (row,) = self.json("trace", "ls", "--json", self.traces)
        self.assertEqual((row["device"], row["calls"], row["hits"]), ("cuda0", 105 + 20 + 200, 60 + 20))
        self.assertEqual(row["launches"], {"by_kfit": 80, "in_known_ops": 300, "other": 100 + 110})
        self.assertAlmostEqual(row["share_known_ops"], 380 / 590)
        self.assertEqual(row["graphs"], {"made": 3, "live": 2, "holding_kernels": 1, "replays": 110, "calls_lost": 0,
                                         "without_room": 0})
        out, _ = self.kfit("trace", "ls", self.traces)
        self.assertRegex(out, r"64\.4 % known ops \(80 by kfit, 300 in library calls\), 35\.6 % others")
        self.assertRegex(out, r"graphs: 3 captured, 2 live, 1 of them with kernels of kfit's; 110 replays")
        self.end(p)
        (row,) = self.json("trace", "ls", "--json", self.traces)
        self.assertEqual((row["graphs"]["live"], row["graphs"]["holding_kernels"], row["hits"]), (0, 0, 80))
        self.trace((key(64), 7, 0), label="host")
        host = [r for r in self.json("trace", "ls", "--json", self.traces) if r["device"] == "host"]
        self.assertEqual([(r["calls"], r["share_known_ops"]) for r in host], [(7, None)])

    def test_kernels_are_listed_by_launches(self):
        self.end(self.gpu(f"c 0 {OURS};r 0 500"))
        (group,) = self.json("trace", "kernels", "--json", self.traces)
        self.assertEqual(group["kernels"], [
            {"name": "norm", "image": "", "launches": 600, "in_known_ops": 0},
            {"name": "gemm", "image": "0000000000000abc", "launches": 300, "in_known_ops": 300}])
        self.assertEqual(group["launches"], {"by_kfit": 1060, "in_known_ops": 300, "other": 600})
        out, _ = self.kfit("trace", "kernels", "--top", 1, self.traces)
        self.assertIn("69.4 % of 1960 launches", out)
        self.assertRegex(out, r"600 +30\.6% +0 - +norm")
        self.assertNotIn("gemm\n", out)
        self.assertIn("and 1 more", out)
        self.assertIn("gemm\n", self.kfit("trace", "kernels", "--top", 1, "--all", self.traces)[0])

    def test_kernels_outlive_a_merge(self):
        self.end(self.gpu(f"c 0 {OURS};r 0 500"))
        self.end(self.gpu(f"c 1 {NO_RECORD};r 0 1000"))
        merged = self.dir / "all.kft"
        self.kfit("trace", "merge", "-o", merged, self.traces)
        (group,) = self.json("trace", "kernels", "--json", merged)
        self.assertEqual({k["name"]: k["launches"] for k in group["kernels"]}, {"norm": 1700, "gemm": 600})
        data = self.json("trace", "export", merged)
        self.assertEqual({k["key"]: k["calls"] for k in data["keys"]}, {key(64): 1200, key(128): 2010})
        self.assertEqual(data["launches"], {"by_kfit": 1120, "in_known_ops": 600, "other": 1700})
        self.assertEqual([k["name"] for k in data["kernels"]], ["norm", "gemm"])
        self.assertEqual(self.json("trace", "graphs", "--json", merged), [])
        report = self.json("report", "--json", "--cache", self.cache, merged)
        self.assertAlmostEqual(report["coverage"]["share_known_ops"], 1720 / 3420, places=3)
        self.assertEqual(report["coverage"]["launches"]["other"], 1700)
        self.assertIn("50 % of all launches on GPUs in known ops", self.kfit("report", "--cache", self.cache, merged)[0])

    def test_graphs_are_listed_in_order(self):
        p = self.gpu(f"c 0 {OURS};r 0 10;c 1 {NO_RECORD};c 1 {OFF};x 2")
        (trace,) = self.json("trace", "graphs", "--json", self.traces)
        self.assertEqual((trace["pid"], trace["device"]), (p.pid, "cuda0"))
        self.assertEqual([(g["graph"], g["state"], g["launches"], g["by_kfit"]) for g in trace["graphs"]],
                         [(0, "live", 10, 2), (1, "live", 0, 0), (2, "gone", 0, 0)])
        self.assertEqual(trace["graphs"][0]["items"], [{"key": key(64), "decision": "kfit", "times": 2},
                                                       {"kernel": "norm", "decision": "other", "times": 1}])
        self.assertEqual(trace["graphs"][1]["items"][0], {"key": key(128), "decision": "no_record", "times": 2})
        out, _ = self.kfit("trace", "graphs", self.traces)
        self.assertNotIn(key(64), out)
        out, _ = self.kfit("trace", "graphs", "--graph", 0, self.traces)
        self.assertRegex(out, r"2x kfit +gemm/.* <- a kernel of kfit's\n +1x other +norm\n")
        self.assertNotIn("no_record", out)
        self.kfit("trace", "graphs", "--graph", 9, self.traces, rc=1)

    def test_off_names_what_goes_on(self):
        p = self.gpu(f"c 0 {OURS};c 0 {OURS};c 1 {NO_RECORD};c 0 {OURS};c 0 {OURS};x 1", fixture="1,0,2,0,0,0,0")
        quiet = self.gpu(f"c 1 {NO_RECORD}")
        out, err = self.c("off", "--json", self.traces, rc=1)
        rows = {r["pid"]: r for r in json.loads(out)}
        self.assertEqual({pid: (r["reached"], r["device"], r["graphs"]) for pid, r in rows.items()},
                         {p.pid: (True, "cuda0", [0, 3, 4]), quiet.pid: (True, "cuda0", [])})
        self.assertRegex(err, rf"process {p.pid} .*: on cuda0, graphs 0, 3-4 still replay kernels of kfit's; "
                              r"restart or re-capture")
        self.assertNotIn(f"process {quiet.pid}", err)
        self.assertIn("and in 2 running; not everywhere", err)
        (status,) = [s for s in self.status()["processes"] if s["pid"] == p.pid]
        self.assertEqual((status["off"], status["graphs"]["holding_kernels"]), (True, 3))
        self.assertIn("GRAPHS GO ON", self.kfit("status", self.traces)[0])
        self.assertIn(f"GRAPHS GO ON in process {p.pid} on cuda0: 3 ", self.kfit("top", "--once", self.traces)[0])
        for line in ["x 0", "x 3", "x 4"]:  # captured again, or gone
            self.tell(p, line)
        _, err = self.c("off", self.traces)
        self.assertNotIn("graph", err)
        self.assertNotIn("GRAPHS GO ON", self.kfit("status", self.traces)[0])

    def test_off_again_names_what_was_captured_in_between(self):
        p = self.gpu()
        self.c("off", self.traces)
        self.tell(p, f"c 0 {OURS}")
        self.c("off", self.traces, rc=1)
        self.end(p)  # a process that has ended replays nothing
        self.c("off", self.traces)

    def test_off_waits_for_what_is_being_captured(self):
        p = self.gpu("m 2")
        ends = threading.Timer(0.5, lambda: [self.tell(p, f"c 0 {OURS}"), self.tell(p, "m 0")])
        ends.start()
        out, err = self.c("off", "--json", self.traces, rc=1)
        ends.join()
        self.assertEqual([(r["graphs"], r["capturing"]) for r in json.loads(out)], [([0], 0)])
        self.assertRegex(err, "graph 0 still replays")
        self.assertNotIn("capturing", err)
        self.tell(p, "x 0")
        self.tell(p, "m 1")
        broken = threading.Timer(0.5, lambda: self.tell(p, "m 0"))
        broken.start()
        _, err = self.c("off", self.traces)
        broken.join()
        self.assertNotIn("graph", err)

    def test_off_names_what_goes_on_being_captured(self):
        slow, quiet = self.gpu("m 1"), self.gpu(f"c 1 {NO_RECORD}")
        two = self.gpu("m 2")
        out, err = self.c("off", "--json", self.traces, rc=1)
        self.assertEqual({r["pid"]: (r["reached"], r["graphs"], r["capturing"]) for r in json.loads(out)},
                         {slow.pid: (True, [], 1), quiet.pid: (True, [], 0), two.pid: (True, [], 2)})
        self.assertRegex(err, rf"process {slow.pid} .*: on cuda0, it is capturing 1 graph with kernels of kfit's; run this "
                              r"again when that has ended")
        self.assertRegex(err, rf"process {two.pid} .*: on cuda0, it is capturing 2 graphs .* when those have ended")
        self.assertNotIn(f"process {quiet.pid}", err)
        self.assertIn("and in 3 running; not everywhere", err)
        self.assertNotIn("capturing", self.c("on", self.traces)[1])
        self.tell(two, "m 0")
        gone = threading.Timer(0.3, lambda: (slow.kill(), slow.wait()))  # it replays nothing
        gone.start()
        self.c("off", self.traces)
        gone.join()

    def test_off_waits_two_seconds_for_all_of_them_together(self):
        for _ in range(2):
            self.gpu("m 1")
        for command, rc, waits in [("off", 1, 100), ("on", 0, 0)]:  # of 20 ms, however long each takes beside other load
            got, _, err, lines = self.straced("trace=nanosleep,clock_nanosleep", command, "--cache", self.cache, self.traces)
            self.assertEqual((got, len(lines)), (rc, waits), err)

    def test_all_are_off_before_one_is_waited_for(self):
        busy = [self.gpu("m 1") for _ in range(3)]
        off = self.start(KFIT, "off", "--cache", self.cache, self.traces)
        until = time.monotonic() + 30
        while [self.tell(p, "") for p in busy] != ["1\n"] * 3 and time.monotonic() < until:
            pass
        self.assertIsNone(off.poll())
        for p in busy:
            self.tell(p, "m 0")
        off.communicate(timeout=60)
        self.assertEqual(off.returncode, 0)

    def test_on_names_what_stays_original(self):
        p = self.gpu(f"c 0 {OFF};c 0 {NO_RECORD}")
        _, err = self.c("on", self.traces)
        self.assertRegex(err, rf"process {p.pid} .*: on cuda0, graph 0 still replays what was captured while kfit was off")

    def test_ban_and_explain_name_the_graphs_of_the_key(self):
        self.c("approve", "--all")
        self.env["KFIT_TRACE"] = self.traces
        p = self.gpu(f"c 1 {OURS};c 0 {OURS};c 0 {NO_RECORD}")
        _, err = self.c("cache disable", key(64))
        self.assertRegex(err, rf"process {p.pid} .*: on cuda0, graph 1 still replays the kernel of this key")
        _, err = self.c("cache disable", key(256))
        self.assertNotIn("graph", err)
        out, _ = self.kfit("explain", "--pid", p.pid, key(64))
        self.assertIn("graph 1 replays its kernel, whatever is switched", out)
        _, err = self.c("explain", key(64))
        self.assertRegex(err, rf"process {p.pid} .*graph 1 still replays the kernel of this key")
        (one,) = self.json("explain", "--json", "--pid", p.pid, key(128))
        self.assertEqual((one["device"], one["graphs"]), ("cuda0", [0]))

    def test_a_graph_that_was_cut_may_hold_any_key(self):
        self.c("approve", "--all")
        self.env["KFIT_TRACE"] = self.traces
        p = self.gpu(f"f;c 0 {OURS};c 1 {NO_RECORD}")
        _, err = self.c("cache disable", key(128))
        self.assertRegex(err, rf"process {p.pid} .*: on cuda0, graph 1 still replays the kernel of this key")
        self.assertIn("no room for 0 graphs and 6 calls in graphs", self.kfit("trace", "ls", self.traces)[0])

    def test_rollback_names_what_followers_captured(self):
        self.env["KFIT_TRACE"] = self.traces
        self.c("approve", key(64))
        self.c("approve", key(128))
        p = self.gpu(f"c 0 {OURS}", FIXTURE_FOLLOWS=self.cache)
        _, err = self.c("rollback")
        self.assertRegex(err, rf"process {p.pid} .*: on cuda0, graph 0 still replays kernels of kfit's")
        self.assertIn("1 running process follows", err)

    def test_many_graphs_fit_a_line(self):
        graphs = ";".join(f"c {i % 2} {OURS if i % 2 else NO_RECORD}" for i in range(400))
        self.gpu(graphs)
        out, err = self.c("off", "--json", self.traces, rc=1)
        self.assertEqual(json.loads(out)[0]["graphs"], list(range(1, 400, 2)))
        self.assertRegex(err, r"graphs 1, 3, 5, .*, \.\.\. still replay")
        self.assertLess(max(map(len, err.splitlines())), 700)

    def test_two_traces_are_one_process(self):
        p = self.gpu(f"c 0 {OURS}", FIXTURE_HOST="1", RANK="0")
        rows = self.json("trace", "ls", "--json", self.traces)
        self.assertEqual(sorted((r["pid"], r["device"]) for r in rows), [(p.pid, "cuda0"), (p.pid, "host")])
        out, err = self.c("off", self.traces, rc=1)
        self.assertEqual(len(out.splitlines()), 2)
        self.assertIn("in 1 running", err)
        self.c("on", self.traces)
        self.assertIn("1 live: 1 dispatching, 0 not", self.kfit("top", "--once", self.traces)[0])
        metrics, _ = self.kfit("metrics", self.traces)
        self.assertRegex(metrics, r"kfit_processes_started_total\{.*\} 1\n")
        self.assertRegex(metrics, r'kfit_graphs\{.*holds="kfit"\} 1\n')
        self.assertRegex(metrics, r"kfit_known_ops_ratio\{.*\} 0\.78260")
        explained = self.json("explain", "--json", "--pid", p.pid)
        self.assertEqual(sorted((e["device"], e["key"]) for e in explained),
                         [("cuda0", key(128)), ("cuda0", key(64)), ("host", key(64))])
        self.assertEqual(len(self.json("explain", "--json", "--pid", p.pid, key(128))), 1)
        self.end(p)

    def test_a_report_counts_the_time_of_a_process_once(self):
        self.c("approve", "--all")
        self.end(self.gpu(FIXTURE_HOST="1"))
        for path in pathlib.Path(self.traces).iterdir():  # which began 100 and 60 s before it ended
            data = bytearray(path.read_bytes())
            began = 1700000000 + (40 if "cuda0" in path.name else 0)
            data[56:72] = struct.pack("<qq", began * 10**9, 1700000100 * 10**9)
            path.write_bytes(data)
        self.assertIn("of the 100 s from the first call to the end of each process", self.c("report", self.traces)[0])

    def test_tune_takes_the_device_of_the_trace(self):
        self.end(self.gpu())
        _, err = self.kfit("tune", "--cache", self.cache, self.traces, rc=1)
        self.assertIn("cuda", err)

    @unittest.skipIf(SANITIZER != "none", "a shim with a sanitizer cannot be preloaded")
    def test_run_counts_processes_not_traces(self):
        self.env.update(FIXTURE_GPU="0", FIXTURE_HOST="1", FIXTURE_GRAPHS=f"c 0 {OURS};r 0 10")
        _, err = self.kfit("run", "--trace", self.traces, "--", FIXTURE, "trace", "", "unit", key(64), 100, 60)
        self.assertIn("1 process, 2 keys, 125 calls (80 by kfit kernels)", err)
        names = [p.name for p in pathlib.Path(self.traces).iterdir()]
        self.assertEqual(sorted(n.count("-cuda0.kft") for n in names), [0, 1])


if __name__ == "__main__":
    main()
