#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "policy.h"

enum { POLICY_BYTES_MAX = 64 << 10 };

bool cli_rules_need_shares(const struct cli_rules *rules)
{
    return rules->min_share_percent > 0;
}

bool cli_origin_matches(const char *origin, const char *pattern)
{
    size_t n = strlen(pattern);
    return n && pattern[n - 1] == '*' ? !strncmp(origin, pattern, n - 1) : !strcmp(origin, pattern);
}

bool cli_origin_pattern(const char *text)
{
    size_t n = strlen(text);
    return n && strcspn(text, "*") >= n - 1 && n < KFIT_ORIGIN_MAX;
}

/* ---- the file ---- */

static bool positive(const cJSON *item, double max, double *to)
{
    *to = item->valuedouble;
    return cJSON_IsNumber(item) && *to > 0 && *to <= max;
}

static bool version(struct cli_rules *r, const cJSON *item)
{
    (void)r;
    return cJSON_IsNumber(item) && item->valuedouble == 1;
}

static bool min_ratio(struct cli_rules *r, const cJSON *item)
{
    return positive(item, 1e6, &r->min_ratio);
}

static bool min_share(struct cli_rules *r, const cJSON *item)
{
    return positive(item, 100, &r->min_share_percent);
}

static bool max_keys(struct cli_rules *r, const cJSON *item)
{
    double n;
    if (!positive(item, 1e9, &n) || n != floor(n))
        return false;
    r->max_keys = (uint64_t)n;
    return true;
}

static bool origins(struct cli_rules *r, const cJSON *item)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, item)
    {
        const char *text = cJSON_GetStringValue(one);
        if (!text || !cli_origin_pattern(text))
            return false;
        cli_list_add(&r->origins, strdup(text));
    }
    return cJSON_IsArray(item) && r->origins.count;
}

static const struct {
    const char *name;
    bool (*take)(struct cli_rules *r, const cJSON *item);
    const char *expected;
} fields[] = {
    {"kfit_policy", version, "1, the version of policies that this kfit reads"},
    {"min_ratio", min_ratio, "a number above 0"},
    {"min_share_percent", min_share, "a number above 0, at most 100"},
    {"origins", origins, "a list of one or more origins, each a text with a * at its end or none"},
    {"max_keys", max_keys, "a whole number above 0"},
};
enum { FIELDS = sizeof fields / sizeof *fields };

bool cli_rules_read(struct cli_rules *rules, const char *path)
{
    char *text = NULL, known[200] = "";
    size_t bytes;
    struct kfit_error err = {0};
    unsigned seen = 0;
    bool ok = false;
    cJSON *root = NULL;
    const cJSON *item;
    enum kfit_status s = cli_read_file(path, POLICY_BYTES_MAX, &text, &bytes, &err);
    *rules = (struct cli_rules){.from = path};
    if (s != KFIT_OK)
        return !cli_failed("--policy", s, &err);
    const char *end = NULL;
    root = cJSON_ParseWithLengthOpts(text, bytes + 1, &end, true); /* with the NUL: nothing may follow */
    if (!cJSON_IsObject(root)) {
        cli_fail("%s: not one JSON object (byte %td); see `man kfit-approve` or `kfit approve --help`",
                 cli_str(path), root || !end ? 0 : end - text);
        goto out;
    }
    for (unsigned i = 0; i < FIELDS; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", i ? ", " : "", fields[i].name);
    cJSON_ArrayForEach(item, root)
    {
        unsigned f = 0;
        while (f < FIELDS && strcmp(fields[f].name, item->string))
            f++;
        if (f == FIELDS)
            cli_fail("%s: \"%s\" is no rule; there are %s", cli_str(path), cli_str(item->string), known);
        else if (seen & 1u << f)
            cli_fail("%s: \"%s\" is there twice", cli_str(path), fields[f].name);
        else if (!fields[f].take(rules, item))
            cli_fail("%s: \"%s\" must be %s", cli_str(path), fields[f].name, fields[f].expected);
        else {
            seen |= 1u << f;
            continue;
        }
        goto out;
    }
    ok = seen & 1;
    if (!ok)
        cli_fail("%s: \"kfit_policy\" is missing; it must be %s", cli_str(path), fields[0].expected);
out:
    cJSON_Delete(root);
    free(text);
    return ok;
}

/* ---- the rules ---- */

/* What a rule is called where it was given. */
static const char *called(const struct cli_rules *r, const char *option, const char *field, char buf[64])
{
    if (r->from)
        snprintf(buf, 64, "%s of the policy", field);
    else
        snprintf(buf, 64, "%s", option);
    return buf;
}

/* A kernel comes in: the only kind of change that rules are about. */
static bool comes_in(const struct cli_change *c)
{
    return c->to && c->to->kind == KFIT_RECORD_WINNER;
}

static bool of_any(const struct cli_list *origins, const char *origin)
{
    for (size_t i = 0; i < origins->count; i++)
        if (cli_origin_matches(origin, origins->item[i]))
            return true;
    return !origins->count;
}

static void leave(const struct cli_rules *r, struct cli_change *c)
{
    /* of the original: a winner may have had to beat an earlier winner */
    double scale =
               c->to->ns_generic > 0 && c->to->ns_incumbent > 0 ? c->to->ns_generic / c->to->ns_incumbent : 1,
           lo = c->to->lo * scale;
    char rule[64];
    size_t n = sizeof c->left;
    if (lo < r->min_ratio)
        snprintf(c->left, n, "%.2f, the lower end of its ratio to the original, is below %s %g", lo,
                 called(r, "--min-ratio", "min_ratio", rule), r->min_ratio);
    else if (!of_any(&r->origins, c->to->origin))
        snprintf(c->left, n, "its origin is none of %s", called(r, "--origin", "origins", rule));
    else if (r->min_share_percent > 0 && c->share < 0)
        snprintf(c->left, n, "not in the traces, so below %s %g",
                 called(r, "--min-share", "min_share_percent", rule), r->min_share_percent);
    else if (r->min_share_percent > 0 && 100 * c->share < r->min_share_percent)
        snprintf(c->left, n, "its share, %.3f %%, is below %s %g", 100 * c->share,
                 called(r, "--min-share", "min_share_percent", rule), r->min_share_percent);
}

/* Most gain first; where that is not known, most time saved per call. */
static int by_gain(const void *pa, const void *pb)
{
    const struct cli_change *a = *(struct cli_change *const *)pa, *b = *(struct cli_change *const *)pb;
    if (a->gain != b->gain)
        return a->gain < b->gain ? 1 : -1;
    double x = a->to->ns_incumbent - a->to->ns_candidate, y = b->to->ns_incumbent - b->to->ns_candidate;
    return x != y ? (x < y ? 1 : -1) : a < b ? -1 : a > b;
}

void cli_rules_apply(const struct cli_rules *r, struct cli_changes *c)
{
    struct cli_change **in = cli_alloc(NULL, c->count * sizeof *in);
    char rule[64];
    size_t n = 0;
    for (size_t i = 0; i < c->count; i++) {
        struct cli_change *one = &c->item[i];
        if (comes_in(one) && !one->left[0])
            leave(r, one);
        if (comes_in(one) && !one->left[0] && one->kind != CLI_CHANGE_CONFIRMS)
            in[n++] = one;
    }
    if (r->max_keys && n > r->max_keys) {
        qsort(in, n, sizeof *in, by_gain);
        for (size_t i = r->max_keys; i < n; i++)
            snprintf(in[i]->left, sizeof in[i]->left, "%s %llu: others bring more",
                     called(r, "--max-keys", "max_keys", rule), (unsigned long long)r->max_keys);
    }
    free(in);
}
