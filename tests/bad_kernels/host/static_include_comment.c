/* kfit-candidate 1
{"op":"gemm", "device":"host", "launches":[{"entry":"kfit_main"}]}
*/
/* A comment that begins inside a raw string hides the directive from a careless reader. */
static const char s[] = R"x( /* )x";
#include "/etc/hostname"
static const char t[] = R"x( */ )x";
void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    c[0] = a[0] * b[0];
}
