"""kfit as a person uses it: exit codes, messages, JSON, files. Arguments: kfit, cli_fixture."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

KFIT, FIXTURE = map(os.path.abspath, sys.argv[1:3])
KEY = "gemm/f32,f32,f32/acc=f32/m=4,n=%d,k=64/nn/lda=64,ldb=%d,ldc=%d/alpha=1,beta=0/align=16"
COMMANDS = ["run", "trace ls", "trace merge", "trace export", "off", "on", "status"]


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
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, 143)
        self.assertEqual(len(list(pathlib.Path(self.traces).iterdir())), 1)

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


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]] + sys.argv[3:], verbosity=1)
