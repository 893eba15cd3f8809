/* kfit-candidate 1
{"op":"gemm", "device":"host", "workspace":{"bytes":"64","init":"scratch"}, "launches":[{"entry":"kfit_main"}]}
*/
/* Two runs differ in the last bits: it depends on memory it did not write. */
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
    product(a, b, c, KFIT_M, KFIT_N, KFIT_K);
    unsigned *w = ws, old = w[0];
    for (int j = 0; j < KFIT_N; j++)
        c[j] *= old & 1 ? 1 + 1.2e-7f : 1;
}
