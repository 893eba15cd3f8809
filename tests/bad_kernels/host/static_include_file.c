/* kfit-candidate 1
{"op":"gemm", "device":"host", "launches":[{"entry":"kfit_main"}]}
*/
/* Reads a file of the host into the kernel. */
static const char secret[] =
#include "/etc/hostname"
;
void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    c[0] = a[0] * b[0];
}
