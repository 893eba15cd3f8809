/* The image of a kernel, and a generation that holds it for two keys. */
#include <unistd.h>

#include "kfit/generation.h"
#include "kfit/op.h"
#include "published.h"

/* The image: position-independent code without data, between the bounds that the linker gives its section. */
__attribute__((section("kfit_image"), noinline, used)) static void
kernel_of_16(const float *a, const float *b, float *c, void *workspace)
{
    volatile uint32_t *out = (volatile uint32_t *)(void *)c; /* bits: a float constant would be data */
    (void)a, (void)b, (void)workspace;
    for (int i = 0; i < 16; i++)
        out[i] = 0x42280000;
}
extern const uint8_t __start_kfit_image[], __stop_kfit_image[];

static const struct kfit_gemm_call square = {.type = KFIT_F32,
                                             .m = 4,
                                             .n = 4,
                                             .k = 4,
                                             .lda = 4,
                                             .ldb = 4,
                                             .ldc = 4,
                                             .alpha = 1,
                                             .a = (void *)64,
                                             .b = (void *)64,
                                             .c = (void *)64};
/* a row of numpy's x @ W: sixteen columns, as the kernel writes */
static const struct kfit_gemm_call row = {.type = KFIT_F32,
                                          .m = 1,
                                          .n = 16,
                                          .k = 8,
                                          .lda = 8,
                                          .ldb = 16,
                                          .ldc = 16,
                                          .alpha = 1,
                                          .a = (void *)64,
                                          .b = (void *)64,
                                          .c = (void *)64};
const char square_text[] =
    "gemm/f32,f32,f32/acc=f32/m=4,n=4,k=4/nn/lda=4,ldb=4,ldc=4/alpha=1,beta=0/align=16";
const char row_text[] =
    "gemm/f32,f32,f32/acc=f32/m=1,n=16,k=8/nn/lda=8,ldb=16,ldc=16/alpha=1,beta=0/align=16";

char cache_env[400], trace_dir[300], preload_env[400] = "LD_PRELOAD=" SHIM;

static void record(struct kfit_record *r, const struct kfit_gemm_call *call, const struct kfit_env *env)
{
    const void *args[3];
    memset(r, 0, sizeof *r);
    CHECK(kfit_gemm_key_fill(call, &r->key, args));
    r->kind = KFIT_RECORD_WINNER;
    r->op_version = kfit_op_of(&r->key)->version;
    r->env_hard = env->hard_hash;
    r->env_soft = env->soft_hash;
    r->made_unix_s = 1700000000;
    r->ns_candidate = 10, r->ns_incumbent = r->ns_generic = 20;
    r->ratio = 2, r->lo = 1.9, r->hi = 2.1;
    memset(r->source_digest, 7, sizeof r->source_digest);
    snprintf(r->origin, sizeof r->origin, "person:test");
    r->plan.launch_count = 1;
    r->plan.launches[0] = (struct kfit_launch){
        .entry = "kfit_main",
        .grid = {1, 1, 1},
        .block = {1, 1, 1},
        .cluster = {1, 1, 1},
        .entry_offset = (uint64_t)((const uint8_t *)(uintptr_t)kernel_of_16 - __start_kfit_image)};
    r->image = __start_kfit_image;
    r->image_bytes = (uint64_t)(__stop_kfit_image - __start_kfit_image);
}

void publish(void)
{
    publish_for(1);
}

void publish_for(int threads)
{
    struct kfit_env env;
    struct kfit_record r[2];
    struct kfit_error err = {""};
    char dir[300];
    uint64_t number;
    kfit_env_host(&env, threads, "OpenBLAS", NULL);
    record(&r[0], &square, &env);
    record(&r[1], &row, &env);
    snprintf(dir, sizeof dir, "%s/cache", kfit_test_dir());
    snprintf(cache_env, sizeof cache_env, "KFIT_CACHE=%s", dir);
    snprintf(trace_dir, sizeof trace_dir, "%s/trace", kfit_test_dir());
    const struct kfit_publish_params params = {
        .dir = dir, .records = r, .count = 2, .envs = &env, .env_count = 1, .approver = "test"};
    CHECK_OK(kfit_generation_publish(&params, &number, &err), err);
}

void open_to_others(void)
{
    char command[1200];
    snprintf(command, sizeof command, "chmod 755 %s && cp %s %s && chmod -R a+rX %s", kfit_test_dir(),
             strchr(preload_env, '=') + 1, kfit_test_dir(), cache_env + strlen("KFIT_CACHE="));
    CHECK_INT(kfit_test_run((const char *[]){"sh", "-c", command, NULL}, NULL, NULL, NULL), 0);
    snprintf(preload_env, sizeof preload_env, "LD_PRELOAD=%s/libkfit_preload.so", kfit_test_dir());
}

struct server start_server(void)
{
    struct server s;
    int to[2], from[2];
    CHECK(!pipe(to) && !pipe(from));
    s.pid = fork();
    CHECK(s.pid >= 0);
    if (!s.pid) {
        char trace[400];
        snprintf(trace, sizeof trace, "KFIT_TRACE=%s", trace_dir);
        dup2(to[0], 0), dup2(from[1], 1);
        close(to[1]), close(from[0]);
        putenv(trace), putenv(cache_env), putenv(preload_env), putenv("OPENBLAS_NUM_THREADS=1");
        execl(CALLS, CALLS, "lines", NULL);
        _exit(127);
    }
    close(to[0]), close(from[1]);
    s.to = to[1];
    s.from = fdopen(from[0], "r");
    return s;
}

const char *ask_server(struct server *s)
{
    CHECK_INT(write(s->to, "\n", 1), 1);
    CHECK(fgets(s->line, sizeof s->line, s->from));
    return s->line;
}
