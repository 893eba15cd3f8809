/* gemm with a bias and in a strided batch, judged on the double of a GPU: the vendor's calls are PyTorch's (its double
 * refuses any other), the reference is the CPU's, and kernels that ignore what is new are caught. */
#include "double/judging.h"

#define GEMM(types, shape, beta) "gemm/" types "/acc=f32/" shape "/alpha=1,beta=" beta "/align=16"
#define SHAPE "m=4,n=32,k=32/nt/lda=32,ldb=32,ldc=40"
#define BF16 "bf16,bf16,bf16"

static const char bias[] = GEMM(BF16, SHAPE, "0") "/epi=bias";
static const char batched[] = GEMM(BF16, SHAPE, "0") "/batch=3,sa=128,sb=1024,sc=160";

static void right_ones_pass(void)
{
    static const char *const keys[] = {
        bias,
        GEMM("f16,f16,f16", SHAPE, "0") "/epi=bias",
        GEMM("bf16,bf16,f32", SHAPE, "0") "/epi=bias",
        GEMM("f32,f32,f32", SHAPE, "0") "/epi=bias",
        GEMM(BF16, SHAPE, "1") "/epi=bias",
        GEMM(BF16, "m=5,n=31,k=48/tn/lda=8,ldb=32,ldc=32", "0") "/epi=bias",
        batched,
        GEMM(BF16, SHAPE, "1") "/batch=3,sa=128,sb=1024,sc=160",
        GEMM("f16,f16,f32", SHAPE, "0") "/batch=3,sa=128,sb=1024,sc=160",
        GEMM("f32,f32,f32", SHAPE, "1") "/batch=2,sa=128,sb=1032,sc=168",
        GEMM(BF16, SHAPE, "0") "/batch=3,sa=128,sb=0,sc=160", /* one B for all */
        /* heads beside each other in every row, as attention has them */
        GEMM(BF16, "m=4,n=32,k=16/nt/lda=48,ldb=48,ldc=96", "0") "/batch=3,sa=16,sb=16,sc=32",
    };
    setup("");
    for (unsigned i = 0; i < sizeof keys / sizeof *keys; i++) {
        struct kfit_receipt r = judge_one("right", "ns=5000", "", keys[i]);
        CHECK_MSG(r.verdict == KFIT_VERDICT_PROMOTED && r.deterministic, "%s: %s %s %s", keys[i], kfit_verdict_str(r.verdict),
                  kfit_code_str(r.code), r.detail);
    }
}

static void bad_kernels_get_their_own_code(void)
{
    static const char heads[] = GEMM(BF16, "m=4,n=32,k=16/nt/lda=48,ldb=48,ldc=104", "0") "/batch=3,sa=16,sb=16,sc=32";
    static const struct {
        const char *name, *key, *code;
    } bad[] = {
        {"no_bias", bias, "wrong:values"},           {"first_bias", bias, "wrong:values"},
        {"first_matrix", batched, "wrong:partial"},  {"wrong_stride", batched, "wrong:values"},
        {"past_end", bias, "wrong:out_of_bounds"},   {"no_tail", batched, "wrong:partial"},
        {"between_matrices", batched, "wrong:out_of_bounds"}, {"first_matrix", heads, "wrong:partial"},
        {"nothing", batched, "wrong:unwritten"},     {"between_matrices", heads, "wrong:values"},
        {"input", batched, "wrong:input_written"},   {"bias_written", bias, "wrong:input_written"},
        {"unrepeatable", batched, "wrong:not_repeatable"},
    };
    unsigned wrong = 0;
    setup("");
    for (unsigned i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct kfit_receipt r = judge_one(bad[i].name, "ns=5000", "", bad[i].key);
        if (r.verdict == KFIT_VERDICT_REFUSED && !strcmp(kfit_code_str(r.code), bad[i].code))
            continue;
        printf("  %s: %s \"%s\" (%s), expected \"%s\"\n", bad[i].name, kfit_verdict_str(r.verdict), kfit_code_str(r.code), r.detail,
               bad[i].code);
        wrong++;
    }
    CHECK_INT(wrong, 0);
}

/* Large sums hide a small bias from the eye, not from the judge. */
static void a_small_bias_counts(void)
{
    setup("");
    const char *key = GEMM(BF16, "m=2,n=48,k=2048/nt/lda=2048,ldb=2048,ldc=48", "0") "/epi=bias";
    struct kfit_receipt r = judge_one("no_bias", "ns=5000", "", key);
    CHECK_STR(kfit_verdict_str(r.verdict), "refused");
    expect("right", "ns=5000", "", key, KFIT_VERDICT_PROMOTED, "");
}

static void timed_like_any_other(void)
{
    double ns;
    setup("");
    expect("right", "ns=9900", "", bias, KFIT_VERDICT_KEPT, "slow:tie");
    expect("right", "ns=9000 plain=11000", "", batched, KFIT_VERDICT_KEPT, "slow:behind");
    expect("not_in_graphs", "ns=5000", "", batched, KFIT_VERDICT_REFUSED, "wrong:later_calls");
    expect("not_in_graphs", "ns=5000", "", bias, KFIT_VERDICT_REFUSED, "wrong:later_calls");
    const union kfit_key key = key_of(bias);
    CHECK_OK(kfit_judge_time_generic(judge, &key, &ns, &err), err);
    CHECK_MSG(ns > 9999 && ns < 10001, "%g", ns);
}

static void what_cannot_be_judged_is_said(void)
{
    static const struct {
        const char *key, *why;
    } row[] = {
        {GEMM(BF16, SHAPE, "0") "/batch=3,sa=128,sb=1024,sc=160/epi=bias", "no call that a framework makes"},
        {GEMM(BF16, SHAPE, "0") "/batch=3,sa=128,sb=1024,sc=0", "argument c lie over each other"},
        {GEMM(BF16, SHAPE, "0") "/batch=3,sa=128,sb=1024,sc=48", "argument c lie over each other"},
        {GEMM(BF16, SHAPE, "0") "/batch=3,sa=40,sb=1024,sc=160", "argument a lie over each other"},
        {GEMM(BF16, SHAPE, "0") "/batch=70000,sa=128,sb=0,sc=160", "larger than the judge's arena"},
        {GEMM(BF16, SHAPE, "0") "/batch=2,sa=128,sb=0,sc=100000000", "larger than the judge's arena"},
        {GEMM("f64,f64,f64", SHAPE, "0") "/epi=bias", "bf16, fp16 or f32"},
    };
    setup("");
    for (unsigned i = 0; i < sizeof row / sizeof *row; i++) {
        const union kfit_key key = key_of(row[i].key);
        enum kfit_status s = kfit_judge_takes(judge, &key, &err);
        CHECK_MSG(s == KFIT_E_UNSUPPORTED && strstr(err.text, row[i].why), "%s: %s: %s", row[i].key, kfit_status_str(s), err.text);
    }
}

/* cuBLASLt may have no algorithm: then PyTorch goes another way, and there is nothing to beat. */
static void no_algorithm_is_said(void)
{
    double ns;
    setup("lt none\n");
    const union kfit_key key = key_of(bias), plain = key_of(batched);
    enum kfit_status s = kfit_judge_time_generic(judge, &key, &ns, &err);
    CHECK_MSG(s != KFIT_OK && strstr(err.text, "cublasLtMatmulAlgoGetHeuristic") && strstr(err.text, "15"), "%s", err.text);
    CHECK_OK(kfit_judge_time_generic(judge, &plain, &ns, &err), err); /* the next worker is a fresh one */
}

static void a_wrong_generic_is_said(void)
{
    static const char *const keys[] = {bias, batched};
    setup("generic wrong\n");
    for (unsigned i = 0; i < 2; i++) {
        const union kfit_key key = key_of(keys[i]);
        double ns;
        CHECK_STATUS(kfit_judge_time_generic(judge, &key, &ns, &err), KFIT_E_REFUSED);
        CHECK_MSG(strstr(err.text, "generic itself is wrong on normal"), "%s", err.text);
    }
}

static void a_wrong_reference_is_said(void)
{
    double ns;
    setup("reference wrong\n");
    const union kfit_key key = key_of(bias);
    CHECK_STATUS(kfit_judge_time_generic(judge, &key, &ns, &err), KFIT_E_UNSUPPORTED);
    CHECK_MSG(strstr(err.text, "float64 reference is wrong"), "%s", err.text);
}

/* An argument through a tensor map: encoded for every pointer it is tried and timed at, sixteen of them remembered. */
static void tensor_maps_follow_the_pointer(void)
{
    static const char map[] = "\"tensormaps\":[{\"arg\":\"b\",\"box\":[16,32],\"swizzle\":64}],";
    setup("");
    expect("right_map", "ns=5000", map, GEMM(BF16, SHAPE, "0"), KFIT_VERDICT_PROMOTED, "");
    expect("right_map", "ns=5000", map, batched, KFIT_VERDICT_PROMOTED, "");
}

static const struct kfit_test tests[] = {
    TEST(tensor_maps_follow_the_pointer),
    TEST(right_ones_pass),
    TEST(bad_kernels_get_their_own_code),
    TEST(a_small_bias_counts),
    TEST(timed_like_any_other),
    TEST(what_cannot_be_judged_is_said),
    TEST(no_algorithm_is_said),
    TEST(a_wrong_generic_is_said),
    TEST(a_wrong_reference_is_said),
};
TEST_MAIN(tests)
