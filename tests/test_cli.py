"""kfit as a person uses it: usage, the off switch, status, lists of keys. Arguments: see cli_helpers.py."""
import json
import os
import pathlib
import shutil
import subprocess

from cli_helpers import BF16, FIXTURE, KFIT, Case, key, main

COMMANDS = ["run", "trace ls", "trace merge", "trace export", "tune", "eval", "review", "approve", "rollback", "off", "on",
            "status", "cache ls", "cache show", "cache verify", "explain", "ab", "report", "metrics", "top",
            "doctor", "demo"]


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


if __name__ == "__main__":
    main()
