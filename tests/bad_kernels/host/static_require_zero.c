/* kfit-candidate 1
{"op":"gemm", "device":"host", "require":["M / (N - N)"], "launches":[{"entry":"kfit_main"}]}
*/
/* Divides by zero in a requirement. */
void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    c[0] = a[0] * b[0];
}
