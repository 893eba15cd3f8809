/* What an operator may ask of a process that serves: bans of the host, allowed origins, strict environments,
 * pinned and followed generations, and what is remembered of crashes. */
#include "dispatching.h"

#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kfit/state.h"

static char state[200];

static struct kfit_dispatcher *serve(struct kfit_dispatcher_params p)
{
    struct kfit_dispatcher *d;
    snprintf(state, sizeof state, "%s/state", kfit_test_dir());
    p.mode = p.mode ? p.mode : KFIT_MODE_BOTH;
    p.cache_dir = cache;
    p.trace_dir = traces;
    p.state_dir = state;
    p.env = &env;
    CHECK_OK(kfit_dispatcher_create(&d, &p, &err), err);
    return d;
}
#define SERVE(...) serve((struct kfit_dispatcher_params){__VA_ARGS__})

#define CHECK_SAYS(d, words)                                                                                 \
    CHECK_MSG(strstr(header(d)->state_text, words), "\"%s\" does not say \"%s\"", header(d)->state_text,     \
              words)

static struct kfit_record from(int ldb, const char *origin)
{
    struct kfit_record r = record(ldb, multiplies, sizeof multiplies, 0, 0);
    snprintf(r.origin, sizeof r.origin, "%s", origin);
    return r;
}

static void host_file(const char *name, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", state, name);
    mkdir(state, 0700);
    kfit_test_write(path, text, strlen(text));
}

static void explain(struct kfit_dispatcher *d, int ldb, const char *words)
{
    char text[2048];
    const union kfit_key key = key_of(ldb);
    kfit_dispatcher_explain(d, &key, text, sizeof text);
    CHECK_MSG(strstr(text, words), "%s does not say %s", text, words);
}

/* ---- allowed origins ---- */

static void only_allowed_origins_run(void)
{
    setup();
    const struct kfit_record r[] = {from(4, "seed:colblock"), from(8, "person:alice"),
                                    from(12, "person:alicia"), from(16, "llm:some-model")};
    static const struct {
        const char *list;
        unsigned runs; /* bit i: record i */
    } table[] = {
        {NULL, 15},
        {"*", 15},
        {"seed:*", 1},
        {"person:alice", 2},
        {"person:alic*", 6},
        {"person:*,seed:*", 7},
        {" seed:colblock \n, llm:* ", 9},
        {"nobody", 0},
        {"seed:", 0},
        {"llm:some-model-2", 0},
    };
    publish(r, 4);
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++) {
        struct kfit_dispatcher *d = SERVE(.allow = table[i].list);
        CHECK_INT(header(d)->state_reason, KFIT_REASON_NONE);
        for (int k = 0; k < 4; k++)
            check_gemm(d, 4 + 4 * k, 2, table[i].runs >> k & 1 ? KFIT_REASON_NONE : KFIT_REASON_POLICY);
        if (table[i].runs != 15) {
            char words[32];
            snprintf(words, sizeof words, ", %d not allowed", 4 - __builtin_popcount(table[i].runs));
            CHECK_SAYS(d, words);
        }
        kfit_dispatcher_destroy(d);
    }
    struct kfit_dispatcher *d = SERVE(.allow = "seed:*");
    explain(d, 16, "not allowed by policy\norigin: llm:some-model, which is not among the allowed ones");
    explain(d, 4, "runs a kfit kernel");
    union kfit_key key = key_of(16);
    CHECK_INT(kfit_dispatch(d, &key).slot->count[KFIT_REASON_POLICY], 1);
    kfit_dispatcher_destroy(d);
}

/* Nobody knows whom a list that cannot be read allows. */
static void a_list_that_cannot_be_read_allows_nothing(void)
{
    char longer[200] = "";
    memset(longer, 'x', sizeof longer - 1);
    const char *const lists[] = {"",
                                 " , ",
                                 "seed:*x",
                                 "*:alice",
                                 "seed:\033[31m*",
                                 "se\xff"
                                 "ed:*",
                                 longer};
    setup();
    publish_usual();
    for (unsigned i = 0; i < sizeof lists / sizeof *lists; i++) {
        struct kfit_dispatcher *d = SERVE(.allow = lists[i]);
        CHECK_INT(header(d)->state_reason, KFIT_REASON_POLICY);
        CHECK_SAYS(d, "allowed origins: ");
        for (const char *p = header(d)->state_text; *p; p++)
            CHECK(*p >= ' ' && *p <= '~');
        check_gemm(d, 4, 2, KFIT_REASON_POLICY);
        kfit_dispatcher_destroy(d);
    }
}

static void more_origins_than_are_remembered(void)
{
    enum { N = 300 };
    static struct kfit_record r[N];
    setup();
    for (int i = 0; i < N; i++) {
        char origin[32];
        snprintf(origin, sizeof origin, "seed:%d", i);
        r[i] = from(4 + 4 * i, origin);
    }
    publish(r, N);
    struct kfit_dispatcher *d = SERVE(.allow = "seed:299");
    check_gemm(d, 4, 2, KFIT_REASON_POLICY);
    check_gemm(d, 4 * N, 2, KFIT_REASON_NONE);
    explain(d, 4, "origin: seed:0,");
    explain(d, 4 * (N - 1), "not allowed by policy\n");
    kfit_dispatcher_destroy(d);
}

/* ---- bans of the host, pinned generations, strict ---- */

static void bans_of_the_host_are_honoured(void)
{
    char text[1200], key[KFIT_KEY_TEXT_MAX];
    setup();
    publish_usual();
    kfit_dispatcher_destroy(SERVE(0));
    const union kfit_key known = key_of(4);
    kfit_key_format(&known, key, sizeof key);
    snprintf(text, sizeof text, "# slow since the BIOS update, ticket 12\n%s # until Friday\n\n#%s\n", key,
             key);
    host_file("bans", text);
    struct kfit_dispatcher *d = SERVE(0);
    check_gemm(d, 4, 2, KFIT_REASON_BANNED);
    check_gemm(d, 12, 2, KFIT_REASON_NONE);
    CHECK_INT(header(d)->loaded.banned, 1);
    kfit_dispatcher_destroy(d);
    snprintf(text, sizeof text, "#%s\n", key);
    host_file("bans", text);
    check_gemm(d = SERVE(0), 4, 2, KFIT_REASON_NONE);
    kfit_dispatcher_destroy(d);
    host_file("bans", "gemm/f32 # cannot be read\n");
    check_gemm(d = SERVE(0), 12, 2, KFIT_REASON_POLICY);
    CHECK_SAYS(d, "the bans of this host: \"gemm/f32\" is not a key");
    kfit_dispatcher_destroy(d);
    snprintf(text, sizeof text, "%s/bans", state);
    CHECK(!unlink(text) && !mkdir(text, 0700));
    check_gemm(d = SERVE(0), 12, 2, KFIT_REASON_POLICY);
    CHECK_SAYS(d, "bans: not a regular file");
    kfit_dispatcher_destroy(d);
    d = SERVE(.mode = KFIT_MODE_RECORD); /* bans nothing */
    check_gemm(d, 12, 2, KFIT_REASON_OFF);
    kfit_dispatcher_destroy(d);
}

static void a_pinned_generation_or_none(void)
{
    char path[300], digest[65], wrong[65];
    uint64_t number;
    uint8_t sha256[32];
    setup();
    publish_usual();
    CHECK_OK(kfit_generation_current(cache, &number, sha256, &err), err);
    kfit_hex(sha256, 32, digest);
    memset(wrong, 'a', 64);
    wrong[64] = '\0';
    struct kfit_record r = record(4, adds, sizeof adds, 0, 0);
    publish(&r, 1);
    static const struct {
        const char *which;
        uint64_t runs;
    } table[] = {{NULL, 2}, {"", 2}, {"1", 1}, {"2", 2}};
    for (unsigned i = 0; i < 4; i++) {
        struct kfit_dispatcher *d = SERVE(.generation = table[i].which);
        CHECK_INT(header(d)->generation, table[i].runs);
        kfit_dispatcher_destroy(d);
    }
    struct kfit_dispatcher *d = SERVE(.generation = digest);
    CHECK_INT(header(d)->generation, 1);
    check_gemm(d, 4, 2, KFIT_REASON_NONE);
    kfit_dispatcher_destroy(d);
    snprintf(path, sizeof path, "%s/generations/1.mdb", cache);
    CHECK(!unlink(path));
    snprintf(path, sizeof path, "%s/generations/1.json", cache);
    CHECK(!unlink(path));
    const char *const missing[] = {"1", digest, wrong, "3", "99999999999999999999", "1 2", "-1", "../1"};
    for (unsigned i = 0; i < sizeof missing / sizeof *missing; i++) {
        char words[100];
        d = SERVE(.generation = missing[i]);
        check_gemm(d, 4, 2, i < 4 ? KFIT_REASON_NO_RECORD : KFIT_REASON_LOAD_FAILED);
        CHECK_INT(header(d)->generation, 0);
        snprintf(words, sizeof words, "records only: pinned to generation %s: ", missing[i]);
        CHECK_SAYS(d, words);
        kfit_dispatcher_destroy(d);
    }
}

static void strict_makes_soft_hard(void)
{
    setup();
    struct kfit_env old = env;
    struct kfit_record r[] = {record(4, multiplies, sizeof multiplies, 0, 0),
                              record(12, multiplies, sizeof multiplies, 0, 0)};
    struct kfit_env envs[2];
    kfit_env_host(&env, 2, "a newer BLAS", NULL);
    r[1].env_soft = env.soft_hash;
    envs[0] = old, envs[1] = env;
    uint64_t number;
    struct kfit_publish_params p = {.dir = cache, .records = r, .count = 2, .envs = envs, .env_count = 2};
    CHECK_OK(kfit_generation_publish(&p, &number, &err), err);
    struct kfit_dispatcher *d = SERVE(0);
    CHECK_STR(header(d)->state_text, "generation 1: 2 kernels (1 stale), 0 kept, 0 banned, 0 not usable");
    check_gemm(d, 4, 2, KFIT_REASON_NONE);
    explain(d, 4, "; stale: ");
    kfit_dispatcher_destroy(d);
    d = SERVE(.strict = true);
    CHECK_STR(header(d)->state_text,
              "generation 1: 1 kernels (1 stale, not run), 0 kept, 0 banned, 0 not usable");
    check_gemm(d, 4, 2, KFIT_REASON_ENV);
    check_gemm(d, 12, 2, KFIT_REASON_NONE);
    explain(d, 4, "another environment; tuned with another compiler or BLAS, which counts (KFIT_STRICT)");
    kfit_dispatcher_destroy(d);
}

/* ---- crashes remembered ---- */

static void crash(struct kfit_dispatcher *d)
{
    int st;
    fflush(stdout);
    const struct kfit_trace_header me = *header(d);
    pid_t pid = fork();
    if (!pid) {
        static struct kfit_state_mark mark;
        struct kfit_trace_header h = me;
        h.start_ticks++;
        CHECK_OK(kfit_state_mark(state, &h, h.generation, h.generation_digest, &mark, &err), err);
        raise(SIGKILL);
    }
    CHECK(waitpid(pid, &st, 0) == pid && WIFSIGNALED(st));
}

static void a_generation_that_crashed_twice_is_held(void)
{
    unsigned cleared;
    setup();
    publish_usual();
    struct kfit_dispatcher *d;
    for (int i = 0; i < 2; i++) {
        check_gemm(d = SERVE(0), 4, 2, KFIT_REASON_NONE);
        crash(d);
        kfit_dispatcher_destroy(d);
    }
    d = SERVE(0);
    CHECK_SAYS(d,
               "records only: generation 1 is held back, this program ended uncleanly 2 times in 10 minutes, "
               "last at 20");
    CHECK_SAYS(d, "Z; `kfit on` clears it");
    check_gemm(d, 4, 2, KFIT_REASON_POLICY);
    CHECK_INT(header(d)->generation, 1);
    explain(d, 4, "not allowed by policy\nstate: records only: generation 1 is held back");
    kfit_dispatcher_destroy(d);
    struct kfit_record r = record(4, adds, sizeof adds, 0, 0);
    publish(&r, 1); /* another generation is not blamed */
    d = SERVE(0);
    CHECK_INT(header(d)->state_reason, KFIT_REASON_NONE);
    kfit_dispatcher_destroy(d);
    d = SERVE(.generation = "1");
    CHECK_INT(header(d)->state_reason, KFIT_REASON_POLICY);
    kfit_dispatcher_destroy(d);
    d = SERVE(.generation = "1", .label = "another deployment");
    CHECK_INT(header(d)->state_reason, KFIT_REASON_NONE);
    kfit_dispatcher_destroy(d);
    CHECK_OK(kfit_state_clear(state, &cleared, &err), err);
    CHECK_INT(cleared, 1);
    d = SERVE(.generation = "1");
    check_gemm(d, 4, 2, KFIT_REASON_NONE);
    kfit_dispatcher_destroy(d);
}

static char line[600];

static void keep_line(void *ctx, enum kfit_log_level level, const char *text)
{
    (void)ctx;
    snprintf(line, sizeof line, "%d %s", level, text);
}

/* What nobody asked for fails quietly, what was asked for does not; both serve. */
static void a_state_that_cannot_be_used_is_said(void)
{
    setup();
    const struct kfit_record r = record(4, multiplies, sizeof multiplies, 0, 0);
    publish(&r, 1);
    kfit_dispatcher_destroy(SERVE(0));
    CHECK(!mkdir(state, 0700) && !chmod(state, 0777));
    for (int optional = 0; optional < 2; optional++) {
        line[0] = '\0';
        struct kfit_dispatcher *d =
            SERVE(.log = {.fn = keep_line, .level = KFIT_LOG_WARN}, .state_optional = optional);
        check_gemm(d, 4, 2, KFIT_REASON_NONE);
        CHECK_MSG(optional ? !line[0] : strstr(line, "crashes may not be remembered") && strstr(line, state),
                  "said: %s", line);
        kfit_dispatcher_destroy(d);
    }
}

/* ---- following ---- */

static void request(struct kfit_dispatcher *d, enum kfit_control control)
{
    CHECK_OK(kfit_trace_set_control(kfit_recorder_path(kfit_dispatcher_recorder(d)), control, &err), err);
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
    float c;
    check_result(d, 15);
    snprintf(path, sizeof path, "%s/current", cache);
    kfit_test_write(path, "nonsense\n", 9);
    request(d, KFIT_CONTROL_RELOAD);
    gemm(d, 4, 2, &c);
    check_gemm(d, 4, 2, KFIT_REASON_LOAD_FAILED);
    CHECK_SAYS(d, "current");
    CHECK(!unlink(path));
    request(d, KFIT_CONTROL_RELOAD);
    gemm(d, 4, 2, &c);
    check_gemm(d, 4, 2, KFIT_REASON_NO_RECORD);
    make_current(2);
    request(d, KFIT_CONTROL_RELOAD);
    gemm(d, 4, 2, &c);
    check_result(d, 8);
    snprintf(path, sizeof path, "%s/off", cache);
    kfit_test_write(path, "ticket 7\n", 9);
    request(d, KFIT_CONTROL_RELOAD);
    gemm(d, 4, 2, &c);
    check_gemm(d, 4, 2, KFIT_REASON_OFF);
    CHECK(!unlink(path));
    request(d, KFIT_CONTROL_RELOAD);
    gemm(d, 4, 2, &c);
    check_result(d, 8);
    const union kfit_key key = key_of(4);
    char text[KFIT_KEY_TEXT_MAX];
    kfit_key_format(&key, text, sizeof text);
    host_file("bans", text); /* the same generation, with one key less */
    request(d, KFIT_CONTROL_RELOAD);
    gemm(d, 4, 2, &c);
    check_gemm(d, 4, 2, KFIT_REASON_BANNED);
    kfit_dispatcher_destroy(d);
}

static void following_ends_somewhere(void)
{
    float c;
    setup();
    publish_two();
    struct kfit_dispatcher *d = SERVE(.follow = true);
    for (int i = 0; i < KFIT_FOLLOW_MAX + 2; i++) {
        make_current(i % 2 ? 1 : 2);
        request(d, KFIT_CONTROL_RELOAD);
        gemm(d, 4, 2, &c);
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
    TEST(only_allowed_origins_run),
    TEST(a_list_that_cannot_be_read_allows_nothing),
    TEST(more_origins_than_are_remembered),
    TEST(bans_of_the_host_are_honoured),
    TEST(a_pinned_generation_or_none),
    TEST(strict_makes_soft_hard),
    TEST(a_generation_that_crashed_twice_is_held),
    TEST(a_state_that_cannot_be_used_is_said),
    TEST(new_generations_are_followed),
    TEST(who_does_not_follow_forgets_the_request),
    TEST(off_and_on_work_meanwhile),
    TEST(what_cannot_be_loaded_means_the_original),
    TEST(following_ends_somewhere),
    TEST(many_threads_go_on_while_one_takes_over),
    TEST(children_follow_on_their_own),
};
TEST_MAIN(tests)
