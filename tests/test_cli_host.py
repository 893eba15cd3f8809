"""What this host remembers, asks for and follows, as kfit shows and changes it. Arguments: see cli_helpers.py."""
import json
import os
import pathlib
import signal
import subprocess
import unittest

from cli_helpers import FIXTURE, KFIT, SANITIZER, Held, Staged, key, main

RELOAD = 0x100


class HeldBack(Staged):
    """A generation with which one program has ended uncleanly twice."""

    def setUp(self):
        super().setUp()
        self.c("approve", "--all")
        self.state = self.dir / "state" / "kfit"
        self.crash()
        self.crash()

    def crash(self, label="prod", state=None):
        """Whether it ran a kernel."""
        p = self.start(FIXTURE, "crash", state or self.state, self.cache, label)
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, -signal.SIGKILL, err)
        return out != "records\n"

    def held(self, command, *args):
        return json.loads(self.c(command, "--json", *args)[0])

    def here(self, command, *args, rc=0):
        """With a directory: without one these commands look at, and switch, every process of the machine."""
        return self.c(command, *args, self.dir / "runtime", rc=rc)

    def status(self, *args):
        return json.loads(self.here("status", "--json", *args)[0])["held"]

    def test_status_shows_it_and_on_clears_it(self):
        self.assertEqual(self.status(), [])  # nobody has started since
        self.assertFalse(self.crash())
        (h,) = self.status()
        self.assertEqual((h["generation"], h["label"], h["unclean_ends"]), (1, "prod", 2))
        self.assertRegex(h["program"], r"cli_fixture crash")
        self.assertGreater(h["last_unix_s"], 1700000000)
        out, _ = self.here("status")
        self.assertRegex(out, r"HELD BACK here: generation 1 \([0-9a-f]{12}\) for .*cli_fixture crash \(prod\): 2 unclean "
                              r"ends in 10 minutes, the last at 20.*; it only records. `kfit on` clears it\n")
        self.assertTrue(self.crash("test"))  # another deployment
        self.here("off")
        self.assertEqual(len(self.status()), 1)
        _, err = self.here("on")
        self.assertIn("1 held back generation cleared; restart the programs that only record", err)
        self.assertEqual(self.status(), [])
        self.assertEqual(list(self.state.iterdir()), [])
        self.assertTrue(self.crash())
        self.assertNotIn("cleared", self.here("on")[1])

    def test_explain_shows_it_for_its_generation(self):
        self.assertFalse(self.crash())
        out, _ = self.c("explain", key(64))
        self.assertIn("HELD BACK here: generation 1 ", out)
        (row,) = self.held("explain", key(64))
        self.assertEqual([h["label"] for h in row["held"]], ["prod"])
        self.stage(64, 3.5)
        self.c("approve", "--all")
        self.assertNotIn("HELD", self.c("explain", key(64))[0])
        self.assertIn("HELD", self.c("explain", "--generation", "1", key(64))[0])
        self.assertTrue(self.crash())  # the new one is not blamed

    def test_the_directory_can_be_named(self):
        other = self.dir / "other"
        self.crash(state=other)
        self.crash(state=other)
        self.crash(state=other)
        self.assertEqual(len(self.status("--state", other)), 1)
        self.assertEqual(len(self.status()), 0)
        self.env["KFIT_STATE"] = str(other)
        self.assertIn("HELD", self.c("explain", key(64))[0])
        self.here("on", "--state", self.state)
        self.assertEqual(len(self.status()), 1)
        self.here("on")
        self.assertEqual(len(self.status()), 0)
        self.env["KFIT_STATE"] = str(self.dir / "none")  # holds nothing
        self.assertEqual(self.status(), [])
        self.here("on")

    def test_what_cannot_be_read_is_named(self):
        self.assertFalse(self.crash())
        self.state.chmod(0o777)
        for command in ["status", "on"]:
            _, err = self.here(command, rc=1)
            self.assertIn(f"{self.state}: mode 0777 lets others write it", err)
        self.state.chmod(0o700)
        (held,) = self.state.glob("held-*")
        held.write_bytes(os.urandom(512))
        out, _ = self.here("status")
        self.assertIn("damaged file", out)
        self.assertFalse(self.crash())
        self.assertIn("1 held back", self.here("on")[1])

    def test_hostile_labels_are_escaped(self):
        for _ in range(3):
            self.crash("\033[31m<b>")
        held = [h for h in self.state.glob("held-*")]
        raw = bytearray(held[0].read_bytes())
        at = raw.index(b"<b>")
        self.assertIn(b"?[31m<b>", raw)  # the recorder saw to that
        out = self.here("status")[0] + self.here("status", "--json")[0]
        self.assertNotIn("\033", out)
        raw[at:at + 3] = b"\033[m"  # a file that lies about its checksum is not believed
        held[0].write_bytes(raw)
        self.assertNotIn("\033", self.here("status")[0])


class Policy(Staged):
    """What explain says of origins, bans of the host and stale kernels."""

    def setUp(self):
        super().setUp()
        self.c("approve", "--all")
        self.trace((key(64), 5, 5), (key(128), 5, 5), (key(256), 5, 0))

    def says(self, *args):
        return {r["key"]: r["explanation"] for r in json.loads(self.c("explain", "--json", *args, self.traces)[0])}

    def test_origins(self):
        self.assertIn("runs a kfit kernel", self.says()[key(64)])
        self.assertIn("runs a kfit kernel", self.says("--allow", "seed:*")[key(64)])
        refused = self.says("--allow", "person:alice")
        self.assertIn("runs the original: not allowed by policy\norigin: seed:fixture, which is not among", refused[key(64)])
        self.assertIn("tuned before, the generic was kept", refused[key(256)])
        self.env["KFIT_ALLOW"] = "llm:*"
        self.assertIn("not allowed by policy", self.says()[key(64)])
        self.assertIn("runs a kfit kernel", self.says("--allow", "*")[key(64)])
        self.assertIn("a * can only be its last character", self.says("--allow", "s*d")[key(64)])

    def test_bans(self):
        state = self.dir / "state" / "kfit"
        state.mkdir(parents=True)
        (state / "bans").write_text(f"# until Friday\n{key(64)}\n")
        says = self.says()
        self.assertIn("runs the original: the key is banned", says[key(64)])
        self.assertIn("runs a kfit kernel", says[key(128)])
        self.env["KFIT_BAN"] = key(128)
        self.assertIn("banned", self.says()[key(128)])
        (state / "bans").write_text("nonsense\n")
        self.assertIn('the bans of this host: "nonsense" is not a key', self.says()[key(64)])

    def test_a_ban_of_the_tuner_arrives_with_the_next_generation(self):
        self.fixture("ban", self.cache, key(64))
        self.assertIn("runs a kfit kernel", self.says()[key(64)])
        self.c("approve", "--all")
        self.assertIn("no kernel for this key", self.says()[key(64)])
        self.assertIn("runs a kfit kernel", self.says()[key(128)])

    def test_strict(self):
        self.assertIn("runs a kfit kernel", self.says("--strict")[key(64)])  # it differs in what no server knows
        out, _ = self.c("explain", "--threads", "1", key(64))  # on the system's BLAS
        if "another environment" in out.splitlines()[1]:
            self.skipTest("the fixture is made for another machine: " + out)
        self.assertIn("; stale: ", out)
        self.assertIn("counts (KFIT_STRICT)", self.c("explain", "--threads", "1", "--strict", key(64))[0])
        self.env["KFIT_STRICT"] = "1"
        self.assertIn("counts (KFIT_STRICT)", self.c("explain", "--threads", "1", key(64))[0])

    @unittest.skipIf(SANITIZER != "none", "a shim with a sanitizer cannot be preloaded into sh")
    def test_run_passes_them_on(self):
        out, _ = self.kfit("run", "-q", "--strict", "--allow", "seed:*", "--trace", self.traces, "--", "sh", "-c",
                           "echo $KFIT_STRICT $KFIT_ALLOW")
        self.assertEqual(out, "1 seed:*\n")
        self.env["KFIT_ALLOW"] = "person:bob"
        out, _ = self.kfit("run", "-q", "--trace", self.traces, "--", "sh", "-c", "echo $KFIT_STRICT $KFIT_ALLOW")
        self.assertEqual(out, "person:bob\n")


class Following(Held, Staged):
    """Approving, going back and switching on reach the processes that follow, and only those."""

    def setUp(self):
        super().setUp()
        self.env["KFIT_TRACE"] = self.traces  # where commands look
        self.follower = self.hold(FIXTURE_FOLLOWS=self.cache)
        self.other = self.hold()
        self.elsewhere = self.hold(FIXTURE_FOLLOWS=str(self.dir))  # another cache's

    def control(self, process):
        return int(self.tell(process, ""))

    def test_approve_rollback_and_on_ask(self):
        _, err = self.c("approve", key(64))
        self.assertIn("1 running process follows new generations: taken over with the next call", err)
        self.assertEqual((self.control(self.follower), self.control(self.other)), (RELOAD, 0))
        self.assertEqual(self.control(self.elsewhere), 0)
        self.end_of_request()
        self.c("approve", key(64))  # changes nothing
        self.assertEqual(self.control(self.follower), 0)
        self.c("approve", key(128))
        self.end_of_request()
        self.c("rollback")
        self.assertEqual((self.control(self.follower), self.control(self.other)), (RELOAD, 0))
        self.c("off", self.traces)
        self.assertEqual((self.control(self.follower), self.control(self.other)), (RELOAD | 1, 1))
        self.end_of_request()
        self.c("on", self.traces)
        self.assertEqual((self.control(self.follower), self.control(self.other)), (RELOAD, 0))
        out, _ = self.kfit("status", "--json", self.traces)
        self.assertEqual([p["off"] for p in json.loads(out)["processes"]], [False] * 3)

    def end_of_request(self):
        """What a dispatcher does first."""
        with open(self.follower.path, "r+b") as f:
            f.seek(f.read(4096).index(b"kfittrc") + CONTROL + 1)
            f.write(b"\0")

    def test_nobody_follows(self):
        self.follower.communicate()
        self.assertNotIn("follow", self.c("approve", "--all")[1])


SERVER = """
import sys
import numpy as np
buf = np.zeros(16384, np.float32)
at = -buf.ctypes.data % 64 // 4
x, w, y = buf[at:at + 256].reshape(4, 64), buf[at + 256:at + 4352].reshape(64, 64), buf[at + 4352:at + 4608].reshape(4, 64)
for line in sys.stdin:
    y[:] = -1
    np.matmul(x, w, out=y)
    print("original" if y[0, 0] == 0 else "kernel", flush=True)
"""


@unittest.skipIf(SANITIZER != "none", "a shim with a sanitizer cannot be preloaded into python")
class Serving(Staged):
    """A real program under the shim, whose kernel (the fixture's) returns at once and so shows that it ran."""

    def setUp(self):
        super().setUp()
        if subprocess.run(["/usr/bin/python3", "-c", "import numpy"], stderr=subprocess.DEVNULL).returncode:
            self.skipTest("no numpy for /usr/bin/python3")
        self.c("approve", key(128))  # nothing for the program yet

    def serve(self, **env):
        shim = pathlib.Path(KFIT).parent.parent / "preload" / "libkfit_preload.so"
        before = dict(self.env)
        self.env.update(LD_PRELOAD=str(shim), KFIT_CACHE=self.cache, KFIT_TRACE=self.traces, OPENBLAS_NUM_THREADS="1", **env)
        p = self.start("/usr/bin/python3", "-c", SERVER, stdin=subprocess.PIPE)
        self.env = before
        self.addCleanup(lambda: p.returncode is None and p.communicate())
        return p

    def ask(self, p):
        p.stdin.write("\n")
        p.stdin.flush()
        return p.stdout.readline().strip()

    def processes(self):
        return json.loads(self.c("status", "--json", self.traces)[0])["processes"]

    def test_a_server_follows_what_is_approved_and_withdrawn(self):
        self.env["KFIT_TRACE"] = self.traces  # where approve and rollback look first
        p, stays = self.serve(KFIT_FOLLOW="1"), self.serve()
        self.assertEqual([self.ask(p), self.ask(stays)], ["original"] * 2)
        _, err = self.c("approve", key(64))
        self.assertIn("1 running process follows", err)
        self.ask(p)  # the call that takes it over
        self.assertEqual([self.ask(p), self.ask(stays), self.ask(stays)], ["kernel", "original", "original"])
        self.assertEqual({r["pid"]: r["generation"] for r in self.processes()}, {p.pid: 2, stays.pid: 1})
        self.c("off", self.traces)
        self.assertEqual(self.ask(p), "original")
        self.c("on", self.traces)
        self.assertEqual(self.ask(p), "kernel")
        self.c("rollback")
        self.ask(p)
        self.assertEqual(self.ask(p), "original")
        self.assertEqual({r["pid"]: r["generation"] for r in self.processes()}, {p.pid: 3, stays.pid: 1})

    def test_a_server_that_is_killed_twice_only_records_until_on(self):
        self.c("approve", key(64))
        for _ in range(2):
            p = self.serve()
            self.assertEqual(self.ask(p), "kernel")
            p.kill()
            p.communicate()
        p = self.serve()
        self.assertEqual([self.ask(p), self.ask(p)], ["original"] * 2)
        (row,) = [r for r in self.processes() if r["alive"]]
        self.assertEqual((row["state"], row["generation"], row["misses"]), ("policy", 2, {"policy": 2}))
        self.assertIn("records only: generation 2 is held back, this program ended uncleanly 2 times", row["state_text"])
        out, _ = self.c("status", self.traces)
        self.assertIn("HELD BACK here: generation 2 ", out)
        self.assertIn("HELD BACK here: generation 2 ", self.c("explain", key(64))[0])
        _, err = self.c("on", self.traces)
        self.assertIn("1 held back generation cleared", err)
        self.assertEqual(self.ask(p), "original")  # it keeps what it started with
        _, err = p.communicate()
        self.assertEqual(err.count("\n"), 1, err)
        p = self.serve()
        self.assertEqual(self.ask(p), "kernel")
        p.communicate()
        self.assertEqual(list((self.dir / "state" / "kfit").iterdir()), [])


CONTROL = 80  # offset of the control word in a trace's header

if __name__ == "__main__":
    main()
