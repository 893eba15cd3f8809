/* kfit-candidate 1
{"op":"gemm", "name":"right_map", "device":"cuda", "arch":">=90", "require":["TB == 1", "TA == 0", "SM >= 90", "K % 64 == 0"],
 "tensormaps":[{"arg":"b", "box":[64,64], "swizzle":128}],
 "launches":[{"entry":"kfit_main", "grid":["ceil(N,64)","M",1], "block":[64,1,1]}]}
*/
/* Nothing is wrong with this one: W comes in boxes of 64 rows and 64 columns, through a tensor map, swizzled. Rows beyond
 * the last are zero. */
#include "kfit_cuda.h"

extern "C" __global__ void kfit_main(const kfit_half *a, const kfit_half *, kfit_out *c, void *,
                                     const __grid_constant__ kfit_tensor_map w_map)
{
    __shared__ __align__(1024) uint4 box[64 * 8];
    __shared__ unsigned long long full;
    const unsigned tid = threadIdx.x, n = blockIdx.x * 64 + tid, m = blockIdx.y;
    float sum = 0;
    if (tid == 0) {
        kfit_barrier_init(&full, 1);
        kfit_barrier_init_done();
    }
    __syncthreads();
    for (unsigned k = 0; k < KFIT_K; k += 64) {
        if (tid == 0) {
            kfit_barrier_expect(&full, sizeof box);
            kfit_tensor_copy(kfit_shared_address(box), w_map, blockIdx.x * 64, k, kfit_shared_address(&full));
        }
        kfit_barrier_wait(&full, k / 64 % 2);
        for (unsigned i = 0; i < 8; i++) {
            const uint4 v = box[tid * 8 + (i ^ tid % 8)]; /* 16-byte pieces change places by row */
            const unsigned w[4] = {v.x, v.y, v.z, v.w};
            for (unsigned j = 0; j < 8; j++) {
                const unsigned x = a[m * KFIT_LDA + k + i * 8 + j];
                sum += __uint_as_float(x << 16) * __uint_as_float(w[j / 2] >> 16 * (j % 2) << 16);
            }
        }
        __syncthreads();
    }
    if (n < KFIT_N)
        kfit_store_pair(c + m * KFIT_LDC + n, make_float2(sum, 0), false);
}
