"""kfit as a person uses it: exit codes, messages, JSON, files. Arguments: kfit, cli_fixture, libdir, b_sanitize."""
import json
import os
import pathlib
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

KFIT, FIXTURE = map(os.path.abspath, sys.argv[1:3])
KEY = "gemm/f32,f32,f32/acc=f32/m=4,n=%d,k=64/nn/lda=64,ldb=%d,ldc=%d/alpha=1,beta=0/align=16"
BF16 = "gemm/bf16,bf16,bf16/acc=f32/m=4,n=256,k=512/nt/lda=512,ldb=512,ldc=256/alpha=1,beta=0/align=16"
HEADER = """/* kfit-candidate 1
{"op":"gemm", "device":"host", "name":"loops", "knobs":{"X":[1,2]}, "launches":[{"entry":"kfit_main"}]}
*/
#include "kfit_host.h"
"""
COMMANDS = ["run", "trace ls", "trace merge", "trace export", "tune", "eval", "review", "approve", "rollback", "off", "on",
            "status", "cache ls", "cache show", "cache verify", "explain", "report", "doctor", "demo"]
LIBDIR, SANITIZER = sys.argv[3:5]
GOLDEN = pathlib.Path(__file__).parent / "golden" / "report.json"


def key(n):
    return KEY % (n, n, n)


class Case(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory(prefix="kfit-cli-")
        self.addCleanup(temp.cleanup)
        self.dir = pathlib.Path(temp.name)
        (self.dir / "runtime").mkdir(mode=0o700)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("KFIT_") and k != "LD_PRELOAD"}
        self.env.update(HOME=temp.name, XDG_RUNTIME_DIR=str(self.dir / "runtime"), XDG_CACHE_HOME=str(self.dir / "xdg"))
        # a program that ends frees what it holds; the sanitizer is here for the rest
        self.env["ASAN_OPTIONS"] = self.env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        self.cache = str(self.dir / "cache")
        self.traces = str(self.dir / "traces")

    def start(self, *args, **more):
        return subprocess.Popen([str(a) for a in args], env=self.env, cwd=self.dir, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, **more)

    def kfit(self, *args, rc=0):
        p = self.start(KFIT, *args)
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, rc, f"kfit {' '.join(map(str, args))}\n{out}\n{err}")
        return out, err

    def fixture(self, *args):
        p = self.start(FIXTURE, *args)
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0, err)
        return out.strip()

    def trace(self, *keys, label="unit"):
        return self.fixture("trace", self.traces, label, *[w for k in keys for w in k])

    def terminal(self):
        """As pty.fork; skips where there are no pseudo-terminals."""
        try:
            return pty.fork()
        except OSError as why:
            self.skipTest(f"no pseudo-terminal to be had ({why}); is /dev/pts mounted?")


class Usage(Case):
    def test_every_command_helps(self):
        for c in COMMANDS:
            out, _ = self.kfit(*c.split(), "--help")
            self.assertIn("Usage: kfit " + c, out)

    def test_the_table_is_printed(self):
        out, _ = self.kfit("--help")
        for c in COMMANDS:
            self.assertIn("  " + c.split()[0] + " ", out)
        self.assertEqual(self.kfit(rc=2)[0], "")
        self.assertRegex(self.kfit("--version")[0], r"^kfit \d+\.\d+")

    def test_usage_errors_exit_2_and_name_the_thing(self):
        for args, words in [(["tuna"], '"tuna"'), (["trace"], "Usage: kfit trace"), (["run"], "COMMAND"),
                            (["run", "--mode=fast", "true"], '"fast"'), (["status", "--frob"], "frob"),
                            (["trace", "merge", "x"], "--output"), (["trace", "merge", "-o", "x"], "TRACE")]:
            out, err = self.kfit(*args, rc=2)
            self.assertIn(words, err)
            self.assertEqual(out, "")

    def test_a_full_output_is_a_failure(self):
        with open("/dev/full", "w") as full:
            p = subprocess.run([KFIT, "trace", "ls", self.dir], env=self.env, stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(p.returncode, 1)
        self.assertIn("cannot write", p.stderr)


class Traces(Case):
    def test_ls_shows_what_was_recorded(self):
        path = self.trace((key(64), 100, 60), (key(128), 5, 0))
        out, _ = self.kfit("trace", "ls", self.traces)
        self.assertIn("105", out)
        self.assertIn(path, out)
        (entry,) = json.loads(self.kfit("trace", "ls", "--json", path)[0])
        self.assertEqual((entry["calls"], entry["hits"], entry["keys"], entry["alive"]), (105, 60, 2, False))

    def test_what_a_trace_says_is_escaped(self):
        self.trace((key(64), 1, 0), label="unit")
        for args in [["status", self.traces], ["status", "--json", self.traces]]:
            out, _ = self.kfit(*args)
            self.assertNotIn("\033", out)
            self.assertIn("x1b[31m", out)

    def test_merge_adds_up(self):
        self.trace((key(64), 100, 60))
        self.trace((key(64), 11, 1), (key(128), 5, 0))
        merged = str(self.dir / "all.kft")
        self.kfit("trace", "merge", "-o", merged, self.traces)
        data = json.loads(self.kfit("trace", "export", merged)[0])
        self.assertEqual({k["key"]: k["calls"] for k in data["keys"]}, {key(64): 111, key(128): 5})
        self.assertEqual(data["generics"][0]["naming"], "cblas_%s")
        self.assertEqual({k["key"]: k["count"] for k in data["keys"]}[key(64)], {"none": 61, "no_record": 50})

    def test_bad_traces_are_named(self):
        good = pathlib.Path(self.trace((key(64), 100, 60)))
        whole = good.read_bytes()
        newer = whole[:8] + b"\x63" + whole[9:]
        for name, data in [("truncated", whole[:5000]), ("foreign", b"not a trace at all" * 500), ("newer", newer),
                           ("empty", b"")]:
            bad = self.dir / (name + ".kft")
            bad.write_bytes(data)
            out, err = self.kfit("trace", "ls", bad, rc=1)
            self.assertIn(str(bad), err)
            self.assertNotIn("none", err)
            self.kfit("trace", "export", bad, rc=1)
        _, err = self.kfit("trace", "ls", self.dir / "missing", rc=1)
        self.assertIn("missing: No such file", err)
        # beside a good one, the good one is still shown
        (good.parent / "bad.kft").write_bytes(b"x" * 9000)
        out, err = self.kfit("trace", "ls", self.traces, rc=1)
        self.assertIn(str(good), out)
        self.assertIn("bad.kft", err)


@unittest.skipIf(SANITIZER != "none", "a shim with a sanitizer cannot be preloaded into sh")
class Run(Case):
    def run_sh(self, script, *options, rc=0):
        return self.kfit("run", "--trace", self.traces, *options, "--", "sh", "-c", script, rc=rc)

    def leftovers(self):
        return [str(p) for p in (self.dir / "runtime").rglob("*") if p.name != "kfit"]

    def test_the_exit_status_is_the_commands(self):
        self.run_sh("exit 0")
        self.run_sh("exit 3", rc=3)
        self.run_sh("kill -9 $$", rc=137)
        self.run_sh("kill -15 $$", rc=143)
        _, err = self.kfit("run", "/nonexistent", rc=127)
        self.assertIn("/nonexistent: No such file", err)
        self.kfit("run", "/etc/passwd", rc=126)
        self.assertEqual(self.leftovers(), [])

    def test_options_of_the_command_are_its_own(self):
        self.assertEqual(self.kfit("run", "echo", "--mode=x", "-t")[0], "--mode=x -t\n")
        self.assertEqual(self.kfit("run", "--", "sh", "-c", 'echo "$@"', "sh", "--help")[0], "--help\n")

    def test_preloads_before_what_is_preloaded(self):
        self.env["LD_PRELOAD"] = "libc.so.6"
        out, _ = self.run_sh("echo $LD_PRELOAD; echo $KFIT_MODE; echo ${KFIT_CACHE-none}; echo $KFIT_LABEL", "--label=a b")
        preload, mode, cache, label = out.splitlines()
        self.assertRegex(preload, r"^/.*/libkfit_preload\.so:libc\.so\.6$")
        self.assertEqual((mode, cache, label), ("record", "none", "a b"))
        del self.env["LD_PRELOAD"]
        out, err = self.run_sh("echo $LD_PRELOAD; echo $KFIT_MODE; echo $KFIT_CACHE", "--cache", "cache")
        self.assertRegex(out.splitlines()[0], r"libkfit_preload\.so$")
        self.assertEqual(out.splitlines()[1], "both")
        self.assertIn("nothing will be replaced", err)

    def test_records_on_tmpfs_and_moves_the_traces(self):
        out, err = self.run_sh(f"echo $KFIT_TRACE; {FIXTURE} trace '' unit '{key(64)}' 100 60")
        self.assertTrue(out.startswith(str(self.dir / "runtime/kfit/run-")))
        (path,) = pathlib.Path(self.traces).iterdir()
        self.assertEqual(path.stat().st_mode & 0o777, 0o600)
        self.assertLess(path.stat().st_blocks * 512, path.stat().st_size)
        (k,) = json.loads(self.kfit("trace", "export", path)[0])["keys"]
        self.assertEqual((k["key"], k["calls"]), (key(64), 100))
        self.assertIn("1 process, 1 keys, 100 calls (60 by kfit kernels)", err)
        self.assertEqual(self.leftovers(), [])

    def test_traces_are_moved_after_sigkill(self):
        self.kfit("run", "--trace", self.traces, FIXTURE, "kill", "", "unit", key(64), 7, 0, rc=137)
        (row,) = json.loads(self.kfit("trace", "ls", "--json", self.traces)[0])
        self.assertEqual(row["calls"], 7)
        self.assertEqual(self.leftovers(), [])

    def test_signals_are_forwarded(self):
        for sig in [signal.SIGTERM, signal.SIGUSR1, signal.SIGINT]:
            script = "trap 'echo got; exit 9' TERM USR1 INT; echo ready; while :; do sleep 0.01; done"
            p = self.start(KFIT, "run", "--trace", self.traces, "--", "sh", "-c", script)
            self.assertEqual(p.stdout.readline(), "ready\n")
            p.send_signal(sig)
            out, err = p.communicate(timeout=60)
            self.assertEqual((out, p.returncode), ("got\n", 9), err)
        p = self.start(KFIT, "run", "--trace", self.traces, "--", FIXTURE, "hold", "", "unit", key(64), 7, 0,
                       stdin=subprocess.PIPE)
        p.stdout.readline()
        p.terminate()
        p.wait(timeout=60)
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, 143)
        self.assertEqual(len(list(pathlib.Path(self.traces).iterdir())), 1)

    def test_ctrl_c_arrives_once(self):
        pid, tty = self.terminal()
        if pid == 0:
            os.chdir(self.dir)
            script = "trap 'n=x$n' INT; echo ready; i=0; while test $i -lt 30; do sleep 0.01; i=$((i+1)); done; echo =$n=; exit 5"
            os.execve(KFIT, [KFIT, "run", "--quiet", "--", "sh", "-c", script], self.env)
        out = b""
        while b"ready" not in out:
            out += os.read(tty, 1000)
        os.write(tty, b"\x03")
        try:
            while b"=x" not in out and len(out) < 10000:
                out += os.read(tty, 1000)
        except OSError:  # the other side is gone
            pass
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 5, out)
        self.assertIn(b"=x=", out)

    def test_a_process_that_goes_on_keeps_its_trace(self):
        script = f"(sleep 30 | {FIXTURE} hold '' unit '{key(64)}' 1 0 >{self.dir}/path) & " \
                 f"while ! test -s {self.dir}/path; do sleep 0.01; done; echo $!"
        p = self.start("setsid", KFIT, "run", "--trace", self.traces, "--", "sh", "-c", script + " >&2; exit 0")
        p.wait(timeout=60)
        path = pathlib.Path((self.dir / "path").read_text().strip())
        self.assertTrue(path.exists())
        self.assertEqual(list(pathlib.Path(self.traces).iterdir()), [])
        (row,) = json.loads(self.kfit("trace", "ls", "--json", path.parent)[0])
        self.assertTrue(row["alive"])
        os.kill(row["pid"], signal.SIGKILL)
        p.stdout.close(), p.stderr.close()

    def test_traces_of_a_killed_run_are_found(self):
        p = self.start(KFIT, "run", "--trace", self.traces, "--", FIXTURE, "hold", "", "unit", key(64), 70, 0,
                       stdin=subprocess.PIPE)
        path = p.stdout.readline().strip()
        p.kill()
        p.communicate(timeout=60)  # ends the program as well: its input is closed
        self.assertEqual(self.leftovers(), [str(pathlib.Path(path).parent), path])
        (row,) = [r for r in json.loads(self.kfit("trace", "ls", "--json")[0]) if r["path"] == path]
        self.assertEqual(row["calls"], 70)
        self.assertIn(row["pid"], [r["pid"] for r in json.loads(self.kfit("status", "--json")[0])["processes"]])
        self.assertIn(key(64), [k["key"] for k in json.loads(self.kfit("report", "--json")[0])["keys"]])
        _, err = self.kfit("tune", "--cache", self.cache, "--min-calls", 10**9, pathlib.Path(path).parent)
        self.assertIn("nothing to tune", err)

    def test_an_installed_tree_may_be_moved(self):
        tree = self.dir / "some where" / "else"
        for d in [tree / "bin", tree / LIBDIR / "kfit"]:
            d.mkdir(parents=True)
        shutil.copy(KFIT, tree / "bin")
        p = self.start(tree / "bin/kfit", "run", "true")
        self.assertIn("build or install kfit completely", p.communicate(timeout=60)[1])
        self.assertEqual(p.returncode, 1)
        shutil.copy(pathlib.Path(KFIT).parent / "../preload/libkfit_preload.so", tree / LIBDIR / "kfit")
        p = self.start(tree / "bin/kfit", "run", "true")  # LD_PRELOAD cannot say this path
        self.assertIn("a space or a colon", p.communicate(timeout=60)[1])
        tree = tree.rename(self.dir / "moved")
        p = self.start(tree / "bin/kfit", "run", "sh", "-c", "echo $LD_PRELOAD")
        self.assertEqual(p.communicate(timeout=60)[0].strip(), str(tree / LIBDIR / "kfit/libkfit_preload.so"))

    def test_where_it_cannot_write(self):
        (self.dir / "file").write_text("")
        _, err = self.kfit("run", "--trace", self.dir / "file/x", "true", rc=1)
        self.assertIn("file/x: ", err)
        self.env["XDG_RUNTIME_DIR"] = str(self.dir / "file")  # falls back to the next place
        self.run_sh(f"{FIXTURE} trace '' unit '{key(64)}' 1 0")
        self.assertEqual(len(list(pathlib.Path(self.traces).iterdir())), 1)


class OffAndStatus(Case):
    def hold(self, *keys):
        p = self.start(FIXTURE, "hold", self.traces, "held", *[w for k in keys for w in k], stdin=subprocess.PIPE)
        self.addCleanup(p.communicate)
        self.assertIn(self.traces, p.stdout.readline())
        return p

    def control(self, p):
        p.stdin.write("?\n")
        p.stdin.flush()
        return int(p.stdout.readline())

    def test_off_reaches_live_processes_and_on_undoes_it(self):
        p = self.hold((key(64), 3, 1))
        self.trace((key(64), 3, 1))  # one that has ended
        out, _ = self.kfit("off", "--cache", self.cache, "--reason", "bad\nday", self.traces)
        self.assertEqual([line.split()[0] for line in out.splitlines()], [str(p.pid)])
        self.assertEqual(self.control(p), 1)
        text = (self.dir / "cache/off").read_text()
        self.assertIn("bad\\x0aday", text)
        out, _ = self.kfit("status", "--cache", self.cache, self.traces)
        self.assertIn("bad", out)
        self.assertIn("switched off", out)
        self.assertTrue(json.loads(self.kfit("status", "--json", "--cache", self.cache, self.traces)[0])["off"])
        (row,) = json.loads(self.kfit("on", "--json", "--cache", self.cache, self.traces)[0])
        self.assertEqual((row["pid"], row["reached"]), (p.pid, True))
        self.assertEqual(self.control(p), 0)
        self.assertFalse((self.dir / "cache/off").exists())

    def test_off_names_what_it_cannot_reach(self):
        p = self.hold((key(64), 3, 1))
        more = {}
        for path in pathlib.Path(self.traces).glob("*.kft"):
            path.chmod(0o444)
        if os.geteuid() == 0:  # root may write anything; another user may not
            shutil.copy(KFIT, self.dir / "kfit")
            for d in [self.dir, self.dir / "traces"]:
                d.chmod(0o755)
            (self.dir / "open").mkdir()
            (self.dir / "open").chmod(0o777)
            more = {"user": 65534, "group": 65534, "extra_groups": []}
        p2 = self.start(self.dir / "kfit" if more else KFIT, "off", "--cache", self.dir / "open/cache", self.traces, **more)
        out, err = p2.communicate(timeout=60)
        self.assertEqual(p2.returncode, 1, err)
        self.assertIn(f"process {p.pid} ", err)
        self.assertIn("not reached", err)
        self.assertEqual(out, "")
        self.assertEqual(self.control(p), 0)

    def test_status_tells_live_from_ended(self):
        p = self.hold((key(64), 10, 4), (key(128), 2, 0))
        self.trace((key(64), 3, 1))
        rows = json.loads(self.kfit("status", "--json", self.traces)[0])["processes"]
        self.assertEqual(sorted(r["alive"] for r in rows), [False, True])
        live = [r for r in rows if r["alive"]][0]
        self.assertEqual((live["pid"], live["calls"], live["hits"]), (p.pid, 12, 4))
        self.assertEqual(live["misses"], {"no_record": 8})
        self.assertEqual((live["mode"], live["state"]), ("both", "none"))
        rows = json.loads(self.kfit("status", "--json", "--live", self.traces)[0])["processes"]
        self.assertEqual([r["pid"] for r in rows], [p.pid])

    def test_off_without_a_writable_cache_says_so(self):
        (self.dir / "file").write_text("")
        _, err = self.kfit("off", "--cache", self.dir / "file", self.traces + "x", rc=1)
        self.assertIn("file: is not a directory", err)


class Release(Case):
    """A store with two winners and a negative, as tune leaves it."""

    def setUp(self):
        super().setUp()
        self.stage(64, 2.5)
        self.stage(128, 1.5)
        self.stage(256, 0.5, "slow:behind")

    def stage(self, n, ratio, *code):
        self.fixture("stage", self.cache, key(n), ratio, *code)

    def c(self, command, *args, rc=0):
        return self.kfit(*command.split(), "--cache", self.cache, *args, rc=rc)

    def records(self, *args):
        return {r["key"]: r for r in json.loads(self.c("cache ls", "--json", *args)[0])}

    def generation(self):
        return (self.dir / "cache/current").read_text().split()[0]

    def test_review_approve_and_what_is_left(self):
        changes = json.loads(self.c("review", "--json")[0])["changes"]
        self.assertEqual({(c["key"], c["change"], c["kind"]) for c in changes},
                         {(key(64), "new", "winner"), (key(128), "new", "winner"), (key(256), "kept", "negative")})
        out, err = self.c("review")
        self.assertIn("2.50 [2.38, 2.62]", out)
        self.assertIn("3 to publish, 0 published already, 0 wait", err)
        out, _ = self.c("approve", "--all", "--note", "first\tone")
        self.assertIn("generation 1: 2 kernels, 1 keys kept", out)
        self.assertIn("0 to publish, 3 published already", self.c("review")[1])
        out, _ = self.c("cache ls")
        self.assertRegex(out, "first.+one")
        self.assertIn("generation 1", out)
        _, err = self.c("approve", "--all")
        self.assertIn("nothing changes; generation 1 stays", err)
        self.assertEqual(self.generation(), "1")

    def test_one_key_at_a_time_and_min_ratio(self):
        self.c("approve", key(128))
        self.assertEqual(set(self.records()), {key(128)})
        self.c("approve", "--all", "--min-ratio", "2")
        self.assertEqual(set(self.records()), {key(64), key(128), key(256)})
        self.stage(64, 1.75)  # tuned again, on a worse day
        _, err = self.c("approve", "--all", "--min-ratio", "2")
        self.assertIn("all below --min-ratio", err)
        self.assertEqual(self.records()[key(64)]["ratio"], 2.5)
        _, err = self.c("approve", key(512), rc=1)
        self.assertIn("was not tuned here", err)

    def test_a_staged_negative_withdraws_a_winner(self):
        self.c("approve", "--all")
        self.stage(64, 1.0, "slow:tie")
        (change,) = json.loads(self.c("review", "--json")[0])["changes"]
        self.assertEqual((change["key"], change["change"]), (key(64), "withdraws"))
        out, _ = self.c("approve", "--all")
        self.assertIn("generation 2: 1 kernels, 2 keys kept", out)
        self.assertEqual(self.records()[key(64)]["kind"], "negative")

    def test_banned_keys_are_left_out(self):
        self.c("approve", "--all")
        self.fixture("ban", self.cache, key(64))
        out, err = self.c("approve", "--all")
        self.assertIn("generation 2: 1 kernels, 1 keys kept", out)
        self.assertIn("1 banned taken out", err)
        self.assertNotIn(key(64), self.records())
        self.assertIn("nothing changes", self.c("approve", "--all")[1])

    def test_rollback(self):
        _, err = self.c("rollback", rc=1)
        self.assertIn("cache", err)
        self.c("approve", key(64))
        _, err = self.c("rollback", rc=1)
        self.assertIn("no generation before 1", err)
        self.c("approve", key(128))
        self.assertIn("generation 1 is current (was 2)", self.c("rollback")[0])
        self.assertEqual(self.generation(), "1")
        self.assertEqual(set(self.records()), {key(64)})
        self.assertIn("generation 2 is current", self.c("rollback", "2")[0])
        self.assertEqual(set(self.records()), {key(64), key(128)})
        self.c("rollback", "7", rc=1)
        self.c("rollback", "x", rc=2)
        self.c("approve", key(256))
        self.assertEqual(self.generation(), "3")

    def test_what_waits_for_a_person_is_shown(self):
        self.fixture("wait", self.cache, key(512))
        out, err = self.c("review")
        self.assertIn("suspect:beyond-roofline", out)
        self.assertIn("1 wait for a person", err)
        (w,) = json.loads(self.c("review", "--json")[0])["waiting"]
        self.assertEqual((w["key"], w["code"]), (key(512), "suspect:beyond-roofline"))
        self.assertIn("waits for a person: too good", self.c("cache show", key(512))[0])
        (shown,) = json.loads(self.c("cache show", "--json", key(512))[0])
        self.assertEqual((shown["set"], shown["receipt"]["verdict"]), ("waiting", "review"))

    def test_what_waits_for_a_person_is_not_published(self):
        self.fixture("wait", self.cache, key(512))
        out, err = self.c("approve", key(512), rc=1)
        self.assertEqual(out, "")
        self.assertRegex(err, r"n=512,.*too good.* waits for a person: suspect:beyond-roofline")
        self.assertIn("kfit eval SOURCE --key KEY", err)
        self.assertIn("nothing is published", err)
        self.assertNotIn("was not tuned", err)
        self.assertFalse((self.dir / "cache/current").exists())
        self.c("approve", "--all")
        self.assertEqual(set(self.records()), {key(64), key(128), key(256)})
        self.fixture("wait", self.cache, key(64))  # beside one that may be published
        self.stage(64, 3.5)
        out, err = self.c("approve", key(64))
        self.assertIn("generation 2", out)
        self.assertIn("waits for a person", err)
        self.assertEqual(self.records()[key(64)]["ratio"], 3.5)

    def test_review_shows_shares(self):
        self.trace((key(64), 300, 0), (key(128), 100, 0))
        changes = {c["key"]: c for c in json.loads(self.c("review", "--json", "--trace", self.traces)[0])["changes"]}
        self.assertAlmostEqual(changes[key(64)]["share"], 0.75)
        self.assertNotIn("share", changes[key(256)])

    def test_show_has_record_and_receipt(self):
        self.c("approve", "--all")
        out, _ = self.c("cache show", key(256))
        self.assertIn("the original is kept", out)
        self.assertIn("slow:behind", out)
        published, staged = json.loads(self.c("cache show", "--json", key(64))[0])
        self.assertEqual((published["set"], staged["set"]), ("published", "staged"))
        self.assertEqual(staged["receipt"]["verdict"], "promoted")
        _, err = self.c("cache show", key(1024), rc=1)
        self.assertIn("neither published nor tuned", err)
        _, err = self.c("cache show", "gemm/nonsense", rc=2)
        self.assertIn("nonsense", err)

    def test_verify_explains_each_problem(self):
        self.c("approve", key(64))
        self.c("approve", key(128))
        _, err = self.c("cache verify")
        self.assertIn("2 generations", err)
        self.assertIn("0 problems", err)
        path = self.dir / "cache/generations/1.mdb"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.chmod(0o644)
        path.write_bytes(data)
        out, _ = self.c("cache verify", rc=1)
        self.assertIn("generation 1: ", out)
        self.assertNotIn("generation 2: ", out)
        (p,) = json.loads(self.c("cache verify", "--json", rc=1)[0])
        self.assertEqual(p["where"], "generation 1")
        (self.dir / "cache/generations/2.json").unlink()
        self.c("cache verify", rc=1)
        (self.dir / "cache/current").write_text("9 " + "0" * 64 + "\n")
        out, _ = self.c("cache verify", rc=1)
        self.assertIn("current: ", out)

    def test_unsafe_and_damaged_caches_are_refused_by_name(self):
        self.c("approve", "--all")
        store = self.dir / "cache/store"
        data = store / "data.mdb"
        whole = data.read_bytes()
        data.write_bytes(whole[:5000])
        for command in ["review", "approve --all", "cache ls --staged"]:
            _, err = self.c(command, rc=1)
            self.assertIn("store", err)
        self.c("cache verify", rc=1)
        data.write_bytes(whole)
        self.c("review")
        (self.dir / "cache/generations/1.mdb").chmod(0o666)
        _, err = self.c("cache ls", rc=1)
        self.assertIn("1.mdb", err)

    def test_nothing_there_says_what_to_do(self):
        for command, words in [("review", "kfit tune"), ("approve --all", "kfit tune"), ("cache ls", "kfit approve")]:
            _, err = self.kfit(*command.split(), "--cache", self.dir / "none", rc=1)
            self.assertIn(words, err)
        self.assertFalse((self.dir / "none").exists())
        self.c("approve", rc=2)
        self.c("approve", "--all", key(64), rc=2)
        self.c("approve", "nonsense", rc=2)

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
                                r"estimated gain \d+ %$")
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

    def test_report_shows_results_that_no_trace_has(self):
        out, _ = self.c("report")
        elsewhere = json.loads(self.kfit("trace", "ls", "--json")[0])  # others' traces in /dev/shm
        if not elsewhere:
            self.assertIn("results of 3 keys, without shares", out)
        self.assertRegex(out, r"(?m)^ +- +0 .* 2\.50 \[.* promoted +" + key(64) + "$")
        report = json.loads(self.c("report", "--json")[0])
        results = {(key(n), 0) for n in (64, 128, 256)}
        (self.assertGreaterEqual if elsewhere else self.assertEqual)({(k["key"], k["calls"]) for k in report["keys"]}, results)
        self.trace((key(64), 600, 600))
        self.assertEqual(len(json.loads(self.c("report", "--json", self.traces)[0])["keys"]), 1)  # asked for these
        if not elsewhere:
            _, err = self.kfit("report", "--cache", self.dir / "none", rc=1)
            self.assertIn("no traces and no results", err)

    def test_report_without_gain(self):
        self.trace((key(256), 100, 0))
        out, _ = self.c("report", self.traces)
        self.assertTrue(out.splitlines()[0].endswith("; no gain"), out)
        _, err = self.c("report", self.dir / "none", rc=1)
        self.assertIn("none: No such file", err)


class Lists(Case):
    """What is said of lists of keys and of devices before anything is judged."""

    def test_tune_takes_keys_without_a_trace(self):
        path = self.trace((key(64), 100, 0))
        for args, rc, words in [
                ([], 2, "name traces, or keys"),
                (["--device=host"], 2, "name traces, or keys"),
                (["--key", key(64), "--device=gpu"], 2, '"gpu" is neither host nor cuda'),
                (["--key", key(64), "--device=host", path], 2, "a trace says where"),
                (["--key", "gemm/nonsense"], 2, "--key: "),
                (["--keys", "none.txt"], 1, "none.txt: No such file"),
                (["--keys", self.dir], 1, "is a directory")]:
            out, err = self.kfit("tune", "--cache", self.cache, *args, rc=rc)
            self.assertIn(words, err)
            self.assertEqual(out, "")
        self.assertFalse(os.path.exists(self.cache))

    def test_bad_lines_of_a_list_of_keys_are_numbered(self):
        keys = self.dir / "keys.txt"
        keys.write_bytes(b"# shapes\n\n  " + key(64).encode() + b"  # twice\r\n" + b"gemm/nonsense # x\n" +
                         key(64).encode() + b"\0\n" + b"\033[31m")
        _, err = self.kfit("tune", "--cache", self.cache, "--keys", keys, rc=1)
        self.assertEqual([line.split(":")[2] for line in err.splitlines()], ["4", "5", "6"], err)
        self.assertIn("keys.txt:5: a zero byte", err)
        self.assertNotIn("\033", err)
        for text in ["", "\n \n# " + key(64)]:
            keys.write_text(text)
            _, err = self.kfit("tune", "--cache", self.cache, "--keys", keys, rc=1)
            self.assertIn("keys.txt: no keys there", err)
        self.assertFalse(os.path.exists(self.cache))

    def test_cuda_without_a_gpu_says_what_is_missing(self):
        checks = {c["check"]: c for c in json.loads(self.start(KFIT, "doctor", "--json").communicate()[0])}
        if checks["gpu"]["level"] == "ok":
            self.skipTest("this machine has a GPU; see suite gpu")
        library = self.dir / "site-packages/nvidia/cu13/lib/libcublas.so.13"
        library.parent.mkdir(parents=True)
        library.write_text("not opened before there is a GPU")
        for generic, words in [
                ("nowhere", "nowhere: No such file"),
                (str(self.dir / "runtime"), "has no libcublas.so.13"),
                (str(library), r"NVRTC|NVIDIA driver|GPU|CUDA"),
                (str(self.dir / "site-packages"), r"NVRTC|NVIDIA driver|GPU|CUDA"),
                (str(self.dir / "site-packages/nvidia"), r"NVRTC|NVIDIA driver|GPU|CUDA")]:
            out, err = self.kfit("tune", "--cache", self.cache, "--device=cuda", "--key", BF16, "--generic", generic, rc=1)
            self.assertRegex(err, words)
            self.assertEqual((out, len(err.splitlines())), ("", 1), err)
        self.env["KFIT_NVRTC"] = str(self.dir / "libnvrtc.so")
        _, err = self.kfit("tune", "--cache", self.cache, "--device=cuda", "--key", BF16, "--generic", str(library), rc=1)
        self.assertIn("libnvrtc.so, which cannot be read", err)
        (self.dir / "k.cu").write_text('/* kfit-candidate 1\n{"op":"gemm", "device":"cuda", "name":"k", "knobs":{}, '
                                       '"launches":[{"entry":"main", "grid":[1,1,1], "block":[32,1,1]}]}\n*/\n')
        del self.env["KFIT_NVRTC"]
        _, err = self.kfit("eval", "k.cu", "--cache", self.cache, "--device=cuda", "--key", BF16, "--generic", str(library), rc=1)
        self.assertRegex(err, r"NVRTC|NVIDIA driver|GPU|CUDA")
        _, err = self.kfit("eval", "k.cu", "--device=host", "--key", BF16, rc=2)
        self.assertIn('for device "cuda"', err)


class Judging(Case):
    """The judge and the search have their own tests; here is what a person sees of them."""

    def test_eval_refuses_bad_input_by_name(self):
        big = self.dir / "big.c"
        big.write_bytes(b"x" * (10 << 20))
        for args, rc, words in [
                (["x.c"], 2, "--key"),
                (["x.c", "--key", "gemm/nonsense"], 2, "--key: "),
                (["x.c", "--key", key(64)], 1, "x.c: No such file"),
                ([big, "--key", key(64)], 1, "big.c: 10485760 bytes; at most 1048576"),
                ([self.dir, "--key", key(64)], 1, "is a directory"),
                (["empty.c", "--key", key(64)], 1, "empty.c")]:
            (self.dir / "empty.c").write_text("")
            _, err = self.kfit("eval", "--cache", self.cache, *args, rc=rc)
            self.assertIn(words, err)

    def test_tune_refuses_bad_input_by_name(self):
        path = self.trace((key(64), 100, 0))
        for args, rc, words in [
                (["--key", "gemm/nonsense", path], 2, "--key: "),
                (["--evaluations", "x", path], 2, '"x" is not a whole number'),
                (["--seconds", "nan", path], 2, '"nan"'),
                (["missing"], 1, "missing: No such file"),
                ([self.dir / "runtime"], 1, "no traces there")]:
            _, err = self.kfit("tune", "--cache", self.cache, *args, rc=rc)
            self.assertIn(words, err)
        _, err = self.kfit("tune", "--cache", self.cache, "--min-calls", "1000", path)
        self.assertIn("nothing to tune", err)

    def test_tune_searches_listed_keys(self):
        keys = self.dir / "keys.txt"
        keys.write_text(key(64) + "\n" + key(64) + " # the same\n" + key(128) + "\n" + BF16 + "\n")
        args = ["tune", "--wait", "--cache", self.cache, "--generic", self.blas(), "-n", "2", "--keys", keys]
        p = self.start(KFIT, *args)
        out, err = p.communicate(timeout=110)
        self.assertEqual(p.returncode, 1, err)  # one of them was not done
        self.assertIn(BF16 + " is left out: judge: the host device", err)
        self.assertRegex(err, r"(?m)^\[2/2\] gemm/.*: generic .*, floor \d")
        staged = json.loads(self.kfit("cache", "ls", "--staged", "--json", "--cache", self.cache)[0])
        rows = {line.split()[-1]: line.split() for line in out.splitlines()[1:]}
        self.assertEqual(set(rows), {key(64), key(128)})
        # only findings are staged: on a busy machine a judgement may end in noise
        self.assertLessEqual({s["key"] for s in staged}, set(rows))
        self.assertEqual([r[0] for r in rows.values()], ["-"] * len(rows))
        report = json.loads(self.kfit("report", "--json", "--cache", self.cache)[0] if rows else '{"keys": []}')
        for k in report["keys"]:
            if k["verdict"]:
                self.assertGreater(k["floor_ns"], 0)

    def test_eval_judges_and_says_why(self):
        right = self.dir / "right.c"
        right.write_text(HEADER + "void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *w)\n{\n"
                         "    (void)w;\n    for (int i = 0; i < KFIT_M; i++)\n        for (int j = 0; j < KFIT_N; j++) {\n"
                         "            KFIT_TYPE s = 0;\n            for (int p = 0; p < KFIT_K; p++)\n"
                         "                s += a[i * KFIT_LDA + p] * b[p * KFIT_LDB + j];\n"
                         "            c[i * KFIT_LDC + j] = s;\n        }\n}\n")
        out, err = self.kfit("eval", right, "--key", key(64), "--cache", self.cache, "--knob", "X=2", "--wait")
        self.assertRegex(out, r"^(kept slow:\w+|promoted)\n")
        self.assertIn("X=2", out)
        wrong = self.dir / "wrong.c"
        wrong.write_text(right.read_text().replace("s += ", "s -= "))
        r = json.loads(self.kfit("eval", wrong, "--key", key(64), "--cache", self.cache, "--json", "--wait", rc=1)[0])
        self.assertEqual((r["verdict"], r["code"]), ("refused", "wrong:values"))
        broken = self.dir / "broken.c"
        broken.write_text(HEADER + "this is not C\n")
        out, _ = self.kfit("eval", broken, "--key", key(64), "--cache", self.cache, "--wait", rc=1)
        self.assertTrue(out.startswith("refused static:compile\n"), out)
        for knob, words in [("X=3", 'X cannot be "3"'), ("Y=1", "names no knob"), ("X", "names no knob")]:
            _, err = self.kfit("eval", right, "--key", key(64), "--knob", knob, rc=2)
            self.assertIn(words, err)

    def tune(self, *args, **more):
        blas = self.blas()
        self.trace((key(64), 400, 0), (key(128), 30, 0), (key(256), 3, 0))
        return self.start(KFIT, "tune", "--wait", "--cache", self.cache, "--generic", blas, "--evaluations", "2", "--seed", "1", *args,
                          self.traces, **more)

    def blas(self):
        found = [c for c in json.loads(self.start(KFIT, "doctor", "--json").communicate()[0]) if c["check"] == "blas"]
        path = [w.rstrip(";") for w in found[0]["text"].split() if w.startswith("/")]
        if not path:
            self.skipTest("no BLAS library here: " + found[0]["text"])
        return path[0]

    def test_tune_ranks_stages_and_resumes(self):
        p = self.tune()
        out, err = p.communicate(timeout=110)
        self.assertEqual(p.returncode, 0, err)
        rows = [line for line in out.splitlines()[1:]]
        self.assertEqual({r.split()[-1] for r in rows}, {key(64), key(128)}, out + err)
        self.assertIn("1 keys left out: fewer than 16 calls", err)
        self.assertNotIn("\r", err)
        found = json.loads(self.kfit("cache", "ls", "--staged", "--json", "--cache", self.cache)[0])
        p = self.start(KFIT, "tune", "--wait", "--cache", self.cache, "--evaluations", "2", "--json", "--generic", self.blas(), self.traces)
        out, err = p.communicate(timeout=60)
        if len(found) == 2:  # what was found is not tried again; what ended in noise is
            self.assertIn("0 evaluations, 2 taken from the store", err)
        judged = {k["key"]: k["verdict"] for k in json.loads(out)["keys"] if k["verdict"]}
        self.assertEqual(set(judged), {key(64), key(128)})
        staged = json.loads(self.kfit("cache", "ls", "--staged", "--json", "--cache", self.cache)[0])
        self.assertLessEqual({s["key"] for s in staged}, set(judged))
        _, err = self.kfit("tune", "--cache", self.cache, "--key", key(2048), self.traces, rc=1)
        self.assertIn("not in these traces", err)

    def test_tune_rewrites_one_line_on_a_terminal(self):
        self.trace((key(64), 400, 0))
        args = [KFIT, "tune", "--wait", "--cache", self.cache, "--generic", self.blas(), "--evaluations", "3", self.traces]
        pid, tty = self.terminal()
        if pid == 0:
            os.execve(KFIT, args, self.env)
        out = b""
        try:
            while block := os.read(tty, 4096):
                out += block
        except OSError:  # the other side is gone
            pass
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0, out)
        self.assertRegex(out, rb"\r\x1b\[K\[1/1\] gemm/[^\r\n]*: \d/3, best \d+\.\d\d \[[^\r\n]*\]\r")
        self.assertRegex(out, rb"\r\x1b\[K\[1/1\] gemm/[^\r\n]*: (promoted|kept|refused)[^\r]*\r\n")

    def test_one_tune_at_a_time_and_ctrl_c(self):
        p = self.tune("--evaluations", "500")
        for line in p.stderr:
            if line.startswith("[1/2]"):
                break
        q = self.start(KFIT, "tune", "--cache", self.cache, self.traces)
        _, err = q.communicate(timeout=60)
        self.assertEqual(q.returncode, 1)
        self.assertIn(f"process {p.pid} ", err)
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 1, err)
        self.assertIn("run the same command again", err)
        self.kfit("cache", "verify", "--cache", self.cache)


class Doctor(Case):
    def test_doctor_prints_a_line_each(self):
        p = self.start(KFIT, "doctor", "--json", "--cache", self.cache)
        out, err = p.communicate(timeout=60)
        checks = {c["check"]: c for c in json.loads(out)}
        self.assertEqual(p.returncode, int(any(c["level"] == "fail" for c in checks.values())), err)
        # a sanitizer's library is one more than libc: exactly what this line is there to find
        self.assertEqual(checks["shim"]["level"], "ok" if SANITIZER == "none" else "fail", checks["shim"])
        self.assertEqual(checks["runner"]["level"], "ok", checks["runner"])
        self.assertTrue(checks["cudarun"]["text"].endswith("/kfit-runner-cuda"), checks["cudarun"])
        for c in ["nvrtc", "cublas", "gpu"]:  # a machine without a GPU is no broken one
            self.assertIn(checks[c]["level"], ["ok", "warn"], checks[c])
            self.assertEqual(checks[c]["level"] == "warn", checks[c]["advice"] == "needed for --device=cuda only")
        os.mkdir(self.cache, 0o777)
        os.chmod(self.cache, 0o777)
        out, _ = self.kfit("doctor", "--cache", self.cache, rc=1)
        self.assertRegex(out, r"(?m)^fail cache .*mode 0777\n +it must belong to you")


class Lines(unittest.TextTestResult):
    """A line per case on stdout, as kfit_test.h prints them."""

    def line(self, word, test):
        print(word, test.id().removeprefix("__main__."), flush=True)

    def addSuccess(self, test):
        super().addSuccess(test)
        self.line("ok", test)

    def addError(self, test, err):
        super().addError(test, err)
        self.line("not ok", test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.line("not ok", test)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"  skipped: {reason}")
        self.line("ok # SKIP", test)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[5:], testRunner=unittest.TextTestRunner(resultclass=Lines))
