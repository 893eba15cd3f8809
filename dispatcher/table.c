/* The table of a generation: entries in one array, found through an array of indexes twice as long. Built
 * once by one thread, then only read. */
#include <stdio.h>
#include <string.h>

#include "kfit/generation.h"
#include "internal.h"

struct kfit_table {
    size_t room, count;
    uint32_t mask;
    uint32_t *index; /* entry + 1; 0: none */
    struct kfit_table_entry *entries;
    union kfit_key *far_keys; /* where a key is too long for its entry */
    size_t far_count;
    char (*origins)[KFIT_ORIGIN_MAX]; /* each once; [0] is "" */
    unsigned origin_count;
    const struct kfit_device *device;
    struct kfit_modules *modules;
};

enum { RECORDS_MAX = 1 << 20, ORIGINS_MAX = 256 };

/* ---- lookup ---- */

/* Where key is, or the free place where it would be. */
static uint32_t *place(const struct kfit_table *t, const union kfit_key *key, uint64_t hash)
{
    uint32_t at = (uint32_t)hash & t->mask;
    for (; t->index[at]; at = (at + 1) & t->mask) {
        const struct kfit_table_entry *e = &t->entries[t->index[at] - 1];
        if (e->hash == hash && kfit_short_key_equal(&e->key, e->len, key))
            break;
    }
    return &t->index[at];
}

const struct kfit_table_entry *kfit_table_find(const struct kfit_table *t, const union kfit_key *key,
                                               uint64_t hash)
{
    uint32_t i = t ? *place(t, key, hash) : 0;
    return i ? &t->entries[i - 1] : NULL;
}

size_t kfit_table_count(const struct kfit_table *t)
{
    return t ? t->count : 0;
}

const struct kfit_table_entry *kfit_table_at(const struct kfit_table *t, size_t i)
{
    return &t->entries[i];
}

void kfit_table_key(const struct kfit_table_entry *e, union kfit_key *key)
{
    memset(key, 0, sizeof *key);
    memcpy(key->bytes, e->len <= sizeof e->key.words ? (const void *)e->key.words : e->key.far_key->bytes,
           e->len);
}

const char *kfit_table_origin(const struct kfit_table *t, const struct kfit_table_entry *e)
{
    return t->origins[e->origin];
}

/* ---- making ---- */

/* Its index; 0 if there are too many. A generation has few. */
static uint8_t note_origin(struct kfit_table *t, const char *origin)
{
    unsigned i = 0;
    while (i < t->origin_count && strcmp(t->origins[i], origin))
        i++;
    if (i == ORIGINS_MAX)
        return 0;
    if (i == t->origin_count)
        snprintf(t->origins[t->origin_count++], KFIT_ORIGIN_MAX, "%s", origin);
    return (uint8_t)i;
}

/* The entry of key, new (all zero but for the key) if there was none; NULL when there is no room. */
static struct kfit_table_entry *enter(struct kfit_table *t, const union kfit_key *key)
{
    uint64_t hash = kfit_key_hash(key);
    uint32_t *at = place(t, key, hash);
    if (*at)
        return &t->entries[*at - 1];
    if (t->count == t->room)
        return NULL;
    struct kfit_table_entry *e = &t->entries[t->count++];
    *at = (uint32_t)t->count;
    e->hash = hash;
    e->len = key->h.len;
    if (e->len <= sizeof e->key.words) {
        memcpy(e->key.words, key->bytes, e->len);
    } else {
        union kfit_key *far_key = &t->far_keys[t->far_count++];
        memcpy(far_key->bytes, key->bytes, e->len);
        e->key.far_key = far_key;
    }
    return e;
}

/* What loading carries from record to record. */
struct loading {
    struct kfit_table *t;
    struct kfit_table_info *info;
    const struct kfit_dispatcher_params *params;
    const struct kfit_env *env;
    struct kfit_generation *generation;
    uint64_t soft_hash; /* last compared, with its outcome */
    bool soft_differs;
    uint32_t images;
    char problem[160]; /* the first */
};

static void fail(struct loading *l, const char *problem)
{
    if (!l->info->failed++)
        snprintf(l->problem, sizeof l->problem, "%.150s", problem);
}

static bool is_stale(struct loading *l, uint64_t soft_hash)
{
    char text[KFIT_ENV_TEXT_MAX];
    if (soft_hash == l->env->soft_hash)
        return false;
    if (soft_hash != l->soft_hash) {
        l->soft_hash = soft_hash;
        l->soft_differs =
            !kfit_generation_env(l->generation, soft_hash, text) || kfit_env_differs(l->env->soft, text);
    }
    return l->soft_differs;
}

/* Why a plan that might be loaded cannot be run. On host its workspace comes out of the dispatcher's own; on a GPU out of
 * the caller's, and a launch may fail: what one of several has already changed in place could not be taken back. */
static uint8_t unfit(const struct loading *l, const struct kfit_op *op, const struct kfit_record *r,
                     struct kfit_error *err)
{
    const size_t most =
        l->t->device == &kfit_device_host ? KFIT_HOST_WORKSPACE_BYTES / 2 : l->params->workspace_most;
    struct kfit_tensor out;
    op->tensor(&r->key, op->out_arg, &out);
    if (r->plan.workspace_bytes > most) {
        kfit_fail(err, KFIT_E_FULL, "%llu bytes of workspace, at most %zu are given",
                  (unsigned long long)r->plan.workspace_bytes, most);
        return KFIT_REASON_WORKSPACE;
    }
    const bool zero = r->plan.workspace_bytes && r->plan.workspace_init == KFIT_WS_ZERO;
    if (r->plan.launch_count > 1 && (out.dir == KFIT_INOUT || zero)) {
        kfit_fail(err, KFIT_E_UNSUPPORTED, "%u launches that %s", r->plan.launch_count,
                  zero ? "leave their workspace zero only together" : "update their output in place");
        return KFIT_REASON_LOAD_FAILED;
    }
    return KFIT_REASON_NONE;
}

static int take(void *ctx, const struct kfit_record *r, const char *problem)
{
    struct loading *l = ctx;
    const struct kfit_op *op = r ? kfit_op_of(&r->key) : NULL;
    if (!op || r->op_version != op->version) {
        fail(l, r ? "made for another version of its op" : problem);
        return 0;
    }
    struct kfit_table_entry *e = enter(l->t, &r->key);
    if (!e) {
        fail(l, "more records than the manifest says");
        return 0;
    }
    e->ratio = (float)r->ratio;
    if (r->kind == KFIT_RECORD_NEGATIVE) {
        e->reason = KFIT_REASON_NEGATIVE;
        l->info->negatives++;
        return 0;
    }
    e->origin = note_origin(l->t, r->origin);
    if (!kfit_allowed(l->params->allow, r->origin)) {
        e->reason = KFIT_REASON_POLICY;
        l->info->refused++;
        return 0;
    }
    e->stale = is_stale(l, r->env_soft);
    if (e->stale && l->params->strict) {
        e->reason = KFIT_REASON_ENV;
        l->info->stale++;
        return 0;
    }
    struct kfit_error err = {0};
    struct kfit_image image = {r->image, r->image_bytes, &r->plan};
    e->reason = unfit(l, op, r, &err);
    if (!e->reason && l->t->modules && l->t->device->add(l->t->modules, &image, op->nargs(&r->key), &err) != KFIT_OK)
        e->reason = KFIT_REASON_LOAD_FAILED;
    if (e->reason) {
        fail(l, err.text);
        return 0;
    }
    e->kernel.nargs = l->images++; /* until sealed: which image */
    l->info->winners++;
    l->info->stale += e->stale;
    size_t *workspace = &l->info->workspace[r->plan.workspace_init];
    if (*workspace < r->plan.workspace_bytes)
        *workspace = r->plan.workspace_bytes;
    return 0;
}

static enum kfit_status seal(struct kfit_table *t, uint32_t images, struct kfit_error *err)
{
    struct kfit_kernel *kernels = kfit_map(images * sizeof *kernels + 1);
    if (!kernels)
        return kfit_fail(err, KFIT_E_NOMEM, "dispatcher: no memory for %u kernels", images);
    enum kfit_status s = t->modules ? t->device->seal(t->modules, kernels, err) : KFIT_OK;
    for (size_t i = 0; s == KFIT_OK && i < t->count; i++)
        if (t->entries[i].reason == KFIT_REASON_NONE)
            t->entries[i].kernel = kernels[t->entries[i].kernel.nargs];
    kfit_unmap(kernels, images * sizeof *kernels + 1);
    return s;
}

static const char blanks[] = " \t\r\n";

static size_t count_words(const char *text)
{
    size_t n = 0;
    for (const char *p = text; p && *(p += strspn(p, blanks)); p += strcspn(p, blanks))
        n++;
    return n;
}

/* A ban that cannot be read might be meant for anything: then nothing runs. In a file, what follows a # is a
 * comment. */
static enum kfit_status ban(struct kfit_table *t, const char *where, const char *text,
                            struct kfit_table_info *info, struct kfit_error *err)
{
    for (const char *p = text; p && *(p += strspn(p, blanks)); p += strcspn(p, *p == '#' ? "\n" : blanks)) {
        if (*p == '#')
            continue;
        char word[KFIT_KEY_TEXT_MAX] = "";
        union kfit_key key;
        struct kfit_error why = {0};
        size_t n = strcspn(p, blanks);
        if (n < sizeof word)
            memcpy(word, p, n);
        if (kfit_key_parse(word, &key, &why) != KFIT_OK)
            return kfit_fail(err, KFIT_E_FORMAT, "%.100s: \"%.*s\" is not a key: %.150s", where,
                             (int)(n < 80 ? n : 80), p, why.text);
        struct kfit_table_entry *e = enter(t, &key);
        if (!e)
            return kfit_fail(err, KFIT_E_FULL, "%s: no room", where);
        info->banned += e->reason != KFIT_REASON_BANNED;
        e->reason = KFIT_REASON_BANNED;
    }
    return KFIT_OK;
}

static enum kfit_status make(struct kfit_table **out, size_t room, const struct kfit_device *device, bool asks_only,
                             struct kfit_error *err)
{
    size_t index = 16;
    while (index < 2 * room)
        index *= 2;
    struct kfit_table *t = kfit_map(sizeof *t);
    *out = t;
    if (!t)
        goto no_memory;
    t->room = room;
    t->device = device;
    t->mask = (uint32_t)(index - 1);
    t->index = kfit_map(index * sizeof *t->index);
    t->entries = kfit_map(room * sizeof *t->entries + 1);
    t->far_keys = kfit_map(room * sizeof *t->far_keys + 1);
    t->origins = kfit_map(ORIGINS_MAX * sizeof *t->origins);
    t->origin_count = 1;
    if (t->index && t->entries && t->far_keys && t->origins)
        return asks_only ? KFIT_OK : device->open(&t->modules, err);
no_memory:
    return kfit_fail(err, KFIT_E_NOMEM, "dispatcher: no memory for a table of %zu records", room);
}

void kfit_table_destroy(struct kfit_table *t)
{
    if (!t)
        return;
    kfit_unmap(t->index, (t->mask + (size_t)1) * sizeof *t->index);
    kfit_unmap(t->entries, t->room * sizeof *t->entries + 1);
    kfit_unmap(t->far_keys, t->room * sizeof *t->far_keys + 1);
    kfit_unmap(t->origins, ORIGINS_MAX * sizeof *t->origins);
    t->device->unload(t->modules);
    kfit_unmap(t, sizeof *t);
}

/* Which environment a generation was made for that has nothing for ours: the first, better one of our kind of device. */
struct elsewhere {
    struct kfit_generation *generation;
    char ours[16], text[KFIT_ENV_TEXT_MAX];
    bool same_device;
};

static int look_elsewhere(void *ctx, const struct kfit_record *r, const char *problem)
{
    struct elsewhere *e = ctx;
    char text[KFIT_ENV_TEXT_MAX], device[16];
    (void)problem;
    if (!r || !kfit_generation_env(e->generation, r->env_hard, text))
        return 0;
    e->same_device = kfit_env_get(text, "device", device, sizeof device) && !strcmp(device, e->ours);
    if (e->same_device || !e->text[0])
        memcpy(e->text, text, sizeof text);
    return e->same_device;
}

static const struct {
    enum kfit_status status;
    enum kfit_reason reason;
} reasons[] = {
    {KFIT_E_NOTFOUND, KFIT_REASON_NO_RECORD},
    {KFIT_E_ENV, KFIT_REASON_ENV},
    {KFIT_E_TRUST, KFIT_REASON_POLICY},
};

enum kfit_status kfit_table_load(struct kfit_table **out, struct kfit_table_info *info,
                                 const struct kfit_dispatcher_params *p, const char *host_bans,
                                 const struct kfit_device *device, enum kfit_reason *reason,
                                 struct kfit_error *err)
{
    struct kfit_generation *g = NULL;
    struct kfit_table *t = NULL;
    enum kfit_reason because = KFIT_REASON_LOAD_FAILED;
    *out = NULL;
    memset(info, 0, sizeof *info);
    enum kfit_status s = kfit_allow_check(p->allow, err);
    if (s != KFIT_OK) { /* nobody knows what may run */
        because = KFIT_REASON_POLICY;
        goto end;
    }
    s = kfit_generation_open_trusted(p->cache_dir, p->generation, p->trust, &g, err);
    if (s != KFIT_OK)
        goto end;
    const struct kfit_manifest *m = kfit_generation_manifest(g);
    info->generation = m->number;
    memcpy(info->digest, m->sha256, sizeof info->digest);
    s = make(&t,
             (m->records < RECORDS_MAX ? m->records : RECORDS_MAX) + count_words(p->bans) +
                 count_words(host_bans),
             device, p->asks_only, err);
    if (s != KFIT_OK)
        goto end;

    struct loading l = {.t = t, .info = info, .params = p, .env = p->env, .generation = g};
    s = kfit_generation_each(g, p->env->hard_hash, take, &l, err);
    if (s == KFIT_OK && !t->count && m->records) {
        struct elsewhere e = {.generation = g};
        kfit_env_get(p->env->hard, "device", e.ours, sizeof e.ours);
        kfit_generation_each(g, 0, look_elsewhere, &e, NULL);
        info->of_others = !e.same_device;
        s = kfit_fail(err, KFIT_E_ENV, "generation %llu is for %.180s and not for %.180s",
                      (unsigned long long)m->number, e.text[0] ? e.text : "another environment",
                      p->env->hard);
    }
    if (s == KFIT_OK)
        s = seal(t, l.images, err);
    if (s != KFIT_OK)
        goto end;
    if (l.problem[0])
        kfit_logf(&p->log, KFIT_LOG_WARN, "generation %llu: %u records not usable, the first: %s",
                  (unsigned long long)m->number, info->failed, l.problem);
    s = ban(t, "KFIT_BAN", p->bans, info, err);
    if (s == KFIT_OK)
        s = ban(t, "the bans of this host", host_bans, info, err);
    if (s != KFIT_OK)
        because = KFIT_REASON_POLICY;
end:
    kfit_generation_close(g);
    if (s == KFIT_OK) {
        *out = t;
        return s;
    }
    kfit_table_destroy(t);
    memset(info->workspace, 0, sizeof info->workspace);
    for (size_t i = 0; i < sizeof reasons / sizeof *reasons; i++)
        if (reasons[i].status == s)
            because = reasons[i].reason;
    *reason = because;
    return s;
}
