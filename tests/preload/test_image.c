/* Which images have one hash (image.c): where an image ends, and of a large one, which bytes count. */
#include <elf.h>
#include <sys/mman.h>

#include "driver.h"
#include "kfit/hash.h"
#include "kfit_test.h"

enum { PAGE = 4096, HEADER = 16, SMALL = 3 * PAGE };

/* bytes of memory that end where the next page cannot be read. */
static char *at_the_end(size_t bytes)
{
    const size_t room = (bytes + PAGE - 1) / PAGE * PAGE;
    char *p = mmap(NULL, room + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(p != MAP_FAILED && !mprotect(p + room, PAGE, PROT_NONE));
    return p + room - bytes;
}

static char *fat_binary(size_t bytes)
{
    char *p = at_the_end(bytes);
    const uint32_t magic = 0xba55ed50;
    const uint16_t version = 1, header = HEADER;
    const uint64_t size = bytes - HEADER;
    for (size_t i = HEADER; i < bytes; i++)
        p[i] = (char)(i * 7 + i / PAGE);
    memcpy(p, &magic, 4), memcpy(p + 4, &version, 2), memcpy(p + 6, &header, 2), memcpy(p + 8, &size, 8);
    return p;
}

static char *elf(size_t bytes)
{
    char *p = at_the_end(bytes);
    Elf64_Ehdr e = {.e_ident = {0x7f, 'E', 'L', 'F', ELFCLASS64},
                    .e_shoff = sizeof e,
                    .e_shentsize = sizeof(Elf64_Shdr),
                    .e_shnum = 1};
    const Elf64_Shdr s = {
        .sh_type = SHT_PROGBITS, .sh_offset = sizeof e + sizeof s, .sh_size = bytes - sizeof e - sizeof s};
    for (size_t i = sizeof e + sizeof s; i < bytes; i++)
        p[i] = (char)(i * 7 + i / PAGE);
    memcpy(p, &e, sizeof e), memcpy(p + sizeof e, &s, sizeof s);
    return p;
}

/* Whether another byte there makes another image. */
static bool counts(char *image, size_t at)
{
    const uint64_t before = kfit_image_hash(image);
    image[at] ^= 1;
    const uint64_t after = kfit_image_hash(image);
    image[at] ^= 1;
    CHECK(before && after && kfit_image_hash(image) == before);
    return before != after;
}

/* The first page, the last one, and the one in the middle; and nothing else, which may be hundreds of megabytes. */
static void three_pages_of_a_fat_binary(void)
{
    static const size_t sizes[] = {SMALL + 2, 5 * PAGE, 9 * PAGE + 7, (1 << 20) + 4};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const size_t n = sizes[i], step = (n - PAGE) / 2;
        char *p = fat_binary(n);
        for (int page = 0; page < 3; page++) {
            CHECK_MSG(counts(p, page * step + HEADER), "page %d of %zu bytes", page, n);
            CHECK_MSG(counts(p, page * step + PAGE / 2), "page %d of %zu bytes", page, n);
            CHECK_MSG(counts(p, page * step + PAGE - 1), "page %d of %zu bytes", page, n);
        }
        for (size_t at = PAGE; at < step; at += PAGE / 2) {
            CHECK_MSG(!counts(p, at), "byte %zu of %zu", at, n);
            CHECK_MSG(!counts(p, at + step), "byte %zu of %zu", at + step, n);
        }
    }
}

static void a_small_one_counts_whole(void)
{
    for (size_t n = HEADER + 1; n <= SMALL; n += n < 64 ? 1 : 997) {
        char *p = fat_binary(n);
        CHECK(kfit_image_hash(p) == XXH3_64bits(p, n));
    }
    char *p = fat_binary(SMALL);
    CHECK(kfit_image_hash(p) == XXH3_64bits(p, SMALL));
}

static void a_cubin_counts_whole_up_to_four_megabytes(void)
{
    char *p = elf(KFIT_IMAGE_WHOLE);
    CHECK(kfit_image_hash(p) == XXH3_64bits(p, KFIT_IMAGE_WHOLE));
    p = elf(KFIT_IMAGE_WHOLE + 2);
    const size_t step = (KFIT_IMAGE_WHOLE + 2 - PAGE) / 2;
    CHECK(counts(p, PAGE - 1) && counts(p, step) && counts(p, step + PAGE - 1) && counts(p, 2 * step));
    CHECK(counts(p, KFIT_IMAGE_WHOLE + 1));
    CHECK(!counts(p, PAGE) && !counts(p, step - 1) && !counts(p, step + PAGE) && !counts(p, 2 * step - 1));
}

/* As nvcc hands it to the runtime, and as a file. */
static void the_same_image_in_other_hands(void)
{
    for (size_t n = SMALL - PAGE; n < 12 * PAGE; n += 3 * PAGE + 5) {
        char *p = fat_binary(n), *path = kfit_test_path("image");
        const struct {
            uint32_t magic, version;
            const void *data, *names;
        } wrapper = {0x466243b1, 1, p, NULL};
        CHECK(kfit_image_hash(&wrapper) == kfit_image_hash(p));
        kfit_test_write(path, p, n);
        CHECK(kfit_image_hash_file(path) == kfit_image_hash(p));
    }
}

static void what_says_no_end_has_none(void)
{
    char *p = at_the_end(8);
    CHECK_INT(kfit_image_hash(NULL), 0);
    memcpy(p, "MZ\x90\0\0\0\0\0", 8);
    CHECK_INT(kfit_image_hash(p), 0);
    char *f = fat_binary(PAGE);
    f[1] ^= 1; /* another magic number */
    CHECK_INT(kfit_image_hash(f), 0);
    char *e = elf(PAGE);
    e[EI_CLASS] = ELFCLASS32;
    CHECK_INT(kfit_image_hash(e), 0);
    CHECK_INT(kfit_image_hash_file("/nonexistent"), 0);
    CHECK_INT(kfit_image_hash_file("/dev/zero"), 0);
}

static const struct kfit_test tests[] = {
    TEST(three_pages_of_a_fat_binary),
    TEST(a_small_one_counts_whole),
    TEST(a_cubin_counts_whole_up_to_four_megabytes),
    TEST(the_same_image_in_other_hands),
    TEST(what_says_no_end_has_none),
};
TEST_MAIN(tests)
