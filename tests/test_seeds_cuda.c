/* The cuda seeds without a GPU: NVRTC compiles them at the corners of their knobs for each architecture, and
 * gate 0 and the data-oblivious rule have nothing to say. Skipped where there is no NVRTC. */
#include "kfit_test.h"

#include "kfit/compile.h"

static const char *const archs[] = {"sm_90a", "sm_80"};

/* n x k pairs as in LLM decoding, one odd, one with rows apart; with a bias, in a batch */
static const struct shape {
    const char *seed, *types;
    int n, k, lda, ldc, beta;
    const char *more;
} shapes[] = {
    {"direct", "bf16,bf16,bf16", 1024, 3072, 3072, 1024, 0, ""},
    {"direct", "f16,f16,f16", 2880, 1024, 1024, 2880, 1, ""},
    {"direct", "bf16,bf16,bf16", 5120, 2880, 2880, 5120, 0, "/epi=bias"},
    {"direct", "bf16,bf16,f32", 64, 2048, 2048, 64, 0, ""},
    {"direct", "bf16,bf16,bf16", 1001, 1000, 1024, 1008, 1, ""},
    {"direct", "f16,f16,f32", 1001, 1000, 1000, 1008, 0, "/epi=bias"},
    {"direct", "bf16,bf16,bf16", 512, 128, 4096, 512, 0, "/batch=32,sa=128,sb=2097152,sc=32768"},
    {"dots", "f32,f32,f32", 256, 7168, 7168, 256, 0, ""},
    {"dots", "f32,f32,f32", 1001, 1000, 1024, 1008, 1, ""},
    {"dots", "f32,f32,f32", 64, 2048, 2048, 64, 0, "/epi=bias"},
    {"dots", "f32,f32,f32", 512, 128, 4096, 512, 0, "/batch=32,sa=128,sb=2097152,sc=32768"},
};
#define SHAPES (sizeof shapes / sizeof *shapes)
static const int rows[] = {1, 8, 16, 64};

/* How many rows a seed is for; the others are refused. */
static int most_rows(const char *seed)
{
    return strcmp(seed, "dots") ? 64 : 16;
}

/* One of this seed's, the i-th and so on around. */
static const struct shape *shape_for(const char *seed, unsigned i)
{
    while (strcmp(shapes[i % SHAPES].seed, seed))
        i++;
    return &shapes[i % SHAPES];
}

static void make_key(union kfit_key *key, const struct shape *s, int m)
{
    char text[KFIT_KEY_TEXT_MAX];
    struct kfit_error err = {0};
    snprintf(text, sizeof text,
             "gemm/%s/acc=f32/m=%d,n=%d,k=%d/nt/lda=%d,ldb=%d,ldc=%d/alpha=1,beta=%d/align=16%s", s->types, m,
             s->n, s->k, s->lda, s->lda, s->ldc, s->beta, s->more);
    CHECK_OK(kfit_key_parse(text, key, &err), err);
}

static bool legal(const struct kfit_candidate *c, const union kfit_key *key, const struct kfit_choice *choice,
                  const char *arch)
{
    struct kfit_limits limits;
    struct kfit_plan plan;
    struct kfit_error err = {0};
    kfit_cuda_limits(arch, &limits);
    enum kfit_status s = kfit_candidate_resolve(c, key, choice, &limits, &plan, &err);
    CHECK_MSG(s == KFIT_OK || s == KFIT_E_REFUSED, "%s: %s", kfit_candidate_name(c), err.text);
    return s == KFIT_OK;
}

static void must_compile(const struct kfit_candidate *c, const union kfit_key *key,
                         const struct kfit_choice *choice, const char *arch)
{
    const struct kfit_compile_params params = {.candidate = c, .key = key, .choice = choice, .isa = arch};
    struct kfit_built built = {0};
    struct kfit_error err = {0};
    char text[KFIT_KEY_TEXT_MAX], knobs[512];
    enum kfit_status s = kfit_compile(&params, &built, &err);
    if (s == KFIT_E_NOTFOUND && strstr(err.text, "libnvrtc"))
        SKIP("%s", err.text);
    kfit_key_format(key, text, sizeof text);
    kfit_choice_format(c, choice, knobs, sizeof knobs);
    CHECK_MSG(s == KFIT_OK, "%s %s %s at %s: %s %s %s", kfit_candidate_name(c), knobs, arch, text, err.text,
              built.code, built.detail);
    CHECK_MSG(built.data_oblivious, "%s %s %s at %s: not data-oblivious", kfit_candidate_name(c), knobs, arch,
              text);
    kfit_built_finish(&built);
}

/* The cuda seeds one after the other; NULL at the end. */
static struct kfit_candidate *next_seed(unsigned *i)
{
    struct kfit_candidate *c = NULL;
    struct kfit_error err = {0};
    while (*i < kfit_seed_count && strcmp(kfit_seeds[*i].device, "cuda"))
        ++*i;
    if (*i < kfit_seed_count)
        CHECK_OK(kfit_candidate_parse(kfit_seeds[*i].source, kfit_seeds[*i].bytes, &c, &err), err);
    ++*i;
    return c;
}

static void draw(const struct kfit_candidate *c, struct kfit_choice *choice)
{
    const struct kfit_knob *knobs;
    *choice = (struct kfit_choice){0};
    for (unsigned k = 0, n = kfit_candidate_knobs(c, &knobs); k < n; k++)
        choice->index[k] = (uint8_t)(kfit_test_random() % knobs[k].count);
}

/* A search tries the first values first. */
static void first_values_are_legal(void)
{
    struct kfit_candidate *c;
    unsigned seen = 0;
    for (unsigned i = 0; (c = next_seed(&i)); seen++) {
        for (unsigned a = 0; a < 2; a++)
            for (unsigned s = 0; s < SHAPES; s++)
                for (unsigned m = 0; m < sizeof rows / sizeof *rows; m++) {
                    const bool meant = !strcmp(shapes[s].seed, kfit_candidate_name(c)) &&
                                       rows[m] <= most_rows(shapes[s].seed);
                    union kfit_key key;
                    make_key(&key, &shapes[s], rows[m]);
                    CHECK_MSG(legal(c, &key, &(struct kfit_choice){0}, archs[a]) == meant,
                              "%s at m=%d n=%d k=%d on %s", kfit_candidate_name(c), rows[m], shapes[s].n,
                              shapes[s].k, archs[a]);
                }
        kfit_candidate_destroy(c);
    }
    CHECK(seen > 0);
}

/* Sixteen bytes of a row would be of the row and of what lies behind it. */
static void terms_that_are_no_whole_loads_are_refused(void)
{
    static const struct shape ragged[] = {
        {"direct", "bf16,bf16,bf16", 64, 1004, 1008, 64, 0, ""},
        {"dots", "f32,f32,f32", 64, 1002, 1004, 64, 0, ""},
    };
    struct kfit_candidate *c;
    for (unsigned i = 0; (c = next_seed(&i));) {
        for (unsigned s = 0; s < 2; s++) {
            union kfit_key key;
            make_key(&key, &ragged[s], 4);
            CHECK_MSG(!legal(c, &key, &(struct kfit_choice){0}, "sm_90a"), "%s at k=%d", kfit_candidate_name(c),
                      ragged[s].k);
        }
        kfit_candidate_destroy(c);
    }
}

/* Each knob at its least and its greatest value, the others at their first, or if that is
 * not legal, anywhere. */
static void corners_compile(void)
{
    struct kfit_candidate *c;
    unsigned at = 0;
    for (unsigned i = 0; (c = next_seed(&i));) {
        const struct kfit_knob *knobs;
        unsigned n = kfit_candidate_knobs(c, &knobs);
        for (unsigned k = 0; k < n; k++)
            for (int high = 0; high < 2; high++, at++) {
                struct kfit_choice choice = {0};
                union kfit_key key;
                uint8_t best = 0;
                for (uint8_t v = 1; v < knobs[k].count; v++)
                    if ((knobs[k].values[v] > knobs[k].values[best]) == high)
                        best = v;
                const char *arch = archs[at / 2 % 2];
                make_key(&key, shape_for(kfit_candidate_name(c), at), rows[at / 3 % 4]);
                choice.index[k] = best;
                for (unsigned tries = 0; !legal(c, &key, &choice, arch) && tries < 20000; tries++) {
                    if (tries % 2000 == 1999) /* clusters need it */
                        arch = "sm_90a";
                    if (tries % 200 == 199) { /* small shapes have no deep splits, many rows no room ... */
                        make_key(&key, shape_for(kfit_candidate_name(c), (unsigned)kfit_test_random()),
                                 rows[kfit_test_random() % 4]);
                    }
                    draw(c, &choice);
                    choice.index[k] = best;
                }
                CHECK_MSG(legal(c, &key, &choice, arch), "%s: no legal choice with %s=%lld",
                          kfit_candidate_name(c), knobs[k].name, (long long)knobs[k].values[best]);
                must_compile(c, &key, &choice, arch);
            }
        kfit_candidate_destroy(c);
    }
}

static void many_choices_compile(void)
{
    struct kfit_candidate *c;
    for (unsigned i = 0; (c = next_seed(&i));) {
        for (unsigned done = 0; done < 40;) {
            const char *arch = archs[done % 2];
            struct kfit_choice choice;
            union kfit_key key;
            make_key(&key, shape_for(kfit_candidate_name(c), (unsigned)kfit_test_random()),
                     1 + (int)(kfit_test_random() % 40));
            draw(c, &choice);
            if (!legal(c, &key, &choice, arch))
                continue;
            must_compile(c, &key, &choice, arch);
            done++;
        }
        kfit_candidate_destroy(c);
    }
}

/* Through NVRTC and gate 0: what the harness offers for tensor maps, which no seed needs yet. */
static void tensor_maps_compile(void)
{
    size_t bytes;
    struct kfit_candidate *c;
    struct kfit_error err = {0};
    union kfit_key key;
    char *source = kfit_test_read(BAD_KERNELS "/cuda/right_map.cu", &bytes);
    CHECK_OK(kfit_candidate_parse(source, bytes, &c, &err), err);
    make_key(&key, &shapes[0], 4);
    must_compile(c, &key, &(struct kfit_choice){0}, "sm_90a");
    CHECK(!legal(c, &key, &(struct kfit_choice){0}, "sm_80"));
    kfit_candidate_destroy(c);
    free(source);
}

static const struct kfit_test tests[] = {
    TEST(tensor_maps_compile),
    TEST(first_values_are_legal),
    TEST(terms_that_are_no_whole_loads_are_refused),
    TEST(corners_compile),
    TEST_SLOW(many_choices_compile, 900),
};
TEST_MAIN(tests)
