/* kfit-candidate 1
{"op":"gemm", "device":"host", "name":"rowstream",
 "knobs":{"KB":[4,2,8,16,6], "MR":[4,2,1,3], "AL":[1,0]},
 "require":["TB == 0", "BATCH == 1", "BYTES_A == BYTES_C", "MR <= M || MR == 4"],
 "launches":[{"entry":"kfit_main"}]}
*/
/* Row streams: KB rows of B at a time are read from end to end while C stays in the L1 cache and takes their
 * sum. B is read in the order it lies in memory, a page after the other, which is what the hardware's
 * prefetcher and the TLB like best: for one or two rows of A and a B that lives in the L3 cache or beyond,
 * where the memory sets the pace. AL starts at the first aligned column, where the rows of B have one in
 * common. */
#include "kfit_host.h"

#define MR    KFIT_MIN(KFIT_M, KFIT_MR)
#define KB    KFIT_MIN(KFIT_K, KFIT_KB)
#define ALIGN (KFIT_AL && KFIT_LDB % KFIT_VL == 0 && KFIT_N >= 4 * KFIT_VL)

KFIT_INLINE KFIT_TYPE a_at(const KFIT_TYPE *a, long i, long p)
{
    return KFIT_TA ? a[p * KFIT_LDA + i] : a[i * KFIT_LDA + p];
}

/* c[mr rows, lanes] gets the products of kb rows of B at one place of the sweep; x holds A's elements,
 * spread. */
KFIT_INLINE void place(const vf x[MR][KB], const KFIT_TYPE *b, KFIT_TYPE *c, int mr, int kb, int lanes,
                       int add)
{
    vf sum[MR];
    KFIT_UNROLL_ALL
    for (int i = 0; i < mr; i++)
        sum[i] = add ? kfit_load_n(c + i * (long)KFIT_LDC, lanes) : kfit_zero();
    KFIT_UNROLL_ALL
    for (int s = 0; s < kb; s++) {
        vf bv = kfit_load_n(b + s * (long)KFIT_LDB, lanes);
        KFIT_UNROLL_ALL
        for (int i = 0; i < mr; i++)
            sum[i] += x[i][s] * bv;
    }
    KFIT_UNROLL_ALL
    for (int i = 0; i < mr; i++)
        kfit_store_n(c + i * (long)KFIT_LDC, sum[i], lanes);
}

KFIT_INLINE void sweep(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, long p, int mr, int kb, int add)
{
    vf x[MR][KB];
    long j = ALIGN ? kfit_unaligned(b) : 0;
    KFIT_UNROLL_ALL
    for (int i = 0; i < mr; i++) {
        KFIT_UNROLL_ALL
        for (int s = 0; s < kb; s++)
            x[i][s] = kfit_broadcast(a_at(a, i, p + s));
    }
    b += p * KFIT_LDB;
    if (j)
        place(x, b, c, mr, kb, (int)j, add);
    for (; j + KFIT_VL <= KFIT_N; j += KFIT_VL)
        place(x, b + j, c + j, mr, kb, KFIT_VL, add);
    if (ALIGN ? j < KFIT_N : KFIT_N % KFIT_VL)
        place(x, b + j, c + j, mr, kb, ALIGN ? (int)(KFIT_N - j) : KFIT_N % KFIT_VL, add);
}

KFIT_INLINE void rows(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, int mr)
{
    long p = 0;
    if (!KFIT_BETA) {
        sweep(a, b, c, 0, mr, KB, 0);
        p = KB;
    }
    for (; p + KB <= KFIT_K; p += KB)
        sweep(a, b, c, p, mr, KB, 1);
    if (KFIT_K % KB)
        sweep(a, b, c, p, mr, KFIT_K % KB, 1);
}

void kfit_main(const KFIT_TYPE *restrict a, const KFIT_TYPE *restrict b, KFIT_TYPE *restrict c, void *ws)
{
    (void)ws;
    long i = 0;
    for (; i + MR <= KFIT_M; i += MR)
        rows(KFIT_TA ? a + i : a + i * KFIT_LDA, b, c + i * KFIT_LDC, MR);
    if (KFIT_M % MR)
        rows(KFIT_TA ? a + i : a + i * KFIT_LDA, b, c + i * KFIT_LDC, KFIT_M % MR);
}
