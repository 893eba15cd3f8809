/* kfit/key.h - a key: one op at one exact shape.
 *
 * A key is plain bytes: zeroed, then filled, without implicit padding. Its first byte is the number of bytes
 * in use, always a multiple of 8. Only those bytes are hashed and compared; the rest may be anything. A hash
 * finds, the whole key decides. Every field that changes what must be computed, or what a kernel may assume,
 * is in the key.
 *
 * Text form (canonical, row-major): C[m,n] = op(A)[m,k] * op(B)[k,n]
 *
 *   gemm/f32,f32,f32/acc=f32/m=4,n=768,k=768/nn/lda=768,ldb=768,ldc=768/alpha=1,beta=0/align=16
 *
 * followed, where not the default, by /batch=B,sa=..,sb=..,sc=..  /epi=..  /scale=..  /math=..
 * epi=bias: C[m,n] = op(A) * op(B) + bias[n], the bias a vector of C's type, the same for every matrix of a batch.
 * A column-major call becomes this by swapping A and B, m and n: the same computation is the same key.
 *
 * Thread-safety: all functions here are pure.
 */
#ifndef KFIT_KEY_H
#define KFIT_KEY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "kfit/status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KFIT_KEY_MAX_BYTES 128
#define KFIT_KEY_TEXT_MAX  512 /* room for any key's text, with its NUL */

/* Numbers are stored in traces and records: append only. */
enum kfit_op_id { KFIT_OP_NONE, KFIT_OP_GEMM, KFIT_OP_COUNT };
enum kfit_dtype { KFIT_F32 = 1, KFIT_F64, KFIT_F16, KFIT_BF16, KFIT_DTYPE_END };
enum kfit_epilogue { KFIT_EPI_NONE, KFIT_EPI_BIAS, KFIT_EPI_END };
enum kfit_scalar { KFIT_SCALAR_ZERO, KFIT_SCALAR_ONE, KFIT_SCALAR_OTHER };

/* gemm. Leading dimensions are row strides in elements. For batch == 1 the key ends after ldc (40 bytes),
 * else after sc (72 bytes); batch strides sa, sb, sc are in elements. */
struct kfit_gemm_key {
    uint8_t len, op;                /* KFIT_OP_GEMM */
    uint8_t ta, tb;                 /* 1: op(X) is the transpose of what is stored */
    uint8_t type_a, type_b, type_c; /* enum kfit_dtype */
    uint8_t type_acc;
    uint8_t alpha, beta; /* enum kfit_scalar; OTHER is never substituted */
    uint8_t align;       /* largest power of two <= 16 dividing every pointer and row stride in bytes */
    uint8_t epi;         /* enum kfit_epilogue */
    uint8_t scale, math; /* 0: none, 0: default */
    uint8_t zero[2];
    int32_t m, n, k, lda, ldb, ldc;
    int32_t batch, zero2;
    int64_t sa, sb, sc;
};

union kfit_key {
    struct {
        uint8_t len, op;
    } h;
    struct kfit_gemm_key gemm;
    uint8_t bytes[KFIT_KEY_MAX_BYTES];
    uint64_t words[KFIT_KEY_MAX_BYTES / 8];
};

#define KFIT_GEMM_KEY_BYTES         40u
#define KFIT_GEMM_KEY_BATCHED_BYTES 72u

static inline bool kfit_key_equal(const union kfit_key *a, const union kfit_key *b)
{
    if (a->h.len != b->h.len)
        return false;
    uint64_t diff = 0;
    for (unsigned i = 0; i < a->h.len / 8u; i++)
        diff |= a->words[i] ^ b->words[i];
    return diff == 0;
}

/* XXH3-64 (seed 0) of the used bytes. The value is stored in traces. */
uint64_t kfit_key_hash(const union kfit_key *key);

/* Checks every field against the op's rules (dimensions > 0, leading dimensions large enough, known types,
 * unused bytes zero). Use it on every key that was not filled by kfit itself. Errors: KFIT_E_FORMAT. */
enum kfit_status kfit_key_check(const union kfit_key *key, struct kfit_error *err);

/* Writes the canonical text, at most size bytes with the NUL; returns its length, or 0 if the key is not
 * valid or size is too small (buf is then "" if size > 0). KFIT_KEY_TEXT_MAX always suffices. */
size_t kfit_key_format(const union kfit_key *key, char *buf, size_t size);

/* Reads the canonical text; accepts nothing else, so that text and key are one to one. Errors: KFIT_E_FORMAT,
 * with the offending part and what was expected in err. */
enum kfit_status kfit_key_parse(const char *text, union kfit_key *key, struct kfit_error *err);

const char *kfit_dtype_name(enum kfit_dtype t); /* "f32"; "?" if unknown */
unsigned kfit_dtype_bytes(enum kfit_dtype t);   /* 0 if unknown */
double kfit_dtype_roundoff(enum kfit_dtype t);  /* unit roundoff u = 2^-p; 0 if unknown */

#ifdef __cplusplus
}
#endif
#endif
