/* kfit-candidate 1
{"op":"gemm", "device":"host", "workspace":{"bytes":"4*M*N*BYTES_C","init":"scratch"}, "launches":[{"entry":"kfit_main"}]}
*/
/* Four partial sums in a scratch workspace, added at the end. */

void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    (void)a, (void)b, (void)c, (void)ws;
    KFIT_TYPE *w = ws;
    for (int q = 0; q < 4; q++) {
        for (int i = 0; i < KFIT_M; i++) {
            for (int j = 0; j < KFIT_N; j++) {
                KFIT_TYPE s = 0;
                for (int p = q; p < KFIT_K; p += 4)
                    s += a[i * KFIT_LDA + p] * b[p * KFIT_LDB + j];
                w[(q * KFIT_M + i) * KFIT_N + j] = s;
            }
        }
    }
    for (int i = 0; i < KFIT_M; i++)
        for (int j = 0; j < KFIT_N; j++)
            c[i * KFIT_LDC + j] = (KFIT_BETA ? c[i * KFIT_LDC + j] : 0) + w[i * KFIT_N + j] + w[(KFIT_M + i) * KFIT_N + j] +
                                  w[(2 * KFIT_M + i) * KFIT_N + j] + w[(3 * KFIT_M + i) * KFIT_N + j];
}
