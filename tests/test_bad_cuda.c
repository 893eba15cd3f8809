/* The bad kernels for cuda without a GPU: each is in the table, and NVRTC and gate 0 let through those that are for later
 * gates, so that on a GPU it is the judge that refuses them. Skipped where there is no NVRTC. */
#include <dirent.h>

#include "kfit_test.h"

#include "bad_kernels/cuda.h"
#include "compile_cuda.h"
#include "kfit/compile.h"

extern const char kfit_judge_cu[]; /* harness/judge.cu */
extern const size_t kfit_judge_cu_bytes;

static void every_file_is_in_the_table(void)
{
    DIR *dir = opendir(BAD_KERNELS "/cuda");
    CHECK(dir);
    unsigned n = 0;
    for (struct dirent *e; (e = readdir(dir));) {
        char *dot = strrchr(e->d_name, '.');
        if (!dot || strcmp(dot, ".cu"))
            continue;
        *dot = '\0';
        bool known = false;
        for (unsigned i = 0; i < BAD_CUDA; i++)
            known |= !strcmp(bad_cuda[i].name, e->d_name);
        CHECK_MSG(known, "%s.cu has no row", e->d_name);
        n++;
    }
    closedir(dir);
    CHECK_INT(n, BAD_CUDA);
}

static void gate_0_refuses_what_is_its_own(void)
{
    struct kfit_error err = {0};
    for (unsigned i = 0; i < BAD_CUDA; i++) {
        char path[512];
        union kfit_key key;
        struct kfit_candidate *c;
        struct kfit_built built = {0};
        size_t bytes;
        snprintf(path, sizeof path, "%s/cuda/%s.cu", BAD_KERNELS, bad_cuda[i].name);
        CHECK_OK(kfit_key_parse(bad_cuda[i].key, &key, &err), err);
        char *source = kfit_test_read(path, &bytes);
        CHECK_OK(kfit_candidate_parse(source, bytes, &c, &err), err);
        const struct kfit_compile_params params = {.candidate = c, .key = &key, .choice = &(struct kfit_choice){{0}},
                                                   .isa = "sm_90a", .allow_no_isolation = true}; /* our own sources */
        enum kfit_status s = kfit_compile(&params, &built, &err);
        if (s == KFIT_E_NOTFOUND && strstr(err.text, "libnvrtc"))
            SKIP("%s", err.text);
        bool here = !strncmp(bad_cuda[i].code, "static:", 7) && strcmp(bad_cuda[i].code, "static:resources");
        CHECK_MSG(here ? s == KFIT_E_REFUSED && !strcmp(built.code, bad_cuda[i].code) : s == KFIT_OK, "%s: %s %s %s",
                  bad_cuda[i].name, err.text, built.code, built.detail);
        kfit_built_finish(&built);
        kfit_candidate_destroy(c);
        free(source);
    }
}

/* The double runs the judge's own kernels as C; this is what a GPU would run. */
static void the_judges_own_code_compiles(void)
{
    static const char *const archs[] = {"--gpu-architecture=sm_90a", "--gpu-architecture=sm_80"};
    static const char *const entries[] = {"kfit_fill", "kfit_hash", "kfit_differs", "kfit_reference", "kfit_delay", "kfit_read_8",
                                          "kfit_copy_8"};
    struct kfit_error err = {0};
    for (unsigned a = 0; a < 2; a++) {
        const struct kfit_compile_params how = {.allow_no_isolation = true}; /* our own source */
        struct kfit_built built = {0};
        char *cubin = NULL, *ptx = NULL;
        size_t cubin_bytes = 0, ptx_bytes = 0;
        enum kfit_status s =
            kfit_nvrtc_run(&how, (const char *[]){"-std=c++17", "-default-device", archs[a]}, 3, kfit_judge_cu, kfit_judge_cu_bytes,
                           &cubin, &cubin_bytes, &ptx, &ptx_bytes, &built, &err);
        if (s == KFIT_E_NOTFOUND && strstr(err.text, "libnvrtc"))
            SKIP("%s", err.text);
        CHECK_MSG(s == KFIT_OK, "%s: %s %s", archs[a], err.text, built.detail);
        for (unsigned e = 0; e < sizeof entries / sizeof *entries; e++) {
            char line[64];
            snprintf(line, sizeof line, ".visible .entry %s(", entries[e]);
            CHECK_MSG(strstr(ptx, line), "%s: no %s", archs[a], entries[e]);
        }
        free(cubin);
        free(ptx);
    }
}

static const struct kfit_test tests[] = {
    TEST(the_judges_own_code_compiles),
    TEST(every_file_is_in_the_table),
    TEST(gate_0_refuses_what_is_its_own),
};
TEST_MAIN(tests)
