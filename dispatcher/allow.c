/* KFIT_ALLOW: whose kernels may run, by the origin that each record carries. */
#include <string.h>

#include "internal.h"
#include "kfit/record.h"

static const char separators[] = ", \t\r\n";

enum kfit_status kfit_allow_check(const char *list, struct kfit_error *err)
{
    unsigned patterns = 0;
    for (const char *p = list; p && *(p += strspn(p, separators)); p += strcspn(p, separators), patterns++) {
        size_t n = strcspn(p, separators);
        const char *why = n >= KFIT_ORIGIN_MAX ? "longer than any origin" : NULL;
        for (size_t i = 0; i < n && !why; i++)
            if (p[i] < '!' || p[i] > '~')
                why = "not printable";
            else if (p[i] == '*' && i + 1 < n)
                why = "a * can only be its last character";
        if (why) /* what is quoted reaches terminals: up to the character that is none */
            return kfit_fail(err, KFIT_E_FORMAT, "allowed origins: pattern %u is %s", patterns + 1, why);
    }
    if (list && !patterns)
        return kfit_fail(err, KFIT_E_FORMAT,
                         "allowed origins: the list names none; \"*\" allows all, as no list does");
    return KFIT_OK;
}

bool kfit_allowed(const char *list, const char *origin)
{
    if (!list)
        return true;
    for (const char *p = list; *(p += strspn(p, separators)); p += strcspn(p, separators)) {
        size_t n = strcspn(p, separators);
        bool prefix = p[n - 1] == '*';
        if (prefix ? !strncmp(p, origin, n - 1) : strlen(origin) == n && !memcmp(p, origin, n))
            return true;
    }
    return false;
}
