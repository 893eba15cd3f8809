/* kfit-candidate 1
{"op":"gemm", "device":"cuda", "name":"direct", "arch":">=80",
 "knobs":{"R":[2,1,3,4,5,6], "WK":[8,4,2,6,3,12,1,16,32,5], "WN":[1,2,4], "CL":[1,8,2,4,16],
          "U":[2,4,1,3], "D":[2,3,1,4], "MINB":[1,2], "LATE":[0,1], "XS":[0,1]},
 "starts":["R=2 WK=8 WN=1 CL=2 U=2 D=1 MINB=1 LATE=0 XS=0",
           "R=1 WK=2 WN=1 CL=2 U=2 D=4 MINB=2 LATE=1 XS=0",
           "R=2 WK=8 WN=1 CL=1 U=4 D=1 MINB=1 LATE=0 XS=0",
           "R=1 WK=4 WN=1 CL=8 U=2 D=2 MINB=1 LATE=0 XS=0",
           "R=2 WK=2 WN=2 CL=8 U=4 D=1 MINB=1 LATE=0 XS=0",
           "R=2 WK=4 WN=1 CL=8 U=2 D=1 MINB=1 LATE=1 XS=0",
           "R=1 WK=16 WN=1 CL=1 U=2 D=2 MINB=1 LATE=0 XS=0",
           "R=1 WK=4 WN=1 CL=2 U=2 D=4 MINB=2 LATE=0 XS=0",
           "R=2 WK=8 WN=2 CL=2 U=1 D=3 MINB=1 LATE=0 XS=0",
           "R=2 WK=6 WN=1 CL=1 U=2 D=1 MINB=1 LATE=0 XS=0",
           "R=2 WK=6 WN=2 CL=1 U=2 D=1 MINB=1 LATE=0 XS=0",
           "R=2 WK=4 WN=4 CL=4 U=2 D=2 MINB=1 LATE=1 XS=1",
           "R=3 WK=1 WN=2 CL=8 U=2 D=2 MINB=2 LATE=1 XS=0",
           "R=2 WK=12 WN=1 CL=1 U=2 D=2 MINB=1 LATE=0 XS=0",
           "R=1 WK=3 WN=1 CL=8 U=2 D=2 MINB=1 LATE=0 XS=0"],
 "require":["TA == 0", "TB == 1", "ALIGN == 16", "BATCH == 1 || (SA % 8 + SB % 8 + SC % 8 == 0 && CL*BATCH <= 65535)",
            "BYTES_A == 2", "TYPE_B == TYPE_A", "M <= 64",
            "K % 8 == 0", "CL == 1 || SM >= 90", "CL > 1 || LATE == 0", "XS == 0 || (SM >= 90 && K % (32*U*WK*CL) == 0)", "WK*WN >= 2 && WK*WN <= 32", "WK*CL*WN*R <= 128",
            "ceil(K,32*U*WK*CL) <= 64",
            "4*(D*U*(R + (1 - XS)*(1 + (M > 8))*ceil(M,16)) + XS*(1 + (M > 8)) + 2*R*ceil(M,16)) + 32 <= min(256, 2048/(WK*WN*MINB))",
            "4*M*WK*(8*R*WN + 8) + (CL > 1)*32*M*R*WN*max(CL,WK) + XS*64*M*(K/(32*CL) + 1) <= SMEM"],
 "launches":[{"entry":"kfit_main", "grid":["ceil(N,8*R*WN)", "CL*BATCH", 1], "block":["32*WK*WN", 1, 1],
              "smem":"XS*64*M*(K/(32*CL) + 1 - K/(32*CL) % 2) + 4*M*WK*(8*R*WN + 8)*(CL == 1 || WK > 2) + (CL > 1)*8*CL*ceil(4*M*R*WN,CL)*(1 + (WK == 2))",
              "cluster":[1, "CL", 1]}]}
*/
/* Weights go from memory to tensor-core fragments without a stop. y^T = W x^T per warp: 8*R rows of W, one slice of K.
 *
 * The order of k inside an mma does not matter as long as both sides agree. So lane 4g+t takes 16 consecutive bytes
 * of row g (k = 8t .. 8t+7 of a step of 32) and uses them as its part of two m16n8k16 steps: no shared memory, no
 * shuffles, and every load is in flight before the first is needed. Rows of x are the 16 rows of the mma, rows of
 * W its 8 columns; rows that x does not have repeat its last one, and their results are not stored.
 *
 * R: 8-row tiles of W per warp.  WN x WK: warps of a block along N and K.  CL: blocks of a cluster along K.
 * U: steps per batch (64*U contiguous bytes of each row).  D: batches in flight.  MINB: blocks per SM to leave room
 * for.  XS: x in shared memory, brought by the copy engine: a warp then holds and asks for nothing but weights.
 * LATE: when to wait for the cluster's other blocks to have started. Early costs nothing by itself, but the wait drops
 * what L1 holds, x for instance. */
#include "kfit_cuda.h"

#if KFIT_EPI == KFIT_EPI_BIAS
#define BIAS_PARAM const kfit_out *bias,
#else
#define BIAS_PARAM
#endif
#define R KFIT_R
#define WK KFIT_WK
#define WN KFIT_WN
#define CL KFIT_CL
#define U KFIT_U
#define THREADS (32 * WK * WN)
#define BN (8 * R * WN)
#define MT KFIT_CEIL(KFIT_M, 16)              /* mma row tiles over x */
#define UPPER (KFIT_M > 8)                    /* is there anything in rows 8..15? */
#define SPAN (32 * U)                         /* k per batch */
#define BATCHES KFIT_CEIL(KFIT_K, SPAN *WK *CL)
#define D (KFIT_D < BATCHES ? KFIT_D : BATCHES)
#define EVEN (KFIT_K % (SPAN * WK * CL) == 0) /* no batch reaches past K */
#define CHAINS (R * MT == 1 || !UPPER ? 2 : 1) /* independent sums: one mma need not wait for the last */
#define PITCH (BN + 8)                        /* floats per row of partial sums: no bank conflicts for most BN */
#define PAIRS (KFIT_M * BN / 2)
#define SHARE KFIT_CEIL(PAIRS, CL) /* pairs of outputs finished by each block of a cluster */
#define XPITCH (64 * (KFIT_K / (32 * CL) | 1)) /* XS: bytes per row of this block's part of x; no bank conflicts */
#define SENDS (WK <= 2 ? WK : 1)   /* partial sums per block that go to the finishing block */

/* Threads that add up one pair: 1, 2, 4 or 8, as many as divide the work evenly and are there. */
#define FITS(j) (WK % (j) == 0 && WK >= 2 * (j) && (j) * PAIRS <= THREADS && PAIRS * (j) % 32 == 0)
#define ADDERS (FITS(8) ? 8 : FITS(4) ? 4 : FITS(2) ? 2 : 1)

struct batch {
    uint4 w[U][R];
#if !KFIT_XS
    uint4 x[U][MT][1 + UPPER];
#endif
};

/* Batch i of this warp: w and x point at this lane's first elements, k says how far along K that is. */
KFIT_INLINE void load_w(batch &s, const kfit_half *const (&w)[R], unsigned k, int i)
{
    const unsigned at = i * (SPAN * WK * CL);
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
        for (int r = 0; r < R; r++)
            s.w[u][r] = EVEN || k + at + u * 32 < KFIT_K ? kfit_load_once(w[r] + at + u * 32) : make_uint4(0, 0, 0, 0);
}

#if KFIT_XS || CL > 1
/* A barrier for so many bytes, made by one thread of a warp. The instruction is the warp's: without the middle line racecheck
 * sees lane 31 write what that thread reads. */
KFIT_INLINE void expect_once(unsigned long long *full, unsigned bytes, bool here)
{
    if (here) {
        kfit_barrier_init(full, 1);
        kfit_barrier_init_done();
    }
    __syncwarp();
    if (here)
        kfit_barrier_expect(full, bytes);
}
#endif

#if KFIT_XS
/* All of this block's x, row by row: one row in one piece if the block has all of K, else a piece per batch. */
KFIT_INLINE void fetch_x(const kfit_half *x, unsigned to, unsigned k_block, unsigned lane, unsigned long long *full)
{
    enum { PIECES = CL > 1 ? BATCHES : 1, PIECE = BATCHES / PIECES * SPAN * WK };
    expect_once(full, KFIT_M * BATCHES * SPAN * WK * 2, lane == 0);
    __syncwarp();
    for (unsigned m = lane; m < KFIT_M; m += 32)
#pragma unroll
        for (unsigned i = 0; i < PIECES; i++)
            kfit_bulk_copy(to + m * XPITCH + i * PIECE * 2, x + m * KFIT_LDA + k_block + i * (SPAN * WK * CL), PIECE * 2,
                           kfit_shared_address(full));
}
#else
KFIT_INLINE void load_x(batch &s, const kfit_half *const (&x)[MT][1 + UPPER], unsigned k, int i)
{
    const unsigned at = i * (SPAN * WK * CL);
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
        for (int m = 0; m < MT; m++)
#pragma unroll
            for (int h = 0; h <= UPPER; h++)
                s.x[u][m][h] = EVEN || k + at + u * 32 < KFIT_K ? kfit_load_again(x[m][h] + at + u * 32) :
                                                                  make_uint4(0, 0, 0, 0);
}
#endif

/* The mma's operand from x, for both halves of a step. Its registers are neighbours in another order than that of the
 * load; by | zero they are made once, where ptxas would copy them before each mma.
 *
 * With at most 8 rows of x, the mma's rows 8..15 are free. They take the other half of the same 16 bytes, and each
 * of the two sums is right in one half of its rows. */
KFIT_INLINE void arrange(uint4 (&a)[2], const uint4 (&x)[1 + UPPER], kfit_word zero)
{
    uint4 lo = x[0], hi = x[UPPER];
    if (UPPER) {
        a[0] = make_uint4(lo.x | zero, hi.x | zero, lo.y | zero, hi.y | zero);
        a[1] = make_uint4(lo.z | zero, hi.z | zero, lo.w | zero, hi.w | zero);
    } else {
        a[0] = a[1] = make_uint4(lo.x | zero, lo.z | zero, lo.y | zero, lo.w | zero);
    }
}

#if KFIT_XS /* xs: shared addresses of this lane's elements of batch 0 in each of its rows */
KFIT_INLINE void multiply(float4 (&sum)[2][MT][R], const batch &s, const unsigned (&xs)[MT][1 + UPPER], int i, kfit_word zero)
#else
KFIT_INLINE void multiply(float4 (&sum)[2][MT][R], const batch &s, kfit_word zero)
#endif
{
#pragma unroll
    for (int u = 0; u < U; u++)
#pragma unroll
        for (int m = 0; m < MT; m++) {
            uint4 a[2];
#if KFIT_XS
            uint4 x[1 + UPPER];
#pragma unroll
            for (int h = 0; h <= UPPER; h++)
                x[h] = kfit_shared_load(xs[m][h] + (i * WK * SPAN + u * 32) * 2);
            arrange(a, x, zero);
#else
            arrange(a, s.x[u][m], zero);
#endif
#pragma unroll
            for (int r = 0; r < R; r++) {
                kfit_mma(sum[0][m][r], a[0], s.w[u][r].x, s.w[u][r].y);
                kfit_mma(sum[CHAINS - 1][m][r], a[1], s.w[u][r].z, s.w[u][r].w);
            }
        }
}

/* A pair of outputs that this thread finishes: where its partial sums are, and where it goes. */
struct spot {
    unsigned from; /* shared address */
    kfit_out *to;
    bool work, here, both; /* is there a pair, are its columns in y, both of them */
#if KFIT_EPI == KFIT_EPI_BIAS
    kfit_pair bias;
#endif
};

KFIT_INLINE spot find(kfit_out *y, unsigned p, bool work, unsigned from, unsigned n_block)
{
    unsigned m = p / (BN / 2), n = p % (BN / 2) * 2;
    spot s = {from, y + (m * KFIT_LDC + n_block + n), work, work, true};
    s.here = work && (KFIT_N % BN == 0 || n_block + n < KFIT_N);
    s.both = KFIT_N % 2 == 0 || n_block + n + 1 < KFIT_N;
    kfit_now(s.from);
    kfit_now(s.to);
    return s;
}

#if KFIT_EPI == KFIT_EPI_BIAS
/* The bias of a spot's columns, on its way while the weights are. */
KFIT_INLINE spot with_bias(spot s, const kfit_out *bias, unsigned n)
{
    s.bias = kfit_pair();
    if (s.here)
        s.bias = kfit_pair_load(bias + n, s.both);
    return s;
}
#define FINISH(s, v) kfit_store_pair((s).to, kfit_pair_add(v, (s).bias), (s).both)
#else
#define FINISH(s, v) kfit_store_pair((s).to, v, (s).both)
#endif

/* The sum of `terms` pairs that lie `apart` bytes apart, in that order. */
KFIT_INLINE float2 add_up(unsigned at, int terms, unsigned apart)
{
    float2 s = kfit_shared_get(at);
#pragma unroll
    for (int i = 1; i < terms; i++) {
        float2 v = kfit_shared_get(at + i * apart);
        s = make_float2(s.x + v.x, s.y + v.y);
    }
    return s;
}

#if CL > 1
/* A pair that goes to the block that finishes it: its place in that block's inbox, and that block's barrier. */
struct parcel {
    unsigned to, barrier;
};

KFIT_INLINE parcel address(unsigned p, unsigned sender, unsigned inbox, unsigned full)
{
    parcel a = {kfit_cluster_address(inbox + (sender * SHARE + p % SHARE) * 8, p / SHARE),
                kfit_cluster_address(full, p / SHARE)};
    kfit_now(a.to);
    kfit_now(a.barrier);
    return a;
}
#endif

KFIT_ENTRY(THREADS, KFIT_MINB) kfit_main(const kfit_half *x, const kfit_half *w, kfit_out *y, BIAS_PARAM void *)
{
    /* partial sums [WK][M][PITCH], but not if SENDS == WK; then, in a cluster, the inbox [CL*SENDS][SHARE] */
#if KFIT_XS
    /* before all that: x, [M][XPITCH bytes] */
    extern __shared__ __align__(128) float shared[];
    __shared__ unsigned long long x_full;
#else
    extern __shared__ float shared[];
#endif
    const unsigned tid = threadIdx.x, lane = tid % 32, row = lane / 4, warp = tid / 32, wn = warp % WN, wk = warp / WN;
    const unsigned n_block = blockIdx.x * BN, n_warp = n_block + wn * 8 * R;
#if CL > 1
    __shared__ unsigned long long inbox_full;
    const unsigned rank = kfit_cluster_rank();
#else
    const unsigned rank = 0;
#endif
#if KFIT_BATCH > 1 /* the blocks of a cluster are neighbours in y, one matrix follows the other */
    const unsigned long long matrix = blockIdx.y / CL;
    x += matrix * KFIT_SA;
    w += matrix * KFIT_SB;
    y += matrix * KFIT_SC;
#endif

    /* Weights first: they come from afar. Rows past the end are read as the last row, and not stored. */
    const unsigned k = (rank * WK + wk) * SPAN + lane % 4 * 8;
    const kfit_half *wr[R];
#pragma unroll
    for (int r = 0; r < R; r++) {
        unsigned n = n_warp + r * 8 + row;
        wr[r] = w + (unsigned long long)(KFIT_N % BN ? min(n, KFIT_N - 1) : n) * KFIT_LDB + k;
    }
    batch ring[D];
#pragma unroll
    for (int i = 0; i < D; i++)
        load_w(ring[i], wr, k, i);
#if KFIT_XS
    const kfit_word zero = kfit_zero();
    unsigned xs[MT][1 + UPPER];
    if (warp == 0)
        fetch_x(x, kfit_shared_address(shared), rank * WK * SPAN, lane, &x_full);
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h <= UPPER; h++)
            xs[m][h] = kfit_shared_address(shared) + min(m * 16 + h * 8 + row, KFIT_M - 1) * XPITCH +
                       (wk * SPAN + lane % 4 * 8) * 2;
#else
    const kfit_half *xr[MT][1 + UPPER];
    const kfit_word zero = kfit_zero(); /* in the address of x too: where x is large, ptxas would put it first */
#pragma unroll
    for (int m = 0; m < MT; m++)
#pragma unroll
        for (int h = 0; h <= UPPER; h++)
            xr[m][h] = x + min(m * 16 + h * 8 + row, KFIT_M - 1) * KFIT_LDA + k + (UPPER ? zero : 0);
#pragma unroll
    for (int i = 0; i < D; i++)
        load_x(ring[i], xr, k, i);
#endif

    /* While the loads are on their way: all addresses of the end, and in a cluster, everybody's inbox. */
    const unsigned partial = kfit_shared_address(shared) + KFIT_XS * KFIT_M * XPITCH;
    unsigned put = partial + ((wk * KFIT_M + row) * PITCH + wn * 8 * R + lane % 4 * 2) * 4;
    kfit_now(put);
#if CL > 1
    const unsigned inbox = partial + (SENDS == WK ? 0 : WK * KFIT_M * PITCH * 4);
    const unsigned full = kfit_shared_address(&inbox_full);
    const int share = PAIRS % CL ? min(SHARE, max(0, PAIRS - (int)rank * SHARE)) : SHARE;
    spot mine[KFIT_CEIL(SHARE, THREADS)];
#pragma unroll
    for (int i = 0; i < KFIT_CEIL(SHARE, THREADS); i++)
        mine[i] = find(y, rank * SHARE + tid + i * THREADS, tid + i * THREADS < share, inbox + (tid + i * THREADS) * 8,
                       n_block);
#if KFIT_EPI == KFIT_EPI_BIAS
#pragma unroll
    for (int i = 0; i < KFIT_CEIL(SHARE, THREADS); i++)
        mine[i] = with_bias(mine[i], bias, n_block + (rank * SHARE + tid + i * THREADS) % (BN / 2) * 2);
#endif
    parcel out[SENDS == WK ? MT * (1 + UPPER) * R : KFIT_CEIL(PAIRS, THREADS)];
    unsigned from[KFIT_CEIL(PAIRS, THREADS)];
    if (SENDS == WK) {
#pragma unroll
        for (int i = 0; i < MT * (1 + UPPER) * R; i++) {
            unsigned m = i / R * 8 + row, p = m * (BN / 2) + (wn * R + i % R) * 4 + lane % 4;
            out[i] = address(min(p, PAIRS - 1), rank * SENDS + wk, inbox, full);
        }
    } else {
#pragma unroll
        for (int i = 0; i < KFIT_CEIL(PAIRS, THREADS); i++) {
            unsigned p = min(tid + i * THREADS, PAIRS - 1);
            out[i] = address(p, rank, inbox, full);
            from[i] = partial + (p / (BN / 2) * PITCH + p % (BN / 2) * 2) * 4;
            kfit_now(from[i]);
        }
    }
    expect_once(&inbox_full, share * CL * SENDS * 8, tid == 0);
    kfit_cluster_arrive();
    if (!KFIT_LATE)
        kfit_cluster_wait();
#else
    spot mine[KFIT_CEIL(PAIRS * ADDERS, THREADS)];
#pragma unroll
    for (int i = 0; i < KFIT_CEIL(PAIRS * ADDERS, THREADS); i++) {
        unsigned p = tid / ADDERS + i * THREADS, m = p / (BN / 2), n = p % (BN / 2) * 2;
        mine[i] = find(y, p, p < PAIRS, partial + ((tid % ADDERS * KFIT_M + m) * PITCH + n) * 4, n_block);
#if KFIT_EPI == KFIT_EPI_BIAS
        mine[i] = with_bias(mine[i], bias, n_block + n);
#endif
    }
#endif

    float4 sum[2][MT][R] = {};
#if KFIT_XS
    __syncthreads(); /* the barrier is there for all */
    kfit_barrier_wait(&x_full, 0);
#endif
#pragma unroll
    for (int i = 0; i < BATCHES; i++) {
#if KFIT_XS
        multiply(sum, ring[i % D], xs, i, zero);
        if (i + D < BATCHES)
            load_w(ring[i % D], wr, k, i + D);
#else
        multiply(sum, ring[i % D], zero);
        if (i + D < BATCHES) {
            load_w(ring[i % D], wr, k, i + D);
            load_x(ring[i % D], xr, k, i + D);
        }
#endif
    }

#if CL > 1
    if (KFIT_LATE)
        kfit_cluster_wait();
#endif
    /* Out of the fragments: into shared memory, or straight into the inboxes of the cluster. */
#pragma unroll
    for (int i = 0; i < MT; i++)
#pragma unroll
        for (int h = 0; h <= UPPER; h++)
#pragma unroll
            for (int r = 0; r < R; r++) {
                float4 s = sum[0][i][r], o = sum[1][i][r];
                if (!UPPER)
                    s = make_float4(s.x + o.z, s.y + o.w, 0, 0);
                else if (CHAINS == 2)
                    s = make_float4(s.x + o.x, s.y + o.y, s.z + o.z, s.w + o.w);
                float2 v = h ? make_float2(s.z, s.w) : make_float2(s.x, s.y);
                int m = i * 16 + h * 8;
                if (m + row >= KFIT_M)
                    continue;
#if CL > 1
                const parcel &a = out[(i * (1 + UPPER) + h) * R + r];
                if (SENDS == WK)
                    kfit_cluster_send(a.to, v, a.barrier);
                else
#endif
                    kfit_shared_put(put + (m * PITCH + r * 8) * 4, v);
            }

#if CL > 1 /* each block of the cluster adds up a share of the outputs, in the order of rank */
    if (SENDS != WK) {
        __syncthreads();
#pragma unroll
        for (int i = 0; i < KFIT_CEIL(PAIRS, THREADS); i++)
            if (tid + i * THREADS < PAIRS)
                kfit_cluster_send(out[i].to, add_up(from[i], WK, KFIT_M * PITCH * 4), out[i].barrier);
    }
    if (tid >= share)
        return;
    kfit_barrier_wait(&inbox_full, 0);
#pragma unroll
    for (int i = 0; i < KFIT_CEIL(SHARE, THREADS); i++)
        if (mine[i].here)
            FINISH(mine[i], add_up(mine[i].from, CL * SENDS, SHARE * 8));
#else /* ADDERS threads per pair, each adds every ADDERS-th warp's */
    __syncthreads();
#pragma unroll
    for (int i = 0; i < KFIT_CEIL(PAIRS * ADDERS, THREADS); i++) {
        if (!mine[i].work) /* whole warps, if ADDERS > 1 */
            continue;
        float2 s = add_up(mine[i].from, WK / ADDERS, ADDERS * KFIT_M * PITCH * 4);
#pragma unroll
        for (int apart = ADDERS / 2; apart; apart /= 2) {
            s.x += __shfl_xor_sync(~0u, s.x, apart);
            s.y += __shfl_xor_sync(~0u, s.y, apart);
        }
        if (mine[i].here && tid % ADDERS == 0)
            FINISH(mine[i], s);
    }
#endif
}
