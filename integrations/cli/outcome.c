#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "outcome.h"

static bool bad_entries(const char *what, const struct kfit_records *r)
{
    if (r->bad)
        cli_say("%s: %zu damaged entries left out, the first: %s; see `kfit cache verify`", what, r->bad,
                SAFE(r->problem));
    return r->bad;
}

/* Writing makes a store where there is none; a mistyped directory gets none. */
static bool something_there(const char *dir)
{
    char path[2][4200];
    snprintf(path[0], sizeof path[0], "%s/store", dir);
    snprintf(path[1], sizeof path[1], "%s/generations", dir);
    return !access(path[0], F_OK) || !access(path[1], F_OK);
}

bool cli_outcome_open(struct cli_outcome *o, const char *dir, const char *which, unsigned want)
{
    struct kfit_error err = {0};
    bool images = want & CLI_WANT_IMAGES;
    memset(o, 0, sizeof *o);
    cli_cache_dir(dir, o->dir, sizeof o->dir);
    enum kfit_status s = KFIT_OK;
    if (want & CLI_WANT_WRITE && !something_there(o->dir)) {
        cli_fail("%s: neither a store nor a generation is there; name the cache with --cache",
                 cli_str(o->dir));
        return false;
    }
    if (!(want & CLI_NO_STORE))
        s = kfit_store_open(o->dir, want & CLI_WANT_WRITE ? KFIT_STORE_WRITE : KFIT_STORE_READ, &o->store,
                            &err);
    if (s == KFIT_OK && o->store)
        s = kfit_records_staged(&o->staged, o->store, images, &err);
    if (s != KFIT_OK && (s != KFIT_E_NOTFOUND || want & CLI_WANT_STORE)) {
        if (s == KFIT_E_NOTFOUND)
            cli_fail("%s: nothing was tuned here; run `kfit tune TRACE --cache %s`", cli_str(o->dir),
                     cli_str(o->dir));
        else
            cli_failed(o->dir, s, &err);
        return false;
    }
    err.text[0] = '\0';
    s = kfit_generation_open(o->dir, which, &o->generation, &err);
    if (s == KFIT_OK)
        s = kfit_records_published(&o->published, o->generation, images, &err);
    if (s != KFIT_OK && (s != KFIT_E_NOTFOUND || which || want & CLI_WANT_GENERATION)) {
        if (s == KFIT_E_NOTFOUND && !which)
            cli_fail("%s: nothing is published here; run `kfit approve`", cli_str(o->dir));
        else
            cli_failed(o->dir, s, &err);
        return false;
    }
    bad_entries("the store", &o->staged);
    bad_entries("the generation", &o->published);
    return true;
}

void cli_outcome_close(struct cli_outcome *o)
{
    kfit_records_finish(&o->published);
    kfit_records_finish(&o->staged);
    if (o->generation)
        kfit_generation_close(o->generation);
    if (o->store)
        kfit_store_close(o->store);
}

const char *cli_outcome_env(const struct cli_outcome *o, uint64_t hash, char *buf)
{
    uint8_t key[8];
    void *text;
    size_t bytes;
    buf[0] = '\0';
    if (o->generation && kfit_generation_env(o->generation, hash, buf))
        return buf;
    for (int i = 0; i < 8; i++)
        key[i] = (uint8_t)(hash >> (56 - 8 * i));
    buf[0] = '\0';
    if (o->store &&
        kfit_store_get(o->store, KFIT_TABLE_ENVS, key, sizeof key, &text, &bytes, NULL) == KFIT_OK) {
        if (bytes < KFIT_ENV_TEXT_MAX)
            memcpy(buf, text, bytes + 1); /* the store ends it with a NUL */
        free(text);
    }
    return buf;
}

void cli_wanted_add(struct cli_wanted *w, const union kfit_key *key, uint64_t env_hard)
{
    w->item = cli_alloc(w->item, (w->count + 1) * sizeof *w->item);
    w->item[w->count++] = (struct kfit_report_want){*key, env_hard};
}

bool cli_outcome_report(const struct cli_outcome *o, const struct cli_traces *ts,
                        const struct cli_wanted *wanted, struct kfit_report *report)
{
    struct kfit_error err = {0};
    const struct kfit_report_input in = {
        .traces = ts->group,
        .count = ts->groups,
        .wanted = wanted ? wanted->item : NULL,
        .wanted_count = wanted ? wanted->count : 0,
        .published = &o->published,
        .staged = &o->staged,
        .store = o->store,
        .generation = o->generation ? kfit_generation_manifest(o->generation)->number : 0,
        .extra = wanted ? &wanted->extra : NULL,
    };
    enum kfit_status s = kfit_report_make(&in, report, &err);
    return s == KFIT_OK || !cli_failed("report", s, &err);
}

struct waiting {
    const union kfit_key *key;
    void (*fn)(void *ctx, const struct kfit_receipt *r);
    void *ctx;
    struct kfit_receipt *receipt;
    size_t count;
};

static int if_waiting(void *ctx, const void *key, size_t key_bytes, const void *value, size_t value_bytes,
                      const char *problem)
{
    struct waiting *w = ctx;
    (void)key, (void)key_bytes;
    if (problem || kfit_receipt_from_json(value, value_bytes, w->receipt, NULL) != KFIT_OK ||
        w->receipt->verdict != KFIT_VERDICT_REVIEW || (w->key && !kfit_key_equal(w->key, &w->receipt->key)))
        return 0;
    w->count++;
    w->fn(w->ctx, w->receipt);
    return 0;
}

bool cli_outcome_waiting(const struct cli_outcome *o, const union kfit_key *key,
                         void (*fn)(void *ctx, const struct kfit_receipt *r), void *ctx, size_t *count)
{
    struct kfit_error err = {0};
    struct waiting w = {key, fn, ctx, cli_alloc(NULL, sizeof *w.receipt), 0};
    enum kfit_status s =
        o->store ? kfit_store_each(o->store, KFIT_TABLE_EVALS, NULL, 0, if_waiting, &w, &err) : KFIT_OK;
    free(w.receipt);
    if (count)
        *count = w.count;
    return s == KFIT_OK || !cli_failed(o->dir, s, &err);
}

const char *cli_ratio(double ratio, double lo, double hi, char *buf)
{
    if (ratio > 0)
        snprintf(buf, 48, "%.2f [%.2f, %.2f]", ratio, lo, hi);
    else
        strcpy(buf, "-");
    return buf;
}

struct kfit_env *cli_envs(const struct kfit_records *records,
                          bool (*text)(void *ctx, uint64_t hash, char *to), void *ctx, size_t *count,
                          const struct kfit_record **unknown)
{
    struct kfit_env *envs = cli_alloc(NULL, sizeof *envs);
    *count = 0;
    *unknown = NULL;
    for (size_t i = 0; i < records->count; i++) {
        const struct kfit_record *r = &records->item[i];
        size_t k = 0;
        while (k < *count && (envs[k].hard_hash != r->env_hard || envs[k].soft_hash != r->env_soft))
            k++;
        if (k < *count)
            continue;
        envs = cli_alloc(envs, (*count + 1) * sizeof *envs);
        struct kfit_env *e = &envs[(*count)++];
        *e = (struct kfit_env){.hard_hash = r->env_hard, .soft_hash = r->env_soft};
        if (!text(ctx, r->env_hard, e->hard) || (r->env_soft && !text(ctx, r->env_soft, e->soft))) {
            *unknown = r;
            free(envs);
            return NULL;
        }
    }
    return envs;
}
