"""kfit on a real GPU, as a person uses it: tune a list of keys, report, approve, look. Arguments: kfit, and a kernel that
writes nothing.

KFIT_GENERIC names the libcublas to beat, or a folder with one. Exit status 77 where there is no GPU."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

KFIT, NOTHING = map(os.path.abspath, sys.argv[1:3])
KEY = "gemm/bf16,bf16,bf16/acc=f32/m=%d,n=%d,k=%d/nt/lda=%d,ldb=%d,ldc=%d/alpha=1,beta=0/align=16"
KEYS = [KEY % (m, n, k, k, k, n) for m, n, k in [(1, 1024, 3072), (4, 2048, 2048)]]
F64 = "gemm/f64,f64,f64/acc=f64/m=4,n=64,k=64/nn/lda=64,ldb=64,ldc=64/alpha=1,beta=0/align=16"
GENERIC = ["--generic", os.environ["KFIT_GENERIC"]] if os.environ.get("KFIT_GENERIC") else []


def kfit(*args, rc=0):
    p = subprocess.run([KFIT, *map(str, args)], text=True, capture_output=True, timeout=300)
    print("$ kfit", *args, f"\n{p.stdout}{p.stderr}", flush=True)
    assert rc is None or p.returncode == rc, f"exit status {p.returncode}, expected {rc}"
    return p.stdout, p.stderr


def main():
    checks = {c["check"]: c for c in json.loads(kfit("doctor", "--json", rc=None)[0])}
    if checks["gpu"]["level"] != "ok":
        print("skipped:", checks["gpu"]["text"])
        return 77
    with tempfile.TemporaryDirectory(prefix="kfit-cli-cuda-") as temp:
        cache, keys = ["--cache", temp + "/cache"], pathlib.Path(temp, "keys.txt")
        keys.write_text("# a router and a projection\n" + "\n".join(KEYS) + "\n" + F64 + "\n")
        tune = ["tune", "--wait", "--device=cuda", "--keys", keys, "--evaluations", 6, "--seed", 1, *GENERIC, *cache]
        out, err = kfit(*tune, rc=1)  # float64 is not for this device: named, and the rest is done
        assert F64 + " is left out" in err
        assert "cuBLAS" in err
        rows = {line.split()[-1]: line.split() for line in out.splitlines()[1:]}
        assert set(rows) == set(KEYS)
        staged = {s["key"] for s in json.loads(kfit("cache", "ls", "--staged", "--json", *cache)[0])}
        assert staged, "noise left both keys without a finding: is the GPU in use by others?"

        report = {k["key"]: k for k in json.loads(kfit("report", "--json", *cache)[0])["keys"] if k["key"] in KEYS}
        assert set(report) == staged
        for k in report.values():  # a kernel is slower than reading its bytes, and not by magnitudes
            assert 0 < k["floor_ns"] < 1.1 * k["after_ns"] < 100 * k["floor_ns"], k
        text = kfit("report", *cache)[0]
        assert "OF FLOOR" in text

        keys.write_text("\n".join(KEYS))
        _, err = kfit(*tune, rc=0)
        assert len(staged) < len(KEYS) or " 0 evaluations, " in err  # what is settled is not judged again

        promoted = [k for k in report.values() if k["verdict"] == "promoted"]
        out, _ = kfit("approve", "--all", *cache)
        assert f"generation 1: {len(promoted)} kernels, {len(staged) - len(promoted)} keys kept" in out
        for k in report.values():
            shown = {s["set"]: s for s in json.loads(kfit("cache", "show", "--json", k["key"], *cache)[0])}
            assert set(shown) >= {"published", "staged"}
            assert shown["staged"]["receipt"]["verdict"] == k["verdict"]
            assert "device=cuda" in json.dumps(shown["published"])
        kfit("cache", "verify", *cache)

        evaluate = ["eval", NOTHING, "--wait", "--trusted", "--device=cuda", "--key", KEYS[0], *GENERIC, *cache]
        out, _ = kfit(*evaluate, rc=1)
        assert out.startswith("refused wrong:unwritten"), out
    return 0


sys.exit(main())
