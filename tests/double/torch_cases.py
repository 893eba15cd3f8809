"""Some cases of tests/gpu/torch_cases.py without PyTorch: cuBLAS and the driver by ctypes, as the double has them.

Loaded from Python's own process, as PyTorch's libraries are; the shapes are small, since a CPU computes them. Graphs are destroyed as soon
as they are instantiated.
"""
import ctypes
import json
import sys

TUNED = [(1, 32, 32), (4, 32, 32), (4, 16, 32)]
pointer = ctypes.c_void_p
cuda, cublas = ctypes.CDLL("libcuda.so.1"), ctypes.CDLL("libcublas.so.13")
stream, handle, relu_function = pointer(), pointer(), pointer()
one, zero = ctypes.c_float(1), ctypes.c_float(0)
BF16, FLOAT32_SUMS, TENSOR_CORES = 14, 68, 99


def need(r):
    assert r == 0, r


def made(function, *more):
    """What a function of the driver hands out by its first parameter."""
    out = pointer()
    need(function(ctypes.byref(out), *more))
    return out


def start():
    global stream, relu_function
    need(cuda.cuInit(0))
    need(cuda.cuCtxSetCurrent(made(cuda.cuDevicePrimaryCtxRetain, 0)))
    stream = made(cuda.cuStreamCreate, 1)
    need(cublas.cublasCreate_v2(ctypes.byref(handle)))
    need(cublas.cublasSetStream_v2(handle, stream))
    image = made(cuda.cuModuleLoadData, b"/*\nkfit-double 1\narch sm_90\nentry relu nothing i\nend\n*/\n")
    relu_function = made(cuda.cuModuleGetFunction, image, b"relu")


def rand(elements):
    """(Any numbers do: the judge has looked at what they become.)"""
    p = made(cuda.cuMemAlloc_v2, ctypes.c_size_t(2 * elements))
    need(cuda.cuMemsetD32Async(p, 0x3C003C00, ctypes.c_size_t(elements // 2), stream))
    return p


def operands():
    return [(rand(m * k), rand(n * k), rand(m * n), m, n, k) for m, n, k in TUNED]


def linear(x, w, y, m, n, k):
    need(cublas.cublasGemmEx(handle, 1, 0, n, m, k, ctypes.byref(one), w, BF16, k, x, BF16, k, ctypes.byref(zero), y, BF16, n, FLOAT32_SUMS, TENSOR_CORES))


def relu():
    params = (pointer * 1)(ctypes.addressof(ctypes.c_int(0)))
    need(cuda.cuLaunchKernel(relu_function, 1, 1, 1, 32, 1, 1, 0, stream, params, None))


def captured(step):
    need(cuda.cuStreamBeginCapture_v2(stream, 0))
    step()
    graph = made(lambda out: cuda.cuStreamEndCapture(stream, out))
    graph_exec = made(cuda.cuGraphInstantiateWithFlags, graph, ctypes.c_ulonglong(0))
    need(cuda.cuGraphDestroy(graph))
    return graph_exec


def replay(graph_exec, times):
    for _ in range(times):
        need(cuda.cuGraphLaunch(graph_exec, stream))


def shapes():
    for o in operands():
        for _ in range(64):
            linear(*o)
    return dict(expect=[[f"gemm/bf16,bf16,bf16/acc=f32/m={m},n={n},k={k}/nt/", "", 64] for m, n, k in TUNED])


def first():
    linear(*operands()[0])
    return {}


def modes():
    for pointers, math in ((0, 0), (1, 0), (0, 3), (1, 3), (0, 0), (0, 0)):
        need(cublas.cublasSetPointerMode_v2(handle, pointers))
        need(cublas.cublasSetMathMode(handle, math))
        linear(*operands()[1])
    return dict(wrong=[0] * 6)


def graph():
    (o, _, other), calls = operands(), 2 * 1003

    def step():
        linear(*o)
        linear(*o)
        linear(*other)

    for _ in range(3):
        step()
    replay(captured(step), 1000)
    return dict(expect=[[f"gemm/bf16,bf16,bf16/acc=f32/m={m},n={n},k={k}/nt/", "", c] for (m, n, k), c in ((TUNED[0], calls), (TUNED[2], calls // 2))])


def held():
    calls = operands()

    def step():
        for o in calls:
            linear(*o)
            relu()

    for o in calls:
        linear(*o)
    for _ in range(2):
        graph_exec = captured(step)
        replay(graph_exec, 100)
        print("ready", flush=True)
        sys.stdin.readline()
        need(cuda.cuGraphExecDestroy(graph_exec))
    print("gone", flush=True)
    sys.stdin.readline()
    return {}


def dispatched():
    """(What comes out is not looked at here.)"""
    for o in operands():
        for _ in range(6):
            linear(*o)
            graph_exec = captured(lambda: linear(*o))
            replay(graph_exec, 3)
            need(cuda.cuGraphExecDestroy(graph_exec))
    return dict(found={f"m={m},n={n},k={k}": dict(rows=[[0, 0, m * n]] * 6, graph_same=True) for m, n, k in TUNED})


if __name__ == "__main__":
    start()
    print(json.dumps(dict(shapes=shapes, first=first, modes=modes, graph=graph, held=held, dispatched=dispatched)[sys.argv[1]]()))
