/* NVRTC in its isolated child, and gate 0 on what it makes. Skipped where there is no NVRTC. */
#include "kfit_test.h"

#include "kfit/compile.h"

#define HEAD                                                                                                 \
    "/* kfit-candidate 1\n{\"op\":\"gemm\",\"name\":\"naive\",\"device\":\"cuda\",\"arch\":\">=80\","        \
    "\"knobs\":{\"T\":[64,128]},\"require\":[\"TB == 1\"],\"launches\":[{\"entry\":\"kfit_main\","           \
    "\"grid\":[\"ceil(N,T)\",\"M\",1],\"block\":[\"T\",1,1]}]}\n*/\n"
#define KERNEL(extra)                                                                                        \
    HEAD                                                                                                     \
        "typedef unsigned short h; __device__ float f(h x) { return __uint_as_float((unsigned)x << 16); }\n" \
        "extern \"C\" __global__ void __launch_bounds__(KFIT_T) kfit_main(const h *a, const h *b, float "    \
        "*c, void *ws)\n"                                                                                    \
        "{ int n = blockIdx.x * KFIT_T + threadIdx.x, m = blockIdx.y; float s = 0;\n"                        \
        "  if (n >= KFIT_N) return; " extra "\n"                                                             \
        "  for (int k = 0; k < KFIT_K; k++) s += f(a[m * KFIT_LDA + k]) * f(b[(long)n * KFIT_LDB + k]);\n"   \
        "  c[m * KFIT_LDC + n] = s; }\n"

static const char good[] = KERNEL("");
static union kfit_key key;

static enum kfit_status build(const char *source, struct kfit_built *built, struct kfit_error *err)
{
    struct kfit_candidate *c;
    const struct kfit_choice first = {{0}};
    CHECK_OK(
        kfit_key_parse(
            "gemm/bf16,bf16,f32/acc=f32/m=4,n=256,k=512/nt/lda=512,ldb=512,ldc=256/alpha=1,beta=0/align=16",
            &key, err),
        *err);
    CHECK_OK(kfit_candidate_parse(source, strlen(source), &c, err), *err);
    const struct kfit_compile_params params = {
        .candidate = c, .key = &key, .choice = &first, .isa = "sm_90a"};
    enum kfit_status s = kfit_compile(&params, built, err);
    kfit_candidate_destroy(c);
    if (s == KFIT_E_NOTFOUND && strstr(err->text, "libnvrtc"))
        SKIP("%s", err->text);
    return s;
}

static void a_kernel_becomes_a_cubin(void)
{
    struct kfit_built built;
    struct kfit_error err = {0};
    CHECK_OK(build(good, &built, &err), err);
    CHECK(built.image_bytes > 64 && !memcmp(built.image, "\177ELF", 4));
    CHECK(memmem(built.image, built.image_bytes, built.plan.launches[0].entry,
                 strlen(built.plan.launches[0].entry)));
    CHECK_INT(built.plan.launches[0].grid[0], 4);
    CHECK_INT(built.plan.launches[0].block[0], 64);
    CHECK(built.data_oblivious);
    CHECK_MSG(strcmp(built.isolation, "none") != 0, "the compiler was not isolated");
    kfit_built_finish(&built);
}

static void hostile_sources_are_refused(void)
{
    static const struct {
        const char *source, *code;
    } bad[] = {
        {HEAD "#include \"/etc/hostname\"\n", "static:include"},
        {KERNEL("this is not C++;"), "static:compile"},
        {KERNEL("s += clock64();"), "static:instruction"},
        {KERNEL("asm volatile(\"prefetch.global.L2 [%0];\" :: \"l\"(b));"), "static:instruction"},
        {KERNEL("static __device__ int memo; s += memo++;"), "static:writable"},
        {KERNEL("if (c) __trap();"), "static:instruction"},
        {HEAD "extern \"C\" int printf(const char *, ...);\n"
              "extern \"C\" __global__ void kfit_main(const short *a, "
              "const short *b, float *c, void *ws) { printf(\"x\"); }\n",
         "static:extern"},
        {HEAD "extern \"C\" __global__ void other(const short *a, const short *b, float *c, void *ws) {}\n",
         "static:entry"},
        {HEAD "extern \"C\" __global__ void kfit_main(const short *a, const short *b, float *c, int ws) {}\n",
         "static:entry"},
    };
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        struct kfit_built built;
        struct kfit_error err = {0};
        enum kfit_status s = build(bad[i].source, &built, &err);
        CHECK_MSG(s == KFIT_E_REFUSED && !strcmp(built.code, bad[i].code),
                  "case %zu: %s, \"%s\" (%s), expected \"%s\"", i, kfit_status_str(s), built.code,
                  built.detail, bad[i].code);
    }
}

/* __has_include and the like must not tell what files there are: the answer may not depend on
 * the file system. */
static void the_file_system_cannot_be_asked(void)
{
    struct kfit_built built;
    struct kfit_error err = {0};
    enum kfit_status s = build(
        HEAD
        "#if __has_include(\"/etc/hostname\") || __has_include(\"/etc/passwd\")\n#error seen\n#endif\n"
        "extern \"C\" __global__ void kfit_main(const short *a, const short *b, float *c, void *ws) {}\n",
        &built, &err);
    CHECK_MSG(s == KFIT_OK, "%s", err.text);
    kfit_built_finish(&built);
}

static const struct kfit_test tests[] = {
    TEST(a_kernel_becomes_a_cubin),
    TEST(hostile_sources_are_refused),
    TEST(the_file_system_cannot_be_asked),
};
TEST_MAIN(tests)
