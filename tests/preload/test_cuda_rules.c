/* When a call of cuBLAS or cuBLASLt is left to the original, and what it is then counted as. */
#include "cuda_cases.h"

static void every_rule_is_counted(void)
{
    static const struct {
        const char *call;
        enum kfit_reason reason;
        bool refused; /* by the double, which wants PyTorch's call: its status comes back */
    } rows[] = {
        {"gemmex pointers=1", KFIT_REASON_POINTER_MODE, false},
        {"gemmex math=3", KFIT_REASON_FLAGS, false},
        {"gemmex compute=77", KFIT_REASON_FLAGS, true},
        {"gemmex algo=0", KFIT_REASON_FLAGS, true},
        {"gemmex type_b=0", KFIT_REASON_FLAGS, true},
        {"gemmex k=0", KFIT_REASON_FLAGS, false},
        {"batched batch=0", KFIT_REASON_FLAGS, true},
        {"gemmex no_handle=1", KFIT_REASON_STREAM_STATE, true},
        {"matmul bias=1,attr=2,value=1,lt_pointers=1", KFIT_REASON_POINTER_MODE, true},
        {"matmul bias=1,epilogue=6", KFIT_REASON_EPILOGUE, true},
        {"matmul epilogue=4", KFIT_REASON_EPILOGUE, true}, /* without a pointer to one */
        {"matmul bias=1,attr=11,value=64,bytes=8", KFIT_REASON_EPILOGUE, true},
        {"matmul bias=1,batch=2", KFIT_REASON_EPILOGUE, false},
        {"matmul bias=1,attr=26,value=2", KFIT_REASON_EPILOGUE, true},
        {"matmul bias=1,attr=17,value=64,bytes=8", KFIT_REASON_SCALE_MODE, true},
        {"matmul bias=1,attr=31,value=1", KFIT_REASON_SCALE_MODE, true},
        {"matmul bias=1,attr=25,value=1,bytes=1", KFIT_REASON_FLAGS, true},
        {"matmul bias=1,attr=15,value=1", KFIT_REASON_FLAGS, true},
        {"matmul bias=1,attr=38,value=64,bytes=8", KFIT_REASON_FLAGS, true},
        {"matmul bias=1,order=1", KFIT_REASON_FLAGS, false},
        {"matmul bias=1,compute=77", KFIT_REASON_FLAGS, true},
        {"matmul bias=1,other_c=1", KFIT_REASON_FLAGS, true},
        {"matmul bias=1,other_d=1", KFIT_REASON_FLAGS, true},
    };
    enum { ROWS = sizeof rows / sizeof *rows };
    const char *calls[ROWS + 2] = {"gemmex"};
    uint64_t want[KFIT_REASON_COUNT] = {0};
    char *save;
    begin("");
    publish_one("right", "", plain);
    for (size_t i = 0; i < ROWS; i++) {
        calls[i + 1] = rows[i].call;
        want[rows[i].reason]++;
    }
    char *out = run(calls, EXTRA(cache_env)), *line = strtok_r(out, "\n", &save);
    CHECK_STR(line, "0 right 0 0");
    for (size_t i = 0; i < ROWS; i++) {
        line = strtok_r(NULL, "\n", &save);
        CHECK_MSG(line && (strstr(line, " 1 0") || strstr(line, " 0 1")) &&
                      (line[0] == '0') != rows[i].refused,
                  "%s: %s", rows[i].call, line);
    }
    const struct kfit_trace *t = trace_of(0);
    CHECK_INT(kfit_trace_count(t), 1);
    for (unsigned i = 0; i < KFIT_REASON_COUNT; i++)
        CHECK_MSG(kfit_trace_header(t)->unkeyed[i] == want[i], "%s: %llu, expected %llu", kfit_reason_name(i),
                  (unsigned long long)kfit_trace_header(t)->unkeyed[i], (unsigned long long)want[i]);
}

/* By its handle it is a call of the GPU, and so it is counted: as one of its key. */
static void another_context_is_no_place_to_run(void)
{
    begin("");
    publish_one("right", "", plain);
    CHECK_STR(run(CALLS("gemmex", "gemmex context=1", "gemmex"), EXTRA(cache_env)), "0 right 0 0\n0 right 1 0\n0 right 0 0\n");
    check_calls(trace_of(0), plain, KFIT_REASON_NONE, 2);
    check_calls(trace_of(0), plain, KFIT_REASON_STREAM_STATE, 1);
}

static void a_pointer_between_elements_is_no_key(void)
{
    begin("");
    run(CALLS("gemmex offset_a=1"), NULL); /* a GPU faults there, and so does the double */
    const struct kfit_trace *t = trace_of(0);
    CHECK_INT(kfit_trace_header(t)->unkeyed[KFIT_REASON_ALIGN], 1);
    CHECK_INT(trace_calls(t), 1);
}

static void another_alpha_is_a_key_that_never_runs(void)
{
    begin("");
    publish_one("right", "", plain);
    CHECK_STR(run(CALLS("gemmex alpha=2", "gemmex beta=2"), EXTRA(cache_env)), "7 same 1 0\n0 wrong 1 0\n");
    const struct kfit_trace *t = trace_of(0); /* the double knows beta as 0 and 1 */
    CHECK_INT(kfit_trace_count(t), 2);
    CHECK_INT(kfit_trace_at(t, 0)->count[KFIT_REASON_FLAGS] + kfit_trace_at(t, 1)->count[KFIT_REASON_FLAGS],
              2);
}

static void a_denormal_beta_is_not_0(void)
{
    begin("");
    publish_one("right", "", plain);
    CHECK_STR(run(CALLS("gemmex denormal=1"), EXTRA(cache_env)), "0 right 1 0\n");
    CHECK_INT(kfit_trace_at(trace_of(0), 0)->count[KFIT_REASON_FLAGS], 1);
}

static void one_call_is_counted_once(void)
{
    begin("inner_matmul 1\n"); /* cuBLAS calls cuBLASLt from within */
    CHECK_STR(run(CALLS("gemmex", "unhooked", "gemmex no_handle=1"), NULL),
              "0 right 1 1\n0 right 1 1\n1 same 1 0\n");
    const struct kfit_trace *t = trace_of(0);
    check_calls(t, plain, KFIT_REASON_OFF, 1);
    CHECK_INT(trace_calls(t), 2);
}

static void the_operator_pinned_it(void)
{
    static const struct {
        const char *variable[2];
        enum kfit_reason reason;
    } rows[] = {
        {{"CUBLAS_WORKSPACE_CONFIG=:4096:8", NULL}, KFIT_REASON_POLICY},
        {{"CUBLAS_WORKSPACE_CONFIG=:4096:8", "KFIT_PINNED=1"}, KFIT_REASON_NONE},
        {{"CUBLAS_WORKSPACE_CONFIG=", NULL}, KFIT_REASON_NONE},
        {{"VLLM_BATCH_INVARIANT=1", NULL}, KFIT_REASON_POLICY},
        {{"VLLM_BATCH_INVARIANT=1", "KFIT_PINNED=0"}, KFIT_REASON_POLICY},
        {{"VLLM_BATCH_INVARIANT=0", NULL}, KFIT_REASON_NONE},
        {{"VLLM_BATCH_INVARIANT=maybe", NULL}, KFIT_REASON_POLICY},
    };
    begin("");
    publish_one("right", "", plain);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        run(CALLS("gemmex"), EXTRA(cache_env, rows[i].variable[0], rows[i].variable[1]));
        check_calls(trace_of(0), plain, rows[i].reason, 1);
    }
}

static void modes_bans_and_lists(void)
{
    char ban[400];
    struct {
        const char *variable;
        enum kfit_reason reason;
    } rows[] = {{"KFIT_MODE=record", KFIT_REASON_OFF},       {"KFIT_MODE=both", KFIT_REASON_NONE},
                {"KFIT_MODE=dispatch", KFIT_REASON_NONE},    {ban, KFIT_REASON_BANNED},
                {"KFIT_ALLOW=seed:*", KFIT_REASON_POLICY},   {"KFIT_ALLOW=person:*", KFIT_REASON_NONE},
                {"KFIT_GENERATION=7", KFIT_REASON_NO_RECORD}};
    snprintf(ban, sizeof ban, "KFIT_BAN=%s", plain);
    begin("");
    publish_one("right", "", plain);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const bool ours = rows[i].reason == KFIT_REASON_NONE;
        CHECK_STR(run(CALLS("gemmex"), EXTRA(cache_env, rows[i].variable)),
                  ours ? "0 right 0 0\n" : "0 right 1 0\n");
        check_calls(trace_of(0), plain, rows[i].reason, 1);
    }
    CHECK_STR(run(CALLS("gemmex"), EXTRA(cache_env, "KFIT_MODE=off")), "0 right 1 0\n");
    CHECK(access(trace_dir, F_OK));
}

/* The same kernel after the driver was updated: it runs, unless that is not wanted. */
static void stale_and_strict(void)
{
    begin("");
    publish_one("right", "", plain);
    char path[300];
    snprintf(path, sizeof path, "%s/kfit-double", kfit_test_dir());
    kfit_test_write(path, "driver 13020\n", strlen("driver 13020\n"));
    CHECK_STR(run(CALLS("gemmex"), EXTRA(cache_env)), "0 right 0 0\n");
    CHECK_STR(run(CALLS("gemmex"), EXTRA(cache_env, "KFIT_STRICT=1")), "0 right 1 0\n");
    check_calls(trace_of(0), plain, KFIT_REASON_ENV, 1);
    kfit_test_write(path, "sms 3\n", strlen("sms 3\n")); /* a slice of the GPU is another device */
    CHECK_STR(run(CALLS("gemmex"), EXTRA(cache_env)), "0 right 1 0\n");
    check_calls(trace_of(0), plain, KFIT_REASON_ENV, 1);
}

static const struct kfit_test tests[] = {
    TEST(every_rule_is_counted),
    TEST(another_context_is_no_place_to_run),
    TEST(a_pointer_between_elements_is_no_key),
    TEST(another_alpha_is_a_key_that_never_runs),
    TEST(a_denormal_beta_is_not_0),
    TEST(one_call_is_counted_once),
    TEST(the_operator_pinned_it),
    TEST(modes_bans_and_lists),
    TEST(stale_and_strict),
};
TEST_MAIN(tests)
