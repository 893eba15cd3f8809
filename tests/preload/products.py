"""A program that multiplies matrices with numpy (and scipy, when there), and says which products it made.

Prints a line "type m n k calls" for each shape of x[m,k] @ W[k,n], then a digest of all results.
"""
import hashlib
import sys

import numpy as np

digest = hashlib.sha256()
random = np.random.default_rng(1)


def note(dtype, m, n, k, calls):
    print({"float32": "f32", "float64": "f64"}[np.dtype(dtype).name], m, n, k, calls)


def matrix(rows, cols, dtype):
    return random.standard_normal((rows, cols)).astype(dtype)


for dtype in (np.float32, np.float64):
    for m, n, k, calls in ((5, 7, 11, 3), (1, 13, 17, 4), (19, 1, 23, 2), (29, 31, 37, 1)):
        x, w = matrix(m, k, dtype), matrix(k, n, dtype)
        for _ in range(calls):
            digest.update((x @ w).tobytes())
        assert np.allclose(x @ w, np.einsum("mk,kn->mn", x, w), rtol=1e-4)
        # one column is a row of the transposed product: y = W x with contiguous y
        note(dtype, *((1, m) if n == 1 else (m, n)), k, calls + 1)
    a, b = matrix(3, 41, dtype), matrix(43, 41, dtype)
    digest.update(np.dot(a, b.T).tobytes())
    note(dtype, 3, 43, 41, 1)

if len(sys.argv) > 1:  # scipy
    from scipy.linalg import blas

    for dtype, gemm, gemv in ((np.float32, blas.sgemm, blas.sgemv), (np.float64, blas.dgemm, blas.dgemv)):
        x, w = np.asfortranarray(matrix(47, 53, dtype)), np.asfortranarray(matrix(53, 59, dtype))
        digest.update(gemm(1, x, w).tobytes())
        note(dtype, 59, 47, 53, 1)  # column-major: the row-major product is the transposed one
        digest.update(gemv(1, w, x[0].copy(), trans=1).tobytes())
        note(dtype, 1, 59, 53, 1)

print("digest", digest.hexdigest())
