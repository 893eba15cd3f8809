/* The expression language of candidate headers: int64, names, + - * / % comparisons && || ! ( )
 * ceil(a,b) min(a,b) max(a,b), precedence as in C, && and || stop early. */
#ifndef KFIT_EXPR_H
#define KFIT_EXPR_H

#include "kfit/op.h"

#define KFIT_EXPR_BYTES_MAX 256
#define KFIT_EXPR_DEPTH_MAX 32

/* Evaluates text with the given names. names NULL: only checks the syntax, *out is 0. Errors: KFIT_E_FORMAT
 * (syntax, unknown name, overflow, division by zero, too long or deep), with the expression and the place. */
enum kfit_status kfit_expr_eval(const char *text, const struct kfit_dim *names, unsigned count, int64_t *out,
                                struct kfit_error *err);

#endif
