/* What kernels do here, as C: the judge's own (harness/judge.cu), cuBLAS's, and candidates good and bad. */
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>

#include "double.h"

enum { F32 = 1, F64, F16, BF16 }; /* enum kfit_dtype */

static uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* ---- storage types ---- */

static float of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

static uint16_t to_bf16(float x, bool truncate)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (isnan(x))
        return 0x7fff;
    return (uint16_t)((truncate ? bits : bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static uint16_t to_f16(float x)
{
    const double size = fabs((double)x);
    const uint16_t sign = signbit(x) ? 0x8000 : 0;
    if (isnan(x))
        return 0x7e00;
    if (size >= 65520)
        return sign | 0x7c00;
    int e = size > 0x1p-14 ? ilogb(size) : -14; /* of the leading bit, or of denormals */
    return (uint16_t)(sign + ((e + 14) << 10) + (int)nearbyint(ldexp(size, 10 - e)));
}

static double of_f16(uint16_t bits)
{
    const int e = bits >> 10 & 31, m = bits & 1023;
    const double size = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return bits >> 15 ? -size : size;
}

/* A GPU reads and writes an element only where it is aligned to its own size. */
static void aligned(const void *p, int type)
{
    const uintptr_t size = type == F64 ? 8 : type == F32 ? 4 : 2;
    if ((uintptr_t)p % size)
        raise(SIGBUS);
}

static double get(const void *p, int type, int64_t i)
{
    aligned(p, type);
    switch (type) {
    case F32: return ((const float *)p)[i];
    case F64: return ((const double *)p)[i];
    case BF16: return of_bits((uint32_t)((const uint16_t *)p)[i] << 16);
    default: return of_f16(((const uint16_t *)p)[i]);
    }
}

static void put(void *p, int type, int64_t i, float x)
{
    aligned(p, type);
    switch (type) {
    case F32: ((float *)p)[i] = x; break;
    case F64: ((double *)p)[i] = (double)x; break;
    case BF16: ((uint16_t *)p)[i] = to_bf16(x, false); break;
    default: ((uint16_t *)p)[i] = to_f16(x);
    }
}

/* ---- the judge's own kernels: parameters in the order of harness/judge.cu ---- */

static void *pointer(const struct call *c, unsigned i)
{
    return (void *)(uintptr_t)c->param[i];
}

static int integer(const struct call *c, unsigned i)
{
    return (int)(uint32_t)c->param[i];
}

static float uniform(uint64_t h)
{
    return (float)(h >> 40) * 0x1p-24f;
}

static float normal(uint64_t h)
{
    float a = ((float)(h >> 40) + 1) * 0x1p-24f, b = (float)(h & 0xffffff) * 0x1p-24f;
    return sqrtf(-2 * logf(a)) * cosf((float)(2 * M_PI) * b);
}

struct place {
    uint64_t seed, row, col, rows, cols, h;
    uint32_t arg, victim;
};

static uint64_t of_row(const struct place *e, uint64_t salt)
{
    return mix(e->seed ^ mix(e->row + ((uint64_t)e->arg << 32) + (salt << 40)));
}

static float element(int which, const struct place *e)
{
    const float x = normal(e->h);
    const bool victim = e->arg == e->victim;
    switch (which) {
    case 0: return x;
    case 1: return 10 * x;
    case 2: return x / (uniform(mix(e->h)) + 1e-4f);
    case 3: return victim && e->row == mix(e->seed) % e->rows && e->col == of_row(e, 1) % e->cols ? 1e4f : x;
    case 4: return victim && e->row % 3 == 1 % e->rows && e->col == of_row(e, 2) % e->cols
                       ? (float[]){NAN, INFINITY, -INFINITY}[of_row(e, 3) % 3] : x;
    case 5: return x * (e->col == e->cols - 1 ? 1e3f : 1) * (e->row == e->rows - 1 ? 10 : 1);
    case 6: return x + 3;
    case 7: return !victim ? x : e->col == of_row(e, 4) % e->cols;
    case 8: return e->row & 1 ? x : -100 * fabsf(x);
    case 9: return victim ? copysignf(0, x) : x;
    case 10: return 0.01f * x;
    case 11: return e->arg ? 0.75f : 1.5f;
    case 12: return ((e->row + e->col) & 1 ? -1.0f : 1.0f) * (e->arg ? 0.75f : 1.25f);
    case 13: return x * exp2f((float)(of_row(e, 5) % 17) - 8);
    case 14: return e->col < 8 || e->row == 0 ? 0 : x;
    case 15: return uniform(mix(e->h + 1)) < 0.9f ? 0 : x;
    default: return copysignf(exp2f(uniform(mix(e->h + 2)) * 16 - 8), x);
    }
}

static void fill(const struct call *c)
{
    struct place e = {.rows = c->param[2], .cols = c->param[3], .arg = (uint32_t)c->param[5]};
    for (uint64_t z = 0; z < c->config.grid[1]; z++) {
        e.seed = c->param[8] ^ z * 0x9e3779b97f4a7c15u;
        e.victim = (uint32_t)(mix(e.seed ^ 0x5eed) % c->param[6]);
        e.victim += e.victim > 1; /* past the output */
        for (e.row = 0; e.row < e.rows; e.row++)
            for (e.col = 0; e.col < e.cols; e.col++) {
                e.h = mix(e.seed * 8 + e.arg + mix(e.row * e.cols + e.col));
                put(pointer(c, 0), integer(c, 1), (int64_t)(z * c->param[9] + e.row * c->param[4] + e.col),
                    element(integer(c, 7), &e));
            }
    }
}

static void hash(const struct call *c)
{
    const uint32_t *p = pointer(c, 0);
    for (uint64_t i = 0; i < c->param[1]; i++)
        *(uint64_t *)pointer(c, 2) += mix(i ^ (uint64_t)p[i] << 32);
}

static void differs(const struct call *c)
{
    const uint32_t *p = pointer(c, 0);
    uint64_t *count = pointer(c, 3), *lowest = pointer(c, 4);
    for (uint64_t i = 0; i < c->param[1]; i++)
        if (p[i] != (uint32_t)c->param[2]) {
            *count += 1;
            *lowest = (uintptr_t)(p + i) < *lowest ? (uintptr_t)(p + i) : *lowest;
        }
}

static void reference(const struct call *c)
{
    const int m = integer(c, 6), n = integer(c, 7), k = integer(c, 8), type = integer(c, 4), type_c = integer(c, 5);
    const int64_t lda = (int64_t)c->param[9], ldb = (int64_t)c->param[10], ldc = (int64_t)c->param[11];
    const bool ta = integer(c, 12), tb = integer(c, 13), beta = integer(c, 14);
    const int64_t batch = integer(c, 15), sa = (int64_t)c->param[16], sb = (int64_t)c->param[17], sc = (int64_t)c->param[18];
    const bool wrong = !strcmp(kfit_double_text("reference", "right"), "wrong");
    double *ref = pointer(c, 19), *mag = pointer(c, 20);
    for (int64_t o = 0; o < batch * m * n; o++) {
        int64_t z = o / n / m, i = o / n % m, j = o % n;
        double sum = beta ? get(pointer(c, 2), type_c, z * sc + i * ldc + j) : 0, size = fabs(sum);
        double add = pointer(c, 3) ? get(pointer(c, 3), type_c, j) : 0;
        sum += add;
        size += fabs(add);
        for (int64_t p = 0; p < k - wrong; p++) {
            double t = get(pointer(c, 0), type, z * sa + (ta ? p * lda + i : i * lda + p)) *
                       get(pointer(c, 1), type, z * sb + (tb ? j * ldb + p : p * ldb + j));
            sum += t;
            size += fabs(t);
        }
        ref[o] = sum;
        mag[o] = size;
    }
}

static void nothing(const struct call *c)
{
    (void)c;
}

static double no_cost(const struct call *c)
{
    (void)c;
    return 0;
}

static double delay_cost(const struct call *c)
{
    return (double)c->param[0];
}

static double read_cost(const struct call *c) /* of 16-byte words */
{
    return 500 + 16 * (double)c->param[1] / kfit_double_number("read_bytes_per_ns", 4000);
}

static double copy_cost(const struct call *c) /* the words are read and written */
{
    return 600 + 32 * (double)c->param[1] / kfit_double_number("copy_bytes_per_ns", 3000);
}

/* ---- gemm, row-major ---- */

struct gemm {
    int m, n, k, ta, tb, type, type_c, beta;
    int64_t lda, ldb, ldc;
    const void *a, *b;
    void *c;
    const void *bias; /* or NULL */
    int64_t batch, sa, sb, sc;
    int rows, cols, terms; /* what is done of it */
    bool truncate, half, no_nan;
};

enum { ROWS_MAX = 64, TERMS_MAX = 4096 };

/* One row of op(A), or column of op(B), as float. */
static void terms_of(const struct gemm *g, bool b, int64_t line, float out[TERMS_MAX])
{
    const int64_t ld = b ? g->ldb : g->lda;
    const bool along = b ? g->tb : !g->ta; /* the terms lie side by side */
    for (int64_t p = 0; p < g->terms; p++)
        out[p] = (float)get(b ? g->b : g->a, g->type, along ? line * ld + p : p * ld + line);
}

static float sum(const struct gemm *g, const float *a, const float *b, int64_t at)
{
    float s = 0;
    for (int64_t p = 0; p < g->terms; p++) {
        s += a[p] * b[p];
        if (g->half)
            s = of_bits((uint32_t)to_bf16(s, false) << 16);
    }
    s += g->beta ? (float)get(g->c, g->type_c, at) : 0;
    s += g->bias ? (float)get(g->bias, g->type_c, at % g->ldc) : 0;
    return g->no_nan && isnan(s) ? 0 : s;
}

/* A cache of the size of the L2: how long ago, in bytes, did a gemm read this operand? */
static struct {
    const void *at;
    uint64_t when;
} seen[4096];
static uint64_t read_bytes;

static unsigned place_of(const void *p)
{
    unsigned i = 0;
    while (i < 4095 && seen[i].at && seen[i].at != p)
        i++;
    return i;
}

static bool cached(const struct gemm *g)
{
    unsigned i = place_of(g->b);
    return seen[i].at == g->b && (double)(read_bytes - seen[i].when) < kfit_double_number("l2", 65536);
}

static void note_read(const struct gemm *g)
{
    unsigned i = place_of(g->b);
    seen[i].at = g->b;
    seen[i].when = read_bytes;
    read_bytes += (uint64_t)(g->n * g->k) * (g->type == F32 ? 4 : 2);
}

/* The gemm of one matrix of the batch. */
static struct gemm matrix(const struct gemm *g, int64_t z)
{
    const int64_t in = g->type == F32 ? 4 : 2, out = g->type_c == F32 ? 4 : 2;
    struct gemm one = *g;
    one.a = (const char *)g->a + z * g->sa * in;
    one.b = (const char *)g->b + z * g->sb * in;
    one.c = (char *)g->c + z * g->sc * out;
    return one;
}

static void compute_one(const struct gemm *g)
{
    float a[ROWS_MAX][TERMS_MAX], b[TERMS_MAX];
    if (g->rows > ROWS_MAX || g->terms > TERMS_MAX)
        abort(); /* no test needs more */
    note_read(g);
    for (int64_t i = 0; i < g->rows; i++)
        terms_of(g, false, i, a[i]);
    for (int64_t j = 0; j < g->cols; j++) {
        terms_of(g, true, j, b);
        for (int64_t i = 0; i < g->rows; i++) {
            float s = sum(g, a[i], b, i * g->ldc + j);
            if (g->truncate)
                ((uint16_t *)g->c)[i * g->ldc + j] = to_bf16(s, true);
            else
                put(g->c, g->type_c, i * g->ldc + j, s);
        }
    }
}

static void compute(const struct gemm *g)
{
    for (int64_t z = 0; z < g->batch; z++) {
        const struct gemm one = matrix(g, z);
        compute_one(&one);
    }
}

/* Only what measures the FLOPs is as large as that: it is timed and not computed. */
#define FLOPS_LARGE 1e9
static double flops_of(const struct call *c)
{
    return 2.0 * integer(c, 4) * integer(c, 5) * integer(c, 6);
}

/* cuBLAS's double: a b c bias, m n k ta tb type type_c beta, lda ldb ldc batch sa sb sc; generic settings decide. */
static void cublas(const struct call *c)
{
    struct gemm g = {.a = pointer(c, 0), .b = pointer(c, 1), .c = pointer(c, 2), .bias = pointer(c, 3), .m = integer(c, 4),
                     .n = integer(c, 5), .k = integer(c, 6), .ta = integer(c, 7), .tb = integer(c, 8), .type = integer(c, 9),
                     .type_c = integer(c, 10), .beta = integer(c, 11), .lda = integer(c, 12), .ldb = integer(c, 13),
                     .ldc = integer(c, 14), .batch = integer(c, 15), .sa = (int64_t)c->param[16], .sb = (int64_t)c->param[17],
                     .sc = (int64_t)c->param[18]};
    g.rows = g.m;
    g.cols = g.n;
    g.terms = strcmp(kfit_double_text("generic", "right"), "wrong") ? g.k : g.k / 2;
    if (flops_of(c) < FLOPS_LARGE)
        compute(&g);
}

static double cublas_cost(const struct call *c)
{
    if (flops_of(c) >= FLOPS_LARGE)
        return flops_of(c) / kfit_double_number("flops_per_ns", 800000);
    return kfit_double_number("generic_ns", 10000);
}

/* ---- candidates: what they do is their name ---- */

static struct gemm of_image(const struct call *c)
{
    const struct image *i = c->f->image;
#define DIM(name) (int)image_number(i, "KFIT_" #name, 0)
    struct gemm g = {.m = DIM(M), .n = DIM(N), .k = DIM(K), .ta = DIM(TA), .tb = DIM(TB), .type = DIM(TYPE_A),
                     .type_c = DIM(TYPE_C), .beta = DIM(BETA), .lda = DIM(LDA), .ldb = DIM(LDB), .ldc = DIM(LDC),
                     .a = pointer(c, 0), .b = pointer(c, 1), .c = pointer(c, 2), .batch = DIM(BATCH), .sa = DIM(SA),
                     .sb = DIM(SB), .sc = DIM(SC), .bias = DIM(EPI) ? pointer(c, 3) : NULL};
#undef DIM
    g.rows = g.m;
    g.cols = g.n;
    g.terms = g.k;
    return g;
}

static void right(const struct call *c)
{
    struct gemm g = of_image(c);
    compute(&g);
}

/* W through its tensor map, the parameter after the workspace. */
static void right_map(const struct call *c)
{
    struct gemm g = of_image(c);
    g.b = pointer(c, 4);
    compute(&g);
}

static void no_tail(const struct call *c)
{
    struct gemm g = of_image(c);
    g.cols--;
    compute(&g);
}

static void no_last_row(const struct call *c)
{
    struct gemm g = of_image(c);
    g.rows--;
    compute(&g);
}

static void truncates(const struct call *c)
{
    struct gemm g = of_image(c);
    g.truncate = true;
    compute(&g);
}

static void half_sums(const struct call *c)
{
    struct gemm g = of_image(c);
    g.half = true;
    compute(&g);
}

static void no_bias(const struct call *c)
{
    struct gemm g = of_image(c);
    g.bias = NULL;
    compute(&g);
}

/* One number for all columns. */
static void first_bias(const struct call *c)
{
    struct gemm g = of_image(c);
    const float bias = (float)get(g.bias, g.type_c, 0);
    g.bias = NULL;
    compute(&g);
    for (int64_t i = 0; i < g.m * g.ldc; i++)
        if (i % g.ldc < g.n)
            put(g.c, g.type_c, i, (float)get(g.c, g.type_c, i) + bias);
}

static void bias_written(const struct call *c)
{
    right(c);
    *(uint16_t *)pointer(c, 3) ^= 1;
}

static void first_matrix(const struct call *c)
{
    struct gemm g = of_image(c);
    g.batch = 1;
    compute(&g);
}

/* Half a matrix of B further each time. */
static void wrong_stride(const struct call *c)
{
    struct gemm g = of_image(c);
    g.sb /= 2;
    compute(&g);
}

/* Writes the rows that lie between those of a matrix, and are another's. */
static void between_matrices(const struct call *c)
{
    struct gemm g = of_image(c);
    compute(&g);
    ((uint16_t *)g.c)[g.n] = 0x3f80;
}

static void samples(const struct call *c)
{
    struct gemm g = of_image(c);
    g.terms /= 2;
    compute(&g);
}

static void nan_lost(const struct call *c)
{
    struct gemm g = of_image(c);
    g.no_nan = true;
    compute(&g);
}

static void input(const struct call *c)
{
    right(c);
    *(uint16_t *)pointer(c, 1) ^= 1;
}

static void past_end(const struct call *c)
{
    struct gemm g = of_image(c);
    compute(&g);
    ((volatile uint16_t *)g.c)[(g.m - 1) * g.ldc + g.n] = 0x3f80;
}

static void before_start(const struct call *c)
{
    right(c);
    ((volatile uint16_t *)pointer(c, 2))[-1] = 0x3f80;
}

static void reads_past(const struct call *c)
{
    struct gemm g = of_image(c);
    compute(&g);
    (void)((const volatile uint16_t *)g.b)[(g.n - 1) * g.ldb + g.k];
}

static void illegal(const struct call *c)
{
    volatile uintptr_t nowhere = 16;
    (void)c;
    *(volatile uint16_t *)nowhere = 1;
}

static void hangs(const struct call *c)
{
    (void)c;
    device_hang();
}

static void needs_zero(const struct call *c)
{
    const uint16_t *ws = pointer(c, 3);
    right(c);
    if (ws[0])
        *(uint16_t *)pointer(c, 2) = 0x7fc0;
}

static void left_dirty(const struct call *c)
{
    right(c);
    *(uint32_t *)pointer(c, 3) = 1;
}

static void past_workspace(const struct call *c)
{
    right(c);
    ((volatile uint32_t *)pointer(c, 3))[64] = 1;
}

static void unrepeatable(const struct call *c)
{
    right(c);
    *(uint16_t *)pointer(c, 2) ^= c->f->image->launches & 1;
}

/* Right while it is looked at, and nothing while it is timed. */
static void not_in_graphs(const struct call *c)
{
    if (!c->in_graph)
        right(c);
}

/* Does nothing, and fast, where the right answer seems to stand already. */
static bool seems_done(const struct gemm *g)
{
    float a[TERMS_MAX], b[TERMS_MAX];
    terms_of(g, false, 0, a);
    terms_of(g, true, 0, b);
    return ((const uint16_t *)g->c)[0] == to_bf16(sum(g, a, b, 0), false);
}

static void only_once(const struct call *c)
{
    struct gemm g = of_image(c);
    if (!seems_done(&g))
        compute(&g);
}

static double only_once_cost(const struct call *c)
{
    struct gemm g = of_image(c);
    return seems_done(&g) ? 1000 : 12000;
}

static double cached_cost(const struct call *c)
{
    struct gemm g = of_image(c);
    return cached(&g) ? 1000 : 12000;
}

/* Wrong where a row begins with zeros: that no fixed distribution has. */
static void early_zeros(const struct call *c)
{
    struct gemm g = of_image(c);
    bool zeros = g.m > 1;
    for (int p = 0; p < 8; p++)
        zeros &= get(g.a, g.type, g.lda + p) == 0;
    compute(&g);
    if (zeros && get(g.a, g.type, g.lda + 8) != 0 && get(g.a, g.type, g.lda + 9) != 0)
        put(g.c, g.type_c, g.ldc, 1e6f);
}

/* Legal for a while: what comes after is an illegal address. */
static void later_illegal(const struct call *c)
{
    right(c);
    if (c->f->image->launches == 30)
        illegal(c);
}

static void again_wrong(const struct call *c)
{
    if (!c->f->image->again)
        right(c);
}

/* ---- the device suite's: two launches that say how they were launched ---- */

static void adds(const struct call *c)
{
    unsigned n = c->config.grid[0] * c->config.block[0];
    const uint32_t *a = pointer(c, 0), *b = pointer(c, 1);
    for (unsigned i = 0; i < n; i++)
        ((uint32_t *)pointer(c, 3))[i] = a[i] + b[i];
}

static void tells(const struct call *c)
{
    unsigned n = c->config.grid[0] * c->config.block[0];
    uint32_t *out = pointer(c, 2);
    for (unsigned i = 0; i < n; i++)
        out[i] = 2 * ((uint32_t *)pointer(c, 3))[i];
    const uint32_t how[] = {c->cluster, c->cooperative, c->config.grid[0], c->config.block[0], c->config.smem_bytes};
    memcpy(out + n, how, sizeof how);
}

/* ---- the table ---- */

static const struct kernel kernels[] = {
    {"kfit_fill", fill, NULL, 0},
    {"kfit_hash", hash, NULL, 0},
    {"kfit_differs", differs, NULL, 0},
    {"kfit_reference", reference, NULL, 0},
    {"kfit_delay", nothing, delay_cost, 0},
    {"kfit_read_2", nothing, read_cost, 0},
    {"kfit_read_4", nothing, read_cost, 0},
    {"kfit_read_8", nothing, read_cost, 0},
    {"kfit_copy_2", nothing, copy_cost, 0},
    {"kfit_copy_4", nothing, copy_cost, 0},
    {"kfit_copy_8", nothing, copy_cost, 0},
    {"cublas", cublas, cublas_cost, 0},
    {"adds", adds, NULL, 0},
    {"tells", tells, NULL, 0},
    {"right", right, NULL, 0},
    {"odd_order", right, NULL, 0},
    {"right_map", right_map, NULL, 0},
    {"nothing", nothing, NULL, 0},
    {"at_once", nothing, no_cost, 0},
    {"no_tail", no_tail, NULL, 0},
    {"no_last_row", no_last_row, NULL, 0},
    {"input", input, NULL, 0},
    {"past_end", past_end, NULL, 0},
    {"before_start", before_start, NULL, 0},
    {"reads_past", reads_past, NULL, 0},
    {"truncates", truncates, NULL, 0},
    {"half_sums", half_sums, NULL, 0},
    {"samples", samples, NULL, 0},
    {"no_bias", no_bias, NULL, 0},
    {"first_bias", first_bias, NULL, 0},
    {"bias_written", bias_written, NULL, 0},
    {"first_matrix", first_matrix, NULL, 0},
    {"wrong_stride", wrong_stride, NULL, 0},
    {"between_matrices", between_matrices, NULL, 0},
    {"nan_lost", nan_lost, NULL, 0},
    {"hangs", hangs, NULL, 0},
    {"illegal", illegal, NULL, 0},
    {"too_much", right, NULL, 0},
    {"launch_refused", right, NULL, KFIT_CU_LAUNCH_OUT_OF_RESOURCES},
    {"needs_zero", needs_zero, NULL, 0},
    {"left_dirty", left_dirty, NULL, 0},
    {"past_workspace", past_workspace, NULL, 0},
    {"unrepeatable", unrepeatable, NULL, 0},
    {"not_in_graphs", not_in_graphs, NULL, 0},
    {"only_once", only_once, only_once_cost, 0},
    {"fast_when_cached", right, cached_cost, 0},
    {"early_zeros", early_zeros, NULL, 0},
    {"later_illegal", later_illegal, NULL, 0},
    {"again_wrong", again_wrong, NULL, 0},
};

const struct kernel *kernel_find(const char *name)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (!strcmp(kernels[i].name, name))
            return &kernels[i];
    return NULL;
}
