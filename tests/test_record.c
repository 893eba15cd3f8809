#include "kfit/generation.h"
#include "kfit/hash.h"

#include "kfit_test.h"
#include "manifest.h"
#include "records.h"
#include "sha256.h"

#include <unistd.h>

static uint8_t image[RECORDS_IMAGE_BYTES];

static uint8_t *encoded(unsigned i, struct kfit_record *r, size_t *size)
{
    records_fill(r, i, image);
    *size = kfit_record_size(r);
    uint8_t *bytes = malloc(*size);
    CHECK(bytes);
    kfit_record_encode(r, bytes);
    return bytes;
}

static void decodes_what_it_encoded(void)
{
    struct kfit_error err = {0};
    for (unsigned i = 0; i < 64; i++) {
        struct kfit_record r, back;
        size_t n;
        uint8_t *bytes = encoded(i, &r, &n);
        CHECK_OK(kfit_record_decode(bytes, n, &back, &err), err);
        CHECK(records_same(&r, &back));
        free(bytes);
    }
}

/* The bytes in tests/golden were looked at by hand when version 1 was made. KFIT_TEST_BLESS=1
 * writes new ones. */
static void golden(const char *name, const void *bytes, size_t n)
{
    char path[512];
    size_t want;
    snprintf(path, sizeof path, GOLDEN "/%s", name);
    if (getenv("KFIT_TEST_BLESS"))
        kfit_test_write(path, bytes, n);
    char *text = kfit_test_read(path, &want);
    CHECK_MSG(want == n && !memcmp(text, bytes, n), "%s differs from what this kfit writes", path);
    free(text);
}

static struct kfit_manifest manifest(void)
{
    struct kfit_manifest m = {.number = 7,
                              .length = 40960,
                              .records = 3,
                              .created_unix_s = 1700000000,
                              .approver = "Zo\xc3\xab \"the\\judge\"",
                              .note = "first\nnote"};
    for (unsigned i = 0; i < 32; i++)
        m.sha256[i] = (uint8_t)(i * 8 + 1);
    return m;
}

static void golden_bytes(void)
{
    struct kfit_record r, back;
    size_t n;
    char text[KFIT_MANIFEST_BYTES_MAX], current[KFIT_CURRENT_BYTES_MAX];
    struct kfit_manifest m = manifest();
    struct kfit_error err = {0};
    uint8_t *winner = encoded(1, &r, &n);
    golden("record-winner.bin", winner, n);
    uint8_t *negative = encoded(7, &r, &n);
    golden("record-negative.bin", negative, n);
    golden("manifest.json", text, kfit_manifest_format(&m, text));
    golden("current", current, kfit_current_format(m.number, m.sha256, current));

    char path[512];
    snprintf(path, sizeof path, GOLDEN "/record-winner.bin");
    char *bytes = kfit_test_read(path, &n);
    records_fill(&r, 1, image);
    CHECK_OK(kfit_record_decode(bytes, n, &back, &err), err);
    CHECK(records_same(&r, &back));
}

/* Version 2: the approver. A record without one is written as version 1 has it. */
static void an_approver_makes_version_2(void)
{
    struct kfit_error err = {0};
    for (unsigned i = 6; i < 8; i++)
        for (size_t length = 1; length < KFIT_APPROVER_MAX; length += 3) {
            struct kfit_record r, back;
            size_t n, more;
            free(encoded(i, &r, &n));
            memset(r.approver, 'z', length);
            more = kfit_record_size(&r);
            CHECK_INT(more, n + ((length + 8) & ~(size_t)7));
            uint8_t *bytes = malloc(more);
            kfit_record_encode(&r, bytes);
            CHECK_INT(bytes[8], 2);
            CHECK_OK(kfit_record_decode(bytes, more, &back, &err), err);
            CHECK(records_same(&r, &back));
            bytes[8] = 1;
            CHECK_STATUS(kfit_record_decode(bytes, more, &back, &err), KFIT_E_FORMAT);
            if (i == 6 && length == 1)
                bytes[8] = 2, golden("record-approved.bin", bytes, more);
            free(bytes);
        }
}

static const struct kfit_tensormap one_map = {.arg = 1,
                                              .type = KFIT_BF16,
                                              .box_rows = 64,
                                              .box_cols = 64,
                                              .swizzle = 128,
                                              .batch = 1,
                                              .rows = 768,
                                              .cols = 768,
                                              .row_bytes = 1536,
                                              .matrix_bytes = 768 * 1536};

/* Version 3: tensor maps, with or without an approver. */
static void tensor_maps_make_version_3(void)
{
    struct kfit_error err = {0};
    for (unsigned maps = 1; maps <= KFIT_TENSORMAPS_MAX; maps++)
        for (unsigned approved = 0; approved < 2; approved++) {
            struct kfit_record r, back;
            size_t n, more;
            free(encoded(6, &r, &n));
            for (unsigned i = 0; i < maps; i++) {
                r.plan.tensormaps[i] = one_map;
                r.plan.tensormaps[i].box_rows -= i;
            }
            r.plan.tensormap_count = maps;
            if (approved)
                strcpy(r.approver, "ada");
            more = kfit_record_size(&r);
            CHECK_INT(more, n + 64 * maps + 8 * approved);
            uint8_t *bytes = malloc(more);
            kfit_record_encode(&r, bytes);
            CHECK_INT(bytes[8], 3);
            CHECK_OK(kfit_record_decode(bytes, more, &back, &err), err);
            CHECK(records_same(&r, &back));
            if (maps == 2 && approved)
                golden("record-tensormaps.bin", bytes, more);
            for (uint8_t version = 1; version < 3; version++) {
                bytes[8] = version;
                CHECK_STATUS(kfit_record_decode(bytes, more, &back, &err), KFIT_E_FORMAT);
            }
            free(bytes);
        }
}

static void refuses_every_truncation(void)
{
    for (unsigned i = 6; i < 8; i++) {
        struct kfit_record r, back;
        size_t n;
        uint8_t *bytes = encoded(i, &r, &n);
        for (size_t cut = 0; cut < n; cut++) {
            uint8_t *copy = malloc(cut ? cut : 1); /* exactly as long, for the sanitizer's sake */
            memcpy(copy, bytes, cut);
            CHECK_STATUS(kfit_record_decode(copy, cut, &back, NULL), KFIT_E_FORMAT);
            free(copy);
        }
        bytes = realloc(bytes, n + 8);
        memset(bytes + n, 0, 8);
        for (size_t more = 1; more <= 8; more++)
            CHECK_STATUS(kfit_record_decode(bytes, n + more, &back, NULL), KFIT_E_FORMAT);
    }
}

static void refuses_every_bit_flip(void)
{
    for (unsigned i = 6; i < 8; i++) {
        struct kfit_record r, back;
        size_t n;
        uint8_t *bytes = encoded(i, &r, &n);
        for (size_t bit = 0; bit < 8 * n; bit++) {
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
            enum kfit_status s = kfit_record_decode(bytes, n, &back, NULL);
            CHECK_MSG(s == KFIT_E_FORMAT || s == KFIT_E_VERSION, "flip of bit %zu: %s", bit,
                      kfit_status_str(s));
            bytes[bit / 8] ^= (uint8_t)(1u << bit % 8);
        }
    }
}

/* Where a checksum covers the bytes, random damage never reaches the code behind it; so here it
 * is made right. */
static void survives_damage_under_a_right_checksum(void)
{
    struct kfit_record r, back;
    struct kfit_error err;
    unsigned accepted = 0;
    for (unsigned i = 6; i < 8; i++) {
        size_t n;
        uint8_t *bytes = encoded(i, &r, &n), *copy = malloc(n);
        for (unsigned round = 0; round < 20000; round++) {
            memcpy(copy, bytes, n);
            for (unsigned hits = 1 + (unsigned)(kfit_test_random() % 4); hits--;) {
                size_t at = 24 + kfit_test_random() % (i == 6 && round % 2 ? 360 : n - 24);
                copy[at] = kfit_test_random() % 3 ? (uint8_t)kfit_test_random() : (uint8_t)(copy[at] ^ 1);
            }
            uint64_t sum = XXH3_64bits(copy + 24, n - 24);
            memcpy(copy + 16, &sum, sizeof sum);
            if (kfit_record_decode(copy, n, &back, &err) != KFIT_OK)
                continue;
            accepted++; /* then it must be well-formed: it encodes to what was read */
            CHECK_INT(kfit_record_size(&back), n);
            uint8_t *again = malloc(n);
            kfit_record_encode(&back, again);
            CHECK(!memcmp(again, copy, n));
            free(again);
        }
    }
    CHECK_MSG(accepted > 100, "only %u damaged records were well-formed; the test does not reach its aim",
              accepted);
}

/* Each spoils one field of a good record: what is encoded from it must not decode. */
#define SPOILERS(X)                                                                                          \
    X(r->env_hard = 0)                                                                                       \
    X(r->kind = 0)                                                                                           \
    X(r->kind = 3)                                                                                           \
    X(r->key.h.len = 48)                                                                                     \
    X(r->key.h.len = 0)                                                                                      \
    X(r->key.h.len = 255)                                                                                    \
    X(r->key.h.op = 0)                                                                                       \
    X(r->key.h.op = 200)                                                                                     \
    X(r->key.gemm.lda = 1)                                                                                   \
    X(r->ratio = -1)                                                                                         \
    X(r->ns_generic = 1.0 / 0.0)                                                                             \
    X(r->lo = 0.0 / 0.0)                                                                                     \
    X(r->origin[2] = '\n')                                                                                   \
    X(r->origin[2] = 27)                                                                                     \
    X(r->approver[0] = 27)                                                                                   \
    X(r->plan.launch_count = 0)                                                                              \
    X(r->plan.launch_count = KFIT_LAUNCHES_MAX + 1)                                                          \
    X(r->plan.launches[0].entry[0] = 0)                                                                      \
    X(r->plan.launches[0].entry[1] = 1)                                                                      \
    X(memset(r->plan.launches[0].entry, 'x', KFIT_ENTRY_NAME_MAX))                                           \
    X(r->plan.launches[0].entry_offset = r->image_bytes)                                                     \
    X(r->plan.launches[0].grid[1] = 0)                                                                       \
    X(r->plan.workspace_bytes = 2ull << 30)                                                                  \
    X(r->plan.workspace_init = 9)                                                                            \
    X(r->image_bytes = 0)                                                                                    \
    X(r->plan.tensormap_count = 1)                                                                           \
    X(r->plan.tensormap_count = KFIT_TENSORMAPS_MAX + 1)                                                     \
    X(MAP(arg = 8))                                                                                          \
    X(MAP(type = 0))                                                                                         \
    X(MAP(type = KFIT_DTYPE_END))                                                                            \
    X(MAP(box_rows = 0))                                                                                     \
    X(MAP(box_rows = 257))                                                                                   \
    X(MAP(box_cols = 63))                                                                                    \
    X(MAP(box_cols = 72))                                                                                    \
    X(MAP(swizzle = 16))                                                                                     \
    X(MAP(zero = 1))                                                                                         \
    X(MAP(batch = 0))                                                                                        \
    X(MAP(rows = UINT64_C(1) << 33))                                                                         \
    X(MAP(cols = 769))                                                                                       \
    X(MAP(row_bytes = 1544))                                                                                 \
    X(MAP(matrix_bytes = 8))

#define MAP(spoil) (r->plan.tensormap_count = 1, r->plan.tensormaps[0] = one_map, r->plan.tensormaps[0].spoil)

static void refuses_what_is_out_of_bounds(void)
{
    struct kfit_record good, *r = &good, back;
#define KFIT_X(spoil)                                                                                        \
    do {                                                                                                     \
        size_t n;                                                                                            \
        free(encoded(5, r, &n));                                                                             \
        spoil;                                                                                               \
        uint8_t *bytes = malloc(kfit_record_size(r));                                                        \
        kfit_record_encode(r, bytes);                                                                        \
        enum kfit_status s = kfit_record_decode(bytes, kfit_record_size(r), &back, NULL);                    \
        CHECK_MSG(s == KFIT_E_FORMAT, "%s: %s", #spoil, kfit_status_str(s));                                 \
        free(bytes);                                                                                         \
    } while (0);
    SPOILERS(KFIT_X)
#undef KFIT_X
}

/* More launches than a plan holds, in a record whose parts add up and whose checksum is right. */
static void refuses_a_launch_too_many(void)
{
    struct kfit_record r, back;
    struct kfit_error err = {0};
    size_t n;
    free(encoded(5, &r, &n));
    r.plan.launch_count = KFIT_LAUNCHES_MAX;
    for (unsigned i = 1; i < KFIT_LAUNCHES_MAX; i++)
        r.plan.launches[i] = r.plan.launches[0];
    n = kfit_record_size(&r);
    uint8_t *bytes = malloc(n);
    kfit_record_encode(&r, bytes);
    CHECK_OK(kfit_record_decode(bytes, n, &back, &err), err);
    const uint32_t launches = KFIT_LAUNCHES_MAX + 1;
    const uint64_t image_bytes = r.image_bytes - 120;
    memcpy(bytes + 148, &launches, sizeof launches);
    memcpy(bytes + 168, &image_bytes, sizeof image_bytes);
    const uint64_t sum = XXH3_64bits(bytes + 24, n - 24);
    memcpy(bytes + 16, &sum, sizeof sum);
    CHECK_STATUS(kfit_record_decode(bytes, n, &back, &err), KFIT_E_FORMAT);
    CHECK_MSG(strstr(err.text, "out of bounds"), "%s", err.text);
}

static void refuses_other_versions(void)
{
    struct kfit_record r, back;
    struct kfit_error err = {0};
    size_t n;
    uint8_t *bytes = encoded(5, &r, &n);
    bytes[8] = 4;
    CHECK_STATUS(kfit_record_decode(bytes, n, &back, &err), KFIT_E_VERSION);
    CHECK(strstr(err.text, "version 4, this kfit reads 1 to 3"));
    for (bytes[8] = 2; bytes[8] < 4; bytes[8]++) /* without what these add */
        CHECK_STATUS(kfit_record_decode(bytes, n, &back, &err), KFIT_E_FORMAT);
    encoded(5, &r, &n);
    r.op_version++;
    kfit_record_encode(&r, bytes);
    CHECK_STATUS(kfit_record_decode(bytes, n, &back, &err), KFIT_E_VERSION);
    CHECK(strstr(err.text, "op gemm"));
}

static void manifest_reads_what_it_wrote(void)
{
    struct kfit_manifest m = manifest(), back;
    struct kfit_error err = {0};
    char text[KFIT_MANIFEST_BYTES_MAX];
    size_t n = kfit_manifest_format(&m, text);
    CHECK_OK(kfit_manifest_parse(text, n, "m", &back, &err), err);
    strcpy(m.note, "first?note"); /* control characters do not survive */
    CHECK(!memcmp(&m, &back, sizeof m));
    memset(m.approver, '\\', sizeof m.approver - 1); /* the longest there can be */
    memset(m.note, '"', sizeof m.note - 1);
    m.number = m.length = m.records = m.republishes = UINT64_MAX / 2;
    n = kfit_manifest_format(&m, text);
    CHECK(n < sizeof text);
    CHECK_OK(kfit_manifest_parse(text, n, "m", &back, &err), err);
    CHECK(!memcmp(&m, &back, sizeof m));
}

#define ZEROS "0000000000000000000000000000000000000000000000000000000000000000"

static void manifest_refuses_damage(void)
{
    struct kfit_manifest m = manifest(), back;
    char text[KFIT_MANIFEST_BYTES_MAX], copy[KFIT_MANIFEST_BYTES_MAX];
    size_t n = kfit_manifest_format(&m, text);
    for (size_t cut = 0; cut < n - 1; cut++) /* the last byte is a newline, which may be missing */
        CHECK_STATUS(kfit_manifest_parse(text, cut, "m", &back, NULL), KFIT_E_FORMAT);
    for (unsigned round = 0; round < 100000; round++) { /* any answer, no crash */
        memcpy(copy, text, n);
        for (unsigned hits = 1 + (unsigned)(kfit_test_random() % 3); hits--;)
            copy[kfit_test_random() % n] = (char)kfit_test_random();
        if (kfit_manifest_parse(copy, n, "m", &back, NULL) == KFIT_OK) {
            CHECK(memchr(back.approver, 0, sizeof back.approver));
            CHECK(memchr(back.note, 0, sizeof back.note));
        }
    }
    static const struct {
        const char *from, *to;
        enum kfit_status want;
    } edits[] = {
        {"\"kfit_generation\": 1", "\"kfit_generation\": 2", KFIT_E_VERSION},
        {"\"lmdb_format\": 1", "\"lmdb_format\": 2", KFIT_E_VERSION},
        {"\"records\"", "\"recorda\"", KFIT_E_FORMAT},                      /* missing */
        {"\"records\": 3", "\"records\": 3, \"number\": 9", KFIT_E_FORMAT}, /* twice */
        {"\"number\": 7", "\"number\": 07", KFIT_E_FORMAT},
        {"\"number\": 7", "\"number\": -7", KFIT_E_FORMAT},
        {"\"number\": 7", "\"number\": 99999999999999999999", KFIT_E_FORMAT},
        {"\"number\": 7", "\"number\": \"7\"", KFIT_E_FORMAT},
        {"\"sha256\": \"0", "\"sha256\": \"G", KFIT_E_FORMAT},
        {"\n}\n", "\n}\n}", KFIT_E_FORMAT},
        {"\n}\n", ",\n  \"comment\": \"abc\", \"more\": 1\n}\n", KFIT_OK}, /* unknown: skipped */
        {"\n}\n", ",\n  \"signature\": \"abc\"\n}\n", KFIT_E_FORMAT},
        {"\n}\n", ",\n  \"signed_by\": \"" ZEROS "\"\n}\n", KFIT_E_FORMAT}, /* without the other */
        {"\n}\n", ",\n  \"signature\": \"" ZEROS ZEROS "\"\n}\n", KFIT_E_FORMAT},
        {"\n}\n", ",\n  \"signed_by\": \"" ZEROS "\", \"signature\": \"" ZEROS ZEROS "\"\n}\n", KFIT_OK},
    };
    for (size_t i = 0; i < sizeof edits / sizeof *edits; i++) {
        char *at = strstr(text, edits[i].from);
        CHECK_MSG(at, "%s", edits[i].from);
        int len = snprintf(copy, sizeof copy, "%.*s%s%s", (int)(at - text), text, edits[i].to,
                           at + strlen(edits[i].from));
        enum kfit_status s = kfit_manifest_parse(copy, (size_t)len, "m", &back, NULL);
        CHECK_MSG(s == edits[i].want, "%s: %s", edits[i].to, kfit_status_str(s));
    }
}

static void current_is_strict(void)
{
    uint8_t sha[32] = {1, 2, 3}, back[32];
    uint64_t number;
    struct kfit_error err = {0};
    char text[KFIT_CURRENT_BYTES_MAX];
    size_t n = kfit_current_format(UINT64_MAX / 2, sha, text);
    CHECK_OK(kfit_current_parse(text, n, "c", &number, back, &err), err);
    CHECK(number == UINT64_MAX / 2 && !memcmp(sha, back, 32));
    for (size_t cut = 0; cut < n; cut++)
        CHECK_STATUS(kfit_current_parse(text, cut, "c", &number, back, NULL), KFIT_E_FORMAT);
    for (size_t i = 0; i < n; i++)
        for (int c = 0; c < 256; c++) { /* a changed byte is refused or read as another number or digest */
            char was = text[i];
            text[i] = (char)c;
            if (kfit_current_parse(text, n, "c", &number, back, NULL) == KFIT_OK && (char)c != was)
                CHECK(number != UINT64_MAX / 2 || memcmp(sha, back, 32));
            text[i] = was;
        }
}

static void sha256_vectors(void)
{
    static const struct {
        const char *text;
        unsigned repeat;
        const char *hex;
    } cases[] = {
        /* NIST CAVP and FIPS 180-4 examples */
        {"", 1, "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"},
        {"abc", 1, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"},
        {"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq", 1,
         "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1"},
        {"a", 1000000, "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0"},
    };
    void (*const ways[])(uint32_t *, const uint8_t *, size_t) = {
        kfit_sha256_blocks_c, kfit_sha256_has_ni() ? kfit_sha256_blocks_ni : NULL};
    for (size_t way = 0; way < 2; way++)
        for (size_t i = 0; ways[way] && i < sizeof cases / sizeof *cases; i++) {
            struct kfit_sha256_state s;
            uint8_t digest[32];
            char hex[65];
            kfit_sha256_init(&s);
            s.blocks = ways[way];
            for (unsigned r = 0; r < cases[i].repeat; r++)
                kfit_sha256_update(&s, cases[i].text, strlen(cases[i].text));
            kfit_sha256_final(&s, digest);
            kfit_hex(digest, 32, hex);
            CHECK_STR(hex, cases[i].hex);
        }
}

static void sha256_ways_agree(void)
{
    if (!kfit_sha256_has_ni())
        SKIP("this CPU has no SHA instructions");
    uint8_t data[1000], a[32], b[32];
    for (unsigned round = 0; round < 2000; round++) {
        size_t n = kfit_test_random() % sizeof data, split = n ? kfit_test_random() % n : 0;
        for (size_t i = 0; i < n; i++)
            data[i] = (uint8_t)kfit_test_random();
        struct kfit_sha256_state s;
        kfit_sha256_init(&s);
        s.blocks = kfit_sha256_blocks_c;
        kfit_sha256_update(&s, data, split);
        kfit_sha256_update(&s, data + split, n - split);
        kfit_sha256_final(&s, a);
        kfit_sha256(data, n, b);
        CHECK(!memcmp(a, b, 32));
    }
}

static const struct kfit_test tests[] = {
    TEST(decodes_what_it_encoded),
    TEST(golden_bytes),
    TEST(tensor_maps_make_version_3),
    TEST(refuses_every_truncation),
    TEST(refuses_every_bit_flip),
    TEST(survives_damage_under_a_right_checksum),
    TEST(refuses_what_is_out_of_bounds),
    TEST(refuses_a_launch_too_many),
    TEST(refuses_other_versions),
    TEST(an_approver_makes_version_2),
    TEST(manifest_reads_what_it_wrote),
    TEST(manifest_refuses_damage),
    TEST(current_is_strict),
    TEST(sha256_vectors),
    TEST(sha256_ways_agree),
};
TEST_MAIN(tests)
