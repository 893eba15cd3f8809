/* kfit-candidate 1
{"op":"gemm", "device":"host", "name":"dot",
 "knobs":{"VB":[0,32,16], "MR":[0,6,2,4,3,1], "NB":[0,4,8,6,2], "KU":[2,1]},
 "require":["TA == 0 || M * LDA == 1", "TB == 1 || N * LDB == 1", "BATCH == 1", "BYTES_A == BYTES_C",
            "MR <= M", "VB < VL * BYTES_C"],
 "launches":[{"entry":"kfit_main"}]}
*/
/* Dot products: for B stored as [n,k]. MR rows of A times NB rows of B, all read along k, with a vector of
 * partial sums each; at the end the NB vectors of a row are folded into one whose lanes are its NB sums. Rows
 * of B are streams the hardware prefetches by itself. Narrow vectors (VB) fold in fewer steps: better where k
 * is short. */
#include "kfit_host.h"

/* 0 leaves a knob to the shape and the registers. */
#define MR  KFIT_MIN(KFIT_M, KFIT_MR ? KFIT_MR : KFIT_VREGS < 32 ? 3 : 4)
#define NB  KFIT_MIN(KFIT_VL, KFIT_NB ? KFIT_NB : KFIT_MIN(8, (KFIT_VREGS - 1) / MR - 1))
#define NB2 (NB > 8 ? 16 : NB > 4 ? 8 : NB > 2 ? 4 : NB) /* the next power of two */

/* Lanes x0+xh, y0+yh, x1+x(h+1) ... with h = KFIT_VL/2: half the partial sums, x and y in turn. */
KFIT_INLINE vf zip_add(vf x, vf y)
{
    return kfit_zip_lo(x, y) + kfit_zip_hi(x, y);
}

KFIT_INLINE vf fold(vf *v)
{
    KFIT_UNROLL_ALL
    for (int half = NB2 / 2; half; half /= 2) {
        KFIT_UNROLL_ALL
        for (int j = 0; j < half; j++)
            v[j] = zip_add(v[j], v[j + half]);
    }
    vf sum = v[0]; /* lane l is a part of sum l % NB2 */
    KFIT_UNROLL_ALL
    for (int apart = KFIT_VL / 2; apart >= NB2; apart /= 2)
        sum = kfit_fold(sum, apart);
    return sum;
}

/* One step along k for mr x nb sums. */
KFIT_INLINE void step(const KFIT_TYPE *a, const KFIT_TYPE *b, vf (*acc)[NB2], int mr, int nb, int lanes)
{
    vf av[MR];
    KFIT_UNROLL_ALL
    for (int i = 0; i < mr; i++)
        av[i] = kfit_load_n(a + i * (long)KFIT_LDA, lanes);
    KFIT_UNROLL_ALL
    for (int j = 0; j < nb; j++) {
        vf bv = kfit_load_n(b + j * (long)KFIT_LDB, lanes);
        KFIT_UNROLL_ALL
        for (int i = 0; i < mr; i++)
            acc[i][j] += av[i] * bv;
    }
}

KFIT_INLINE void block(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, int mr, int nb)
{
    vf acc[MR][NB2];
    KFIT_UNROLL_ALL
    for (int i = 0; i < mr; i++) {
        KFIT_UNROLL_ALL
        for (int j = 0; j < NB2; j++)
            acc[i][j] = kfit_zero();
    }
    long p = 0;
    for (; p + KFIT_KU * KFIT_VL <= KFIT_K; p += KFIT_KU * KFIT_VL) {
        KFIT_UNROLL_ALL
        for (int u = 0; u < KFIT_KU; u++)
            step(a + p + u * KFIT_VL, b + p + u * KFIT_VL, acc, mr, nb, KFIT_VL);
    }
    for (; p + KFIT_VL <= KFIT_K; p += KFIT_VL)
        step(a + p, b + p, acc, mr, nb, KFIT_VL);
    if (KFIT_K % KFIT_VL)
        step(a + p, b + p, acc, mr, nb, KFIT_K % KFIT_VL);
    vf old[MR];
    KFIT_UNROLL_ALL
    for (int i = 0; i < mr; i++)
        old[i] = KFIT_BETA ? kfit_load_n(c + i * (long)KFIT_LDC, nb) : kfit_zero();
    KFIT_UNROLL_ALL
    for (int i = 0; i < mr; i++)
        kfit_store_n(c + i * (long)KFIT_LDC, KFIT_BETA ? fold(acc[i]) + old[i] : fold(acc[i]), nb);
}

KFIT_INLINE void columns(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, int nb)
{
    long i = 0;
    for (; i + MR <= KFIT_M; i += MR)
        block(a + i * KFIT_LDA, b, c + i * KFIT_LDC, MR, nb);
    if (KFIT_M % MR)
        block(a + i * KFIT_LDA, b, c + i * KFIT_LDC, KFIT_M % MR, nb);
}

void kfit_main(const KFIT_TYPE *restrict a, const KFIT_TYPE *restrict b, KFIT_TYPE *restrict c, void *ws)
{
    (void)ws;
    long j = 0;
    for (; j + NB <= KFIT_N; j += NB)
        columns(a, b + j * KFIT_LDB, c + j, NB);
    if (KFIT_N % NB)
        columns(a, b + j * KFIT_LDB, c + j, KFIT_N % NB);
}
