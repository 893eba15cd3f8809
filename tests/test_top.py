"""kfit top, on a pseudo-terminal and without one. Arguments: see cli_helpers.py."""
import fcntl
import json
import os
import re
import select
import signal
import struct
import termios
import time

from cli_helpers import KFIT, SANITIZER, Held, key, main

ENTER, LEAVE = b"\x1b[?1049h\x1b[?25l", b"\x1b[0m\x1b[?25h\x1b[?1049l"
# what a frame may hold besides printable text: home, clear, style, line ends
TOKEN = re.compile(rb"\x1b\[(\?1049h|\?1049l|\?25l|\?25h|H|2J|J|K|0m|1m|7m|1;31m)|\r+\n|[ -~]+")


class Terminal:
    """kfit top on a terminal of its own, and what it shows there."""

    def __init__(self, case, *args, rows=30, cols=100):
        self.case, self.said = case, b""
        self.pid, self.fd = case.terminal()
        if self.pid == 0:
            try:
                for sig in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:  # Python and nohup ignore some
                    signal.signal(sig, signal.SIG_DFL)
                os.read(0, 1)  # until the size is set
                os.execve(KFIT, [KFIT, "top", *map(str, args)], dict(case.env, TERM="xterm"))
            finally:
                os._exit(99)
        case.addCleanup(self.finish)
        self.status = None
        self.resize(rows, cols)
        self.slave = os.open(f"/dev/pts/{self.number()}", os.O_RDWR | os.O_NOCTTY)
        self.before = termios.tcgetattr(self.slave)
        os.write(self.fd, b"\n")

    def number(self):
        return struct.unpack("i", fcntl.ioctl(self.fd, 0x80045430, bytes(4)))[0]  # TIOCGPTN

    def resize(self, rows, cols):
        fcntl.ioctl(self.fd, termios.TIOCSWINSZ, struct.pack("4H", rows, cols, 0, 0))

    def read(self, seconds=60):
        """More of what it says; False if nothing comes, or it is done."""
        if not select.select([self.fd], [], [], seconds)[0]:
            return False
        try:
            more = os.read(self.fd, 65536)
        except OSError:
            return False
        self.said += more
        return bool(more)

    def lines(self):
        """The screen after all that was said; fails at a sequence that is none of ours, or a line that is too long."""
        at, grid, row, col = self.said.rfind(b"\x1b[H"), {}, 0, 0
        text = self.said[max(at, 0):]
        while text:
            m = TOKEN.match(text)
            if not m:
                self.case.assertLess(len(text), 12, f"not ours: {text[:40]}")
                break  # cut in the middle
            token = m[0]
            if token[-1:] == b"\n":
                row, col = row + 1, 0
            elif token[0] != 0x1b:
                grid[row] = grid.get(row, "") + token.decode()
            text = text[m.end():]
        return [grid.get(i, "") for i in range(row + 1)]

    def wait_for(self, what):
        """Until the screen says this."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            text = "\n".join(self.lines())
            if re.search(what, text):
                return re.search(what, text)
            if not self.read():
                break
        self.case.fail(f"{what!r} is not on the screen:\n" + "\n".join(self.lines()))

    def wait_frame(self):
        """A whole frame that begins after now."""
        seen = self.said.rfind(b"\x1b[H")
        until = time.monotonic() + 60
        while time.monotonic() < until:
            first = self.said.find(b"\x1b[H", seen + 3)
            if first >= 0 and self.said.find(b"\x1b[J", first) >= 0:
                return
            self.case.assertTrue(self.read(), "no frame came")
        self.case.fail("no frame in a minute")

    def end(self, how=None):
        """Reads the rest; returns the wait status."""
        if how is not None:
            os.write(self.fd, how)
        ended, until = (0, 0), time.monotonic() + 60
        while ended[0] == 0 and time.monotonic() < until:  # its terminal stays open: we hold it, too
            self.read(0.02)
            ended = os.waitpid(self.pid, os.WNOHANG)
        self.case.assertEqual(ended[0], self.pid, "it does not end")
        self.status = ended[1]
        while self.read(0):
            pass
        return self.status

    def check_given_back(self):
        self.case.assertEqual(self.said.count(ENTER), self.said.count(LEAVE))
        self.case.assertTrue(self.said.rstrip().endswith(LEAVE), self.said[-100:])
        self.case.assertEqual(termios.tcgetattr(self.slave), self.before)

    def finish(self):
        if self.status is None:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.slave)
        os.close(self.fd)


class Once(Held):
    def test_one_frame_as_text(self):
        p = self.hold((key(64), 1000, 600), (key(128), 5, 0), fixture="3,0,12", RANK="2")
        for out in [self.kfit("top", self.traces)[0], self.kfit("top", "--once", self.traces)[0]]:
            self.assertNotIn("\x1b", out)
            self.assertIn("1 live: 1 dispatching, 0 not", out)
            self.assertRegex(out, rf"(?m)^ +{p.pid} +2 +3 dispatching +\S+ +\S+ +60% +2  held, ")
            self.assertRegex(out, rf"(?m)^ +\S+ +60% no_record +{re.escape(key(64))}$")
            self.assertRegex(out, rf"(?m)^ +\S+ +0% no_record +{re.escape(key(128))}$")
            self.assertLess(out.index(key(64)), out.index(key(128)))

    def test_one_frame_as_json(self):
        self.hold((key(64), 1000, 600), fixture="3,0,12")
        self.hold((key(64), 10, 0), (key(128), 4000, 0), fixture="0,14", label="no")
        self.trace((key(256), 9, 9))  # has ended: no rate
        r = json.loads(self.kfit("top", "--json", self.traces)[0])
        self.assertEqual([(p["label"], p["dispatching"], p["reason"]) for p in r["processes"]],
                         [("no", False, "env"), ("held", True, "none")])
        self.assertEqual([k["key"] for k in r["keys"]], [key(128), key(64)])
        (share,) = [k["hits_per_s"] / k["calls_per_s"] for k in r["keys"] if k["key"] == key(64)]
        self.assertTrue(0 < share <= 1)
        self.assertAlmostEqual(r["calls_per_s"], sum(p["calls_per_s"] for p in r["processes"]), places=3)
        self.assertEqual(list(r["misses_per_s"]), ["no_record"])

    def test_nothing_there(self):
        os.mkdir(self.traces)
        self.assertIn("no live process", self.kfit("top", self.traces)[0])
        out, err = self.kfit("top", self.dir / "missing", rc=1)
        self.assertIn("missing: No such file", err)
        for wrong in ["0", "0.05", "3601", "x"]:
            self.kfit("top", "--interval", wrong, rc=2)

    def test_a_terminal_that_can_nothing(self):
        self.hold((key(64), 1000, 600))
        self.env["TERM"] = "dumb"
        t = Terminal.__new__(Terminal)
        t.case, t.said = self, b""
        t.pid, t.fd = self.terminal()
        if t.pid == 0:
            os.execve(KFIT, [KFIT, "top", self.traces], self.env)
        t.end()
        os.close(t.fd)
        self.assertEqual(t.status, 0)
        self.assertIn(key(64).encode(), t.said)
        self.assertNotIn(b"\x1b", t.said)


class Live(Held):
    def top(self, *args, **more):
        t = Terminal(self, *args, self.traces, **more)
        t.wait_for("kfit top")
        return t

    def test_rates_between_two_looks(self):
        p = self.hold((key(64), 10, 0), (key(128), 1, 0), fixture="3,0,12")
        t = self.top("--interval", 0.1, cols=160)
        t.wait_for("since each started")
        t.wait_for(r"over \d+\.\d s")
        t.wait_for(r"calls/s 0   hits/s 0 \(-\)")
        for n in (64, 128):
            t.wait_for(rf"\n +0 +- +- +{re.escape(key(n))}")
        end = time.monotonic() + 60
        while time.monotonic() < end:  # a look falls between two of these, however slow either is
            self.tell(p, "+1 1000 750")
            t.read(0.05)
            if re.search(r"calls/s \d*[1-9]\d* .*\(75%\)", "\n".join(t.lines())):
                break
        else:
            self.fail("\n".join(t.lines()))
        t.wait_for(rf" 75% no_record +{re.escape(key(128))}")
        self.assertEqual(t.end(b"q"), 0)
        t.check_given_back()
        self.assertNotIn(b"-1", b"".join(re.findall(rb"calls/s \S+", t.said)))

    def test_processes_come_and_go(self):
        one = self.hold((key(64), 10, 0), label="first")
        t = self.top("--interval", 0.1)
        t.wait_for(r"1 live: .*\n(.*\n)+.*first")
        self.hold((key(64), 10, 0), label="second", fixture="0,14")
        t.wait_for(r"2 live: 1 dispatching, 1 not(.*\n)+.* env .*second")
        self.end(one)
        t.wait_for("1 live: 0 dispatching, 1 not")
        self.assertEqual(t.end(b"\x03"), 0)  # Ctrl-C
        t.check_given_back()

    def test_every_size_fits(self):
        for i in range(12):
            self.hold((key(64 + 4 * i), 10 + i, 0), label=f"process-{i}")
        self.trace(("@2000", 5, 3))
        self.hold(("@2000", 5, 3))
        t = self.top("--interval", 600)
        for rows, cols in [(50, 200), (24, 80), (10, 40), (5, 20), (3, 10), (1, 1), (2, 300), (30, 100)]:
            t.resize(rows, cols)
            t.wait_frame()
            lines = t.lines()
            self.assertLessEqual(len(lines), rows)
            self.assertLessEqual(max(map(len, lines)), cols)
            if rows >= 24:
                self.assertEqual(len(lines), rows)  # all of it is used
                self.assertTrue(any("gemm/" in x for x in lines) and any("process-" in x for x in lines), lines)
        self.assertTrue(any(re.search(r"and \d+ more", x) for x in lines), lines)
        self.assertEqual(t.end(b"q"), 0)
        t.check_given_back()

    def test_what_a_trace_says_moves_no_cursor(self):
        p = self.hold((key(64), 3, 1), label="PLACEHOLDER-OF-SIZE-64")
        with open(p.path, "r+b") as f:
            data = f.read(4096)
            f.seek(data.index(b"PLACEHOLDER"))
            f.write(b"\x1b[2J\x1b]0;x\x07\r\n\x9b31m\xff")
        t = self.top("--interval", 600, cols=250)
        t.wait_for(re.escape(r"\x1b[2J\x1b]0;x\x07\x0d\x0a\x9b31m\xff"))
        t.resize(20, 60)
        t.wait_frame()
        t.lines()
        self.assertEqual(t.end(b"q"), 0)

    def test_mixed_ranks_are_shown(self):
        for rank in (0, 1):
            self.hold(fixture=f"{rank + 1},0,1", RANK=str(rank), MASTER_ADDR="node7")
        t = self.top("--interval", 600)
        t.wait_for("MIXED GENERATIONS in job node7: see kfit status")
        self.assertEqual(t.end(b"Q"), 0)

    def test_the_terminal_is_given_back_at_every_signal(self):
        self.hold((key(64), 3, 1))
        left_alone = {signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGURG, signal.SIGTTIN, signal.SIGTTOU, signal.SIGTSTP,
                      signal.SIGCONT, signal.SIGWINCH}
        if SANITIZER != "none":  # these are the sanitizer's to report
            left_alone |= {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL}
        for sig in sorted(signal.valid_signals() - left_alone):
            t = self.top("--interval", 600)
            self.assertNotEqual(termios.tcgetattr(t.slave), t.before)
            os.kill(t.pid, sig)
            status = t.end()
            t.check_given_back()
            if sig == signal.SIGINT:
                self.assertEqual(status, 0)
            else:
                self.assertTrue(os.WIFSIGNALED(status) and os.WTERMSIG(status) == sig, (sig, status))

    def test_stopped_and_continued(self):
        self.hold((key(64), 3, 1))
        t = self.top("--interval", 600)
        os.kill(t.pid, signal.SIGTSTP)
        self.assertTrue(os.WIFSTOPPED(os.waitpid(t.pid, os.WUNTRACED)[1]))
        while t.read(0):
            pass
        t.check_given_back()
        os.kill(t.pid, signal.SIGCONT)
        while t.said.count(ENTER) < 2:
            self.assertTrue(t.read(), "it did not take the terminal again")
        t.wait_for("kfit top(.*\n)+.*gemm/")
        self.assertEqual(t.end(b"q"), 0)
        t.check_given_back()

    def test_a_terminal_that_is_gone(self):
        self.hold((key(64), 3, 1))
        t = self.top("--interval", 0.1)
        os.close(t.slave)
        os.close(t.fd)
        t.fd, t.slave = os.open("/dev/null", os.O_RDONLY), os.open("/dev/null", os.O_RDONLY)
        t.status = os.waitpid(t.pid, 0)[1]  # it does not go on for ever
        self.assertIn(os.WTERMSIG(t.status) if os.WIFSIGNALED(t.status) else 0, (0, signal.SIGHUP))


if __name__ == "__main__":
    main()
