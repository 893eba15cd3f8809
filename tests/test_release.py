"""What goes into a generation and out of it: policies, one by one, bans, rollback, differences, clean-up.
Arguments: see cli_helpers.py."""
import hashlib
import json
import os
import subprocess

from cli_helpers import FIXTURE, KFIT, Staged, key, main


class Releases(Staged):
    def current(self):
        return int(self.generation())

    def approve(self, *args, rc=0):
        return json.loads(self.c("approve", "--json", *args, rc=rc)[0])

    def taken(self, *args):
        return {c["key"] for c in self.approve(*args)["changes"] if "left_out" not in c}

    def left_out(self, *args):
        return {c["key"]: c["left_out"] for c in self.approve("--dry-run", *args)["changes"] if "left_out" in c}

    def policy(self, text):
        path = self.dir / "policy.json"
        path.write_text(text if isinstance(text, str) else json.dumps({"kfit_policy": 1, **text}))
        return path

    def stage_with(self, n, ratio, *code, **env):
        """As stage, with FIXTURE_BLAS or FIXTURE_ORIGIN."""
        self.env.update(env)
        self.stage(n, ratio, *code)
        for name in env:
            del self.env[name]


class Approve(Releases):
    def test_a_rule_says_what_it_leaves_out_and_why(self):
        out, err = self.c("approve", "--all", "--min-ratio", "2")
        self.assertIn("left out: 1.38, the lower end of its ratio to the original, is below --min-ratio 2", out)
        self.assertIn(key(128), out)
        self.assertIn("2 taken over, 0 withdrawn, 0 banned taken out, 1 left out", err)
        self.assertEqual(set(self.records()), {key(64), key(256)})
        # the lower end decides: 2.5 [2.375, 2.625]
        self.assertEqual(set(self.left_out("--all", "--min-ratio", "1.4")), {key(128)})
        self.assertEqual(set(self.left_out("--all", "--min-ratio", "1.375")), set())

    def test_rules_of_options_and_of_a_file_add_up(self):
        path = self.policy({"min_ratio": 1.2, "origins": ["seed:*", "llm:x"]})
        self.stage_with(512, 9, FIXTURE_ORIGIN="person:ann")
        self.stage_with(1024, 9, FIXTURE_ORIGIN="seedling")
        why = self.left_out("--policy", path, "--min-ratio", "2")
        self.assertEqual(set(why), {key(128), key(512), key(1024)})
        self.assertIn("--min-ratio 2", why[key(128)])
        self.assertIn("origins of the policy", why[key(512)])
        self.assertEqual(set(self.left_out("--policy", path, "--origin", "seed:fixture")), {key(512), key(1024)})
        self.assertEqual(set(self.left_out("--policy", path, "--origin", "person:*")), {key(64), key(128), key(512), key(1024)})
        self.assertEqual(self.taken("--policy", path), {key(64), key(128), key(256)})

    def test_a_policy_file_is_strict(self):
        for text, words in [
                ("", "not one JSON object"),
                ("[1]", "not one JSON object"),
                ('{"kfit_policy": 1} x', "not one JSON object"),
                ("{}", '"kfit_policy" is missing'),
                ('{"kfit_policy": 2}', '"kfit_policy" must be 1'),
                ({"min_ration": 2}, '"min_ration" is no rule; there are kfit_policy, min_ratio'),
                ('{"kfit_policy": 1, "max_keys": 1, "max_keys": 9}', '"max_keys" is there twice'),
                ({"min_ratio": "2"}, '"min_ratio" must be a number'),
                ({"min_ratio": 0}, '"min_ratio" must be a number above 0'),
                ({"min_share_percent": 101}, '"min_share_percent" must be'),
                ({"max_keys": 1.5}, '"max_keys" must be a whole number'),
                ({"origins": "seed"}, '"origins" must be a list'),
                ({"origins": []}, '"origins" must be a list of one or more'),
                ({"origins": ["seed:*", 3]}, '"origins" must be a list'),
                ({"origins": ["se*d"]}, '"origins" must be a list'),
                ({"bad\x1b[31m": 3}, '"bad\\x1b[31m" is no rule')]:
            _, err = self.c("approve", "--policy", self.policy(text), rc=1)
            self.assertIn(words, err)
            self.assertIn("policy.json: ", err)
        self.assertIn("No such file", self.c("approve", "--policy", self.dir / "none.json", rc=1)[1])
        self.c("approve", "--all", "--origin", "s*d", rc=2)
        self.assertFalse((self.dir / "cache/current").exists())

    def test_shares_come_from_traces(self):
        _, err = self.c("approve", "--all", "--min-share", "1", "--trace", self.trace((key(2048), 0, 0)), rc=1)
        self.assertIn("no calls are recorded", err)
        path = self.trace((key(64), 300, 0), (key(256), 99, 0), (key(512), 1, 0))
        self.stage(512, 3)
        why = self.left_out("--all", "--min-share", "1", "--trace", path)
        self.assertEqual(set(why), {key(128), key(512)})
        self.assertIn("not in the traces", why[key(128)])
        self.assertRegex(why[key(512)], r"its share, 0\.\d+ %, is below --min-share 1")

    def test_gain_is_of_the_whole(self):
        path = self.trace((key(64), 300, 0), (key(128), 100, 0))
        out, err = self.c("review", "--trace", path)
        self.assertIn("0.00 % of their time is saved now, 53.33 % with these changes", err)
        gains = {c["key"]: c["gain"] for c in json.loads(self.c("review", "--json", "--trace", path)[0])["changes"] if "gain" in c}
        self.assertAlmostEqual(gains[key(64)], 0.75 * 0.6)
        self.assertAlmostEqual(gains[key(128)], 0.25 / 3)
        self.c("approve", key(64))
        review = json.loads(self.c("review", "--json", "--trace", path)[0])
        self.assertAlmostEqual(review["gain_now"], 0.45)
        self.assertAlmostEqual(review["gain_then"], 0.45 + 0.25 / 3)
        self.stage(64, 1.0, "slow:tie")  # what is withdrawn costs
        review = json.loads(self.c("review", "--json", "--trace", path)[0])
        self.assertAlmostEqual(review["gain_then"], 0.25 / 3)

    def test_max_keys_takes_those_that_bring_most(self):
        path = self.trace((key(64), 1, 0), (key(128), 300, 0))
        self.assertEqual(set(self.left_out("--all", "--max-keys", "1", "--trace", path)), {key(64)})
        why = self.left_out("--all", "--max-keys", "1")  # no trace: most time saved per call
        self.assertEqual(set(why), {key(128)})
        self.assertEqual(why[key(128)], "--max-keys 1: others bring more")
        self.assertEqual(self.taken("--all", "--max-keys", "1"), {key(64), key(256)})
        self.assertEqual(self.taken("--all", "--max-keys", "1"), {key(128)})  # the next time the rest

    def test_a_dry_run_publishes_nothing(self):
        out, err = self.c("approve", "--all", "--dry-run", "--min-ratio", "2")
        self.assertIn("nothing is published; would be: 2 taken over", err)
        self.assertRegex(out, r"(?m)^new +2\.50 .*" + key(64) + "$")
        self.assertNotIn("generation 1", out)
        done = self.approve("--all", "--dry-run")
        self.assertEqual((done["generation"], done["dry_run"], done["kernels"], done["kept"]), (None, True, 2, 1))
        self.assertFalse((self.dir / "cache/current").exists())
        done = self.approve("--all")
        self.assertEqual((done["generation"], done["was"], done["dry_run"]), (1, 0, False))

    def ask(self, answers, rc=0):
        p = self.start(KFIT, "approve", "--ask", "--cache", self.cache, stdin=subprocess.PIPE)
        out, err = p.communicate(answers, timeout=60)
        self.assertEqual(p.returncode, rc, out + err)
        return out, err

    def test_one_by_one(self):
        order = [c["key"] for c in json.loads(self.c("review", "--json")[0])["changes"]]
        _, err = self.ask("y\n", rc=1)
        self.assertIn("nothing is published", err)
        self.assertFalse((self.dir / "cache/current").exists())
        out, _ = self.ask("what?\nn\ny\nq\n")
        self.assertIn("left out: declined", out)
        self.assertEqual(set(self.records()), {order[1]})
        self.ask("n\na\n")
        self.assertEqual(set(self.records()), set(order[1:]))
        self.assertIn("nothing changes", self.ask("q\n")[1])

    def test_keys_of_a_file(self):
        (self.dir / "keys").write_text(f"{key(64)} # good\n\n{key(256)}\n")
        self.c("approve", "--keys", self.dir / "keys")
        self.assertEqual(set(self.records()), {key(64), key(256)})
        (self.dir / "keys").write_text("nonsense\n")
        self.assertIn("keys:1", self.c("approve", "--keys", self.dir / "keys", rc=1)[1])
        self.c("approve", "--all", "--keys", self.dir / "keys", rc=2)

    def test_who_approved_stays_with_the_record(self):
        me = self.approve(key(64))["approver"]
        record = self.records()[key(64)]
        self.assertEqual(record["approver"], me)
        self.assertEqual(self.records("--staged")[key(64)]["approver"], "")
        self.c("approve", key(128))
        self.assertEqual(self.records()[key(64)]["approver"], me)
        published, staged = json.loads(self.c("cache show", "--json", key(64))[0])
        self.assertEqual((published["receipt"]["origin"]["approver"], staged["receipt"]["origin"]["approver"]), (me, ""))
        self.assertIn("approved by " + me, self.c("cache show", key(64))[0])

    def test_review_shows_receipts(self):
        (c,) = [c for c in json.loads(self.c("review", "--json")[0])["changes"] if c["key"] == key(256)]
        self.assertEqual((c["receipt"]["verdict"], c["receipt"]["code"]), ("kept", "slow:behind"))
        self.assertIsNone(c["from"])
        self.assertEqual(c["to"]["ratio"], 0.5)
        self.assertIn("fixture", self.c("review", "--receipts")[0])


class Bans(Releases):
    def test_a_ban_withdraws_with_the_next_approval(self):
        self.c("approve", "--all")
        self.stage(512, 4)
        out, err = self.c("cache disable", key(64), "--reason", "wrong\non Tuesday")
        self.assertRegex(err, r"n=64,.* is banned by \S+ at \S+ \S+: wrong\\x0aon Tuesday")
        self.assertIn("generation 1 still holds a kernel for " + key(64), err)
        self.assertIn("kfit approve", err)
        self.assertIn(key(64), self.records())
        (ban,) = json.loads(self.c("cache disable", "--json")[0])
        self.assertEqual((ban["key"], ban["why"]), (key(64), "wrong\\x0aon Tuesday"))
        self.assertGreater(ban["when_unix"], 1700000000)
        self.assertIn("1 keys are banned", self.c("cache disable")[1])
        (c,) = [c for c in json.loads(self.c("review", "--json")[0])["changes"] if c["key"] == key(64)]
        self.assertEqual(c["change"], "withdraws")
        self.assertIn("wrong", c["banned"])
        out, err = self.c("approve", key(64))  # only that
        self.assertIn("0 taken over, 0 withdrawn, 1 banned taken out", err)
        self.assertIn("`kfit cache enable KEY` lifts the ban", err)
        self.assertEqual(set(self.records()), {key(128), key(256)})
        self.assertIn("is no longer banned", self.c("cache enable", key(64))[1])
        self.c("approve", "--all")
        self.assertEqual(set(self.records()), {key(64), key(128), key(256), key(512)})
        self.assertIn("was not banned", self.c("cache enable", key(64))[1])

    def test_a_banned_key_does_not_come_in(self):
        self.c("cache disable", key(64), key(4096))
        self.assertEqual(self.taken("--all"), {key(128), key(256)})
        self.assertIn("nothing changes", self.c("approve", key(64))[1])
        self.assertIn("nothing changes", self.c("approve", key(4096))[1])
        self.assertNotIn("still holds", self.c("cache disable", key(64))[1])

    def test_a_ban_whose_text_is_no_json_still_bans(self):
        self.fixture("ban", self.cache, key(64))
        (ban,) = json.loads(self.c("cache disable", "--json")[0])
        self.assertEqual((ban["key"], ban["by"], ban["why"]), (key(64), "", "test"))
        self.assertEqual(self.taken("--all"), {key(128), key(256)})

    def test_nonsense_is_refused(self):
        self.assertIn("nonsense", self.c("cache disable", "nonsense", rc=2)[1])
        self.c("cache enable", rc=2)
        _, err = self.kfit("cache", "disable", key(64), "--cache", self.dir / "typo", rc=1)
        self.assertIn("neither a store nor a generation is there", err)
        self.assertIn("KFIT_BAN=KEY", err)
        self.assertFalse((self.dir / "typo").exists())


class Rollback(Releases):
    def setUp(self):
        super().setUp()
        for n in (64, 128, 256):
            self.c("approve", key(n))
        self.steps = [None, {key(64)}, {key(64), key(128)}, {key(64), key(128), key(256)}]

    def generations(self):
        return {g["number"]: g for g in json.loads(self.c("cache ls", "--generations", "--json")[0])}

    def test_it_publishes_anew_and_twice_goes_two_back(self):
        before = {p.name: p.read_bytes() for p in (self.dir / "cache/generations").iterdir() if p.suffix in (".json", ".mdb")}
        self.assertEqual(json.loads(self.c("rollback", "--json")[0]),
                         {"generation": 4, "republishes": 2, "was": 3, "banned": 0, "dry_run": False})
        self.assertEqual(set(self.records()), self.steps[2])
        self.c("rollback")
        self.assertEqual((self.current(), set(self.records())), (5, self.steps[1]))
        self.assertIn("no generation before 1", self.c("rollback", rc=1)[1])
        self.c("rollback", "3", "--note", "it was not that")
        self.assertEqual((self.current(), set(self.records())), (6, self.steps[3]))
        for name, data in before.items():  # generations are immutable
            self.assertEqual((self.dir / "cache/generations" / name).read_bytes(), data)
        g = self.generations()
        self.assertEqual([g[i]["republishes"] for i in range(1, 7)], [0, 0, 0, 2, 1, 3])
        self.assertEqual((g[4]["note"], g[6]["note"]), ("rollback to generation 2", "it was not that"))
        self.assertEqual([n for n in g if g[n]["current"]], [6])
        self.assertEqual(g[6]["sha256"], g[3]["sha256"])
        self.assertRegex(self.c("cache ls", "--generations")[0], r"(?m)^\* +6 +3 ")

    def test_by_digest(self):
        g = self.generations()
        self.c("rollback", g[1]["sha256"])
        self.assertEqual((self.current(), set(self.records())), (4, self.steps[1]))
        self.assertIn("no generation", self.c("rollback", "0" * 64, rc=1)[1].lower())
        for bad in ("x", "0", "01", "-1", "1x", "9" * 30, g[1]["sha256"][:40]):
            self.c("rollback", "--", bad, rc=2)

    def test_to_what_is_there_already_changes_nothing(self):
        self.assertIn("nothing changes", self.c("rollback", "3")[1])
        self.assertEqual(self.current(), 3)
        self.assertIn("generation 2 would be", self.c("rollback", "--dry-run")[1])
        self.assertEqual(self.current(), 3)

    def test_bans_are_respected(self):
        self.c("cache disable", key(64), "--reason", "wrong")
        out, err = self.c("rollback")
        self.assertRegex(err, r"n=64,.* is banned by .*: wrong; it is left out")
        self.assertIn("generation 4 is current (was 3): what generation 2 held, without banned keys", out)
        self.assertEqual(set(self.records()), {key(128)})
        self.c("rollback")  # goes on from 2
        self.assertEqual((self.current(), self.records()), (5, {}))

    def test_away_from_a_damaged_generation(self):
        path = self.dir / "cache/generations/3.mdb"
        path.chmod(0o644)
        path.write_bytes(path.read_bytes()[:-1])
        self.c("cache ls", rc=1)
        self.c("rollback")
        self.assertEqual((self.current(), set(self.records())), (4, self.steps[2]))
        (self.dir / "cache/current").write_text("nonsense")
        _, err = self.c("rollback", "1")
        self.assertIn("current: expected", err)
        self.assertEqual((self.current(), set(self.records())), (5, self.steps[1]))

    def test_it_can_be_signed(self):
        self.kfit("key", "new", self.dir / "a")
        self.env["KFIT_TRUST"] = str(self.dir / "a.pub")
        self.assertIn("--sign KEYFILE", self.c("rollback", "2", rc=1)[1])
        self.assertEqual(self.current(), 3)
        for n in (2, 3):
            self.c("cache sign", str(n), "--sign", self.dir / "a")
        self.c("rollback", "2", "--sign", self.dir / "a")
        self.assertEqual((self.current(), set(self.records())), (4, self.steps[2]))
        manifest = self.dir / "cache/generations/4.json"
        manifest.chmod(0o644)
        manifest.write_text(manifest.read_text().replace('"republishes": 2', '"republishes": 1'))
        self.assertIn("signature", self.c("cache verify", rc=1)[0])  # what it repeats is signed too

    def test_without_a_store(self):
        (self.dir / "cache/store/data.mdb").unlink()  # a cache that was copied to a server
        (self.dir / "cache/store/lock.mdb").unlink()
        self.c("rollback")
        self.assertEqual((self.current(), set(self.records())), (4, self.steps[2]))

    def test_not_past_bans_that_cannot_be_read(self):
        data = self.dir / "cache/store/data.mdb"
        data.write_bytes(data.read_bytes()[:5000])
        _, err = self.c("rollback", rc=1)
        self.assertIn("store", err)
        self.assertIn("`kfit off`", err)
        self.assertEqual(self.current(), 3)


class Diff(Releases):
    def diff(self, *args):
        d = json.loads(self.c("cache diff", "--json", *args)[0])
        return {(c["key"], c["change"]) for c in d["changes"]}, d

    def test_added_withdrawn_replaced_confirmed(self):
        self.c("approve", "--all")
        self.stage(64, 3.5)
        self.stage(128, 1.0, "slow:tie")
        self.stage(512, 4)
        self.stage(256, 2)
        self.stage_with(1024, 2, FIXTURE_BLAS="Fixture 1")
        self.c("approve", "--all")
        self.stage_with(1024, 2, FIXTURE_BLAS="Fixture 2")  # the same kernel, timed again
        self.assertEqual([c["change"] for c in json.loads(self.c("review", "--json")[0])["changes"]], ["confirms"])
        self.c("approve", "--all")
        self.assertIn("0 to publish", self.c("review")[1])
        changes, d = self.diff("1", "2")
        self.assertEqual(changes, {(key(64), "replaces"), (key(128), "withdraws"), (key(256), "new"), (key(512), "new"), (key(1024), "new")})
        (c,) = [c for c in d["changes"] if c["key"] == key(64)]
        self.assertEqual((c["from"]["ratio"], c["to"]["ratio"], d["from"], d["to"], d["same"]), (2.5, 3.5, 1, 2, 0))
        changes, d = self.diff("2")
        self.assertEqual((changes, d["to"], d["same"]), ({(key(1024), "confirms")}, 3, 4))
        (c,) = d["changes"]
        self.assertIn("Fixture 1", c["from"]["environment_soft"])
        self.assertIn("Fixture 2", c["to"]["environment_soft"])
        changes, _ = self.diff("3", "1")
        self.assertEqual({k for k, kind in changes if kind == "withdraws"}, {key(256), key(512), key(1024)})
        self.assertEqual(self.diff("2", "2")[1]["changes"], [])
        out, err = self.c("cache diff", "1", "2")
        self.assertRegex(out, r"(?m)^replaces +3\.50 .*\(was 2\.50\)$")
        self.assertIn("generation 1 to 2: 3 new, 1 replaced, 0 confirmed, 1 withdrawn, 0 same", err)

    def test_what_is_not_there_is_named(self):
        self.c("approve", "--all")
        self.assertIn("7.json", self.c("cache diff", "7", rc=1)[1])
        self.c("cache diff", rc=2)


class Gc(Releases):
    def setUp(self):
        super().setUp()
        # generations of equal content have equal digests, and what a live process of another test runs is kept
        self.stage(64, 2.5 + int.from_bytes(os.urandom(3), "big") / 2**30)
        self.c("approve", "--all")
        for n in (512, 1024, 2048, 4096, 8192):
            self.stage(n, 3)
            self.c("approve", key(n))
        self.place = self.dir / "cache/generations"

    def numbers(self):
        return sorted(int(p.stem) for p in self.place.iterdir() if p.suffix == ".json")

    def gc(self, *args, rc=0):
        return self.c("cache gc", *args, rc=rc)

    def test_the_newest_the_pinned_and_the_current_stay(self):
        whole = {p.name: p.read_bytes() for p in self.place.iterdir()}
        self.assertIn("4 generations would go", self.gc("--dry-run", "--keep", "2")[1])
        self.assertEqual({p.name: p.read_bytes() for p in self.place.iterdir()}, whole)
        digest = [g["sha256"] for g in json.loads(self.c("cache ls", "--generations", "--json")[0]) if g["number"] == 3][0]
        (self.dir / "cache/pins").write_text(f"# in the pod spec\n2 # east\n{digest}\n99\n\n")
        out, err = self.gc("--keep", "2")
        self.assertIn("pins:4: no generation 99 is there", err)
        self.assertIn("removed   generations/1.json", out)
        self.assertEqual(self.numbers(), [2, 3, 5, 6])
        self.assertFalse((self.place / "4.mdb").exists())
        self.c("cache verify")
        self.gc("--keep", "0", "--pin", "5")
        self.assertEqual(self.numbers(), [2, 3, 5, 6])
        (self.dir / "cache/pins").unlink()
        self.gc("--keep", "0")
        self.assertEqual(self.numbers(), [6])
        self.c("cache verify")
        self.stage(64, 9)
        self.c("approve", "--all")
        self.assertEqual(self.current(), 7)

    def test_what_is_in_doubt_removes_nothing(self):
        before = self.numbers()
        (self.dir / "cache/pins").write_text("2\nx y\n")
        self.assertIn('pins:2: "x" is neither', self.gc("--keep", "0", rc=1)[1])
        (self.dir / "cache/pins").unlink()
        self.assertIn("no generation 42", self.gc("--pin", "42", "--keep", "0", rc=1)[1])
        current = (self.dir / "cache/current").read_text()
        (self.dir / "cache/current").write_text("nonsense")
        self.gc("--keep", "0", rc=1)
        (self.dir / "cache/current").write_text(current)
        manifest = self.place / "2.json"
        text = manifest.read_text()
        manifest.chmod(0o644)
        manifest.write_text(text.replace('"length"', '"width"'))
        self.assertIn("2.json", self.gc("--keep", "0", rc=1)[1])
        self.assertEqual(self.numbers(), before)

    def test_what_a_killed_publisher_left_goes(self):
        for name in (".tmp-7.mdb", "7.mdb", "notes.txt"):
            (self.place / name).write_bytes(b"half")
        self.gc("--keep", "9")
        left = {p.name for p in self.place.iterdir()} - {f"{n}.{end}" for n in range(1, 7) for end in ("json", "mdb")}
        self.assertEqual(left, {".lock", "notes.txt"})
        self.assertEqual(self.numbers(), [1, 2, 3, 4, 5, 6])

    def test_sources_and_receipts_go_with_the_last_that_refers_to_them(self):
        self.stage(64, 7.5)  # 2.5 is only in generations now; 3 is in the staged set
        self.c("approve", key(64))
        self.stage(64, 8.5)
        done = json.loads(self.gc("--keep", "9", "--json")[0])
        self.assertEqual((done["receipts"], done["files"]), (0, []))
        done = json.loads(self.gc("--keep", "0", "--json")[0])
        self.assertEqual(done["receipts"], 1)  # that of 2.5; 7.5 is published, 8.5 staged
        published, staged = json.loads(self.c("cache show", "--json", key(64))[0])
        self.assertEqual((published["ratio"], staged["ratio"]), (7.5, 8.5))
        self.assertTrue(published["receipt"] and staged["receipt"])
        self.c("cache verify")

    def test_what_a_live_process_runs_stays(self):
        self.env["FIXTURE_GENERATION"] = hashlib.sha256((self.place / "1.mdb").read_bytes()).hexdigest()
        p = self.start(FIXTURE, "hold", self.dir / "runtime/kfit", "held", key(64), 1, 1,
                       stdin=subprocess.PIPE)
        self.addCleanup(p.communicate)
        p.stdout.readline()
        self.gc("--keep", "0")
        self.assertEqual(self.numbers(), [1, 6])


if __name__ == "__main__":
    main()
