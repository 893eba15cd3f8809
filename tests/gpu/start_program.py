"""What bench_start.py measures: a PyTorch process that makes one call. Knows nothing of kfit. Prints, last, when it reached the end of
each phase, by CLOCK_MONOTONIC: [[phase, ns], ...]."""
import time

reached = [("python", time.monotonic_ns())]


def reach(phase):
    reached.append((phase, time.monotonic_ns()))


import json  # noqa: E402

import torch  # noqa: E402
import torch.nn.functional as F  # noqa: E402

reach("torch")
torch.cuda.init()
reach("init")
torch.cuda.synchronize()
reach("context")
x, w = (torch.randn(n, 3072, device="cuda").to(torch.bfloat16) for n in (1, 1024))
torch.cuda.synchronize()
reach("kernels")
with torch.no_grad():
    F.linear(x, w)
torch.cuda.synchronize()
reach("gemm")
print(json.dumps(reached))
