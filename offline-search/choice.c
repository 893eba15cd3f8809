/* A choice of knobs: its values, its text, what it makes of a source. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kfit/generation.h"

#include "candidate_private.h"

int64_t kfit_choice_value(const struct kfit_candidate *c, const struct kfit_choice *choice, unsigned i)
{
    return c->knobs[i].values[choice->index[i] < c->knobs[i].count ? choice->index[i] : 0];
}

size_t kfit_choice_format(const struct kfit_candidate *c, const struct kfit_choice *choice, char *buf,
                          size_t size)
{
    size_t used = 0;
    if (size)
        buf[0] = '\0';
    for (unsigned i = 0; i < c->knob_count && used < size; i++)
        used += (size_t)snprintf(buf + used, size - used, "%s%s=%lld", i ? " " : "", c->knobs[i].name,
                                 (long long)kfit_choice_value(c, choice, i));
    return used < size ? used : size ? size - 1 : 0;
}

unsigned kfit_candidate_starts(const struct kfit_candidate *c, const struct kfit_choice **starts)
{
    static const struct kfit_choice first;
    *starts = c->start_count ? c->starts : &first;
    return c->start_count ? c->start_count : 1;
}

enum kfit_status kfit_choice_parse(const struct kfit_candidate *c, const char *text,
                                   struct kfit_choice *choice, struct kfit_error *err)
{
    *choice = (struct kfit_choice){0};
    for (unsigned i = 0; i < c->knob_count; i++) {
        const struct kfit_knob *k = &c->knobs[i];
        char want[64];
        unsigned v = 0;
        size_t n = 0;
        for (; v < k->count; v++) { /* as format writes it, up to a blank or the end */
            n = (size_t)snprintf(want, sizeof want, "%s%s=%lld", i ? " " : "", k->name,
                                 (long long)k->values[v]);
            if (!strncmp(text, want, n) && (!text[n] || text[n] == ' '))
                break;
        }
        if (v == k->count)
            return kfit_fail(err, KFIT_E_FORMAT,
                             "choice: at \"%.40s\": expected %s=VALUE, a value it declares", text, k->name);
        choice->index[i] = (uint8_t)v;
        text += n;
    }
    return *text ? kfit_fail(err, KFIT_E_FORMAT, "choice: \"%.40s\" follows the last knob", text) : KFIT_OK;
}

void kfit_candidate_digest(const struct kfit_candidate *c, const struct kfit_choice *choice, uint8_t out[32])
{
    size_t used = c->bytes + 1, room = used + KFIT_KNOBS_MAX * 64;
    char *all = malloc(room);
    memset(out, 0, 32);
    if (!all)
        return;                   /* no digest is all zero */
    memcpy(all, c->source, used); /* with its NUL */
    for (unsigned i = 0; i < c->knob_count; i++)
        used += (size_t)snprintf(all + used, room - used, "%s=%lld;", c->knobs[i].name,
                                 (long long)kfit_choice_value(c, choice, i));
    kfit_sha256(all, used, out);
    free(all);
}
