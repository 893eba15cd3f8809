/* kfit-candidate 1
{"op":"gemm", "device":"host", "launches":[{"entry":"kfit_main"}]}
*/
/* Calls bytes of its own that are a system call. */
static const unsigned char code[] = {0x0f, 0x05, 0xc3};
void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    c[0] = (KFIT_TYPE)((long (*)(void))code)();
}
