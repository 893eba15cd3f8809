"""kfit status and kfit explain --pid: which processes run which generation, in what state, why. Arguments: see cli_helpers.py."""
import json
import pathlib
import re

from cli_helpers import Held, key, main


class Status(Held):
    def test_what_a_process_has_loaded(self):
        p = self.hold((key(64), 9, 4), fixture="3,0,12,2,5,1,7")
        (row,) = self.status()["processes"]
        self.assertEqual({k: v for k, v in row["loaded"].items() if k != "unix"},
                         {"winners": 12, "stale": 2, "negatives": 5, "banned": 1, "unusable": 7, "loads": 1})
        self.assertEqual((row["generation"], row["dispatching"], row["state"]), (3, True, "none"))
        out, _ = self.kfit("status", "--cache", self.cache, self.traces)
        self.assertRegex(out, r"generation 3 since 20\d\d-.*: 12 kernels loaded, 2 stale .*, 5 keys kept, 1 banned, "
                              r"7 not usable\n")
        self.kfit("off", "--cache", self.cache, self.traces)
        self.assertFalse(self.status()["processes"][0]["dispatching"])
        self.end(p)

    def test_an_older_trace_says_nothing_of_it(self):
        golden = pathlib.Path(__file__).parent / "golden"
        for name, loaded in [("trace-1.kft", False), ("trace-1-loaded.kft", True)]:
            out, _ = self.kfit("status", "--json", "--cache", self.cache, golden / name)
            (row,) = json.loads(out)["processes"]
            self.assertEqual(row["loaded"] is not None, loaded)
            self.assertEqual(row["job"], "job/29500" if loaded else "")
            out, _ = self.kfit("status", "--cache", self.cache, golden / name)
            self.assertEqual("kernels loaded" in out, loaded)

    def test_ranks_of_one_job_on_two_generations_are_flagged(self):
        job = {"MASTER_ADDR": "node7", "MASTER_PORT": "29500"}
        one = self.hold(fixture="3,0,1", RANK="1", **job)
        zero = self.hold(fixture="3,0,1", RANK="0", **job)
        self.hold(fixture="2,0,1", RANK="0", MASTER_ADDR="node7", MASTER_PORT="29501")  # another job
        self.hold(fixture="1,0,1")  # no rank, no job
        self.assertEqual(self.status()["mixed_generations"], [])
        self.assertNotIn("MIXED", self.kfit("status", self.traces)[0])
        self.tell(one, "g 4")
        (mixed,) = self.status()["mixed_generations"]
        self.assertEqual(mixed["job"], "node7/29500")
        self.assertEqual(mixed["ranks"], [{"rank": 0, "pid": zero.pid, "device": "host", "generation": 3},
                                          {"rank": 1, "pid": one.pid, "device": "host", "generation": 4}])
        out, _ = self.kfit("status", self.traces)
        self.assertIn(f"MIXED GENERATIONS in job node7/29500: rank 0 (pid {zero.pid}) has generation 3, "
                      f"rank 1 (pid {one.pid}) has generation 4; restart", out)
        self.tell(one, "g 0")
        self.assertIn(f"rank 1 (pid {one.pid}) has none", self.kfit("status", self.traces)[0])
        self.end(zero)  # one rank alone agrees with itself
        self.assertEqual(self.status()["mixed_generations"], [])

    def test_a_job_no_launcher_names_is_a_label_and_a_program(self):
        for label, rank, generation in [("a", 0, 1), ("a", 1, 2), ("b", 0, 1), ("b", 1, 1)]:
            self.hold(label=label, fixture=f"{generation},0,1", RANK=str(rank))
        self.assertEqual([m["label"] for m in self.status()["mixed_generations"]], ["a"])

    def test_the_current_generation_is_told(self):
        self.trace((key(64), 1, 0))
        self.assertIsNone(self.status()["current_generation"])
        self.fixture("stage", self.cache, key(64), 2.5)
        self.kfit("approve", "--all", "--cache", self.cache)
        self.assertEqual(self.status()["current_generation"], 1)
        self.assertIn("generation 1 is current", self.kfit("status", "--cache", self.cache, self.traces)[0])


class Explain(Held):
    """What a live process does with a key: its generation, not the current one; its environment and its bans."""

    def explain(self, *args, rc=0):
        return json.loads(self.kfit("explain", "--json", *args, rc=rc)[0])

    def setUp(self):
        super().setUp()
        self.fixture("stage", self.cache, key(64), 2.5)
        self.c("approve", "--all")

    def test_by_what_it_has_loaded(self):
        bans = key(256)
        p = self.hold((key(64), 9, 4), (key(128), 3, 0), fixture="1,0,1", KFIT_BAN=bans, KFIT_CACHE=self.cache)
        self.fixture("stage", self.cache, key(128), 2.0)
        self.c("approve", "--all")  # a later one, that the process does not have
        hit, near = self.explain("--pid", p.pid, key(64))[0], self.explain("--pid", p.pid, key(128))[0]
        self.assertEqual((hit["calls"], hit["hits"], hit["misses"], hit["dispatching"]), (9, 4, {"no_record": 5}, True))
        self.assertIn("runs a kfit kernel, 2.50x", hit["explanation"])
        self.assertIn("runs the original: no kernel for this key", near["explanation"])
        self.assertEqual(near["near_misses"], ["differs from a tuned key only in n: 128, tuned 64"])
        self.assertIn("the key is banned", self.explain("--pid", p.pid, bans)[0]["explanation"])
        self.assertEqual({k["key"] for k in self.explain("--pid", p.pid)}, {key(64), key(128)})
        out, _ = self.kfit("explain", "--pid", p.pid, key(64))
        self.assertRegex(out, rf"(?s)^{re.escape(key(64))}\n    process {p.pid} .*: generation 1; .*\n    runs a kfit kernel.*\n"
                              r"    called 9 times, 4 by a kfit kernel, 5 no_record\n$")
        self.assertNotIn("\x1b", out)
        self.kfit("off", "--cache", self.dir / "other", self.traces)
        out, _ = self.kfit("explain", "--pid", p.pid, key(64))
        self.assertIn("    runs the original: kfit is off", out)

    def test_a_process_that_has_loaded_nothing(self):
        p = self.hold((key(64), 9, 0), fixture="0,14")
        (k,) = self.explain("--pid", p.pid, key(64))
        self.assertEqual((k["generation"], k["dispatching"], k["calls"], k["explanation"]), (0, False, 9, ""))
        self.end(p)
        _, err = self.kfit("explain", "--pid", p.pid, key(64), rc=1)
        self.assertIn(f"process {p.pid} has no trace", err)
        for args in [(), ("--pid", "x"), ("--pid", 1, "nonsense")]:
            self.kfit("explain", *args, rc=2)


if __name__ == "__main__":
    main()
