/* cuBLAS: C functions of its own signatures, found by the dynamic linker before its own. A call becomes a key only if it
 * is what the tuner measures: alpha and beta on the host, float32 accumulation, default math, the default algorithm. All
 * else is the original, and counted with a reason. */
#include <dlfcn.h>
#include <stdio.h>

#include "preload.h"

__thread unsigned kfit_library_depth __attribute__((tls_model("initial-exec")));

/* ---- asking the library ---- */

void kfit_cublas_describe(struct kfit_blas *b, void *handle)
{
#define KFIT_X(member, symbol, arguments)                                                                    \
    *(void **)&b->cublas.member = handle ? dlsym(handle, #symbol) : NULL;                                    \
    b->unfit |= !b->cublas.member;
    KFIT_CUBLAS_LIST(KFIT_X)
#undef KFIT_X
    if (!b->unfit)
        kfit_cublas_find_fields(&b->cublas);
    kfit_cublas_name(b->generic.config, sizeof b->generic.config, handle);
}

static inline const void *field(cublas_handle handle, uint16_t at)
{
    return (const char *)handle + at;
}

/* Why a handle is not as the tuner's. */
static __attribute__((noinline)) enum kfit_reason handle_reason(const struct kfit_site *site,
                                                                cublas_handle handle)
{
    const struct kfit_cublas *lib = &site->blas->cublas;
    cublas_pointers pointers;
    cublas_math math;
    if (!handle || lib->pointer_mode(handle, &pointers))
        return KFIT_REASON_STREAM_STATE; /* no handle: the original says so */
    if (pointers != KFIT_CUBLAS_POINTERS_ON_HOST)
        return KFIT_REASON_POINTER_MODE;
    return lib->math_mode(handle, &math) || math != KFIT_CUBLAS_DEFAULT_MATH ? KFIT_REASON_FLAGS
                                                                             : KFIT_REASON_NONE;
}

/* A field that is not as it should be is for the getters to explain. Where none is known, byte 0 is read, for nothing. */
static inline bool handle_is_usual(const struct kfit_site *site, cublas_handle handle)
{
    const struct kfit_cublas_fields at = site->fields;
    if (__builtin_expect(!handle, 0))
        return false;
    const unsigned valid = __atomic_load_n((const unsigned char *)field(handle, at.valid), __ATOMIC_RELAXED);
    const unsigned modes = __atomic_load_n((const unsigned *)field(handle, at.pointer_mode), __ATOMIC_RELAXED) |
                           __atomic_load_n((const unsigned *)field(handle, at.math_mode), __ATOMIC_RELAXED);
    return (valid != 0) & (at.valid != 0) & (modes == 0);
}
_Static_assert(KFIT_CUBLAS_POINTERS_ON_HOST == 0 && KFIT_CUBLAS_DEFAULT_MATH == 0, "handle_is_usual");

static bool stream_of(const struct kfit_site *site, cublas_handle handle, cublas_stream *stream)
{
    const struct kfit_cublas_fields at = site->fields;
    if (!at.valid)
        return !site->blas->cublas.stream(handle, stream);
    *stream = __atomic_load_n((void *const *)field(handle, at.stream), __ATOMIC_RELAXED);
    return __atomic_load_n((const char *)field(handle, at.valid), __ATOMIC_RELAXED);
}

void kfit_cublas_name(char *buf, size_t size, void *library)
{
    int (*property)(int which, int *value);
    int part[3] = {0}; /* libraryPropertyType: major, minor, patch */
    *(void **)&property =
        library ? dlsym(library, "cublasGetProperty") : kfit_find_loaded("cublasGetProperty");
    buf[0] = '\0';
    for (int i = 0; property && i < 3; i++)
        if (property(i, &part[i]))
            return;
    if (property)
        snprintf(buf, size, "cuBLAS %d.%d.%d", part[0], part[1], part[2]);
}

/* ---- keys ---- */

/* A table of four bits each, in a register; 0: none of ours. */
static inline uint64_t dtype(int type)
{
    const uint64_t types = (uint64_t)KFIT_BF16 << 4 * KFIT_CUBLAS_R_BF16 |
                           (uint64_t)KFIT_F16 << 4 * KFIT_CUBLAS_R_F16 |
                           (uint64_t)KFIT_F32 << 4 * KFIT_CUBLAS_R_F32;
    return (unsigned)type < 16 ? types >> 4 * type & 15 : 0;
}

/* Column-major C = op(A) op(B) is row-major C^T = op(B)^T op(A)^T: B first, n before m. Sizes come in pairs, as the key has them,
 * and few branches, as each is a guess: where none is below 0 none of the differences borrows from its neighbour, or it is
 * below 0 itself. */
static inline __attribute__((always_inline)) enum kfit_reason product_key(struct kfit_product *p,
                                                                          uint64_t *strides)
{
    uint64_t *words = p->key.words;
    const bool f32 = p->type_a == KFIT_CUBLAS_R_F32, into_f32 = p->type_c == KFIT_CUBLAS_R_F32;
    const uint64_t type = dtype(p->type_a), type_c = into_f32 ? KFIT_F32 : type, mn = words[2],
                   k_lda = words[3], ldb_ldc = words[4];
    const bool ta = p->tb != KFIT_CUBLAS_OP_N, tb = p->ta != KFIT_CUBLAS_OP_N;
    const uint32_t m = (uint32_t)mn, n = (uint32_t)(mn >> 32), k = (uint32_t)k_lda,
                   lda = (uint32_t)(k_lda >> 32), ldb = (uint32_t)ldb_ldc, ldc = (uint32_t)(ldb_ldc >> 32);
    const uint64_t least_k_lda = (uint64_t)(ta ? m : k) << 32 | 1,
                   least_ldb_ldc = (uint64_t)n << 32 | (tb ? k : n);
    const uint64_t below =
        (mn | k_lda | ldb_ldc | (mn - 0x100000001) | (k_lda - least_k_lda) | (ldb_ldc - least_ldb_ldc)) &
        0x8000000080000000;
    if (!type || p->type_b != p->type_a || (p->type_c != p->type_a && !into_f32) ||
        ((unsigned)p->ta > KFIT_CUBLAS_OP_C) | ((unsigned)p->tb > KFIT_CUBLAS_OP_C) || below)
        return KFIT_REASON_FLAGS;
    if (__builtin_expect(p->batched, 0) &&
        (p->key.gemm.batch < 2 || (p->key.gemm.sa | p->key.gemm.sb | p->key.gemm.sc) < 0))
        return KFIT_REASON_FLAGS;
    words[0] = (p->batched ? KFIT_GEMM_KEY_BATCHED_BYTES : KFIT_GEMM_KEY_BYTES) |
               (uint64_t)KFIT_OP_GEMM << 8 | (uint64_t)ta << 16 | (uint64_t)tb << 24 | type << 32 |
               type << 40 | type_c << 48 | (uint64_t)KFIT_F32 << 56;
    *strides = (uint64_t)(lda | ldb) << (1 + f32) | (uint64_t)ldc << (1 + into_f32);
    return KFIT_REASON_NONE;
}

enum kfit_reason kfit_product_key(struct kfit_product *p, uint64_t *strides)
{
    return product_key(p, strides);
}

/* ---- calls ---- */

uint32_t kfit_meet_library(struct kfit_gpu *gpu, const struct kfit_site *site)
{
    uint32_t index;
    if (!kfit_generic_of(&kfit_servers[KFIT_SERVER_GPU + gpu->ordinal], gpu->dispatcher, site->blas, &index))
        return 0;
    if (index < UINT8_MAX)
        __atomic_store_n(&gpu->generic[site->library], (uint8_t)(index + 1), __ATOMIC_RELAXED);
    return index + 1;
}

/* Runs what was decided. Until here it was enough to know whose the handle is. capture: that the stream is in; NULL: none. */
static enum kfit_reason launch(struct kfit_gpu *gpu, const struct kfit_decision *x, const void *const args[],
                               cublas_stream stream, const void *handle, const uint64_t *capture)
{
    struct kfit_hold hold = {0};
    void *workspace = NULL;
    enum kfit_reason reason = KFIT_REASON_WORKSPACE;
    if (!kfit_gpu_is_current(gpu->ordinal)) {
        kfit_handle_unowned(handle);
        return KFIT_REASON_STREAM_STATE;
    }
    if (!x->kernel->workspace_bytes || (workspace = kfit_workspace(gpu, x->kernel, stream, capture, &hold)))
        reason = kfit_dispatch_launch(gpu->dispatcher, x, args, workspace, stream);
    kfit_workspace_end(hold);
    return reason;
}

/* What becomes of a call in a capture is the graph's to count. */
bool kfit_call_far(struct kfit_gpu *gpu, const struct kfit_site *site, const union kfit_key *key,
                   const void *const args[], const cublas_stream *given, const void *handle, uint32_t generic,
                   struct kfit_decision *x)
{
    struct kfit_decision own;
    uint64_t capture;
    cublas_stream stream = given ? *given : NULL;
    const bool known = given || stream_of(site, (cublas_handle)(uintptr_t)handle, &stream),
               capturing = known && !x && kfit_capture_of(stream, &capture);
    uint32_t *making = capturing ? kfit_capture_calls(gpu) : NULL;
    if (!x)
        kfit_dispatch_decide(gpu->dispatcher, key, generic, x = &own);
    if (x->kernel)
        x->reason = known ? launch(gpu, x, args, stream, handle, capturing ? &capture : NULL)
                          : KFIT_REASON_STREAM_STATE;
    if (!capturing || !x->slot)
        kfit_dispatch_count(gpu->dispatcher, x);
    if (capturing)
        kfit_capture_note(capture, gpu, x->index, x->reason, making);
    return x->reason == KFIT_REASON_NONE;
}

struct call {
    const float *alpha, *beta;
    const void *args[4]; /* in the order of the key's op */
    uint64_t how; /* compute type and algorithm: one word, as they are compared */
    struct kfit_product product;
};

static __attribute__((cold, noinline)) bool passed_on(struct kfit_gpu *gpu, enum kfit_reason reason)
{
    kfit_dispatch_unkeyed(gpu->dispatcher, reason);
    return false;
}

/* True if the result is on its way. */
KFIT_HOT static __attribute__((noinline)) bool served(const struct kfit_site *site, cublas_handle handle,
                                                      struct call *c)
{
    struct kfit_gpu *gpu = kfit_call_begin(site, handle);
    uint64_t strides;
    enum kfit_reason reason;
    if (!gpu)
        return false;
    if (__builtin_expect(!handle_is_usual(site, handle), 0) && (reason = handle_reason(site, handle)))
        return passed_on(gpu, reason);
    if (c->how != kfit_two_sizes(KFIT_CUBLAS_COMPUTE_F32, KFIT_CUBLAS_ALGO_TENSOR) || !c->alpha || !c->beta)
        return passed_on(gpu, KFIT_REASON_FLAGS);
    if ((reason = product_key(&c->product, &strides)) ||
        (reason = kfit_product_finish(&c->product.key, strides, c->alpha, c->beta, c->args)))
        return passed_on(gpu, reason);
    return kfit_call_offer(gpu, site, &c->product.key, c->args, NULL, handle);
}

/* What all four say, before what only some do. */
static inline __attribute__((always_inline)) void
say(struct call *said, cublas_op ta, cublas_op tb, int m, int n, int k, const void *alpha, const void *a,
    cublas_type type_a, int lda, const void *b, cublas_type type_b, int ldb, const void *beta, void *c,
    cublas_type type_c, int ldc, cublas_compute compute, cublas_algo algo)
{
    struct kfit_product *p = &said->product;
    said->alpha = alpha;
    said->beta = beta;
    said->args[0] = b;
    said->args[1] = a;
    said->args[2] = c;
    said->args[3] = NULL;
    said->how = kfit_two_sizes(compute, algo);
    p->ta = ta;
    p->tb = tb;
    p->type_a = type_a;
    p->type_b = type_b;
    p->type_c = type_c;
    p->batched = false;
    p->key.words[1] = 0;
    p->key.words[2] = kfit_two_sizes(n, m);
    p->key.words[3] = kfit_two_sizes(k, ldb);
    p->key.words[4] = kfit_two_sizes(lda, ldc);
}

/* A batch of one is none. */
static inline __attribute__((always_inline)) void say_batch(struct call *said, long long sa, long long sb,
                                                            long long sc, int batch)
{
    struct kfit_product *p = &said->product;
    p->batched = batch != 1;
    p->key.words[5] = (uint32_t)batch;
    p->key.gemm.sa = sb;
    p->key.gemm.sb = sa;
    p->key.gemm.sc = sc;
}

#define R32 KFIT_CUBLAS_R_F32
#define SAY(size, type_a, type_b, type_c, compute, algo)                                                     \
    struct call said;                                                                                        \
    say(&said, ta, tb, size(m), size(n), size(k), alpha, a, type_a, size(lda), b, type_b, size(ldb), beta,   \
        c, type_c, size(ldc), compute, algo)

#define FOUR_FUNCTIONS(before, after, integer, size, SITE, entry)                                            \
    int before##cublasGemmEx##after(cublas_handle handle, cublas_op ta, cublas_op tb, integer m, integer n,  \
                                    integer k, const void *alpha, const void *a, cublas_type type_a,         \
                                    integer lda, const void *b, cublas_type type_b, integer ldb,             \
                                    const void *beta, void *c, cublas_type type_c, integer ldc,              \
                                    cublas_compute compute, cublas_algo algo)                                \
    {                                                                                                        \
        const struct kfit_site *site = SITE(cublasGemmEx##after, entry);                                     \
        SAY(size, type_a, type_b, type_c, compute, algo);                                                    \
        if (served(site, handle, &said))                                                                     \
            return KFIT_CUBLAS_OK;                                                                           \
        KFIT_RETURN_ORIGINAL(site, cublasGemmEx##after, handle, ta, tb, m, n, k, alpha, a, type_a, lda, b,   \
                             type_b, ldb, beta, c, type_c, ldc, compute, algo);                              \
    }                                                                                                        \
    int before##cublasGemmStridedBatchedEx##after(                                                           \
        cublas_handle handle, cublas_op ta, cublas_op tb, integer m, integer n, integer k,                   \
        const void *alpha, const void *a, cublas_type type_a, integer lda, long long sa, const void *b,      \
        cublas_type type_b, integer ldb, long long sb, const void *beta, void *c, cublas_type type_c,        \
        integer ldc, long long sc, integer batch, cublas_compute compute, cublas_algo algo)                  \
    {                                                                                                        \
        const struct kfit_site *site = SITE(cublasGemmStridedBatchedEx##after, entry);                       \
        SAY(size, type_a, type_b, type_c, compute, algo);                                                    \
        say_batch(&said, sa, sb, sc, size(batch));                                                           \
        if (served(site, handle, &said))                                                                     \
            return KFIT_CUBLAS_OK;                                                                           \
        KFIT_RETURN_ORIGINAL(site, cublasGemmStridedBatchedEx##after, handle, ta, tb, m, n, k, alpha, a,     \
                             type_a, lda, sa, b, type_b, ldb, sb, beta, c, type_c, ldc, sc, batch, compute,  \
                             algo);                                                                          \
    }                                                                                                        \
    int before##cublasSgemm_v2##after(cublas_handle handle, cublas_op ta, cublas_op tb, integer m,           \
                                      integer n, integer k, const float *alpha, const float *a, integer lda, \
                                      const float *b, integer ldb, const float *beta, float *c, integer ldc) \
    {                                                                                                        \
        const struct kfit_site *site = SITE(cublasSgemm_v2##after, entry);                                   \
        SAY(size, R32, R32, R32, KFIT_CUBLAS_COMPUTE_F32, KFIT_CUBLAS_ALGO_TENSOR);                          \
        if (served(site, handle, &said))                                                                     \
            return KFIT_CUBLAS_OK;                                                                           \
        KFIT_RETURN_ORIGINAL(site, cublasSgemm_v2##after, handle, ta, tb, m, n, k, alpha, a, lda, b, ldb,    \
                             beta, c, ldc);                                                                  \
    }                                                                                                        \
    int before##cublasSgemmStridedBatched##after(                                                            \
        cublas_handle handle, cublas_op ta, cublas_op tb, integer m, integer n, integer k,                   \
        const float *alpha, const float *a, integer lda, long long sa, const float *b, integer ldb,          \
        long long sb, const float *beta, float *c, integer ldc, long long sc, integer batch)                 \
    {                                                                                                        \
        const struct kfit_site *site = SITE(cublasSgemmStridedBatched##after, entry);                        \
        SAY(size, R32, R32, R32, KFIT_CUBLAS_COMPUTE_F32, KFIT_CUBLAS_ALGO_TENSOR);                          \
        say_batch(&said, sa, sb, sc, size(batch));                                                           \
        if (served(site, handle, &said))                                                                     \
            return KFIT_CUBLAS_OK;                                                                           \
        KFIT_RETURN_ORIGINAL(site, cublasSgemmStridedBatched##after, handle, ta, tb, m, n, k, alpha, a, lda, \
                             sa, b, ldb, sb, beta, c, ldc, sc, batch);                                       \
    }

#define BOTH_WIDTHS(before, SITE, entry)                                                                     \
    FOUR_FUNCTIONS(before, , int, , SITE, entry)                                                             \
    FOUR_FUNCTIONS(before, _64, int64_t, kfit_size, SITE, entry)

/* Before the call: the next handle may have this address. */
#define DESTROY(before, SITE, entry)                                                                         \
    int before##cublasDestroy_v2(cublas_handle handle)                                                       \
    {                                                                                                        \
        const struct kfit_site *site = SITE(cublasDestroy_v2, entry);                                        \
        kfit_handle_unowned(handle);                                                                         \
        KFIT_RETURN_ORIGINAL(site, cublasDestroy_v2, handle);                                                \
    }

BOTH_WIDTHS(, KFIT_BY_CALLER, 0)
DESTROY(, KFIT_BY_CALLER, 0)
#define HANDED(k, before) BOTH_WIDTHS(before##k##_, KFIT_BY_ENTRY, k) DESTROY(before##k##_, KFIT_BY_ENTRY, k)
KFIT_HANDED_LIST(HANDED, kfit_handed)
