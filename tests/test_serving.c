/* What an operator may ask of a process that serves: bans of the host, allowed origins, strict environments, pinned generations;
 * and what is remembered of crashes. Followed generations are test_following's. */
#include "dispatching.h"

#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kfit/state.h"

static struct kfit_record from(int ldb, const char *origin)
{
    struct kfit_record r = record(ldb, multiplies, sizeof multiplies, 0, 0);
    snprintf(r.origin, sizeof r.origin, "%s", origin);
    return r;
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

static const struct kfit_test tests[] = {
    TEST(only_allowed_origins_run),
    TEST(a_list_that_cannot_be_read_allows_nothing),
    TEST(more_origins_than_are_remembered),
    TEST(bans_of_the_host_are_honoured),
    TEST(a_pinned_generation_or_none),
    TEST(strict_makes_soft_hard),
    TEST(a_generation_that_crashed_twice_is_held),
    TEST(a_state_that_cannot_be_used_is_said),
};
TEST_MAIN(tests)
