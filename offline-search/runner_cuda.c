/* kfit-runner-cuda: a GPU worker. One command at a time, until the socket closes or a CUDA error ends it. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "worker_cuda.h"

/* ---- small things ---- */

bool worker_check(struct worker *w, kfit_cu_result r, const char *what)
{
    if (!r)
        return true;
    struct kfit_error err;
    kfit_cuda_fail(w->cu, r, what, &err);
    w->reply->error = r;
    size_t n = (size_t)snprintf(w->reply->message, sizeof w->reply->message, "%.160s", err.text), free_bytes, all;
    if (r == KFIT_CU_OUT_OF_MEMORY && !w->cu->mem_info(&free_bytes, &all))
        snprintf(w->reply->message + n, sizeof w->reply->message - n, "; %zu of the GPU's %zu MB are free: end what holds the rest",
                 free_bytes >> 20, all >> 20);
    return false;
}

static bool say(struct worker *w, int error, const char *text)
{
    w->reply->error = error;
    snprintf(w->reply->message, sizeof w->reply->message, "%.255s", text);
    return false;
}

bool worker_helper(struct worker *w, enum helper h, unsigned blocks, unsigned threads, void **params)
{
    const struct kfit_cu_launch_config config = {.grid = {blocks, 1, 1}, .block = {threads, 1, 1}, .stream = w->stream};
    return CU(w, launch(&config, w->helper[h], params, NULL));
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

bool worker_wait(struct worker *w)
{
    if (!CU(w, event_record(w->event[1], w->stream)))
        return false;
    double end = now_ms() + (w->limit_ms ? w->limit_ms : 2000);
    for (unsigned spins = 0;; spins++) {
        kfit_cu_result r = w->cu->event_query(w->event[1]);
        if (r != KFIT_CU_NOT_READY)
            return worker_check(w, r, "cuEventQuery");
        if (now_ms() > end)
            return say(w, KFIT_CU_HANG, "no end in sight");
        if (spins > 2000)
            usleep(50);
    }
}

/* ---- memory ---- */

static bool guarded_alloc(struct worker *w, struct guarded *g, size_t bytes)
{
    const struct kfit_cu_mem_prop prop = {.type = 1, .location = {1, 0}};
    const struct kfit_cu_mem_access access = {.location = {1, 0}, .flags = 3};
    size_t grain = 0;
    if (!CU(w, vm_granularity(&grain, &prop, 0)))
        return false;
    g->bytes = (bytes + 2 * KFIT_CU_BAND + grain - 1) / grain * grain;
    g->reserved_bytes = g->bytes + 2 * grain;
    if (!CU(w, vm_reserve(&g->reserved, g->reserved_bytes, 0, 0, 0)))
        return false;
    g->base = g->reserved + grain;
    return CU(w, vm_create(&g->memory, g->bytes, &prop, 0)) && CU(w, vm_map(g->base, g->bytes, 0, g->memory, 0)) &&
           CU(w, vm_access(g->base, g->bytes, &access, 1));
}

static void guarded_free(struct worker *w, struct guarded *g)
{
    if (g->base) {
        w->cu->vm_unmap(g->base, g->bytes);
        w->cu->vm_release(g->memory);
    }
    if (g->reserved)
        w->cu->vm_release_address(g->reserved, g->reserved_bytes);
    *g = (struct guarded){0};
}

/* END touches what is behind the mapping, START what is before it; MIDDLE has exactly the least alignment. */
static void place(struct guarded *g, size_t bytes, unsigned placement, size_t align)
{
    g->at = placement == 0 ? (g->bytes - bytes) & -align : placement == 1 ? 0 : KFIT_CU_BAND + align;
}

static kfit_cu_ptr address(const struct guarded *g)
{
    return g->base + g->at;
}

/* ---- calls ---- */

bool worker_call(struct worker *w, unsigned who, const kfit_cu_ptr args[KFIT_CU_ARGS])
{
    if (who == KFIT_CU_GENERIC)
        return generic_cuda_call(w, args);
    void *p[KFIT_CU_ARGS];
    for (unsigned i = 0; i < w->nargs; i++)
        p[i] = (void *)(uintptr_t)args[i];
    void *ws = w->plan[who].workspace_bytes ? (void *)(uintptr_t)address(&w->workspace) : NULL;
    if (kfit_device_cuda.launch(&w->kernel[who], p, ws, w->stream) == KFIT_OK)
        return true;
    kfit_cu_result r = w->cu->stream_query(w->stream); /* a fault of an earlier launch shows at any later one */
    if (r >= KFIT_CU_ILLEGAL_ADDRESS && r < KFIT_CU_CAPTURING)
        return worker_check(w, r, "an earlier launch");
    w->reply->refused = 1;
    return say(w, KFIT_CU_LAUNCH_OUT_OF_RESOURCES, "the launch was refused: block, shared memory or cluster too large");
}

bool worker_fill(struct worker *w, unsigned arg, kfit_cu_ptr at, uint32_t distribution, uint64_t seed)
{
    const struct kfit_tensor *t = &w->tensor[arg];
    int type = (int)t->type, which = (int)distribution;
    unsigned inputs = w->nargs - 1, matrices = t->batch_stride ? (unsigned)t->batch : 1; /* stride 0: all the same one */
    uint64_t rows = (uint64_t)t->rows, cols = (uint64_t)t->cols, ld = (uint64_t)t->ld, stride = (uint64_t)t->batch_stride;
    void *params[] = {&at, &type, &rows, &cols, &ld, &arg, &inputs, &which, &seed, &stride};
    const struct kfit_cu_launch_config config = {
        .grid = {matrices > 1 ? 1 + 1056 / matrices : 1056, matrices, 1}, .block = {256, 1, 1}, .stream = w->stream};
    return CU(w, launch(&config, w->helper[H_FILL], params, NULL));
}

static bool read_counters(struct worker *w, uint64_t *out, unsigned n)
{
    return CU(w, to_host(out, w->scratch, n * sizeof *out, w->stream)) && worker_wait(w);
}

static bool hash_inputs(struct worker *w, uint64_t *hash)
{
    if (!CU(w, set32(w->scratch, 0, 2, w->stream)))
        return false;
    for (unsigned i = 0; i < w->nargs; i++) {
        kfit_cu_ptr p = address(&w->arg[i]) & ~(kfit_cu_ptr)3;
        uint64_t words = w->bytes[i] / 4;
        void *params[] = {&p, &words, &w->scratch};
        if (i != w->out && !worker_helper(w, H_HASH, 1056, 256, params))
            return false;
    }
    return read_counters(w, hash, 1);
}

/* ---- commands ---- */

static bool describe(struct worker *w, const struct kfit_cu_command *c)
{
    struct kfit_error err = {0};
    if (kfit_cuda_load(&w->cu, &err) != KFIT_OK || kfit_device_cuda.probe(&err) != KFIT_OK ||
        kfit_device_cuda.describe(&w->reply->info, &err) != KFIT_OK) {
        w->cu = NULL;
        return say(w, KFIT_CU_NO_DEVICE, err.text);
    }
    w->cu->driver_version(&w->reply->driver);
    if (c->generic.path[0] && !w->generic) {
        if ((!w->stream && !CU(w, stream_create(&w->stream, KFIT_CU_STREAM_NON_BLOCKING))) ||
            !generic_cuda_open(w, &c->generic))
            return false;
    }
    if (w->generic)
        w->reply->blas = generic_cuda_version(w);
    return true;
}

static bool start(struct worker *w, const struct kfit_cu_command *c)
{
    static const char *const names[HELPERS] = {"kfit_fill", "kfit_hash", "kfit_differs", "kfit_reference", "kfit_delay",
                                               "kfit_read_2", "kfit_read_4", "kfit_read_8", "kfit_copy_2", "kfit_copy_4", "kfit_copy_8"};
    if (!describe(w, c))
        return false;
    if (!w->event[0]) {
        kfit_cu_library library;
        size_t free_bytes = 0, all = 0;
        if (!CU(w, mem_info(&free_bytes, &all)))
            return false;
        w->reply->others_bytes = all - free_bytes;
        if ((!w->stream && !CU(w, stream_create(&w->stream, KFIT_CU_STREAM_NON_BLOCKING))) ||
            !CU(w, event_create(&w->event[0], 0)) || !CU(w, event_create(&w->event[1], 0)) || !CU(w, mem_alloc(&w->scratch, 4096)) ||
            !CU(w, library_load(&library, w->arena, NULL, NULL, 0, NULL, NULL, 0)))
            return false;
        for (unsigned i = 0; i < HELPERS; i++) {
            kfit_cu_kernel k;
            if (!CU(w, library_kernel(&k, library, names[i])) || !CU(w, kernel_function(&w->helper[i], k)))
                return false;
        }
    }
    for (unsigned i = 0; i < KFIT_CU_ARGS; i++)
        guarded_free(w, &w->arg[i]);
    guarded_free(w, &w->workspace);
    for (unsigned i = 0; i < TIMED; i++) {
        w->cu->mem_free(w->timed[i]);
        w->timed[i] = 0;
    }
    w->sets = 0;
    w->key = c->key;
    w->op = kfit_op_of(&w->key);
    w->nargs = w->op->nargs(&w->key);
    w->out = w->op->out_arg;
    w->workspace_bytes = c->workspace_bytes;
    if (w->nargs > KFIT_CU_ARGS)
        return say(w, 1, "more arguments than a worker has room for");
    for (unsigned i = 0; i < w->nargs; i++) {
        w->op->tensor(&w->key, i, &w->tensor[i]);
        w->bytes[i] = kfit_tensor_bytes(&w->tensor[i]);
        if (!guarded_alloc(w, &w->arg[i], w->bytes[i]))
            return false;
    }
    if (c->workspace_bytes && !guarded_alloc(w, &w->workspace, c->workspace_bytes))
        return false;
    if (c->generic.path[0] && !worker_make_sets(w, 2 * w->reply->info.l2_bytes + (w->reply->info.l2_bytes >> 2)))
        return false;
    w->reply->sets = w->sets;
    w->reply->launches = w->launches;
    return worker_wait(w);
}

static bool fill(struct worker *w, const struct kfit_cu_command *c)
{
    w->seed = c->seed;
    w->distribution = c->distribution;
    for (unsigned i = 0; i < w->nargs; i++) {
        /* the key's alignment is that of all together: none is aligned less than its own elements */
        size_t align = w->key.gemm.align, element = kfit_dtype_bytes(w->tensor[i].type);
        align = align < element ? element : align;
        place(&w->arg[i], w->bytes[i], c->placement, align);
        if (!CU(w, set32(w->arg[i].base, KFIT_CU_BAND_WORD, w->arg[i].bytes / 4, w->stream)))
            return false;
        if (w->tensor[i].dir != KFIT_OUT && !worker_fill(w, i, address(&w->arg[i]), c->distribution, c->seed))
            return false;
    }
    if (w->workspace.base) {
        place(&w->workspace, w->workspace_bytes, 0, 256);
        if (!CU(w, set32(w->workspace.base, KFIT_CU_BAND_WORD, w->workspace.bytes / 4, w->stream)) ||
            !CU(w, set32(address(&w->workspace), 0, (w->workspace_bytes + 3) / 4, w->stream)))
            return false;
    }
    return hash_inputs(w, &w->inputs_hash);
}

static bool load(struct worker *w, const struct kfit_cu_command *c)
{
    struct kfit_error err = {0};
    const struct kfit_image image = {w->arena, c->bytes, &c->plan};
    kfit_device_cuda.unload(w->modules[c->who]);
    w->modules[c->who] = NULL;
    w->plan[c->who] = c->plan;
    if (!c->bytes)
        return true;
    if (kfit_device_cuda.load(&image, 1, w->nargs, &w->modules[c->who], &w->kernel[c->who], &err) == KFIT_OK)
        return true;
    w->reply->refused = 1; /* too much shared memory, a wrong image: said before anything ran */
    snprintf(w->reply->message, sizeof w->reply->message, "%.255s", err.text);
    return true;
}

/* Looks at what lies around one argument. */
static bool look_around(struct worker *w, const struct guarded *g, size_t bytes)
{
    const kfit_cu_ptr from = (address(g) + bytes + 3) & ~(kfit_cu_ptr)3, end = g->base + g->bytes;
    const struct {
        kfit_cu_ptr p;
        uint64_t words;
    } part[2] = {{g->base, g->at / 4}, {from, (end - from) / 4}};
    uint32_t want = KFIT_CU_BAND_WORD;
    for (unsigned i = 0; i < 2; i++) {
        kfit_cu_ptr p = part[i].p, count = w->scratch, lowest = w->scratch + 8;
        uint64_t words = part[i].words, found[2];
        void *params[] = {&p, &words, &want, &count, &lowest};
        if (!words)
            continue;
        if (!CU(w, set32(w->scratch, 0, 2, w->stream)) || !CU(w, set32(lowest, 0xffffffffu, 2, w->stream)) ||
            !worker_helper(w, H_DIFFERS, 264, 256, params) || !read_counters(w, found, 2))
            return false;
        if (found[0] && !w->reply->bands_changed) {
            w->reply->bands_changed = 1;
            w->reply->band_offset = i ? (int64_t)(found[1] - (address(g) + bytes)) : (int64_t)(found[1] - address(g));
        }
    }
    return true;
}

static bool launch(struct worker *w, const struct kfit_cu_command *c)
{
    kfit_cu_ptr args[KFIT_CU_ARGS];
    uint64_t hash;
    bool image = c->who != KFIT_CU_GENERIC;
    for (unsigned i = 0; i < w->nargs; i++)
        args[i] = address(&w->arg[i]);
    const unsigned o = w->out;
    bool inout = w->tensor[o].dir == KFIT_INOUT;
    /* the output is poisoned by 16-bit halves or words; what does not fill a word is poisoned with its neighbour */
    if (!inout && !CU(w, set32(args[o] & ~(kfit_cu_ptr)3, c->poison, (w->bytes[o] + (args[o] & 3)) / 4, w->stream)))
        return false;
    if (inout && !worker_fill(w, o, args[o], w->distribution, w->seed))
        return false;
    if (image && w->plan[c->who].workspace_bytes && w->plan[c->who].workspace_init == KFIT_WS_SCRATCH &&
        !CU(w, set32(address(&w->workspace), c->poison, w->plan[c->who].workspace_bytes / 4, w->stream)))
        return false;
    for (unsigned i = 0; i < c->count; i++) {
        if (inout && i && !worker_fill(w, o, args[o], w->distribution, w->seed))
            return false;
        if (!worker_call(w, c->who, args))
            return false;
    }
    if (!worker_wait(w) || !hash_inputs(w, &hash))
        return false;
    w->reply->inputs_changed = hash != w->inputs_hash;
    for (unsigned i = 0; i < w->nargs; i++)
        if (!look_around(w, &w->arg[i], w->bytes[i]))
            return false;
    if (image && w->plan[c->who].workspace_bytes) {
        if (!look_around(w, &w->workspace, w->workspace_bytes))
            return false;
        if (w->plan[c->who].workspace_init == KFIT_WS_ZERO) {
            kfit_cu_ptr p = address(&w->workspace), count = w->scratch, lowest = w->scratch + 8;
            uint64_t words = w->workspace_bytes / 4, found[2];
            uint32_t want = 0;
            void *params[] = {&p, &words, &want, &count, &lowest};
            if (!CU(w, set32(w->scratch, 0, 2, w->stream)) || !worker_helper(w, H_DIFFERS, 264, 256, params) ||
                !read_counters(w, found, 2))
                return false;
            w->reply->workspace_dirty = found[0] != 0;
        }
    }
    return CU(w, to_host(w->arena, args[o], w->bytes[o], w->stream)) && worker_wait(w);
}

static bool reference(struct worker *w, const struct kfit_cu_command *c)
{
    const struct kfit_gemm_key *g = &w->key.gemm;
    const struct kfit_tensor *t = w->tensor;
    size_t count = (size_t)(t[2].batch * t[2].rows * t[2].cols);
    kfit_cu_ptr a = address(&w->arg[0]), b = address(&w->arg[1]), old = address(&w->arg[2]), ref, mag;
    kfit_cu_ptr bias = w->nargs > 3 ? address(&w->arg[3]) : 0;
    int type_ab = g->type_a, type_c = g->type_c, m = g->m, n = g->n, k = g->k, ta = g->ta, tb = g->tb;
    int beta = g->beta == KFIT_SCALAR_ONE, batch = (int)t[2].batch;
    uint64_t lda = (uint64_t)g->lda, ldb = (uint64_t)g->ldb, ldc = (uint64_t)g->ldc;
    uint64_t sa = (uint64_t)t[0].batch_stride, sb = (uint64_t)t[1].batch_stride, sc = (uint64_t)t[2].batch_stride;
    (void)c;
    if (!CU(w, mem_alloc(&ref, 2 * count * sizeof(double))))
        return false;
    mag = ref + count * sizeof(double);
    void *params[] = {&a,  &b,  &old, &bias, &type_ab, &type_c, &m,  &n,  &k,   &lda, &ldb,
                      &ldc, &ta, &tb,  &beta, &batch,   &sa,     &sb, &sc, &ref, &mag};
    bool ok = worker_helper(w, H_REFERENCE, 1056, 256, params) &&
              CU(w, to_host(w->arena, ref, 2 * count * sizeof(double), w->stream)) && worker_wait(w);
    w->cu->mem_free(ref);
    return ok;
}

static bool output(struct worker *w, const struct kfit_cu_command *c)
{
    kfit_cu_ptr from = w->timed[TIMED_OUT + (c->who != 0)] + c->slot % w->slots * w->stride[w->out];
    return CU(w, to_host(w->arena, from, w->bytes[w->out], w->stream)) && worker_wait(w);
}

static bool argument(struct worker *w, const struct kfit_cu_command *c)
{
    if (c->slot >= w->nargs || w->bytes[c->slot] > w->arena_bytes)
        return say(w, 1, "no such argument, or too large");
    return CU(w, to_host(w->arena, address(&w->arg[c->slot]), w->bytes[c->slot], w->stream)) && worker_wait(w);
}

static bool flops(struct worker *w, const struct kfit_cu_command *c)
{
    if (kfit_dtype_bytes(c->slot) == 0 || c->slot == KFIT_F64)
        return say(w, 1, "no product of that type");
    return describe(w, c) && worker_flops(w, c);
}

static bool identify(struct worker *w, const struct kfit_cu_command *c)
{
    struct kfit_error err = {0};
    (void)c;
    return kfit_cuda_identify(w->reply->info.id, &err) == KFIT_OK || say(w, KFIT_CU_NO_DEVICE, err.text);
}

static bool needs_nothing(const struct kfit_cu_command *c)
{
    return c->what == KFIT_CU_START || c->what == KFIT_CU_DESCRIBE || c->what == KFIT_CU_IDENTIFY ||
           (c->what == KFIT_CU_KERNELS && !c->count);
}

static bool run(struct worker *w, const struct kfit_cu_command *c)
{
    static bool (*const commands[])(struct worker *, const struct kfit_cu_command *) = {
        [KFIT_CU_START] = start,         [KFIT_CU_FILL] = fill,     [KFIT_CU_LOAD] = load,
        [KFIT_CU_LAUNCH] = launch,       [KFIT_CU_PAIRS] = worker_pairs,
        [KFIT_CU_OUTPUT] = output,       [KFIT_CU_REFERENCE] = reference,
        [KFIT_CU_FLOOR] = worker_floor,  [KFIT_CU_DESCRIBE] = describe,
        [KFIT_CU_ARGUMENT] = argument,   [KFIT_CU_KERNELS] = worker_kernels,
        [KFIT_CU_FLOPS] = flops,         [KFIT_CU_IDENTIFY] = identify,
    };
    if (!c->what || c->what >= sizeof commands / sizeof *commands || (!w->op && !needs_nothing(c)))
        return say(w, 1, "unknown command");
    return commands[c->what](w, c);
}

int main(void)
{
    static struct worker w;
    static struct kfit_cu_command c;
    static struct kfit_cu_reply reply;
    struct stat st;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (fstat(3, &st) || st.st_size < 4096)
        return 2;
    w.arena_bytes = (size_t)st.st_size;
    w.arena = mmap(NULL, w.arena_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, 3, 0);
    if (w.arena == MAP_FAILED)
        return 2;
    while (recv(0, &c, sizeof c, MSG_WAITALL) == sizeof c) {
        memset(&reply, 0, sizeof reply);
        w.reply = &reply;
        w.limit_ms = c.limit_ms;
        bool ok = run(&w, &c);
        if (send(0, &reply, sizeof reply, MSG_NOSIGNAL) != sizeof reply || (!ok && reply.error))
            return 1;
    }
    return 0;
}
