"""Traces as a person sees them: kfit run, kfit trace. Arguments: see cli_helpers.py."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import unittest

from cli_helpers import FIXTURE, KFIT, LIBDIR, SANITIZER, Case, key, main


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
            wait = "i=0; while test $i -lt %d%s; do sleep 0.01; i=$((i+1)); done; "  # until it comes, then a while for a second one
            script = "trap 'n=x$n' INT; echo ready; " + wait % (6000, " -a -z \"$n\"") + wait % (30, "") + "echo =$n=; exit 5"
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
        script = f"(sleep 300 | {FIXTURE} hold '' unit '{key(64)}' 1 0 >{self.dir}/path) & " \
                 f"while ! test -s {self.dir}/path; do sleep 0.01; done; echo $!"
        p = self.start("setsid", KFIT, "run", "--trace", self.traces, "--", "sh", "-c", script + " >&2; exit 0")
        self.addCleanup(os.killpg, p.pid, signal.SIGKILL)  # what it left running, and the sleep
        p.wait(timeout=60)
        path = pathlib.Path((self.dir / "path").read_text().strip())
        self.assertTrue(path.exists())
        self.assertEqual(list(pathlib.Path(self.traces).iterdir()), [])
        (row,) = json.loads(self.kfit("trace", "ls", "--json", path.parent)[0])
        self.assertTrue(row["alive"])
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


if __name__ == "__main__":
    main()
