/* The kernels in cuda/, and the code that each must get from the judge on a GPU. */
#ifndef KFIT_TEST_BAD_CUDA_H
#define KFIT_TEST_BAD_CUDA_H

#define BAD_CUDA_PLAIN "gemm/bf16,bf16,bf16/acc=f32/m=4,n=200,k=256/nt/lda=256,ldb=256,ldc=200/alpha=1,beta=0/align=16"
#define BAD_CUDA_BATCH BAD_CUDA_PLAIN "/batch=3,sa=1024,sb=51200,sc=800"
/* few terms: the bias is a good part of every value */
#define BAD_CUDA_BIAS "gemm/bf16,bf16,bf16/acc=f32/m=4,n=200,k=32/nt/lda=32,ldb=32,ldc=200/alpha=1,beta=0/align=16/epi=bias"

static const struct {
    const char *name, *code; /* code "": not refused */
    const char *key;
} bad_cuda[] = {
    {"right", "", BAD_CUDA_PLAIN},
    {"odd_order", "", BAD_CUDA_PLAIN},
    {"right_map", "", BAD_CUDA_PLAIN},
    {"nothing", "wrong:unwritten", BAD_CUDA_PLAIN},
    {"no_tail", "wrong:partial", BAD_CUDA_PLAIN},
    {"no_last_row", "wrong:partial", BAD_CUDA_PLAIN},
    {"input", "wrong:input_written", BAD_CUDA_PLAIN},
    {"past_end", "wrong:out_of_bounds", BAD_CUDA_PLAIN},
    {"before_start", "wrong:out_of_bounds", BAD_CUDA_PLAIN},
    {"reads_past", "wrong:out_of_bounds", BAD_CUDA_PLAIN},
    {"truncates", "wrong:accuracy", BAD_CUDA_PLAIN},
    {"half_sums", "wrong:accuracy", BAD_CUDA_PLAIN},
    {"samples", "wrong:values", BAD_CUDA_PLAIN},
    {"nan_lost", "wrong:nonfinite", BAD_CUDA_PLAIN},
    {"large_wrong", "wrong:values", BAD_CUDA_PLAIN},
    {"hangs", "wrong:hang", BAD_CUDA_PLAIN},
    {"illegal", "wrong:out_of_bounds", BAD_CUDA_PLAIN},
    {"too_much", "static:resources", BAD_CUDA_PLAIN},
    {"needs_zero", "wrong:nonfinite", BAD_CUDA_PLAIN},
    {"left_dirty", "wrong:workspace", BAD_CUDA_PLAIN},
    {"past_workspace", "wrong:out_of_bounds", BAD_CUDA_PLAIN},
    {"memo", "wrong:workspace", BAD_CUDA_PLAIN},
    {"prefetches", "static:instruction", BAD_CUDA_PLAIN},
    {"clock", "static:instruction", BAD_CUDA_PLAIN},
    {"right_bias", "", BAD_CUDA_BIAS},
    {"no_bias", "wrong:values", BAD_CUDA_BIAS},
    {"first_bias", "wrong:values", BAD_CUDA_BIAS},
    {"right_batch", "", BAD_CUDA_BATCH},
    {"first_matrix", "wrong:partial", BAD_CUDA_BATCH},
    {"wrong_stride", "wrong:values", BAD_CUDA_BATCH},
};
enum { BAD_CUDA = sizeof bad_cuda / sizeof *bad_cuda };

#endif
