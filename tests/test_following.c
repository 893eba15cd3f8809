/* A process that serves takes over new generations when asked to, off and on meanwhile, with threads and forks. */
#include "dispatching.h"

#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static void request(struct kfit_dispatcher *d, enum kfit_control control)
{
    CHECK_OK(kfit_trace_set_control(kfit_recorder_path(kfit_dispatcher_recorder(d)), control, &err), err);
}

/* The call after the request loads what is current. */
static void reload(struct kfit_dispatcher *d)
{
    float c;
    request(d, KFIT_CONTROL_RELOAD);
    gemm(d, 4, 2, &c);
}

static void check_result(struct kfit_dispatcher *d, float want)
{
    float c;
    CHECK_INT(gemm(d, 4, 2, &c), KFIT_REASON_NONE);
    CHECK_MSG(c == want, "result %g, expected %g; %s", (double)c, (double)want, header(d)->state_text);
}

static void publish_two(void)
{
    const struct kfit_record a = record(4, multiplies, sizeof multiplies, 0, 0),
                             b = record(4, adds, sizeof adds, 0, 0);
    publish(&a, 1);
    publish(&b, 1);
    CHECK_OK(kfit_generation_make_current(cache, 1, &err), err);
}

static void make_current(uint64_t number)
{
    CHECK_OK(kfit_generation_make_current(cache, number, &err), err);
}

static void new_generations_are_followed(void)
{
    setup();
    publish_two();
    struct kfit_dispatcher *d = SERVE(.follow = true);
    const union kfit_key key = key_of(4);
    CHECK_SAYS(d, "generation 1: 1 kernels");
    CHECK_SAYS(d, "; follows new ones");
    check_result(d, 15);
    make_current(2);
    check_result(d, 15); /* nobody said so */
    request(d, KFIT_CONTROL_RELOAD);
    check_result(d, 15); /* the call that loads it */
    CHECK_INT(header(d)->control, KFIT_CONTROL_RUN);
    CHECK_INT(header(d)->generation, 2);
    CHECK_INT(header(d)->loaded.loads, 2);
    CHECK_SAYS(d, "generation 2: 1 kernels");
    CHECK(strstr(kfit_dispatcher_state(d), "generation 2"));
    check_result(d, 8);
    request(d, KFIT_CONTROL_RELOAD);
    check_result(d, 8);
    CHECK_INT(header(d)->loaded.loads, 2); /* nothing new */
    make_current(1);
    request(d, KFIT_CONTROL_RELOAD);
    check_result(d, 8);
    check_result(d, 15);
    CHECK_INT(kfit_dispatch(d, &key).slot->count[KFIT_REASON_NONE], 8); /* one slot for all of them */
    CHECK_INT(header(d)->slots_used, 1);
    kfit_dispatcher_destroy(d);
}

static void who_does_not_follow_forgets_the_request(void)
{
    setup();
    publish_two();
    static const char *const sizes[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"};
    for (int i = 0; i < 7; i++) {
        make_current(1);
        line[0] = '\0';
        if (i < 4)
            setenv(sizes[i], "2", 1);
        struct kfit_dispatcher *d = SERVE(.follow = i != 4, .generation = i == 5 ? "1" : NULL,
                                          .log = {.fn = keep_line, .level = KFIT_LOG_WARN});
        CHECK_MSG(i == 4 || i == 6 || strstr(line, i == 5 ? "pinned" : "one of several ranks"), "%d: %s", i,
                  line);
        make_current(2);
        request(d, KFIT_CONTROL_RELOAD);
        check_result(d, 15);
        check_result(d, i == 6 ? 8 : 15);
        CHECK_INT(header(d)->control, KFIT_CONTROL_RUN);
        CHECK_INT(header(d)->generation, i == 6 ? 2 : 1);
        kfit_dispatcher_destroy(d);
        if (i < 4)
            setenv(sizes[i], "1", 1); /* alone: may follow, as i == 6 does */
    }
}

static void off_and_on_work_meanwhile(void)
{
    float c;
    setup();
    publish_two();
    struct kfit_dispatcher *d = SERVE(.follow = true);
    check_result(d, 15);
    make_current(2);
    request(d, KFIT_CONTROL_RELOAD);
    request(d, KFIT_CONTROL_OFF);
    CHECK_INT(header(d)->control, KFIT_CONTROL_OFF | KFIT_CONTROL_RELOAD);
    CHECK_INT(gemm(d, 4, 2, &c), KFIT_REASON_OFF); /* takes it over all the same */
    CHECK_INT(header(d)->control, KFIT_CONTROL_OFF);
    CHECK_INT(header(d)->generation, 2);
    CHECK_INT(gemm(d, 4, 2, &c), KFIT_REASON_OFF);
    request(d, KFIT_CONTROL_RELOAD);
    CHECK_INT(gemm(d, 4, 2, &c), KFIT_REASON_OFF);
    request(d, KFIT_CONTROL_RUN);
    check_result(d, 8);
    kfit_dispatcher_destroy(d);
}

/* After a request the process is as if it had started just then. */
static void what_cannot_be_loaded_means_the_original(void)
{
    char path[300];
    setup();
    publish_two();
    struct kfit_dispatcher *d = SERVE(.follow = true);
    check_result(d, 15);
    snprintf(path, sizeof path, "%s/current", cache);
    kfit_test_write(path, "nonsense\n", 9);
    reload(d);
    check_gemm(d, 4, 2, KFIT_REASON_LOAD_FAILED);
    CHECK_SAYS(d, "current");
    CHECK(!unlink(path));
    reload(d);
    check_gemm(d, 4, 2, KFIT_REASON_NO_RECORD);
    make_current(2);
    reload(d);
    check_result(d, 8);
    snprintf(path, sizeof path, "%s/off", cache);
    kfit_test_write(path, "ticket 7\n", 9);
    reload(d);
    check_gemm(d, 4, 2, KFIT_REASON_OFF);
    CHECK(!unlink(path));
    reload(d);
    check_result(d, 8);
    const union kfit_key key = key_of(4);
    char text[KFIT_KEY_TEXT_MAX];
    kfit_key_format(&key, text, sizeof text);
    host_file("bans", text); /* the same generation, with one key less */
    reload(d);
    check_gemm(d, 4, 2, KFIT_REASON_BANNED);
    kfit_dispatcher_destroy(d);
}

static void following_ends_somewhere(void)
{
    setup();
    publish_two();
    struct kfit_dispatcher *d = SERVE(.follow = true);
    for (int i = 0; i < KFIT_FOLLOW_MAX + 2; i++) {
        make_current(i % 2 ? 1 : 2);
        reload(d);
        check_result(d, i >= KFIT_FOLLOW_MAX ? 15 : i % 2 ? 15 : 8);
    }
    CHECK_INT(header(d)->loaded.loads, 1 + KFIT_FOLLOW_MAX);
    CHECK_SAYS(d, "but no more: 16 were taken over; restart it");
    CHECK_INT(header(d)->control, KFIT_CONTROL_RUN);
    kfit_dispatcher_destroy(d);
}

/* ---- following with threads and forks ---- */

enum { THREADS = 4, ROUNDS = 14 };
static struct kfit_dispatcher *shared;
static bool stop;
static uint64_t calls, wrong;

static void *call_all_the_time(void *arg)
{
    int fresh = 10000 * (int)(intptr_t)arg;
    while (!__atomic_load_n(&stop, __ATOMIC_RELAXED)) {
        float c;
        enum kfit_reason r = gemm(shared, 4, 2, &c);
        bool good = r == KFIT_REASON_NONE ? c == 15 || c == 8 : r == KFIT_REASON_OFF && c == -1;
        r = gemm(shared, 12, 2, &c); /* a workspace in one, nothing in the other */
        good &=
            r == KFIT_REASON_NONE ? c == 15 : (r == KFIT_REASON_OFF || r == KFIT_REASON_NO_RECORD) && c == -1;
        const union kfit_key key = key_of(1000 + fresh++ % 2000);
        good &= !kfit_dispatch(shared, &key).kernel;
        __atomic_fetch_add(&calls, 3, __ATOMIC_RELAXED);
        __atomic_fetch_add(&wrong, !good, __ATOMIC_RELAXED);
    }
    return NULL;
}

/* Until the threads have gone round some times more. */
static void let_them_call(void)
{
    uint64_t until = __atomic_load_n(&calls, __ATOMIC_RELAXED) + 30 * THREADS;
    while (__atomic_load_n(&calls, __ATOMIC_RELAXED) < until)
        sched_yield();
}

static void start(pthread_t t[THREADS])
{
    setup();
    const struct kfit_record a[] = {record(4, multiplies, sizeof multiplies, 0, 0),
                                    record(12, uses_workspace, sizeof uses_workspace, 100000,
                                           KFIT_WS_SCRATCH)},
                             b = record(4, adds, sizeof adds, 0, 0);
    publish(a, 2);
    publish(&b, 1);
    make_current(1);
    shared = SERVE(.follow = true);
    for (intptr_t i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&t[i], NULL, call_all_the_time, (void *)i));
    let_them_call();
}

static void join(pthread_t t[THREADS])
{
    __atomic_store_n(&stop, true, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    CHECK_INT(wrong, 0);
}

static void take_over(uint64_t number)
{
    make_current(number);
    request(shared, KFIT_CONTROL_RELOAD);
    char words[32];
    snprintf(words, sizeof words, "generation %d: ", (int)number);
    while (strncmp(kfit_dispatcher_state(shared), words, strlen(words)) != 0)
        sched_yield();
}

static void many_threads_go_on_while_one_takes_over(void)
{
    pthread_t t[THREADS];
    start(t);
    for (int i = 0; i < ROUNDS; i++) {
        take_over(i % 2 ? 1 : 2);
        if (i % 3 == 0)
            request(shared, KFIT_CONTROL_OFF);
        let_them_call();
        request(shared, KFIT_CONTROL_RUN);
        let_them_call();
    }
    join(t);
    float c;
    gemm(shared, 4, 2, &c); /* whatever was asked for last is done */
    check_result(shared, 15);
    CHECK_INT(header(shared)->loaded.loads, 1 + ROUNDS);
    struct kfit_trace *trace;
    CHECK_OK(kfit_trace_read(kfit_recorder_path(kfit_dispatcher_recorder(shared)), &trace, &err), err);
    uint64_t counted = 0;
    for (size_t i = 0; i < kfit_trace_count(trace); i++)
        counted += kfit_slot_calls(kfit_trace_at(trace, i));
    for (unsigned i = 0; i < KFIT_TRACE_REASONS; i++)
        counted += header(shared)->unkeyed[i];
    CHECK_INT(counted, calls + 2);
    kfit_trace_destroy(trace);
    kfit_dispatcher_destroy(shared);
}

/* Forks fall anywhere, also into the loading of a generation by another thread. */
static void children_follow_on_their_own(void)
{
    pthread_t t[THREADS];
    SKIP_WHERE_FORK_HANGS();
    start(t);
    for (int i = 0; i < ROUNDS; i++) {
        make_current(i % 2 ? 1 : 2);
        request(shared, KFIT_CONTROL_RELOAD);
        fflush(stdout);
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (!pid) {
            float c;
            alarm(60);
            bool good = gemm(shared, 4, 2, &c) == KFIT_REASON_NONE && (c == 15 || c == 8);
            good = good && header(shared)->pid == getpid();
            for (int k = 1; k <= 2 && good; k++) { /* no one else can have asked this process */
                make_current((uint64_t)k);
                request(shared, KFIT_CONTROL_RELOAD);
                gemm(shared, 4, 2, &c);
                good = gemm(shared, 4, 2, &c) == KFIT_REASON_NONE && c == (k == 1 ? 15 : 8);
            }
            _exit(good ? 0 : 3);
        }
        int status;
        waitpid(pid, &status, 0);
        CHECK_INT(status, 0);
    }
    join(t);
    kfit_dispatcher_destroy(shared);
}

static const struct kfit_test tests[] = {
    TEST(new_generations_are_followed),
    TEST(who_does_not_follow_forgets_the_request),
    TEST(off_and_on_work_meanwhile),
    TEST(what_cannot_be_loaded_means_the_original),
    TEST(following_ends_somewhere),
    TEST(many_threads_go_on_while_one_takes_over),
    TEST(children_follow_on_their_own),
};
TEST_MAIN(tests)
