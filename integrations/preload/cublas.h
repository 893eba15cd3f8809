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

/* Where a handle has them, in bytes from its start: an int each, the stream a pointer. valid: the byte of a handle that is
 * one; 0: not known, the getters are asked. */
struct kfit_cublas_fields {
    uint16_t valid, stream, pointer_mode, math_mode;
};

struct kfit_cublas {
#define KFIT_X(member, symbol, arguments) int(*member) arguments;
    KFIT_CUBLAS_LIST(KFIT_X)
#undef KFIT_X
    struct kfit_cublas_fields fields;
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
/* fields.c: looks at the code of the getters. */
void kfit_cublas_find_fields(struct kfit_cublas *c);
/* "cuBLAS 13.1.0", as the tuner has it from a handle: of the library opened as `library`, NULL: of whichever is loaded; ""
 * if none is. */
void kfit_cublas_name(char *buf, size_t size, void *library);

/* ---- the product of a call ---- */

/* As the column-major caller says it, but that sizes are where the key has them: row-major, so that A and B change places, m
 * and n. */
struct kfit_product {
    int ta, tb, type_a, type_b, type_c;
    bool batched;
    union kfit_key key; /* but for word 0; alpha, beta and align are 0; words 5 to 8 if batched */
};

static inline uint64_t kfit_two_sizes(int low, int high)
{
    return (uint32_t)low | (uint64_t)(uint32_t)high << 32;
}

/* One that no key can have is none. */
static inline int kfit_size(int64_t n)
{
    return n >> 31 ? -1 : (int)n;
}

/* Fills in word 0. *strides: row strides in bytes, or'ed. Any reason but NONE: not a key. */
enum kfit_reason kfit_product_key(struct kfit_product *p, uint64_t *strides);

/* By its bits: where a program has denormals taken for 0, a comparison takes one for ZERO. */
static inline uint64_t kfit_scalar_class_f32(uint32_t bits)
{
    return bits << 1 == 0 ? KFIT_SCALAR_ZERO : bits == 0x3f800000 ? KFIT_SCALAR_ONE : KFIT_SCALAR_OTHER;
}

/* The rest of it. args: those of the call in the order of the key's op, B before A; the bias may be NULL. */
static inline enum kfit_reason kfit_product_finish(union kfit_key *key, uint64_t strides, const float *alpha,
                                                   const float *beta, const void *const args[4])
{
    uint64_t scalars = KFIT_SCALAR_ONE | KFIT_SCALAR_ZERO << 8;
    uint32_t one, zero;
    memcpy(&one, alpha, sizeof one);
    memcpy(&zero, beta, sizeof zero);
    if (__builtin_expect(one != 0x3f800000 || zero, 0)) /* not as nearly all calls have them */
        scalars = kfit_scalar_class_f32(one) | kfit_scalar_class_f32(zero) << 8;
    uint64_t bits = strides | (uintptr_t)args[0] | (uintptr_t)args[1] | (uintptr_t)args[2] | (uintptr_t)args[3] | 16;
    uint64_t align = bits & -bits;
    key->words[1] |= scalars | align << 16;
    return align < 2 ? KFIT_REASON_ALIGN : KFIT_REASON_NONE;
}

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
