#include "dispatching.h"

#include <dirent.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif

/* ---- hits and misses ---- */

static void winners_run_everything_else_does_not(void)
{
    setup();
    publish_usual();
    struct kfit_dispatcher *d = dispatcher(KFIT_MODE_BOTH, NULL);
    CHECK_INT(header(d)->state_reason, KFIT_REASON_NONE);
    CHECK_STR(header(d)->state_text, "generation 1: 3 kernels (0 stale), 1 kept, 0 banned, 1 not usable");
    CHECK_INT(header(d)->generation, 1);
    const struct kfit_trace_loaded *l = &header(d)->loaded;
    CHECK(l->unix_ns >= header(d)->start_unix_ns - 1000000000 && l->loads == 1);
    CHECK(l->winners == 3 && !l->stale && l->negatives == 1 && !l->banned && l->unusable == 1);
    CHECK_STR(header(d)->cache, cache);
    for (int again = 0; again < 3; again++) {
        check_gemm(d, 4, 2, KFIT_REASON_NONE);
        check_gemm(d, 8, 2, KFIT_REASON_NEGATIVE);
        check_gemm(d, 12, 2, KFIT_REASON_NONE);
        check_gemm(d, 16, 2, KFIT_REASON_WORKSPACE);
        check_gemm(d, 20, 2, KFIT_REASON_NONE);
        check_gemm(d, 24, 2, KFIT_REASON_NO_RECORD);
        check_gemm(d, 4, 1, KFIT_REASON_THREADS);
    }
    float c;
    struct kfit_gemm_call call = call_of(4, &c);
    call.alpha = 2;
    CHECK_INT(kfit_dispatch_gemm(d, &call, 2, 0), KFIT_REASON_FLAGS);
    call.m = 0;
    CHECK_INT(kfit_dispatch_gemm(d, &call, 2, 0), KFIT_REASON_FLAGS);
    CHECK_INT(header(d)->unkeyed[KFIT_REASON_FLAGS], 1);

    struct kfit_trace *t;
    CHECK_OK(kfit_trace_read(kfit_recorder_path(kfit_dispatcher_recorder(d)), &t, &err), err);
    CHECK_INT(kfit_trace_count(t), 7);
    for (size_t i = 0; i < kfit_trace_count(t); i++) {
        const struct kfit_trace_slot *s = kfit_trace_at(t, i);
        if (s->key.gemm.ldb == 4 && s->key.gemm.alpha == KFIT_SCALAR_ONE) {
            CHECK_INT(s->count[KFIT_REASON_NONE], 3);
            CHECK_INT(s->count[KFIT_REASON_THREADS], 3);
        }
    }
    kfit_trace_destroy(t);
    kfit_dispatcher_destroy(d);
}

static void decisions_without_a_launch(void)
{
    setup();
    publish_usual();
    struct kfit_dispatcher *d = dispatcher(KFIT_MODE_BOTH, NULL);
    union kfit_key key = key_of(4);
    struct kfit_decision x = kfit_dispatch(d, &key);
    CHECK(x.kernel && x.reason == KFIT_REASON_NONE && x.slot && kfit_key_equal(&x.slot->key, &key));
    /* a long key, with batch strides, never seen when tuned */
    key.gemm.len = KFIT_GEMM_KEY_BATCHED_BYTES;
    key.gemm.batch = 3;
    key.gemm.sa = key.gemm.sb = key.gemm.sc = 64;
    for (int i = 0; i < 2; i++) {
        x = kfit_dispatch(d, &key);
        CHECK(!x.kernel && x.reason == KFIT_REASON_NO_RECORD && kfit_key_equal(&x.slot->key, &key));
    }
    CHECK_INT(x.slot->count[KFIT_REASON_NO_RECORD], 2);
    key.gemm.sc = 65;
    CHECK(kfit_dispatch(d, &key).slot != x.slot);
    kfit_dispatcher_destroy(d);
}

static void off_means_off_within_one_call(void)
{
    setup();
    publish_usual();
    struct kfit_dispatcher *d = dispatcher(KFIT_MODE_BOTH, NULL);
    const char *path = kfit_recorder_path(kfit_dispatcher_recorder(d));
    char text[1024];
    union kfit_key key = key_of(4);
    check_gemm(d, 4, 2, KFIT_REASON_NONE);
    CHECK_OK(kfit_trace_set_control(path, KFIT_CONTROL_OFF, &err), err);
    check_gemm(d, 4, 2, KFIT_REASON_OFF);
    kfit_dispatcher_explain(d, &key, text, sizeof text);
    CHECK_MSG(strstr(text, "kfit off"), "%s", text);
    CHECK_OK(kfit_trace_set_control(path, KFIT_CONTROL_RUN, &err), err);
    check_gemm(d, 4, 2, KFIT_REASON_NONE);
    kfit_dispatcher_destroy(d);
}

static void bans_and_bad_bans(void)
{
    setup();
    publish_usual();
    char bans[1200], a[KFIT_KEY_TEXT_MAX], b[KFIT_KEY_TEXT_MAX];
    union kfit_key known = key_of(4), unknown = key_of(28);
    kfit_key_format(&known, a, sizeof a);
    kfit_key_format(&unknown, b, sizeof b);
    snprintf(bans, sizeof bans, "  %s\n%s ", a, b);
    struct kfit_dispatcher *d = dispatcher(KFIT_MODE_BOTH, bans);
    check_gemm(d, 4, 2, KFIT_REASON_BANNED);
    check_gemm(d, 28, 2, KFIT_REASON_BANNED);
    check_gemm(d, 12, 2, KFIT_REASON_NONE);
    CHECK_INT(header(d)->loaded.banned, 2);
    kfit_dispatcher_destroy(d);
    /* a ban nobody can read might be meant for anything */
    d = dispatcher(KFIT_MODE_BOTH, "gemm/f32");
    check_gemm(d, 12, 2, KFIT_REASON_POLICY);
    CHECK(strstr(header(d)->state_text, "\"gemm/f32\" is not a key"));
    kfit_dispatcher_destroy(d);
}

/* ---- states ---- */

static void check_state(enum kfit_mode mode, enum kfit_reason want, const char *word)
{
    struct kfit_dispatcher *d = dispatcher(mode, NULL);
    CHECK_INT(header(d)->state_reason, want);
    CHECK_INT(header(d)->loaded.unix_ns != 0, want == KFIT_REASON_NONE);
    CHECK_MSG(strstr(header(d)->state_text, word), "\"%s\" does not say \"%s\"", header(d)->state_text, word);
    check_gemm(d, 4, 2, want);
    union kfit_key key = key_of(4);
    CHECK_INT(kfit_dispatch(d, &key).slot != NULL, mode != KFIT_MODE_DISPATCH);
    kfit_dispatcher_destroy(d);
}

static void every_state_says_why(void)
{
    char path[512];
    setup();
    check_state(KFIT_MODE_RECORD, KFIT_REASON_OFF, "records only");
    check_state(KFIT_MODE_BOTH, KFIT_REASON_NO_RECORD, "records only: ");
    publish_usual();
    check_state(KFIT_MODE_BOTH, KFIT_REASON_NONE, "generation 1: ");

    snprintf(path, sizeof path, "%s/off", cache);
    kfit_test_write(path, "ops: see ticket 7\nmore", 22);
    check_state(KFIT_MODE_BOTH, KFIT_REASON_OFF, "off says: ops: see ticket 7");
    CHECK(!unlink(path));

    snprintf(path, sizeof path, "%s/generations/1.mdb", cache);
    size_t n;
    char *bytes = kfit_test_read(path, &n);
    chmod(path, 0600);
    bytes[n / 2] ^= 1;
    kfit_test_write(path, bytes, n);
    check_state(KFIT_MODE_BOTH, KFIT_REASON_LOAD_FAILED, "records only: ");
    kfit_test_write(path, bytes, n / 3);
    check_state(KFIT_MODE_DISPATCH, KFIT_REASON_LOAD_FAILED, "records only: ");
    free(bytes);
    snprintf(cache, sizeof cache, "/no/such/place");
    check_state(KFIT_MODE_BOTH, KFIT_REASON_NO_RECORD, "records only: ");
}

static void another_environment_is_not_loaded(void)
{
    setup();
    publish_usual();
    kfit_env_host(&env, 3, "test", NULL);
    check_state(KFIT_MODE_BOTH, KFIT_REASON_ENV, "threads=2");
    kfit_env_host(&env, 2, "a newer BLAS", NULL);
    struct kfit_dispatcher *d = dispatcher(KFIT_MODE_BOTH, NULL);
    check_gemm(d, 4, 2, KFIT_REASON_NONE);
    CHECK(strstr(header(d)->state_text, "(3 stale)"));
    CHECK_INT(header(d)->loaded.stale, 3);
    kfit_dispatcher_destroy(d);
    kfit_env_host(&env, 2, NULL, "some compiler"); /* what only one side knows does not differ */
    d = dispatcher(KFIT_MODE_BOTH, NULL);
    CHECK(strstr(header(d)->state_text, "(0 stale)"));
    kfit_dispatcher_destroy(d);
}

static void no_trace_directory_still_dispatches(void)
{
    setup();
    publish_usual();
    snprintf(traces, sizeof traces, "/proc/no/such");
    struct kfit_dispatcher *d = dispatcher(KFIT_MODE_BOTH, NULL);
    CHECK_STR(kfit_recorder_path(kfit_dispatcher_recorder(d)), "");
    CHECK(strstr(header(d)->state_text, "not recorded to a file: trace: cannot make directory"));
    check_gemm(d, 4, 2, KFIT_REASON_NONE);
    kfit_dispatcher_destroy(d);
}

/* Beyond a file-size limit the kernel kills who writes, be it to a memfd. */
static void file_size_limit_kills_nobody(void)
{
    setup();
    publish_usual();
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){4096, RLIM_INFINITY});
    struct kfit_dispatcher *d = dispatcher(KFIT_MODE_BOTH, NULL);
    bool said =
        strstr(header(d)->state_text, "ulimit -f") && strstr(header(d)->state_text, "not recorded to a file");
    enum kfit_reason reason = header(d)->state_reason;
    float c;
    gemm(d, 4, 2, &c);
    setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
    CHECK_MSG(said && reason == KFIT_REASON_LOAD_FAILED && c == -1, "%s", header(d)->state_text);
    kfit_dispatcher_destroy(d);
}

static void generation_removed_while_in_use(void)
{
    char command[256];
    setup();
    publish_usual();
    struct kfit_dispatcher *d = dispatcher(KFIT_MODE_BOTH, NULL);
    snprintf(command, sizeof command, "rm -r %s", cache);
    const char *argv[] = {"sh", "-c", command, NULL};
    CHECK_INT(kfit_test_run(argv, NULL, NULL, NULL), 0);
    check_gemm(d, 4, 2, KFIT_REASON_NONE);
    kfit_dispatcher_destroy(d);
}

static void two_dispatchers_do_not_mix(void)
{
    setup();
    publish_usual();
    struct kfit_dispatcher *on = dispatcher(KFIT_MODE_BOTH, NULL), *off = dispatcher(KFIT_MODE_RECORD, NULL);
    for (int i = 0; i < 3; i++) {
        check_gemm(on, 4, 2, KFIT_REASON_NONE);
        check_gemm(off, 4, 2, KFIT_REASON_OFF);
    }
    kfit_dispatcher_destroy(on);
    struct kfit_dispatcher *again = dispatcher(KFIT_MODE_RECORD, NULL);
    check_gemm(again, 4, 2, KFIT_REASON_OFF);
    kfit_dispatcher_destroy(again);
    kfit_dispatcher_destroy(off);
}

static void more_keys_than_room(void)
{
    setup();
    publish_usual();
    struct kfit_dispatcher *d = dispatcher(KFIT_MODE_BOTH, NULL);
    for (int i = 0; i < 15000; i++) {
        union kfit_key key = key_of(1000 + i);
        CHECK_INT(kfit_dispatch(d, &key).reason, KFIT_REASON_NO_RECORD);
    }
    CHECK_INT(header(d)->slots_used, KFIT_TRACE_SLOTS_DEFAULT / 8 * 7);
    CHECK_INT(header(d)->unkeyed[KFIT_REASON_FULL], 15000 - KFIT_TRACE_SLOTS_DEFAULT / 8 * 7);
    check_gemm(d, 4, 2, KFIT_REASON_NONE); /* a winner still runs, though nobody counts it by key */
    kfit_dispatcher_destroy(d);
}

/* A call in steps is decided and counted as one at once. */
static void check_steps(struct kfit_dispatcher *at_once, struct kfit_dispatcher *in_steps, const union kfit_key *key)
{
    struct kfit_decision x, y, z = {.kernel = NULL};
    kfit_dispatch_decide(in_steps, key, 7, &y);
    x = kfit_dispatch(at_once, key);
    CHECK_INT(y.reason, x.reason);
    CHECK_INT(y.index, x.index);
    CHECK_INT(y.full, x.full);
    CHECK(!y.kernel == !x.kernel && !y.slot == !x.slot && !y.kernel == (y.reason != KFIT_REASON_NONE));
    CHECK_INT(kfit_dispatch_passes(in_steps, key, 7, &z), x.reason != KFIT_REASON_NONE);
    if (x.reason == KFIT_REASON_NONE) {
        CHECK(z.kernel == y.kernel && z.index == y.index);
        kfit_dispatch_count(in_steps, &z);
    }
    CHECK(!y.slot || (y.slot->generic == 7 && !memcmp(y.slot->count, x.slot->count, sizeof x.slot->count)));
    CHECK(!memcmp(header(at_once)->unkeyed, header(in_steps)->unkeyed, sizeof header(at_once)->unkeyed));
}

static void in_steps_as_at_once(void)
{
    static const int named[] = {4, 8, 12, 16, 20, 24};
    setup();
    publish_usual();
    struct kfit_dispatcher *d[] = {dispatcher(KFIT_MODE_BOTH, NULL), dispatcher(KFIT_MODE_BOTH, NULL)};
    union kfit_key key, batched = key_of(4);
    batched.gemm.len = KFIT_GEMM_KEY_BATCHED_BYTES;
    batched.gemm.batch = 3;
    batched.gemm.sa = batched.gemm.sb = batched.gemm.sc = 64;
    for (int round = 0; round < 200; round++) {
        const enum kfit_control control = round / 10 % 2 ? KFIT_CONTROL_OFF : KFIT_CONTROL_RUN;
        for (int i = 0; i < 2; i++)
            CHECK_OK(kfit_trace_set_control(kfit_recorder_path(kfit_dispatcher_recorder(d[i])), control, &err), err);
        for (unsigned i = 0; i < sizeof named / sizeof *named; i++)
            check_steps(d[0], d[1], (key = key_of(named[i]), &key));
        check_steps(d[0], d[1], &batched);
        for (int i = 0; round >= 100 && i < 150; i++) /* until there is no room */
            check_steps(d[0], d[1], (key = key_of(1000 + 150 * round + i), &key));
    }
    CHECK(header(d[1])->unkeyed[KFIT_REASON_FULL] > 0);
    kfit_dispatcher_destroy(d[0]);
    kfit_dispatcher_destroy(d[1]);
}

static void near_misses_are_named(void)
{
    setup();
    publish_usual();
    struct kfit_dispatcher *d = dispatcher(KFIT_MODE_BOTH, NULL);
    char text[2048], small[20];
    /* strides that only follow n are no difference of their own */
    struct kfit_record wide = record(4, multiplies, sizeof multiplies, 0, 0);
    static const char *const texts[] = {
        "gemm/f32,f32,f32/acc=f32/m=4,n=2624,k=512/nn/lda=512,ldb=2624,ldc=2624/alpha=1,beta=0/align=16",
        "gemm/f32,f32,f32/acc=f32/m=4,n=2688,k=512/nn/lda=512,ldb=2688,ldc=2688/alpha=1,beta=0/align=16"};
    union kfit_key other;
    CHECK_OK(kfit_key_parse(texts[0], &wide.key, &err), err);
    CHECK_OK(kfit_key_parse(texts[1], &other, &err), err);
    publish(&wide, 1);
    struct kfit_dispatcher *second = dispatcher(KFIT_MODE_BOTH, NULL);
    kfit_dispatcher_explain(second, &other, text, sizeof text);
    CHECK_MSG(strstr(text, "differs from a tuned key only in n: 2688, tuned 2624\n"), "%s", text);
    kfit_dispatcher_destroy(second);
    union kfit_key key = key_of(11);
    key.gemm.align = 16; /* ldb alone shall differ */
    CHECK(kfit_dispatcher_explain(d, &key, text, sizeof text) == strlen(text));
    CHECK_MSG(strstr(text, "no kernel for this key") && strstr(text, "only in ldb: 11, tuned 12\n"), "%s",
              text);
    CHECK(strstr(text, "tuned 12") < strstr(text, "tuned 4"));
    key.gemm.m = 2;
    key.gemm.ta = 1; /* three fields off */
    kfit_dispatcher_explain(d, &key, text, sizeof text);
    CHECK(!strstr(text, "differs"));
    key = key_of(4);
    kfit_dispatcher_explain(d, &key, text, sizeof text);
    CHECK_MSG(strstr(text, "2.50x") && strstr(text, "generation 1"), "%s", text);
    CHECK_INT(kfit_dispatcher_explain(d, &key, small, sizeof small), sizeof small - 1);
    kfit_dispatcher_destroy(d);
}

/* ---- workspaces ---- */

enum { THREADS = 8, CALLS = 3000, NEW_KEYS = 200 };
static pthread_barrier_t together;
static struct kfit_dispatcher *shared;
static uint64_t outcomes[KFIT_REASON_COUNT];

static void *call_many(void *arg)
{
    int first = (int)(intptr_t)arg;
    for (int i = 0; i < NEW_KEYS; i++) { /* all meet on each new key */
        union kfit_key key = key_of(100 + i);
        pthread_barrier_wait(&together);
        kfit_dispatch(shared, &key);
        __atomic_fetch_add(&outcomes[KFIT_REASON_NO_RECORD], 1, __ATOMIC_RELAXED);
    }
    for (int i = 0; i < CALLS; i++) {
        float c;
        static const int ldb[] = {4, 8, 12, 20, 24};
        enum kfit_reason r = gemm(shared, ldb[(first + i) % 5], 2, &c);
        if (c != (r == KFIT_REASON_NONE ? 15 : -1))
            return arg + 1;
        __atomic_fetch_add(&outcomes[r], 1, __ATOMIC_RELAXED);
    }
    return NULL;
}

static void many_threads(void)
{
    setup();
    publish_usual();
    shared = dispatcher(KFIT_MODE_BOTH, NULL);
    CHECK(!pthread_barrier_init(&together, NULL, THREADS));
    pthread_t t[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&t[i], NULL, call_many, (void *)i));
    for (int i = 0; i < THREADS; i++) {
        void *bad;
        pthread_join(t[i], &bad);
        CHECK(!bad);
    }
    uint64_t counted[KFIT_REASON_COUNT] = {0};
    struct kfit_trace *trace;
    CHECK_OK(kfit_trace_read(kfit_recorder_path(kfit_dispatcher_recorder(shared)), &trace, &err), err);
    CHECK_INT(kfit_trace_count(trace), 5 + NEW_KEYS);
    CHECK_INT(header(shared)->slots_used, 5 + NEW_KEYS);
    for (size_t i = 0; i < kfit_trace_count(trace); i++)
        for (unsigned r = 0; r < KFIT_REASON_COUNT; r++)
            counted[r] += kfit_trace_at(trace, i)->count[r];
    for (unsigned r = 0; r < KFIT_REASON_COUNT; r++)
        CHECK_INT(counted[r] + header(shared)->unkeyed[r], outcomes[r]);
    CHECK_INT(outcomes[KFIT_REASON_NEGATIVE], THREADS * CALLS / 5);
    CHECK(outcomes[KFIT_REASON_NONE] > THREADS * CALLS / 2);
    kfit_trace_destroy(trace);
    kfit_dispatcher_destroy(shared);
}

/* ---- fork ---- */

static unsigned files(void)
{
    unsigned n = 0;
    DIR *d = opendir(traces);
    for (struct dirent *e; (e = readdir(d));)
        n += strstr(e->d_name, ".kft") != NULL;
    closedir(d);
    return n;
}

static void child_counts_in_a_file_of_its_own(void)
{
    setup();
    publish_usual();
    struct kfit_dispatcher *d = dispatcher(KFIT_MODE_BOTH, NULL);
    struct kfit_generic g = {.path = "/blas", .naming = "cblas_%s"};
    kfit_recorder_generic(kfit_dispatcher_recorder(d), &g);
    check_gemm(d, 4, 2, KFIT_REASON_NONE);
    fflush(stdout);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        check_gemm(d, 4, 2, KFIT_REASON_NONE);
        check_gemm(d, 24, 2, KFIT_REASON_NO_RECORD);
        CHECK_INT(header(d)->slots_used, 2);
        CHECK_INT(header(d)->pid, getpid());
        CHECK_INT(header(d)->generation, 1);
        CHECK_INT(header(d)->generic_count, 1);
        char *maps = kfit_test_read("/proc/self/maps", NULL), *own = strstr(maps, ".kft");
        CHECK(own && !strstr(own + 1, ".kft")); /* the parent's is gone */
        free(maps);
        pid_t grandchild = fork();
        if (!grandchild) { /* that never calls leaves no trace, and destroys nothing of its parent's */
            kfit_dispatcher_destroy(d);
            _exit(0);
        }
        int status;
        waitpid(grandchild, &status, 0);
        CHECK_INT(status, 0);
        CHECK_INT(header(d)->end_unix_ns, 0);
        fflush(stdout);
        _exit(0);
    }
    int status;
    waitpid(pid, &status, 0);
    CHECK_INT(status, 0);
    CHECK_INT(files(), 2);
    CHECK_INT(header(d)->slots_used, 1);
    union kfit_key key = key_of(4);
    CHECK_INT(kfit_dispatch(d, &key).slot->count[KFIT_REASON_NONE], 2);
    kfit_dispatcher_destroy(d);
}

static bool stop;

static void *new_keys(void *arg)
{
    for (int i = (int)(intptr_t)arg; !__atomic_load_n(&stop, __ATOMIC_RELAXED); i = i % 12000 + 1) {
        union kfit_key key = key_of(100 + i);
        kfit_dispatch(shared, &key);
        float c;
        gemm(shared, 4 + 4 * (i % 6), 2, &c);
    }
    return NULL;
}

__attribute__((unused)) static void *one_call(void *arg)
{
    float c;
    gemm(shared, 4, 2, &c);
    return arg;
}

/* Forks while other threads are in the middle of inserts and launches; the child must not
 * wait for anybody. */
static void fork_while_others_call(void)
{
    setup();
    publish_usual();
    shared = dispatcher(KFIT_MODE_BOTH, NULL);
    pthread_t t[3];
    for (intptr_t i = 0; i < 3; i++)
        CHECK(!pthread_create(&t[i], NULL, new_keys, (void *)(4000 * i)));
    enum { FORKS = 40 };
    for (int i = 0; i < FORKS; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (!pid) {
            alarm(60);
#if !defined __SANITIZE_THREAD__ &&                                                                          \
    !defined __SANITIZE_ADDRESS__ /* such a child's threads kill TSan and hang ASan */
            pthread_t two[2];
            for (int k = 0; k < 2; k++)
                if (pthread_create(&two[k], NULL, one_call, NULL))
                    _exit(2);
            for (int k = 0; k < 2; k++)
                pthread_join(two[k], NULL);
#endif
            float c;
            bool good =
                gemm(shared, 4, 2, &c) == KFIT_REASON_NONE && c == 15 && header(shared)->slots_used == 1;
            _exit(!good);
        }
        int status;
        waitpid(pid, &status, 0);
        CHECK_INT(status, 0);
    }
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++)
        pthread_join(t[i], NULL);
    CHECK_INT(files(), FORKS + 1);
    CHECK(!header(shared)->end_unix_ns);
    kfit_dispatcher_destroy(shared);
}

static void arguments_are_checked(void)
{
    struct kfit_dispatcher *d;
    struct kfit_dispatcher_params p = {.mode = KFIT_MODE_BOTH};
    CHECK_STATUS(kfit_dispatcher_create(&d, &p, &err), KFIT_E_ARG);
    CHECK(!d);
    kfit_dispatcher_destroy(NULL);
}

/* `kfit explain` and `report` run where no GPU is: kernels for one are looked up there, and not loaded. */
static void asking_needs_no_device(void)
{
    char text[1024];
    setup();
    kfit_env_cuda(&env, "sm_90a", "Some GPU", 132, "CUDA 13.0", "test", NULL);
    const struct kfit_record r = record(4, multiplies, sizeof multiplies, 0, 0);
    publish(&r, 1);
    struct kfit_dispatcher *d;
    struct kfit_dispatcher_params p = {
        .mode = KFIT_MODE_DISPATCH, .cache_dir = cache, .env = &env, .asks_only = true};
    CHECK_OK(kfit_dispatcher_create(&d, &p, &err), err);
    kfit_dispatcher_explain(d, &r.key, text, sizeof text);
    CHECK_MSG(strstr(text, "2.50x"), "%s", text);
    CHECK_MSG(strstr(kfit_dispatcher_state(d), "generation 1: 1 kernels"), "%s", kfit_dispatcher_state(d));
    kfit_dispatcher_destroy(d);
    p.asks_only = false; /* a server without its GPU goes on with the original */
    CHECK_OK(kfit_dispatcher_create(&d, &p, &err), err);
    CHECK_MSG(strstr(kfit_dispatcher_state(d), "no device was"), "%s", kfit_dispatcher_state(d));
    kfit_dispatcher_destroy(d);
}

static const struct kfit_test tests[] = {
    TEST(asking_needs_no_device),
    TEST(winners_run_everything_else_does_not),
    TEST(decisions_without_a_launch),
    TEST(off_means_off_within_one_call),
    TEST(bans_and_bad_bans),
    TEST(every_state_says_why),
    TEST(another_environment_is_not_loaded),
    TEST(no_trace_directory_still_dispatches),
    TEST(file_size_limit_kills_nobody),
    TEST(generation_removed_while_in_use),
    TEST(two_dispatchers_do_not_mix),
    TEST(more_keys_than_room),
    TEST(in_steps_as_at_once),
    TEST(near_misses_are_named),
    TEST(many_threads),
    TEST(child_counts_in_a_file_of_its_own),
    TEST(fork_while_others_call),
    TEST(arguments_are_checked),
};
TEST_MAIN(tests)
