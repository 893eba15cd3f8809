"""Makes the results of a GPU that are committed, and shows what has not been seen there: collect.py BUILD OUT [--seconds S] ...

  start    start.json         how long a PyTorch process takes to start (bench_start.py)
  shim     shim.json          what the shim adds to a call, with a generation of one kernel (bench_shim.py)
  switch   graph_switch.json  kernels of live graphs switched (graph_switch.c)
  ranks    ranks.json         a tensor-parallel group, where there are two GPUs
  unseen   suite.json         the cases of meson's suite gpu that results/suite.json does not have as passed
  story    decode.json        a server's whole way (story.py), then
  soak     soak.json          its dispatched calls compared with cuBLAS
  asked for only: suite (all other cases of suite gpu), and tune_20mb, tune_20_60mb, tune_bias, tune_f32 (bench_tune_cuda's campaigns)

The first three, and what takes several GPUs, have the machine to themselves; then the others take turns on each GPU there is.
Each result is written to OUT as soon as it is there, with device, versions, commit and command; OUT/raw.tar.gz has all that was
printed and written. Nothing takes longer than --seconds in all: a part for which too little is left is skipped, and says so.
What is done at a commit is not done again: the same command goes on where it stopped (BUILD/collect keeps it; --again forgets).
BUILD is built before. Exit status 1 if a part failed, 77 where there is no GPU.
"""
import argparse
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tarfile
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import results  # noqa: E402
import running  # noqa: E402

GPU = pathlib.Path(__file__).resolve().parent
ROOT = GPU.parent.parent
SEEN = GPU / "results/suite.json"
KEY = "gemm/bf16,bf16,bf16/acc=f32/m={0},n={1},k={2}/nt/lda={2},ldb={2},ldc={1}/alpha=1,beta=0/align=16"
STORY = ["--batches", "1,4,8,16", "--evaluations", 20, "--tune-seconds", 150, "--rounds", 8, "--pairs", 6, "--phase-seconds", 3]
CAMPAIGNS = {
    "tune_20mb": ["--evaluations", 40, "--seconds", 290],
    "tune_20_60mb": ["--evaluations", 22, "--m", "1,2,4,8", "--min-mb", 20, "--max-mb", 60, "--seconds", 80],
    "tune_bias": ["--tail", "/epi=bias", "--evaluations", 20, "--m", "1,4", "--seconds", 35, "1024x3072", "2048x2048", "1536x4096", "3072x2048",
                  "2048x4096", "1280x2880"],
    "tune_f32": ["--types", "f32,f32,f32", "--evaluations", 24, "--m", "1,2,4,8,16", "--seconds", 60, "64x2048", "256x2048", "256x3072", "256x7168",
                 "512x4096"],
}
TOOLKIT = pathlib.Path("/usr/local/cuda/lib64")
BY_START = ["torch", "Torch.test_a_process_starts_as_fast"]  # measured by the part `start`, alone on the machine
SANITIZED = "Dispatched.test_nothing_is_read_or_written_that_is_not_ours"

DEVICES = """
import ctypes, json
cu = ctypes.CDLL("libcuda.so.1")
n, version, name, names = ctypes.c_int(), ctypes.c_int(), ctypes.create_string_buffer(256), []
assert not cu.cuInit(0) and not cu.cuDeviceGetCount(ctypes.byref(n)) and not cu.cuDriverGetVersion(ctypes.byref(version))
for i in range(n.value):
    assert not cu.cuDeviceGetName(name, 256, i)
    names.append(name.value.decode())
print(json.dumps([names, "%d.%d" % (version.value // 1000, version.value % 1000 // 10)]))
"""
VERSIONS = """
import importlib.metadata as m, json
found = {}
for name in ("torch", "triton", "transformers", "nvidia-cublas", "nvidia-nccl-cu13", "nvidia-cuda-nvrtc"):
    try:
        found[name] = m.version(name)
    except m.PackageNotFoundError:
        pass
import torch, pathlib
print(json.dumps([str(torch.__version__), found, str(pathlib.Path(torch.__file__).parent.parent / "nvidia")]))
"""


class Skipped(Exception):
    pass


def both_ends(text, most=600):
    """What came first says what went wrong; what came last, how it ended."""
    return text if len(text) <= most else f"{text[:most // 2]} [...] {text[-most // 2:]}"


def ended(rc):
    return "out of time" if rc == 124 else f"exit status {rc}"


class Part:
    """A row of the table: what it writes, the seconds without which it is not begun, and at most, how many GPUs it takes."""

    def __init__(self, name, makes, run, needs, limit, alone=False, gpus=1, asked=False, after=None):
        self.name, self.makes, self.run, self.needs, self.limit = name, makes, run, needs, limit
        self.alone, self.gpus, self.asked, self.after = alone, gpus, asked, after


class Lane:
    """A part on its GPUs: what it runs, within its time, kept in the raw output."""

    def __init__(self, c, part, gpus):
        self.c, self.part = c, part
        self.until = time.monotonic() + min(part.limit, c.left())
        self.raw = c.raw / part.name
        self.raw.mkdir(parents=True, exist_ok=True)
        self.env = dict(c.env, CUDA_VISIBLE_DEVICES=",".join(gpus), KFIT_STATE=str(c.work / "state"), KFIT_TEST_PYTHON=c.a.python)
        if c.cublas and not any(TOOLKIT.glob("libcublas.so.1[23]")):
            self.env["KFIT_GENERIC"] = c.cublas

    def left(self):
        return self.until - time.monotonic()

    def run(self, *words, limit=600.0, cwd=None, **env):
        """Exit status and output."""
        words = [str(w) for w in words]
        limit = min(limit, self.left())
        if limit < 3:
            raise Skipped("no time left for: " + " ".join(words)[:200])
        rc, text, seconds = running.bounded(words, limit, {**self.env, **env}, cwd, grace=15)
        with open(self.raw / "log.txt", "a") as f:
            f.write(f"$ {' '.join(words)}\n{text}\n[status {rc}, {seconds} s]\n\n")
        self.c.commands.setdefault(self.part.name, []).append(" ".join(words))
        return rc, text

    def need(self, *words, **more):
        rc, text = self.run(*words, **more)
        if rc == 77:
            raise Skipped((text.strip().splitlines() or ["exit status 77"])[-1][-300:])
        if rc:
            raise RuntimeError(f"{ended(rc)}: {' '.join(map(str, words))[:200]}: {text.strip()[-300:]}")
        return text

    def write(self, name, found):
        self.c.write(name, found)

    def head(self, command=None):
        return self.c.head(command or "; ".join(self.c.commands.get(self.part.name, [])))


# ---- parts ----


def start(lane):
    file = lane.raw / "start.json"
    lane.need(sys.executable, GPU / "bench_start.py", lane.c.kfit, "--python", lane.c.a.python, "--json", file)
    found = results.start(json.loads(file.read_text()), lane.head())
    lane.write("start", found)
    added = found["ways"]["record"]["added_ms"]
    lane.c.seen([dict(test=BY_START[0], case=BY_START[1], result="passed" if found["within"] else "failed", note=f"{added:+.0f} ms, by start.json")])


def shim(lane):
    c, file, keys, cache = lane.c, lane.raw / "shim.json", lane.raw / "keys.txt", c_dir(lane, "cache-shim")
    m, n, k = map(int, c.a.shape.split(","))
    keys.write_text(KEY.format(m, n, k) + "\n")
    more = []
    tuned, _ = lane.run(c.kfit, "tune", "--wait", "--device=cuda", "--keys", keys, "--evaluations", 6, "--seed", 1, "--seconds", 40,
                        *(["--generic", c.cublas] if c.cublas else []), "--cache", cache, limit=90)
    if tuned == 0 and lane.run(c.kfit, "approve", "--all", "--cache", cache)[0] == 0:
        if '"winner"' in lane.run(c.kfit, "cache", "ls", "--json", "--cache", cache)[1]:
            more = ["--cache", cache]  # else there is nothing to hit, and the table has no such rows
    if c.cublas:
        more += ["--cublas", c.cublas]
    rc, text = lane.run(sys.executable, GPU / "bench_shim.py", c.build / "tests/gpu/bench_shim", c.build / "integrations/preload/libkfit_preload.so", "--shape", c.a.shape,
              "--other-shape", f"{m + 1},{n // 2},{k // 2}", "--seconds", 3, "--runs", 7, "--json", file, *more, LD_LIBRARY_PATH=":".join(filter(None, [c.cublas and os.path.dirname(c.cublas), lane.env.get("LD_LIBRARY_PATH")])))
    if rc == 77:
        raise Skipped(text.strip()[-300:])
    if file.exists():
        lane.write("shim", results.shim(json.loads(file.read_text()), lane.head()))
    if rc:
        raise RuntimeError(f"{ended(rc)}: {text.strip()[-400:]}")


def switch(lane):
    file = lane.raw / "graph_switch.json"
    rc, text = lane.run(lane.c.build / "tests/gpu/graph_switch", file, *lane.c.a.nodes)
    if rc == 77:
        raise Skipped(text.strip())
    if rc in (0, 1):  # 1: the control failed, and the file tells how
        found = json.loads(file.read_text())
        lane.write("graph_switch", dict(what=found.pop("what"), **lane.head(), **{k: v for k, v in found.items() if k != "device"}))
    if rc == 1:
        raise RuntimeError(results.control(found))
    if rc:
        raise RuntimeError(f"{ended(rc)}: {text.strip()[-400:]}")


def story_run(lane, steps, *more):
    out = lane.raw / "-".join(steps)[:20]
    shutil.rmtree(out, ignore_errors=True)
    a = lane.c.a
    lane.run(sys.executable, GPU / "story.py", out, "--build", lane.c.build, "--python", a.python, "--work", lane.c.work / "story", "--steps", ",".join(steps),
             "--budget", int(lane.left() - 8), *more)
    return json.loads((out / "story.json").read_text())


def story(lane):
    steps = ["doctor", "plain", "record", "seen", "tune", "approve", "dispatch", "off", "ab", "report"]
    shutil.rmtree(lane.c.work / "story", ignore_errors=True)  # a tune would go on from it
    told = story_run(lane, steps, *STORY, *lane.c.a.story)
    lane.write("decode", results.decode(told, lane.head()))
    bad = [f"{s['step']}: {s['why']}" for s in told["steps"] if not s["ok"]]
    if bad:
        raise RuntimeError("; ".join(bad))


def soak(lane):
    seconds = int(min(200, lane.left() - 45))
    told = story_run(lane, ["soak"], "--soak-calls", lane.c.a.soak_calls, "--soak-seconds", seconds)
    lane.write("soak", results.soak(told, lane.head()))
    if not told["steps"][0]["ok"]:
        raise RuntimeError(told["steps"][0]["why"])


def ranks(lane):
    told = story_run(lane, ["ranks"])
    step = told["steps"][0]
    if step.get("skipped"):
        raise Skipped(step["skipped"])
    lane.write("ranks", results.ranks(told, lane.head()))
    if not step["ok"]:
        raise RuntimeError(step["why"])


def campaign(lane):
    name = lane.part.name
    file = lane.raw / f"{name}.json"
    lane.need(lane.c.build / "tests/gpu/bench_tune_cuda", "--commit", lane.c.commit, "--json", file, *CAMPAIGNS[name])
    lane.write(name, json.loads(file.read_text()))


def suite_tests(build):
    """meson's suite gpu: [name, words], to be run in the build folder."""
    tests = json.loads((build / "meson-info/intro-tests.json").read_text())
    return [(t["name"], t["cmd"]) for t in tests if any(s.split(":")[-1] == "gpu" for s in t["suite"])]


def cases_of(lane, words):
    """What a test's program can be asked for; [""] if it has no cases."""
    if len(words) == 1:
        return lane.need(*words, "-l", cwd=lane.c.build).split("#")[0].split()
    text = pathlib.Path(lane.c.build, next(w for w in words if w.endswith(".py"))).read_text()
    found, name = [], None
    for line in text.splitlines():
        if at := re.match(r"class (\w+)\(", line):
            name = at[1]
        elif at := re.match(r"    def (test_\w+)\(", line):
            found.append(f"{name}.{at[1]}")
    return found or [""]


def groups_of(test, cases):
    """What is run in one process: those that share what was tuned, but not with the one that takes longest; else each alone."""
    if test != "torch":
        return [cases]
    shared = [c for c in cases if c.startswith("Dispatched.") and c != SANITIZED]
    return [g for g in [shared, *([c] for c in cases if not c.startswith("Dispatched.")), [c for c in cases if c == SANITIZED]] if g]


def unseen(lane, rest=False):
    before, failed, skipped = json.loads(SEEN.read_text()), [], []
    now = [(r["test"], r["case"]) for r in lane.c.cases if r["result"] == "passed"]
    for test, words in suite_tests(lane.c.build):
        cases = [(test, case) for case in cases_of(lane, words) if [test, case] != BY_START]
        never = results.unseen(before, cases)
        todo = [c[1] for c in cases if (c in never) != rest and c not in now]
        for group in groups_of(test, todo):
            try:
                rc, text = lane.run(*words, *(g for g in group if g), limit=200, cwd=lane.c.build)
            except Skipped as why:
                skipped += [f"{g} ({why})" for g in group]
                continue
            rows = results.outcomes(test, text, rc, group)
            lane.c.seen(rows)
            failed += [f"{r['case'] or test}: {r['note']}"[:300] for r in rows if r["result"] == "failed"]
            skipped += [f"{r['case'] or test} ({r['note']})"[:200] for r in rows if r["result"] == "skipped"]
    if failed:
        raise RuntimeError(f"{len(failed)} failed: " + "; ".join(failed + [f"skipped: {s}" for s in skipped]))
    if skipped:
        raise Skipped("; ".join(skipped))


def suite(lane):
    unseen(lane, rest=True)


def c_dir(lane, name):
    path = lane.c.work / name
    shutil.rmtree(path, ignore_errors=True)
    return path


PARTS = [
    Part("start", "start", start, 140, 200, alone=True),
    Part("shim", "shim", shim, 150, 280, alone=True),
    Part("switch", "graph_switch", switch, 20, 90, alone=True),
    Part("ranks", "ranks", ranks, 120, 300, gpus=2),
    Part("unseen", "suite", unseen, 60, 420),
    Part("story", "decode", story, 420, 580),
    Part("soak", "soak", soak, 90, 300, after="story"),
    Part("suite", "suite", suite, 120, 900, asked=True),
    *(Part(n, n, campaign, needs, limit, asked=True) for n, needs, limit in (("tune_20mb", 330, 420), ("tune_20_60mb", 100, 200), ("tune_bias", 50, 120), ("tune_f32", 70, 150))),
]


class Collect:
    def __init__(self, a):
        self.a, self.begun, self.lock = a, time.monotonic(), threading.Lock()
        self.build, self.out = a.build.resolve(), a.out.resolve()
        self.work = self.build / "collect"
        self.raw = self.work / "raw"
        self.kfit = self.build / "integrations/cli/kfit"
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("KFIT_") and k != "LD_PRELOAD"}
        self.commands, self.rows, self.cases, self.state = {}, {}, [], {}

    def left(self):
        return self.a.seconds - (time.monotonic() - self.begun)

    def ask(self, python, program):
        p = subprocess.run([python, "-c", program], env=self.env, text=True, capture_output=True, timeout=120)
        if p.returncode:
            raise Skipped(p.stderr.strip().splitlines()[-1][-300:] if p.stderr.strip() else f"{python}: exit status {p.returncode}")
        return json.loads(p.stdout.splitlines()[-1])

    def look(self):
        """GPUs, driver, versions. Skipped: there is nothing to run on."""
        self.names, cuda = self.ask(sys.executable, DEVICES)
        self.driver = f"{driver_of(text_of('/proc/driver/nvidia/version'))} (CUDA {cuda})"
        self.gpus = self.env.get("CUDA_VISIBLE_DEVICES", ",".join(map(str, range(len(self.names))))).split(",")[:self.a.gpus or None]
        try:
            self.torch, self.versions, nvidia = self.ask(self.a.python, VERSIONS)
        except (Skipped, OSError, subprocess.TimeoutExpired) as why:
            self.torch, self.versions, nvidia = None, {"torch": f"none: {why}"}, ""
        places = [pathlib.Path(nvidia) / "cu13/lib", TOOLKIT]
        self.cublas = self.a.cublas or next((str(p / "libcublas.so.13") for p in places if (p / "libcublas.so.13").exists()), None)

    def head(self, command):
        return dict(device=self.names[0], gpus=len(self.names), driver=self.driver, torch=self.torch, versions=self.versions, commit=self.commit,
                    collect=" ".join(["python3", *sys.argv]), command=command)

    def public(self, text):
        """Without this machine's own paths."""
        for path, name in ((self.cublas, "LIBCUBLAS"), (self.work, "BUILD/collect"), (self.build, "BUILD"), (self.out, "OUT"), (ROOT, "."), (sys.executable, "python3")):
            text = text.replace(str(path), name) if path else text
        return text

    def write(self, name, found):
        """A result, whole or not at all; in the work folder too, for the next time."""
        for folder in (self.work, self.out):
            temp = folder / f".{name}.json"
            temp.write_text(self.public(json.dumps(found, indent=1)) + "\n")
            temp.replace(folder / f"{name}.json")

    def seen(self, rows):
        with self.lock:
            now = {(r["test"], r["case"]) for r in rows}
            self.cases = [r for r in self.cases if (r["test"], r["case"]) not in now] + rows
            (self.work / "cases.json").write_text(json.dumps(self.cases))
            self.write("suite", results.suite(json.loads(SEEN.read_text()), self.cases, self.head("the tests of meson's suite gpu")))

    def remember(self):
        """What the work folder has of this commit."""
        file = self.work / "state.json"
        self.state = json.loads(text_of(file) or "{}")
        if self.a.again or self.state.get("commit") != self.commit:
            shutil.rmtree(self.work, ignore_errors=True)
            self.state = dict(commit=self.commit, done={})
        self.raw.mkdir(parents=True, exist_ok=True)
        self.out.mkdir(parents=True, exist_ok=True)
        self.cases = json.loads(text_of(self.work / "cases.json") or "[]")
        for path in self.work.glob("*.json"):
            if path.stem not in ("state", "cases"):
                shutil.copy(path, self.out)

    def keep(self):
        with self.lock:
            (self.work / "state.json").write_text(json.dumps(self.state))
            temp = self.out / ".raw.tar.gz"
            with tarfile.open(temp, "w:gz") as tar:
                for path in sorted(self.raw.rglob("*")):
                    if path.is_file() and path.stat().st_size < 4 << 20:
                        tar.add(path, path.relative_to(self.raw))
            temp.replace(self.out / "raw.tar.gz")

    def tell(self, part, outcome, why="", seconds=0.0):
        with self.lock:
            self.rows[part.name] = (outcome, why, seconds)
            print(f"{outcome:8} {part.name:12} {seconds:6.1f} s  {both_ends(why)}", flush=True)

    def one(self, part, gpus):
        begun = time.monotonic()
        if part.name in self.state["done"]:
            return self.tell(part, "before", self.state["done"][part.name])
        if len(gpus) < part.gpus:
            return self.tell(part, "skipped", f"{part.gpus} GPUs are needed")
        if part.after and not (self.work / part.after / "cache/current").exists():
            return self.tell(part, "skipped", f"{part.after} has left no generation")
        if self.left() < part.needs:
            return self.tell(part, "skipped", f"{part.needs} s are needed, {max(0, int(self.left()))} are left")
        try:
            part.run(Lane(self, part, gpus[:part.gpus]))
            outcome, why = "ok", results.headline(part.makes, json.loads((self.work / f"{part.makes}.json").read_text()))
            self.state["done"][part.name] = why
        except (Skipped, results.Missing) as said:
            outcome, why = "skipped" if isinstance(said, Skipped) else "FAILED", str(said)
        except RuntimeError as said:
            outcome, why = "FAILED", str(said)
        except Exception:  # a surprise in one part is no reason to lose the others
            outcome, why = "FAILED", traceback.format_exc()[-1200:]
        self.tell(part, outcome, why, time.monotonic() - begun)
        self.keep()

    def collect(self):
        wanted = self.wanted = [p for p in PARTS if (p.name in self.a.parts if self.a.parts else not p.asked)]
        for part in (p for p in wanted if p.alone or p.gpus > 1):
            self.one(part, self.gpus)
        shared = [p for p in wanted if not p.alone and p.gpus == 1]
        firsts = [p for p in shared if p.after not in [q.name for q in shared]]  # what needs another part's files follows it in its lane
        queue = [[p, *(q for q in shared if q.after == p.name)] for p in firsts]

        def lane(gpu):
            while True:
                with self.lock:
                    parts = queue.pop(0) if queue else []
                if not parts:
                    return
                for p in parts:
                    self.one(p, [gpu])

        threads = [threading.Thread(target=lane, args=(g,)) for g in self.gpus]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def table(self):
        print(f"\n{len(self.gpus)} x {self.names[0]}, driver {self.driver}, PyTorch {self.torch}, commit {self.commit}, {time.monotonic() - self.begun:.0f} s")
        for name in (p.name for p in self.wanted):
            outcome, why, seconds = self.rows.get(name, ("ended", "before it was done", 0.0))
            print(f"{outcome:8} {name:12} {seconds:6.1f} s  {both_ends(why.splitlines()[-1]) if why else ''}")
        print(f"in {self.out}: {', '.join(sorted(p.name for p in self.out.iterdir() if not p.name.startswith('.')))}", flush=True)


def text_of(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""


def driver_of(text):
    """The kernel module's version, of /proc/driver/nvidia/version."""
    found = re.search(r"Kernel Module .*?\b(\d+\.[\d.]+)", text)
    return found[1] if found else "unknown"


def commit_of(given):
    if given:
        return given
    p = subprocess.run(["git", "-C", ROOT, "describe", "--always", "--dirty", "--exclude=*"], text=True, capture_output=True)
    return p.stdout.strip() if p.returncode == 0 else None


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("build", type=pathlib.Path)
    p.add_argument("out", type=pathlib.Path)
    p.add_argument("--seconds", type=float, default=3000, help="for everything")
    p.add_argument("--parts", help="only these, separated by commas")
    p.add_argument("--again", action="store_true", help="also what is done")
    p.add_argument("--commit", help="where git does not know it")
    p.add_argument("--gpus", type=int, help="use so many; default: all")
    p.add_argument("--python", default="python3", help="with PyTorch and transformers")
    p.add_argument("--cublas", help="libcublas.so.13; default: PyTorch's, else the toolkit's")
    p.add_argument("--soak-calls", type=float, default=1e7)
    p.add_argument("--shape", default="4,2048,2048", help="M,N,K of the calls of shim")
    p.add_argument("--nodes", type=lambda t: t.split(","), default=[], help="sizes for switch, as 50,500")
    p.add_argument("--story", type=str.split, default=[], help="more arguments for story.py, in one word")
    a = p.parse_args()
    a.parts = a.parts.split(",") if a.parts else []
    unknown = set(a.parts) - {part.name for part in PARTS}
    if unknown:
        p.error(f"no such part: {', '.join(sorted(unknown))}; there are {', '.join(part.name for part in PARTS)}")
    c = Collect(a)
    if not c.kfit.exists():
        p.error(f"{c.kfit} is not there; build first")
    c.commit = commit_of(a.commit)
    if not c.commit:
        p.error("this is no git checkout; name the commit with --commit")
    running.end_on_signals()
    try:
        c.look()
    except Skipped as why:
        print("skipped: no GPU:", why)
        sys.exit(77)
    c.remember()
    try:
        c.collect()
    finally:
        c.keep()
        c.table()
    sys.exit(1 if any(outcome == "FAILED" for outcome, _, _ in c.rows.values()) else 0)


if __name__ == "__main__":
    main()
