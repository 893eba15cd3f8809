/* kfit-candidate 1
{"op":"gemm", "device":"host", "launches":[{"entry":"kfit_main"}]}
*/
/* Never returns. */

void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    (void)a, (void)b, (void)c, (void)ws;
    volatile int spin = 1;
    while (spin)
        ;
}
