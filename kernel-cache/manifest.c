#include "manifest.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "lmdb_api.h"

#define NUMBER_MAX (UINT64_MAX / 2) /* of any number in these files */

bool kfit_scan_number(const char **p, const char *end, uint64_t max, uint64_t *out)
{
    const char *s = *p;
    uint64_t v = 0;
    for (; s < end && *s >= '0' && *s <= '9'; s++) {
        unsigned d = (unsigned)(*s - '0');
        if (v > (max - d) / 10)
            return false;
        v = v * 10 + d;
    }
    if (s == *p || (**p == '0' && s - *p > 1))
        return false;
    *p = s;
    *out = v;
    return true;
}

bool kfit_scan_hex(const char **p, const char *end, uint8_t *out, size_t n)
{
    if ((size_t)(end - *p) < 2 * n)
        return false;
    for (size_t i = 0; i < 2 * n; i++) {
        char c = (*p)[i];
        int v = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (v < 0)
            return false;
        out[i / 2] = (uint8_t)(i % 2 ? out[i / 2] | v : v << 4);
    }
    *p += 2 * n;
    return true;
}

bool kfit_scan_digest(const char **p, const char *end, uint8_t out[32])
{
    return kfit_scan_hex(p, end, out, 32);
}

/* ---- current ---- */

size_t kfit_current_format(uint64_t number, const uint8_t sha256[32], char buf[KFIT_CURRENT_BYTES_MAX])
{
    char hex[65];
    kfit_hex(sha256, 32, hex);
    return (size_t)snprintf(buf, KFIT_CURRENT_BYTES_MAX, "%" PRIu64 " %s\n", number, hex);
}

enum kfit_status kfit_current_parse(const char *text, size_t bytes, const char *path, uint64_t *number,
                                    uint8_t sha256[32], struct kfit_error *err)
{
    const char *p = text, *end = text + bytes;
    if (kfit_scan_number(&p, end, NUMBER_MAX, number) && p < end && *p++ == ' ' &&
        kfit_scan_digest(&p, end, sha256) && p + 1 == end && *p == '\n')
        return KFIT_OK;
    return kfit_fail(err, KFIT_E_FORMAT,
                     "%s: expected \"<number> <sha256>\" and a newline; run kfit rollback or "
                     "approve to write it again",
                     path);
}

enum kfit_status kfit_current_load(const struct kfit_dir *cache, uint64_t *number, uint8_t sha256[32],
                                   struct kfit_error *err)
{
    char text[KFIT_CURRENT_BYTES_MAX + 1], path[sizeof cache->path + 16];
    size_t n;
    enum kfit_status s = kfit_dir_read(cache, "current", text, sizeof text, &n, err);
    if (s == KFIT_E_NOTFOUND)
        return kfit_fail(err, s, "%s: nothing is published there yet", cache->path);
    if (s != KFIT_OK)
        return s;
    snprintf(path, sizeof path, "%s/current", cache->path);
    return kfit_current_parse(text, n, path, number, sha256, err);
}

/* ---- manifest ---- */

enum kind { NUMBER, BYTES, TEXT };

struct field {
    const char *name;
    enum kind kind;
    size_t offset, size; /* in struct doc; size of a text with its NUL */
    bool optional;       /* a number that is left out where it is 0 */
};

struct doc {
    uint64_t version, lmdb_format, created;
    struct kfit_manifest m;
};

#define FIELD(name, kind, member)                                                                            \
    {                                                                                                        \
        name, kind, offsetof(struct doc, member), sizeof((struct doc *)0)->member, false                     \
    }
#define OPTIONAL(name, member)                                                                               \
    {                                                                                                        \
        name, NUMBER, offsetof(struct doc, member), sizeof((struct doc *)0)->member, true                    \
    }
static const struct field fields[] = {
    FIELD("kfit_generation", NUMBER, version),
    FIELD("number", NUMBER, m.number),
    FIELD("length", NUMBER, m.length),
    FIELD("sha256", BYTES, m.sha256),
    FIELD("lmdb_format", NUMBER, lmdb_format),
    FIELD("records", NUMBER, m.records),
    FIELD("created_unix_s", NUMBER, created),
    FIELD("approver", TEXT, m.approver),
    FIELD("note", TEXT, m.note),
    OPTIONAL("republishes", m.republishes),
    FIELD("signed_by", BYTES, m.signed_by),
    FIELD("signature", BYTES, m.signature),
};
enum { FIELDS = sizeof fields / sizeof *fields, UNSIGNED_FIELDS = FIELDS - 2 };

static char *put_text(char *p, const char *text, size_t size)
{
    for (size_t i = 0; i < size - 1 && text[i]; i++) {
        char c = text[i];
        if (c == '"' || c == '\\')
            *p++ = '\\';
        *p++ = (unsigned char)c < ' ' || c == 0x7f ? '?' : c;
    }
    return p;
}

size_t kfit_manifest_format(const struct kfit_manifest *m, char buf[KFIT_MANIFEST_BYTES_MAX])
{
    const struct doc d = {KFIT_MANIFEST_VERSION, KFIT_LMDB_FORMAT, (uint64_t)m->created_unix_s, *m};
    char *p = buf;
    for (unsigned i = 0; i < (m->is_signed ? FIELDS : UNSIGNED_FIELDS); i++) {
        const struct field *f = &fields[i];
        const char *at = (const char *)&d + f->offset;
        uint64_t v = 0;
        if (f->kind == NUMBER)
            memcpy(&v, at, sizeof v);
        if (f->optional && !v)
            continue;
        p += sprintf(p, "%s  \"%s\": ", i ? ",\n" : "{\n", f->name);
        if (f->kind == NUMBER) {
            p += sprintf(p, "%" PRIu64, v);
            continue;
        }
        *p++ = '"';
        if (f->kind == BYTES)
            kfit_hex((const uint8_t *)at, f->size, p), p += 2 * f->size;
        else
            p = put_text(p, at, f->size);
        *p++ = '"';
    }
    p += sprintf(p, "\n}\n");
    return (size_t)(p - buf);
}

size_t kfit_manifest_statement(const struct kfit_manifest *m, char buf[KFIT_STATEMENT_BYTES_MAX])
{
    static const char what[] = "kfit generation signature 1\n";
    struct kfit_manifest bare = *m;
    bare.is_signed = false;
    memcpy(buf, what, sizeof what - 1);
    return sizeof what - 1 + kfit_manifest_format(&bare, buf + sizeof what - 1);
}

struct scan {
    const char *p, *end;
};

static void skip_space(struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\n' || *s->p == '\t' || *s->p == '\r'))
        s->p++;
}

static bool take(struct scan *s, char c)
{
    skip_space(s);
    if (s->p >= s->end || *s->p != c)
        return false;
    s->p++;
    return true;
}

/* A string without control characters; \" \\ and \/ are the only escapes. What does not fit fails. */
static bool take_text(struct scan *s, char *out, size_t size)
{
    size_t n = 0;
    if (!take(s, '"'))
        return false;
    while (s->p < s->end && *s->p != '"') {
        if (*s->p == '\\' && (++s->p == s->end || !strchr("\"\\/", *s->p)))
            return false;
        if ((unsigned char)*s->p < ' ' || *s->p == 0x7f || n + 1 >= size)
            return false;
        out[n++] = *s->p++;
    }
    memset(out + n, 0, size - n);
    return take(s, '"');
}

static bool take_value(struct scan *s, const struct field *f, char *at)
{
    uint64_t v;
    if (!f) { /* unknown: any text or number */
        char any[1024];
        skip_space(s);
        return s->p < s->end && *s->p == '"' ? take_text(s, any, sizeof any)
                                             : kfit_scan_number(&s->p, s->end, NUMBER_MAX, &v);
    }
    if (f->kind == TEXT)
        return take_text(s, at, f->size);
    if (f->kind == BYTES)
        return take(s, '"') && kfit_scan_hex(&s->p, s->end, (uint8_t *)at, f->size) && take(s, '"');
    skip_space(s);
    if (!kfit_scan_number(&s->p, s->end, NUMBER_MAX, &v))
        return false;
    memcpy(at, &v, sizeof v);
    return true;
}

enum kfit_status kfit_manifest_parse(const char *text, size_t bytes, const char *path,
                                     struct kfit_manifest *m, struct kfit_error *err)
{
    struct scan s = {text, text + bytes};
    struct doc d = {0};
    unsigned seen = 0;
    bool ok = take(&s, '{');
    while (ok) {
        char name[64];
        const struct field *f = NULL;
        ok = take_text(&s, name, sizeof name) && take(&s, ':');
        for (unsigned i = 0; i < FIELDS && !f; i++)
            if (!strcmp(fields[i].name, name))
                f = &fields[i];
        if (f && seen & 1u << (f - fields))
            return kfit_fail(err, KFIT_E_FORMAT, "%s: \"%s\" is there twice", path, name);
        seen |= f ? 1u << (f - fields) : 0;
        ok = ok && take_value(&s, f, f ? (char *)&d + f->offset : NULL);
        if (ok && f && f->offset == offsetof(struct doc, version) && d.version != KFIT_MANIFEST_VERSION)
            return kfit_fail(err, KFIT_E_VERSION, "%s: generation format %" PRIu64 ", this kfit reads %u",
                             path, d.version, KFIT_MANIFEST_VERSION); /* what follows may look different */
        if (!ok || !take(&s, ','))
            break;
    }
    ok = ok && take(&s, '}');
    skip_space(&s);
    if (!ok || s.p != s.end)
        return kfit_fail(err, KFIT_E_FORMAT, "%s: byte %td is not what a manifest has there", path,
                         s.p - text);
    d.m.is_signed = seen >> UNSIGNED_FIELDS;
    for (unsigned i = 0; i < (d.m.is_signed ? FIELDS : UNSIGNED_FIELDS); i++)
        if (!(seen & 1u << i) && !fields[i].optional)
            return kfit_fail(err, KFIT_E_FORMAT, "%s: \"%s\" is missing", path, fields[i].name);
    if (d.lmdb_format != KFIT_LMDB_FORMAT)
        return kfit_fail(err, KFIT_E_VERSION, "%s: LMDB format %" PRIu64 ", this kfit reads %u", path,
                         d.lmdb_format, KFIT_LMDB_FORMAT);
    *m = d.m;
    m->created_unix_s = (int64_t)d.created;
    return KFIT_OK;
}

/* ---- a generation as a file ---- */

static const char export_magic[] = "kfit generation file ";

size_t kfit_export_head(const struct kfit_manifest *m, char buf[KFIT_EXPORT_HEAD_MAX])
{
    char text[KFIT_MANIFEST_BYTES_MAX], hex[65];
    uint8_t digest[32];
    size_t n = kfit_manifest_format(m, text);
    kfit_sha256(text, n, digest);
    kfit_hex(digest, sizeof digest, hex);
    size_t line = (size_t)snprintf(buf, KFIT_EXPORT_HEAD_MAX, "%s%u %zu %s\n", export_magic,
                                   KFIT_EXPORT_VERSION, n, hex);
    memcpy(buf + line, text, n);
    return line + n;
}

enum kfit_status kfit_export_parse(const char *text, size_t bytes, uint64_t file_bytes, const char *path,
                                   struct kfit_manifest *m, size_t *offset, struct kfit_error *err)
{
    static const char again[] = "get it again from where it was exported";
    const char *p = text, *end = text + bytes;
    uint64_t version, n;
    uint8_t want[32], digest[32];
    if (bytes < sizeof export_magic - 1 || memcmp(p, export_magic, sizeof export_magic - 1))
        return kfit_fail(err, KFIT_E_FORMAT,
                         "%.300s: not a generation of kfit's; `kfit cache export` makes such files", path);
    p += sizeof export_magic - 1;
    if (kfit_scan_number(&p, end, NUMBER_MAX, &version) && version != KFIT_EXPORT_VERSION)
        return kfit_fail(err, KFIT_E_VERSION,
                         "%.300s: export format %" PRIu64 ", this kfit reads %u; update kfit here", path,
                         version, KFIT_EXPORT_VERSION);
    if (p >= end || *p++ != ' ' || !kfit_scan_number(&p, end, KFIT_MANIFEST_BYTES_MAX, &n) || p >= end ||
        *p++ != ' ' || !kfit_scan_digest(&p, end, want) || p >= end || *p++ != '\n')
        return kfit_fail(err, KFIT_E_FORMAT, "%.300s: its first line is damaged; %s", path, again);
    if ((uint64_t)(end - p) < n)
        return kfit_fail(err, KFIT_E_FORMAT, "%.300s: ends within its manifest; %s", path, again);
    kfit_sha256(p, n, digest);
    if (memcmp(digest, want, sizeof digest))
        return kfit_fail(err, KFIT_E_DIGEST, "%.300s: SHA-256 of its manifest does not match; %s", path,
                         again);
    enum kfit_status s = kfit_manifest_parse(p, n, path, m, err);
    if (s != KFIT_OK)
        return s;
    *offset = (size_t)(p + n - text);
    if (m->length > KFIT_DATA_BYTES_MAX)
        return kfit_fail(err, KFIT_E_FORMAT, "%.300s: %" PRIu64 " bytes of data, at most %llu are read", path,
                         m->length, KFIT_DATA_BYTES_MAX);
    if (!m->number || file_bytes != *offset + m->length)
        return kfit_fail(err, KFIT_E_FORMAT,
                         "%.300s: %" PRIu64 " bytes, its manifest says %" PRIu64 "; it was %s; %s", path,
                         file_bytes, *offset + m->length,
                         file_bytes < *offset + m->length ? "cut off" : "added to", again);
    return KFIT_OK;
}

enum kfit_status kfit_manifest_load(const struct kfit_dir *d, uint64_t number, struct kfit_manifest *m,
                                    struct kfit_error *err)
{
    char text[KFIT_MANIFEST_BYTES_MAX + 1], name[32], path[sizeof d->path + sizeof name];
    size_t n;
    snprintf(name, sizeof name, "%" PRIu64 ".json", number);
    enum kfit_status s = kfit_dir_read(d, name, text, sizeof text, &n, err);
    if (s != KFIT_OK)
        return s;
    snprintf(path, sizeof path, "%s/%s", d->path, name);
    s = kfit_manifest_parse(text, n, path, m, err);
    if (s == KFIT_OK && m->number != number)
        return kfit_fail(err, KFIT_E_FORMAT, "%s: says it is number %" PRIu64 "; it was renamed", path,
                         m->number);
    return s;
}

struct numbers {
    int (*fn)(void *ctx, uint64_t number);
    void *ctx;
};

static int manifest_number(void *ctx, const struct kfit_dir *d, const char *name)
{
    const struct numbers *n = ctx;
    const char *p = name;
    uint64_t number;
    (void)d;
    return kfit_scan_number(&p, p + strlen(p), NUMBER_MAX, &number) && !strcmp(p, ".json") &&
           n->fn(n->ctx, number);
}

enum kfit_status kfit_generation_numbers(const struct kfit_dir *d, int (*fn)(void *ctx, uint64_t number),
                                         void *ctx, struct kfit_error *err)
{
    return kfit_dir_each(d, manifest_number, &(struct numbers){fn, ctx}, err);
}
