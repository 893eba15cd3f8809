/* The middle of what was measured. */
#ifndef KFIT_BENCH_MEDIAN_H
#define KFIT_BENCH_MEDIAN_H

#include <stdlib.h>

/* For qsort: doubles, the least first. */
static inline int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Sorts v; of an even number, the upper of two. n > 0. */
static inline double median(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
    return v[n / 2];
}

#endif
