/* Gate 4's second clock on the double of a GPU: kernel records that agree, that lie in each way, that are refused, and none. */
#include "double/judging.h"

#define BF16 "gemm/bf16,bf16,bf16/acc=f32/m=4,n=32,k=32/nt/lda=32,ldb=32,ldc=40/alpha=1,beta=0/align=16"

static void setup_cupti(const char *text)
{
    setenv("KFIT_CUPTI", DOUBLE "/libcupti.so.13", 1);
    setup(text);
}

static const struct kfit_gate_result *gate(const struct kfit_receipt *r, const char *name)
{
    for (unsigned i = 0; i < r->gate_count; i++)
        if (!strcmp(r->gates[i].name, name))
            return &r->gates[i];
    CHECK_MSG(false, "no gate %s", name);
    return NULL;
}

static const struct kfit_timing *by_cupti(const struct kfit_receipt *r)
{
    for (unsigned i = 0; i < r->timing_count; i++)
        if (!strcmp(r->timings[i].clock, "cupti"))
            return &r->timings[i];
    return NULL;
}

static void records_that_agree(void)
{
    setup_cupti("generic_kernel_ns 9000\n");
    struct kfit_receipt r = judge_one("right", "ns=8000 kernel=7500", "", BF16);
    CHECK_MSG(r.verdict == KFIT_VERDICT_PROMOTED, "%s %s", kfit_code_str(r.code), r.detail);
    const struct kfit_gate_result *g = gate(&r, "clocks");
    CHECK_MSG(g->ok && strstr(g->at, "1 against 1 kernels a call, 1.2000"), "%s", g->at);
    const struct kfit_timing *t = by_cupti(&r);
    CHECK(t && t->ns_candidate > 7499 && t->ns_candidate < 7501 && t->ns_incumbent > 8999 && t->ns_incumbent < 9001);
    CHECK(t->n > 0 && !r.detail[0]);
    /* and the next candidate has a fresh runner, without CUPTI's weight */
    expect("right", "ns=9900", "", BF16, KFIT_VERDICT_KEPT, "slow:tie");
}

static void records_that_do_not(void)
{
    static const struct {
        const char *settings, *note, *at;
    } row[] = {
        {"", "ns=5000 hidden=1", "0 kernels seen in"},
        {"", "ns=5000 twice=1", "kernels seen in"},
        {"", "ns=5000 alias=other", "seen 0 times"},
        {"", "ns=5000 kernel=1500", "candidate: 5000 ns by events, 1500"},  /* 3.5 us are no launch */
        {"", "ns=5000 kernel=12000", "candidate: 5000 ns by events, 12000"}, /* longer than it took */
        {"generic_kernel_ns 3000\n", "ns=5000", "incumbent: 10000 ns by events, 3000"},
        {"generic_kernel_ns 8100\n", "ns=9000", "ratio 1.1111 by events, 0.9000 by kernel time"},
        {"generic_hidden 1\n", "ns=9000", "incumbent: 0 kernels seen"},
    };
    for (unsigned i = 0; i < sizeof row / sizeof *row; i++) {
        char path[256];
        setup_cupti(row[i].settings);
        struct kfit_receipt r = judge_one("right", row[i].note, "", BF16);
        CHECK_MSG(r.verdict == KFIT_VERDICT_REFUSED && !strcmp(kfit_code_str(r.code), "timing:clocks") && strstr(r.detail, row[i].at),
                  "%s%s: %s \"%s\" (%s)", row[i].settings, row[i].note, kfit_verdict_str(r.verdict), kfit_code_str(r.code), r.detail);
        kfit_judge_destroy(judge);
        snprintf(path, sizeof path, "%s/libcuda.so.1", kfit_test_dir());
        CHECK(!unlink(path));
    }
}

/* A winner that must be beaten is held to its own plan. */
static void the_incumbents_kernels_too(void)
{
    setup_cupti("");
    const union kfit_key key = key_of(BF16);
    struct kfit_built winner = build("right", "ns=8000", "", &key), renamed = build("right", "ns=8000 alias=other", "", &key);
    struct kfit_built faster = build("right", "ns=7000", "", &key);
    struct kfit_receipt r = judged(&faster, &winner, &key);
    CHECK_MSG(r.verdict == KFIT_VERDICT_PROMOTED && by_cupti(&r), "%s %s", kfit_code_str(r.code), r.detail);
    r = judged(&faster, &renamed, &key);
    CHECK_STR(kfit_code_str(r.code), "timing:clocks");
}

/* They are those of the fresh process. */
static void in_the_repeat(void)
{
    setup_cupti("");
    expect("right", "ns=5000 again=5000 hiddenagain=1", "", BF16, KFIT_VERDICT_REFUSED, "timing:clocks");
}

/* Judged without, and said so: in the gate and in the receipt's detail. */
static void missing_or_refused_is_said(void)
{
    static const struct {
        const char *settings, *library, *why;
    } row[] = {
        {"", "/nowhere/libcupti.so", "KFIT_CUPTI names /nowhere/libcupti.so"},
        {"", DOUBLE "/libnvrtc.so.13", "lacks cuptiGetVersion"},
        {"cupti 35\n", DOUBLE "/libcupti.so.13", "NVreg_RestrictProfilingToAdminUsers"},
        {"cupti 39\n", DOUBLE "/libcupti.so.13", "another profiler is attached"},
        {"cupti lost\n", DOUBLE "/libcupti.so.13", "lost 3 records"},
    };
    for (unsigned i = 0; i < sizeof row / sizeof *row; i++) {
        char path[256];
        char why[256];
        setenv("KFIT_CUPTI", row[i].library, 1);
        setup(row[i].settings);
        struct kfit_receipt r = judge_one("right", "ns=5000 hidden=1", "", BF16);
        CHECK_MSG(r.verdict == KFIT_VERDICT_PROMOTED, "%s %s", kfit_code_str(r.code), r.detail);
        const struct kfit_gate_result *g = gate(&r, "clocks");
        CHECK_MSG(g->ok && !strncmp(g->at, "NOT CHECKED: ", 13), "%s", g->at);
        CHECK_MSG(!strncmp(r.detail, "kernel times not checked: ", 26) && strstr(r.detail, row[i].why), "%s", r.detail);
        CHECK(!by_cupti(&r));
        /* doctor asks without judging */
        enum kfit_status s = kfit_judge_cuda_profiler(NULL, &generic, why, sizeof why, &err);
        CHECK_STATUS(s, KFIT_E_UNSUPPORTED);
        CHECK_MSG(strstr(err.text, row[i].why), "%s", err.text);
        kfit_judge_destroy(judge);
        snprintf(path, sizeof path, "%s/libcuda.so.1", kfit_test_dir());
        CHECK(!unlink(path));
    }
    setenv("KFIT_CUPTI", DOUBLE "/libcupti.so.13", 1);
    setup("");
    char text[128];
    CHECK_OK(kfit_judge_cuda_profiler(NULL, &generic, text, sizeof text, &err), err);
    CHECK_STR(text, "CUPTI 130001");
}

static const struct kfit_test tests[] = {
    TEST(records_that_agree),       TEST(records_that_do_not),        TEST(the_incumbents_kernels_too),
    TEST(in_the_repeat),      TEST(missing_or_refused_is_said),
};
TEST_MAIN(tests)
