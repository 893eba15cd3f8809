"""Decode steps of a transformers model in CUDA graphs, as a server runs them, and how long one takes.

  torch_decode.py [--model NAME] [--layers N] [--batches 1,4,8,16] [--length N] [--json FILE] ...
  kfit run -- python3 torch_decode.py          the same with its GEMMs recorded, or replaced with --cache
  kfit ab --phases 3 --lower --metric '^step batch=4 us=([0-9.]+)' -- python3 torch_decode.py --forever

Models are in decode_model.py: real dimensions, random bf16 weights, a full static KV cache. Per batch one line

  step batch=4 us=312.41 lo=311.90 hi=313.02 rounds=20 launches=50 mode=graph

is printed: microseconds of one step, the median of rounds (each timed by two events around that many graph launches), and
its 95 % interval. With --check the step's output is compared with a float64 run of the same weights, with --share the
part of the step's GPU time that GEMM kernels take is measured, by torch.profiler and after everything else.
"""
import argparse
import collections
import copy
import gc
import hashlib
import json
import math
import statistics
import sys
import time


def interval(values):
    """Order statistics between which the median lies with 95 % (all of them, where they are few)."""
    v, n, tail, k = sorted(values), len(values), 0.0, 0
    while k < n // 2 and (tail := tail + math.comb(n, k) * 0.5**n) <= 0.025:
        k += 1
    return statistics.median(v), v[max(k - 1, 0)], v[n - max(k, 1)]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--model", default="llama-3.1-8b-tp4", help="llama-3.1-8b, qwen3.5-122b-attn, tiny-llama, tiny-qwen; -tpN behind it")
    p.add_argument("--tp", type=int, help="tensor parallel size, instead of the name's")
    p.add_argument("--layers", type=int, default=8)
    p.add_argument("--batches", default="1,4,8,16")
    p.add_argument("--length", type=int, default=1024, help="positions in the KV cache")
    p.add_argument("--rounds", type=int, default=20)
    p.add_argument("--launches", type=int, default=50, help="of the graph, in a round")
    p.add_argument("--seed", type=int, default=7)
    p.add_argument("--unfused", action="store_true", help="q, k, v, gate and up each on its own (decode_model.py says why not)")
    p.add_argument("--compile", action="store_true", help="torch.compile(mode='reduce-overhead') makes the graphs")
    p.add_argument("--check", action="store_true", help="compare with float64")
    p.add_argument("--share", action="store_true", help="GPU time of GEMM kernels")
    p.add_argument("--forever", action="store_true", help="measure all batches again and again, each time in a new graph")
    p.add_argument("--device", default="cuda", choices=["cuda", "cpu"], help="cpu: eager, to try the program")
    p.add_argument("--json", metavar="FILE")
    a = p.parse_args()
    try:
        a.batches = [int(b) for b in a.batches.split(",")]
        assert all(0 < b <= 64 for b in a.batches) and min(a.layers, a.length, a.rounds, a.launches) > 0
    except (ValueError, AssertionError):
        p.error("batches are numbers from 1 to 64, separated by commas; layers, length, rounds and launches are at least 1")
    return a


class Eager:
    """Called again and again, on a CPU."""

    mode = "eager"

    def __init__(self, step, warm_ups):
        self.step, self.steps = step, warm_ups
        for _ in range(warm_ups):
            self.out = step()

    def time(self, launches):
        self.steps += launches
        start = time.perf_counter()
        for _ in range(launches):
            self.out = self.step()
        return (time.perf_counter() - start) / launches * 1e6


class OnGpu:
    def time(self, launches):
        self.steps += launches
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        start.record()
        for _ in range(launches):
            self.launch()
        end.record()
        end.synchronize()
        return start.elapsed_time(end) / launches * 1e3


class Graph(OnGpu):
    """One captured graph, launched again and again."""

    mode = "graph"

    def __init__(self, step, warm_ups):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(warm_ups):
                step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.out = step()
        self.launch = self.graph.replay
        self.launch()
        self.steps = warm_ups + 1


class Compiled(OnGpu):
    """torch.compile's own graphs."""

    mode = "compile"

    def __init__(self, step, warm_ups):
        self.step, self.steps = step, warm_ups
        for _ in range(warm_ups):
            self.launch()

    def launch(self):
        torch.compiler.cudagraph_mark_step_begin()
        self.out = self.step()


WARM_UPS = 3
GEMM_OPS = {"aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::addmv", "aten::mv", "aten::_scaled_mm"}


class Batch:
    """One batch of one model, ready to be launched."""

    def __init__(self, model, batch, compiled):
        self.model, self.batch = model, batch
        self.x, self.rope, self.cache = model.place(batch)
        step = model
        if compiled:
            torch._dynamo.reset()
            for t in self.cache.static + [self.x, *self.rope]:
                torch._dynamo.mark_static_address(t)
            step = torch.compile(model, mode="reduce-overhead", dynamic=False)
        self.step = lambda: step(self.x, self.rope, self.cache)
        self.eager = lambda: model(self.x, self.rope, self.cache)
        self.how = Eager if self.x.device.type == "cpu" else Compiled if compiled else Graph

    def start(self):
        self.run = self.how(self.step, WARM_UPS)

    def measure(self, rounds, launches):
        self.run.time(launches)  # the first round is warm-up
        us, lo, hi = interval([self.run.time(launches) for _ in range(rounds)])
        print(f"step batch={self.batch} us={us:.3f} lo={lo:.3f} hi={hi:.3f} rounds={rounds} launches={launches} mode={self.run.mode}",
              flush=True)
        return dict(batch=self.batch, us=us, lo=lo, hi=hi, rounds=rounds, launches=launches, mode=self.run.mode)

    def output(self):
        self.run.time(1)
        return self.run.out.detach().clone()

    def check(self):
        """Digest of the output, and how far it is from float64."""
        got = self.output()
        digest = hashlib.sha256(got.cpu().view(torch.int16).numpy().tobytes()).hexdigest()[:16]
        reference = copy.deepcopy(self.model).double()
        want = reference(self.x.double(), tuple(t.double() for t in self.rope), self.cache.to(torch.float64))
        error = got.double() - want
        rms = float((error.square().mean() / want.square().mean()).sqrt())
        worst = float(error.abs().max() / want.abs().max())
        finite = bool(torch.isfinite(got).all())
        print(f"check batch={self.batch} sha256={digest} rms_error={rms:.3e} worst_error={worst:.3e} finite={finite}", flush=True)
        return dict(sha256=digest, rms_error=rms, worst_error=worst, finite=finite)

    def share(self):
        """Which kernels GEMM calls run, seen in an eager step; then their part of what launches take."""
        from torch.profiler import ProfilerActivity, profile

        activities = [ProfilerActivity.CPU] + [ProfilerActivity.CUDA] * (self.run.mode != "eager")
        with profile(activities=activities) as prof:
            self.eager()
            self.run.steps += 1
            self.run.time(1)  # ends with a synchronisation
        events = prof.events()
        ops = [e for e in events if e.name in GEMM_OPS]
        names = {k.name for e in ops for k in e.kernels}
        with profile(activities=activities) as prof:
            self.run.time(10)
        us = collections.Counter()
        for e in prof.events():
            if e.device_type == torch.autograd.DeviceType.CUDA:
                us[e.name in names or e.name.startswith("kfit_")] += e.time_range.elapsed_us()
        total = sum(us.values())
        # an eager run has launched its step once more
        found = dict(ops=len(ops) // (2 if self.run.mode == "eager" else 1), gemm_us=us[True] / 10, all_us=total / 10,
                     gemm_share=us[True] / total if total else None, kernels=sorted(names))
        share = f"{found['gemm_share']:.4f}" if total else "unknown"
        print(f"share batch={self.batch} gemm={share} gemm_us={found['gemm_us']:.3f} kernels_us={found['all_us']:.3f} ops={found['ops']}",
              flush=True)
        return found


def main():
    a = arguments()
    global torch
    try:
        import torch

        if a.device == "cuda" and not torch.cuda.is_available():
            sys.exit("torch_decode.py: PyTorch sees no GPU; --device cpu --model tiny-llama tries the program without one")
        import decode_model
    except ImportError as why:
        sys.exit(f"torch_decode.py: {why}; this program needs PyTorch and transformers")
    with torch.no_grad():
        try:
            model = decode_model.Decoder(a.model, a.layers, a.length, a.device, seed=a.seed, fused=not a.unfused, tp=a.tp)
        except ValueError as why:
            sys.exit(f"torch_decode.py: {why}")
        where = torch.cuda.get_device_name() if a.device == "cuda" else "CPU"
        print(f"{a.model} on {where}, PyTorch {torch.__version__}: {model.describe()}", flush=True)
        if a.forever:
            while True:
                for b in a.batches:
                    batch = Batch(model, b, a.compile)
                    batch.start()
                    batch.measure(a.rounds, a.launches)
                    del batch
                    gc.collect()  # with its graph
        batches = [Batch(model, b, a.compile) for b in a.batches]
        results = []
        for b in batches:  # torch.compile is reset for each: measured before the next one starts
            b.start()
            results.append(b.measure(a.rounds, a.launches))
            if a.check:
                results[-1].update(b.check())
        for b, r in zip(batches, results) if a.share else ():
            if a.compile:
                b.start()
            r.update(b.share())
        for b, r in zip(batches, results):
            r["steps"] = b.run.steps  # this model's GEMM calls are ops times as many
    if a.json:
        with open(a.json, "w") as f:
            json.dump(dict(model=a.model, layers=a.layers, length=a.length, tp=model.tp, fused=not a.unfused, device=where,
                           torch=torch.__version__, batches=results), f, indent=1)


if __name__ == "__main__":
    main()
