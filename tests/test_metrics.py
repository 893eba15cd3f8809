"""kfit metrics: what it says, and that what was counted once stays counted. Arguments: see cli_helpers.py."""
import json
import os
import pathlib
import shutil
import subprocess

from cli_helpers import FIXTURE, KFIT, SANITIZER, key, main
from metrics_helpers import Metrics, Server

HOSTILE = b'"} 1\n# TYPE x\x1b[31m\\\xff'  # what no recorder writes, and a trace may hold
HOSTILE_SHOWN = '"} 1?# TYPE x?[31m\\?'


class Exposition(Metrics):
    def test_calls_hits_and_misses(self):
        self.trace((key(64), 100, 60), (key(128), 5, 0), label="prod")
        self.trace((key(64), 7, 7), label="prod")
        self.trace((key(64), 1, 0), label="test")
        m = self.metrics(self.traces)
        for name, value in [("kfit_calls_total", 112), ("kfit_hits_total", 67), ("kfit_misses_total", 45),
                            ("kfit_processes_started_total", 2)]:
            self.assertEqual(self.sum(m, name, label="prod"), value)
        self.assertEqual(self.sum(m, "kfit_misses_total", label="prod", reason="no_record"), 45)
        self.assertEqual(self.sum(m, "kfit_misses_total", label="prod", reason="banned"), 0)  # there from the start
        self.assertEqual(self.sum(m, "kfit_processes_ended_total", label="prod", end="clean"), 2)
        self.assertEqual(self.sum(m, "kfit_calls_total"), 113)
        self.assertEqual(self.sum(m, "kfit_traces", state="ended"), 3)

    def test_live_processes_by_state_and_why(self):
        a = self.hold((key(64), 10, 5), fixture="3,0,12,2,5,1,7")
        self.hold((key(64), 10, 0), (key(128), 1, 0), fixture="2,0,14,0,0,0,0")
        self.hold(fixture="0,14")
        self.fixture("stage", self.cache, key(64), 2.5)
        m = self.metrics(self.traces)
        self.assertEqual(self.sum(m, "kfit_processes", state="dispatching", reason="none"), 2)
        self.assertEqual(self.sum(m, "kfit_processes", state="original", reason="env"), 1)
        for name, value in [("kernels_loaded", 14), ("kernels_stale", 2), ("kernels_unusable", 7), ("keys_kept", 5),
                            ("keys_banned", 1), ("keys_recorded", 2), ("published_generation", 0), ("switched_off", 0)]:
            self.assertEqual(self.sum(m, "kfit_" + name), value, name)
        self.assertEqual(self.sum(m, "kfit_generation", of="oldest"), 0)
        self.assertEqual(self.sum(m, "kfit_generation", of="newest"), 3)
        self.assertAlmostEqual(self.sum(m, "kfit_replaced_ratio"), 5 / 21, places=5)
        self.c("approve", "--all")
        self.c("off", self.traces)
        m = self.metrics(self.traces)
        self.assertEqual(self.sum(m, "kfit_processes", state="original", reason="off"), 2)
        self.assertEqual((self.sum(m, "kfit_published_generation"), self.sum(m, "kfit_switched_off")), (1, 1))
        self.end(a)
        self.assertEqual(self.sum(self.metrics(self.traces), "kfit_processes"), 2)

    def test_ranks_on_two_generations(self):
        for rank, generation in enumerate([3, 3, 2]):
            self.hold(fixture=f"{generation},0,1", RANK=str(rank), MASTER_ADDR="n")
        self.hold(label="fine", fixture="3,0,1", RANK="0", MASTER_ADDR="m")
        m = self.metrics(self.traces)
        self.assertEqual((self.sum(m, "kfit_jobs_mixed", label="held"), self.sum(m, "kfit_jobs_mixed", label="fine")), (1, 0))

    def test_hostile_labels_stay_labels(self):
        self.trace((key(64), 3, 1), label="PLACEHOLDER-OF-SIZE-64")
        (path,) = pathlib.Path(self.traces).iterdir()
        data = path.read_bytes()
        self.assertEqual(data.count(b"PLACEHOLDER-OF-SIZE-64"), 1)
        path.write_bytes(data.replace(b"PLACEHOLDER-OF-SIZE-64", HOSTILE.ljust(22, b"\0")))
        m = self.metrics(self.traces)
        self.assertEqual(self.sum(m, "kfit_calls_total", label=HOSTILE_SHOWN), 3)
        self.assertNotIn("\x1b", self.text)
        self.assertEqual(self.sum(self.textfile(), "kfit_calls_total", label=HOSTILE_SHOWN), 3)
        self.assertEqual(self.sum(self.textfile(), "kfit_calls_total", label=HOSTILE_SHOWN), 3)  # through the state

    def test_ten_thousand_keys_are_no_more_series_than_one(self):
        self.trace((key(64), 5, 3), label="same")
        few = self.metrics(self.traces)
        self.trace(("@10000", 5, 3), label="same")
        many = self.metrics(self.traces)
        self.assertEqual(few.keys(), many.keys())
        self.assertEqual(self.sum(many, "kfit_calls_total"), 50005)
        with_keys = self.metrics("--keys", 7, self.traces)
        self.assertEqual({n for n, _ in with_keys} - {n for n, _ in many}, {"kfit_key_calls_total"})
        self.assertEqual(len(with_keys) - len(many), 14)
        self.assertEqual(self.sum(with_keys, "kfit_key_calls_total", key=key(64)), 10)  # in both traces: it leads
        self.assertEqual(self.sum(with_keys, "kfit_key_calls_total", key=key(64), outcome="hit"), 6)
        self.assertEqual(self.sum(with_keys, "kfit_key_calls_total"), 40)

    def test_many_deployments_are_bounded(self):
        for i in range(70):
            self.trace((key(64), 10, 0), label=f"canary-{i}")
        m = self.textfile()
        labels = {dict(at)["label"] for n, at in m if n == "kfit_calls_total"}
        self.assertEqual(len(labels), 65)
        self.assertEqual(self.sum(m, "kfit_calls_total", label="(other)", program="(other)"), 60)
        self.assertEqual(self.sum(m, "kfit_calls_total"), 700)
        self.trace((key(64), 1, 0), label="one more")
        again = self.textfile()
        self.assertEqual(m.keys(), again.keys())  # who has a series keeps it
        self.assertEqual(self.sum(again, "kfit_calls_total", label="(other)"), 61)

    def test_a_real_program(self):
        if SANITIZER != "none":
            self.skipTest("a shim with a sanitizer cannot be preloaded")
        script = "import numpy as n\na = n.ones((4, 64), 'f'); b = n.ones((64, 96), 'f')\nfor i in range(50): c = a @ b\n" \
                 "print(c[0, 0], flush=True); input()"
        label = self.dir.name  # no other's, also where this test runs twice at once
        p = self.start(KFIT, "run", "--quiet", "--trace", self.traces, "--label", label, "--", "/usr/bin/python3", "-c", script,
                       stdin=subprocess.PIPE)
        self.assertEqual(p.stdout.readline(), "64.0\n")
        m = self.metrics()  # where it is now nobody said: found through the process
        self.assertEqual(self.sum(m, "kfit_calls_total", label=label), 50)
        self.assertEqual(self.sum(m, "kfit_processes", label=label, state="original", reason="off"), 1)
        p.communicate("\n", timeout=60)
        self.assertEqual(self.sum(self.metrics(self.traces), "kfit_misses_total", label=label, reason="off"), 50)


class Counters(Metrics):
    """What was counted once stays counted."""

    def check_grew(self, before, after):
        for at, value in before.items():
            if at[0].endswith("_total"):
                self.assertGreaterEqual(after.get(at, -1), value, at)

    def test_they_outlive_traces(self):
        p = self.hold((key(64), 100, 60), (key(128), 5, 0))
        m = [self.textfile("--keys", 1)]
        self.assertEqual(self.sum(m[0], "kfit_calls_total"), 105)
        self.tell(p, "+0 10 10")
        self.tell(p, "+1 7 0")
        m.append(self.textfile("--keys", 1))
        self.assertEqual((self.sum(m[1], "kfit_calls_total"), self.sum(m[1], "kfit_hits_total")), (122, 70))
        self.end(p)
        m.append(self.textfile("--keys", 1))
        self.assertEqual(self.sum(m[2], "kfit_processes_ended_total", end="clean"), 1)
        run = pathlib.Path(self.traces) / "run-1"  # as kfit run moves them
        run.mkdir(mode=0o700)
        moved = pathlib.Path(p.path).rename(run / pathlib.Path(p.path).name)
        m.append(self.textfile("--keys", 1))
        shutil.copy(moved, self.traces)  # and people copy them
        m.append(self.textfile("--keys", 1))
        self.assertEqual(self.sum(m[4], "kfit_traces", state="ended"), 1)
        shutil.rmtree(self.traces)
        os.mkdir(self.traces, 0o700)
        m.append(self.textfile("--keys", 1))
        self.trace((key(64), 8, 0), label="held")
        m.append(self.textfile("--keys", 1))
        for now in m[2:6]:
            self.assertEqual((self.sum(now, "kfit_calls_total"), self.sum(now, "kfit_processes_started_total"),
                              self.sum(now, "kfit_processes_ended_total")), (122, 1, 1))
            self.assertEqual(self.sum(now, "kfit_key_calls_total", key=key(64)), 110)
        self.assertEqual(self.sum(m[6], "kfit_calls_total"), 122 + 8)
        self.assertEqual(self.sum(m[6], "kfit_key_calls_total", key=key(64)), 118)
        for before, after in zip(m, m[1:]):
            self.check_grew(before, after)

    def test_a_killed_process_ends_once(self):
        p = self.start(FIXTURE, "kill", self.traces, "held", key(64), 7, 0)
        p.communicate(timeout=60)
        for _ in range(2):
            m = self.textfile()
            self.assertEqual(self.sum(m, "kfit_processes_ended_total", end="unknown"), 1)
            self.assertEqual(self.sum(m, "kfit_calls_total"), 7)
        pathlib.Path(self.traces, os.listdir(self.traces)[0]).unlink()
        self.assertEqual(self.sum(self.textfile(), "kfit_processes_ended_total", end="unknown"), 1)

    def test_leading_keys_change_and_return(self):
        p = self.hold((key(64), 100, 0), (key(128), 50, 0), *[(key(256 + 4 * i), 1, 0) for i in range(8)])
        self.assertEqual(self.sum(self.textfile("--keys", 1), "kfit_key_calls_total", key=key(64)), 100)
        self.tell(p, "+1 100 100")
        m = self.textfile("--keys", 1)
        self.assertEqual(self.sum(m, "kfit_key_calls_total", key=key(128), outcome="hit"), 100)
        self.assertEqual({dict(at)["key"] for n, at in m if n == "kfit_key_calls_total"}, {key(128)})
        self.tell(p, "+0 100 100")
        self.assertEqual(self.sum(self.textfile("--keys", 1), "kfit_key_calls_total", key=key(64)), 200)
        for i in range(6):  # more leaders than are kept count of: the least gives way
            self.tell(p, f"+{i + 2} {1000 * (i + 1)} 0")
            m = self.textfile("--keys", 1)
            self.assertEqual(self.sum(m, "kfit_key_calls_total", key=key(256 + 4 * i)), 1000 * (i + 1) + 1)
        state = json.loads((self.dir / "kfit.prom.state").read_text())
        self.assertEqual(len(state["keys"]), 4)
        self.end(p)

    def test_counts_beyond_a_double_and_beyond_all(self):
        self.trace((key(64), 2**53 + 1, 0), label="big")
        self.textfile()
        state = json.loads((self.dir / "kfit.prom.state").read_text())
        self.assertEqual(state["deployments"][0]["count"].split()[2], str(2**53 + 1))
        self.trace((key(64), 2**64 - 1, 0), label="big")
        self.textfile()
        self.assertIn(f" {2**64 - 1}\n", self.text)  # stays at the end, does not wrap

    def test_a_state_that_cannot_be_read_is_refused_and_left(self):
        self.trace((key(64), 7, 0))
        self.textfile("--keys", 1)
        state, prom = self.dir / "kfit.prom.state", self.dir / "kfit.prom"
        good, shown = json.loads(state.read_text()), prom.read_bytes()
        damages = ["", "{", "[]", json.dumps(dict(good, kfit_metrics_state=2)), json.dumps(dict(good, deployments=7))]
        for part, name, value in [("deployments", "count", "1 x"), ("deployments", "count", "1 " * 30), ("deployments", "label", "a\n"),
                                  ("deployments", "label", "x" * 64), ("deployments", "processes", None), ("traces", "id", "xyz"),
                                  ("traces", "deployment", 1), ("traces", "deployment", -1), ("traces", "deployment", "0"),
                                  ("traces", "seen_unix", -5), ("traces", "keys", [{"n": "1 2 3 4"}]), ("keys", "key", "gemm"),
                                  ("keys", "calls", "-1")]:
            bad = json.loads(json.dumps(good))
            bad[part][0][name] = value
            damages.append(json.dumps(bad))
        damages.append(json.dumps(dict(good, traces=2 * good["traces"])))  # not in order: would be found by chance
        for damaged in damages:
            state.write_text(damaged)
            _, err = self.kfit("metrics", "--textfile", prom, "--keys", 1, self.traces, rc=1)
            self.assertIn("kfit.prom.state: ", err, damaged)
            self.assertEqual((state.read_text(), prom.read_bytes()), (damaged, shown))
        state.write_text(json.dumps(good))
        self.textfile("--keys", 1)

    def test_two_do_not_share_a_state(self):
        self.trace((key(64), 7, 0))
        with Server(self, "--state", self.dir / "s", self.traces):
            _, err = self.kfit("metrics", "--state", self.dir / "s", self.traces, rc=1)
            self.assertIn("in use by another", err)
        self.kfit("metrics", "--state", self.dir / "s", self.traces)

    def test_a_full_disk(self):
        self.trace((key(64), 7, 0))
        rc, out, err = self.private(
            'T="$C.tmpfs"; mkdir "$T" && mount -t tmpfs -o size=64k,mode=700 kfit "$T" || exit 99\n'
            '"$K" metrics --textfile "$T/a.prom" "$1" || exit 3; cat "$T/a.prom" >"$C.before"\n'
            'dd if=/dev/zero of="$T/filler" bs=4k 2>/dev/null; '
            '"$K" metrics --textfile "$T/a.prom" "$1" && exit 4; cmp "$T/a.prom" "$C.before" || exit 5\n'
            'ls -A "$T"; rm "$T/filler"; "$K" metrics --textfile "$T/a.prom" "$1" || exit 6', self.traces)
        self.assertEqual((rc, set(out.split())), (0, {"a.prom", "a.prom.state", "a.prom.state.lock", "filler"}), err)
        self.assertIn("No space left on device", err)

    def test_what_cannot_be_read_is_counted(self):
        self.trace((key(64), 7, 0))
        (pathlib.Path(self.traces) / "bad.kft").write_bytes(b"x" * 9000)
        m = self.metrics(self.traces, self.dir / "missing", rc=1)
        self.assertEqual(self.sum(m, "kfit_traces", state="unreadable"), 2)
        self.assertEqual(self.sum(m, "kfit_calls_total"), 7)
        self.assertIn("bad.kft", self.said)
        self.assertIn("missing: No such file", self.said)

    def test_usage(self):
        for args, words in [(["--textfile", "x"], ".prom"), (["--textfile", "x.prom", "--listen", "0"], "exclude"),
                            (["--keys", "101"], "at most 100"), (["--deadline", "0"], "--deadline")]:
            self.assertIn(words, self.kfit("metrics", *args, rc=2)[1])


if __name__ == "__main__":
    main()
