/* kfit-candidate 1
{"op":"gemm", "device":"host", "launches":[{"entry":"kfit_main"}]}
*/
/* Right for a neighbouring shape: the last term is missing. */
static void product(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, int m, int n, int k)
{
    for (int i = 0; i < m; i++) {
        for (int j = 0; j < n; j++) {
            KFIT_TYPE s = KFIT_BETA ? c[i * KFIT_LDC + j] : 0;
            for (int p = 0; p < k; p++)
                s += a[i * KFIT_LDA + p] * b[p * KFIT_LDB + j];
            c[i * KFIT_LDC + j] = s;
        }
    }
}

void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    (void)a, (void)b, (void)c, (void)ws;
    product(a, b, c, KFIT_M, KFIT_N, KFIT_K - 1);
}
