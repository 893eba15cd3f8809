/* gemm: C[m,n] = op(A)[m,k] * op(B)[k,n], row-major, alpha and beta as classes. */
#include <inttypes.h>
#include <stdio.h>

#include "kfit/gemm_key.h"
#include "number.h"
#include "ops.h"

/* ---- key: check, text ---- */

static bool tensor_fits(int64_t rows, int64_t ld, int64_t bytes)
{
    return rows <= INT64_MAX / 16 / (ld ? ld : 1) / bytes;
}

static enum kfit_status check(const union kfit_key *key, struct kfit_error *err)
{
    const struct kfit_gemm_key *g = &key->gemm;
    bool batched = g->len == KFIT_GEMM_KEY_BATCHED_BYTES;
    if (!batched && g->len != KFIT_GEMM_KEY_BYTES)
        return kfit_fail(err, KFIT_E_FORMAT, "gemm key: length %u, expected %u or %u", g->len,
                         KFIT_GEMM_KEY_BYTES, KFIT_GEMM_KEY_BATCHED_BYTES);
    if (!kfit_dtype_bytes(g->type_a) || !kfit_dtype_bytes(g->type_b) || !kfit_dtype_bytes(g->type_c) ||
        !kfit_dtype_bytes(g->type_acc))
        return kfit_fail(err, KFIT_E_FORMAT, "gemm key: unknown data type");
    if (g->ta > 1 || g->tb > 1 || g->alpha > KFIT_SCALAR_OTHER || g->beta > KFIT_SCALAR_OTHER ||
        g->epi >= KFIT_EPI_END || g->scale || g->math || g->zero[0] || g->zero[1])
        return kfit_fail(err, KFIT_E_FORMAT, "gemm key: unknown flag");
    if (!g->align || g->align > 16 || (g->align & (g->align - 1)))
        return kfit_fail(err, KFIT_E_FORMAT, "gemm key: align=%u is not 1, 2, 4, 8 or 16", g->align);
    if (g->m < 1 || g->n < 1 || g->k < 1)
        return kfit_fail(err, KFIT_E_FORMAT, "gemm key: m=%d,n=%d,k=%d; all must be at least 1", g->m, g->n,
                         g->k);
    if (g->lda < (g->ta ? g->m : g->k) || g->ldb < (g->tb ? g->k : g->n) || g->ldc < g->n)
        return kfit_fail(err, KFIT_E_FORMAT, "gemm key: lda=%d,ldb=%d,ldc=%d shorter than a row", g->lda,
                         g->ldb, g->ldc);
    if (!tensor_fits(g->ta ? g->k : g->m, g->lda, 8) || !tensor_fits(g->tb ? g->n : g->k, g->ldb, 8) ||
        !tensor_fits(g->m, g->ldc, 8))
        return kfit_fail(err, KFIT_E_FORMAT, "gemm key: larger than an address space");
    if (batched && (g->batch < 2 || g->zero2 || g->sa < 0 || g->sb < 0 || g->sc < 0 ||
                    !tensor_fits(g->batch, g->sa, 8) || !tensor_fits(g->batch, g->sb, 8) ||
                    !tensor_fits(g->batch, g->sc, 8)))
        return kfit_fail(err, KFIT_E_FORMAT, "gemm key: batch=%d with strides out of range", g->batch);
    return KFIT_OK;
}

static const char *const scalar_text[] = {"0", "1", "other"};
static const char *const epilogue_text[] = {[KFIT_EPI_BIAS] = "bias"};

static size_t format(const union kfit_key *key, char *buf, size_t size)
{
    const struct kfit_gemm_key *g = &key->gemm;
    int n = snprintf(
        buf, size, "gemm/%s,%s,%s/acc=%s/m=%d,n=%d,k=%d/%c%c/lda=%d,ldb=%d,ldc=%d/alpha=%s,beta=%s/align=%u",
        kfit_dtype_name(g->type_a), kfit_dtype_name(g->type_b), kfit_dtype_name(g->type_c),
        kfit_dtype_name(g->type_acc), g->m, g->n, g->k, g->ta ? 't' : 'n', g->tb ? 't' : 'n', g->lda, g->ldb,
        g->ldc, scalar_text[g->alpha], scalar_text[g->beta], g->align);
    if (g->len == KFIT_GEMM_KEY_BATCHED_BYTES && n > 0 && (size_t)n < size)
        n += snprintf(buf + n, size - (size_t)n, "/batch=%d,sa=%" PRId64 ",sb=%" PRId64 ",sc=%" PRId64,
                      g->batch, g->sa, g->sb, g->sc);
    if (g->epi && n > 0 && (size_t)n < size)
        n += snprintf(buf + n, size - (size_t)n, "/epi=%s", epilogue_text[g->epi]);
    return n > 0 ? (size_t)n : 0;
}

/* A little reader for the text form: each step eats what it expects or notes what it wanted. */
struct reader {
    const char *p, *wanted;
};

static void eat(struct reader *r, const char *literal)
{
    size_t n = strlen(literal);
    if (r->wanted)
        return;
    if (strncmp(r->p, literal, n))
        r->wanted = literal;
    else
        r->p += n;
}

static uint64_t eat_number(struct reader *r, const char *literal, uint64_t max)
{
    uint64_t v = 0;
    eat(r, literal);
    if (!r->wanted && !kfit_number(&r->p, max, &v))
        r->wanted = "a number in range";
    return v;
}

static uint8_t eat_word(struct reader *r, const char *literal, const char *const *words, unsigned first,
                        unsigned end)
{
    eat(r, literal);
    if (r->wanted)
        return 0;
    for (unsigned i = first; i < end; i++) {
        size_t n = strlen(words[i]);
        if (!strncmp(r->p, words[i], n) && (!r->p[n] || strchr(",/", r->p[n]))) {
            r->p += n;
            return (uint8_t)i;
        }
    }
    r->wanted = "a known word";
    return 0;
}

static enum kfit_status parse(const char *text, union kfit_key *key, struct kfit_error *err)
{
    const char *types[KFIT_DTYPE_END];
    for (unsigned i = 0; i < KFIT_DTYPE_END; i++)
        types[i] = kfit_dtype_name((enum kfit_dtype)i);
    struct reader r = {.p = text};
    memset(key, 0, sizeof *key);
    struct kfit_gemm_key *g = &key->gemm;
    g->len = KFIT_GEMM_KEY_BYTES;
    g->op = KFIT_OP_GEMM;
    g->type_a = eat_word(&r, "gemm/", types, 1, KFIT_DTYPE_END);
    g->type_b = eat_word(&r, ",", types, 1, KFIT_DTYPE_END);
    g->type_c = eat_word(&r, ",", types, 1, KFIT_DTYPE_END);
    g->type_acc = eat_word(&r, "/acc=", types, 1, KFIT_DTYPE_END);
    g->m = (int32_t)eat_number(&r, "/m=", INT32_MAX);
    g->n = (int32_t)eat_number(&r, ",n=", INT32_MAX);
    g->k = (int32_t)eat_number(&r, ",k=", INT32_MAX);
    eat(&r, "/");
    for (int i = 0; i < 2 && !r.wanted; i++, r.p++) {
        if (*r.p != 'n' && *r.p != 't')
            r.wanted = "two letters of n and t";
        else
            *(i ? &g->tb : &g->ta) = *r.p == 't';
        if (!*r.p)
            break;
    }
    g->lda = (int32_t)eat_number(&r, "/lda=", INT32_MAX);
    g->ldb = (int32_t)eat_number(&r, ",ldb=", INT32_MAX);
    g->ldc = (int32_t)eat_number(&r, ",ldc=", INT32_MAX);
    g->alpha = eat_word(&r, "/alpha=", scalar_text, 0, 3);
    g->beta = eat_word(&r, ",beta=", scalar_text, 0, 3);
    g->align = (uint8_t)eat_number(&r, "/align=", 16);
    if (!r.wanted && !strncmp(r.p, "/batch=", 7)) {
        g->len = KFIT_GEMM_KEY_BATCHED_BYTES;
        g->batch = (int32_t)eat_number(&r, "/batch=", INT32_MAX);
        g->sa = (int64_t)eat_number(&r, ",sa=", INT64_MAX);
        g->sb = (int64_t)eat_number(&r, ",sb=", INT64_MAX);
        g->sc = (int64_t)eat_number(&r, ",sc=", INT64_MAX);
    }
    if (!r.wanted && !strncmp(r.p, "/epi=", 5))
        g->epi = eat_word(&r, "/epi=", epilogue_text, KFIT_EPI_BIAS, KFIT_EPI_END);
    if (!r.wanted && *r.p)
        r.wanted = g->epi ? "the end" : g->batch ? "/epi= or the end" : "/batch=, /epi= or the end";
    if (r.wanted)
        return kfit_fail(err, KFIT_E_FORMAT, "key: at \"%.60s\": expected %s", r.p, r.wanted);
    return KFIT_OK;
}

/* ---- arguments, reference, cost ---- */

static int64_t batch_of(const struct kfit_gemm_key *g)
{
    return g->len == KFIT_GEMM_KEY_BATCHED_BYTES ? g->batch : 1;
}

enum { ARG_A, ARG_B, ARG_C, ARG_BIAS };

static unsigned nargs(const union kfit_key *key)
{
    return key->gemm.epi == KFIT_EPI_BIAS ? ARG_BIAS + 1 : ARG_C + 1;
}

static void tensor(const union kfit_key *key, unsigned i, struct kfit_tensor *t)
{
    const struct kfit_gemm_key *g = &key->gemm;
    bool batched = batch_of(g) > 1;
    const struct kfit_tensor all[] = {
        {KFIT_IN, g->type_a, batch_of(g), g->ta ? g->k : g->m, g->ta ? g->m : g->k, g->lda,
         batched ? g->sa : 0},
        {KFIT_IN, g->type_b, batch_of(g), g->tb ? g->n : g->k, g->tb ? g->k : g->n, g->ldb,
         batched ? g->sb : 0},
        {g->beta == KFIT_SCALAR_ZERO ? KFIT_OUT : KFIT_INOUT, g->type_c, batch_of(g), g->m, g->n, g->ldc,
         batched ? g->sc : 0},
        {KFIT_IN, g->type_c, 1, 1, g->n, g->n, 0},
    };
    *t = all[i];
}

static unsigned dims(const union kfit_key *key, struct kfit_dim out[KFIT_DIMS_MAX])
{
    const struct kfit_gemm_key *g = &key->gemm;
    const struct kfit_dim all[] = {
        {"M", g->m},
        {"N", g->n},
        {"K", g->k},
        {"LDA", g->lda},
        {"LDB", g->ldb},
        {"LDC", g->ldc},
        {"TA", g->ta},
        {"TB", g->tb},
        {"BETA", g->beta},
        {"ALIGN", g->align},
        {"BATCH", batch_of(g)},
        {"SA", g->sa},
        {"SB", g->sb},
        {"SC", g->sc},
        {"BYTES_A", kfit_dtype_bytes(g->type_a)},
        {"BYTES_C", kfit_dtype_bytes(g->type_c)},
        {"TYPE_A", g->type_a},
        {"TYPE_B", g->type_b},
        {"TYPE_C", g->type_c},
        {"EPI", g->epi},
    };
    unsigned n = sizeof all / sizeof *all;
    memcpy(out, all, sizeof all);
    if (batch_of(g) == 1) /* the key ends before the strides */
        out[11].value = out[12].value = out[13].value = 0;
    return n;
}

static double load(const void *p, enum kfit_dtype t, int64_t i)
{
    switch (t) {
    case KFIT_F32:
        return ((const float *)p)[i];
    case KFIT_F64:
        return ((const double *)p)[i];
    case KFIT_BF16: {
        uint32_t bits = (uint32_t)((const uint16_t *)p)[i] << 16;
        float f;
        memcpy(&f, &bits, sizeof f);
        return f;
    }
    case KFIT_F16: {
        uint16_t h = ((const uint16_t *)p)[i];
        int e = h >> 10 & 31, m = h & 1023;
        double v = e == 31 ? (m ? __builtin_nan("") : __builtin_inf())
                           : __builtin_ldexp(e ? 1024 + m : m, (e ? e : 1) - 25);
        return h >> 15 ? -v : v;
    }
    default:
        return __builtin_nan("");
    }
}

/* Plain sums in float64, k innermost in memory order of the stored operands: slow is fine, simple is not
 * negotiable. A row of A is widened once; B is read along its rows. */
static void reference(const union kfit_key *key, const void *const args[], double *ref, double *mag)
{
    const struct kfit_gemm_key *g = &key->gemm;
    struct kfit_tensor a, b, c;
    tensor(key, ARG_A, &a);
    tensor(key, ARG_B, &b);
    tensor(key, ARG_C, &c);
    for (int64_t s = 0; s < c.batch; s++) {
        for (int64_t i = 0; i < g->m; i++) {
            double *r = ref + (s * g->m + i) * g->n, *w = mag + (s * g->m + i) * g->n;
            for (int64_t j = 0; j < g->n; j++) {
                double old = c.dir == KFIT_INOUT
                                 ? load(args[ARG_C], c.type, s * c.batch_stride + i * c.ld + j)
                                 : 0;
                double bias = g->epi == KFIT_EPI_BIAS ? load(args[ARG_BIAS], c.type, j) : 0;
                r[j] = old + bias;
                w[j] = __builtin_fabs(old) + __builtin_fabs(bias);
            }
            for (int64_t p = 0; g->alpha != KFIT_SCALAR_ZERO && p < g->k; p++) {
                double x = load(args[ARG_A], a.type, s * a.batch_stride + (g->ta ? p * a.ld + i : i * a.ld + p));
                for (int64_t j = 0; j < g->n; j++) {
                    double y =
                        x * load(args[ARG_B], b.type, s * b.batch_stride + (g->tb ? j * b.ld + p : p * b.ld + j));
                    r[j] += y;
                    w[j] += y < 0 ? -y : y;
                }
            }
        }
    }
}

static double flops(const union kfit_key *key)
{
    const struct kfit_gemm_key *g = &key->gemm;
    return 2.0 * (double)batch_of(g) * g->m * g->n * g->k;
}

static double bytes(const union kfit_key *key)
{
    double sum = 0;
    for (unsigned i = 0; i < nargs(key); i++) {
        struct kfit_tensor t;
        tensor(key, i, &t);
        /* a matrix that all of a batch share is read once */
        double matrices = t.batch_stride || t.dir != KFIT_IN ? (double)t.batch : 1;
        sum += matrices * (double)t.rows * (double)t.cols * kfit_dtype_bytes(t.type) *
               (t.dir == KFIT_INOUT ? 2 : 1);
    }
    return sum;
}

static int64_t reduction(const union kfit_key *key)
{
    return key->gemm.k;
}

static const char *const arg_names[] = {"a", "b", "c", "bias", NULL};

const struct kfit_op kfit_op_gemm = {
    .id = KFIT_OP_GEMM,
    .name = "gemm",
    .version = 1,
    .arg_names = arg_names,
    .check = check,
    .format = format,
    .parse = parse,
    .nargs = nargs,
    .tensor = tensor,
    .dims = dims,
    .reference = reference,
    .out_arg = ARG_C,
    .flops = flops,
    .bytes = bytes,
    .reduction = reduction,
};

/* ---- from a call ---- */

bool kfit_gemm_key_fill(const struct kfit_gemm_call *call, union kfit_key *key, const void *args[3])
{
    return kfit_gemm_key_fill_inline(call, key, args);
}
