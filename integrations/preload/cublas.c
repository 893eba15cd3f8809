/* cuBLAS: C functions of its own signatures, found by the dynamic linker before its own. A call becomes a key only if it
 * is what the tuner measures: alpha and beta on the host, float32 accumulation, default math, the default algorithm. All
 * else is the original, and counted with a reason. */
#include <dlfcn.h>
#include <stdio.h>

#include "driver.h"
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
    kfit_cublas_name(b->generic.config, sizeof b->generic.config, handle);
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

/* A table of four bits each, in a register. */
static inline uint64_t dtype(int type)
{
    const uint64_t types = (uint64_t)KFIT_BF16 << 4 * KFIT_CUBLAS_R_BF16 | (uint64_t)KFIT_F16 << 4 * KFIT_CUBLAS_R_F16 |
                           (uint64_t)KFIT_F32 << 4 * KFIT_CUBLAS_R_F32;
    return (unsigned)type < 16 ? types >> 4 * type & 15 : 0;
}

/* Column-major C = op(A) op(B) is row-major C^T = op(B)^T op(A)^T: B first, n before m. */
static inline __attribute__((always_inline)) enum kfit_reason product_key(const struct kfit_product *p, union kfit_key *key,
                                                                          uint64_t *strides)
{
    const uint64_t type = dtype(p->type_a), type_c = dtype(p->type_c);
    const bool ta = p->tb != KFIT_CUBLAS_OP_N, tb = p->ta != KFIT_CUBLAS_OP_N, batched = p->batch != 1;
    const int64_t m = p->n, n = p->m, k = p->k, lda = p->ldb, ldb = p->lda, ldc = p->ldc;
    /* few branches, as each is a guess: none of these is more than 31 bits, then none of the differences is below 0 */
    if (!type || p->type_b != p->type_a || (type_c != type && type_c != KFIT_F32) ||
        ((unsigned)p->ta > KFIT_CUBLAS_OP_C) | ((unsigned)p->tb > KFIT_CUBLAS_OP_C) || (m | n | k | lda | ldb | ldc) >> 31 ||
        ((m - 1) | (n - 1) | (k - 1) | (lda - (ta ? m : k)) | (ldb - (tb ? k : n)) | (ldc - n)) < 0)
        return KFIT_REASON_FLAGS;
    if (__builtin_expect(batched, 0)) {
        if (p->batch < 2 || p->batch >> 31 || (p->sa | p->sb | p->sc) < 0)
            return KFIT_REASON_FLAGS;
        key->words[5] = (uint64_t)p->batch;
        key->words[6] = (uint64_t)p->sb;
        key->words[7] = (uint64_t)p->sa;
        key->words[8] = (uint64_t)p->sc;
    }
    key->words[0] = (batched ? KFIT_GEMM_KEY_BATCHED_BYTES : KFIT_GEMM_KEY_BYTES) |
                    (uint64_t)KFIT_OP_GEMM << 8 | (uint64_t)ta << 16 | (uint64_t)tb << 24 | type << 32 |
                    type << 40 | type_c << 48 | (uint64_t)KFIT_F32 << 56;
    key->words[1] = (uint64_t)p->epilogue << 24;
    key->words[2] = (uint64_t)m | (uint64_t)n << 32;
    key->words[3] = (uint64_t)k | (uint64_t)lda << 32;
    key->words[4] = (uint64_t)ldb | (uint64_t)ldc << 32;
    *strides = (uint64_t)(lda | ldb) << (type == KFIT_F32 ? 2 : 1) | (uint64_t)ldc
                                                                         << (type_c == KFIT_F32 ? 2 : 1);
    return KFIT_REASON_NONE;
}

enum kfit_reason kfit_product_key(const struct kfit_product *p, union kfit_key *key, uint64_t *strides)
{
    return product_key(p, key, strides);
}

/* ---- calls ---- */

struct offer {
    struct kfit_cuda_call call;
    struct kfit_gpu *gpu;
    const struct kfit_site *site;
    cublas_handle handle;
    uint64_t capture;
    struct kfit_hold hold;
};

static bool ask_stream(struct kfit_cuda_call *call)
{
    const struct offer *o = (const struct offer *)call;
    cublas_stream stream = NULL;
    const bool known = !o->site->cublas.stream(o->handle, &stream);
    call->stream = stream;
    return known;
}

static void *workspace_of(const struct kfit_cuda_call *call, const struct kfit_kernel *k)
{
    struct offer *o = (struct offer *)(uintptr_t)call;
    return kfit_workspace(o->gpu, k, call->stream, call->capturing ? &o->capture : NULL, &o->hold);
}

/* A library that this GPU's trace has not met: its index there + 1; 0: there is no trace. */
static __attribute__((cold)) uint32_t meet_library(struct kfit_gpu *gpu, const struct kfit_site *site)
{
    uint32_t index;
    if (!kfit_generic_of(&kfit_servers[KFIT_SERVER_GPU + gpu->ordinal], gpu->dispatcher, site->blas, &index))
        return 0;
    if (index < UINT8_MAX)
        __atomic_store_n(&gpu->generic[site->library], (uint8_t)(index + 1), __ATOMIC_RELAXED);
    return index + 1;
}

/* While anything captures: whether this stream does, and then what becomes of the call is the graph's to count. */
static __attribute__((cold)) enum kfit_reason offer_in_capture(struct offer *o, const union kfit_key *key,
                                                               const void *const args[])
{
    int32_t slot;
    if (o->call.find_stream && !ask_stream(&o->call)) {
        kfit_dispatch_unkeyed(o->gpu->dispatcher, KFIT_REASON_STREAM_STATE);
        return KFIT_REASON_STREAM_STATE;
    }
    o->call.find_stream = NULL;
    o->call.capturing = kfit_capture_of(o->call.stream, &o->capture);
    uint32_t *making = o->call.capturing ? kfit_capture_calls(o->gpu) : NULL;
    enum kfit_reason reason = kfit_dispatch_cuda(o->gpu->dispatcher, key, args, &o->call, &slot);
    if (o->call.capturing)
        kfit_capture_note(o->capture, o->gpu, slot, reason, making);
    return reason;
}

KFIT_HOT bool kfit_call_offer(struct kfit_gpu *gpu, const struct kfit_site *site, const union kfit_key *key,
                              const void *const args[], cublas_stream stream, cublas_handle handle)
{
    uint32_t generic = __atomic_load_n(&gpu->generic[site->library], __ATOMIC_RELAXED);
    int32_t slot;
    if (__builtin_expect(!generic, 0) && !(generic = meet_library(gpu, site)))
        return false;
    struct offer o = {.call = {.stream = stream,
                               .generic = generic - 1,
                               .workspace = workspace_of,
                               .find_stream = handle ? ask_stream : NULL},
                      .gpu = gpu,
                      .site = site,
                      .handle = handle};
    const enum kfit_reason reason = __builtin_expect(__atomic_load_n(&kfit_driver.captures, __ATOMIC_RELAXED) != 0, 0)
                                        ? offer_in_capture(&o, key, args)
                                        : kfit_dispatch_cuda(gpu->dispatcher, key, args, &o.call, &slot);
    kfit_workspace_end(o.hold);
    return reason == KFIT_REASON_NONE;
}

struct call {
    struct kfit_product product;
    const void *alpha, *a, *b, *beta;
    void *c;
    int compute, algo;
};

/* True if the result is on its way. */
KFIT_HOT static __attribute__((noinline)) bool served(const struct kfit_site *site, cublas_handle handle, const struct call *c)
{
    struct kfit_gpu *gpu = kfit_call_begin(site);
    if (!gpu)
        return false;
    const struct kfit_cublas *lib = &site->cublas;
    union kfit_key key;
    uint64_t strides;
    const void *args[4];
    int pointers, math;
    enum kfit_reason reason;
    if (!handle || lib->pointer_mode(handle, &pointers))
        reason = KFIT_REASON_STREAM_STATE; /* no handle: the original says so */
    else if (pointers != KFIT_CUBLAS_POINTERS_ON_HOST)
        reason = KFIT_REASON_POINTER_MODE;
    else if (lib->math_mode(handle, &math) || math != KFIT_CUBLAS_DEFAULT_MATH ||
             c->compute != KFIT_CUBLAS_COMPUTE_F32 || c->algo != KFIT_CUBLAS_ALGO_TENSOR || !c->alpha ||
             !c->beta)
        reason = KFIT_REASON_FLAGS;
    else if (!(reason = product_key(&c->product, &key, &strides)))
        reason = kfit_product_finish(&key, strides, c->alpha, c->beta, c->a, c->b, c->c, NULL, args);
    if (!reason)
        return kfit_call_offer(gpu, site, &key, args, NULL, handle);
    kfit_dispatch_unkeyed(gpu->dispatcher, reason);
    return false;
}

/* What all four say. */
#define SAID(type_a_, type_b_, type_c_, sa_, sb_, sc_, batch_, compute_, algo_)                              \
    {                                                                                                        \
        .product = {ta, tb,  type_a_, type_b_, type_c_, KFIT_EPI_NONE, m,   n,                               \
                    k,  lda, ldb,     ldc,     sa_,     sb_,           sc_, batch_},                         \
        .alpha = alpha, .a = a, .b = b, .beta = beta, .c = c, .compute = compute_, .algo = algo_             \
    }
#define SAID_F32(sa_, sb_, sc_, batch_)                                                                      \
    SAID(KFIT_CUBLAS_R_F32, KFIT_CUBLAS_R_F32, KFIT_CUBLAS_R_F32, sa_, sb_, sc_, batch_,                     \
         KFIT_CUBLAS_COMPUTE_F32, KFIT_CUBLAS_ALGO_TENSOR)

#define FOUR_FUNCTIONS(before, after, integer, SITE, entry)                                                  \
    int before##cublasGemmEx##after(cublas_handle handle, cublas_op ta, cublas_op tb, integer m, integer n,  \
                                    integer k, const void *alpha, const void *a, cublas_type type_a,         \
                                    integer lda, const void *b, cublas_type type_b, integer ldb,             \
                                    const void *beta, void *c, cublas_type type_c, integer ldc,              \
                                    cublas_compute compute, cublas_algo algo)                                \
    {                                                                                                        \
        const struct kfit_site *site = SITE(cublasGemmEx##after, entry);                                     \
        const struct call said = SAID(type_a, type_b, type_c, 0, 0, 0, 1, compute, algo);                    \
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
        const struct call said = SAID(type_a, type_b, type_c, sa, sb, sc, batch, compute, algo);             \
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
        const struct call said = SAID_F32(0, 0, 0, 1);                                                       \
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
        const struct call said = SAID_F32(sa, sb, sc, batch);                                                \
        if (served(site, handle, &said))                                                                     \
            return KFIT_CUBLAS_OK;                                                                           \
        KFIT_RETURN_ORIGINAL(site, cublasSgemmStridedBatched##after, handle, ta, tb, m, n, k, alpha, a, lda, \
                             sa, b, ldb, sb, beta, c, ldc, sc, batch);                                       \
    }

#define BOTH_WIDTHS(before, SITE, entry)                                                                     \
    FOUR_FUNCTIONS(before, , int, SITE, entry)                                                               \
    FOUR_FUNCTIONS(before, _64, int64_t, SITE, entry)
#define HANDED(k, before) BOTH_WIDTHS(before##k##_, KFIT_BY_ENTRY, k)

BOTH_WIDTHS(, KFIT_BY_CALLER, 0)
KFIT_HANDED_LIST(HANDED, kfit_handed)
