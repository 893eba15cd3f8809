#include <math.h>

#include "kfit/receipt.h"
#include "kfit_test.h"

static struct kfit_receipt sample(void)
{
    struct kfit_receipt r = {.gate_count = 2,
                             .timing_count = 1,
                             .noise = 0.004,
                             .bound_ns = 123.25,
                             .seed = UINT64_MAX,
                             .verdict = KFIT_VERDICT_PROMOTED,
                             .deterministic = true,
                             .made_unix_s = 1700000000};
    struct kfit_error err;
    CHECK_OK(
        kfit_key_parse(
            "gemm/f32,f32,f32/acc=f32/m=4,n=768,k=768/nn/lda=768,ldb=768,ldc=768/alpha=1,beta=0/align=16",
            &r.key, &err),
        err);
    for (unsigned i = 0; i < 32; i++)
        r.digest[i] = (uint8_t)(i * 37);
    snprintf(r.name, sizeof r.name, "col\"block\n");
    snprintf(r.origin, sizeof r.origin, "person:Zoë");
    kfit_env_host(&r.env, 2, "OpenBLAS 0.3.21", "gcc 12");
    r.plan.workspace_bytes = 1 << 20;
    r.plan.launch_count = 1;
    r.plan.launches[0] = (struct kfit_launch){
        .entry = "main", .entry_offset = 64, .grid = {1, 2, 3}, .block = {4, 5, 6}, .cluster = {1, 1, 1}};
    r.gates[0] = (struct kfit_gate_result){
        .name = "correct", .ok = true, .seeds = 14, .err_rms = 0.25, .err_worst = 2.5};
    r.gates[1] = (struct kfit_gate_result){.name = "fast", .code = KFIT_CODE_SLOW_TIE, .err_rms = 1e-300};
    r.timings[0] = (struct kfit_timing){"warm", "inner", 30, 2.75, 2.7, 2.8, 45.5e3, 125e3, 125e3};
    return r;
}

static void json_keeps_every_byte(void)
{
    struct kfit_receipt r = sample(), back;
    struct kfit_error err;
    char *json = kfit_receipt_to_json(&r);
    CHECK(json);
    CHECK_OK(kfit_receipt_from_json(json, strlen(json), &back, &err), err);
    CHECK(!memcmp(&r, &back, offsetof(struct kfit_receipt, plan)));
    char *again = kfit_receipt_to_json(&back);
    CHECK_STR(again, json);
    CHECK_INT(back.seed, r.seed);
    CHECK_INT(back.plan.launches[0].block[2], 6);
    CHECK(back.gates[1].code == KFIT_CODE_SLOW_TIE && back.gates[1].err_rms == 1e-300);
    CHECK(back.timings[0].ns_incumbent == 125e3);
}

static void nonfinite_numbers_survive_as_nan(void)
{
    struct kfit_receipt r = sample(), back;
    struct kfit_error err;
    r.gates[0].err_worst = INFINITY;
    char *json = kfit_receipt_to_json(&r);
    CHECK_OK(kfit_receipt_from_json(json, strlen(json), &back, &err), err);
    CHECK(isnan(back.gates[0].err_worst));
}

static void codes_and_verdicts_have_names(void)
{
    for (unsigned c = 0; c < KFIT_CODE_COUNT; c++)
        CHECK_INT(kfit_code_parse(kfit_code_str((enum kfit_code)c)), c);
    CHECK_INT(kfit_code_parse("wrong:mood"), KFIT_CODE_COUNT);
    CHECK_STR(kfit_verdict_str(KFIT_VERDICT_REVIEW), "review");
}

/* Cut at every length, then one byte changed at each place: an error or a receipt, never a crash. */
static void damaged_text_is_refused(void)
{
    struct kfit_receipt r = sample(), back;
    struct kfit_error err;
    char *json = kfit_receipt_to_json(&r);
    size_t n = strlen(json);
    for (size_t i = 0; i < n; i++)
        CHECK(kfit_receipt_from_json(json, i, &back, &err) != KFIT_OK);
    for (size_t i = 0; i < n; i++) {
        char was = json[i];
        json[i] = (char)(was ^ (1 << kfit_test_random() % 7));
        kfit_receipt_from_json(json, n, &back, &err);
        CHECK(memchr(back.name, 0, sizeof back.name) && back.gate_count <= KFIT_GATES_MAX);
        json[i] = was;
    }
    json[strcspn(json, "1")] = '9'; /* "version": 9 */
    CHECK_STATUS(kfit_receipt_from_json(json, n, &back, &err), KFIT_E_VERSION);
}

static const struct kfit_test tests[] = {TEST(json_keeps_every_byte), TEST(nonfinite_numbers_survive_as_nan),
                                         TEST(codes_and_verdicts_have_names), TEST(damaged_text_is_refused)};
TEST_MAIN(tests)
