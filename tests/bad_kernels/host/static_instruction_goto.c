/* kfit-candidate 1
{"op":"gemm", "device":"host", "launches":[{"entry":"kfit_main"}]}
*/
/* Jumps to where data says. */
void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    static const int way[] = {&&one - &&one, &&two - &&one};
    goto *(&&one + way[(int)a[0] & 1]);
one:
    c[0] = b[0];
    return;
two:
    c[0] = -b[0];
}
