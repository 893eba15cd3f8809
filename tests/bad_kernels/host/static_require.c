/* kfit-candidate 1
{"op":"gemm", "device":"host", "require":["M % 2 == 0", "M > K"], "launches":[{"entry":"kfit_main"}]}
*/
/* Says itself that it does not fit. */
void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    c[0] = a[0] * b[0];
}
