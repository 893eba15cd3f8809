"""PyTorch on a real GPU under the shim, as a person has it there: recorded, tuned, approved, dispatched. Arguments: see
cli_helpers.py, then torch_cases.py.

The interpreter is $KFIT_TEST_PYTHON, else python3. Exit status 77 where it has no PyTorch or sees no GPU."""
import glob
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

CASES = os.path.abspath(sys.argv.pop(5))
DEMO = pathlib.Path(__file__).resolve().parent.parent.parent / "integrations/demo"
sys.path[:0] = [str(pathlib.Path(__file__).resolve().parent.parent), str(pathlib.Path(__file__).resolve().parent)]
import bench_start  # noqa: E402
from cli_helpers import KFIT, SANITIZER, Case, main  # noqa: E402

PYTHON = os.environ.get("KFIT_TEST_PYTHON", "python3")
EVALUATIONS = int(os.environ.get("KFIT_TEST_EVALUATIONS", "4"))


def why_not():
    """Why there is nothing to test on, or None."""
    if SANITIZER != "none":
        return "a shim with a sanitizer cannot be preloaded"
    p = subprocess.run([PYTHON, "-c", "import torch; print(torch.cuda.is_available()); print(torch.__file__)"], text=True, capture_output=True)
    if p.returncode:
        return f"{PYTHON} has no PyTorch; KFIT_TEST_PYTHON names one that has"
    seen, path = p.stdout.split("\n")[:2]
    global SITE
    SITE = pathlib.Path(path).parent.parent
    return None if seen == "True" else "PyTorch sees no GPU"


def generic():
    """The libcublas that this PyTorch loads, as kfit tune takes it."""
    folder = SITE / "nvidia"
    return ["--generic", str(folder)] if folder.is_dir() else []


class Programs(Case):
    timeout = 300

    def finish(self, p):
        """Its output; what takes too long is ended, so that the next case has the GPU to itself."""
        try:
            return p.communicate(timeout=self.timeout)
        except subprocess.TimeoutExpired:
            p.terminate()  # kfit run passes it on
            out, err = p.communicate(timeout=30)
            self.fail(f"longer than {self.timeout} s\n{out[-3000:]}\n{err[-3000:]}")

    def run_case(self, name, *kfit_run, **env):
        """What a case printed, and its trace of the GPU (None where there is none)."""
        traces = self.dir / f"traces-{len(list(self.dir.glob('traces-*')))}"
        self.env.update(env)
        p = self.start(KFIT, "run", "--quiet", "--trace", traces, *kfit_run, "--", PYTHON, CASES, name)
        for n in env:
            del self.env[n]
        out, err = self.finish(p)
        self.assertEqual(p.returncode, 0, f"{name}\n{out}\n{err}")
        found = glob.glob(f"{traces}/*-cuda0.kft")
        self.assertLessEqual(len(found), 1, found)
        return json.loads(out.splitlines()[-1]), self.read(found[0]) if found else None

    def plain(self, name, **env):
        """The same without kfit."""
        p = subprocess.run([PYTHON, CASES, name], text=True, capture_output=True, timeout=self.timeout, env={**self.env, **env})
        self.assertEqual(p.returncode, 0, p.stderr)
        return json.loads(p.stdout.splitlines()[-1])

    def read(self, path):
        trace = json.loads(self.kfit("trace", "export", path)[0])
        (trace["ls"],) = json.loads(self.kfit("trace", "ls", "--json", path)[0])
        trace["path"] = path
        return trace

    def counted(self, name, **env):
        """Runs a case and compares its counts, key by key, with what it expects."""
        result, trace = self.run_case(name, **env)
        keys = {k["key"]: k["calls"] for k in trace["keys"]} if trace else {}
        seen = {}
        for beginning, part, calls in result["expect"]:
            mine = {k: c for k, c in keys.items() if k.startswith(beginning) and (part in k if part else not any(p in k for p in ("/batch=", "/epi=")))}
            self.assertEqual(sum(mine.values()), calls, f"{beginning}... {part}: {keys}, not a key: {trace and trace['unkeyed']}")
            seen.update(mine)
        self.assertEqual(keys.keys() - seen.keys(), set(), "keys that nobody expected")
        if result.get("exact"):
            self.assertIn(result["exact"], keys)
        return result, trace


class Torch(Programs):
    """What is recorded."""

    def test_linear_has_its_key_for_inputs_of_any_rank(self):
        _, trace = self.counted("linear")
        self.assertEqual(trace["ls"]["calls"], 6)

    def test_linear_has_its_key_by_cublaslt_too(self):
        self.counted("linear", TORCH_BLAS_PREFER_CUBLASLT="1")

    def test_a_bias_is_an_epilogue(self):
        self.counted("bias")

    def test_matmul_is_not_transposed(self):
        self.counted("matmul")

    def test_bmm_is_one_call(self):
        self.counted("bmm")

    def test_cublas_by_a_pointer_of_dlsym(self):
        result, _ = self.counted("taken")
        self.assertLess(result["error"], 0.02)

    def test_types(self):
        self.counted("types")

    def test_replays_are_counted(self):
        _, trace = self.counted("graph")
        self.assertEqual(trace["ls"]["calls"], 3 * 1003)
        graphs = trace["ls"]["graphs"]
        self.assertEqual((graphs["made"], graphs["replays"], graphs["calls_lost"], graphs["holding_kernels"]), (1, 1000, 0, 0))

    def test_a_first_call_in_a_capture(self):
        result, _ = self.counted("graph_first")
        self.assertLess(result["error"], 0.02)

    def test_an_updated_graph(self):
        result, _ = self.counted("graph_update")
        self.assertEqual(result["update"], 0, "cudaGraphExecUpdate")
        self.assertTrue(result["fresh"])

    def test_compiled_with_reduced_overhead(self):
        result, _ = self.counted("compiled")
        self.assertLess(result["error"], 0.02)

    def test_triton_and_inductor(self):
        result, trace = self.counted("others")
        self.assertLess(result["error"], 1e-4)
        names = [k["name"] for k in trace["kernels"]]
        self.assertTrue(any("double_it" in n for n in names), names)
        self.assertTrue(any(n.startswith("triton_") for n in names), names)  # Inductor's

    def test_the_profiler_sees_as_much(self):
        result, _ = self.counted("profiled")
        self.assertEqual(result["ops"], 8)
        self.assertGreaterEqual(result["on_gpu"], 8)
        self.assertEqual(self.plain("profiled")["ops"], 8)

    def test_a_model_makes_as_many_calls_as_its_profile_says(self):
        """torch_decode.py's steps, most of them in a graph, times the GEMM ops that torch.profiler saw in one of them."""
        for model, more in (("qwen3.5-122b-attn-tp4", []), ("llama-3.1-8b-tp4", ["--unfused"])):
            traces, file = self.dir / model, self.dir / f"{model}.json"
            self.kfit("run", "--trace", traces, "--", PYTHON, DEMO / "torch_decode.py", "--model", model, "--layers", 2, "--batches", "4", "--rounds", 3,
                      "--launches", 5, "--length", 128, "--share", "--json", file, *more)
            (batch,) = json.loads(file.read_text())["batches"]
            (path,) = glob.glob(f"{traces}/*-cuda0.kft")
            self.assertEqual(batch["ops"] % 2, 0)
            calls = sum(k["calls"] for k in self.read(path)["keys"] if "/bf16," in k["key"])  # others place the rotary embedding, once
            self.assertEqual(calls, batch["ops"] * batch["steps"], batch)
            self.assertTrue(0.1 < batch["gemm_share"] < 1, batch)

    def test_a_process_starts_as_fast(self):
        """With one recorded call, against processes without kfit, in turn."""
        found = bench_start.measure(bench_start.commands(KFIT, PYTHON, self.dir), rounds=6, env=self.env)
        for way, f in found.items():
            print("  " + bench_start.line(way, f), flush=True)
        self.assertLess(found["record"]["added_ms"], bench_start.GOAL_MS)


class Dispatched(Programs):
    """On a generation that was tuned here, for the shapes of the case `shapes`."""

    shared = None

    def setUp(self):
        super().setUp()
        if Dispatched.shared is None:
            self.tune()
        self.cache = Dispatched.shared

    def tune(self):
        result, trace = self.counted("shapes")
        self.cache = tempfile.mkdtemp(prefix="kfit-torch-") + "/cache"
        unittest.addModuleCleanup(shutil.rmtree, os.path.dirname(self.cache))
        _, err = self.c("tune", "--wait", "--evaluations", EVALUATIONS, "--seed", 1, *generic(), trace["path"], rc=None)
        self.assertIn("cuBLAS", err)
        out, _ = self.c("approve", "--all")
        self.assertRegex(out, r"generation 1: [1-9]", "nothing was promoted: is the GPU in use by others?")
        Dispatched.winners = sum(r["kind"] == "winner" for r in self.records().values())
        Dispatched.shared = self.cache

    def dispatched(self, name, hits=True, **env):
        result, trace = self.run_case(name, "--cache", self.cache, **env)
        self.assertIsNotNone(trace)
        if hits is True:
            self.assertGreater(trace["ls"]["hits"], 0, trace)
        else:
            self.assertEqual(trace["ls"]["hits"], 0, trace)
        return result, trace

    def test_winners_keep_the_rule_of_accuracy(self):
        without = self.plain("dispatched")
        result, trace = self.dispatched("dispatched")
        self.assertGreaterEqual(trace["ls"]["hits"], Dispatched.winners * 6 * 4)
        for shape, found in result["found"].items():
            self.assertTrue(found["graph_same"], f"{shape}: another result from a graph")
            for i, ((odd, outside, n), (odd_generic, _, _)) in enumerate(zip(found["rows"], without["found"][shape]["rows"])):
                self.assertEqual(outside, 0, f"{shape}, distribution {i}")
                self.assertLessEqual(odd / n, max(4 * odd_generic / n, 0.01), f"{shape}, distribution {i}")

    def test_ab_measures_steps_in_one_process(self):
        """The router of this model at batch 4 is among the shapes tuned."""
        out = self.dir / "ab.json"
        self.c("ab --phases 2 --pairs 2 --lower --quiet", "--metric", "^step batch=4 us=([0-9.]+)", "--out", out, "--", PYTHON, DEMO / "torch_decode.py",
               "--model", "qwen3.5-122b-attn-tp4", "--layers", 2, "--batches", "4", "--rounds", 5, "--length", 128, "--forever")
        found = json.loads(out.read_text())
        self.assertEqual(found["pairs"], 2)
        self.assertGreater(found["metrics"][0]["off"], 10)
        self.assertTrue(0.5 < found["ratio"] < 2, found)
        if any("n=256,k=3072" in k for k, r in self.records().items() if r["kind"] == "winner"):
            self.assertGreater(found["replaced"], 0)

    def test_one_shape_on_two_streams(self):
        result, _ = self.dispatched("streams")
        self.assertEqual((result["wrong"], result["in_graphs"]), (0, 0))

    def test_what_a_handle_is_told(self):
        result, trace = self.dispatched("modes")
        self.assertEqual(result["wrong"], [0] * 6)
        self.assertEqual([trace["unkeyed"].get(r, 0) for r in ("pointer_mode", "flags", "stream_state")], [2, 1, 0])
        self.assertEqual((trace["ls"]["calls"], trace["ls"]["hits"]), (6, 3))

    def test_other_alphas_and_betas_stay_with_the_original(self):
        result, _ = self.dispatched("beta", hits=False)
        self.assertLess(result["error"], 0.02)

    def test_float8_stays_with_the_original(self):
        result, trace = self.run_case("scaled", "--cache", self.cache)
        self.assertEqual(result["digest"], self.plain("scaled")["digest"])
        self.assertEqual(trace["ls"]["hits"] if trace else 0, 0)

    def test_a_pinned_workspace_means_the_original(self):
        self.dispatched("shapes", hits=False, CUBLAS_WORKSPACE_CONFIG=":4096:8")

    def test_off_names_the_graphs_that_go_on(self):
        here = self.dir / "runtime/kfit"  # no other process of this machine is meant
        p = self.start(KFIT, "run", "--quiet", "--cache", self.cache, "--trace", self.dir / "traces-held", "--", PYTHON, CASES, "held",
                       stdin=subprocess.PIPE)
        self.addCleanup(self.c, "on", here, rc=None)
        self.addCleanup(lambda: p.returncode is None and (p.terminate(), p.communicate()))
        self.assertEqual(p.stdout.readline(), "ready\n")
        (live,) = [t for t in json.loads(self.kfit("trace", "ls", "--json", here)[0]) if t["device"] == "cuda0" and t["alive"]]
        self.assertGreaterEqual(live["hits"], 100 * Dispatched.winners)
        self.assertEqual(live["graphs"]["holding_kernels"], 1)
        self.assertTrue(0 < live["share_known_ops"] < 1, live)  # relu is not known
        out, err = self.c("off", "--json", here, rc=1)
        (row,) = [r for r in json.loads(out) if r["device"] == "cuda0"]
        self.assertEqual((row["reached"], len(row["graphs"])), (True, 1))
        self.assertRegex(err, rf"process {row['pid']} .*: on cuda0, graph {row['graphs'][0]} still replays kernels of kfit's")
        p.stdin.write("\n")
        p.stdin.flush()
        self.assertEqual(p.stdout.readline(), "ready\n")  # captured again
        self.c("off", here)
        _, err = self.c("on", here)
        self.assertRegex(err, "on cuda0, graph [0-9]+ still replays what was captured while kfit was off")
        p.stdin.write("\n")
        p.stdin.flush()
        self.assertEqual(p.stdout.readline(), "gone\n")
        self.assertNotIn("graph", self.c("on", here)[1])
        p.communicate("\n", timeout=60)
        self.assertEqual(p.returncode, 0)
        (path,) = glob.glob(f"{self.dir}/traces-held/*-cuda0.kft")
        (trace,) = json.loads(self.kfit("trace", "graphs", "--json", path)[0])
        self.assertEqual([(g["state"], g["launches"]) for g in trace["graphs"]], [("gone", 100), ("gone", 100)])
        decided = [[i["decision"] for i in g["items"] if "key" in i] for g in trace["graphs"]]
        self.assertEqual([d.count("kfit") for d in decided], [Dispatched.winners, 0])
        self.assertEqual(decided[1], ["off"] * 3)
        (group,) = json.loads(self.kfit("trace", "kernels", "--json", path)[0])
        others = sum(k["launches"] - k["in_known_ops"] for k in group["kernels"])  # relu, and few more before
        self.assertTrue(600 <= others < 700, group["kernels"])

    def test_off_in_the_environment(self):
        _, trace = self.run_case("shapes", "--mode", "record")
        self.assertEqual(trace["ls"]["hits"], 0)

    def test_nothing_is_read_or_written_that_is_not_ours(self):
        """Our kernels under compute-sanitizer, in the process of PyTorch."""
        tool = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
        if not os.path.exists(tool):
            self.skipTest("no compute-sanitizer")
        tuned = [k for k, r in self.records().items() if r["kind"] == "winner" and "/m=1,n=1024,k=3072/" in k]  # what `first` calls
        self.assertEqual(len(tuned), 1, "that shape has no winner: nothing of ours would run")
        for check, more in (("memcheck", ["--report-api-errors", "no"]), ("racecheck", [])):  # PyTorch asks for what may fail
            p = self.start(KFIT, "run", "--quiet", "--cache", self.cache, "--trace", self.dir / f"traces-{check}", "--", tool, "--tool", check, *more,
                           "--target-processes", "all", "--kernel-name", "kernel_substring=kfit_", "--error-exitcode", 9, PYTHON, CASES, "first")
            out, err = self.finish(p)
            if "Device not supported" in out + err:
                self.skipTest(f"{check}: this machine does not let compute-sanitizer have the device")
            self.assertEqual(p.returncode, 0, f"{check}\n{out[-3000:]}\n{err[-3000:]}")
            self.assertIn("ERROR SUMMARY: 0 errors" if check == "memcheck" else "RACECHECK SUMMARY: 0 hazards", out + err)
            found = glob.glob(f"{self.dir}/traces-{check}/*-cuda0.kft")
            self.assertEqual(len(found), 1, f"{check}: no trace: was the shim in that process?\n{out[-3000:]}\n{err[-3000:]}")
            self.assertGreater(self.read(found[0])["ls"]["hits"], 0, check)


if __name__ == "__main__":
    reason = why_not()
    if reason:
        print("skipped:", reason)
        sys.exit(77)
    main()
