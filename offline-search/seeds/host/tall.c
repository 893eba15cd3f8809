/* kfit-candidate 1
{"op":"gemm", "device":"host", "name":"tall",
 "knobs":{"VB":[0,32], "NR":[0,8,4,6,5], "MV":[0,1,2,3], "KU":[1,2,4]},
 "require":["TA == 1", "N < 4 * VL", "BATCH == 1", "BYTES_A == BYTES_C", "NR <= N",
            "NR <= VL", "VB < VL * BYTES_C"],
 "launches":[{"entry":"kfit_main"}]}
*/
/* Tall C, few columns, A stored as [k,m]: vectors run down the rows of C, as the rows of A lie in memory, and
 * elements of B are spread. Blocks of MV vectors of rows x NR columns are transposed when they are stored.
 * Where n is below a vector or a little above, no lanes are wasted: the gradient of a layer with ten outputs,
 * for instance. */
#include "kfit_host.h"

#define VECTORS KFIT_CEIL(KFIT_M, KFIT_VL)
/* 0 leaves a knob to the shape: equal blocks of at most a vector of columns, with as many rows as registers
 * allow. */
#define NR KFIT_MIN(KFIT_VL, KFIT_NR ? KFIT_NR : KFIT_CEIL(KFIT_N, KFIT_CEIL(KFIT_N, KFIT_MIN(12, KFIT_VL))))
#define MV KFIT_MIN(VECTORS, KFIT_MV ? KFIT_MV : (KFIT_VREGS - 1) / (NR + 1))

KFIT_INLINE KFIT_TYPE b_at(const KFIT_TYPE *b, long p, long j)
{
    return KFIT_TB ? b[j * KFIT_LDB + p] : b[p * KFIT_LDB + j];
}

/* Row p of A and of B: one step along k for all of a block. */
KFIT_INLINE void step(const KFIT_TYPE *a, const KFIT_TYPE *b, vf (*acc)[KFIT_VL], long p, int mv, int nr,
                      int last)
{
    vf av[MV];
    KFIT_UNROLL_ALL
    for (int i = 0; i < mv; i++)
        av[i] = kfit_load_n(a + p * KFIT_LDA + i * KFIT_VL, i + 1 < mv ? KFIT_VL : last);
    KFIT_UNROLL_ALL
    for (int j = 0; j < nr; j++) {
        vf bv = kfit_broadcast(b_at(b, p, j));
        KFIT_UNROLL_ALL
        for (int i = 0; i < mv; i++)
            acc[i][j] += av[i] * bv;
    }
}

/* KFIT_VL columns of one vector become `rows` rows of C with `cols` elements. */
KFIT_INLINE void turn(vf *v, KFIT_TYPE *c, int rows, int cols)
{
    vf w[KFIT_VL];
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
    for (int r = 0; r < rows; r++) {
        KFIT_TYPE *at = c + r * (long)KFIT_LDC;
        kfit_store_n(at, KFIT_BETA ? v[r] + kfit_load_n(at, cols) : v[r], cols);
    }
}

/* mv vectors of rows x nr columns at c; the last vector has `last` rows. */
KFIT_INLINE void block(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, int mv, int nr, int last)
{
    vf acc[MV][KFIT_VL];
    KFIT_UNROLL_ALL
    for (int i = 0; i < mv; i++) {
        KFIT_UNROLL_ALL
        for (int j = 0; j < KFIT_VL; j++)
            acc[i][j] = kfit_zero();
    }
    long p = 0;
    for (; p + KFIT_KU <= KFIT_K; p += KFIT_KU) {
        KFIT_UNROLL_ALL
        for (int u = 0; u < KFIT_KU; u++)
            step(a, b, acc, p + u, mv, nr, last);
    }
    for (; p < KFIT_K; p++)
        step(a, b, acc, p, mv, nr, last);
    KFIT_UNROLL_ALL
    for (int i = 0; i < mv; i++)
        turn(acc[i], c + i * KFIT_VL * (long)KFIT_LDC, i + 1 < mv ? KFIT_VL : last, nr);
}

KFIT_INLINE void rows(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, int mv, int last)
{
    long j = 0;
    for (; j + NR <= KFIT_N; j += NR)
        block(a, KFIT_TB ? b + j * KFIT_LDB : b + j, c + j, mv, NR, last);
    if (KFIT_N % NR)
        block(a, KFIT_TB ? b + j * KFIT_LDB : b + j, c + j, mv, KFIT_N % NR, last);
}

void kfit_main(const KFIT_TYPE *restrict a, const KFIT_TYPE *restrict b, KFIT_TYPE *restrict c, void *ws)
{
    (void)ws;
    const int rest = KFIT_M % (MV * KFIT_VL), mv = KFIT_CEIL(rest, KFIT_VL);
    long i = 0;
    for (; i + MV * KFIT_VL <= KFIT_M; i += MV * KFIT_VL)
        rows(a + i, b, c + i * KFIT_LDC, MV, KFIT_VL);
    if (rest)
        rows(a + i, b, c + i * KFIT_LDC, mv, rest - (mv - 1) * KFIT_VL);
}
