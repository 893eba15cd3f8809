/* kfit tune: targets from traces or from a list of keys, a judge per library, the search, and what came of
 * it. */
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "judging.h"
#include "outcome.h"

enum { MIN_CALLS_DEFAULT = 16 };

struct tuning {
    const char *generic_path;
    struct cli_keys keys; /* only these; none: all that were recorded */
    bool *found;
    bool listed;       /* no trace: the keys alone say what to tune */
    uint64_t env_hard; /* where, if listed */
    size_t left_out;   /* keys that the judge cannot take */
    uint64_t min_calls, evaluations, seed;
    double seconds;
    struct timespec start;
    struct kfit_store *store;
    const volatile int *stop;
    bool terminal, wait, searched;
    struct kfit_tune_result total;
    size_t targets;
};

static double remaining(const struct tuning *t)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return t->seconds - (double)(now.tv_sec - t->start.tv_sec) -
           (double)(now.tv_nsec - t->start.tv_nsec) * 1e-9;
}

static bool wants(struct tuning *t, const union kfit_key *key)
{
    bool any = !t->keys.count;
    for (size_t i = 0; i < t->keys.count; i++) {
        if (kfit_key_equal(&t->keys.item[i], key))
            any = t->found[i] = true;
    }
    return any;
}

/* One line that is rewritten on a terminal; elsewhere a line per key begun and ended. */
static void progress(void *ctx, const struct kfit_tune_progress *p)
{
    const struct tuning *t = ctx;
    char ratio[48] = "";
    const struct kfit_timing *best = p->best && p->best->timing_count ? &p->best->timings[0] : NULL;
    if (best)
        cli_ratio(best->ratio, best->lo, best->hi, ratio);
    if (p->event == KFIT_TUNE_DONE) {
        fprintf(stderr, "%s[%zu/%zu] %s: ", t->terminal ? "\r\033[K" : "", p->target + 1, p->targets,
                cli_key(&p->at->key));
        if (p->best)
            fprintf(stderr, "%s%s%s%s%s\n", kfit_verdict_str(p->best->verdict), p->best->code ? " " : "",
                    kfit_code_str(p->best->code), best ? " " : "", ratio);
        else
            fprintf(stderr, "no candidate was right\n");
    } else if (t->terminal) {
        fprintf(stderr, "\r\033[K[%zu/%zu] %.60s: %u/%u%s%s", p->target + 1, p->targets, cli_key(&p->at->key),
                p->evaluation, p->evaluations, best ? ", best " : "", ratio);
    } else if (p->event == KFIT_TUNE_TARGET) {
        char calls[32] = "";
        if (!t->listed)
            snprintf(calls, sizeof calls, "%llu calls, ", (unsigned long long)p->at->calls);
        fprintf(stderr, "[%zu/%zu] %s: %sgeneric %s, floor %s\n", p->target + 1, p->targets,
                cli_key(&p->at->key), calls, cli_ns(p->at->ns_incumbent), cli_ns(p->at->ns_bound));
    }
}

static void add_result(struct kfit_tune_result *to, const struct kfit_tune_result *r)
{
    to->promoted += r->promoted;
    to->kept += r->kept;
    to->refused_targets += r->refused_targets;
    to->evaluations += r->evaluations;
    to->compiled += r->compiled;
    to->resumed += r->resumed;
    to->seconds += r->seconds;
}

static int by_score(const void *a, const void *b)
{
    const struct kfit_target *x = a, *y = b;
    return (y->score > x->score) - (y->score < x->score);
}

/* Times each key's generic. One that the judge cannot take is named and left out; the others stay, best
 * first. */
static enum kfit_status measure(struct tuning *t, struct kfit_judge *judge, struct kfit_target *targets,
                                size_t *count, struct kfit_error *err)
{
    size_t n = 0;
    for (size_t i = 0; i < *count && !*t->stop; i++) {
        enum kfit_status s = kfit_targets_measure(judge, &targets[i], 1, err);
        if (s == KFIT_OK) {
            targets[n++] = targets[i];
        } else if (s == KFIT_E_UNSUPPORTED || s == KFIT_E_REFUSED || s == KFIT_E_NOMEM) {
            cli_say("%s is left out: %s", cli_key(&targets[i].key), SAFE(err->text));
            t->left_out++;
        } else {
            return s;
        }
    }
    err->text[0] = '\0';
    *count = n;
    qsort(targets, n, sizeof *targets, by_score);
    return KFIT_OK;
}

/* The search itself, against one library in one environment. */
static enum kfit_status tune_targets(struct tuning *t, const struct kfit_generic *library,
                                     const struct kfit_env *env, struct kfit_target *targets, size_t count,
                                     struct kfit_error *err)
{
    struct kfit_judge *judge = cli_judging_start(library, env, t->seed, t->wait);
    if (judge)
        kfit_judge_keep(judge, t->store);
    else
        return KFIT_E_BUSY; /* said */
    char threads[40] = "";
    if (library->threads)
        snprintf(threads, sizeof threads, ", %d thread%s", library->threads,
                 library->threads == 1 ? "" : "s");
    cli_say("%zu keys; generic: %s%s (%s)", count, SAFE(library->config), threads, SAFE(library->path));
    enum kfit_status s = measure(t, judge, targets, &count, err);
    struct kfit_tune_result result = {0};
    const struct kfit_tune_params params = {
        .store = t->store,
        .judge = judge,
        .env = env,
        .targets = targets,
        .count = count,
        .evaluations = (unsigned)t->evaluations,
        .seconds = t->seconds > 0 ? remaining(t) : 0,
        .seed = t->seed,
        .allow_no_isolation = true, /* the seeds are our own sources */
        .progress = progress,
        .progress_ctx = t,
        .stop = t->stop,
        .log = cli_log,
    };
    if (s == KFIT_OK && *t->stop)
        s = kfit_fail(err, KFIT_E_INTERRUPTED,
                      "stopped before anything was tried; run the same command again to go on");
    if (s == KFIT_OK && (t->seconds <= 0 || params.seconds > 0)) {
        t->searched |= count > 0;
        s = kfit_tune(&params, &result, err);
    }
    add_result(&t->total, &result);
    kfit_judge_destroy(judge);
    return s;
}

/* The targets that one library was called for, where they were recorded. */
static enum kfit_status tune_library(struct tuning *t, const struct kfit_generic *g,
                                     const struct kfit_env *recorded, struct kfit_target *targets,
                                     size_t count, struct kfit_error *err)
{
    struct kfit_env env;
    struct kfit_generic library = *g;
    char threads[16], device[16];
    kfit_env_get(recorded->hard, "threads", threads, sizeof threads);
    kfit_env_get(recorded->hard, "device", device, sizeof device);
    library.threads = atoi(threads);
    enum kfit_status s = cli_judging_env(device, t->generic_path, &library, &env, err);
    if (s != KFIT_OK)
        return s;
    if (strcmp(env.hard, recorded->hard))
        return kfit_fail(err, KFIT_E_ENV, "recorded on another machine: %.180s, here: %.180s; tune it there",
                         recorded->hard, env.hard);
    return tune_targets(t, &library, &env, targets, count, err);
}

/* The keys that were named, on a device of this machine. */
static enum kfit_status tune_list(struct tuning *t, const char *device, struct kfit_error *err)
{
    struct kfit_env env;
    struct kfit_generic library = {0};
    struct kfit_target *targets;
    enum kfit_status s = cli_judging_env(device, t->generic_path, &library, &env, err);
    if (s != KFIT_OK)
        return s;
    t->env_hard = env.hard_hash;
    t->targets = t->keys.count;
    targets = cli_alloc(NULL, t->keys.count * sizeof *targets);
    for (size_t i = 0; i < t->keys.count; i++) {
        targets[i] = (struct kfit_target){.key = t->keys.item[i], .calls = 1};
        t->found[i] = true;
    }
    s = tune_targets(t, &library, &env, targets, t->keys.count, err);
    free(targets);
    return s;
}

/* One group of traces with the same environment. */
static enum kfit_status tune_group(struct tuning *t, const struct kfit_trace *trace, struct kfit_error *err)
{
    const struct kfit_trace_header *h = kfit_trace_header(trace);
    struct kfit_target *all, *mine;
    size_t count, skipped, n = 0;
    enum kfit_status s = kfit_targets_from_trace(trace, t->min_calls, &all, &count, &skipped, err);
    if (s != KFIT_OK)
        return s;
    for (size_t i = 0; i < count; i++)
        if (wants(t, &all[i].key))
            all[n++] = all[i];
    count = n;
    t->targets += count;
    if (skipped)
        cli_say("%zu keys left out: fewer than %llu calls, or a kind that is never replaced", skipped,
                (unsigned long long)t->min_calls);
    mine = cli_alloc(NULL, count * sizeof *mine);
    for (uint32_t g = 0; g < h->generic_count && g < KFIT_TRACE_GENERICS && s == KFIT_OK; g++) {
        n = 0;
        for (size_t i = 0; i < count; i++)
            if (all[i].generic == g)
                mine[n++] = all[i];
        if (n)
            s = tune_library(t, &h->generics[g], &h->env, mine, n, err);
    }
    free(mine);
    free(all);
    return s;
}

struct saved {
    const struct kfit_report_key *key;
    double ns;
};

static int by_saved(const void *a, const void *b)
{
    const struct saved *x = a, *y = b;
    return (y->ns > x->ns) - (y->ns < x->ns);
}

/* Ranked by the time it saves in what was recorded. */
static void print_table(struct tuning *t, const struct kfit_report *r)
{
    struct saved *rows = cli_alloc(NULL, r->count * sizeof *rows);
    size_t n = 0;
    for (size_t i = 0; i < r->count; i++) {
        const struct kfit_report_key *k = &r->keys[i];
        double calls = t->listed ? 1 : (double)k->calls;
        if (k->judged && wants(t, &k->key))
            rows[n++] = (struct saved){k, calls * (k->before_ns - k->after_ns)};
    }
    qsort(rows, n, sizeof *rows, by_saved);
    if (n)
        printf("%10s %9s %9s %9s %8s  %-19s %-9s %-14s %s\n", "CALLS", "BEFORE", "AFTER", "FLOOR", "OF FLOOR",
               "RATIO [95 %]", "VERDICT", "CODE", "KEY");
    for (size_t i = 0; i < n; i++) {
        const struct kfit_report_key *k = rows[i].key;
        char calls[24] = "-", of_floor[16] = "-", ratio[48];
        if (k->calls)
            snprintf(calls, sizeof calls, "%llu", (unsigned long long)k->calls);
        if (k->floor_ns > 0)
            snprintf(of_floor, sizeof of_floor, "%.2f", k->after_ns / k->floor_ns);
        printf("%10s %9s %9s %9s %8s  %-19s %-9s %-14s %s\n", calls, cli_ns(k->before_ns),
               cli_ns(k->after_ns), cli_ns(k->floor_ns), of_floor, cli_ratio(k->ratio, k->lo, k->hi, ratio),
               kfit_verdict_str(k->verdict), k->code[0] ? k->code : "-", cli_key(&k->key));
    }
    free(rows);
}

/* What came of it, from the store. */
static void print_outcome(struct tuning *t, const char *dir, const struct cli_traces *ts, bool json)
{
    struct cli_outcome o;
    struct kfit_report report;
    struct cli_wanted wanted = {0};
    if (!cli_outcome_open(&o, dir, NULL, CLI_WANT_STORE))
        return;
    kfit_records_finish(&o.published); /* what was found, also where something else is published */
    for (size_t i = 0; t->listed && i < t->keys.count; i++)
        cli_wanted_add(&wanted, &t->keys.item[i], t->env_hard);
    if (cli_outcome_report(&o, ts, &wanted, &report)) {
        if (json)
            cli_json_print(kfit_report_json(&report));
        else
            print_table(t, &report);
        kfit_report_finish(&report);
    }
    free(wanted.item);
    cli_outcome_close(&o);
    cli_say("%u promoted, %u kept, %u without a right candidate; %u evaluations, %u taken from the store; "
            "%.0f s",
            t->total.promoted, t->total.kept, t->total.refused_targets, t->total.evaluations,
            t->total.resumed, t->total.seconds);
    if (t->total.promoted)
        cli_say("next: `kfit review`, `kfit approve --all`, each with --cache %s", cli_str(dir));
}

int cli_tune(int argc, char **argv)
{
    struct tuning t = {.min_calls = MIN_CALLS_DEFAULT, .terminal = isatty(STDERR_FILENO)};
    const char *cache = NULL, *device = NULL, *file = NULL;
    bool json = false;
    struct cli_list where = {0}, keys = {0};
    struct cli_traces ts = {0};
    struct kfit_error err = {0};
    char dir[4096];
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"evaluations", 'n', CLI_COUNT, &t.evaluations, "N",
         "candidates per key (default: the search's own)"},
        {"seconds", 's', CLI_REAL, &t.seconds, "S", "budget for everything"},
        {"seed", 0, CLI_COUNT, &t.seed, "N",
         "of the search's choices and the fixed inputs (default: from the OS)"},
        {"min-calls", 'm', CLI_COUNT, &t.min_calls, "N", "only keys called at least so often (default: 16)"},
        {"key", 'k', CLI_EACH, &keys, "KEY", "only this key; may be repeated"},
        {"keys", 'f', CLI_TEXT, &file, "FILE", "only the keys in this file, one a line, # begins a comment"},
        {"device", 'd', CLI_TEXT, &device, "DEVICE",
         "without a trace: host (default) or cuda; a trace says where it was recorded"},
        {"generic", 0, CLI_TEXT, &t.generic_path, "PATH",
         "the BLAS library to beat (default: the recorded one, else the system's); with cuda also a folder "
         "with a libcublas"},
        CLI_OPTION_WAIT(&t.wait),
        CLI_OPTION_JSON(&json),
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = "[TRACE|DIR...]",
                  .doc = "Searches kernels for the recorded keys, or without a trace for those of --key and "
                         "--keys, most time first. Ctrl-C stops after the present evaluation; the same "
                         "command goes on where it stopped.",
                  .options = options,
                  .max = CLI_ANY},
              &where);
    if (t.evaluations > 100000)
        return cli_usage_error(argv, "--evaluations: at most 100000");
    t.listed = !where.count;
    if (t.listed && !keys.count && !file)
        return cli_usage_error(argv, "name traces, or keys with --key or --keys");
    if (device && !t.listed)
        return cli_usage_error(argv, "--device: a trace says where it was recorded; leave it out");
    if (device && !cli_judging_device(device))
        return cli_usage_error(argv, "--device: \"%s\" is neither host nor cuda", cli_str(device));
    for (size_t i = 0; i < keys.count; i++)
        if (!cli_keys_add(&t.keys, keys.item[i], &err))
            return cli_usage_error(argv, "--key: %s", SAFE(err.text));
    if (file && !cli_keys_read(&t.keys, file))
        return CLI_FAILED;
    t.found = cli_alloc(NULL, t.keys.count * sizeof *t.found);
    memset(t.found, 0, t.keys.count * sizeof *t.found);
    if (!t.listed && (!cli_traces_read(&ts, &where) || !cli_traces_merge(&ts)))
        return CLI_FAILED;
    if (!t.listed && !ts.count)
        return cli_fail("no traces there; make some with `kfit run -- COMMAND`");

    clock_gettime(CLOCK_MONOTONIC, &t.start);
    t.stop = cli_judging_stop();
    cli_cache_dir(cache, dir, sizeof dir);
    enum kfit_status s = kfit_store_open(dir, KFIT_STORE_WRITE, &t.store, &err);
    if (s != KFIT_OK)
        return cli_failed(dir, s, &err);
    int rc = CLI_OK;
    for (size_t i = 0; i < (t.listed ? 1 : ts.groups) && s != KFIT_E_INTERRUPTED; i++) {
        err.text[0] = '\0';
        s = t.listed ? tune_list(&t, device ? device : "host", &err) : tune_group(&t, ts.group[i], &err);
        if (s == KFIT_OK)
            continue;
        rc = CLI_FAILED;
        if (t.terminal)
            fputs("\r\033[K", stderr);
        if (s != KFIT_E_BUSY || err.text[0])
            cli_failed(s == KFIT_E_INTERRUPTED ? NULL : "tune", s, &err);
    }
    for (size_t i = 0; !t.listed && i < t.keys.count; i++)
        if (!t.found[i])
            rc = cli_fail("%s: not in these traces with at least %llu calls", cli_key(&t.keys.item[i]),
                          (unsigned long long)t.min_calls);
    if (t.keys.count && t.left_out)
        rc = CLI_FAILED; /* what was asked for by name was not done */
    kfit_store_close(t.store);

    if (t.searched)
        print_outcome(&t, dir, &ts, json);
    else if (!t.listed && !t.targets)
        cli_say("no key was called at least %llu times; nothing to tune (see --min-calls)",
                (unsigned long long)t.min_calls);
    free(t.keys.item);
    free(t.found);
    cli_traces_free(&ts);
    return rc;
}
