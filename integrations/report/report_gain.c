/* What it brings, as a figure with an interval and as a sentence. The formulas are in README.md. */
#include <string.h>

#include "page.h"

/* A shorter program is mostly start and end. */
#define WALL_MIN_S 10

/* Three sums of the same thing: with every shape's ratio as it is, at its lower, at its upper end. */
struct sums {
    double at, lo, hi;
};

/* What one call of a promoted key saves, as a share of its time with the generic. A winner may have been timed
 * again with another ratio than its two medians give: the interval then holds both. */
static struct sums saved_by(const struct kfit_report_key *k)
{
    double at = k->before_ns > 0 ? 1 - k->after_ns / k->before_ns : 0;
    double lo = k->lo > 0 ? 1 - 1 / k->lo : at, hi = k->hi > 0 ? 1 - 1 / k->hi : at;
    return (struct sums){at, lo < at ? lo : at, hi > at ? hi : at};
}

static void add(struct sums *to, double weight, struct sums s)
{
    to->at += weight * s.at;
    to->lo += weight * s.lo;
    to->hi += weight * s.hi;
}

static struct kfit_report_gain measured(const struct kfit_report_ab *ab)
{
    return (struct kfit_report_gain){.known = true,
                                     .measured = true,
                                     .realised = true,
                                     .gain = 1 - 1 / ab->ratio,
                                     .lo = 1 - 1 / ab->lo,
                                     .hi = 1 - 1 / ab->hi};
}

void kfit_report_weigh(struct kfit_report *r)
{
    struct sums all = {0}, ran = {0};     /* of the recorded time in known ops */
    struct sums all_s = {0}, ran_s = {0}; /* seconds */
    double busy_s = 0;                    /* in known ops, with what ran */
    struct kfit_report_gain *g = &r->program;
    for (size_t i = 0; i < r->count; i++) {
        const struct kfit_report_key *k = &r->keys[i];
        double hits = (double)k->count[KFIT_REASON_NONE], calls = (double)k->calls;
        struct sums s = {0};
        if (k->judged && k->verdict == KFIT_VERDICT_PROMOTED)
            s = saved_by(k);
        add(&all, k->share, s);
        add(&all_s, calls * k->before_ns / 1e9, s);
        if (calls > 0)
            add(&ran, k->share * hits / calls, s);
        add(&ran_s, hits * k->before_ns / 1e9, s);
        busy_s += (calls - hits * s.at) * k->before_ns / 1e9;
    }
    r->gain = all.at;
    r->gain_lo = all.lo;
    r->gain_hi = all.hi;
    if (r->ab.pairs) {
        *g = measured(&r->ab);
        return;
    }
    *g = (struct kfit_report_gain){.known = r->gain > 0, .realised = ran.at > 0};
    /* More time in ops than the processes had: several threads called at once, and their sum says nothing. */
    g->at_most = !(r->wall_s >= WALL_MIN_S && r->any_measured && busy_s <= r->wall_s);
    struct sums in_ops = g->realised ? ran : all, s = g->realised ? ran_s : all_s;
    if (g->at_most) {
        g->gain = in_ops.at;
        g->lo = in_ops.lo;
        g->hi = in_ops.hi;
        return;
    }
    g->gain = s.at / (r->wall_s + ran_s.at);
    g->lo = s.lo / (r->wall_s + ran_s.lo);
    g->hi = s.hi / (r->wall_s + ran_s.hi);
}

/* ---- sentences ---- */

/* 4.2, 45: more digits would be noise. */
static const char *percent(double v, char buf[24])
{
    v *= 100;
    snprintf(buf, 24, v > -9.95 && v < 9.95 ? "%.1f" : "%.0f", v);
    return buf;
}

static const char *interval(double a, double b, char buf[64])
{
    char lo[24], hi[24];
    snprintf(buf, 64, "[%s, %s]", percent(a, lo), percent(b, hi));
    return buf;
}

const char *kfit_report_headline(const struct kfit_report *r, char *buf, size_t size)
{
    const struct kfit_report_gain *g = &r->program;
    char gain[24], range[64], what[192];
    interval(g->lo, g->hi, range);
    if (g->measured && g->lo <= 0 && g->hi >= 0)
        snprintf(what, sizeof what, "no gain: %s %% %s, measured", percent(g->gain, gain), range);
    else if (g->measured && g->hi < 0)
        snprintf(what, sizeof what, "the program loses %s %% %s, measured", percent(-g->gain, gain),
                 interval(-g->hi, -g->lo, range));
    else if (g->measured)
        snprintf(what, sizeof what, "the program gains %s %% %s, measured", percent(g->gain, gain), range);
    else if (g->known && g->gain > 0)
        snprintf(what, sizeof what, "the program %s %s%s %% %s, estimated",
                 g->realised ? "gains" : "would gain", g->at_most ? "at most " : "", percent(g->gain, gain),
                 range);
    else
        snprintf(what, sizeof what, "no gain");
    if (r->calls)
        snprintf(buf, size,
                 "%.0f %% of the recorded time in known ops is in calls kfit can replace; %.0f %% was "
                 "replaced; %s",
                 100 * r->share_replaceable, 100 * r->share_replaced, what);
    else if (g->measured)
        snprintf(buf, size, "%s; no call was recorded", what);
    else if (r->count)
        snprintf(buf, size, "no call of these keys was recorded: results of %zu keys, without shares",
                 r->count);
    else
        snprintf(buf, size, "no call in known ops was recorded");
    return buf;
}

const char *kfit_report_basis(const struct kfit_report *r, char *buf, size_t size)
{
    const struct kfit_report_gain *g = &r->program;
    const struct kfit_report_ab *ab = &r->ab;
    char gain[24], range[64], predicted[64] = "", other[96] = "";
    buf[0] = '\0';
    if (g->measured) {
        if (ab->predicted > 0)
            snprintf(predicted, sizeof predicted, "; the shapes alone predicted %.3f", ab->predicted);
        if (ab->generation && r->generation && ab->generation != r->generation)
            snprintf(other, sizeof other, " It ran generation %llu, this report is about generation %llu.",
                     (unsigned long long)ab->generation, (unsigned long long)r->generation);
        snprintf(buf, size, "Measured by kfit ab in %u pairs of %s: %s %.3f [%.3f, %.3f] times as %s%s.%s",
                 ab->pairs, ab->mode,
                 ab->metric[0] ? "with dispatch the program's own metric is"
                               : "without dispatch the program takes",
                 ab->ratio, ab->lo, ab->hi, ab->metric[0] ? "good" : "long", predicted, other);
    } else if (g->known && g->at_most) {
        snprintf(buf, size,
                 "Estimated from calls and judged times, of the recorded time in known ops. What else the "
                 "program does is not known, so this is the most it can be; `kfit ab` measures it.");
    } else if (g->known) {
        snprintf(
            buf, size,
            "Estimated from calls and judged times, of the %.0f s from the first call to the end of each "
            "process; `kfit ab` measures it.",
            r->wall_s);
    }
    if (r->calls && r->gain > 0 && r->share_replaced < 0.99 * r->share_replaceable && g->realised) {
        size_t n = strlen(buf);
        snprintf(buf + n, size - n,
                 "%sIf every replaceable call were replaced, known ops would take %s %% %s less time.",
                 n ? " " : "", percent(r->gain, gain), interval(r->gain_lo, r->gain_hi, range));
    }
    return buf;
}
