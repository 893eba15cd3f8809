/* kfit_cuda.h - what cuda kernels may use; the harness includes nothing else. sm_80 and up.
 *
 * The harness defines the key's constants (KFIT_M, KFIT_LDA, KFIT_TYPE_A ...), the knobs, and KFIT_SM (80, 90
 * ...). A kernel includes this file and nothing of CUDA: NVRTC then needs no header from disk.
 */
#ifndef KFIT_CUDA_H
#define KFIT_CUDA_H

#define KFIT_F32  1 /* enum kfit_dtype */
#define KFIT_F16  3
#define KFIT_BF16 4

#define KFIT_EPI_BIAS 1 /* enum kfit_epilogue: the entry gets the bias after c */

#define KFIT_INLINE static __device__ __forceinline__
#define KFIT_ENTRY(threads, blocks_per_sm)                                                                   \
    extern "C" __global__ void __launch_bounds__(threads, blocks_per_sm)
#define KFIT_CEIL(a, b) (((a) + (b)-1) / (b))

typedef unsigned short kfit_half; /* 16 bits of KFIT_TYPE_A: bf16 or f16 */
typedef unsigned int kfit_word;   /* two of them */
#if KFIT_TYPE_A == KFIT_F32
typedef float kfit_in;
#else
typedef kfit_half kfit_in;
#endif
#if KFIT_TYPE_C == KFIT_F32
typedef float kfit_out;
#else
typedef unsigned short kfit_out;
#endif

/* 16 bytes that are read once: no room taken in L1, the whole 128-byte line brought into L2. */
KFIT_INLINE uint4 kfit_load_once(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.L1::no_allocate.L2::128B.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

/* 16 bytes that other warps of the block read too. */
KFIT_INLINE uint4 kfit_load_again(const void *p)
{
    uint4 v;
    asm volatile("ld.global.nc.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "l"(p));
    return v;
}

KFIT_INLINE float4 kfit_floats(uint4 v)
{
    return make_float4(__uint_as_float(v.x), __uint_as_float(v.y), __uint_as_float(v.z), __uint_as_float(v.w));
}

/* a * b + c, rounded once. */
KFIT_INLINE float kfit_fma(float a, float b, float c)
{
    return __fmaf_rn(a, b, c);
}

/* c[16x8] += a[16x16] * b[16x8], f32 sums. Lane 4g+t holds a = {row g: k 2t.., row g+8: k 2t.., row g: k
 * 2t+8.., row g+8: k 2t+8..}, b = {column g: k 2t.., k 2t+8..}, c = {row g: columns 2t, 2t+1, row
 * g+8: the same}. */
KFIT_INLINE void kfit_mma(float4 &c, uint4 a, kfit_word b0, kfit_word b1)
{
#if KFIT_TYPE_A == KFIT_BF16
#define KFIT_MMA_TYPE "bf16"
#else
#define KFIT_MMA_TYPE "f16"
#endif
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." KFIT_MMA_TYPE "." KFIT_MMA_TYPE ".f32 "
                 "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c.x), "+f"(c.y), "+f"(c.z), "+f"(c.w)
                 : "r"(a.x), "r"(a.y), "r"(a.z), "r"(a.w), "r"(b0), "r"(b1));
}

/* f32 to the output type, rounded to nearest even, and back. */
KFIT_INLINE kfit_out kfit_round(float v)
{
#if KFIT_TYPE_C == KFIT_F32
    return v;
#elif KFIT_TYPE_C == KFIT_BF16
    kfit_out r;
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
#else
    kfit_out r;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(v));
    return r;
#endif
}

KFIT_INLINE float kfit_widen(kfit_out v)
{
#if KFIT_TYPE_C == KFIT_F32
    return v;
#elif KFIT_TYPE_C == KFIT_BF16
    return __uint_as_float((unsigned)v << 16);
#else
    float r;
    asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(v));
    return r;
#endif
}

/* c[0] = v.x, c[1] = v.y (only c[0] if not both); + c's old value if beta is 1. c is aligned to the
 * pair if both. */
KFIT_INLINE void kfit_store_pair(kfit_out *c, float2 v, bool both)
{
    if (KFIT_BETA) {
        v.x += kfit_widen(c[0]);
        v.y += both ? kfit_widen(c[1]) : 0;
    }
    kfit_out x = kfit_round(v.x), y = kfit_round(v.y);
    unsigned long long at = __cvta_generic_to_global(c); /* said so, or it becomes a generic store */
#if KFIT_TYPE_C == KFIT_F32
    if (both)
        asm volatile("st.global.v2.f32 [%0], {%1, %2};" ::"l"(at), "f"(x), "f"(y) : "memory");
    else
        asm volatile("st.global.f32 [%0], %1;" ::"l"(at), "f"(x) : "memory");
#else
    if (both)
        asm volatile("st.global.b32 [%0], %1;" ::"l"(at), "r"(x | (kfit_word)y << 16) : "memory");
    else
        asm volatile("st.global.b16 [%0], %1;" ::"l"(at), "h"(x) : "memory");
#endif
}

/* Two neighbours of an output's type as they lie in memory (only the first if not both): loaded long before they are
 * needed, widened when they are. p is aligned to the pair if both. */
#if KFIT_TYPE_C == KFIT_F32
typedef float2 kfit_pair;
#else
typedef kfit_word kfit_pair;
#endif

KFIT_INLINE kfit_pair kfit_pair_load(const kfit_out *p, bool both)
{
#if KFIT_TYPE_C == KFIT_F32
    float2 v = make_float2(0, 0);
    if (both)
        asm volatile("ld.global.nc.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "l"(p));
    else
        asm volatile("ld.global.nc.f32 %0, [%1];" : "=f"(v.x) : "l"(p));
    return v;
#else
    kfit_word v;
    kfit_out one;
    if (both) {
        asm volatile("ld.global.nc.b32 %0, [%1];" : "=r"(v) : "l"(p));
        return v;
    }
    asm volatile("ld.global.nc.b16 %0, [%1];" : "=h"(one) : "l"(p));
    return one;
#endif
}

KFIT_INLINE float2 kfit_pair_add(float2 v, kfit_pair p)
{
#if KFIT_TYPE_C == KFIT_F32
    return make_float2(v.x + p.x, v.y + p.y);
#else
    return make_float2(v.x + kfit_widen((kfit_out)p), v.y + kfit_widen((kfit_out)(p >> 16)));
#endif
}

/* Computes v at this place, not where it is used: in the shadow of loads rather than after them. */
KFIT_INLINE void kfit_now(unsigned &v)
{
    asm volatile("" : "+r"(v));
}

template <class T> KFIT_INLINE void kfit_now(T *&p)
{
    asm volatile("" : "+l"(p));
}

/* 0, which the compiler does not know (the grid's z is 1). */
KFIT_INLINE kfit_word kfit_zero(void)
{
    kfit_word z;
    asm("mov.u32 %0, %%ctaid.z;" : "=r"(z));
    return z;
}

/* Shared memory by 32-bit address. */
KFIT_INLINE unsigned kfit_shared_address(const void *p)
{
    return (unsigned)__cvta_generic_to_shared(p);
}

KFIT_INLINE void kfit_shared_put(unsigned at, float2 v)
{
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(at), "f"(v.x), "f"(v.y) : "memory");
}

KFIT_INLINE void kfit_shared_put(unsigned at, float v)
{
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(v) : "memory");
}

/* 16 bytes; at is a multiple of 16. */
KFIT_INLINE uint4 kfit_shared_load(unsigned at)
{
    uint4 v;
    asm volatile("ld.shared.v4.u32 {%0,%1,%2,%3}, [%4];"
                 : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
                 : "r"(at)
                 : "memory");
    return v;
}

KFIT_INLINE float2 kfit_shared_get(unsigned at)
{
    float2 v;
    asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(v.x), "=f"(v.y) : "r"(at) : "memory");
    return v;
}

KFIT_INLINE float kfit_shared_get_one(unsigned at)
{
    float v;
    asm volatile("ld.shared.f32 %0, [%1];" : "=f"(v) : "r"(at) : "memory");
    return v;
}

#if KFIT_SM >= 90 /* ---- clusters, barriers in shared memory ---- */

KFIT_INLINE unsigned kfit_cluster_rank(void)
{
    unsigned r;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
    return r;
}

/* All threads of the cluster have come this far. Orders no memory but what fences order. */
KFIT_INLINE void kfit_cluster_arrive(void)
{
    asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

KFIT_INLINE void kfit_cluster_wait(void)
{
    asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
}

KFIT_INLINE void kfit_barrier_init(unsigned long long *bar, unsigned arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(kfit_shared_address(bar)), "r"(arrivals)
                 : "memory");
}

/* Makes initialised barriers known to the cluster; a barrier of all its threads must follow. */
KFIT_INLINE void kfit_barrier_init_done(void)
{
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

/* One arrival that also announces bytes to come. */
KFIT_INLINE void kfit_barrier_expect(unsigned long long *bar, unsigned bytes)
{
    asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(kfit_shared_address(bar)),
                 "r"(bytes)
                 : "memory");
}

KFIT_INLINE void kfit_barrier_wait(unsigned long long *bar, unsigned phase)
{
    asm volatile(
        "{ .reg .pred %%kfit_done; again: mbarrier.try_wait.parity.shared.b64 %%kfit_done, [%0], %1; "
        "@!%%kfit_done bra again; }" ::"r"(kfit_shared_address(bar)),
        "r"(phase)
        : "memory");
}

/* Into this block's shared memory, by the copy engine; its barrier is told of the bytes. All are multiples of 16. */
KFIT_INLINE void kfit_bulk_copy(unsigned to, const void *from, unsigned bytes, unsigned barrier)
{
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes), "r"(barrier)
                 : "memory");
}

/* An argument as the header's "tensormaps" describe it: `const __grid_constant__ kfit_tensor_map x_map`. */
struct __align__(64) kfit_tensor_map {
    unsigned long long word[16];
};

/* The box that begins at row, col, into this block's shared memory, by the copy engine; what lies beyond an edge is zero,
 * and counts among the box's bytes, of which the barrier is told. to is a multiple of 128. */
KFIT_INLINE void kfit_tensor_copy(unsigned to, const kfit_tensor_map &map, unsigned row, unsigned col, unsigned barrier)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
                 "l"(&map), "r"(col), "r"(row), "r"(barrier)
                 : "memory");
}

/* The same of one matrix of a batch. */
KFIT_INLINE void kfit_tensor_copy(unsigned to, const kfit_tensor_map &map, unsigned matrix, unsigned row, unsigned col,
                                  unsigned barrier)
{
    asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(to),
                 "l"(&map), "r"(col), "r"(row), "r"(matrix), "r"(barrier)
                 : "memory");
}

/* What is at this address here, in the cluster's block `rank`. */
KFIT_INLINE unsigned kfit_cluster_address(unsigned at, unsigned rank)
{
    unsigned r;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(r) : "r"(at), "r"(rank));
    return r;
}

/* Into the shared memory of a block of the cluster; its barrier is told of 8 bytes. That block must have
 * started and must not end before its barrier has seen all bytes. Both addresses are
 * kfit_cluster_address's. */
KFIT_INLINE void kfit_cluster_send(unsigned at, float2 v, unsigned barrier)
{
    asm volatile(
        "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(at),
        "f"(v.x), "f"(v.y), "r"(barrier)
        : "memory");
}
#endif

#endif
