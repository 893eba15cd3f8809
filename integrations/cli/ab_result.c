/* What the pairs say: ratio and interval, beside what the receipts predicted; as text and JSON. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "ab.h"
#include "outcome.h"
#include "processes.h"

enum { AB_VERSION = 1 };

struct finding {
    struct kfit_interval ratio, wall; /* of the metric, else of time; of time */
    double off, on;                   /* medians: seconds, a run or (phases) a call */
    struct {
        struct kfit_interval ratio;
        double number[2]; /* medians */
    } metric[AB_METRICS_MAX];
    double spread; /* middle half of the values without dispatch, over their median */
    /* from the traces and receipts */
    double predicted; /* ratio; 0: none */
    double saved_s;   /* of a run or a call */
    const char *why_not;
    double calls, hits, keys_hit, keys;
};

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(const double *values, unsigned n)
{
    double copy[AB_PAIRS_MAX];
    memcpy(copy, values, n * sizeof *values);
    return kfit_median(copy, n);
}

static double spread_of(const double *values, unsigned n)
{
    double copy[AB_PAIRS_MAX];
    memcpy(copy, values, n * sizeof *values);
    qsort(copy, n, sizeof *copy, by_value);
    return (copy[(3 * n - 1) / 4] - copy[n / 4]) / kfit_median(copy, n);
}

/* The rank whose value, counted from either end, lies beyond the true median in at most 2.5 of 100 cases: each value is
 * above it with probability 1/2. 0: even the outermost do not. */
static unsigned outer_rank(unsigned n)
{
    double p = pow(0.5, n), tail = 0;
    unsigned k = 0;
    while (k < n && (tail += p) <= 0.025)
        p *= (double)(n - k) / (k + 1), k++;
    return k;
}

/* Ratios above 1 are to dispatch's credit. The bootstrap's interval is too narrow where pairs are few: the order
 * statistics', which holds for any distribution, widens it. With fewer than six pairs it is the whole range. */
static struct kfit_interval interval(const double *better_high, const double *better_low, unsigned n,
                                     uint64_t seed)
{
    double ratio[AB_PAIRS_MAX] = {0};
    for (unsigned i = 0; i < n; i++)
        ratio[i] = better_high[i] / better_low[i];
    struct kfit_interval r = kfit_median_interval(ratio, n, seed);
    qsort(ratio, n, sizeof *ratio, by_value);
    unsigned k = outer_rank(n);
    r.lo = fmin(r.lo, ratio[k ? k - 1 : 0]);
    r.hi = fmax(r.hi, ratio[k ? n - k : n - 1]);
    return r;
}

/* Amdahl with what is known: the receipts say what each call that was replaced saved; the program's time without
 * dispatch is measured. Saved times add up only where calls come one after the other. */
static void predict(const struct ab *ab, struct cli_traces *ts, struct finding *f)
{
    struct cli_outcome o;
    struct kfit_report r;
    struct cli_traces ran = {0}; /* borrowed */
    if (ab->aa)
        return;
    if (!cli_traces_merge(ts) || !cli_outcome_open(&o, ab->cache, ab->generation, CLI_WANT_GENERATION)) {
        f->why_not = "the generation cannot be read any more";
        return;
    }
    ran.item = cli_alloc(NULL, ts->count * sizeof *ran.item);
    for (size_t i = 0; i < ts->count; i++) {
        uint64_t count[KFIT_TRACE_REASONS];
        cli_trace_totals(ts->item[i].t, count);
        if (count[KFIT_REASON_NONE])
            ran.item[ran.count++] = ts->item[i];
    }
    const size_t processes = cli_process_count(&ran);
    free(ran.item);
    if (cli_outcome_report(&o, ts, NULL, &r)) {
        for (size_t i = 0; i < r.count; i++) {
            const struct kfit_report_key *k = &r.keys[i];
            double hits = (double)k->count[KFIT_REASON_NONE];
            f->keys++;
            f->keys_hit += hits > 0;
            f->hits += hits;
            f->calls += (double)k->calls - (ab->phase_s > 0 ? (double)k->count[KFIT_REASON_OFF] : 0);
            if (k->published && k->verdict == KFIT_VERDICT_PROMOTED)
                f->saved_s += hits * (k->before_ns - k->after_ns) * 1e-9;
        }
        f->calls += (double)r.unkeyed;
        kfit_report_finish(&r);
    }
    cli_outcome_close(&o);
    if (ab->phase_s > 0 && f->calls > 0)
        f->saved_s /= f->calls;
    if (!f->hits)
        f->why_not = "no call was replaced";
    else if (processes > 1)
        f->why_not = "several processes ran kernels, and what each saved may overlap";
    else if (!(f->off > 0))
        f->why_not = "the program made no call in a phase";
    else if (f->saved_s >= f->off)
        f->why_not = "by the receipts more would be saved than the program takes: its calls overlap, or the "
                     "receipts do not hold here";
    else
        f->predicted = f->off / (f->off - f->saved_s);
}

static const char *verdict(const struct ab *ab, const struct finding *f, const struct kfit_interval *r)
{
    return ab->pairs < AB_PAIRS_95 ? "too few pairs"
           : r->hi < 1             ? "slower"
           : r->lo > 1 && f->hits  ? "gain" /* what was not replaced was not sped up by us */
                                   : "no gain";
}

static const char *const same_names[] = {"same", "varies", "differs"};

static cJSON *number_or_null(cJSON *o, const char *name, double value)
{
    return value > 0 ? cJSON_AddNumberToObject(o, name, value) : cJSON_AddNullToObject(o, name);
}

static void ratio_json(cJSON *o, const struct ab *ab, const struct finding *f, const struct kfit_interval *r)
{
    cJSON_AddStringToObject(o, "verdict", verdict(ab, f, r));
    cJSON_AddNumberToObject(o, "ratio", r->mid);
    cJSON_AddNumberToObject(o, "lo", r->lo);
    cJSON_AddNumberToObject(o, "hi", r->hi);
}

static cJSON *to_json(const struct ab *ab, const struct finding *f)
{
    cJSON *o = cJSON_CreateObject();
    char mode[16];
    snprintf(mode, sizeof mode, "%s%s", ab->aa ? "aa-" : "", ab->phase_s > 0 ? "phases" : "runs");
    cJSON_AddNumberToObject(o, "version", AB_VERSION);
    cJSON *words = cJSON_AddArrayToObject(o, "command");
    for (size_t i = 0; i < ab->words; i++)
        cJSON_AddItemToArray(words, cJSON_CreateString(cli_str(ab->command[i])));
    cJSON_AddStringToObject(o, "mode", mode);
    cJSON_AddNumberToObject(o, "pairs", ab->pairs);
    cJSON_AddBoolToObject(o, "complete", ab->pairs == ab->want_pairs);
    ratio_json(o, ab, f, &f->ratio);
    number_or_null(o, "off_s", f->off);
    number_or_null(o, "on_s", f->on);
    number_or_null(o, "predicted", f->predicted);
    number_or_null(o, "generation", (double)ab->generation_number);
    cJSON_AddNumberToObject(o, "spread", f->spread);
    if (ab->metrics.count) {
        cJSON *all = cJSON_AddArrayToObject(o, "metrics");
        for (size_t i = 0; i < ab->metrics.count; i++) {
            cJSON *m = cJSON_CreateObject();
            cJSON_AddStringToObject(m, "regex", cli_str(ab->metrics.item[i].text));
            cJSON_AddStringToObject(m, "better", ab->metrics.lower ? "lower" : "higher");
            cJSON_AddNumberToObject(m, "off", f->metric[i].number[AB_WITHOUT]);
            cJSON_AddNumberToObject(m, "on", f->metric[i].number[AB_WITH]);
            ratio_json(m, ab, f, &f->metric[i].ratio);
            cJSON_AddItemToArray(all, m);
        }
    }
    number_or_null(o, "saved_s", f->saved_s);
    cJSON_AddNumberToObject(o, "calls", f->calls);
    cJSON_AddNumberToObject(o, "replaced", f->hits);
    if (!(ab->phase_s > 0))
        cJSON_AddStringToObject(o, "output", same_names[ab->same]);
    cJSON_AddStringToObject(o, "mode_without", ab->phase_s > 0 ? "switched off" : ab->mode[AB_WITHOUT]);
    cJSON_AddNumberToObject(o, "seed", (double)ab->seed);
    return o;
}

static void sentence(const struct ab *ab, const struct finding *f)
{
    const struct kfit_interval *r = &f->ratio;
    double half = (r->hi - r->lo) / 2;
    if (ab->aa) {
        printf("the same on both sides: %.3fx [%.3f, %.3f]; ", r->mid, r->lo, r->hi);
        if (ab->pairs < AB_PAIRS_95)
            printf("with %u pairs that is the range, and says little\n", ab->pairs);
        else if (r->lo > 1 || r->hi < 1)
            printf(
                "what is the same must not differ: something on this machine drifts or disturbs. Believe no "
                "comparison made now\n");
        else
            printf("that is noise: a gain below %.1f %% cannot be seen here with %u pairs\n", 100 * half,
                   ab->pairs);
        return;
    }
    if (ab->pairs < AB_PAIRS_95)
        printf("%.3fx, range %.3f to %.3f: %u pair%s are too few to conclude (%d make a 95 %% interval)\n",
               r->mid, r->lo, r->hi, ab->pairs, ab->pairs == 1 ? "" : "s", AB_PAIRS_95);
    else if (r->lo > 1 && !f->hits)
        printf(
            "no gain: %.3fx [%.3f, %.3f], but no call was replaced: what differs is not the kernels' doing\n",
            r->mid, r->lo, r->hi);
    else if (r->lo > 1)
        printf("gain: %.3fx [%.3f, %.3f] end to end, measured\n", r->mid, r->lo, r->hi);
    else if (r->hi < 1)
        printf("slower with dispatch: %.3fx [%.3f, %.3f] end to end, measured; `kfit rollback` or `kfit off` "
               "undoes it\n",
               r->mid, r->lo, r->hi);
    else
        printf("no gain: %.3fx [%.3f, %.3f] end to end, the interval includes 1; a difference below %.1f %% "
               "cannot be "
               "seen with these %u pairs\n",
               r->mid, r->lo, r->hi, 100 * half, ab->pairs);
}

static void to_text(const struct ab *ab, const struct finding *f)
{
    const char *per = ab->phase_s > 0 ? "a call" : "a run";
    sentence(ab, f);
    for (unsigned side = 0; side < 2; side++) {
        double s = side ? f->on : f->off;
        printf("  %-17s", ab->aa ? side ? "again" : "without dispatch" : ab_side_names[side]);
        if (ab->metrics.count)
            printf(" %-10.5g %s", f->metric[0].number[side],
                   side                ? ""
                   : ab->metrics.lower ? "(lower is better)  "
                                       : "(higher is better) ");
        if (s > 0)
            printf(" %s %s", cli_ns(s * 1e9), per);
        printf("\n");
    }
    for (size_t i = 1; i < ab->metrics.count; i++)
        printf("  %.3fx [%.3f, %.3f] %-8s %.5g without, %.5g with: %s\n", f->metric[i].ratio.mid,
               f->metric[i].ratio.lo, f->metric[i].ratio.hi, verdict(ab, f, &f->metric[i].ratio),
               f->metric[i].number[0], f->metric[i].number[1], cli_str(ab->metrics.item[i].text));
    printf("  %u pairs of %s in random order, seed %llu; the middle half of the values without dispatch "
           "spreads over "
           "%.1f %%\n",
           ab->pairs, ab->phase_s > 0 ? "phases" : "runs", (unsigned long long)ab->seed, 100 * f->spread);
    if (!ab->aa) {
        printf("  generation %llu: %.0f of %.0f calls were replaced, %.0f of %.0f keys\n",
               (unsigned long long)ab->generation_number, f->hits, f->calls, f->keys_hit, f->keys);
        if (f->predicted > 0)
            printf("  predicted %.3fx: by the receipts the replaced calls save %s of %s %s; the rest is the "
                   "program's own\n",
                   f->predicted, cli_ns(f->saved_s * 1e9), cli_ns(f->off * 1e9), per);
        else
            printf("  no prediction: %s\n", f->why_not);
        if (f->predicted > f->wall.hi && ab->pairs >= AB_PAIRS_95)
            printf("  measured below predicted: the program calls its kernels colder, or beside other load, "
                   "than the "
                   "judge did\n");
        if (f->predicted > 0 && ab->metrics.count)
            printf("  the prediction is for the time as a whole, not for the metric; by time it was %.3fx "
                   "[%.3f, %.3f]\n",
                   f->wall.mid, f->wall.lo, f->wall.hi);
    }
    if (!(ab->phase_s > 0) && ab->same == AB_SAME)
        printf("  output: the same in all runs\n");
    else if (!(ab->phase_s > 0) && ab->same == AB_VARIES)
        printf("  output: differs from run to run, also on one side alone, so it says nothing: %s\n",
               ab->difference);
    else if (!(ab->phase_s > 0))
        printf("  output: DIFFERS with dispatch: %s\n", ab->difference);
}

int ab_conclude(struct ab *ab, const char *out, bool json)
{
    struct finding f = {0};
    unsigned n = ab->pairs;
    const double *off = ab->seconds[AB_WITHOUT], *on = ab->seconds[AB_WITH];
    bool timed = true;
    for (unsigned i = 0; i < n; i++)
        timed &= off[i] > 0 && on[i] > 0;
    if (timed) {
        f.off = median(off, n);
        f.on = median(on, n);
        f.ratio = f.wall = interval(off, on, n, ab->seed);
        f.spread = spread_of(off, n);
    }
    for (size_t i = ab->metrics.count; i-- > 0;) { /* the first metric is the finding */
        const double *x = ab->number[i][AB_WITHOUT], *y = ab->number[i][AB_WITH];
        f.ratio = f.metric[i].ratio =
            ab->metrics.lower ? interval(x, y, n, ab->seed) : interval(y, x, n, ab->seed);
        f.spread = spread_of(x, n);
        f.metric[i].number[AB_WITHOUT] = median(x, n);
        f.metric[i].number[AB_WITH] = median(y, n);
    }
    predict(ab, &ab->traces, &f);
    int rc = CLI_OK;
    if (out)
        rc = cli_json_write(to_json(ab, &f), out);
    if (json)
        rc |= cli_json_print(to_json(ab, &f));
    else
        to_text(ab, &f);
    return rc;
}
