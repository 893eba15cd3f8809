/* What the tests of cuBLAS under the shim share: kernels of the double published for keys, programs that call, and what
 * their traces say. */
#ifndef KFIT_TEST_CUDA_CASES_H
#define KFIT_TEST_CUDA_CASES_H

#include "double/judging.h"

#include <sys/stat.h>

#include "kfit/generation.h"
#include "kfit/reason.h"
#include "traces.h"

#define BF16(shape, flags) "gemm/bf16,bf16,bf16/acc=f32/" shape "/alpha=1,beta=" flags
/* cuda_calls.c's own: column-major 13 x 7, 5 terms */
static const char plain[] = BF16("m=7,n=13,k=5/nn/lda=5,ldb=13,ldc=13", "0/align=2");

static char trace_dir[300], cache_dir[300], cache_env[320];

static inline void begin_at(const char *dir)
{
    snprintf(trace_dir, sizeof trace_dir, "%s/trace", dir);
    snprintf(cache_dir, sizeof cache_dir, "%s/cache", dir);
    snprintf(cache_env, sizeof cache_env, "KFIT_CACHE=%s", cache_dir);
}

static inline void begin(const char *gpu)
{
    setup(gpu);
    begin_at(kfit_test_dir());
}

/* ---- publishing ---- */

struct made {
    struct kfit_record record;
    struct kfit_built built;
};

static inline void make_of(struct made *m, struct kfit_built built, const union kfit_key *key)
{
    m->built = built;
    m->record = (struct kfit_record){.key = *key,
                                     .kind = KFIT_RECORD_WINNER,
                                     .op_version = kfit_op_of(key)->version,
                                     .env_hard = env.hard_hash,
                                     .env_soft = env.soft_hash,
                                     .made_unix_s = 1700000000,
                                     .ns_candidate = 10,
                                     .ns_incumbent = 20,
                                     .ns_generic = 20,
                                     .ratio = 2,
                                     .lo = 1.9,
                                     .hi = 2.1,
                                     .origin = "person:test",
                                     .plan = m->built.plan,
                                     .image = m->built.image,
                                     .image_bytes = m->built.image_bytes};
}

/* kernel: what the double's does, as in judging.h. */
static inline void make(struct made *m, const char *kernel, const char *extra, const char *key_text)
{
    const union kfit_key key = key_of(key_text);
    make_of(m, build(kernel, "ns=5000", extra, &key), &key);
}

static inline void publish(const struct made *made, size_t n)
{
    struct kfit_record *r = calloc(n, sizeof *r);
    uint64_t number;
    for (size_t i = 0; i < n; i++)
        r[i] = made[i].record;
    const struct kfit_publish_params p = {
        .dir = cache_dir, .records = r, .count = n, .envs = &env, .env_count = 1, .approver = "test"};
    CHECK_OK(kfit_generation_publish(&p, &number, &err), err);
    free(r);
}

static inline void publish_one(const char *kernel, const char *extra, const char *key)
{
    struct made m;
    make(&m, kernel, extra, key);
    publish(&m, 1);
}

/* ---- running ---- */

/* The traces of a run go to a directory of their own. */
static unsigned runs;
static inline char *run_at(const char *program, const char *const calls[], const char *const extra[])
{
    const char *argv[64] = {program};
    char *out, *said;
    size_t n = 0;
    for (; calls[n]; n++) {
        CHECK(n < 62);
        argv[n + 1] = calls[n];
    }
    snprintf(trace_dir, sizeof trace_dir, "%s/trace%u", kfit_test_dir(), runs++);
    run_shimmed(argv, trace_dir, extra, &out, &said);
    return out;
}
#define CALLS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define EXTRA(...) ((const char *const[]){__VA_ARGS__, NULL})

static inline char *run(const char *const calls[], const char *const extra[])
{
    return run_at(HOST, calls, extra);
}

/* The trace of a device; fails the case if there is none. */
static inline struct kfit_trace *trace_of(unsigned device)
{
    struct kfit_trace *t[TRACES_MAX], *found = NULL;
    char command[400], *out, *save, suffix[16];
    snprintf(suffix, sizeof suffix, "-cuda%u.kft", device);
    snprintf(command, sizeof command, "ls %s/*.kft", trace_dir);
    CHECK_INT(kfit_test_run((const char *[]){"sh", "-c", command, NULL}, NULL, &out, NULL), 0);
    (void)t;
    for (char *path = strtok_r(out, "\n", &save); path; path = strtok_r(NULL, "\n", &save))
        if (strlen(path) > strlen(suffix) && !strcmp(path + strlen(path) - strlen(suffix), suffix)) {
            CHECK(!found);
            CHECK_OK(kfit_trace_read(path, &found, &err), err);
        }
    CHECK_MSG(found, "no %s in %s", suffix, out);
    return found;
}

static inline void check_calls(const struct kfit_trace *t, const char *key, unsigned reason, uint64_t want)
{
    if (trace_calls_of(t, key, reason) == want)
        return;
    trace_print(t);
    CHECK_MSG(false, "%s %s: %llu, expected %llu", key, kfit_reason_name(reason),
              (unsigned long long)trace_calls_of(t, key, reason), (unsigned long long)want);
}

#endif
