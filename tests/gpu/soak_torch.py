"""Ten million dispatched calls, compared with cuBLAS on the GPU: soak_torch.py [--calls N] [--shape M,N,K] under kfit run.

A graph holds 100 calls, each on an x of its own, drawn anew in every launch, and a weight matrix of its own. The same
rows are also multiplied with one more row below them: another shape, so another key, which is not in the generation, and
cuBLAS runs it. An element is outside when the two differ by more than 2 ulp and what sums in float32 may lose (0.3 sqrt(K)
units of roundoff of |x||w|, four times that for the worst element). Prints one line, and exits with 1 if any is outside or
more than 1 % differ at all. That our kernels ran is for the trace to say: `kfit trace ls` of the run.
"""
import argparse
import json
import sys
import time


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--calls", type=float, default=1e7)
    p.add_argument("--shape", default="4,2048,2048")
    p.add_argument("--seconds", type=float, default=500, help="ends before, and says how far it came")
    p.add_argument("--json")
    a = p.parse_args()
    import torch

    if not torch.cuda.is_available():
        sys.exit("soak_torch.py: PyTorch sees no GPU")
    m, n, k = map(int, a.shape.split(","))
    each = 100
    torch.manual_seed(7)
    matrices = max(2, min(each, int(6e9 / (2 * n * k))))  # beyond the L2, within memory
    w = [torch.randn(n, k, device="cuda", dtype=torch.bfloat16) * k**-0.5 for _ in range(matrices)]
    w_size = torch.stack([t.float().norm(dim=1) for t in w])[torch.arange(each) % matrices]
    x = torch.empty(each, m + 1, k, device="cuda", dtype=torch.bfloat16)
    y, z = (torch.empty(each, rows, n, device="cuda", dtype=torch.bfloat16) for rows in (m, m + 1))
    outside, different = (torch.zeros((), device="cuda", dtype=torch.int64) for _ in range(2))

    def step():
        x.normal_()
        for i in range(each):
            torch.mm(x[i, :m], w[i % matrices].t(), out=y[i])
        for i in range(each):
            torch.mm(x[i], w[i % matrices].t(), out=z[i])
        ours, theirs = y.float(), z[:, :m].float()
        ulp = torch.ldexp(torch.full_like(theirs, 2.0**-7), torch.frexp(theirs)[1] - 1)
        size = x[:, :m].float().norm(dim=2)[:, :, None] * w_size[:, None, :]
        bound = 2 * ulp + 4 * 0.3 * k**0.5 * 2.0**-24 * size
        outside.add_((~((ours - theirs).abs() <= bound)).sum())
        different.add_((y != z[:, :m]).sum())

    with torch.no_grad():
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            step()
        start, launches = time.monotonic(), 0
        while launches * each < a.calls and time.monotonic() < start + a.seconds:
            for _ in range(min(100, -(-int(a.calls) // each) - launches)):
                graph.replay()
                launches += 1
            torch.cuda.synchronize()
    calls, elements = launches * each, (launches + 1) * each * m * n
    found = dict(shape=a.shape, calls=calls, elements=elements, outside=int(outside), different=int(different),
                 different_share=int(different) / elements, seconds=round(time.monotonic() - start, 1))
    print(json.dumps(found), flush=True)
    if a.json:
        with open(a.json, "w") as f:
            json.dump(found, f, indent=1)
    sys.exit(1 if found["outside"] or found["different_share"] > 0.01 or not calls else 0)


if __name__ == "__main__":
    main()
