"""Export and import as a person uses them. Arguments as test_cli.py's."""
import json
import pathlib
import re
import signal
import subprocess

from cli_helpers import KFIT, Case, key, main


class Exchange(Case):
    """Cache a: two generations, the first signed by key k; files 1 and 2 of them. Cache b: nothing."""

    def setUp(self):
        super().setUp()
        self.a, self.b = str(self.dir / "a"), str(self.dir / "b")
        self.public = self.kfit("key", "new", self.dir / "k")[0].split()[0]
        self.fixture("stage", self.a, key(64), 2.5)
        self.fixture("stage", self.a, key(128), 3.5)
        self.kfit("approve", "--cache", self.a, "--sign", self.dir / "k", key(64))
        self.kfit("approve", "--cache", self.a, "--all", "--note", "second")
        for n in "12":
            self.kfit("cache", "export", "--cache", self.a, n, self.dir / n)

    def to_b(self, *args, rc=0, trust=None):
        self.env.pop("KFIT_TRUST", None)
        if trust is not None:
            self.env["KFIT_TRUST"] = str(trust)
        out, err = self.kfit("cache", "import", "--cache", self.b, *args, rc=rc)
        self.env.pop("KFIT_TRUST", None)
        return out, err

    def records(self, *args):
        return {r["key"]: r for r in json.loads(self.kfit("cache", "ls", "--json", "--cache", self.b, *args)[0])}

    def current(self):
        path = pathlib.Path(self.b, "current")
        return path.exists() and int(path.read_text().split()[0])

    def verified(self):
        return self.kfit("cache", "verify", "--cache", self.b)

    def test_export(self):
        out, _ = self.kfit("cache", "export", "--cache", self.a, "current", self.dir / "c")
        self.assertIn("generation 2: 2 records, not signed", out)
        self.assertEqual((self.dir / "c").read_bytes(), (self.dir / "2").read_bytes())
        out, _ = self.kfit("cache", "export", "--cache", self.a, "1", self.dir / "d")
        self.assertIn("generation 1: 1 record, signed by " + self.public, out)
        before = (self.dir / "d").read_bytes()
        _, err = self.kfit("cache", "export", "--cache", self.a, "2", self.dir / "d", rc=1)
        self.assertIn("is there already", err)
        self.assertEqual((self.dir / "d").read_bytes(), before)
        for which, rc in (("7", 1), ("x", 2)):
            self.kfit("cache", "export", "--cache", self.a, which, self.dir / "e", rc=rc)
        self.kfit("cache", "export", "--cache", self.b, "1", self.dir / "e", rc=1)
        self.assertFalse((self.dir / "e").exists())
        self.assertEqual([f.name for f in self.dir.iterdir() if "." in f.name], ["k.pub"])  # nothing half-written

    def test_staged_for_review(self):
        out, err = self.to_b(self.dir / "2")
        self.assertEqual(out, "2 records staged\n")
        self.assertRegex(err, r"generation 2, .*, approved by .*: second; not signed")
        self.assertRegex(err, r"2 records for device=host;[^\n]*;\n")
        self.assertFalse(self.current())
        self.assertEqual(set(self.records("--staged")), {key(64), key(128)})
        self.kfit("approve", "--all", "--cache", self.b)
        self.assertEqual(self.records()[key(128)]["ratio"], 3.5)
        self.verified()

    def test_what_was_tuned_here_stays(self):
        self.fixture("stage", self.b, key(64), 1.5)
        out, err = self.to_b(self.dir / "2")
        self.assertEqual(out, "1 record staged\n")
        self.assertIn("1 key tuned here already", err)
        self.assertEqual(self.records("--staged")[key(64)]["ratio"], 1.5)
        self.assertIn("2 records staged", self.to_b(self.dir / "2", "--replace")[0])
        self.assertEqual(self.records("--staged")[key(64)]["ratio"], 2.5)

    def test_published_as_it_is(self):
        self.assertIn("generation 1 is current: 1 record", self.to_b(self.dir / "1", "--approve", trust=self.public)[0])
        self.assertEqual(set(self.records()), {key(64)})
        files = [pathlib.Path(c, "generations/1.json").read_bytes() for c in (self.a, self.b)]
        self.assertEqual(*files)
        self.assertIn("here already; nothing changes", self.to_b(self.dir / "1", "--approve")[0])
        _, err = self.to_b(self.dir / "2", "--approve", trust=self.public, rc=1)
        self.assertIn("not signed", err)
        self.to_b(self.dir / "2", rc=1, trust=self.public)  # nor is it staged
        self.assertEqual(self.current(), 1)
        self.to_b(self.dir / "2", "--approve")
        self.assertEqual(set(self.records()), {key(64), key(128)})
        self.verified()

    def test_where_the_number_is_taken(self):
        self.fixture("stage", self.b, key(256), 2.5)
        self.kfit("approve", "--all", "--cache", self.b)
        _, err = self.to_b(self.dir / "1", "--approve", rc=1)
        self.assertIn("--drop-signature", err)
        self.assertEqual(self.current(), 1)
        self.assertEqual(set(self.records()), {key(256)})
        out, err = self.to_b(self.dir / "1", "--approve", "--sign", self.dir / "k")
        self.assertIn("generation 2 is current: 1 record", out)
        self.assertIn("it was generation 1 where it comes from", err)
        self.assertIn("was generation 1", self.kfit("cache", "ls", "--cache", self.b)[0])
        self.assertIn("signed by " + self.public, self.kfit("cache", "ls", "--cache", self.b)[0])
        self.verified()

    def test_usage(self):
        self.to_b(rc=2)
        self.to_b(self.dir / "1", self.dir / "2", rc=2)
        self.to_b(self.dir / "1", "--approve", "--replace", rc=2)
        for option in (["--sign", self.dir / "k"], ["--drop-signature"], ["--other-machine"]):
            self.to_b(self.dir / "1", *option, rc=2)
        self.assertFalse(pathlib.Path(self.b).exists())
        for c in ("export", "import"):
            self.assertIn("Usage: kfit cache " + c, self.kfit("cache", c, "--help")[0])

    def test_hostile_files(self):
        """Each is refused by name with what to do, staged or published, and nothing changes."""
        self.to_b(self.dir / "1", "--approve")
        before = {str(p): p.read_bytes() for p in pathlib.Path(self.b).rglob("*") if p.is_file()}
        whole = (self.dir / "2").read_bytes()
        head = whole.index(b"}\n") + 2
        for name, data, words in [
                ("empty", b"", "kfit cache export"), ("foreign", b"\x7fELF" * 5000, "kfit cache export"),
                ("cut", whole[:-1], "cut off; get it again"), ("cut_early", whole[:40], "first line"),
                ("cut_manifest", whole[:head - 9], "ends within its manifest"),
                ("longer", whole + b"\n", "added to; get it again"), ("twice", whole + whole, "added to"),
                ("newer", whole.replace(b"file 1", b"file 2"), "update kfit here"),
                ("note", whole.replace(b"second", b"sacond"), "SHA-256 of its manifest"),
                ("data", whole[:-5000] + bytes([whole[-5000] ^ 1]) + whole[-4999:], "get it again from where"),
                ("number", re.sub(rb'"number": 2', b'"number": 3', whole), "SHA-256 of its manifest"),
                ("escape", b"\x1b[31m" + whole, "kfit cache export")]:
            bad = self.dir / name
            bad.write_bytes(data)
            for options in ([], ["--approve"]):
                out, err = self.to_b(bad, *options, rc=1)
                self.assertEqual(out, "")
                self.assertIn(str(bad), err)
                self.assertRegex(err, re.escape(words))
                self.assertNotIn("\x1b", err)
        self.assertIn("No such file", self.to_b(self.dir / "nowhere", rc=1)[1])
        self.assertIn("not a regular file", self.to_b(self.dir, rc=1)[1])
        after = {str(p): p.read_bytes() for p in pathlib.Path(self.b).rglob("*") if p.is_file()}
        self.assertEqual(after, before)

    def test_another_machines(self):
        """What is for other hardware may be staged; publishing it would leave this machine with nothing."""
        self.fixture("foreign", self.dir / "f", key(64))
        self.kfit("approve", "--all", "--cache", self.dir / "f")
        self.kfit("cache", "export", "--cache", self.dir / "f", "1", self.dir / "3")
        out, err = self.to_b(self.dir / "3", "--approve", rc=1)
        self.assertIn("which is not this machine", err)
        self.assertIn("none of it would run here", err)
        self.assertFalse(self.current())
        self.to_b(self.dir / "3")
        self.to_b(self.dir / "3", "--approve", "--other-machine")
        self.assertEqual(self.current(), 1)

    def test_killed(self):
        """kfit killed at any moment: the old generation or the new one, and what is staged is all or nothing."""
        keys = [key(16 * n) for n in range(1, 40)]
        for k in keys:
            self.fixture("stage", self.a, k, 2.5)
        self.kfit("approve", "--all", "--cache", self.a)
        self.kfit("cache", "export", "--cache", self.a, "3", self.dir / "3")
        self.to_b(self.dir / "2", "--approve")
        seen = set()
        delay = 0.0005
        for turn in range(200):
            p = self.start(KFIT, "cache", "import", "--cache", self.b, self.dir / "3", *["--approve"][:turn % 2])
            try:
                p.wait(timeout=delay)
            except subprocess.TimeoutExpired:
                p.send_signal(signal.SIGKILL)
            p.communicate()
            delay = 0.0005 if delay > 8 else delay * 1.15
            ended = p.returncode == 0
            if turn % 8 >= 6 or ended:
                published = len(self.records())
                self.assertIn(published, (2, len(keys)))
                seen.add((turn % 2, ended))
            if {(0, True), (1, True)} <= seen and turn > 40:
                break
        self.assertLessEqual({(0, True), (1, True)}, seen)
        self.verified()
        self.assertEqual(set(self.records("--staged")), set(keys) | {key(64), key(128)})


if __name__ == "__main__":
    main()
