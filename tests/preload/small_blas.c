/* A BLAS of one function, row-major without transposes, which counts its calls: another library of the same
 * names. */
extern int small_blas_calls;
__attribute__((visibility("default"))) int small_blas_calls;

void cblas_sgemm(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *,
                 int);

__attribute__((visibility("default"))) void cblas_sgemm(int order, int ta, int tb, int m, int n, int k,
                                                        float alpha, const float *a, int lda, const float *b,
                                                        int ldb, float beta, float *c, int ldc)
{
    (void)order, (void)ta, (void)tb;
    small_blas_calls++;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int p = 0; p < k; p++)
                sum += a[i * lda + p] * b[p * ldb + j];
            c[i * ldc + j] = alpha * sum + (beta != 0 ? beta * c[i * ldc + j] : 0);
        }
}
