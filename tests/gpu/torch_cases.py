"""What PyTorch programs do with GEMMs, one case each: torch_cases.py CASE. Knows nothing of kfit.

Prints one JSON object, last: what a case expects to be counted, as [beginning of the key, a part of it, calls], and
whatever else test_torch.py looks at. `shapes` stands for all calls of TUNED: record it, tune, and run `dispatched`.
"""
import ctypes
import hashlib
import json
import sys
import threading

import torch
import torch.nn.functional as F

TUNED = [(1, 1024, 3072), (4, 2048, 2048), (4, 256, 3072)]  # m, n, k of bf16 linears
CASES = {}
KINDS = {torch.bfloat16: "bf16", torch.float16: "f16", torch.float32: "f32"}


def case(f):
    CASES[f.__name__] = f
    return f


def rand(*shape, dtype=torch.bfloat16, seed=1):
    g = torch.Generator("cuda").manual_seed(seed)
    return torch.randn(*shape, device="cuda", generator=g).to(dtype)


def key(m, n, k, calls, dtype=torch.bfloat16, layout="nt", part=""):
    t = KINDS[dtype]
    return [f"gemm/{t},{t},{t}/acc=f32/m={m},n={n},k={k}/{layout}/", part, calls]


def digest(t):
    return hashlib.sha256(t.detach().contiguous().cpu().view(torch.uint8).numpy().tobytes()).hexdigest()


# ---- counts: distinct dimensions, so that a swap is seen ----


@case
def linear():
    w = rand(1048, 776)
    F.linear(rand(776), w)
    for _ in range(3):
        F.linear(rand(5, 776), w)
    for _ in range(2):
        F.linear(rand(3, 7, 776), w)
    return dict(expect=[key(1, 1048, 776, 1), key(5, 1048, 776, 3), key(21, 1048, 776, 2)],
                exact="gemm/bf16,bf16,bf16/acc=f32/m=5,n=1048,k=776/nt/lda=776,ldb=776,ldc=1048/alpha=1,beta=0/align=16")


@case
def bias():
    w, b = rand(1048, 776), rand(1048)
    for _ in range(4):
        F.linear(rand(5, 776), w, b)
    return dict(expect=[key(5, 1048, 776, 4, part="epi=bias")])


@case
def matmul():
    w = rand(776, 1048)
    for _ in range(3):
        rand(5, 776) @ w
    return dict(expect=[key(5, 1048, 776, 3, layout="nn")])


@case
def bmm():
    for _ in range(3):
        torch.bmm(rand(6, 5, 776), rand(6, 776, 1048))
    return dict(expect=[key(5, 1048, 776, 3, layout="nn", part="batch=6")])


@case
def types():
    for t in KINDS:
        for _ in range(2):
            F.linear(rand(5, 776, dtype=t), rand(1048, 776, dtype=t))
    return dict(expect=[key(5, 1048, 776, 2, dtype=t) for t in KINDS])


@case
def taken():
    """cuBLAS by a pointer that dlsym gave, as whoever does not link it calls it."""
    m, n, k = 5, 1048, 776
    x, w, y = rand(m, k), rand(n, k) * k**-0.5, torch.zeros(m, n, device="cuda", dtype=torch.bfloat16)
    cublas = ctypes.CDLL(f"libcublas.so.{torch.version.cuda.split('.')[0]}")  # PyTorch's, which is loaded
    one, zero, p = ctypes.c_float(1), ctypes.c_float(0), ctypes.c_void_p
    handle = p(torch.cuda.current_blas_handle())
    for _ in range(3):
        status = cublas.cublasGemmEx(handle, 1, 0, n, m, k, ctypes.byref(one), p(w.data_ptr()), 14, k, p(x.data_ptr()), 14, k,
                                     ctypes.byref(zero), p(y.data_ptr()), 14, n, 68, 99)
        assert status == 0, status
    want = x.double() @ w.double().t()
    return dict(expect=[key(m, n, k, 3)], error=float((y.double() - want).abs().max() / want.abs().max()))


@case
def modes():
    """What a handle is told between calls of one tuned shape: scalars on the device, TF32, another stream; and then no more."""
    m, n, k = TUNED[1]
    x, w = rand(m, k), rand(n, k) * k**-0.5
    cublas = ctypes.CDLL(f"libcublas.so.{torch.version.cuda.split('.')[0]}")
    p, handle, wrong = ctypes.c_void_p, ctypes.c_void_p(torch.cuda.current_blas_handle()), []
    host, device = (ctypes.c_float * 2)(1, 0), torch.tensor([1.0, 0.0], device="cuda")
    own, side, want = torch.cuda.current_stream(), torch.cuda.Stream(), x.double() @ w.double().t()
    for pointers, math, stream in ((0, 0, own), (1, 0, own), (0, 3, own), (1, 3, own), (0, 0, side), (0, 0, own)):
        y = torch.zeros(m, n, device="cuda", dtype=torch.bfloat16)
        torch.cuda.synchronize()
        assert not cublas.cublasSetPointerMode_v2(handle, pointers) and not cublas.cublasSetMathMode(handle, math)
        assert not cublas.cublasSetStream_v2(handle, p(stream.cuda_stream))
        one, zero = [(device.data_ptr() if pointers else ctypes.addressof(host)) + 4 * i for i in range(2)]
        busy = torch.cuda.Event()
        with torch.cuda.stream(stream):
            torch.cuda._sleep(20_000_000)  # the call is behind this only on the stream that it was told
            status = cublas.cublasGemmEx(handle, 1, 0, n, m, k, p(one), p(w.data_ptr()), 14, k, p(x.data_ptr()), 14, k, p(zero), p(y.data_ptr()), 14, n, 68, 99)
            busy.record()
        assert status == 0, status
        with torch.cuda.stream(side if stream is own else own):
            early = int(not busy.query() and (y.cpu() != 0).any())
        torch.cuda.synchronize()
        wrong.append(early + int(float((y.double() - want).abs().max() / want.abs().max()) > 0.02))
    return dict(expect=[key(m, n, k, 3)], wrong=wrong)


@case
def graph():
    x, w1, w2 = rand(5, 776), rand(1048, 776), rand(520, 776)

    def step():
        return F.linear(x, w1), F.linear(x, w1), F.linear(x, w2)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        step()
    for _ in range(1000):
        g.replay()
    torch.cuda.synchronize()
    return dict(expect=[key(5, 1048, 776, 2 * 1003), key(5, 520, 776, 1003)])


@case
def graph_first():
    """A shape's first call is inside a capture."""
    x, w = rand(5, 776), rand(1048, 776)
    F.linear(rand(5, 264), rand(520, 264))  # cuBLAS itself must be up before a capture
    torch.cuda.synchronize()
    g = torch.cuda.CUDAGraph()
    with torch.cuda.graph(g):
        y = F.linear(x, w)
    y.fill_(float("nan"))
    for _ in range(7):
        g.replay()
    want = F.linear(torch.cat([x, x]), w)[:5]
    error = float((y.double() - want.double()).abs().max() / want.double().abs().max())
    return dict(expect=[key(5, 520, 264, 1), key(5, 1048, 776, 7), key(10, 1048, 776, 1)], error=error)


@case
def graph_update():
    """An executable graph is given another graph's contents: from then on it counts those."""
    w1, w2 = rand(1048, 776), rand(1048, 776, seed=2)
    x = rand(5, 776)
    F.linear(x, w1)
    graphs, outs = [], []
    for w in (w1, w2):
        graphs.append(torch.cuda.CUDAGraph(keep_graph=True))
        with torch.cuda.graph(graphs[-1]):
            outs.append(F.linear(x, w))
    graphs[0].instantiate()
    for _ in range(5):
        graphs[0].replay()
    torch.cuda.synchronize()
    info = (ctypes.c_void_p * 3)()
    cudart = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
    r = cudart.cudaGraphExecUpdate(ctypes.c_void_p(graphs[0].raw_cuda_graph_exec()), ctypes.c_void_p(graphs[1].raw_cuda_graph()), info)
    outs[1].fill_(float("nan"))
    for _ in range(7):
        graphs[0].replay()
    torch.cuda.synchronize()
    return dict(expect=[key(5, 1048, 776, 13)], update=r, fresh=bool(torch.isfinite(outs[1]).all()))


@case
def compiled():
    import torch._inductor.config

    torch._inductor.config.shape_padding = False  # it times products of other shapes first
    w = rand(1048, 776)
    f = torch.compile(lambda x: F.relu(F.linear(x, w)) * 2, mode="reduce-overhead", dynamic=False)
    x = rand(5, 776)
    with torch.no_grad():
        for _ in range(20):
            torch.compiler.cudagraph_mark_step_begin()
            y = f(x).clone()
    want = F.relu(F.linear(torch.cat([x, x]), w))[:5] * 2
    error = float((y.double() - want.double()).abs().max() / want.double().abs().max())
    return dict(expect=[key(5, 1048, 776, 20), key(10, 1048, 776, 1)], error=error)


try:
    import triton
    import triton.language as tl

    @triton.jit
    def double_it(src, dst, n, BLOCK: tl.constexpr):
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(dst + at, tl.load(src + at, mask=at < n) * 2, mask=at < n)
except ImportError:
    triton = None


@case
def others():
    """Kernels of Triton and Inductor beside one GEMM: they run as ever and are no calls."""
    F.linear(rand(5, 776), rand(1048, 776))
    x = rand(4096, dtype=torch.float32)
    y = torch.empty_like(x)
    for _ in range(10):
        double_it[(8,)](x, y, 4096, BLOCK=512)
    f = torch.compile(lambda v: torch.sin(v) * 3 + v)
    error = max(float((y - 2 * x).abs().max()), float((f(x) - (torch.sin(x) * 3 + x)).abs().max()))
    return dict(expect=[key(5, 1048, 776, 1)], error=error)


@case
def profiled():
    """torch.profiler sees what it saw before, and as many GEMM calls as were counted."""
    from torch.profiler import ProfilerActivity, profile

    x, w = rand(5, 776), rand(1048, 776)
    a, b = rand(6, 5, 776), rand(6, 776, 1048)
    F.linear(x, w)
    torch.bmm(a, b)
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as prof:
        for _ in range(5):
            F.linear(x, w)
        for _ in range(3):
            torch.bmm(a, b)
        torch.cuda.synchronize()
    events = prof.events()
    ops = sum(e.name in ("aten::mm", "aten::addmm", "aten::bmm") for e in events)
    on_gpu = sum(e.device_type == torch.autograd.DeviceType.CUDA for e in events)
    return dict(expect=[key(5, 1048, 776, 6), key(5, 1048, 776, 4, layout="nn", part="batch=6")], ops=ops, on_gpu=on_gpu)


@case
def scaled():
    """float8: other arithmetic, with scales; never ours."""
    x, w = rand(16, 3072).to(torch.float8_e4m3fn), rand(1024, 3072).to(torch.float8_e4m3fn)
    one = torch.full((), 0.5, device="cuda")
    return dict(digest=digest(torch._scaled_mm(x, w.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16)))


# ---- dispatched ----


@case
def shapes():
    for m, n, k in TUNED:
        x, w = rand(m, k), rand(n, k)
        for _ in range(64):
            F.linear(x, w)
    return dict(expect=[key(m, n, k, 64) for m, n, k in TUNED])


def judged(y, x, w):
    """Against float64: share of elements that are not the correctly rounded value, and how many are off by more than 2 ulp
    and what sums in float32 may lose."""
    want, size = x.double() @ w.double().t(), x.double().abs() @ w.double().abs().t()
    rounded = want.to(y.dtype)
    ulp = torch.ldexp(torch.full_like(want, 2.0**-7), torch.frexp(rounded.double().abs())[1] - 1)
    bound = 2 * ulp + 4 * 0.3 * x.shape[1] ** 0.5 * 2.0**-24 * size
    error = (y.double() - want).abs()
    return int((y != rounded).sum()), int((~(error <= bound)).sum()), y.numel()


def inputs(m, n, k):
    for i in range(6):
        x, w = rand(m, k, seed=2 * i), rand(n, k, seed=2 * i + 1) * k**-0.5
        yield [x, x * 10, x * 0.01, x + 3, x * (torch.arange(k, device="cuda") % 2 * 2 - 1), x * (rand(m, k, seed=99) > 2)][i].to(x.dtype), w


@case
def dispatched():
    """Eagerly and from a graph: what comes out, by distribution."""
    found = {}
    for m, n, k in TUNED:
        rows, same = [], True
        for x, w in inputs(m, n, k):
            y = F.linear(x, w)
            rows.append(judged(y, x, w))
            torch.cuda.synchronize()
            g = torch.cuda.CUDAGraph()
            with torch.cuda.graph(g):
                z = F.linear(x, w)
            z.fill_(float("nan"))
            for _ in range(3):
                g.replay()
            same &= bool((y == z).all())
        found[f"m={m},n={n},k={k}"] = dict(rows=rows, graph_same=same)
    return dict(found=found, calls=len(TUNED) * 6 * 4)


@case
def held():
    """Says when a graph is there, and captures it again when told to; until then it is replayed, whatever is switched."""
    calls = [(rand(m, k), rand(n, k)) for m, n, k in TUNED]
    graph = torch.cuda.CUDAGraph()

    def capture():
        with torch.cuda.graph(graph):
            for x, w in calls:
                torch.relu(F.linear(x, w))
        for _ in range(100):
            graph.replay()
        torch.cuda.synchronize()

    for x, w in calls:
        F.linear(x, w)
    for _ in range(2):
        capture()
        print("ready", flush=True)
        sys.stdin.readline()
        graph.reset()
    print("gone", flush=True)
    sys.stdin.readline()
    return dict()


@case
def streams():
    """One shape on two streams at once, from two threads, and two graphs of it replayed at once."""
    m, n, k = TUNED[1]
    w, xs = rand(n, k), [rand(m, k, seed=s) for s in range(8)]
    want = [F.linear(x, w) for x in xs]
    torch.cuda.synchronize()
    wrong = [0, 0]

    def work(who):
        with torch.cuda.stream(torch.cuda.Stream()):
            for i in range(400):
                at = (i * (who + 1)) % len(xs)
                wrong[who] += int((F.linear(xs[at], w) != want[at]).sum())

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    graphs = []
    for i in range(2):
        g = torch.cuda.CUDAGraph()
        with torch.cuda.graph(g):
            outs = [F.linear(x, w) for x in xs]
        graphs.append((g, outs))
    sides = [torch.cuda.Stream() for _ in graphs]
    for _ in range(50):
        for s, (g, _) in zip(sides, graphs):
            with torch.cuda.stream(s):
                g.replay()
    torch.cuda.synchronize()
    in_graphs = sum(int((y != z).sum()) for _, outs in graphs for y, z in zip(outs, want))
    return dict(wrong=sum(wrong), in_graphs=in_graphs)


@case
def beta():
    """Other alphas and betas than 1 and 0 at a tuned shape: never ours, and right."""
    m, n, k = TUNED[1]
    x, w, c = rand(m, k), rand(n, k) * k**-0.5, rand(m, n)
    worst = 0.0
    for b, a in ((1, 1), (0.5, 2), (0, 2), (1, 0.25)):
        y = torch.addmm(c, x, w.t(), beta=b, alpha=a).double()
        want = b * c.double() + a * (x.double() @ w.double().t())
        worst = max(worst, float((y - want).abs().max() / want.abs().max()))
    return dict(error=worst)


@case
def first():
    """A process with one call."""
    m, n, k = TUNED[0]
    F.linear(rand(m, k), rand(n, k))
    torch.cuda.synchronize()
    return {}


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in CASES:
        sys.exit(f"{__doc__}\ncases: {' '.join(CASES)}")
    if not torch.cuda.is_available():
        sys.exit("torch_cases.py: PyTorch sees no GPU")
    with torch.no_grad():
        result = CASES[sys.argv[1]]()
    torch.cuda.synchronize()
    print(json.dumps(result))
