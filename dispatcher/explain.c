/* Why a key runs what it runs, for people. Everything is done on the canonical text, so that it holds for any
 * op: fields are what stands between '/' and ','. */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

enum { FIELDS = 40, NEAR_FIELDS = 2, NEAR_SHOWN = 3 };

struct fields {
    char text[KFIT_KEY_TEXT_MAX];
    const char *at[FIELDS];
    unsigned count;
};

static void split(const union kfit_key *key, struct fields *f)
{
    f->count = 0;
    kfit_key_format(key, f->text, sizeof f->text);
    for (char *p = f->text; f->count < FIELDS; p++) {
        f->at[f->count++] = p;
        p += strcspn(p, "/,");
        if (!*p)
            return;
        *p = '\0';
    }
}

/* "n=768" -> "768"; "nt" -> "nt" */
static const char *value(const char *field)
{
    const char *eq = strchr(field, '=');
    return eq ? eq + 1 : field;
}

static double number(const char *text)
{
    double v = 0;
    for (; *text >= '0' && *text <= '9'; text++)
        v = v * 10 + (*text - '0');
    return v;
}

struct miss {
    const struct kfit_table_entry *entry;
    unsigned fields[NEAR_FIELDS], count;
    double distance; /* whole number of fields, plus less than one for how far their values are apart */
};

/* Which fields differ. A stride that only follows a dimension (ldb=2688 where n=2688) is
 * the same difference. */
static bool compare(const struct fields *ours, const struct fields *theirs, struct miss *miss)
{
    double apart = 0;
    if (ours->count != theirs->count)
        return false;
    miss->count = 0;
    for (unsigned i = 0; i < ours->count; i++) {
        const char *a = value(ours->at[i]), *b = value(theirs->at[i]);
        if (!strcmp(a, b))
            continue;
        bool follows = false;
        for (unsigned j = 0; j < miss->count; j++)
            follows |= !strcmp(a, value(ours->at[miss->fields[j]])) &&
                       !strcmp(b, value(theirs->at[miss->fields[j]]));
        if (follows)
            continue;
        if (miss->count == NEAR_FIELDS)
            return false;
        double x = number(a), y = number(b);
        apart += x + y > 0 ? (x > y ? x - y : y - x) / (x + y) : 1;
        miss->fields[miss->count++] = i;
    }
    miss->distance = miss->count + apart / (NEAR_FIELDS + 1);
    return miss->count > 0;
}

static unsigned nearest(const struct kfit_table *t, const struct fields *ours, struct miss out[NEAR_SHOWN])
{
    unsigned n = 0;
    for (size_t i = 0; i < kfit_table_count(t); i++) {
        union kfit_key key;
        struct fields theirs;
        struct miss miss = {.entry = kfit_table_at(t, i)};
        if (miss.entry->reason != KFIT_REASON_NONE)
            continue;
        kfit_table_key(miss.entry, &key);
        split(&key, &theirs);
        if (!compare(ours, &theirs, &miss))
            continue;
        unsigned at = n < NEAR_SHOWN ? n++ : NEAR_SHOWN;
        for (; at && miss.distance < out[at - 1].distance; at--)
            if (at < NEAR_SHOWN)
                out[at] = out[at - 1];
        if (at < NEAR_SHOWN)
            out[at] = miss;
    }
    return n;
}

/* Appends to buf, as much as fits. */
struct text {
    char *buf;
    size_t size, used;
};

__attribute__((format(printf, 2, 3))) static void say(struct text *t, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    int n = vsnprintf(t->buf + t->used, t->size - t->used, fmt, ap);
    va_end(ap);
    if (n > 0)
        t->used += (size_t)n < t->size - t->used ? (size_t)n : t->size - t->used - 1;
}

/* What a record's reason does not say on its own. */
static const char *detail(const struct kfit_table_entry *e)
{
    return e->reason == KFIT_REASON_ENV ? "; tuned with another compiler or BLAS, which counts (KFIT_STRICT)"
                                        : "";
}

size_t kfit_explain(const struct kfit_table *table, enum kfit_reason state, const char *state_text,
                    const union kfit_key *key, char *buf, size_t size)
{
    struct text t = {buf, size, 0};
    struct fields ours;
    char name[KFIT_KEY_TEXT_MAX];
    if (!size)
        return 0;
    buf[0] = '\0';
    if (!kfit_key_format(key, name, sizeof name)) {
        say(&t, "not a valid key\n");
        return t.used;
    }
    const struct kfit_table_entry *e = kfit_table_find(table, key, kfit_key_hash(key));
    unsigned reason = state                  ? state
                      : kfit_key_scaled(key) ? KFIT_REASON_FLAGS
                      : e                    ? e->reason
                                             : KFIT_REASON_NO_RECORD;
    say(&t, "%s\n", name);
    if (reason == KFIT_REASON_NONE)
        say(&t, "runs a kfit kernel, %.2fx as fast as the original when tuned%s\n", (double)e->ratio,
            e->stale ? "; stale: tuned with another compiler or BLAS" : "");
    else
        say(&t, "runs the original: %s%s\n", kfit_reason_text(reason), state || !e ? "" : detail(e));
    if (!state && e && e->reason == KFIT_REASON_POLICY)
        say(&t, "origin: %s, which is not among the allowed ones (KFIT_ALLOW)\n",
            kfit_table_origin(table, e));
    say(&t, "state: %s\n", state_text);
    if (reason != KFIT_REASON_NO_RECORD)
        return t.used;
    struct miss near[NEAR_SHOWN];
    split(key, &ours);
    unsigned n = nearest(table, &ours, near);
    for (unsigned i = 0; i < n; i++) {
        struct fields theirs;
        union kfit_key other_key;
        kfit_table_key(near[i].entry, &other_key);
        split(&other_key, &theirs);
        say(&t, "differs from a tuned key only in");
        for (unsigned j = 0; j < near[i].count; j++) {
            const char *a = ours.at[near[i].fields[j]], *b = theirs.at[near[i].fields[j]];
            int name_len = (int)(value(a) - a);
            say(&t, "%s%.*s%s%s, tuned %s", j ? "; " : " ", name_len ? name_len - 1 : 0, a,
                name_len ? ": " : "", value(a), value(b));
        }
        say(&t, "\n");
    }
    return t.used;
}
