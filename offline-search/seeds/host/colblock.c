/* kfit-candidate 1
{"op":"gemm", "device":"host", "name":"colblock",
 "knobs":{"VB":[0,32], "PF":[0,8,4], "KU":[1,2,4], "NV":[0,2,4,3,6,8,1], "MR":[0,4,8,6,12,3,2],
          "AL":[1,0]},
 "require":["TB == 0", "BATCH == 1", "BYTES_A == BYTES_C", "MR <= M", "VB < VL * BYTES_C",
            "VB == 0 || N % VL > 0", "MR < VREGS", "(max(MR, (MR == 0) * min(M, 8)) + 1) * NV <= VREGS"],
 "launches":[{"entry":"kfit_main"}]}
*/
/* Column blocks: MR rows x NV vectors of C live in registers while k runs once over its whole length; the
 * rows of B pass by, each element loaded once per MR rows. The kernel of first choice when B is stored as
 * [k,n]: at the limit of the multipliers from four rows up. PF asks for rows of B that many ahead, which can
 * pay once B is larger than the L2 cache. So does AL, which starts the blocks where B's rows are aligned:
 * numpy's are not, and every vector would touch two cache lines. Narrow vectors (VB) waste fewer lanes where
 * n ends in a short rest. */
#include "kfit_host.h"

#define VECTORS KFIT_CEIL(KFIT_N, KFIT_VL)
/* 0 leaves a knob to the shape: equal blocks of rows and of columns, as many as the registers allow. */
#define ROWS_MAX    (KFIT_VREGS < 32 ? 6 : 8)
#define VECTORS_MAX KFIT_MIN(8, (KFIT_VREGS - 1) / (MR + 1))
#define MR          (KFIT_MR ? KFIT_MR : KFIT_CEIL(KFIT_M, KFIT_CEIL(KFIT_M, ROWS_MAX)))
#define NV          KFIT_MIN(VECTORS, KFIT_NV ? KFIT_NV : KFIT_CEIL(VECTORS, KFIT_CEIL(VECTORS, VECTORS_MAX)))
/* Copies of the sums, which hide the latency of adding where a block is small. */
#define KS (MR * NV >= 6 ? 1 : MR * NV >= 3 ? 2 : 4)
#define KU (KFIT_CEIL(KFIT_KU, KS) * KS)
#define NB (NV * KFIT_VL)
#define ALIGN                                                                                                \
    (KFIT_AL && KFIT_LDB % KFIT_VL == 0 && KFIT_N >= NB && (long)KFIT_K * KFIT_LDB > KFIT_L2 / KFIT_BYTES_A)

KFIT_INLINE KFIT_TYPE a_at(const KFIT_TYPE *a, long i, long p)
{
    return KFIT_TA ? a[p * KFIT_LDA + i] : a[i * KFIT_LDA + p];
}

/* Row p of B: one step along k for all of a block. */
KFIT_INLINE void step(const KFIT_TYPE *a, const KFIT_TYPE *b, vf (*acc)[NV], long p, int mr, int nv, int last)
{
    vf bv[NV];
    KFIT_UNROLL_ALL
    for (int j = 0; j < nv; j++) {
        bv[j] = kfit_load_n(b + p * KFIT_LDB + j * KFIT_VL, j + 1 < nv ? KFIT_VL : last);
        if (KFIT_PF)
            KFIT_PREFETCH(b + (p + KFIT_PF) * KFIT_LDB + j * KFIT_VL);
    }
    KFIT_UNROLL_ALL
    for (int i = 0; i < mr; i++) {
        vf av = kfit_broadcast(a_at(a, i, p));
        KFIT_UNROLL_ALL
        for (int j = 0; j < nv; j++)
            acc[i][j] += av * bv[j];
    }
}

/* mr x nv vectors at c; the last vector has `last` lanes. mr and nv are constants after inlining. */
KFIT_INLINE void block(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, int mr, int nv, int last)
{
    vf acc[KS][MR][NV];
    KFIT_UNROLL_ALL
    for (int i = 0; i < mr; i++) {
        KFIT_UNROLL_ALL
        for (int j = 0; j < nv; j++) {
            const KFIT_TYPE *old = c + i * (long)KFIT_LDC + j * KFIT_VL;
            acc[0][i][j] = KFIT_BETA ? kfit_load_n(old, j + 1 < nv ? KFIT_VL : last) : kfit_zero();
            KFIT_UNROLL_ALL
            for (int s = 1; s < KS; s++)
                acc[s][i][j] = kfit_zero();
        }
    }
    long p = 0;
    for (; p + KU <= KFIT_K; p += KU) {
        KFIT_UNROLL_ALL
        for (int u = 0; u < KU; u++)
            step(a, b, acc[u % KS], p + u, mr, nv, last);
    }
    KFIT_UNROLL_ALL
    for (int u = 0; u < KFIT_K % KU; u++)
        step(a, b, acc[u % KS], p + u, mr, nv, last);
    KFIT_UNROLL_ALL
    for (int i = 0; i < mr; i++) {
        KFIT_UNROLL_ALL
        for (int j = 0; j < nv; j++) {
            vf v = acc[0][i][j];
            KFIT_UNROLL_ALL
            for (int s = 1; s < KS; s++)
                v += acc[s][i][j];
            kfit_store_n(c + i * (long)KFIT_LDC + j * KFIT_VL, v, j + 1 < nv ? KFIT_VL : last);
        }
    }
}

KFIT_INLINE void columns(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, int nv, int last)
{
    long i = 0;
    for (; i + MR <= KFIT_M; i += MR)
        block(KFIT_TA ? a + i : a + i * KFIT_LDA, b, c + i * KFIT_LDC, MR, nv, last);
    if (KFIT_M % MR)
        block(KFIT_TA ? a + i : a + i * KFIT_LDA, b, c + i * KFIT_LDC, KFIT_M % MR, nv, last);
}

void kfit_main(const KFIT_TYPE *restrict a, const KFIT_TYPE *restrict b, KFIT_TYPE *restrict c, void *ws)
{
    (void)ws;
    long j = ALIGN ? kfit_unaligned(b) : 0;
    if (j)
        columns(a, b, c, 1, (int)j);
    for (; j + NB <= KFIT_N; j += NB)
        columns(a, b + j, c + j, NV, KFIT_VL);
    const int rest = ALIGN ? (int)(KFIT_N - j) : KFIT_N % NB;
    KFIT_UNROLL_ALL
    for (int nv = 1; nv <= NV; nv++)
        if (nv == KFIT_CEIL(rest, KFIT_VL))
            columns(a, b + j, c + j, nv, rest - (nv - 1) * KFIT_VL);
}
