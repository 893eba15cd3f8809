#include <immintrin.h>
#include <stdlib.h>

#include "bound.h"
#include "kfit/op.h"
#include "session.h"

#define ROUNDS   6 /* the best of */
#define ROUND_NS 5e5

static volatile double sink;

/* A bound measured with checks in the loops would be too easy to reach. */
#define MEASURES no_sanitize("address", "undefined", "thread")

/* One read and one multiply-add loop per vector width. 16 accumulators cover the latency of two units. */
#define DEFINE(isa, target_isa, V, load, add, VS, VD, fma_s, fma_d, set_s, set_d, bytes)                     \
    __attribute__((target(target_isa), MEASURES)) static double read_##isa(const char *p, size_t n)          \
    {                                                                                                        \
        V s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};                                                            \
        for (size_t i = 0; i + 4 * bytes <= n; i += 4 * bytes) {                                             \
            s0 = add(s0, load((const void *)(p + i)));                                                       \
            s1 = add(s1, load((const void *)(p + i + bytes)));                                               \
            s2 = add(s2, load((const void *)(p + i + 2 * bytes)));                                           \
            s3 = add(s3, load((const void *)(p + i + 3 * bytes)));                                           \
        }                                                                                                    \
        s0 = add(add(s0, s1), add(s2, s3));                                                                  \
        return ((const double *)&s0)[0];                                                                     \
    }                                                                                                        \
    __attribute__((target(target_isa), MEASURES)) static double flops_##isa(bool f64, unsigned loops)        \
    {                                                                                                        \
        VS s[16];                                                                                            \
        VD d[16];                                                                                            \
        for (int i = 0; i < 16; i++) {                                                                       \
            s[i] = set_s((float)i);                                                                          \
            d[i] = set_d(i);                                                                                 \
        }                                                                                                    \
        VS xs = set_s(0.5f);                                                                                 \
        VD xd = set_d(0.5);                                                                                  \
        for (unsigned l = 0; l < loops && !f64; l++)                                                         \
            _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) s[i] = fma_s(s[i], xs, xs);                \
        for (unsigned l = 0; l < loops && f64; l++)                                                          \
            _Pragma("GCC unroll 16") for (int i = 0; i < 16; i++) d[i] = fma_d(d[i], xd, xd);                \
        double sum = 0;                                                                                      \
        for (int i = 0; i < 16; i++)                                                                         \
            sum += ((const float *)&s[i])[0] + ((const double *)&d[i])[0];                                   \
        return sum;                                                                                          \
    }
#define MULADD_PS(a, b, c) _mm_add_ps(_mm_mul_ps(a, b), c)
#define MULADD_PD(a, b, c) _mm_add_pd(_mm_mul_pd(a, b), c)
#define LOAD512(p)         _mm512_loadu_pd(p)
DEFINE(sse2, "sse2", __m128d, _mm_loadu_pd, _mm_add_pd, __m128, __m128d, MULADD_PS, MULADD_PD, _mm_set1_ps,
       _mm_set1_pd, 16)
DEFINE(avx2, "avx2,fma", __m256d, _mm256_loadu_pd, _mm256_add_pd, __m256, __m256d, _mm256_fmadd_ps,
       _mm256_fmadd_pd, _mm256_set1_ps, _mm256_set1_pd, 32)
DEFINE(avx512, "avx512f", __m512d, LOAD512, _mm512_add_pd, __m512, __m512d, _mm512_fmadd_ps, _mm512_fmadd_pd,
       _mm512_set1_ps, _mm512_set1_pd, 64)

static const struct level {
    double (*read)(const char *, size_t);
    double (*flops)(bool f64, unsigned loops);
    unsigned vector_bytes;
} levels[] = {{read_avx512, flops_avx512, 64}, {read_avx2, flops_avx2, 32}, {read_sse2, flops_sse2, 16}};

static unsigned best_level(void)
{
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx512f")                                 ? 0
           : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? 1
                                                                             : 2;
}

bool kfit_ceilings_measure(struct kfit_ceilings *c)
{
    const size_t smallest = 16 << 10, largest = smallest << 2 * (KFIT_READ_POINTS - 1);
    char *buffer = aligned_alloc(4096, largest);
    if (!buffer)
        return false;
    memset(buffer, 0, largest);
    memset(c, 0, sizeof *c);
    for (unsigned i = 0; i < KFIT_READ_POINTS; i++) {
        size_t bytes = c->read[i].bytes = smallest << 2 * i;
        for (unsigned l = best_level(); l < 3; l++) { /* wider is not always faster */
            for (int r = 0; r < ROUNDS; r++) {
                double start = kfit_now_ns(), ns;
                unsigned n = 0;
                do {
                    sink = levels[l].read(buffer, bytes);
                    n++;
                } while ((ns = kfit_now_ns() - start) < ROUND_NS);
                double rate = (double)bytes * n / ns;
                c->read[i].bytes_per_ns = rate > c->read[i].bytes_per_ns ? rate : c->read[i].bytes_per_ns;
            }
        }
    }
    free(buffer);
    for (int f64 = 0; f64 < 2; f64++) {
        for (unsigned l = best_level(); l < 3; l++) {
            for (int r = 0; r < 4 * ROUNDS; r++) {
                const unsigned loops = 4000;
                double start = kfit_now_ns();
                sink = levels[l].flops(f64, loops);
                double rate =
                    2.0 * 16 * loops * (levels[l].vector_bytes / (f64 ? 8 : 4)) / (kfit_now_ns() - start);
                c->flops_per_ns[f64] = rate > c->flops_per_ns[f64] ? rate : c->flops_per_ns[f64];
            }
        }
    }
    return true;
}

double kfit_bound_ns(const struct kfit_ceilings *c, const union kfit_key *key)
{
    const struct kfit_op *op = kfit_op_of(key);
    struct kfit_tensor t;
    op->tensor(key, op->out_arg, &t);
    double bytes = op->bytes(key), rate = 0;
    for (unsigned i = 0; i < KFIT_READ_POINTS; i++) /* the best rate of any set at least this large */
        if ((double)c->read[i].bytes >= bytes || i + 1 == KFIT_READ_POINTS)
            rate = c->read[i].bytes_per_ns > rate ? c->read[i].bytes_per_ns : rate;
    double by_bytes = bytes / rate, by_flops = op->flops(key) / c->flops_per_ns[t.type == KFIT_F64];
    return by_bytes > by_flops ? by_bytes : by_flops;
}
