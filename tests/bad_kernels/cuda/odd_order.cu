/* kfit-candidate 1
{"op":"gemm", "name":"odd_order", "device":"cuda", "arch":">=80", "require":["TB == 1", "TA == 0"],
 "launches":[{"entry":"kfit_main", "grid":["ceil(N,64)","M",1], "block":[64,1,1]}]}
*/
/* Odd, but right: terms from the back, two sums, streaming hints. */
typedef unsigned short h;
__device__ float f(h x) { return __uint_as_float((unsigned)x << 16); }
__device__ h to_bf16(float x) { h r; asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }
__device__ float dot(const h *a, const h *b, int n)
{
    float s = 0;
    for (int k = 0; k < n; k++)
        s += f(a[k]) * f(b[k]);
    return s;
}

extern "C" __global__ void kfit_main(const h *a, const h *b, h *c, unsigned *ws)
{
    int n = blockIdx.x * 64 + threadIdx.x, m = blockIdx.y;
    if (n >= KFIT_N)
        return;
    float s = 0, t = 0;
    for (int k = KFIT_K - 1; k >= 0; k--) {
        unsigned short w;
        asm volatile("ld.global.nc.L1::no_allocate.u16 %0, [%1];" : "=h"(w) : "l"(b + (long)n * KFIT_LDB + k));
        (k & 1 ? s : t) += f(a[m * KFIT_LDA + k]) * f(w);
    }
    c[m * KFIT_LDC + n] = to_bf16(s + t);
}
