/* doctor.h - one check of `kfit doctor`: a line, and what to do. Texts are escaped when they are shown. */
#ifndef DOCTOR_H
#define DOCTOR_H

#include <stdbool.h>
#include <stddef.h>

enum level { FINE, WARN, FAIL };

struct line {
    char text[600], advice[300]; /* what to do; "" if nothing */
};

struct doctor {
    char cache[4096];
};

/* Appends to the text. */
__attribute__((format(printf, 2, 3))) void doctor_say(struct line *l, const char *fmt, ...);
/* Sets the advice; returns level. */
__attribute__((format(printf, 3, 4))) enum level doctor_bad(struct line *l, enum level level, const char *fmt,
                                                            ...);

/* What was found, or why it was not, and what to do. */
enum level doctor_found(struct line *l, bool is, const char *what, const char *why_not, enum level level,
                        const char *advice);

/* doctor_elf.c: of a library as a file. False: it is none. */

/* DT_NEEDED, in file order, separated by spaces. */
bool doctor_needs(const char *path, char *out, size_t size);
/* Which of names (the list ends with NULL) it defines, separated by spaces. */
bool doctor_defines(const char *path, const char *const *names, char *out, size_t size);

/* doctor_cuda.c */
enum level doctor_nvrtc(const struct doctor *d, struct line *l);
enum level doctor_cublas(const struct doctor *d, struct line *l);
enum level doctor_runner_cuda(const struct doctor *d, struct line *l);
enum level doctor_gpu(const struct doctor *d, struct line *l);
enum level doctor_cupti(const struct doctor *d, struct line *l);
enum level doctor_ceilings(const struct doctor *d, struct line *l);
enum level doctor_memory(const struct doctor *d, struct line *l);
enum level doctor_hooks(const struct doctor *d, struct line *l);
enum level doctor_preloads(const struct doctor *d, struct line *l);

/* doctor_left.c */
enum level doctor_runs(const struct doctor *d, struct line *l);
enum level doctor_unfinished(const struct doctor *d, struct line *l);
enum level doctor_state(const struct doctor *d, struct line *l);
enum level doctor_environment(const struct doctor *d, struct line *l);

#endif
