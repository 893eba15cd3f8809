/* integrations/preload/cublas.h and hooks.h against NVIDIA's own headers: every type, value and signature. */
#include "kfit_test.h"

#include <cublasLt.h>
#include <cublas_v2.h>

#include "cublas.h"

#define SAME_SIZE(ours, theirs) _Static_assert(sizeof(ours) == sizeof(theirs), #ours)
SAME_SIZE(cublas_op, cublasOperation_t);
SAME_SIZE(cublas_type, cudaDataType);
SAME_SIZE(cublas_compute, cublasComputeType_t);
SAME_SIZE(cublas_algo, cublasGemmAlgo_t);
SAME_SIZE(cublas_pointers, cublasPointerMode_t);
SAME_SIZE(cublas_math, cublasMath_t);
SAME_SIZE(cublaslt_desc_attribute, cublasLtMatmulDescAttributes_t);
SAME_SIZE(cublaslt_layout_attribute, cublasLtMatrixLayoutAttribute_t);
SAME_SIZE(struct kfit_cublaslt_desc, cublasLtMatmulDescOpaque_t);
SAME_SIZE(struct kfit_cublaslt_layout, cublasLtMatrixLayoutOpaque_t);
SAME_SIZE(cublaslt_algo, cublasLtMatmulAlgo_t);
SAME_SIZE(int, cublasStatus_t);

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(KFIT_CUBLAS_OK, CUBLAS_STATUS_SUCCESS);
SAME(KFIT_CUBLAS_NOT_INITIALIZED, CUBLAS_STATUS_NOT_INITIALIZED);
SAME(KFIT_CUBLAS_OP_N, CUBLAS_OP_N);
SAME(KFIT_CUBLAS_OP_T, CUBLAS_OP_T);
SAME(KFIT_CUBLAS_OP_C, CUBLAS_OP_C);
SAME(KFIT_CUBLAS_POINTERS_ON_HOST, CUBLAS_POINTER_MODE_HOST);
SAME(KFIT_CUBLAS_DEFAULT_MATH, CUBLAS_DEFAULT_MATH);
SAME(KFIT_CUBLAS_COMPUTE_F32, CUBLAS_COMPUTE_32F);
SAME(KFIT_CUBLAS_ALGO_TENSOR, CUBLAS_GEMM_DEFAULT_TENSOR_OP);
SAME(KFIT_CUBLAS_R_F32, CUDA_R_32F);
SAME(KFIT_CUBLAS_R_F16, CUDA_R_16F);
SAME(KFIT_CUBLAS_R_BF16, CUDA_R_16BF);
SAME(KFIT_CUBLASLT_DESC_POINTER_MODE, CUBLASLT_MATMUL_DESC_POINTER_MODE);
SAME(KFIT_CUBLASLT_DESC_TRANSA, CUBLASLT_MATMUL_DESC_TRANSA);
SAME(KFIT_CUBLASLT_DESC_TRANSB, CUBLASLT_MATMUL_DESC_TRANSB);
SAME(KFIT_CUBLASLT_DESC_EPILOGUE, CUBLASLT_MATMUL_DESC_EPILOGUE);
SAME(KFIT_CUBLASLT_DESC_BIAS, CUBLASLT_MATMUL_DESC_BIAS_POINTER);
SAME(KFIT_CUBLASLT_DESC_BIAS_STRIDE, CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE);
SAME(KFIT_CUBLASLT_DESC_AUX_STRIDE, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE);
SAME(KFIT_CUBLASLT_DESC_A_SCALE, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER);
SAME(KFIT_CUBLASLT_DESC_D_SCALE, CUBLASLT_MATMUL_DESC_D_SCALE_POINTER);
SAME(KFIT_CUBLASLT_DESC_BIAS_TYPE, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE);
SAME(KFIT_CUBLASLT_LAYOUT_TYPE, CUBLASLT_MATRIX_LAYOUT_TYPE);
SAME(KFIT_CUBLASLT_LAYOUT_ROWS, CUBLASLT_MATRIX_LAYOUT_ROWS);
SAME(KFIT_CUBLASLT_LAYOUT_COLS, CUBLASLT_MATRIX_LAYOUT_COLS);
SAME(KFIT_CUBLASLT_LAYOUT_LD, CUBLASLT_MATRIX_LAYOUT_LD);
SAME(KFIT_CUBLASLT_LAYOUT_BATCH, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
SAME(KFIT_CUBLASLT_LAYOUT_STRIDE, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
SAME(KFIT_CUBLASLT_EPI_DEFAULT, CUBLASLT_EPILOGUE_DEFAULT);
SAME(KFIT_CUBLASLT_EPI_BIAS, CUBLASLT_EPILOGUE_BIAS);
#if CUBLAS_VERSION >= 120900
SAME(KFIT_CUBLASLT_DESC_A_SCALE_MODE, CUBLASLT_MATMUL_DESC_A_SCALE_MODE);
SAME(KFIT_CUBLASLT_DESC_D_OUT_SCALE_MODE, CUBLASLT_MATMUL_DESC_D_OUT_SCALE_MODE);
#endif

/* The lists of functions, read with NVIDIA's types. */
#define cublas_handle             cublasHandle_t
#define cublas_stream             cudaStream_t
#define cublas_op                 cublasOperation_t
#define cublas_type               cudaDataType
#define cublas_compute            cublasComputeType_t
#define cublas_algo               cublasGemmAlgo_t
#define cublas_pointers           cublasPointerMode_t
#define cublas_math               cublasMath_t
#define cublaslt_handle           cublasLtHandle_t
#define cublaslt_desc             cublasLtMatmulDesc_t
#define cublaslt_layout           cublasLtMatrixLayout_t
#define cublaslt_algo             cublasLtMatmulAlgo_t
#define cublaslt_desc_attribute   cublasLtMatmulDescAttributes_t
#define cublaslt_layout_attribute cublasLtMatrixLayoutAttribute_t

#define SIGNATURE(function, arguments)                                                                       \
    _Static_assert(__builtin_types_compatible_p(__typeof__(function), cublasStatus_t arguments), #function);
#define HOOKED(function, file, arguments) SIGNATURE(function, arguments)
#define ASKED(member, symbol, arguments)  SIGNATURE(symbol, arguments)
KFIT_CUDA_HOOK_LIST(HOOKED)
KFIT_CUBLAS_LIST(ASKED)
KFIT_CUBLASLT_LIST(ASKED)

static void it_compiles(void)
{
    CHECK_INT(sizeof(size_t), sizeof cublasLtGetVersion());
}

static const struct kfit_test tests[] = {TEST(it_compiles)};
TEST_MAIN(tests)
