/* The header of a candidate: JSON in the first comment, checked field by field against a table of what may be
 * there. Everything is validated once, at parsing; resolving only evaluates. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "kfit/candidate.h"

#include "candidate_private.h"
#include "expr.h"
#include "gate0.h"

#define HEADER_BYTES_MAX (16u << 10)
#define NESTING_MAX      8
#define KNOB_LIMIT       1000000000

/* Macros of the harness beside the op's dimensions and those that kfit_host.h defines. */
static const char *const reserved[] = {"TYPE", "VL_BYTES", "VL32", "VL64", "VREGS",
                                       "L1",   "L2",       "SM",   "SMS",  "SMEM"};

/* ---- small checks ---- */

static enum kfit_status bad(struct kfit_error *err, const char *field, const char *expected)
{
    return kfit_fail(err, KFIT_E_FORMAT, "candidate header: \"%.40s\": expected %s", field, expected);
}

static bool identifier(const char *s, size_t max, bool upper)
{
    size_t n = strspn(s, upper ? "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"
                               : "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_abcdefghijklmnopqrstuvwxyz");
    return n && n < max && !s[n] && (*s < '0' || *s > '9') && (!upper || *s != '_');
}

static bool header_defines(const char *name)
{
    char text[64];
    int n = snprintf(text, sizeof text, "define KFIT_%s", name);
    for (const char *p = kfit_host_header; (p = strstr(p, text)); p += n)
        if (!strchr("ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_", p[n]) || !p[n])
            return true;
    return false;
}

static bool whole(const cJSON *j, int64_t *out)
{
    if (!cJSON_IsNumber(j) || !(j->valuedouble >= -0x1p53 && j->valuedouble <= 0x1p53) ||
        j->valuedouble != (double)(int64_t)j->valuedouble)
        return false;
    *out = (int64_t)j->valuedouble;
    return true;
}

/* Takes an expression, given as text or as a whole number. */
static enum kfit_status take_expr(const cJSON *j, const char *field, char **out, struct kfit_error *err)
{
    char number[32];
    const char *text = cJSON_GetStringValue(j);
    int64_t v;
    if (whole(j, &v)) {
        snprintf(number, sizeof number, "%lld", (long long)v);
        text = number;
    }
    if (!text)
        return bad(err, field, "an expression or a whole number");
    enum kfit_status s = kfit_expr_eval(text, NULL, 0, &v, err);
    if (s == KFIT_OK && !(*out = strdup(text)))
        s = kfit_fail(err, KFIT_E_NOMEM, "candidate header: out of memory");
    return s;
}

static enum kfit_status take_dims(const cJSON *j, const char *field, int n, char *out[], struct kfit_error *err)
{
    if (!cJSON_IsArray(j) || cJSON_GetArraySize(j) != n)
        return bad(err, field, n == 3 ? "an array of three expressions" : "an array of two expressions, rows and columns");
    enum kfit_status s = KFIT_OK;
    for (int i = 0; s == KFIT_OK && i < n; i++)
        s = take_expr(cJSON_GetArrayItem(j, i), field, &out[i], err);
    return s;
}

/* ---- the fields ---- */

typedef enum kfit_status take_fn(struct kfit_candidate *c, const cJSON *j, void *object,
                                 struct kfit_error *err);

struct field {
    const char *name;
    take_fn *take;
    bool required, cuda_only;
};

/* Every member of j must be in fields, once; required ones must be there. */
static enum kfit_status take_object(struct kfit_candidate *c, const cJSON *j, const char *what,
                                    const struct field *fields, size_t n, void *object,
                                    struct kfit_error *err)
{
    unsigned seen = 0;
    const cJSON *item;
    if (!cJSON_IsObject(j))
        return bad(err, what, "an object");
    cJSON_ArrayForEach(item, j)
    {
        size_t i = 0;
        while (i < n && strcmp(fields[i].name, item->string))
            i++;
        if (i == n)
            return kfit_fail(err, KFIT_E_FORMAT, "candidate header: %s has an unknown field \"%.40s\"", what,
                             item->string);
        if (seen & 1u << i)
            return kfit_fail(err, KFIT_E_FORMAT, "candidate header: %s has \"%s\" twice", what, item->string);
        seen |= 1u << i;
    }
    for (size_t i = 0; i < n; i++) {
        if (!(seen & 1u << i) && fields[i].required)
            return kfit_fail(err, KFIT_E_FORMAT, "candidate header: %s needs a field \"%s\"", what,
                             fields[i].name);
        if (!(seen & 1u << i))
            continue;
        if (fields[i].cuda_only && strcmp(c->device, "cuda"))
            return kfit_fail(err, KFIT_E_FORMAT, "candidate header: \"%s\" has no meaning on device \"%s\"",
                             fields[i].name, c->device);
        enum kfit_status s =
            fields[i].take(c, cJSON_GetObjectItemCaseSensitive(j, fields[i].name), object, err);
        if (s != KFIT_OK)
            return s;
    }
    return KFIT_OK;
}

static enum kfit_status take_op(struct kfit_candidate *c, const cJSON *j, void *object,
                                struct kfit_error *err)
{
    const char *s = cJSON_GetStringValue(j);
    (void)object;
    c->op = s ? kfit_op_by_name(s, strlen(s)) : NULL;
    return c->op ? KFIT_OK : bad(err, "op", "the name of an op kfit knows, such as \"gemm\"");
}

static enum kfit_status take_device(struct kfit_candidate *c, const cJSON *j, void *object,
                                    struct kfit_error *err)
{
    const char *s = cJSON_GetStringValue(j);
    (void)object;
    if (!s || (strcmp(s, "host") && strcmp(s, "cuda")))
        return bad(err, "device", "\"host\" or \"cuda\"");
    snprintf(c->device, sizeof c->device, "%s", s);
    return KFIT_OK;
}

static enum kfit_status take_name(struct kfit_candidate *c, const cJSON *j, void *object,
                                  struct kfit_error *err)
{
    const char *s = cJSON_GetStringValue(j);
    (void)object;
    if (!s || !*s || strlen(s) >= sizeof c->name ||
        s[strspn(s, "abcdefghijklmnopqrstuvwxyz"
                    "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.")])
        return bad(err, "name", "letters, digits and _-., fewer than 64");
    snprintf(c->name, sizeof c->name, "%s", s);
    return KFIT_OK;
}

/* "arch" belongs to the cuda compiler; only its place is checked here. */
static enum kfit_status take_later(struct kfit_candidate *c, const cJSON *j, void *object,
                                   struct kfit_error *err)
{
    (void)c, (void)j, (void)object, (void)err;
    return KFIT_OK;
}

static enum kfit_status take_knobs(struct kfit_candidate *c, const cJSON *j, void *object,
                                   struct kfit_error *err)
{
    (void)object;
    if (!cJSON_IsObject(j) || cJSON_GetArraySize(j) > KFIT_KNOBS_MAX)
        return bad(err, "knobs", "an object of at most 16 knobs, as in {\"NV\":[1,2,4]}");
    union kfit_key any = {.h = {.op = (uint8_t)c->op->id}};
    struct kfit_dim dims[KFIT_DIMS_MAX];
    unsigned ndims = c->op->dims(&any, dims); /* for the names alone */
    const cJSON *item, *value;
    cJSON_ArrayForEach(item, j)
    {
        struct kfit_knob *k = &c->knobs[c->knob_count];
        if (!identifier(item->string, sizeof k->name, true))
            return bad(err, item->string, "a knob name of capital letters, digits and _");
        bool taken = header_defines(item->string);
        for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
            taken |= !strcmp(reserved[i], item->string);
        for (unsigned i = 0; i < ndims; i++)
            taken |= !strcmp(dims[i].name, item->string);
        for (unsigned i = 0; i < c->knob_count; i++)
            taken |= !strcmp(c->knobs[i].name, item->string);
        if (taken)
            return bad(err, item->string, "a knob name that is not taken");
        if (!cJSON_IsArray(item))
            return bad(err, item->string, "an array of whole numbers");
        cJSON_ArrayForEach(value, item)
        {
            if (k->count == KFIT_KNOB_VALUES_MAX || !whole(value, &k->values[k->count]) ||
                k->values[k->count] > KNOB_LIMIT || k->values[k->count] < -KNOB_LIMIT)
                return bad(err, item->string, "at most 32 whole numbers up to 1000000000");
            k->count++;
        }
        if (!k->count)
            return bad(err, item->string, "at least one value");
        snprintf(k->name, sizeof k->name, "%s", item->string);
        c->knob_count++;
    }
    return KFIT_OK;
}

/* As kfit_choice_format writes them. */
static enum kfit_status take_starts(struct kfit_candidate *c, const cJSON *j, void *object, struct kfit_error *err)
{
    const cJSON *item;
    (void)object;
    if (!cJSON_IsArray(j) || cJSON_GetArraySize(j) > KFIT_STARTS_MAX)
        return bad(err, "starts", "an array of at most 32 choices, as in [\"NV=1\", \"NV=4\"]");
    cJSON_ArrayForEach(item, j)
    {
        const char *text = cJSON_GetStringValue(item);
        enum kfit_status s = text ? kfit_choice_parse(c, text, &c->starts[c->start_count], err)
                                  : bad(err, "starts", "a text that gives every knob one of its values");
        if (s != KFIT_OK)
            return s;
        c->start_count++;
    }
    return KFIT_OK;
}

static enum kfit_status take_require(struct kfit_candidate *c, const cJSON *j, void *object,
                                     struct kfit_error *err)
{
    const cJSON *item;
    (void)object;
    if (!cJSON_IsArray(j) || cJSON_GetArraySize(j) > KFIT_REQUIRES_MAX)
        return bad(err, "require", "an array of at most 16 expressions");
    enum kfit_status s = KFIT_OK;
    cJSON_ArrayForEach(item, j)
    {
        if (s == KFIT_OK)
            s = take_expr(item, "require", &c->requires[c->require_count], err);
        if (s == KFIT_OK)
            c->require_count++;
    }
    return s;
}

static enum kfit_status take_bytes(struct kfit_candidate *c, const cJSON *j, void *object,
                                   struct kfit_error *err)
{
    (void)object;
    return take_expr(j, "bytes", &c->workspace, err);
}

static enum kfit_status take_init(struct kfit_candidate *c, const cJSON *j, void *object,
                                  struct kfit_error *err)
{
    const char *s = cJSON_GetStringValue(j);
    (void)object;
    if (!s || (strcmp(s, "scratch") && strcmp(s, "zero")))
        return bad(err, "init", "\"scratch\" or \"zero\"");
    c->workspace_init = *s == 'z' ? KFIT_WS_ZERO : KFIT_WS_SCRATCH;
    return KFIT_OK;
}

static enum kfit_status take_workspace(struct kfit_candidate *c, const cJSON *j, void *object,
                                       struct kfit_error *err)
{
    static const struct field fields[] = {{"bytes", take_bytes, true, false},
                                          {"init", take_init, false, false}};
    return take_object(c, j, "workspace", fields, 2, object, err);
}

static enum kfit_status take_entry(struct kfit_candidate *c, const cJSON *j, void *object,
                                   struct kfit_error *err)
{
    struct kfit_candidate_launch *l = object;
    const char *s = cJSON_GetStringValue(j);
    (void)c;
    if (!s || !identifier(s, sizeof l->entry, false))
        return bad(err, "entry", "the name of a function");
    snprintf(l->entry, sizeof l->entry, "%s", s);
    return KFIT_OK;
}

static enum kfit_status take_grid(struct kfit_candidate *c, const cJSON *j, void *object,
                                  struct kfit_error *err)
{
    (void)c;
    return take_dims(j, "grid", 3, ((struct kfit_candidate_launch *)object)->grid, err);
}

static enum kfit_status take_block(struct kfit_candidate *c, const cJSON *j, void *object,
                                   struct kfit_error *err)
{
    (void)c;
    return take_dims(j, "block", 3, ((struct kfit_candidate_launch *)object)->block, err);
}

static enum kfit_status take_cluster(struct kfit_candidate *c, const cJSON *j, void *object,
                                     struct kfit_error *err)
{
    (void)c;
    return take_dims(j, "cluster", 3, ((struct kfit_candidate_launch *)object)->cluster, err);
}

static enum kfit_status take_smem(struct kfit_candidate *c, const cJSON *j, void *object,
                                  struct kfit_error *err)
{
    (void)c;
    return take_expr(j, "smem", &((struct kfit_candidate_launch *)object)->smem, err);
}

static enum kfit_status take_cooperative(struct kfit_candidate *c, const cJSON *j, void *object,
                                         struct kfit_error *err)
{
    (void)c;
    if (!cJSON_IsBool(j))
        return bad(err, "cooperative", "true or false");
    ((struct kfit_candidate_launch *)object)->cooperative = cJSON_IsTrue(j);
    return KFIT_OK;
}

static enum kfit_status take_launches(struct kfit_candidate *c, const cJSON *j, void *object,
                                      struct kfit_error *err)
{
    static const struct field fields[] = {
        {"entry", take_entry, true, false}, {"grid", take_grid, false, true},
        {"block", take_block, false, true}, {"cluster", take_cluster, false, true},
        {"smem", take_smem, false, true},   {"cooperative", take_cooperative, false, true},
    };
    int max = strcmp(c->device, "host") ? KFIT_LAUNCHES_MAX : 1, n = cJSON_GetArraySize(j);
    const cJSON *item;
    (void)object;
    if (!cJSON_IsArray(j) || n < 1 || n > max)
        return kfit_fail(err, KFIT_E_FORMAT,
                         "candidate header: \"launches\": expected an array of 1 to %d on %s", max,
                         c->device);
    enum kfit_status s = KFIT_OK;
    cJSON_ArrayForEach(item, j) if (s == KFIT_OK) s = take_object(
        c, item, "launch", fields, sizeof fields / sizeof *fields, &c->launches[c->launch_count++], err);
    return s;
}

static enum kfit_status take_arg(struct kfit_candidate *c, const cJSON *j, void *object, struct kfit_error *err)
{
    const char *s = cJSON_GetStringValue(j);
    struct kfit_candidate_map *m = object;
    for (m->arg = 0; s && c->op->arg_names[m->arg]; m->arg++)
        if (!strcmp(c->op->arg_names[m->arg], s))
            return KFIT_OK;
    return bad(err, "arg", "the name of one of the op's arguments");
}

static enum kfit_status take_box(struct kfit_candidate *c, const cJSON *j, void *object, struct kfit_error *err)
{
    (void)c;
    return take_dims(j, "box", 2, ((struct kfit_candidate_map *)object)->box, err);
}

static enum kfit_status take_swizzle(struct kfit_candidate *c, const cJSON *j, void *object, struct kfit_error *err)
{
    (void)c;
    return take_expr(j, "swizzle", &((struct kfit_candidate_map *)object)->swizzle, err);
}

static enum kfit_status take_tensormaps(struct kfit_candidate *c, const cJSON *j, void *object, struct kfit_error *err)
{
    static const struct field fields[] = {
        {"arg", take_arg, true, true}, {"box", take_box, true, true}, {"swizzle", take_swizzle, false, true}};
    const cJSON *item;
    enum kfit_status s = KFIT_OK;
    (void)object;
    if (!cJSON_IsArray(j) || cJSON_GetArraySize(j) > KFIT_TENSORMAPS_MAX)
        return bad(err, "tensormaps", "an array of at most 4");
    cJSON_ArrayForEach(item, j) if (s == KFIT_OK) s = take_object(
        c, item, "tensor map", fields, sizeof fields / sizeof *fields, &c->maps[c->map_count++], err);
    return s;
}

/* In the order they are taken: later ones look at earlier ones. */
static const struct field header_fields[] = {
    {"op", take_op, true, false},
    {"device", take_device, true, false},
    {"name", take_name, false, false},
    {"arch", take_later, false, true},
    {"knobs", take_knobs, false, false},
    {"starts", take_starts, false, false},
    {"require", take_require, false, false},
    {"workspace", take_workspace, false, false},
    {"tensormaps", take_tensormaps, false, true},
    {"launches", take_launches, true, false},
};

/* ---- parsing ---- */

/* Bounds the recursion of the JSON reader before it starts. */
static bool too_deep(const char *p, const char *end)
{
    int depth = 0;
    for (bool text = false; p < end; p++) {
        if (text && *p == '\\' && p + 1 < end)
            p++;
        else if (*p == '"')
            text = !text;
        else if (!text && (*p == '{' || *p == '[') && ++depth > NESTING_MAX)
            return true;
        else if (!text && (*p == '}' || *p == ']'))
            depth--;
    }
    return false;
}

static unsigned line_of(const char *from, const char *at)
{
    unsigned n = 1;
    for (; from < at; from++)
        n += *from == '\n';
    return n;
}

static enum kfit_status parse_header(struct kfit_candidate *c, struct kfit_error *err)
{
    static const char mark[] = "kfit-candidate 1";
    const char *p = c->source + strspn(c->source, " \t\r\n"), *end, *stop = NULL;
    if (strncmp(p, "/*", 2) || !(end = strstr(p + 2, "*/")))
        return kfit_fail(err, KFIT_E_FORMAT, "candidate line 1: expected a comment /* %s {...} */ first",
                         mark);
    p += 2;
    p += strspn(p, " \t\r\n*");
    if (strncmp(p, mark, sizeof mark - 1) || !strchr(" \t\r\n{", p[sizeof mark - 1]))
        return kfit_fail(err, KFIT_E_FORMAT, "candidate line %u: expected \"%s\"", line_of(c->source, p),
                         mark);
    p += sizeof mark - 1;
    if ((size_t)(end - p) > HEADER_BYTES_MAX)
        return kfit_fail(err, KFIT_E_FORMAT, "candidate header: %zu bytes, at most %u", (size_t)(end - p),
                         HEADER_BYTES_MAX);
    if (too_deep(p, end))
        return kfit_fail(err, KFIT_E_FORMAT, "candidate header: nested deeper than %d", NESTING_MAX);
    cJSON *root = cJSON_ParseWithLengthOpts(p, (size_t)(end - p), &stop, false);
    if (!root)
        return kfit_fail(err, KFIT_E_FORMAT, "candidate line %u: not JSON at \"%.*s\"",
                         stop ? line_of(c->source, stop) : 1,
                         stop ? (int)(end - stop < 20 ? end - stop : 20) : 0, stop ? stop : "");
    enum kfit_status s = KFIT_OK;
    stop += strspn(stop, " \t\r\n");
    if (stop < end)
        s = kfit_fail(err, KFIT_E_FORMAT, "candidate line %u: expected */ after the header",
                      line_of(c->source, stop));
    if (s == KFIT_OK)
        s = take_object(c, root, "the header", header_fields, sizeof header_fields / sizeof *header_fields,
                        NULL, err);
    cJSON_Delete(root);
    return s;
}

enum kfit_status kfit_candidate_parse(const char *source, size_t bytes, struct kfit_candidate **out,
                                      struct kfit_error *err)
{
    *out = NULL;
    if (bytes > KFIT_SOURCE_BYTES_MAX)
        return kfit_fail(err, KFIT_E_FULL, "candidate: %zu bytes of source, at most %u", bytes,
                         KFIT_SOURCE_BYTES_MAX);
    if (memchr(source, 0, bytes))
        return kfit_fail(err, KFIT_E_FORMAT, "candidate: the source has a zero byte; expected text");
    struct kfit_candidate *c = calloc(1, sizeof *c);
    if (!c || !(c->source = malloc(bytes + 1))) {
        free(c);
        return kfit_fail(err, KFIT_E_NOMEM, "candidate: out of memory");
    }
    memcpy(c->source, source, bytes);
    c->source[bytes] = '\0';
    c->bytes = bytes;
    snprintf(c->name, sizeof c->name, "unnamed");
    enum kfit_status s = parse_header(c, err);
    if (s != KFIT_OK) {
        kfit_candidate_destroy(c);
        return s;
    }
    *out = c;
    return KFIT_OK;
}

void kfit_candidate_destroy(struct kfit_candidate *c)
{
    if (!c)
        return;
    for (unsigned i = 0; i < KFIT_LAUNCHES_MAX; i++) {
        struct kfit_candidate_launch *l = &c->launches[i];
        for (unsigned d = 0; d < 3; d++) {
            free(l->grid[d]);
            free(l->block[d]);
            free(l->cluster[d]);
        }
        free(l->smem);
    }
    for (unsigned i = 0; i < KFIT_TENSORMAPS_MAX; i++) {
        free(c->maps[i].box[0]);
        free(c->maps[i].box[1]);
        free(c->maps[i].swizzle);
    }
    for (unsigned i = 0; i < KFIT_REQUIRES_MAX; i++)
        free(c->requires[i]);
    free(c->workspace);
    free(c->source);
    free(c);
}

const char *kfit_candidate_code(enum kfit_status s)
{
    return s == KFIT_E_FULL ? "static:size" : s == KFIT_E_REFUSED ? "static:require" : "static:header";
}

/* ---- looking ---- */

const char *kfit_candidate_source(const struct kfit_candidate *c, size_t *bytes)
{
    if (bytes)
        *bytes = c->bytes;
    return c->source;
}

const struct kfit_op *kfit_candidate_op(const struct kfit_candidate *c)
{
    return c->op;
}

const char *kfit_candidate_device(const struct kfit_candidate *c)
{
    return c->device;
}

const char *kfit_candidate_name(const struct kfit_candidate *c)
{
    return c->name;
}

const char *kfit_candidate_entry(const struct kfit_candidate *c, unsigned launch)
{
    return launch < c->launch_count ? c->launches[launch].entry : NULL;
}

unsigned kfit_candidate_knobs(const struct kfit_candidate *c, const struct kfit_knob **knobs)
{
    if (knobs)
        *knobs = c->knobs;
    return c->knob_count;
}
