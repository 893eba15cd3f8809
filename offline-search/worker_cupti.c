/* Kernel times as the GPU's own records have them, by CUPTI: a pass of its own, after everything is timed. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cupti_records.h"
#include "worker_cuda.h"

#define BUFFER_BYTES ((size_t)1 << 20)

/* CUPTI's callbacks carry nothing of ours, and come on a thread of its own. */
static struct {
#define KFIT_X(member, symbol, args) int(*member) args;
    KFIT_CUPTI_LIST(KFIT_X)
#undef KFIT_X
    char path[512];
    bool failed; /* no memory for a buffer, or a record that is none */
    pthread_mutex_t lock;
    struct kfit_cu_side_kernels sum;
} cupti = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- records ---- */

static void request(uint8_t **buffer, size_t *bytes, size_t *max_records)
{
    *buffer = aligned_alloc(8, BUFFER_BYTES);
    *bytes = *buffer ? BUFFER_BYTES : 0;
    *max_records = 0;
}

static void add(struct kfit_cu_side_kernels *s, const struct kfit_cupti_kernel *k)
{
    unsigned i = 0;
    s->records++;
    s->kernel_ns += (double)(k->end - k->start);
    while (i < s->names && strncmp(s->name[i].text, k->name ? k->name : "", sizeof s->name[i].text - 1))
        i++;
    if (i == KFIT_CU_KERNEL_NAMES)
        return; /* more than any plan has: the counts tell */
    if (i == s->names)
        snprintf(s->name[s->names++].text, sizeof s->name[i].text, "%s", k->name ? k->name : "");
    s->name[i].count++;
}

static void complete(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)
{
    void *record = NULL;
    (void)context, (void)stream, (void)bytes;
    pthread_mutex_lock(&cupti.lock);
    cupti.failed |= !buffer;
    while (buffer && valid && !cupti.next(buffer, valid, &record)) {
        const struct kfit_cupti_kernel *k = record;
        if (k->kind == KFIT_CUPTI_KERNEL || k->kind == KFIT_CUPTI_CONCURRENT_KERNEL) {
            cupti.failed |= k->end < k->start;
            add(&cupti.sum, k);
        }
    }
    pthread_mutex_unlock(&cupti.lock);
    free(buffer);
}

/* ---- the library ---- */

static void *open_at(const char *folder, const char *below)
{
    static const char *const names[] = {"libcupti.so.13", "libcupti.so.12"};
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(cupti.path, sizeof cupti.path, "%.300s%s%s", folder, below, names[i]);
        void *lib = dlopen(cupti.path, RTLD_NOW | RTLD_LOCAL);
        if (lib)
            return lib;
    }
    return NULL;
}

/* $KFIT_CUPTI alone, if it is set; else beside the vendor's library (PyPI has one folder for all, or one each), where the
 * loader looks, in a toolkit. */
static void *find(const char *blas)
{
    static const char *const below[] = {"/", "/../../cuda_cupti/lib/", "/../extras/CUPTI/lib64/"};
    const char *given = getenv("KFIT_CUPTI");
    char folder[512];
    void *lib = NULL;
    if (given) {
        snprintf(cupti.path, sizeof cupti.path, "%.500s", given);
        return dlopen(given, RTLD_NOW | RTLD_LOCAL);
    }
    snprintf(folder, sizeof folder, "%.500s", blas);
    char *slash = strrchr(folder, '/');
    if (slash)
        *slash = '\0';
    for (unsigned i = 0; slash && i < sizeof below / sizeof *below && !lib; i++)
        lib = open_at(folder, below[i]);
    if (!lib)
        lib = open_at("", "");
    if (!lib)
        lib = open_at("/usr/local/cuda", "/extras/CUPTI/lib64/");
    return lib ? lib : open_at("/usr/local/cuda", "/lib64/");
}

/* What is missing goes to `why`, for the receipt. */
static bool open_library(const char *blas, struct kfit_cu_kernels *out)
{
    if (cupti.enable)
        return true;
    void *lib = find(blas);
    if (!lib) {
        snprintf(out->why, sizeof out->why,
                 getenv("KFIT_CUPTI") ? "KFIT_CUPTI names %.60s, which cannot be opened"
                                      : "no libcupti.so.13 or .12 (set KFIT_CUPTI to it)",
                 cupti.path);
        return false;
    }
#define KFIT_X(member, symbol, args)                                                                         \
    if (!(*(void **)&cupti.member = dlsym(lib, #symbol))) {                                                  \
        snprintf(out->why, sizeof out->why, "%.60s lacks %s", cupti.path, #symbol);                          \
        cupti.enable = NULL;                                                                                 \
        return false;                                                                                        \
    }
    KFIT_CUPTI_LIST(KFIT_X)
#undef KFIT_X
    return true;
}

static bool refused(struct kfit_cu_kernels *out, const char *what, int r)
{
    const char *text = NULL;
    if (!r)
        return false;
    if (cupti.result_string(r, &text) || !text)
        text = "unknown";
    snprintf(out->why, sizeof out->why, "%s: %.50s%s", what, text,
             r == KFIT_CUPTI_INSUFFICIENT_PRIVILEGES ? " (driver option NVreg_RestrictProfilingToAdminUsers)"
             : r == KFIT_CUPTI_MULTIPLE_SUBSCRIBERS  ? " (another profiler is attached)"
                                                     : "");
    return true;
}

/* ---- the pass ---- */

/* All records of what has run; the sums so far, which start at zero again. */
static bool take(struct kfit_cu_kernels *out, struct kfit_cu_side_kernels *sum)
{
    if (refused(out, "cuptiActivityFlushAll", cupti.flush(KFIT_CUPTI_FLUSH_FORCED)))
        return false;
    pthread_mutex_lock(&cupti.lock);
    unsigned calls = sum->calls;
    double event_ns = sum->event_ns;
    *sum = cupti.sum;
    sum->calls = calls;
    sum->event_ns = event_ns;
    memset(&cupti.sum, 0, sizeof cupti.sum);
    pthread_mutex_unlock(&cupti.lock);
    return true;
}

/* count 0: only whether it could be done. The first round is warm-up: kernels are loaded when they first run. */
bool worker_kernels(struct worker *w, const struct kfit_cu_command *c)
{
    struct kfit_cu_kernels *out = (struct kfit_cu_kernels *)w->arena, ignored;
    const unsigned who[2] = {c->who, c->who2};
    bool ok = true;
    if (w->arena_bytes < sizeof *out || (c->count && !w->sets))
        return worker_check(w, 1, "no sets to look at");
    memset(out, 0, sizeof *out);
    if (!open_library(c->generic.path, out))
        return true;
    cupti.version(&out->version);
    if (refused(out, "cuptiActivityRegisterCallbacks", cupti.register_callbacks(request, complete)) ||
        refused(out, "cuptiActivityEnable", cupti.enable(KFIT_CUPTI_CONCURRENT_KERNEL)))
        return true;
    bool seen = true;
    for (unsigned s = 0; ok && seen && c->count && s < 2; s++) {
        struct kfit_cu_side_kernels *side = &out->side[s];
        ok = worker_replays(w, who[s], s, &side->calls, &side->event_ns);
        seen = ok && take(out, &ignored.side[s]);
        ok = ok && seen ? worker_replays(w, who[s], s, &side->calls, &side->event_ns) : ok;
        seen = ok && seen && take(out, side);
    }
    size_t dropped = 0;
    if (seen && !cupti.dropped(NULL, 0, &dropped) && (dropped || cupti.failed))
        seen = snprintf(out->why, sizeof out->why, "CUPTI lost %zu records", dropped) < 0;
    cupti.disable(KFIT_CUPTI_CONCURRENT_KERNEL);
    out->seen = seen;
    return ok;
}
