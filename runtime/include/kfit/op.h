/* kfit/op.h - what an operation is, defined once.
 *
 * An op knows its key (check, text), its arguments at a key (direction, extents), its float64 reference, its
 * cost and its accuracy class. Everything else in kfit is written against this table: a new op is one file
 * runtime/op_NAME.c and one line in runtime/op.c.
 *
 * Thread-safety: the table is constant, all functions are pure.
 */
#ifndef KFIT_OP_H
#define KFIT_OP_H

#include "kfit/key.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KFIT_ARGS_MAX 8

enum kfit_dir { KFIT_IN, KFIT_OUT, KFIT_INOUT };

/* One argument at one key: `batch` matrices of rows x cols elements, row stride ld, matrix stride
 * `batch_stride`, all in elements. Elements between cols and ld belong to the caller and must not change. */
struct kfit_tensor {
    enum kfit_dir dir;
    enum kfit_dtype type;
    int64_t batch, rows, cols, ld, batch_stride;
};

/* Bytes from the first element to one past the last one that belongs to the tensor. */
size_t kfit_tensor_bytes(const struct kfit_tensor *t);

struct kfit_dim {
    const char *name; /* as expressions and kernels see it: "M" gives KFIT_M */
    int64_t value;
};
#define KFIT_DIMS_MAX 24

struct kfit_op {
    enum kfit_op_id id;
    const char *name;
    unsigned version; /* a record made for another version is not used */
    const char *const *arg_names; /* ends with NULL */

    enum kfit_status (*check)(const union kfit_key *, struct kfit_error *);
    size_t (*format)(const union kfit_key *, char *buf, size_t size);
    enum kfit_status (*parse)(const char *text, union kfit_key *, struct kfit_error *);

    /* How many pointer arguments a key has, in the order in which every kernel entry receives them; at most
     * KFIT_ARGS_MAX. An argument that only some keys have (a bias) comes after those that all have. */
    unsigned (*nargs)(const union kfit_key *);

    /* Fills *t for argument i < nargs of a checked key. */
    void (*tensor)(const union kfit_key *, unsigned i, struct kfit_tensor *t);

    /* Key constants for kernels and expressions; returns how many were written (<= KFIT_DIMS_MAX). */
    unsigned (*dims)(const union kfit_key *, struct kfit_dim out[KFIT_DIMS_MAX]);

    /* float64 reference of the (only) output. args[i] points at argument i in its own type and layout; for
     * INOUT arguments at the values before the call. ref and mag receive batch*rows*cols doubles, row-major
     * without gaps: the result, and the sum of the magnitudes of what was added up (for accuracy bounds). */
    void (*reference)(const union kfit_key *, const void *const args[], double *ref, double *mag);

    unsigned out_arg;                             /* index of the output */
    double (*flops)(const union kfit_key *);      /* of the definition, not of an implementation */
    double (*bytes)(const union kfit_key *);      /* compulsory traffic: each input once, each output once */
    int64_t (*reduction)(const union kfit_key *); /* K, the number of terms per output element */
};

/* NULL if there is no such op. Never NULL for the op of a checked key. */
const struct kfit_op *kfit_op_by_id(unsigned id);
const struct kfit_op *kfit_op_by_name(const char *name, size_t len);

static inline const struct kfit_op *kfit_op_of(const union kfit_key *key)
{
    return kfit_op_by_id(key->h.op);
}

/* A BLAS-style call described without choosing a layout; pointers only for alignment. */
struct kfit_gemm_call {
    bool col_major, ta, tb; /* as the caller said it */
    enum kfit_dtype type;
    int64_t m, n, k, lda, ldb, ldc;
    double alpha, beta;
    const void *a, *b;
    void *c;
};

/* Canonicalises a call into a key and the argument order of the key (args[0..2] = A, B, C of the canonical
 * row-major form). kfit/gemm_key.h has the inline form. No errors are formatted. Returns false if the call
 * cannot be a key (dimension 0 or beyond int32, leading dimension illegal): then the original must run.
 * Fields for alpha and beta classes are filled, also OTHER. Cost: a few ns. Thread-safety: pure. */
bool kfit_gemm_key_fill(const struct kfit_gemm_call *call, union kfit_key *key, const void *args[3]);

#ifdef __cplusplus
}
#endif
#endif
