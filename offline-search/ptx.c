#include <string.h>

#include "ptx.h"

bool ptx_next(struct ptx *x, struct ptx_statement *s)
{
    size_t n = 0;
    bool started = false;
    s->label = false;
    s->depth = x->depth;
    while (x->p < x->end) {
        char c = *x->p++;
        if (c == '/' && x->p < x->end && (*x->p == '/' || *x->p == '*')) {
            bool line = *x->p == '/';
            const char *stop = line ? memchr(x->p, '\n', (size_t)(x->end - x->p)) : NULL;
            for (const char *q = x->p + 1; !line && q + 1 < x->end && !stop; q++)
                stop = q[0] == '*' && q[1] == '/' ? q + 2 : NULL;
            x->bad |= !stop && !line;
            x->p = stop ? stop : x->end;
            continue;
        }
        if (c == '\n' && started && s->text[0] == '.' &&
            (!strncmp(s->text, ".version", 8) || !strncmp(s->text, ".target", 7) ||
             !strncmp(s->text, ".address_size", 13)))
            break;
        if (c == '{' && started && s->text[0] != '.') { /* an operand list: mov {a, b}, ... */
            s->text[n++] = c;
            while (x->p < x->end && n + 2 < sizeof s->text && *x->p != '}' && *x->p != ';')
                s->text[n++] = *x->p++;
            continue;
        }
        if (c == ';' || c == '{' || (c == '}' && (!started || !strchr(s->text, '{')))) {
            x->depth += c == '{' ? 1 : c == '}' ? -1 : 0;
            if (started)
                break;
            s->depth = x->depth;
            continue;
        }
        if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
            if (started && s->text[n - 1] != ' ')
                s->text[n++] = ' ';
        } else {
            s->text[n++] = c;
            started = true;
        }
        if (started && c == ':' && (x->p >= x->end || *x->p != ':') && (n < 2 || s->text[n - 2] != ':')) {
            s->label = true;
            break;
        }
        s->text[n] = '\0';
        if (n + 2 >= sizeof s->text) {
            x->bad = true;
            return false;
        }
    }
    while (n && s->text[n - 1] == ' ')
        n--;
    s->text[n] = '\0';
    return started;
}

const char *ptx_opcode(const char *text)
{
    if (*text != '@')
        return text;
    const char *space = strchr(text, ' ');
    return space ? space + 1 : "";
}

bool ptx_is(const char *op, const char *word, bool prefix)
{
    size_t n = strlen(word);
    return !strncmp(op, word, n) && (!op[n] || op[n] == ' ' || (prefix && op[n] == '.'));
}

size_t ptx_register(const char *p)
{
    size_t n = 0;
    if (*p != '%')
        return 0;
    for (n = 1; (p[n] >= 'a' && p[n] <= 'z') || (p[n] >= 'A' && p[n] <= 'Z') ||
                (p[n] >= '0' && p[n] <= '9') || p[n] == '_';)
        n++;
    return n > 1 ? n : 0;
}
