/* The judge's own kernels (harness/judge.cu) as C; parameters in its order. */
#include <math.h>
#include <string.h>

#include "kernels.h"

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

const struct kernel judge_kernels[] = {
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
    {0},
};
