#include "dispatching.h"

#include <sys/stat.h>

struct kfit_error err;
struct kfit_env env;

/* Real machine code, small enough to write by hand.
 * multiplies: c[0] = a[0] * b[0], the whole of a 1x1x1 gemm:
 *   movss xmm0, [rdi]; mulss xmm0, [rsi]; movss [rdx], xmm0; ret */
const unsigned char multiplies[MULTIPLIES_BYTES] = {0xf3, 0x0f, 0x10, 0x07, 0xf3, 0x0f, 0x59,
                                                    0x06, 0xf3, 0x0f, 0x11, 0x02, 0xc3};
/* uses_workspace: *(float *)workspace += 0 through memory, then the same result:
 *   movss xmm0, [rdi]; movss [rcx], xmm0; movss xmm0, [rcx]; mulss xmm0, [rsi]; movss [rdx], xmm0; ret */
const unsigned char uses_workspace[USES_WORKSPACE_BYTES] = {0xf3, 0x0f, 0x10, 0x07, 0xf3, 0x0f, 0x11,
                                                            0x01, 0xf3, 0x0f, 0x10, 0x01, 0xf3, 0x0f,
                                                            0x59, 0x06, 0xf3, 0x0f, 0x11, 0x02, 0xc3};

/* adds_workspace: the same plus *(float *)workspace, which is zero if it was zeroed:
 *   movss xmm0, [rdi]; mulss xmm0, [rsi]; addss xmm0, [rcx]; movss [rdx], xmm0; ret */
const unsigned char adds_workspace[ADDS_WORKSPACE_BYTES] = {
    0xf3, 0x0f, 0x10, 0x07, 0xf3, 0x0f, 0x59, 0x06, 0xf3, 0x0f, 0x58, 0x01, 0xf3, 0x0f, 0x11, 0x02, 0xc3};

/* adds: c[0] = a[0] + b[0] for the same key, so that a result says which image made it */
const unsigned char adds[ADDS_BYTES] = {0xf3, 0x0f, 0x10, 0x07, 0xf3, 0x0f, 0x58,
                                        0x06, 0xf3, 0x0f, 0x11, 0x02, 0xc3};

static float one_a[64] __attribute__((aligned(64))), one_b[64] __attribute__((aligned(64)));

struct kfit_gemm_call call_of(int ldb, float *c)
{
    return (struct kfit_gemm_call){.type = KFIT_F32,
                                   .m = 1,
                                   .n = 1,
                                   .k = 1,
                                   .lda = 4,
                                   .ldb = ldb,
                                   .ldc = 4,
                                   .alpha = 1,
                                   .a = one_a,
                                   .b = one_b,
                                   .c = c};
}

union kfit_key key_of(int ldb)
{
    static float c[4] __attribute__((aligned(64)));
    struct kfit_gemm_call call = call_of(ldb, c);
    union kfit_key key;
    const void *args[3];
    memset(&key, 0, sizeof key);
    CHECK(kfit_gemm_key_fill(&call, &key, args));
    return key;
}

struct kfit_record record(int ldb, const void *image, size_t bytes, uint64_t workspace, unsigned init)
{
    struct kfit_record r = {.key = key_of(ldb),
                            .kind = image ? KFIT_RECORD_WINNER : KFIT_RECORD_NEGATIVE,
                            .op_version = 1,
                            .env_hard = env.hard_hash,
                            .env_soft = env.soft_hash,
                            .ns_candidate = 100,
                            .ns_incumbent = 250,
                            .ns_generic = 250,
                            .ratio = 2.5,
                            .lo = 2.4,
                            .hi = 2.6,
                            .origin = "person:test",
                            .image = image,
                            .image_bytes = bytes};
    if (image)
        r.plan = (struct kfit_plan){
            .workspace_bytes = workspace,
            .workspace_init = init,
            .launch_count = 1,
            .launches = {
                {.entry = "kfit_test", .grid = {1, 1, 1}, .block = {1, 1, 1}, .cluster = {1, 1, 1}}}};
    return r;
}

char cache[160], traces[160], state[200], line[600];

void setup(void)
{
    kfit_env_host(&env, 2, "test", NULL);
    snprintf(cache, sizeof cache, "%s/cache", kfit_test_dir());
    snprintf(traces, sizeof traces, "%s/traces", kfit_test_dir());
    CHECK(!mkdir(cache, 0700));
    one_a[0] = 3;
    one_b[0] = 5;
}

void publish(const struct kfit_record *r, size_t n)
{
    uint64_t number;
    struct kfit_publish_params p = {.dir = cache, .records = r, .count = n, .envs = &env, .env_count = 1};
    CHECK_OK(kfit_generation_publish(&p, &number, &err), err);
}

/* 4: multiplies; 8: negative; 12: multiplies with a workspace; 16: wants too much workspace; 20:
 * a zeroed one */
void publish_usual(void)
{
    struct kfit_record r[] = {record(4, multiplies, sizeof multiplies, 0, 0), record(8, NULL, 0, 0, 0),
                              record(12, uses_workspace, sizeof uses_workspace, 100000, KFIT_WS_SCRATCH),
                              record(16, uses_workspace, sizeof uses_workspace, 5 << 20, KFIT_WS_SCRATCH),
                              record(20, adds_workspace, sizeof adds_workspace, 64, KFIT_WS_ZERO)};
    publish(r, sizeof r / sizeof *r);
}

struct kfit_dispatcher *dispatcher(enum kfit_mode mode, const char *bans)
{
    struct kfit_dispatcher *d;
    struct kfit_dispatcher_params p = {
        .mode = mode, .cache_dir = cache, .trace_dir = traces, .bans = bans, .env = &env};
    CHECK_OK(kfit_dispatcher_create(&d, &p, &err), err);
    return d;
}

struct kfit_dispatcher *serve(struct kfit_dispatcher_params p)
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

struct kfit_trace_header *header(struct kfit_dispatcher *d)
{
    return kfit_recorder_header(kfit_dispatcher_recorder(d));
}

enum kfit_reason gemm(struct kfit_dispatcher *d, int ldb, int threads, float *result)
{
    static __thread float c[4] __attribute__((aligned(64)));
    struct kfit_gemm_call call = call_of(ldb, c);
    c[0] = -1;
    enum kfit_reason r = kfit_dispatch_gemm(d, &call, threads, 0);
    *result = c[0];
    return r;
}

void check_gemm(struct kfit_dispatcher *d, int ldb, int threads, enum kfit_reason want)
{
    float c;
    enum kfit_reason got = gemm(d, ldb, threads, &c);
    CHECK_MSG(got == want, "ldb %d: %s, expected %s; %s", ldb, kfit_reason_name(got), kfit_reason_name(want),
              header(d)->state_text);
    CHECK(c == (want == KFIT_REASON_NONE ? 15 : -1));
}

void host_file(const char *name, const char *text)
{
    char path[300];
    snprintf(path, sizeof path, "%s/%s", state, name);
    mkdir(state, 0700);
    kfit_test_write(path, text, strlen(text));
}

void keep_line(void *ctx, enum kfit_log_level level, const char *text)
{
    (void)ctx;
    snprintf(line, sizeof line, "%d %s", level, text);
}
