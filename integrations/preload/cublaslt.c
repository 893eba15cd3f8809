/* cuBLASLt: one function, whose arguments are descriptors.
 *
 * A descriptor has some forty attributes, and more with each release. Those that the tuner's call sets are read; every
 * other must be as in a descriptor just made, so that what nobody here has heard of means the original. That takes
 * microseconds, so what was read is remembered by the bytes that it was read from: a descriptor is a plain struct, which a
 * program may copy or keep on its stack. The one word of it that changes from layer to layer, the bias pointer, is
 * left out of them and read each time. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#include "preload.h"

enum { ATTRIBUTES = 64 };
enum { MEMOS = 1024, PROBES = 8 };

/* ---- asking the library ---- */

/* Which word of a descriptor is the bias pointer; -1 if that cannot be told. */
static int find_bias(const struct kfit_cublaslt *lt)
{
    static const uint64_t tried[2] = {0x1122334455667780, 0x7ee6d5c4b3a29180};
    struct kfit_cublaslt_desc copy[2];
    int found = -1;
    for (int i = 0; i < 2; i++) {
        copy[i] = *lt->fresh;
        if (lt->desc_set(&copy[i], KFIT_CUBLASLT_DESC_BIAS, &tried[i], sizeof tried[i]))
            return -1;
    }
    for (int i = 0; i < (int)(sizeof copy[0] / sizeof *copy[0].word); i++)
        if (copy[0].word[i] != copy[1].word[i]) {
            if (found >= 0 || copy[0].word[i] != tried[0] || copy[1].word[i] != tried[1])
                return -1;
            found = i;
        }
    return found;
}

void kfit_cublaslt_describe(struct kfit_blas *b, void *handle)
{
    struct kfit_cublaslt *lt = &b->lt;
    size_t (*version)(void) = (size_t(*)(void))(handle ? dlsym(handle, "cublasLtGetVersion") : NULL);
    void *cublas = kfit_find_loaded("cublasGetProperty");
#define KFIT_X(member, symbol, arguments)                                                                    \
    *(void **)&lt->member = handle ? dlsym(handle, #symbol) : NULL;                                          \
    b->unfit |= !lt->member;
    KFIT_CUBLASLT_LIST(KFIT_X)
#undef KFIT_X
    b->unfit = b->unfit || lt->desc_create(&lt->fresh, KFIT_CUBLAS_COMPUTE_F32, KFIT_CUBLAS_R_F32) ||
               lt->layout_create(&lt->fresh_layout, KFIT_CUBLAS_R_F32, 1, 1, 1);
    /* the sizes are those of release 13 */
    lt->bias_word = !b->unfit && version && version() / 10000 == 13 ? find_bias(lt) : -1;
    /* the tuner opens libcublas, and finds this library through it */
    if (cublas)
        snprintf(b->generic.path, sizeof b->generic.path, "%s", kfit_path_of(cublas));
    kfit_cublas_name(b->generic.config, sizeof b->generic.config, NULL);
}

/* ---- reading descriptors ---- */

/* What a reading gives: a key but for alpha, beta and align, or why there is none. */
struct reading {
    uint64_t reason, strides;
    union kfit_key key;
};

typedef int (*get_fn)(void *, int, void *, size_t, size_t *);

/* The first attribute outside `understood` in which one differs from a fresh one; -1: none. */
static int strange(get_fn get, void *one, void *fresh, uint64_t understood)
{
    for (int i = 0; i < ATTRIBUTES; i++) {
        char ours[64] = {0}, theirs[64] = {0};
        size_t bytes = 0, needed;
        if (understood >> i & 1 || get(fresh, i, NULL, 0, &bytes))
            continue;
        if (bytes > sizeof ours || get(fresh, i, ours, bytes, &needed) ||
            get(one, i, theirs, bytes, &needed) || memcmp(ours, theirs, bytes))
            return i;
    }
    return -1;
}

/* What to call an attribute that is not as it should be. */
static enum kfit_reason reason_of(int attribute)
{
    static const struct {
        uint8_t first, last, reason;
    } rows[] = {
        {KFIT_CUBLASLT_DESC_POINTER_MODE, KFIT_CUBLASLT_DESC_POINTER_MODE, KFIT_REASON_POINTER_MODE},
        {KFIT_CUBLASLT_DESC_BIAS_STRIDE, KFIT_CUBLASLT_DESC_AUX_STRIDE, KFIT_REASON_EPILOGUE},
        {KFIT_CUBLASLT_DESC_A_SCALE, KFIT_CUBLASLT_DESC_D_SCALE, KFIT_REASON_SCALE_MODE},
        {KFIT_CUBLASLT_DESC_A_SCALE_MODE, KFIT_CUBLASLT_DESC_D_OUT_SCALE_MODE, KFIT_REASON_SCALE_MODE},
    };
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++)
        if (attribute >= rows[i].first && attribute <= rows[i].last)
            return (enum kfit_reason)rows[i].reason;
    return KFIT_REASON_FLAGS;
}

struct layout {
    int type, batch;
    uint64_t rows, cols;
    int64_t ld, stride;
};

#define BIT(attribute) (UINT64_C(1) << (attribute))

static bool read_layout(const struct kfit_cublaslt *lt, cublaslt_layout from, struct layout *to)
{
    const struct {
        int which;
        void *value;
        size_t bytes;
    } rows[] = {
        {KFIT_CUBLASLT_LAYOUT_TYPE, &to->type, sizeof to->type},
        {KFIT_CUBLASLT_LAYOUT_BATCH, &to->batch, sizeof to->batch},
        {KFIT_CUBLASLT_LAYOUT_ROWS, &to->rows, sizeof to->rows},
        {KFIT_CUBLASLT_LAYOUT_COLS, &to->cols, sizeof to->cols},
        {KFIT_CUBLASLT_LAYOUT_LD, &to->ld, sizeof to->ld},
        {KFIT_CUBLASLT_LAYOUT_STRIDE, &to->stride, sizeof to->stride},
    };
    uint64_t understood = 0;
    size_t needed;
    for (unsigned i = 0; i < sizeof rows / sizeof *rows; i++) {
        understood |= BIT(rows[i].which);
        if (lt->layout_get(from, rows[i].which, rows[i].value, rows[i].bytes, &needed))
            return false;
    }
    return strange((get_fn)lt->layout_get, from, lt->fresh_layout, understood) < 0;
}

static enum kfit_reason read_desc(const struct kfit_cublaslt *lt, cublaslt_desc from, struct kfit_product *p,
                                  int *bias_type)
{
    const uint64_t understood = BIT(KFIT_CUBLASLT_DESC_TRANSA) | BIT(KFIT_CUBLASLT_DESC_TRANSB) |
                                BIT(KFIT_CUBLASLT_DESC_EPILOGUE) | BIT(KFIT_CUBLASLT_DESC_BIAS) |
                                BIT(KFIT_CUBLASLT_DESC_BIAS_TYPE);
    int epilogue;
    size_t needed;
    int odd = strange((get_fn)lt->desc_get, from, lt->fresh, understood);
    if (odd >= 0)
        return reason_of(odd);
    if (lt->desc_get(from, KFIT_CUBLASLT_DESC_TRANSA, &p->ta, sizeof p->ta, &needed) ||
        lt->desc_get(from, KFIT_CUBLASLT_DESC_TRANSB, &p->tb, sizeof p->tb, &needed) ||
        lt->desc_get(from, KFIT_CUBLASLT_DESC_EPILOGUE, &epilogue, sizeof epilogue, &needed) ||
        lt->desc_get(from, KFIT_CUBLASLT_DESC_BIAS_TYPE, bias_type, sizeof *bias_type, &needed))
        return KFIT_REASON_FLAGS;
    p->key.gemm.epi = epilogue == KFIT_CUBLASLT_EPI_BIAS ? KFIT_EPI_BIAS : KFIT_EPI_NONE;
    return epilogue == KFIT_CUBLASLT_EPI_BIAS || epilogue == KFIT_CUBLASLT_EPI_DEFAULT ? KFIT_REASON_NONE
                                                                                       : KFIT_REASON_EPILOGUE;
}

static enum kfit_reason read_all(const struct kfit_cublaslt *lt, cublaslt_desc desc,
                                 const cublaslt_layout from[3], struct reading *r)
{
    struct layout a, b, c;
    struct kfit_product p = {0};
    int bias_type;
    enum kfit_reason reason = read_desc(lt, desc, &p, &bias_type);
    if (reason)
        return reason;
    if (!read_layout(lt, from[0], &a) || !read_layout(lt, from[1], &b) || !read_layout(lt, from[2], &c) ||
        a.batch != c.batch || b.batch != c.batch || (c.rows | c.cols | a.rows | a.cols) >> 31)
        return KFIT_REASON_FLAGS;
    const bool ta = p.ta != KFIT_CUBLAS_OP_N, tb = p.tb != KFIT_CUBLAS_OP_N;
    const uint64_t k = ta ? a.rows : a.cols;
    if ((ta ? a.cols : a.rows) != c.rows || (tb ? b.rows : b.cols) != c.cols || (tb ? b.cols : b.rows) != k)
        return KFIT_REASON_FLAGS;
    if (p.key.gemm.epi && (c.batch != 1 || (bias_type != -1 && bias_type != c.type)))
        return KFIT_REASON_EPILOGUE; /* no call that the tuner makes */
    p.type_a = a.type, p.type_b = b.type, p.type_c = c.type;
    p.key.words[2] = kfit_two_sizes((int)c.cols, (int)c.rows);
    p.key.words[3] = kfit_two_sizes((int)k, kfit_size(b.ld));
    p.key.words[4] = kfit_two_sizes(kfit_size(a.ld), kfit_size(c.ld));
    p.batched = c.batch != 1;
    p.key.gemm.batch = c.batch;
    p.key.gemm.sa = b.stride, p.key.gemm.sb = a.stride, p.key.gemm.sc = c.stride;
    reason = kfit_product_key(&p, &r->strides);
    r->key = p.key;
    return reason;
}

/* ---- remembering ---- */

/* Claimed by its hash, readable once whole. Never freed: when the table is full, new ones are read each time. */
struct memo {
    uint64_t hash;
    uint32_t ready;
    const struct kfit_blas *blas;
    struct reading reading;
    struct kfit_cublaslt_desc desc; /* what it was read from, the bias set aside */
    struct kfit_cublaslt_layout layout[3];
};
static struct memo memos[MEMOS];

/* Of those words that mostly differ: the hash only finds, all bytes decide. Four chains, so that they run side by side; loops
 * of few lines of code, as a call finds none of it near. */
static inline uint64_t hash_of(cublaslt_desc desc, const cublaslt_layout layout[3], int bias_word)
{
    const uint64_t prime = UINT64_C(0x9e3779b97f4a7c15);
    uint64_t a = 1, b = 2, c = 3, d = 4;
#pragma GCC unroll 1
    for (int i = 0; i < 8; i++) {
        a = (a ^ layout[0]->word[i]) * prime;
        b = (b ^ layout[1]->word[i]) * prime;
        c = (c ^ layout[2]->word[i]) * prime;
        d = (d ^ (i == bias_word ? 0 : desc->word[i])) * prime;
    }
    a = (a ^ b >> 29) * prime ^ (c ^ d >> 31) * prime;
    return (a ^ a >> 32) | 1;
}

typedef uint64_t two_words __attribute__((vector_size(16), aligned(8)));

/* In which of so many pairs of words they differ, or'ed. */
static inline __attribute__((always_inline)) two_words differ(const uint64_t *a, const uint64_t *b, int pairs)
{
    two_words all = {0};
#pragma GCC unroll 1
    for (int i = 0; i < pairs; i++)
        all |= ((const two_words *)(const void *)a)[i] ^ ((const two_words *)(const void *)b)[i];
    return all;
}

static inline bool same(const struct memo *m, const struct kfit_blas *blas, cublaslt_desc desc,
                        const cublaslt_layout layout[3])
{
    const int bias = blas->lt.bias_word, beside = bias ^ 1, pair = bias / 2;
    const two_words d = differ(m->desc.word, desc->word, pair) |
                        differ(m->desc.word + 2 * (pair + 1), desc->word + 2 * (pair + 1), 15 - pair) |
                        differ(m->layout[0].word, layout[0]->word, 4) | differ(m->layout[1].word, layout[1]->word, 4) |
                        differ(m->layout[2].word, layout[2]->word, 4);
    return m->blas == blas && !(d[0] | d[1] | (m->desc.word[beside] ^ desc->word[beside]));
}

static const struct reading *read_anew(const struct kfit_blas *blas, cublaslt_desc desc,
                                       const cublaslt_layout layout[3], struct reading *r)
{
    memset(r, 0, sizeof *r);
    r->reason = read_all(&blas->lt, desc, layout, r);
    return r;
}

__attribute__((cold)) static const struct reading *read_far(const struct kfit_blas *blas,
                                                                cublaslt_desc desc,
                                                                const cublaslt_layout layout[3],
                                                                uint64_t hash, struct reading *spare)
{
    uint32_t at = (uint32_t)hash % MEMOS;
    for (int i = 0; blas->lt.bias_word >= 0 && i < PROBES; i++, at = (at + 1) % MEMOS) {
        struct memo *m = &memos[at];
        uint64_t have = __atomic_load_n(&m->hash, __ATOMIC_RELAXED);
        if (have == hash && __atomic_load_n(&m->ready, __ATOMIC_ACQUIRE) && same(m, blas, desc, layout))
            return &m->reading;
        if (!have &&
            __atomic_compare_exchange_n(&m->hash, &have, hash, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) {
            m->blas = blas;
            m->desc = *desc;
            for (int j = 0; j < 3; j++)
                m->layout[j] = *layout[j];
            read_anew(blas, desc, layout, &m->reading);
            __atomic_store_n(&m->ready, 1, __ATOMIC_RELEASE);
            return &m->reading;
        }
    }
    return read_anew(blas, desc, layout, spare);
}

KFIT_HOT static __attribute__((noinline)) const struct reading *read_call(const struct kfit_blas *blas, cublaslt_desc desc,
                                              const cublaslt_layout layout[3], struct reading *spare)
{
    uint64_t hash = 0;
    if (__builtin_expect(blas->lt.bias_word >= 0, 1)) {
        hash = hash_of(desc, layout, blas->lt.bias_word);
        const struct memo *m = &memos[(uint32_t)hash % MEMOS];
        if (__atomic_load_n(&m->hash, __ATOMIC_RELAXED) == hash &&
            __atomic_load_n(&m->ready, __ATOMIC_ACQUIRE) && same(m, blas, desc, layout))
            return &m->reading;
    }
    return read_far(blas, desc, layout, hash, spare);
}

/* ---- calls ---- */

static inline enum kfit_reason bias_of(const struct kfit_cublaslt *lt, cublaslt_desc desc, const void **bias)
{
    size_t needed;
    uint64_t word = 0;
    if (__builtin_expect(lt->bias_word >= 0, 1))
        word = desc->word[lt->bias_word];
    else if (lt->desc_get(desc, KFIT_CUBLASLT_DESC_BIAS, &word, sizeof word, &needed))
        return KFIT_REASON_EPILOGUE;
    *bias = (const void *)(uintptr_t)word;
    return word ? KFIT_REASON_NONE : KFIT_REASON_EPILOGUE;
}

#define PARAMS                                                                                               \
    cublaslt_handle handle, cublaslt_desc desc, const void *alpha, const void *a, cublaslt_layout layout_a,  \
        const void *b, cublaslt_layout layout_b, const void *beta, const void *c, cublaslt_layout layout_c,  \
        void *d, cublaslt_layout layout_d, const cublaslt_algo *algo, void *workspace,                       \
        size_t workspace_bytes, cublas_stream stream
#define ARGS                                                                                                 \
    handle, desc, alpha, a, layout_a, b, layout_b, beta, c, layout_c, d, layout_d, algo, workspace,          \
        workspace_bytes, stream

static inline __attribute__((always_inline)) int matmul(const struct kfit_site *site, PARAMS)
{
    struct kfit_gpu *gpu = kfit_call_begin(site, handle);
    if (gpu) {
        const cublaslt_layout layouts[3] = {layout_a, layout_b, layout_d};
        const struct reading *r = NULL;
        struct reading spare;
        union kfit_key key;
        const void *args[4] = {b, a, d, NULL};
        enum kfit_reason reason = KFIT_REASON_FLAGS;
        if (desc && layout_a && layout_b && layout_c && layout_d && alpha && beta && c == d &&
            (layout_c == layout_d || !memcmp(layout_c, layout_d, sizeof *layout_d))) {
            r = read_call(site->blas, desc, layouts, &spare);
            reason = (enum kfit_reason)r->reason;
        }
        if (!reason && r->key.gemm.epi)
            reason = bias_of(&site->blas->lt, desc, &args[3]);
        if (!reason) {
            memcpy(key.words, r->key.words, KFIT_GEMM_KEY_BATCHED_BYTES);
            reason = kfit_product_finish(&key, r->strides, alpha, beta, args);
        }
        if (reason)
            kfit_dispatch_unkeyed(gpu->dispatcher, reason);
        else if (kfit_call_offer(gpu, site, &key, args, &stream, handle))
            return KFIT_CUBLAS_OK;
    }
    KFIT_RETURN_ORIGINAL(site, cublasLtMatmul, ARGS);
}

/* Before the call: the next handle may have this address. */
static inline int destroy(const struct kfit_site *site, cublaslt_handle handle)
{
    kfit_handle_unowned(handle);
    KFIT_RETURN_ORIGINAL(site, cublasLtDestroy, handle);
}

#define BOTH(before, SITE, entry)                                                                            \
    int before##cublasLtMatmul(PARAMS)                                                                       \
    {                                                                                                        \
        return matmul(SITE(cublasLtMatmul, entry), ARGS);                                                    \
    }                                                                                                        \
    int before##cublasLtDestroy(cublaslt_handle handle)                                                      \
    {                                                                                                        \
        return destroy(SITE(cublasLtDestroy, entry), handle);                                                \
    }
#define HANDED(k, before) BOTH(before##k##_, KFIT_BY_ENTRY, k)

BOTH(, KFIT_BY_CALLER, 0)
KFIT_HANDED_LIST(HANDED, kfit_handed)
