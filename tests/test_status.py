"""kfit status: which processes run which generation, in what state, why. Arguments: see cli_helpers.py."""
import json
import pathlib

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
        self.assertEqual(mixed["ranks"], [{"rank": 0, "pid": zero.pid, "generation": 3},
                                          {"rank": 1, "pid": one.pid, "generation": 4}])
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


if __name__ == "__main__":
    main()
