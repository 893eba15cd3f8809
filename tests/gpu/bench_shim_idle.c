/* Stands behind whatever is preloaded, before cuBLAS and the driver: what bench_shim times, and nothing else. Told so, each returns at
 * once, and all that a call costs is what stands before it. Two libraries are made of this: the driver's functions (DRIVER) are there
 * before libcublas is loaded, which asks for the driver as soon as it is; cuBLAS's are linked with it, whose other functions one finds
 * here therefore: they are its own. */
#include <dlfcn.h>
#include <stddef.h>

#define EXPORT __attribute__((visibility("default")))

EXPORT extern int bench_shim_idle; /* of the driver's */

/* Until it is told, cuBLAS is called; of the driver's functions nobody calls these before, and -1 is no result of theirs. */
#define IDLE(function, parameters, otherwise)                                                                \
    EXPORT int function parameters;                                                                          \
    int function parameters                                                                                  \
    {                                                                                                        \
        return __builtin_expect(bench_shim_idle, 1) ? 0 : (otherwise);                                       \
    }
#define NEXT(function, parameters, arguments)                                                                \
    static __attribute__((noinline)) int next_##function parameters                                          \
    {                                                                                                        \
        int(*next) parameters = (int(*) parameters)dlsym(RTLD_NEXT, #function);                              \
        return next ? next arguments : -1;                                                                   \
    }                                                                                                        \
    IDLE(function, parameters, next_##function arguments)

#ifndef DRIVER
NEXT(cublasGemmEx,
     (void *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int type_a, int lda,
      const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc, int compute,
      int algo),
     (h, ta, tb, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, compute, algo))
NEXT(cublasLtMatmul,
     (void *h, void *desc, const void *alpha, const void *a, void *layout_a, const void *b, void *layout_b,
      const void *beta, const void *c, void *layout_c, void *d, void *layout_d, const void *algo,
      void *workspace, size_t bytes, void *stream),
     (h, desc, alpha, a, layout_a, b, layout_b, beta, c, layout_c, d, layout_d, algo, workspace, bytes,
      stream))
#else
int bench_shim_idle;
IDLE(cuLaunchKernel,
     (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned smem,
      void *stream, void **params, void **extra),
     ((void)f, (void)gx, (void)gy, (void)gz, (void)bx, (void)by, (void)bz, (void)smem, (void)stream,
      (void)params, (void)extra, -1))
IDLE(cuLaunchKernelEx, (const void *config, void *f, void **params, void **extra),
     ((void)config, (void)f, (void)params, (void)extra, -1))
IDLE(cuGraphLaunch, (void *graph, void *stream), ((void)graph, (void)stream, -1))
#endif
