/* cuBLAS taken by dlsym from a library's own handle: its calls are seen, and each goes to the library it was taken from. */
#include "cuda_cases.h"

#define OURS   "libkfit_preload.so libkfit_preload.so\n"
#define THEIRS "libcublas.so.13 libcublasLt.so.13\n"

/* Copies of the double's next libcublas: to the loader, other libraries. */
static void copies(unsigned n)
{
    for (unsigned i = 1; i <= n; i++) {
        char command[700];
        snprintf(command, sizeof command, "cp -L %s/libcublas_next.so %s/copy%u", DOUBLE, kfit_test_dir(), i);
        CHECK_INT(kfit_test_run((const char *[]){"sh", "-c", command, NULL}, NULL, NULL, NULL), 0);
    }
}

static char *taken(const char *const calls[], const char *const extra[])
{
    return run_at(TAKEN, calls, extra);
}

/* What a linked program calls, and in the same process's trace. */
static void as_a_linked_program(void)
{
    static const char *const calls[] = {"gemmex",
                                        "gemmex_64 ta=1,m=16",
                                        "batched batch=3",
                                        "batched_64 batch=3,ta=1",
                                        "sgemm",
                                        "sgemm_64 ta=1",
                                        "sbatched batch=3",
                                        "sbatched_64 batch=2,ta=1",
                                        "matmul bias=1",
                                        "unhooked",
                                        "gemmex pointers=1",
                                        "gemmex no_handle=1",
                                        "gemmex stream=1",
                                        "gemmex fork=1",
                                        "gemmex stream=1,capture=1,launches=5",
                                        NULL};
    begin("");
    publish_one("right", "", plain);
    char *linked = run_at(LINKED, calls, EXTRA(cache_env));
    const struct kfit_trace *of_linked = trace_of(0);
    CHECK_STR(taken(calls, EXTRA(cache_env)), linked);
    const struct kfit_trace *t = trace_of(0);
    CHECK_INT(kfit_trace_count(t), kfit_trace_count(of_linked));
    for (size_t i = 0; i < kfit_trace_count(t); i++) {
        char text[KFIT_KEY_TEXT_MAX];
        kfit_key_format(&kfit_trace_at(of_linked, i)->key, text, sizeof text);
        for (unsigned r = 0; r < KFIT_REASON_COUNT; r++)
            check_calls(t, text, r, kfit_trace_at(of_linked, i)->count[r]);
    }
    CHECK_INT(trace_calls(t), trace_calls(of_linked));
    check_calls(t, plain, KFIT_REASON_NONE, 1 + 1 + 5);
    CHECK_MSG(strstr(kfit_trace_header(t)->generics[0].path, "libcublas.so.13"), "%s",
              kfit_trace_header(t)->generics[0].path);
}

/* The calls of either library in turn, in either order of asking. One is the first cuBLAS that a search of all loaded
 * objects finds, the other is not. */
static void two_libraries(void)
{
    static const char *const orders[][5] = {{"take library=1", "use library=0"},
                                            {"take library=1", "take library=0"},
                                            {"take library=1", "take library=2", "use library=0"}};
    begin("");
    copies(2);
    for (unsigned i = 0; i < 3; i++) {
        const char *calls[16] = {"gemmex"};
        size_t n = 1;
        for (const char *const *p = orders[i]; *p; p++)
            calls[n++] = *p;
        const char *const then[] = {"gemmex",        "sgemm",         "use library=1", "gemmex",
                                    "sgemm times=2", "use library=0", "gemmex_64"};
        memcpy(calls + n, then, sizeof then);
        CHECK_STR(taken(calls, NULL), "0 right 1 0\n0 right 1 0\n0 right 1 0\n0 right 1 0\n0 right 1 0\n0 "
                                      "right 1 0\n0 right 1 0\n");
        const struct kfit_trace *t = trace_of(0);
        CHECK_INT(trace_calls(t), 7);
        CHECK_INT(kfit_trace_header(t)->generic_count, 2);
        CHECK(strstr(kfit_trace_header(t)->generics[0].path, "libcublas.so.13"));
        CHECK(strstr(kfit_trace_header(t)->generics[1].path, "/copy1"));
        CHECK_STR(kfit_trace_header(t)->generics[0].config, "cuBLAS 13.1.0");
        CHECK_STR(kfit_trace_header(t)->generics[1].config, "cuBLAS 13.2.0");
    }
}

/* Who asks, and who calls, need not be the same. */
static void a_pointer_that_was_asked_for_elsewhere(void)
{
    begin("");
    copies(1);
    CHECK_STR(taken(CALLS("take elsewhere=1", "whose", "gemmex", "take library=1,elsewhere=1", "whose",
                          "gemmex", "take library=1", "whose", "gemmex", "matmul bias=1"),
                    NULL),
              OURS "0 right 1 0\n" OURS "0 right 1 0\n" OURS "0 right 1 0\n0 right 0 1\n");
    CHECK_INT(trace_calls(trace_of(0)), 4);
}

/* Asked only, it is gone when it is closed, and its entries are there for it when it comes back. One that was called stays,
 * as one does that a program is linked with. */
static void closed_and_opened_again(void)
{
    const char *calls[64] = {NULL};
    size_t n = 0;
    begin("");
    copies(1);
    for (unsigned i = 0; i < 8; i++) {
        calls[n++] = "take library=1";
        calls[n++] = "close library=1";
    }
    for (unsigned i = 0; i < 8; i++) {
        calls[n++] = "take library=1";
        calls[n++] = "whose";
        calls[n++] = "gemmex";
        calls[n++] = "close library=1";
    }
    calls[n++] = "take library=0";
    calls[n++] = "gemmex";
    CHECK_STR(taken(calls, NULL), OURS "0 right 1 0\n" OURS "0 right 1 0\n" OURS "0 right 1 0\n" OURS
                                       "0 right 1 0\n" OURS "0 right 1 0\n" OURS "0 right 1 0\n" OURS
                                       "0 right 1 0\n" OURS "0 right 1 0\n0 right 1 0\n");
    CHECK_INT(trace_calls(trace_of(0)), 9);
}

/* As many as there are entries for; then their own pointers, which are not seen. */
static void more_libraries_than_entries(void)
{
    begin("");
    copies(4);
    CHECK_STR(taken(CALLS("take library=1", "whose", "gemmex", "take library=2", "gemmex", "take library=3",
                          "whose", "gemmex", "take library=4", "whose", "gemmex", "use library=3", "gemmex"),
                    NULL),
              OURS "0 right 1 0\n0 right 1 0\n" OURS "0 right 1 0\n"
                   "copy4 libkfit_preload.so\n0 right 1 0\n0 right 1 0\n"); /* there is one libcublasLt */
    CHECK_INT(trace_calls(trace_of(0)), 4);
}

/* cuBLAS that takes cuBLASLt so is counted as little as one that is linked with it. */
static void what_cublas_takes_itself_is_not_counted(void)
{
    begin("inner_matmul 2\n");
    CHECK_STR(taken(CALLS("unhooked times=2", "gemmex"), NULL), "0 right 1 1\n0 right 1 1\n0 right 1 0\n");
    CHECK_INT(trace_calls(trace_of(0)), 1);
    CHECK_STR(run_at(LINKED, CALLS("unhooked times=2", "gemmex"), NULL),
              "0 right 1 1\n0 right 1 1\n0 right 1 0\n");
    CHECK_INT(trace_calls(trace_of(0)), 1);
}

static void without_being_asked_their_own_pointers(void)
{
    begin("");
    CHECK_STR(taken(CALLS("whose", "gemmex"), EXTRA("KFIT_MODE=off")), THEIRS "0 right 1 0\n");
    CHECK_STR(taken(CALLS("whose", "gemmex"), NULL), OURS "0 right 1 0\n");
}

static void threads_that_call_an_entry_first(void)
{
    begin("");
    CHECK_STR(taken(CALLS("threads threads=8,times=500"), NULL), "0 failed\n");
    CHECK_INT(trace_calls(trace_of(0)), 8 * 500);
}

/* What RTLD_NEXT means depends on who asks, of these names too: an interposer behind us gets what is behind it. */
static void an_interposer_that_asks_for_the_next_one(void)
{
    static const char *const orders[] = {"LD_PRELOAD=" SHIM ":" OTHER_NEXT,
                                         "LD_PRELOAD=" OTHER_NEXT ":" SHIM};
    begin("");
    for (unsigned i = 0; i < 2; i++) {
        CHECK_STR(run_at(LINKED, CALLS("gemmex times=3"), EXTRA(orders[i])),
                  "0 right 1 0\n0 right 1 0\n0 right 1 0\nother saw 3 calls\n");
        /* behind us it is what the program calls: no cuBLAS, which could be asked about a call */
        CHECK_INT(trace_calls(trace_of(0)), i ? 3 : 0);
    }
}

static const struct kfit_test tests[] = {
    TEST(as_a_linked_program),
    TEST(two_libraries),
    TEST(a_pointer_that_was_asked_for_elsewhere),
    TEST(closed_and_opened_again),
    TEST(more_libraries_than_entries),
    TEST(what_cublas_takes_itself_is_not_counted),
    TEST(without_being_asked_their_own_pointers),
    TEST(threads_that_call_an_entry_first),
    TEST(an_interposer_that_asks_for_the_next_one),
};
TEST_MAIN(tests)
