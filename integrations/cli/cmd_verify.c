/* kfit cache verify: reads everything there is, and says of each thing refused what, where, and what to do. */
#include <stdlib.h>
#include <string.h>

#include "kfit/receipt.h"
#include "signing.h"

enum { GENERATIONS_MAX = 4096 };

/* What to do about a problem of some kind in some part; the first row that fits. The messages themselves say
 * what and where, and what to do where only they can know it. */
enum part { GENERATION, RECORD, CURRENT, STORE, ENTRY };
static const struct {
    enum part part;
    enum kfit_status status; /* KFIT_OK: whatever it is */
    const char *todo;
} todos[] = {
    {GENERATION, KFIT_E_PERM,
     "servers refuse what others could have changed: correct owner and mode once you know that nobody did"},
    {GENERATION, KFIT_E_VERSION, "a newer kfit made it: update kfit here, or publish again with this one"},
    {GENERATION, KFIT_E_TRUST, "servers with this KFIT_TRUST keep the original instead"},
    {GENERATION, KFIT_E_UNSUPPORTED, "install what is missing and verify again"},
    {GENERATION, KFIT_E_NOMEM, "try again with more memory"},
    {GENERATION, KFIT_OK,
     "servers that should load it keep the original: restore its two files from a copy, or make another "
     "generation "
     "current with `kfit rollback N`"},
    {RECORD, KFIT_E_VERSION,
     "its key keeps the original; a kfit of that version serves it, or tune and approve the key again"},
    {RECORD, KFIT_OK,
     "its key keeps the original: tune and approve the key again, the other records are not affected"},
    {CURRENT, KFIT_OK, "`kfit rollback N` makes a generation that verifies current"},
    {STORE, KFIT_E_PERM, "correct owner and mode; nothing in the store is lost"},
    {STORE, KFIT_E_BUSY, "wait for that process, then verify again"},
    {STORE, KFIT_E_VERSION, "a newer kfit made it: update kfit here"},
    {STORE, KFIT_E_UNSUPPORTED, "install what is missing and verify again"},
    {STORE, KFIT_OK, "servers do not need it; restore it from a copy, or move it away and tune again"},
    {ENTRY, KFIT_OK, "nothing else is affected: tuning or judging the key again writes a new one"},
};

static const char *todo_of(enum part part, enum kfit_status s)
{
    size_t i = 0;
    while (todos[i].part != part || (todos[i].status != s && todos[i].status != KFIT_OK))
        i++;
    return todos[i].todo;
}

struct check {
    cJSON *problems; /* NULL: as text */
    const char *where;
    struct kfit_generation *generation; /* whose records are read */
    size_t entries, bad, is_signed;
};

static void problem(struct check *c, enum part part, enum kfit_status s, const char *what)
{
    const char *text = cli_str(what && *what ? what : kfit_status_str(s)), *todo = todo_of(part, s);
    c->bad++;
    if (c->problems) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "where", c->where);
        cJSON_AddStringToObject(o, "problem", text);
        cJSON_AddStringToObject(o, "status", kfit_status_str(s));
        cJSON_AddStringToObject(o, "todo", todo);
        cJSON_AddItemToArray(c->problems, o);
    } else {
        printf("%s: %s\n    %s\n", c->where, text, todo);
    }
}

static int check_record(void *ctx, const struct kfit_record *r, const char *why)
{
    struct check *c = ctx;
    char text[KFIT_ENV_TEXT_MAX], what[KFIT_KEY_TEXT_MAX + 80];
    c->entries++;
    if (!r)
        problem(c, RECORD, KFIT_E_FORMAT, why);
    else if (!kfit_generation_env(c->generation, r->env_hard, text)) {
        snprintf(what, sizeof what, "record: the text of its environment is missing: %s", cli_key(&r->key));
        problem(c, RECORD, KFIT_E_FORMAT, what);
    }
    return 0;
}

/* A signature that is there must be right, whoever is trusted; whether one must be there, trust says. */
static void check_signature(struct check *c, const char *dir, const struct kfit_trust *trust,
                            const struct kfit_manifest *m)
{
    struct kfit_error err = {0};
    char path[4096 + 48];
    c->is_signed += m->is_signed;
    if (!m->is_signed && !trust)
        return;
    snprintf(path, sizeof path, "%s/generations/%llu.json", dir, (unsigned long long)m->number);
    enum kfit_status s = kfit_manifest_trusted(m, trust, path, NULL, &err);
    if (s != KFIT_OK)
        problem(c, GENERATION, s, err.text);
}

static void verify_generation(struct check *c, const char *dir, const struct kfit_trust *trust,
                              uint64_t number)
{
    char name[24], where[48];
    struct kfit_error err = {0};
    size_t before = c->entries;
    snprintf(name, sizeof name, "%llu", (unsigned long long)number);
    snprintf(where, sizeof where, "generation %s", name);
    c->where = where;
    enum kfit_status s = kfit_generation_open(dir, name, &c->generation, &err);
    if (s != KFIT_OK) {
        problem(c, GENERATION, s, err.text);
        return;
    }
    const struct kfit_manifest *m = kfit_generation_manifest(c->generation);
    check_signature(c, dir, trust, m);
    s = kfit_generation_each(c->generation, 0, check_record, c, &err);
    if (s != KFIT_OK)
        problem(c, GENERATION, s, err.text);
    else if (c->entries - before != m->records)
        problem(c, GENERATION, KFIT_E_FORMAT, "holds another number of records than its manifest says");
    kfit_generation_close(c->generation);
}

static void check_current(struct check *c, const char *dir, const uint64_t *numbers, size_t n)
{
    uint64_t current;
    struct kfit_error err = {0};
    enum kfit_status s = kfit_generation_current(dir, &current, (uint8_t[32]){0}, &err);
    bool listed = false;
    c->where = "current";
    for (size_t i = 0; i < n; i++)
        listed |= numbers[i] == current;
    if (s != KFIT_OK && (s != KFIT_E_NOTFOUND || n))
        problem(c, CURRENT, s, err.text);
    else if (s == KFIT_OK && !listed)
        problem(c, CURRENT, KFIT_E_NOTFOUND, "names a generation that is not there");
}

static int check_entry(void *ctx, const void *key, size_t key_bytes, const void *value, size_t value_bytes,
                       const char *why)
{
    struct check *c = ctx;
    (void)key, (void)key_bytes, (void)value, (void)value_bytes;
    c->entries++;
    if (why)
        problem(c, ENTRY, KFIT_E_FORMAT, why);
    return 0;
}

static int check_staged(void *ctx, const void *key, size_t key_bytes, const void *value, size_t value_bytes,
                        const char *why)
{
    struct kfit_record r;
    struct kfit_error err = {0};
    check_entry(ctx, key, key_bytes, value, value_bytes, why);
    enum kfit_status s = why ? KFIT_OK : kfit_record_decode(value, value_bytes, &r, &err);
    if (s != KFIT_OK)
        problem(ctx, ENTRY, s, err.text);
    return 0;
}

static int check_receipt(void *ctx, const void *key, size_t key_bytes, const void *value, size_t value_bytes,
                         const char *why)
{
    struct kfit_receipt *r = cli_alloc(NULL, sizeof *r);
    struct kfit_error err = {0};
    check_entry(ctx, key, key_bytes, value, value_bytes, why);
    enum kfit_status s = why ? KFIT_OK : kfit_receipt_from_json(value, value_bytes, r, &err);
    if (s != KFIT_OK)
        problem(ctx, ENTRY, s, err.text);
    free(r);
    return 0;
}

static void verify_store(struct check *c, const char *dir)
{
    static const char *const names[] = {
#define KFIT_X(name, str, text) "store, table " str,
        KFIT_TABLE_LIST(KFIT_X)
#undef KFIT_X
    };
    struct kfit_store *store;
    struct kfit_error err = {0};
    c->where = "store";
    enum kfit_status s = kfit_store_open(dir, KFIT_STORE_READ, &store, &err);
    if (s == KFIT_E_NOTFOUND)
        return;
    if (s != KFIT_OK) {
        problem(c, STORE, s, err.text);
        return;
    }
    for (unsigned t = 0; t < KFIT_TABLE_COUNT; t++) {
        c->where = names[t];
        s = kfit_store_each(store, t, NULL, 0,
                            t == KFIT_TABLE_STAGED                              ? check_staged
                            : t == KFIT_TABLE_RECEIPTS || t == KFIT_TABLE_EVALS ? check_receipt
                                                                                : check_entry,
                            c, &err);
        if (s != KFIT_OK && s != KFIT_E_NOTFOUND)
            problem(c, STORE, s, err.text);
    }
    kfit_store_close(store);
}

int cli_cache_verify(int argc, char **argv)
{
    const char *cache = NULL;
    bool json = false;
    struct cli_list none = {0};
    char dir[4096];
    static uint64_t numbers[GENERATIONS_MAX];
    struct kfit_trust trust;
    struct check c = {0};
    const struct cli_option options[] = {CLI_OPTION_CACHE(&cache), CLI_OPTION_JSON(&json), {0}};
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = "",
                  .doc =
                      "Reads every generation and the whole store, and explains each problem found: what, "
                      "where, what to do. Signatures must be right, and with KFIT_TRUST they must be there "
                      "and by a trusted key.",
                  .options = options},
              &none);
    if (cli_trust() && !cli_trust_read(&trust))
        return CLI_FAILED;
    cli_cache_dir(cache, dir, sizeof dir);
    c.problems = json ? cJSON_CreateArray() : NULL;
    size_t n = kfit_generation_list(dir, numbers, GENERATIONS_MAX);
    for (size_t i = 0; i < n && i < GENERATIONS_MAX; i++)
        verify_generation(&c, dir, cli_trust() ? &trust : NULL, numbers[i]);
    check_current(&c, dir, numbers, n < GENERATIONS_MAX ? n : GENERATIONS_MAX);
    verify_store(&c, dir);
    if (json)
        cli_json_print(c.problems);
    cli_say("%s: %zu generations, %zu of them signed, %zu entries read, %zu problems", cli_str(dir), n,
            c.is_signed, c.entries, c.bad);
    return c.bad ? CLI_FAILED : CLI_OK;
}
