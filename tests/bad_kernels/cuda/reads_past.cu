/* kfit-candidate 1
{"op":"gemm", "name":"reads_past", "device":"cuda", "arch":">=80", "require":["TB == 1", "TA == 0"],
 "launches":[{"entry":"kfit_main", "grid":["ceil(N,64)","M",1], "block":[64,1,1]}]}
*/
/* Reads past the end of its weights, and happens to be right. */
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
    float s = dot(a + m * KFIT_LDA, b + (long)n * KFIT_LDB, KFIT_K);
    if (n == KFIT_N - 1 && f(b[(long)(KFIT_N - 1) * KFIT_LDB + KFIT_K + 4096]) == 12345.0f)
        s += 1;
    c[m * KFIT_LDC + n] = to_bf16(s);
}
