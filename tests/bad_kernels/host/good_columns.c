/* kfit-candidate 1
{"op":"gemm", "device":"host", "launches":[{"entry":"kfit_main"}]}
*/
/* Walks the output down its columns and writes each element several times. */

void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    (void)a, (void)b, (void)c, (void)ws;
    for (int j = KFIT_N - 1; j >= 0; j--) {
        for (int i = 0; i < KFIT_M; i++) {
            volatile KFIT_TYPE *out = &c[i * KFIT_LDC + j];
            KFIT_TYPE s = KFIT_BETA ? *out : 0;
            for (int p = 0; p < KFIT_K; p++) {
                s += a[i * KFIT_LDA + p] * b[p * KFIT_LDB + j];
                *out = s;
            }
        }
    }
}
