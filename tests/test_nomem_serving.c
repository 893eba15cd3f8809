/* What runs in the served process, and what reads its traces, with the N-th allocation failing (malloc or
 * mmap), for N = 1, 2, ... until a run meets none. */
#include "kfit_test.h"
#include "nomem.h"

#include <errno.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kfit/dispatch.h"
#include "kfit/generation.h"
#include "records.h"

EXPORT void *mmap(void *at, size_t bytes, int protection, int flags, int fd, off_t offset)
{
    return fails() ? MAP_FAILED : (void *)syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
}

static struct kfit_record *records;
static struct kfit_env env;
static char traces[160], state[160];
enum { COUNT = 400 };

static void prepare(void)
{
    struct kfit_error err;
    uint64_t number;
    env = records_env();
    records = records_make(COUNT);
    for (int i = 0; i < COUNT; i++)
        records[i].env_hard = env.hard_hash;
    snprintf(traces, sizeof traces, "%s/traces", kfit_test_dir());
    snprintf(state, sizeof state, "%s/state", kfit_test_dir());
    char bans[200];
    snprintf(bans, sizeof bans, "%s/bans", state);
    CHECK(!mkdir(state, 0700));
    kfit_test_write(bans, "# none today\n", 13);
    struct kfit_publish_params p = {
        .dir = kfit_test_dir(), .records = records, .count = COUNT, .envs = &env, .env_count = 1};
    CHECK_OK(kfit_generation_publish(&p, &number, &err), err);
}

/* Runs scenario with allocation 1, 2, ... failing; it returns whether it noticed. */
static void each_allocation(bool (*scenario)(void), unsigned least)
{
    unsigned noticed = 0;
    for (long n = 1;; n++) {
        countdown = n;
        noticed += scenario();
        bool met = !countdown;
        countdown = 0;
        if (!met)
            break;
    }
    CHECK_MSG(noticed >= least, "only %u failing allocations made a difference", noticed);
    printf("  %u failing allocations\n", noticed);
}

/* The header says whether kernels run; a call gets one, or a reason, accordingly. */
static bool serve(void)
{
    struct kfit_error err = {0};
    struct kfit_dispatcher *d;
    struct kfit_dispatcher_params p = {.mode = KFIT_MODE_BOTH,
                                       .cache_dir = kfit_test_dir(),
                                       .trace_dir = traces,
                                       .state_dir = state,
                                       .env = &env};
    enum kfit_status s = kfit_dispatcher_create(&d, &p, &err);
    if (s != KFIT_OK) {
        CHECK(s == KFIT_E_NOMEM && !d && err.text[0]);
        return true;
    }
    const struct kfit_trace_header *h = kfit_recorder_header(kfit_dispatcher_recorder(d));
    unsigned kernels = 0;
    for (int i = 0; i < COUNT; i++) {
        struct kfit_decision x = kfit_dispatch(d, &records[i].key);
        CHECK(!!x.kernel == (x.reason == KFIT_REASON_NONE) && x.slot);
        kernels += x.kernel != NULL;
    }
    CHECK(h->state_text[0] && !kernels == (h->state_reason != KFIT_REASON_NONE));
    bool noticed = h->state_reason || strstr(h->state_text, "not recorded to a file");
    kfit_dispatcher_destroy(d);
    return noticed;
}

static void serving(void)
{
    prepare();
    CHECK(!serve());
    each_allocation(serve, 10);
}

/* A child that cannot make its own tables lets everything go to the original, and stays out
 * of its parent's. */
static void forked_child(void)
{
    struct kfit_error err;
    struct kfit_dispatcher *d;
    prepare();
    struct kfit_dispatcher_params p = {
        .mode = KFIT_MODE_BOTH, .cache_dir = kfit_test_dir(), .trace_dir = traces, .env = &env};
    CHECK_OK(kfit_dispatcher_create(&d, &p, &err), err);
    CHECK(kfit_dispatch(d, &records[0].key).slot);
    unsigned refused = 0;
    for (long n = 1; n < 8; n++) {
        fflush(stdout);
        pid_t pid = fork();
        if (!pid) {
            countdown = n;
            struct kfit_decision x = kfit_dispatch(d, &records[0].key), y = kfit_dispatch(d, &records[1].key);
            countdown = 0;
            kfit_dispatch_unkeyed(d, KFIT_REASON_FLAGS);
            if (!x.slot)
                _exit(x.kernel || x.reason != KFIT_REASON_OFF || y.kernel || kfit_dispatcher_recorder(d) ? 2
                                                                                                         : 1);
            _exit(0);
        }
        int status;
        waitpid(pid, &status, 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) < 2);
        refused += WEXITSTATUS(status);
    }
    CHECK(refused >= 3 && refused < 7);
    const struct kfit_trace_header *h = kfit_recorder_header(kfit_dispatcher_recorder(d));
    CHECK(h->slots_used == 1 && !h->unkeyed[KFIT_REASON_FLAGS]);
    kfit_dispatcher_destroy(d);
}

static bool read_merge_write(void)
{
    struct kfit_trace *in[2] = {NULL, NULL}, *sum = NULL;
    struct kfit_error err = {0};
    char path[200];
    enum kfit_status s = kfit_trace_read(traces, &in[0], &err);
    snprintf(path, sizeof path, "%s.sum", traces);
    if (s == KFIT_OK)
        s = kfit_trace_read(traces, &in[1], &err);
    if (s == KFIT_OK)
        s = kfit_trace_merge((const struct kfit_trace *const *)in, 2, false, &sum, &err);
    if (s == KFIT_OK)
        s = kfit_trace_write(sum, path, &err);
    CHECK_MSG(s == KFIT_OK || (s == KFIT_E_NOMEM && err.text[0]), "%s", err.text);
    kfit_trace_destroy(in[0]);
    kfit_trace_destroy(in[1]);
    kfit_trace_destroy(sum);
    return s != KFIT_OK;
}

static void reading_merging_writing(void)
{
    struct kfit_recorder *r;
    struct kfit_error err;
    prepare();
    struct kfit_recorder_params p = {.dir = traces, .suffix = "-cuda0", .live = true};
    CHECK_OK(kfit_recorder_create(&r, &p, &err), err);
    for (int i = 0; i < COUNT; i++)
        kfit_slot_count(kfit_recorder_slot(r, &records[i].key, kfit_key_hash(&records[i].key)), 1);
    struct kfit_trace_kernel *k = kfit_recorder_kernel(r, "kernel", 1);
    const struct kfit_trace_item item = {kfit_item_kernel(kfit_recorder_header(r), k), 0, 1};
    CHECK(kfit_recorder_graph(r, 0, &item, 1));
    snprintf(traces, sizeof traces, "%s", kfit_recorder_path(r));
    kfit_recorder_destroy(r);
    CHECK(!read_merge_write());
    each_allocation(read_merge_write, 20);
}

static const struct kfit_test tests[] = {TEST(serving), TEST(forked_child), TEST(reading_merging_writing)};
TEST_MAIN(tests)
