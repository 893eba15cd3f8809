/* kfit_host.h - what every host candidate may use, and the only header there is. Held in memory: a candidate
 * says #include "kfit_host.h", nothing is read from disk, and no other include is allowed.
 *
 * Given by the harness as macros: KFIT_TYPE (float or double, the type of all arguments), the op's dimensions
 * (gemm: KFIT_M, KFIT_N, KFIT_K, KFIT_LDA, KFIT_LDB, KFIT_LDC, KFIT_TA, KFIT_TB, KFIT_BETA, ...), KFIT_<KNOB>
 * for each knob, KFIT_VL_BYTES (width of a vector register), KFIT_VREGS (how many there are).
 *
 *     void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws);
 *
 * Vectors are the compiler's own: v + w, v * w and v * w + u work, and the last becomes a fused multiply-add.
 * A scalar operand is spread: v * x.
 */
#ifndef KFIT_HOST_H
#define KFIT_HOST_H

/* A knob VB makes vectors narrower: 32 or 16 bytes where rows are short or end in a short rest. */
#if defined(KFIT_VB) && KFIT_VB
#define KFIT_VECTOR_BYTES KFIT_VB
#else
#define KFIT_VECTOR_BYTES KFIT_VL_BYTES
#endif
#define KFIT_VL         ((int)(KFIT_VECTOR_BYTES / sizeof(KFIT_TYPE))) /* lanes of a vector */
#define KFIT_DOUBLE     (sizeof(KFIT_TYPE) == 8)
#define KFIT_RESTRICT   __restrict__
#define KFIT_INLINE     static inline __attribute__((always_inline))
#define KFIT_MIN(a, b)  ((a) < (b) ? (a) : (b))
#define KFIT_CEIL(a, b) (((a) + (b)-1) / (b))

/* KFIT_UNROLL(n) before a loop: unroll it n times. n may be a macro, not an expression. KFIT_UNROLL_ALL: away
 * with the loop, early enough for arrays indexed by its counter to live in registers; at most 64 rounds. */
#define KFIT_PRAGMA(x) _Pragma(#x)
#ifdef __clang__
#define KFIT_UNROLL(n)  KFIT_PRAGMA(unroll n)
#define KFIT_UNROLL_ALL KFIT_PRAGMA(clang loop unroll(full))
#else
#define KFIT_UNROLL(n)  KFIT_PRAGMA(GCC unroll n)
#define KFIT_UNROLL_ALL KFIT_PRAGMA(GCC unroll 64)
#endif
#define KFIT_PREFETCH(p) __builtin_prefetch(p)

typedef KFIT_TYPE vf __attribute__((vector_size(KFIT_VECTOR_BYTES)));
/* The same, at any address and over any type. */
typedef KFIT_TYPE vf_any __attribute__((vector_size(KFIT_VECTOR_BYTES), aligned(1), may_alias));

KFIT_INLINE vf kfit_load(const KFIT_TYPE *p)
{
    return *(const vf_any *)p;
}

KFIT_INLINE void kfit_store(KFIT_TYPE *p, vf v)
{
    *(vf_any *)p = v;
}

KFIT_INLINE vf kfit_zero(void)
{
    return (vf){0};
}

KFIT_INLINE vf kfit_broadcast(KFIT_TYPE x)
{
    return x - (vf){0}; /* x - 0 is x, also for -0 and NaN */
}

/* The first n lanes, 0 <= n <= KFIT_VL, the others zero: no memory beyond them is touched. A constant
 * n = KFIT_VL is a plain load or store. */
typedef float kfit_f512 __attribute__((vector_size(64)));
typedef double kfit_d512 __attribute__((vector_size(64)));
typedef float kfit_f256 __attribute__((vector_size(32)));
typedef double kfit_d256 __attribute__((vector_size(32)));
typedef int kfit_i256 __attribute__((vector_size(32)));
typedef long long kfit_l256 __attribute__((vector_size(32)));

#if KFIT_VECTOR_BYTES == 64 && defined(__AVX512F__)

KFIT_INLINE vf kfit_load_n(const KFIT_TYPE *p, int n)
{
    if (__builtin_constant_p(n) && n == KFIT_VL)
        return kfit_load(p);
    if (KFIT_DOUBLE)
        return (vf)__builtin_ia32_loadupd512_mask((const void *)p, (kfit_d512){0},
                                                  (unsigned char)((1u << n) - 1));
    return (vf)__builtin_ia32_loadups512_mask((const void *)p, (kfit_f512){0},
                                              (unsigned short)((1u << n) - 1));
}

KFIT_INLINE void kfit_store_n(KFIT_TYPE *p, vf v, int n)
{
    if (__builtin_constant_p(n) && n == KFIT_VL)
        kfit_store(p, v);
    else if (KFIT_DOUBLE)
        __builtin_ia32_storeupd512_mask((void *)p, (kfit_d512)v, (unsigned char)((1u << n) - 1));
    else
        __builtin_ia32_storeups512_mask((void *)p, (kfit_f512)v, (unsigned short)((1u << n) - 1));
}

#elif KFIT_VECTOR_BYTES == 32 && defined(__AVX512VL__)

KFIT_INLINE vf kfit_load_n(const KFIT_TYPE *p, int n)
{
    if (__builtin_constant_p(n) && n == KFIT_VL)
        return kfit_load(p);
    if (KFIT_DOUBLE)
        return (vf)__builtin_ia32_loadupd256_mask((const void *)p, (kfit_d256){0},
                                                  (unsigned char)((1u << n) - 1));
    return (vf)__builtin_ia32_loadups256_mask((const void *)p, (kfit_f256){0},
                                              (unsigned char)((1u << n) - 1));
}

KFIT_INLINE void kfit_store_n(KFIT_TYPE *p, vf v, int n)
{
    if (__builtin_constant_p(n) && n == KFIT_VL)
        kfit_store(p, v);
    else if (KFIT_DOUBLE)
        __builtin_ia32_storeupd256_mask((void *)p, (kfit_d256)v, (unsigned char)((1u << n) - 1));
    else
        __builtin_ia32_storeups256_mask((void *)p, (kfit_f256)v, (unsigned char)((1u << n) - 1));
}

#elif KFIT_VECTOR_BYTES == 32 && defined(__AVX2__)

KFIT_INLINE kfit_i256 kfit_mask_f(int n)
{
    return (kfit_i256){0, 1, 2, 3, 4, 5, 6, 7} < n;
}

KFIT_INLINE kfit_l256 kfit_mask_d(int n)
{
    return (kfit_l256){0, 1, 2, 3} < n;
}

KFIT_INLINE vf kfit_load_n(const KFIT_TYPE *p, int n)
{
    if (__builtin_constant_p(n) && n == KFIT_VL)
        return kfit_load(p);
    if (KFIT_DOUBLE)
        return (vf)__builtin_ia32_maskloadpd256((const void *)p, kfit_mask_d(n));
    return (vf)__builtin_ia32_maskloadps256((const void *)p, kfit_mask_f(n));
}

KFIT_INLINE void kfit_store_n(KFIT_TYPE *p, vf v, int n)
{
    if (__builtin_constant_p(n) && n == KFIT_VL)
        kfit_store(p, v);
    else if (KFIT_DOUBLE)
        __builtin_ia32_maskstorepd256((void *)p, kfit_mask_d(n), (kfit_d256)v);
    else
        __builtin_ia32_maskstoreps256((void *)p, kfit_mask_f(n), (kfit_f256)v);
}

#else

KFIT_INLINE vf kfit_load_n(const KFIT_TYPE *p, int n)
{
    vf v = {0};
    if (__builtin_constant_p(n) && n == KFIT_VL)
        return kfit_load(p);
    KFIT_UNROLL(16)
    for (int i = 0; i < KFIT_VL; i++)
        if (i < n)
            v[i] = p[i];
    return v;
}

KFIT_INLINE void kfit_store_n(KFIT_TYPE *p, vf v, int n)
{
    if (__builtin_constant_p(n) && n == KFIT_VL) {
        kfit_store(p, v);
        return;
    }
    KFIT_UNROLL(16)
    for (int i = 0; i < KFIT_VL; i++)
        if (i < n)
            p[i] = v[i];
}

#endif

/* How many elements lie before the first that starts a vector in memory, 0 to KFIT_VL - 1. */
KFIT_INLINE long kfit_unaligned(const KFIT_TYPE *p)
{
    return (long)(-((unsigned long)p / sizeof *p) % (unsigned long)KFIT_VL);
}

/* The sum of the lanes, as a balanced tree. */
#define KFIT_V16 (16 / sizeof(KFIT_TYPE))
typedef KFIT_TYPE kfit_v16 __attribute__((vector_size(16)));
#if KFIT_VECTOR_BYTES > 16
typedef KFIT_TYPE kfit_v32 __attribute__((vector_size(32)));

KFIT_INLINE kfit_v16 kfit_halve32(kfit_v32 v)
{
    union {
        kfit_v32 whole;
        kfit_v16 half[2];
    } u = {v};
    return u.half[0] + u.half[1];
}
#endif

KFIT_INLINE KFIT_TYPE kfit_hsum(vf v)
{
#if KFIT_VECTOR_BYTES == 64
    union {
        vf whole;
        kfit_v32 half[2];
    } u = {v};
    kfit_v16 s = kfit_halve32(u.half[0] + u.half[1]);
#elif KFIT_VECTOR_BYTES == 32
    kfit_v16 s = kfit_halve32(v);
#else
    kfit_v16 s = v;
#endif
    if (KFIT_DOUBLE)
        return s[0] + s[1];
    return (s[0] + s[2 % KFIT_V16]) + (s[1] + s[3 % KFIT_V16]);
}

/* Two vectors become two: the lower (lo) or the upper (hi) halves of x and y, lane by lane in turn.
 * log2(KFIT_VL) rounds over the pairs (i, i + KFIT_VL/2) of KFIT_VL vectors transpose them. */
#define KFIT_SIZE_float   4
#define KFIT_SIZE_double  8
#define KFIT_PASTE_(a, b) a##b
#define KFIT_PASTE(a, b)  KFIT_PASTE_(a, b)
#define KFIT_LANES        (KFIT_VECTOR_BYTES / KFIT_PASTE(KFIT_SIZE_, KFIT_TYPE)) /* KFIT_VL for #if */

#if KFIT_LANES == 16
#define KFIT_ZIP_LO 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23
#define KFIT_ZIP_HI 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31
#elif KFIT_LANES == 8
#define KFIT_ZIP_LO 0, 8, 1, 9, 2, 10, 3, 11
#define KFIT_ZIP_HI 4, 12, 5, 13, 6, 14, 7, 15
#elif KFIT_LANES == 4
#define KFIT_ZIP_LO 0, 4, 1, 5
#define KFIT_ZIP_HI 2, 6, 3, 7
#else
#define KFIT_ZIP_LO 0, 2
#define KFIT_ZIP_HI 1, 3
#endif

KFIT_INLINE vf kfit_zip_lo(vf x, vf y)
{
    return __builtin_shufflevector(x, y, KFIT_ZIP_LO);
}

KFIT_INLINE vf kfit_zip_hi(vf x, vf y)
{
    return __builtin_shufflevector(x, y, KFIT_ZIP_HI);
}

/* x plus x turned by n = 8, 4, 2 or 1 lanes (n < KFIT_VL): sums lanes that lie n apart. */
#if KFIT_LANES == 16
#define KFIT_TURN(n)                                                                                         \
    n, n + 1, n + 2, n + 3, n + 4, n + 5, n + 6, n + 7, (n + 8) % 16, (n + 9) % 16, (n + 10) % 16,           \
        (n + 11) % 16, (n + 12) % 16, (n + 13) % 16, (n + 14) % 16, (n + 15) % 16
#elif KFIT_LANES == 8
#define KFIT_TURN(n)                                                                                         \
    (n) % 8, (n + 1) % 8, (n + 2) % 8, (n + 3) % 8, (n + 4) % 8, (n + 5) % 8, (n + 6) % 8, (n + 7) % 8
#elif KFIT_LANES == 4
#define KFIT_TURN(n) (n) % 4, (n + 1) % 4, (n + 2) % 4, (n + 3) % 4
#else
#define KFIT_TURN(n) (n) % 2, (n + 1) % 2
#endif

KFIT_INLINE vf kfit_fold(vf x, int n)
{
    switch (n) {
    case 8:
        return x + __builtin_shufflevector(x, x, KFIT_TURN(8));
    case 4:
        return x + __builtin_shufflevector(x, x, KFIT_TURN(4));
    case 2:
        return x + __builtin_shufflevector(x, x, KFIT_TURN(2));
    default:
        return x + __builtin_shufflevector(x, x, KFIT_TURN(1));
    }
}

#endif
