/* One pass of precedence climbing that evaluates as it reads. While `quiet` is not zero (syntax check, or the
 * side of && and || that does not count) everything is read, nothing is computed. */
#include <limits.h>
#include <string.h>

#include "expr.h"

struct reader {
    const char *text, *p;
    const struct kfit_dim *names;
    unsigned count, depth, quiet;
    const char *problem; /* first one wins */
};

enum what { OR, AND, EQ, NE, LE, GE, LT, GT, ADD, SUB, MUL, DIV, MOD };

/* Longer spellings first: "<=" before "<". */
static const struct {
    char text[3];
    unsigned char level, what;
} operators[] = {
    {"||", 1, OR}, {"&&", 2, AND}, {"==", 3, EQ}, {"!=", 3, NE}, {"<=", 4, LE}, {">=", 4, GE}, {"<", 4, LT},
    {">", 4, GT},  {"+", 5, ADD},  {"-", 5, SUB}, {"*", 6, MUL}, {"/", 6, DIV}, {"%", 6, MOD},
};

static int64_t fail(struct reader *r, const char *problem)
{
    if (!r->problem)
        r->problem = problem;
    return 0;
}

static void skip_space(struct reader *r)
{
    while (*r->p == ' ' || *r->p == '\t')
        r->p++;
}

static bool accept(struct reader *r, char c)
{
    skip_space(r);
    if (*r->p != c)
        return false;
    r->p++;
    return true;
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '_' || is_digit(c);
}

static int64_t compute(struct reader *r, enum what what, int64_t a, int64_t b)
{
    int64_t v = 0;
    if (r->quiet || r->problem)
        return 0;
    switch (what) {
    case OR:
        return a || b;
    case AND:
        return a && b;
    case EQ:
        return a == b;
    case NE:
        return a != b;
    case LE:
        return a <= b;
    case GE:
        return a >= b;
    case LT:
        return a < b;
    case GT:
        return a > b;
    case ADD:
        return __builtin_add_overflow(a, b, &v) ? fail(r, "overflow") : v;
    case SUB:
        return __builtin_sub_overflow(a, b, &v) ? fail(r, "overflow") : v;
    case MUL:
        return __builtin_mul_overflow(a, b, &v) ? fail(r, "overflow") : v;
    case DIV:
    case MOD:
        if (!b)
            return fail(r, "division by zero");
        if (a == INT64_MIN && b == -1)
            return fail(r, "overflow");
        return what == DIV ? a / b : a % b;
    }
    return 0;
}

static int64_t expression(struct reader *r, unsigned level);

static int64_t call(struct reader *r, const char *name, size_t len)
{
    int64_t a = expression(r, 1), b;
    if (!accept(r, ','))
        return fail(r, "expected ',' between two arguments");
    b = expression(r, 1);
    if (!accept(r, ')'))
        return fail(r, "expected ')' after two arguments");
    if (len == 3 && !memcmp(name, "min", 3))
        return a < b ? a : b;
    if (len == 3 && !memcmp(name, "max", 3))
        return a > b ? a : b;
    if (len != 4 || memcmp(name, "ceil", 4))
        return fail(r, "unknown function; there are ceil, min and max");
    int64_t q = compute(r, DIV, a, b), rest = compute(r, MOD, a, b);
    return q + (rest != 0 && (rest < 0) == (b < 0)); /* cannot overflow: a rest means |b| > 1 */
}

static int64_t primary(struct reader *r)
{
    int64_t v = 0;
    skip_space(r);
    if (is_digit(*r->p)) {
        bool fits = true;
        for (; is_digit(*r->p); r->p++)
            fits = fits && !__builtin_mul_overflow(v, 10, &v) && !__builtin_add_overflow(v, *r->p - '0', &v);
        return !fits            ? fail(r, "number too large")
               : is_name(*r->p) ? fail(r, "expected a decimal number")
                                : v;
    }
    if (is_name(*r->p)) {
        const char *name = r->p;
        while (is_name(*r->p))
            r->p++;
        size_t len = (size_t)(r->p - name);
        if (accept(r, '('))
            return call(r, name, len);
        if (!r->names)
            return 0;
        for (unsigned i = 0; i < r->count; i++)
            if (strlen(r->names[i].name) == len && !memcmp(r->names[i].name, name, len))
                return r->names[i].value;
        return fail(r, "unknown name");
    }
    if (accept(r, '(')) {
        v = expression(r, 1);
        return accept(r, ')') ? v : fail(r, "expected ')'");
    }
    return fail(r, *r->p ? "expected a number, a name or '('" : "ends too early");
}

static int64_t unary(struct reader *r)
{
    skip_space(r);
    if (*r->p != '-' && *r->p != '!')
        return primary(r);
    if (++r->depth > KFIT_EXPR_DEPTH_MAX)
        return fail(r, "too deep");
    bool negate = *r->p++ == '-';
    int64_t v = unary(r);
    r->depth--;
    return negate ? compute(r, SUB, 0, v) : compute(r, EQ, v, 0);
}

static int64_t expression(struct reader *r, unsigned level)
{
    if (++r->depth > KFIT_EXPR_DEPTH_MAX)
        return fail(r, "too deep");
    int64_t left = unary(r);
    while (!r->problem) {
        unsigned i = 0, n = sizeof operators / sizeof *operators;
        skip_space(r);
        while (i < n && strncmp(r->p, operators[i].text, strlen(operators[i].text)))
            i++;
        if (i == n || operators[i].level < level)
            break;
        r->p += strlen(operators[i].text);
        enum what what = (enum what)operators[i].what;
        bool decided = (what == AND && !left) || (what == OR && left);
        r->quiet += decided;
        int64_t right = expression(r, operators[i].level + 1u);
        r->quiet -= decided;
        left = decided ? what == OR : compute(r, what, left, right);
    }
    r->depth--;
    return left;
}

enum kfit_status kfit_expr_eval(const char *text, const struct kfit_dim *names, unsigned count, int64_t *out,
                                struct kfit_error *err)
{
    struct reader r = {.text = text, .p = text, .names = names, .count = count, .quiet = !names};
    *out = 0;
    if (strnlen(text, KFIT_EXPR_BYTES_MAX + 1) > KFIT_EXPR_BYTES_MAX)
        return kfit_fail(err, KFIT_E_FORMAT, "expression \"%.40s...\": longer than %d bytes", text,
                         KFIT_EXPR_BYTES_MAX);
    int64_t v = expression(&r, 1);
    skip_space(&r);
    if (!r.problem && *r.p)
        fail(&r, "expected an operator or the end");
    if (r.problem)
        return kfit_fail(err, KFIT_E_FORMAT, "expression \"%s\": %s at \"%.20s\"", text, r.problem, r.p);
    *out = names ? v : 0;
    return KFIT_OK;
}
