/* A BLAS function that exists nowhere but here is still called: a program asks for it weakly, or by dlsym,
 * and takes our definition for a BLAS. The only right answer is the product. Slow, seldom, and the
 * definition. */
#include "preload.h"

static double get(const void *p, enum kfit_dtype type, int64_t i)
{
    return type == KFIT_F64 ? ((const double *)p)[i] : ((const float *)p)[i];
}

/* Where element (row, col) of op(X) is stored. */
static int64_t at(const struct kfit_gemm_call *call, bool transposed, int64_t ld, int64_t row, int64_t col)
{
    return transposed != call->col_major ? col * ld + row : row * ld + col;
}

void kfit_reference_gemm(const struct kfit_gemm_call *call)
{
    for (int64_t i = 0; i < call->m; i++)
        for (int64_t j = 0; j < call->n; j++) {
            int64_t c = at(call, false, call->ldc, i, j);
            double sum = 0;
            for (int64_t p = 0; call->alpha != 0 && p < call->k; p++)
                sum += get(call->a, call->type, at(call, call->ta, call->lda, i, p)) *
                       get(call->b, call->type, at(call, call->tb, call->ldb, p, j));
            sum *= call->alpha;
            if (call->beta != 0) /* beta 0 does not read c */
                sum += call->beta * get(call->c, call->type, c);
            if (call->type == KFIT_F64)
                ((double *)call->c)[c] = sum;
            else
                ((float *)call->c)[c] = (float)sum;
        }
}
