"""Runs the host benchmarks of a build tree and writes what they printed, with where and how, as one JSON file.

  collect.py BUILD_DIR OUT.json [NAME...]   on an otherwise idle machine; takes about five minutes. Without names: the first
                                            five; results/shim.json has bench_shim_cuda and bench_driver
"""
import json
import os
import pathlib
import platform
import subprocess
import sys

BENCHES = [
    ["tests/bench/bench_dispatch"],
    ["tests/bench/bench_generation"],
    ["tests/preload/bench_preload"],
    ["tests/bench/bench_winners"],
    ["tests/bench/bench_gemm"],
    ["tests/preload/bench_shim_cuda"],
    ["tests/preload/bench_driver"],
]
USUAL = BENCHES[:5]


def main(build, out, *names):
    build = pathlib.Path(build).resolve()
    root = pathlib.Path(__file__).resolve().parents[2]
    commit = subprocess.run(["git", "-C", root, "rev-parse", "--short", "HEAD"], capture_output=True, text=True).stdout.strip()
    with open("/proc/cpuinfo") as f:
        model = next(line.split(":", 1)[1].strip() for line in f if line.startswith("model name"))
    result = {"commit": commit, "cpu": model, "cores": os.cpu_count(), "kernel": platform.release(),
              "command": " ".join(["python3 tests/bench/collect.py build OUT.json", *names]), "benches": {}}
    for words in [b for b in BENCHES if pathlib.Path(b[0]).name in names] if names else USUAL:
        if not (build / words[0]).exists():
            print(f"{words[0]} was not built; left out", file=sys.stderr)
            continue
        p = subprocess.run([build / words[0], *words[1:]], capture_output=True, text=True, cwd=build,
                           env={**os.environ, "OPENBLAS_NUM_THREADS": "1"})
        print(p.stdout, end="", flush=True)
        result["benches"][pathlib.Path(words[0]).name] = {
            "command": "OPENBLAS_NUM_THREADS=1 " + " ".join(words), "status": p.returncode, "output": p.stdout.splitlines()}
        result["load_after"] = os.getloadavg()[0]
    with open(out, "w") as f:
        json.dump(result, f, indent=1)
        f.write("\n")
    return 0 if all(b["status"] == 0 for b in result["benches"].values()) else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) >= 3 else __doc__)
