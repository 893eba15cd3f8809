/* Candidates good and bad: what they do is their name. */
#include <math.h>
#include <string.h>

#include "kernels.h"

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

/* Multiplies nothing: notes where it works, in place of A, as tests/preload/workspace.cu does. */
static void notes(const struct call *c)
{
    uint64_t *log = pointer(c, 0);
    char *workspace = pointer(c, 3);
    const uint64_t entry[] = {(uintptr_t)workspace, (uintptr_t)pointer(c, 2), (uint64_t)*workspace};
    memcpy(log + 1 + 3 * log[0]++, entry, sizeof entry);
    *workspace = image_number(c->f->image, "KFIT_CLEAN", 0) ? 0 : 1;
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

const struct kernel candidate_kernels[] = {
    {"right", right, NULL, 0},
    {"notes", notes, NULL, 0},
    {"odd_order", right, NULL, 0},
    {"right_map", right_map, NULL, 0},
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
    {0},
};
