/* From one object file to one flat image: code first, then read-only data, all relocations applied, nothing
 * left to do at load time. An object of one source file needs so little of a linker that doing it here is
 * shorter than driving ld and reading its messages; every refusal has its own code. */
#include <stdlib.h>

#include "kfit/device.h"
#include "kfit/record.h"

#include "object.h"
#include "gate0.h"

#define SECTIONS_MAX 4096

struct link {
    struct kfit_elf elf;
    struct kfit_built *b;
    unsigned names; /* section names */
    unsigned symtab;
    Elf64_Shdr symbols;
    uint64_t *place; /* per section: where in the image, or NOWHERE */
    uint8_t *image;
    size_t bytes;
};

#define NOWHERE UINT64_MAX

static enum kfit_status damaged(struct link *l)
{
    return kfit_refuse(l->b, "static:section", "the compiler made an object file that is not well formed");
}

static bool starts(const char *s, const char *prefix)
{
    return !strncmp(s, prefix, strlen(prefix));
}

/* Says whether the section is code or read-only data to be placed (*keep), or refuses it. */
static enum kfit_status classify(struct link *l, const Elf64_Shdr *s, bool *keep)
{
    const char *name = kfit_elf_string(&l->elf, l->names, s->sh_name);
    *keep = false;
    if (!name)
        return damaged(l);
    if (!(s->sh_flags & SHF_ALLOC) || !s->sh_size || s->sh_type == SHT_NOTE || starts(name, ".eh_frame"))
        return KFIT_OK;
    if (starts(name, ".data.rel.ro"))
        return kfit_refuse(l->b, "static:reloc",
                           "constant data that holds addresses (%.60s): an image is not relocated "
                           "when it is loaded",
                           name);
    if (s->sh_flags & (SHF_WRITE | SHF_TLS))
        return kfit_refuse(l->b, "static:writable",
                           "writable data (%.60s, %llu bytes): keep state in the workspace", name,
                           (unsigned long long)s->sh_size);
    bool code = s->sh_flags & SHF_EXECINSTR;
    if (s->sh_type != SHT_PROGBITS || !starts(name, code ? ".text" : ".rodata"))
        return kfit_refuse(l->b, "static:section", "section %.60s", name);
    if (s->sh_addralign > KFIT_HOST_IMAGE_ALIGN || (s->sh_addralign & (s->sh_addralign - 1)))
        return kfit_refuse(l->b, "static:section", "section %.60s wants alignment %llu, at most %u is given",
                           name, (unsigned long long)s->sh_addralign, KFIT_HOST_IMAGE_ALIGN);
    if (s->sh_size > KFIT_IMAGE_BYTES_MAX)
        return kfit_refuse(l->b, "static:size", "section %.60s has %llu bytes; an image has at most %u", name,
                           (unsigned long long)s->sh_size, KFIT_IMAGE_BYTES_MAX);
    if (!kfit_elf_at(&l->elf, s->sh_offset, s->sh_size))
        return damaged(l);
    *keep = true;
    return KFIT_OK;
}

/* Gives places to the sections with (code) or without SHF_EXECINSTR, from *end on. */
static enum kfit_status place(struct link *l, bool code, uint64_t *end)
{
    for (unsigned i = 0; i < l->elf.sections; i++) {
        Elf64_Shdr s;
        bool keep;
        if (!kfit_elf_section(&l->elf, i, &s))
            return damaged(l);
        if (!!(s.sh_flags & SHF_EXECINSTR) != code)
            continue;
        enum kfit_status st = classify(l, &s, &keep);
        if (st != KFIT_OK)
            return st;
        if (!keep)
            continue;
        uint64_t align = s.sh_addralign ? s.sh_addralign : 1;
        l->place[i] = (*end + align - 1) & -align;
        *end = l->place[i] + s.sh_size;
        if (*end > KFIT_IMAGE_BYTES_MAX || (code && *end > KFIT_TEXT_BYTES_MAX))
            return kfit_refuse(l->b, "static:size", "more than %u bytes of %s",
                               code ? KFIT_TEXT_BYTES_MAX : KFIT_IMAGE_BYTES_MAX, code ? "code" : "image");
    }
    return KFIT_OK;
}

static bool symbol(struct link *l, uint64_t i, Elf64_Sym *out)
{
    const void *p = i < l->symbols.sh_size / sizeof *out
                        ? kfit_elf_at(&l->elf, l->symbols.sh_offset + i * sizeof *out, sizeof *out)
                        : NULL;
    if (p)
        memcpy(out, p, sizeof *out);
    return p != NULL;
}

static const char *symbol_name(struct link *l, const Elf64_Sym *s)
{
    const char *name = kfit_elf_string(&l->elf, l->symbols.sh_link, s->st_name);
    return name && *name ? name : "(no name)";
}

/* One function may be visible, and it is the entry: a second one is a decoy or a mistake. */
static enum kfit_status find_entry(struct link *l, const char *entry, uint64_t *offset)
{
    bool found = false;
    for (uint64_t i = 1; i < l->symbols.sh_size / sizeof(Elf64_Sym); i++) {
        Elf64_Sym s;
        Elf64_Shdr sec;
        if (!symbol(l, i, &s))
            return damaged(l);
        const char *name = symbol_name(l, &s);
        if (s.st_shndx == SHN_COMMON)
            return kfit_refuse(l->b, "static:writable", "writable data (%.60s): keep state in the workspace",
                               name);
        if (ELF64_ST_TYPE(s.st_info) == STT_GNU_IFUNC)
            return kfit_refuse(l->b, "static:reloc", "%.60s is chosen at load time", name);
        if (ELF64_ST_BIND(s.st_info) == STB_LOCAL || s.st_shndx == SHN_UNDEF)
            continue;
        if (ELF64_ST_BIND(s.st_info) != STB_GLOBAL ||
            (ELF64_ST_TYPE(s.st_info) == STT_FUNC && strcmp(name, entry)))
            return kfit_refuse(l->b, "static:entry",
                               "%.60s is not the entry of the header (%s): make it static", name, entry);
        if (strcmp(name, entry))
            continue;
        if (ELF64_ST_TYPE(s.st_info) != STT_FUNC || !kfit_elf_section(&l->elf, s.st_shndx, &sec) ||
            !(sec.sh_flags & SHF_EXECINSTR) || l->place[s.st_shndx] == NOWHERE || s.st_value >= sec.sh_size)
            return kfit_refuse(l->b, "static:entry", "%s is not a function", entry);
        *offset = l->place[s.st_shndx] + s.st_value;
        found = true;
    }
    return found ? KFIT_OK
                 : kfit_refuse(l->b, "static:entry",
                               "the header names the entry %s, the source does not define it", entry);
}

static enum kfit_status relocate(struct link *l, unsigned target, const Elf64_Rela *r, uint64_t target_bytes)
{
    Elf64_Sym s;
    uint64_t type = ELF64_R_TYPE(r->r_info);
    if (!symbol(l, ELF64_R_SYM(r->r_info), &s))
        return damaged(l);
    if (s.st_shndx == SHN_UNDEF)
        return kfit_refuse(l->b, "static:extern", "%.60s is not defined: a kernel cannot call out",
                           symbol_name(l, &s));
    if (type != R_X86_64_PC32 && type != R_X86_64_PLT32)
        return kfit_refuse(l->b, "static:reloc",
                           "relocation of type %llu against %.60s: only relative references work in "
                           "an image",
                           (unsigned long long)type, symbol_name(l, &s));
    if (s.st_shndx >= l->elf.sections || l->place[s.st_shndx] == NOWHERE)
        return kfit_refuse(l->b, "static:reloc", "a reference to what is not in the image (%.60s)",
                           symbol_name(l, &s));
    if (r->r_offset > target_bytes || target_bytes - r->r_offset < 4)
        return damaged(l);
    uint64_t at = l->place[target] + r->r_offset;
    int64_t value = (int64_t)(l->place[s.st_shndx] + s.st_value + (uint64_t)r->r_addend - at);
    int32_t narrow = (int32_t)value;
    if (narrow != value)
        return damaged(l);
    memcpy(l->image + at, &narrow, 4);
    return KFIT_OK;
}

static enum kfit_status fill(struct link *l)
{
    for (unsigned i = 0; i < l->elf.sections; i++) {
        Elf64_Shdr s;
        if (l->place[i] != NOWHERE && kfit_elf_section(&l->elf, i, &s))
            memcpy(l->image + l->place[i], l->elf.data + s.sh_offset, s.sh_size);
    }
    for (unsigned i = 0; i < l->elf.sections; i++) {
        Elf64_Shdr s, target;
        if (!kfit_elf_section(&l->elf, i, &s) || (s.sh_type != SHT_RELA && s.sh_type != SHT_REL))
            continue;
        if (!kfit_elf_section(&l->elf, s.sh_info, &target))
            return damaged(l);
        if (l->place[s.sh_info] == NOWHERE)
            continue;
        if (s.sh_type == SHT_REL || s.sh_link != l->symtab || !kfit_elf_at(&l->elf, s.sh_offset, s.sh_size))
            return damaged(l);
        for (uint64_t k = 0; k < s.sh_size / sizeof(Elf64_Rela); k++) {
            Elf64_Rela r;
            memcpy(&r, l->elf.data + s.sh_offset + k * sizeof r, sizeof r);
            enum kfit_status st = relocate(l, s.sh_info, &r, target.sh_size);
            if (st != KFIT_OK)
                return st;
        }
    }
    return KFIT_OK;
}

enum kfit_status kfit_link_host(const uint8_t *object, size_t bytes, const char *entry, struct kfit_built *b,
                                size_t *text_bytes)
{
    static const uint8_t stop[] = {0x0f, 0x0b}; /* ud2: code that runs on does not reach the data */
    struct link l = {.b = b};
    Elf64_Ehdr h;
    uint64_t end = 0, offset = 0;
    enum kfit_status s = KFIT_OK;
    if (!kfit_elf_open(&l.elf, object, bytes) || l.elf.sections > SECTIONS_MAX)
        return damaged(&l);
    memcpy(&h, object, sizeof h);
    l.names = h.e_shstrndx;
    for (unsigned i = 0; i < l.elf.sections && !l.symtab; i++)
        if (kfit_elf_section(&l.elf, i, &l.symbols) && l.symbols.sh_type == SHT_SYMTAB)
            l.symtab = i;
    if (!l.symtab)
        return damaged(&l);
    if (!(l.place = malloc(l.elf.sections * sizeof *l.place)))
        return KFIT_E_NOMEM;
    for (unsigned i = 0; i < l.elf.sections; i++)
        l.place[i] = NOWHERE;
    if ((s = place(&l, true, &end)) != KFIT_OK)
        goto out;
    end += sizeof stop;
    *text_bytes = end;
    end = (end + KFIT_HOST_IMAGE_ALIGN - 1) & -(uint64_t)KFIT_HOST_IMAGE_ALIGN;
    if ((s = place(&l, false, &end)) != KFIT_OK || (s = find_entry(&l, entry, &offset)) != KFIT_OK)
        goto out;
    l.bytes = end;
    if (!(l.image = malloc(l.bytes))) {
        s = KFIT_E_NOMEM;
        goto out;
    }
    memset(l.image, 0x90, *text_bytes); /* nop between functions */
    memset(l.image + *text_bytes, 0, l.bytes - *text_bytes);
    memcpy(l.image + *text_bytes - sizeof stop, stop, sizeof stop);
    if ((s = fill(&l)) != KFIT_OK)
        goto out;
    b->image = l.image;
    b->image_bytes = l.bytes;
    b->plan.launches[0].entry_offset = offset;
    l.image = NULL;
out:
    free(l.image);
    free(l.place);
    return s;
}
