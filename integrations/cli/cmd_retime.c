/* kfit retime: after an upgrade of the BLAS, the compiler or the driver, are the winners still right and faster? */
#include <stdlib.h>
#include <string.h>

#include "judging.h"
#include "outcome.h"

/* A winner that servers would call stale here, and what it is judged against. */
struct stale {
    const struct kfit_record *record;
    struct kfit_generic library;
    struct kfit_env env;
};

struct retiming {
    struct cli_outcome o;
    struct cli_traces ts;
    struct cli_keys keys; /* only these; none: all */
    const char *generic_path;
    bool all, dry_run, wait;
    uint64_t seed;
    struct stale *stale;
    size_t count, fresh, elsewhere;
    /* the surroundings found last: most winners share them */
    struct kfit_generic asked, library;
    struct kfit_env env;
    bool known;
    size_t confirmed, retired, undecided;
    cJSON *list; /* NULL: as text */
};

/* The library that the program called for this key, if a trace says so. */
static void recorded_library(const struct retiming *t, const struct kfit_record *r, struct kfit_generic *g)
{
    for (size_t i = 0; i < t->ts.count; i++) {
        const struct kfit_trace *trace = t->ts.item[i].t;
        const struct kfit_trace_header *h = kfit_trace_header(trace);
        if (kfit_text_hash(h->env.hard) != r->env_hard || !h->generic_count)
            continue;
        *g = h->generics[0];
        for (size_t k = 0; k < kfit_trace_count(trace); k++) {
            const struct kfit_trace_slot *s = kfit_trace_at(trace, k);
            if (kfit_key_equal(&s->key, &r->key) && s->generic < h->generic_count) {
                *g = h->generics[s->generic];
                return;
            }
        }
    }
}

/* Library and environment for a record of that hard environment. */
static enum kfit_status surroundings(struct retiming *t, const struct kfit_record *r, const char *hard,
                                     struct kfit_error *err)
{
    char device[16], threads[16];
    struct kfit_generic asked = {0};
    kfit_env_get(hard, "device", device, sizeof device);
    recorded_library(t, r, &asked);
    asked.threads = kfit_env_get(hard, "threads", threads, sizeof threads) ? atoi(threads) : 0;
    if (t->known && !memcmp(&asked, &t->asked, sizeof asked))
        return KFIT_OK;
    t->known = false;
    t->asked = t->library = asked;
    /* twice: the first finds the library, the second keeps the record's thread count */
    enum kfit_status s = cli_judging_env(device, t->generic_path, &t->library, &t->env, err);
    if (s == KFIT_OK && t->library.threads != asked.threads) {
        t->library.threads = asked.threads;
        s = cli_judging_env(device, NULL, &t->library, &t->env, err);
    }
    t->known = s == KFIT_OK;
    return s;
}

static bool wanted(const struct retiming *t, const struct kfit_record *r)
{
    bool any = !t->keys.count;
    for (size_t i = 0; i < t->keys.count && !any; i++)
        any = kfit_key_equal(&t->keys.item[i], &r->key);
    return any && r->kind == KFIT_RECORD_WINNER;
}

static enum kfit_status look_at(struct retiming *t, const struct kfit_record *r, struct kfit_error *err)
{
    char hard[KFIT_ENV_TEXT_MAX], soft[KFIT_ENV_TEXT_MAX];
    if (!wanted(t, r))
        return KFIT_OK;
    cli_outcome_env(&t->o, r->env_hard, hard);
    enum kfit_status s = surroundings(t, r, hard, err);
    if (s != KFIT_OK)
        return s;
    if (t->env.hard_hash != r->env_hard) {
        t->elsewhere++;
    } else if (t->all || !*cli_outcome_env(&t->o, r->env_soft, soft) || kfit_env_differs(t->env.soft, soft)) {
        t->stale = cli_alloc(t->stale, (t->count + 1) * sizeof *t->stale);
        t->stale[t->count++] = (struct stale){r, t->library, t->env};
    } else {
        t->fresh++;
    }
    return KFIT_OK;
}

/* What was tuned last counts, published or not; of a key that was not tuned here (imported, another's store) what is
 * published. */
static enum kfit_status find_stale(struct retiming *t, struct kfit_error *err)
{
    enum kfit_status s = KFIT_OK;
    const struct kfit_records *p = &t->o.published, *q = &t->o.staged;
    for (size_t i = 0; i < q->count && s == KFIT_OK; i++)
        s = look_at(t, &q->item[i], err);
    for (size_t i = 0; i < p->count && s == KFIT_OK; i++)
        if (!kfit_records_find(q, p->item[i].env_hard, &p->item[i].key))
            s = look_at(t, &p->item[i], err);
    return s;
}

static void report(struct retiming *t, const struct stale *at, const char *outcome,
                   const struct kfit_receipt *r)
{
    const struct kfit_timing *now = r && r->timing_count ? &r->timings[0] : NULL;
    char was[48], is[48] = "-", soft[KFIT_ENV_TEXT_MAX];
    cli_outcome_env(&t->o, at->record->env_soft, soft);
    cli_ratio(at->record->ratio, at->record->lo, at->record->hi, was);
    if (now)
        cli_ratio(now->ratio, now->lo, now->hi, is);
    if (!t->list) {
        printf("%-10s was %s, now %s%s%s  %s\n           %s -> %s\n", outcome, was, is,
               r && r->code ? ", " : "", r ? kfit_code_str(r->code) : "", cli_key(&at->record->key),
               SAFE(soft), SAFE(at->env.soft));
        return;
    }
    cJSON *o = cJSON_CreateObject();
    cJSON_AddStringToObject(o, "key", cli_key(&at->record->key));
    cJSON_AddStringToObject(o, "outcome", outcome);
    cJSON_AddStringToObject(o, "code", r ? kfit_code_str(r->code) : "");
    cJSON_AddStringToObject(o, "detail", r ? SAFE(r->detail) : "");
    cJSON_AddNumberToObject(o, "ratio_was", at->record->ratio);
    if (now) {
        cJSON_AddNumberToObject(o, "ratio", now->ratio);
        cJSON_AddNumberToObject(o, "lo", now->lo);
        cJSON_AddNumberToObject(o, "hi", now->hi);
    }
    cJSON_AddStringToObject(o, "environment_was", SAFE(soft));
    cJSON_AddStringToObject(o, "environment", SAFE(at->env.soft));
    cJSON_AddItemToArray(t->list, o);
}

static bool same_judge(const struct stale *a, const struct stale *b)
{
    return a && !memcmp(&a->library, &b->library, sizeof a->library) && a->env.hard_hash == b->env.hard_hash;
}

static enum kfit_status judge_all(struct retiming *t, struct kfit_error *err)
{
    static const char *const outcomes[] = {"confirmed", "retired", "undecided"};
    const volatile int *stop = cli_judging_stop();
    struct kfit_judge *judge = NULL;
    const struct stale *last = NULL;
    struct kfit_receipt *receipt = cli_alloc(NULL, sizeof *receipt);
    enum kfit_status s = KFIT_OK;
    for (size_t i = 0; i < t->count && s == KFIT_OK && !*stop; i++) {
        const struct stale *at = &t->stale[i];
        enum kfit_retimed outcome;
        if (!same_judge(last, at)) {
            kfit_judge_destroy(judge);
            judge = cli_judging_start(&at->library, &at->env, t->seed, t->wait);
            if (!judge) {
                s = KFIT_E_BUSY; /* said */
                break;
            }
            last = at;
        }
        *receipt = (struct kfit_receipt){0};
        s = kfit_retime(&(struct kfit_tune_params){.store = t->o.store,
                                                   .judge = judge,
                                                   .env = &at->env,
                                                   .campaign = "retime",
                                                   .stop = stop,
                                                   .log = cli_log},
                        at->record, &outcome, receipt, err);
        if (s == KFIT_E_REFUSED) { /* this key cannot be judged here; others can */
            cli_say("%s: %s", cli_key(&at->record->key), SAFE(err->text));
            outcome = KFIT_RETIMED_UNDECIDED;
            s = KFIT_OK;
        }
        if (s != KFIT_OK)
            break;
        *(outcome == KFIT_RETIMED_CONFIRMED ? &t->confirmed
          : outcome == KFIT_RETIMED_RETIRED ? &t->retired
                                            : &t->undecided) += 1;
        report(t, at, outcomes[outcome], receipt);
        fflush(stdout);
    }
    if (s == KFIT_OK && *stop)
        s = kfit_fail(err, KFIT_E_INTERRUPTED,
                      "stopped; what was judged is kept: run the same command again to go on");
    kfit_judge_destroy(judge);
    free(receipt);
    return s;
}

int cli_retime(int argc, char **argv)
{
    const char *cache = NULL;
    bool json = false;
    struct cli_list args = {0}, traces = {0};
    struct retiming t = {0};
    struct kfit_error err = {0};
    int rc = CLI_FAILED;
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"trace", 't', CLI_EACH, &traces, "TRACE", "take the library from this trace or directory"},
        {"generic", 0, CLI_TEXT, &t.generic_path, "PATH",
         "the BLAS library to beat (default: of --trace, else the system's); with cuda also a folder with a "
         "libcublas"},
        {"all", 'a', CLI_FLAG, &t.all, NULL, "also winners that are not stale"},
        {"seed", 0, CLI_COUNT, &t.seed, "N", "of the fixed inputs (default: from the OS)"},
        {"dry-run", 'd', CLI_FLAG, &t.dry_run, NULL, "list what is stale here, and judge nothing"},
        CLI_OPTION_WAIT(&t.wait),
        CLI_OPTION_JSON(&json),
        {0},
    };
    cli_parse(
        argc, argv,
        &(struct cli_usage){
            .args = "[KEY...]",
            .doc =
                "Judges winners again that were found with another BLAS, compiler or driver than this "
                "machine has now (`stale` in status and explain). One that is still right and faster is "
                "confirmed, one that is not is retired; both are staged, and `kfit approve` publishes them. "
                "One that noise leaves undecided stays as it is.",
            .options = options,
            .max = CLI_ANY},
        &args);
    for (size_t i = 0; i < args.count; i++)
        if (!cli_keys_add(&t.keys, args.item[i], &err))
            return cli_usage_error(argv, "%s: %s", cli_str(args.item[i]), SAFE(err.text));
    if (traces.count && !cli_traces_read(&t.ts, &traces))
        return CLI_FAILED;
    if (!cli_outcome_open(&t.o, cache, NULL,
                          CLI_WANT_STORE | CLI_WANT_IMAGES | (t.dry_run ? 0 : CLI_WANT_WRITE)))
        goto out;
    t.list = json ? cJSON_CreateArray() : NULL;
    enum kfit_status s = find_stale(&t, &err);
    for (size_t i = 0; i < t.count && t.dry_run; i++)
        report(&t, &t.stale[i], "stale", NULL);
    if (s == KFIT_OK && !t.dry_run)
        s = judge_all(&t, &err);
    if (s != KFIT_OK && (s != KFIT_E_BUSY || err.text[0]))
        cli_failed(s == KFIT_E_INTERRUPTED ? NULL : "retime", s, &err);
    rc = s == KFIT_OK && !t.undecided ? CLI_OK : CLI_FAILED;
    if (json)
        cli_json_print(t.list);
    if (t.elsewhere)
        cli_say("%zu winners are of another machine or thread count; retime them there", t.elsewhere);
    if (t.dry_run)
        cli_say("%zu stale, %zu not", t.count, t.fresh);
    else
        cli_say("%zu confirmed, %zu retired, %zu undecided%s, %zu not stale%s", t.confirmed, t.retired,
                t.undecided, t.undecided ? " (noise; run it again on an idle machine)" : "", t.fresh,
                t.confirmed + t.retired ? "; next: `kfit review`, `kfit approve`" : "");
out:
    free(t.stale);
    free(t.keys.item);
    cli_outcome_close(&t.o);
    cli_traces_free(&t.ts);
    return rc;
}
