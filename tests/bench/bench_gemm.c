/* Seed kernels against OpenBLAS (cblas) and LIBXSMM, per shape, in one run.
 *
 * For each shape every seed's first choice of knobs is compiled, and those that differ from it in one knob;
 * the fastest is then timed against both peers: batches in alternating order, median of the paired ratios.
 * Caches are warm, as in a program that calls with the same weights. Operands lie 16 bytes past a cache line,
 * where numpy's malloc puts them.
 *
 *     bench_gemm [--json FILE] [--offset BYTES] [KEY ...]      KEY as in a trace; without: a table of shapes
 *
 * OPENBLAS_NUM_THREADS is the peer's as usual. */
#include <cblas.h>
#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#ifdef HAVE_LIBXSMM
#include <libxsmm.h>
#endif

#include "kfit/op.h"
#include "median.h"
#include "seed_kernel.h"

enum { ROUNDS = 31, GRID = 24, PEERS = 3 };

static const struct shape {
    int m, n, k;
    const char *layout;
    enum kfit_dtype type;
} shapes[] = {
    /* small, where LIBXSMM is at home */
    {4, 4, 4, "nn", KFIT_F32},
    {8, 8, 8, "nn", KFIT_F32},
    {16, 16, 16, "nn", KFIT_F32},
    {13, 13, 13, "nn", KFIT_F32},
    {32, 32, 32, "nn", KFIT_F32},
    {16, 16, 16, "nn", KFIT_F64},
    {16, 24, 24, "nn", KFIT_F32},
    {16, 64, 64, "nn", KFIT_F32},
    /* a classifier on 8x8 digits, padded to 768 inputs */
    {1, 10, 256, "nn", KFIT_F32},
    {4, 10, 256, "nn", KFIT_F32},
    {8, 10, 256, "nn", KFIT_F32},
    {16, 10, 256, "nn", KFIT_F32},
    {4, 64, 768, "nn", KFIT_F32},
    {16, 64, 768, "nn", KFIT_F32},
    {8, 256, 256, "nn", KFIT_F32},
    {4, 256, 768, "nn", KFIT_F32},
    {16, 256, 768, "nn", KFIT_F32},
    /* its training: forward, and both gradients */
    {64, 256, 768, "nn", KFIT_F32},
    {768, 256, 64, "tn", KFIT_F32},
    {64, 768, 256, "nt", KFIT_F32},
    {256, 10, 64, "tn", KFIT_F32},
    {64, 256, 10, "nt", KFIT_F32},
    /* a few rows through wide layers */
    {1, 768, 768, "nn", KFIT_F32},
    {2, 768, 768, "nn", KFIT_F32},
    {4, 768, 768, "nn", KFIT_F32},
    {8, 768, 768, "nn", KFIT_F32},
    {16, 768, 768, "nn", KFIT_F32},
    {1, 3072, 768, "nn", KFIT_F32},
    {2, 3072, 768, "nn", KFIT_F32},
    {4, 3072, 768, "nn", KFIT_F32},
    {4, 768, 3072, "nn", KFIT_F32},
    {8, 3072, 768, "nn", KFIT_F32},
    {16, 1024, 1024, "nn", KFIT_F32},
    {4, 768, 768, "nn", KFIT_F64},
    /* the same with weights stored as [n,k] */
    {1, 768, 768, "nt", KFIT_F32},
    {4, 768, 768, "nt", KFIT_F32},
    {8, 768, 768, "nt", KFIT_F32},
    {4, 3072, 768, "nt", KFIT_F32},
    {16, 256, 256, "nt", KFIT_F32},
    {4, 768, 768, "nt", KFIT_F64},
};

/* ---- operands ---- */

struct problem {
    union kfit_key key;
    void *args[3]; /* a, b, c */
    double *ref, *mag;
};

static struct kfit_error err;
static size_t offset_bytes = 16;

static void must(enum kfit_status s)
{
    if (s == KFIT_OK)
        return;
    fprintf(stderr, "bench_gemm: %s: %s\n", kfit_status_str(s), err.text);
    exit(1);
}

static void *must_have(void *p)
{
    if (!p) {
        fprintf(stderr, "bench_gemm: out of memory\n");
        exit(1);
    }
    return p;
}

static void problem_make(struct problem *p)
{
    const struct kfit_op *op = kfit_op_of(&p->key);
    unsigned seed = 1;
    for (unsigned i = 0; i < 3; i++) {
        struct kfit_tensor t;
        op->tensor(&p->key, i, &t);
        size_t bytes = kfit_tensor_bytes(&t), n = bytes / kfit_dtype_bytes((enum kfit_dtype)t.type);
        unsigned char *room = must_have(aligned_alloc(4096, (bytes + offset_bytes + 4095) / 4096 * 4096));
        p->args[i] = room + offset_bytes;
        for (size_t e = 0; e < n; e++) {
            seed = seed * 1664525u + 1013904223u;
            double v = t.dir == KFIT_IN ? seed * 0x1p-32 - 0.5 : 0;
            if (t.type == KFIT_F64)
                ((double *)p->args[i])[e] = v;
            else
                ((float *)p->args[i])[e] = (float)v;
        }
    }
    size_t n = (size_t)p->key.gemm.m * (size_t)p->key.gemm.n;
    p->ref = must_have(malloc(2 * n * sizeof(double)));
    p->mag = p->ref + n;
    op->reference(&p->key, (const void *const *)p->args, p->ref, p->mag);
}

static void problem_free(struct problem *p)
{
    for (unsigned i = 0; i < 3; i++)
        free((unsigned char *)p->args[i] - offset_bytes);
    free(p->ref);
}

/* Whether c holds the product, within what single accumulation may lose; c is spoilt for the next check. */
static bool right(struct problem *p)
{
    const struct kfit_gemm_key *g = &p->key.gemm;
    double bound = kfit_dtype_roundoff(g->type_c) * (1 + 1.2 * sqrt(g->k));
    bool ok = true;
    for (int i = 0; i < g->m; i++)
        for (int j = 0; j < g->n; j++) {
            size_t at = (size_t)i * (size_t)g->ldc + (size_t)j, r = (size_t)i * (size_t)g->n + (size_t)j;
            double *d = (double *)p->args[2] + at;
            float *f = (float *)p->args[2] + at;
            ok &= fabs((g->type_c == KFIT_F64 ? *d : (double)*f) - p->ref[r]) <= bound * p->mag[r];
            if (g->type_c == KFIT_F64)
                *d = 0;
            else
                *f = 0;
        }
    return ok;
}

/* ---- who is timed ---- */

struct runner {
    const char *name;
    void (*run)(const struct runner *r, const struct problem *p);
    const struct kfit_kernel *kernel;
#ifdef HAVE_LIBXSMM
    libxsmm_smmfunction smm;
    libxsmm_dmmfunction dmm;
#endif
};

static void run_kfit(const struct runner *r, const struct problem *p)
{
    kfit_device_host.launch(r->kernel, p->args, NULL, NULL);
}

/* As numpy calls: one row goes through gemv. */
static void run_openblas(const struct runner *r, const struct problem *p)
{
    (void)r;
    const struct kfit_gemm_key *g = &p->key.gemm;
    const void *a = p->args[0], *b = p->args[1];
    void *c = p->args[2];
    CBLAS_TRANSPOSE ta = g->ta ? CblasTrans : CblasNoTrans, tb = g->tb ? CblasTrans : CblasNoTrans;
    CBLAS_TRANSPOSE tv = g->tb ? CblasNoTrans : CblasTrans;
    int rows = g->tb ? g->n : g->k, cols = g->tb ? g->k : g->n, step = g->ta ? g->lda : 1;
    if (g->type_a == KFIT_F64 && g->m == 1)
        cblas_dgemv(CblasRowMajor, tv, rows, cols, 1, b, g->ldb, a, step, g->beta, c, 1);
    else if (g->type_a == KFIT_F64)
        cblas_dgemm(CblasRowMajor, ta, tb, g->m, g->n, g->k, 1, a, g->lda, b, g->ldb, g->beta, c, g->ldc);
    else if (g->m == 1)
        cblas_sgemv(CblasRowMajor, tv, rows, cols, 1, b, g->ldb, a, step, g->beta, c, 1);
    else
        cblas_sgemm(CblasRowMajor, ta, tb, g->m, g->n, g->k, 1, a, g->lda, b, g->ldb, g->beta, c, g->ldc);
}

#ifdef HAVE_LIBXSMM
static void run_libxsmm(const struct runner *r, const struct problem *p)
{
    if (r->smm)
        r->smm(p->args[1], p->args[0], p->args[2]);
    else
        r->dmm(p->args[1], p->args[0], p->args[2]);
}

/* Column-major: A and B change places. False where it has no kernel, as for B stored as [n,k]. */
static bool find_libxsmm(struct runner *r, const struct problem *p)
{
    const struct kfit_gemm_key *g = &p->key.gemm;
    int flags = (g->tb ? LIBXSMM_GEMM_FLAG_TRANS_A : 0) | (g->ta ? LIBXSMM_GEMM_FLAG_TRANS_B : 0);
    int prefetch = LIBXSMM_PREFETCH_NONE;
    float one = 1, beta = g->beta;
    double one64 = 1, beta64 = g->beta;
    *r = (struct runner){.name = "libxsmm", .run = run_libxsmm};
    if (g->type_a == KFIT_F32)
        r->smm =
            libxsmm_smmdispatch(g->n, g->m, g->k, &g->ldb, &g->lda, &g->ldc, &one, &beta, &flags, &prefetch);
    else
        r->dmm = libxsmm_dmmdispatch(g->n, g->m, g->k, &g->ldb, &g->lda, &g->ldc, &one64, &beta64, &flags,
                                     &prefetch);
    return r->smm || r->dmm;
}
#endif

/* ---- timing ---- */

static double now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

static double batch_ns(const struct runner *r, const struct problem *p, unsigned calls)
{
    double start = now_ns();
    for (unsigned i = 0; i < calls; i++)
        r->run(r, p);
    return (now_ns() - start) / calls;
}

static unsigned calls_for(const struct runner *r, const struct problem *p, double ns)
{
    batch_ns(r, p, 2);
    double once = batch_ns(r, p, 3), n = ns / (once + 1);
    return n < 1 ? 1 : n > 1e5 ? 100000u : (unsigned)n;
}

/* Medians of every runner's time, and of its ratio to the first one's, from batches in turn. */
static void compare(const struct runner *r, unsigned n, const struct problem *p, double ns[PEERS],
                    double ratio[PEERS])
{
    double t[PEERS][ROUNDS], q[PEERS][ROUNDS];
    unsigned calls[PEERS];
    for (unsigned i = 0; i < n; i++)
        calls[i] = calls_for(&r[i], p, 2e5);
    for (unsigned round = 0; round < ROUNDS; round++)
        for (unsigned i = 0; i < n; i++) {
            unsigned who = round % 2 ? n - 1 - i : i;
            batch_ns(&r[who], p, 1);
            t[who][round] = batch_ns(&r[who], p, calls[who]);
        }
    for (unsigned i = 0; i < n; i++) {
        for (unsigned round = 0; round < ROUNDS; round++)
            q[i][round] = t[i][round] / t[0][round];
        ratio[i] = median(q[i], ROUNDS);
    }
    for (unsigned i = 0; i < n; i++)
        ns[i] = median(t[i], ROUNDS);
}

/* ---- our best ---- */

struct entry {
    const struct kfit_candidate *candidate;
    struct kfit_choice choice;
    struct seed_kernel kernel;
    double ns;
};

static struct kfit_candidate **candidates;

static unsigned grid_add(struct entry grid[GRID], unsigned n, const struct problem *p,
                         const struct kfit_candidate *c, const struct kfit_choice *choice)
{
    if (n == GRID)
        return n;
    struct entry *e = &grid[n];
    *e = (struct entry){.candidate = c, .choice = *choice};
    enum kfit_status s = seed_kernel_build(&e->kernel, c, &p->key, choice, NULL, NULL, &err);
    if (s == KFIT_E_REFUSED && strncmp(err.text, "static:require", 14) == 0)
        return n; /* not for this shape */
    must(s);
    return n + 1;
}

/* Every seed's first choice first, then their neighbours, one knob changed. */
static unsigned grid_make(struct entry grid[GRID], const struct problem *p)
{
    unsigned n = 0;
    for (unsigned i = 0; i < kfit_seed_count; i++)
        if (candidates[i])
            n = grid_add(grid, n, p, candidates[i], &(struct kfit_choice){0});
    for (unsigned first = 0, firsts = n; first < firsts; first++) {
        const struct kfit_knob *knobs;
        unsigned count = kfit_candidate_knobs(grid[first].candidate, &knobs);
        for (unsigned k = 0; k < count; k++)
            for (uint8_t v = 1; v < 3 && v < knobs[k].count; v++) {
                struct kfit_choice choice = {0};
                choice.index[k] = v;
                n = grid_add(grid, n, p, grid[first].candidate, &choice);
            }
    }
    return n;
}

static unsigned grid_best(struct entry *grid, unsigned n, const struct problem *p)
{
    unsigned best = 0;
    for (unsigned i = 0; i < n; i++)
        grid[i].ns = INFINITY;
    for (unsigned round = 0; round < 7; round++)
        for (unsigned i = 0; i < n; i++) {
            struct runner r = {.run = run_kfit, .kernel = &grid[i].kernel.kernel};
            double ns = batch_ns(&r, p, calls_for(&r, p, 1e5));
            grid[i].ns = ns < grid[i].ns ? ns : grid[i].ns;
        }
    for (unsigned i = 1; i < n; i++)
        if (grid[i].ns < grid[best].ns)
            best = i;
    return best;
}

/* ---- one shape, all shapes ---- */

struct totals {
    unsigned shapes, ahead, xsmm, xsmm_near;
    double log_ratio, worst_xsmm;
};

static cJSON *bench(struct problem *p, struct totals *t)
{
    struct entry grid[GRID];
    struct runner r[PEERS];
    char text[KFIT_KEY_TEXT_MAX], knobs[200];
    double ns[PEERS] = {0}, ratio[PEERS] = {0}, first = INFINITY;
    unsigned peers = 0, n, best;
    problem_make(p);
    kfit_key_format(&p->key, text, sizeof text);
    n = grid_make(grid, p);
    if (!n) {
        fprintf(stderr, "bench_gemm: %s: no seed is for this shape\n", text);
        exit(1);
    }
    best = grid_best(grid, n, p);
    for (unsigned i = 0; i < n; i++) {
        static const struct kfit_choice zero;
        if (!memcmp(&grid[i].choice, &zero, sizeof zero) && grid[i].ns < first)
            first = grid[i].ns;
    }
    r[peers++] = (struct runner){.name = "kfit", .run = run_kfit, .kernel = &grid[best].kernel.kernel};
    r[peers++] = (struct runner){.name = "openblas", .run = run_openblas};
#ifdef HAVE_LIBXSMM
    peers += find_libxsmm(&r[peers], p);
#endif
    for (unsigned i = 0; i < peers; i++) {
        right(p);
        r[i].run(&r[i], p);
        if (!right(p)) {
            fprintf(stderr, "bench_gemm: %s is wrong at %s\n", r[i].name, text);
            exit(1);
        }
    }
    compare(r, peers, p, ns, ratio);

    const struct kfit_gemm_key *g = &p->key.gemm;
    char shape[48];
    kfit_choice_format(grid[best].candidate, &grid[best].choice, knobs, sizeof knobs);
    snprintf(shape, sizeof shape, "%dx%dx%d %c%c %s", g->m, g->n, g->k, g->ta ? 't' : 'n', g->tb ? 't' : 'n',
             kfit_dtype_name(g->type_a));
    printf("%-22s %11.1f %11.1f %6.2f ", shape, ns[0], ns[1], ratio[1]);
    if (peers > 2)
        printf("%11.1f %6.2f", ns[2], ratio[2]);
    else
        printf("%11s %6s", "-", "-");
    printf("  %5.2f  %s %s\n", first / grid[best].ns, kfit_candidate_name(grid[best].candidate), knobs);
    fflush(stdout);
    t->shapes++;
    t->ahead += ratio[1] > 1.02;
    t->log_ratio += log(ratio[1]);
    if (peers > 2 && ns[2] < ns[1] && g->m <= 16 && g->n <= 1024 && g->k <= 1024) {
        t->xsmm++;
        t->xsmm_near += ratio[2] >= 1 / 1.1;
        t->worst_xsmm = ratio[2] < t->worst_xsmm ? ratio[2] : t->worst_xsmm;
    }

    cJSON *row = cJSON_CreateObject();
    cJSON_AddStringToObject(row, "key", text);
    cJSON_AddStringToObject(row, "seed", kfit_candidate_name(grid[best].candidate));
    cJSON_AddStringToObject(row, "knobs", knobs);
    cJSON_AddNumberToObject(row, "kfit_ns", ns[0]);
    cJSON_AddNumberToObject(row, "first_over_best", first / grid[best].ns);
    for (unsigned i = 1; i < peers; i++) {
        char name[32];
        snprintf(name, sizeof name, "%s_ns", r[i].name);
        cJSON_AddNumberToObject(row, name, ns[i]);
        snprintf(name, sizeof name, "%s_ratio", r[i].name);
        cJSON_AddNumberToObject(row, name, ratio[i]);
    }
    for (unsigned i = 0; i < n; i++)
        seed_kernel_finish(&grid[i].kernel);
    problem_free(p);
    return row;
}

static void write_json(const char *path, cJSON *rows)
{
    cJSON *all = cJSON_CreateObject();
    cJSON_AddStringToObject(all, "openblas", openblas_get_config());
    cJSON_AddStringToObject(all, "core", openblas_get_corename());
    cJSON_AddNumberToObject(all, "threads", openblas_get_num_threads());
    cJSON_AddNumberToObject(all, "offset", (double)offset_bytes);
    cJSON_AddItemToObject(all, "rows", rows);
    char *text = must_have(cJSON_Print(all));
    FILE *f = fopen(path, "w");
    if (!f || fputs(text, f) < 0 || fclose(f)) {
        fprintf(stderr, "bench_gemm: cannot write %s\n", path);
        exit(1);
    }
    cJSON_free(text);
    cJSON_Delete(all);
}

int main(int argc, char **argv)
{
    const char *json = NULL;
    int first = 1;
    /* Set to an older core, OpenBLAS would be slower than it need be; it reads this before main. */
    if (getenv("OPENBLAS_CORETYPE") || getenv("OPENBLAS_L2_SIZE")) {
        unsetenv("OPENBLAS_CORETYPE");
        unsetenv("OPENBLAS_L2_SIZE");
        execv("/proc/self/exe", argv);
    }
    for (; first + 1 < argc && !strncmp(argv[first], "--", 2); first += 2) {
        if (!strcmp(argv[first], "--json"))
            json = argv[first + 1];
        else if (!strcmp(argv[first], "--offset"))
            offset_bytes = (size_t)atoi(argv[first + 1]) % 4096 / 8 * 8;
        else
            break;
    }
    if (first < argc && argv[first][0] == '-') {
        fprintf(stderr, "usage: bench_gemm [--json FILE] [--offset BYTES] [KEY ...]\n");
        return 2;
    }
    candidates = must_have(calloc(kfit_seed_count, sizeof *candidates));
    for (unsigned i = 0; i < kfit_seed_count; i++)
        if (strcmp(kfit_seeds[i].device, "host") == 0)
            must(kfit_candidate_parse(kfit_seeds[i].source, kfit_seeds[i].bytes, &candidates[i], &err));

    printf("# %s, core %s, %d thread%s; operands %zu bytes past a cache line; times in ns\n",
           openblas_get_config(), openblas_get_corename(), openblas_get_num_threads(),
           openblas_get_num_threads() == 1 ? "" : "s", offset_bytes % 64);
    printf("%-22s %11s %11s %6s %11s %6s  %5s  best\n", "m x n x k", "kfit", "openblas", "ratio", "libxsmm",
           "ratio", "first");
    struct totals t = {.worst_xsmm = INFINITY};
    cJSON *rows = cJSON_CreateArray();
    struct problem p;
    for (int i = first; i < argc; i++) {
        must(kfit_key_parse(argv[i], &p.key, &err));
        cJSON_AddItemToArray(rows, bench(&p, &t));
    }
    for (size_t i = 0; first == argc && i < sizeof shapes / sizeof *shapes; i++) {
        const struct shape *s = &shapes[i];
        seed_key(&p.key, s->type, s->m, s->n, s->k, s->layout[0] == 't', s->layout[1] == 't', false,
                 (int[3]){0});
        cJSON_AddItemToArray(rows, bench(&p, &t));
    }
    printf("# openblas: ahead at %u of %u shapes, geometric mean %.2fx\n", t.ahead, t.shapes,
           exp(t.log_ratio / t.shapes));
    if (t.xsmm)
        printf("# libxsmm, where it beats openblas and m <= 16, n, k <= 1024: within 10 %% or ahead at %u of "
               "%u, "
               "worst %.2fx\n",
               t.xsmm_near, t.xsmm, t.worst_xsmm);
    if (json)
        write_json(json, rows);
    else
        cJSON_Delete(rows);
    for (unsigned i = 0; i < kfit_seed_count; i++)
        kfit_candidate_destroy(candidates[i]);
    free(candidates);
    return 0;
}
