"""What the tests of the kfit command share. Arguments of each: kfit, cli_fixture, libdir, b_sanitize, then unittest's."""
import json
import os
import pathlib
import pty
import subprocess
import sys
import tempfile
import unittest

KFIT, FIXTURE = map(os.path.abspath, sys.argv[1:3])
LIBDIR, SANITIZER = sys.argv[3:5]
KEY = "gemm/f32,f32,f32/acc=f32/m=4,n=%d,k=64/nn/lda=64,ldb=%d,ldc=%d/alpha=1,beta=0/align=16"
BF16 = "gemm/bf16,bf16,bf16/acc=f32/m=4,n=256,k=512/nt/lda=512,ldb=512,ldc=256/alpha=1,beta=0/align=16"


def key(n):
    return KEY % (n, n, n)


class Case(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory(prefix="kfit-cli-")
        self.addCleanup(temp.cleanup)
        self.dir = pathlib.Path(temp.name)
        (self.dir / "runtime").mkdir(mode=0o700)
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("KFIT_") and k != "LD_PRELOAD"}
        self.env.update(HOME=temp.name, XDG_RUNTIME_DIR=str(self.dir / "runtime"), XDG_CACHE_HOME=str(self.dir / "xdg"),
                        XDG_STATE_HOME=str(self.dir / "state"))
        # a program that ends frees what it holds; the sanitizer is here for the rest
        self.env["ASAN_OPTIONS"] = self.env.get("ASAN_OPTIONS", "") + ":detect_leaks=0"
        self.cache = str(self.dir / "cache")
        self.traces = str(self.dir / "traces")

    def start(self, *args, **more):
        return subprocess.Popen([str(a) for a in args], env=self.env, cwd=self.dir, text=True, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, **more)

    timeout = 60  # of one command

    def kfit(self, *args, rc=0):
        p = self.start(KFIT, *args)
        out, err = p.communicate(timeout=self.timeout)
        self.assertIn(p.returncode, [p.returncode if rc is None else rc], f"kfit {' '.join(map(str, args))}\n{out}\n{err}")
        return out, err

    def fixture(self, *args):
        p = self.start(FIXTURE, *args)
        out, err = p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0, err)
        return out.strip()

    def trace(self, *keys, label="unit"):
        return self.fixture("trace", self.traces, label, *[w for k in keys for w in k])

    def c(self, command, *args, rc=0):
        """A command on the case's cache."""
        return self.kfit(*command.split(), "--cache", self.cache, *args, rc=rc)

    def records(self, *args):
        return {r["key"]: r for r in json.loads(self.c("cache ls", "--json", *args)[0])}

    def generation(self):
        return (self.dir / "cache/current").read_text().split()[0]

    def private(self, script, *args):
        """A shell with mounts of its own; $K is kfit, $C the cache."""
        p = self.start("unshare", "-rm", "sh", "-c", 'K=$0 C=$1; shift; ' + script, KFIT, self.cache, *args)
        out, err = p.communicate(timeout=60)
        if p.returncode == 99 or "unshare:" in err:
            self.skipTest("no private mounts here: " + err)
        return p.returncode, out, err

    def straced(self, option, *args):
        """kfit under strace with this -e: its status, what it said, and strace's lines."""
        log = self.dir / "strace"
        try:
            p = self.start("strace", "-qq", "-o", log, "-e", option, KFIT, *args)
        except FileNotFoundError:
            self.skipTest("no strace here")
        out, err = p.communicate(timeout=self.timeout)
        if "ptrace" in err:
            self.skipTest("nothing can be traced here: " + err)
        return p.returncode, out, err, log.read_text().splitlines()

    def terminal(self):
        """As pty.fork; skips where there are no pseudo-terminals."""
        try:
            return pty.fork()
        except OSError as why:
            self.skipTest(f"no pseudo-terminal to be had ({why}); is /dev/pts mounted?")


class Staged(Case):
    """A store with two winners and a negative, as tune leaves it."""

    def setUp(self):
        super().setUp()
        self.stage(64, 2.5)
        self.stage(128, 1.5)
        self.stage(256, 0.5, "slow:behind")

    def stage(self, n, ratio, *code):
        self.fixture("stage", self.cache, key(n), ratio, *code)


class Held(Case):
    """Processes that stay, each with a header as a dispatcher would write it."""

    def hold(self, *keys, label="held", fixture="", **env):
        self.env.update(FIXTURE=fixture, **env)
        p = self.start(FIXTURE, "hold", self.traces, label, *[w for k in keys for w in k], stdin=subprocess.PIPE)
        for name in ["FIXTURE", *env]:
            del self.env[name]
        self.addCleanup(lambda: p.returncode is None and p.communicate())
        p.path = p.stdout.readline().strip()
        self.assertTrue(p.path.endswith(".kft"), p.path)
        return p

    def tell(self, p, line):
        p.stdin.write(line + "\n")
        p.stdin.flush()
        return p.stdout.readline()

    def end(self, p):
        p.communicate(timeout=60)
        self.assertEqual(p.returncode, 0)

    def status(self, *args):
        return json.loads(self.kfit("status", "--json", "--cache", self.cache, *args, self.traces)[0])


class Lines(unittest.TextTestResult):
    """A line per case on stdout, as kfit_test.h prints them; no dots, which would begin it where both go to one file."""

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


def main():
    unittest.main(argv=[sys.argv[0]] + sys.argv[5:], testRunner=unittest.TextTestRunner(resultclass=Lines, verbosity=0))
