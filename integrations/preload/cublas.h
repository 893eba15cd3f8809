/* cuBLAS and cuBLASLt as a program calls them: types, the functions that we ask about a call, and the key it becomes.
 * Written out by hand, as kfit/cuda.h is; tests/test_cublas_abi.c compares all of it with NVIDIA's headers. */
#ifndef KFIT_PRELOAD_CUBLAS_H
#define KFIT_PRELOAD_CUBLAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "hooks.h"
#include "kfit/gemm_key.h"
#include "kfit/reason.h"

typedef int cublas_op, cublas_type, cublas_compute, cublas_algo, cublas_pointers, cublas_math;
typedef int cublaslt_desc_attribute, cublaslt_layout_attribute;
typedef void *cublas_handle, *cublas_stream, *cublaslt_handle;
/* Opaque, but of fixed size and whole: programs may keep them on their stack, and nothing frees what is in them. */
struct kfit_cublaslt_desc {
    uint64_t word[32];
};
struct kfit_cublaslt_layout {
    uint64_t word[8];
};
typedef struct kfit_cublaslt_desc *cublaslt_desc;
typedef struct kfit_cublaslt_layout *cublaslt_layout;
typedef struct {
    uint64_t word[8];
} cublaslt_algo;

enum { KFIT_CUBLAS_OK = 0, KFIT_CUBLAS_NOT_INITIALIZED = 1 };
enum { KFIT_CUBLAS_OP_N, KFIT_CUBLAS_OP_T, KFIT_CUBLAS_OP_C };
enum { KFIT_CUBLAS_POINTERS_ON_HOST = 0, KFIT_CUBLAS_DEFAULT_MATH = 0 };
enum { KFIT_CUBLAS_COMPUTE_F32 = 68, KFIT_CUBLAS_ALGO_TENSOR = 99 };
enum { KFIT_CUBLAS_R_F32 = 0, KFIT_CUBLAS_R_F16 = 2, KFIT_CUBLAS_R_BF16 = 14 };
/* cublasLtMatmulDescAttributes_t and cublasLtMatrixLayoutAttribute_t: those that we understand, and some that we know */
enum {
    KFIT_CUBLASLT_DESC_POINTER_MODE = 2,
    KFIT_CUBLASLT_DESC_TRANSA,
    KFIT_CUBLASLT_DESC_TRANSB,
    KFIT_CUBLASLT_DESC_EPILOGUE = 7,
    KFIT_CUBLASLT_DESC_BIAS,
    KFIT_CUBLASLT_DESC_BIAS_STRIDE = 10,
    KFIT_CUBLASLT_DESC_AUX_STRIDE = 13,
    KFIT_CUBLASLT_DESC_A_SCALE = 17,
    KFIT_CUBLASLT_DESC_D_SCALE = 20,
    KFIT_CUBLASLT_DESC_BIAS_TYPE = 26,
    KFIT_CUBLASLT_DESC_A_SCALE_MODE = 31,
    KFIT_CUBLASLT_DESC_D_OUT_SCALE_MODE = 37,
};
enum {
    KFIT_CUBLASLT_LAYOUT_TYPE,
    KFIT_CUBLASLT_LAYOUT_ROWS = 2,
    KFIT_CUBLASLT_LAYOUT_COLS,
    KFIT_CUBLASLT_LAYOUT_LD,
    KFIT_CUBLASLT_LAYOUT_BATCH,
    KFIT_CUBLASLT_LAYOUT_STRIDE,
};
enum { KFIT_CUBLASLT_EPI_DEFAULT = 1, KFIT_CUBLASLT_EPI_BIAS = 4 };

/* X(member, symbol, arguments): all return a status */
#define KFIT_CUBLAS_LIST(X)                                                                                  \
    X(stream, cublasGetStream_v2, (cublas_handle, cublas_stream *))                                          \
    X(pointer_mode, cublasGetPointerMode_v2, (cublas_handle, cublas_pointers *))                             \
    X(math_mode, cublasGetMathMode, (cublas_handle, cublas_math *))

#define KFIT_CUBLASLT_LIST(X)                                                                                \
    X(desc_create, cublasLtMatmulDescCreate, (cublaslt_desc *, cublas_compute, cublas_type scale))           \
    X(desc_get, cublasLtMatmulDescGetAttribute,                                                              \
      (cublaslt_desc, cublaslt_desc_attribute, void *, size_t, size_t *needed))                              \
    X(desc_set, cublasLtMatmulDescSetAttribute,                                                              \
      (cublaslt_desc, cublaslt_desc_attribute, const void *, size_t))                                        \
    X(layout_create, cublasLtMatrixLayoutCreate,                                                             \
      (cublaslt_layout *, cublas_type, uint64_t rows, uint64_t cols, int64_t ld))                            \
    X(layout_get, cublasLtMatrixLayoutGetAttribute,                                                          \
      (cublaslt_layout, cublaslt_layout_attribute, void *, size_t, size_t *needed))

struct kfit_cublas {
#define KFIT_X(member, symbol, arguments) int(*member) arguments;
    KFIT_CUBLAS_LIST(KFIT_X)
#undef KFIT_X
};

struct kfit_cublaslt {
#define KFIT_X(member, symbol, arguments) int(*member) arguments;
    KFIT_CUBLASLT_LIST(KFIT_X)
#undef KFIT_X
    cublaslt_desc fresh; /* as made: whatever differs from it, and is not understood, is not served */
    cublaslt_layout fresh_layout;
    int bias_word; /* of a descriptor; -1: not known, then nothing is remembered of descriptors */
};

struct kfit_blas;
struct kfit_site;

/* Fills in what a library is asked through; without, it is unfit. original.c calls these, once per library. */
void kfit_cublas_describe(struct kfit_blas *b, void *handle);
void kfit_cublaslt_describe(struct kfit_blas *b, void *handle);
/* "cuBLAS 13.1.0", as the tuner has it from a handle: of the library opened as `library`, NULL: of whichever is loaded; ""
 * if none is. */
void kfit_cublas_name(char *buf, size_t size, void *library);

/* ---- the product of a call ---- */

/* As the column-major caller says it. */
struct kfit_product {
    int ta, tb, type_a, type_b, type_c, epilogue; /* enum kfit_epilogue */
    int64_t m, n, k, lda, ldb, ldc, sa, sb, sc, batch;
};

/* Fills all of key but alpha, beta and align. *strides: row strides in bytes, or'ed. Any reason but NONE: not a key. */
enum kfit_reason kfit_product_key(const struct kfit_product *p, union kfit_key *key, uint64_t *strides);

/* kfit_scalar_class of a float by its bits: no branch, and no constant from memory. */
static inline uint64_t kfit_scalar_class_f32(const float *v)
{
    uint32_t bits;
    memcpy(&bits, v, sizeof bits);
    return bits << 1 == 0 ? KFIT_SCALAR_ZERO : bits == 0x3f800000 ? KFIT_SCALAR_ONE : KFIT_SCALAR_OTHER;
}

/* The rest of it, and the arguments in the order of the key's op. Pointers are those of the call; bias may be NULL. */
static inline enum kfit_reason kfit_product_finish(union kfit_key *key, uint64_t strides, const float *alpha,
                                                   const float *beta, const void *a, const void *b,
                                                   const void *c, const void *bias, const void *args[4])
{
    uint64_t bits = strides | (uintptr_t)a | (uintptr_t)b | (uintptr_t)c | (uintptr_t)bias | 16;
    uint64_t align = bits & -bits;
    key->words[1] |= kfit_scalar_class_f32(alpha) | kfit_scalar_class_f32(beta) << 8 | align << 16;
    args[0] = b; /* row-major: A and B change places */
    args[1] = a;
    args[2] = c;
    args[3] = bias;
    return align < 2 ? KFIT_REASON_ALIGN : KFIT_REASON_NONE;
}

/* Offers a call to the dispatcher. True: launched, the caller returns success. handle: whose stream it is, which is asked for
 * only where it matters: where anything captures, or a kernel is about to run; NULL: it is `stream`. */
struct kfit_gpu;
bool kfit_call_offer(struct kfit_gpu *gpu, const struct kfit_site *site, const union kfit_key *key,
                     const void *const args[], cublas_stream stream, cublas_handle handle);
/* Ends a hooked function: the original, marked as a call of ours for what it calls in turn. */
#define KFIT_RETURN_ORIGINAL(site, function, ...)                                                            \
    do {                                                                                                     \
        if (!(site)->fn)                                                                                     \
            return KFIT_CUBLAS_NOT_INITIALIZED; /* there is none */                                          \
        kfit_library_depth++;                                                                                \
        int status_ = ((__typeof__(&function))(site)->fn)(__VA_ARGS__);                                      \
        kfit_library_depth--;                                                                                \
        return status_;                                                                                      \
    } while (0)

#endif
