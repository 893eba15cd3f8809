/* What offline-search/harness/kfit_cuda.h offers to cuda kernels, as C++ for the CPU: a seed compiled against this file does
 * on a CPU, thread for thread, what its code says it does on a GPU (emulate.cpp runs the threads as fibers). For the logic of
 * indices, barriers and rounding points; it says nothing of time, and memory is as strong as a CPU's. */
#ifndef KFIT_CUDA_H
#define KFIT_CUDA_H

#include <cmath>
#include <cstdint>
#include <cstring>

#define KFIT_F32  1
#define KFIT_F16  3
#define KFIT_BF16 4
#define KFIT_EPI_BIAS 1

#define KFIT_INLINE static inline
#define KFIT_ENTRY(threads, blocks_per_sm) extern "C" void
#define KFIT_CEIL(a, b) (((a) + (b)-1) / (b))
#define __shared__

/* CUDA's: of mixed kinds, unsigned */
static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline unsigned min(unsigned a, unsigned b) { return a < b ? a : b; }
static inline unsigned max(unsigned a, unsigned b) { return a > b ? a : b; }
static inline unsigned min(unsigned a, int b) { return min(a, (unsigned)b); }
static inline unsigned max(unsigned a, int b) { return max(a, (unsigned)b); }
struct uint4 {
    unsigned x, y, z, w;
};
struct float2 {
    float x, y;
};
struct float4 {
    float x, y, z, w;
};
struct emulated_dim {
    unsigned x, y, z;
};
static inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
static inline float2 make_float2(float x, float y) { return {x, y}; }
static inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

/* ---- emulate.cpp ---- */
extern emulated_dim threadIdx, blockIdx;
extern "C" float shared[]; /* kernels are extern "C", and so is what they declare */
unsigned emulated_address(const void *p);      /* of a __shared__ variable, in its block */
void *emulated_shared(unsigned at, unsigned bytes = 8); /* of an address of this block, or of the cluster */
void emulated_check(const void *p, size_t bytes, bool write); /* global memory: is it an argument's? */
void emulated_misaligned(void);
void emulated_sync(void);
float emulated_shuffle(float v, unsigned lane_mask);
void emulated_mma(float c[4], const unsigned a[4], unsigned b0, unsigned b1);
unsigned emulated_rank(void);
void emulated_cluster_arrive(void), emulated_cluster_wait(void);
unsigned emulated_map(unsigned at, unsigned rank);
void emulated_barrier_init(unsigned at, unsigned arrivals);
void emulated_barrier_expect(unsigned at, unsigned bytes);
void emulated_barrier_complete(unsigned at, unsigned bytes);
void emulated_barrier_wait(unsigned at, unsigned phase);

#define __syncthreads() emulated_sync()
#define __syncwarp() emulated_shuffle(0, 0)
#define __align__(bytes)
#define __shfl_xor_sync(mask, v, lane_mask) emulated_shuffle(v, lane_mask)

/* ---- as in the real file ---- */

typedef unsigned short kfit_half;
typedef unsigned int kfit_word;
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

static inline uint4 kfit_load_once(const void *p)
{
    uint4 v;
    emulated_check(p, 16, false);
    memcpy(&v, p, 16);
    return v;
}
#define kfit_load_again kfit_load_once
static inline float4 kfit_floats(uint4 v)
{
    float4 f;
    memcpy(&f, &v, 16);
    return f;
}
static inline float kfit_fma(float a, float b, float c) { return fmaf(a, b, c); }

static inline void kfit_mma(float4 &c, uint4 a, kfit_word b0, kfit_word b1)
{
    const unsigned words[4] = {a.x, a.y, a.z, a.w};
    emulated_mma(&c.x, words, b0, b1);
}

static inline float emulated_widen(unsigned short v, int type)
{
    if (type == KFIT_BF16) {
        unsigned bits = (unsigned)v << 16;
        float f;
        memcpy(&f, &bits, 4);
        return f;
    }
    _Float16 h;
    memcpy(&h, &v, 2);
    return (float)h;
}

static inline kfit_out kfit_round(float v)
{
#if KFIT_TYPE_C == KFIT_F32
    return v;
#elif KFIT_TYPE_C == KFIT_BF16
    unsigned bits;
    memcpy(&bits, &v, 4);
    return (kfit_out)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#else
    _Float16 h = (_Float16)v;
    kfit_out r;
    memcpy(&r, &h, 2);
    return r;
#endif
}

static inline float kfit_widen(kfit_out v)
{
#if KFIT_TYPE_C == KFIT_F32
    return v;
#else
    return emulated_widen(v, KFIT_TYPE_C);
#endif
}

static inline void kfit_store_pair(kfit_out *c, float2 v, bool both)
{
    emulated_check(c, (both ? 2 : 1) * sizeof *c, true);
    if (KFIT_BETA) {
        v.x += kfit_widen(c[0]);
        v.y += both ? kfit_widen(c[1]) : 0;
    }
    c[0] = kfit_round(v.x);
    if (both)
        c[1] = kfit_round(v.y);
}

typedef float2 kfit_pair;
static inline kfit_pair kfit_pair_load(const kfit_out *p, bool both)
{
    emulated_check(p, (both ? 2 : 1) * sizeof *p, false);
    return {kfit_widen(p[0]), both ? kfit_widen(p[1]) : 0};
}
static inline float2 kfit_pair_add(float2 v, kfit_pair p) { return {v.x + p.x, v.y + p.y}; }

template <class T> static inline void kfit_now(T &) {}
static inline kfit_word kfit_zero(void) { return blockIdx.z; }

static inline unsigned kfit_shared_address(const void *p) { return emulated_address(p); }
static inline void kfit_shared_put(unsigned at, float2 v) { memcpy(emulated_shared(at), &v, 8); }
static inline void kfit_shared_put(unsigned at, float v) { memcpy(emulated_shared(at, 4), &v, 4); }
static inline float kfit_shared_get_one(unsigned at)
{
    float v;
    memcpy(&v, emulated_shared(at, 4), 4);
    return v;
}
static inline uint4 kfit_shared_load(unsigned at)
{
    uint4 v;
    if (at % 16)
        emulated_misaligned();
    memcpy(&v, emulated_shared(at), 8);
    memcpy((char *)&v + 8, emulated_shared(at + 8), 8);
    return v;
}
static inline float2 kfit_shared_get(unsigned at)
{
    float2 v;
    memcpy(&v, emulated_shared(at), 8);
    return v;
}

static inline unsigned kfit_cluster_rank(void) { return emulated_rank(); }
static inline void kfit_cluster_arrive(void) { emulated_cluster_arrive(); }
static inline void kfit_cluster_wait(void) { emulated_cluster_wait(); }
static inline void kfit_barrier_init(unsigned long long *bar, unsigned n) { emulated_barrier_init(emulated_address(bar), n); }
static inline void kfit_barrier_init_done(void) {}
static inline void kfit_barrier_expect(unsigned long long *bar, unsigned bytes)
{
    emulated_barrier_expect(emulated_address(bar), bytes);
}
static inline void kfit_barrier_wait(unsigned long long *bar, unsigned phase)
{
    emulated_barrier_wait(emulated_address(bar), phase);
}
static inline void kfit_bulk_copy(unsigned to, const void *from, unsigned bytes, unsigned barrier)
{
    if (to % 16 || (uintptr_t)from % 16 || bytes % 16)
        emulated_misaligned();
    for (unsigned i = 0; i < bytes; i += 8) {
        emulated_check((const char *)from + i, 8, false);
        memcpy(emulated_shared(to + i), (const char *)from + i, 8);
    }
    emulated_barrier_complete(barrier, bytes);
}
static inline unsigned kfit_cluster_address(unsigned at, unsigned rank) { return emulated_map(at, rank); }
static inline void kfit_cluster_send(unsigned at, float2 v, unsigned barrier)
{
    memcpy(emulated_shared(at), &v, 8);
    emulated_barrier_complete(barrier, 8);
}

#endif
