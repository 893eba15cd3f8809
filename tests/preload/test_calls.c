/* A C program linked to its BLAS: every call becomes the right key, once, and the results are the same. */
#include "calls.h"
#include "traces.h"
#include "kfit/reason.h"

#define CALLS_ARGV(...) ((const char *[]){CALLS, __VA_ARGS__, NULL})

/* ---- the keys of calls.h, derived from the text's definition: row-major C[m,n] = op(A) op(B) ---- */

struct expected {
    char text[KFIT_KEY_TEXT_MAX];
    uint64_t calls;
};

static struct expected want[256];
static size_t wanted;

static void expect(bool f64, int m, int n, int k, char ta, char tb, int lda, int ldb, int ldc, int calls)
{
    char text[KFIT_KEY_TEXT_MAX];
    const char *type = f64 ? "f64" : "f32";
    int bytes = (lda | ldb | ldc) * (f64 ? 8 : 4) | 16, align = bytes & -bytes;
    snprintf(text, sizeof text,
             "gemm/%s,%s,%s/acc=%s/m=%d,n=%d,k=%d/%c%c/lda=%d,ldb=%d,ldc=%d/alpha=1,beta=0/align=%d", type,
             type, type, type, m, n, k, ta, tb, lda, ldb, ldc, align);
    size_t i = 0;
    while (i < wanted && strcmp(want[i].text, text))
        i++;
    if (i == wanted)
        snprintf(want[wanted++].text, sizeof text, "%s", text);
    want[i].calls += (uint64_t)calls;
}

static void expect_gemm(bool col, bool f64, bool ta, bool tb, int calls)
{
    char a = ta ? 't' : 'n', b = tb ? 't' : 'n';
    if (col) /* C^T[n,m] = op(B)^T op(A)^T, all three stored transposed */
        expect(f64, N, M, K, b, a, (tb ? N : K) + PAD_B, (ta ? K : M) + PAD_A, M + PAD_C, calls);
    else
        expect(f64, M, N, K, a, b, (ta ? M : K) + PAD_A, (tb ? K : N) + PAD_B, N + PAD_C, calls);
}

static void expect_gemv(bool col, bool f64, bool t, int incx, int incy, int calls)
{
    int out = t ? COLS : ROWS, in = t ? ROWS : COLS, ld = (col ? ROWS : COLS) + PAD_V;
    char stored = t == col ? 'n' : 't'; /* op(A) as a row-major reader sees what is stored */
    if (incy == 1)
        expect(f64, 1, out, in, incx == 1 ? 'n' : 't', stored == 'n' ? 't' : 'n', incx == 1 ? in : incx, ld,
               out, calls);
    else
        expect(f64, out, 1, in, stored, 'n', ld, incx, incy, calls);
}

static void expect_calls(void)
{
    int call = 0;
    for (int form = 0; form < FORMS; form++)
        for (int f64 = 0; f64 < 2; f64++) {
            for (int t = 0; t < 4; t++, call++)
                expect_gemm(form != ROW_MAJOR, f64, t & 1, t & 2, repeats(call));
            for (int t = 0; t < 2; t++)
                for (int i = 0; i < 4; i++, call++)
                    expect_gemv(form != ROW_MAJOR, f64, t, incs_x[i & 1], incs_y[i >> 1], repeats(call));
        }
}

static char *bare(const char *const argv[])
{
    char *out, *err;
    CHECK_INT(kfit_test_run(argv, (const char *[]){"OPENBLAS_NUM_THREADS=1", NULL}, &out, &err), 0);
    CHECK_STR(err, "");
    return out;
}

/* ---- cases ---- */

static void every_call_becomes_its_key_once(void)
{
    char *out, *err;
    const char *const *argv = CALLS_ARGV("keys");
    run_shimmed(argv, kfit_test_dir(), NULL, &out, &err);
    CHECK_STR(err, "");
    CHECK_STR(out, bare(argv));
    struct kfit_trace *t = trace_only(kfit_test_dir());
    expect_calls();
    for (size_t i = 0; i < wanted; i++) {
        uint64_t have = trace_calls_of(t, want[i].text, KFIT_REASON_OFF);
        if (have != want[i].calls)
            trace_print(t);
        CHECK_MSG(have == want[i].calls, "%s: %" PRIu64 " calls, expected %" PRIu64, want[i].text, have,
                  want[i].calls);
    }
    CHECK_INT(kfit_trace_count(t), wanted);
    for (unsigned i = 0; i < KFIT_TRACE_REASONS; i++)
        CHECK_INT(kfit_trace_header(t)->unkeyed[i], 0);
}

static void odd_calls_reach_the_original(void)
{
    char *out;
    const char *const *argv = CALLS_ARGV("odd");
    run_shimmed(argv, kfit_test_dir(), NULL, &out, NULL);
    CHECK_STR(out, bare(argv));
    struct kfit_trace *t = trace_only(kfit_test_dir());
    CHECK_INT(kfit_trace_header(t)->unkeyed[KFIT_REASON_FLAGS], 8);
    CHECK_INT(trace_calls_of(
                  t, "gemm/f32,f32,f32/acc=f32/m=3,n=7,k=5/nn/lda=5,ldb=7,ldc=7/alpha=other,beta=1/align=4",
                  KFIT_REASON_COUNT),
              1);
    CHECK_INT(trace_calls_of(
                  t,
                  "gemm/f64,f64,f64/acc=f64/m=1,n=13,k=17/nt/lda=17,ldb=19,ldc=13/alpha=1,beta=other/align=8",
                  KFIT_REASON_COUNT),
              1);
    CHECK_INT(trace_calls(t), 10);
}

static void the_trace_names_the_library(void)
{
    run_shimmed(CALLS_ARGV("loop", "3"), kfit_test_dir(), (const char *[]){"KFIT_LABEL=blue", NULL}, NULL,
                NULL);
    const struct kfit_trace_header *h = kfit_trace_header(trace_only(kfit_test_dir()));
    CHECK_INT(h->generic_count, 1);
    CHECK(strstr(h->generics[0].path, "openblas"));
    CHECK_STR(h->generics[0].naming, "cblas_%s");
    CHECK(!strncmp(h->generics[0].config, "OpenBLAS ", 9));
    CHECK_INT(h->generics[0].threads, 1);
    CHECK_INT(h->generics[0].int_bits, 32);
    CHECK_STR(h->label, "blue");
    CHECK(strstr(h->env.hard, "threads=1;"));
    CHECK(strstr(h->env.soft, "blas=OpenBLAS "));
}

static uint64_t calls_in(const struct kfit_trace *t, const char *library)
{
    const struct kfit_trace_header *h = kfit_trace_header(t);
    uint64_t n = 0;
    for (size_t i = 0; i < kfit_trace_count(t); i++)
        if (strstr(h->generics[kfit_trace_at(t, i)->generic].path, library))
            n += kfit_slot_calls(kfit_trace_at(t, i));
    return n;
}

/* Each caller gets the library it was linked to, whichever was loaded first. */
static void two_libraries_of_the_same_names(void)
{
    static const char *const argv[][6] = {{PLUGINS, PLUGIN_OPENBLAS, "3", PLUGIN_SMALL, "5", NULL},
                                          {PLUGINS, PLUGIN_SMALL, "5", PLUGIN_OPENBLAS, "3", NULL}};
    for (int i = 0; i < 2; i++) {
        char dir[300], *out;
        snprintf(dir, sizeof dir, "%s/%d", kfit_test_dir(), i);
        run_shimmed(argv[i], dir, NULL, &out, NULL);
        CHECK_STR(out, i ? "32 5\n32 -1\n" : "32 -1\n32 5\n");
        struct kfit_trace *t = trace_only(dir);
        CHECK_INT(kfit_trace_header(t)->generic_count, 2);
        CHECK_INT(trace_calls(t), 8);
        /* one key, so one slot, which names the library that called last */
        CHECK_INT(calls_in(t, i ? "openblas" : "small_blas"), 8);
    }
}

/* One that lies where another one was: its calls are its own library's. Small's counter goes on where it was: the library is
 * kept for those that were linked to it. */
static void a_caller_in_another_one_s_place(void)
{
    const char *argv[2 + 2 * 100 + 1] = {PLUGINS, "close"};
    char *out;
    for (int i = 0; i < 100; i++) {
        argv[2 + 2 * i] = i % 2 ? PLUGIN_OPENBLAS : PLUGIN_SMALL;
        argv[3 + 2 * i] = "3";
    }
    run_shimmed(argv, kfit_test_dir(), NULL, &out, NULL);
    for (int i = 0, used; i < 100; i++, out += used) {
        int product, calls;
        CHECK_INT(sscanf(out, "%d %d\n%n", &product, &calls, &used), 2);
        CHECK_INT(product, 32);
        CHECK_INT(calls, i % 2 ? -1 : 3 * (i / 2 + 1));
    }
    CHECK_INT(trace_calls(trace_only(kfit_test_dir())), 300);
}

static void threads_that_start_together_lose_no_call(void)
{
    run_shimmed(CALLS_ARGV("threads", "8", "2000"), kfit_test_dir(), NULL, NULL, NULL);
    struct kfit_trace *t = trace_only(kfit_test_dir());
    CHECK_INT(trace_calls(t), 8 * 2000);
    CHECK_INT(kfit_trace_count(t), 1);
}

/* Every child has a trace of its own with exactly its calls. Not with OpenBLAS: a child that was forked while another
 * thread held one of its locks waits for it forever, without us too. */
static void check_forks(const char *dir, const char *children, const char *delay_us)
{
    char *out, *save;
    run_shimmed(CALLS_ARGV("fork", children, "7", delay_us), dir,
                (const char *[]){"LD_PRELOAD=" SHIM ":" SMALL_BLAS, NULL}, &out, NULL);
    struct kfit_trace *t[TRACES_MAX];
    size_t n = traces_read(dir, t);
    int seen = 0;
    CHECK_INT(n, atoi(children) + 1);
    for (char *line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save), seen++) {
        int pid = 0;
        CHECK_MSG(sscanf(line, "child %d", &pid) == 1 && !strchr(line, ':'), "%s", line);
        const struct kfit_trace *child = trace_of_pid(t, n, pid);
        CHECK(child);
        CHECK_INT(trace_calls(child), 7);
    }
    CHECK_INT(seen, atoi(children));
}

static void a_fork_in_the_middle_of_a_call(void)
{
    check_forks(kfit_test_dir(), "40", "5000");
}

/* A child has only the forking thread: a start in another thread never ends there. Some delays hit it. */
static void a_fork_in_the_middle_of_the_start(void)
{
    for (int us = 0; us < 1500; us += 50) {
        char dir[300], delay[16];
        snprintf(dir, sizeof dir, "%s/%d", kfit_test_dir(), us);
        snprintf(delay, sizeof delay, "%d", us);
        check_forks(dir, "1", delay);
    }
}

static const struct kfit_test tests[] = {
    TEST(every_call_becomes_its_key_once),
    TEST(odd_calls_reach_the_original),
    TEST(the_trace_names_the_library),
    TEST(two_libraries_of_the_same_names),
    TEST(a_caller_in_another_one_s_place),
    TEST(threads_that_start_together_lose_no_call),
    TEST(a_fork_in_the_middle_of_a_call),
    TEST(a_fork_in_the_middle_of_the_start),
};
TEST_MAIN(tests)
