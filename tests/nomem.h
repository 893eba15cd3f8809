/* A malloc that fails once: the countdown-th allocation from now, LMDB's and libc's included. Defines the
 * functions, so that one file of a program includes it. */
#ifndef NOMEM_H
#define NOMEM_H

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>

void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);

static long countdown; /* 0: never */

static bool fails(void)
{
    if (!countdown || --countdown)
        return false;
    errno = ENOMEM;
    return true;
}

#define EXPORT __attribute__((visibility("default")))
EXPORT void *malloc(size_t n)
{
    return fails() ? NULL : __libc_malloc(n);
}
EXPORT void *calloc(size_t n, size_t size)
{
    return fails() ? NULL : __libc_calloc(n, size);
}
EXPORT void *realloc(void *p, size_t n)
{
    return fails() ? NULL : __libc_realloc(p, n);
}

#endif
