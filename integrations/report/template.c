/* A page from a template and a tree of values, and the one place where text is escaped. */
#include <string.h>

#include "page.h"

enum { DEPTH = 12, NAME_MAX_BYTES = 40 };

/* ---- escaping ---- */

/* The backquote ends an attribute in old browsers. In JSON, < > & cannot end a script element or open a comment. */
static const char *special(char c, enum kfit_escape how)
{
    static const struct {
        char c;
        const char *as[2]; /* by enum kfit_escape */
    } table[] = {
        {'&', {"&amp;", "\\u0026"}}, {'<', {"&lt;", "\\u003c"}}, {'>', {"&gt;", "\\u003e"}},
        {'"', {"&quot;", "\\\""}},   {'\'', {"&#39;", NULL}},    {'`', {"&#96;", NULL}},
        {'\\', {NULL, "\\\\"}},
    };
    for (unsigned i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].c == c)
            return table[i].as[how];
    return NULL;
}

void kfit_write_escaped(FILE *to, const char *s, enum kfit_escape how)
{
    if (how == KFIT_ESCAPE_JSON)
        fputc('"', to);
    for (; *s; s++) {
        const char *as = special(*s, how);
        if (as)
            fputs(as, to);
        else if (*s >= ' ' && *s <= '~')
            fputc(*s, to);
        else
            fprintf(to, how == KFIT_ESCAPE_JSON ? "\\\\x%02x" : "\\x%02x", (unsigned char)*s);
    }
    if (how == KFIT_ESCAPE_JSON)
        fputc('"', to);
}

/* ---- the template ---- */

struct writer {
    const char *text; /* all of it, where pieces are looked for */
    const struct kfit_part *parts;
    FILE *to;
    const cJSON *scope[DEPTH]; /* innermost last */
    unsigned depth;
    struct kfit_error *err;
};

/* "{{#name}}": kind is '#'; 0 for a plain name. */
struct marker {
    const char *at, *end; /* from the first brace to behind the last */
    char kind, name[NAME_MAX_BYTES];
};

static bool next_marker(const char *p, const char *end, struct marker *m)
{
    const char *close;
    m->at = memmem(p, (size_t)(end - p), "{{", 2);
    if (!m->at || !(close = memmem(m->at, (size_t)(end - m->at), "}}", 2)))
        return false;
    const char *name = m->at + 2;
    m->kind = strchr("#^/<>", *name) ? *name++ : 0;
    snprintf(m->name, sizeof m->name, "%.*s", (int)(close - name), name);
    m->end = close + 2;
    return true;
}

static enum kfit_status wrong(struct writer *w, const struct marker *m, const char *what)
{
    return kfit_fail(w->err, KFIT_E_FORMAT, "page.html: {{%.1s%s}}: %s", m->kind ? &m->kind : "", m->name,
                     what);
}

/* The end marker of the section that m begins. */
static bool section_end(const struct marker *m, const char *end, struct marker *close)
{
    for (const char *p = m->end; next_marker(p, end, close); p = close->end)
        if (close->kind == '/' && !strcmp(close->name, m->name))
            return true;
    return false;
}

static const cJSON *find(const struct writer *w, const char *name)
{
    const cJSON *v = NULL;
    if (!strcmp(name, "."))
        return w->scope[w->depth - 1];
    for (unsigned i = w->depth; i && !v; i--)
        v = cJSON_GetObjectItemCaseSensitive(w->scope[i - 1], name);
    return v;
}

static bool present(const cJSON *v)
{
    return v && !cJSON_IsNull(v) && !cJSON_IsFalse(v) && !(cJSON_IsArray(v) && !v->child) &&
           !(cJSON_IsString(v) && !*v->valuestring);
}

static enum kfit_status write_range(struct writer *w, const char *p, const char *end);

static enum kfit_status write_inside(struct writer *w, const struct marker *m, const char *end,
                                     const cJSON *v)
{
    if (w->depth == DEPTH)
        return wrong(w, m, "sections are nested too deep");
    w->scope[w->depth++] = v;
    enum kfit_status s = write_range(w, m->end, end);
    w->depth--;
    return s;
}

static enum kfit_status write_section(struct writer *w, const struct marker *m, const char *end)
{
    const cJSON *v = find(w, m->name), *item;
    enum kfit_status s = KFIT_OK;
    if (present(v) == (m->kind == '^'))
        return KFIT_OK;
    if (m->kind == '^')
        return write_range(w, m->end, end);
    if (!cJSON_IsArray(v))
        return write_inside(w, m, end, v);
    for (item = v->child; item && s == KFIT_OK; item = item->next)
        s = write_inside(w, m, end, item);
    return s;
}

static enum kfit_status write_piece(struct writer *w, const struct marker *m)
{
    char begin[NAME_MAX_BYTES + 8];
    struct marker piece, close;
    for (const struct kfit_part *p = w->parts; p->name; p++) {
        if (!strcmp(p->name, m->name)) {
            fputs(p->text, w->to);
            return KFIT_OK;
        }
    }
    snprintf(begin, sizeof begin, "{{<%s}}", m->name);
    const char *at = strstr(w->text, begin), *end = w->text + strlen(w->text);
    if (!at || !next_marker(at, end, &piece) || !section_end(&piece, end, &close))
        return wrong(w, m, "there is no such piece");
    return write_inside(w, &piece, close.at, w->scope[w->depth - 1]);
}

static enum kfit_status write_range(struct writer *w, const char *p, const char *end)
{
    struct marker m, close;
    enum kfit_status s = KFIT_OK;
    for (; s == KFIT_OK && next_marker(p, end, &m); p = m.end) {
        const cJSON *v;
        fwrite(p, 1, (size_t)(m.at - p), w->to);
        switch (m.kind) {
        case '#':
        case '^':
        case '<':
            if (!section_end(&m, end, &close))
                return wrong(w, &m, "has no end");
            if (m.kind != '<')
                s = write_section(w, &m, close.at);
            m.end = close.end;
            break;
        case '>':
            s = write_piece(w, &m);
            break;
        case '/':
            return wrong(w, &m, "ends nothing");
        default:
            v = find(w, m.name);
            if (cJSON_IsString(v))
                kfit_write_escaped(w->to, v->valuestring, KFIT_ESCAPE_HTML);
            else if (cJSON_IsNumber(v))
                fprintf(w->to, "%.6g", v->valuedouble);
        }
    }
    if (s == KFIT_OK)
        fwrite(p, 1, (size_t)(end - p), w->to);
    return s;
}

enum kfit_status kfit_template_write(const char *text, const cJSON *values, const struct kfit_part *parts,
                                     FILE *to, struct kfit_error *err)
{
    struct writer w = {text, parts, to, {values}, 1, err};
    return write_range(&w, text, text + strlen(text));
}
