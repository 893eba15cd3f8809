/* Where a handle's fields are (fields.c), by the code of a real libcublas, which needs no GPU for this: the toolkit's, or that
 * of KFIT_TEST_CUBLAS, beside whose libcublasLt it lies. */
#include <dlfcn.h>
#include <sys/mman.h>

#include "cublas.h"
#include "kfit_test.h"

enum { HANDLE_BYTES = 8192, CODE_BYTES = 256, PAGE = 4096 };

/* The library. */
static void *open_getters(struct kfit_cublas *c, const char *path)
{
    char lt[512];
    const char *name = strrchr(path, '/');
    const int folder = name ? (int)(name - path) : 0;
    snprintf(lt, sizeof lt, "%.*s/libcublasLt%s", folder, path, strstr(path, ".so"));
    if (!dlopen(lt, RTLD_LAZY | RTLD_GLOBAL))
        SKIP("%s", dlerror());
    void *lib = dlopen(path, RTLD_LAZY);
    if (!lib)
        SKIP("%s", dlerror());
    *c = (struct kfit_cublas){0};
#define KFIT_X(member, symbol, arguments) *(void **)&c->member = dlsym(lib, #symbol);
    KFIT_CUBLAS_LIST(KFIT_X)
#undef KFIT_X
    CHECK(c->stream && c->pointer_mode && c->math_mode);
    return lib;
}

static void find_in(struct kfit_cublas *c)
{
    const char *asked = getenv("KFIT_TEST_CUBLAS");
    int part[2] = {0}, (*property)(int which, int *value);
    *(void **)&property = dlsym(open_getters(c, asked ? asked : REAL_DIR "/libcublas.so.13"), "cublasGetProperty");
    CHECK(property && !property(0, &part[0]) && !property(1, &part[1]));
    kfit_cublas_find_fields(c);
    if (!c->fields.valid && !(part[0] == 13 && part[1] <= 8)) /* all of these were tried */
        SKIP("getters of cuBLAS %d.%d, which are not known: they are called", part[0], part[1]);
    CHECK(c->fields.valid);
}

/* What a getter answers is the field, whatever else is in the handle. */
static void getters_answer_from_fields(void)
{
    struct kfit_cublas c;
    static _Alignas(64) char handle[HANDLE_BYTES];
    find_in(&c);
    for (int round = 0; round < 1000; round++) {
        cublas_stream stream = NULL, stream_field;
        cublas_pointers pointers = -1, pointers_field;
        cublas_math math = -1, math_field;
        for (int i = 0; i < HANDLE_BYTES; i += 8) {
            uint64_t any = kfit_test_random();
            memcpy(handle + i, &any, sizeof any);
        }
        handle[c.fields.valid] = (char)(round % 3);
        memcpy(&stream_field, handle + c.fields.stream, sizeof stream_field);
        memcpy(&pointers_field, handle + c.fields.pointer_mode, sizeof pointers_field);
        memcpy(&math_field, handle + c.fields.math_mode, sizeof math_field);
        const int r = round % 3 ? KFIT_CUBLAS_OK : KFIT_CUBLAS_NOT_INITIALIZED;
        CHECK_INT(c.stream(handle, &stream), r);
        CHECK_INT(c.pointer_mode(handle, &pointers), r);
        CHECK_INT(c.math_mode(handle, &math), r);
        CHECK(r || (stream == stream_field && pointers == pointers_field && math == math_field));
    }
}

static bool known_still(const struct kfit_cublas *before)
{
    struct kfit_cublas now = *before;
    now.fields = (struct kfit_cublas_fields){0};
    kfit_cublas_find_fields(&now);
    return !memcmp(&now.fields, &before->fields, sizeof now.fields);
}

/* Every byte of a getter's code counts, but those of the addresses that each build has its own of. */
static void all_code_counts(void)
{
    struct kfit_cublas c;
    find_in(&c);
    unsigned char *const getters[] = {(unsigned char *)c.stream, (unsigned char *)c.pointer_mode,
                                      (unsigned char *)c.math_mode};
    for (unsigned g = 0; g < 3; g++) {
        unsigned char *code = getters[g], *page = code - (uintptr_t)code % PAGE;
        unsigned unheeded = 0, bytes = CODE_BYTES;
        CHECK(!mprotect(page, 2 * PAGE, PROT_READ | PROT_WRITE | PROT_EXEC));
        while (bytes && (code[bytes - 1] ^= 1, known_still(&c))) /* what follows the return */
            code[--bytes] ^= 1;
        code[bytes - 1] ^= 1;
        CHECK_INT(code[bytes - 1], 0xc3);
        for (unsigned i = 0; i < bytes; i++) {
            code[i] ^= 1;
            unheeded += known_still(&c);
            code[i] ^= 1;
        }
        CHECK_INT(unheeded, 6 * 4);
        CHECK(known_still(&c));
    }
}

static void other_functions_are_not_known(void)
{
    struct kfit_cublas c, other;
    find_in(&c);
    other = c;
    other.fields = (struct kfit_cublas_fields){0};
    other.stream = (__typeof__(other.stream))(void *)c.math_mode; /* which differs from it in one byte */
    kfit_cublas_find_fields(&other);
    CHECK_INT(other.fields.valid, 0);
    other.stream = (__typeof__(other.stream))(void *)dlsym; /* of another library, and larger */
    kfit_cublas_find_fields(&other);
    CHECK_INT(other.fields.valid, 0);
}

static void a_double_is_not_known(void)
{
    struct kfit_cublas c;
    open_getters(&c, DOUBLE "/libcublas.so.13");
    kfit_cublas_find_fields(&c);
    CHECK_INT(c.fields.valid, 0);
}

static const struct kfit_test tests[] = {
    TEST(getters_answer_from_fields),
    TEST(all_code_counts),
    TEST(other_functions_are_not_known),
    TEST(a_double_is_not_known),
};
TEST_MAIN(tests)
