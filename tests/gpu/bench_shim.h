/* One bf16 linear, y[m,n] = x[m,k] . w[n,k]^T, by cublasGemmEx, or with a bias by cublasLtMatmul, as PyTorch
 * calls them: what bench_shim times. own: by the library's own pointer, past whoever stands before it. Functions return 0 or
 * an error. */
#ifndef KFIT_BENCH_SHIM_H
#define KFIT_BENCH_SHIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct bench_calls {
    int m, n, k;
    void *x, *w, *y, *bias, *workspace, *stream; /* on the GPU; the caller's */
    size_t workspace_bytes;
    void *handle, *desc, *layout[3]; /* bench_open's, until exit */
    char algo[64];
    void *gemm_ex, *lt_matmul; /* the library's own functions */
};

__attribute__((visibility("default"))) int bench_open(struct bench_calls *,
                                                      const char **what); /* what: failed */
__attribute__((visibility("default"))) int bench_gemm_ex(struct bench_calls *, bool own);
__attribute__((visibility("default"))) int bench_lt_matmul(struct bench_calls *, bool own);

#endif
