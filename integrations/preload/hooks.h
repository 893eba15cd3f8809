/* The hooked functions, listed once: one row per naming pattern. Entry points, name tables and the linker's
 * export list (exports.map.in) are made from it, so this file is for the preprocessor only. */
#ifndef KFIT_HOOKS_H
#define KFIT_HOOKS_H

/* X(Y, before, after, interface, integer bits, text before and after a control function of the same build)
 *   1, 2  any BLAS, CBLAS and Fortran      3, 4  OpenBLAS with 64-bit integers (numpy 1.x from PyPI)
 *   5, 6  scipy-openblas (scipy from PyPI) 7, 8  scipy-openblas with 64-bit integers (numpy 2.x from PyPI) */
#define KFIT_NAMING_LIST(X, Y)                                                                               \
    X(Y, cblas_, , cblas, 32, "", "")                                                                        \
    X(Y, , _, fortran, 32, "", "")                                                                           \
    X(Y, cblas_, 64_, cblas, 64, "", "64_")                                                                  \
    X(Y, , _64_, fortran, 64, "", "64_")                                                                     \
    X(Y, scipy_cblas_, , cblas, 32, "scipy_", "")                                                            \
    X(Y, scipy_, _, fortran, 32, "scipy_", "")                                                               \
    X(Y, scipy_cblas_, 64_, cblas, 64, "scipy_", "64_")                                                      \
    X(Y, scipy_, _64_, fortran, 64, "scipy_", "64_")

/* Y(function, interface, operation, C type, kfit type): four functions per row */
#define KFIT_HOOKS_OF_NAMING(Y, before, after, interface, bits, control_before, control_after)               \
    Y(before##sgemm##after, interface, gemm, float, KFIT_F32)                                                \
    Y(before##dgemm##after, interface, gemm, double, KFIT_F64)                                               \
    Y(before##sgemv##after, interface, gemv, float, KFIT_F32)                                                \
    Y(before##dgemv##after, interface, gemv, double, KFIT_F64)
#define KFIT_HOOKS_PER_NAMING 4

#define KFIT_HOOK_LIST(Y) KFIT_NAMING_LIST(KFIT_HOOKS_OF_NAMING, Y)

/* Functions of NVIDIA's libraries, which are C functions of ours with the same signature. Y(function, file that has it,
 * arguments); the types are those of cublas.h, or, where a test says so, NVIDIA's. All return a status. */
#define KFIT_CUDA_HOOKS_OF_WIDTH(Y, after, integer)                                                          \
    Y(cublasGemmEx##after, cublas,                                                                           \
      (cublas_handle, cublas_op, cublas_op, integer, integer, integer, const void *, const void *,           \
       cublas_type, integer, const void *, cublas_type, integer, const void *, void *, cublas_type, integer, \
       cublas_compute, cublas_algo))                                                                         \
    Y(cublasGemmStridedBatchedEx##after, cublas,                                                             \
      (cublas_handle, cublas_op, cublas_op, integer, integer, integer, const void *, const void *,           \
       cublas_type, integer, long long, const void *, cublas_type, integer, long long, const void *, void *, \
       cublas_type, integer, long long, integer, cublas_compute, cublas_algo))                               \
    Y(cublasSgemm_v2##after, cublas,                                                                         \
      (cublas_handle, cublas_op, cublas_op, integer, integer, integer, const float *, const float *,         \
       integer, const float *, integer, const float *, float *, integer))                                    \
    Y(cublasSgemmStridedBatched##after, cublas,                                                              \
      (cublas_handle, cublas_op, cublas_op, integer, integer, integer, const float *, const float *,         \
       integer, long long, const float *, integer, long long, const float *, float *, integer, long long,    \
       integer))

#define KFIT_CUDA_HOOK_LIST(Y)                                                                               \
    KFIT_CUDA_HOOKS_OF_WIDTH(Y, , int)                                                                       \
    KFIT_CUDA_HOOKS_OF_WIDTH(Y, _64, int64_t)                                                                \
    Y(cublasDestroy_v2, cublas, (cublas_handle))                                                             \
    Y(cublasLtDestroy, cublaslt, (cublaslt_handle))                                                          \
    Y(cublasLtMatmul, cublaslt,                                                                              \
      (cublaslt_handle, cublaslt_desc, const void *, const void *, cublaslt_layout, const void *,            \
       cublaslt_layout, const void *, const void *, cublaslt_layout, void *, cublaslt_layout,                \
       const cublaslt_algo *, void *, size_t, cublas_stream))

/* Entries of each such function for those who take it by dlsym: one for each library that it is taken from (handed.c).
 * X(k, Y) */
#define KFIT_HANDED_LIST(X, Y) X(0, Y) X(1, Y) X(2, Y) X(3, Y)

#endif
