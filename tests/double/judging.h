/* What the tests of the cuda judge on the double share: a judge, keys, candidates whose name says what they do. */
#ifndef KFIT_TEST_DOUBLE_JUDGING_H
#define KFIT_TEST_DOUBLE_JUDGING_H

#include "use_double.h"

#include "kfit/candidate.h"
#include "kfit/compile.h"
#include "kfit/judge.h"

static struct kfit_error err;
static struct kfit_env env;
static struct kfit_device_info info;
static struct kfit_judge *judge;
static struct kfit_generic generic = {.naming = "cublas%s", .int_bits = 32};

static inline void settings(const char *text)
{
    use_double(text, DOUBLE "/libcuda.so.1");
    snprintf(generic.path, sizeof generic.path, "%s", DOUBLE "/libcublas.so.13");
}

static inline enum kfit_status judge_status(void)
{
    enum kfit_status s = kfit_judge_cuda_env(NULL, &generic, &env, &info, &err);
    const struct kfit_judge_params p = {.generic = &generic, .env = &env, .seed = 7, .lock_dir = kfit_test_dir()};
    return s == KFIT_OK ? kfit_judge_create(&p, &judge, &err) : s;
}

static inline void setup(const char *text)
{
    settings(text);
    CHECK_OK(judge_status(), err);
}

static inline union kfit_key key_of(const char *text)
{
    union kfit_key key;
    CHECK_OK(kfit_key_parse(text, &key, &err), err);
    return key;
}

/* note: what the double is told, "ns=5000". extra: more of the header's fields. */
static inline struct kfit_built build(const char *name, const char *note, const char *extra, const union kfit_key *key)
{
    char source[1024];
    struct kfit_candidate *c;
    struct kfit_built b = {0};
    const bool of_header = strstr(extra, "workspace") || strstr(extra, "tensormaps"); /* else of the launch */
    snprintf(source, sizeof source,
             "/* kfit-candidate 1\n{\"op\":\"gemm\",\"name\":\"%s\",\"device\":\"cuda\",\"arch\":\">=80\",%s"
             "\"launches\":[{\"entry\":\"kfit_main\",\"grid\":[4,1,1],\"block\":[64,1,1]%s}]}\n*/\n// double: %s\n"
             "extern \"C\" __global__ void kfit_main(const short *a, const short *b, short *c,%s unsigned *ws%s) {}\n",
             name, of_header ? extra : "", of_header ? "" : extra, note,
             kfit_op_of(key)->nargs(key) > 3 ? " const short *bias," : "",
             strstr(extra, "tensormaps") ? ", const __grid_constant__ kfit_tensor_map map" : "");
    CHECK_OK(kfit_candidate_parse(source, strlen(source), &c, &err), err);
    const struct kfit_compile_params params = {.candidate = c, .key = key, .choice = &(struct kfit_choice){{0}},
                                               .isa = info.arch, .allow_no_isolation = true}; /* our own source */
    enum kfit_status s = kfit_compile(&params, &b, &err);
    CHECK_MSG(s == KFIT_OK, "%s: %s %s %s", name, err.text, b.code, b.detail);
    kfit_candidate_destroy(c);
    return b;
}

static inline struct kfit_receipt judged(const struct kfit_built *b, const struct kfit_built *incumbent,
                                         const union kfit_key *key)
{
    struct kfit_receipt r = {0};
    struct kfit_judge_job job = {.key = key, .image = b->image, .image_bytes = b->image_bytes, .plan = &b->plan};
    if (incumbent) {
        job.incumbent_image = incumbent->image;
        job.incumbent_bytes = incumbent->image_bytes;
        job.incumbent_plan = &incumbent->plan;
    }
    CHECK_OK(kfit_judge_run(judge, &job, &r, &err), err);
    return r;
}

/* The generic takes 10000 ns unless settings say otherwise. */
static inline struct kfit_receipt judge_one(const char *name, const char *note, const char *extra, const char *key_text)
{
    const union kfit_key key = key_of(key_text);
    struct kfit_built b = build(name, note, extra, &key);
    struct kfit_receipt r = judged(&b, NULL, &key);
    kfit_built_finish(&b);
    return r;
}

static inline void expect(const char *name, const char *note, const char *extra, const char *key_text,
                          enum kfit_verdict verdict, const char *code)
{
    struct kfit_receipt r = judge_one(name, note, extra, key_text);
    CHECK_MSG(r.verdict == verdict && !strcmp(kfit_code_str(r.code), code), "%s %s: %s \"%s\" (%s), expected %s \"%s\"", name, note,
              kfit_verdict_str(r.verdict), kfit_code_str(r.code), r.detail, kfit_verdict_str(verdict), code);
}

#endif
