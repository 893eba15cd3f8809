/* clock.h - the one clock that durations are measured by. */
#ifndef KFIT_CLOCK_H
#define KFIT_CLOCK_H

#include <time.h>

static inline double kfit_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e9 + (double)t.tv_nsec;
}

#endif
