"""kfit ab: pairs of runs, phases of one run, and what is in their way. Arguments: see cli_helpers.py.

The programs say how fast they are, by whether they are dispatched: what is asserted does not depend on the machine."""
import json
import os
import pathlib
import signal
import subprocess
import time
import unittest

from cli_helpers import FIXTURE, KFIT, SANITIZER, Case, key, main

PYTHON = "/usr/bin/python3"
FIELDS = {"version", "command", "mode", "pairs", "complete", "verdict", "ratio", "lo", "hi", "off_s", "on_s", "predicted",
          "generation", "spread", "saved_s", "calls", "replaced", "mode_without", "seed"}


class Ab(Case):
    """Generation 1 holds a winner for key(64): 1000 ns before, 400 after."""

    def setUp(self):
        super().setUp()
        self.fixture("stage", self.cache, key(64), 2.5)
        self.c("approve", "--all")

    def ab(self, *args, rc=0):
        return self.c("ab", *args, rc=rc)

    def result(self, *args, rc=0):
        return json.loads(self.ab("--json", *args, rc=rc)[0])

    def left(self):
        return [str(p) for p in (self.dir / "runtime").rglob("*") if p.name != "kfit"]

    def sh(self, with_, without, both=""):
        """A program: what it does on each side; 1000 calls each, 900 of them replaced with dispatch."""
        calls = f"{FIXTURE} trace '' unit '{key(64)}' 1000 %d >/dev/null; "
        return ["--", "sh", "-c", f"{both}\nif test $KFIT_MODE = both; then {calls % 900} {with_}; else {calls % 0} {without}; fi"]


@unittest.skipIf(SANITIZER != "none", "a shim with a sanitizer cannot be preloaded into sh")
class Runs(Ab):
    def test_the_metric_and_the_prediction(self):
        file = self.dir / "ab.json"
        program = self.sh("echo tokens/s: 200", "echo tokens/s: 100")
        r = self.result("-n", 6, "--metric", "tokens/s: ([0-9]+)", "-o", file, "--seed", 7, *program)
        self.assertEqual((r["ratio"], r["lo"], r["hi"]), (2, 2, 2))
        self.assertEqual(set(r), FIELDS | {"metrics", "output"})
        self.assertEqual(r, json.loads(file.read_text()))
        self.assertEqual((r["version"], r["mode"], r["pairs"], r["complete"], r["verdict"]), (1, "runs", 6, True, "gain"))
        self.assertEqual((r["generation"], r["seed"], r["output"], r["spread"]), (1, 7, "same", 0))
        self.assertEqual((r["calls"], r["replaced"]), (1000, 900))
        self.assertEqual(r["command"], program[1:3] + [program[3].replace("\n", "\\x0a")])
        self.assertEqual(r["metrics"], [{"regex": "tokens/s: ([0-9]+)", "better": "higher", "off": 100, "on": 200,
                                         "verdict": "gain", "ratio": 2, "lo": 2, "hi": 2}])
        self.assertAlmostEqual(r["saved_s"], 900 * 600e-9)
        self.assertAlmostEqual(r["predicted"], r["off_s"] / (r["off_s"] - r["saved_s"]))
        self.assertEqual(self.left(), [])
        self.assertEqual(file.stat().st_mode & 0o777 & ~0o644, 0)

    def test_lower_may_be_better(self):
        r = self.result("-n", 6, "--metric", "ms: (.*)", "--lower", *self.sh("echo ms: 5", "echo ms: 2"))
        self.assertEqual((r["ratio"], r["verdict"]), (0.4, "slower"))
        out, _ = self.ab("-n", 6, "--metric", "ms: (.*)", "--lower", *self.sh("echo ms: 5", "echo ms: 2"))
        self.assertIn("slower with dispatch: 0.400x [0.400, 0.400] end to end, measured", out)

    def test_no_gain_is_said(self):
        out, err = self.ab("-n", 6, "--metric", "x=(.*)", *self.sh("echo x=1.5", "echo x=1.5"))
        self.assertIn("no gain: 1.000x", out)
        self.assertIn("the interval includes 1", out)
        self.assertIn("pair 6 of 6: 1.5 without, 1.5 with dispatch", err)
        out, _ = self.ab("-n", 1, "--metric", "x=(.*)", *self.sh("echo x=3", "echo x=1.5"))
        self.assertIn("2.000x, range 2.000 to 2.000: 1 pair are too few to conclude", out)

    def test_the_interval_is_not_narrower_than_it_may_be(self):
        """One odd pair of six or eight is inside it, of nine it is not: order statistics, whatever the bootstrap drew."""
        count = self.dir / "count"
        for pairs, lo, verdict in [(6, 0.5, "no gain"), (8, 0.5, "no gain"), (9, 2, "gain")]:
            count.write_text("")
            slow_once = f"echo >>{count}; if test $(wc -l <{count}) = 2; then echo x=50; else echo x=200; fi"
            r = self.result("-n", pairs, "--metric", "x=(.*)", *self.sh(slow_once, "echo x=100"))
            self.assertEqual((r["ratio"], r["hi"], r["verdict"]), (2, 2, verdict))
            self.assertTrue(r["lo"] == lo if pairs < 9 else r["lo"] > 1, r)

    def test_several_numbers_count_by_their_median(self):
        r = self.result("-n", 1, "--metric", "x=([0-9.]+)", *self.sh("echo x=9; echo x=40; echo x=8", "echo x=3"))
        self.assertEqual(r["metrics"][0]["on"], 9)

    def test_several_metrics_of_the_same_runs(self):
        args = ["-n", 6, "--metric", "^a=(.*)", "--metric", "^b=(.*)",
                *self.sh("echo a=8; echo b=3; echo c", "echo a=4; echo b=6; echo c")]
        r = self.result(*args)
        self.assertEqual([(m["ratio"], m["verdict"]) for m in r["metrics"]], [(2, "gain"), (0.5, "slower")])
        self.assertEqual((r["ratio"], r["output"]), (2, "same"))
        self.assertIn("0.500x [0.500, 0.500] slower   6 without, 3 with: ^b=(.*)", self.ab(*args)[0])
        _, err = self.ab(*args[:6], "--metric", "^d=(.*)", *args[6:], rc=1)
        self.assertIn('matches "^d=(.*)"; it begins "c"', err)
        _, err = self.ab(*["--metric=x"] * 9, "true", rc=2)
        self.assertIn("--metric: at most 8", err)

    def test_the_time_of_a_run(self):
        r = self.result("-n", 3, *self.sh("true", "sleep 1"))
        self.assertGreater(r["off_s"], 1)
        self.assertGreater(r["ratio"], 1)
        self.assertNotIn("metrics", r)
        self.assertAlmostEqual(r["predicted"], r["off_s"] / (r["off_s"] - 900 * 600e-9))

    def test_without_may_mean_off(self):
        log = self.dir / "log"
        for mode in ["record", "off"]:
            log.write_text("")
            r = self.result("-n", 1, "--without", mode, *self.sh("true", "true", f"echo $KFIT_MODE >>{log}"))
            self.assertEqual(r["mode_without"], mode)
            self.assertEqual(sorted(log.read_text().split()), sorted(["both", "both", mode]))

    def test_both_sides_see_the_same(self):
        """Warm-ups do not count; the pinned generation, the label and the shim are there on both sides."""
        log = self.dir / "log"
        program = self.sh("true", "true", f"echo $KFIT_MODE $KFIT_GENERATION $KFIT_LABEL ${{LD_PRELOAD##*/}} >>{log}; cat >>{log}")
        self.ab("-n", 2, "--warm-up", 3, "--label", "blue", *program)
        lines = log.read_text().splitlines()
        self.assertEqual(lines[:3], ["both 1 blue libkfit_preload.so"] * 3)
        self.assertEqual(sorted(lines[3:5]), ["both 1 blue libkfit_preload.so", "record 1 blue libkfit_preload.so"])
        self.assertEqual(sorted(lines[5:]), sorted(lines[3:5]))

    def test_an_a_a_needs_no_generation_and_no_dispatch(self):
        self.cache = str(self.dir / "none")
        log = self.dir / "log"
        args = ["--aa", "-n", 6, "--metric", "x=(.*)", "--", "sh", "-c", f"echo $KFIT_MODE >>{log}; echo x=3"]
        out, _ = self.ab(*args)
        self.assertIn("the same on both sides: 1.000x [1.000, 1.000]; that is noise", out)
        self.assertEqual(set(log.read_text().split()), {"record"})
        r = self.result(*args)
        self.assertEqual((r["mode"], r["generation"], r["predicted"]), ("aa-runs", None, None))

    def test_what_is_the_same_and_differs_is_said(self):
        """A program that knows the order of the runs, as if the machine disturbed every run of one side."""
        seed, mask, sides = 11, 2**64 - 1, "1"  # the warm-up
        state = seed
        for _ in range(6):  # splitmix64, kfit/interval.h
            state = state + 0x9E3779B97F4A7C15 & mask
            z = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & mask
            z = (z ^ z >> 27) * 0x94D049BB133111EB & mask
            sides += "10" if (z ^ z >> 31) >> 63 else "01"
        left = self.dir / "order"
        left.write_text(sides)
        script = f"s=$(cat {left}); echo ${{s#?}} >{left}; case $s in 1*) echo x=3;; *) echo x=2;; esac"
        out, _ = self.ab("--aa", "-n", 6, "--seed", seed, "--metric", "x=(.*)", "--", "sh", "-c", script)
        self.assertIn("1.500x [1.500, 1.500]; what is the same must not differ", out)

    def test_a_failing_command_concludes_nothing(self):
        file = self.dir / "ab.json"
        for with_, without, words in [("exit 7", "true", "the run with dispatch ended with status 7"),
                                      ("true", "exit 7", "the run without dispatch ended with status 7"),
                                      ("kill -9 $$", "true", "with status 137 (128 + signal)")]:
            out, err = self.ab("-o", file, *self.sh(with_, without), rc=1)
            self.assertEqual(out, "")
            self.assertIn(words, err)
            self.assertIn("nothing is concluded", err)
        _, err = self.ab("/nonexistent", rc=1)
        self.assertIn("/nonexistent: No such file", err)
        self.assertIn("status 127 (is there such a command?)", err)
        self.assertFalse(file.exists())
        self.assertEqual(self.left(), [])

    def test_other_output_is_seen(self):
        out, _ = self.ab("-n", 1, *self.sh("echo the; echo answer is 43", "echo the; echo answer is 42"))
        self.assertRegex(out, 'output: DIFFERS with dispatch: line 2 is "answer is 4[23]", not "answer is 4[23]"')
        out, err = self.ab("-n", 1, "--same-output", *self.sh("echo 43", "echo 42"), rc=1)
        self.assertEqual(out, "")
        self.assertIn("--same-output: a run with", err)
        count = self.dir / "count"
        program = self.sh("true", "true", f"echo >>{count}; wc -l <{count}")
        self.assertEqual(self.result("-n", 4, *program)["output"], "varies")
        # a metric's line may differ, and what is long is compared to its end
        long = "head -c 100000 /dev/zero; echo; echo x=%d; echo %s"
        r = self.result("-n", 1, "--same-output", "--metric", "x=(.*)", *self.sh(long % (1, "b"), long % (2, "b")))
        self.assertEqual((r["output"], r["ratio"]), ("same", 0.5))
        _, err = self.ab("-n", 1, "--same-output", "--metric", "x=(.*)", *self.sh(long % (1, "b"), long % (2, "c")), rc=1)
        self.assertIn("differ beyond the first 65536 bytes", err)

    def test_a_metric_that_is_not_there(self):
        _, err = self.ab("--metric", "y=(.*)", *self.sh("echo 'x=1\033'", "true"), rc=1)
        self.assertIn('no line of the program\'s standard output matches "y=(.*)"; it begins "x=1\\x1b"', err)
        for number in ["fast", "-3", "0", "nan", "1e999", "1,5", ""]:
            _, err = self.ab("--metric", "x=(.*)", *self.sh(f"echo 'x={number}'", "true"), rc=1)
            self.assertIn(f'matched "{number}", which is no positive number', err)

    def test_hostile_regular_expressions(self):
        for regex, words in [("(", "is no regular expression"), ("a" * 300, "longer than 256"), (r"(a*)\1", r"\\1"),
                             ("((a{1,200}){1,200}){1,200}", "make it simpler|is no regular expression"),
                             ("(" * 128 + ".*" + "{10,}" * 5 + ")" * 5, "make it simpler|is no regular expression")]:
            out, err = self.ab("--metric", regex, "true", rc=2)
            self.assertRegex(err, words)
            self.assertEqual(out, "")

    def test_what_cannot_be_compared(self):
        for args, words in [([], "COMMAND"), (["-n", 0, "true"], "--pairs"), (["-n", 241, "true"], "--pairs"),
                            (["--without", "both", "true"], '"both"'), (["--lower", "true"], "--lower"),
                            (["--phases", 1, "--same-output", "true"], "--same-output"),
                            (["--phases", 1, "--without", "off", "true"], "--without")]:
            self.assertIn(words, self.ab(*args, rc=2)[1])
        _, err = self.ab("true", rc=1)
        self.assertIn("no call was seen", err)
        self.env["FIXTURE"] = "0,1"  # as a dispatcher that is switched off
        _, err = self.ab(*self.sh("true", "true"), rc=1)
        self.assertIn("the program does not dispatch, there is nothing to compare: a fixture\\x0a\\x1b[31m", err)
        del self.env["FIXTURE"]
        _, err = self.ab("-g", 9, "true", rc=1)
        self.assertIn("9", err)
        self.cache = str(self.dir / "none")
        _, err = self.ab("true", rc=1)
        self.assertIn("nothing is published here; run `kfit approve`", err)
        self.assertEqual(self.left(), [])

    def test_no_replaced_call_is_no_prediction(self):
        program = ["--", "sh", "-c", f"echo x=1; {FIXTURE} trace '' unit '{key(32)}' 10 0 >/dev/null"]
        out, err = self.ab("-n", 6, "--metric", "x=(.*)", *program)
        self.assertIn("no call was replaced in the first run", err)
        self.assertIn("no prediction: no call was replaced", out)
        program[-1] = program[-1].replace("echo x=1", "if test $KFIT_MODE = both; then echo x=2; else echo x=1; fi")
        out, _ = self.ab("-n", 6, "--metric", "x=(.*)", *program)
        self.assertIn("no gain: 2.000x [2.000, 2.000], but no call was replaced", out)
        self.assertEqual(self.result("-n", 6, "--metric", "x=(.*)", *program)["verdict"], "no gain")

    def test_the_result_cannot_be_written(self):
        _, err = self.ab("-n", 1, "-o", self.dir / "no/such/ab.json", *self.sh("true", "true"), rc=1)
        self.assertIn("no/such/ab.json: No such file", err)

    def wait_for(self, p, what):
        """stderr up to the line that holds it."""
        lines = []
        while not lines or what not in lines[-1]:
            lines.append(p.stderr.readline())
            self.assertTrue(lines[-1], lines)
        return lines

    def test_ctrl_c_ends_with_what_was_measured(self):
        for sig in [signal.SIGINT, signal.SIGTERM]:
            p = self.start(KFIT, "ab", "--cache", self.cache, "-n", 200, "--json", "--metric", "x=(.*)",
                           *self.sh("echo x=4", "echo x=2"))
            self.wait_for(p, "pair 6 of 200")
            p.send_signal(sig)
            out, err = p.communicate(timeout=60)
            self.assertEqual(p.returncode, 0, err)
            self.assertRegex(err, "stopped after [0-9]+ of 200 pairs")
            r = json.loads(out)
            self.assertEqual((r["ratio"], r["complete"], r["verdict"]), (2, False, "gain"))
            self.assertLess(r["pairs"], 200)
            self.assertEqual(self.left(), [])

    def test_what_was_killed_before_it_was_a_trace(self):
        p = self.start(KFIT, "ab", "--cache", self.cache, "-n", 200, "--", "sh", "-c",
                       f"echo half >$KFIT_TRACE/half.kft; {FIXTURE} trace '' unit '{key(64)}' 5 5 >/dev/null; sleep 1000")
        while not list((self.dir / "runtime").rglob("half.kft")) and p.poll() is None:
            time.sleep(0.01)
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=60)
        self.assertEqual((p.returncode, self.left()), (1, []), err)

    def waiting(self, *options):
        """ab with a program in two processes that wait for ever, and their numbers."""
        pids = self.dir / "pids"
        script = f"{FIXTURE} trace '' unit '{key(64)}' 5 5 >/dev/null; sleep 1000 & echo $$ $! >{pids}.new; mv {pids}.new {pids}; wait"
        p = self.start(KFIT, "ab", "--cache", self.cache, *options, "--", "sh", "-c", script)
        while not pids.exists() and p.poll() is None:
            time.sleep(0.01)
        return p, [int(n) for n in pids.read_text().split()]

    def wait_gone(self, pids):
        """Killed processes may stay for a moment, or as zombies until init looks."""
        def there(pid):
            try:
                return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
            except (FileNotFoundError, ProcessLookupError):
                return False
        end = time.monotonic() + 60
        while any(map(there, pids)) and time.monotonic() < end:
            time.sleep(0.01)
        self.assertEqual([pid for pid in pids if there(pid)], [])

    def test_ctrl_c_before_the_first_pair(self):
        p, pids = self.waiting()
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        self.assertEqual((p.returncode, out), (1, ""), err)
        self.assertIn("no pair was measured; nothing is concluded", err)
        self.wait_gone(pids)
        self.assertEqual(self.left(), [])

    def test_sigkill_leaves_a_directory_that_status_knows(self):
        p, pids = self.waiting()
        p.kill()
        p.wait()
        p.communicate(timeout=60)
        self.wait_gone(pids)
        work, trace = sorted(self.left())
        self.assertRegex(work, r"/runtime/kfit/run-[^/]+$")
        self.assertEqual([row["path"] for row in json.loads(self.kfit("trace", "ls", "--json")[0]) if row["path"] == trace], [trace])
        self.assertIn(int(trace.split("-")[-2]), [row["pid"] for row in json.loads(self.kfit("status", "--json")[0])["processes"]])

    def test_what_a_program_leaves_running_is_ended(self):
        pids = self.dir / "pids"
        self.ab("-n", 1, *self.sh("true", "true", f"sleep 1000 & echo $! >>{pids}"))
        self.wait_gone([int(n) for n in pids.read_text().split()])


# A server of two processes: the fixture has the trace; each step asks it for the control word and adds calls by it.
SERVER = """
import subprocess, sys, time
fixture, key, (steps, status, switches) = sys.argv[1], sys.argv[2], map(int, sys.argv[3:6])
p = subprocess.Popen([fixture, "hold", "", "unit", key, "0", "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
p.stdout.readline()
calls, graph, captured_off, since, was_off = "+0 1 1", 0, 0, 0, 0
def tell(line):
    p.stdin.write(line + chr(10))
    p.stdin.flush()
    return int(p.stdout.readline())
for step in range(steps):
    off = tell(calls)
    switches -= off != was_off
    was_off = off
    if not switches:
        break
    if "anew" in sys.argv and off != captured_off: # its graph is captured anew, some time after the switch
        since = since or step
        if step > since + 50:
            tell(f"x {graph}")
            tell(f"c 0 {off}")
            graph, captured_off, since = graph + 1, off, 0
    calls = "+0 1 0" if off else "+0 100 100"
    print("tokens/s:", 100 if off else 300, flush=True)
    time.sleep(0.002)
sys.exit(status)
"""


@unittest.skipIf(SANITIZER != "none", "a shim with a sanitizer cannot be preloaded into python")
class Phases(Ab):
    def server(self, *more, steps=10**9, status=0, switches=10**9):
        """It ends after so many steps, or when it was switched so often."""
        return ["--", PYTHON, "-c", SERVER, FIXTURE, key(64), steps, status, switches, *more]

    def test_the_metric_of_a_live_program(self):
        r = self.result("--phases", 0.1, "-n", 6, "--metric", "tokens/s: (.*)", *self.server())
        self.assertEqual((r["ratio"], r["lo"], r["hi"], r["mode"], r["verdict"]), (3, 3, 3, "phases", "gain"))
        self.assertEqual(set(r), FIELDS | {"metrics"})
        self.assertEqual((r["generation"], r["pairs"], r["complete"], r["mode_without"]), (1, 6, True, "switched off"))
        self.assertEqual(self.left(), [])

    def test_the_calls_of_a_live_program(self):
        """A hundred calls in the time of one."""
        r = self.result("--phases", 0.5, "-n", 6, *self.server())
        self.assertGreater(r["lo"], 3)
        self.assertGreater(r["off_s"], r["on_s"])
        self.assertGreater(r["predicted"] or 2, 1)

    def test_what_was_printed_before_a_switch_is_of_no_phase(self):
        """With a kfit that takes long between the end of a phase and the switch: its look for `kfit off` is held up."""
        rc, out, err, _ = self.straced("inject=access:delay_exit=300000", "ab", "--cache", self.cache, "--phases", "0.05", "-n", "3", "--json",
                                       "--metric", "tokens/s: (.*)", *self.server())
        self.assertEqual(rc, 0, err)
        self.assertEqual(json.loads(out)["ratio"], 3)

    def test_captured_graphs_cannot_be_switched(self):
        self.env.update(FIXTURE_GPU="0", FIXTURE_GRAPHS="c 0 0;r 0 10")
        _, err = self.ab("--phases", 0.1, "--metric", "tokens/s: (.*)", *self.server(), rc=1)
        self.assertRegex(err, r"on cuda0, graph 0 still replays kernels of kfit's")
        self.assertRegex(err, "[0-9]+ s after the switch")
        self.assertIn("nothing can switch those; measure runs", err)
        self.assertEqual(self.left(), [])

    def test_a_phase_begins_with_graphs_of_its_own(self):
        self.env.update(FIXTURE_GPU="0", FIXTURE_GRAPHS="c 0 0")
        r = self.result("--phases", 0.05, "-n", 6, "--metric", "tokens/s: (.*)", *self.server("anew"))
        self.assertEqual((r["ratio"], r["pairs"], r["complete"]), (3, 6, True))

    def test_a_program_that_ends_first(self):
        out, err = self.ab("--phases", 0.1, "-n", 240, "--metric", "tokens/s: (.*)", *self.server(switches=7))
        self.assertRegex(err, "the program ended after [0-9]+ of 240 pairs")
        self.assertIn("3.000x", out)
        _, err = self.ab("--phases", 60, *self.server(steps=400), rc=1)
        self.assertIn("no pair was measured", err)
        _, err = self.ab("--phases", 0.1, *self.server(switches=3, status=9), rc=1)
        self.assertIn("ended with status 9", err)
        _, err = self.ab("--phases", 0.1, "true", rc=1)
        self.assertIn("ended before it made a call", err)
        self.assertEqual(self.left(), [])

    def test_ctrl_c(self):
        p = self.start(KFIT, "ab", "--cache", self.cache, "--phases", "0.1", "-n", "240", "--json", "--metric", "tokens/s: (.*)",
                       *self.server())
        line = ""
        while "pair 6 of 240" not in line:
            line = p.stderr.readline()
            self.assertTrue(line)
        p.send_signal(signal.SIGINT)
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0, err)
        self.assertEqual(json.loads(out)["ratio"], 3)
        self.assertEqual(self.left(), [])

    def test_an_operators_off_stands(self):
        p = self.start(KFIT, "ab", "--cache", self.cache, "--phases", "0.1", "-n", "240", *self.server())
        line = ""
        while "pair 1 of 240" not in line:
            line = p.stderr.readline()
            self.assertTrue(line)
        self.kfit("off", "--cache", self.cache, self.dir / "runtime/kfit")
        out, err = p.communicate(timeout=60)
        self.assertEqual((p.returncode, out), (1, ""), err)
        self.assertRegex(err, "kfit off")
        self.assertIn("nothing is concluded", err)


# Under the real shim: the fixture's winner returns at once, so that what was there stays. How fast it is, it says itself.
PRODUCT = """
import sys, numpy as np
x, w, y = np.ones((4, 64), np.float32), np.ones((64, 64), np.float32), np.zeros((4, 64), np.float32)
for _ in range(int(sys.argv[1])):
    for _ in range(200):
        y[:] = 7
        np.matmul(x, w, out=y)
    print("tokens/s:", 300 if y[0, 0] == 7 else 100, flush=True)
"""


@unittest.skipIf(SANITIZER != "none", "a shim with a sanitizer cannot be preloaded into python")
class Real(Ab):
    def setUp(self):
        super().setUp()
        self.env["OPENBLAS_NUM_THREADS"] = "1"
        p = subprocess.run([PYTHON, "-c", "import numpy"], capture_output=True, text=True, env=self.env)
        if p.returncode:
            self.skipTest("no python3 with numpy in /usr/bin: " + p.stderr)

    def test_runs_and_phases(self):
        r = self.result("-n", 6, "--metric", "tokens/s: (.*)", "--", PYTHON, "-c", PRODUCT, 2)
        self.assertEqual((r["ratio"], r["lo"], r["calls"], r["replaced"]), (3, 3, 400, 400))
        r = self.result("--phases", 0.1, "-n", 6, "--metric", "tokens/s: (.*)", "--", PYTHON, "-c", PRODUCT, 10**9)
        self.assertEqual((r["ratio"], r["lo"]), (3, 3))
        self.c("off", "--reason", "a bad day", self.dir)
        _, err = self.ab("-n", 6, "--", PYTHON, "-c", PRODUCT, 2, rc=1)
        self.assertRegex(err, "does not dispatch, .*a bad day")
        self.assertEqual(self.left(), [])


if __name__ == "__main__":
    main()
