/* Which registers carry loaded data, at each point of a kernel. One walk in program order keeps the set of them;
 * at a label it joins the sets of all jumps there; walks are repeated until no label's set grows. */
#include <stdlib.h>
#include <string.h>

#include "ptx.h"
#include "static_cuda.h"

#define NAME_BYTES 24
#define NAMES_MAX  (1u << 15) /* registers and labels of a module; a kernel with more is not followed */

struct name {
    char text[NAME_BYTES];
    bool inner;         /* also a register of an inner block: an overwrite may be of the other one */
    uint64_t *carrying; /* a label's set of registers; NULL: no jump there seen yet */
};

struct flow {
    struct name *names; /* open addressing */
    unsigned used, words;
    uint64_t *carrying; /* here; bit = index into names */
    bool reachable;
    bool dependent; /* found, or given up */
    bool changed;   /* a label's set grew */
};

static struct name *find(struct flow *f, const char *text, size_t n)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
    for (unsigned at = (unsigned)(hash >> 40) % NAMES_MAX;; at = (at + 1) % NAMES_MAX) {
        struct name *name = &f->names[at];
        if (!strncmp(name->text, text, n) && !name->text[n])
            return name;
        if (!name->text[0]) {
            memcpy(name->text, text, n);
            f->used++;
            return name;
        }
    }
}

/* Index of a register or label, or -1: then the kernel is not followed any more. */
static int index_of(struct flow *f, const char *text, size_t n)
{
    if (!n || n >= NAME_BYTES || f->used > NAMES_MAX / 2) {
        f->dependent = true;
        return -1;
    }
    return (int)(find(f, text, n) - f->names);
}

static bool carries(struct flow *f, int i)
{
    return i >= 0 && f->carrying[i / 64] >> i % 64 & 1;
}

/* Does any register of text[from..to) carry loaded data? */
static bool any_carries(struct flow *f, const char *from, const char *to)
{
    bool any = false;
    for (const char *p = from; p < to; p++) {
        size_t n = ptx_register(p);
        if (n)
            any |= carries(f, index_of(f, p, n));
    }
    return any;
}

static bool one_of(const char *op, const char *const *words)
{
    for (; *words; words++)
        if (ptx_is(op, *words, true))
            return true;
    return false;
}

static const char *const loads[] = {"ld", "ldu", "ldmatrix", "atom", "mbarrier", NULL};

/* Not to be decided by data: where control goes and what memory is touched. */
static const char *const guarded[] = {"bra", "exit",    "ret", "ld",   "ldu", "st",
                                      "bar", "barrier", "cp",  "atom", "red", NULL};

static const char *const writes_none[] = {"st", "bra", "red", "bar.sync", "bar.arrive", "barrier", NULL};

/* The first operand is written whole and not read, whatever the rest of the name: what it carried is gone.
 * What is not listed only adds. */
static const char *const overwrites[] = {"mov", "ld",   "ldu",  "cvt",  "cvta", "add", "sub", "mul",
                                         "mad", "fma",  "and",  "or",   "xor",  "not", "shl", "shr",
                                         "shf", "setp", "selp", "min",  "max",  "neg", "abs", "div",
                                         "rem", "bfe",  "lop3", "prmt", "mapa", NULL};

/* add.cc writes the carry flag, addc reads it. */
static const char carry_flag[] = "%cc.flag";

/* The label's set takes in the set here. */
static void join(struct flow *f, const char *label, size_t n)
{
    int i = index_of(f, label, n);
    if (i < 0 || !f->reachable)
        return;
    struct name *l = &f->names[i];
    if (!l->carrying) {
        l->carrying = calloc(f->words, sizeof *l->carrying);
        f->changed = true;
        if (!l->carrying) {
            f->dependent = true;
            return;
        }
    }
    for (unsigned w = 0; w < f->words; w++) {
        f->changed |= (f->carrying[w] & ~l->carrying[w]) != 0;
        l->carrying[w] |= f->carrying[w];
    }
}

static void at_label(struct flow *f, const char *label, size_t n)
{
    join(f, label, n);
    int i = index_of(f, label, n);
    if (i < 0 || !f->names[i].carrying)
        return;
    memcpy(f->carrying, f->names[i].carrying, f->words * sizeof *f->carrying);
    f->reachable = true;
}

static void set(struct flow *f, const char *reg, size_t n, bool data, bool overwrite)
{
    int i = index_of(f, reg, n);
    if (i < 0)
        return;
    uint64_t bit = UINT64_C(1) << i % 64;
    if (data)
        f->carrying[i / 64] |= bit;
    else if (overwrite && !f->names[i].inner)
        f->carrying[i / 64] &= ~bit;
}

static void instruction(struct flow *f, const char *text)
{
    const char *op = ptx_opcode(text), *operands = strchr(op, ' ');
    bool guard = op != text, guard_carries = guard && any_carries(f, text, op);
    if (guard_carries && one_of(op, guarded))
        f->dependent = true;
    for (const char *p = operands; p && (p = strchr(p, '[')); p++) {
        const char *close = strchr(p, ']');
        if (any_carries(f, p, close ? close : p + strlen(p)))
            f->dependent = true;
    }
    if (operands && ptx_is(op, "bra", true))
        join(f, operands + 1, strcspn(operands + 1, " ,"));
    if (!guard && (ptx_is(op, "bra", true) || ptx_is(op, "ret", true) || ptx_is(op, "exit", false)))
        f->reachable = false;
    if (!operands || operands[1] == '[' || one_of(op, writes_none))
        return;

    /* The first operand (or list) is written; setp writes p|q. */
    const char *end =
        operands + 1 + (operands[1] == '{' ? strcspn(operands + 1, "}") : strcspn(operands + 1, ","));
    size_t op_bytes = (size_t)(operands - op);
    bool reads_flag = ptx_is(op, "addc", true) || ptx_is(op, "subc", true) || ptx_is(op, "madc", true);
    bool data = (one_of(op, loads) && !ptx_is(op, "ld.param", true)) ||
                any_carries(f, end, end + strlen(end)) || guard_carries ||
                (reads_flag && carries(f, index_of(f, carry_flag, sizeof carry_flag - 1)));
    bool overwrite = !guard && one_of(op, overwrites);
    for (const char *p = operands; p < end; p++) {
        size_t n = ptx_register(p);
        if (n)
            set(f, p, n, data, overwrite);
    }
    if (memmem(op, op_bytes, ".cc", 3))
        set(f, carry_flag, sizeof carry_flag - 1, data, overwrite);
}

/* An mbarrier wait branches on a loaded phase by design: the value is ours, not data. */
static bool is_wait(const char *op)
{
    return ptx_is(op, "mbarrier.try_wait", true) || ptx_is(op, "mbarrier.test_wait", true);
}

/* Registers of an inner block, as inline PTX declares them, are followed by names that begin with '%', one by one. */
static void declaration(struct flow *f, const struct ptx_statement *s)
{
    const char *name = strchr(s->text, '%');
    f->dependent |= !name || (s->depth != 1 && strpbrk(name, "<,"));
    int i = name && s->depth != 1 ? index_of(f, name, ptx_register(name)) : -1;
    if (i >= 0)
        f->names[i].inner = true;
}

static void walk(struct flow *f, const char *ptx, size_t bytes)
{
    struct ptx x = {.p = ptx, .end = ptx + bytes};
    struct ptx_statement s;
    memset(f->carrying, 0, f->words * sizeof *f->carrying);
    f->reachable = true;
    f->changed = false;
    while (!f->dependent && ptx_next(&x, &s)) {
        if (s.label)
            at_label(f, s.text, strlen(s.text) - 1);
        else if (s.text[0] == '.') {
            if (ptx_is(s.text, ".reg", true))
                declaration(f, &s);
            f->reachable |= s.depth == 0; /* a function begins */
        } else if (f->reachable && !is_wait(ptx_opcode(s.text)))
            instruction(f, s.text);
    }
    f->dependent |= x.bad;
}

bool data_oblivious_cuda(const char *ptx, size_t bytes)
{
    struct flow f = {.words = NAMES_MAX / 64, .changed = true};
    f.names = calloc(NAMES_MAX, sizeof *f.names);
    f.carrying = calloc(f.words, sizeof *f.carrying);
    f.dependent = !f.names || !f.carrying;
    while (f.changed && !f.dependent)
        walk(&f, ptx, bytes);
    for (unsigned i = 0; i < NAMES_MAX && f.names; i++)
        free(f.names[i].carrying);
    free(f.names);
    free(f.carrying);
    return !f.dependent;
}
