/* What libkfit_preload.so needs and offers: it must load in any program of any pod. */
#include "driver_hooks.h"
#include "kfit_test.h"

static char *tool(const char *const argv[])
{
    char *out, *err;
    int rc = kfit_test_run(argv, NULL, &out, &err);
    CHECK_MSG(rc == 0, "%s: exit %d: %s", argv[0], rc, err);
    return out;
}

/* Every function of the four naming patterns, spelled out here once more. */
static bool is_hooked(const char *name)
{
    static const char *const patterns[] = {
        "cblas_%s",       "%s_",       "cblas_%s64_",       "%s_64_",
        "scipy_cblas_%s", "scipy_%s_", "scipy_cblas_%s64_", "scipy_%s_64_"};
    static const char *const functions[] = {"sgemm", "dgemm", "sgemv", "dgemv"};
    char want[64];
    for (unsigned i = 0; i < sizeof patterns / sizeof *patterns; i++)
        for (unsigned j = 0; j < 4; j++) {
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            snprintf(want, sizeof want, patterns[i], functions[j]);
            if (!strcmp(name, want))
                return true;
        }
    static const char *const cuda[] = {"cublasGemmEx", "cublasGemmStridedBatchedEx", "cublasSgemm_v2",
                                       "cublasSgemmStridedBatched"};
    for (unsigned i = 0; i < sizeof cuda / sizeof *cuda; i++)
        if (!strncmp(name, cuda[i], strlen(cuda[i])) &&
            (!name[strlen(cuda[i])] || !strcmp(name + strlen(cuda[i]), "_64")))
            return true;
    return !strcmp(name, "cublasLtMatmul") || !strcmp(name, "cublasLtDestroy") || !strcmp(name, "cublasDestroy_v2");
}

/* libcuda's, the one that looks for them, and the one by which callers go. */
static const char *const driver[] = {"dlsym", "dlclose",
#define X(symbol, flags, asked, since, params, args, before, after) #symbol,
                                     KFIT_DRIVER_LIST(X)
#undef X
};
enum { DRIVER = sizeof driver / sizeof *driver };

static bool is_driver(const char *name)
{
    for (unsigned i = 0; i < DRIVER; i++)
        if (!strcmp(name, driver[i]))
            return true;
    return false;
}

static void exports_the_hooked_names_only(void)
{
    char *out = tool((const char *[]){"nm", "-D", "--defined-only", SHIM, NULL}), *save;
    int hooked = 0;
    for (char *line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        const char *name = strrchr(line, ' ') + 1;
        CHECK_MSG(is_hooked(name) || is_driver(name) || !strncmp(name, "kfit_", 5), "exports %s", name);
        hooked += is_hooked(name) || is_driver(name);
    }
    CHECK_INT(hooked, 32 + 8 + 3 + DRIVER);
}

static void needs_libc_only(void)
{
    char *out = tool((const char *[]){"readelf", "-d", "-W", SHIM, NULL}), *save;
    int needed = 0;
    for (char *line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        if (strstr(line, "(NEEDED)")) {
            CHECK_MSG(strstr(line, "[libc.so.6]"), "%s", line);
            needed++;
        }
        CHECK_MSG(!strstr(line, "RPATH") && !strstr(line, "RUNPATH"), "%s", line);
        /* no constructor of ours: only the compiler's own frame_dummy, one pointer */
        const char *size = strstr(line, "(INIT_ARRAYSZ)");
        CHECK_MSG(!size || strtol(size + strlen("(INIT_ARRAYSZ)"), NULL, 10) == (long)sizeof(void *), "%s",
                  line);
    }
    CHECK_INT(needed, 1);
}

static void needs_no_glibc_newer_than_2_34(void)
{
    char *out = tool((const char *[]){"readelf", "-V", "-W", SHIM, NULL});
    int seen = 0;
    for (const char *p = out; (p = strstr(p, "GLIBC_2.")); p++, seen++) {
        long minor = strtol(p + strlen("GLIBC_2."), NULL, 10);
        CHECK_MSG(minor <= 34, "needs GLIBC_2.%ld", minor);
    }
    CHECK(seen > 0);
}

static const struct kfit_test tests[] = {
    TEST(exports_the_hooked_names_only),
    TEST(needs_libc_only),
    TEST(needs_no_glibc_newer_than_2_34),
};
TEST_MAIN(tests)
