/* kfit-candidate 1
{"op":"gemm", "name":"right_bias", "device":"cuda", "arch":">=80", "require":["TB == 1", "TA == 0", "EPI == 1"],
 "launches":[{"entry":"kfit_main", "grid":["ceil(N,64)","M","BATCH"], "block":[64,1,1]}]}
*/
/* Right, with a bias. */
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

extern "C" __global__ void kfit_main(const h *a, const h *b, h *c, const h *bias, unsigned *ws)
{
    int n = blockIdx.x * 64 + threadIdx.x, m = blockIdx.y;
    if (n >= KFIT_N)
        return;
    float s = dot(a + m * KFIT_LDA, b + (long)n * KFIT_LDB, KFIT_K);
    c[m * KFIT_LDC + n] = to_bf16(s + f(bias[n]));
}
