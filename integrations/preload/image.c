/* The hash of a loaded image, which no function of the driver gives back. Where an image ends is read from itself; it
 * has just been loaded, so the driver has read it to there. */
#include <elf.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "driver.h"
#include "kfit/hash.h"

enum { FAT_BINARY = 0xba55ed50, FAT_BINARY_WRAPPER = 0x466243b1 };
enum { PARTS = 3, PART_BYTES = 4096 };

/* An image lies where the program has it: in the midst of a file it read, for one. */
#define ANYWHERE __attribute__((packed, aligned(1)))
struct ANYWHERE fat_binary {
    uint32_t magic;
    uint16_t version, header_bytes;
    uint64_t bytes;
};
struct ANYWHERE fat_binary_wrapper { /* what nvcc hands to the runtime */
    uint32_t magic, version;
    const struct fat_binary *data;
    const void *names;
};
typedef Elf64_Ehdr elf_header __attribute__((aligned(1)));
typedef Elf64_Shdr elf_section __attribute__((aligned(1)));

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

static uint64_t elf_bytes(const char *image)
{
    const elf_header *e = (const elf_header *)(const void *)image;
    const elf_section *s = (const elf_section *)(const void *)(image + e->e_shoff);
    if (e->e_ident[EI_CLASS] != ELFCLASS64)
        return 0;
    uint64_t end = larger(e->e_phoff + (uint64_t)e->e_phnum * e->e_phentsize,
                          e->e_shoff + (uint64_t)e->e_shnum * e->e_shentsize);
    if (e->e_shnum && e->e_shentsize != sizeof *s)
        return 0;
    for (unsigned i = 0; i < e->e_shnum; i++)
        if (s[i].sh_type != SHT_NOBITS && s[i].sh_type != SHT_NULL)
            end = larger(end, s[i].sh_offset + s[i].sh_size);
    return end;
}

/* PTX begins with a comment, a directive or white space, and ends with its NUL. */
static uint64_t ptx_bytes(const char *image)
{
    return *image && strchr("/.\t\r\n ", *image) ? strlen(image) : 0;
}

static uint64_t bytes_of(const char **image)
{
    const char *p = *image;
    if (!memcmp(p, ELFMAG, SELFMAG))
        return elf_bytes(p);
    if (*p != (char)(FAT_BINARY & 0xff) && *p != (char)(FAT_BINARY_WRAPPER & 0xff))
        return ptx_bytes(p);
    const struct fat_binary_wrapper *w = (const struct fat_binary_wrapper *)(const void *)p;
    const struct fat_binary *f = w->magic == FAT_BINARY_WRAPPER ? w->data : (const struct fat_binary *)w;
    *image = (const char *)f;
    return f->magic == FAT_BINARY ? f->header_bytes + f->bytes : 0;
}

/* All of it, if it is small. Else its length and a few pages: a framework brings a thousand fat binaries of together
 * nearly a gigabyte, most of which no one ever touches, and all are loaded when it starts. */
static uint64_t hash_of(const char *image, uint64_t bytes)
{
    if (!bytes)
        return 0;
    const bool in_parts = bytes > KFIT_IMAGE_WHOLE ||
                          (bytes > PARTS * PART_BYTES && !memcmp(image, &(uint32_t){FAT_BINARY}, 4));
    if (!in_parts)
        return XXH3_64bits(image, bytes);
    uint64_t hash = bytes, step = (bytes - PART_BYTES) / (PARTS - 1);
    for (unsigned i = 0; i < PARTS; i++)
        hash = XXH3_64bits_withSeed(image + i * step, PART_BYTES, hash);
    return hash;
}

uint64_t kfit_image_hash(const void *image)
{
    const char *p = image;
    uint64_t bytes = p ? bytes_of(&p) : 0;
    return hash_of(p, bytes);
}

/* Read, not mapped: a file may be cut short while we look. */
uint64_t kfit_image_hash_file(const char *path)
{
    struct stat st;
    uint64_t hash = 0;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return 0;
    if (!fstat(fd, &st) && S_ISREG(st.st_mode) && st.st_size > 0 && st.st_size <= KFIT_IMAGE_WHOLE) {
        size_t room = (size_t)st.st_size + 64; /* zeros: whatever its form, it ends */
        char *p = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (p != MAP_FAILED) {
            if (read(fd, p, (size_t)st.st_size) == st.st_size)
                hash = hash_of(p, (uint64_t)st.st_size);
            munmap(p, room);
        }
    }
    close(fd);
    return hash;
}
