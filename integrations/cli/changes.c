#include <stdlib.h>
#include <string.h>

#include "changes.h"

static const char *const names[CLI_CHANGE_KINDS] = {"new",       "replaces", "confirms",
                                                    "withdraws", "kept",     "forgets"};

const char *cli_change_name(enum cli_change_kind kind)
{
    return names[kind];
}

const union kfit_key *cli_change_key(const struct cli_change *c)
{
    return &cli_change_record(c)->key;
}

/* False: nothing changes. */
static bool kind_of(const struct kfit_record *from, const struct kfit_record *to, enum cli_change_kind *kind)
{
    bool was = from && from->kind == KFIT_RECORD_WINNER, is = to && to->kind == KFIT_RECORD_WINNER;
    if (from && to && kfit_record_same(from, to)) {
        *kind = CLI_CHANGE_CONFIRMS;
        return from->env_soft != to->env_soft;
    }
    *kind = is    ? (was ? CLI_CHANGE_REPLACES : CLI_CHANGE_NEW)
            : was ? CLI_CHANGE_WITHDRAWS
            : to  ? CLI_CHANGE_KEPT
                  : CLI_CHANGE_FORGETS;
    return true;
}

static void add(struct cli_changes *c, const struct kfit_record *from, const struct kfit_record *to,
                const struct cli_ban *ban)
{
    struct cli_change one = {.from = from, .to = to, .ban = ban, .share = -1};
    if (ban)
        one.to = to = NULL;
    if (!from && !to)
        return;
    if (!kind_of(from, to, &one.kind)) {
        c->same++;
        return;
    }
    c->item = cli_alloc(c->item, (c->count + 1) * sizeof *c->item);
    c->item[c->count++] = one;
}

static int by_place(const void *pa, const void *pb)
{
    const struct cli_change *a = pa, *b = pb;
    const struct kfit_record *x = cli_change_record(a), *y = cli_change_record(b);
    if (x->env_hard != y->env_hard)
        return x->env_hard < y->env_hard ? -1 : 1;
    return memcmp(x->key.bytes, y->key.bytes, sizeof x->key.bytes);
}

void cli_changes_find(struct cli_changes *c, const struct kfit_records *from, const struct kfit_records *to,
                      bool whole, const struct cli_bans *bans)
{
    static const struct cli_bans none;
    *c = (struct cli_changes){0};
    bans = bans ? bans : &none;
    for (size_t i = 0; i < to->count; i++) {
        const struct kfit_record *r = &to->item[i];
        add(c, kfit_records_find(from, r->env_hard, &r->key), r, cli_bans_find(bans, &r->key));
    }
    for (size_t i = 0; i < from->count; i++) {
        const struct kfit_record *r = &from->item[i];
        const struct cli_ban *ban = cli_bans_find(bans, &r->key);
        if ((whole || ban) && !kfit_records_find(to, r->env_hard, &r->key))
            add(c, r, NULL, ban);
    }
    if (c->count)
        qsort(c->item, c->count, sizeof *c->item, by_place);
}

void cli_changes_free(struct cli_changes *c)
{
    free(c->item);
    *c = (struct cli_changes){0};
}

double cli_record_factor(const struct kfit_record *r)
{
    double before = !r ? 0 : r->ns_generic > 0 ? r->ns_generic : r->ns_incumbent;
    return r && r->kind == KFIT_RECORD_WINNER && before > 0 ? r->ns_candidate / before : 1;
}

static int by_key(const void *pa, const void *pb)
{
    const struct kfit_report_key *a = *(const struct kfit_report_key *const *)pa,
                                 *b = *(const struct kfit_report_key *const *)pb;
    if (a->env_hard != b->env_hard)
        return a->env_hard < b->env_hard ? -1 : 1;
    return memcmp(a->key.bytes, b->key.bytes, sizeof a->key.bytes);
}

void cli_changes_weigh(struct cli_changes *c, const struct kfit_report *report)
{
    const struct kfit_report_key **rows = cli_alloc(NULL, report->count * sizeof *rows), **at;
    for (size_t i = 0; i < report->count; i++)
        rows[i] = &report->keys[i];
    qsort(rows, report->count, sizeof *rows, by_key);
    for (size_t i = 0; i < c->count; i++) {
        const struct kfit_record *r = cli_change_record(&c->item[i]);
        struct kfit_report_key wanted = {.env_hard = r->env_hard};
        const struct kfit_report_key *p = &wanted;
        memcpy(&wanted.key, r->key.bytes, r->key.h.len);
        at = bsearch(&p, rows, report->count, sizeof *rows, by_key);
        if (!at || !(*at)->calls)
            continue;
        c->item[i].share = (*at)->share;
        c->item[i].gain =
            (*at)->share * (cli_record_factor(c->item[i].from) - cli_record_factor(c->item[i].to));
    }
    free(rows);
}

double cli_changes_gain(const struct cli_changes *c)
{
    double sum = 0;
    for (size_t i = 0; i < c->count; i++)
        sum += c->item[i].left[0] ? 0 : c->item[i].gain;
    return sum;
}

void cli_change_print(const struct cli_change *c, bool heading, bool decisions)
{
    const struct kfit_record *r = cli_change_record(c);
    char ratio[48], share[16] = "-", gain[16] = "-", was[32] = "";
    if (heading)
        printf("%-9s %-19s %6s %7s  %-20s %s\n", "CHANGE", "RATIO [95 %]", "SHARE", "GAIN", "ORIGIN", "KEY");
    if (c->share >= 0) {
        snprintf(share, sizeof share, "%.1f%%", 100 * c->share);
        snprintf(gain, sizeof gain, "%+.2f%%", 100 * c->gain);
    }
    if (c->from && c->to && (c->kind == CLI_CHANGE_REPLACES || c->kind == CLI_CHANGE_CONFIRMS))
        snprintf(was, sizeof was, " (was %.2f)", c->from->ratio);
    printf("%-9s %-19s %6s %7s  %-20s %s%s\n", names[c->kind], cli_ratio(r->ratio, r->lo, r->hi, ratio),
           share, gain, SAFE(r->origin), cli_key(&r->key), was);
    if (c->ban)
        printf("          %s\n", cli_ban_text(c->ban));
    if (decisions && c->left[0])
        printf("          left out: %s\n", SAFE(c->left));
}

static void add_side(cJSON *e, const char *name, const struct kfit_record *r, const struct cli_outcome *o)
{
    char digest[65], env[KFIT_ENV_TEXT_MAX];
    cJSON *s = r ? cJSON_AddObjectToObject(e, name) : cJSON_AddNullToObject(e, name);
    if (!r)
        return;
    kfit_hex(r->source_digest, 32, digest);
    cJSON_AddStringToObject(s, "kind", r->kind == KFIT_RECORD_WINNER ? "winner" : "negative");
    cJSON_AddNumberToObject(s, "ratio", r->ratio);
    cJSON_AddNumberToObject(s, "lo", r->lo);
    cJSON_AddNumberToObject(s, "hi", r->hi);
    cJSON_AddStringToObject(s, "origin", SAFE(r->origin));
    cJSON_AddStringToObject(s, "approver", SAFE(r->approver));
    cJSON_AddStringToObject(s, "source_digest", digest);
    cJSON_AddStringToObject(s, "environment_soft",
                            cli_safe(cli_outcome_env(o, r->env_soft, env), sizeof env));
}

cJSON *cli_change_json(const struct cli_change *c, const struct cli_outcome *o)
{
    const struct kfit_record *r = cli_change_record(c);
    char env[KFIT_ENV_TEXT_MAX];
    cJSON *e = cJSON_CreateObject();
    cJSON_AddStringToObject(e, "key", cli_key(&r->key));
    cJSON_AddStringToObject(e, "change", names[c->kind]);
    cJSON_AddStringToObject(e, "kind", r->kind == KFIT_RECORD_WINNER ? "winner" : "negative");
    cJSON_AddNumberToObject(e, "ratio", r->ratio);
    cJSON_AddNumberToObject(e, "lo", r->lo);
    cJSON_AddNumberToObject(e, "hi", r->hi);
    cJSON_AddStringToObject(e, "origin", SAFE(r->origin));
    cJSON_AddStringToObject(e, "environment", cli_safe(cli_outcome_env(o, r->env_hard, env), sizeof env));
    if (c->share >= 0) {
        cJSON_AddNumberToObject(e, "share", c->share);
        cJSON_AddNumberToObject(e, "gain", c->gain);
    }
    add_side(e, "from", c->from, o);
    add_side(e, "to", c->to, o);
    if (c->ban)
        cJSON_AddStringToObject(e, "banned", cli_ban_text(c->ban));
    if (c->left[0])
        cJSON_AddStringToObject(e, "left_out", SAFE(c->left));
    return e;
}
