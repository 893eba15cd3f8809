/* What the device can do at most, measured in a GPU worker: bytes by size, FLOPs by type (kfit/ceilings.h). */
#include <string.h>

#include "worker_cuda.h"

/* ---- bytes: the best pure read, or copy, of that many cold ones, over a few launch shapes ---- */

static bool time_read(struct worker *w, kfit_cu_ptr buffer, size_t room, size_t bytes, enum helper h,
                      unsigned blocks, unsigned threads, double *best)
{
    enum { LAUNCHES = 24, REPLAYS = 4 };
    kfit_cu_graph graph;
    kfit_cu_exec exec;
    size_t sets = room / bytes;
    const bool copies = h >= H_COPY_2; /* from the first half into the second */
    uint64_t words = (copies ? bytes / 2 : bytes) / 16;
    bool ok = CU(w, capture_begin(w->stream, KFIT_CU_CAPTURE_THREAD_LOCAL));
    for (unsigned i = 0; ok && i < LAUNCHES; i++) {
        kfit_cu_ptr p = buffer + (i % sets) * bytes, to = copies ? p + bytes / 2 : w->scratch;
        void *params[] = {&p, &words, &to};
        ok = worker_helper(w, h, blocks, threads, params);
    }
    if (w->cu->capture_end(w->stream, &graph) || !ok)
        return ok && worker_check(w, KFIT_CU_LAUNCH_FAILED, "cuStreamEndCapture");
    ok = CU(w, graph_instantiate(&exec, graph, 0));
    w->cu->graph_destroy(graph);
    for (unsigned r = 0; ok && r < REPLAYS; r++) {
        double ns;
        ok = CU(w, set32(buffer + room, r, w->reply->info.l2_bytes / 2,
                         w->stream)) && /* push the last round out */
             CU(w, event_record(w->event[0], w->stream)) &&
             CU(w, graph_launch(exec, w->stream)) && worker_elapsed(w, LAUNCHES, &ns);
        if (ok && r && ns < *best)
            *best = ns;
    }
    w->cu->exec_destroy(exec);
    return ok;
}

bool worker_floor(struct worker *w, const struct kfit_cu_command *c)
{
    static const unsigned per_sm[] = {1, 2, 4, 8}, threads[] = {128, 256, 512, 1024};
    struct kfit_error err = {0};
    if (kfit_device_cuda.describe(&w->reply->info, &err) != KFIT_OK)
        return worker_check(w, 1, "describe");
    uint64_t sizes[64];
    double *out = (double *)w->arena;
    unsigned n = c->count < 64 ? c->count : 64;
    size_t largest = 0, sweep = 2 * w->reply->info.l2_bytes;
    memcpy(sizes, w->arena, n * sizeof *sizes);
    for (unsigned i = 0; i < n; i++)
        largest = sizes[i] > largest ? sizes[i] : largest;
    size_t room = 2 * largest > 24 * (size_t)12e6 ? 2 * largest : 24 * (size_t)12e6;
    kfit_cu_ptr buffer;
    if (!CU(w, mem_alloc(&buffer, room + sweep)) ||
        !CU(w, set32(buffer, 0x3f803f80u, (room + sweep) / 4, w->stream)))
        return false;
    const unsigned first = c->who ? H_COPY_2 : H_READ_2;
    bool ok = true;
    for (unsigned i = 0; ok && i < n; i++) {
        double best = 1e300;
        for (unsigned shape = 0; ok && shape < 16; shape++)
            for (unsigned h = first; ok && h < first + 3; h++)
                ok = time_read(w, buffer, room, sizes[i] & ~(size_t)31, (enum helper)h,
                               per_sm[shape / 4] * w->reply->info.units, threads[shape % 4], &best);
        out[i] = best;
    }
    w->cu->mem_free(buffer);
    return ok;
}

/* ---- FLOPs ---- */

/* The vendor's product of square matrices: as large as fills every multiprocessor many times over. Of ones: what
 * switches least runs at the highest clock, and a ceiling must not be too low. */
bool worker_flops(struct worker *w, const struct kfit_cu_command *c)
{
    enum { CALLS = 4, ROUNDS = 4 };
    const int n = w->reply->info.units >= 64 ? 8192 : 1024;
    const struct kfit_gemm_key square = {.len = KFIT_GEMM_KEY_BYTES, .op = KFIT_OP_GEMM, .tb = 1, .type_a = (uint8_t)c->slot,
                                         .type_b = (uint8_t)c->slot, .type_c = (uint8_t)c->slot, .type_acc = KFIT_F32,
                                         .alpha = KFIT_SCALAR_ONE, .align = 16, .m = n, .n = n, .k = n, .lda = n, .ldb = n,
                                         .ldc = n};
    const size_t bytes = (size_t)n * (size_t)n * kfit_dtype_bytes(c->slot);
    kfit_cu_ptr arg[KFIT_CU_ARGS] = {0};
    double best = 0, ns = 0;
    bool ok = true;
    w->key.gemm = square;
    w->op = kfit_op_of(&w->key);
    w->nargs = w->op->nargs(&w->key);
    w->out = w->op->out_arg;
    for (unsigned i = 0; ok && i < w->nargs; i++) {
        w->op->tensor(&w->key, i, &w->tensor[i]);
        ok = CU(w, mem_alloc(&arg[i], bytes)) &&
             CU(w, set32(arg[i], c->slot == KFIT_F16 ? 0x3c003c00u : c->slot == KFIT_BF16 ? 0x3f803f80u : 0x3f800000u,
                         bytes / 4, w->stream));
    }
    for (unsigned r = 0; ok && r < ROUNDS; r++) { /* the first chooses and loads a kernel */
        ok = CU(w, event_record(w->event[0], w->stream));
        for (unsigned i = 0; ok && i < CALLS; i++)
            ok = worker_call(w, KFIT_CU_GENERIC, arg);
        ok = ok && worker_elapsed(w, CALLS, &ns);
        if (ok && r && ns > 0 && w->op->flops(&w->key) / ns > best)
            best = w->op->flops(&w->key) / ns;
    }
    for (unsigned i = 0; i < w->nargs; i++)
        w->cu->mem_free(arg[i]);
    memcpy(w->arena, &best, sizeof best);
    return ok;
}
