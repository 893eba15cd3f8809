/* Is no branch, no address and no mask decided by loaded data? A rule that needs no data flow: only vectors
 * ever hold loaded data, and nothing leads from a vector to a general register, a flag, a mask or an address.
 * What it cannot see at once (calls, an address of the stack, AVX2's masked moves, x87, string instructions)
 * it does not try to prove. */
#include <stdlib.h>
#include <string.h>

#include "gate0.h"

#define SLOTS_MAX 4096

struct slot {
    bool frame; /* from %rbp, not %rsp */
    int64_t from, to;
};

struct state {
    bool rbp_is_frame, stack_escapes, ok;
    unsigned vectors, loads;
    struct slot *vector_slots,
        *loaded_slots; /* what vectors were stored to; what general registers were loaded from */
};

static bool has(const char *p, size_t n, const char *word)
{
    return memmem(p, n, word, strlen(word)) != NULL;
}

static bool is_vector(const char *p, size_t n)
{
    return has(p, n, "%xmm") || has(p, n, "%ymm") || has(p, n, "%zmm");
}

static bool starts(const struct kfit_instruction *in, const char *prefix)
{
    size_t n = strlen(prefix);
    return in->name_bytes >= n && !memcmp(in->name, prefix, n);
}

static bool is(const struct kfit_instruction *in, const char *name)
{
    return in->name_bytes == strlen(name) && starts(in, name);
}

/* The memory operand's place on the stack, if it is one without an index. */
static bool stack_slot(const struct state *s, const char *p, size_t n, int64_t bytes, struct slot *out)
{
    const char *open = memchr(p, '(', n), *start = open;
    bool rsp = open && !strncmp(open, "(%rsp)", 6),
         rbp = open && s->rbp_is_frame && !strncmp(open, "(%rbp)", 6);
    if (!rsp && !rbp)
        return false;
    while (start > p && start[-1] != ',' && start[-1] != ' ')
        start--;
    out->frame = rbp;
    out->from = strtoll(start, NULL, 16);
    out->to = out->from + bytes;
    return true;
}

static bool add(struct slot *slots, unsigned *n, const struct slot *slot)
{
    if (*n == SLOTS_MAX)
        return false;
    slots[(*n)++] = *slot;
    return true;
}

static bool vector_instruction(struct state *s, const struct kfit_instruction *in, const char *last,
                               size_t last_bytes, bool memory)
{
    const char *p = in->operands, *open = memchr(p, '(', in->operand_bytes);
    struct slot slot;
    if (starts(in, "vmaskmov") || has(in->name, in->name_bytes, "comis") ||
        has(in->name, in->name_bytes, "ptest") || has(in->name, in->name_bytes, "testp"))
        return false;
    if (open) { /* no gather: vectors are no part of an address */
        const char *close = memchr(open, ')', (size_t)(p + in->operand_bytes - open));
        if (!close || is_vector(open, (size_t)(close - open)))
            return false;
    }
    if (!memchr(last, '(', last_bytes))
        return is_vector(last, last_bytes); /* else it leads to a general register or a mask */
    if (!memory)
        return true;
    if (stack_slot(s, last, last_bytes, has(p, in->operand_bytes, "%zmm") ? 64 : 32, &slot))
        return add(s->vector_slots, &s->vectors, &slot);
    if (has(last, last_bytes, "%rsp") || (s->rbp_is_frame && has(last, last_bytes, "%rbp")))
        s->stack_escapes = true; /* indexed */
    return true;
}

static bool scalar_instruction(struct state *s, const struct kfit_instruction *in, const char *last,
                               size_t last_bytes, bool memory)
{
    const char *p = in->operands;
    struct slot slot;
    if (starts(in, "call") || (starts(in, "f") && !is(in, "fence")) || has(p, in->operand_bytes, "%es:(") ||
        has(p, in->operand_bytes, "%ds:(") || starts(in, "xlat"))
        return false;
    if (is(in, "push") && has(p, in->operand_bytes, "%rsp"))
        s->stack_escapes = true;
    if (starts(in, "nop") || starts(in, "prefetch"))
        return true;
    if (starts(in, "lea") || !memory) {
        bool stack =
            has(p, (size_t)(last - p), "%rsp") || (s->rbp_is_frame && has(p, (size_t)(last - p), "%rbp"));
        bool moves_stack = last_bytes >= 4 && (!strncmp(last, "%rsp", 4) || !strncmp(last, "%rbp", 4));
        if (stack && !moves_stack)
            s->stack_escapes = true;
        return true;
    }
    bool store = starts(in, "mov") && memchr(last, '(', last_bytes); /* of what is no data */
    if (store || has(p, in->operand_bytes, "(%rip)"))
        return true;
    if (!stack_slot(s, p, in->operand_bytes, 8, &slot))
        return false; /* loads data into a general register, a mask or the flags */
    return add(s->loaded_slots, &s->loads, &slot);
}

static const char *last_operand(const struct kfit_instruction *in)
{
    const char *p = in->operands, *last = p;
    int depth = 0;
    for (size_t i = 0; i < in->operand_bytes; i++) {
        depth += p[i] == '(' ? 1 : p[i] == ')' ? -1 : 0;
        if (p[i] == ',' && !depth)
            last = p + i + 1;
    }
    return last;
}

static bool instruction(struct state *s, const struct kfit_instruction *in)
{
    const char *p = in->operands, *last = last_operand(in);
    size_t n = in->operand_bytes, last_bytes = (size_t)(p + n - last);
    bool memory = memchr(p, '(', n) != NULL;
    if (!in->branch && !memory && (!strncmp(p, "0x", 2) || has(p, n, ",0x") || has(p, n, ":0x")))
        return false; /* memory at a fixed address */
    return is_vector(p, n) ? vector_instruction(s, in, last, last_bytes, memory)
                           : scalar_instruction(s, in, last, last_bytes, memory);
}

/* %rbp is the frame if nothing but the prologue and its end write it. */
static bool writes_rbp(const struct kfit_instruction *in)
{
    static const char name[] = "%rbp", copy[] = "%rsp,%rbp";
    size_t n = in->operand_bytes;
    if (is(in, "pop") || is(in, "push") || (n == sizeof copy - 1 && !memcmp(in->operands, copy, n)))
        return false;
    return has(in->operands, n, "%ebp") || (n >= 4 && !memcmp(in->operands + n - 4, name, 4));
}

static bool overlap(const struct state *s)
{
    for (unsigned i = 0; i < s->loads; i++)
        for (unsigned k = 0; k < s->vectors; k++) {
            const struct slot *a = &s->loaded_slots[i], *b = &s->vector_slots[k];
            if (a->frame != b->frame || (a->from < b->to && b->from < a->to))
                return true;
        }
    return s->loads && s->stack_escapes;
}

bool kfit_data_oblivious(const char *listing, size_t bytes)
{
    struct state s = {.rbp_is_frame = true, .ok = true};
    struct slot *slots = malloc(2 * SLOTS_MAX * sizeof *slots);
    if (!slots)
        return false;
    s.vector_slots = slots;
    s.loaded_slots = slots + SLOTS_MAX;
    for (int pass = 0; pass < 2; pass++)
        for (const char *p = listing, *end = listing + bytes, *next; p < end && s.ok; p = next) {
            const char *nl = memchr(p, '\n', (size_t)(end - p));
            struct kfit_instruction in;
            next = nl ? nl + 1 : end;
            if (!kfit_listing_line(p, nl ? nl : end, &in))
                continue;
            while (in.operand_bytes && in.operands[in.operand_bytes - 1] == ' ')
                in.operand_bytes--;
            if (pass == 0)
                s.rbp_is_frame = s.rbp_is_frame && !writes_rbp(&in);
            else
                s.ok = instruction(&s, &in);
        }
    bool oblivious = s.ok && !overlap(&s);
    free(slots);
    return oblivious;
}
