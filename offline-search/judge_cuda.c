/* The cuda device of the judge. Two workers (runner_cuda.h): the runner holds the candidate, the generic and inputs, and
 * serves candidate after candidate until one breaks it; the referee computes float64 references and never holds a
 * candidate. The parent compares and decides. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compile_cuda.h"
#include "cuda_judge.h"
#include "kfit/cuda.h"

extern const char kfit_judge_cu[]; /* harness/judge.cu */
extern const size_t kfit_judge_cu_bytes;

/* ---- workers ---- */

static enum kfit_status open_worker(struct cuda *c, struct session_cuda *s, struct kfit_error *err)
{
    return s->pid ? KFIT_OK : session_cuda_open(s, c->program, CUDA_ARENA_BYTES, err);
}

/* Sets a worker up for a key. */
enum kfit_status cuda_prepare(struct cuda *c, struct session_cuda *s, union kfit_key *now,
                              const union kfit_key *key, const struct kfit_generic *generic, size_t workspace,
                              struct kfit_error *err)
{
    bool same = s->pid && now->h.len && kfit_key_equal(now, key) && workspace <= c->workspace_bytes;
    enum kfit_status st = open_worker(c, s, err);
    if (st != KFIT_OK || same)
        return st;
    struct kfit_cu_command m = {.what = KFIT_CU_START,
                                .bytes = c->cubin_bytes,
                                .workspace_bytes = workspace,
                                .key = *key,
                                .limit_ms = 20000};
    if (generic)
        m.generic = *generic;
    memcpy(s->arena, c->cubin, c->cubin_bytes);
    memset(now, 0, sizeof *now);
    st = session_cuda_do(s, &m, err);
    if (st == KFIT_OK) {
        *now = *key;
        c->info = s->reply.info;
        if (s->reply.others_bytes > CUDA_OTHERS_BYTES && !c->told) {
            c->told = true;
            kfit_logf(&c->p->log, KFIT_LOG_WARN,
                      "other programs hold %llu MB of this GPU; if they use it, times are noisy (a receipt's "
                      "noise says how much) and gains that small are not seen",
                      (unsigned long long)(s->reply.others_bytes >> 20));
        }
        if (generic) {
            c->sets = s->reply.sets;
            c->launches = s->reply.launches;
        }
    }
    return st;
}

/* Was the worker lost while the candidate ran? Then that is the candidate's doing, and no error of ours. */
enum kfit_status cuda_blame(struct cuda *c, enum kfit_status st, bool candidate, struct kfit_error *err)
{
    if (st == KFIT_OK || !candidate)
        return st;
    const struct kfit_cu_reply *r = &c->runner.reply;
    if (st != KFIT_E_TIMEOUT && st != KFIT_E_CRASH)
        return st;
    memset(&c->key, 0, sizeof c->key); /* the next one starts a fresh runner */
    c->broken = st == KFIT_E_TIMEOUT                  ? KFIT_CODE_WRONG_HANG
                : r->refused                          ? KFIT_CODE_STATIC_RESOURCES
                : r->error == KFIT_CU_ILLEGAL_ADDRESS ? KFIT_CODE_WRONG_BOUNDS
                                                      : KFIT_CODE_WRONG_CRASH;
    snprintf(c->broken_at, sizeof c->broken_at, "%.63s", err ? err->text : "");
    return KFIT_OK;
}

enum kfit_status cuda_fill(struct session_cuda *s, unsigned distribution, uint64_t seed, unsigned placement,
                           struct kfit_error *err)
{
    struct kfit_cu_command m = {.what = KFIT_CU_FILL,
                                .distribution = distribution,
                                .seed = seed,
                                .placement = placement,
                                .limit_ms = CUDA_LAUNCH_LIMIT_MS};
    return session_cuda_do(s, &m, err);
}

static enum kfit_status load(struct cuda *c, unsigned who, const void *image, size_t bytes,
                             const struct kfit_plan *plan, struct kfit_error *err)
{
    struct kfit_cu_command m = {
        .what = KFIT_CU_LOAD, .who = who, .bytes = image ? bytes : 0, .limit_ms = 20000};
    if (image) {
        m.plan = *plan;
        memcpy(c->runner.arena, image, bytes);
    }
    return session_cuda_do(&c->runner, &m, err);
}

/* ---- trials ---- */

static enum kfit_status set_up(struct cuda *c, const union kfit_key *key, size_t workspace,
                               struct kfit_error *err)
{
    if (!kfit_key_equal(&c->cases_key, key)) {
        cuda_drop_cases(c);
        c->cases_key = *key;
    }
    if (workspace < c->workspace_bytes && c->runner.pid)
        workspace = c->workspace_bytes;
    enum kfit_status st = cuda_check_reference(c, err);
    if (st == KFIT_OK)
        st = cuda_prepare(c, &c->runner, &c->key, key, c->p->generic, workspace, err);
    if (st != KFIT_OK)
        return st;
    c->workspace_bytes = workspace;
    kfit_op_of(key)->tensor(key, kfit_op_of(key)->out_arg, &c->out);
    c->out_bytes = kfit_tensor_bytes(&c->out);
    c->out_count = (size_t)c->out.batch * (size_t)c->out.rows * (size_t)c->out.cols;
    return cuda_fixed_cases(c, err);
}

static enum kfit_status begin(struct judge_trial *t, struct kfit_error *err)
{
    struct cuda *c = t->device;
    const struct kfit_judge_job *job = t->job;
    size_t workspace = job->plan->workspace_bytes;
    c->broken = KFIT_CODE_NONE;
    if (job->incumbent_image && job->incumbent_plan->workspace_bytes > workspace)
        workspace = job->incumbent_plan->workspace_bytes;
    if (job->image_bytes > CUDA_ARENA_BYTES || job->incumbent_bytes > CUDA_ARENA_BYTES)
        return kfit_fail(err, KFIT_E_ARG, "judge: an image of %zu bytes; at most %zu", job->image_bytes,
                         CUDA_ARENA_BYTES);
    enum kfit_status st = set_up(c, job->key, workspace, err);
    if (st == KFIT_E_REFUSED) {
        t->r->verdict = KFIT_VERDICT_REFUSED;
        t->r->code = KFIT_CODE_GENERIC_WRONG;
        snprintf(t->r->detail, sizeof t->r->detail, "%.255s", err ? err->text : "");
    }
    if (st == KFIT_OK)
        st = load(c, KFIT_CU_INCUMBENT, job->incumbent_image, job->incumbent_bytes, job->incumbent_plan, err);
    if (st == KFIT_OK)
        st = cuda_blame(c, load(c, KFIT_CU_CANDIDATE, job->image, job->image_bytes, job->plan, err), true,
                        err);
    if (st == KFIT_OK && c->runner.reply.refused) {
        c->broken = KFIT_CODE_STATIC_RESOURCES;
        snprintf(c->broken_at, sizeof c->broken_at, "%.63s", c->runner.reply.message);
    }
    return st;
}

static void end(struct judge_trial *t)
{
    (void)t; /* the runner stays warm */
}

/* A winner once more: fresh process, fresh seeds; these numbers stay. */
static enum kfit_status gate_repeat(struct judge_trial *t, struct kfit_gate_result *g, struct kfit_error *err)
{
    struct cuda *c = t->device;
    session_cuda_close(&c->runner);
    memset(&c->key, 0, sizeof c->key);
    enum kfit_status st = begin(t, err);
    if (st == KFIT_OK && c->broken) {
        g->code = c->broken;
        snprintf(g->at, sizeof g->at, "%s", c->broken_at);
    } else if (st == KFIT_OK)
        st = cuda_hidden(t, g, err);
    bool wrong = g->code;
    if (st == KFIT_OK && !wrong)
        st = cuda_time_it(t, false, g, err);
    judge_repeat_verdict(t, g, wrong);
    return st;
}

static const struct judge_gate gates[] = {
    {"correct", cuda_gate_correct, true, true}, {"screen", cuda_gate_screen, true, false},
    {"hidden", cuda_gate_hidden, false, true},  {"fast", cuda_gate_fast, false, true},
    {"bound", judge_gate_bound, false, true},   {"repeat", gate_repeat, false, true},
    {"clocks", cuda_clocks, false, true},       {0},
};

/* ---- the device ---- */

/* Do two rows of the tensor share elements? Rows of one matrix do not (ld >= cols): of two, some matrices apart. */
static bool rows_overlap(const struct kfit_tensor *t)
{
    for (int64_t apart = 1; apart < t->batch; apart++) {
        int64_t distance = apart * t->batch_stride, down = distance / t->ld;
        for (int64_t i = down; i <= down + 1 && i < t->rows; i++)
            if (llabs(distance - i * t->ld) < t->cols)
                return true;
        if (down >= t->rows)
            break;
    }
    return false;
}

static enum kfit_status check_key(const union kfit_key *key, struct kfit_error *err)
{
    const struct kfit_gemm_key *g = &key->gemm;
    const struct kfit_op *op = kfit_op_of(key);
    struct kfit_tensor t;
    if (g->op != KFIT_OP_GEMM || g->type_a != g->type_b || g->type_a == KFIT_F64 ||
        (g->type_c != g->type_a && g->type_c != KFIT_F32) || g->type_acc != KFIT_F32 ||
        g->alpha != KFIT_SCALAR_ONE || g->beta == KFIT_SCALAR_OTHER)
        return kfit_fail(err, KFIT_E_UNSUPPORTED,
                         "judge: the cuda device judges gemm of bf16, fp16 or f32 with float32 accumulation, "
                         "alpha 1 and beta 0 or 1");
    if (g->epi && g->len == KFIT_GEMM_KEY_BATCHED_BYTES)
        return kfit_fail(
            err, KFIT_E_UNSUPPORTED,
            "judge: an epilogue in a strided batch: no call that a framework makes computes this");
    op->tensor(key, op->out_arg, &t);
    if (t.batch > CUDA_BATCH_MAX ||
        (double)t.batch * (double)t.rows * (double)t.cols * 2 * sizeof(double) > CUDA_ARENA_BYTES)
        return kfit_fail(err, KFIT_E_UNSUPPORTED,
                         "judge: an output of %d x %d x %d is larger than the judge's arena", (int)t.batch,
                         g->m, g->n);
    for (unsigned i = 0; i < op->nargs(key); i++) {
        op->tensor(key, i, &t);
        if ((t.batch_stride || t.dir != KFIT_IN) && rows_overlap(&t))
            return kfit_fail(err, KFIT_E_UNSUPPORTED,
                             "judge: the matrices of argument %s lie over each other (batch stride %lld)",
                             op->arg_names[i], (long long)t.batch_stride);
        if (kfit_tensor_bytes(&t) > CUDA_ARENA_BYTES && i == op->out_arg)
            return kfit_fail(err, KFIT_E_UNSUPPORTED,
                             "judge: an output spread over %zu MB is larger than the judge's arena",
                             kfit_tensor_bytes(&t) >> 20);
    }
    return KFIT_OK;
}

static void cuda_close(void *device)
{
    struct cuda *c = device;
    session_cuda_close(&c->runner);
    session_cuda_close(&c->referee);
    cuda_drop_cases(c);
    free(c->cubin);
    free(c);
}

static enum kfit_status cuda_open(const struct kfit_judge_params *p, uint64_t seed, void **device,
                                  struct kfit_error *err)
{
    struct cuda *c = calloc(1, sizeof *c);
    char arch[32], option[64];
    struct kfit_built built = {0};
    if (!c)
        return kfit_fail(err, KFIT_E_NOMEM, "judge: out of memory");
    *c = (struct cuda){.p = p, .seed = seed};
    c->runner.socket = c->runner.arena_fd = c->referee.socket = c->referee.arena_fd = -1;
    enum kfit_status st = judge_find_program(p->runner, "kfit-runner-cuda", c->program, err);
    if (st == KFIT_OK && !kfit_env_get(p->env->hard, "isa", arch, sizeof arch))
        st = kfit_fail(err, KFIT_E_ARG, "judge: the environment names no architecture: %s", p->env->hard);
    if (st == KFIT_OK) {
        const struct kfit_compile_params how = {.allow_no_isolation = true}; /* our own source */
        snprintf(option, sizeof option, "--gpu-architecture=%s", arch);
        st = kfit_nvrtc_run(&how, (const char *[]){"-std=c++17", "-default-device", option}, 3, kfit_judge_cu,
                            kfit_judge_cu_bytes, &c->cubin, &c->cubin_bytes, NULL, NULL, &built, err);
        if (st == KFIT_E_REFUSED)
            st = kfit_fail(err, KFIT_E_UNSUPPORTED, "judge: NVRTC cannot compile for %s: %.300s", arch,
                           built.detail);
    }
    if (st != KFIT_OK) {
        cuda_close(c);
        return st;
    }
    *device = c;
    return KFIT_OK;
}

/* Asks a fresh runner, which stays open. */
static enum kfit_status ask(const char *program, const struct kfit_cu_command *m, struct session_cuda *s,
                            struct kfit_error *err)
{
    enum kfit_status st = session_cuda_open(s, program, 4096, err);
    if (st == KFIT_OK)
        st = session_cuda_do(s, m, err);
    return st == KFIT_E_CRASH ? KFIT_E_UNSUPPORTED : st; /* the message says what is missing */
}

enum kfit_status kfit_judge_cuda_env(const char *runner, const struct kfit_generic *generic,
                                     struct kfit_env *env, struct kfit_device_info *info,
                                     struct kfit_error *err)
{
    char program[512], driver[32], blas[48], compiler[64];
    struct session_cuda s = {.socket = -1, .arena_fd = -1};
    struct kfit_cu_command m = {.what = KFIT_CU_DESCRIBE, .generic = *generic, .limit_ms = 20000};
    enum kfit_status st = judge_find_program(runner, "kfit-runner-cuda", program, err);
    if (st == KFIT_OK)
        st = kfit_nvrtc_version(compiler, sizeof compiler, err);
    if (st == KFIT_OK)
        st = ask(program, &m, &s, err);
    if (st == KFIT_OK) {
        const struct kfit_cu_reply *r = &s.reply;
        snprintf(driver, sizeof driver, "CUDA %d.%d", r->driver / 1000, r->driver % 1000 / 10);
        snprintf(blas, sizeof blas, "cuBLAS %d.%d.%d", r->blas / 10000, r->blas / 100 % 100, r->blas % 100);
        kfit_env_cuda(env, r->info.arch, r->info.model, r->info.units, driver, blas, compiler);
        if (info)
            *info = r->info;
    }
    session_cuda_close(&s);
    return st;
}

enum kfit_status kfit_judge_cuda_profiler(const char *runner, const struct kfit_generic *generic, char *text,
                                          size_t size, struct kfit_error *err)
{
    char program[512];
    struct session_cuda s = {.socket = -1, .arena_fd = -1};
    struct kfit_cu_command m = {.what = KFIT_CU_DESCRIBE, .limit_ms = 20000};
    enum kfit_status st = judge_find_program(runner, "kfit-runner-cuda", program, err);
    if (st == KFIT_OK)
        st = ask(program, &m, &s, err);
    m.what = KFIT_CU_KERNELS;
    m.generic = *generic;
    if (st == KFIT_OK)
        st = session_cuda_do(&s, &m, err);
    if (st == KFIT_E_CRASH)
        st = KFIT_E_UNSUPPORTED;
    if (st == KFIT_OK) {
        const struct kfit_cu_kernels *k = (const struct kfit_cu_kernels *)s.arena;
        if (k->seen)
            snprintf(text, size, "CUPTI %u", k->version);
        else
            st = kfit_fail(err, KFIT_E_UNSUPPORTED, "%.199s", k->why);
    }
    session_cuda_close(&s);
    return st;
}

static void keep(void *device, struct kfit_store *store)
{
    ((struct cuda *)device)->store = store;
}

static enum kfit_status identify(const char *runner, char id[48], struct kfit_error *err)
{
    char program[512];
    struct session_cuda s = {.socket = -1, .arena_fd = -1};
    const struct kfit_cu_command m = {.what = KFIT_CU_IDENTIFY, .limit_ms = 20000};
    enum kfit_status st = judge_find_program(runner, "kfit-runner-cuda", program, err);
    if (st == KFIT_OK)
        st = ask(program, &m, &s, err);
    snprintf(id, 48, "%s", st == KFIT_OK ? s.reply.info.id : "");
    session_cuda_close(&s);
    return st;
}

static enum kfit_status time_generic(void *device, const union kfit_key *key, double *ns,
                                     struct kfit_error *err)
{
    struct cuda *c = device;
    struct bench b = {.c = c, .mode = KFIT_CU_COLD, .seed = c->seed, .fill_seed = c->seed};
    enum kfit_status st = set_up(c, key, c->workspace_bytes, err);
    return st == KFIT_OK ? cuda_median_of(&b, KFIT_CU_GENERIC, ns, err) : st;
}

const struct judge_device judge_cuda = {
    .name = "cuda",
    .gates = gates,
    .open = cuda_open,
    .close = cuda_close,
    .check_key = check_key,
    .begin = begin,
    .end = end,
    .time_generic = time_generic,
    .bound = cuda_bound,
    .keep = keep,
    .identify = identify,
};
