/* Another interposer, of a function of cuBLAS and of one of the driver: it finds the next one by name, as most do, and says how
 * many calls it saw. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

static unsigned seen;

static void say(void)
{
    printf("other saw %u calls\n", seen);
}

static void saw(const void *next)
{
    if (!seen++)
        atexit(say);
    if (seen > 100 || !next) /* called by itself, or there is none */
        abort();
}

#define PASSES_ON(function, parameters, arguments)                                                           \
    __attribute__((visibility("default"))) int function parameters;                                          \
    int function parameters                                                                                  \
    {                                                                                                        \
        int(*next) parameters = (int(*) parameters)dlsym(RTLD_NEXT, #function);                              \
        saw((const void *)next);                                                                             \
        return next arguments;                                                                               \
    }

PASSES_ON(cublasGemmEx,
          (void *h, int ta, int tb, int m, int n, int k, const void *alpha, const void *a, int type_a,
           int lda, const void *b, int type_b, int ldb, const void *beta, void *c, int type_c, int ldc,
           int compute, int algo),
          (h, ta, tb, m, n, k, alpha, a, type_a, lda, b, type_b, ldb, beta, c, type_c, ldc, compute, algo))
PASSES_ON(cuLaunchKernel,
          (void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
           unsigned smem, void *stream, void **params, void **extra),
          (f, gx, gy, gz, bx, by, bz, smem, stream, params, extra))
