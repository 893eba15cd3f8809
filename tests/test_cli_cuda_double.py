"""kfit eval, doctor and cache show with a GPU, on the double of one. Arguments: see cli_helpers.py; KFIT_DOUBLE names its folder."""
import json
import os
import unittest

from cli_helpers import SANITIZER, Case, main

DOUBLE = os.environ["KFIT_DOUBLE"]
GPU = "GPU-d0d0d0d0-d0d0-d0d0-d0d0-d0d0d0d0d0d0"
SHAPE = "gemm/bf16,bf16,bf16/acc=f32/m=4,n=32,k=32/nt/lda=32,ldb=32,ldc=40/alpha=1,beta=0/align=16"
SOURCE = """/* kfit-candidate 1
{"op":"gemm","name":"%s","device":"cuda","arch":">=80","launches":[{"entry":"kfit_main","grid":[4,1,1],"block":[64,1,1]}]}
*/
// double: ns=5000
extern "C" __global__ void kfit_main(const short *a, const short *b, short *c,%s unsigned *ws) {}
"""


class OnADouble(Case):
    def setUp(self):
        super().setUp()
        os.symlink(DOUBLE + "/libcuda.so.1", self.dir / "libcuda.so.1")
        self.env.update(LD_LIBRARY_PATH=str(self.dir), KFIT_NVRTC=DOUBLE + "/libnvrtc.so.13")

    def source(self, name, bias=False):
        path = self.dir / f"{name}.cu"
        path.write_text(SOURCE % (name, " const short *bias," if bias else ""))
        return path

    def eval(self, name, key, rc=0, bias=False):
        # --wait: another run of this test has the same GPU
        return self.c("eval", "--wait", "--key", key, "--generic", DOUBLE + "/libcublas.so.13", "--trusted", self.source(name, bias), rc=rc)

    def test_a_bias_and_a_batch_are_judged(self):
        out, _ = self.eval("right", SHAPE + "/epi=bias", bias=True)
        self.assertRegex(out, r"(?m)^promoted$")
        self.assertRegex(out, r"(?m)^gate +clocks +ok at 1 against 1 kernels a call, 2\.0000 by kernel time$")
        self.assertRegex(out, r"(?m)^timing +cold by the cupti clock: 5\.00 us against 10\.0 us")
        out, _ = self.eval("no_bias", SHAPE + "/epi=bias", rc=1, bias=True)
        self.assertRegex(out, r"(?m)^refused wrong:values$")
        self.eval("right", SHAPE + "/batch=3,sa=128,sb=1024,sc=160")
        out, _ = self.eval("first_matrix", SHAPE + "/batch=3,sa=128,sb=1024,sc=160", rc=1)
        self.assertRegex(out, r"(?m)^refused wrong:partial$")
        _, err = self.eval("right", SHAPE + "/batch=3,sa=128,sb=1024,sc=160/epi=bias", rc=1, bias=True)
        self.assertIn("no call that a framework makes", err)

    def test_without_cupti_the_receipt_says_so(self):
        self.env["KFIT_CUPTI"] = "/nowhere/libcupti.so"
        out, _ = self.eval("right", SHAPE)
        self.assertRegex(out, r"(?m)^promoted$")
        self.assertRegex(out, r"(?m)^gate +clocks +ok at NOT CHECKED: KFIT_CUPTI names /nowhere")
        self.assertRegex(out, r"(?m)^detail +kernel times not checked: KFIT_CUPTI names /nowhere/libcupti.so")
        (found,) = json.loads(self.c("doctor", "--json", "cupti")[0])
        self.assertEqual(found["level"], "warn")
        self.assertIn("/nowhere/libcupti.so", found["text"])
        self.assertIn("every receipt says so", found["advice"])

    def test_ceilings_are_measured_once_and_shown(self):
        (found,) = json.loads(self.c("doctor", "--json", "ceilings")[0])
        self.assertIn("no GPU measured yet", found["text"])
        self.eval("right", SHAPE)
        line = f"{GPU}, kfit test double, sm_90a, CUDA 13.0: read 0.1 MB in 525 ns"
        (found,) = json.loads(self.c("doctor", "--json", "ceilings")[0])
        self.assertIn(line, found["text"])
        self.assertIn("bf16 800.0 TFLOP/s", found["text"])
        out, _ = self.c("cache show", SHAPE)
        self.assertIn("device " + line, out)
        (self.dir / "kfit-double").write_text("read_bytes_per_ns 1000\n")
        self.eval("right", SHAPE)
        self.assertIn(line, self.c("cache show", SHAPE)[0])
        (self.dir / "kfit-double").write_text("read_bytes_per_ns 1000\ndriver 12080\n")
        self.eval("right", SHAPE)
        self.assertIn("CUDA 12.8: read 0.1 MB in 600 ns", self.c("cache show", SHAPE)[0])

    def test_doctor_names_the_gpu_of_the_lock(self):
        (found,) = json.loads(self.c("doctor", "--json", "lock")[0])
        self.assertIn(GPU, found["text"])

    def doctor(self, check):
        (found,) = json.loads(self.c("doctor", "--json", check)[0])
        return found

    @unittest.skipIf(SANITIZER != "none", "a shim with a sanitizer cannot be preloaded")
    def test_doctor_counts_the_calls_of_a_program(self):
        for name in ["libcublas.so.13", "libcublasLt.so.13"]:
            os.symlink(f"{DOUBLE}/{name}", self.dir / name)
        found = self.doctor("hooks")
        self.assertEqual(found["text"], "5 calls and 8 replays of captured ones were made, 13 counted")
        self.assertEqual((found["level"], found["advice"]), ("ok", ""))
        self.assertEqual([f for f in os.listdir(self.dir / "runtime/kfit") if f.startswith("run-")], [])  # nothing is left
        self.env["LD_LIBRARY_PATH"] = "/nowhere"
        found = self.doctor("hooks")
        self.assertEqual((found["level"], found["advice"]), ("warn", "needed for --device=cuda only"))

    @unittest.skipIf(SANITIZER != "none", "a library without a sanitizer cannot be preloaded into a program with one")
    def test_doctor_names_other_preloaded_libraries(self):
        self.assertEqual(self.doctor("preloads")["text"], "nothing else is preloaded")
        self.env["LD_PRELOAD"] = f"{DOUBLE}/libcuda.so.1:/nowhere/libkfit_preload.so"
        found = self.doctor("preloads")
        self.assertEqual(found["level"], "warn")
        self.assertRegex(found["text"], rf"^LD_PRELOAD: {DOUBLE}/libcuda.so.1 defines .*cuLaunchKernelEx.*")
        self.assertNotIn("libkfit", found["text"])
        self.assertIn("the line hooks", found["advice"])
        del self.env["LD_PRELOAD"]
        (self.dir / "ld.so.preload").write_text("# /one.so\n/two.so:three.so\n")
        rc, out, _ = self.private('mount --bind "$1" /etc || exit 99; exec "$K" doctor preloads', self.dir)
        self.assertEqual(rc, 0)
        self.assertIn("/etc/ld.so.preload: /two.so (cannot be read); /etc/ld.so.preload: three.so (found by the loader", out)

    def test_doctor_says_what_a_container_lacks(self):
        (self.dir / "nvidia").mkdir()
        (self.dir / "nvidia/version").write_text("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n")
        script = 'mount --bind "$1" /proc/driver || exit 99; exec "$K" doctor gpu'
        _, out, _ = self.private(script, self.dir)
        self.assertIn("driver 580.95.05 for CUDA 13.0", out)
        self.env["LD_LIBRARY_PATH"] = "/nowhere"
        _, out, _ = self.private(script, self.dir)
        self.assertRegex(out, r"(?s)^warn gpu .*kernel module 580\.95\.05 is loaded: a container")


if __name__ == "__main__":
    main()
