/* kfit-candidate 1
{"op":"gemm", "device":"host", "launches":[{"entry":"kfit_main"}]}
*/
/* Any gemm, the plainest way. */

void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    (void)ws;
    for (int i = 0; i < KFIT_M; i++) {
        for (int j = 0; j < KFIT_N; j++) {
            KFIT_TYPE s = KFIT_BETA ? c[i * KFIT_LDC + j] : 0;
            for (int p = 0; p < KFIT_K; p++)
                s += a[KFIT_TA ? p * KFIT_LDA + i : i * KFIT_LDA + p] * b[KFIT_TB ? j * KFIT_LDB + p : p * KFIT_LDB + j];
            c[i * KFIT_LDC + j] = s;
        }
    }
}
