/* Traces as files: merged, written, their golden bytes, damaged, or none at all. How they come about is test_recorder's; a GPU's
 * are test_trace_live's. */
#include "recording.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- merge and write ---- */

static struct kfit_trace *trace_of(const char *hard, const char *blas, int from, int to)
{
    struct kfit_recorder *r = recorder(kfit_test_dir(), 4096);
    struct kfit_generic g = {.naming = "cblas_%s", .int_bits = 32};
    snprintf(g.path, sizeof g.path, "%s", blas);
    snprintf(kfit_recorder_header(r)->env.hard, KFIT_ENV_TEXT_MAX, "%s", hard);
    kfit_recorder_generic(r, &g);
    kfit_recorder_header(r)->unkeyed[KFIT_REASON_FLAGS] = 5;
    for (int i = from; i < to; i++)
        CHECK(record(r, i, 2));
    struct kfit_trace *t;
    CHECK_OK(kfit_trace_read(kfit_recorder_path(r), &t, &err), err);
    kfit_recorder_destroy(r);
    return t;
}

static void merge_adds_up(void)
{
    struct kfit_trace *in[3] = {trace_of("device=host;", "/a.so", 1, 200),
                                trace_of("device=host;", "/a.so", 100, 300),
                                trace_of("device=host;", "/b.so", 1, 11)};
    struct kfit_trace *sum, *back;
    CHECK_OK(kfit_trace_merge((const struct kfit_trace *const *)in, 3, false, &sum, &err), err);
    CHECK_INT(kfit_trace_count(sum), 299 + 10); /* a key called through two libraries stays two */
    CHECK_INT(calls_in(sum), 199 + 200 + 10);
    CHECK_INT(kfit_trace_header(sum)->generic_count, 2);
    CHECK_INT(kfit_trace_header(sum)->unkeyed[KFIT_REASON_FLAGS], 15);
    CHECK_INT(kfit_trace_header(sum)->pid, 0);
    CHECK(!kfit_trace_alive(sum));

    char path[128];
    snprintf(path, sizeof path, "%s/sum", kfit_test_dir());
    CHECK_OK(kfit_trace_write(sum, path, &err), err);
    CHECK_OK(kfit_trace_write(sum, path, &err), err); /* over the old one */
    CHECK_OK(kfit_trace_read(path, &back, &err), err);
    CHECK_INT(kfit_trace_count(back), kfit_trace_count(sum));
    CHECK_INT(calls_in(back), calls_in(sum));
    CHECK_INT(kfit_trace_skipped(back), 0);
    for (int i = 0; i < 3; i++)
        kfit_trace_destroy(in[i]);
    kfit_trace_destroy(sum);
    kfit_trace_destroy(back);
}

static void merge_refuses_two_environments(void)
{
    struct kfit_trace *in[2] = {trace_of("device=host;threads=1;", "/a.so", 1, 4),
                                trace_of("device=host;threads=2;", "/a.so", 1, 4)};
    struct kfit_trace *sum;
    CHECK_STATUS(kfit_trace_merge((const struct kfit_trace *const *)in, 2, false, &sum, &err), KFIT_E_ENV);
    CHECK(strstr(err.text, "threads=1") && strstr(err.text, "threads=2"));
    CHECK_OK(kfit_trace_merge((const struct kfit_trace *const *)in, 2, true, &sum, &err), err);
    CHECK_INT(kfit_trace_count(sum), 3);
    for (int i = 0; i < 2; i++)
        kfit_trace_destroy(in[i]);
    kfit_trace_destroy(sum);
    CHECK_STATUS(kfit_trace_merge(NULL, 0, false, &sum, &err), KFIT_E_ARG);
}

static void unwritable_target_is_an_error(void)
{
    struct kfit_trace *t = trace_of("device=host;", "/a.so", 1, 4);
    CHECK_STATUS(kfit_trace_write(t, "/proc/no/such", &err), KFIT_E_IO);
    CHECK_STATUS(kfit_trace_write(t, kfit_test_dir(), &err), KFIT_E_IO); /* a directory */
    kfit_trace_destroy(t);
}

/* ---- bytes ---- */

/* What a file is written back as is what it was. */
static void check_copy(const struct kfit_trace *t, const char *original)
{
    char path[128];
    size_t n, m;
    snprintf(path, sizeof path, "%s/copy", kfit_test_dir());
    CHECK_OK(kfit_trace_write(t, path, &err), err);
    char *a = kfit_test_read(original, &n), *b = kfit_test_read(path, &m);
    CHECK_INT(n, m);
    CHECK(!memcmp(a, b, n));
    free(a);
    free(b);
}

/* Fields taken from the reserved bytes: not known in older files, at their places in newer ones. */
static void golden_bytes_of_later_fields(void)
{
    struct kfit_trace *t;
    CHECK_OK(kfit_trace_read(GOLDEN "/trace-1.kft", &t, &err), err);
    const struct kfit_trace_header *h = kfit_trace_header(t);
    const struct kfit_trace_loaded none = {0};
    CHECK(!memcmp(&h->loaded, &none, sizeof none));
    CHECK_STR(h->cache, "");
    CHECK_STR(h->job, "");
    kfit_trace_destroy(t);

    CHECK_OK(kfit_trace_read(GOLDEN "/trace-1-loaded.kft", &t, &err), err);
    h = kfit_trace_header(t);
    CHECK_INT(h->loaded.unix_ns, INT64_C(1700000001000000000));
    CHECK_INT(h->loaded.winners, 12);
    CHECK_INT(h->loaded.stale, 2);
    CHECK_INT(h->loaded.negatives, 3);
    CHECK_INT(h->loaded.banned, 1);
    CHECK_INT(h->loaded.unusable, 4);
    CHECK_INT(h->loaded.loads, 5);
    CHECK_STR(h->cache, "/var/cache/kfit");
    CHECK_STR(h->job, "job/29500");
    CHECK_INT(kfit_trace_count(t), 3);
    CHECK_INT(h->making, 0);
    check_copy(t, GOLDEN "/trace-1-loaded.kft");
    kfit_trace_destroy(t);

    size_t n; /* and the one after these, in place */
    char *bytes = kfit_test_read(GOLDEN "/trace-1-loaded.kft", &n), *path = kfit_test_path("making");
    memcpy(bytes + 3472, &(uint32_t){7}, 4);
    kfit_test_write(path, bytes, n);
    CHECK_OK(kfit_trace_read(path, &t, &err), err);
    CHECK_INT(kfit_trace_header(t)->making, 7);
    check_copy(t, path);
    kfit_trace_destroy(t);
    free(bytes);
}

/* A trace whose every byte is known: what tests/golden/trace-1.kft holds. */
static void golden_bytes(void)
{
    struct kfit_trace *t;
    CHECK_OK(kfit_trace_read(GOLDEN "/trace-1.kft", &t, &err), err);
    const struct kfit_trace_header *h = kfit_trace_header(t);
    CHECK_INT(h->pid, 4242);
    CHECK_INT(h->start_ticks, 123456);
    CHECK_INT(h->start_unix_ns, INT64_C(1700000000000000000));
    CHECK_INT(h->end_unix_ns, INT64_C(1700000060000000000));
    CHECK_INT(h->rank, 3);
    CHECK_INT(h->mode, KFIT_MODE_BOTH);
    CHECK_INT(h->state_reason, KFIT_REASON_ENV);
    CHECK_INT(h->generation, 17);
    CHECK_INT(h->generation_digest[31], 31);
    CHECK_INT(h->unkeyed[KFIT_REASON_FLAGS], 9);
    CHECK_INT(h->slots_busy, 1);
    CHECK_INT(h->pid_namespace, 4026531836);
    CHECK_STR(h->boot_id, "01234567-89ab-cdef-0123-456789abcdef");
    CHECK_STR(h->label, "golden");
    CHECK_STR(h->program, "python3 serve.py");
    CHECK_STR(h->state_text, "for tests");
    CHECK_STR(h->env.hard, "device=host;isa=x86-64-v3;");
    CHECK_STR(h->env.soft, "blas=OpenBLAS 0.3.21;");
    CHECK_INT(h->env.hard_hash, kfit_text_hash(h->env.hard));
    CHECK_INT(h->generic_count, 1);
    CHECK_STR(h->generics[0].path, "/usr/lib/libblas.so.3");
    CHECK_STR(h->generics[0].naming, "cblas_%s");
    CHECK_STR(h->generics[0].config, "reference");
    CHECK_INT(h->generics[0].threads, 1);
    CHECK_INT(h->generics[0].int_bits, 32);
    CHECK_INT(kfit_trace_count(t), 3);
    for (size_t i = 0; i < 3; i++) {
        const struct kfit_trace_slot *s = kfit_trace_at(t, i);
        CHECK_INT(s->count[KFIT_REASON_NONE], 1000 * s->key.gemm.m);
        CHECK_INT(s->count[KFIT_REASON_NO_RECORD], s->key.gemm.m);
        CHECK_INT(s->last_seen_s, 1700000000 + s->key.gemm.m);
        CHECK_INT(s->hash, kfit_key_hash(&s->key));
    }
    check_copy(t, GOLDEN "/trace-1.kft");
    kfit_trace_destroy(t);
}

/* Every truncation is refused; every flipped bit is refused, skipped, or gives a trace that can be used. */
static void damaged_copies(void)
{
    size_t n;
    char *bytes = kfit_test_read(GOLDEN "/trace-1.kft", &n), path[128];
    struct kfit_trace *t;
    snprintf(path, sizeof path, "%s/damaged", kfit_test_dir());
    for (size_t cut = 0; cut < n; cut += cut < 16 || cut > n - 16 ? 1 : 97) {
        kfit_test_write(path, bytes, cut);
        CHECK_STATUS(kfit_trace_read(path, &t, &err), KFIT_E_FORMAT);
        CHECK(!t && strstr(err.text, "damaged"));
    }
    kfit_test_write(path, bytes, n);
    int fd = open(path, O_RDWR), longer = open(path, O_WRONLY | O_APPEND);
    for (size_t bit = 0; bit < 8 * n; bit += 1 + kfit_test_random() % 5) {
        char flipped = (char)(bytes[bit / 8] ^ (1 << bit % 8));
        CHECK(pwrite(fd, &flipped, 1, (off_t)(bit / 8)) == 1);
        enum kfit_status s = kfit_trace_read(path, &t, &err);
        if (s == KFIT_OK) {
            char text[KFIT_KEY_TEXT_MAX];
            CHECK_INT(kfit_trace_count(t) + kfit_trace_skipped(t) >= 3, 1);
            for (size_t i = 0; i < kfit_trace_count(t); i++) { /* no key that was not there */
                CHECK(kfit_key_format(&kfit_trace_at(t, i)->key, text, sizeof text));
                CHECK_MSG(strstr(text, "n=768,k=512/nt/lda=512,ldb=512,ldc=768/alpha=1,beta=0/align=16"),
                          "%s", text);
                CHECK(kfit_trace_at(t, i)->key.gemm.m <= 4);
            }
            kfit_trace_alive(t);
        } else {
            const size_t at = bit / 8 - offsetof(struct kfit_trace_header, live);
            CHECK(bit / 8 < 32 || at < sizeof(struct kfit_trace_live));
            CHECK((s == KFIT_E_FORMAT || s == KFIT_E_VERSION) && err.text[0]);
        }
        kfit_trace_destroy(t);
        CHECK(pwrite(fd, &bytes[bit / 8], 1, (off_t)(bit / 8)) == 1);
    }
    CHECK(write(longer, "x", 1) == 1);
    CHECK_STATUS(kfit_trace_read(path, &t, &err), KFIT_E_FORMAT);
    uint32_t newer = KFIT_TRACE_VERSION + 1;
    CHECK(pwrite(fd, &newer, sizeof newer, 8) == sizeof newer);
    CHECK_STATUS(kfit_trace_read(path, &t, &err), KFIT_E_VERSION);
    CHECK_STATUS(kfit_trace_set_control(path, KFIT_CONTROL_OFF, &err), KFIT_E_VERSION);
    close(fd);
    close(longer);
    free(bytes);
}

static void what_is_no_trace_is_refused(void)
{
    struct kfit_trace *t;
    char path[128];
    CHECK_STATUS(kfit_trace_read("/no/such/file", &t, &err), KFIT_E_NOTFOUND);
    CHECK_STATUS(kfit_trace_read(kfit_test_dir(), &t, &err), KFIT_E_FORMAT);
    CHECK_STATUS(kfit_trace_read("/dev/zero", &t, &err), KFIT_E_FORMAT);
    snprintf(path, sizeof path, "%s/fifo", kfit_test_dir());
    CHECK(!mkfifo(path, 0600));
    CHECK_STATUS(kfit_trace_read(path, &t, &err), KFIT_E_FORMAT); /* and does not wait for a writer */
}

static const struct kfit_test tests[] = {
    TEST(merge_adds_up),
    TEST(merge_refuses_two_environments),
    TEST(unwritable_target_is_an_error),
    TEST(golden_bytes),
    TEST(golden_bytes_of_later_fields),
    TEST(damaged_copies),
    TEST(what_is_no_trace_is_refused),
};
TEST_MAIN(tests)
