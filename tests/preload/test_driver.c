/* The driver level of the shim, on the double of libcuda, and compiled with ON_GPU on the real one: programs come by
 * its functions in every way there is, and the trace says what they launched. */
#include "traces.h"

#include "kfit/hash.h"
#include "kfit/reason.h"

#ifdef GPU
#define ON_GPU     1
#define LIBRARIES  "KFIT_DRIVER_TEST=gpu" /* as they are */
#define LINKED_ONE DRIVER_CALLS
#define LINKED_WAY "own"
#else
#define ON_GPU     0
#define LIBRARIES  "LD_LIBRARY_PATH=" DOUBLE
#define LINKED_ONE DRIVER_LINKED
#define LINKED_WAY "linked"
#endif

/* meson puts all that it built in front of the system's libraries: the double too. */
static void leave_the_double(void)
{
    const char *paths = getenv("LD_LIBRARY_PATH");
    const char *at = paths ? strstr(paths, DOUBLE) : NULL;
    char kept[4096];
    if (!ON_GPU || !at)
        return;
    snprintf(kept, sizeof kept, "%.*s%s", (int)(at - paths), paths, at + strlen(DOUBLE));
    CHECK(!strstr(kept, DOUBLE) && !setenv("LD_LIBRARY_PATH", kept, 1));
}

/* No driver, or none that starts; anything else that fails on a GPU is no reason to skip. */
static void need_a_gpu(void)
{
    char *why;
    if (!kfit_test_run((const char *[]){DRIVER_CALLS, "dlsym", "end", "exit", "1", NULL},
                       (const char *[]){LIBRARIES, NULL}, NULL, &why))
        return;
    CHECK_MSG(strstr(why, "no libcuda.so.1") || strstr(why, "cuInit"), "%s", why);
    SKIP("no GPU here");
}

static char *run(const char *const argv[], const char *const extra[])
{
    char *out, *err;
    const char *env[8] = {LIBRARIES};
    char home[300];
    static bool seen;
    leave_the_double();
    snprintf(home, sizeof home, "HOME=%s", kfit_test_dir());
    env[1] = home;
    for (unsigned n = 2; extra && *extra && n < 7; n++)
        env[n] = *extra++;
    if (ON_GPU && !seen)
        need_a_gpu();
    seen = true;
    run_shimmed(argv, kfit_test_dir(), env, &out, &err);
    CHECK_STR(err, "");
    return out;
}

#define RUN(...)  run((const char *[]){__VA_ARGS__, NULL}, NULL)
#define PLAY(...) RUN(DRIVER_CALLS, __VA_ARGS__)

static const struct kfit_trace_kernel *kernel_of(const struct kfit_trace *t, const char *name)
{
    for (size_t i = 0; i < kfit_trace_kernel_count(t); i++)
        if (!strcmp(kfit_trace_kernel_at(t, i)->name, name))
            return kfit_trace_kernel_at(t, i);
    return NULL;
}

/* Launches of a kernel by nobody's call, graphs' included. */
static uint64_t launches_of(const struct kfit_trace *t, const char *name)
{
    const struct kfit_trace_kernel *k = kernel_of(t, name);
    CHECK_INT(k ? k->launches[KFIT_LAUNCHED_IN_OP] : 0, 0);
    return k ? k->launches[KFIT_LAUNCHED_OTHER] : 0;
}

static void expect(const struct kfit_trace *t, uint64_t a, uint64_t b, uint64_t c)
{
    CHECK_INT(launches_of(t, "a"), a);
    CHECK_INT(launches_of(t, "b"), b);
    CHECK_INT(launches_of(t, "c"), c);
}

/* ---- launches and images ---- */

static void every_launch_counts_however_the_program_found_it(void)
{
    static const char *const ways[] = {LINKED_WAY, "dlsym", "proc11", "proc12"};
    for (unsigned i = 0; i < 4; i++) {
        char dir[300];
        snprintf(dir, sizeof dir, "KFIT_TRACE=%s/%u", kfit_test_dir(), i);
        run((const char *[]){i ? DRIVER_CALLS : LINKED_ONE, ways[i], "launches", NULL},
            (const char *[]){dir, NULL});
        struct kfit_trace *t = trace_only(dir + strlen("KFIT_TRACE="));
        CHECK_INT(kfit_trace_kernel_count(t), 6);
        CHECK_INT(launches_of(t, "plain"), 3);
        CHECK_INT(launches_of(t, "plain_own"), 4);
        CHECK_INT(launches_of(t, "extended"), 5);
        CHECK_INT(launches_of(t, "extended_own"), 6);
        CHECK_INT(launches_of(t, "together"), 8);
        CHECK_INT(launches_of(t, "together_own"), 9);
    }
}

static void a_kernel_has_two_handles_and_one_entry(void)
{
    PLAY("proc12", "handles");
    struct kfit_trace *t = trace_only(kfit_test_dir());
    CHECK_INT(kfit_trace_kernel_count(t), 1);
    CHECK_INT(launches_of(t, "of_library"), 7);
    CHECK(kernel_of(t, "of_library")->image_hash);
}

static void a_handle_used_again_is_another_kernel(void)
{
    PLAY("dlsym", "reuse");
    struct kfit_trace *t = trace_only(kfit_test_dir());
    CHECK_INT(launches_of(t, "first"), 2);
    CHECK_INT(launches_of(t, "next"), 5);
    CHECK_INT(launches_of(t, "third"), 7);
    CHECK_INT(launches_of(t, "fourth"), 9);
    CHECK(kernel_of(t, "third")->image_hash != kernel_of(t, "fourth")->image_hash);
}

/* With any context all functions are forgotten: those of others are met again, and no launch is lost meanwhile. */
static void contexts_go_while_others_launch(void)
{
    uint64_t a, b;
    const char *out = PLAY("dlsym", "contexts");
    CHECK_MSG(sscanf(out, "%" SCNu64 " %" SCNu64, &a, &b) == 2, "%s", out);
    expect(trace_only(kfit_test_dir()), a, b, 0);
}

#ifndef GPU
static void a_kernel_counts_on_the_gpu_that_it_runs_on(void)
{
    kfit_test_write(kfit_test_path("kfit-double"), "gpus 2\n", 7);
    for (int first = 0; first < 2; first++) {
        char dir[300];
        struct kfit_trace *t[TRACES_MAX];
        snprintf(dir, sizeof dir, "KFIT_TRACE=%s/first%d", kfit_test_dir(), first);
        run((const char *[]){DRIVER_CALLS, "dlsym", "gpus", first ? "1" : "0", NULL}, (const char *[]){dir, NULL});
        CHECK_INT(traces_read(dir + strlen("KFIT_TRACE="), t), 2);
        for (int i = 0; i < 2; i++) {
            const bool second = !strcmp(kfit_trace_header(t[i])->device, "cuda1");
            CHECK_INT(kfit_trace_kernel_count(t[i]), 1);
            CHECK_INT(launches_of(t[i], "anywhere"), second ? first ? 300 : 200 : first ? 2 : 3);
        }
    }
}

/* The program places each where reading on is death. */
static void images_are_hashed_to_their_end_and_not_beyond(void)
{
    static const char *const forms[] = {"cubin", "sections_first", "fat",    "wrapped",
                                        "ptx",   "file",           "library"};
    PLAY("dlsym", "images", kfit_test_dir());
    struct kfit_trace *t = trace_only(kfit_test_dir());
    for (unsigned i = 0; i < 7; i++) {
        size_t n;
        char *bytes = kfit_test_read(kfit_test_path(forms[i]), &n);
        CHECK_MSG(kernel_of(t, forms[i]), "no %s", forms[i]);
        CHECK_MSG(kernel_of(t, forms[i])->image_hash == XXH3_64bits(bytes, n), "another hash for %s",
                  forms[i]);
    }
    CHECK(kernel_of(t, "large")->image_hash); /* of parts of it */
}

/* ---- pointers ---- */

static void every_pointer_is_the_driver_s_or_ours(void)
{
    char *out = PLAY("proc12", "pointers");
    unsigned asked, wrapped;
    CHECK_MSG(sscanf(out, "%u asked, %u wrapped\n", &asked, &wrapped) == 2 && strchr(out, '\n')[1] == '\0',
              "%s", out);
    CHECK(asked > 600 * 16 * 3);
    CHECK(wrapped > 1000);
}

static void without_being_asked_the_driver_s_own_pointers(void)
{
    char *out = run((const char *[]){DRIVER_CALLS, "proc12", "pointers", NULL},
                    (const char *[]){"KFIT_MODE=off", NULL});
    CHECK_MSG(strstr(out, " 0 wrapped") && strstr(out, "missed cuLaunchKernel\n"), "%s", out);
}
#endif

static void whole_names_of_the_driver_only(void)
{
    CHECK_STR(RUN(DRIVER_NAMES, "names", LOOKALIKE),
              "cuLaunchKernel 1\ncuLaunchKernelExC 2\ncuLaunch 3\ncublasLtCreate 4\n");
}

static void a_caller_of_RTLD_NEXT_stays_the_caller(void)
{
    CHECK_STR(RUN(DRIVER_NAMES, "next"), "next 2, 2 of 2\n");
    CHECK_STR(RUN(DRIVER_NAMES, "scope", NAMES_PLUGIN), "scope 7, 7\n");
}

static void where_there_is_no_driver_there_is_none(void)
{
    char *out = run((const char *[]){DRIVER_NAMES, "none", NULL}, (const char *[]){"LD_LIBRARY_PATH", NULL});
    CHECK_STR(out, "none: no symbol, no symbol, error 34\n");
}

static void where_there_is_no_cublas_there_is_none(void)
{
    run((const char *[]){DRIVER_CALLS, "dlsym", "no_cublas", NULL}, NULL);
}

/* ---- graphs ---- */

static void each_of_n_replays_counts(void)
{
    for (unsigned i = 0; i < 3; i++) {
        static const char *const ways[] = {LINKED_WAY, "dlsym", "proc12"};
        char dir[300];
        snprintf(dir, sizeof dir, "KFIT_TRACE=%s/%u", kfit_test_dir(), i);
        run((const char *[]){i ? DRIVER_CALLS : LINKED_ONE, ways[i], "replays", "137", NULL},
            (const char *[]){dir, NULL});
        struct kfit_trace *t = trace_only(dir + strlen("KFIT_TRACE="));
        CHECK_INT(kfit_trace_graph_count(t), 6);
        for (unsigned g = 0; g < 6; g++) {
            const struct kfit_trace_graph *graph = kfit_trace_graph_at(t, g);
            const struct kfit_trace_item *items = kfit_trace_graph_items(t, graph);
            CHECK_INT(graph->launches, 137);
            CHECK_INT(graph->state, KFIT_GRAPH_GONE);
            CHECK_INT(graph->count, 2);
            CHECK_INT(graph->lost, 0);
            CHECK_INT(items[0].times, 1);
            CHECK_INT(items[1].times, 2);
        }
        expect(t, 6 * 137, 6 * 2 * 137, 0);
    }
}

static void forked_streams_and_a_thread_s_own(void)
{
    PLAY("proc12", "streams");
    expect(trace_only(kfit_test_dir()), 10 + 100 + 1000, 20 + 1, 10);
}

static void graphs_made_by_nodes_copies_children_and_into(void)
{
    PLAY("dlsym", "made");
    expect(trace_only(kfit_test_dir()), 1 + 20 + 300, 2 + 40 + 400, 300);
}

static void no_graph_is_launched_in_a_capture(void)
{
    PLAY("dlsym", "nested");
    expect(trace_only(kfit_test_dir()), 1, 2, 0);
}

static void an_update_is_another_entry_if_it_differs(void)
{
    PLAY("dlsym", "update");
    struct kfit_trace *t = trace_only(kfit_test_dir());
    CHECK_INT(kfit_trace_graph_count(t), 2);
    CHECK_INT(kfit_trace_graph_at(t, 0)->launches, 11);
    CHECK_INT(kfit_trace_graph_at(t, 1)->launches, 1100);
    expect(t, 11, 22, 3300);
}

static void destroyed_handles_are_forgotten(void)
{
    PLAY("dlsym", "destroyed");
    expect(trace_only(kfit_test_dir()), 1, 2, 0);
}

static void a_broken_capture_ends_with_nothing(void)
{
    PLAY("proc12", "broken");
    expect(trace_only(kfit_test_dir()), 0, 2, 10);
}

static void a_capture_that_nobody_saw_begin_ends_alone(void)
{
    PLAY("dlsym", "unheard");
    expect(trace_only(kfit_test_dir()), 1 + 30, 0, 0);
}

#ifndef GPU
static void a_thread_captures_on_two_gpus_at_once(void)
{
    struct kfit_trace *t[TRACES_MAX];
    kfit_test_write(kfit_test_path("kfit-double"), "gpus 2\n", 7);
    PLAY("dlsym", "both");
    CHECK_INT(traces_read(kfit_test_dir(), t), 2);
    for (int i = 0; i < 2; i++) {
        const bool second = !strcmp(kfit_trace_header(t[i])->device, "cuda1");
        CHECK_INT(kfit_trace_graph_count(t[i]), 1);
        expect(t[i], second ? 0 : 20, second ? 30 : 0, 0);
    }
}

static void captures_end_in_every_way_and_once(void)
{
    PLAY("proc12", "ends");
    struct kfit_trace *t = trace_only(kfit_test_dir());
    CHECK_INT(kfit_trace_graph_count(t), 5);
    expect(t, 3 + 20 + 100 + 20000, 8 * 2, 1000);
}
#endif

static void a_program_that_never_ends_making_graphs(void)
{
    PLAY("dlsym", "many", "20000");
    struct kfit_trace *t = trace_only(kfit_test_dir());
    CHECK_INT(kfit_trace_graph_count(t), 2);
    expect(t, 20000 + 10000, 40000 + 1, 10000);
}

/* ---- threads and processes ---- */

static void one_thread_captures_another_meets_new_kernels(void)
{
    PLAY("proc12", "threads");
    struct kfit_trace *t = trace_only(kfit_test_dir());
    CHECK_INT(launches_of(t, "captured"), 1 + 30);
    for (unsigned i = 0; i < 50; i++) {
        char name[16];
        snprintf(name, sizeof name, "busy%u", i);
        CHECK(launches_of(t, name) >= 3);
    }
}

static void children_made_and_ended_in_every_way(void)
{
    static const char *const ends[] = {"exit", "term", "kill"}, *const methods[] = {"fork", "forkserver",
                                                                                    "spawn"};
    struct kfit_trace *t[TRACES_MAX];
    char dir[300];
    for (unsigned e = 0; e < 3; e++) {
        snprintf(dir, sizeof dir, "KFIT_TRACE=%s/%s", kfit_test_dir(), ends[e]);
        run((const char *[]){DRIVER_CALLS, "proc12", "fork", ends[e], "5", NULL},
            (const char *[]){dir, NULL});
        CHECK_INT(traces_read(dir + strlen("KFIT_TRACE="), t), 2);
        CHECK_INT(launches_of(t[0], "works") + launches_of(t[1], "works"), 8);
        CHECK_INT(llabs((long long)(launches_of(t[0], "works") - launches_of(t[1], "works"))), 2);
    }
    for (unsigned m = 0; m < 3; m++) {
        snprintf(dir, sizeof dir, "KFIT_TRACE=%s/%s", kfit_test_dir(), methods[m]);
        char *out = run((const char *[]){PYTHON, PRELOAD_DIR "/driver_forks.py", methods[m], NULL},
                        (const char *[]){dir, NULL});
        size_t n = traces_read(dir + strlen("KFIT_TRACE="), t), seen = 0;
        int pid, launches, used;
        for (; sscanf(out, "%d %d\n%n", &pid, &launches, &used) == 2; out += used, seen++) {
            const struct kfit_trace *of = trace_of_pid(t, n, pid);
            CHECK_MSG(of, "%s: no trace of %d", methods[m], pid);
            CHECK_INT(launches_of(of, "works"), launches);
        }
        CHECK_INT(seen, 3);
        CHECK_INT(n, 3);
    }
}

#ifndef GPU
/* Others that hook dlsym, before us or behind us, as they are wont to. */
static void other_interposers_before_and_behind(void)
{
    static const char *const order[] = {
        "LD_PRELOAD=" OTHER_DLSYM ":" SHIM,
        "LD_PRELOAD=" SHIM ":" OTHER_DLSYM,
    };
    for (unsigned i = 0; i < 4; i++) {
        char dir[300];
        snprintf(dir, sizeof dir, "KFIT_TRACE=%s/%u", kfit_test_dir(), i);
        char *out = run((const char *[]){i / 2 ? DRIVER_LINKED : DRIVER_CALLS, i / 2 ? "linked" : "dlsym",
                                         "launches", NULL},
                        (const char *[]){dir, order[i % 2], "OTHER_SAYS=1", NULL});
        struct kfit_trace *t = trace_only(dir + strlen("KFIT_TRACE="));
        CHECK_INT(launches_of(t, "plain"), 3);
        /* one before us that goes past us to libc's hides what is found through it */
        CHECK_INT(launches_of(t, "extended"), i == 0 ? 0 : 5);
        CHECK_STR(out, "other saw 7 launches\n"); /* cuLaunchKernel: 3, two refused ones, two of stream 0 */
    }
}

/* One that asks dlsym for what comes after itself must not hear of us, who come before it. */
static void an_interposer_that_asks_for_the_next_one(void)
{
    static const char *const order[] = {"LD_PRELOAD=" OTHER_NEXT ":" SHIM, "LD_PRELOAD=" SHIM ":" OTHER_NEXT};
    for (unsigned i = 0; i < 2; i++) {
        char dir[300];
        snprintf(dir, sizeof dir, "KFIT_TRACE=%s/%u", kfit_test_dir(), i);
        CHECK_STR(run((const char *[]){DRIVER_LINKED, "linked", "launches", NULL},
                      (const char *[]){dir, order[i], NULL}),
                  "other saw 7 calls\n");
        CHECK_INT(launches_of(trace_only(dir + strlen("KFIT_TRACE=")), "plain"), 3);
    }
}
#endif

static const struct kfit_test tests[] = {
    TEST(every_launch_counts_however_the_program_found_it),
    TEST(a_kernel_has_two_handles_and_one_entry),
    TEST(a_handle_used_again_is_another_kernel),
    TEST(contexts_go_while_others_launch),
    TEST(whole_names_of_the_driver_only),
    TEST(a_caller_of_RTLD_NEXT_stays_the_caller),
    TEST(where_there_is_no_driver_there_is_none),
    TEST(where_there_is_no_cublas_there_is_none),
    TEST(each_of_n_replays_counts),
    TEST(forked_streams_and_a_thread_s_own),
    TEST(graphs_made_by_nodes_copies_children_and_into),
    TEST(no_graph_is_launched_in_a_capture),
    TEST(an_update_is_another_entry_if_it_differs),
    TEST(destroyed_handles_are_forgotten),
    TEST(a_broken_capture_ends_with_nothing),
    TEST(a_capture_that_nobody_saw_begin_ends_alone),
    TEST(a_program_that_never_ends_making_graphs),
    TEST(one_thread_captures_another_meets_new_kernels),
    TEST(children_made_and_ended_in_every_way),
#ifndef GPU
    TEST(a_kernel_counts_on_the_gpu_that_it_runs_on),
    TEST(images_are_hashed_to_their_end_and_not_beyond),
    TEST(every_pointer_is_the_driver_s_or_ours),
    TEST(without_being_asked_the_driver_s_own_pointers),
    TEST(captures_end_in_every_way_and_once),
    TEST(a_thread_captures_on_two_gpus_at_once),
    TEST(other_interposers_before_and_behind),
    TEST(an_interposer_that_asks_for_the_next_one),
#endif
};
TEST_MAIN(tests)
