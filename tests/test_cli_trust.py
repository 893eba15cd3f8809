"""Signing and trust as a person uses them: keys, approve --sign, cache sign, verify. Arguments as test_cli.py's."""
import hashlib
import json
import pathlib
import re
import unittest

from cli_helpers import KFIT, SANITIZER, Case, key, main


class Trust(Case):
    """A cache with two winners staged and none published; keys a and b."""

    def setUp(self):
        super().setUp()
        for n in (64, 128):
            self.fixture("stage", self.cache, key(n), 2.5)
        self.public = {k: self.kfit("key", "new", self.dir / k, "--name", k)[0].split()[0] for k in "ab"}

    def c(self, command, *args, rc=0, trust=None):
        self.env.pop("KFIT_TRUST", None)
        if trust is not None:
            self.env["KFIT_TRUST"] = str(trust)
        try:
            return self.kfit(*command.split(), "--cache", self.cache, *args, rc=rc)
        finally:
            self.env.pop("KFIT_TRUST", None)

    def sign(self, k):
        return "--sign", self.dir / k

    def manifest(self, n, edit=None):
        path = pathlib.Path(self.cache) / f"generations/{n}.json"
        text = path.read_text()
        if edit:
            new = re.sub(*edit, text)
            self.assertNotEqual(new, text)
            path.chmod(0o644)
            path.write_text(new)
        return json.loads(text)

    def verify(self, trust=None):
        out, err = self.c("cache verify", "--json", rc=None, trust=trust)
        return json.loads(out), err

    def kfit(self, *args, rc=0):
        if rc is not None:
            return super().kfit(*args, rc=rc)
        p = self.start(KFIT, *args)
        return p.communicate(timeout=60)

    # ---- keys ----

    def test_keys(self):
        private, public = self.dir / "a", self.dir / "a.pub"
        self.assertEqual(private.stat().st_mode & 0o7777, 0o600)
        self.assertEqual(public.read_text(), self.public["a"] + " a\n")
        self.assertRegex(self.public["a"], r"^ed25519:[0-9a-f]{64}$")
        self.assertNotEqual(self.public["a"], self.public["b"])
        for f in (private, public):
            self.assertEqual(self.kfit("key", "show", f)[0], self.public["a"] + " a\n")
        before = private.read_bytes()
        self.assertIn("is there already", self.kfit("key", "new", private, rc=1)[1])
        self.assertEqual(private.read_bytes(), before)
        self.assertIn("No such file", self.kfit("key", "show", self.dir / "c", rc=1)[1])
        (self.dir / "c").write_text("hello\n")
        self.assertIn("no private key of kfit", self.kfit("key", "show", self.dir / "c", rc=1)[1])
        self.kfit("key", "show", rc=2)
        for command in ("key new", "key show", "cache sign"):
            self.assertIn("Usage: kfit " + command, self.kfit(*command.split(), "--help")[0])
        self.kfit("key", "new", self.dir / "d")  # named after who makes it
        self.assertRegex((self.dir / "d.pub").read_text(), r"^ed25519:\S+ \S+\n$")

    def test_a_key_that_others_can_read_is_not_used(self):
        (self.dir / "a").chmod(0o640)
        out, err = self.c("approve --all", *self.sign("a"), rc=1)
        self.assertIn("yours and nobody else's to read", err)
        self.assertEqual(out, "")
        self.assertFalse((self.dir / "cache/current").exists())

    # ---- publishing ----

    def test_approve_signs(self):
        self.c("approve --all", *self.sign("a"))
        self.assertEqual("ed25519:" + self.manifest(1)["signed_by"], self.public["a"])
        self.assertIn("signed by " + self.public["a"], self.c("cache ls")[0])
        self.assertIn(self.public["a"] + " a", self.c("cache ls", trust=self.dir / "a.pub")[0])
        self.assertIn("which is not in KFIT_TRUST", self.c("cache ls", trust=self.dir / "b.pub")[0])
        self.assertEqual(self.verify()[0], [])
        self.assertEqual(self.verify(self.dir / "a.pub")[0], [])
        self.assertIn("1 generations, 1 of them signed", self.verify()[1])

    def test_where_trust_is_set_nothing_unsigned_is_published(self):
        for trust in (self.dir / "a.pub", self.public["a"]):
            self.assertIn("--sign KEYFILE", self.c("approve --all", rc=1, trust=trust)[1])
            self.assertIn("is not in KFIT_TRUST", self.c("approve --all", *self.sign("b"), rc=1, trust=trust)[1])
        self.assertIn("names no key", self.c("approve --all", *self.sign("a"), rc=1, trust="")[1])
        self.assertFalse((self.dir / "cache/current").exists())
        self.c("approve --all", *self.sign("a"), trust=self.dir / "a.pub")

    def test_a_signature_covers_nothing_unseen(self):
        """What builds on a generation is signed only if that is trusted: its records come along."""
        self.c("approve", key(64))
        out, err = self.c("approve --all", *self.sign("a"), rc=1)
        self.assertIn("generation 1, on which the new one builds, is not to be trusted", err)
        self.assertIn("kfit cache sign 1 --sign KEYFILE", err)
        self.assertEqual(out, "")
        self.assertIn("signed by " + self.public["a"], self.c("cache sign 1", *self.sign("a"))[0])
        self.c("approve --all", *self.sign("a"))
        self.fixture("stage", self.cache, key(256), 2.5)
        self.assertIn("not one of the 1 trusted keys", self.c("approve --all", *self.sign("b"), rc=1)[1])
        both = f"{self.public['a']} {self.public['b']}"
        self.c("approve --all", *self.sign("b"), trust=both)
        self.assertEqual("ed25519:" + self.manifest(3)["signed_by"], self.public["b"])
        self.fixture("stage", self.cache, key(512), 2.5)
        self.assertIn("generation 3 is signed, the new one is not", self.c("approve --all")[1])
        self.assertNotIn("signed_by", self.manifest(4))

    def test_changing_keys(self):
        self.c("approve --all", *self.sign("a"), trust=self.dir / "a.pub")
        ring = self.dir / "ring"  # servers learn the new key
        ring.write_text("# keys of production\n" + (self.dir / "a.pub").read_text() + (self.dir / "b.pub").read_text())
        self.assertIn(self.public["b"], self.kfit("key", "show", ring)[0])
        self.assertEqual(self.verify(ring)[0], [])
        self.c("cache sign 1", *self.sign("b"), trust=ring)
        ring.write_text((self.dir / "b.pub").read_text())  # and forget the old one
        self.assertEqual(self.verify(ring)[0], [])
        (p,) = self.verify(self.dir / "a.pub")[0]
        self.assertIn("not one of the 1 trusted keys", p["problem"])

    def test_sign_refuses(self):
        self.c("approve --all")
        self.c("cache sign 1", rc=2)
        self.c("cache sign one", *self.sign("a"), rc=2)
        self.c("cache sign 0", *self.sign("a"), rc=2)
        self.assertIn("No such file", self.c("cache sign 9", *self.sign("a"), rc=1)[1])
        image = pathlib.Path(self.cache) / "generations/1.mdb"
        data = bytearray(image.read_bytes())
        data[9000] ^= 1
        image.chmod(0o644)
        image.write_bytes(data)
        self.assertIn("SHA-256 does not match", self.c("cache sign 1", *self.sign("a"), rc=1)[1])
        self.assertNotIn("signed_by", self.manifest(1))

    # ---- looking ----

    def test_verify_explains(self):
        self.c("approve", key(64), *self.sign("a"))
        self.c("approve", key(128), *self.sign("a"))
        self.fixture("stage", self.cache, key(256), 2.5)
        self.c("approve --all")
        problems, err = self.verify()
        self.assertEqual(problems, [])  # unsigned is no problem where nobody asks for it
        self.assertIn("3 generations, 2 of them signed", err)
        (p,) = self.verify(self.dir / "a.pub")[0]
        self.assertEqual((p["where"], p["status"]), ("generation 3", "not signed by a trusted key"))
        self.assertRegex(p["problem"], r"3\.json: not signed")
        self.assertIn("keep the original", p["todo"])
        self.manifest(1, (r'"note": ""', '"note": "all is well"'))
        signature = self.manifest(1)["signature"]
        self.manifest(2, (r'"signature": "\w+"', f'"signature": "{signature}"'))
        for trust in (None, f"{self.public['b']} {self.public['a']}"):
            problems = {p["where"]: p for p in self.verify(trust)[0]}
            for n in (1, 2):
                self.assertRegex(problems[f"generation {n}"]["problem"], rf"{n}\.json: .*changed after they were signed")
        out, _ = self.c("cache verify", rc=1)
        self.assertRegex(out, r"generation 1: .*1\.json.*\n    servers")
        self.assertIn("file of public keys", self.c("cache verify", rc=1, trust=self.dir / "nowhere")[1])

    def test_verify_names_the_damaged_record(self):
        """A file whose digest is right and one of whose records is not: the approver's machine was bad."""
        self.c("approve --all")
        image = pathlib.Path(self.cache) / "generations/1.mdb"
        data = bytearray(image.read_bytes())
        at = data.index(b"kfitrec")
        data[at + 170] ^= 1
        image.chmod(0o644)
        image.write_bytes(data)
        digest = hashlib.sha256(data).hexdigest()
        self.manifest(1, (r'"sha256": "\w+"', f'"sha256": "{digest}"'))
        current = pathlib.Path(self.cache) / "current"
        current.write_text(f"1 {digest}\n")
        (p,) = self.verify()[0]
        self.assertEqual(p["where"], "generation 1")
        self.assertIn("checksum does not match", p["problem"])
        self.assertIn(p["problem"].split(": ")[-1], (key(64), key(128)))
        self.assertIn("tune and approve the key again", p["todo"])

    # ---- what servers would do ----

    @unittest.skipIf(SANITIZER != "none", "a shim with a sanitizer cannot be preloaded into true")
    def test_run_and_explain_keep_to_it(self):
        self.c("approve --all", *self.sign("a"))
        (self.dir / "traces").mkdir()
        for trust, word in (("a", None), ("b", "nothing will be replaced: .*not one of the 1 trusted keys")):
            _, err = self.c("run --mode both", "--trace", self.dir / "traces", "true", trust=self.public[trust])
            self.assertRegex(err, word or "^(?!.*nothing will be replaced)")
        self.assertIn("not one of the 1 trusted keys", self.c("explain", key(64), trust=self.public["b"])[0])
        self.assertNotIn("trusted", self.c("explain", key(64), trust=self.public["a"])[0])


if __name__ == "__main__":
    main()
