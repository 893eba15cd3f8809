/* What the kernels' files share: elements of GPU types, a launch's parameters, a row-major gemm. */
#ifndef KFIT_TEST_DOUBLE_KERNELS_H
#define KFIT_TEST_DOUBLE_KERNELS_H

#include "double.h"

enum { F32 = 1, F64, F16, BF16 }; /* enum kfit_dtype */

/* ---- kernels.c: elements, parameters ---- */

uint64_t mix(uint64_t z);
float of_bits(uint32_t bits);
uint16_t to_bf16(float x, bool truncate);
/* Element i of what p points to: a fault where that is not aligned to its own size. */
double get(const void *p, int type, int64_t i);
void put(void *p, int type, int64_t i, float x);
void *pointer(const struct call *c, unsigned i);
int integer(const struct call *c, unsigned i);
void nothing(const struct call *c);

/* ---- kernels_gemm.c ---- */

struct gemm {
    int m, n, k, ta, tb, type, type_c, beta;
    int64_t lda, ldb, ldc;
    const void *a, *b;
    void *c;
    const void *bias; /* or NULL */
    int64_t batch, sa, sb, sc;
    int rows, cols, terms; /* what is done of it */
    bool truncate, half, no_nan;
};

enum { ROWS_MAX = 64, TERMS_MAX = 4096 };

/* One row of op(A), or column of op(B), as float; their product, with what is added, for the output's element `at`. */
void terms_of(const struct gemm *g, bool b, int64_t line, float out[TERMS_MAX]);
float sum(const struct gemm *g, const float *a, const float *b, int64_t at);
/* The gemm of one matrix of the batch. */
struct gemm matrix(const struct gemm *g, int64_t z);
void compute(const struct gemm *g);
/* Whether it read its b lately, as far as an L2 reaches. */
bool cached(const struct gemm *g);

/* ---- the tables; each ends with a row without a name ---- */

extern const struct kernel judge_kernels[], gemm_kernels[], candidate_kernels[];

#endif
