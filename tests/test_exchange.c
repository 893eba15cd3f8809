/* A generation as one file: written, read back, damaged in every way, and published or staged from. */
#include "kfit/exchange.h"
#include "kfit/store.h"
#include "kfit_test.h"
#include "manifest.h"
#include "records.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const struct kfit_secret_key *key(unsigned i)
{
    static struct kfit_secret_key keys[2];
    struct kfit_public_key made;
    struct kfit_error err = {0};
    const char *names[] = {"key0", "key1"};
    if (access(kfit_test_path(names[i]), F_OK))
        CHECK_OK(kfit_secret_key_make(kfit_test_path(names[i]), NULL, &made, &err), err);
    CHECK_OK(kfit_secret_key_read(kfit_test_path(names[i]), &keys[i], &err), err);
    return &keys[i];
}

static uint64_t publish(const char *dir, unsigned n, const struct kfit_secret_key *sign)
{
    return records_publish(kfit_test_path(dir), n, "Ada", "a note", sign);
}

static void export(const char *dir, const char *which, const char *to)
{
    struct kfit_generation *g;
    struct kfit_error err = {0};
    CHECK_OK(kfit_generation_open(kfit_test_path(dir), which, &g, &err), err);
    CHECK_OK(kfit_generation_export(g, kfit_test_path(to), &err), err);
    kfit_generation_close(g);
}

static struct kfit_generation *opened(const char *file)
{
    struct kfit_generation *g;
    struct kfit_error err = {0};
    CHECK_OK(kfit_generation_open_file(kfit_test_path(file), NULL, &g, &err), err);
    return g;
}

static void refused(const char *file, const char *trust, enum kfit_status want, const char *text)
{
    struct kfit_generation *g;
    struct kfit_error err = {0};
    enum kfit_status s = kfit_generation_open_file(kfit_test_path(file), trust, &g, &err);
    CHECK_MSG(s == want, "%s (%s), expected %s", kfit_status_str(s), err.text, kfit_status_str(want));
    CHECK_MSG(strstr(err.text, text), "\"%s\" does not say \"%s\"", err.text, text);
    CHECK(!g);
}

static void write_file(const char *name, const void *bytes, size_t n)
{
    unlink(kfit_test_path(name));
    kfit_test_write(kfit_test_path(name), bytes, n);
}

/* The file of manifest m and data, whatever they are: all digests right. */
static void forge(const char *name, struct kfit_manifest *m, const void *data, size_t bytes)
{
    char head[KFIT_EXPORT_HEAD_MAX];
    kfit_sha256(data, bytes, m->sha256);
    size_t n = kfit_export_head(m, head);
    char *all = malloc(n + bytes);
    memcpy(all, head, n);
    memcpy(all + n, data, bytes);
    write_file(name, all, n + bytes);
    free(all);
}

static int see(void *ctx, const struct kfit_record *r, const char *problem)
{
    const struct kfit_record *want = ctx;
    bool found = false;
    CHECK_MSG(r, "%s", problem);
    for (unsigned i = 0; i < 50; i++)
        found |= records_same(r, &want[i]);
    CHECK(found);
    return 0;
}

static void golden_bytes(void)
{
    struct kfit_manifest m = {.number = 7,
                              .length = 40960,
                              .records = 3,
                              .created_unix_s = 1700000000,
                              .approver = "Zo\xc3\xab \"the\\judge\"",
                              .note = "first\nnote"},
                         back;
    struct kfit_error err = {0};
    char head[KFIT_EXPORT_HEAD_MAX];
    size_t want, offset;
    for (unsigned i = 0; i < 32; i++)
        m.sha256[i] = (uint8_t)(i * 8 + 1);
    size_t n = kfit_export_head(&m, head);
    if (getenv("KFIT_TEST_BLESS"))
        kfit_test_write(GOLDEN "/export-head", head, n);
    char *golden = kfit_test_read(GOLDEN "/export-head", &want);
    CHECK(want == n && !memcmp(golden, head, n));
    CHECK_OK(kfit_export_parse(golden, n, n + 40960, "golden", &back, &offset, &err), err);
    CHECK(offset == n && back.number == 7 && !strcmp(back.approver, m.approver));
}

static void what_was_exported_comes_back(void)
{
    struct kfit_generation *g;
    struct kfit_error err = {0};
    struct stat st;
    publish("a", 50, NULL);
    publish("a", 50, key(0));
    for (unsigned i = 1; i <= 2; i++) {
        char number[2] = {(char)('0' + i), 0}, file[3] = {'f', (char)('0' + i), 0};
        export("a", number, file);
        struct kfit_manifest m;
        CHECK_OK(kfit_manifest_read(kfit_test_path("a"), i, &m, &err), err);
        g = opened(file);
        CHECK(!memcmp(kfit_generation_manifest(g), &m, sizeof m));
        CHECK_OK(kfit_generation_each(g, 0, see, records_make(50), &err), err);
        kfit_generation_close(g);
    }
    umask(0);
    export("a", NULL, "f3");
    CHECK(!stat(kfit_test_path("f3"), &st) && (st.st_mode & 07777) == 0644);
    /* what is there stays */
    write_file("mine", "mine", 4);
    CHECK_OK(kfit_generation_open(kfit_test_path("a"), NULL, &g, &err), err);
    CHECK_STATUS(kfit_generation_export(g, kfit_test_path("mine"), &err), KFIT_E_EXISTS);
    CHECK(!strcmp(kfit_test_read(kfit_test_path("mine"), NULL), "mine"));
    CHECK(!symlink("nowhere", kfit_test_path("link")));
    CHECK_STATUS(kfit_generation_export(g, kfit_test_path("link"), &err), KFIT_E_EXISTS);
    CHECK(access(kfit_test_path("nowhere"), F_OK));
    CHECK_STATUS(kfit_generation_export(g, kfit_test_path("no/where"), &err), KFIT_E_NOTFOUND);
    kfit_generation_close(g);
    /* a damaged record is not carried on */
    size_t n;
    char *bytes = kfit_test_read(kfit_test_path("f1"), &n), *at = memmem(bytes, n, "kfitrec", 8);
    struct kfit_manifest m;
    size_t offset;
    CHECK_OK(kfit_export_parse(bytes, n, n, "f1", &m, &offset, &err), err);
    at[170] ^= 1;
    forge("f4", &m, bytes + offset, n - offset);
    refused("f4", NULL, KFIT_E_FORMAT, "49 good records, its manifest says 50; record: checksum");
}

static void every_truncation_and_flip(void)
{
    size_t n, offset;
    struct kfit_manifest m;
    struct kfit_generation *g;
    publish("a", 5, key(0));
    export("a", NULL, "f");
    char *bytes = kfit_test_read(kfit_test_path("f"), &n);
    CHECK_OK(kfit_export_parse(bytes, n, n, "f", &m, &offset, NULL), (struct kfit_error){""});
    for (size_t cut = 0; cut < n; cut += cut < offset + 20 ? 1 : 1 + kfit_test_random() % 200) {
        write_file("cut", bytes, cut);
        CHECK_MSG(kfit_generation_open_file(kfit_test_path("cut"), NULL, &g, NULL) == KFIT_E_FORMAT,
                  "cut at %zu", cut);
    }
    int fd = open(kfit_test_path("f"), O_RDWR);
    CHECK(fd >= 0);
    for (size_t bit = 0; bit < 8 * n; bit += bit < 8 * offset ? 1 : 1 + kfit_test_random() % 400) {
        char flipped = bytes[bit / 8] ^ (char)(1u << bit % 8);
        CHECK(pwrite(fd, &flipped, 1, (off_t)(bit / 8)) == 1);
        CHECK_MSG(kfit_generation_open_file(kfit_test_path("f"), NULL, &g, NULL) != KFIT_OK,
                  "bit %zu flipped", bit);
        CHECK(pwrite(fd, &bytes[bit / 8], 1, (off_t)(bit / 8)) == 1);
    }
    close(fd);
    kfit_generation_close(opened("f"));
    refused("nowhere", NULL, KFIT_E_NOTFOUND, "nowhere");
}

static void lies(void)
{
    size_t n, offset;
    struct kfit_manifest m, bad;
    struct kfit_error err = {0};
    publish("a", 5, NULL);
    export("a", NULL, "f");
    char *bytes = kfit_test_read(kfit_test_path("f"), &n), *line;
    CHECK_OK(kfit_export_parse(bytes, n, n, "f", &m, &offset, &err), err);
    const char *manifest = strchr(bytes, '\n') + 1;
    const int length = (int)(bytes + offset - manifest);
    char hex[65];
    memcpy(hex, manifest - 65, 64);
    hex[64] = '\0';

    static const struct {
        const char *line; /* %s: the manifest's digest; %d: its length */
        enum kfit_status want;
        const char *text;
    } lines[] = {
        {"kfit generation file 1 %d %s\n", KFIT_OK, NULL},
        {"kfit generation file 2 %d %s\n", KFIT_E_VERSION, "export format 2, this kfit reads 1"},
        {"kfit generation file 99999999999999999999 %d %s\n", KFIT_E_FORMAT, "first line"},
        {"kfit generation file 01 %d %s\n", KFIT_E_FORMAT, "first line"},
        {"kfit generation file 1 0%d %s\n", KFIT_E_FORMAT, "first line"},
        {"kfit generation file 1 -%d %s\n", KFIT_E_FORMAT, "first line"},
        {"kfit generation file 1 9%d %s\n", KFIT_E_FORMAT, ""},
        {"kfit generation file 1 9999%d %s\n", KFIT_E_FORMAT, "first line"},
        {"kfit generation file 1 %d %.63s\n", KFIT_E_FORMAT, "first line"},
        {"kfit generation file 1 %d %s0\n", KFIT_E_FORMAT, "first line"},
        {"kfit generation file 1  %d %s\n", KFIT_E_FORMAT, "first line"},
        {"kfit generation file 1 %d\n", KFIT_E_FORMAT, "first line"},
        {"kfit generation fill 1 %d %s\n", KFIT_E_FORMAT, "not a generation"},
        {"\n", KFIT_E_FORMAT, "not a generation"},
    };
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        int head = asprintf(&line, lines[i].line, length, hex);
        char *all = malloc((size_t)head + n);
        memcpy(all, line, (size_t)head);
        memcpy(all + head, manifest, n - (size_t)(manifest - bytes));
        write_file("lie", all, (size_t)head + n - (size_t)(manifest - bytes));
        if (lines[i].want == KFIT_OK)
            kfit_generation_close(opened("lie"));
        else
            refused("lie", NULL, lines[i].want, lines[i].text);
        free(all);
        free(line);
    }

    bytes = realloc(bytes, n + 1);
    bytes[n] = 0;
    write_file("lie", bytes, n + 1);
    refused("lie", NULL, KFIT_E_FORMAT, "it was added to");
    write_file("lie", bytes, n - 1);
    refused("lie", NULL, KFIT_E_FORMAT, "it was cut off");

    bad = m;
    bad.length = KFIT_DATA_BYTES_MAX + 1; /* a sparse file that is as long as it says */
    forge("lie", &bad, "", 0);
    struct stat st;
    CHECK(!stat(kfit_test_path("lie"), &st) &&
          !truncate(kfit_test_path("lie"), st.st_size + (off_t)bad.length));
    refused("lie", NULL, KFIT_E_FORMAT, "at most 1073741824 are read");
    bad = m;
    bad.number = 0;
    forge("lie", &bad, bytes + offset, n - offset);
    refused("lie", NULL, KFIT_E_FORMAT, "");
    bad = m;
    bad.records++;
    forge("lie", &bad, bytes + offset, n - offset);
    refused("lie", NULL, KFIT_E_FORMAT, "5 good records, its manifest says 6");
    bad = m;
    bad.length = 5;
    forge("lie", &bad, "hello", 5);
    refused("lie", NULL, KFIT_E_FORMAT, "not an LMDB file");
    CHECK(!mkfifo(kfit_test_path("fifo"), 0600));
    refused("fifo", NULL, KFIT_E_ARG, "not a regular file");
    refused("", NULL, KFIT_E_ARG, "not a regular file");
    CHECK(!symlink("f", kfit_test_path("link")));
    kfit_generation_close(opened("link")); /* it is data, wherever it lies */
}

static void signatures_are_checked(void)
{
    size_t n, offset;
    struct kfit_manifest m;
    struct kfit_error err = {0};
    char trust[2][KFIT_PUBLIC_KEY_TEXT_MAX];
    struct kfit_generation *g;
    for (unsigned i = 0; i < 2; i++)
        kfit_public_key_format(&key(i)->public_key, trust[i]);
    publish("a", 5, NULL);
    publish("a", 5, key(0));
    export("a", "1", "unsigned");
    export("a", "2", "signed");
    refused("unsigned", trust[0], KFIT_E_TRUST, "unsigned: not signed");
    CHECK_OK(kfit_generation_open_file(kfit_test_path("signed"), trust[0], &g, &err), err);
    kfit_generation_close(g);
    refused("signed", trust[1], KFIT_E_TRUST, "not one of the 1 trusted keys");
    refused("signed", "", KFIT_E_TRUST, "names no key");
    /* other values under the same signature: refused whoever is trusted */
    char *bytes = kfit_test_read(kfit_test_path("signed"), &n);
    CHECK_OK(kfit_export_parse(bytes, n, n, "f", &m, &offset, &err), err);
    m.number = 9;
    forge("forged", &m, bytes + offset, n - offset);
    refused("forged", NULL, KFIT_E_TRUST, "changed after they were signed");
    refused("forged", trust[0], KFIT_E_TRUST, "changed after they were signed");
}

/* Files with every digest right and LMDB pages that are not: read well or refused, never a crash. */
static void hostile_pages(void)
{
    static const uint64_t words[] = {0,    1,    2,    3,      7,      8,       15,    16,       17,
                                     4080, 4095, 4096, 0x7fff, 0xffff, 0x10000, ~0ull, ~0ull / 2};
    size_t n, offset;
    struct kfit_manifest m;
    struct kfit_error err = {0};
    unsigned good = 0, pages = 0;
    publish("a", 200, NULL);
    export("a", NULL, "f");
    char *bytes = kfit_test_read(kfit_test_path("f"), &n);
    CHECK_OK(kfit_export_parse(bytes, n, n, "f", &m, &offset, &err), err);
    char *data = bytes + offset, *bad = malloc(m.length);
    for (unsigned round = 0; round < 1500; round++) {
        struct kfit_generation *g;
        struct kfit_error why = {0};
        memcpy(bad, data, m.length);
        for (unsigned hits = 1 + (unsigned)(kfit_test_random() % 2); hits--;) {
            size_t page = kfit_test_random() % (m.length / 4096), at = page * 4096;
            /* mostly where pages keep what LMDB believes: their heads, the entries' places and the entries */
            at += kfit_test_random() % 4 ? 2 * (kfit_test_random() % 24) : kfit_test_random() % 4089;
            uint64_t word = kfit_test_random() % 2
                                ? words[kfit_test_random() % (sizeof words / sizeof *words)]
                                : kfit_test_random() % (m.length / 4096);
            const size_t bytes_of[] = {1, 2, 2, 4, 8};
            memcpy(bad + at, &word, bytes_of[kfit_test_random() % 5]);
        }
        forge("bad", &m, bad, m.length);
        enum kfit_status s = kfit_generation_open_file(kfit_test_path("bad"), NULL, &g, &why);
        pages += strstr(why.text, "made to harm") != NULL;
        if (s == KFIT_OK) {
            good++;
            kfit_generation_close(g);
        }
    }
    CHECK_MSG(pages > 150 && good > 5, "%u refused for their pages, %u good; the test does not reach its aim",
              pages, good);
}

static uint64_t word_at(const char *data, size_t at, size_t bytes)
{
    uint64_t v = 0;
    memcpy(&v, data + at, bytes);
    return v;
}

/* Trees that have no end, or a great many leaves. */
static void endless_trees(void)
{
    size_t n, offset;
    struct kfit_manifest m;
    struct kfit_error err = {0};
    publish("a", 200, NULL);
    export("a", NULL, "f");
    char *bytes = kfit_test_read(kfit_test_path("f"), &n);
    CHECK_OK(kfit_export_parse(bytes, n, n, "f", &m, &offset, &err), err);
    char *data = bytes + offset;
    const size_t meta = 4096 * (word_at(data, 4096 + 144, 8) > word_at(data, 144, 8)); /* the newer one */
    const size_t root = 4096 * word_at(data, meta + 128, 8);
    CHECK_INT(word_at(data, root, 8), root / 4096);
    CHECK_INT(word_at(data, root + 10, 2), 1); /* a branch page */
    const unsigned children = (unsigned)(word_at(data, root + 12, 2) - 16) / 2;
    CHECK(children >= 2);
    size_t node[2];
    for (unsigned i = 0; i < 2; i++)
        node[i] = root + word_at(data, root + 16 + 2 * i, 2);
    forge("same", &m, data, m.length);
    kfit_generation_close(opened("same"));
    char *bad = malloc(m.length);
    memcpy(bad, data, m.length);
    memcpy(bad + node[1], data + node[0], 4); /* its first child is the second as well */
    forge("bad", &m, bad, m.length);
    refused("bad", NULL, KFIT_E_FORMAT, "keys that do not ascend");
    memcpy(bad + node[1], &(uint32_t){(uint32_t)(root / 4096)}, 4); /* it is its own child */
    forge("bad", &m, bad, m.length);
    refused("bad", NULL, KFIT_E_FORMAT, "of another kind");
    bad[meta + 88 + 6]++; /* with another level, so that the child may be a branch */
    forge("bad", &m, bad, m.length);
    refused("bad", NULL, KFIT_E_FORMAT, "of another kind");
    bad[meta + 88 + 6] = 33;
    forge("bad", &m, bad, m.length);
    refused("bad", NULL, KFIT_E_FORMAT, "not a generation's");
}

/* ---- import ---- */

static enum kfit_status import(const char *dir, const char *file, struct kfit_import_params p,
                               uint64_t *number, enum kfit_imported *how, struct kfit_error *err)
{
    p.dir = kfit_test_path(dir);
    p.from = opened(file);
    p.approver = "Bob";
    enum kfit_status s = kfit_generation_import(&p, number, how, err);
    kfit_generation_close(p.from);
    return s;
}

static void imports(const char *dir, const char *file, struct kfit_import_params p, uint64_t want,
                    enum kfit_imported want_how)
{
    uint64_t number, current;
    uint8_t sha256[32];
    enum kfit_imported how;
    struct kfit_error err = {0};
    CHECK_OK(import(dir, file, p, &number, &how, &err), err);
    CHECK_INT(number, want);
    CHECK_INT(how, want_how);
    CHECK_OK(kfit_generation_current(kfit_test_path(dir), &current, sha256, &err), err);
    CHECK(how != KFIT_IMPORTED || current == number);
}

static struct kfit_manifest manifest_of(const char *dir, uint64_t number)
{
    struct kfit_manifest m;
    struct kfit_error err = {0};
    CHECK_OK(kfit_manifest_read(kfit_test_path(dir), number, &m, &err), err);
    return m;
}

static void numbers_and_signatures(void)
{
    const struct kfit_import_params none = {0}, sign = {.sign = key(1)}, drop = {.drop_signature = true};
    struct kfit_generation *g;
    struct kfit_error err = {0};
    uint64_t number;
    enum kfit_imported how;
    char trust[KFIT_PUBLIC_KEY_TEXT_MAX];
    kfit_public_key_format(&key(0)->public_key, trust);
    for (unsigned i = 1; i <= 5; i++)
        publish("a", i, i < 5 ? key(0) : NULL);
    export("a", "3", "f3");
    export("a", "4", "f4");
    export("a", "5", "f5");

    /* above all that are there: as it is, signature and all */
    imports("b", "f3", none, 3, KFIT_IMPORTED);
    struct kfit_manifest m = manifest_of("b", 3), was = manifest_of("a", 3);
    CHECK(!memcmp(&m, &was, sizeof m));
    CHECK_OK(kfit_generation_open_trusted(kfit_test_path("b"), NULL, trust, &g, &err), err);
    kfit_generation_close(g);
    imports("b", "f3", none, 3, KFIT_IMPORTED_BEFORE);
    imports("b", "f5", none, 5, KFIT_IMPORTED);
    imports("b", "f3", none, 3, KFIT_IMPORTED_BEFORE); /* there, and not current any more */

    /* passed: under the next number, which the signature is not for */
    CHECK_STATUS(import("b", "f4", none, &number, &how, &err), KFIT_E_TRUST);
    CHECK_MSG(strstr(err.text, "would become number 6"), "%s", err.text);
    CHECK_INT(kfit_generation_list(kfit_test_path("b"), NULL, 0), 2);
    imports("b", "f4", sign, 6, KFIT_IMPORTED);
    m = manifest_of("b", 6);
    CHECK(!memcmp(m.signed_by, key(1)->public_key.bytes, 32));
    CHECK_STR(m.approver, "Bob");
    CHECK_STR(m.note, "was generation 4, approved by Ada: a note");
    CHECK_OK(kfit_manifest_trusted(&m, NULL, "m", NULL, &err), err);
    imports("b", "f4", drop, 6, KFIT_IMPORTED_BEFORE); /* the same content is current */
    imports("b", "f3", none, 3, KFIT_IMPORTED_BEFORE);
    CHECK_INT(publish("b", 9, NULL), 7);
    imports("b", "f4", drop, 8, KFIT_IMPORTED);
    CHECK(!manifest_of("b", 8).is_signed);

    /* the number is another's */
    publish("c", 7, NULL), publish("c", 7, NULL), publish("c", 7, NULL);
    CHECK_STATUS(import("c", "f3", none, &number, &how, &err), KFIT_E_TRUST);
    imports("c", "f3", drop, 4, KFIT_IMPORTED);
    imports("c", "f5", none, 5, KFIT_IMPORTED);

    /* signed anew where it came from */
    CHECK_OK(kfit_generation_sign(kfit_test_path("a"), 3, key(1), &err), err);
    export("a", "3", "f3again");
    imports("b", "f3again", none, 3, KFIT_IMPORTED_SIGNATURE);
    m = manifest_of("b", 3);
    CHECK(!memcmp(m.signed_by, key(1)->public_key.bytes, 32));
    CHECK_OK(kfit_generation_open(kfit_test_path("b"), "3", &g, &err), err);
    kfit_generation_close(g);

    /* a number that would leave none to others is not kept */
    size_t n, offset;
    char *bytes = kfit_test_read(kfit_test_path("f5"), &n);
    CHECK_OK(kfit_export_parse(bytes, n, n, "f5", &m, &offset, &err), err);
    m.number = UINT64_MAX / 2;
    forge("far", &m, bytes + offset, n - offset);
    imports("d", "far", none, 1, KFIT_IMPORTED);
    imports("d", "far", none, 1, KFIT_IMPORTED_BEFORE);
}

static void survives_sigkill(void)
{
    struct timespec t[2];
    char name[16];
    uint64_t number;
    enum kfit_imported how;
    struct kfit_error err = {0};
    unsigned changed = 0;
    const unsigned files = 6;
    for (unsigned i = 1; i <= files; i++) {
        publish("a", 40 + i, NULL);
        snprintf(name, sizeof name, "f%u", i);
        export("a", NULL, name);
    }
    clock_gettime(CLOCK_MONOTONIC, &t[0]);
    imports("b", "f1", (struct kfit_import_params){0}, 1, KFIT_IMPORTED);
    clock_gettime(CLOCK_MONOTONIC, &t[1]);
    const uint64_t once_ns =
        (uint64_t)(t[1].tv_sec - t[0].tv_sec) * 1000000000 + (uint64_t)(t[1].tv_nsec - t[0].tv_nsec);
    for (unsigned round = 0; round < 50; round++) {
        struct kfit_manifest before, after;
        uint64_t was, now;
        uint8_t sha256[32];
        CHECK_OK(kfit_generation_current(kfit_test_path("b"), &was, sha256, &err), err);
        before = manifest_of("b", was);
        pid_t pid = fork();
        if (!pid) {
            for (unsigned i = 0;; i++) { /* never what is current, so that each publishes */
                snprintf(name, sizeof name, "f%u", 1 + (round + i) % files);
                import("b", name, (struct kfit_import_params){0}, &number, &how, &err);
            }
        }
        const uint64_t ns = kfit_test_random() % (4 * once_ns);
        const struct timespec pause = {(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
        nanosleep(&pause, NULL);
        CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
        CHECK_OK(kfit_generation_current(kfit_test_path("b"), &now, sha256, &err), err);
        after = manifest_of("b", now);
        CHECK(!memcmp(after.sha256, sha256, 32) && (now != was || !memcmp(&before, &after, sizeof after)));
        changed += now != was;
        struct kfit_generation *g;
        CHECK_OK(kfit_generation_open(kfit_test_path("b"), NULL, &g, &err), err);
        struct kfit_record *all = records_make(50);
        CHECK_OK(kfit_generation_each(g, 0, see, all, &err), err);
        free(all);
        kfit_generation_close(g);
    }
    CHECK_MSG(changed, "no import ever finished; the test does not reach its aim");
}

static void small_disk(void)
{
    if (unshare(CLONE_NEWNS))
        SKIP("no mount namespace: %s", strerror(errno));
    if (mount(NULL, "/", NULL, MS_REC | MS_PRIVATE, NULL)) /* the root of a chroot is no mount */
        SKIP("mounts cannot be made private here: %s", strerror(errno));
    CHECK(!mkdir(kfit_test_path("small"), 0755));
    if (mount("tmpfs", kfit_test_path("small"), "tmpfs", 0, "size=300k,mode=755"))
        SKIP("no tmpfs: %s", strerror(errno));
}

static void fills_the_disk(void)
{
    struct kfit_generation *g;
    struct kfit_error err = {0};
    uint64_t number;
    enum kfit_imported how;
    publish("small", 5, NULL);
    publish("a", 5, NULL);
    publish("a", 1000, NULL);
    export("a", "2", "big");
    CHECK_OK(kfit_generation_open(kfit_test_path("a"), "2", &g, &err), err);
    CHECK_STATUS(kfit_generation_export(g, kfit_test_path("small/file"), &err), KFIT_E_FULL);
    CHECK_MSG(strstr(err.text, "free some space"), "%s", err.text);
    kfit_generation_close(g);
    CHECK_STATUS(import("small", "big", (struct kfit_import_params){0}, &number, &how, &err), KFIT_E_FULL);
    CHECK_OK(kfit_generation_open(kfit_test_path("small"), NULL, &g, &err), err);
    CHECK_INT(kfit_generation_manifest(g)->number, 1);
    kfit_generation_close(g);
    char *out;
    CHECK(!kfit_test_run(
        (const char *[]){"find", kfit_test_path("small"), "-type", "f", "-printf", "%f ", NULL}, NULL, &out,
        NULL));
    CHECK_MSG(!strstr(out, "file") && !strstr(out, ".tmp") && !strstr(out, "2."), "left: %s", out);
}

static void full_disk(void)
{
    kfit_test_child(fills_the_disk, small_disk);
}

/* ---- staging ---- */

static int count_staged(void *ctx, const struct kfit_record *r, const char *problem)
{
    CHECK_MSG(r, "%s", problem);
    ++*(unsigned *)ctx;
    return 0;
}

static unsigned staged_in(struct kfit_store *s)
{
    struct kfit_error err = {0};
    unsigned n = 0;
    CHECK_OK(kfit_store_staged_each(s, 0, count_staged, &n, &err), err);
    return n;
}

static void all_or_nothing_is_staged(void)
{
    struct kfit_env env = records_env();
    struct kfit_record *r = records_make(100), got;
    struct kfit_store *s;
    struct kfit_error err = {0};
    struct kfit_stage_params p = {.records = r, .count = 60, .envs = &env, .env_count = 1};
    size_t staged;
    void *bytes;
    CHECK_OK(kfit_store_open(kfit_test_path("a"), KFIT_STORE_WRITE, &s, &err), err);
    r[59].lo = -1; /* does not decode */
    CHECK_STATUS(kfit_store_stage_all(s, &p, &staged, &err), KFIT_E_FORMAT);
    CHECK(!staged && !staged_in(s));
    r[59].lo = 1.75;
    r[30].env_soft++;
    CHECK_STATUS(kfit_store_stage_all(s, &p, &staged, &err), KFIT_E_ARG);
    CHECK(!staged && !staged_in(s));
    r[30].env_soft--;
    CHECK_OK(kfit_store_stage_all(s, &p, &staged, &err), err);
    CHECK(staged == 60 && staged_in(s) == 60);
    char text[KFIT_ENV_TEXT_MAX];
    CHECK(kfit_store_env(s, env.hard_hash, text) && !strcmp(text, env.hard));

    r[10].ratio = 9;
    p.count = 100;
    CHECK_OK(kfit_store_stage_all(s, &p, &staged, &err), err);
    CHECK(staged == 40 && staged_in(s) == 100);
    CHECK_OK(kfit_store_staged(s, env.hard_hash, &r[10].key, &got, &bytes, &err), err);
    CHECK(got.ratio == 2);
    free(bytes);
    p.replace = true;
    CHECK_OK(kfit_store_stage_all(s, &p, &staged, &err), err);
    CHECK(staged == 100 && staged_in(s) == 100);
    CHECK_OK(kfit_store_staged(s, env.hard_hash, &r[10].key, &got, &bytes, &err), err);
    CHECK(got.ratio == 9);
    free(bytes);
    CHECK_OK(kfit_store_stage_all(s, &(struct kfit_stage_params){0}, &staged, &err), err);
    kfit_store_close(s);
}

static void staging_survives_sigkill(void)
{
    struct kfit_env env = records_env();
    struct kfit_record *r = records_make(1000);
    unsigned last = 0, partly = 0;
    for (unsigned round = 0; round < 60 && last < 1000; round++) {
        pid_t pid = fork();
        if (!pid) {
            struct kfit_store *s;
            size_t staged;
            if (kfit_store_open(kfit_test_path("a"), KFIT_STORE_WRITE, &s, NULL) != KFIT_OK)
                _exit(0);
            for (unsigned n = last + 10; n <= 1000; n += 10) /* ten more each time */
                kfit_store_stage_all(
                    s, &(struct kfit_stage_params){.records = r, .count = n, .envs = &env, .env_count = 1},
                    &staged, NULL);
            _exit(0);
        }
        /* longer and longer: beside others a child may not even begin in a few milliseconds */
        const struct timespec pause = {0, (long)(kfit_test_random() % (8000000 + round * 4000000))};
        nanosleep(&pause, NULL);
        CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
        if (access(kfit_test_path("a/store/data.mdb"), F_OK) && !last)
            continue; /* killed before there was a store */
        struct kfit_store *s;
        struct kfit_error err = {0};
        if (kfit_store_open(kfit_test_path("a"), KFIT_STORE_READ, &s, &err) != KFIT_OK) {
            CHECK_MSG(!last, "%s", err.text); /* half of one, which the next writer completes */
            continue;
        }
        unsigned n = staged_in(s);
        CHECK_MSG(n % 10 == 0 && n >= last, "%u staged, before %u", n, last);
        partly += n > last && n < 1000;
        last = n;
        kfit_store_close(s);
    }
    CHECK_MSG(partly, "never killed in the middle; the test does not reach its aim");
}

static const struct kfit_test tests[] = {
    TEST(golden_bytes),  TEST(what_was_exported_comes_back), TEST(every_truncation_and_flip),
    TEST(lies),          TEST(signatures_are_checked),       TEST(hostile_pages),
    TEST(endless_trees), TEST(numbers_and_signatures),       TEST(survives_sigkill),
    TEST(full_disk),     TEST(all_or_nothing_is_staged),     TEST(staging_survives_sigkill),
};
TEST_MAIN(tests)
