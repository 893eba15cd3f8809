/* KFIT_TRUST in a real program: what is not signed by a trusted key does not run, the answers are right, one line
 * says why, and the trace keeps it. */
#include <sys/stat.h>
#include <unistd.h>

#include "kfit/reason.h"
#include "kfit/trust.h"
#include "published.h"

#define MULTIPLIED "0.390625\n0.390625\n"
#define REPLACED   "42\n42\n"

static const char *key(unsigned i)
{
    static char name[2][300];
    struct kfit_public_key made;
    struct kfit_error err = {""};
    snprintf(name[i], sizeof name[i], "%.250s/key%u", kfit_test_dir(), i);
    if (access(name[i], F_OK))
        CHECK_OK(kfit_secret_key_make(name[i], NULL, &made, &err), err);
    return name[i];
}

static void sign(unsigned i)
{
    struct kfit_secret_key k;
    struct kfit_error err = {""};
    CHECK_OK(kfit_secret_key_read(key(i), &k, &err), err);
    CHECK_OK(kfit_generation_sign(cache_env + strlen("KFIT_CACHE="), 1, &k, &err), err);
}

/* trust NULL: unset. said NULL: nothing is said. */
static void runs(const char *const before[], const char *trust, const char *expected, const char *said)
{
    static unsigned turn;
    char dir[300], trace[400], variable[400], *out, *err;
    const char *argv[16];
    size_t n = 0;
    snprintf(dir, sizeof dir, "%.200s/trace%u", kfit_test_dir(), turn++);
    snprintf(trace, sizeof trace, "KFIT_TRACE=%s", dir);
    snprintf(variable, sizeof variable, trust ? "KFIT_TRUST=%s" : "KFIT_TRUST", trust);
    while (before && before[n])
        argv[n] = before[n], n++;
    memcpy(argv + n, CALLS_ARGV("step", "2"), 4 * sizeof *argv);
    const char *const env[] = {trace, cache_env, variable, preload_env, "OPENBLAS_NUM_THREADS=1", NULL};
    int rc = kfit_test_run(argv, env, &out, &err);
    if (before && (rc == 99 || rc == 127 || strstr(err, "unshare: ")))
        SKIP("%s is not to be had here: %s", before[0], err);
    CHECK_MSG(rc == 0 && !strcmp(out, expected), "%s: status %d, answers %s, said %s", variable, rc, out,
              err);
    struct kfit_trace *t = trace_only(dir);
    const struct kfit_trace_header *h = kfit_trace_header(t);
    if (!said) {
        CHECK_STR(err, "");
        CHECK_INT(h->state_reason, KFIT_REASON_NONE);
    } else {
        const char *newline = strchr(err, '\n');
        CHECK_MSG(!strncmp(err, "kfit: ", 6) && strstr(err, said) && newline && !newline[1], "%s, said: %s",
                  variable, err);
        CHECK_MSG(strstr(h->state_text, "records only"), "%s", h->state_text);
        CHECK_INT(h->state_reason, KFIT_REASON_POLICY);
        CHECK_INT(trace_calls_of(t, square_text, KFIT_REASON_COUNT), 2); /* still recorded */
    }
    kfit_trace_destroy(t);
}

static void only_signed_kernels_run(void)
{
    char both[700], none[300], public_key[2][304];
    publish();
    for (unsigned i = 0; i < 2; i++)
        snprintf(public_key[i], sizeof public_key[i], "%s.pub", key(i));
    runs(NULL, NULL, REPLACED, NULL);
    runs(NULL, public_key[0], MULTIPLIED, "not signed");
    sign(0);
    runs(NULL, public_key[0], REPLACED, NULL);
    runs(NULL, NULL, REPLACED, NULL);
    runs(NULL, public_key[1], MULTIPLIED, "not one of the 1 trusted keys");
    snprintf(none, sizeof none, "%.250s/none.pub", kfit_test_dir());
    runs(NULL, none, MULTIPLIED, "No such file");
    runs(NULL, "", MULTIPLIED, "KFIT_TRUST: names no key");
    snprintf(both, sizeof both, "%s%s", kfit_test_read(public_key[0], NULL),
             kfit_test_read(public_key[1], NULL));
    runs(NULL, both, REPLACED, NULL); /* the keys themselves */
    sign(1);
    runs(NULL, both, REPLACED, NULL);
    runs(NULL, public_key[0], MULTIPLIED, "not one of the 1 trusted keys");
}

static void without_libsodium(void)
{
    char public_key[304];
    static const char script[] =
        "for f in /usr/lib/x86_64-linux-gnu /usr/lib64 /usr/lib /usr/local/lib; do for v in 23 26; do "
        "[ ! -e $f/libsodium.so.$v ] || mount --bind /dev/null $f/libsodium.so.$v || exit 99; done; done; "
        "exec \"$0\" \"$@\"";
    const char *const hidden[] = {"unshare", "-rm", "sh", "-c", script, NULL};
    publish();
    sign(0);
    snprintf(public_key, sizeof public_key, "%s.pub", key(0));
    runs(hidden, public_key, MULTIPLIED, "install libsodium");
    runs(hidden, NULL, REPLACED, NULL);
}

static const struct kfit_test tests[] = {
    TEST(only_signed_kernels_run),
    TEST(without_libsodium),
};
TEST_MAIN(tests)
