/* kfit-candidate 1
{"op":"gemm", "device":"host", "launches":[{"entry":"kfit_main"}]}
*/
/* Asks for fast math, for one function. */
__attribute__((optimize("Ofast"))) static float f(float x)
{
    return x;
}
void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    c[0] = a[0] * b[0];
}
