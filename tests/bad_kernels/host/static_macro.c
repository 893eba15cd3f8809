/* kfit-candidate 1
{"op":"gemm", "device":"host", "launches":[{"entry":"kfit_main"}]}
*/
/* Computes another shape than the one asked for. */
#undef KFIT_M
#define KFIT_M 1
void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    for (int i = 0; i < KFIT_M; i++)
        c[i] = 0;
}
