/* Python's numpy and scipy: Debian's, which load libblas.so.3, and PyPI's, which bring OpenBLAS under names
 * of their own and load it privately. */
#include "traces.h"
#include "kfit/reason.h"

static const char *const python = "/usr/bin/python3";

static const char *or_skip(const char *interpreter, const char *import)
{
    char *err;
    const char *const argv[] = {interpreter, "-c", import, NULL};
    if (kfit_test_run(argv, NULL, NULL, &err))
        SKIP("%s: %s: %s", interpreter, import, err);
    return interpreter;
}

static uint64_t calls_of(const struct kfit_trace *t, const char *type, int m, int n, int k)
{
    uint64_t calls = 0;
    for (size_t i = 0; i < kfit_trace_count(t); i++) {
        const struct kfit_gemm_key *g = &kfit_trace_at(t, i)->key.gemm;
        if (!strcmp(kfit_dtype_name((enum kfit_dtype)g->type_c), type) && g->m == m && g->n == n && g->k == k)
            calls += kfit_slot_calls(kfit_trace_at(t, i));
    }
    return calls;
}

/* products.py says what it did; the trace must say the same and nothing else, and the digest must not change.
 */
static struct kfit_trace *check_products(const char *interpreter, bool scipy, const char *const env[])
{
    const char *const argv[] = {interpreter, PRELOAD_DIR "/products.py", scipy ? "scipy" : NULL, NULL};
    char *out, *bare, *save, *copy;
    run_shimmed(argv, kfit_test_dir(), env, &out, NULL);
    const char *plain_env[8] = {"OPENBLAS_NUM_THREADS=1"};
    for (size_t i = 0; env && env[i]; i++)
        if (strncmp(env[i], "LD_PRELOAD=", 11))
            plain_env[i + 1] = env[i];
    CHECK_INT(kfit_test_run(argv, plain_env, &bare, NULL), 0);
    CHECK_STR(out, bare);
    struct kfit_trace *t = trace_only(kfit_test_dir());
    uint64_t all = 0;
    copy = strdup(out);
    for (char *line = strtok_r(copy, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char type[8];
        int m, n, k, calls;
        if (sscanf(line, "%7s %d %d %d %d", type, &m, &n, &k, &calls) != 5)
            continue;
        if (calls_of(t, type, m, n, k) != (uint64_t)calls)
            trace_print(t);
        CHECK_INT(calls_of(t, type, m, n, k), calls);
        all += (uint64_t)calls;
    }
    CHECK(all >= 30);
    CHECK_INT(trace_calls(t), all);
    return t;
}

static const struct kfit_generic *generic(const struct kfit_trace *t, const char *naming)
{
    const struct kfit_trace_header *h = kfit_trace_header(t);
    for (unsigned i = 0; i < h->generic_count; i++)
        if (!strcmp(h->generics[i].naming, naming))
            return &h->generics[i];
    trace_print(t);
    kfit_test_fail(__FILE__, __LINE__, "no library of naming %s", naming);
}

static void debian_numpy(void)
{
    check_products(or_skip(python, "import numpy, scipy.linalg"), true, NULL);
}

/* netlib: cblas_sgemm calls the exported sgemm_ of the same library. */
static void a_blas_that_calls_itself_is_counted_once(void)
{
    static const char netlib[] = "/usr/lib/x86_64-linux-gnu/blas/libblas.so.3";
    FILE *f = fopen(netlib, "r");
    if (!f)
        SKIP("no %s", netlib);
    fclose(f);
    struct kfit_trace *t =
        check_products(or_skip(python, "import numpy"), false,
                       (const char *[]){"LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu/blas", NULL});
    CHECK_STR(generic(t, "cblas_%s")->config, "");
    CHECK_INT(generic(t, "cblas_%s")->threads, 0);
}

/* An environment with PyPI's packages, made once in the build directory. */
static const char *pypi(void)
{
    char *err;
    if (kfit_test_run((const char *[]){PRELOAD_DIR "/venv.sh", VENV, NULL}, NULL, NULL, &err))
        SKIP("numpy and scipy could not be had from PyPI: %s", err);
    return VENV "/bin/python";
}

static void pypi_numpy_and_scipy(void)
{
    struct kfit_trace *t = check_products(pypi(), true, NULL);
    CHECK_INT(generic(t, "scipy_cblas_%s64_")->int_bits, 64);
    CHECK_INT(generic(t, "scipy_%s_")->int_bits, 32);
    CHECK(strstr(generic(t, "scipy_cblas_%s64_")->config, "OpenBLAS"));
    CHECK_INT(generic(t, "scipy_cblas_%s64_")->threads, 1);
    CHECK(strcmp(generic(t, "scipy_cblas_%s64_")->path, generic(t, "scipy_%s_")->path));
}

static void a_pointer_called_by_a_stranger(void)
{
    char *out;
    run_shimmed((const char *[]){pypi(), PRELOAD_DIR "/pointer.py", NULL}, kfit_test_dir(), NULL, &out, NULL);
    CHECK_STR(out, "32.0\n32.0\n");
    struct kfit_trace *t = trace_only(kfit_test_dir());
    CHECK_INT(calls_of(t, "f32", 1, 1, 3), 1);
    CHECK_INT(kfit_trace_header(t)->unkeyed[KFIT_REASON_FLAGS], 1);
}

/* ---- processes ---- */

static void check_forks(const char *method)
{
    const char *const argv[] = {or_skip(python, "import numpy"), PRELOAD_DIR "/forks.py", method, NULL};
    char *out, *save;
    run_shimmed(argv, kfit_test_dir(), NULL, &out, NULL);
    struct kfit_trace *t[TRACES_MAX];
    size_t n = traces_read(kfit_test_dir(), t), lines = 0;
    for (char *line = strtok_r(out, "\n", &save); line; line = strtok_r(NULL, "\n", &save), lines++) {
        int pid, calls;
        CHECK(sscanf(line, "%d %d", &pid, &calls) == 2);
        const struct kfit_trace *of = trace_of_pid(t, n, pid);
        CHECK_MSG(of, "no trace of process %d", pid);
        CHECK_INT(trace_calls(of), calls);
        CHECK(!kfit_trace_alive(of));
    }
    CHECK_INT(lines, 4);
    CHECK_INT(n, 4);
}

static void forked_by_os_fork(void)
{
    check_forks("os.fork");
}

static void forked_by_multiprocessing(void)
{
    check_forks("fork");
}

static void forked_by_a_server(void)
{
    check_forks("forkserver");
}

static void spawned(void)
{
    check_forks("spawn");
}

/* ---- other libraries in LD_PRELOAD ---- */

static void check_other(const char *interpreter, const char *preload, const char *kind)
{
    char both[1024], env[64];
    snprintf(both, sizeof both, "LD_PRELOAD=%s", preload);
    snprintf(env, sizeof env, "OTHER=%s", kind);
    check_products(interpreter, false, (const char *[]){both, env, NULL});
}

static void another_interposer_behind_us(void)
{
    check_other(or_skip(python, "import numpy"), SHIM ":" OTHER, "caller");
}

static void another_interposer_before_us(void)
{
    check_other(or_skip(python, "import numpy"), OTHER ":" SHIM, "next");
}

/* Two installations: the calls are counted by the one in front, and by the one behind. */
static void a_second_copy_of_the_shim(void)
{
    char copy[300], preload[1024], *out, *err;
    size_t bytes;
    const char *const argv[] = {or_skip(python, "import numpy"), PRELOAD_DIR "/products.py", NULL};
    snprintf(copy, sizeof copy, "%s/copy.so", kfit_test_dir());
    snprintf(preload, sizeof preload, "LD_PRELOAD=%s:%s", SHIM, copy);
    char *text = kfit_test_read(SHIM, &bytes);
    kfit_test_write(copy, text, bytes);
    run_shimmed(argv, kfit_test_dir(), (const char *[]){preload, NULL}, &out, &err);
    CHECK_STR(err, "");
    struct kfit_trace *t[TRACES_MAX];
    CHECK_INT(traces_read(kfit_test_dir(), t), 2);
    CHECK_INT(trace_calls(t[0]), trace_calls(t[1]));
    CHECK(trace_calls(t[0]) > 0);
}

static const struct kfit_test tests[] = {
    TEST(debian_numpy),
    TEST(a_blas_that_calls_itself_is_counted_once),
    TEST_SLOW(pypi_numpy_and_scipy, 600),
    TEST(a_pointer_called_by_a_stranger),
    TEST(forked_by_os_fork),
    TEST(forked_by_multiprocessing),
    TEST(forked_by_a_server),
    TEST(spawned),
    TEST(another_interposer_behind_us),
    TEST(another_interposer_before_us),
    TEST(a_second_copy_of_the_shim),
};
TEST_MAIN(tests)
