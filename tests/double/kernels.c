/* What kernels do here, as C: the judge's own (kernels_judge.c), cuBLAS's (kernels_gemm.c), candidates good and bad
 * (kernels_candidates.c), and the device suite's. */
#include <math.h>
#include <signal.h>
#include <string.h>

#include "kernels.h"

uint64_t mix(uint64_t z)
{
    z += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

/* ---- storage types ---- */

float of_bits(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

uint16_t to_bf16(float x, bool truncate)
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

double get(const void *p, int type, int64_t i)
{
    aligned(p, type);
    switch (type) {
    case F32: return ((const float *)p)[i];
    case F64: return ((const double *)p)[i];
    case BF16: return of_bits((uint32_t)((const uint16_t *)p)[i] << 16);
    default: return of_f16(((const uint16_t *)p)[i]);
    }
}

void put(void *p, int type, int64_t i, float x)
{
    aligned(p, type);
    switch (type) {
    case F32: ((float *)p)[i] = x; break;
    case F64: ((double *)p)[i] = (double)x; break;
    case BF16: ((uint16_t *)p)[i] = to_bf16(x, false); break;
    default: ((uint16_t *)p)[i] = to_f16(x);
    }
}

/* ---- parameters ---- */

void *pointer(const struct call *c, unsigned i)
{
    return (void *)(uintptr_t)c->param[i];
}

int integer(const struct call *c, unsigned i)
{
    return (int)(uint32_t)c->param[i];
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

/* Of tests/gpu/graph_switch.c: who ran in which place, and how. */
static void marks(const struct call *c, uint32_t who, uint32_t cluster)
{
    uint32_t *mark = (uint32_t *)pointer(c, 0) + 4 * integer(c, 1);
    mark[0] = who;
    mark[1] += c->config.grid[0];
    mark[2] = c->config.smem_bytes;
    mark[3] = cluster;
}

static void marks_1(const struct call *c)
{
    marks(c, 1, c->cluster);
}

static void marks_2(const struct call *c)
{
    marks(c, 2, c->cluster);
}

static void marks_pair(const struct call *c) /* compiled for clusters of two */
{
    marks(c, 3, 2);
}

void nothing(const struct call *c)
{
    (void)c;
}

static double no_cost(const struct call *c)
{
    (void)c;
    return 0;
}

/* ---- the tables ---- */

static const struct kernel device_kernels[] = {
    {"adds", adds, NULL, 0},
    {"tells", tells, NULL, 0},
    {"marks_1", marks_1, NULL, 0},
    {"marks_2", marks_2, NULL, 0},
    {"marks_pair", marks_pair, NULL, 0},
    {"nothing", nothing, NULL, 0},
    {"at_once", nothing, no_cost, 0},
    {0},
};

const struct kernel *kernel_find(const char *name)
{
    static const struct kernel *const tables[] = {judge_kernels, gemm_kernels, device_kernels, candidate_kernels};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const struct kernel *k = tables[t]; k->name; k++)
            if (!strcmp(k->name, name))
                return k;
    return NULL;
}
