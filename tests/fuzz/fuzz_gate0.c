/* libFuzzer: any bytes as an expression, a candidate, source text, preprocessed text, an object file and a
 * listing; the first byte says as which. What is accepted must keep its promise.
 *     CC=clang meson setup build-fuzz -Db_sanitize=address,undefined -Db_lundef=false
 *     build-fuzz/tests/fuzz/fuzz_gate0 -max_total_time=60 CORPUS tests/bad_kernels/host */
#include <stdlib.h>

#include "expr.h"
#include "gate0.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(int ok)
{
    if (!ok)
        abort();
}

static void expression(const char *text, size_t size)
{
    static const struct kfit_dim names[] = {{"M", 4}, {"N", -768}};
    int64_t value, again;
    (void)size;
    if (kfit_expr_eval(text, names, 2, &value, NULL) == KFIT_OK)
        check(kfit_expr_eval(text, NULL, 0, &again, NULL) == KFIT_OK && !again);
}

static void candidate(const char *text, size_t size)
{
    static const char key_text[] =
        "gemm/f32,f32,f32/acc=f32/m=4,n=768,k=512/nn/lda=512,ldb=768,ldc=768/alpha=1,beta=0/align=16";
    struct kfit_candidate *c;
    struct kfit_plan plan;
    union kfit_key key;
    struct kfit_choice choice = {{0}};
    if (kfit_candidate_parse(text, size, &c, NULL) != KFIT_OK)
        return;
    check(kfit_key_parse(key_text, &key, NULL) == KFIT_OK);
    if (kfit_candidate_resolve(c, &key, &choice, NULL, &plan, NULL) == KFIT_OK)
        check(kfit_plan_check(&plan, 1, NULL) == KFIT_OK);
    kfit_candidate_destroy(c);
}

static void source(const char *text, size_t size)
{
    struct kfit_text out = {0};
    struct kfit_built b = {0};
    check(kfit_static_source(text, size, &out, &b) == KFIT_OK || b.code[0]);
    free(out.data);
}

static void preprocessed(const char *text, size_t size)
{
    struct kfit_text out = {0};
    struct kfit_built b = {0};
    check(kfit_static_preprocessed(text, size, &out, &b) == KFIT_OK || b.code[0]);
    free(out.data);
}

static void object(const char *text, size_t size)
{
    struct kfit_built b = {0};
    size_t code = 0;
    if (kfit_link_host((const uint8_t *)text, size, "kfit_main", &b, &code) == KFIT_OK)
        check(code <= b.image_bytes && b.plan.launches[0].entry_offset < code);
    free(b.image);
}

static void listing(const char *text, size_t size)
{
    struct kfit_built b = {0};
    check(kfit_static_instructions(text, size, size / 4 + 1, 0, &b) == KFIT_OK || b.code[0]);
    (void)kfit_data_oblivious(text, size);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const parts[])(const char *, size_t) = {expression,   candidate, source,
                                                          preprocessed, object,    listing};
    size_t n = size ? size - 1 : 0;
    char *copy = malloc(n + 1); /* texts end in NUL, as kfit_memfd_read gives them */
    if (n)
        memcpy(copy, data + 1, n);
    copy[n] = '\0';
    parts[size ? data[0] % 6 : 0](copy, n);
    free(copy);
    return 0;
}
