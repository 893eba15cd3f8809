#include <stdarg.h>
#include <stdio.h>

#include "kfit/status.h"

const char *kfit_status_str(enum kfit_status s)
{
    static const char *const text[] = {
#define KFIT_X(name, str) str,
        KFIT_STATUS_LIST(KFIT_X)
#undef KFIT_X
    };
    return (unsigned)s < KFIT_STATUS_COUNT ? text[s] : "unknown status";
}

enum kfit_status kfit_fail(struct kfit_error *err, enum kfit_status s, const char *fmt, ...)
{
    if (err) {
        va_list ap;
        va_start(ap, fmt);
        vsnprintf(err->text, sizeof err->text, fmt, ap);
        va_end(ap);
    }
    return s;
}
