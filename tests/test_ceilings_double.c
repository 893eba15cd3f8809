/* What a GPU can do at most, on the double of one: measured once, kept in the store, measured again where it must be; the
 * bound that follows; one measurement at a time per GPU; and what another user's load does. */
#include <sys/stat.h>
#include <sys/wait.h>

#include "double/judging.h"

#include "kfit/ceilings.h"

#define BF16 "gemm/bf16,bf16,bf16/acc=f32/m=4,n=32,k=32/nt/lda=32,ldb=32,ldc=40/alpha=1,beta=0/align=16"

static struct kfit_store *store;

/* The GPU as it is from now on: workers read its description when they start. */
static void gpu_is(const char *text)
{
    char path[256];
    snprintf(path, sizeof path, "%s/kfit-double", kfit_test_dir());
    kfit_test_write(path, text, strlen(text));
}

static void open_store(void)
{
    char dir[256];
    snprintf(dir, sizeof dir, "%s/cache", kfit_test_dir());
    CHECK_OK(kfit_store_open(dir, KFIT_STORE_WRITE, &store, &err), err);
}

/* A fresh judge's bound of a key. */
static double bound_of(const char *key_text, bool keep)
{
    const union kfit_key key = key_of(key_text);
    double ns;
    CHECK_OK(judge_status(), err);
    if (keep)
        kfit_judge_keep(judge, store);
    CHECK_OK(kfit_judge_bound(judge, &key, &ns, &err), err);
    kfit_judge_destroy(judge);
    judge = NULL;
    return ns;
}

static int one(void *ctx, const struct kfit_gpu_ceilings *c)
{
    struct kfit_gpu_ceilings *out = ctx;
    while (out->device[0])
        out++;
    *out = *c;
    return 0;
}

static unsigned kept(struct kfit_gpu_ceilings out[4])
{
    unsigned n = 0;
    memset(out, 0, 4 * sizeof *out);
    CHECK_OK(kfit_ceilings_each(store, one, out, &err), err);
    while (n < 4 && out[n].device[0])
        n++;
    return n;
}

static void near(double got, double want)
{
    CHECK_MSG(got > 0.999 * want && got < 1.001 * want, "%.6g, expected %.6g", got, want);
}

/* The double reads n bytes in 500 + n / 4000 ns, copies them in 600 + n / 3000, and has 800 TFLOP/s. */
static void measured_once_and_kept(void)
{
    struct kfit_gpu_ceilings c[4];
    settings("");
    open_store();
    double ns = bound_of(BF16, true);
    near(ns, 516.384); /* fewer bytes than the curve's first point */
    CHECK_INT(kept(c), 1);
    CHECK_STR(c->device, "GPU-d0d0d0d0-d0d0-d0d0-d0d0-d0d0d0d0d0d0");
    CHECK_STR(c->model, "kfit test double");
    CHECK_STR(c->arch, "sm_90a");
    CHECK(c->measured_unix_s > 1600000000);
    for (unsigned i = 0; i < KFIT_GPU_CEILING_POINTS; i++) {
        near(c->read_ns[i], 500 + (double)c->bytes[i] / 4000);
        near(c->copy_ns[i], 600 + (double)c->bytes[i] / 3000);
    }
    near(c->flops_per_ns[KFIT_BF16], 800000);
    near(c->flops_per_ns[KFIT_F16], 800000);
    near(c->flops_per_ns[KFIT_F32], 800000);
    CHECK(c->flops_per_ns[KFIT_F64] == 0);
    near(kfit_ceilings_at(c, c->read_ns, 4e6), 1500);
    near(kfit_ceilings_at(c, c->read_ns, 1e9), 250500); /* beyond the last point */

    gpu_is("read_bytes_per_ns 1000\nflops_per_ns 1000\n"); /* as if it had become slow: nobody looks */
    CHECK(bound_of(BF16, true) == ns);
    CHECK(bound_of(BF16, false) > 560); /* without the store one must */
    CHECK_INT(kept(c), 1);
}

static void measured_again_where_it_must_be(void)
{
    struct kfit_gpu_ceilings c[4];
    settings("");
    open_store();
    double ns = bound_of(BF16, true);
    gpu_is("driver 12080\nread_bytes_per_ns 1000\n"); /* another driver */
    CHECK(bound_of(BF16, true) > ns);
    CHECK_INT(kept(c), 1);
    CHECK_STR(c->driver, "CUDA 12.8");
    gpu_is("uuid 17\n"); /* another GPU of the same model: the first one's stay */
    near(bound_of(BF16, true), ns);
    CHECK_INT(kept(c), 2);
    CHECK_STR(c[0].device, "GPU-11111111-1111-1111-1111-111111111111");
    /* damage: passed over, and measured again */
    static const char *const damage[] = {"", "{", "{\"version\":2}", "null",
                                         ("{\"version\":1,\"device\":\"x\",\"model\":\"x\",\"arch\":\"x\",\"driver\":\"x\",\"bytes\":[1],"
                                         "\"read_ns\":[1],\"copy_ns\":[1],\"flops_per_ns\":{}}")};
    for (unsigned i = 0; i < sizeof damage / sizeof *damage; i++) {
        const char key[] = "ceilings/GPU-11111111-1111-1111-1111-111111111111";
        CHECK_OK(kfit_store_put(store, KFIT_TABLE_DEVICES, key, strlen(key), damage[i], strlen(damage[i]), &err), err);
        CHECK_INT(kept(c), 1);
        near(bound_of(BF16, true), ns);
        CHECK_INT(kept(c), 2);
    }
}

/* Where the FLOPs take longer than the bytes, they are the bound; a kernel below it is suspect. */
static void the_slower_of_bytes_and_flops(void)
{
    settings("flops_per_ns 20\n");
    near(bound_of("gemm/bf16,bf16,bf16/acc=f32/m=64,n=32,k=64/nt/lda=64,ldb=64,ldc=32/alpha=1,beta=0/align=16", false),
         2.0 * 64 * 32 * 64 / 20);
    near(bound_of("gemm/bf16,bf16,bf16/acc=f32/m=1,n=16,k=16/nt/lda=16,ldb=16,ldc=16/alpha=1,beta=0/align=16", false), 516.384);
    CHECK_OK(judge_status(), err);
    const char *key = "gemm/bf16,bf16,bf16/acc=f32/m=32,n=64,k=64/nt/lda=64,ldb=64,ldc=64/alpha=1,beta=0/align=16";
    struct kfit_receipt r = judge_one("right", "ns=1000", "", key); /* 13107 by FLOPs */
    CHECK_STR(kfit_code_str(r.code), "suspect:beyond-roofline");
    CHECK_STR(kfit_verdict_str(r.verdict), "review");
    near(r.bound_ns, 2.0 * 32 * 64 * 64 / 20);
}

/* ---- the lock ---- */

/* In a process of its own, started before anybody here holds a lock: what it got, and why. */
struct rival {
    pid_t pid;
    int go, said;
};

static struct rival rival_start(const char *gpu)
{
    int go[2], said[2];
    CHECK(!pipe(go) && !pipe(said));
    struct rival r = {fork(), go[1], said[0]};
    CHECK(r.pid >= 0);
    if (r.pid)
        return r;
    char home[256], path[300], byte;
    close(go[1]);
    close(said[0]);
    snprintf(home, sizeof home, "%s/rival", kfit_test_dir());
    mkdir(home, 0700);
    snprintf(path, sizeof path, "%s/kfit-double", home);
    kfit_test_write(path, gpu, strlen(gpu));
    const struct kfit_judge_params p = {.generic = &generic, .env = &env, .seed = 7, .lock_dir = kfit_test_dir()};
    while (read(go[0], &byte, 1) == 1) {
        setenv("HOME", home, 1);
        enum kfit_status s = kfit_judge_create(&p, &judge, &err);
        char text[sizeof err.text + 16];
        int n = snprintf(text, sizeof text, "%d %s", (int)s, s == KFIT_OK ? "" : err.text);
        if (write(said[1], text, (size_t)n + 1) != n + 1)
            _exit(1);
        kfit_judge_destroy(judge);
    }
    _exit(0);
}

static enum kfit_status rival_tries(struct rival *r, char *text, size_t size)
{
    CHECK(write(r->go, "x", 1) == 1);
    ssize_t n = read(r->said, text, size - 1);
    CHECK(n > 2);
    text[n] = '\0';
    return (enum kfit_status)atoi(text);
}

static void one_judge_at_a_time_per_gpu(void)
{
    char text[700], pid[32], path[256];
    settings("");
    CHECK_OK(kfit_judge_cuda_env(NULL, &generic, &env, &info, &err), err);
    CHECK_STR(info.id, "GPU-d0d0d0d0-d0d0-d0d0-d0d0-d0d0d0d0d0d0");
    struct rival same = rival_start("");
    CHECK_OK(rival_tries(&same, text, sizeof text) == KFIT_OK ? KFIT_OK : KFIT_E_IO, err);
    CHECK_OK(judge_status(), err);
    CHECK_STATUS(rival_tries(&same, text, sizeof text), KFIT_E_BUSY);
    snprintf(pid, sizeof pid, "process %d", (int)getpid());
    CHECK_MSG(strstr(text, "GPU-d0d0d0d0-d0d0-d0d0-d0d0-d0d0d0d0d0d0") && strstr(text, pid), "%s", text);
    snprintf(path, sizeof path, "%s/GPU-d0d0d0d0-d0d0-d0d0-d0d0-d0d0d0d0d0d0.lock", kfit_test_dir());
    CHECK(!access(path, F_OK));
    kfit_judge_destroy(judge);
    CHECK_STATUS(rival_tries(&same, text, sizeof text), KFIT_OK); /* and free again */
    close(same.go);
    waitpid(same.pid, NULL, 0);
    struct rival other = rival_start("uuid 17\n"); /* on another GPU nobody is in the way */
    CHECK_OK(judge_status(), err);
    CHECK_MSG(rival_tries(&other, text, sizeof text) == KFIT_OK, "%s", text);
    close(other.go);
    waitpid(other.pid, NULL, 0);
}

/* Killed while it measures: the lock goes with it. */
static void a_killed_judge_leaves_no_lock(void)
{
    settings("");
    CHECK_OK(kfit_judge_cuda_env(NULL, &generic, &env, &info, &err), err);
    int held[2];
    char byte;
    CHECK(!pipe(held));
    pid_t child = fork();
    CHECK(child >= 0);
    if (!child) {
        if (judge_status() == KFIT_OK && write(held[1], "x", 1) == 1)
            for (;;)
                pause();
        _exit(1);
    }
    CHECK(read(held[0], &byte, 1) == 1);
    CHECK_STATUS(judge_status(), KFIT_E_BUSY);
    kill(child, SIGKILL);
    waitpid(child, NULL, 0);
    CHECK_OK(judge_status(), err);
}

/* ---- another user ---- */

static char said[4096];

static void note(void *ctx, enum kfit_log_level level, const char *message)
{
    (void)ctx;
    size_t n = strlen(said);
    if (level <= KFIT_LOG_WARN)
        snprintf(said + n, sizeof said - n, "%s\n", message);
}

static struct kfit_receipt judged_beside(const char *gpu, const char *what)
{
    const struct kfit_judge_params p = {.generic = &generic, .env = &env, .seed = 7, .lock_dir = kfit_test_dir(),
                                        .log = {.fn = note, .level = KFIT_LOG_WARN}};
    gpu_is(gpu);
    CHECK_OK(kfit_judge_create(&p, &judge, &err), err);
    struct kfit_receipt r = judge_one("right", what, "", BF16);
    kfit_judge_destroy(judge);
    judge = NULL;
    return r;
}

static void anothers_load_is_noticed(void)
{
    settings("");
    CHECK_OK(kfit_judge_cuda_env(NULL, &generic, &env, &info, &err), err);
    struct kfit_receipt quiet = judged_beside("", "ns=9000");
    CHECK_MSG(quiet.noise < 1e-6 && !said[0], "%g %s", quiet.noise, said);
    for (unsigned i = 0; i < 4; i++) { /* what is no faster does not become so */
        struct kfit_receipt r = judged_beside("load 100\n", "ns=10000");
        CHECK_MSG(r.verdict == KFIT_VERDICT_KEPT && r.noise > 0.004, "%s %s, noise %g", kfit_verdict_str(r.verdict),
                  kfit_code_str(r.code), r.noise);
    }
    struct kfit_receipt r = judged_beside("load 100\n", "ns=9700"); /* a gain that the noise hides */
    CHECK_MSG(r.verdict == KFIT_VERDICT_KEPT, "%s, noise %g, ratio %g", kfit_verdict_str(r.verdict), r.noise, r.timings[0].ratio);
    judged_beside("others 2100000000\n", "ns=9000");
    CHECK_MSG(strstr(said, "other programs hold 2002 MB of this GPU"), "%s", said);
}

static const struct kfit_test tests[] = {
    TEST(measured_once_and_kept),      TEST(measured_again_where_it_must_be), TEST(the_slower_of_bytes_and_flops),
    TEST(one_judge_at_a_time_per_gpu), TEST(a_killed_judge_leaves_no_lock),   TEST(anothers_load_is_noticed),
};
TEST_MAIN(tests)
