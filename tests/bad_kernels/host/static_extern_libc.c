/* kfit-candidate 1
{"op":"gemm", "device":"host", "launches":[{"entry":"kfit_main"}]}
*/
/* Wants the C library. */
void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    __builtin_printf("%p\n", (void *)c);
}
