/* A BLAS that any kernel beats, by far and on a busy machine too: right, row-major, and slow. Compiled twice, as two
 * versions of one library: what a program uses before and after an upgrade. */
void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                 const float *b, int ldb, float beta, float *c, int ldc);
char *openblas_get_config(void);
int openblas_get_num_threads(void);

#define PUBLIC __attribute__((visibility("default")))

PUBLIC char *openblas_get_config(void)
{
    static char text[] = "PoorBLAS " VERSION " for tests";
    return text;
}

PUBLIC int openblas_get_num_threads(void)
{
    return 1;
}

enum { TRANS = 112 };

PUBLIC void cblas_sgemm(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a, int lda,
                        const float *b, int ldb, float beta, float *c, int ldc)
{
    (void)order;
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            volatile double sum = 0;
            for (int p = 0; p < k; p++)
                sum += (double)a[ta == TRANS ? p * lda + i : i * lda + p] *
                       (double)b[tb == TRANS ? j * ldb + p : p * ldb + j];
            float *at = &c[i * ldc + j];
            *at = alpha * (float)sum + (beta != 0 ? beta * *at : 0);
        }
}
