/* Keys, signatures, and what is loaded where KFIT_TRUST is set. */
#include "kfit/trust.h"
#include "kfit_test.h"
#include "manifest.h"
#include "records.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- keys made of one byte ---- */

static char *key_file(uint8_t seed)
{
    char text[200], name[40];
    uint8_t bytes[32];
    int n = snprintf(text, sizeof text, "# a comment\nkfit-secret-ed25519:");
    memset(bytes, seed, sizeof bytes);
    kfit_hex(bytes, sizeof bytes, text + n);
    n += 64;
    n += snprintf(text + n, sizeof text - (size_t)n, " key%u\n", seed);
    snprintf(name, sizeof name, "key%u", seed);
    unlink(kfit_test_path(name));
    kfit_test_write(kfit_test_path(name), text, (size_t)n);
    CHECK(!chmod(kfit_test_path(name), 0600));
    return kfit_test_path(name);
}

static const struct kfit_secret_key *key(uint8_t seed)
{
    static struct kfit_secret_key keys[4];
    static unsigned turn;
    struct kfit_secret_key *k = &keys[turn++ % 4];
    struct kfit_error err = {0};
    CHECK_OK(kfit_secret_key_read(key_file(seed), k, &err), err);
    return k;
}

static const char *public_of(uint8_t seed)
{
    static char text[4][KFIT_PUBLIC_KEY_TEXT_MAX];
    static unsigned turn;
    char *t = text[turn++ % 4];
    kfit_public_key_format(&key(seed)->public_key, t);
    t[strcspn(t, " ")] = '\0';
    return t;
}

/* ---- generations ---- */

static uint64_t publish(unsigned n, const struct kfit_secret_key *sign)
{
    return records_publish(kfit_test_path("cache"), n, "test\t\"quoted\"", "why", sign);
}

static void opens(const char *which, const char *trust)
{
    struct kfit_generation *g;
    struct kfit_error err = {0};
    CHECK_OK(kfit_generation_open_trusted(kfit_test_path("cache"), which, trust, &g, &err), err);
    kfit_generation_close(g);
}

static void refused(const char *which, const char *trust, const char *text)
{
    struct kfit_generation *g;
    struct kfit_error err = {0};
    enum kfit_status s = kfit_generation_open_trusted(kfit_test_path("cache"), which, trust, &g, &err);
    CHECK_MSG(s == KFIT_E_TRUST, "open: %s (%s)", kfit_status_str(s), err.text);
    CHECK_MSG(strstr(err.text, text), "\"%s\" does not say \"%s\"", err.text, text);
    CHECK(!g);
}

static void replace(const char *name, const void *data, size_t n)
{
    char temp[600];
    snprintf(temp, sizeof temp, "%s.new", kfit_test_path(name));
    kfit_test_write(temp, data, n);
    CHECK(!chmod(temp, 0444) && !rename(temp, kfit_test_path(name)));
}

static struct kfit_manifest manifest_of(uint64_t number)
{
    struct kfit_manifest m;
    struct kfit_error err = {0};
    CHECK_OK(kfit_manifest_read(kfit_test_path("cache"), number, &m, &err), err);
    return m;
}

static void write_manifest(const struct kfit_manifest *m)
{
    char text[KFIT_MANIFEST_BYTES_MAX], name[60];
    size_t n = kfit_manifest_format(m, text);
    snprintf(name, sizeof name, "cache/generations/%llu.json", (unsigned long long)m->number);
    replace(name, text, n);
}

/* ---- */

/* The signature of known values by a known key is a known text. KFIT_TEST_BLESS=1 writes a new one. */
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
    char text[KFIT_MANIFEST_BYTES_MAX], statement[KFIT_STATEMENT_BYTES_MAX], again[KFIT_STATEMENT_BYTES_MAX];
    size_t want;
    for (unsigned i = 0; i < 32; i++)
        m.sha256[i] = (uint8_t)(i * 8 + 1);
    size_t bytes = kfit_manifest_statement(&m, statement);
    CHECK_OK(kfit_manifest_sign(&m, key(1), &err), err);
    size_t n = kfit_manifest_format(&m, text);
    if (getenv("KFIT_TEST_BLESS"))
        kfit_test_write(GOLDEN "/manifest-signed.json", text, n);
    char *golden = kfit_test_read(GOLDEN "/manifest-signed.json", &want);
    CHECK(want == n && !memcmp(golden, text, n));
    CHECK_OK(kfit_manifest_parse(golden, n, "golden", &back, &err), err);
    CHECK_OK(kfit_manifest_trusted(&back, NULL, "golden", NULL, &err), err);
    /* what is signed: a line, then the unsigned manifest's golden bytes */
    char *bare = kfit_test_read(GOLDEN "/manifest.json", &want);
    const char line[] = "kfit generation signature 1\n";
    CHECK(bytes == sizeof line - 1 + want && !memcmp(statement, line, sizeof line - 1) &&
          !memcmp(statement + sizeof line - 1, bare, want));
    CHECK(kfit_manifest_statement(&m, again) == bytes && !memcmp(again, statement, bytes));
}

static void only_what_is_signed_is_loaded(void)
{
    CHECK_INT(publish(5, NULL), 1);
    opens(NULL, NULL);
    refused(NULL, public_of(1), "1.json: not signed");
    CHECK_INT(publish(6, key(1)), 2);
    opens(NULL, public_of(1));
    opens("2", public_of(1));
    opens("2", NULL);
    refused("1", public_of(1), "not signed");
    refused(NULL, public_of(2), "which is not one of the 1 trusted keys");
    char both[200];
    snprintf(both, sizeof both, "%s %s", public_of(2), public_of(1));
    opens(NULL, both);
    /* refused before anything but the manifest is looked at */
    CHECK(!unlink(kfit_test_path("cache/generations/1.mdb")));
    refused("1", both, "not signed");
}

static void any_change_to_the_manifest_is_noticed(void)
{
    publish(5, key(1));
    const struct kfit_manifest good = manifest_of(1);
    const char *trust = public_of(1);
    opens(NULL, trust);
#define CHANGE(statement)                                                                                    \
    do {                                                                                                     \
        struct kfit_manifest m = good;                                                                       \
        statement;                                                                                           \
        write_manifest(&m);                                                                                  \
        refused("1", trust, "changed after they were signed");                                               \
    } while (0)
    CHANGE(m.length++);
    CHANGE(m.sha256[31] ^= 1);
    CHANGE(m.records++);
    CHANGE(m.created_unix_s--);
    CHANGE(m.approver[0]++);
    CHANGE(m.note[0] = '\0');
    CHANGE(m.signature[0] ^= 1);
    CHANGE(m.signature[63] ^= 0x80);
    struct kfit_manifest m = good;
    m.number = 2; /* an old generation under a new number */
    write_manifest(&m);
    refused("2", trust, "changed after they were signed");
    m = good;
    m.is_signed = false;
    write_manifest(&m);
    refused("1", trust, "not signed");
    write_manifest(&good);
    opens("1", trust);
}

/* Whatever bit is flipped: the file is no manifest, or is not trusted, or says what it said. */
static void every_flipped_bit_of_the_file(void)
{
    size_t n;
    unsigned same = 0;
    publish(5, key(1));
    const struct kfit_manifest good = manifest_of(1);
    struct kfit_trust trust;
    struct kfit_error err = {0};
    CHECK_OK(kfit_trust_read(public_of(1), &trust, &err), err);
    char *text = kfit_test_read(kfit_test_path("cache/generations/1.json"), &n);
    for (size_t bit = 0; bit < 8 * n; bit++) {
        struct kfit_manifest m;
        text[bit / 8] ^= (char)(1u << bit % 8);
        if (kfit_manifest_parse(text, n, "flipped", &m, NULL) == KFIT_OK &&
            kfit_manifest_trusted(&m, &trust, "flipped", NULL, NULL) == KFIT_OK) {
            CHECK_MSG(!memcmp(&m, &good, sizeof m), "bit %zu is not covered", bit);
            same++;
        }
        text[bit / 8] ^= (char)(1u << bit % 8);
    }
    CHECK_MSG(same < n / 10, "%u flips in %zu bytes were no change", same, n); /* white space */
}

static void signatures_do_not_fit_elsewhere(void)
{
    publish(5, key(1));
    publish(6, key(1));
    publish(7, key(2));
    const struct kfit_manifest one = manifest_of(1), three = manifest_of(3);
    struct kfit_manifest m = manifest_of(2);
    char both[200];
    snprintf(both, sizeof both, "%s %s", public_of(1), public_of(2));
    opens("2", both);
    memcpy(m.signature, one.signature, sizeof m.signature);
    write_manifest(&m);
    refused("2", both, "changed after they were signed");
    m = manifest_of(2);
    memcpy(m.signed_by, three.signed_by, sizeof m.signed_by); /* another trusted key is named */
    write_manifest(&m);
    refused("2", both, "changed after they were signed");
    m = one; /* all of generation 1's values, with its signature, in 2's place */
    m.number = 2;
    write_manifest(&m);
    refused("2", both, "changed after they were signed");
}

/* What the header says is not covered: `current` may name any generation that is signed; a pin does not. */
static void an_older_signed_generation_can_be_named(void)
{
    publish(5, key(1));
    size_t n;
    char *old = kfit_test_read(kfit_test_path("cache/current"), &n);
    publish(6, key(1));
    replace("cache/current", old, n);
    opens(NULL, public_of(1));
    CHECK(!rename(kfit_test_path("cache/generations/1.json"), kfit_test_path("cache/generations/2.json")));
    struct kfit_generation *g;
    struct kfit_error err = {0};
    CHECK_STATUS(kfit_generation_open_trusted(kfit_test_path("cache"), "2", public_of(1), &g, &err),
                 KFIT_E_FORMAT);
    CHECK(strstr(err.text, "renamed"));
}

static void keys_can_be_changed(void)
{
    struct kfit_error err = {0};
    char both[200];
    publish(5, key(1));
    snprintf(both, sizeof both, "%s %s", public_of(1), public_of(2));
    opens(NULL, both); /* servers learn the new key first */
    CHECK_OK(kfit_generation_sign(kfit_test_path("cache"), 1, key(2), &err), err);
    opens(NULL, both);
    opens(NULL, public_of(2)); /* then the old one is forgotten */
    refused(NULL, public_of(1), "not one of the 1 trusted keys");
    CHECK_STATUS(kfit_generation_sign(kfit_test_path("cache"), 9, key(2), &err), KFIT_E_NOTFOUND);
    size_t n;
    char *bytes = kfit_test_read(kfit_test_path("cache/generations/1.mdb"), &n);
    bytes[n / 2] ^= 1;
    replace("cache/generations/1.mdb", bytes, n);
    CHECK_STATUS(kfit_generation_sign(kfit_test_path("cache"), 1, key(1), &err), KFIT_E_DIGEST);
    CHECK(!memcmp(manifest_of(1).signed_by, key(2)->public_key.bytes, 32)); /* nothing was done */
}

/* A signer killed at any moment leaves the old signature or the new one. */
static void signing_survives_sigkill(void)
{
    struct kfit_error err = {0};
    char both[200];
    unsigned by[3] = {0};
    publish(50, key(1));
    snprintf(both, sizeof both, "%s %s", public_of(1), public_of(2));
    const struct kfit_secret_key *one = key(1), *two = key(2);
    for (unsigned round = 0; round < 100 || (round < 1000 && (!by[1] || !by[2])); round++) {
        /* longer and longer: on a slow disk nothing is signed in a few milliseconds */
        const struct timespec pause = {0, (long)(kfit_test_random() % (4000000 + round * 100000))};
        pid_t pid = fork();
        if (!pid)
            for (bool turn = false;; turn = !turn)
                kfit_generation_sign(kfit_test_path("cache"), 1, turn ? one : two, &err);
        nanosleep(&pause, NULL);
        CHECK(!kill(pid, SIGKILL) && waitpid(pid, NULL, 0) == pid);
        opens(NULL, both);
        by[memcmp(manifest_of(1).signed_by, one->public_key.bytes, 32) ? 2 : 1]++;
    }
    CHECK_MSG(by[1] && by[2], "signed by one %u times, by the other %u; the test does not reach its aim",
              by[1], by[2]);
}

/* ---- keys as texts and files ---- */

static enum kfit_status parse(const char *text, struct kfit_trust *t, struct kfit_error *err)
{
    return kfit_trust_parse(text, strlen(text), "keys", t, err);
}

static void texts_of_keys(void)
{
    struct kfit_trust t;
    struct kfit_error err = {0};
    char text[8000];
    const char *a = public_of(1), *b = public_of(2);
    snprintf(text, sizeof text, "# keys\n\n  %s  Ada  of build\r\n%s#no name\n%s %s\n", a, b, b, a);
    CHECK_OK(parse(text, &t, &err), err);
    CHECK_INT(t.count, 4);
    CHECK_STR(t.key[0].name, "Ada of build");
    CHECK_STR(t.key[1].name, "");
    CHECK(!memcmp(t.key[1].bytes, t.key[2].bytes, 32) && !memcmp(t.key[0].bytes, t.key[3].bytes, 32));
    kfit_public_key_format(&t.key[0], text);
    CHECK(!strncmp(text, a, 72) && !strcmp(text + 72, " Ada of build"));

    snprintf(text, sizeof text, "%s a\x1b[31m-name-that-is-longer-than-there-is-room-for-in-it", a);
    CHECK_OK(parse(text, &t, &err), err);
    CHECK(strlen(t.key[0].name) == sizeof t.key[0].name - 1 && !strchr(t.key[0].name, 27));

    const char *bad[] = {"name %s", "%s\nx\n", "\n\ned25519:12\n", "ed25519:%sf",           "ed25519:%.40s",
                         "%.71s",   "%sf",     "ED25519:%s",       "kfit-secret-ed25519:%s"};
    const unsigned line[] = {1, 2, 3, 1, 1, 1, 1, 1, 1};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char want[40];
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        snprintf(text, sizeof text, bad[i], a);
        snprintf(want, sizeof want, "keys: line %u: expected", line[i]);
        CHECK_STATUS(parse(text, &t, &err), KFIT_E_TRUST);
        CHECK_MSG(strstr(err.text, want), "\"%s\": %s", text, err.text);
    }
    snprintf(text, sizeof text, "%s", a);
    text[20] = 'A'; /* upper case: one way to write a key */
    CHECK_STATUS(parse(text, &t, &err), KFIT_E_TRUST);
    const char *none[] = {"", "\n", "# only a comment", "  \t\r\n"};
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        CHECK_STATUS(parse(none[i], &t, &err), KFIT_E_TRUST);
        CHECK_MSG(strstr(err.text, "names no key"), "%s", err.text);
    }
    size_t n = 0;
    for (unsigned i = 0; i <= KFIT_TRUST_KEYS_MAX; i++) {
        if (i == KFIT_TRUST_KEYS_MAX)
            CHECK_OK(parse(text, &t, &err), err);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s\n", a);
    }
    CHECK_INT(t.count, KFIT_TRUST_KEYS_MAX);
    CHECK_STATUS(parse(text, &t, &err), KFIT_E_TRUST);
    CHECK(strstr(err.text, "at most 32"));
}

/* Any text at all: refused or read, and what is read prints and reads the same. */
static void random_texts_of_keys(void)
{
    const char alphabet[] = "ed25519: \n\t\r#0123456789abcdefgAx\xff";
    char text[400], line[KFIT_PUBLIC_KEY_TEXT_MAX];
    unsigned read = 0;
    for (unsigned round = 0; round < 100000; round++) {
        struct kfit_trust t, again;
        size_t n = kfit_test_random() % sizeof text;
        for (size_t i = 0; i < n; i++)
            text[i] = alphabet[kfit_test_random() % (sizeof alphabet - 1)];
        if (n > 90 && round % 2) {
            size_t at = kfit_test_random() % (n - 72);
            memcpy(text + (round % 4 == 1 ? 0 : at), public_of(1), 72);
        }
        char *exact = malloc(n ? n : 1);
        memcpy(exact, text, n);
        if (kfit_trust_parse(exact, n, "random", &t, NULL) == KFIT_OK) {
            read++;
            kfit_public_key_format(&t.key[0], line);
            CHECK(parse(line, &again, NULL) == KFIT_OK && !memcmp(again.key[0].bytes, t.key[0].bytes, 32));
        }
        free(exact);
    }
    CHECK_MSG(read, "nothing was ever read; the test does not reach its aim");
}

static void files_of_keys(void)
{
    char text[200];
    publish(5, key(1));
    int n = snprintf(text, sizeof text, "%s Ada\n", public_of(1));
    kfit_test_write(kfit_test_path("trusted"), text, (size_t)n);
    CHECK(!chmod(kfit_test_path("trusted"), 0644));
    opens(NULL, kfit_test_path("trusted"));
    CHECK(!symlink("trusted", kfit_test_path("link"))); /* mounted secrets are links */
    opens(NULL, kfit_test_path("link"));
    for (unsigned bit = 0; bit < 2; bit++) {
        CHECK(!chmod(kfit_test_path("trusted"), bit ? 0664 : 0646));
        refused(NULL, kfit_test_path("trusted"), "chmod go-w");
    }
    CHECK(!chmod(kfit_test_path("trusted"), 0644));
    if (!geteuid()) {
        CHECK(!chown(kfit_test_path("trusted"), 1, 1));
        refused(NULL, kfit_test_path("trusted"), "belongs to uid 1");
        CHECK(!chown(kfit_test_path("trusted"), 0, 0));
    }
    refused(NULL, kfit_test_path("nowhere"), "nowhere: opening: No such file");
    refused(NULL, kfit_test_path(""), "not a regular file");
    CHECK(!mkfifo(kfit_test_path("fifo"), 0600));
    refused(NULL, kfit_test_path("fifo"), "not a regular file");
    kfit_test_write(kfit_test_path("empty"), "", 0);
    CHECK(!chmod(kfit_test_path("empty"), 0600));
    refused(NULL, kfit_test_path("empty"), "names no key");
    refused(NULL, "", "KFIT_TRUST: names no key");
    refused(NULL, "  ", "KFIT_TRUST: names no key");
    refused(NULL, "ed25519:", "KFIT_TRUST: line 1");
    refused(NULL, key_file(1), "line 2: expected"); /* a private key given by mistake */
    char *big = calloc(1, 20000);
    memset(big, '\n', 20000);
    kfit_test_write(kfit_test_path("big"), big, 20000);
    CHECK(!chmod(kfit_test_path("big"), 0600));
    refused(NULL, kfit_test_path("big"), "longer than");
}

static void keys_are_made(void)
{
    struct kfit_public_key made;
    struct kfit_secret_key read;
    struct kfit_trust t;
    struct kfit_error err = {0};
    struct stat st;
    size_t n;
    umask(0);
    CHECK_OK(kfit_secret_key_make(kfit_test_path("k"), "Ada of\nbuild", &made, &err), err);
    CHECK_STR(made.name, "Ada_of_build");
    CHECK(!stat(kfit_test_path("k"), &st) && (st.st_mode & 07777) == 0600);
    CHECK(!stat(kfit_test_path("k.pub"), &st) && (st.st_mode & 07777) == 0644);
    CHECK_OK(kfit_secret_key_read(kfit_test_path("k"), &read, &err), err);
    CHECK(!memcmp(&read.public_key, &made, sizeof made));
    CHECK_OK(kfit_trust_read(kfit_test_path("k.pub"), &t, &err), err);
    CHECK(t.count == 1 && !memcmp(&t.key[0], &made, sizeof made));
    publish(5, &read);
    opens(NULL, kfit_test_path("k.pub"));

    char *before = kfit_test_read(kfit_test_path("k"), &n);
    CHECK(strstr(before, "kfit-secret-ed25519:") && n < 300);
    CHECK_STATUS(kfit_secret_key_make(kfit_test_path("k"), NULL, &made, &err), KFIT_E_EXISTS);
    CHECK(!strcmp(kfit_test_read(kfit_test_path("k"), NULL), before));
    kfit_test_write(kfit_test_path("l.pub"), "x", 1);
    CHECK_STATUS(kfit_secret_key_make(kfit_test_path("l"), NULL, &made, &err), KFIT_E_EXISTS);
    CHECK(access(kfit_test_path("l"), F_OK)); /* neither was made */
    CHECK_STATUS(kfit_secret_key_make(kfit_test_path("no/where"), NULL, &made, &err), KFIT_E_NOTFOUND);
    struct kfit_public_key other;
    CHECK_OK(kfit_secret_key_make(kfit_test_path("o"), NULL, &other, &err), err);
    CHECK(memcmp(other.bytes, made.bytes, 32));
}

static void private_keys_stay_private(void)
{
    struct kfit_secret_key k;
    struct kfit_error err = {0};
    const char *file = key_file(1);
    const mode_t bad[] = {0640, 0604, 0620, 0602, 0644, 0610, 0601};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        CHECK(!chmod(file, bad[i]));
        CHECK_STATUS(kfit_secret_key_read(file, &k, &err), KFIT_E_PERM);
        CHECK_MSG(strstr(err.text, "chmod"), "%s", err.text);
    }
    CHECK(!chmod(file, 0400));
    CHECK_OK(kfit_secret_key_read(file, &k, &err), err);
    CHECK_STR(k.public_key.name, "key1");
    kfit_secret_key_finish(&k);
    for (size_t i = 0; i < sizeof k; i++)
        CHECK(!((char *)&k)[i]);
    const char *texts[] = {
        "",
        "kfit-secret-ed25519:",
        "kfit-secret-ed25519:12 x\n",
        "# no end of line",
        "#\n#\n",
        "ed25519:0101010101010101010101010101010101010101010101010101010101010101\n",
        "kfit-secret-ed25519:01010101010101010101010101010101010101010101010101010101010101012\n",
        "x\nkfit-secret-ed25519:0101010101010101010101010101010101010101010101010101010101010101\n"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        unlink(kfit_test_path("bad"));
        kfit_test_write(kfit_test_path("bad"), texts[i], strlen(texts[i]));
        CHECK(!chmod(kfit_test_path("bad"), 0600));
        CHECK_STATUS(kfit_secret_key_read(kfit_test_path("bad"), &k, &err), KFIT_E_FORMAT);
        CHECK_MSG(strstr(err.text, "kfit key new"), "%s", err.text);
        CHECK(!strstr(err.text, "0101")); /* no message shows what a private key may have been */
    }
    unlink(kfit_test_path("bad"));
    kfit_test_write(kfit_test_path("bad"), "#\0#\nx", 5);
    CHECK(!chmod(kfit_test_path("bad"), 0600));
    CHECK_STATUS(kfit_secret_key_read(kfit_test_path("bad"), &k, &err), KFIT_E_FORMAT);
    CHECK_STATUS(kfit_secret_key_read(kfit_test_path("nowhere"), &k, &err), KFIT_E_NOTFOUND);
}

/* ---- without libsodium ---- */

static void no_sodium(void)
{
    kfit_test_own_mounts();
    const char *dirs[] = {"/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib"};
    for (size_t i = 0; i < 2 * sizeof dirs / sizeof *dirs; i++) {
        char place[64];
        snprintf(place, sizeof place, "%s/libsodium.so.%s", dirs[i / 2], i % 2 ? "23" : "26");
        if (!access(place, F_OK) && mount("/dev/null", place, NULL, MS_BIND, NULL))
            SKIP("no bind mount: %s", strerror(errno));
    }
}

static void nothing_is_trusted(void)
{
    char trust[KFIT_PUBLIC_KEY_TEXT_MAX];
    struct kfit_secret_key k;
    struct kfit_public_key made;
    struct kfit_error err = {0};
    strcpy(trust, kfit_test_read(kfit_test_path("trusted"), NULL));
    refused(NULL, trust, "install libsodium.so.23 (Debian: libsodium23)");
    opens(NULL, NULL); /* unset, nothing changes */
    CHECK_STATUS(kfit_secret_key_read(kfit_test_path("key1"), &k, &err), KFIT_E_UNSUPPORTED);
    CHECK_STATUS(kfit_secret_key_make(kfit_test_path("k"), NULL, &made, &err), KFIT_E_UNSUPPORTED);
    CHECK(access(kfit_test_path("k"), F_OK));
}

/* In a process that has not loaded it yet: another one signs. */
static void libsodium_missing(void)
{
    int st;
    fflush(stdout);
    pid_t pid = fork();
    if (!pid) {
        publish(5, key(1));
        const char *trust = public_of(1); /* before path: it calls path as well */
        kfit_test_write(kfit_test_path("trusted"), trust, strlen(trust));
        _exit(0);
    }
    CHECK(waitpid(pid, &st, 0) == pid && !st);
    kfit_test_child(nothing_is_trusted, no_sodium);
}

static const struct kfit_test tests[] = {
    TEST(golden_bytes),
    TEST(only_what_is_signed_is_loaded),
    TEST(any_change_to_the_manifest_is_noticed),
    TEST(every_flipped_bit_of_the_file),
    TEST(signatures_do_not_fit_elsewhere),
    TEST(an_older_signed_generation_can_be_named),
    TEST(keys_can_be_changed),
    TEST(signing_survives_sigkill),
    TEST(texts_of_keys),
    TEST(random_texts_of_keys),
    TEST(files_of_keys),
    TEST(keys_are_made),
    TEST(private_keys_stay_private),
    TEST(libsodium_missing),
};
TEST_MAIN(tests)
