/* The public functions of libkfit.so over a dispatcher. */
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kfit/dispatch.h"
#include "kfit/kfit.h"
#include "kfit/process.h"

struct kfit {
    struct kfit_dispatcher *dispatcher;
    uint32_t generic;
    int threads;
};

static const char *const modes[] = {"off", "record", "dispatch", "both"}; /* enum kfit_mode */

static const char *variable(const char *name)
{
    const char *value = secure_getenv(name);
    return value && *value ? value : NULL;
}

struct kfit_open_params kfit_params_from_environment(void)
{
    return (struct kfit_open_params){
        .mode = variable("KFIT_MODE"),
        .cache_dir = variable("KFIT_CACHE"),
        .generation = variable("KFIT_GENERATION"),
        .trust = secure_getenv("KFIT_TRUST"), /* an empty one trusts nobody */
        .bans = variable("KFIT_BAN"),
        .trace_dir = variable("KFIT_TRACE"),
        .label = variable("KFIT_LABEL"),
        .state_dir = variable("KFIT_STATE"),
        .allow = variable("KFIT_ALLOW"),
        .strict = kfit_switch(variable("KFIT_STRICT")) != 0,
        .follow = kfit_switch(variable("KFIT_FOLLOW")) > 0,
    };
}

/* -1: no such mode */
static int mode_of(const struct kfit_open_params *p)
{
    if (!p->mode)
        return (p->trace_dir ? KFIT_MODE_RECORD : 0) | (p->cache_dir ? KFIT_MODE_DISPATCH : 0);
    for (int i = 0; i < 4; i++)
        if (!strcmp(p->mode, modes[i]))
            return i;
    return -1;
}

/* What library runs otherwise, and in its own words. */
static struct kfit_generic describe(const struct kfit_open_params *p)
{
    struct kfit_generic g = {.threads = p->blas_threads, .int_bits = 32};
    Dl_info info;
    snprintf(g.naming, sizeof g.naming, "%s", p->blas_naming ? p->blas_naming : "cblas_%s");
    if (!p->blas || !dladdr(p->blas, &info) || !info.dli_fname)
        return g;
    snprintf(g.path, sizeof g.path, "%s", info.dli_fname);
    void *object = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
    if (!object)
        return g;
    const char *(*config)(void) = (const char *(*)(void))dlsym(object, "openblas_get_config");
    int (*threads)(void) = (int (*)(void))dlsym(object, "openblas_get_num_threads");
    if (config)
        snprintf(g.config, sizeof g.config, "%s", config());
    if (threads)
        g.threads = threads();
    if (strstr(g.config, "USE64BITINT"))
        g.int_bits = 64;
    dlclose(object);
    return g;
}

/* "OpenBLAS 0.3.21", else the file's name; "" if nothing is known. */
static void blas_name(const struct kfit_generic *g, char buf[64])
{
    const char *slash = strrchr(g->path, '/'), *space = strchr(g->config, ' ');
    if (space)
        snprintf(buf, 64, "%.*s", (int)(space + 1 - g->config + (ptrdiff_t)strcspn(space + 1, " ")),
                 g->config);
    else
        snprintf(buf, 64, "%.63s", slash ? slash + 1 : g->path);
}

int kfit_open(struct kfit **out, const struct kfit_open_params *params, char *message, size_t size)
{
    struct kfit_error err = {0};
    enum kfit_status s = KFIT_OK;
    int mode = mode_of(params);
    *out = NULL;
    if (message && size)
        message[0] = '\0';
    if (mode == KFIT_MODE_OFF)
        return 0;
    struct kfit *k = mode < 0 ? NULL : calloc(1, sizeof *k);
    if (!k) {
        s = mode < 0 ? kfit_fail(&err, KFIT_E_ARG,
                                 "kfit: mode \"%.32s\" is none of off, record, dispatch, both", params->mode)
                     : kfit_fail(&err, KFIT_E_NOMEM, "kfit: out of memory");
    } else {
        struct kfit_generic g = describe(params);
        struct kfit_env env;
        char name[64], dir[PATH_MAX] = "";
        blas_name(&g, name);
        if (params->trace_dir)
            snprintf(dir, sizeof dir, "%s", params->trace_dir);
        else
            kfit_trace_default_dir(dir, sizeof dir);
        kfit_env_host(&env, g.threads, name[0] ? name : NULL, NULL);
        const struct kfit_dispatcher_params p = {
            .mode = (enum kfit_mode)mode,
            .cache_dir = params->cache_dir,
            .generation = params->generation,
            .trust = params->trust,
            .bans = params->bans,
            .trace_dir = dir[0] ? dir : NULL,
            .label = params->label,
            .state_dir = params->state_dir,
            .allow = params->allow,
            .strict = params->strict,
            .follow = params->follow,
            .env = &env,
        };
        s = kfit_dispatcher_create(&k->dispatcher, &p, &err);
        if (s == KFIT_OK) {
            k->threads = g.threads;
            k->generic = kfit_recorder_generic(kfit_dispatcher_recorder(k->dispatcher), &g);
            *out = k;
            return 0;
        }
        free(k);
    }
    if (message)
        snprintf(message, size, "%s", err.text);
    return -(int)s;
}

void kfit_close(struct kfit *k)
{
    if (k)
        kfit_dispatcher_destroy(k->dispatcher);
    free(k);
}

static bool try_gemm(struct kfit *k, int order, int trans_a, int trans_b, const struct kfit_gemm_call *call)
{
    struct kfit_gemm_call c = *call;
    if (!k)
        return false;
    if (order < 101 || order > 102 || trans_a < 111 || trans_a > 113 || trans_b < 111 || trans_b > 113) {
        kfit_dispatch_unkeyed(k->dispatcher, KFIT_REASON_FLAGS); /* the BLAS shall complain, not we */
        return false;
    }
    c.col_major = order == 102;
    c.ta = trans_a != 111;
    c.tb = trans_b != 111;
    return kfit_dispatch_gemm(k->dispatcher, &c, __atomic_load_n(&k->threads, __ATOMIC_RELAXED),
                              k->generic) == KFIT_REASON_NONE;
}

#define KFIT_TRY(name, real, dtype)                                                                          \
    bool name(struct kfit *k, int order, int trans_a, int trans_b, int64_t m, int64_t n, int64_t p,          \
              real alpha, const real *a, int64_t lda, const real *b, int64_t ldb, real beta, real *c,        \
              int64_t ldc)                                                                                   \
    {                                                                                                        \
        const struct kfit_gemm_call call = {.type = dtype,                                                   \
                                            .m = m,                                                          \
                                            .n = n,                                                          \
                                            .k = p,                                                          \
                                            .lda = lda,                                                      \
                                            .ldb = ldb,                                                      \
                                            .ldc = ldc,                                                      \
                                            .alpha = (double)alpha,                                          \
                                            .beta = (double)beta,                                            \
                                            .a = a,                                                          \
                                            .b = b,                                                          \
                                            .c = c};                                                         \
        return try_gemm(k, order, trans_a, trans_b, &call);                                                  \
    }
KFIT_TRY(kfit_try_sgemm, float, KFIT_F32)
KFIT_TRY(kfit_try_dgemm, double, KFIT_F64)

void kfit_note_other(struct kfit *k)
{
    if (k)
        kfit_dispatch_unkeyed(k->dispatcher, KFIT_REASON_FLAGS);
}

void kfit_note_threads(struct kfit *k, int blas_threads)
{
    if (k)
        __atomic_store_n(&k->threads, blas_threads, __ATOMIC_RELAXED);
}

size_t kfit_state(struct kfit *k, char *buf, size_t size)
{
    struct kfit_recorder *r = k ? kfit_dispatcher_recorder(k->dispatcher) : NULL;
    const char *path = r ? kfit_recorder_path(r) : "";
    int n = snprintf(buf, size, "%s%s%s", r ? kfit_dispatcher_state(k->dispatcher) : "off",
                     *path ? "; trace " : "", path);
    return n < 0 || !size ? 0 : (size_t)n < size ? (size_t)n : size - 1;
}
