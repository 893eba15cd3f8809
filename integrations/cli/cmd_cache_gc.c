/* kfit cache gc: takes away generations, sources and receipts that nobody needs any more. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cache.h"

enum { GENERATIONS_MAX = 4096 };

struct gc {
    const char *dir;
    bool dry_run;
    cJSON *removed; /* NULL: as text */
    struct {
        uint64_t number;
        uint8_t sha256[32];
    } * all;
    uint64_t *keep;
    size_t all_count, keep_count, generations, files;
    uint64_t bytes;
    /* what is referred to by the staged set and by what is kept, sorted */
    uint8_t (*digests)[32];
    size_t digest_count;
};

static void keep(struct gc *g, uint64_t number)
{
    for (size_t i = 0; i < g->keep_count; i++)
        if (g->keep[i] == number)
            return;
    g->keep = cli_alloc(g->keep, (g->keep_count + 1) * sizeof *g->keep);
    g->keep[g->keep_count++] = number;
}

/* Keeps what text names: a number or a digest. False: no such generation is there. */
static bool keep_named(struct gc *g, const char *text)
{
    for (size_t i = 0; i < g->all_count; i++) {
        char number[24], digest[65];
        snprintf(number, sizeof number, "%llu", (unsigned long long)g->all[i].number);
        kfit_hex(g->all[i].sha256, 32, digest);
        if (!strcmp(text, number) || !strcmp(text, digest)) {
            keep(g, g->all[i].number);
            return true;
        }
    }
    return false;
}

/* <cache>/pins: a generation a line, # begins a comment. What servers elsewhere pin with KFIT_GENERATION cannot be
 * seen from here. */
static bool keep_pinned(struct gc *g)
{
    char path[4200], *text = NULL;
    size_t bytes, number = 0;
    struct kfit_error err = {0};
    snprintf(path, sizeof path, "%s/pins", g->dir);
    enum kfit_status s = cli_read_file(path, 1 << 20, &text, &bytes, &err);
    if (s != KFIT_OK)
        return s == KFIT_E_NOTFOUND || !cli_failed(NULL, s, &err);
    bool ok = true;
    for (char *save = NULL, *line = text; ok && line && line < text + bytes; line = save) {
        number++;
        if ((save = strchr(line, '\n')))
            *save++ = '\0';
        line[strcspn(line, "#")] = '\0';
        char *word = line + strspn(line, " \t\r");
        word[strcspn(word, " \t\r")] = '\0';
        bool name = (strlen(word) == 64 && strspn(word, "0123456789abcdef") == 64) ||
                    (*word && strspn(word, "0123456789") == strlen(word));
        if (*word && !name)
            ok = !cli_fail(
                "%s:%zu: \"%s\" is neither the number of a generation nor its digest; nothing is removed",
                cli_str(path), number, cli_str(word));
        else if (*word && !keep_named(g, word))
            cli_say("%s:%zu: no generation %s is there", cli_str(path), number, cli_str(word));
    }
    free(text);
    return ok;
}

/* What live processes of ours run; one that starts again or forks would load it again. */
static void keep_running(struct gc *g)
{
    struct cli_traces ts = {0};
    struct cli_list usual = {0};
    cli_traces_read(&ts, &usual);
    for (size_t i = 0; i < ts.count; i++) {
        char digest[65];
        const struct kfit_trace_header *h = kfit_trace_header(ts.item[i].t);
        kfit_hex(h->generation_digest, 32, digest);
        if (ts.item[i].alive && h->generation)
            keep_named(g, digest);
    }
    cli_traces_free(&ts);
}

static bool list_generations(struct gc *g)
{
    static uint64_t numbers[GENERATIONS_MAX];
    size_t n = kfit_generation_list(g->dir, numbers, GENERATIONS_MAX);
    if (n > GENERATIONS_MAX)
        n = GENERATIONS_MAX;
    g->all = cli_alloc(NULL, n * sizeof *g->all);
    for (size_t i = 0; i < n; i++) {
        struct kfit_manifest m;
        struct kfit_error err = {0};
        enum kfit_status s = kfit_manifest_read(g->dir, numbers[i], &m, &err);
        if (s != KFIT_OK)
            return !cli_failed(NULL, s, &err);
        g->all[g->all_count].number = m.number;
        memcpy(g->all[g->all_count++].sha256, m.sha256, sizeof m.sha256);
    }
    return true;
}

static void add_digest(struct gc *g, const uint8_t digest[32])
{
    if (!(g->digest_count & (g->digest_count + 1)) || !g->digests)
        g->digests = cli_alloc(g->digests, 2 * (g->digest_count + 1) * sizeof *g->digests);
    memcpy(g->digests[g->digest_count++], digest, 32);
}

static int by_digest(const void *a, const void *b)
{
    return memcmp(a, b, 32);
}

static int refer(void *ctx, const struct kfit_record *r, const char *problem)
{
    (void)problem;
    if (r)
        add_digest(ctx, r->source_digest);
    return 0;
}

/* What keeps a source or a receipt. A generation that cannot be read stops everything: what it refers to
 * is not known. */
static enum kfit_status find_references(struct gc *g, struct kfit_store *store, struct kfit_error *err)
{
    uint64_t current;
    uint8_t sha256[32];
    enum kfit_status s = kfit_generation_current(g->dir, &current, sha256, err);
    if (s == KFIT_OK)
        keep(g, current);
    for (size_t i = 0; i < g->keep_count && s == KFIT_OK; i++) {
        char which[24];
        struct kfit_generation *gen = NULL;
        snprintf(which, sizeof which, "%llu", (unsigned long long)g->keep[i]);
        s = kfit_generation_open(g->dir, which, &gen, err);
        if (s == KFIT_OK)
            s = kfit_generation_each(gen, 0, refer, g, err);
        kfit_generation_close(gen);
    }
    if (s == KFIT_OK && store)
        s = kfit_store_staged_each(store, 0, refer, g, err);
    if (g->digest_count)
        qsort(g->digests, g->digest_count, 32, by_digest);
    return s;
}

struct unused {
    const struct gc *g;
    uint8_t (*keys)[KFIT_STORE_KEY_MAX];
    size_t *key_bytes, count;
    uint64_t bytes;
};

/* In both tables the digest ends the key. */
static int note_unused(void *ctx, const void *key, size_t key_bytes, const void *value, size_t value_bytes,
                       const char *problem)
{
    struct unused *u = ctx;
    (void)value;
    if (problem || key_bytes < 32 || key_bytes > KFIT_STORE_KEY_MAX)
        return 0; /* for `kfit cache verify` */
    if (u->g->digest_count &&
        bsearch((const uint8_t *)key + key_bytes - 32, u->g->digests, u->g->digest_count, 32, by_digest))
        return 0;
    u->keys = cli_alloc(u->keys, (u->count + 1) * sizeof *u->keys);
    u->key_bytes = cli_alloc(u->key_bytes, (u->count + 1) * sizeof *u->key_bytes);
    memcpy(u->keys[u->count], key, key_bytes);
    u->key_bytes[u->count++] = key_bytes;
    u->bytes += value_bytes;
    return 0;
}

static enum kfit_status sweep_table(struct gc *g, struct kfit_store *store, enum kfit_table table,
                                    const char *name, cJSON *root, struct kfit_error *err)
{
    struct unused u = {.g = g};
    enum kfit_status s = kfit_store_each(store, table, NULL, 0, note_unused, &u, err);
    struct kfit_store_op *ops = cli_alloc(NULL, u.count * sizeof *ops);
    for (size_t i = 0; i < u.count; i++)
        ops[i] = (struct kfit_store_op){table, u.keys[i], u.key_bytes[i], NULL, 0};
    if (s == KFIT_OK && u.count && !g->dry_run)
        s = kfit_store_apply(store, ops, u.count, err);
    if (s == KFIT_OK && root)
        cJSON_AddNumberToObject(root, name, (double)u.count);
    else if (s == KFIT_OK && u.count)
        printf("%-9s %llu bytes in %zu %s of the store\n", g->dry_run ? "would go" : "removed",
               (unsigned long long)u.bytes, u.count, name);
    free(ops);
    free(u.keys);
    free(u.key_bytes);
    return s;
}

static void note_file(void *ctx, uint64_t number, const char *name, uint64_t bytes)
{
    struct gc *g = ctx;
    g->files++;
    g->bytes += bytes;
    g->generations += strstr(name, ".json") != NULL;
    if (g->removed) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "file", cli_str(name));
        cJSON_AddNumberToObject(o, "generation", (double)number);
        cJSON_AddNumberToObject(o, "bytes", (double)bytes);
        cJSON_AddItemToArray(g->removed, o);
    } else {
        printf("%-9s generations/%s, %llu bytes\n", g->dry_run ? "would go" : "removed", cli_str(name),
               (unsigned long long)bytes);
    }
}

int cli_cache_gc(int argc, char **argv)
{
    const char *cache = NULL;
    uint64_t keep_newest = 3;
    bool json = false;
    struct cli_list pins = {0}, none = {0};
    struct gc g = {0};
    struct kfit_store *store = NULL;
    struct kfit_error err = {0};
    char dir[4096], path[4200];
    int rc = CLI_FAILED;
    const struct cli_option options[] = {
        CLI_OPTION_CACHE(&cache),
        {"keep", 'k', CLI_COUNT, &keep_newest, "N", "the newest N generations (default: 3)"},
        {"pin", 'p', CLI_EACH, &pins, "GENERATION", "also this one, a number or digest; may be repeated"},
        {"dry-run", 'd', CLI_FLAG, &g.dry_run, NULL, "say what would go, and remove nothing"},
        CLI_OPTION_JSON(&json),
        {0},
    };
    cli_parse(argc, argv,
              &(struct cli_usage){
                  .args = "",
                  .doc = "Removes old generations, and sources and receipts to which nothing that stays "
                         "refers. The current "
                         "generation stays, what live processes here run, and what the file `pins` in the "
                         "cache names, one "
                         "a line: servers elsewhere that set KFIT_GENERATION cannot be seen from here.",
                  .options = options},
              &none);
    g.dir = cli_cache_dir(cache, dir, sizeof dir);
    cJSON *root = json ? cJSON_CreateObject() : NULL;
    g.removed = json ? cJSON_AddArrayToObject(root, "files") : NULL;
    /* first all that can fail */
    snprintf(path, sizeof path, "%s/store/data.mdb", dir);
    bool writes = !g.dry_run && !access(path, F_OK); /* none is made */
    enum kfit_status s = kfit_store_open(dir, writes ? KFIT_STORE_WRITE : KFIT_STORE_READ, &store, &err);
    if (s != KFIT_OK && s != KFIT_E_NOTFOUND) {
        cli_failed(dir, s, &err);
        goto out;
    }
    if (!list_generations(&g) || !keep_pinned(&g))
        goto out;
    for (size_t i = 0; i < pins.count; i++)
        if (!keep_named(&g, pins.item[i])) {
            cli_fail("--pin: no generation %s is there; nothing is removed", cli_str(pins.item[i]));
            goto out;
        }
    for (size_t i = 0; i < g.all_count && i < keep_newest; i++)
        keep(&g, g.all[g.all_count - 1 - i].number);
    keep_running(&g);
    s = find_references(&g, store, &err);
    if (s == KFIT_OK)
        s = kfit_generation_collect(&(struct kfit_collect_params){.dir = dir,
                                                                  .keep = g.keep,
                                                                  .keep_count = g.keep_count,
                                                                  .dry_run = g.dry_run,
                                                                  .fn = note_file,
                                                                  .ctx = &g},
                                    &err);
    if (s == KFIT_OK && store)
        s = sweep_table(&g, store, KFIT_TABLE_SOURCES, "sources", root, &err);
    if (s == KFIT_OK && store)
        s = sweep_table(&g, store, KFIT_TABLE_RECEIPTS, "receipts", root, &err);
    if (s != KFIT_OK) {
        cli_failed(dir, s, &err);
        goto out;
    }
    rc = CLI_OK;
    if (json) {
        cJSON_AddBoolToObject(root, "dry_run", g.dry_run);
        cli_json_print(root);
        root = NULL;
    }
    cli_say("%zu generations%s, %llu bytes in %zu files; %zu generations stay", g.generations,
            g.dry_run ? " would go" : " removed", (unsigned long long)g.bytes, g.files,
            g.all_count - g.generations);
out:
    cJSON_Delete(root);
    kfit_store_close(store);
    free(g.all);
    free(g.keep);
    free(g.digests);
    return rc;
}
