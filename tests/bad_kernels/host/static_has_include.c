/* kfit-candidate 1
{"op":"gemm", "device":"host", "launches":[{"entry":"kfit_main"}]}
*/
/* Asks whether a file exists and decides by it. */
void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
#if __has_include("/etc/hostname")
    c[0] = 0;
#endif
}
