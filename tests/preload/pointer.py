"""Calls numpy's own sgemm through a pointer that the global scope gave out: the caller is no one who loaded a BLAS.

The leading dimension of its one row has more than 32 bits, which only a reader of 64-bit integers sees.
"""
import ctypes

import numpy as np

np.ones((2, 2), np.float32) @ np.ones((2, 2), np.float32)
gemm = ctypes.CDLL(None).scipy_cblas_sgemm64_
c = ctypes.c_float
a, b, out = (c * 3)(1, 2, 3), (c * 3)(4, 5, 6), (c * 1)()
i = ctypes.c_int64
for lda in (3, 2**32 + 3):
    gemm(101, 111, 111, i(1), i(1), i(3), c(1), a, i(lda), b, i(1), c(0), out, i(1))
    print(out[0])
