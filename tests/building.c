#include "building.h"

#include <unistd.h>

#include "kfit/receipt.h"

const char key_text[] =
    "gemm/f32,f32,f32/acc=f32/m=4,n=768,k=512/nn/lda=512,ldb=768,ldc=768/alpha=1,beta=0/align=16";

unsigned compilers(const char *out[2])
{
    static const char *const names[] = {"/usr/bin/gcc", "/usr/bin/clang"};
    unsigned n = 0;
    for (int i = 0; i < 2; i++)
        if (access(names[i], X_OK) == 0)
            out[n++] = names[i];
    if (!n)
        SKIP("neither gcc nor clang in /usr/bin");
    return n;
}

struct kfit_candidate *candidate_of(const char *source, size_t bytes)
{
    struct kfit_candidate *c;
    struct kfit_error err = {0};
    CHECK_OK(kfit_candidate_parse(source, bytes, &c, &err), err);
    return c;
}

union kfit_key key_of(const char *text)
{
    union kfit_key key;
    struct kfit_error err = {0};
    CHECK_OK(kfit_key_parse(text, &key, &err), err);
    return key;
}

enum kfit_status build(const char *source, size_t bytes, const char *cc, unsigned timeout_ms,
                       struct kfit_built *b, struct kfit_error *err)
{
    struct kfit_candidate *c = candidate_of(source, bytes);
    union kfit_key key = key_of(key_text);
    struct kfit_compile_params p = {.candidate = c,
                                    .key = &key,
                                    .choice = &(struct kfit_choice){{0}},
                                    .cc = cc,
                                    .timeout_ms = timeout_ms,
                                    .allow_no_isolation = true};
    enum kfit_status s = kfit_compile(&p, b, err);
    kfit_candidate_destroy(c);
    return s;
}

char *bad_kernel(const char *name, size_t *bytes)
{
    char path[512];
    snprintf(path, sizeof path, BAD_KERNELS "/host/static_%s.c", name);
    return kfit_test_read(path, bytes);
}

bool known_code(const char *code)
{
#define KFIT_X(name, str)                                                                                    \
    if (!strcmp(code, str))                                                                                  \
        return true;
    KFIT_CODE_LIST(KFIT_X)
#undef KFIT_X
    return false;
}
