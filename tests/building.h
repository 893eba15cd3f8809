/* Compiling candidates in tests: every case that compiles does so with each compiler found here. */
#ifndef KFIT_TESTS_BUILDING_H
#define KFIT_TESTS_BUILDING_H

#include "kfit_test.h"

#include "kfit/compile.h"

#define HEAD                                                                                                 \
    "/* kfit-candidate 1\n{\"op\":\"gemm\", \"device\":\"host\", "                                           \
    "\"launches\":[{\"entry\":\"kfit_main\"}]}\n*/\n"
#define ENTRY "void kfit_main(const KFIT_TYPE *a, const KFIT_TYPE *b, KFIT_TYPE *c, void *ws)\n"

/* gcc and clang, as far as they are here; skips the case if neither is. */
unsigned compilers(const char *out[2]);
struct kfit_candidate *candidate_of(const char *source, size_t bytes);
union kfit_key key_of(const char *text);
/* For key_text, a 4 x 768 x 512 product in f32. */
extern const char key_text[];
enum kfit_status build(const char *source, size_t bytes, const char *cc, unsigned timeout_ms,
                       struct kfit_built *b, struct kfit_error *err);
/* Source of tests/bad_kernels/host/static_NAME.c; malloc'ed. */
char *bad_kernel(const char *name, size_t *bytes);
bool known_code(const char *code);

#endif
