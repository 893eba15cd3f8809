/* kfit report: coverage, gain per key, and why the rest stays with the original. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "explain.h"
#include "outcome.h"

enum { NEAR_MISSES = 10, GENERATIONS_MAX = 4096, AB_BYTES_MAX = 1 << 20 };

struct reporting {
    struct kfit_report report;
    struct cli_outcome o;
    struct cli_traces ts;
    struct kfit_generation *before; /* to compare with; NULL: none */
    struct kfit_records previous;
};

/* The dispatcher's own words for the largest keys that have no record. */
static void near_misses(struct kfit_report *r, const struct cli_traces *ts, const char *cache)
{
    for (size_t g = 0; g < ts->groups; g++) {
        const struct kfit_env *env = &kfit_trace_header(ts->group[g])->env;
        struct kfit_dispatcher *d = NULL;
        unsigned n = 0;
        for (size_t i = 0; i < r->count && n < NEAR_MISSES; i++) {
            struct kfit_report_key *k = &r->keys[i];
            char text[CLI_EXPLAIN_BYTES];
            if (k->judged || k->env_hard != kfit_text_hash(env->hard))
                continue;
            if (!d && !(d = cli_explainer(cache, NULL, env, NULL)))
                return;
            kfit_dispatcher_explain(d, &k->key, text, sizeof text);
            const char *nearest = cli_near_miss(text, 0);
            if (nearest) {
                snprintf(k->near_miss, sizeof k->near_miss, "%s", nearest);
                n++;
            }
        }
        kfit_dispatcher_destroy(d);
    }
}

static int write_page(void *ctx, FILE *to)
{
    const struct reporting *r = ctx;
    struct kfit_error err = {0};
    const struct kfit_trace **processes = cli_alloc(NULL, r->ts.count * sizeof *processes);
    for (size_t i = 0; i < r->ts.count; i++)
        processes[i] = r->ts.item[i].t;
    enum kfit_status s = kfit_report_html(
        &(struct kfit_report_page){
            .report = &r->report,
            .published = &r->o.published,
            .staged = &r->o.staged,
            .previous = r->before ? &r->previous : NULL,
            .manifest = r->o.generation ? kfit_generation_manifest(r->o.generation) : NULL,
            .before = r->before ? kfit_generation_manifest(r->before) : NULL,
            .store = r->o.store,
            .processes = processes,
            .process_count = r->ts.count,
            .made_unix_s = time(NULL),
            .version = KFIT_VERSION,
        },
        to, &err);
    free(processes);
    return s == KFIT_OK ? CLI_OK : cli_failed("report", s, &err);
}

/* ---- what is reported ---- */

static bool read_ab(const char *path, struct kfit_report_ab *ab)
{
    struct kfit_error err = {0};
    char *text = NULL;
    size_t bytes;
    enum kfit_status s = cli_read_file(path, AB_BYTES_MAX, &text, &bytes, &err);
    if (s != KFIT_OK) /* its message names the file */
        return !cli_failed("--ab", s, &err);
    s = kfit_report_ab_parse(text, bytes, ab, &err);
    free(text);
    return s == KFIT_OK || !cli_failed(path, s, &err);
}

/* The generation to compare with: the one asked for, else the last before the present one. That an old one
 * cannot be read is no reason to report nothing, unless it was asked for. */
static bool open_previous(struct reporting *r, const char *which)
{
    uint64_t numbers[GENERATIONS_MAX], last = 0;
    struct kfit_error err = {0};
    char name[24];
    if (!r->o.generation)
        return true;
    if (!which) {
        uint64_t now = kfit_generation_manifest(r->o.generation)->number;
        size_t n = kfit_generation_list(r->o.dir, numbers, GENERATIONS_MAX);
        for (size_t i = 0; i < n && i < GENERATIONS_MAX; i++)
            if (numbers[i] < now)
                last = numbers[i];
        if (!last)
            return true;
    }
    snprintf(name, sizeof name, "%llu", (unsigned long long)last);
    enum kfit_status s = kfit_generation_open(r->o.dir, which ? which : name, &r->before, &err);
    if (s == KFIT_OK)
        s = kfit_records_published(&r->previous, r->before, false, &err);
    if (s == KFIT_OK)
        return true;
    kfit_records_finish(&r->previous);
    if (r->before)
        kfit_generation_close(r->before);
    r->before = NULL;
    cli_failed("the generation to compare with", s, &err);
    return !which;
}

static bool called(const struct cli_trace *t)
{
    uint64_t count[KFIT_TRACE_REASONS], calls = 0;
    cli_trace_totals(t->t, count);
    for (unsigned r = 0; r < KFIT_TRACE_REASONS; r++)
        calls |= count[r];
    return calls;
}

/* Seconds from the first call of a process to its end; 0 if that is not known. */
static double span_s(const struct cli_trace *t)
{
    const struct kfit_trace_header *h = kfit_trace_header(t->t);
    const double end = h->end_unix_ns ? (double)h->end_unix_ns / 1e9 : t->alive ? (double)time(NULL) : 0;
    const double s = end - (double)h->start_unix_ns / 1e9;
    return h->pid <= 0 || h->start_unix_ns <= 0 || !(s > 0) ? 0 : s; /* merged, or killed */
}

/* Added up over the processes, each as long as the longest of its traces; 0 if it is not known of one that called. */
static double wall_s(const struct cli_traces *ts)
{
    double sum = 0;
    for (size_t i = 0; i < ts->count; i++) {
        const double s = called(&ts->item[i]) ? span_s(&ts->item[i]) : -1;
        bool longest = true;
        if (s < 0)
            continue;
        if (s == 0)
            return 0;
        for (size_t j = 0; j < ts->count; j++)
            if (i != j && called(&ts->item[j]) &&
                kfit_trace_same_process(kfit_trace_header(ts->item[i].t), kfit_trace_header(ts->item[j].t)))
                longest &= s > span_s(&ts->item[j]) || (s == span_s(&ts->item[j]) && i < j);
        sum += longest ? s : 0;
    }
    return sum;
}

static int count_one(void *ctx, const void *key, size_t key_bytes, const void *value, size_t value_bytes,
                     const char *problem)
{
    (void)key, (void)key_bytes, (void)value, (void)value_bytes, (void)problem;
    ++*(size_t *)ctx;
    return 0;
}

/* Says why there is nothing to report: nothing was tuned, or tuning found nothing out. */
static bool nothing(const struct cli_outcome *o)
{
    size_t evaluations = 0;
    if (o->store)
        kfit_store_each(o->store, KFIT_TABLE_EVALS, NULL, 0, count_one, &evaluations, NULL);
    if (evaluations)
        cli_fail(
            "no traces and no results: %s: nothing was settled in %zu evaluations, for noise or because no "
            "candidate was right; run the same `kfit tune` again on an idle machine",
            cli_str(o->dir), evaluations);
    else
        cli_fail("no traces and no results; make some with `kfit run -- COMMAND` or `kfit tune --key KEY`");
    return false;
}

/* Opens and reads all of it; says what is wrong. where: the traces asked for. */
static bool gather(struct reporting *r, const struct cli_list *where, const char *cache, const char *against,
                   const struct kfit_report_ab *ab)
{
    struct cli_wanted wanted = {.extra.ab = ab};
    if (!cli_traces_read(&r->ts, where) || !cli_traces_merge(&r->ts))
        return false;
    if (!r->ts.count && where->count)
        return !cli_fail("no traces there; make some with `kfit run -- COMMAND`");
    if (!cli_outcome_open(&r->o, cache, NULL, 0) || !open_previous(r, against))
        return false;
    const struct kfit_records *sets[] = {&r->o.published, &r->o.staged};
    for (unsigned s = 0; s < 2 && !where->count; s++)
        for (size_t i = 0; i < sets[s]->count; i++)
            cli_wanted_add(&wanted, &sets[s]->item[i].key, sets[s]->item[i].env_hard);
    if (!r->ts.count && !wanted.count)
        return nothing(&r->o);
    wanted.extra.wall_s = wall_s(&r->ts);
    if (r->before) {
        wanted.extra.previous = &r->previous;
        wanted.extra.previous_generation = kfit_generation_manifest(r->before)->number;
    }
    bool ok = cli_outcome_report(&r->o, &r->ts, &wanted, &r->report);
    free(wanted.item);
    if (ok && r->o.generation)
        near_misses(&r->report, &r->ts, r->o.dir);
    return ok;
}

static void finish(struct reporting *r)
{
    kfit_report_finish(&r->report);
    kfit_records_finish(&r->previous);
    if (r->before)
        kfit_generation_close(r->before);
    cli_outcome_close(&r->o);
    cli_traces_free(&r->ts);
}

int cli_report(int argc, char **argv)
{
    const char *cache = NULL, *html = NULL, *ab_path = NULL, *against = NULL;
    struct cli_optional json = {0};
    struct cli_list where = {0};
    struct kfit_report_ab ab;
    struct reporting r = {0};
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"json", 'j', CLI_OPTIONAL, &json, "FILE",
         "print JSON; with =FILE, write it there and print the text"},
        {"html", 'w', CLI_TEXT, &html, "FILE", "write one self-contained page there, and print the text"},
        {"ab", 'a', CLI_TEXT, &ab_path, "FILE",
         "what `kfit ab --out FILE` measured: the gain is measured, not estimated"},
        {"against", 'g', CLI_TEXT, &against, "G",
         "generation to compare with (default: the last before the current one)"},
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = "[TRACE|DIR...]",
                  .doc = "Shows what kfit means for the recorded programs. With no trace, the usual places "
                         "are searched, and results for keys that no trace there has are shown too.",
                  .options = options,
                  .max = CLI_ANY},
              &where);
    if (ab_path && !read_ab(ab_path, &ab))
        return CLI_FAILED;
    if (!gather(&r, &where, cache, against, ab_path ? &ab : NULL))
        return CLI_FAILED;
    int rc = json.value ? cli_json_write(kfit_report_json(&r.report), json.value) : CLI_OK;
    if (rc == CLI_OK && html)
        rc = cli_write(html, write_page, &r);
    if (json.given && !json.value) {
        int printed = cli_json_print(kfit_report_json(&r.report));
        rc = rc == CLI_OK ? printed : rc;
    } else {
        kfit_report_text(&r.report, stdout);
    }
    finish(&r);
    return rc;
}
