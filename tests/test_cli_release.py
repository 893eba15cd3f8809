"""From staged winners to a generation and back: review, approve, rollback, cache. Arguments: see cli_helpers.py."""
import json

from cli_helpers import Staged, key, main


class Release(Staged):
    def test_review_approve_and_what_is_left(self):
        changes = json.loads(self.c("review", "--json")[0])["changes"]
        self.assertEqual({(c["key"], c["change"], c["kind"]) for c in changes},
                         {(key(64), "new", "winner"), (key(128), "new", "winner"), (key(256), "kept", "negative")})
        out, err = self.c("review")
        self.assertIn("2.50 [2.38, 2.62]", out)
        self.assertIn("3 to publish, 0 published already, 0 wait", err)
        out, _ = self.c("approve", "--all", "--note", "first\tone")
        self.assertIn("generation 1: 2 kernels, 1 keys kept", out)
        self.assertIn("0 to publish, 3 published already", self.c("review")[1])
        out, _ = self.c("cache ls")
        self.assertRegex(out, "first.+one")
        self.assertIn("generation 1", out)
        _, err = self.c("approve", "--all")
        self.assertIn("nothing changes; generation 1 stays", err)
        self.assertEqual(self.generation(), "1")

    def test_one_key_at_a_time_and_min_ratio(self):
        self.c("approve", key(128))
        self.assertEqual(set(self.records()), {key(128)})
        self.c("approve", "--all", "--min-ratio", "2")
        self.assertEqual(set(self.records()), {key(64), key(128), key(256)})
        self.stage(64, 1.75)  # tuned again, on a worse day
        _, err = self.c("approve", "--all", "--min-ratio", "2")
        self.assertIn("nothing changes: all is left out", err)
        self.assertEqual(self.records()[key(64)]["ratio"], 2.5)
        _, err = self.c("approve", key(512), rc=1)
        self.assertIn("was not tuned here", err)

    def test_a_staged_negative_withdraws_a_winner(self):
        self.c("approve", "--all")
        self.stage(64, 1.0, "slow:tie")
        (change,) = json.loads(self.c("review", "--json")[0])["changes"]
        self.assertEqual((change["key"], change["change"]), (key(64), "withdraws"))
        out, _ = self.c("approve", "--all")
        self.assertIn("generation 2: 1 kernels, 2 keys kept", out)
        self.assertEqual(self.records()[key(64)]["kind"], "negative")

    def test_banned_keys_are_left_out(self):
        self.c("approve", "--all")
        self.fixture("ban", self.cache, key(64))
        out, err = self.c("approve", "--all")
        self.assertIn("generation 2: 1 kernels, 1 keys kept", out)
        self.assertIn("1 banned taken out", err)
        self.assertNotIn(key(64), self.records())
        self.assertIn("nothing changes", self.c("approve", "--all")[1])

    def test_rollback(self):
        _, err = self.c("rollback", rc=1)
        self.assertIn("cache", err)
        self.c("approve", key(64))
        _, err = self.c("rollback", rc=1)
        self.assertIn("no generation before 1", err)
        self.c("approve", key(128))
        self.assertIn("generation 3 is current (was 2): what generation 1 held", self.c("rollback")[0])
        self.assertEqual(self.generation(), "3")
        self.assertEqual(set(self.records()), {key(64)})
        self.assertIn("generation 4 is current (was 3)", self.c("rollback", "2")[0])
        self.assertEqual(set(self.records()), {key(64), key(128)})
        self.c("rollback", "7", rc=1)
        self.c("rollback", "x", rc=2)
        self.c("approve", key(256))
        self.assertEqual(self.generation(), "5")

    def test_what_waits_for_a_person_is_shown(self):
        self.fixture("wait", self.cache, key(512))
        out, err = self.c("review")
        self.assertIn("suspect:beyond-roofline", out)
        self.assertIn("1 wait for a person", err)
        (w,) = json.loads(self.c("review", "--json")[0])["waiting"]
        self.assertEqual((w["key"], w["code"]), (key(512), "suspect:beyond-roofline"))
        self.assertIn("waits for a person: too good", self.c("cache show", key(512))[0])
        (shown,) = json.loads(self.c("cache show", "--json", key(512))[0])
        self.assertEqual((shown["set"], shown["receipt"]["verdict"]), ("waiting", "review"))

    def test_what_waits_for_a_person_is_not_published(self):
        self.fixture("wait", self.cache, key(512))
        out, err = self.c("approve", key(512), rc=1)
        self.assertEqual(out, "")
        self.assertRegex(err, r"n=512,.*too good.* waits for a person: suspect:beyond-roofline")
        self.assertIn("kfit eval SOURCE --key KEY", err)
        self.assertIn("nothing is published", err)
        self.assertNotIn("was not tuned", err)
        self.assertFalse((self.dir / "cache/current").exists())
        self.c("approve", "--all")
        self.assertEqual(set(self.records()), {key(64), key(128), key(256)})
        self.fixture("wait", self.cache, key(64))  # beside one that may be published
        self.stage(64, 3.5)
        out, err = self.c("approve", key(64))
        self.assertIn("generation 2", out)
        self.assertIn("waits for a person", err)
        self.assertEqual(self.records()[key(64)]["ratio"], 3.5)

    def test_review_shows_shares(self):
        self.trace((key(64), 300, 0), (key(128), 100, 0))
        changes = {c["key"]: c for c in json.loads(self.c("review", "--json", "--trace", self.traces)[0])["changes"]}
        self.assertAlmostEqual(changes[key(64)]["share"], 0.75)
        self.assertNotIn("share", changes[key(256)])

    def test_show_has_record_and_receipt(self):
        self.c("approve", "--all")
        out, _ = self.c("cache show", key(256))
        self.assertIn("the original is kept", out)
        self.assertIn("slow:behind", out)
        published, staged = json.loads(self.c("cache show", "--json", key(64))[0])
        self.assertEqual((published["set"], staged["set"]), ("published", "staged"))
        self.assertEqual(staged["receipt"]["verdict"], "promoted")
        _, err = self.c("cache show", key(1024), rc=1)
        self.assertIn("neither published nor tuned", err)
        _, err = self.c("cache show", "gemm/nonsense", rc=2)
        self.assertIn("nonsense", err)

    def test_verify_explains_each_problem(self):
        self.c("approve", key(64))
        self.c("approve", key(128))
        _, err = self.c("cache verify")
        self.assertIn("2 generations", err)
        self.assertIn("0 problems", err)
        path = self.dir / "cache/generations/1.mdb"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.chmod(0o644)
        path.write_bytes(data)
        out, _ = self.c("cache verify", rc=1)
        self.assertIn("generation 1: ", out)
        self.assertNotIn("generation 2: ", out)
        (p,) = json.loads(self.c("cache verify", "--json", rc=1)[0])
        self.assertEqual(p["where"], "generation 1")
        (self.dir / "cache/generations/2.json").unlink()
        self.c("cache verify", rc=1)
        (self.dir / "cache/current").write_text("9 " + "0" * 64 + "\n")
        out, _ = self.c("cache verify", rc=1)
        self.assertIn("current: ", out)

    def test_unsafe_and_damaged_caches_are_refused_by_name(self):
        self.c("approve", "--all")
        store = self.dir / "cache/store"
        data = store / "data.mdb"
        whole = data.read_bytes()
        data.write_bytes(whole[:5000])
        for command in ["review", "approve --all", "cache ls --staged"]:
            _, err = self.c(command, rc=1)
            self.assertIn("store", err)
        self.c("cache verify", rc=1)
        data.write_bytes(whole)
        self.c("review")
        (self.dir / "cache/generations/1.mdb").chmod(0o666)
        _, err = self.c("cache ls", rc=1)
        self.assertIn("1.mdb", err)

    def test_nothing_there_says_what_to_do(self):
        for command, words in [("review", "kfit tune"), ("approve --all", "kfit tune"), ("cache ls", "kfit approve")]:
            _, err = self.kfit(*command.split(), "--cache", self.dir / "none", rc=1)
            self.assertIn(words, err)
        self.assertFalse((self.dir / "none").exists())
        self.c("approve", rc=2)
        self.c("approve", "--all", key(64), rc=2)
        self.c("approve", "nonsense", rc=2)


if __name__ == "__main__":
    main()
