"""kfit eval and kfit tune with the real judge. Arguments: see cli_helpers.py."""
import json
import os
import signal

from cli_helpers import BF16, KFIT, Case, key, main

HEADER = """/* kfit-candidate 1
{"op":"gemm", "device":"host", "name":"loops", "knobs":{"X":[1,2]}, "launches":[{"entry":"kfit_main"}]}
*/
#include "kfit_host.h"
"""


class Judging(Case):
    """The judge and the search have their own tests; here is what a person sees of them."""
    timeout = 250  # what ended in noise is searched again, and all of it takes longer beside other load

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
        out, err = p.communicate(timeout=self.timeout)
        self.assertEqual(p.returncode, 1, err)  # one of them was not done
        self.assertIn(BF16 + " is left out: judge: the host device", err)
        self.assertRegex(err, r"(?m)^\[2/2\] gemm/.*: generic .*, floor \d")
        staged = json.loads(self.kfit("cache", "ls", "--staged", "--json", "--cache", self.cache)[0])
        rows = {line.split()[-1]: line.split() for line in out.splitlines()[1:]}
        self.assertEqual(set(rows), {key(64), key(128)})
        # only findings are staged: on a busy machine a judgement may end in noise
        self.assertLessEqual({s["key"] for s in staged}, set(rows))
        self.assertEqual([r[0] for r in rows.values()], ["-"] * len(rows))
        if staged:  # else there is nothing to report, which test_cli_report has
            report = {k["key"]: k for k in json.loads(self.kfit("report", "--json", "--cache", self.cache)[0])["keys"]}
            for s in staged:
                self.assertGreater(report[s["key"]]["floor_ns"], 0)

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
        out, err = p.communicate(timeout=self.timeout)
        self.assertEqual(p.returncode, 0, err)
        rows = [line for line in out.splitlines()[1:]]
        self.assertEqual({r.split()[-1] for r in rows}, {key(64), key(128)}, out + err)
        self.assertIn("1 keys left out: fewer than 16 calls", err)
        self.assertNotIn("\r", err)
        found = json.loads(self.kfit("cache", "ls", "--staged", "--json", "--cache", self.cache)[0])
        p = self.start(KFIT, "tune", "--wait", "--cache", self.cache, "--evaluations", "2", "--json", "--generic", self.blas(), self.traces)
        out, err = p.communicate(timeout=self.timeout)
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
        _, err = q.communicate(timeout=self.timeout)
        self.assertEqual(q.returncode, 1)
        self.assertIn(f"process {p.pid} ", err)
        p.send_signal(signal.SIGINT)
        _, err = p.communicate(timeout=self.timeout)
        self.assertEqual(p.returncode, 1, err)
        self.assertIn("run the same command again", err)
        self.kfit("cache", "verify", "--cache", self.cache)


if __name__ == "__main__":
    main()
