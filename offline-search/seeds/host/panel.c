/* kfit-candidate 1
{"op":"gemm", "device":"host", "name":"panel",
 "knobs":{"VB":[0,32], "NV":[0,2,4,1,3], "MR":[0,8,12,6,4], "KC":[256,128,512,64]},
 "require":["TB == 1", "BATCH == 1", "BYTES_A == BYTES_C", "MR <= M", "VB < VL * BYTES_C", "KC < K + 256",
            "MR < VREGS", "(max(MR, (MR == 0) * min(M, 8)) + 1) * NV <= VREGS"],
 "launches":[{"entry":"kfit_main"}]}
*/
/* Packed panels, for B stored as [n,k] under many rows: KC x NV vectors of B are transposed into a gapless
 * panel on the stack, which all rows of A then use as colblock does. Transposing once pays from about sixteen
 * rows up, or from four where k is short; below that, dot is better. The only seed for both operands
 * transposed. */
#include "kfit_host.h"

#define VECTORS KFIT_CEIL(KFIT_N, KFIT_VL)
/* 0 leaves a knob to the shape: equal blocks of rows and of columns, as many as the registers allow. */
#define ROWS_MAX    (KFIT_VREGS < 32 ? 6 : 8)
#define VECTORS_MAX ((KFIT_VREGS - 1) / (MR + 1))
#define MR          (KFIT_MR ? KFIT_MR : KFIT_CEIL(KFIT_M, KFIT_CEIL(KFIT_M, ROWS_MAX)))
#define NV          KFIT_MIN(VECTORS, KFIT_NV ? KFIT_NV : KFIT_CEIL(VECTORS, KFIT_CEIL(VECTORS, VECTORS_MAX)))
#define NB          (NV * KFIT_VL)
#define KC          KFIT_MIN(KFIT_KC, KFIT_K)

KFIT_INLINE KFIT_TYPE a_at(const KFIT_TYPE *a, long i, long p)
{
    return KFIT_TA ? a[p * KFIT_LDA + i] : a[i * KFIT_LDA + p];
}

/* B stored as [n,k]: `lanes` columns of it from `rows` rows become `lanes` rows of one vector. */
KFIT_INLINE void turn(const KFIT_TYPE *b, KFIT_TYPE *to, int rows, int lanes)
{
    vf v[KFIT_VL], w[KFIT_VL];
    KFIT_UNROLL_ALL
    for (int r = 0; r < KFIT_VL; r++)
        v[r] = r < rows ? kfit_load_n(b + r * (long)KFIT_LDB, lanes) : kfit_zero();
    KFIT_UNROLL_ALL
    for (int round = 1; round < KFIT_VL; round *= 2) {
        KFIT_UNROLL_ALL
        for (int r = 0; r < KFIT_VL / 2; r++) {
            w[2 * r] = kfit_zip_lo(v[r], v[r + KFIT_VL / 2]);
            w[2 * r + 1] = kfit_zip_hi(v[r], v[r + KFIT_VL / 2]);
        }
        KFIT_UNROLL_ALL
        for (int r = 0; r < KFIT_VL; r++)
            v[r] = w[r];
    }
    KFIT_UNROLL_ALL
    for (int r = 0; r < lanes; r++)
        kfit_store(to + r * NB, v[r]);
}

KFIT_INLINE void transpose(const KFIT_TYPE *b, KFIT_TYPE *to, int kc, int rows)
{
    long p = 0;
    for (; p + KFIT_VL <= kc; p += KFIT_VL)
        turn(b + p, to + p * NB, rows, KFIT_VL);
    if (KFIT_K % KFIT_VL && p < kc) /* only at the end of K: KC is a multiple of KFIT_VL */
        turn(b + p, to + p * NB, rows, KFIT_K % KFIT_VL);
}

/* mr rows x nv vectors of C from kc rows of the panel. */
KFIT_INLINE void tile(const KFIT_TYPE *a, const KFIT_TYPE *panel, KFIT_TYPE *c, int kc, int add, int mr,
                      int nv, int last)
{
    vf acc[MR][NV];
    KFIT_UNROLL_ALL
    for (int i = 0; i < mr; i++) {
        KFIT_UNROLL_ALL
        for (int j = 0; j < nv; j++) {
            const KFIT_TYPE *old = c + i * (long)KFIT_LDC + j * KFIT_VL;
            acc[i][j] = add ? kfit_load_n(old, j + 1 < nv ? KFIT_VL : last) : kfit_zero();
        }
    }
    for (long p = 0; p < kc; p++) {
        vf bv[NV];
        KFIT_UNROLL_ALL
        for (int j = 0; j < nv; j++)
            bv[j] = kfit_load(panel + p * NB + j * KFIT_VL);
        KFIT_UNROLL_ALL
        for (int i = 0; i < mr; i++) {
            vf av = kfit_broadcast(a_at(a, i, p));
            KFIT_UNROLL_ALL
            for (int j = 0; j < nv; j++)
                acc[i][j] += av * bv[j];
        }
    }
    KFIT_UNROLL_ALL
    for (int i = 0; i < mr; i++) {
        KFIT_UNROLL_ALL
        for (int j = 0; j < nv; j++)
            kfit_store_n(c + i * (long)KFIT_LDC + j * KFIT_VL, acc[i][j], j + 1 < nv ? KFIT_VL : last);
    }
}

KFIT_INLINE void columns(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, int nv, int last)
{
    KFIT_TYPE panel[KC * NB] __attribute__((aligned(64)));
    for (long p = 0; p < KFIT_K; p += KC) {
        int kc = (int)KFIT_MIN(KC, KFIT_K - p), add = KFIT_BETA || p > 0;
        for (int j = 0; j + 1 < nv; j++)
            transpose(b + j * KFIT_VL * (long)KFIT_LDB + p, panel + j * KFIT_VL, kc, KFIT_VL);
        transpose(b + (nv - 1) * KFIT_VL * (long)KFIT_LDB + p, panel + (nv - 1) * KFIT_VL, kc, last);
        const KFIT_TYPE *ap = KFIT_TA ? a + p * KFIT_LDA : a + p;
        long i = 0;
        for (; i + MR <= KFIT_M; i += MR)
            tile(KFIT_TA ? ap + i : ap + i * KFIT_LDA, panel, c + i * KFIT_LDC, kc, add, MR, nv, last);
        if (KFIT_M % MR)
            tile(KFIT_TA ? ap + i : ap + i * KFIT_LDA, panel, c + i * KFIT_LDC, kc, add, KFIT_M % MR, nv,
                 last);
    }
}

void kfit_main(const KFIT_TYPE *restrict a, const KFIT_TYPE *restrict b, KFIT_TYPE *restrict c, void *ws)
{
    (void)ws;
    const int rest = KFIT_N % NB, nv = (rest + KFIT_VL - 1) / KFIT_VL;
    long j = 0;
    for (; j + NB <= KFIT_N; j += NB)
        columns(a, b + j * KFIT_LDB, c + j, NV, KFIT_VL);
    if (rest)
        columns(a, b + j * KFIT_LDB, c + j, nv, rest - (nv - 1) * KFIT_VL);
}
