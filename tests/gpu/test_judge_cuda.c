/* The judge on a real GPU: bad kernels get their own code, good ones are not refused, the runner is replaced. */
#include "kfit_test.h"

#include "bad_kernels/cuda.h"
#include "gpu.h"

static struct kfit_generic generic;
static struct kfit_env env;
static struct kfit_device_info info;
static struct kfit_judge *judge;

static void setup(void)
{
    struct kfit_error err = {0};
    const char *why = gpu_find(&generic, &env, &info);
    if (why)
        SKIP("%s", why);
    const struct kfit_judge_params p = {.generic = &generic, .env = &env};
    CHECK_OK(kfit_judge_create(&p, &judge, &err), err);
}

static union kfit_key key_of(const char *text)
{
    union kfit_key key;
    struct kfit_error err = {0};
    CHECK_OK(kfit_key_parse(text, &key, &err), err);
    return key;
}

/* Judges one file; the code, or "" when it was kept or promoted. */
static const char *judge_file(const char *name, const char *key_text, struct kfit_receipt *r)
{
    const union kfit_key key = key_of(key_text);
    char path[512];
    size_t bytes;
    struct kfit_candidate *c;
    struct kfit_built built;
    struct kfit_error err = {0};
    const struct kfit_choice first = {{0}};
    snprintf(path, sizeof path, "%s/cuda/%s.cu", BAD_KERNELS, name);
    char *source = kfit_test_read(path, &bytes);
    CHECK_OK(kfit_candidate_parse(source, bytes, &c, &err), err);
    const struct kfit_compile_params params = {.candidate = c, .key = &key, .choice = &first, .isa = info.arch,
                                               .allow_no_isolation = true}; /* our own sources */
    enum kfit_status s = kfit_compile(&params, &built, &err);
    *r = (struct kfit_receipt){0};
    if (s == KFIT_E_REFUSED) {
        r->code = kfit_code_parse(built.code);
        r->verdict = KFIT_VERDICT_REFUSED;
    } else {
        CHECK_OK(s, err);
        const struct kfit_judge_job job = {.key = &key, .image = built.image, .image_bytes = built.image_bytes,
                                           .plan = &built.plan};
        CHECK_OK(kfit_judge_run(judge, &job, r, &err), err);
    }
    kfit_built_finish(&built);
    kfit_candidate_destroy(c);
    free(source);
    return r->verdict == KFIT_VERDICT_REFUSED ? kfit_code_str(r->code) : "";
}

static void each_kernel_gets_its_own_code(void)
{
    setup();
    unsigned wrong = 0;
    for (unsigned i = 0; i < BAD_CUDA; i++) {
        struct kfit_receipt r;
        const char *code = judge_file(bad_cuda[i].name, bad_cuda[i].key, &r);
        if (strcmp(code, bad_cuda[i].code)) {
            printf("  %s got \"%s\" (%s), expected \"%s\"\n", bad_cuda[i].name, code, r.detail, bad_cuda[i].code);
            wrong++;
        }
    }
    CHECK_INT(wrong, 0);
}

/* A fault costs the runner, not the next candidate. */
static void a_lost_runner_is_replaced(void)
{
    struct kfit_receipt r;
    setup();
    static const char *const order[] = {"right", "illegal", "right", "hangs", "right", "too_much", "right"};
    for (unsigned i = 0; i < 7; i++) {
        const char *code = judge_file(order[i], BAD_CUDA_PLAIN, &r);
        CHECK_MSG(i % 2 ? code[0] != 0 : code[0] == 0, "%s after %s: \"%s\" (%s)", order[i], i ? order[i - 1] : "nothing", code,
                  r.detail);
    }
}

static void the_generic_is_timed_and_bounded(void)
{
    struct kfit_error err = {0};
    double ns, floor;
    setup();
    static const char *const keys[] = {BAD_CUDA_PLAIN, BAD_CUDA_BIAS, BAD_CUDA_BATCH}; /* cublasGemmEx, cublasLtMatmul, batched */
    for (unsigned i = 0; i < 3; i++) {
        const union kfit_key key = key_of(keys[i]);
        CHECK_OK(kfit_judge_time_generic(judge, &key, &ns, &err), err);
        CHECK_OK(kfit_judge_bound(judge, &key, &floor, &err), err);
        printf("  generic %.0f ns, floor %.0f ns: %s\n", ns, floor, keys[i]);
        CHECK(ns > 500 && ns < 1e6);
        CHECK(floor > 200 && floor < ns);
    }
}

/* The generic dressed as a candidate cannot be had as a cubin; the right kernel against itself can. */
static void nothing_is_promoted_against_itself(void)
{
    struct kfit_error err = {0};
    struct kfit_candidate *c;
    struct kfit_built built;
    size_t bytes;
    const struct kfit_choice first = {{0}};
    const union kfit_key key = key_of(BAD_CUDA_PLAIN);
    setup();
    char *source = kfit_test_read(BAD_KERNELS "/cuda/right.cu", &bytes);
    CHECK_OK(kfit_candidate_parse(source, bytes, &c, &err), err);
    const struct kfit_compile_params params = {.candidate = c, .key = &key, .choice = &first, .isa = info.arch,
                                               .allow_no_isolation = true}; /* our own sources */
    CHECK_OK(kfit_compile(&params, &built, &err), err);
    for (int i = 0; i < 10; i++) {
        struct kfit_receipt r = {0};
        const struct kfit_judge_job job = {.key = &key, .image = built.image, .image_bytes = built.image_bytes,
                                           .plan = &built.plan, .incumbent_image = built.image,
                                           .incumbent_bytes = built.image_bytes, .incumbent_plan = &built.plan};
        CHECK_OK(kfit_judge_run(judge, &job, &r, &err), err);
        CHECK_MSG(r.verdict == KFIT_VERDICT_KEPT, "trial %d: %s %s %s", i, kfit_verdict_str(r.verdict), kfit_code_str(r.code),
                  r.detail);
    }
}

static const struct kfit_test tests[] = {
    TEST_SLOW(each_kernel_gets_its_own_code, 240),
    TEST_SLOW(a_lost_runner_is_replaced, 120),
    TEST(the_generic_is_timed_and_bounded),
    TEST(nothing_is_promoted_against_itself),
};
TEST_MAIN(tests)
