/* The judge against kernels that are wrong, each in its own way, and against odd ones that are right. */
#include <dlfcn.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kfit/judge.h"
#include "kfit_test.h"

/* Gaps between rows everywhere, and no more alignment than an element's. */
#define KEY(m, n, k, beta)                                                                                   \
    "gemm/f32,f32,f32/acc=f32/m=" #m ",n=" #n ",k=" #k "/nn/lda=43,ldb=47,ldc=51/alpha=1,beta=" #beta        \
    "/align=4"
static const char small[] = KEY(4, 36, 40, 0), small_adding[] = KEY(4, 36, 40, 1);

static struct kfit_generic blas(void)
{
    static const char *const names[] = {"libopenblas.so.0", "libblas.so.3", "libcblas.so.3"};
    struct kfit_generic g = {.naming = "cblas_%s", .int_bits = 32, .threads = 1};
    Dl_info info;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        void *lib = dlopen(names[i], RTLD_NOW | RTLD_LOCAL), *sgemm = lib ? dlsym(lib, "cblas_sgemm") : NULL;
        if (!sgemm || !dladdr(sgemm, &info) || info.dli_fname[0] != '/')
            continue;
        snprintf(g.path, sizeof g.path, "%s", info.dli_fname);
        return g;
    }
    SKIP("no BLAS with cblas_sgemm; install libopenblas0");
}

static struct kfit_judge *judge_of(const struct kfit_generic *g, int threads)
{
    struct kfit_env env;
    struct kfit_judge *j;
    struct kfit_error err;
    kfit_env_host(&env, threads, "blas", NULL);
    struct kfit_judge_params p = {.runner = RUNNER, .generic = g, .env = &env, .lock_dir = kfit_test_dir()};
    CHECK_OK(kfit_judge_create(&p, &j, &err), err);
    return j;
}

static struct kfit_judge *judge(void)
{
    const struct kfit_generic g = blas();
    return judge_of(&g, 1);
}

static union kfit_key key_of(const char *text)
{
    union kfit_key key;
    struct kfit_error err;
    CHECK_OK(kfit_key_parse(text, &key, &err), err);
    return key;
}

static struct kfit_built build(const char *path, const union kfit_key *key)
{
    struct kfit_candidate *c;
    struct kfit_built b = {0};
    struct kfit_error err = {0};
    size_t bytes;
    char *source = kfit_test_read(path, &bytes);
    CHECK_OK(kfit_candidate_parse(source, bytes, &c, &err), err);
    enum kfit_status s = kfit_compile(
        &(struct kfit_compile_params){
            .candidate = c, .key = key, .choice = &(struct kfit_choice){{0}}, .allow_no_isolation = true},
        &b, &err);
    CHECK_MSG(s == KFIT_OK, "%s: %s %s %s", path, err.text, b.code, b.detail);
    kfit_candidate_destroy(c);
    free(source);
    return b;
}

static const struct kfit_timing *cold_of(const struct kfit_receipt *r)
{
    for (unsigned i = 0; i < r->timing_count; i++)
        if (!strcmp(r->timings[i].mode, "cold"))
            return &r->timings[i];
    return NULL;
}

static struct kfit_receipt run_job(struct kfit_judge *j, const struct kfit_judge_job *job)
{
    struct kfit_receipt r = {0};
    struct kfit_error err = {0};
    CHECK_OK(kfit_judge_run(j, job, &r, &err), err);
    const struct kfit_timing *cold = cold_of(&r);
    CHECK(r.verdict != KFIT_VERDICT_PROMOTED || (cold && cold->n >= 30 && cold->lo > 0.97));
    return r;
}

static struct kfit_receipt run(struct kfit_judge *j, const char *key_text, const void *image, size_t bytes,
                               const struct kfit_plan *plan, bool screen)
{
    union kfit_key key = key_of(key_text);
    return run_job(j, &(struct kfit_judge_job){
                          .key = &key, .image = image, .image_bytes = bytes, .plan = plan, .screen = screen});
}

static struct kfit_receipt run_file(struct kfit_judge *j, const char *key_text, const char *name, bool screen)
{
    char path[512];
    snprintf(path, sizeof path, BAD_KERNELS "/host/%s.c", name);
    union kfit_key key = key_of(key_text);
    struct kfit_built b = build(path, &key);
    struct kfit_receipt r = run(j, key_text, b.image, b.image_bytes, &b.plan, screen);
    kfit_built_finish(&b);
    return r;
}

static const struct {
    const char *file, *code;
} bad[] = {
    {"wrong_nothing", "wrong:unwritten"},
    {"wrong_tail", "wrong:partial"},
    {"wrong_last_row", "wrong:partial"},
    {"wrong_input", "wrong:input_written"},
    {"wrong_past_end", "wrong:out_of_bounds"},
    {"wrong_before_start", "wrong:out_of_bounds"},
    {"wrong_far", "wrong:out_of_bounds"},
    {"wrong_read_past_end", "wrong:out_of_bounds"},
    {"wrong_gap", "wrong:out_of_bounds"},
    {"wrong_workspace_size", "wrong:out_of_bounds"},
    {"wrong_large", "wrong:values"},
    {"wrong_zeros", "wrong:values"},
    {"wrong_sampled", "wrong:values"},
    {"wrong_neighbour", "wrong:values"},
    {"wrong_half", "wrong:accuracy"},
    {"wrong_element", "wrong:accuracy"},
    {"wrong_nan", "wrong:nonfinite"},
    {"wrong_aligned", "wrong:nonfinite"}, /* what lies before an input is NaN */
    {"wrong_noise", "wrong:not_repeatable"},
    {"wrong_first_calls", "wrong:later_calls"},
    {"wrong_memo", "wrong:later_calls"},
    {"wrong_fingerprint", "wrong:later_calls"},
    {"wrong_scratch", "wrong:workspace"},
    {"wrong_dirty", "wrong:workspace"},
    {"wrong_stack", "wrong:stack"},
    {"wrong_stack_far", "wrong:stack"},
    {"wrong_crash", "wrong:crash"},
    {"wrong_hang", "wrong:hang"},
    {"wrong_when_timed", "wrong:later_calls"},
    {"hidden_zeros", "hidden:wrong"},
};

/* One case per share of the list, so that none takes long. */
static void refuse_share(unsigned share, unsigned shares)
{
    struct kfit_judge *j = judge();
    for (size_t i = share; i < sizeof bad / sizeof *bad; i += shares) {
        struct kfit_receipt r = run_file(j, small, bad[i].file, false);
        CHECK_MSG(!strcmp(kfit_code_str(r.code), bad[i].code), "%s: %s %s (%s), expected %s", bad[i].file,
                  kfit_verdict_str(r.verdict), kfit_code_str(r.code), r.detail, bad[i].code);
        CHECK(r.verdict == KFIT_VERDICT_REFUSED);
        CHECK_MSG(r.code != KFIT_CODE_HIDDEN_WRONG || !r.detail[0], "gate 2 told: %s", r.detail);
    }
    kfit_judge_destroy(j);
}

static void bad_kernels_get_their_own_code_1(void)
{
    refuse_share(0, 3);
}

static void bad_kernels_get_their_own_code_2(void)
{
    refuse_share(1, 3);
}

static void bad_kernels_get_their_own_code_3(void)
{
    refuse_share(2, 3);
}

static void odd_but_right_kernels_are_not_refused(void)
{
    static const char *const good[] = {"good_reversed", "good_split", "good_zero", "good_columns"};
    struct kfit_judge *j = judge();
    for (size_t i = 0; i < 2 * sizeof good / sizeof *good; i++) {
        struct kfit_receipt r = run_file(j, i & 1 ? small_adding : small, good[i / 2], false);
        CHECK_MSG(r.verdict != KFIT_VERDICT_REFUSED && r.deterministic && r.gates[0].ok, "%s: %s %s",
                  good[i / 2], kfit_code_str(r.code), r.detail);
        CHECK(r.timing_count && r.timings[0].ns_incumbent > 0 && r.timings[0].ns_candidate > 0);
    }
    kfit_judge_destroy(j);
}

/* Machine code that gate 0 would not let through: the runner is the second line. */
static void what_passes_gate_0_unseen_is_stopped_by_the_runner(void)
{
    static const struct {
        const char *code;
        uint8_t bytes[16];
    } raw[] = {
        {"wrong:system_call", {0xb8, 0x27, 0, 0, 0, 0x0f, 0x05, 0xc3}},                   /* getpid() */
        {"wrong:fp_state", {0x68, 0xc0, 0x9f, 0, 0, 0x0f, 0xae, 0x14, 0x24, 0x58, 0xc3}}, /* flush to zero */
        {"wrong:fp_state", {0xfd, 0xc3}},                                                 /* std */
        {"wrong:crash", {0x0f, 0x0b}},                                                    /* ud2 */
        {"wrong:crash", {0x31, 0xc0, 0xff, 0xe0}},                                        /* jump to 0 */
        {"wrong:hang", {0xeb, 0xfe}},                                                     /* jmp . */
        {"wrong:unwritten",
         {0x31, 0xdb, 0x31, 0xed, 0x4d, 0x31, 0xff, 0xc3}}, /* callee-saved registers gone */
        {"wrong:stack", {0x6a, 0, 0xeb, 0xfc}},             /* push for ever */
    };
    struct kfit_judge *j = judge();
    struct kfit_plan plan = {
        .launch_count = 1,
        .launches[0] = {.entry = "raw", .grid = {1, 1, 1}, .block = {1, 1, 1}, .cluster = {1, 1, 1}}};
    for (size_t i = 0; i < sizeof raw / sizeof *raw; i++) {
        struct kfit_receipt r = run(j, small, raw[i].bytes, sizeof raw[i].bytes, &plan, false);
        CHECK_MSG(!strcmp(kfit_code_str(r.code), raw[i].code), "image %zu: %s (%s), expected %s", i,
                  kfit_code_str(r.code), r.detail, raw[i].code);
    }
    kfit_judge_destroy(j);
}

/* All layouts, both types, matrix-vector shapes, Fortran names: the generic is called as its program would.
 */
static void every_kind_of_key_is_judged(void)
{
    static const char *const keys[] = {
        "gemm/f64,f64,f64/acc=f64/m=5,n=7,k=9/nn/lda=9,ldb=7,ldc=7/alpha=1,beta=0/align=8",
        "gemm/f32,f32,f32/acc=f32/m=5,n=7,k=9/nt/lda=9,ldb=9,ldc=7/alpha=1,beta=0/align=4",
        "gemm/f32,f32,f32/acc=f32/m=5,n=7,k=9/tn/lda=5,ldb=7,ldc=7/alpha=1,beta=1/align=4",
        "gemm/f64,f64,f64/acc=f64/m=5,n=7,k=9/tt/lda=8,ldb=9,ldc=8/alpha=1,beta=1/align=8",
        "gemm/f32,f32,f32/acc=f32/m=1,n=33,k=20/nn/lda=20,ldb=33,ldc=33/alpha=1,beta=0/align=4",
        "gemm/f32,f32,f32/acc=f32/m=1,n=33,k=20/tt/lda=3,ldb=20,ldc=33/alpha=1,beta=1/align=4",
        "gemm/f32,f32,f32/acc=f32/m=33,n=1,k=20/nn/lda=20,ldb=2,ldc=3/alpha=1,beta=0/align=4",
        "gemm/f64,f64,f64/acc=f64/m=33,n=1,k=20/tt/lda=33,ldb=20,ldc=1/alpha=1,beta=0/align=8",
        "gemm/f32,f32,f32/acc=f32/m=1,n=1,k=1/nn/lda=1,ldb=1,ldc=1/alpha=1,beta=0/align=4",
    };
    static const char *const namings[] = {"cblas_%s", "%s_"};
    for (unsigned naming = 0; naming < 2; naming++) {
        struct kfit_generic g = blas();
        snprintf(g.naming, sizeof g.naming, "%s", namings[naming]);
        struct kfit_judge *j = judge_of(&g, 1 + (int)naming);
        for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
            union kfit_key key = key_of(keys[i]);
            struct kfit_built b = build(BAD_KERNELS "/host/good_plain.c", &key);
            struct kfit_receipt r = run(j, keys[i], b.image, b.image_bytes, &b.plan, true);
            CHECK_MSG(r.verdict == KFIT_VERDICT_KEPT && !r.code, "%s: %s %s", keys[i], kfit_code_str(r.code),
                      r.detail);
            CHECK(r.timing_count == 1 && r.timings[0].ratio > 0);
            kfit_built_finish(&b);
        }
        kfit_judge_destroy(j);
    }
}

static void a_screening_is_cold_where_asked(void)
{
    union kfit_key key = key_of(small);
    struct kfit_judge *j = judge();
    struct kfit_built b = build(BAD_KERNELS "/host/good_plain.c", &key);
    for (unsigned cold = 0; cold < 2; cold++) {
        struct kfit_receipt r = run_job(j, &(struct kfit_judge_job){.key = &key,
                                                                    .image = b.image,
                                                                    .image_bytes = b.image_bytes,
                                                                    .plan = &b.plan,
                                                                    .screen = true,
                                                                    .cold = cold});
        CHECK_MSG(r.verdict == KFIT_VERDICT_KEPT && !r.code, "%s %s", kfit_code_str(r.code), r.detail);
        CHECK_INT(r.timing_count, 1 + cold);
        const struct kfit_timing *t = cold_of(&r);
        CHECK(!t == !cold &&
              (!t || (t->n == r.timings[0].n && t->ratio > 0 && t->ns_generic == t->ns_incumbent)));
    }
    kfit_built_finish(&b);
    kfit_judge_destroy(j);
}

/* A/A: the present winner dressed as a candidate, with a generic that any kernel beats, so that it is the incumbent. */
static void against_itself(unsigned trials)
{
    const struct kfit_generic g = {.path = POOR_BLAS, .naming = "cblas_%s", .int_bits = 32, .threads = 1};
    union kfit_key key =
        key_of("gemm/f32,f32,f32/acc=f32/m=4,n=64,k=64/nn/lda=64,ldb=64,ldc=64/alpha=1,beta=0/align=16");
    struct kfit_judge *j = judge_of(&g, 1);
    struct kfit_candidate *c;
    struct kfit_built b = {0};
    struct kfit_error err = {0};
    unsigned seed = 0, promoted = 0, against_image = 0;
    while (seed < kfit_seed_count && strcmp(kfit_seeds[seed].name, "colblock"))
        seed++;
    CHECK(seed < kfit_seed_count);
    CHECK_OK(kfit_candidate_parse(kfit_seeds[seed].source, kfit_seeds[seed].bytes, &c, &err), err);
    CHECK_OK(kfit_compile(&(struct kfit_compile_params){.candidate = c,
                                                        .key = &key,
                                                        .choice = &(struct kfit_choice){{0}},
                                                        .allow_no_isolation = true},
                          &b, &err),
             err);
    for (unsigned i = 0; i < trials; i++) {
        struct kfit_receipt r = {0};
        struct kfit_judge_job job = {.key = &key,
                                     .image = b.image,
                                     .image_bytes = b.image_bytes,
                                     .plan = &b.plan,
                                     .incumbent_image = b.image,
                                     .incumbent_bytes = b.image_bytes,
                                     .incumbent_plan = &b.plan};
        CHECK_OK(kfit_judge_run(j, &job, &r, &err), err);
        CHECK_MSG(r.gates[0].ok && r.verdict != KFIT_VERDICT_REFUSED, "%s %s", kfit_code_str(r.code),
                  r.detail);
        against_image += r.timings[0].ns_generic != r.timings[0].ns_incumbent;
        promoted += r.verdict == KFIT_VERDICT_PROMOTED;
    }
    CHECK_INT(promoted, 0);
    CHECK_INT(against_image, trials);
    kfit_candidate_destroy(c);
    kfit_built_finish(&b);
    kfit_judge_destroy(j);
}

static void a_winner_does_not_beat_itself(void)
{
    against_itself(4);
}

static void a_winner_does_not_beat_itself_200_times(void)
{
    against_itself(200);
}

/* The same right kernels again and again: none may be refused. */
static void a_hundred_runs_without_a_false_alarm(void)
{
    static const char *const good[] = {"good_reversed", "good_split", "good_zero", "good_columns",
                                       "good_plain"};
    struct kfit_judge *j = judge();
    for (unsigned i = 0; i < 100; i++) {
        struct kfit_receipt r = run_file(j, i & 1 ? small_adding : small, good[i % 5], false);
        CHECK_MSG(r.verdict != KFIT_VERDICT_REFUSED, "run %u, %s: %s %s", i, good[i % 5],
                  kfit_code_str(r.code), r.detail);
        if (i % 10 == 9) { /* other fixed inputs */
            kfit_judge_destroy(j);
            j = judge();
        }
    }
    kfit_judge_destroy(j);
}

static void generic_is_timed_and_bounded(void)
{
    struct kfit_judge *j = judge();
    struct kfit_error err;
    union kfit_key key = key_of(small);
    double ns, bound;
    CHECK_OK(kfit_judge_time_generic(j, &key, &ns, &err), err);
    CHECK_OK(kfit_judge_bound(j, &key, &bound, &err), err);
    CHECK_MSG(bound > 0 && ns > bound, "%g ns, bound %g ns", ns, bound);
    kfit_judge_destroy(j);
}

static void one_judge_at_a_time(void)
{
    struct kfit_judge *j, *other;
    struct kfit_error err = {0};
    struct kfit_generic g = blas();
    struct kfit_env env;
    int go[2], st;
    char byte = 0, holder[32];
    kfit_env_host(&env, 1, NULL, NULL);
    struct kfit_judge_params p = {.runner = RUNNER, .generic = &g, .env = &env, .lock_dir = kfit_test_dir()};
    CHECK(!pipe(go));
    pid_t pid = fork(); /* before there is a judge: a process that has nothing to do with it */
    if (!pid) {
        CHECK(read(go[0], &byte, 1) == 1);
        CHECK_STATUS(kfit_judge_create(&p, &other, &err), KFIT_E_BUSY);
        snprintf(holder, sizeof holder, "process %d (", (int)getppid());
        CHECK_MSG(strstr(err.text, holder), "%s", err.text);
        _exit(0);
    }
    j = judge();
    CHECK_STATUS(kfit_judge_create(&p, &other, &err), KFIT_E_BUSY);
    CHECK(write(go[1], &byte, 1) == 1 && waitpid(pid, &st, 0) == pid);
    CHECK_INT(st, 0);
    kfit_judge_destroy(j);
    j = judge();
    kfit_judge_destroy(j);
}

static void missing_parts_are_named(void)
{
    struct kfit_generic g = blas();
    struct kfit_env env;
    struct kfit_judge *j;
    struct kfit_error err = {0};
    kfit_env_host(&env, 1, NULL, NULL);
    struct kfit_judge_params p = {
        .runner = "/nonexistent/kfit-runner", .generic = &g, .env = &env, .lock_dir = kfit_test_dir()};
    CHECK_STATUS(kfit_judge_create(&p, &j, &err), KFIT_E_NOTFOUND);
    CHECK(strstr(err.text, "/nonexistent/kfit-runner"));

    union kfit_key key = key_of(small);
    double ns;
    p.runner = RUNNER;
    snprintf(g.path, sizeof g.path, "/nonexistent/libblas.so");
    CHECK_OK(kfit_judge_create(&p, &j, &err), err);
    CHECK_STATUS(kfit_judge_time_generic(j, &key, &ns, &err), KFIT_E_NOTFOUND);
    CHECK(strstr(err.text, "/nonexistent/libblas.so"));
    kfit_judge_destroy(j);
    key.gemm.alpha = KFIT_SCALAR_OTHER;
    j = judge();
    CHECK_STATUS(kfit_judge_time_generic(j, &key, &ns, &err), KFIT_E_UNSUPPORTED);
    kfit_judge_destroy(j);
}

static const struct kfit_test tests[] = {TEST(bad_kernels_get_their_own_code_1),
                                         TEST(bad_kernels_get_their_own_code_2),
                                         TEST(bad_kernels_get_their_own_code_3),
                                         TEST(odd_but_right_kernels_are_not_refused),
                                         TEST(what_passes_gate_0_unseen_is_stopped_by_the_runner),
                                         TEST(every_kind_of_key_is_judged),
                                         TEST(a_screening_is_cold_where_asked),
                                         TEST(a_winner_does_not_beat_itself),
                                         TEST_SLOW(a_winner_does_not_beat_itself_200_times, 900),
                                         TEST_SLOW(a_hundred_runs_without_a_false_alarm, 900),
                                         TEST(generic_is_timed_and_bounded),
                                         TEST(one_judge_at_a_time),
                                         TEST(missing_parts_are_named)};
TEST_MAIN(tests)
