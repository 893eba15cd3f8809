/* The report for people: one sentence, the table, then what stays with the original and why. */
#include <string.h>

#include "report.h"

const char *kfit_report_ns(double v, char buf[24])
{
    if (!(v > 0))
        return strcpy(buf, "-");
    if (v < 1e3)
        snprintf(buf, 24, "%.0f ns", v);
    else if (v < 1e6)
        snprintf(buf, 24, v < 1e4 ? "%.2f us" : "%.1f us", v / 1e3);
    else if (v < 1e9)
        snprintf(buf, 24, v < 1e8 ? "%.2f ms" : "%.1f ms", v / 1e6);
    else
        snprintf(buf, 24, "%.2f s", v / 1e9);
    return buf;
}

static void ratio(const struct kfit_report_key *k, char buf[40])
{
    if (k->ratio > 0)
        snprintf(buf, 40, "%.2f [%.2f, %.2f]", k->ratio, k->lo, k->hi);
    else
        snprintf(buf, 40, "-");
}

static void table(const struct kfit_report *r, FILE *to)
{
    bool estimates = false;
    fprintf(to, "%6s %10s %9s %9s %9s %8s  %-19s %-9s %s\n", "SHARE", "CALLS", "BEFORE", "AFTER", "FLOOR",
            "OF FLOOR", "RATIO [95 %]", "VERDICT", "KEY");
    for (size_t i = 0; i < r->count; i++) {
        const struct kfit_report_key *k = &r->keys[i];
        char share[16] = "-", before[24], after[24], floor[24], quot[40], key[KFIT_KEY_TEXT_MAX];
        kfit_key_format(&k->key, key, sizeof key);
        ratio(k, quot);
        estimates |= !k->measured;
        if (k->calls)
            snprintf(share, sizeof share, "%.1f%%", 100 * k->share);
        fprintf(to, "%6s %10llu %9s %9s%s%9s ", share, (unsigned long long)k->calls,
                kfit_report_ns(k->before_ns, before), kfit_report_ns(k->after_ns, after),
                k->measured || !(k->before_ns > 0) ? " " : "~", kfit_report_ns(k->floor_ns, floor));
        if (k->floor_ns > 0)
            fprintf(to, "%8.2f", k->after_ns / k->floor_ns);
        else
            fprintf(to, "%8s", "-");
        fprintf(to, "  %-19s %-9s %s\n", quot, k->judged ? kfit_verdict_str(k->verdict) : "untuned", key);
    }
    if (estimates && r->any_measured)
        fprintf(
            to,
            "~ and shares of untuned keys: estimated from FLOPs and bytes, scaled by the measured keys\n");
    else if (estimates)
        fprintf(to, "shares are estimated from FLOPs and bytes: no key was measured yet\n");
}

/* The table, then what stays with the original and why. */
static void tables(const struct kfit_report *r, FILE *to)
{
    table(r, to);

    bool title = false;
    for (size_t i = 0; i < r->count; i++) {
        const struct kfit_report_key *k = &r->keys[i];
        if (!kfit_report_reason_begins(r, i))
            continue;
        if (!title)
            fprintf(to, "\nThe original is kept for\n");
        title = true;
        fprintf(to, "  %-14s %s\n", k->code[0] ? k->code : "-", kfit_report_code_words(k->code));
        for (size_t j = i; j < r->count; j++) {
            char key[KFIT_KEY_TEXT_MAX];
            if (kfit_report_kept_for(&r->keys[j], k->code) &&
                kfit_key_format(&r->keys[j].key, key, sizeof key))
                fprintf(to, "      %s\n", key);
        }
    }

    title = false;
    for (unsigned i = 1; i < KFIT_REASON_COUNT; i++) {
        if (!r->miss[i])
            continue;
        if (!title)
            fprintf(to, "\nCalls that went to the original\n");
        title = true;
        fprintf(to, "  %10llu  %-12s %s\n", (unsigned long long)r->miss[i], kfit_reason_name(i),
                kfit_reason_text(i));
    }

    title = false;
    for (size_t i = 0; i < r->count; i++) {
        char key[KFIT_KEY_TEXT_MAX];
        if (!r->keys[i].near_miss[0])
            continue;
        if (!title)
            fprintf(to, "\nNear misses\n");
        title = true;
        kfit_key_format(&r->keys[i].key, key, sizeof key);
        fprintf(to, "  %s\n      %s\n", key, r->keys[i].near_miss);
    }
}

void kfit_report_text(const struct kfit_report *r, FILE *to)
{
    char line[512];
    fprintf(to, "%s\n", kfit_report_headline(r, line, sizeof line));
    if (kfit_report_basis(r, line, sizeof line)[0])
        fprintf(to, "%s\n", line);
    if (!r->count)
        return;
    if (r->calls) {
        if (r->generation)
            fprintf(to, "generation %llu; ", (unsigned long long)r->generation);
        fprintf(to, "%zu keys: %zu promoted, %zu kept, %zu untuned; %llu calls, %.0f %% of %s in known ops\n",
                r->count, r->promoted, r->kept, r->untuned, (unsigned long long)(r->calls + r->unkeyed),
                100 * r->share_known_ops, kfit_report_counted(r));
    }
    const struct kfit_report_changes *c = &r->changes;
    if (c->previous)
        fprintf(to, "against generation %llu: %zu added, %zu removed, %zu changed, %zu as before\n",
                (unsigned long long)c->previous, c->added, c->removed, c->changed, c->same);
    fprintf(to, "\n");
    tables(r, to);
}
