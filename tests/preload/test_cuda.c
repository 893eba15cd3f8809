/* Calls of cuBLAS and cuBLASLt under the shim, in real processes, on the double of a GPU: what they become, and what runs
 * them. When nobody but the original may: test_cuda_rules.c. */
#include "cuda_cases.h"

/* ---- keys ---- */

/* Everything that a call may be and still be one for the tuner. */
static const char *const all_kinds[] = {"gemmex ta=0,tb=0",
                                        "gemmex ta=0,tb=1",
                                        "gemmex ta=1,tb=0",
                                        "gemmex ta=1,tb=1",
                                        "gemmex ta=2,beta=1",
                                        "gemmex type=2,ta=1",
                                        "gemmex type=2,type_c=0",
                                        "gemmex type=0,m=11",
                                        "gemmex type_c=0,beta=1,tb=1",
                                        "gemmex lda=17,ldb=11,ldc=29,ta=1,m=23,k=3",
                                        "gemmex_64 ta=1,m=16,n=4,k=32",
                                        "gemmex m=1",
                                        "gemmex n=1,ta=1",
                                        "batched batch=3,ta=1",
                                        "batched batch=2,sb=0",
                                        "batched_64 batch=3,tb=1,type=2",
                                        "batched batch=1,ta=1,m=17",
                                        "batched batch=3,lda=40,sa=13,ldb=15,sb=5,ldc=39,sc=13",
                                        "sgemm",
                                        "sgemm_64 ta=1,tb=1",
                                        "sbatched batch=3,beta=1",
                                        "sbatched_64 batch=2,ta=1",
                                        "matmul bias=1,ta=1",
                                        "matmul bias=1",
                                        "matmul bias=1,ta=1,tb=1,type=2,ldc=24",
                                        "matmul bias=1,tb=1,type=0,n=11",
                                        "matmul bias=1,type_c=0,beta=1",
                                        "gemmex stream=1,m=19",
                                        "gemmex offset_a=2,m=29",
                                        NULL};

static void recorded_published_and_run(void)
{
    char *out, *save;
    struct made made[64];
    size_t n = 0;
    begin("");
    out = run(all_kinds, NULL);
    for (char *line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save), n++)
        CHECK_MSG(!strcmp(line, "0 right 1 0") || !strcmp(line, "0 right 0 1"), "%s: %s", all_kinds[n], line);
    CHECK(!all_kinds[n]);
    struct kfit_trace *t = trace_of(0);
    CHECK_MSG(kfit_trace_count(t) == n && trace_calls(t) == n, "%zu keys of %zu calls", kfit_trace_count(t),
              n);
    for (size_t i = 0; i < n; i++) {
        char text[KFIT_KEY_TEXT_MAX];
        CHECK(kfit_key_format(&kfit_trace_at(t, i)->key, text, sizeof text));
        make(&made[i], "right", "", text);
    }
    publish(made, n);
    out = run(all_kinds, EXTRA(cache_env));
    n = 0;
    for (char *line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save), n++)
        CHECK_MSG(!strcmp(line, "0 right 0 0"), "%s: %s", all_kinds[n], line);
    t = trace_of(0);
    for (size_t i = 0; i < kfit_trace_count(t); i++)
        CHECK_INT(kfit_trace_at(t, i)->count[KFIT_REASON_NONE], 1);
    CHECK_INT(kfit_trace_count(t), n);
}

/* As worker_cublas.c and worker_cublaslt.c call for these keys. */
static void keys_are_the_tuners(void)
{
    static const struct {
        const char *call, *key;
    } rows[] = {
        {"gemmex ta=1,m=13,n=7,k=32", BF16("m=7,n=13,k=32/nt/lda=32,ldb=32,ldc=13", "0/align=2")},
        {"gemmex ta=1,m=16,n=4,k=32", BF16("m=4,n=16,k=32/nt/lda=32,ldb=32,ldc=16", "0/align=16")},
        {"gemmex tb=1,beta=1,m=16,n=4,k=8", BF16("m=4,n=16,k=8/tn/lda=4,ldb=16,ldc=16", "1/align=8")},
        {"matmul bias=1,ta=1,m=16,n=4,k=32",
         BF16("m=4,n=16,k=32/nt/lda=32,ldb=32,ldc=16", "0/align=16/epi=bias")},
        {"matmul bias=1,ta=1,m=16,n=4,k=32,offset_bias=4",
         BF16("m=4,n=16,k=32/nt/lda=32,ldb=32,ldc=16", "0/align=4/epi=bias")},
        {"batched ta=1,m=16,n=4,k=32,batch=3,sa=512,sb=130,sc=64",
         BF16("m=4,n=16,k=32/nt/lda=32,ldb=32,ldc=16", "0/align=16/batch=3,sa=130,sb=512,sc=64")},
        {"gemmex type=2,type_c=0,m=13,n=7,k=5",
         "gemm/f16,f16,f32/acc=f32/m=7,n=13,k=5/nn/lda=5,ldb=13,ldc=13/alpha=1,beta=0/align=2"},
        {"sgemm m=13,n=7,k=5",
         "gemm/f32,f32,f32/acc=f32/m=7,n=13,k=5/nn/lda=5,ldb=13,ldc=13/alpha=1,beta=0/align=4"},
        {"batched batch=1,m=31", BF16("m=7,n=31,k=5/nn/lda=5,ldb=31,ldc=31", "0/align=2")},
    };
    const char *calls[16] = {0};
    begin("");
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        calls[i] = rows[i].call;
    run(calls, NULL);
    const struct kfit_trace *t = trace_of(0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check_calls(t, rows[i].key, KFIT_REASON_OFF, 1);
    CHECK_STR(kfit_trace_header(t)->env.hard, env.hard);
    CHECK(!kfit_env_differs(kfit_trace_header(t)->env.soft, env.soft));
    CHECK_MSG(strstr(kfit_trace_header(t)->env.soft, "blas=cuBLAS 13.1.0;"), "%s",
              kfit_trace_header(t)->env.soft);
    /* calls of either library: what the tuner opens */
    CHECK_INT(kfit_trace_header(t)->generic_count, 1);
    CHECK_MSG(strstr(kfit_trace_header(t)->generics[0].path, "libcublas.so"), "%s",
              kfit_trace_header(t)->generics[0].path);
}

/* ---- launching ---- */

static void a_refused_launch_is_the_original(void)
{
    begin("");
    publish_one("launch_refused", "", plain);
    CHECK_STR(run(CALLS("gemmex times=2"), EXTRA(cache_env)), "0 right 1 0\n0 right 1 0\n");
    check_calls(trace_of(0), plain, KFIT_REASON_LOAD_FAILED, 2);
}

static void what_cannot_be_run_is_not_loaded(void)
{
    static const char in_place[] = BF16("m=7,n=19,k=5/nn/lda=5,ldb=19,ldc=19", "1/align=2");
    struct made m[2];
    begin("");
    make(&m[0], "right", "", plain);
    make(&m[1], "right", "", in_place);
    m[1].record.plan.launches[1] = m[1].record.plan.launches[0]; /* the first might run, and the second not */
    m[1].record.plan.launch_count = 2;
    publish(m, 2);
    CHECK_STR(run(CALLS("gemmex", "gemmex m=19,beta=1"), EXTRA(cache_env)), "0 right 0 0\n0 right 1 0\n");
    const struct kfit_trace *t = trace_of(0);
    check_calls(t, in_place, KFIT_REASON_LOAD_FAILED, 1);
    CHECK_INT(kfit_trace_header(t)->loaded.winners, 1);
    CHECK_INT(kfit_trace_header(t)->loaded.unusable, 1);
}

/* Loading is what a capture must stand, also where it fails: the first call of all comes in one. */
static void the_first_call_is_captured(void)
{
    struct made m[2];
    begin("");
    make(&m[0], "right", "", plain);
    make(&m[1], "right", "", BF16("m=7,n=17,k=5/nn/lda=5,ldb=17,ldc=17", "0/align=2"));
    strcpy(m[1].record.plan.launches[0].entry, "absent");
    publish(m, 2);
    CHECK_STR(run(CALLS("gemmex stream=1,capture=1,launches=5", "gemmex stream=1"), EXTRA(cache_env)),
              "0 right 0 0\n0 right 0 0\n");
    check_calls(trace_of(0), plain, KFIT_REASON_NONE, 5 + 1);
}

/* It counts as often as the graph runs it, whoever's kernel it is; what is no key counts once. */
static void captured_calls_count_by_launches(void)
{
    begin("");
    CHECK_STR(run(CALLS("gemmex stream=1,capture=1,launches=5", "matmul bias=1,stream=1,capture=1,launches=3",
                        "gemmex stream=1,capture=1,launches=4,pointers=1", "gemmex stream=1"),
                  NULL),
              "0 right 1 0\n0 right 0 1\n0 right 1 0\n0 right 1 0\n");
    const struct kfit_trace *t = trace_of(0);
    check_calls(t, plain, KFIT_REASON_OFF, 5 + 1);
    CHECK_INT(trace_calls(t), 5 + 3 + 1 + 1);
    CHECK_INT(kfit_trace_header(t)->unkeyed[KFIT_REASON_POINTER_MODE], 1);
}

/* From the first kernel of ours in it until something is made of it: what is not in the trace as a graph yet, and may be
 * replayed all the same. */
static void what_is_being_captured_is_said(void)
{
    static const struct {
        const char *calls[16], *out;
    } rows[] = {
        {{"making", "begin", "making", "gemmex stream=1", "making", "gemmex stream=1", "making", "end",
          "making", "instantiate", "making", "destroy", "making"},
         "0\n0\n0 same 0 0\n1\n0 same 0 0\n1\n1\n0\n0\n"},
        {{"begin", "gemmex stream=1,m=17", "making", "end", "making"}, "0 same 1 0\n0\n0\n"},
        {{"begin", "gemmex stream=1,pointers=1", "making", "end", "making"}, "0 same 1 0\n0\n0\n"},
        {{"begin", "gemmex stream=1", "break", "making", "end", "making"}, "0 same 0 0\n1\nend: 901\n0\n"},
        {{"begin", "gemmex stream=1", "end", "destroy", "making"}, "0 same 0 0\n0\n"},
        {{"begin", "gemmex stream=1", "end", "clone", "making", "destroy", "making", "instantiate", "making"},
         "0 same 0 0\n2\n1\n0\n"},
        {{"begin", "gemmex stream=1", "end", "instantiate", "destroy", "begin", "gemmex stream=1", "end",
          "making", "update", "making"},
         "0 same 0 0\n0 same 0 0\n1\n0\n"},
        {{"gemmex device=1", "begin", "gemmex stream=1", "making", "making device=1", "begin device=1",
          "gemmex device=1,stream=1", "gemmex device=1,stream=1", "making device=1", "making", "end",
          "instantiate", "making", "making device=1"},
         "0 right 0 0\n0 same 0 0\n1\n0\n0 same 0 0\n0 same 0 0\n1\n1\n0\n1\n"},
    };
    begin("gpus 2\n");
    publish_one("right", "", plain);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *calls[20] = {"gemmex"};
        char *out;
        memcpy(calls + 1, rows[i].calls, sizeof rows[i].calls);
        out = run(calls, EXTRA(cache_env));
        CHECK_MSG(!strncmp(out, "0 right 0 0\n", 12) && !strcmp(out + 12, rows[i].out), "row %zu: %s", i,
                  out);
    }
}

/* `kfit off` in the middle of one: it is waited for, then named; and when it has become a graph that is. */
static void off_in_the_middle_of_a_capture(void)
{
    char command[600], dir[300];
    begin("");
    publish_one("right", "", plain);
    snprintf(dir, sizeof dir, "%s/trace%u", kfit_test_dir(), runs);
    snprintf(command, sizeof command,
             "KFIT_TEST_SH=unset LD_PRELOAD; %s off --cache %s/other %s >/dev/null 2>>%s/said", KFIT,
             kfit_test_dir(), dir, kfit_test_dir());
    CHECK_STR(run(CALLS("begin", "gemmex stream=1", "sh", "gemmex stream=1", "end", "instantiate", "sh",
                        "begin", "gemmex stream=1", "sh", "end"),
                  EXTRA(cache_env, command)),
              "0 same 0 0\n1\n0 same 1 0\n1\n0 same 1 0\n1\n");
    char *said = kfit_test_read(kfit_test_path("said"), NULL), *first = strstr(said, "not everywhere"),
         *second = first ? strstr(first + 1, "not everywhere") : NULL;
    CHECK(second);
    CHECK_MSG(strstr(said, "on cuda0, it is capturing 1 graph with kernels of kfit's") &&
                  strstr(said, "it is capturing") < first && !strstr(first, "it is capturing"),
              "%s", said);
    CHECK_MSG(strstr(first, "on cuda0, graph 0 still replays kernels of kfit's") &&
                  strstr(said, "graph 0 still") > first,
              "%s", said);
}

/* ---- processes ---- */

static void two_devices(void)
{
    begin("gpus 2\n");
    publish_one("right", "", plain);
    CHECK_STR(
        run(CALLS("gemmex device=1,stream=1", "gemmex device=0", "gemmex device=1", "gemmex device=1,m=17"),
            EXTRA(cache_env)),
        "0 right 0 0\n0 right 0 0\n0 right 0 0\n0 right 1 0\n");
    check_calls(trace_of(0), plain, KFIT_REASON_NONE, 1);
    check_calls(trace_of(1), plain, KFIT_REASON_NONE, 2);
    CHECK_INT(trace_calls(trace_of(0)), 1);
    CHECK_INT(trace_calls(trace_of(1)), 3);
}

/* A handle is the GPU's that it was made on, which is good enough to count by; a kernel runs only where that is so. */
static void a_handle_has_a_device(void)
{
    begin("gpus 2\n");
    publish_one("right", "", plain);
    CHECK_STR(run(CALLS("gemmex", "gemmex device=1,handle=0", "gemmex device=1,handle=0", "gemmex device=1,handle=0,m=17"),
                  EXTRA(cache_env)),
              "0 right 0 0\n0 right 1 0\n0 right 0 0\n0 right 1 0\n");
    check_calls(trace_of(0), plain, KFIT_REASON_NONE, 1);
    check_calls(trace_of(0), plain, KFIT_REASON_STREAM_STATE, 1);
    check_calls(trace_of(1), plain, KFIT_REASON_NONE, 1);
    CHECK_INT(trace_calls(trace_of(1)), 2);
}

/* Until it goes: then another one may lie where it was. */
static void check_gone(const char *goes, const char *then)
{
    const char *const calls[] = {"gemmex", goes, then, NULL};
    begin("gpus 2\n");
    publish_one("right", "", plain);
    CHECK_STR(run(calls, EXTRA(cache_env)), "0 right 0 0\n0 right 0 0\n");
    CHECK_INT(trace_calls(trace_of(0)), 1);
    CHECK_INT(trace_calls(trace_of(1)), 1);
}

static void a_handle_is_destroyed(void)
{
    check_gone("move device=1", "gemmex device=1");
}

static void a_handle_of_cublaslt_is_destroyed(void)
{
    check_gone("move device=1,lt=1", "gemmex device=1");
}

static void a_handle_goes_with_its_context(void)
{
    check_gone("context_goes", "gemmex device=1,handle=0");
}

/* A process of two devices that dies has died once, and twice is what a generation is held back for. */
static void a_crash_is_one_whatever_it_used(void)
{
    char state[320], preload[400];
    begin("gpus 2\n");
    publish_one("right", "", plain);
    snprintf(state, sizeof state, "KFIT_STATE=%s/state", kfit_test_dir());
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s", SHIM);
    for (int death = 0; death < 3; death++) {
        char trace[400], *out, *said;
        snprintf(trace, sizeof trace, "KFIT_TRACE=%s/death%d", kfit_test_dir(), death);
        CHECK(kfit_test_run((const char *[]){HOST, "gemmex", "gemmex device=1", "die", NULL},
                            (const char *[]){preload, trace, cache_env, state, NULL}, &out, &said));
        CHECK_STR(out, death < 2 ? "0 right 0 0\n0 right 0 0\n" : "0 right 1 0\n0 right 1 0\n");
    }
}

/* A generation of another device's kernels is nothing that a program has to hear of. */
static void one_cache_for_all_devices(void)
{
    const char *argv[] = {HOST, "gemmex", NULL};
    char *said;
    begin("");
    publish_one("right", "", plain);
    kfit_env_host(&env, 1, "test", NULL); /* and one for the host alone */
    struct made m;
    make(&m, "right", "", plain);
    m.record.kind = KFIT_RECORD_NEGATIVE;
    m.record.image = NULL;
    m.record.image_bytes = 0;
    memset(&m.record.plan, 0, sizeof m.record.plan);
    publish(&m, 1);
    snprintf(trace_dir, sizeof trace_dir, "%s/trace", kfit_test_dir());
    run_shimmed(argv, trace_dir, EXTRA(cache_env), NULL, &said);
    CHECK_STR(said, "");
    check_calls(trace_of(0), plain, KFIT_REASON_ENV, 1);
    CHECK_MSG(strstr(kfit_trace_header(trace_of(0))->state_text, "device=host"), "%s",
              kfit_trace_header(trace_of(0))->state_text);
}

static void threads_that_start_together_lose_no_call(void)
{
    begin("");
    publish_one("right", "", plain);
    CHECK_STR(run(CALLS("threads threads=8,times=500"), EXTRA(cache_env)), "0 failed\n");
    const struct kfit_trace *t = trace_of(0);
    CHECK_INT(trace_calls(t), 8 * 500);
    /* but for those that came while one was starting; some ran while another was still entering their key */
    const uint64_t *unkeyed = kfit_trace_header(t)->unkeyed;
    CHECK_INT(trace_calls_of(t, plain, KFIT_REASON_NONE) + unkeyed[KFIT_REASON_NONE] +
                  unkeyed[KFIT_REASON_OFF],
              8 * 500);
}

/* Only a GPU's primary context is served, also if another one comes first. */
static void another_context_comes_first(void)
{
    begin("");
    publish_one("right", "", plain);
    CHECK_STR(run(CALLS("gemmex context=1", "gemmex", "gemmex context=1"), EXTRA(cache_env)),
              "0 right 1 0\n0 right 0 0\n0 right 1 0\n");
    check_calls(trace_of(0), plain, KFIT_REASON_NONE, 1);
    CHECK_INT(kfit_trace_header(trace_of(0))->unkeyed[KFIT_REASON_STREAM_STATE], 0);
    check_calls(trace_of(0), plain, KFIT_REASON_STREAM_STATE, 1); /* its handle is one of the GPU's */
}

static void forked_children_have_no_gpu(void)
{
    struct kfit_trace *t[TRACES_MAX];
    begin("");
    publish_one("right", "", plain);
    CHECK_STR(run(CALLS("gemmex", "gemmex fork=1", "matmul bias=1,fork=1", "gemmex"), EXTRA(cache_env)),
              "0 right 0 0\n13 same 1 0\n13 same 0 1\n0 right 0 0\n");
    CHECK_INT(traces_read(trace_dir, t), 1);
    CHECK_INT(trace_calls(t[0]), 2);
}

/* Loaded privately, as by Python, or linked with the program: the same function is found. */
static void linked_or_loaded(void)
{
    const char *const calls[] = {"gemmex", "matmul bias=1", "unhooked", "gemmex pointers=1", NULL};
    begin("");
    publish_one("right", "", plain);
    char *loaded = run(calls, EXTRA(cache_env));
    CHECK_STR(run_at(LINKED, calls, EXTRA(cache_env)), loaded);
    CHECK_STR(loaded, "0 right 0 0\n0 right 0 1\n0 right 1 0\n0 right 1 0\n");
    CHECK_INT(trace_calls(trace_of(0)), 3);
}

/* What is remembered of descriptors is all of them but the bias, which is another one in each layer. */
static void descriptors_are_read_anew_where_they_differ(void)
{
    const char *const calls[] = {"matmul bias=1,m=16,k=8",
                                 "reads",
                                 "matmul bias=1,m=16,k=8,times=2",
                                 "matmul bias=1,m=16,k=8,offset_bias=64",
                                 "reads",
                                 "matmul bias=1,m=16,k=8,ta=1",
                                 "matmul bias=1,m=16,k=8,ldc=24",
                                 "matmul bias=1,m=16,k=8,tb=1",
                                 "matmul bias=1,m=16,k=8,type=2",
                                 "matmul bias=1,m=16,k=8,n=11",
                                 "matmul bias=1,m=16,k=8,type_c=0",
                                 NULL};
    begin("");
    publish_one("right", "", BF16("m=7,n=16,k=8/nn/lda=8,ldb=16,ldc=16", "0/align=16/epi=bias"));
    CHECK_STR(run(calls, EXTRA(cache_env)),
              "0 right 0 0\nread\n0 right 0 0\n0 right 0 0\n0 right 0 0\nnot read\n0 right 0 1\n0 right 0 1\n0 right 0 1\n0 "
              "right 0 1\n0 right 0 1\n0 right 0 1\n");
    CHECK_INT(kfit_trace_count(trace_of(0)), 7);
}

/* One that is known but for a single word, whichever: those too that no hash is made of. */
static void a_descriptor_is_known_by_all_its_words(void)
{
    static const struct {
        int attribute, bytes, fresh;
    } rows[] = {{0, 4, 68}, {1, 4, 0},  {2, 4, 0},  {5, 4, 0},  {6, 4, 2},  {10, 8, 0}, {11, 8, 0}, {12, 8, 0},
                {13, 8, 0}, {14, 8, 0}, {15, 4, 0}, {17, 8, 0}, {18, 8, 0}, {19, 8, 0}, {20, 8, 0}, {21, 8, 0},
                {25, 1, 0}, {31, 4, 0}, {32, 4, 0}, {33, 4, 0}, {34, 4, 0}, {38, 8, 0}};
    enum { ROWS = sizeof rows / sizeof *rows };
    static char text[2 * ROWS][80];
    const char *calls[2 * ROWS + 1] = {NULL};
    for (int i = 0; i < 2 * ROWS; i++) { /* set to what it is, then to something else */
        snprintf(text[i], sizeof text[i], "matmul bias=1,m=16,k=8,attr=%d,value=%d,bytes=%d", rows[i / 2].attribute,
                 i % 2 ? 9 : rows[i / 2].fresh, rows[i / 2].bytes);
        calls[i] = text[i];
    }
    begin("");
    run(calls, NULL);
    struct kfit_trace *t = trace_of(0);
    CHECK_INT(kfit_trace_count(t), 1);
    CHECK_INT(kfit_slot_calls(kfit_trace_at(t, 0)), ROWS);
    CHECK_INT(trace_calls(t), 2 * ROWS);
}

/* NVIDIA's own library makes the same keys and the same refusals of the same descriptors. */
static void the_real_librarys_descriptors(void)
{
    const char *const calls[] = {"matmul bias=1,ta=1,m=16,k=32,times=2",
                                 "matmul bias=1,ta=1,m=16,k=32,offset_bias=8",
                                 "matmul bias=1,tb=1,type=2",
                                 "matmul m=16",
                                 "matmul batch=3",
                                 "matmul bias=1,type=0,ldc=24",
                                 "matmul bias=1,type_c=0,beta=1",
                                 "matmul bias=1,attr=26,value=14",
                                 "matmul bias=1,attr=26,value=2",
                                 "matmul bias=1,epilogue=6",
                                 "matmul epilogue=4",
                                 "matmul bias=1,attr=11,value=64,bytes=8",
                                 "matmul bias=1,attr=17,value=64,bytes=8",
                                 "matmul bias=1,attr=31,value=1",
                                 "matmul bias=1,attr=25,value=1,bytes=1",
                                 "matmul bias=1,attr=15,value=8",
                                 "matmul bias=1,attr=2,value=1",
                                 "matmul bias=1,order=1",
                                 "matmul bias=1,compute=77",
                                 "matmul bias=1,batch=2",
                                 "matmul bias=1,attr=38,value=64,bytes=8",
                                 NULL};
    if (!REAL[0])
        SKIP("no libcublasLt in /usr/local/cuda/lib64");
    begin("");
    run(calls, NULL);
    const struct kfit_trace *ours = trace_of(0);
    run_at(REAL, calls, EXTRA("LD_LIBRARY_PATH=" REAL_DIR)); /* before the double's folder */
    const struct kfit_trace *theirs = trace_of(0);
    CHECK(kfit_trace_count(ours) == 8 && kfit_trace_count(theirs) == 8);
    for (size_t i = 0; i < kfit_trace_count(ours); i++) {
        char text[KFIT_KEY_TEXT_MAX];
        kfit_key_format(&kfit_trace_at(ours, i)->key, text, sizeof text);
        check_calls(theirs, text, KFIT_REASON_OFF, kfit_slot_calls(kfit_trace_at(ours, i)));
    }
    for (unsigned i = 0; i < KFIT_REASON_COUNT; i++)
        CHECK_INT(kfit_trace_header(theirs)->unkeyed[i], kfit_trace_header(ours)->unkeyed[i]);
}

static const struct kfit_test tests[] = {
    TEST(recorded_published_and_run),
    TEST(keys_are_the_tuners),
    TEST(a_refused_launch_is_the_original),
    TEST(what_cannot_be_run_is_not_loaded),
    TEST(the_first_call_is_captured),
    TEST(captured_calls_count_by_launches),
    TEST(what_is_being_captured_is_said),
    TEST(off_in_the_middle_of_a_capture),
    TEST(two_devices),
    TEST(a_handle_has_a_device),
    TEST(a_handle_is_destroyed),
    TEST(a_handle_of_cublaslt_is_destroyed),
    TEST(a_handle_goes_with_its_context),
    TEST(a_crash_is_one_whatever_it_used),
    TEST(one_cache_for_all_devices),
    TEST(threads_that_start_together_lose_no_call),
    TEST(another_context_comes_first),
    TEST(forked_children_have_no_gpu),
    TEST(linked_or_loaded),
    TEST(descriptors_are_read_anew_where_they_differ),
    TEST(a_descriptor_is_known_by_all_its_words),
    TEST(the_real_librarys_descriptors),
};
TEST_MAIN(tests)
