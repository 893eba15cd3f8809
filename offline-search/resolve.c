/* From a parsed header, a key and a choice to a plan: numbers only. */
#include <stdio.h>
#include <string.h>

#include "kfit/generation.h"

#include "candidate_private.h"
#include "expr.h"

/* Dimensions, then knobs, then limits; VL, the lanes of a vector of the op's type, follows from VL32 or VL64.
 */
unsigned kfit_candidate_names(const struct kfit_candidate *c, const union kfit_key *key,
                              const struct kfit_choice *choice, const struct kfit_limits *limits,
                              struct kfit_dim out[KFIT_NAMES_MAX])
{
    struct kfit_tensor t;
    unsigned n = c->op->dims(key, out);
    for (unsigned i = 0; i < c->knob_count; i++)
        out[n++] = (struct kfit_dim){c->knobs[i].name, kfit_choice_value(c, choice, i)};
    c->op->tensor(key, c->op->out_arg, &t);
    const char *lanes = kfit_dtype_bytes(t.type) == 8 ? "VL64" : "VL32";
    for (unsigned i = 0; limits && i < limits->count; i++) {
        out[n++] = limits->entry[i];
        if (!strcmp(limits->entry[i].name, lanes))
            out[n++] = (struct kfit_dim){"VL", limits->entry[i].value};
    }
    return n;
}

static enum kfit_status small_dims(char *const expr[3], const struct kfit_dim *names, unsigned count,
                                   uint32_t out[3], struct kfit_error *err)
{
    for (unsigned d = 0; d < 3; d++) {
        int64_t v = 1;
        enum kfit_status s = expr[d] ? kfit_expr_eval(expr[d], names, count, &v, err) : KFIT_OK;
        if (s != KFIT_OK)
            return s;
        if (v < 1 || v > INT32_MAX)
            return kfit_fail(err, KFIT_E_FORMAT, "candidate header: \"%s\" gives %lld; expected 1 or more",
                             expr[d], (long long)v);
        out[d] = (uint32_t)v;
    }
    return KFIT_OK;
}

static enum kfit_status map(const struct kfit_candidate *c, const struct kfit_candidate_map *from,
                            const union kfit_key *key, const struct kfit_dim *names, unsigned count,
                            struct kfit_tensormap *m, struct kfit_error *err)
{
    struct kfit_tensor t;
    char *const expr[] = {from->box[0], from->box[1], from->swizzle};
    uint32_t *const out[] = {&m->box_rows, &m->box_cols, &m->swizzle};
    if (from->arg >= c->op->nargs(key))
        return kfit_fail(err, KFIT_E_REFUSED, "a tensor map of argument %s, which this key does not have",
                         c->op->arg_names[from->arg]);
    for (unsigned i = 0; i < 3; i++) {
        int64_t v = 0;
        enum kfit_status s = expr[i] ? kfit_expr_eval(expr[i], names, count, &v, err) : KFIT_OK;
        if (s != KFIT_OK)
            return s;
        *out[i] = v < 0 || v > 256 ? UINT32_MAX : (uint32_t)v; /* refused with the plan */
    }
    c->op->tensor(key, from->arg, &t);
    const uint64_t size = kfit_dtype_bytes(t.type);
    m->arg = from->arg;
    m->type = t.type;
    m->batch = (uint64_t)t.batch;
    m->rows = (uint64_t)t.rows;
    m->cols = (uint64_t)t.cols;
    m->row_bytes = (uint64_t)t.ld * size;
    m->matrix_bytes = (uint64_t)t.batch_stride * size;
    return KFIT_OK;
}

enum kfit_status kfit_candidate_resolve(const struct kfit_candidate *c, const union kfit_key *key,
                                        const struct kfit_choice *choice, const struct kfit_limits *limits,
                                        struct kfit_plan *plan, struct kfit_error *err)
{
    struct kfit_dim names[KFIT_NAMES_MAX];
    enum kfit_status s = kfit_key_check(key, err);
    int64_t v = 0;
    memset(plan, 0, sizeof *plan);
    if (s != KFIT_OK)
        return s;
    if (kfit_op_of(key) != c->op)
        return kfit_fail(err, KFIT_E_REFUSED, "candidate is for op %s, the key for %s", c->op->name,
                         kfit_op_of(key)->name);
    for (unsigned i = 0; i < c->knob_count; i++)
        if (choice->index[i] >= c->knobs[i].count)
            return kfit_fail(err, KFIT_E_ARG, "knob %s has %u values, value number %u was chosen",
                             c->knobs[i].name, c->knobs[i].count, choice->index[i]);
    unsigned count = kfit_candidate_names(c, key, choice, limits, names);
    for (unsigned i = 0; i < c->require_count; i++) {
        if ((s = kfit_expr_eval(c->requires[i], names, count, &v, err)) != KFIT_OK)
            return s;
        if (!v)
            return kfit_fail(err, KFIT_E_REFUSED, "requirement does not hold: %s", c->requires[i]);
    }
    if (c->workspace) {
        if ((s = kfit_expr_eval(c->workspace, names, count, &v, err)) != KFIT_OK)
            return s;
        if (v < 0)
            return kfit_fail(err, KFIT_E_FORMAT, "candidate header: workspace of %lld bytes", (long long)v);
        plan->workspace_bytes = (uint64_t)v;
        plan->workspace_init = c->workspace_init;
    }
    uint8_t digest[32];
    char hex[9];
    kfit_candidate_digest(c, choice, digest);
    kfit_hex(digest, 4, hex);
    plan->launch_count = c->launch_count;
    for (unsigned i = 0; i < c->launch_count; i++) {
        const struct kfit_candidate_launch *l = &c->launches[i];
        struct kfit_launch *p = &plan->launches[i];
        snprintf(p->entry, sizeof p->entry, i ? "kfit_%.32s_%s_%u" : "kfit_%.32s_%s", c->op->name, hex, i);
        if ((s = small_dims(l->grid, names, count, p->grid, err)) != KFIT_OK ||
            (s = small_dims(l->block, names, count, p->block, err)) != KFIT_OK ||
            (s = small_dims(l->cluster, names, count, p->cluster, err)) != KFIT_OK)
            return s;
        v = 0;
        if (l->smem && (s = kfit_expr_eval(l->smem, names, count, &v, err)) != KFIT_OK)
            return s;
        if (v < 0 || v > INT32_MAX)
            return kfit_fail(err, KFIT_E_FORMAT, "candidate header: \"%s\" gives %lld bytes", l->smem,
                             (long long)v);
        p->smem_bytes = (uint32_t)v;
        p->cooperative = l->cooperative;
    }
    plan->tensormap_count = c->map_count;
    for (unsigned i = 0; i < c->map_count; i++)
        if ((s = map(c, &c->maps[i], key, names, count, &plan->tensormaps[i], err)) != KFIT_OK)
            return s;
    return kfit_plan_check(plan, UINT64_MAX, err);
}
