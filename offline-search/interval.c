#include <stdlib.h>
#include <string.h>

#include "kfit/interval.h"

#define RESAMPLES 1000u

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The value that would be at index `at` in sorted order (Hoare's selection). */
static double nth(double *v, size_t n, size_t at)
{
    size_t lo = 0, hi = n - 1;
    while (lo < hi) {
        double pivot = v[(lo + hi) / 2];
        size_t i = lo, j = hi;
        while (i <= j) {
            while (v[i] < pivot)
                i++;
            while (v[j] > pivot)
                j--;
            if (i <= j) {
                double t = v[i];
                v[i++] = v[j];
                v[j] = t;
                if (!j--)
                    break;
            }
        }
        if (at <= j && j != SIZE_MAX)
            hi = j;
        else if (at >= i)
            lo = i;
        else
            break;
    }
    return v[at];
}

double kfit_median(double *v, size_t n)
{
    double upper = nth(v, n, n / 2);
    if (n % 2)
        return upper;
    double lower = v[0]; /* everything below n/2 is now to its left */
    for (size_t i = 1; i < n / 2; i++)
        lower = v[i] > lower ? v[i] : lower;
    return (lower + upper) / 2;
}

struct kfit_interval kfit_median_interval(const double *values, size_t n, uint64_t seed)
{
    double sample[KFIT_INTERVAL_MAX], medians[RESAMPLES];
    memcpy(sample, values, n * sizeof *values);
    struct kfit_interval r = {.mid = kfit_median(sample, n)};
    for (unsigned k = 0; k < RESAMPLES; k++) {
        for (size_t i = 0; i < n; i++)
            sample[i] = values[(kfit_random(&seed) >> 32) * n >> 32];
        medians[k] = kfit_median(sample, n);
    }
    qsort(medians, RESAMPLES, sizeof *medians, by_value);
    r.lo = medians[RESAMPLES * 25 / 1000];
    r.hi = medians[RESAMPLES * 975 / 1000 - 1];
    return r;
}
