/* The referee's float64 values: asked for, and once per judge checked against the CPU's own definition of the op. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_judge.h"

/* ref and mag of the inputs, from the referee. */
enum kfit_status cuda_reference(struct cuda *c, unsigned distribution, uint64_t seed, double *ref,
                                struct kfit_error *err)
{
    enum kfit_status st = cuda_prepare(c, &c->referee, &c->referee_key, &c->key, NULL, 0, err);
    if (st == KFIT_OK)
        st = cuda_fill(&c->referee, distribution, seed, 2, err);
    const struct kfit_cu_command m = {.what = KFIT_CU_REFERENCE, .limit_ms = 20000};
    if (st == KFIT_OK)
        st = session_cuda_do(&c->referee, &m, err);
    if (st == KFIT_OK)
        memcpy(ref, c->referee.arena, 2 * c->out_count * sizeof *ref);
    return st;
}

/* Every way in which the device's kernel can go: types, transposes, rows apart, more rows than one warp takes, more
 * terms than it has lanes, C added, a bias, a batch with matrices apart, shared and between each other's rows. */
static const char *const checked[] = {
    "gemm/bf16,bf16,bf16/acc=f32/m=3,n=37,k=65/nt/lda=72,ldb=65,ldc=40/alpha=1,beta=0/align=2",
    "gemm/f16,f16,f32/acc=f32/m=9,n=5,k=40/tn/lda=11,ldb=6,ldc=7/alpha=1,beta=1/align=2",
    "gemm/f32,f32,f32/acc=f32/m=17,n=12,k=33/nn/lda=33,ldb=12,ldc=12/alpha=1,beta=0/align=4/epi=bias",
    "gemm/f16,f16,f16/acc=f32/m=2,n=31,k=96/nt/lda=96,ldb=96,ldc=32/alpha=1,beta=1/align=2/epi=bias",
    "gemm/bf16,bf16,bf16/acc=f32/m=10,n=6,k=34/tt/lda=10,ldb=34,ldc=6/alpha=1,beta=1/align=2"
    "/batch=3,sa=341,sb=0,sc=77",
    "gemm/bf16,bf16,f32/acc=f32/m=4,n=8,k=16/nt/lda=48,ldb=16,ldc=24/alpha=1,beta=0/align=2"
    "/batch=3,sa=16,sb=130,sc=8",
};

struct check { /* one of them */
    union kfit_key key;
    void *arg[KFIT_ARGS_MAX];
    double *gpu, *cpu; /* values, then magnitudes */
    size_t count;
};

static enum kfit_status fetch(struct cuda *c, struct check *k, struct kfit_error *err)
{
    const struct kfit_op *op = kfit_op_of(&k->key);
    struct kfit_cu_command m = {.what = KFIT_CU_REFERENCE, .limit_ms = 20000};
    enum kfit_status st = session_cuda_do(&c->referee, &m, err);
    if (st == KFIT_OK)
        memcpy(k->gpu, c->referee.arena, 2 * k->count * sizeof *k->gpu);
    m.what = KFIT_CU_ARGUMENT;
    for (m.slot = 0; st == KFIT_OK && m.slot < op->nargs(&k->key); m.slot++) {
        struct kfit_tensor t;
        op->tensor(&k->key, m.slot, &t);
        size_t bytes = kfit_tensor_bytes(&t);
        k->arg[m.slot] = malloc(bytes);
        st = k->arg[m.slot] ? session_cuda_do(&c->referee, &m, err)
                            : kfit_fail(err, KFIT_E_NOMEM, "judge: out of memory");
        if (st == KFIT_OK)
            memcpy(k->arg[m.slot], c->referee.arena, bytes);
    }
    return st;
}

/* Both are float64 sums of the same terms in another order: K roundings of the magnitude apart, and no more. */
static enum kfit_status compare(const struct check *k, const char *text, struct kfit_error *err)
{
    const double *mag = k->cpu + k->count;
    double allowed = 4.0 * (double)(kfit_op_of(&k->key)->reduction(&k->key) + 2) * 0x1p-53;
    for (size_t i = 0; i < 2 * k->count; i++)
        if (!(fabs(k->gpu[i] - k->cpu[i]) <= allowed * mag[i % k->count]))
            return kfit_fail(err, KFIT_E_UNSUPPORTED,
                             "judge: the GPU's float64 reference is wrong: %s %zu is %.17g, by the CPU %.17g, of "
                             "%s; nothing can be judged with this GPU, driver or compiler",
                             i < k->count ? "value" : "magnitude", i % k->count, k->gpu[i], k->cpu[i], text);
    return KFIT_OK;
}

enum kfit_status cuda_check_reference(struct cuda *c, struct kfit_error *err)
{
    enum kfit_status st = KFIT_OK;
    for (unsigned i = 0; i < sizeof checked / sizeof *checked && st == KFIT_OK && !c->reference_checked; i++) {
        struct check k = {0};
        struct kfit_tensor t;
        st = kfit_key_parse(checked[i], &k.key, err);
        if (st == KFIT_OK)
            st = cuda_prepare(c, &c->referee, &c->referee_key, &k.key, NULL, 0, err);
        if (st == KFIT_OK)
            st = cuda_fill(&c->referee, CUDA_NORMAL, c->seed + i, 2, err);
        if (st != KFIT_OK)
            break;
        const struct kfit_op *op = kfit_op_of(&k.key);
        op->tensor(&k.key, op->out_arg, &t);
        k.count = (size_t)(t.batch * t.rows * t.cols);
        k.gpu = malloc(4 * k.count * sizeof *k.gpu);
        k.cpu = k.gpu ? k.gpu + 2 * k.count : NULL;
        st = k.gpu ? fetch(c, &k, err) : kfit_fail(err, KFIT_E_NOMEM, "judge: out of memory");
        if (st == KFIT_OK) {
            op->reference(&k.key, (const void *const *)k.arg, k.cpu, k.cpu + k.count);
            st = compare(&k, checked[i], err);
        }
        for (unsigned a = 0; a < KFIT_ARGS_MAX; a++)
            free(k.arg[a]);
        free(k.gpu);
    }
    c->reference_checked = st == KFIT_OK;
    return st;
}
