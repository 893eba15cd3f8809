/* What the cuda seeds compute, without a GPU: each compiled as C++ for the CPU, its threads run as fibers (emulate/), and its
 * output judged against the op's float64 reference. Shapes are small and odd; choices and forms are drawn anew each run. */
#include <dlfcn.h>
#include <math.h>
#include <sys/wait.h>
#include <unistd.h>

#include "candidate_private.h"
#include "kfit/compile.h"
#include "kfit_test.h"
#include "narrow.h"

/* Rows apart and not, columns odd and not, K ragged; every type; what was added later. */
enum { KEYS = 8 };
static const char *const direct[KEYS] = {
    "gemm/bf16,bf16,bf16/acc=f32/m=%d,n=72,k=520/nt/lda=528,ldb=520,ldc=80/alpha=1,beta=0/align=16",
    "gemm/f16,f16,f16/acc=f32/m=%d,n=41,k=512/nt/lda=512,ldb=512,ldc=48/alpha=1,beta=1/align=16",
    "gemm/bf16,bf16,f32/acc=f32/m=%d,n=64,k=1024/nt/lda=1024,ldb=1032,ldc=64/alpha=1,beta=0/align=16",
    "gemm/bf16,bf16,bf16/acc=f32/m=%d,n=72,k=520/nt/lda=520,ldb=520,ldc=72/alpha=1,beta=0/align=16/epi=bias",
    "gemm/f16,f16,f16/acc=f32/m=%d,n=41,k=512/nt/lda=512,ldb=512,ldc=48/alpha=1,beta=1/align=16/epi=bias",
    "gemm/f16,f16,f32/acc=f32/m=%d,n=43,k=264/nt/lda=264,ldb=264,ldc=44/alpha=1,beta=0/align=16/epi=bias",
    ("gemm/bf16,bf16,bf16/acc=f32/m=%d,n=40,k=256/nt/lda=768,ldb=256,ldc=120/alpha=1,beta=0/align=16"
     "/batch=3,sa=256,sb=10248,sc=40"),
    "gemm/f16,f16,f32/acc=f32/m=%d,n=33,k=136/nt/lda=136,ldb=136,ldc=36/alpha=1,beta=1/align=16/batch=2,sa=17408,sb=0,sc=4608",
};
static const char *const dots[KEYS] = {
    "gemm/f32,f32,f32/acc=f32/m=%d,n=64,k=1024/nt/lda=1024,ldb=1024,ldc=64/alpha=1,beta=0/align=16",
    "gemm/f32,f32,f32/acc=f32/m=%d,n=71,k=516/nt/lda=524,ldb=516,ldc=76/alpha=1,beta=0/align=16",
    "gemm/f32,f32,f32/acc=f32/m=%d,n=41,k=512/nt/lda=512,ldb=520,ldc=44/alpha=1,beta=1/align=16",
    "gemm/f32,f32,f32/acc=f32/m=%d,n=43,k=132/nt/lda=132,ldb=132,ldc=44/alpha=1,beta=0/align=16/epi=bias",
    "gemm/f32,f32,f32/acc=f32/m=%d,n=72,k=2048/nt/lda=2048,ldb=2048,ldc=72/alpha=1,beta=1/align=16/epi=bias",
    ("gemm/f32,f32,f32/acc=f32/m=%d,n=40,k=256/nt/lda=768,ldb=256,ldc=120/alpha=1,beta=0/align=16"
     "/batch=3,sa=256,sb=10240,sc=40"),
    "gemm/f32,f32,f32/acc=f32/m=%d,n=33,k=136/nt/lda=136,ldb=136,ldc=36/alpha=1,beta=1/align=16/batch=2,sa=17408,sb=0,sc=4608",
    "gemm/f32,f32,f32/acc=f32/m=%d,n=9,k=4/nt/lda=4,ldb=4,ldc=12/alpha=1,beta=0/align=16",
};
static const struct seed {
    const char *name;
    const char *const *keys;
    bool clusters;
} seed_direct = {"direct", direct, true}, seed_dots = {"dots", dots, false};

#ifndef OPTIMIZE
#define OPTIMIZE "-O0" /* most of the time goes into compiling */
#endif

static struct kfit_error err;

typedef const char *emulate_fn(const unsigned grid[3], const unsigned cluster[3], unsigned threads, unsigned smem, unsigned nargs,
                               void *const args[], const size_t bytes[], unsigned out);

/* CXX of the seed and the emulator, with the macros that the harness would give. */
static void compile(const struct kfit_candidate *c, const union kfit_key *key, const struct kfit_choice *choice,
                    const struct kfit_limits *limits, const char *out)
{
    struct kfit_dim names[KFIT_NAMES_MAX];
    char define[KFIT_NAMES_MAX][64], source[256];
    const char *argv[KFIT_NAMES_MAX + 16] = {CXX, "-std=c++17", OPTIMIZE, "-w", "-shared", "-fPIC", "-I" EMULATE, "-o", out};
    unsigned n = 9, count = kfit_candidate_names(c, key, choice, limits, names);
    size_t bytes;
    const char *text = kfit_candidate_source(c, &bytes);
    snprintf(source, sizeof source, "%s/seed.cpp", kfit_test_dir());
    kfit_test_write(source, text, bytes);
    for (unsigned i = 0; i < count; i++) {
        snprintf(define[i], sizeof define[i], "-DKFIT_%s=%lld", names[i].name, (long long)names[i].value);
        argv[n++] = define[i];
    }
    argv[n++] = source;
    argv[n++] = EMULATE "/emulate.cpp";
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (!pid) {
        execvp(argv[0], (char *const *)argv);
        _exit(127);
    }
    int status;
    CHECK(waitpid(pid, &status, 0) == pid);
    CHECK_MSG(status == 0, "%s: cannot compile the seed for the CPU", CXX);
}

/* Bits of a number from -1 to 1 in steps that the type holds. */
static void fill(void *p, size_t bytes, enum kfit_dtype type)
{
    for (size_t i = 0; i < bytes / kfit_dtype_bytes(type); i++) {
        double v = (double)((int)(kfit_test_random() % 257) - 128) / 128;
        if (type == KFIT_F32)
            ((float *)p)[i] = (float)v;
        else
            ((uint16_t *)p)[i] = narrow_round(v, type);
    }
}

static void judge(const union kfit_key *key, const void *out, const double *ref, const double *mag, const char *what)
{
    const struct kfit_op *op = kfit_op_of(key);
    struct kfit_tensor t;
    char at[64] = "";
    op->tensor(key, op->out_arg, &t);
    if (t.type != KFIT_F32) {
        struct narrow a = {0};
        enum kfit_code code = narrow_add(&a, &t, 0x7fff, ref, mag, op->reduction(key), NULL, out, at);
        CHECK_MSG(!code && narrow_accept(&a, NULL), "%s: %s %s, %g misrounded, worst %g", what, kfit_code_str(code), at,
                  (double)a.misrounded / (double)a.n, a.worst);
        return;
    }
    for (int64_t o = 0; o < t.batch * t.rows * t.cols; o++) {
        int64_t row = o / t.cols, x = row / t.rows * t.batch_stride + row % t.rows * t.ld + o % t.cols;
        double y = ((const float *)out)[x], allowed = (1 + sqrt((double)op->reduction(key))) * 0x1p-24 * mag[o] + 1e-30;
        CHECK_MSG(fabs(y - ref[o]) <= allowed, "%s: element %lld is %.8g, expected %.8g", what, (long long)o, y, ref[o]);
    }
}

static void run(const struct kfit_candidate *c, const union kfit_key *key, const struct kfit_choice *choice, const char *arch)
{
    const struct kfit_op *op = kfit_op_of(key);
    struct kfit_limits limits;
    struct kfit_plan plan;
    char so[256], text[KFIT_KEY_TEXT_MAX], knobs[512], what[1100];
    void *args[KFIT_ARGS_MAX] = {0};
    size_t bytes[KFIT_ARGS_MAX], count = 0;
    kfit_cuda_limits(arch, &limits);
    CHECK_OK(kfit_candidate_resolve(c, key, choice, &limits, &plan, &err), err);
    kfit_key_format(key, text, sizeof text);
    kfit_choice_format(c, choice, knobs, sizeof knobs);
    snprintf(what, sizeof what, "%s %s at %s", kfit_candidate_name(c), knobs, text);
    static unsigned number;
    snprintf(so, sizeof so, "%s/seed%u.so", kfit_test_dir(), number++);
    compile(c, key, choice, &limits, so);
    void *lib = dlopen(so, RTLD_NOW | RTLD_LOCAL);
    CHECK_MSG(lib, "%s", dlerror());
    emulate_fn *emulate;
    *(void **)&emulate = dlsym(lib, "kfit_emulate");
    CHECK(emulate);
    for (unsigned i = 0; i < op->nargs(key); i++) {
        struct kfit_tensor t;
        op->tensor(key, i, &t);
        bytes[i] = kfit_tensor_bytes(&t);
        args[i] = aligned_alloc(64, (bytes[i] + 63) & ~(size_t)63);
        CHECK(args[i]);
        memset(args[i], 0xff, bytes[i]); /* NaN: of an output too, if it is not written */
        if (t.dir != KFIT_OUT)
            fill(args[i], bytes[i], t.type);
        if (i == op->out_arg)
            count = (size_t)(t.batch * t.rows * t.cols);
    }
    double *ref = malloc(2 * count * sizeof *ref);
    CHECK(ref);
    op->reference(key, (const void *const *)args, ref, ref + count);
    const struct kfit_launch *l = &plan.launches[0];
    CHECK_INT(plan.launch_count, 1);
    const char *problem =
        emulate(l->grid, l->cluster, l->block[0], l->smem_bytes, op->nargs(key), args, bytes, op->out_arg);
    CHECK_MSG(!problem, "%s: %s", what, problem);
    judge(key, args[op->out_arg], ref, ref + count, what);
    for (unsigned i = 0; i < op->nargs(key); i++)
        free(args[i]);
    free(ref);
    dlclose(lib);
}

static struct kfit_candidate *seed_named(const char *name)
{
    struct kfit_candidate *c;
    for (unsigned i = 0; i < kfit_seed_count; i++)
        if (!strcmp(kfit_seeds[i].device, "cuda") && !strcmp(kfit_seeds[i].name, name)) {
            CHECK_OK(kfit_candidate_parse(kfit_seeds[i].source, kfit_seeds[i].bytes, &c, &err), err);
            return c;
        }
    CHECK_MSG(false, "no seed %s", name);
    return NULL;
}

/* Any legal choice for a form, of blocks alone or of clusters of them; a knob may have to be at its last value. False if the
 * form has none. */
static bool draw(const struct kfit_candidate *c, const char *form, bool clusters, const char *knob, union kfit_key *key,
                 struct kfit_choice *choice, const char **arch)
{
    static const int rows[] = {1, 2, 4, 7, 8, 9, 16, 17};
    const struct kfit_knob *knobs;
    const unsigned n = kfit_candidate_knobs(c, &knobs);
    struct kfit_limits limits;
    struct kfit_plan plan;
    for (unsigned tries = 0; tries < 20000; tries++) {
        char text[KFIT_KEY_TEXT_MAX];
        *arch = kfit_test_random() % 4 ? "sm_90a" : "sm_80";
        snprintf(text, sizeof text, form, rows[kfit_test_random() % 8]); /* a format of ours */
        CHECK_OK(kfit_key_parse(text, key, &err), err);
        for (unsigned k = 0; k < n; k++)
            choice->index[k] = (uint8_t)(knob && !strcmp(knobs[k].name, knob) ? knobs[k].count - 1
                                                                              : kfit_test_random() % knobs[k].count);
        kfit_cuda_limits(*arch, &limits);
        if (kfit_candidate_resolve(c, key, choice, &limits, &plan, &err) == KFIT_OK &&
            (plan.launches[0].cluster[1] > 1) == clusters)
            return true;
    }
    return false;
}

/* Forms one after the other; clusters every other time, and where n is more than the forms, for each. */
static unsigned drawn(const struct seed *s, unsigned n, const char *knob)
{
    unsigned ran = 0;
    struct kfit_candidate *c = seed_named(s->name);
    for (unsigned i = 0; i < n; i++) {
        union kfit_key key;
        struct kfit_choice choice = {0};
        const char *arch;
        if (!draw(c, s->keys[i % KEYS], s->clusters && ((i + i / KEYS) & 1), knob, &key, &choice, &arch))
            continue;
        run(c, &key, &choice, arch);
        ran++;
    }
    kfit_candidate_destroy(c);
    return ran;
}

static void each_form_is_right(void)
{
    CHECK_INT(drawn(&seed_direct, KEYS, NULL), KEYS);
    CHECK_INT(drawn(&seed_dots, KEYS, NULL), KEYS);
}

/* Forms with ragged K have no such choice. */
static void x_by_the_copy_engine_is_right(void)
{
    CHECK(drawn(&seed_direct, KEYS, "XS") >= 3);
}

static void many_choices_are_right(void)
{
    CHECK_INT(drawn(&seed_direct, 12, NULL), 12);
    CHECK_INT(drawn(&seed_dots, 12, NULL), 12);
}

static void many_by_the_copy_engine_are_right(void)
{
    CHECK(drawn(&seed_direct, 6, "XS") >= 1);
}

static const struct kfit_test tests[] = {
    TEST_SLOW(each_form_is_right, 120),
    TEST_SLOW(x_by_the_copy_engine_is_right, 120),
    TEST_SLOW(many_choices_are_right, 900),
    TEST_SLOW(many_by_the_copy_engine_are_right, 600),
};
TEST_MAIN(tests)
