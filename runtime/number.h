/* Strict decimal numbers, without locale and without the libc symbols that newer glibc versions rename. */
#ifndef KFIT_NUMBER_H
#define KFIT_NUMBER_H

#include <stdbool.h>
#include <stdint.h>

/* Reads digits (no sign, no leading zero unless alone) up to max; advances *p. */
static inline bool kfit_number(const char **p, uint64_t max, uint64_t *out)
{
    const char *s = *p;
    uint64_t v = 0;
    if (*s < '0' || *s > '9' || (s[0] == '0' && s[1] >= '0' && s[1] <= '9'))
        return false;
    for (; *s >= '0' && *s <= '9'; s++) {
        unsigned d = (unsigned)(*s - '0');
        if (v > (max - d) / 10)
            return false;
        v = v * 10 + d;
    }
    *p = s;
    *out = v;
    return true;
}

#endif
