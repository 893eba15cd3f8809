/* kfit-candidate 1
{"op":"gemm", "device":"host", "launches":[{"entry":"kfit_main"}]}
*/
/* Data aligned beyond what an image can promise. */
static const KFIT_TYPE table[1024] __attribute__((aligned(4096))) = {1, 2};
void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    c[0] = table[(int)a[0] & 1023];
}
