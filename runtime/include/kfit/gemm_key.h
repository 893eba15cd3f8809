/* kfit/gemm_key.h - kfit_gemm_key_fill, inlined for hot paths; contract in kfit/op.h.
 *
 * The key is put together in whole words: single bytes, read back as words by the hash, would stall in the
 * store buffer and cost more than everything else here.
 */
#ifndef KFIT_GEMM_KEY_H
#define KFIT_GEMM_KEY_H

#include "kfit/op.h"

#ifdef __cplusplus
extern "C" {
#endif

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "keys are little-endian"
#endif

static inline uint64_t kfit_scalar_class(double v)
{
    return v == 0 ? KFIT_SCALAR_ZERO : v == 1 ? KFIT_SCALAR_ONE : KFIT_SCALAR_OTHER;
}

static inline bool kfit_gemm_key_fill_inline(const struct kfit_gemm_call *call, union kfit_key *key,
                                             const void *args[3])
{
    bool swap = call->col_major; /* C^T = op(B)^T op(A)^T: the same memory, read row-major */
    int64_t m = swap ? call->n : call->m, n = swap ? call->m : call->n, k = call->k;
    int64_t lda = swap ? call->ldb : call->lda, ldb = swap ? call->lda : call->ldb, ldc = call->ldc;
    bool ta = swap ? call->tb : call->ta, tb = swap ? call->ta : call->tb;
    const void *a = swap ? call->b : call->a, *b = swap ? call->a : call->b;
    if (m < 1 || n < 1 || k < 1 || lda < (ta ? m : k) || ldb < (tb ? k : n) || ldc < n ||
        ((m | n | k | lda | ldb | ldc) >> 31))
        return false;
    unsigned shift = call->type == KFIT_F64 ? 3 : 2;
    uint64_t bits =
        (uintptr_t)a | (uintptr_t)b | (uintptr_t)call->c | (uint64_t)(lda | ldb | ldc) << shift | 16;
    uint64_t type = (uint64_t)call->type;
    key->words[0] = KFIT_GEMM_KEY_BYTES | (uint64_t)KFIT_OP_GEMM << 8 | (uint64_t)ta << 16 |
                    (uint64_t)tb << 24 | type << 32 | type << 40 | type << 48 | type << 56;
    key->words[1] =
        kfit_scalar_class(call->alpha) | kfit_scalar_class(call->beta) << 8 | (bits & -bits) << 16;
    key->words[2] = (uint64_t)m | (uint64_t)n << 32;
    key->words[3] = (uint64_t)k | (uint64_t)lda << 32;
    key->words[4] = (uint64_t)ldb | (uint64_t)ldc << 32;
    args[0] = a;
    args[1] = b;
    args[2] = call->c;
    return true;
}

#ifdef __cplusplus
}
#endif
#endif
