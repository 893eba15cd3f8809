"""kfit doctor. Arguments: see cli_helpers.py."""
import json
import os
import pathlib
import shutil
import subprocess
import time
import unittest

from cli_helpers import FIXTURE, KFIT, SANITIZER, Case, key, main


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

    def check(self, name):
        (found,) = json.loads(self.c("doctor", "--json", name)[0])
        self.assertEqual(found["check"], name)
        return found

    def test_doctor_takes_the_names_of_checks(self):
        found = json.loads(self.c("doctor", "--json", "environ", "lock")[0])
        self.assertEqual({c["check"] for c in found}, {"environ", "lock"})
        _, err = self.c("doctor", "environ", "heart", rc=2)
        self.assertIn('no check "heart"', err)

    def test_doctor_says_what_kernels_take_of_a_gpu(self):
        found = self.check("memory")
        self.assertEqual((found["level"], found["text"]), (
            "ok", "at most 64 MiB of each GPU for kernels' workspaces (KFIT_GPU_MEMORY); no kernel of the generation needs any, so none is taken"))
        self.env.update(FIXTURE_WORKSPACE=str(3 << 20))
        self.fixture("stage", self.cache, key(64), 2.5)
        self.fixture("stage", self.cache, key(128), 2.5)
        self.env.update(FIXTURE_WORKSPACE="1000")
        self.fixture("stage", self.cache, key(256), 2.5)
        self.c("approve", "--all")
        found = self.check("memory")
        self.assertEqual(found["level"], "ok")
        self.assertIn("; 3 of the generation's kernels need some, up to 3072 KiB each", found["text"])
        self.env.update(KFIT_GPU_MEMORY="5")
        found = self.check("memory")
        self.assertEqual((found["level"], found["advice"]), ("warn", "2 of them need more than half of that and do not run: set KFIT_GPU_MEMORY to 6 or more"))
        self.env.update(KFIT_GPU_MEMORY="6")
        self.assertEqual(self.check("memory")["level"], "ok")
        self.env.update(KFIT_GPU_MEMORY="much")
        found = self.check("memory")
        self.assertEqual((found["level"], found["text"][:16]), ("warn", "at most 0 MiB of"))

    def test_doctor_names_what_is_not_read(self):
        found = self.check("environ")
        self.assertEqual((found["level"], found["text"]), ("ok", "no KFIT_ variable is set"))
        self.env.update(KFIT_LABEL="x", KFIT_CAHCE="/tmp\033")
        found = self.check("environ")
        self.assertEqual(found["level"], "warn")
        self.assertEqual(set(found["text"].split(", ")), {"KFIT_LABEL", "KFIT_CAHCE (unknown)"})

    @unittest.skipIf(SANITIZER != "none", "a shim with a sanitizer cannot be preloaded")
    def test_doctor_finds_what_a_killed_run_left(self):
        p = self.start(KFIT, "run", "--trace", self.traces, "--", FIXTURE, "hold", "", "unit", key(64), 70, 0, stdin=subprocess.PIPE)
        run = pathlib.Path(p.stdout.readline().strip()).parent
        self.assertNotIn(str(run), self.check("left")["text"])  # it is at work
        p.kill()
        p.wait(timeout=60)
        found = self.check("left")  # the program goes on, and its trace is not complete
        self.assertIn(f"{run} (1 traces, 1 of them of processes that still run)", found["text"])
        p.communicate(timeout=60)  # ends the program: its input is closed
        while self.check("left")["text"].find(f"{run} (1 traces, 0 of them") < 0:
            pass  # it ends in its own time; meson's limit is the limit
        found = self.check("left")
        self.assertEqual(found["level"], "warn")
        self.assertIn("kfit trace merge -o FILE.kft DIR", found["advice"])
        shutil.rmtree(run)
        self.assertNotIn(str(run), self.check("left")["text"])

    def test_doctor_finds_unfinished_files(self):
        self.fixture("stage", self.cache, key(64), 2.5)
        self.c("approve", "--all")
        self.assertEqual(self.check("unfinished")["level"], "ok")
        names = ["off.123", "generations/.tmp-2.mdb"]
        for n in names:
            (pathlib.Path(self.cache) / n).write_text("half")
        self.assertEqual(self.check("unfinished")["level"], "ok")  # whoever writes them may live
        for n in names:
            os.utime(pathlib.Path(self.cache) / n, times=(time.time() - 3600,) * 2)
        found = self.check("unfinished")
        self.assertEqual(found["level"], "warn")
        for n in names:
            self.assertIn(f"{self.cache}/{n} (4 bytes)", found["text"])

    def test_doctor_looks_at_what_the_host_remembers(self):
        state = self.dir / "state"
        self.env["KFIT_STATE"] = str(state)
        self.assertEqual(self.check("state")["level"], "ok")  # made when it is needed
        state.mkdir()
        state.chmod(0o777)
        out, _ = self.c("doctor", "state", rc=1)
        self.assertRegex(out, r"(?m)^fail state .*state\b")
        self.assertIn("chmod go-w", out)
        del self.env["KFIT_STATE"], self.env["HOME"]
        self.env.pop("XDG_STATE_HOME", None)
        self.assertIn("set KFIT_STATE", self.check("state")["advice"])


if __name__ == "__main__":
    main()
