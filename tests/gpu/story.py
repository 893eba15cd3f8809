"""The whole way of a PyTorch server through kfit, in one command: story.py OUT [--budget S] [--work DIR] [--steps a,b] ...

  plain     decode steps without kfit, checked against float64, with the share of GEMM in them
  record    the same under kfit run;  traces: what was seen
  tune      for --tune-seconds;  approve
  dispatch  the same again with the winners
  off       kfit off, a run with no call replaced, kfit on
  ab        with and without dispatch in turn, in one process, graphs captured anew
  soak      --soak-calls of one shape, compared with cuBLAS's on the GPU
  shim      what the shim adds to a call
  ranks     a tensor-parallel group with an approval in between, where there are two GPUs
  report

Every step is timed and has a limit; one that fails is noted and the others go on. OUT gets story.json (each step with its
commands, statuses, the end of their output, and what programs wrote as JSON), log.txt, report.json and report.html. What
steps need from each other is in the work directory: name one with --work to go on in another command.
"""
import argparse
import glob
import json
import os
import pathlib
import re
import sys
import tempfile
import time
import traceback

import running

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DEMO = ROOT / "integrations/demo"
METRIC = "^step batch=%s us=([0-9.]+)"


class Failed(Exception):
    pass


class Story:
    def __init__(self, a):
        self.a, self.begun = a, time.monotonic()
        self.out, self.work = pathlib.Path(a.out), pathlib.Path(a.work or tempfile.mkdtemp(prefix="kfit-story-"))
        self.out.mkdir(parents=True, exist_ok=True)
        self.work.mkdir(parents=True, exist_ok=True)
        self.cache = self.work / "cache"
        self.log = open(self.out / "log.txt", "a")
        self.found = dict(steps=[], models=a.models.split(","), layers=a.layers, batches=a.batches, work=str(self.work))
        self.env = {k: v for k, v in os.environ.items() if not k.startswith("KFIT_") and k != "LD_PRELOAD"}
        self.env["KFIT_STATE"] = str(self.work / "state")

    def left(self):
        return self.a.budget - (time.monotonic() - self.begun)

    def save(self):
        (self.out / "story.json").write_text(json.dumps(self.found, indent=1))

    def run(self, *words, limit=120, ok=(0,), env=None):
        """Runs a command within its limit and what is left of the budget; its output. Failed says how it ended."""
        words = [str(w) for w in words]
        limit = min(limit, self.left())
        if limit < 5:
            raise Failed("no time left for: " + " ".join(words))
        self.log.write(f"$ {' '.join(words)}\n")
        rc, text, seconds = running.bounded(words, limit, {**self.env, **(env or {})})
        self.log.write(f"{text}\n[status {rc}, {seconds} s]\n\n")
        self.log.flush()
        self.step.setdefault("commands", []).append(dict(command=" ".join(words), status=rc, seconds=seconds, tail=text[-1500:]))
        if rc not in ok:
            raise Failed(f"status {rc}{' (out of time)' if rc == 124 else ''}: {' '.join(words)[:200]}: {text.strip()[-300:]}")
        return text

    def kfit(self, *words, **more):
        return self.run(self.a.kfit, *words, **more)

    def json_of(self, *words, **more):
        """What a kfit command prints with --json: messages, if any, stand before or after it."""
        text = self.kfit(*words, **more)
        for at in re.finditer(r"(?m)^[\[{]", text):
            try:
                return json.JSONDecoder().raw_decode(text, at.start())[0]
            except ValueError:
                continue
        raise Failed(f"no JSON from kfit {words[0]}: {text[-200:]}")

    def decode(self, name, model, *before, extra=()):
        """One run of torch_decode.py, what it found in the step's results."""
        file = self.work / f"{name}-{model}.json"
        self.run(*before, self.a.python, DEMO / "torch_decode.py", "--model", model, "--layers", self.a.layers, "--batches", self.a.batches,
                 "--rounds", self.a.rounds, "--launches", self.a.launches, "--json", file, *extra, limit=150)
        self.step.setdefault("results", {})[model] = json.loads(file.read_text())

    def each_model(self, work):
        """One model's failure does not keep the others from running."""
        bad = []
        for m in self.found["models"]:
            try:
                work(m)
            except Failed as why:
                bad.append(str(why))
        if bad:
            raise Failed("; ".join(bad))

    def traces(self, name):
        return sorted(glob.glob(f"{self.work}/{name}/*-cuda*.kft"))

    # ---- steps ----

    def doctor(self):
        self.step["results"] = self.json_of("doctor", "--json", "--cache", self.cache, ok=(0, 1))

    def plain(self):
        self.each_model(lambda m: self.decode("plain", m, extra=["--check", "--share"]))

    def record(self):
        self.each_model(lambda m: self.decode("record", m, self.a.kfit, "run", "--trace", self.work / f"record-{m}", "--", extra=["--check"]))

    def seen(self):
        where = {m: self.traces(f"record-{m}") for m in self.found["models"]}
        if not all(where.values()):
            raise Failed("no trace of a GPU was written")
        self.step["results"] = dict(ls={m: self.json_of("trace", "ls", "--json", *of) for m, of in where.items()},
                                    keys={m: {k["key"]: k["calls"] for t in of for k in self.json_of("trace", "export", t)["keys"]}
                                          for m, of in where.items()})

    def tune(self):
        words = ["tune", "--wait", "--cache", self.cache, "--seed", 1, "--seconds", min(self.a.tune_seconds, max(10, self.left() - 60)),
                 "--evaluations", self.a.evaluations, *([f"--generic={self.a.generic}"] if self.a.generic else []), *self.traces("record-*")]
        try:
            self.kfit(*words, limit=self.a.tune_seconds + 90, ok=(0, 1))  # 1: a key that the judge does not take, the rest is done
        finally:  # also what was found before a limit came
            self.step["results"] = [{n: r[n] for n in ("key", "kind", "ratio", "ns_candidate", "ns_incumbent")} for r in
                                    self.json_of("cache", "ls", "--staged", "--json", "--cache", self.cache)]

    def approve(self):
        self.kfit("approve", "--all", "--note", "story", "--cache", self.cache)

    def dispatch(self):
        def one(m):
            traces = self.work / f"dispatch-{m}"
            self.decode("dispatch", m, self.a.kfit, "run", "--cache", self.cache, "--trace", traces, "--", extra=["--check", "--share"])
            ls = self.json_of("trace", "ls", "--json", traces)
            self.step["results"][m]["hits"] = sum(t["hits"] for t in ls)
            self.step["results"][m]["calls"] = sum(t["calls"] for t in ls)

        self.each_model(one)
        without = [m for m, r in self.step["results"].items() if not r.get("hits")]
        if without:
            raise Failed(f"no call was replaced: {', '.join(without)}")

    def off(self):
        m = self.found["models"][0]
        nobody = self.work / "nobody"  # no live process is meant
        nobody.mkdir(exist_ok=True)
        self.kfit("off", "--cache", self.cache, "--reason", "story", nobody)
        try:
            self.decode("off", m, self.a.kfit, "run", "--cache", self.cache, "--trace", self.work / f"off-{m}", "--",
                        extra=["--rounds", "2", "--launches", "5"])
            hits = sum(t["hits"] for t in self.json_of("trace", "ls", "--json", self.work / f"off-{m}"))
            if hits:
                raise Failed(f"{hits} calls were replaced while off")
        finally:
            self.kfit("on", "--cache", self.cache, nobody)

    def ab(self):
        def one(m):
            metrics = [w for b in self.a.batches.split(",") for w in ("--metric", METRIC % b)]
            file = self.work / f"ab-{m}.json"
            self.kfit("ab", "--cache", self.cache, "--phases", self.a.phase_seconds, "--pairs", self.a.pairs, "--lower", *metrics, "--out", file, "--",
                      self.a.python, DEMO / "torch_decode.py", "--model", m, "--layers", self.a.layers, "--batches", self.a.batches, "--rounds", 5,
                      "--launches", self.a.launches, "--forever", limit=200)
            self.step.setdefault("results", {})[m] = json.loads(file.read_text())

        self.each_model(one)

    def winner(self):
        """m, n, k of one plain bf16 linear that has a kernel in the generation, as the programs take it: of more than one row and
        with the smallest weights, if there is a choice. None: there is none."""
        shapes = []
        for r in self.json_of("cache", "ls", "--json", "--cache", self.cache):
            op = r["key"].split("/")  # gemm/bf16,bf16,bf16/acc=f32/m=4,n=2048,k=2048/nt/...
            if r["kind"] == "winner" and op[1] == "bf16,bf16,bf16" and op[4] == "nt" and not any(p.startswith(("epi=", "batch=")) for p in op):
                shapes.append([int(f.split("=")[1]) for f in op[3].split(",")])
        best = min(shapes, key=lambda s: (s[0] == 1, s[1] * s[2], s), default=None)
        return best and ",".join(map(str, best))

    def soak(self):
        shape, file, traces = self.winner(), self.work / "soak.json", self.work / "soak"
        if not shape:
            raise Failed("the generation has no kernel for a plain bf16 linear")
        self.kfit("run", "--cache", self.cache, "--trace", traces, "--", self.a.python, ROOT / "tests/gpu/soak_torch.py", "--shape", shape,
                  "--calls", self.a.soak_calls, "--seconds", self.a.soak_seconds, "--json", file, limit=self.a.soak_seconds + 100)
        found = json.loads(file.read_text())
        ls = [t for t in self.json_of("trace", "ls", "--json", traces) if "-cuda" in t["path"]]
        found.update(hits=sum(t["hits"] for t in ls), recorded=sum(t["calls"] for t in ls), replays=sum(t["graphs"]["replays"] for t in ls))
        self.step["results"] = found
        if found["hits"] < found["calls"]:
            raise Failed(f"{found['calls']} calls, and only {found['hits']} by kfit")

    def shim(self):
        shape, file = self.winner(), self.work / "shim.json"
        self.run(sys.executable, ROOT / "tests/gpu/bench_shim.py", self.a.build / "tests/gpu/bench_shim",
                 self.a.build / "integrations/preload/libkfit_preload.so", "--json", file,
                 *(["--cache", self.cache, "--shape", shape] if shape else []), *(["--cublas", self.a.cublas] if self.a.cublas else []), "--seconds", 6, limit=200)
        self.step["results"] = json.loads(file.read_text())

    def ranks(self):
        """Recorded, tuned and approved for themselves: at another tensor-parallel size the shapes are others. What is approved
        in between takes the router's kernel away."""
        gpus = self.run(self.a.python, "-c", "import torch; print(torch.cuda.device_count())")
        if int(gpus.split()[-1]) < 2:
            self.step["skipped"] = "two GPUs are needed"
            return
        cache, results = self.work / "cache-ranks", {}
        self.step["results"] = results

        def run(name, *before, extra=()):
            file, traces = self.work / f"ranks-{name}.json", self.work / f"ranks-{name}"
            try:
                self.kfit("run", *before, "--trace", traces, "--", self.a.python, DEMO / "torch_ranks.py", "--kfit", self.a.kfit, "--steps", 32,
                          "--json", file, *extra, limit=150)
            finally:
                if file.exists():
                    results[name] = json.loads(file.read_text())
                    results[name]["hits"] = [t["hits"] for t in self.json_of("trace", "ls", "--json", traces) if "-cuda" in t["path"]]

        run("record")
        where = sorted(glob.glob(f"{self.work}/ranks-record/*-cuda*.kft"))
        self.kfit("tune", "--wait", "--cache", cache, "--seed", 1, "--seconds", 60, "--evaluations", 4, *where, limit=150, ok=(0, 1))
        self.kfit("approve", "--all", "--cache", cache)
        keys = [r["key"] for r in self.json_of("cache", "ls", "--json", "--cache", cache) if r["kind"] == "winner"]
        key = next((k for k in keys if "n=256,k=3072/" in k), keys[0])
        run("between", "--cache", cache, extra=["--between", f"{self.a.kfit} cache disable --cache {cache} {key} && {self.a.kfit} approve --all --cache {cache}"])
        run("pinned", "--cache", cache, "--generation", 2,
            extra=["--stagger", "--between", f"{self.a.kfit} cache enable --cache {cache} {key} && {self.a.kfit} approve --all --cache {cache}"])
        if not all(h > 0 for h in results["between"]["hits"]):
            raise Failed(f"calls replaced by rank: {results['between']['hits']}")

    def report(self):
        where = [t for m in self.found["models"] for t in glob.glob(f"{self.work}/dispatch-{m}/*-cuda*.kft")] or self.traces("record-*")
        self.kfit("report", "--cache", self.cache, f"--json={self.out / 'report.json'}", "--html", self.out / "report.html", *where)
        keys = json.loads((self.out / "report.json").read_text())["keys"]
        self.step["results"] = dict(keys=len(keys), promoted=sum(k["verdict"] == "promoted" for k in keys))
        for k in keys[:3]:
            self.kfit("explain", k["key"], "--cache", self.cache, ok=(0, 1))

    steps = [doctor, plain, record, seen, tune, approve, dispatch, off, ab, soak, shim, ranks, report]

    def tell(self):
        wanted = self.a.steps.split(",") if self.a.steps else [s.__name__ for s in self.steps]
        for s in self.steps:
            if s.__name__ not in wanted:
                continue
            self.step = dict(step=s.__name__)
            self.found["steps"].append(self.step)
            start = time.monotonic()
            try:
                s(self)
                self.step["ok"] = True
            except Failed as why:
                self.step.update(ok=False, why=str(why))
            except Exception:  # a surprise in one step is no reason to lose the others
                self.step.update(ok=False, why=traceback.format_exc()[-1500:])
            self.step["seconds"] = round(time.monotonic() - start, 1)
            print(f"{'ok    ' if self.step['ok'] else 'FAILED'} {s.__name__:9} {self.step['seconds']:6.1f} s  {self.step.get('why', self.step.get('skipped', ''))[-400:]}",
                  flush=True)
            self.save()
        self.summary()
        return 0 if all(s["ok"] for s in self.found["steps"]) else 1

    def summary(self):
        """Steps' times side by side, and what ab says of them."""
        got = {s["step"]: s.get("results", {}) for s in self.found["steps"]}
        rows = []
        for m in self.found["models"]:
            by = {name: {b["batch"]: b for b in got.get(name, {}).get(m, {}).get("batches", [])} for name in ("plain", "record", "dispatch")}
            ab = got.get("ab", {}).get(m, {}).get("metrics", [])
            for i, b in enumerate(map(int, self.a.batches.split(","))):
                us = {n: by[n].get(b, {}).get("us") for n in by}
                rows.append(dict(model=m, batch=b, **us, gemm_share=by["plain"].get(b, {}).get("gemm_share"),
                                 error=by["plain"].get(b, {}).get("rms_error"), error_dispatched=by["dispatch"].get(b, {}).get("rms_error"),
                                 ab=[round(ab[i][k], 4) for k in ("ratio", "lo", "hi")] if i < len(ab) else None))
        self.found["summary"] = rows
        self.found["seconds"] = round(time.monotonic() - self.begun, 1)
        for r in rows:
            print(" ".join(f"{k}={v:.4g}" if isinstance(v, float) else f"{k}={v}" for k, v in r.items()), flush=True)
        self.save()


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--build", type=pathlib.Path, default=ROOT / "build-gpu")
    p.add_argument("--python", default="python3", help="with PyTorch and transformers")
    p.add_argument("--budget", type=float, default=560, help="seconds for everything")
    p.add_argument("--tune-seconds", type=float, default=180)
    p.add_argument("--evaluations", type=int, default=6, help="per key")
    p.add_argument("--models", default="llama-3.1-8b-tp4,qwen3.5-122b-attn-tp4")
    p.add_argument("--layers", type=int, default=4)
    p.add_argument("--batches", default="1,4,8,16")
    p.add_argument("--rounds", type=int, default=10)
    p.add_argument("--launches", type=int, default=30)
    p.add_argument("--phase-seconds", type=float, default=2)
    p.add_argument("--pairs", type=int, default=8)
    p.add_argument("--soak-calls", type=float, default=3e5)
    p.add_argument("--soak-seconds", type=float, default=300)
    p.add_argument("--generic", help="libcublas for tune; default: the one in the trace")
    p.add_argument("--cublas", help="libcublas for bench_shim; default: what the loader finds")
    p.add_argument("--work", help="default: a new temporary directory")
    p.add_argument("--steps", help="only these, of: " + ", ".join(s.__name__ for s in Story.steps))
    a = p.parse_args()
    running.end_on_signals()
    a.build = a.build.resolve()
    a.kfit = a.build / "integrations/cli/kfit"
    if not a.kfit.exists():
        p.error(f"{a.kfit} is not there; name a build folder with --build")
    unknown = set(a.steps.split(",") if a.steps else []) - {s.__name__ for s in Story.steps}
    if unknown:
        p.error(f"no such step: {', '.join(sorted(unknown))}")
    sys.exit(Story(a).tell())


if __name__ == "__main__":
    main()
