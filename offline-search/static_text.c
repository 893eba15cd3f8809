/* Gate 0 on text: the directives of the source as written, then every token of the preprocessed text. The
 * second reading is the one that counts (nothing hides from it behind macros, splices or pasting); the first
 * finds what the preprocessor would act on before there is any output. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gate0.h"

bool kfit_text_add(struct kfit_text *t, const char *data, size_t bytes)
{
    if (t->room - t->bytes <= bytes) {
        size_t room = (t->bytes + bytes + 1) * 2;
        char *p = realloc(t->data, room);
        if (!p)
            return false;
        t->data = p;
        t->room = room;
    }
    memcpy(t->data + t->bytes, data, bytes);
    t->bytes += bytes;
    t->data[t->bytes] = '\0';
    return true;
}

enum kfit_status kfit_refuse(struct kfit_built *b, const char *code, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    snprintf(b->code, sizeof b->code, "%s", code);
    vsnprintf(b->detail, sizeof b->detail, fmt, ap);
    va_end(ap);
    return KFIT_E_REFUSED;
}

static bool is_name(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || c == '$' ||
           (c >= '0' && c <= '9') || (unsigned char)c >= 0x80;
}

static size_t name_length(const char *p)
{
    size_t n = 0;
    while (is_name(p[n]))
        n++;
    return n;
}

static bool same(const char *p, size_t n, const char *word)
{
    return strlen(word) == n && !memcmp(p, word, n);
}

static bool in_list(const char *p, size_t n, const char *const *list)
{
    for (; *list; list++)
        if (same(p, n, *list))
            return true;
    return false;
}

static const char *skip_blank(const char *p)
{
    return p + strspn(p, " \t\f\v\r");
}

/* Text after "#pragma": only how to unroll and vectorise. */
static bool pragma_allowed(const char *p)
{
    static const char *const allowed[] = {"GCC unroll", "GCC ivdep",         "unroll",
                                          "nounroll",   "clang loop unroll", "clang loop vectorize"};
    p = skip_blank(p);
    for (size_t i = 0; i < sizeof allowed / sizeof *allowed; i++) {
        size_t n = strlen(allowed[i]);
        if (!strncmp(p, allowed[i], n) && !is_name(p[n]))
            return true;
    }
    return false;
}

/* ---- the source as written ---- */

/* A logical line: comments are spaces, continued lines joined. */
struct line {
    struct kfit_text text;
    unsigned number;
    size_t from; /* where it starts in the source */
};

/* Reads one logical line from at; returns where the next starts. Strings are passed over, so that what looks
 * like a comment inside them is none. */
static size_t read_line(const char *s, size_t bytes, size_t at, struct line *line, unsigned *number, bool *ok)
{
    char quote = 0;
    line->text.bytes = 0;
    line->from = at;
    line->number = *number;
    *ok = kfit_text_add(&line->text, "", 0);
    while (at < bytes && *ok) {
        char c = s[at];
        size_t splice = c != '\\'                                ? 0
                        : s[at + 1] == '\n'                      ? 2
                        : s[at + 1] == '\r' && s[at + 2] == '\n' ? 3
                                                                 : 0;
        if (splice) {
            at += splice;
            ++*number;
        } else if (c == '\n') {
            ++*number;
            return at + 1;
        } else if (!quote && c == '/' && s[at + 1] == '*') {
            for (at += 2; at < bytes && (s[at] != '*' || s[at + 1] != '/'); at++)
                *number += s[at] == '\n';
            at += at < bytes ? 2 : 0;
            *ok = kfit_text_add(&line->text, " ", 1);
        } else if (!quote && c == '/' && s[at + 1] == '/') {
            while (at < bytes && s[at] != '\n') { /* a continued // comment goes on */
                if (s[at] == '\\' && s[at + 1] == '\n') {
                    at++;
                    ++*number;
                }
                at++;
            }
        } else {
            if (quote && c == '\\' && at + 1 < bytes) {
                *ok = kfit_text_add(&line->text, s + at++, 1);
                c = s[at];
            } else if (c == quote) {
                quote = 0;
            } else if (!quote && (c == '"' || c == '\'')) {
                quote = c;
            }
            *ok = *ok && kfit_text_add(&line->text, s + at++, 1);
        }
    }
    return at;
}

static enum kfit_status check_directive(const char *p, unsigned number, bool *include, struct kfit_built *b)
{
    static const char *const plain[] = {"define", "undef", "if",    "ifdef",   "ifndef", "elif",
                                        "else",   "endif", "error", "warning", NULL};
    size_t n = name_length(p);
    *include = false;
    if (strstr(p, "__has_include") || strstr(p, "__has_embed"))
        return kfit_refuse(b, "static:include", "line %u asks whether a file exists", number);
    if (same(p, n, "pragma"))
        return pragma_allowed(p + n) ? KFIT_OK
                                     : kfit_refuse(b, "static:pragma",
                                                   "line %u: #pragma%.60s: only unroll and ivdep "
                                                   "are allowed",
                                                   number, p + n);
    if (n == 0 && *p == '\0')
        return KFIT_OK;
    if (in_list(p, n, plain))
        return KFIT_OK;
    p = skip_blank(p + n);
    size_t len = strcspn(p, " \t\f\v\r");
    if (same(p - 0, len, "\"" KFIT_HOST_HEADER_NAME "\"") && !*skip_blank(p + len)) {
        *include = true;
        return KFIT_OK;
    }
    return kfit_refuse(b, "static:include",
                       "line %u: a directive with \"%.60s\": only #include \"%s\", conditions and "
                       "macros are allowed",
                       number, p, KFIT_HOST_HEADER_NAME);
}

enum kfit_status kfit_static_source(const char *source, size_t bytes, struct kfit_text *out,
                                    struct kfit_built *b)
{
    struct line line = {0};
    struct kfit_text body = {0};
    enum kfit_status s = KFIT_OK;
    bool ok = kfit_text_add(&body, source, bytes), header = false;
    unsigned number = 1;
    for (size_t at = 0; ok && s == KFIT_OK && at < bytes;) {
        bool include = false;
        at = read_line(source, bytes, at, &line, &number, &ok);
        const char *p = ok ? skip_blank(line.text.data) : "";
        if (*p == '#' || !strncmp(p, "%:", 2))
            s = check_directive(skip_blank(p + (*p == '#' ? 1 : 2)), line.number, &include, b);
        for (size_t i = line.from; include && i < at; i++)
            if (body.data[i] != '\n')
                body.data[i] = ' ';
        header |= include;
    }
    static const char to_header[] = "# 1 \"" KFIT_HOST_HEADER_NAME "\"\n",
                      to_source[] = "\n# 1 \"" KFIT_SOURCE_NAME "\"\n";
    if (ok && s == KFIT_OK)
        ok = (!header || (kfit_text_add(out, to_header, sizeof to_header - 1) &&
                          kfit_text_add(out, kfit_host_header, kfit_host_header_bytes))) &&
             kfit_text_add(out, to_source, sizeof to_source - 1) && kfit_text_add(out, body.data, bytes) &&
             kfit_text_add(out, "\n", 1);
    free(line.text.data);
    free(body.data);
    return s != KFIT_OK ? s : ok ? KFIT_OK : KFIT_E_NOMEM;
}

/* ---- preprocessed text ---- */

static const char *const asm_words[] = {"asm", "__asm", "__asm__", NULL};
static const char *const attribute_words[] = {"__attribute__", "__attribute", NULL};
/* Prefixes of raw strings, whose end only the compiler knows. */
static const char *const raw_prefixes[] = {"R", "LR", "uR", "UR", "u8R", NULL};
/* Attributes that change neither where code goes nor how it is compiled. */
static const char *const attributes[] = {
    "always_inline",   "noinline", "aligned", "vector_size", "may_alias",
    "unused",          "const",    "pure",    "hot",         "cold",
    "flatten",         "packed",   "nonnull", "noclone",     "fallthrough",
    "ext_vector_type", NULL,
};

struct scan {
    const char *p;
    unsigned line;      /* in the source */
    unsigned attribute; /* depth of parentheses inside __attribute__, 0: outside */
    bool awaiting;      /* __attribute__ read, its parenthesis not yet */
    struct kfit_built *b;
};

static enum kfit_status check_name(struct scan *s, const char *p, size_t n)
{
    if (in_list(p, n, asm_words))
        return kfit_refuse(s->b, "static:asm", "line %u: %.*s", s->line, (int)n, p);
    if (in_list(p, n, raw_prefixes) && p[n] == '"')
        return kfit_refuse(s->b, "static:asm", "line %u: a raw string, which could hide anything", s->line);
    if (in_list(p, n, attribute_words))
        s->awaiting = true;
    if (s->attribute == 2) {
        const char *q = p;
        size_t len = n;
        if (n > 4 && !memcmp(p, "__", 2) && !memcmp(p + n - 2, "__", 2)) {
            q += 2;
            len -= 4;
        }
        if (!in_list(q, len, attributes))
            return kfit_refuse(s->b, "static:attribute", "line %u: attribute %.*s is not allowed", s->line,
                               (int)(n < 60 ? n : 60), p);
    }
    return KFIT_OK;
}

/* One line of code: every token looked at, strings and characters passed over. */
static enum kfit_status check_code(struct scan *s, const char *p, const char *end)
{
    while (p < end) {
        if (is_name(*p)) {
            size_t n = name_length(p); /* lines end in \n, no name does */
            enum kfit_status st = check_name(s, p, n);
            if (st != KFIT_OK)
                return st;
            p += n;
            continue;
        }
        if (*p == '"' || *p == '\'') {
            char quote = *p++;
            while (p < end && *p != quote)
                p += *p == '\\' ? 2 : 1;
            p++;
            continue;
        }
        if (*p == '\\')
            return kfit_refuse(s->b, "static:asm", "line %u: a backslash outside a string", s->line);
        bool square = *p == '[' || !strncmp(p, "<:", 2);
        if (square) {
            const char *q = skip_blank(p + (*p == '[' ? 1 : 2));
            if (*q == '[' || !strncmp(q, "<:", 2) || q >= end)
                return kfit_refuse(s->b, "static:attribute", "line %u: [[...]] attributes are not allowed",
                                   s->line);
        }
        if (*p == '(' && (s->awaiting || s->attribute)) {
            s->attribute++;
            s->awaiting = false;
        } else if (*p == ')' && s->attribute) {
            s->attribute--;
        }
        p++;
    }
    return KFIT_OK;
}

static enum kfit_status check_macro(struct scan *s, const char *what, const char *name)
{
    size_t n = name_length(name);
    if (!strncmp(name, "KFIT_", 5) || !strncmp(name, "kfit_", 5) || !strncmp(name, "__", 2) ||
        (name[0] == '_' && name[1] >= 'A' && name[1] <= 'Z'))
        return kfit_refuse(s->b, "static:macro",
                           "line %u: #%s %.*s: names with KFIT_, kfit_ or a leading __ belong to the "
                           "harness and the compiler",
                           s->line, what, (int)(n < 60 ? n : 60), name);
    return KFIT_OK;
}

/* "# 12 "file" flags": from the preprocessor. Only our own names may come after the source began. */
static enum kfit_status check_marker(struct scan *s, const char *p, bool *started)
{
    static const char ours[] = "\"" KFIT_SOURCE_NAME "\"";
    unsigned number = 0;
    for (; *p >= '0' && *p <= '9'; p++)
        number = number * 10 + (unsigned)(*p - '0');
    p = skip_blank(p);
    s->line = number - 1; /* of the line that follows */
    if (!strncmp(p, ours, sizeof ours - 1))
        *started = true;
    else if (*started)
        return kfit_refuse(s->b, "static:include", "the preprocessed text names %.*s", (int)strcspn(p, "\n"),
                           p);
    return KFIT_OK;
}

enum kfit_status kfit_static_preprocessed(const char *text, size_t bytes, struct kfit_text *out,
                                          struct kfit_built *b)
{
    struct scan s = {.b = b};
    bool started = false;
    for (const char *p = text, *end = text + bytes, *next; p < end; p = next) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        enum kfit_status st = KFIT_OK;
        bool keep = true;
        next = nl ? nl + 1 : end;
        s.line++;
        if (*p == '#') {
            const char *q = skip_blank(p + 1);
            size_t n = name_length(q);
            if (*q >= '0' && *q <= '9')
                st = check_marker(&s, q, &started);
            else if (same(q, n, "define") || same(q, n, "undef")) {
                keep = false;
                st = started ? check_macro(&s, *q == 'd' ? "define" : "undef", skip_blank(q + n)) : KFIT_OK;
            } else if (!same(q, n, "pragma") || !pragma_allowed(q + n))
                st = kfit_refuse(b, "static:pragma", "line %u: %.*s", s.line,
                                 (int)(next - p > 80 ? 80 : next - p), p);
        } else if (started) {
            st = check_code(&s, p, nl ? nl : end);
        }
        if (st != KFIT_OK)
            return st;
        if (!kfit_text_add(out, keep ? p : "\n", keep ? (size_t)(next - p) : 1))
            return KFIT_E_NOMEM;
    }
    return KFIT_OK;
}
