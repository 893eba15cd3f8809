/* doctor.h - one check of `kfit doctor`: a line, and what to do. Texts are escaped when they are shown. */
#ifndef DOCTOR_H
#define DOCTOR_H

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

/* doctor_left.c */
enum level doctor_runs(const struct doctor *d, struct line *l);
enum level doctor_unfinished(const struct doctor *d, struct line *l);
enum level doctor_state(const struct doctor *d, struct line *l);
enum level doctor_environment(const struct doctor *d, struct line *l);

#endif
