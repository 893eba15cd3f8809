/* What a hooked call says, and what becomes of it. entries.S calls kfit_hooked with the saved arguments. */
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "preload.h"

/* As entries.S saves it. The ABI passes every integer in an 8-byte slot whatever its width; they are read at
 * the width the library was built with, so one reader serves 32 and 64 bits. */
struct frame {
    uint64_t word[6];
    union {
        float f32;
        double f64;
        char slot[16];
    } scalar[2];
    uint64_t padding;
    const void *caller;
    uint64_t stack[];
};
_Static_assert(offsetof(struct frame, caller) == 0x58, "FRAME in entries.S");

enum kind { cblas_gemm, cblas_gemv, fortran_gemm, fortran_gemv };

static const struct {
    uint8_t kind, type;
} hooks[KFIT_HOOK_COUNT] = {
#define KFIT_Y(function, interface, operation, type, kfit_type) {interface##_##operation, kfit_type},
    KFIT_HOOK_LIST(KFIT_Y)
#undef KFIT_Y
};

/* ---- reading arguments ---- */

enum op { OP_N, OP_T, OP_UNKNOWN };

static inline enum op cblas_op(uint64_t raw)
{
    switch ((int32_t)raw) {
    case 111: /* CblasNoTrans */
        return OP_N;
    case 112: /* CblasTrans */
    case 113: /* CblasConjTrans: the same for real numbers */
        return OP_T;
    default:
        return OP_UNKNOWN;
    }
}

static inline enum op fortran_op(uint64_t pointer)
{
    switch (*(const char *)pointer) {
    case 'N':
    case 'n':
        return OP_N;
    case 'T':
    case 't':
    case 'C':
    case 'c':
        return OP_T;
    default:
        return OP_UNKNOWN;
    }
}

static inline int64_t by_value(uint64_t raw, bool wide)
{
    return wide ? (int64_t)raw : (int32_t)raw;
}

static inline int64_t by_pointer(uint64_t pointer, bool wide)
{
    return wide ? *(const int64_t *)pointer : *(const int32_t *)pointer;
}

/* ---- calls ---- */

/* The readers return false for what is not a call at all, and left to the original to complain about. */

/* y[out] = alpha * op(A) x[in] + beta * y as a row-major product. A contiguous y is one row, y = x * op(A)^T,
 * so that x * W has the same key for one row as for more; any other y is a column. `t`: op(A) is the
 * transpose of what a row-major reader sees. */
static inline bool fill_gemv(struct kfit_gemm_call *call, bool t, int64_t out, int64_t in, const void *a,
                             int64_t lda, const void *x, int64_t incx, void *y, int64_t incy)
{
    call->k = in;
    if (incy == 1 && incx > 0) {
        call->m = 1;
        call->n = out;
        call->ta = incx > 1;
        call->tb = !t;
        call->a = x;
        call->b = a;
        call->c = y;
        call->lda = incx > 1 ? incx : in;
        call->ldb = lda;
        call->ldc = out;
        return true;
    }
    int64_t size = call->type == KFIT_F64 ? 8 : 4;
    call->m = out;
    call->n = 1;
    call->ta = t;
    call->a = a;
    call->b = (const char *)x + (incx < 0 ? (1 - in) * incx * size : 0); /* backwards, from the end */
    call->c = (char *)y + (incy < 0 ? (1 - out) * incy * size : 0);
    call->lda = lda;
    call->ldb = incx;
    call->ldc = incy;
    return incx != 0 && incy != 0; /* a negative one makes no key: it is no leading dimension */
}

static inline bool read_gemm(struct kfit_gemm_call *call, enum op ta, enum op tb)
{
    call->ta = ta == OP_T;
    call->tb = tb == OP_T;
    return ta != OP_UNKNOWN && tb != OP_UNKNOWN;
}

static inline bool read_gemv(struct kfit_gemm_call *call, bool col_major, enum op t, int64_t m, int64_t n,
                             const void *a, int64_t lda, const void *x, int64_t incx, void *y, int64_t incy)
{
    bool swap = t == OP_T;
    bool legal = fill_gemv(call, swap != col_major, swap ? n : m, swap ? m : n, a, lda, x, incx, y, incy);
    return legal && t != OP_UNKNOWN;
}

static inline double scalar(enum kfit_dtype type, const void *p)
{
    return type == KFIT_F64 ? *(const double *)p : *(const float *)p;
}

/* Argument i, floating-point ones not counted */
#define ARG(i)     ((i) < 6 ? f->word[(i) < 6 ? (i) : 0] : f->stack[(i) < 6 ? 0 : (i)-6])
#define POINTER(i) ((void *)ARG(i))
#define VALUE(i)   by_value(ARG(i), wide)
#define AT(i)      by_pointer(ARG(i), wide)

static inline bool read_call(struct kfit_gemm_call *call, enum kind kind, enum kfit_dtype type, bool wide,
                             const struct frame *f)
{
    *call = (struct kfit_gemm_call){.type = type};
    if (kind == cblas_gemm || kind == cblas_gemv) {
        int32_t order = (int32_t)ARG(0);
        bool col_major = order == 102;
        bool legal;
        call->alpha = scalar(type, &f->scalar[0]);
        call->beta = scalar(type, &f->scalar[1]);
        if (kind == cblas_gemm) {
            call->col_major = col_major;
            call->m = VALUE(3), call->n = VALUE(4), call->k = VALUE(5);
            call->a = POINTER(6), call->lda = VALUE(7);
            call->b = POINTER(8), call->ldb = VALUE(9);
            call->c = POINTER(10), call->ldc = VALUE(11);
            legal = read_gemm(call, cblas_op(ARG(1)), cblas_op(ARG(2)));
        } else
            legal = read_gemv(call, col_major, cblas_op(ARG(1)), VALUE(2), VALUE(3), POINTER(4), VALUE(5),
                              POINTER(6), VALUE(7), POINTER(8), VALUE(9));
        return legal && (order == 101 || col_major);
    }
    if (kind == fortran_gemm) {
        call->col_major = true;
        call->m = AT(2), call->n = AT(3), call->k = AT(4);
        call->alpha = scalar(type, POINTER(5));
        call->a = POINTER(6), call->lda = AT(7);
        call->b = POINTER(8), call->ldb = AT(9);
        call->beta = scalar(type, POINTER(10));
        call->c = POINTER(11), call->ldc = AT(12);
        return read_gemm(call, fortran_op(ARG(0)), fortran_op(ARG(1)));
    }
    call->alpha = scalar(type, POINTER(3));
    call->beta = scalar(type, POINTER(8));
    return read_gemv(call, true, fortran_op(ARG(0)), AT(1), AT(2), POINTER(4), AT(5), POINTER(6), AT(7),
                     POINTER(9), AT(10));
}

/* ---- the decision ---- */

/* "OpenBLAS 0.3.21" of its config; of another BLAS, the file's name. */
static void blas_name(const struct kfit_generic *g, char *buf, size_t size)
{
    const char *slash = strrchr(g->path, '/'), *text = g->config;
    size_t n = strcspn(text, " ");
    if (text[n])
        n += 1 + strcspn(text + n + 1, " ");
    else
        text = slash ? slash + 1 : g->path, n = strlen(text);
    snprintf(buf, size, "%.*s", (int)n, text);
}

static void look(struct kfit_server *s, struct kfit_surroundings *o, const void *ctx)
{
    const struct kfit_blas *blas = ctx;
    char name[64];
    blas_name(&blas->generic, name, sizeof name);
    s->threads = blas->threads ? blas->threads() : 0;
    kfit_env_host(&o->env, s->threads, name, NULL);
}

/* True if the result is in c. */
static inline bool served(const struct kfit_site *site, const struct kfit_gemm_call *call, bool legal)
{
    const struct kfit_blas *blas = site->blas;
    struct kfit_server *s = &kfit_servers[KFIT_SERVER_HOST];
    struct kfit_dispatcher *d = __atomic_load_n(&s->dispatcher, __ATOMIC_ACQUIRE);
    uint32_t generic;
    if (__builtin_expect(!d, 0) && !(d = kfit_serve(s, look, blas, true)))
        return false;
    if (!legal) {
        kfit_dispatch_unkeyed(d, KFIT_REASON_FLAGS);
        return false;
    }
    int threads = s->dispatching && blas->threads ? blas->threads() : s->threads;
    return kfit_generic_of(s, d, blas, &generic) &&
           kfit_dispatch_gemm(d, call, threads, generic) == KFIT_REASON_NONE;
}

/* The function to jump to, or NULL if there is nothing left to do. */
const void *kfit_hooked(const struct frame *f, unsigned hook)
{
    const struct kfit_site *site = kfit_site_find(hook, f->caller);
    struct kfit_gemm_call call;
    if (!site->blas)
        return site->fn;
    bool legal = read_call(&call, hooks[hook].kind, hooks[hook].type, site->wide, f);
    if (__builtin_expect(!site->fn, 0)) {
        if (legal)
            kfit_reference_gemm(&call);
        return NULL;
    }
    return served(site, &call, legal) ? NULL : site->fn;
}
