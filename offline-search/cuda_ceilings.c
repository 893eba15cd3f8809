/* A GPU's ceilings for the judge: from the store, or measured by a worker of their own and kept there. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "cuda_judge.h"
#include "kfit/op.h"

#define LEAST   65536.0
#define TIMES   4096.0 /* 64 KB to 256 MB, in steps of 1.63 */
#define ANY_KEY "gemm/bf16,bf16,bf16/acc=f32/m=8,n=64,k=64/nt/lda=64,ldb=64,ldc=64/alpha=1,beta=0/align=16"

static enum kfit_status curve(struct session_cuda *s, unsigned copies, const struct kfit_gpu_ceilings *c,
                              double ns[KFIT_GPU_CEILING_POINTS], struct kfit_error *err)
{
    const struct kfit_cu_command m = {
        .what = KFIT_CU_FLOOR, .who = copies, .count = KFIT_GPU_CEILING_POINTS, .limit_ms = 20000};
    memcpy(s->arena, c->bytes, sizeof c->bytes);
    enum kfit_status st = session_cuda_do(s, &m, err);
    if (st == KFIT_OK)
        memcpy(ns, s->arena, KFIT_GPU_CEILING_POINTS * sizeof *ns);
    return st;
}

/* More bytes never take less time: what was measured so is noise of the smaller one. */
static void ascending(double ns[KFIT_GPU_CEILING_POINTS])
{
    for (unsigned i = KFIT_GPU_CEILING_POINTS - 1; i; i--)
        ns[i - 1] = ns[i - 1] > ns[i] ? ns[i] : ns[i - 1];
}

static enum kfit_status measure(struct cuda *c, struct kfit_gpu_ceilings *out, struct kfit_error *err)
{
    static const enum kfit_dtype types[] = {KFIT_BF16, KFIT_F16, KFIT_F32};
    struct session_cuda s = {.socket = -1, .arena_fd = -1};
    union kfit_key key, now = {{0}};
    for (unsigned i = 0; i < KFIT_GPU_CEILING_POINTS; i++)
        out->bytes[i] = (uint64_t)(LEAST * pow(TIMES, (double)i / (KFIT_GPU_CEILING_POINTS - 1))) & ~UINT64_C(31);
    enum kfit_status st = kfit_key_parse(ANY_KEY, &key, err);
    if (st == KFIT_OK)
        st = cuda_prepare(c, &s, &now, &key, NULL, 0, err);
    if (st == KFIT_OK)
        st = curve(&s, 0, out, out->read_ns, err);
    if (st == KFIT_OK)
        st = curve(&s, 1, out, out->copy_ns, err);
    for (unsigned i = 0; st == KFIT_OK && i < sizeof types / sizeof *types; i++) {
        const struct kfit_cu_command m = {
            .what = KFIT_CU_FLOPS, .slot = types[i], .generic = *c->p->generic, .limit_ms = 20000};
        st = session_cuda_do(&s, &m, err);
        if (st == KFIT_OK)
            memcpy(&out->flops_per_ns[types[i]], s.arena, sizeof(double));
    }
    session_cuda_close(&s);
    ascending(out->read_ns);
    ascending(out->copy_ns);
    out->measured_unix_s = time(NULL);
    return st;
}

enum kfit_status cuda_bound(void *device, const union kfit_key *key, double *ns, struct kfit_error *err)
{
    struct cuda *c = device;
    struct kfit_gpu_ceilings *k = &c->ceilings;
    enum kfit_status st = KFIT_OK;
    if (!k->measured_unix_s) {
        union kfit_key any;
        memset(k, 0, sizeof *k);
        st = kfit_key_parse(ANY_KEY, &any, err);
        if (st == KFIT_OK && !c->info.id[0]) /* nobody was asked yet what device this is */
            st = cuda_prepare(c, &c->referee, &c->referee_key, &any, NULL, 0, err);
        snprintf(k->device, sizeof k->device, "%s", c->info.id);
        snprintf(k->model, sizeof k->model, "%s", c->info.model);
        snprintf(k->arch, sizeof k->arch, "%s", c->info.arch);
        if (!kfit_env_get(c->p->env->soft, "driver", k->driver, sizeof k->driver))
            k->driver[0] = '\0';
        bool kept = st == KFIT_OK && c->store && kfit_ceilings_load(c->store, k, NULL) == KFIT_OK;
        if (st == KFIT_OK && !kept) {
            kfit_logf(&c->p->log, KFIT_LOG_INFO, "measuring what %s can do at most", k->model);
            st = measure(c, k, err);
            if (st == KFIT_OK && c->store)
                st = kfit_ceilings_save(c->store, k, err);
        }
        if (st != KFIT_OK) {
            memset(k, 0, sizeof *k);
            return st;
        }
    }
    *ns = kfit_ceilings_bound_ns(k, key);
    return KFIT_OK;
}
