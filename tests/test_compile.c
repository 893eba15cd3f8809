/* From source to image: kernels that must run and be right, and what the compiler may see of the machine. */
#include "building.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <seccomp.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kfit/device.h"
#include "kfit/env.h"

#include "isolate_compile.h"

/* Gate 0 must not be the only thing between a source and the file system: the isolation has to hold alone. */
static bool reads_secret(const struct kfit_isolation *iso, const char *cc, const char *source, bool assemble)
{
    int in = kfit_memfd(), out = kfit_memfd();
    struct kfit_error err = {0};
    size_t bytes;
    struct kfit_tool tool = {
        .argv = assemble ? (const char *const[]){cc, "-c", "-x", "c", "-", "-o", "/proc/self/fd/3", NULL}
                         : (const char *const[]){cc, "-E", "-x", "c", "-", "-nostdinc", NULL},
        .input = in,
        .output = assemble ? -1 : out,
        .object = assemble ? out : -1,
        .timeout_ms = 60000};
    CHECK(kfit_memfd_fill(in, source, strlen(source)));
    CHECK_OK(kfit_tool_run(iso, &tool, &err), err);
    char *text = kfit_memfd_read(out, &bytes);
    bool found = memmem(text, bytes, "0123456789secret", 16);
    free(text);
    close(in);
    close(out);
    return found;
}

/* expected: there is an isolation, and it keeps the secret. */
static void check_isolation(bool expected)
{
    const char *cc[2];
    unsigned n = compilers(cc);
    char include[256], incbin[256], path[128];
    snprintf(path, sizeof path, "%s/secret", kfit_test_dir());
    snprintf(include, sizeof include, "#include \"%s\"\n", path);
    snprintf(incbin, sizeof incbin, "__asm__(\".incbin \\\"%s\\\"\");\n", path);
    kfit_test_write(path, "0123456789secret", 16);
    for (unsigned k = 0; k < n; k++) {
        struct kfit_isolation iso;
        struct kfit_error err = {0};
        char *real = realpath(cc[k], NULL);
        CHECK_OK(kfit_isolation_init(&iso, real, NULL, true, &err), err);
        CHECK_INT(reads_secret(&iso, real, include, false), !expected);
        CHECK_INT(reads_secret(&iso, real, incbin, true), !expected);
        CHECK_INT(!strcmp(iso.name, "none"), !expected);
        kfit_isolation_finish(&iso);
        free(real);
    }
}

static void isolation_holds_alone(void)
{
    struct kfit_isolation iso;
    struct kfit_error err = {0};
    CHECK_OK(kfit_isolation_init(&iso, "/usr/bin/cc", NULL, true, &err), err);
    bool any = strcmp(iso.name, "none");
    kfit_isolation_finish(&iso);
    if (!any)
        SKIP("neither Landlock nor user namespaces here");
    check_isolation(true);
}

static void deny(bool landlock, bool namespaces)
{
    scmp_filter_ctx f = seccomp_init(SCMP_ACT_ALLOW);
    CHECK(f);
    if (landlock)
        CHECK(!seccomp_rule_add(f, SCMP_ACT_ERRNO(ENOSYS), 444, 0));
    if (namespaces)
        CHECK(!seccomp_rule_add(f, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(unshare), 0));
    CHECK(!seccomp_load(f));
    seccomp_release(f);
}

static const char trivial[] = HEAD ENTRY "{\n    c[0] = a[0] * b[0];\n}\n";

static void namespaces_where_landlock_is_missing(void)
{
    const char *cc[2];
    unsigned n = compilers(cc);
    struct kfit_built b;
    struct kfit_error err = {0};
    deny(true, false);
    enum kfit_status s = build(trivial, strlen(trivial), cc[0], 0, &b, &err);
    CHECK_OK(s, err);
    if (!strcmp(b.isolation, "none"))
        SKIP("user namespaces are not allowed here");
    CHECK_STR(b.isolation, "namespace");
    kfit_built_finish(&b);
    check_isolation(true);
    for (unsigned k = 0; k < n; k++) { /* and a hang is still ended */
        size_t bytes;
        char *source = bad_kernel("timeout_inline", &bytes);
        CHECK_STATUS(build(source, bytes, cc[k], 500, &b, &err), KFIT_E_REFUSED);
        CHECK_STR(b.code, "static:timeout");
        free(source);
    }
}

static void no_isolation_is_refused_unless_allowed(void)
{
    const char *cc[2];
    struct kfit_built b;
    struct kfit_error err = {0};
    compilers(cc);
    deny(true, true);
    check_isolation(false); /* the attack works where nothing stops it */
    struct kfit_candidate *c = candidate_of(trivial, strlen(trivial));
    union kfit_key key = key_of(key_text);
    struct kfit_compile_params p = {
        .candidate = c, .key = &key, .choice = &(struct kfit_choice){{0}}, .cc = cc[0]};
    CHECK_STATUS(kfit_compile(&p, &b, &err), KFIT_E_UNSUPPORTED);
    CHECK(strstr(err.text, "Landlock"));
    p.allow_no_isolation = true;
    CHECK_OK(kfit_compile(&p, &b, &err), err);
    CHECK_STR(b.isolation, "none");
    kfit_built_finish(&b);
    kfit_candidate_destroy(c);
}

static void our_errors_are_not_the_candidates(void)
{
    struct kfit_built b;
    struct kfit_error err = {0};
    CHECK_STATUS(build(trivial, strlen(trivial), "/nonexistent/cc", 0, &b, &err), KFIT_E_NOTFOUND);
    CHECK(strstr(err.text, "KFIT_CC") && !b.code[0]);
    CHECK_STATUS(build(trivial, strlen(trivial), "/bin/false", 0, &b, &err), KFIT_E_REFUSED);
    const char *cc[2];
    compilers(cc);
    char version[64];
    CHECK_OK(kfit_compiler_version(cc[0], version, sizeof version, &err), err);
    CHECK(strstr(version, "gcc ") == version || strstr(version, "clang ") == version);
    CHECK(version[strcspn(version, "0123456789")]);
    CHECK_STATUS(kfit_compiler_version("/bin/true", version, sizeof version, &err), KFIT_E_UNSUPPORTED);
}

/* ---- accepted, and right ---- */

static const char plain[] =
    HEAD "#define A(i, k) a[KFIT_TA ? (k) * KFIT_LDA + (i) : (i) * KFIT_LDA + (k)]\n"
         "#define B(k, j) b[KFIT_TB ? (j) * KFIT_LDB + (k) : (k) * KFIT_LDB + (j)]\n" ENTRY
         "{\n    for (int i = 0; i < KFIT_M; i++)\n        for (int j = 0; j < KFIT_N; j++) {\n"
         "            KFIT_TYPE s = KFIT_BETA ? c[i * KFIT_LDC + j] : 0;\n"
         "            for (int k = 0; k < KFIT_K; k++)\n                s += A(i, k) * B(k, j);\n"
         "            c[i * KFIT_LDC + j] = s;\n        }\n}\n";

static void put(void *p, bool wide, size_t i, double v)
{
    if (wide)
        ((double *)p)[i] = v;
    else
        ((float *)p)[i] = (float)v;
}

static double get(const void *p, bool wide, size_t i)
{
    return wide ? ((const double *)p)[i] : (double)((const float *)p)[i];
}

/* Builds source for the key, loads the image as a server would, runs it and compares with the reference. */
static void run_and_compare(const char *source, const char *text, const char *cc, const char *isa)
{
    struct kfit_candidate *c = candidate_of(source, strlen(source));
    union kfit_key key = key_of(text);
    struct kfit_built built;
    struct kfit_error err = {0};
    struct kfit_compile_params p = {.candidate = c,
                                    .key = &key,
                                    .choice = &(struct kfit_choice){{0}},
                                    .cc = cc,
                                    .isa = isa,
                                    .allow_no_isolation = true};
    CHECK_OK(kfit_compile(&p, &built, &err), err);
    CHECK(built.compile_ns > 0 && built.image_bytes > 0);

    const struct kfit_op *op = kfit_op_of(&key);
    struct kfit_tensor t[3];
    void *args[3];
    bool wide = key.gemm.type_a == KFIT_F64;
    for (unsigned i = 0; i < 3; i++) {
        op->tensor(&key, i, &t[i]);
        size_t n = kfit_tensor_bytes(&t[i]) / (wide ? 8 : 4);
        args[i] = aligned_alloc(64, (n * 8 + 63) & ~(size_t)63);
        for (size_t e = 0; e < n; e++)
            put(args[i], wide, e, (double)(int64_t)kfit_test_random() * 0x1p-63);
    }
    size_t out = (size_t)(t[2].rows * t[2].cols);
    double *ref = malloc(out * sizeof *ref), *mag = malloc(out * sizeof *mag);
    op->reference(&key, (const void *const *)args, ref, mag);

    struct kfit_image image = {built.image, built.image_bytes, &built.plan};
    struct kfit_modules *modules;
    struct kfit_kernel kernel;
    void *ws = built.plan.workspace_bytes ? aligned_alloc(64, (built.plan.workspace_bytes + 63) & ~(size_t)63)
                                          : NULL;
    CHECK_OK(kfit_device_host.load(&image, 1, 3, &modules, &kernel, &err), err);
    CHECK_STATUS(kfit_device_host.launch(&kernel, args, ws, NULL), KFIT_OK);
    double u = kfit_dtype_roundoff(t[0].type);
    for (int64_t i = 0; i < t[2].rows; i++)
        for (int64_t j = 0; j < t[2].cols; j++) {
            double got = get(args[2], wide, (size_t)(i * t[2].ld + j)), want = ref[i * t[2].cols + j];
            CHECK_MSG(fabs(got - want) <= (double)(key.gemm.k + 2) * u * mag[i * t[2].cols + j] + 1e-30,
                      "%s, %s, %s: c[%d][%d] is %g, expected %g", text, cc, isa, (int)i, (int)j, got, want);
        }
    kfit_device_host.unload(modules);
    for (unsigned i = 0; i < 3; i++)
        free(args[i]);
    free(ref);
    free(mag);
    free(ws);
    kfit_built_finish(&built);
    kfit_candidate_destroy(c);
}

static const char *const shapes[] = {
    "gemm/f32,f32,f32/acc=f32/m=1,n=1,k=1/nn/lda=1,ldb=1,ldc=1/alpha=1,beta=0/align=4",
    "gemm/f32,f32,f32/acc=f32/m=4,n=65,k=33/nn/lda=40,ldb=70,ldc=66/alpha=1,beta=1/align=8",
    "gemm/f64,f64,f64/acc=f64/m=3,n=31,k=17/tt/lda=5,ldb=19,ldc=31/alpha=1,beta=0/align=8",
    "gemm/f32,f32,f32/acc=f32/m=7,n=48,k=64/nt/lda=64,ldb=64,ldc=48/alpha=1,beta=0/align=16",
};

/* Instruction sets that this machine can run. */
static unsigned isas(const char *out[3])
{
    static const char *const all[] = {"x86-64-v2", "x86-64-v3", "x86-64-v4"};
    unsigned n = 0;
    do
        out[n] = all[n];
    while (strcmp(all[n++], kfit_host_isa()));
    return n;
}

static void plain_kernel_is_right(void)
{
    const char *cc[2], *isa[3];
    unsigned n = compilers(cc), sets = isas(isa);
    for (unsigned k = 0; k < n; k++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
            run_and_compare(plain, shapes[i], cc[k], isa[(i + 2) % sets]);
}

/* Every function of kfit_host.h, in a kernel that is right only if they are: a tail of each length. */
static const char with_header[] = HEAD
    "#include \"kfit_host.h\"\n" ENTRY "{\n"
    "    for (int i = 0; i < KFIT_M; i++)\n"
    "        for (int j = 0; j < KFIT_N; j += KFIT_VL) {\n"
    "            int left = KFIT_MIN(KFIT_N - j, KFIT_VL);\n"
    "            KFIT_TYPE *p = c + i * KFIT_LDC + j;\n"
    "            vf s = KFIT_BETA ? kfit_load_n(p, left) : kfit_zero();\n"
    "            KFIT_UNROLL(4)\n"
    "            for (int k = 0; k < KFIT_K; k++)\n"
    "                s += kfit_broadcast(a[i * KFIT_LDA + k]) * kfit_load_n(b + k * KFIT_LDB + j, left);\n"
    "            if (left == KFIT_VL && j % 2 == 0) {\n"
    "                kfit_store(p, s);\n"
    "                p[0] = kfit_hsum(kfit_load(p) * kfit_load_n(&(const KFIT_TYPE[KFIT_VL]){1}[0], 1));\n"
    "            } else\n"
    "                kfit_store_n(p, s, left);\n"
    "        }\n"
    "}\n";

static void header_functions_are_right(void)
{
    const char *cc[2], *isa[3];
    unsigned n = compilers(cc), sets = isas(isa);
    for (unsigned k = 0; k < n; k++)
        for (unsigned set = 0; set < sets; set++)
            for (int wide = 0; wide < 2; wide++) {
                char text[KFIT_KEY_TEXT_MAX];
                int lanes = (16 << set) / (wide ? 8 : 4),
                    cols = lanes + 1 + (int)(kfit_test_random() % (unsigned)lanes);
                snprintf(
                    text, sizeof text,
                    "gemm/f%d,f%d,f%d/acc=f%d/m=3,n=%d,k=9/nn/lda=9,ldb=%d,ldc=%d/alpha=1,beta=%d/align=%d",
                    wide ? 64 : 32, wide ? 64 : 32, wide ? 64 : 32, wide ? 64 : 32, cols, cols, cols, wide,
                    wide ? 8 : cols * 4 % 4 + 4);
                text[strlen(text) - 1] = wide ? '8' : '4';
                union kfit_key key;
                if (kfit_key_parse(text, &key, NULL) == KFIT_OK)
                    run_and_compare(with_header, text, cc[k], isa[set]);
                else
                    CHECK_MSG(false, "%s", text);
            }
}

/* Nothing that kfit compiles may swallow NaN, Inf or the sign of zero. */
static void flags_keep_special_values(void)
{
    static const char source[] =
        HEAD ENTRY "{\n    c[0] = a[0] * 0;\n    c[1] = a[1] - a[1];\n    c[2] = a[2] != a[2];\n"
                   "    c[3] = a[3] + 0 * a[3];\n    c[4] = a[4] / a[5];\n}\n";
    const char *cc[2];
    unsigned n = compilers(cc);
    for (unsigned k = 0; k < n; k++) {
        float a[6] = {NAN, INFINITY, NAN, -0.0f, 1, -0.0f}, c[6] = {0};
        void *args[3] = {a, a, c};
        struct kfit_built b;
        struct kfit_error err = {0};
        struct kfit_modules *m;
        struct kfit_kernel kernel;
        CHECK_OK(build(source, strlen(source), cc[k], 0, &b, &err), err);
        CHECK_OK(kfit_device_host.load(&(struct kfit_image){b.image, b.image_bytes, &b.plan}, 1, 3, &m,
                                       &kernel, &err),
                 err);
        CHECK_STATUS(kfit_device_host.launch(&kernel, args, NULL, NULL), KFIT_OK);
        CHECK(isnan(c[0]) && isnan(c[1]) && c[2] == 1 && c[3] == 0 && signbit(c[3]) && isinf(c[4]) &&
              c[4] < 0);
        kfit_device_host.unload(m);
        kfit_built_finish(&b);
    }
}

/* The same source gives the same image, and its record knows it by name. */
static void images_are_reproducible(void)
{
    const char *cc[2];
    unsigned n = compilers(cc);
    for (unsigned k = 0; k < n; k++) {
        struct kfit_built one, two;
        struct kfit_error err = {0};
        CHECK_OK(build(plain, strlen(plain), cc[k], 0, &one, &err), err);
        CHECK_OK(build(plain, strlen(plain), cc[k], 0, &two, &err), err);
        CHECK_INT(one.image_bytes, two.image_bytes);
        CHECK(!memcmp(one.image, two.image, one.image_bytes));
        CHECK_INT(one.plan.launches[0].entry_offset, two.plan.launches[0].entry_offset);
        CHECK(!strncmp(one.plan.launches[0].entry, "kfit_gemm_", 10));
        CHECK_STR(one.plan.launches[0].entry, two.plan.launches[0].entry);
        CHECK_STATUS(kfit_plan_check(&one.plan, one.image_bytes, NULL), KFIT_OK);
        kfit_built_finish(&one);
        kfit_built_finish(&two);
    }
}

/* Where the program has descriptors, limits and an environment, the compiler sees none of them. */
static void caller_is_left_alone(void)
{
    const char *cc[2];
    compilers(cc);
    struct kfit_built b;
    struct kfit_error err = {0};
    int before = open("/dev/null", O_RDONLY);
    setenv("C_INCLUDE_PATH", kfit_test_dir(), 1);
    setenv("GCC_EXEC_PREFIX", "/nonexistent/", 1);
    setenv("LD_PRELOAD", "/nonexistent.so", 1);
    close(0);
    CHECK_OK(build(plain, strlen(plain), cc[0], 0, &b, &err), err);
    kfit_built_finish(&b);
    int first = open("/dev/null", O_RDONLY), second = open("/dev/null", O_RDONLY);
    CHECK_INT(first, 0); /* nothing took its place, nothing stayed open */
    CHECK_INT(second, before + 1);
    CHECK_INT(waitpid(-1, NULL, WNOHANG), -1);
    CHECK_INT(errno, ECHILD);
}

static void limits_describe_the_machine(void)
{
    struct kfit_limits l;
    kfit_host_limits(NULL, &l);
    int64_t vl32 = 0, vl64 = 0, bytes = 0, regs = 0;
    for (unsigned i = 0; i < l.count; i++) {
        const struct kfit_dim *d = &l.entry[i];
        CHECK(d->value > 0);
        vl32 += !strcmp(d->name, "VL32") ? d->value : 0;
        vl64 += !strcmp(d->name, "VL64") ? d->value : 0;
        bytes += !strcmp(d->name, "VL_BYTES") ? d->value : 0;
        regs += !strcmp(d->name, "VREGS") ? d->value : 0;
    }
    CHECK(vl32 * 4 == bytes && vl64 * 8 == bytes && bytes >= 16 && bytes <= 64 && regs >= 16 && regs <= 32);
}

static const struct kfit_test tests[] = {
    TEST(isolation_holds_alone),
    TEST(namespaces_where_landlock_is_missing),
    TEST(no_isolation_is_refused_unless_allowed),
    TEST(our_errors_are_not_the_candidates),
    TEST(plain_kernel_is_right),
    TEST(header_functions_are_right),
    TEST(flags_keep_special_values),
    TEST(images_are_reproducible),
    TEST(caller_is_left_alone),
    TEST(limits_describe_the_machine),
};
TEST_MAIN(tests)
