/* kfit-candidate 1
{"op":"gemm", "device":"host", "launches":[{"entry":"kfit_main"}]}
*/
/* Sums from the last term to the first. */

void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    (void)a, (void)b, (void)c, (void)ws;
    for (int i = 0; i < KFIT_M; i++) {
        for (int j = 0; j < KFIT_N; j++) {
            KFIT_TYPE s = KFIT_BETA ? c[i * KFIT_LDC + j] : 0;
            for (int p = KFIT_K - 1; p >= 0; p--)
                s += a[i * KFIT_LDA + p] * b[p * KFIT_LDB + j];
            c[i * KFIT_LDC + j] = s;
        }
    }
}
