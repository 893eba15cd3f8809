/* kfit-candidate 1
{"op":"gemm", "device":"host", "launches":[{"entry":"kfit_main"}]}
*/
/* Functions that call each other so often that inlining them never ends. */
#define INLINE static inline __attribute__((always_inline))
INLINE KFIT_TYPE f0(KFIT_TYPE x)
{
    return x * x + 1;
}
INLINE KFIT_TYPE f1(KFIT_TYPE x)
{
    return f0(x * 1) + f0(x * 2) + f0(x * 3) + f0(x * 4) + f0(x * 5) + f0(x * 6) + f0(x * 7) + f0(x * 8) + f0(x * 9) + f0(x * 10);
}
INLINE KFIT_TYPE f2(KFIT_TYPE x)
{
    return f1(x * 1) + f1(x * 2) + f1(x * 3) + f1(x * 4) + f1(x * 5) + f1(x * 6) + f1(x * 7) + f1(x * 8) + f1(x * 9) + f1(x * 10);
}
INLINE KFIT_TYPE f3(KFIT_TYPE x)
{
    return f2(x * 1) + f2(x * 2) + f2(x * 3) + f2(x * 4) + f2(x * 5) + f2(x * 6) + f2(x * 7) + f2(x * 8) + f2(x * 9) + f2(x * 10);
}
INLINE KFIT_TYPE f4(KFIT_TYPE x)
{
    return f3(x * 1) + f3(x * 2) + f3(x * 3) + f3(x * 4) + f3(x * 5) + f3(x * 6) + f3(x * 7) + f3(x * 8) + f3(x * 9) + f3(x * 10);
}
INLINE KFIT_TYPE f5(KFIT_TYPE x)
{
    return f4(x * 1) + f4(x * 2) + f4(x * 3) + f4(x * 4) + f4(x * 5) + f4(x * 6) + f4(x * 7) + f4(x * 8) + f4(x * 9) + f4(x * 10);
}
INLINE KFIT_TYPE f6(KFIT_TYPE x)
{
    return f5(x * 1) + f5(x * 2) + f5(x * 3) + f5(x * 4) + f5(x * 5) + f5(x * 6) + f5(x * 7) + f5(x * 8) + f5(x * 9) + f5(x * 10);
}
INLINE KFIT_TYPE f7(KFIT_TYPE x)
{
    return f6(x * 1) + f6(x * 2) + f6(x * 3) + f6(x * 4) + f6(x * 5) + f6(x * 6) + f6(x * 7) + f6(x * 8) + f6(x * 9) + f6(x * 10);
}
INLINE KFIT_TYPE f8(KFIT_TYPE x)
{
    return f7(x * 1) + f7(x * 2) + f7(x * 3) + f7(x * 4) + f7(x * 5) + f7(x * 6) + f7(x * 7) + f7(x * 8) + f7(x * 9) + f7(x * 10);
}
void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    c[0] = f8(a[0]);
}
