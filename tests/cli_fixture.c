/* Makes what test_cli.py looks at with kfit, through the public headers:
 *
 *   cli_fixture trace DIR LABEL [KEY CALLS HITS]...   a trace of this process ("" for DIR: $KFIT_TRACE); a KEY of
 *                                                     "@N" stands for N keys
 *   cli_fixture kill ...                              the same, then SIGKILL to itself
 *   cli_fixture hold DIR LABEL ...                    the same, prints the path; then for each line read the
 *                                                     control word; "+I CALLS HITS" first adds to key I,
 *                                                     "g N" first goes to generation N; of a GPU's trace "c I D"
 *                                                     captures a graph of key I twice, decided D, and a kernel
 *                                                     norm, "r G N" launches graph G N times, "x G" destroys
 *                                                     it, "f" leaves no room for what graphs hold, "m N" has N
 *                                                     captures with kernels of kfit's under way
 *   cli_fixture stage CACHE KEY RATIO [CODE]          a staged winner; with CODE, a negative kept for that reason
 *                                                     $FIXTURE_BLAS: what it beat; $FIXTURE_ORIGIN; $FIXTURE_IMAGE: its
 *                                                     code in hex (else it returns at once); $FIXTURE_WORKSPACE:
 *                                                     bytes that it needs, of a GPU's memory
 *   cli_fixture foreign CACHE KEY                     a staged winner for another machine
 *   cli_fixture wait CACHE KEY                        an evaluation that waits for a person
 *   cli_fixture ban CACHE KEY
 *   cli_fixture crash STATE CACHE LABEL               starts with the current generation, runs a kernel of it if it
 *                                                     may ("records" otherwise), then SIGKILL
 *
 * $FIXTURE sets what a dispatcher would: "generation,state,winners,stale,negatives,banned,unusable", state as
 * the number of a reason. $FIXTURE_GPU=0 makes it the trace of that GPU, in which kernels gemm (in known ops) and
 * norm were launched 300 and 100 times; $FIXTURE_GRAPHS: lines as above, separated by ";".
 * $FIXTURE_HOST: the process has a trace of the host as well, with 5 calls of the first key. $FIXTURE_FOLLOWS: the cache whose new generations it
 * follows.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kfit/env.h"
#include "kfit/generation.h"
#include "kfit/op.h"
#include "kfit/receipt.h"
#include "kfit/state.h"
#include "kfit/store.h"
#include "kfit/trace.h"

static int fail(const char *what, const struct kfit_error *err)
{
    fprintf(stderr, "cli_fixture: %s: %s\n", what, err->text);
    return 1;
}

enum { SLOTS = 16384, NOTED = 16 };

/* Slots are kept for the first keys only. */
static bool add_keys(struct kfit_recorder *r, uint32_t library, const char *text, const char *calls_text,
                     const char *hits_text, struct kfit_trace_slot **noted, unsigned *count)
{
    struct kfit_error err = {0};
    unsigned n = text[0] == '@' ? (unsigned)atoi(text + 1) : 1;
    for (unsigned i = 0; i < n; i++) {
        char many[KFIT_KEY_TEXT_MAX];
        union kfit_key key;
        snprintf(many, sizeof many,
                 "gemm/f32,f32,f32/acc=f32/m=4,n=%u,k=64/nn/lda=64,ldb=%u,ldc=%u/alpha=1,beta=0/align=16",
                 4 + 4 * i, 4 + 4 * i, 4 + 4 * i);
        if (kfit_key_parse(text[0] == '@' ? many : text, &key, &err) != KFIT_OK)
            return fail("key", &err), false;
        struct kfit_trace_slot *s = kfit_recorder_slot(r, &key, kfit_key_hash(&key));
        uint64_t calls = strtoull(calls_text, NULL, 10), hits = strtoull(hits_text, NULL, 10);
        s->generic = library;
        s->count[KFIT_REASON_NONE] = hits;
        s->count[KFIT_REASON_NO_RECORD] = calls - hits;
        if (*count < NOTED)
            noted[(*count)++] = s;
    }
    return true;
}

static void tell(struct kfit_trace_header *h)
{
    unsigned state = 0, w = 0, stale = 0, n = 0, b = 0, u = 0;
    unsigned long long g = 0;
    const char *text = getenv("FIXTURE");
    const char *follows = getenv("FIXTURE_FOLLOWS");
    h->follows = follows != NULL;
    snprintf(h->cache, sizeof h->cache, "%s", follows ? follows : "");
    if (!text || sscanf(text, "%llu,%u,%u,%u,%u,%u,%u", &g, &state, &w, &stale, &n, &b, &u) < 2)
        return;
    h->generation = g;
    memset(h->generation_digest, (int)g, sizeof h->generation_digest);
    h->state_reason = state;
    struct kfit_manifest m;
    const char *cache = getenv("KFIT_CACHE"); /* then it is a generation that is really there */
    if (cache && kfit_manifest_read(cache, g, &m, NULL) == KFIT_OK) {
        memcpy(h->generation_digest, m.sha256, sizeof h->generation_digest);
        snprintf(h->cache, sizeof h->cache, "%.200s", cache);
    }
    h->loaded = (struct kfit_trace_loaded){h->start_unix_ns, w, stale, n, b, u, 1};
}

/* What a GPU's trace has beside slots. */
static struct {
    struct kfit_recorder *recorder;
    struct kfit_trace_graph *graph[NOTED];
    unsigned graphs;
} gpu;

static void launch_kernels(void)
{
    kfit_recorder_kernel(gpu.recorder, "gemm", 0xabc)->launches[KFIT_LAUNCHED_IN_OP] = 300;
    kfit_recorder_kernel(gpu.recorder, "norm", 0)->launches[KFIT_LAUNCHED_OTHER] = 100;
}

static void capture(const struct kfit_trace_slot *s, unsigned decision)
{
    const struct kfit_trace_header *h = kfit_recorder_header(gpu.recorder);
    const struct kfit_trace_item call = {kfit_item_slot(h, s), (uint16_t)decision, 1},
                                 norm = {kfit_item_kernel(h, kfit_recorder_kernel(gpu.recorder, "norm", 0)),
                                         KFIT_LAUNCHED_OTHER, 1};
    const struct kfit_trace_item items[] = {call, call, norm};
    gpu.graph[gpu.graphs++ % NOTED] = kfit_recorder_graph(gpu.recorder, 0, items, 3);
}

static void fill(const struct kfit_trace_slot *s)
{
    const struct kfit_trace_header *h = kfit_recorder_header(gpu.recorder);
    struct kfit_trace_item *items = malloc(h->live.item_count * sizeof *items);
    for (uint32_t i = 0; items && i < h->live.item_count; i++)
        items[i] = (struct kfit_trace_item){kfit_item_slot(h, s), 1 + i % 2, 1}; /* no two alike in a row */
    if (items)
        gpu.graph[gpu.graphs++ % NOTED] = kfit_recorder_graph(gpu.recorder, 0, items, h->live.item_count);
    free(items);
}

static void follow(const char *line, struct kfit_trace_header *h, struct kfit_trace_slot **noted,
                   unsigned count)
{
    unsigned i, n;
    unsigned long long calls, hits, g;
    if (sscanf(line, "c %u %u", &i, &n) == 2 && i < count)
        capture(noted[i], n);
    else if (sscanf(line, "r %u %u", &i, &n) == 2 && i < gpu.graphs)
        gpu.graph[i]->launches += n;
    else if (line[0] == 'f' && count)
        fill(noted[0]);
    else if (sscanf(line, "x %u", &i) == 1 && i < gpu.graphs)
        gpu.graph[i]->state = KFIT_GRAPH_GONE;
    else if (sscanf(line, "m %u", &i) == 1)
        __atomic_store_n(&h->making, i, __ATOMIC_RELEASE);
    if (sscanf(line, "+%u %llu %llu", &i, &calls, &hits) == 3 && i < count) {
        noted[i]->count[KFIT_REASON_NONE] += hits;
        noted[i]->count[KFIT_REASON_NO_RECORD] += calls - hits;
    } else if (sscanf(line, "g %llu", &g) == 1) {
        h->generation = g;
        memset(h->generation_digest, (int)g, sizeof h->generation_digest);
    }
}

/* Left as it is when the process ends. */
static bool host_trace(const struct kfit_recorder_params *p, const char *key_text)
{
    struct kfit_error err = {0};
    struct kfit_recorder *r;
    struct kfit_trace_slot *slot[NOTED];
    unsigned count = 0;
    if (kfit_recorder_create(&r, p, &err) != KFIT_OK)
        return fail("recorder", &err), false;
    kfit_env_host(&kfit_recorder_header(r)->env, 1, "Fixture 1", NULL);
    return add_keys(r, 0, key_text, "5", "0", slot, &count);
}

static int trace(const char *how, int argc, char **argv)
{
    struct kfit_error err = {0};
    struct kfit_recorder *r;
    struct kfit_trace_slot *noted[NOTED];
    unsigned count = 0;
    struct kfit_recorder_params p = {.dir = argv[0][0] ? argv[0] : getenv("KFIT_TRACE"),
                                     .label = argv[1],
                                     .slot_count = 1024,
                                     .mode = KFIT_MODE_BOTH};
    for (int i = 2; i + 2 < argc; i += 3)
        if (argv[i][0] == '@')
            p.slot_count = SLOTS;
    if (getenv("FIXTURE_HOST") && !host_trace(&p, argv[2]))
        return 1;
    const bool on_gpu = getenv("FIXTURE_GPU");
    p.live = on_gpu;
    p.suffix = on_gpu ? "-cuda0" : NULL;
    if (kfit_recorder_create(&r, &p, &err) != KFIT_OK)
        return fail("recorder", &err);
    struct kfit_trace_header *h = kfit_recorder_header(r);
    struct kfit_generic g = {.path = "/usr/lib/libfixture.so",
                             .naming = "cblas_%s",
                             .config = "Fixture 1",
                             .threads = 1,
                             .int_bits = 32};
    if (on_gpu)
        kfit_env_cuda(&h->env, "sm_90", "Fixture GPU", 132, "13.0", "Fixture 1", NULL);
    else
        kfit_env_host(&h->env, 1, "Fixture 1", NULL);
    gpu.recorder = r;
    if (on_gpu)
        launch_kernels();
    uint32_t library = kfit_recorder_generic(r, &g);
    const char *digest = getenv("FIXTURE_GENERATION"); /* as if it ran that one */
    for (unsigned i = 0; digest && i < sizeof h->generation_digest; i++)
        sscanf(digest + 2 * i, "%2hhx", &h->generation_digest[i]);
    h->generation = digest ? 1 : h->generation;
    snprintf(h->state_text, sizeof h->state_text, "a fixture\n\033[31m");
    tell(h);
    for (int i = 2; i + 2 < argc; i += 3)
        if (!add_keys(r, library, argv[i], argv[i + 1], argv[i + 2], noted, &count))
            return 1;
    char *lines = getenv("FIXTURE_GRAPHS");
    for (char *line = lines ? strtok(lines, ";") : NULL; line; line = strtok(NULL, ";"))
        follow(line, h, noted, count);
    printf("%s\n", kfit_recorder_path(r));
    fflush(stdout);
    if (!strcmp(how, "kill"))
        raise(SIGKILL);
    for (char line[64]; !strcmp(how, "hold") && fgets(line, sizeof line, stdin);) {
        follow(line, h, noted, count);
        printf("%u\n", __atomic_load_n(&h->control, __ATOMIC_RELAXED));
        fflush(stdout);
    }
    kfit_recorder_destroy(r);
    return 0;
}

static enum kfit_status put_envs(struct kfit_store *s, const struct kfit_env *env, struct kfit_error *err)
{
    const struct {
        uint64_t hash;
        const char *text;
    } both[] = {{env->hard_hash, env->hard}, {env->soft_hash, env->soft}};
    enum kfit_status st = KFIT_OK;
    for (int e = 0; e < 2 && st == KFIT_OK; e++) {
        uint8_t key[8];
        for (int i = 0; i < 8; i++)
            key[i] = (uint8_t)(both[e].hash >> (56 - 8 * i));
        st = kfit_store_put(s, KFIT_TABLE_ENVS, key, sizeof key, both[e].text, strlen(both[e].text), err);
    }
    return st;
}

/* The generic takes 1000 ns in all of them, the floor is 200 ns, not known for n = 128; the image returns at once. */
static enum kfit_status stage(struct kfit_store *s, const union kfit_key *key, double ratio, const char *code,
                              bool foreign, struct kfit_error *err)
{
    static struct kfit_receipt receipt;
    struct kfit_env env;
    struct kfit_record r = {
        .key = *key,
        .kind = code ? KFIT_RECORD_NEGATIVE : KFIT_RECORD_WINNER,
        .op_version = kfit_op_of(key)->version,
        .made_unix_s = 1700000000,
        .ns_candidate = 1000 / ratio,
        .ns_incumbent = 1000,
        .ns_generic = 1000,
        .ratio = ratio,
        .lo = ratio - 0.125,
        .hi = ratio + 0.125,
        .origin = "seed:fixture",
    };
    const char *blas = getenv("FIXTURE_BLAS"), *origin = getenv("FIXTURE_ORIGIN");
    if (origin)
        snprintf(r.origin, sizeof r.origin, "%s", origin);
    kfit_env_host(&env, 1, blas ? blas : "Fixture 1", "gcc 0");
    const char *workspace = getenv("FIXTURE_WORKSPACE");
    if (workspace)
        kfit_env_cuda(&env, "sm_90a", "Fixture GPU", 100, "CUDA 13.0", blas ? blas : "Fixture 1", "NVRTC 13.0");
    if (foreign) {
        strcpy(env.hard, "device=host;isa=x86-64-v3;model=Another;threads=1;");
        env.hard_hash = kfit_text_hash(env.hard);
    }
    r.env_hard = env.hard_hash;
    r.env_soft = env.soft_hash;
    memset(r.source_digest, (int)(ratio * 16), sizeof r.source_digest);
    if (!code) {
        static uint8_t image[64] = {0xc3};
        const char *hex = getenv("FIXTURE_IMAGE");
        r.image = image;
        for (r.image_bytes = !hex;
             hex && r.image_bytes < sizeof image && sscanf(hex, "%2hhx", &image[r.image_bytes]) == 1;
             hex += 2)
            r.image_bytes++;
        r.plan = (struct kfit_plan){.launch_count = 1,
                                    .workspace_bytes = workspace ? strtoull(workspace, NULL, 10) : 0};
        r.plan.launches[0] = (struct kfit_launch){
            .entry = "kfit_main", .grid = {1, 1, 1}, .block = {1, 1, 1}, .cluster = {1, 1, 1}};
    }
    receipt = (struct kfit_receipt){.key = *key,
                                    .name = "fixture",
                                    .env = env,
                                    .plan = r.plan,
                                    .bound_ns = r.key.gemm.n == 128 ? 0 : 200,
                                    .verdict = code ? KFIT_VERDICT_KEPT : KFIT_VERDICT_PROMOTED,
                                    .code = code ? kfit_code_parse(code) : KFIT_CODE_NONE};
    memcpy(receipt.digest, r.source_digest, sizeof receipt.digest);

    uint8_t staged[KFIT_STORE_KEY_MAX], with_digest[KFIT_STORE_KEY_MAX];
    size_t bytes = kfit_record_size(&r);
    void *value = malloc(bytes);
    char *json = kfit_receipt_to_json(&receipt);
    if (!value || !json)
        return kfit_fail(err, KFIT_E_NOMEM, "out of memory");
    kfit_record_encode(&r, value);
    size_t n = kfit_store_key(with_digest, r.env_hard, key, r.source_digest);
    const struct kfit_store_op ops[] = {
        {KFIT_TABLE_STAGED, staged, kfit_store_key(staged, r.env_hard, key, NULL), value, bytes},
        {KFIT_TABLE_RECEIPTS, with_digest, n, json, strlen(json)},
        {KFIT_TABLE_EVALS, with_digest, n, json, strlen(json)},
    };
    enum kfit_status st = put_envs(s, &env, err);
    if (st == KFIT_OK)
        st = kfit_store_apply(s, ops, sizeof ops / sizeof *ops, err);
    free(value);
    free(json);
    return st;
}

static enum kfit_status wait_for_person(struct kfit_store *s, const union kfit_key *key,
                                        struct kfit_error *err)
{
    static struct kfit_receipt r;
    uint8_t k[KFIT_STORE_KEY_MAX];
    r = (struct kfit_receipt){
        .key = *key, .name = "too good", .verdict = KFIT_VERDICT_REVIEW, .code = KFIT_CODE_SUSPECT_ROOFLINE};
    kfit_env_host(&r.env, 1, "Fixture 1", "gcc 0");
    char *json = kfit_receipt_to_json(&r);
    enum kfit_status st = kfit_store_put(
        s, KFIT_TABLE_EVALS, k, kfit_store_key(k, r.env.hard_hash, key, r.digest), json, strlen(json), err);
    free(json);
    return st;
}

static int cache(const char *how, int argc, char **argv)
{
    struct kfit_error err = {0};
    struct kfit_store *s;
    union kfit_key key;
    if (kfit_key_parse(argv[1], &key, &err) != KFIT_OK ||
        kfit_store_open(argv[0], KFIT_STORE_WRITE, &s, &err) != KFIT_OK)
        return fail("store", &err);
    enum kfit_status st =
        !strcmp(how, "ban")       ? kfit_store_put(s, KFIT_TABLE_BANS, key.bytes, key.h.len, "test", 4, &err)
        : !strcmp(how, "wait")    ? wait_for_person(s, &key, &err)
        : !strcmp(how, "foreign") ? stage(s, &key, 2.5, NULL, true, &err)
                                  : stage(s, &key, atof(argv[2]), argc > 3 ? argv[3] : NULL, false, &err);
    kfit_store_close(s);
    return st == KFIT_OK ? 0 : fail(how, &err);
}

static int crash(const char *state, const char *dir, const char *label)
{
    static struct kfit_state_mark mark;
    struct kfit_error err = {0};
    struct kfit_recorder *r;
    struct kfit_state_held held;
    const struct kfit_recorder_params p = {.label = label, .mode = KFIT_MODE_BOTH};
    uint64_t number;
    uint8_t digest[32];
    bool is_held;
    enum kfit_status s = kfit_recorder_create(&r, &p, &err);
    if (s == KFIT_OK)
        s = kfit_generation_current(dir, &number, digest, &err);
    if (s == KFIT_OK)
        s = kfit_state_check(state, kfit_recorder_header(r), number, digest, &held, &is_held, &err);
    if (s == KFIT_OK && is_held)
        puts("records"), fflush(stdout);
    else if (s == KFIT_OK)
        s = kfit_state_mark(state, kfit_recorder_header(r), number, digest, &mark, &err);
    if (s == KFIT_OK)
        raise(SIGKILL);
    return fail("crash", &err);
}

int main(int argc, char **argv)
{
    if (argc == 5 && !strcmp(argv[1], "crash"))
        return crash(argv[2], argv[3], argv[4]);
    if (argc >= 4 && strchr("tkh", argv[1][0]))
        return trace(argv[1], argc - 2, argv + 2);
    if (argc >= 4 && (argc >= 5 || strcmp(argv[1], "stage")))
        return cache(argv[1], argc - 2, argv + 2);
    fprintf(stderr, "usage: see cli_fixture.c\n");
    return 2;
}
