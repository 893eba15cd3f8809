#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "static_cuda.h"

/* ---- what is refused: the first part of an instruction or directive, or a word anywhere in
 * a statement ---- */

static const struct {
    const char *word;
    bool prefix; /* also "word.anything" */
    enum kfit_code code;
} refused_opcodes[] = {
    {"createpolicy", true, KFIT_CODE_STATIC_INSTRUCTION}, /* residency belongs to the judge */
    {"discard", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"applypriority", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"prefetch", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"prefetchu", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"cp.async.bulk.prefetch", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"griddepcontrol", true, KFIT_CODE_STATIC_INSTRUCTION}, /* programmatic dependent launch is not offered */
    {"trap", false, KFIT_CODE_STATIC_INSTRUCTION},
    {"brkpt", false, KFIT_CODE_STATIC_INSTRUCTION},
    {"pmevent", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"brx", true, KFIT_CODE_STATIC_INSTRUCTION}, /* indirect branch */
    {"nanosleep", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"tex", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"suld", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"sust", true, KFIT_CODE_STATIC_INSTRUCTION},
    {"call", true, KFIT_CODE_STATIC_EXTERN}, /* everything of ours is inlined */
    {".extern", false, KFIT_CODE_STATIC_EXTERN},
    {".weak", false, KFIT_CODE_STATIC_EXTERN},
    {".alias", false, KFIT_CODE_STATIC_EXTERN},
    {".common", false, KFIT_CODE_STATIC_WRITABLE},
};

static const struct {
    const char *text;
    enum kfit_code code;
} refused_words[] = {
    {"%clock", KFIT_CODE_STATIC_INSTRUCTION},     {"%globaltimer", KFIT_CODE_STATIC_INSTRUCTION},
    {"%pm", KFIT_CODE_STATIC_INSTRUCTION},        {"%envreg", KFIT_CODE_STATIC_INSTRUCTION},
    {"cache_hint", KFIT_CODE_STATIC_INSTRUCTION}, {"evict_last", KFIT_CODE_STATIC_INSTRUCTION},
    {".managed", KFIT_CODE_STATIC_WRITABLE},
};

/* ---- statements ---- */

struct statement {
    char text[1024]; /* blanks folded to one, comments gone */
    bool label;
};

struct ptx {
    const char *p, *end;
    bool bad; /* a statement too long, or text that ends inside a comment */
};

/* Next statement: up to ';', '{', '}' or the ':' of a label. Module directives end at a newline. */
static bool next(struct ptx *x, struct statement *s)
{
    size_t n = 0;
    bool started = false;
    s->label = false;
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
            if (started)
                break;
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

/* The opcode: what follows an optional guard "@%p1 " or "@!%p1 ". */
static const char *opcode(const char *text)
{
    if (*text != '@')
        return text;
    const char *space = strchr(text, ' ');
    return space ? space + 1 : "";
}

static bool is_op(const char *op, const char *word, bool prefix)
{
    size_t n = strlen(word);
    return !strncmp(op, word, n) && (!op[n] || op[n] == ' ' || (prefix && op[n] == '.'));
}

/* ---- taint: registers that carry loaded data ---- */

struct taint {
    char (*name)[24];
    unsigned count, capacity;
    bool out_of_memory;
};

static bool tainted(const struct taint *t, const char *reg, size_t n)
{
    for (unsigned i = 0; i < t->count; i++)
        if (strlen(t->name[i]) == n && !memcmp(t->name[i], reg, n))
            return true;
    return false;
}

static bool add_taint(struct taint *t, const char *reg, size_t n)
{
    if (n >= sizeof *t->name || tainted(t, reg, n))
        return false;
    if (t->count == t->capacity) {
        unsigned capacity = t->capacity ? 2 * t->capacity : 256;
        char(*p)[24] = realloc(t->name, capacity * sizeof *p);
        if (!p) {
            t->out_of_memory = true;
            return false;
        }
        t->name = p;
        t->capacity = capacity;
    }
    memcpy(t->name[t->count], reg, n);
    t->name[t->count++][n] = '\0';
    return true;
}

/* Length of the register name at p ("%r12"), 0 if there is none. */
static size_t reg_at(const char *p)
{
    size_t n = 0;
    if (*p != '%')
        return 0;
    for (n = 1; (p[n] >= 'a' && p[n] <= 'z') || (p[n] >= 'A' && p[n] <= 'Z') ||
                (p[n] >= '0' && p[n] <= '9') || p[n] == '_';)
        n++;
    return n > 1 ? n : 0;
}

/* Is any register of text[from..to) tainted? */
static bool any_tainted(const struct taint *t, const char *from, const char *to)
{
    for (const char *p = from; p < to; p++) {
        size_t n = reg_at(p);
        if (n && tainted(t, p, n))
            return true;
    }
    return false;
}

static bool loads(const char *op)
{
    static const char *const words[] = {"ld",   "ldu",  "ldmatrix", "atom", "mbarrier",
                                        "shfl", "vote", "match",    "redux"};
    if (is_op(op, "ld.param", true))
        return false;
    for (unsigned i = 0; i < 5; i++)
        if (is_op(op, words[i], true))
            return true;
    return false;
}

/* One pass: spreads taint; returns whether anything changed, and notes a dependent branch or address. */
static bool spread(struct taint *t, const char *text, bool *dependent)
{
    const char *op = opcode(text), *operands = strchr(op, ' ');
    bool changed = false;
    if (*text == '@' && any_tainted(t, text, op) &&
        (is_op(op, "bra", true) || is_op(op, "exit", false) || is_op(op, "ret", true) ||
         is_op(op, "ld", true) || is_op(op, "st", true) || is_op(op, "bar", true) || is_op(op, "cp", true) ||
         is_op(op, "atom", true)))
        *dependent = true;
    if (!operands || *op == '.')
        return false;
    for (const char *p = operands; (p = strchr(p, '[')); p++) {
        const char *close = strchr(p, ']');
        if (any_tainted(t, p, close ? close : p + strlen(p)))
            *dependent = true;
    }
    if (is_op(op, "st", true) || is_op(op, "bra", true) || is_op(op, "red", true) || operands[1] == '[')
        return false; /* writes no register */
    /* The first operand (or list) is written; setp writes p|q. */
    const char *end =
        operands + 1 + (operands[1] == '{' ? strcspn(operands + 1, "}") : strcspn(operands + 1, ","));
    bool from =
        loads(op) || any_tainted(t, end, end + strlen(end)) || (*text == '@' && any_tainted(t, text, op));
    for (const char *p = operands; from && p < end; p++) {
        size_t n = reg_at(p);
        if (n)
            changed |= add_taint(t, p, n);
    }
    return changed;
}

/* mbarrier waits branch on a loaded phase by design: the value is ours, not data. Only its
 * predicate is excepted. */
static bool is_wait(const char *op)
{
    return is_op(op, "mbarrier.try_wait", true) || is_op(op, "mbarrier.test_wait", true);
}

static bool oblivious(const char *ptx, size_t bytes)
{
    struct taint t = {0};
    bool changed = true, dependent = false;
    while (changed && !dependent && !t.out_of_memory) {
        struct ptx x = {.p = ptx, .end = ptx + bytes};
        struct statement s;
        changed = false;
        while (next(&x, &s)) {
            if (is_op(s.text, ".reg", true) && !strchr(s.text, '%'))
                dependent =
                    true; /* a register by a name of its own, as inline PTX declares them, is not followed */
            if (!s.label && s.text[0] != '.' && !is_wait(opcode(s.text)))
                changed |= spread(&t, s.text, &dependent);
        }
    }
    free(t.name);
    return !dependent && !t.out_of_memory;
}

/* ---- the gate ---- */

static enum kfit_code refuse(enum kfit_code code, const char *why, const char *text, char *detail,
                             size_t size)
{
    snprintf(detail, size, "%s: %.120s", why, text);
    return code;
}

enum kfit_code static_cuda(const char *ptx, size_t bytes, const struct kfit_plan *plan, unsigned params,
                           bool *data_oblivious, char *detail, size_t detail_bytes)
{
    struct ptx x = {.p = ptx, .end = ptx + bytes};
    struct statement s;
    unsigned found[KFIT_LAUNCHES_MAX] = {0};
    *data_oblivious = false;
    while (next(&x, &s)) {
        const char *op = opcode(s.text);
        bool dynamic_shared = !strncmp(op, ".extern .shared ", 16);
        for (size_t i = 0; i < sizeof refused_opcodes / sizeof *refused_opcodes && !dynamic_shared; i++)
            if (is_op(op, refused_opcodes[i].word, refused_opcodes[i].prefix))
                return refuse(refused_opcodes[i].code, "not allowed", s.text, detail, detail_bytes);
        for (size_t i = 0; i < sizeof refused_words / sizeof *refused_words; i++)
            if (strstr(s.text, refused_words[i].text))
                return refuse(refused_words[i].code, "not allowed", s.text, detail, detail_bytes);
        if ((is_op(s.text, ".global", true) || !strncmp(s.text, ".visible .global", 16)))
            return refuse(KFIT_CODE_STATIC_WRITABLE, "global variable", s.text, detail, detail_bytes);
        const char *entry = strstr(s.text, ".entry ");
        if (entry) {
            entry += 7;
            size_t n = strcspn(entry, " (");
            unsigned count = 0;
            for (const char *p = entry; (p = strstr(p, ".param ")); p++) {
                count++;
                if (strncmp(p + 7, ".u64", 4) && strncmp(p + 7, ".b64", 4) && strncmp(p + 7, ".s64", 4))
                    return refuse(KFIT_CODE_STATIC_ENTRY, "a parameter is not a pointer", entry, detail,
                                  detail_bytes);
            }
            for (unsigned i = 0; i < plan->launch_count; i++)
                if (strlen(plan->launches[i].entry) == n && !memcmp(plan->launches[i].entry, entry, n)) {
                    found[i]++;
                    if (count != params)
                        return refuse(KFIT_CODE_STATIC_ENTRY, "wrong number of parameters", entry, detail,
                                      detail_bytes);
                }
        }
    }
    if (x.bad)
        return refuse(KFIT_CODE_STATIC_COMPILE, "PTX not understood",
                      "statement too long or comment not closed", detail, detail_bytes);
    for (unsigned i = 0; i < plan->launch_count; i++)
        if (!found[i])
            return refuse(KFIT_CODE_STATIC_ENTRY, "no such entry", plan->launches[i].entry, detail,
                          detail_bytes);
    *data_oblivious = oblivious(ptx, bytes);
    return KFIT_CODE_NONE;
}
