/* cublasLtMatmul exactly as PyTorch calls it for F.linear with a bias (at::cuda::blas::gemm_and_bias): the bias in the
 * epilogue, beta 0 unless the key says otherwise, C and D one matrix, the cuBLAS handle as the cuBLASLt handle, and the first
 * algorithm of a heuristic that is told the workspace and how each pointer is aligned. PyTorch tells it the alignment of
 * the bias as that of D; so do we.
 *
 * PyTorch asks the heuristic at every call. Its answer depends on nothing but what it is told, so it is asked again
 * only when that changes: plain launches are timed behind a delay that must not run out first. */
#include <stdio.h>

#include "worker_cublas.h"

enum { DESC_TRANSA = 3, DESC_TRANSB = 4, DESC_EPILOGUE = 7, DESC_BIAS_POINTER = 8 };
enum { PREF_WORKSPACE_BYTES = 1, PREF_ALIGN_A = 5, PREF_ALIGN_B, PREF_ALIGN_C, PREF_ALIGN_D };
enum { EPILOGUE_BIAS = 4 };

/* Descriptors of one call; all NULL before. */
struct descriptors {
    void *desc, *layout[3], *preference;
};

/* The largest power of two up to 256 that divides an address, as at::cuda::blas::_getAlignment has it. */
static uint32_t alignment(kfit_cu_ptr p)
{
    uint64_t bits = p | 256;
    return (uint32_t)(bits & -bits);
}

static void drop(const struct generic_cuda *b, struct descriptors *d)
{
    if (d->preference)
        b->lt.preference_destroy(d->preference);
    for (unsigned i = 0; i < 3; i++)
        if (d->layout[i])
            b->lt.layout_destroy(d->layout[i]);
    if (d->desc)
        b->lt.desc_destroy(d->desc);
}

/* Column-major: the first operand is our B, the second our A. Returns a cuBLAS status; *what says of which call. */
static int describe(const struct generic_cuda *b, const struct kfit_gemm_key *g, const uint32_t align[4], const void *bias,
                    struct descriptors *d, const char **what)
{
    const int ta = g->ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb = g->tb ? CUBLAS_OP_T : CUBLAS_OP_N, epilogue = EPILOGUE_BIAS;
    const size_t workspace = CUBLAS_WORKSPACE_BYTES;
    const struct {
        int attribute;
        const void *value;
        size_t bytes;
    } desc[] = {{DESC_TRANSA, &tb, sizeof tb},
                {DESC_TRANSB, &ta, sizeof ta},
                {DESC_EPILOGUE, &epilogue, sizeof epilogue},
                {DESC_BIAS_POINTER, &bias, sizeof bias}},
      preference[] = {{PREF_WORKSPACE_BYTES, &workspace, sizeof workspace},
                      {PREF_ALIGN_A, &align[0], sizeof *align},
                      {PREF_ALIGN_B, &align[1], sizeof *align},
                      {PREF_ALIGN_C, &align[2], sizeof *align},
                      {PREF_ALIGN_D, &align[3], sizeof *align}};
    const struct {
        unsigned type;
        int rows, cols, ld;
    } layout[3] = {{g->type_b, g->tb ? g->k : g->n, g->tb ? g->n : g->k, g->ldb},
                   {g->type_a, g->ta ? g->m : g->k, g->ta ? g->k : g->m, g->lda},
                   {g->type_c, g->n, g->m, g->ldc}};
    int r = b->lt.desc_create(&d->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    *what = "cublasLtMatmulDescCreate";
    for (unsigned i = 0; !r && i < sizeof desc / sizeof *desc; i++)
        r = b->lt.desc_set(d->desc, desc[i].attribute, desc[i].value, desc[i].bytes), *what = "cublasLtMatmulDescSetAttribute";
    for (unsigned i = 0; !r && i < 3; i++)
        r = b->lt.layout_create(&d->layout[i], cublas_data_type(layout[i].type), (uint64_t)layout[i].rows,
                                (uint64_t)layout[i].cols, layout[i].ld),
        *what = "cublasLtMatrixLayoutCreate";
    if (!r)
        r = b->lt.preference_create(&d->preference), *what = "cublasLtMatmulPreferenceCreate";
    for (unsigned i = 0; !r && i < sizeof preference / sizeof *preference; i++)
        r = b->lt.preference_set(d->preference, preference[i].attribute, preference[i].value, preference[i].bytes),
        *what = "cublasLtMatmulPreferenceSetAttribute";
    return r;
}

bool generic_cuda_bias(struct worker *w, const kfit_cu_ptr args[KFIT_CU_ARGS])
{
    enum { NOT_SUPPORTED = 15 };
    const struct kfit_gemm_key *g = &w->key.gemm;
    struct generic_cuda *b = w->generic;
    struct descriptors d = {0};
    const float alpha = g->alpha, beta = g->beta;
    const uint32_t align[4] = {alignment(args[1]), alignment(args[0]), alignment(args[2]), alignment(args[3])};
    void *const a_ = (void *)(uintptr_t)args[0], *const b_ = (void *)(uintptr_t)args[1], *const c_ = (void *)(uintptr_t)args[2];
    const char *what = NULL;
    int r = describe(b, g, align, (const void *)(uintptr_t)args[3], &d, &what);
    if (!r && (!b->chosen.key.h.len || !kfit_key_equal(&b->chosen.key, &w->key) ||
               memcmp(b->chosen.align, align, sizeof align))) {
        int found = 0;
        what = "cublasLtMatmulAlgoGetHeuristic";
        r = b->lt.heuristic(b->handle, d.desc, d.layout[0], d.layout[1], d.layout[2], d.layout[2], d.preference, 1,
                            &b->chosen.choice, &found);
        if (!r && !found)
            r = NOT_SUPPORTED;
        memset(&b->chosen.key, 0, sizeof b->chosen.key);
        if (!r) {
            b->chosen.key = w->key;
            memcpy(b->chosen.align, align, sizeof align);
        }
    }
    if (!r) {
        what = "cublasLtMatmul";
        r = b->lt.matmul(b->handle, d.desc, &alpha, b_, d.layout[0], a_, d.layout[1], &beta, c_, d.layout[2], c_, d.layout[2],
                         &b->chosen.choice.algo, (void *)(uintptr_t)b->workspace, CUBLAS_WORKSPACE_BYTES, w->stream);
    }
    drop(b, &d);
    return r ? cublas_failed(w, what, r) : true;
}
