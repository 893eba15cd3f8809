/* The little of ELF that a relocatable object needs, read with bounds: every access goes through kfit_elf_at.
 */
#ifndef KFIT_OBJECT_H
#define KFIT_OBJECT_H

#include <elf.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct kfit_elf {
    const uint8_t *data;
    size_t bytes;
    uint64_t section_at;
    unsigned sections;
};

/* size bytes at offset, or NULL. */
static inline const void *kfit_elf_at(const struct kfit_elf *e, uint64_t offset, uint64_t size)
{
    return offset <= e->bytes && size <= e->bytes - offset ? e->data + offset : NULL;
}

static inline bool kfit_elf_section(const struct kfit_elf *e, unsigned i, Elf64_Shdr *out)
{
    const void *p = i < e->sections ? kfit_elf_at(e, e->section_at + i * sizeof *out, sizeof *out) : NULL;
    if (p)
        memcpy(out, p, sizeof *out);
    return p != NULL;
}

/* The name at offset of string section i, NUL-terminated inside the file; NULL if it is not. */
static inline const char *kfit_elf_string(const struct kfit_elf *e, unsigned i, uint64_t offset)
{
    Elf64_Shdr s;
    if (!kfit_elf_section(e, i, &s) || s.sh_type != SHT_STRTAB || offset >= s.sh_size ||
        !kfit_elf_at(e, s.sh_offset, s.sh_size))
        return NULL;
    const char *p = (const char *)e->data + s.sh_offset + offset;
    return memchr(p, 0, s.sh_size - offset) ? p : NULL;
}

/* An x86-64 object file, or false. */
static inline bool kfit_elf_open(struct kfit_elf *e, const void *data, size_t bytes)
{
    Elf64_Ehdr h;
    *e = (struct kfit_elf){.data = data, .bytes = bytes};
    if (bytes < sizeof h)
        return false;
    memcpy(&h, data, sizeof h);
    e->section_at = h.e_shoff;
    e->sections = h.e_shnum;
    return !memcmp(h.e_ident, ELFMAG, SELFMAG) && h.e_ident[EI_CLASS] == ELFCLASS64 &&
           h.e_ident[EI_DATA] == ELFDATA2LSB && h.e_type == ET_REL && h.e_machine == EM_X86_64 &&
           h.e_shentsize == sizeof(Elf64_Shdr) && h.e_shnum && h.e_shoff <= bytes &&
           kfit_elf_at(e, h.e_shoff, (uint64_t)h.e_shnum * sizeof(Elf64_Shdr));
}

#endif
