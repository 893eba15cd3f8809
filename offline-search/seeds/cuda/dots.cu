/* kfit-candidate 1
{"op":"gemm", "device":"cuda", "name":"dots", "arch":">=80",
 "knobs":{"R":[2,1,4,3], "WK":[8,4,16,2,1,12,6,32], "WN":[1,2,4], "U":[1,2,4], "D":[1,2,3,4], "MINB":[1,2,4]},
 "starts":["R=2 WK=8 WN=1 U=2 D=2 MINB=1",
           "R=2 WK=8 WN=1 U=1 D=1 MINB=2",
           "R=1 WK=8 WN=1 U=2 D=4 MINB=2",
           "R=1 WK=16 WN=1 U=1 D=4 MINB=1",
           "R=4 WK=8 WN=1 U=1 D=2 MINB=1",
           "R=2 WK=16 WN=1 U=1 D=3 MINB=1",
           "R=4 WK=4 WN=2 U=1 D=2 MINB=2",
           "R=2 WK=4 WN=2 U=2 D=2 MINB=2"],
 "require":["TA == 0", "TB == 1", "ALIGN == 16", "BYTES_A == 4", "TYPE_B == TYPE_A", "M <= 16", "K % 4 == 0", "BATCH <= 65535",
            "WK*WN >= 2 && WK*WN <= 32", "ceil(K,128*U*WK)*U*4*(R*M + 2*R + 2*M) <= 8000", "D == 1 || D <= ceil(K,128*U*WK)",
            "4*min(D,ceil(K,128*U*WK))*U*(R + M) + R*M + 40 <= min(256, 2048/(WK*WN*MINB))"],
 "launches":[{"entry":"kfit_main", "grid":["ceil(N,R*WN)", "BATCH", 1], "block":["32*WK*WN", 1, 1], "smem":"4*WK*WN*R*M"}]}
*/
/* float32: dot products, since tensor cores would round x and W to 10 bits. y^T = W x^T per warp: R rows of W, all rows of x,
 * one slice of K. A lane takes 16 consecutive bytes of 512 of a row, and the same of each row of x; all loads of W are in flight
 * before the first is needed.
 *
 * The R*M sums of a warp are added over its lanes by halves: as long as there are two sums, a lane gives away one and keeps
 * the other, so that 8 sums take 9 exchanges and not 40. Then over the block's warps, in the order of k.
 *
 * WN x WK: warps of a block along N and K.  U: loads of 512 bytes per row and batch.  D: batches in flight.  MINB: blocks per
 * SM to leave room for. */
#include "kfit_cuda.h"

#if KFIT_EPI == KFIT_EPI_BIAS
#define BIAS_PARAM const kfit_out *bias,
#else
#define BIAS_PARAM
#endif
#define R KFIT_R
#define WK KFIT_WK
#define WN KFIT_WN
#define U KFIT_U
#define THREADS (32 * WK * WN)
#define BN (R * WN)
#define SPAN (128 * U) /* k per batch */
#define BATCHES KFIT_CEIL(KFIT_K, SPAN *WK)
#define D (KFIT_D < BATCHES ? KFIT_D : BATCHES)
#define EVEN (KFIT_K % (SPAN * WK) == 0) /* no batch reaches past K */
#define SUMS (R * KFIT_M)
#define OUTPUTS (BN * KFIT_M)

struct batch {
    float4 w[U][R], x[U][KFIT_M];
};

/* Batch i of this warp: w and x point at this lane's first elements, k says how far along K that is. */
KFIT_INLINE void load_w(batch &s, const kfit_in *const (&w)[R], unsigned k, int i)
{
    const unsigned at = i * (SPAN * WK);
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
        for (int r = 0; r < R; r++)
            s.w[u][r] = kfit_floats(EVEN || k + at + u * 128 < KFIT_K ? kfit_load_once(w[r] + at + u * 128) :
                                                                        make_uint4(0, 0, 0, 0));
}

KFIT_INLINE void load_x(batch &s, const kfit_in *x, unsigned k, int i)
{
    const unsigned at = i * (SPAN * WK);
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
        for (int m = 0; m < KFIT_M; m++)
            s.x[u][m] = kfit_floats(EVEN || k + at + u * 128 < KFIT_K ?
                                        kfit_load_again(x + (unsigned long long)m * KFIT_LDA + at + u * 128) :
                                        make_uint4(0, 0, 0, 0));
}

KFIT_INLINE void multiply(float (&sum)[SUMS], const batch &s)
{
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
        for (int r = 0; r < R; r++)
#pragma unroll
            for (int m = 0; m < KFIT_M; m++) {
                const float4 a = s.w[u][r], b = s.x[u][m];
                float &c = sum[r * KFIT_M + m];
                c = kfit_fma(a.w, b.w, kfit_fma(a.z, b.z, kfit_fma(a.y, b.y, kfit_fma(a.x, b.x, c))));
            }
}

/* Adds N sums over lanes that are APART, 2 * APART ... apart. Those that this lane then has are v[0], v[1] ..., of all the
 * `first`-th and what follows; lanes that differ only in the bits `same` have the same. */
template <int N, int APART> KFIT_INLINE void fold(float (&v)[SUMS], unsigned lane, unsigned &first, unsigned &same)
{
    if constexpr (APART == 0)
        return;
    else if constexpr (N % 2) {
#pragma unroll
        for (int i = 0; i < N; i++)
            v[i] += __shfl_xor_sync(~0u, v[i], APART);
        fold<N, APART / 2>(v, lane, first, same);
    } else {
        const bool upper = lane & APART;
#pragma unroll
        for (int i = 0; i < N / 2; i++) {
            const float mine = upper ? v[i + N / 2] : v[i], others = upper ? v[i] : v[i + N / 2];
            v[i] = mine + __shfl_xor_sync(~0u, others, APART);
        }
        first += upper ? N / 2 : 0;
        same -= APART;
        fold<N / 2, APART / 2>(v, lane, first, same);
    }
}
#define HAVE (SUMS % 2 ? SUMS : SUMS % 4 ? SUMS / 2 : SUMS % 8 ? SUMS / 4 : SUMS % 16 ? SUMS / 8 : SUMS % 32 ? SUMS / 16 : SUMS / 32)

KFIT_ENTRY(THREADS, KFIT_MINB) kfit_main(const kfit_in *x, const kfit_in *w, kfit_out *y, BIAS_PARAM void *)
{
    extern __shared__ float shared[]; /* [WN][WK][SUMS] */
    const unsigned tid = threadIdx.x, lane = tid % 32, warp = tid / 32, wn = warp % WN, wk = warp / WN;
    const unsigned n_block = blockIdx.x * BN;
#if KFIT_BATCH > 1
    const unsigned long long matrix = blockIdx.y;
    x += matrix * KFIT_SA;
    w += matrix * KFIT_SB;
    y += matrix * KFIT_SC;
#endif
    /* Rows past the end are read as the last row, and not stored. */
    const unsigned k = wk * SPAN + lane * 4;
    const kfit_in *wr[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        const unsigned n = n_block + wn * R + r;
        wr[r] = w + (unsigned long long)(KFIT_N % BN ? min(n, KFIT_N - 1) : n) * KFIT_LDB + k;
    }
    batch ring[D];
#pragma unroll
    for (int i = 0; i < D; i++)
        load_w(ring[i], wr, k, i);
#pragma unroll
    for (int i = 0; i < D; i++)
        load_x(ring[i], x + k, k, i);

    /* While they are on their way: what this thread finishes. */
    const unsigned partial = kfit_shared_address(shared);
    kfit_out *to[KFIT_CEIL(OUTPUTS, THREADS)];
    unsigned from[KFIT_CEIL(OUTPUTS, THREADS)];
    bool here[KFIT_CEIL(OUTPUTS, THREADS)];
#if KFIT_EPI == KFIT_EPI_BIAS
    kfit_pair more[KFIT_CEIL(OUTPUTS, THREADS)];
#endif
#pragma unroll
    for (int i = 0; i < KFIT_CEIL(OUTPUTS, THREADS); i++) {
        const unsigned o = tid + i * THREADS, m = o / BN, n = o % BN;
        here[i] = o < OUTPUTS && (KFIT_N % BN == 0 || n_block + n < KFIT_N);
        to[i] = y + (unsigned long long)m * KFIT_LDC + n_block + n;
        from[i] = partial + (n / R * WK * SUMS + n % R * KFIT_M + m) * 4;
        kfit_now(to[i]);
        kfit_now(from[i]);
#if KFIT_EPI == KFIT_EPI_BIAS
        more[i] = kfit_pair();
        if (here[i])
            more[i] = kfit_pair_load(bias + n_block + n, false);
#endif
    }

    float sum[SUMS] = {};
#pragma unroll
    for (int i = 0; i < BATCHES; i++) {
        multiply(sum, ring[i % D]);
        if (i + D < BATCHES) {
            load_w(ring[i % D], wr, k, i + D);
            load_x(ring[i % D], x + k, k, i + D);
        }
    }

    unsigned first = 0, same = 31;
    fold<SUMS, 16>(sum, lane, first, same);
    if (!(lane & same)) {
#pragma unroll
        for (int i = 0; i < HAVE; i++)
            kfit_shared_put(partial + ((wn * WK + wk) * SUMS + first + i) * 4, sum[i]);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < KFIT_CEIL(OUTPUTS, THREADS); i++) {
        if (!here[i])
            continue;
        float2 s = make_float2(kfit_shared_get_one(from[i]), 0);
#pragma unroll
        for (int j = 1; j < WK; j++)
            s.x += kfit_shared_get_one(from[i] + j * SUMS * 4);
#if KFIT_EPI == KFIT_EPI_BIAS
        s = kfit_pair_add(s, more[i]);
#endif
        kfit_store_pair(to[i], s, false);
    }
}
