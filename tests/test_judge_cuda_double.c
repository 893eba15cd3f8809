/* The cuda judge, its worker and the compiler's child, all as shipped, on the double of a GPU: verdicts, replaced
 * runners, and decisions by a clock that says what it is told. */
#include "double/judging.h"

#define KEY(types, beta)                                                                                     \
    "gemm/" types "/acc=f32/m=4,n=32,k=32/nt/lda=32,ldb=32,ldc=40/alpha=1,beta=" beta "/align=16"
#define BF16 KEY("bf16,bf16,bf16", "0")

/* ---- right or wrong ---- */

#define SCRATCH "\"workspace\":{\"bytes\":\"256\",\"init\":\"scratch\"},"
#define ZERO    "\"workspace\":{\"bytes\":\"256\",\"init\":\"zero\"},"

static const struct {
    const char *name, *extra, *code;
} bad[] = {
    {"nothing", "", "wrong:unwritten"},
    {"no_tail", "", "wrong:partial"},
    {"no_last_row", "", "wrong:partial"},
    {"input", "", "wrong:input_written"},
    {"past_end", "", "wrong:out_of_bounds"},
    {"before_start", "", "wrong:out_of_bounds"},
    {"reads_past", "", "wrong:out_of_bounds"},
    {"truncates", "", "wrong:accuracy"},
    {"half_sums", "", "wrong:accuracy"},
    {"samples", "", "wrong:values"},
    {"nan_lost", "", "wrong:nonfinite"},
    {"illegal", "", "wrong:out_of_bounds"},
    {"later_illegal", "", "wrong:out_of_bounds"},
    {"unrepeatable", "", "wrong:not_repeatable"},
    {"needs_zero", SCRATCH, "wrong:nonfinite"},
    {"left_dirty", ZERO, "wrong:workspace"},
    {"past_workspace", ZERO, "wrong:out_of_bounds"},
    {"too_much", ",\"smem\":\"400000\"", "static:resources"},
    {"launch_refused", "", "static:resources"},
    {"early_zeros", "", "hidden:wrong"},
    {"not_in_graphs", "", "wrong:later_calls"},
};

static void bad_kernels_get_their_own_code(void)
{
    unsigned wrong = 0;
    setup("");
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct kfit_receipt r = judge_one(bad[i].name, "ns=5000", bad[i].extra, BF16);
        if (r.verdict == KFIT_VERDICT_REFUSED && !strcmp(kfit_code_str(r.code), bad[i].code))
            continue;
        printf("  %s: %s \"%s\" (%s), expected \"%s\"\n", bad[i].name, kfit_verdict_str(r.verdict), kfit_code_str(r.code), r.detail,
               bad[i].code);
        wrong++;
    }
    CHECK_INT(wrong, 0);
}

static void right_ones_pass_for_every_type(void)
{
    static const char *const keys[] = {BF16, KEY("bf16,bf16,bf16", "1"), KEY("f16,f16,f16", "0"), KEY("bf16,bf16,f32", "0"),
                                       KEY("f32,f32,f32", "0"), KEY("f32,f32,f32", "1")};
    setup("");
    for (unsigned i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct kfit_receipt r = judge_one("right", "ns=5000", i & 1 ? ZERO : SCRATCH, keys[i]);
        CHECK_MSG(r.verdict == KFIT_VERDICT_PROMOTED && r.deterministic, "%s: %s %s %s", keys[i], kfit_verdict_str(r.verdict),
                  kfit_code_str(r.code), r.detail);
    }
}

/* ---- a lost runner ---- */

static void a_lost_runner_is_replaced(void)
{
    static const struct {
        const char *name, *extra, *code;
    } row[] = {{"illegal", "", "wrong:out_of_bounds"}, {"hangs", "", "wrong:hang"}, {"launch_refused", "", "static:resources"}};
    setup("");
    for (unsigned i = 0; i < 3; i++) {
        expect(row[i].name, "", row[i].extra, BF16, KFIT_VERDICT_REFUSED, row[i].code);
        expect("right", "ns=20000", "", BF16, KFIT_VERDICT_KEPT, "slow:behind");
    }
}

/* ---- fast or slow: the clock says exactly what it is told ---- */

static void timing_decides(void)
{
    setup("");
    expect("right", "ns=9500", "", BF16, KFIT_VERDICT_PROMOTED, "");
    expect("right", "ns=9900", "", BF16, KFIT_VERDICT_KEPT, "slow:tie"); /* ahead, but less than it is worth */
    expect("right", "ns=10000", "", BF16, KFIT_VERDICT_KEPT, "slow:tie");
    expect("right", "ns=10500", "", BF16, KFIT_VERDICT_KEPT, "slow:behind");
    expect("right", "ns=9000 plain=11000", "", BF16, KFIT_VERDICT_KEPT, "slow:behind"); /* vetoed by plain launches */
    struct kfit_receipt r = judge_one("only_once", "", "", BF16); /* fast where the output stands already: never here */
    CHECK_MSG(r.timings[0].ns_candidate > 11999 && r.code == KFIT_CODE_SLOW_BEHIND, "%g ns, %s", r.timings[0].ns_candidate,
              kfit_code_str(r.code));
}

/* However many copies there are, none is in the cache still when it comes again, for either side. */
static void decided_cold(void)
{
    static const char *const l2[] = {"l2 2000\n", "l2 65536\n", "l2 90000\n", "l2 200000\n", "l2 1000000\n"};
    for (unsigned i = 0; i < sizeof l2 / sizeof *l2; i++) {
        char path[256];
        setup(l2[i]);
        struct kfit_receipt r = judge_one("fast_when_cached", "", "", BF16);
        CHECK_MSG(r.timing_count && r.timings[0].ns_candidate > 11999, "%s: %g ns", l2[i], r.timings[0].ns_candidate);
        kfit_judge_destroy(judge);
        snprintf(path, sizeof path, "%s/libcuda.so.1", kfit_test_dir());
        CHECK(!unlink(path));
    }
}

static void the_receipt_has_the_numbers(void)
{
    setup("");
    struct kfit_receipt r = judge_one("right", "ns=8000", "", BF16);
    CHECK_INT(r.verdict, KFIT_VERDICT_PROMOTED);
    CHECK_INT(r.timing_count, 4);
    CHECK_STR(r.timings[0].mode, "cold");
    CHECK_STR(r.timings[1].mode, "warm");
    CHECK_STR(r.timings[2].mode, "plain");
    CHECK_STR(r.timings[3].clock, "cupti");
    for (unsigned i = 0; i < 4; i++)
        CHECK_MSG(r.timings[i].ratio > 1.249 && r.timings[i].ratio < 1.251 && r.timings[i].lo > 1.24, "%s %g", r.timings[i].mode,
                  r.timings[i].ratio);
    CHECK_MSG(r.timings[0].ns_candidate > 7999 && r.timings[0].ns_candidate < 8001, "%g", r.timings[0].ns_candidate);
    CHECK_MSG(r.timings[0].ns_generic > 9999 && r.timings[0].ns_generic < 10001, "%g", r.timings[0].ns_generic);
    CHECK(r.bound_ns > 400 && r.bound_ns < 8000);
    CHECK(r.gate_count == 6 && !strcmp(r.gates[4].name, "repeat") && !strcmp(r.gates[5].name, "clocks"));
}

static void the_incumbent_winner_must_be_beaten(void)
{
    setup("");
    const union kfit_key key = key_of(BF16);
    struct kfit_built winner = build("right", "ns=8000", "", &key), slow = build("right", "ns=12000", "", &key);
    struct kfit_built faster = build("right", "ns=7000", "", &key), between = build("right", "ns=9000", "", &key);
    struct kfit_receipt r = judged(&faster, &winner, &key);
    CHECK_STR(kfit_verdict_str(r.verdict), "promoted");
    CHECK_MSG(r.timings[0].ns_incumbent < 8001 && r.timings[0].ns_generic > 9999, "%g %g", r.timings[0].ns_incumbent,
              r.timings[0].ns_generic);
    r = judged(&between, &winner, &key);
    CHECK_STR(kfit_code_str(r.code), "slow:behind");
    r = judged(&winner, &winner, &key);
    CHECK_STR(kfit_code_str(r.code), "slow:tie");
    r = judged(&between, &slow, &key); /* the generic is the faster of the two */
    CHECK_STR(kfit_verdict_str(r.verdict), "promoted");
    CHECK_MSG(r.timings[0].ns_incumbent > 9999 && r.timings[0].ns_incumbent < 10001, "%g", r.timings[0].ns_incumbent);
}

static void beyond_the_bound_is_suspect(void)
{
    double bound;
    setup("");
    const union kfit_key key = key_of(BF16);
    CHECK_OK(kfit_judge_bound(judge, &key, &bound, &err), err);
    CHECK_MSG(bound > 400 && bound < 1000, "%g", bound);
    expect("right", "ns=200", "", BF16, KFIT_VERDICT_PROMOTED, ""); /* 2 to 10 times: noted */
    expect("right", "ns=20", "", BF16, KFIT_VERDICT_REVIEW, "suspect:beyond-roofline");
    expect("right", "ns=2", "", BF16, KFIT_VERDICT_REFUSED, "suspect:beyond-roofline");
}

/* What holds only in the process that measured first is no winner. */
static void it_must_hold_in_a_fresh_process(void)
{
    setup("");
    expect("right", "ns=5000 again=15000", "", BF16, KFIT_VERDICT_KEPT, "repeat:failed");
    expect("again_wrong", "ns=6000 again=6000", "", BF16, KFIT_VERDICT_REFUSED, "repeat:failed");
}

static void the_generic_is_timed(void)
{
    double ns;
    setup("generic_ns 4321\n");
    const union kfit_key key = key_of(BF16);
    CHECK_OK(kfit_judge_time_generic(judge, &key, &ns, &err), err);
    CHECK_MSG(ns > 4320 && ns < 4322, "%g", ns);
}

/* ---- what is missing, and what is too little ---- */

static void a_wrong_generic_is_said(void)
{
    static const char *const keys[] = {BF16, KEY("f32,f32,f32", "0")};
    setup("generic wrong\n");
    for (unsigned i = 0; i < 2; i++) {
        const union kfit_key key = key_of(keys[i]);
        struct kfit_built b = build("right", "", "", &key);
        struct kfit_receipt r = {0};
        const struct kfit_judge_job job = {.key = &key, .image = b.image, .image_bytes = b.image_bytes, .plan = &b.plan};
        CHECK_STATUS(kfit_judge_run(judge, &job, &r, &err), KFIT_E_REFUSED);
        CHECK_STR(kfit_code_str(r.code), "generic:wrong");
        CHECK_STR(kfit_verdict_str(r.verdict), "refused");
        CHECK_MSG(strstr(err.text, "generic itself is wrong on normal"), "%s", err.text);
    }
}

static void expect_unsupported(enum kfit_status want, const char *first, const char *second)
{
    enum kfit_status s = judge_status();
    CHECK_MSG(s == want && strstr(err.text, first) && strstr(err.text, second), "%s: %s", kfit_status_str(s), err.text);
}

static void no_driver_is_said(void)
{
    settings("");
    char path[256];
    snprintf(path, sizeof path, "%s/libcuda.so.1", kfit_test_dir());
    CHECK(!unlink(path));
    kfit_test_write(path, "not a library", 13); /* also where a driver is installed */
    expect_unsupported(KFIT_E_UNSUPPORTED, "no NVIDIA driver", "libcuda.so.1");
}

static void an_old_driver_is_said(void)
{
    use_double("", DOUBLE "/libcuda_old.so");
    snprintf(generic.path, sizeof generic.path, "%s", DOUBLE "/libcublas.so.13");
    expect_unsupported(KFIT_E_UNSUPPORTED, "cuGraphUpload", "560");
}

static void no_gpu_is_said(void)
{
    settings("gpus 0\n");
    expect_unsupported(KFIT_E_UNSUPPORTED, "no GPU", "CUDA_VISIBLE_DEVICES");
}

static void no_blas_is_said(void)
{
    settings("");
    strcpy(generic.path, "/nowhere/libcublas.so.13");
    expect_unsupported(KFIT_E_UNSUPPORTED, "/nowhere/libcublas.so.13", "generic");
}

static void no_nvrtc_is_said(void)
{
    settings("");
    setenv("KFIT_NVRTC", "/nowhere/libnvrtc.so", 1);
    expect_unsupported(KFIT_E_NOTFOUND, "KFIT_NVRTC", "/nowhere/libnvrtc.so");
}

static void an_old_nvrtc_is_said(void)
{
    settings("");
    setenv("KFIT_NVRTC", DOUBLE "/libnvrtc_old.so", 1);
    expect_unsupported(KFIT_E_UNSUPPORTED, "NVRTC 12.2", "12.6");
}

static void an_nvrtc_older_than_the_gpu_is_said(void)
{
    settings("cc 100\n");
    expect_unsupported(KFIT_E_UNSUPPORTED, "sm_100a", "--gpu-architecture");
}

static void too_little_memory_is_said(void)
{
    static const char *const sizes[] = {"memory 40000\n", "memory 34000000\n"}; /* cuBLAS's workspace alone is 32 MB */
    for (unsigned i = 0; i < 2; i++) {
        char path[256];
        double ns;
        enum kfit_status s;
        settings(sizes[i]);
        s = judge_status();
        if (s == KFIT_OK) {
            const union kfit_key key = key_of("gemm/bf16,bf16,bf16/acc=f32/m=4,n=4000,k=640/nt/lda=640,ldb=640,ldc=4000/alpha=1,beta=0/align=16");
            s = kfit_judge_time_generic(judge, &key, &ns, &err);
            CHECK_STATUS(s, KFIT_E_NOMEM);
        }
        CHECK_MSG(strstr(err.text, "out of memory") && strstr(err.text, "free"), "%s", err.text);
        kfit_judge_destroy(judge);
        judge = NULL;
        snprintf(path, sizeof path, "%s/libcuda.so.1", kfit_test_dir());
        CHECK(!unlink(path));
    }
}

static const struct kfit_test tests[] = {
    TEST(bad_kernels_get_their_own_code),
    TEST(right_ones_pass_for_every_type),
    TEST(a_lost_runner_is_replaced),
    TEST(timing_decides),
    TEST(decided_cold),
    TEST(the_receipt_has_the_numbers),
    TEST(the_incumbent_winner_must_be_beaten),
    TEST(beyond_the_bound_is_suspect),
    TEST(it_must_hold_in_a_fresh_process),
    TEST(the_generic_is_timed),
    TEST(a_wrong_generic_is_said),
    TEST(no_driver_is_said),
    TEST(an_old_driver_is_said),
    TEST(no_gpu_is_said),
    TEST(no_blas_is_said),
    TEST(no_nvrtc_is_said),
    TEST(an_old_nvrtc_is_said),
    TEST(an_nvrtc_older_than_the_gpu_is_said),
    TEST(too_little_memory_is_said),
};
TEST_MAIN(tests)
