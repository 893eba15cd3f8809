/* Gate 0 inside: what compile.c and its stages share. A stage returns KFIT_OK, or KFIT_E_REFUSED after
 * kfit_refuse, or an error of ours. */
#ifndef KFIT_GATE0_H
#define KFIT_GATE0_H

#include "kfit/compile.h"

#define KFIT_TEXT_BYTES_MAX        (1u << 20)  /* machine code of one kernel */
#define KFIT_TOOL_OUTPUT_BYTES_MAX (64u << 20) /* what a tool may write, per file */

/* Bytes that grow. */
struct kfit_text {
    char *data; /* NUL beyond the end when made by kfit_text_add; free() it */
    size_t bytes, room;
};
bool kfit_text_add(struct kfit_text *t, const char *data,
                   size_t bytes); /* false: out of memory, t is as before */

/* Notes code and detail in b; returns KFIT_E_REFUSED. */
__attribute__((format(printf, 3, 4))) enum kfit_status kfit_refuse(struct kfit_built *b, const char *code,
                                                                   const char *fmt, ...);

/* ---- stages, in order ---- */

#define KFIT_HOST_HEADER_NAME "kfit_host.h"
#define KFIT_SOURCE_NAME      "candidate.c"
extern const char kfit_host_header[]; /* made from harness/kfit_host.h */
extern const size_t kfit_host_header_bytes;

/* Reads the directives of source as written and writes what the preprocessor gets: the header, if asked for,
 * then the source without its include line, with line markers. */
enum kfit_status kfit_static_source(const char *source, size_t bytes, struct kfit_text *out,
                                    struct kfit_built *b);

/* Reads preprocessed text (-E -dD) and writes what the compiler gets: the same without #define and #undef. */
enum kfit_status kfit_static_preprocessed(const char *text, size_t bytes, struct kfit_text *out,
                                          struct kfit_built *b);

/* Places the object's code and read-only data into one flat image and applies its relocations. *text_bytes:
 * the code at its start. */
enum kfit_status kfit_link_host(const uint8_t *object, size_t bytes, const char *entry, struct kfit_built *b,
                                size_t *text_bytes);

/* One line of objdump's listing. */
struct kfit_instruction {
    uint64_t at, target; /* target of a direct branch, else UINT64_MAX */
    unsigned bytes;
    bool branch;                 /* jump, call or loop, also indirect */
    const char *name, *operands; /* not terminated */
    size_t name_bytes, operand_bytes;
};
/* The line from p to end, which is followed by a newline or NUL; false if it is something else. */
bool kfit_listing_line(const char *p, const char *end, struct kfit_instruction *out);

/* Reads the disassembly of the first text_bytes of the image. */
enum kfit_status kfit_static_instructions(const char *listing, size_t bytes, size_t text_bytes,
                                          uint64_t entry, struct kfit_built *b);

/* Whether the listing is data-oblivious, as far as a simple rule can tell. */
bool kfit_data_oblivious(const char *listing, size_t bytes);

#endif
