/* Kernels that work in memory of ours: nothing that may run at once shares any, and no more is taken than was said. On the
 * double of a GPU, and compiled with GPU on a real one. */
#ifdef GPU
#define ON_GPU 1
#else
#define ON_GPU 0
#endif
#include "gpu/gpu.h"

#include "cuda_cases.h"

static const char other[] = BF16("m=7,n=17,k=5/nn/lda=5,ldb=17,ldc=17", "0/align=2");

/* ---- the kernel ---- */

static void replace(char *text, const char *what, const char *with)
{
    char rest[4096], *at = strstr(text, what);
    CHECK(at);
    snprintf(rest, sizeof rest, "%s", at + strlen(what));
    sprintf(at, "%s%s", with, rest);
}

/* workspace.cu with that much of that kind. It leaves zero what must be so. */
static struct kfit_built built(const char *bytes, const char *init, const char *isa, const union kfit_key *key)
{
    size_t n;
    char source[4096], *text = kfit_test_read(PRELOAD_DIR "/workspace.cu", &n);
    struct kfit_candidate *c;
    struct kfit_built b = {0};
    snprintf(source, sizeof source, "%.*s", (int)n, text);
    free(text);
    replace(source, "300", bytes);
    replace(source, "scratch", init);
    CHECK_OK(kfit_candidate_parse(source, strlen(source), &c, &err), err);
    const struct kfit_choice choice = {{!strcmp(init, "zero")}};
    const struct kfit_compile_params params = {
        .candidate = c, .key = key, .choice = &choice, .isa = isa, .allow_no_isolation = true};
    enum kfit_status s = kfit_compile(&params, &b, &err);
    CHECK_MSG(s == KFIT_OK, "%s %s %s", err.text, b.code, b.detail);
    kfit_candidate_destroy(c);
    return b;
}

static void make_notes(struct made *m, const char *bytes, const char *init, const char *key_text)
{
    const union kfit_key key = key_of(key_text);
    make_of(m, built(bytes, init, info.arch, &key), &key);
}

/* ---- where ---- */

static const char *library_path = "LD_LIBRARY_PATH=" DOUBLE;

/* settings: of the double. */
static void start(const char *settings)
{
    if (!ON_GPU) {
        begin(settings);
        return;
    }
    static char path[4096];
    const union kfit_key key = key_of(plain);
    if (kfit_nvrtc_version(path, sizeof path, &err) == KFIT_OK) { /* which needs no GPU */
        struct kfit_built b = built("300", "scratch", "sm_90a", &key);
        kfit_built_finish(&b);
    }
    const char *all = getenv("LD_LIBRARY_PATH"), *at = all ? strstr(all, DOUBLE) : NULL;
    if (at) { /* meson puts all that it built there, the double too */
        snprintf(path, sizeof path, "%.*s%s", (int)(at - all), all, at + strlen(DOUBLE));
        setenv("LD_LIBRARY_PATH", path, 1);
    }
    const char *why = gpu_find(&generic, &env, &info);
    if (why)
        SKIP("%s", why);
    snprintf(path, sizeof path, "LD_LIBRARY_PATH=%s", getenv("LD_LIBRARY_PATH") ? getenv("LD_LIBRARY_PATH") : "");
    library_path = path;
    begin_at(kfit_test_dir());
}

static void publish_notes(const char *bytes, const char *init)
{
    struct made m;
    make_notes(&m, bytes, init, plain);
    publish(&m, 1);
}

static char *play(const char *scene, const char *memory)
{
    return run_at(WORKSPACES, CALLS(generic.path, scene),
                  EXTRA(cache_env, library_path, memory ? memory : "KFIT_GPU_MEMORY="));
}

static void check(const char *scene, uint64_t calls)
{
    start("");
    publish_notes("300", "scratch");
    const char *out = play(scene, NULL);
    CHECK_MSG(!strcmp(out + strlen(out) - 5, "done\n"), "%s", out);
    const struct kfit_trace *t = trace_of(0);
    check_calls(t, plain, KFIT_REASON_NONE, calls);
    CHECK_INT(trace_calls(t), calls);
}

/* ---- slabs ---- */

static void a_stream_has_its_own(void)
{
    check("streams", 9);
}

static void a_capture_has_its_own(void)
{
    check("captures", 3 + 1 + 2 + 3 + 2 + 1);
}

static void streams_of_a_capture(void)
{
    check("forked", 4);
}

static void launches_that_do_not_wait(void)
{
    check("untied", 3);
}

static void streams_of_threads(void)
{
    check("own", 2 + 2 * 2 + 2);
}

static void calls_beside_a_capture(void)
{
    check("beside", 1 + 3 * 2);
}

static void streams_that_end_in_a_capture(void)
{
    check("retired", 2);
}

static void what_is_made_of_one_graph(void)
{
    check("again", 6 * 2 + 3 * 2 + 2);
}

static void children(void)
{
    check("children", 2 + 2 * 4);
}

static void graphs_that_grow(void)
{
    check("grown", 2 * 2 + 4 + 2 * 2 * 70);
}

/* What is made of such handles is not counted. */
static void graphs_under_way(void)
{
    check("copied", 2 * 2);
}

static void graphs_inside_others(void)
{
    check("inside", 2 * 2);
}

static void the_first_call_is_captured(void)
{
    check("first", 2);
}

static void captures_into_a_graph_are_the_originals(void)
{
    start("");
    publish_notes("300", "scratch");
    CHECK_STR(play("into", NULL), "done\n");
    check_calls(trace_of(0), plain, KFIT_REASON_WORKSPACE, 1);
}

static void captures_that_nobody_saw_begin(void)
{
    start("");
    publish_notes("300", "scratch");
    CHECK_STR(play("unseen", NULL), "done\n");
    check_calls(trace_of(0), plain, KFIT_REASON_NONE, 1 + 1);
    check_calls(trace_of(0), plain, KFIT_REASON_WORKSPACE, 1);
    CHECK_INT(kfit_trace_header(trace_of(0))->making, 0);
}

static void zero_and_scratch(void)
{
    struct made m[2];
    start("");
    make_notes(&m[0], "4", "zero", plain);
    make_notes(&m[1], "5000", "scratch", other);
    publish(m, 2);
    CHECK_STR(play("zero", NULL), "done\n");
    check_calls(trace_of(0), plain, KFIT_REASON_NONE, 3 + 4);
    check_calls(trace_of(0), other, KFIT_REASON_NONE, 3 + 2);
}

/* ---- how much ---- */

static void when_there_is_no_more(void)
{
    start("");
    publish_notes("200000", "scratch"); /* 1 MiB has five of these */
    char *out = play("many", "KFIT_GPU_MEMORY=1");
    CHECK_MSG(!strncmp(out, "5 slabs", 7) && strstr(out, "\ndone\n"), "%s", out);
    CHECK_MSG(ON_GPU || !strstr(out, "more memory"), "%s", out); /* a GPU's graphs take some */
    const struct kfit_trace *t = trace_of(0);
    check_calls(t, plain, KFIT_REASON_NONE, 5 + 1);
    check_calls(t, plain, KFIT_REASON_WORKSPACE, 1 + 1);
}

static void what_is_updated_from_its_own_graph(void)
{
    start("");
    publish_notes("100000", "scratch"); /* 1 MiB has ten of these */
    CHECK_STR(play("updated", "KFIT_GPU_MEMORY=1"), "done\n");
}

/* The first call takes so many KiB, and no other takes any. On a GPU, cuBLAS, its modules and graphs take some too. */
static void check_memory(const char *bytes, const char *memory, unsigned want)
{
    unsigned first, more;
    start("");
    if (bytes)
        publish_notes(bytes, "scratch");
    else
        publish_one("right", "", plain);
    char *out = play("memory", memory);
    CHECK_MSG(sscanf(out, "%u KiB, then %u\ndone", &first, &more) == 2, "%s", out);
    printf("  %u KiB, then %u\n", first, more);
    CHECK_MSG(ON_GPU ? first >= want && first < want + (512 << 10) && more < 16 << 10 : first == want && !more, "%s", out);
    check_calls(trace_of(0), plain, KFIT_REASON_NONE, 1 + 20 + 40);
}

static void no_need_no_memory(void)
{
    if (ON_GPU)
        SKIP("the kernel for it is the double's");
    check_memory(NULL, NULL, 0);
}

static void no_more_than_could_be_used(void)
{
    check_memory("256", NULL, 1024);
}

static void no_more_than_the_cap(void)
{
    check_memory("1048576", NULL, 65536);
}

static void no_more_than_was_said(void)
{
    check_memory("1000000", "KFIT_GPU_MEMORY=44", 44930);
}

#ifndef GPU
/* By programs of the double's. */

static void threads_that_start_together_take_it_once(void)
{
    begin("");
    publish_one("right", "\"workspace\":{\"bytes\":\"1048576\",\"init\":\"scratch\"},", plain);
    for (int i = 0; i < 10; i++)
        CHECK_STR(run_at(LINKED, CALLS("threads threads=16,times=20", "memory"), EXTRA(cache_env, "KFIT_GPU_MEMORY=4")),
                  "0 failed\n4096 KiB\n");
}

/* What needs more than there may be is not loaded, and what cannot be read is none. */
static void memory_that_may_not_be(void)
{
    static const char *const memory[] = {"0", "1", "much", "-1", "64M", "9999999999"};
    begin("");
    publish_one("right", "\"workspace\":{\"bytes\":\"1048576\",\"init\":\"scratch\"},", plain);
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) {
        char variable[64];
        snprintf(variable, sizeof variable, "KFIT_GPU_MEMORY=%s", memory[i]);
        CHECK_STR(run_at(LINKED, CALLS("gemmex", "gemmex"), EXTRA(cache_env, variable, "KFIT_LOG=none")),
                  "0 right 1 0\n0 right 1 0\n");
        check_calls(trace_of(0), plain, KFIT_REASON_WORKSPACE, 2);
        CHECK_INT(kfit_trace_header(trace_of(0))->loaded.unusable, 1);
    }
    char *said;
    CHECK_INT(kfit_test_run((const char *[]){LINKED, "gemmex", NULL},
                            (const char *[]){"LD_PRELOAD=" SHIM, "KFIT_TRACE=/nowhere", "KFIT_GPU_MEMORY=much", NULL},
                            NULL, &said),
              0);
    CHECK_MSG(strstr(said, "KFIT_GPU_MEMORY=much is no whole number of MiB; taken as 0"), "%s", said);
}

static void none_for_kernels_that_are_banned_with_all(void)
{
    start("");
    publish_notes("300", "scratch");
    CHECK_STR(run_at(WORKSPACES, CALLS(generic.path, "memory"), EXTRA(cache_env, library_path, "KFIT_BAN=no key")),
              "0 KiB, then 0\ndone\n");
}

static void memory_that_cannot_be_had(void)
{
    begin("memory 60000000\n");
    publish_one("right", "\"workspace\":{\"bytes\":\"1048576\",\"init\":\"scratch\"},", plain);
    CHECK_STR(run_at(LINKED, CALLS("gemmex", "gemmex"), EXTRA(cache_env)), "0 right 1 0\n0 right 1 0\n");
    check_calls(trace_of(0), plain, KFIT_REASON_WORKSPACE, 2);
    CHECK_INT(kfit_trace_header(trace_of(0))->loaded.winners, 1);
}

static void a_child_is_moved(void)
{
    check("moved", 2 + 1 + 1);
}

/* What the first of two launches writes is the second one's to read. */
static void nothing_between_two_launches(void)
{
    struct made m;
    begin("");
    make_notes(&m, "300", "scratch", plain);
    m.record.plan.launches[1] = m.record.plan.launches[0];
    m.record.plan.launch_count = 2;
    publish(&m, 1);
    CHECK_STR(play("split", NULL), "done\n");
    check_calls(trace_of(0), plain, KFIT_REASON_NONE, 3);
    check_calls(trace_of(0), plain, KFIT_REASON_WORKSPACE, 1);
}

/* The second of two launches may be refused, and the first has run. */
static void several_launches_do_not_leave_zero(void)
{
    static const char *const init[] = {"zero", "scratch"};
    struct made m[2];
    begin("");
    for (int i = 0; i < 2; i++) {
        char workspace[80];
        snprintf(workspace, sizeof workspace, "\"workspace\":{\"bytes\":\"4\",\"init\":\"%s\"},", init[i]);
        make(&m[i], "right", workspace, i ? other : plain);
        m[i].record.plan.launches[1] = m[i].record.plan.launches[0];
        m[i].record.plan.launch_count = 2;
    }
    publish(m, 2);
    CHECK_STR(run_at(LINKED, CALLS("gemmex", "gemmex m=17"), EXTRA(cache_env)), "0 right 1 0\n0 right 0 0\n");
    check_calls(trace_of(0), plain, KFIT_REASON_LOAD_FAILED, 1);
}
#endif

static const struct kfit_test tests[] = {
    TEST(a_stream_has_its_own),
    TEST(a_capture_has_its_own),
    TEST(streams_of_a_capture),
    TEST(launches_that_do_not_wait),
    TEST(streams_of_threads),
    TEST(streams_that_end_in_a_capture), TEST(calls_beside_a_capture),
    TEST(what_is_made_of_one_graph),
    TEST(children),
    TEST(graphs_that_grow),
    TEST(graphs_under_way),
    TEST(graphs_inside_others),
    TEST(the_first_call_is_captured),
    TEST(captures_into_a_graph_are_the_originals),
    TEST(captures_that_nobody_saw_begin),
    TEST(zero_and_scratch),
    TEST(when_there_is_no_more),
    TEST(what_is_updated_from_its_own_graph),
    TEST(no_need_no_memory),
    TEST(no_more_than_could_be_used),
    TEST(no_more_than_the_cap),
    TEST(no_more_than_was_said),
#ifndef GPU
    TEST(threads_that_start_together_take_it_once),
    TEST(memory_that_may_not_be),
    TEST(none_for_kernels_that_are_banned_with_all),
    TEST(memory_that_cannot_be_had),
    TEST(a_child_is_moved),
    TEST(nothing_between_two_launches),
    TEST(several_launches_do_not_leave_zero),
#endif
};
TEST_MAIN(tests)
