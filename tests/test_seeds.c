/* The seed kernels against the float64 reference: random shapes, layouts, leading dimensions and knobs, in
 * memory that ends at an unreadable page, with NaN wherever nothing may be read and a mark wherever nothing
 * may be written. */
#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kfit_test.h"
#include "kfit/env.h"
#include "seed_kernel.h"

static unsigned below(unsigned n)
{
    return (unsigned)(kfit_test_random() % n);
}

/* ---- memory ---- */

struct arg {
    struct kfit_tensor t;
    unsigned char *map, *data, *before; /* before: what it held before the launch */
    size_t map_bytes, bytes;
};

static bool inside(const struct kfit_tensor *t, size_t element)
{
    return (int64_t)element % t->ld < t->cols;
}

static double get(const struct arg *a, size_t i)
{
    return a->t.type == KFIT_F64 ? ((double *)a->data)[i] : (double)((float *)a->data)[i];
}

static void set(struct arg *a, size_t i, double v)
{
    if (a->t.type == KFIT_F64)
        ((double *)a->data)[i] = v;
    else
        ((float *)a->data)[i] = (float)v;
}

/* The argument ends `room` elements before an unreadable page; its gaps, and an output, are NaN. */
static void arg_make(struct arg *a, const union kfit_key *key, unsigned index, unsigned room)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    kfit_op_of(key)->tensor(key, index, &a->t);
    a->bytes = kfit_tensor_bytes(&a->t);
    a->map_bytes = (a->bytes + page - 1) / page * page + 3 * page;
    a->map = mmap(NULL, a->map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(a->map != MAP_FAILED);
    memset(a->map, 0xff, a->map_bytes - page);
    CHECK(mprotect(a->map + a->map_bytes - page, page, PROT_NONE) == 0);
    a->data = a->map + a->map_bytes - page - a->bytes - room * kfit_dtype_bytes(a->t.type);
    size_t n = a->bytes / kfit_dtype_bytes(a->t.type);
    for (size_t i = 0; a->t.dir != KFIT_OUT && i < n; i++)
        if (inside(&a->t, i))
            set(a, i, (double)(kfit_test_random() >> 40) * 0x1p-23 - 1);
    a->before = malloc(a->map_bytes);
    CHECK(a->before);
    memcpy(a->before, a->map, a->map_bytes - page);
}

static void arg_free(struct arg *a)
{
    munmap(a->map, a->map_bytes);
    free(a->before);
}

/* Nothing but the elements of an output has changed. */
static bool untouched(const struct arg *a)
{
    size_t size = kfit_dtype_bytes(a->t.type), page = (size_t)sysconf(_SC_PAGESIZE);
    size_t lead = (size_t)(a->data - a->map), end = lead + a->bytes;
    if (memcmp(a->map, a->before, lead) || memcmp(a->map + end, a->before + end, a->map_bytes - page - end))
        return false;
    if (a->t.dir == KFIT_IN)
        return !memcmp(a->data, a->before + lead, a->bytes);
    for (size_t i = 0; i < a->bytes / size; i++)
        if (!inside(&a->t, i) && memcmp(a->data + i * size, a->before + lead + i * size, size))
            return false;
    return true;
}

/* ---- one sample ---- */

static void sample_check(const struct kfit_candidate *c, const union kfit_key *key,
                         const struct kfit_choice *choice, const char *cc, const char *isa, unsigned room)
{
    const struct kfit_gemm_key *g = &key->gemm;
    struct kfit_error err = {0};
    struct seed_kernel kernel;
    struct arg args[3];
    char text[KFIT_KEY_TEXT_MAX], knobs[256], who[900];
    kfit_key_format(key, text, sizeof text);
    kfit_choice_format(c, choice, knobs, sizeof knobs);
    snprintf(who, sizeof who, "%s %s at %s, %s %s", kfit_candidate_name(c), knobs, text, cc ? cc : "cc",
             isa ? isa : "");
    enum kfit_status s = seed_kernel_build(&kernel, c, key, choice, cc, isa, &err);
    CHECK_MSG(s == KFIT_OK, "%s: %s", who, err.text);
    for (unsigned i = 0; i < 3; i++)
        arg_make(&args[i], key, i, room);

    size_t n = (size_t)g->m * (size_t)g->n;
    double *ref = malloc(2 * n * sizeof *ref), *mag = ref + n;
    CHECK(ref);
    kfit_op_of(key)->reference(key, (const void *[]){args[0].data, args[1].data, args[2].data}, ref, mag);
    void *workspace = kernel.plan.workspace_bytes ? malloc(kernel.plan.workspace_bytes) : NULL;
    kfit_device_host.launch(&kernel.kernel, (void *[]){args[0].data, args[1].data, args[2].data}, workspace,
                            NULL);

    double bound = kfit_dtype_roundoff(g->type_c) * (1 + 1.2 * sqrt(g->k));
    for (int i = 0; i < g->m; i++)
        for (int j = 0; j < g->n; j++) {
            double have = get(&args[2], (size_t)i * (size_t)g->ldc + (size_t)j);
            size_t at = (size_t)i * (size_t)g->n + (size_t)j;
            CHECK_MSG(fabs(have - ref[at]) <= bound * mag[at], "%s: c[%d][%d] is %.9g, expected %.9g", who, i,
                      j, have, ref[at]);
        }
    for (unsigned i = 0; i < 3; i++) {
        CHECK_MSG(untouched(&args[i]), "%s: wrote where it must not: argument %u", who, i);
        arg_free(&args[i]);
    }
    free(workspace);
    free(ref);
    seed_kernel_finish(&kernel);
}

/* ---- drawing samples ---- */

/* Small, around vector and block sizes, or ordinary. */
static int draw_size(int most)
{
    static const int edges[] = {1, 2, 3, 4, 7, 8, 9, 15, 16, 17, 31, 32, 33, 48, 64};
    return below(2) ? edges[below(sizeof edges / sizeof *edges)] : 1 + (int)below((unsigned)most);
}

static void draw_key(union kfit_key *key)
{
    const int gap[3] = {below(2) ? 0 : (int)below(20), below(2) ? 0 : (int)below(20),
                        below(2) ? 0 : (int)below(20)};
    seed_key(key, below(3) ? KFIT_F32 : KFIT_F64, draw_size(40), draw_size(130),
             draw_size(below(4) ? 90 : 600), below(2), below(2), below(3) == 0, gap);
    CHECK_OK(kfit_key_check(key, NULL), (struct kfit_error){"drawn key"});
}

static void draw_choice(const struct kfit_candidate *c, struct kfit_choice *choice)
{
    const struct kfit_knob *knobs;
    unsigned n = kfit_candidate_knobs(c, &knobs);
    memset(choice, 0, sizeof *choice);
    for (unsigned i = 0; i < n; i++)
        choice->index[i] = (uint8_t)below(knobs[i].count);
}

static bool legal(const struct kfit_candidate *c, const union kfit_key *key, const struct kfit_choice *choice,
                  const char *isa)
{
    struct kfit_limits limits;
    struct kfit_plan plan;
    struct kfit_error err = {0};
    kfit_host_limits(isa, &limits);
    enum kfit_status s = kfit_candidate_resolve(c, key, choice, &limits, &plan, &err);
    CHECK_MSG(s == KFIT_OK || s == KFIT_E_REFUSED, "%s: %s", kfit_candidate_name(c), err.text);
    return s == KFIT_OK;
}

static void run_samples(unsigned per_seed, const char *cc, const char *isa)
{
    struct kfit_error err = {0};
    for (unsigned i = 0; i < kfit_seed_count; i++) {
        struct kfit_candidate *c;
        if (strcmp(kfit_seeds[i].device, "host"))
            continue;
        CHECK_OK(kfit_candidate_parse(kfit_seeds[i].source, kfit_seeds[i].bytes, &c, &err), err);
        unsigned done = 0;
        for (unsigned tries = 0; done < per_seed && tries < 100000; tries++) {
            union kfit_key key;
            struct kfit_choice choice;
            draw_key(&key);
            draw_choice(c, &choice);
            if (!legal(c, &key, &choice, isa))
                continue;
            sample_check(c, &key, &choice, cc, isa, below(2) ? 0 : below(16));
            done++;
        }
        CHECK_INT(done, per_seed);
        kfit_candidate_destroy(c);
    }
}

/* ---- cases ---- */

/* A search tries the first values first: they must be legal wherever any others are. */
static void first_values_are_legal_where_any_are(void)
{
    struct kfit_error err = {0};
    for (unsigned i = 0; i < kfit_seed_count; i++) {
        struct kfit_candidate *c;
        struct kfit_choice first = {0}, choice;
        unsigned found = 0;
        if (strcmp(kfit_seeds[i].device, "host"))
            continue;
        CHECK_OK(kfit_candidate_parse(kfit_seeds[i].source, kfit_seeds[i].bytes, &c, &err), err);
        CHECK_STR(kfit_candidate_name(c), kfit_seeds[i].name);
        for (unsigned tries = 0; tries < 5000; tries++) {
            union kfit_key key;
            char text[KFIT_KEY_TEXT_MAX];
            draw_key(&key);
            draw_choice(c, &choice);
            if (!legal(c, &key, &choice, NULL))
                continue;
            kfit_key_format(&key, text, sizeof text);
            CHECK_MSG(legal(c, &key, &first, NULL), "%s at %s", kfit_seeds[i].name, text);
            found++;
        }
        CHECK(found > 20);
        kfit_candidate_destroy(c);
    }
}

/* Every unbatched gemm of one type has a seed. */
static void every_shape_has_a_seed(void)
{
    struct kfit_error err = {0};
    for (unsigned tries = 0; tries < 500; tries++) {
        union kfit_key key;
        unsigned n = 0;
        draw_key(&key);
        for (unsigned i = 0; i < kfit_seed_count; i++) {
            struct kfit_candidate *c;
            if (strcmp(kfit_seeds[i].device, "host"))
                continue;
            CHECK_OK(kfit_candidate_parse(kfit_seeds[i].source, kfit_seeds[i].bytes, &c, &err), err);
            n += legal(c, &key, &(struct kfit_choice){0}, NULL);
            kfit_candidate_destroy(c);
        }
        CHECK(n > 0);
    }
}

static void samples_are_right(void)
{
    run_samples(5, NULL, NULL);
}

/* Rows of B that share an alignment but do not start on it, and a B beyond the L2 cache: seeds then start
 * their blocks at the first aligned column. */
static void unaligned_columns_are_right(void)
{
    struct kfit_error err = {0};
    for (unsigned i = 0; i < kfit_seed_count; i++) {
        struct kfit_candidate *c;
        CHECK_OK(kfit_candidate_parse(kfit_seeds[i].source, kfit_seeds[i].bytes, &c, &err), err);
        for (int odd = 1; odd < 16; odd += 7) {
            union kfit_key key;
            int n = 496 + odd, ldb = 512, k = (int)(sysconf(_SC_LEVEL2_CACHE_SIZE) / 4 / ldb) + 9;
            seed_key(&key, odd == 8 ? KFIT_F64 : KFIT_F32, 3, n, k, false, false, odd > 8,
                     (int[3]){0, ldb - n, 0});
            if (legal(c, &key, &(struct kfit_choice){0}, NULL))
                sample_check(c, &key, &(struct kfit_choice){0}, NULL, NULL, 5);
        }
        kfit_candidate_destroy(c);
    }
}

static void many_samples_are_right(void)
{
    run_samples(12, NULL, NULL);
}

/* Lesser instruction sets run here too. */
static void narrower_machines(void)
{
    run_samples(5, NULL, "x86-64-v2");
    if (strcmp(kfit_host_isa(), "x86-64-v2"))
        run_samples(5, NULL, "x86-64-v3");
}

static void other_compiler(void)
{
    struct kfit_error err = {0};
    char version[64];
    if (kfit_compiler_version("clang", version, sizeof version, &err) != KFIT_OK)
        SKIP("no clang: %s", err.text);
    run_samples(6, "clang", NULL);
}

static const struct kfit_test tests[] = {
    TEST(first_values_are_legal_where_any_are),
    TEST(every_shape_has_a_seed),
    TEST(samples_are_right),
    TEST(unaligned_columns_are_right),
    TEST_SLOW(many_samples_are_right, 300),
    TEST_SLOW(narrower_machines, 300),
    TEST_SLOW(other_compiler, 300),
};
TEST_MAIN(tests)
