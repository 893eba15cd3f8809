"""The programs that need PyTorch or a GPU, as far as they go without: messages, intervals, and a story in which nothing works.

And collect.py, on a GPU that is none, with a kfit and a python that only pretend. Arguments: the source folder, the folder of the
test double."""
import importlib.util
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
import time
import unittest

ROOT, DOUBLE = pathlib.Path(sys.argv.pop(1)), sys.argv.pop(1)
PROGRAMS = ["integrations/demo/torch_decode.py", "integrations/demo/torch_ranks.py", "tests/gpu/soak_torch.py"]


def load(path):
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


KEY = "gemm/bf16,bf16,bf16/acc=f32/m=4,n=2048,k=1024/nt/lda=1024,ldb=1024,ldc=2048/alpha=1,beta=0/align=16"
KFIT = f"""
echo "[1/2] a message" >&2
value() {{ want=$1; shift; while [ "$1" != "$want" ]; do shift; done; echo "$2"; }}
case "$1 $2" in
"doctor "*) echo '[]' ;;
"run "*) t=$(value --trace "$@"); mkdir -p $t; : > $t/1-cuda0.kft; while [ "$1" != -- ]; do shift; done; shift; exec "$@" ;;
"trace ls") case "$*" in *off-*) h=0 ;; *) h=900 ;; esac; echo '[{{"path":"1-cuda0.kft","calls":1000,"hits":'$h',"graphs":{{"replays":7}}}}]' ;;
"trace export") echo '{{"keys":[{{"key":"{KEY}","calls":1000}}]}}' ;;
"cache ls") echo '[{{"key":"{KEY}","kind":"winner","ratio":1.5,"ns_candidate":2000,"ns_incumbent":3000}}]' ;;
"ab "*) echo '{{"pairs":6,"metrics":[{{"ratio":1.2,"lo":1.1,"hi":1.3,"off":12,"on":10}}]}}' > $(value --out "$@") ;;
"report "*) for w in "$@"; do case $w in --json=*) echo '{{"keys":[{{"key":"{KEY}","verdict":"promoted"}}]}}' > ${{w#--json=}} ;; esac; done ;;
"approve "*) c=$(value --cache "$@"); mkdir -p $c; : > $c/current ;;
"tune "*|"off "*|"on "*|"explain "*) ;;
*) exit 9 ;;
esac"""
DECODED = dict(layers=4, length=1024, tp=4, fused=True, batches=[dict(batch=4, steps=50, us=100.0, lo=99.0, hi=101.0, rms_error=0.01, gemm_share=0.8, gemm_us=80.0,
                                                                      all_us=100.0, ops=20)],
               shape="4,2048,1024", calls=900, elements=9000, outside=0, different=1, different_share=0.1, seconds=3, ok=True, ranks=[])
TELLS = "import json, time; print(json.dumps([[phase, time.monotonic_ns()] for phase in ('python', 'torch', 'gemm')]))"
PYTHON = f"""
case "$1" in */start_program.py) exec {sys.executable} -S -c "{TELLS}" ;; esac
[ "$1" = -c ] && case "$2" in *metadata*) echo '["2.0+none", {{{{}}}}, "/nowhere"]' ;; *) echo ${{{{GPUS:-1}}}} ;; esac
while [ $# -gt 0 ]; do [ "$1" = --json ] && echo '{json.dumps(DECODED).replace("{", "{{").replace("}", "}}")}' > "$2"; shift; done
exit 0""".format()


class Scripts(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory(prefix="kfit-torch-")
        self.addCleanup(temp.cleanup)
        self.dir = pathlib.Path(temp.name)

    def script(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return path


class Programs(Scripts):

    def test_without_pytorch_they_say_so(self):
        (self.dir / "torch.py").write_text("raise ImportError('no torch here')")
        for name in PROGRAMS[:2]:
            p = subprocess.run([sys.executable, ROOT / name], text=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(self.dir)})
            self.assertEqual(p.returncode, 1)
            self.assertEqual(p.stderr, f"{name.split('/')[-1]}: no torch here; this program needs PyTorch and transformers\n")

    def test_without_a_gpu_they_say_so(self):
        """On a PyTorch that is none."""
        (self.dir / "torch/nn").mkdir(parents=True)
        (self.dir / "torch/__init__.py").write_text("class cuda:\n    is_available = lambda: False\n    device_count = lambda: 0\n")
        for name in ("torch/nn/__init__.py", "torch/nn/functional.py", "transformers.py"):
            (self.dir / name).write_text("")
        for name in PROGRAMS:
            p = subprocess.run([sys.executable, ROOT / name], text=True, capture_output=True, env={**os.environ, "PYTHONPATH": str(self.dir)})
            self.assertEqual(p.returncode, 1, name)
            self.assertIn("PyTorch sees", p.stderr)
            self.assertNotIn("Traceback", p.stderr)

    def test_wrong_arguments(self):
        for more in ["--batches=0", "--batches=1,x", "--rounds=0"]:
            p = subprocess.run([sys.executable, ROOT / PROGRAMS[0], more], text=True, capture_output=True)
            self.assertEqual((p.returncode, "batches are numbers" in p.stderr), (2, True), p.stderr)

    def test_intervals_are_of_order_statistics(self):
        interval = load("integrations/demo/torch_decode.py").interval
        self.assertEqual(interval([5, 1, 3, 2, 4]), (3, 1, 5))  # five give no 95 %: all of them
        self.assertEqual(interval([6, 1, 2, 3, 4, 5]), (3.5, 1, 6))  # 2/64 outside
        self.assertEqual(interval(list(range(1, 21))), (10.5, 6, 15))  # as every table of the sign test has it

    def story(self, kfit, python, *more):
        build = self.dir / "build"
        self.script(build / "integrations/cli/kfit", kfit)
        p = subprocess.run([sys.executable, ROOT / "tests/gpu/story.py", self.dir / "out", "--build", build, "--python",
                            self.script(self.dir / "python", python), "--work", self.dir / "work", *more], text=True, capture_output=True, timeout=240)
        return p, json.loads((self.dir / "out/story.json").read_text())

    def test_a_story_in_which_nothing_works_is_told_to_its_end(self):
        p, story = self.story("echo no such luck >&2; exit 3", "exit 4")
        self.assertEqual(p.returncode, 1)
        self.assertEqual([s["step"] for s in story["steps"]],
                         ["doctor", "plain", "record", "seen", "tune", "approve", "dispatch", "off", "ab", "soak", "shim", "ranks", "report"])
        self.assertFalse(any(s["ok"] for s in story["steps"]))
        self.assertIn("status 3", story["steps"][5]["why"])
        self.assertIn("no such luck", story["steps"][5]["commands"][0]["tail"])
        self.assertEqual(len(story["summary"]), 8)

    def test_a_story_in_which_all_works(self):
        """With a kfit and a python that only pretend: what is asked of them, and what is made of their answers."""
        key = KEY
        self.script(self.dir / "build/tests/gpu/bench_shim", "echo gemm_ex 50.0 40.0 60.0 5000.0 100")
        kfit, python = KFIT, PYTHON
        p, story = self.story(kfit, python, "--models", "m-tp4", "--batches", "4")
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        steps = {s["step"]: s for s in story["steps"]}
        self.assertEqual(steps["seen"]["results"]["keys"], {"m-tp4": {key: 1000}})
        self.assertEqual(steps["tune"]["results"][0]["kind"], "winner")
        self.assertIn("--shape 4,2048,1024", steps["soak"]["commands"][1]["command"])
        self.assertEqual(steps["shim"]["results"]["rows"][0]["call"], "gemm_ex")
        self.assertEqual(steps["ranks"]["skipped"], "two GPUs are needed")
        self.assertEqual(steps["report"]["results"], {"keys": 1, "promoted": 1})
        self.assertEqual(story["summary"], [dict(model="m-tp4", batch=4, plain=100.0, record=100.0, dispatch=100.0, gemm_share=0.8, error=0.01,
                                                 error_dispatched=0.01, ab=[1.2, 1.1, 1.3])])

    def test_a_story_ends_in_time(self):
        p, story = self.story("echo []", "sleep 600 & sleep 600", "--budget", "12", "--steps", "doctor,plain,approve")
        self.assertEqual(p.returncode, 1)
        self.assertEqual([s["ok"] for s in story["steps"]], [True, False, False])
        self.assertIn("out of time", story["steps"][1]["why"])
        self.assertIn("no time left", story["steps"][2]["why"])


# what test_torch.py printed on a GPU, both streams in one file
DOTS = """\
.ok Dispatched.test_winners
.ok Dispatched.test_off

Fnot ok Dispatched.test_nothing_is_read
s  skipped: no compute-sanitizer
ok # SKIP Torch.test_skipped
E  a note
not ok Torch.test_broken
..ok Torch.test_two
======================================================================
FAIL: test_nothing_is_read (__main__.Dispatched.test_nothing_is_read)
----------------------------------------------------------------------
AssertionError: 9 != 0 : racecheck
======================================================================
ERROR: test_broken (__main__.Torch.test_broken)
----------------------------------------------------------------------
ValueError: no such thing

----------------------------------------------------------------------
Ran 6 tests in 22.700s
"""
SAYS = """
import sys, unittest
sys.argv[1:] = ["kfit", "fixture", "lib", "none"]
sys.path[:0] = [{tests!r}]
from cli_helpers import main
class A(unittest.TestCase):
    def test_good(self): pass
    def test_bad(self): self.assertEqual(1, 2)
    def test_none(self): self.skipTest("there is none")
    def test_odd(self): raise ValueError("odd")
main()
"""


class Outcomes(Scripts):
    """What is made of what a test's program printed."""

    def setUp(self):
        super().setUp()
        self.outcomes = load("tests/gpu/results.py").outcomes

    def found(self, text, *cases):
        return [tuple(r.get(n) for n in ("case", "result", "note")) for r in self.outcomes("torch", text, 1, cases)]

    def test_of_unittest_s_progress(self):
        self.assertEqual(self.found(DOTS, "Dispatched.test_winners", "Dispatched.test_off", "Dispatched.test_nothing_is_read", "Torch.test_skipped", "Torch.test_broken",
                                    "Torch.test_two", "Torch.test_missing"),
                         [("Dispatched.test_winners", "passed", None), ("Dispatched.test_off", "passed", None),
                          ("Dispatched.test_nothing_is_read", "failed", "AssertionError: 9 != 0 : racecheck"), ("Torch.test_skipped", "skipped", "no compute-sanitizer"),
                          ("Torch.test_broken", "failed", "ValueError: no such thing"), ("Torch.test_two", "passed", None),
                          ("Torch.test_missing", "failed", "exit status 1, and nothing was said of it")])

    def test_of_a_test_that_is_run(self):
        """A line of its own for each case, where both streams go to one file."""
        (self.dir / "says.py").write_text(SAYS.format(tests=str(ROOT / "tests")))
        p = subprocess.run([sys.executable, self.dir / "says.py"], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.assertEqual(re.findall(r"(?m)^(?:not )?ok .*", p.stdout), ["not ok A.test_bad", "ok A.test_good", "ok # SKIP A.test_none", "not ok A.test_odd"], p.stdout)
        self.assertEqual(self.found(p.stdout, "A.test_good", "A.test_bad", "A.test_none", "A.test_odd"),
                         [("A.test_good", "passed", None), ("A.test_bad", "failed", "AssertionError: 1 != 2"), ("A.test_none", "skipped", "there is none"),
                          ("A.test_odd", "failed", "ValueError: odd")])


# disturbed for up to 100 ms in one phase of five; SLOW: 40 ms more in the last
TORCH = """
import os, random, time
disturbed, late = random.randrange(5), random.random() / 10
def takes(phase, s=0.005):
    time.sleep(s + late * (phase == disturbed))
takes(0)
class cuda:
    init = lambda: takes(1)
    synchronize = lambda: None
class randn:
    def __init__(self, *shape, device):
        takes(3 if shape[0] == 1 else 2)
    to = lambda self, dtype: self
class no_grad:
    __enter__ = __exit__ = lambda *_: None
bfloat16 = None
"""
LINEAR = """
import os, torch
def linear(x, w):
    torch.takes(4, 0.045 if os.environ.get("SLOW") else 0.005)
"""


class Start(Scripts):
    """bench_start.py, on a PyTorch that only takes its time."""

    def setUp(self):
        super().setUp()
        (self.dir / "torch/nn").mkdir(parents=True)
        for name, text in (("__init__", TORCH), ("nn/__init__", ""), ("nn/functional", LINEAR)):
            (self.dir / f"torch/{name}.py").write_text(text)
        self.env = {**os.environ, "PYTHONPATH": str(self.dir)}
        self.bench = load("tests/gpu/bench_start.py")
        self.plain = [sys.executable, self.bench.PROGRAM]

    def test_what_a_phase_adds_is_found(self):
        found = self.bench.measure(dict(without=(self.plain, {}), record=(self.plain, dict(SLOW="1"))), 6, self.env)
        f, phases = found["record"], [list(found[way]["phases_s"].items()) for way in ("without", "record")]
        self.assertEqual([name for name, _ in phases[0]], ["python", "torch", "init", "context", "kernels", "gemm", "end"])
        self.assertTrue(25 < f["added_ms"] < 60, found)
        self.assertLess(f["lo"], f["hi"])
        self.assertEqual((len(f["seconds"]), len(f["cpu_s"]), len(f["halves_ms"])), (6, 6, 2))
        self.assertTrue(0.035 < dict(phases[1])["gemm"] - dict(phases[0])["gemm"] < 0.055, phases)
        self.assertLess(f["undisturbed_s"], f["best_s"])
        self.assertTrue(0 < f["cpu_s"][0] < f["seconds"][0], f)  # it sleeps most of the time
        self.assertEqual([found["without"][n] for n in ("added_ms", "lo", "hi", "best_added_ms", "median_added_ms", "cpu_added_ms")], [0] * 6)
        self.assertIn("; fastest ", self.bench.line("record", f))

    def test_a_disturbed_phase_of_a_round_does_no_harm(self):
        without = [dict(a=1.0, b=1.5), dict(a=1.3, b=1.0), dict(a=1.2, b=1.1), dict(a=1.0, b=1.0)]
        record = [dict(a=1.1, b=1.9), dict(a=1.6, b=1.0), dict(a=1.3, b=1.1), dict(a=1.2, b=1.3)]
        f = self.bench.estimate(record, without)
        self.assertEqual([round(v) for v in (f["added_ms"], *f["halves_ms"])], [100, 100, 200])  # 1.1 + 1.0 and 1.0 + 1.0; 2.2 and 2.1; 2.2 and 2.0
        self.assertTrue(f["lo"] <= 100 < 400 <= f["hi"], f)  # a round by itself may be drawn

    def test_the_time_it_may_take(self):
        found = self.bench.measure(dict(without=(self.plain, {})), 50, self.env, seconds=0)
        self.assertEqual(len(found["without"]["seconds"]), 2)

    def test_programs_that_fail_or_lie(self):
        for program, error in (("exit(3)", subprocess.CalledProcessError), ("print('[[\"python\", 5]]')", RuntimeError)):
            with self.assertRaises(error):
                self.bench.measure(dict(without=([sys.executable, "-c", program], {})), 1, self.env)


class Collect(Scripts):
    """A build folder of scripts; results/ as they are committed."""

    def setUp(self):
        super().setUp()
        self.build = self.dir / "build"
        self.script(self.build / "integrations/cli/kfit", KFIT)
        self.script(self.build / "tests/gpu/bench_shim", "for c in gemm_ex lt_matmul launch graph_launch; do if [ $1 = warm ]; then echo $c 25.0 24.9 25.1 2.0 100; else echo $c 50.0 40.0 60.0 5000.0 100; fi; done")
        self.script(self.build / "tests/gpu/graph_switch", """echo '{"what":"x","device":"d","runs":[{"way":"update","same":{"right":2,"of":2}}]}' > $1""")
        self.script(self.build / "a_test", """[ "$1" = -l ] && exec echo "one two three"
for c in "$@"; do case $c in one) echo "ok one" ;; two) printf "  it broke\\nnot ok two\\n"; bad=1 ;; three) printf "  skipped: no such thing\\nok # SKIP three\\n" ;; esac; done
exit ${bad:-0}""")
        (self.build / "meson-info").mkdir()
        self.suite([dict(name="a_test", cmd=[str(self.build / "a_test")], suite=["kfit:gpu"]), dict(name="not_a_gpu", cmd=["false"], suite=["kfit:unit"])])
        self.home("gpus 2")

    def suite(self, tests):
        (self.build / "meson-info/intro-tests.json").write_text(json.dumps(tests))

    def home(self, settings):
        (self.dir / "kfit-double").write_text(settings + "\n")

    def collect(self, *more, gpus=2):
        python = self.script(self.dir / "python", PYTHON)
        p = subprocess.run([sys.executable, ROOT / "tests/gpu/collect.py", self.build, self.dir / "out", "--python", python, "--commit", "abc1234", "--cublas", "/no/cublas",
                            "--story=--models m-tp4 --batches 4", *more], text=True, capture_output=True, timeout=100,
                           env={**os.environ, "LD_LIBRARY_PATH": DOUBLE, "HOME": str(self.dir), "GPUS": str(gpus)})
        self.said = {name: what for what, name in re.findall(r"(?m)^(ok|before|skipped|FAILED) +(\w+) +[0-9.]+ s ", p.stdout)}
        return p, {f.stem: json.loads(f.read_text()) for f in (self.dir / "out").glob("*.json")}

    def test_every_result_is_made(self):
        self.suite([])
        p, made = self.collect()
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        self.assertEqual(self.said, {n: "ok" for n in ("start", "shim", "switch", "unseen", "story", "soak", "ranks")}, p.stdout)
        self.assertEqual(set(made), {"start", "shim", "graph_switch", "decode", "soak", "ranks"} | set(made) & {"suite"})
        for name, r in made.items():
            self.assertEqual((r["device"], r["gpus"], r["torch"], r["commit"], r["driver"].split()[-1]), ("kfit test double", 2, "2.0+none", "abc1234", "13.0)"), name)
            self.assertTrue(r["command"] and r["what"], name)
            self.assertNotIn(str(self.dir / "build"), json.dumps(r), name)
        for name in ("decode", "soak", "ranks"):  # what README is made of has the form of what is committed
            committed = json.loads((ROOT / f"tests/gpu/results/{name}.json").read_text())
            self.assertEqual(set(committed) - set(made[name]), {"commits"} & set(committed), name)
        was = json.loads((ROOT / "tests/gpu/results/decode.json").read_text())["models"]["llama-3.1-8b-tp4"]
        now = made["decode"]["models"]["m-tp4"]
        self.assertEqual(set(was), set(now))
        for part in ("original", "dispatched", "ab"):
            self.assertLessEqual(set(was["batches"][0][part]), set(now["batches"][0][part]), part)
        self.assertEqual(now["batches"][0]["predicted_saved_us"], 20.0)  # 1000 calls in 50 steps, a microsecond each
        self.assertEqual(made["soak"]["trace"], dict(calls=1000, by_kfit=900, replays=7))
        self.assertEqual({r["way"]: r.get("within") for r in made["shim"]["rows"] if r["call"] == "launch"}, {"none": None, "record": False, "hit": None, "miss": False,
                                                                                                               "warm-none": None, "warm-record": True, "warm-miss": True})
        self.assertIn("in place, warm, goal in ns: gemm_ex +50 +25 60, lt_matmul +50 +25 120, ", p.stdout)
        with tarfile.open(self.dir / "out/raw.tar.gz") as tar:
            self.assertLessEqual({"shim/log.txt", "story/log.txt", "ranks/log.txt"}, set(tar.getnames()))
        self.assertLessEqual(len(list((self.dir / "out").iterdir())), 8)
        p, again = self.collect()
        self.assertEqual(set(self.said.values()), {"before"}, p.stdout)
        self.assertEqual(again, made)

    def test_one_that_fails_is_said_and_the_others_go_on(self):
        self.script(self.build / "integrations/cli/kfit", KFIT.replace('"tune "*|', '"tune "*) echo no such luck; exit 3 ;;\n'))
        self.script(self.build / "tests/gpu/graph_switch", "kill -9 $$")
        p, made = self.collect(gpus=1)
        self.assertEqual(p.returncode, 1)
        self.assertEqual(self.said, dict(start="ok", shim="ok", switch="FAILED", unseen="FAILED", story="FAILED", soak="ok", ranks="skipped"), p.stdout)
        self.assertIn("two: it broke; skipped: three (no such thing)", p.stdout)
        self.assertIn("no such luck", p.stdout)
        self.assertIn("two GPUs are needed", p.stdout)
        self.assertNotIn("hit", {r["way"] for r in made["shim"]["rows"]})
        cases = {r["case"]: r for r in made["suite"]["cases"] if r["test"] == "a_test"}
        self.assertEqual([(c, r["result"], r["commit"]) for c, r in cases.items()], [("one", "passed", "abc1234"), ("two", "failed", "abc1234")])
        committed = json.loads((ROOT / "tests/gpu/results/suite.json").read_text())["cases"]
        changed = {"Torch.test_a_process_starts_as_fast"}
        self.assertEqual([r for r in made["suite"]["cases"] if r["test"] != "a_test" and r["case"] not in changed], [r for r in committed if r["case"] not in changed])

    def test_of_many_that_fail_the_first_are_said_too(self):
        cases = [f"case_{i:02}_of_a_long_name" for i in range(40)]
        self.script(self.build / "a_test", f"""[ "$1" = -l ] && exec echo "{' '.join(cases)}"
for c in "$@"; do printf "  it broke as $c did\\nnot ok $c\\n"; done; exit 1""")
        p, _ = self.collect("--parts", "unseen")
        self.assertEqual(p.returncode, 1)
        said = re.findall(r"(?m)^FAILED +unseen .*", p.stdout)
        self.assertEqual(len(said), 2, p.stdout)  # when it ended, and in the table
        for line in said:
            self.assertIn("40 failed: case_00_of_a_long_name: it broke as case_00", line)
            self.assertIn("case_39_of_a_long_name: it broke as case_39_of_a_long_name did", line)
            self.assertLess(len(line), 700)

    def test_why_the_control_of_switch_failed(self):
        good = dict(status=0, error="", replay="", right=5, of=5, back=True)
        run = {"way": "original", "nodes": 50, "made": dict(right=50), "same": good, "pair": dict(good, back=False), "cluster": dict(good, error="CUDA_ERROR_X", right=0),
               "off": dict(good, right=3), "all": dict(right=45, right_back=45), "ended": 0}
        runs = [run, dict(run, way="swap"), dict(run, nodes=45), {"way": "original", "nodes": 500, "ended": -11}]
        self.script(self.build / "tests/gpu/graph_switch", f"""echo '{json.dumps(dict(what="x", device="d", runs=runs))}' > $1; echo a table; exit 1""")
        p, made = self.collect("--parts", "switch")
        self.assertEqual((p.returncode, len(made["graph_switch"]["runs"])), (1, 4))
        self.assertIn("the control failed: 50 nodes: all at once: 45 of 50 right, pair does not come back, cluster: CUDA_ERROR_X, off: 3 of 5; "
                      "500 nodes: exit status -11, all at once was not reached\n", p.stdout)
        self.assertNotIn("a table", p.stdout)

    def test_it_ends_in_time(self):
        self.script(self.build / "tests/gpu/graph_switch", "sleep 60 & sleep 60")
        begun = time.monotonic()
        p, made = self.collect("--seconds", "24", "--parts", "switch,start,soak,ranks")
        self.assertLess(time.monotonic() - begun, 45)
        self.assertEqual((p.returncode, self.said), (1, dict(switch="FAILED", start="skipped", soak="skipped", ranks="skipped")), p.stdout)
        self.assertIn("story has left no generation", p.stdout)
        self.assertRegex(p.stdout, "start +0.0 s +140 s are needed, [0-9]+ are left")
        self.assertIn("out of time", p.stdout)
        self.assertEqual(made, {})

    def test_the_driver_s_version(self):
        sys.path.insert(0, str(ROOT / "tests/gpu"))
        self.addCleanup(sys.path.pop, 0)
        driver_of = load("tests/gpu/collect.py").driver_of
        self.assertEqual(driver_of("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build  (root@host)\nGCC version: 13"), "580.159.04")
        self.assertEqual(driver_of("NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.54.03  Tue Jun  6 22:20:39 UTC 2023\n"), "535.54.03")
        self.assertEqual(driver_of(""), "unknown")

    def test_no_gpu_no_build_no_commit(self):
        self.home("gpus 0")
        p, _ = self.collect()
        self.assertEqual((p.returncode, p.stdout[:8]), (77, "skipped:"), p.stderr)
        p = subprocess.run([sys.executable, ROOT / "tests/gpu/collect.py", self.dir, self.dir], text=True, capture_output=True)
        self.assertEqual((p.returncode, "build first" in p.stderr), (2, True))
        p, _ = self.collect("--parts", "everything")
        self.assertEqual((p.returncode, "no such part: everything" in p.stderr), (2, True))


if __name__ == "__main__":
    unittest.main()
