"""The programs that need PyTorch or a GPU, as far as they go without: messages, intervals, and a story in which nothing works.

Arguments: the source folder."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1))
PROGRAMS = ["integrations/demo/torch_decode.py", "integrations/demo/torch_ranks.py", "tests/gpu/soak_torch.py"]


def load(path):
    spec = importlib.util.spec_from_file_location(pathlib.Path(path).stem, ROOT / path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Programs(unittest.TestCase):
    def setUp(self):
        temp = tempfile.TemporaryDirectory(prefix="kfit-torch-")
        self.addCleanup(temp.cleanup)
        self.dir = pathlib.Path(temp.name)

    def script(self, path, text):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\n" + text)
        path.chmod(0o755)
        return path

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
        key = "gemm/bf16,bf16,bf16/acc=f32/m=4,n=2048,k=1024/nt/lda=1024,ldb=1024,ldc=2048/alpha=1,beta=0/align=16"
        self.script(self.dir / "build/tests/gpu/bench_shim", "echo gemm_ex 50.0 40.0 60.0 5000.0")
        kfit = f"""
echo "[1/2] a message" >&2
value() {{ want=$1; shift; while [ "$1" != "$want" ]; do shift; done; echo "$2"; }}
case "$1 $2" in
"doctor "*) echo '[]' ;;
"run "*) t=$(value --trace "$@"); mkdir -p $t; : > $t/1-cuda0.kft; while [ "$1" != -- ]; do shift; done; shift; exec "$@" ;;
"trace ls") case "$*" in *off-*) h=0 ;; *) h=900 ;; esac; echo '[{{"path":"1-cuda0.kft","calls":1000,"hits":'$h'}}]' ;;
"trace export") echo '{{"keys":[{{"key":"{key}","calls":1000}}]}}' ;;
"cache ls") echo '[{{"key":"{key}","kind":"winner","ratio":1.5,"ns_candidate":2,"ns_incumbent":3}}]' ;;
"ab "*) echo '{{"metrics":[{{"ratio":1.2,"lo":1.1,"hi":1.3}}]}}' > $(value --out "$@") ;;
"report "*) for w in "$@"; do case $w in --json=*) echo '{{"keys":[{{"key":"{key}","verdict":"promoted"}}]}}' > ${{w#--json=}} ;; esac; done ;;
"tune "*|"approve "*|"off "*|"on "*|"explain "*) ;;
*) exit 9 ;;
esac"""
        python = """
[ "$1" = -c ] && echo 1
while [ $# -gt 0 ]; do [ "$1" = --json ] && echo '{"batches":[{"batch":4,"us":100.0,"rms_error":0.01,"gemm_share":0.8}],"calls":900}' > "$2"; shift; done
exit 0"""
        p, story = self.story(kfit, python, "--models", "m-tp4", "--batches", "4")
        self.assertEqual(p.returncode, 0, p.stdout + p.stderr)
        steps = {s["step"]: s for s in story["steps"]}
        self.assertEqual(steps["seen"]["results"]["keys"], {key: 1000})
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


if __name__ == "__main__":
    unittest.main()
