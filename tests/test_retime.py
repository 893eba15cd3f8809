"""After an upgrade: winners found against one version of a library are judged again against the next. With a library
that any kernel beats, so that the outcome does not depend on how busy the machine is.
Arguments: see cli_helpers.py; then the library's two versions."""
import json
import os
import sys

OLD, NEW = map(os.path.abspath, sys.argv[5:7])
del sys.argv[5:7]

TRIES = 5  # noise is no finding: nothing is staged, and people try again

from cli_helpers import Case, key, main  # noqa: E402 (reads the arguments)


class Retime(Case):
    timeout = 250  # the device may be another's for a while

    def retime(self, *args, rc=0):
        out, err = self.c("cache retime", "--wait", "--json", *args, rc=rc)
        return {r["key"]: r for r in json.loads(out)}, err

    def tune(self, library):
        for _ in range(TRIES):
            self.c("tune", "--wait", "--generic", library, "-n", "2", "--seed", "3", "--key", key(64))
            if found := self.records("--staged"):
                break
        self.assertEqual(found[key(64)]["kind"], "winner", found)
        return found[key(64)]

    def test_a_winner_is_confirmed_in_the_new_environment(self):
        found = self.tune(OLD)
        self.c("approve", "--all")
        self.assertIn("0 stale, 1 not", self.c("retime", "--dry-run", "--generic", OLD)[1])
        self.assertEqual(self.retime("--generic", OLD)[0], {})
        out, err = self.c("retime", "--dry-run", "--generic", NEW)
        self.assertIn("1 stale, 0 not", err)
        self.assertIn("blas=PoorBLAS 1;", out)
        self.assertEqual(self.records("--staged")[key(64)], found)  # nothing was judged
        for _ in range(TRIES):
            out, err = self.c("retime", "--wait", "--json", "--generic", NEW, rc=None)
            done = {r["key"]: r for r in json.loads(out)}
            if done[key(64)]["outcome"] != "undecided":
                break
        self.assertEqual((done[key(64)]["outcome"], done[key(64)]["code"]), ("confirmed", ""), done)
        self.assertIn("1 confirmed, 0 retired, 0 undecided, 0 not stale; next", err)
        now = self.records("--staged")[key(64)]
        self.assertIn("blas=PoorBLAS 2;", now["environment_soft"])
        self.assertEqual([now[f] for f in ("source_digest", "image_bytes", "origin", "environment")],
                         [found[f] for f in ("source_digest", "image_bytes", "origin", "environment")])
        self.assertGreater(now["lo"], 1)
        receipt = json.loads(self.c("cache show", "--json", key(64))[0])[1]["receipt"]
        self.assertEqual((receipt["verdict"], receipt["origin"]["operator"]), ("promoted", "retime"))
        self.assertIn("fast", [g["name"] for g in receipt["gates"] if g["ok"]])
        self.assertIn("1 not stale", self.retime("--generic", NEW)[1])  # once is enough
        # servers see it when it is published
        self.assertIn("PoorBLAS 1", self.records()[key(64)]["environment_soft"])
        self.assertEqual([c["change"] for c in json.loads(self.c("review", "--json")[0])["changes"]], ["confirms"])
        self.c("approve", "--all")
        self.assertIn("PoorBLAS 2", self.records()[key(64)]["environment_soft"])

    def test_one_that_is_not_right_is_retired(self):
        self.fixture("stage", self.cache, key(64), 2.5)  # an image that returns at once
        self.fixture("stage", self.cache, key(128), 1.5)
        self.c("approve", "--all")
        done, err = self.retime("--generic", NEW, key(64))
        self.assertEqual(set(done), {key(64)})
        self.assertEqual((done[key(64)]["outcome"], done[key(64)]["code"]), ("retired", "wrong:unwritten"))
        self.assertIn("1 retired", err)
        self.assertEqual({k: r["kind"] for k, r in self.records("--staged").items()}, {key(64): "negative", key(128): "winner"})
        self.assertEqual([(c["key"], c["change"]) for c in json.loads(self.c("review", "--json")[0])["changes"]],
                         [(key(64), "withdraws")])
        self.assertIn("1 withdrawn", self.c("approve", "--all")[1])
        self.assertEqual(self.records()[key(64)]["kind"], "negative")

    def test_what_is_published_but_was_not_tuned_here(self):
        self.fixture("stage", self.cache, key(64), 2.5)
        self.c("approve", "--all")
        for name in ("data.mdb", "lock.mdb"):  # as after an import into a fresh cache
            (self.dir / "cache/store" / name).unlink()
        self.fixture("stage", self.cache, key(128), 1.0, "slow:tie")
        done, _ = self.retime("--generic", NEW)
        self.assertEqual((set(done), done[key(64)]["outcome"]), ({key(64)}, "retired"))

    def test_bad_input_is_refused(self):
        self.c("retime", "nonsense", rc=2)
        self.assertIn("neither a store nor", self.kfit("retime", "--cache", self.dir / "typo", rc=1)[1])
        self.assertFalse((self.dir / "typo").exists())


if __name__ == "__main__":
    main()
