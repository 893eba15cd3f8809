/* A program without any BLAS that asks for one weakly. Under the shim the names exist; then the products are
 * right. */
#include <stdio.h>

void cblas_sgemm(int, int, int, int, int, int, float, const float *, int, const float *, int, float, float *,
                 int) __attribute__((weak));
void dgemv_(const char *, const int *, const int *, const double *, const double *, const int *,
            const double *, const int *, const double *, double *, const int *) __attribute__((weak));

int main(void)
{
    const float a[] = {1, 2, 3, 4, 5, 6}, b[] = {1, 0, 2, 1, 0, 3}; /* 2x3, 3x2 */
    float c[] = {1, 1, 1, 1};
    const double m[] = {1, 2, 3, 4, 5, 6}, x[] = {1, 10, 100}, two = 2, one = 1; /* 2x3, column-major */
    double y[] = {1, -1, 1};
    const int rows = 2, cols = 3, back = -1, stride = -2;
    if (!cblas_sgemm || !dgemv_)
        return puts("none"), 0;
    cblas_sgemm(101, 111, 111, 2, 2, 3, 2, a, 3, b, 2, 1, c, 2);
    printf("%g %g %g %g\n", c[0], c[1], c[2], c[3]);
    dgemv_("N", &rows, &cols, &two, m, &rows, x, &back, &one, y, &stride);
    printf("%g %g %g\n", y[0], y[1], y[2]);
    return 0;
}
