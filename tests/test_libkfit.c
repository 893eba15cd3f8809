/* libkfit.so as it is installed: through its public header and nothing else; the generation is made with the
 * libraries of the build. */
#include "kfit_test.h"

#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <kfit/kfit.h>

#include "kfit/generation.h"
#include "kfit/op.h"
#include "records.h"
#include "kfit/trace.h"

static char cache[160], traces[160], message[512];
static float a[16] __attribute__((aligned(16))) = {3}, b[16] __attribute__((aligned(16))) = {5},
                   c[16] __attribute__((aligned(16)));

/* A generation with the 1x1x1 gemm for lda = ldb = ldc = 4, as three SSE instructions. */
static void publish(int threads)
{
    static const unsigned char code[] = {0xf3, 0x0f, 0x10, 0x07, 0xf3, 0x0f, 0x59,
                                         0x06, 0xf3, 0x0f, 0x11, 0x02, 0xc3};
    struct kfit_gemm_call call = {.type = KFIT_F32,
                                  .m = 1,
                                  .n = 1,
                                  .k = 1,
                                  .lda = 4,
                                  .ldb = 4,
                                  .ldc = 4,
                                  .alpha = 1,
                                  .a = a,
                                  .b = b,
                                  .c = c};
    struct kfit_env env;
    struct kfit_error err;
    const void *args[3];
    uint64_t number;
    kfit_env_host(&env, threads, NULL, NULL);
    struct kfit_record r = records_winner(&env, code, sizeof code);
    CHECK(kfit_gemm_key_fill(&call, &r.key, args));
    struct kfit_publish_params p = {.dir = cache, .records = &r, .count = 1, .envs = &env, .env_count = 1};
    snprintf(cache, sizeof cache, "%s/cache", kfit_test_dir());
    snprintf(traces, sizeof traces, "%s/traces", kfit_test_dir());
    CHECK(!mkdir(cache, 0700));
    CHECK_OK(kfit_generation_publish(&p, &number, &err), err);
}

static bool try_one(struct kfit *k, int ld)
{
    c[0] = -1;
    bool done = kfit_try_sgemm(k, 101, 111, 111, 1, 1, 1, 1, a, ld, b, ld, 0, c, ld);
    CHECK(c[0] == (done ? 15 : -1));
    return done;
}

static struct kfit *opened(const struct kfit_open_params *p)
{
    struct kfit *k;
    int s = kfit_open(&k, p, message, sizeof message);
    CHECK_MSG(!s && k, "%d: %s", s, message);
    return k;
}

static void tries_and_counts(void)
{
    publish(3);
    struct kfit_open_params p = {.cache_dir = cache, .trace_dir = traces, .blas_threads = 3, .label = "test"};
    struct kfit *k = opened(&p);
    char state[1024];
    CHECK(try_one(k, 4));
    CHECK(!try_one(k, 5));
    c[0] = -1;
    CHECK(kfit_try_sgemm(k, 102, 112, 113, 1, 1, 1, 1, a, 4, b, 4, 0, c, 4) ==
          false); /* transposed: another key */
    CHECK(!kfit_try_sgemm(k, 7, 111, 111, 1, 1, 1, 1, a, 4, b, 4, 0, c, 4));
    CHECK(!kfit_try_sgemm(k, 101, 111, 111, 1, 1, 1, 2, a, 4, b, 4, 0, c, 4));
    CHECK(c[0] == -1);
    double d[4] = {0};
    CHECK(!kfit_try_dgemm(k, 101, 111, 111, 1, 1, 1, 1, d, 4, d, 4, 0, d, 4));
    kfit_note_other(k);
    kfit_note_threads(k, 1);
    CHECK(!try_one(k, 4));
    kfit_note_threads(k, 3);
    CHECK(try_one(k, 4));
    CHECK(kfit_state(k, state, sizeof state) == strlen(state));
    CHECK_MSG(!strncmp(state, "generation 1: 1 kernels (0 stale)", 33), "%s", state);
    const char *path = strstr(state, "; trace ");
    CHECK(path);

    struct kfit_trace *t;
    struct kfit_error err;
    CHECK_OK(kfit_trace_read(path + 8, &t, &err), err);
    CHECK_INT(kfit_trace_header(t)->unkeyed[KFIT_REASON_FLAGS], 2);
    CHECK_INT(kfit_trace_count(t), 5);
    CHECK_STR(kfit_trace_header(t)->label, "test");
    uint64_t ran = 0, calls = 0;
    for (size_t i = 0; i < kfit_trace_count(t); i++) {
        ran += kfit_trace_at(t, i)->count[KFIT_REASON_NONE];
        calls += kfit_slot_calls(kfit_trace_at(t, i));
    }
    CHECK_INT(ran, 2);
    CHECK_INT(calls, 7);
    kfit_trace_destroy(t);
    kfit_close(k);
}

/* C[2,3] = A'[2,5] B[5,3], column-major: the key is that of the same memory, read row-major. */
static void arguments_mean_what_cblas_means(void)
{
    publish(1);
    struct kfit_open_params p = {.mode = "record", .trace_dir = traces};
    struct kfit *k = opened(&p);
    char state[1024], text[KFIT_KEY_TEXT_MAX];
    struct kfit_trace *t;
    struct kfit_error err;
    CHECK(!kfit_try_sgemm(k, 102, 112, 111, 2, 3, 5, 1, a, 8, b, 12, 0, c, 4));
    kfit_state(k, state, sizeof state);
    CHECK_OK(kfit_trace_read(strstr(state, "; trace ") + 8, &t, &err), err);
    CHECK_INT(kfit_trace_count(t), 1);
    CHECK(kfit_key_format(&kfit_trace_at(t, 0)->key, text, sizeof text));
    CHECK_STR(text, "gemm/f32,f32,f32/acc=f32/m=3,n=2,k=5/nt/lda=12,ldb=8,ldc=4/alpha=1,beta=0/align=16");
    kfit_trace_destroy(t);
    kfit_close(k);
}

static void without_anything_nothing_happens(void)
{
    struct kfit_open_params p = {0};
    struct kfit *k = (struct kfit *)1;
    char state[8];
    CHECK_INT(kfit_open(&k, &p, NULL, 0), 0);
    CHECK(!k && !try_one(k, 4));
    kfit_note_other(k);
    kfit_note_threads(k, 2);
    CHECK_INT(kfit_state(k, state, sizeof state), 3);
    CHECK_STR(state, "off");
    kfit_close(k);
    p.mode = "fast";
    CHECK(kfit_open(&k, &p, message, sizeof message) < 0 && !k);
    CHECK_MSG(strstr(message, "\"fast\" is none of off, record"), "%s", message);
}

static void damage_is_a_state_not_a_failure(void)
{
    publish(1);
    char path[400], state[1024];
    snprintf(path, sizeof path, "%s/generations/1.mdb", cache);
    CHECK(!chmod(path, 0600) && !truncate(path, 5000));
    struct kfit_open_params p = {.cache_dir = cache, .trace_dir = "", .blas_threads = 1};
    struct kfit *k = opened(&p);
    CHECK(!try_one(k, 4));
    kfit_state(k, state, sizeof state);
    CHECK_MSG(strstr(state, "records only: ") && strstr(state, "1.mdb") && !strstr(state, "trace"), "%s",
              state);
    kfit_close(k);
}

static void environment_is_read_when_asked(void)
{
    publish(0);
    CHECK(!setenv("KFIT_MODE", "dispatch", 1) && !setenv("KFIT_CACHE", cache, 1) &&
          !setenv("KFIT_TRACE", traces, 1) && !setenv("KFIT_LABEL", "", 1));
    struct kfit_open_params p = kfit_params_from_environment();
    CHECK_STR(p.mode, "dispatch");
    CHECK(!p.label);
    struct kfit *k = opened(&p);
    CHECK(try_one(k, 4));
    fflush(stdout);
    pid_t pid = fork();
    if (!pid)
        _exit(!try_one(k, 4)); /* the child dispatches as well, into a trace of its own */
    int status;
    waitpid(pid, &status, 0);
    CHECK_INT(status, 0);
    kfit_close(k);
}

static const struct kfit_test tests[] = {
    TEST(tries_and_counts),
    TEST(arguments_mean_what_cblas_means),
    TEST(without_anything_nothing_happens),
    TEST(damage_is_a_state_not_a_failure),
    TEST(environment_is_read_when_asked),
};
TEST_MAIN(tests)
