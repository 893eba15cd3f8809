/* A generation as one file: written, read back, and damaged in every way. What is taken in from it is test_import's. */
#include "exchanging.h"
#include "kfit_test.h"
#include "records.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

static void refused(const char *file, const char *trust, enum kfit_status want, const char *text)
{
    struct kfit_generation *g;
    struct kfit_error err = {0};
    enum kfit_status s = kfit_generation_open_file(kfit_test_path(file), trust, &g, &err);
    CHECK_MSG(s == want, "%s (%s), expected %s", kfit_status_str(s), err.text, kfit_status_str(want));
    CHECK_MSG(strstr(err.text, text), "\"%s\" does not say \"%s\"", err.text, text);
    CHECK(!g);
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

static const struct kfit_test tests[] = {
    TEST(golden_bytes),
    TEST(what_was_exported_comes_back),
    TEST(every_truncation_and_flip),
    TEST(lies),
    TEST(signatures_are_checked),
    TEST(hostile_pages),
    TEST(endless_trees),
};
TEST_MAIN(tests)
