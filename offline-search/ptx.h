/* PTX text, statement by statement: as much as gate 0 needs, no parser of the language. */
#ifndef KFIT_PTX_H
#define KFIT_PTX_H

#include <stdbool.h>
#include <stddef.h>

struct ptx_statement {
    char text[1024]; /* blanks folded to one, comments gone, no ';' */
    bool label;      /* text is "name:" */
    int depth;       /* blocks around it: 0 the module, 1 a function's body */
};

/* Begin with {.p = text, .end = text + bytes}. */
struct ptx {
    const char *p, *end;
    int depth;
    bool bad; /* a statement too long, or text that ends inside a comment */
};

/* The next statement, up to ';', '{', '}' or the ':' of a label. Module directives end at a newline. False at
 * the end. Survives any bytes. */
bool ptx_next(struct ptx *x, struct ptx_statement *s);

/* The opcode: what follows an optional guard "@%p1 " or "@!%p1 ". */
const char *ptx_opcode(const char *text);

/* Is the opcode at op that word, or with prefix, "word.anything"? */
bool ptx_is(const char *op, const char *word, bool prefix);

/* Length of the register name at p ("%r12"), 0 if there is none. */
size_t ptx_register(const char *p);

#endif
