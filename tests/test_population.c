/* How children are made: nothing twice, starting points first, the same seed gives the same search, and a
 * good family is followed. No compiler and no clock: fitness is a function of the choice. */
#include "kfit_test.h"

#include "population.h"

#define HEAD(name, knobs, require)                                                                           \
    "/* kfit-candidate 1\n{\"op\":\"gemm\",\"name\":\"" name "\",\"device\":\"host\",\"knobs\":{" knobs "}," \
    "\"require\":[" require "],\"launches\":[{\"entry\":\"kfit_main\"}]}\n*/\nvoid kfit_main(void) {}\n"

static const char *const sources[] = {
    HEAD("wide", "\"A\":[4,1,2,3,5,6,7,8],\"B\":[1,2,3,4,5,6,7,8]", ""),
    HEAD("picky", "\"A\":[1,2,3,4],\"C\":[0,1]", "\"A != 1\""),
    HEAD("never", "\"A\":[1,2]", "\"M > 1000\""),
};
enum { SOURCES = 3, LEGAL = 64 + 6 };

static struct kfit_candidate *candidates[SOURCES];
static struct kfit_limits limits;
static union kfit_key key;

static void setup(void)
{
    struct kfit_error err = {0};
    CHECK_OK(kfit_key_parse(
                 "gemm/f32,f32,f32/acc=f32/m=4,n=64,k=64/nn/lda=64,ldb=64,ldc=64/alpha=1,beta=0/align=16",
                 &key, &err),
             err);
    for (unsigned i = 0; i < SOURCES; i++)
        CHECK_OK(kfit_candidate_parse(sources[i], strlen(sources[i]), &candidates[i], &err), err);
    kfit_host_limits(NULL, &limits);
}

static struct population start(uint64_t seed)
{
    return (struct population){.key = &key,
                               .candidates = candidates,
                               .candidate_count = SOURCES,
                               .limits = &limits,
                               .rng = seed,
                               .best = -1};
}

/* Best at A = 7, B = 5 of "wide". */
static double fitness(const struct proposal *p)
{
    const struct kfit_knob *knobs;
    kfit_candidate_knobs(candidates[p->candidate], &knobs);
    if (p->candidate)
        return 0.5;
    double a = (double)knobs[0].values[p->choice.index[0]] - 7,
           b = (double)knobs[1].values[p->choice.index[1]] - 5;
    return 2 - 0.02 * (a * a + b * b);
}

static void add(struct population *p, const struct proposal *c, double f)
{
    struct kfit_receipt receipt = {0};
    struct kfit_built built = {0};
    CHECK_STATUS(population_add(p, c, f, &receipt, &built, NULL), KFIT_OK);
}

static void finds_every_legal_choice_once(void)
{
    setup();
    struct population p = start(kfit_test_random());
    struct proposal c;
    unsigned n = 0;
    for (; n <= LEGAL && population_propose(&p, &c); n++) {
        CHECK(c.candidate != 2); /* its requirement never holds */
        for (unsigned i = 0; i < p.count; i++)
            CHECK(memcmp(p.all[i].digest, c.digest, sizeof c.digest));
        add(&p, &c, fitness(&c));
    }
    /* the last are found by chance: with more than six left, 360 restarts miss them all once in a million runs */
    CHECK_MSG(n >= LEGAL - 6 && n <= LEGAL, "%u of %d choices", n, LEGAL);
    population_finish(&p);
}

static void starts_from_neighbours_then_from_each_template(void)
{
    setup();
    struct transplant near[2] = {{.candidate = 0, .choice = {.index = {6, 4}}}, {.candidate = 2}};
    struct population p = start(1);
    struct proposal c;
    p.transplants = near;
    p.transplant_count = 2;
    CHECK(population_propose(&p, &c));
    CHECK_STR(population_operator_name(c.op), "transplant");
    CHECK(c.choice.index[0] == 6 && c.choice.index[1] == 4);
    add(&p, &c, 1);
    CHECK(population_propose(&p, &c)); /* the second neighbour's template does not fit here */
    CHECK_STR(population_operator_name(c.op), "seed");
    CHECK_INT(c.candidate, 0);
    add(&p, &c, 1);
    CHECK(population_propose(&p,
                             &c)); /* the first values of "picky" are not legal: no child is wasted on them */
    CHECK(strcmp(population_operator_name(c.op), "seed") != 0);
    population_finish(&p);
}

/* Every template's first start before any second; one that is not legal here is passed over. */
static void starts_are_tried_in_turn(void)
{
    static const char *const with[] = {
        HEAD("two", "\"A\":[1,2,3]},\"starts\":[\"A=3\",\"A=2\"],\"workspace\":{\"bytes\":\"0\"", ""),
        HEAD("one", "\"B\":[1,2]", ""),
        HEAD("three", "\"C\":[1,2,3]},\"starts\":[\"C=1\",\"C=2\",\"C=3\"],\"workspace\":{\"bytes\":\"0\"",
             "\"C != 2\""),
    };
    static const struct {
        unsigned candidate, index;
    } expected[] = {{0, 2}, {1, 0}, {2, 0}, {0, 1}, {2, 2}};
    struct kfit_candidate *c[3];
    struct proposal made;
    setup();
    for (unsigned i = 0; i < 3; i++)
        CHECK_STATUS(kfit_candidate_parse(with[i], strlen(with[i]), &c[i], NULL), KFIT_OK);
    struct population p = start(1);
    p.candidates = c;
    for (unsigned i = 0; i < 5; i++) {
        CHECK(population_propose(&p, &made));
        CHECK_STR(population_operator_name(made.op), "seed");
        CHECK_INT(made.candidate, expected[i].candidate);
        CHECK_INT(made.choice.index[0], expected[i].index);
        add(&p, &made, 1);
    }
    CHECK(population_propose(&p, &made));
    CHECK(strcmp(population_operator_name(made.op), "seed") != 0);
    population_finish(&p);
    for (unsigned i = 0; i < 3; i++)
        kfit_candidate_destroy(c[i]);
}

static void same_seed_same_search(void)
{
    setup();
    struct population p = start(42), q = start(42);
    struct proposal a, b;
    for (int i = 0; i < 30; i++) {
        CHECK(population_propose(&p, &a) && population_propose(&q, &b));
        CHECK(!memcmp(a.digest, b.digest, sizeof a.digest) && a.op == b.op);
        add(&p, &a, fitness(&a));
        add(&q, &b, fitness(&b));
    }
    population_finish(&p);
    population_finish(&q);
}

/* A space of 4096 choices with one peak: 24 guided evaluations must beat 24 uniform draws, over 1000 runs. */
static double peak(const uint8_t at[4])
{
    static const int top[4] = {6, 2, 5, 1};
    double off = 0;
    for (int i = 0; i < 4; i++)
        off += (at[i] - top[i]) * (at[i] - top[i]);
    return 2 - 0.02 * off;
}

static void search_beats_chance(void)
{
    static const char source[] = HEAD("deep",
                                      "\"A\":[1,2,3,4,5,6,7,8],\"B\":[1,2,3,4,5,6,7,8],"
                                      "\"C\":[1,2,3,4,5,6,7,8],\"D\":[1,2,3,4,5,6,7,8]",
                                      "");
    struct kfit_candidate *deep;
    double guided = 0, chance = 0;
    setup();
    CHECK_STATUS(kfit_candidate_parse(source, strlen(source), &deep, NULL), KFIT_OK);
    for (int run = 0; run < 1000; run++) {
        struct population p = start(kfit_test_random());
        struct proposal c;
        double uniform = 0;
        p.candidates = &deep;
        p.candidate_count = 1;
        for (int i = 0; i < 24; i++) {
            uint64_t r = kfit_test_random();
            const uint8_t drawn[4] = {r & 7, r >> 8 & 7, r >> 16 & 7, r >> 24 & 7};
            double f = peak(drawn);
            uniform = f > uniform ? f : uniform;
            CHECK(population_propose(&p, &c));
            add(&p, &c, peak(c.choice.index));
        }
        guided += p.all[p.best].fitness;
        chance += uniform;
        population_finish(&p);
    }
    kfit_candidate_destroy(deep);
    CHECK_MSG(guided > chance, "guided %.4f, chance %.4f (mean best of 1000 runs)", guided / 1000,
              chance / 1000);
}

static const struct kfit_test tests[] = {
    TEST(finds_every_legal_choice_once), TEST(starts_from_neighbours_then_from_each_template),
    TEST(starts_are_tried_in_turn),      TEST(same_seed_same_search),
    TEST(search_beats_chance),
};
TEST_MAIN(tests)
