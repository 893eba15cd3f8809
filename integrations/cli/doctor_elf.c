/* What a library's file says of it. Files are hostile: nothing is read beyond their ends. */
#include <elf.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"
#include "doctor.h"

struct elf {
    char *file;
    size_t bytes;
    const Elf64_Shdr *section;
    unsigned count;
};

static bool inside(const struct elf *e, const Elf64_Shdr *s)
{
    return s->sh_offset <= e->bytes && s->sh_size <= e->bytes - s->sh_offset && s->sh_offset % 8 == 0;
}

static bool elf_read(struct elf *e, const char *path)
{
    if (cli_read_file(path, 64u << 20, &e->file, &e->bytes, NULL) != KFIT_OK)
        return false;
    const Elf64_Ehdr *h = (const void *)e->file;
    if (e->bytes < sizeof *h || memcmp(h->e_ident, ELFMAG, SELFMAG) || h->e_ident[EI_CLASS] != ELFCLASS64 ||
        h->e_shentsize != sizeof(Elf64_Shdr) || h->e_shoff > e->bytes || h->e_shoff % 8 ||
        h->e_shnum > (e->bytes - h->e_shoff) / sizeof(Elf64_Shdr)) {
        free(e->file);
        return false;
    }
    e->section = (const void *)(e->file + h->e_shoff);
    e->count = h->e_shnum;
    return true;
}

/* The next section of that type after *at, which begins at 0; its strings. */
static const Elf64_Shdr *next(const struct elf *e, unsigned type, unsigned *at, const Elf64_Shdr **strings)
{
    while (*at < e->count) {
        const Elf64_Shdr *s = &e->section[(*at)++];
        if (s->sh_type != type || s->sh_link >= e->count)
            continue;
        *strings = &e->section[s->sh_link];
        if (inside(e, s) && (*strings)->sh_offset <= e->bytes &&
            (*strings)->sh_size <= e->bytes - (*strings)->sh_offset)
            return s;
    }
    return NULL;
}

static void add_word(char *out, size_t size, const char *word)
{
    size_t used = strlen(out);
    snprintf(out + used, size - used, "%s%s", used ? " " : "", word);
}

bool doctor_needs(const char *path, char *out, size_t size)
{
    struct elf e;
    const Elf64_Shdr *strings, *s;
    unsigned at = 0;
    bool any = false;
    out[0] = '\0';
    if (!elf_read(&e, path))
        return false;
    while ((s = next(&e, SHT_DYNAMIC, &at, &strings))) {
        const Elf64_Dyn *dyn = (const void *)(e.file + s->sh_offset);
        any = true;
        for (size_t i = 0; i < s->sh_size / sizeof *dyn && dyn[i].d_tag != DT_NULL; i++)
            if (dyn[i].d_tag == DT_NEEDED && dyn[i].d_un.d_val < strings->sh_size)
                add_word(out, size,
                         cli_safe(e.file + strings->sh_offset + dyn[i].d_un.d_val,
                                  strings->sh_size - dyn[i].d_un.d_val));
    }
    free(e.file);
    return any;
}

bool doctor_defines(const char *path, const char *const *names, char *out, size_t size)
{
    struct elf e;
    const Elf64_Shdr *strings, *s;
    unsigned at = 0;
    out[0] = '\0';
    if (!elf_read(&e, path))
        return false;
    while ((s = next(&e, SHT_DYNSYM, &at, &strings))) {
        const Elf64_Sym *symbol = (const void *)(e.file + s->sh_offset);
        for (size_t i = 0; i < s->sh_size / sizeof *symbol; i++) {
            size_t room = symbol[i].st_name < strings->sh_size ? strings->sh_size - symbol[i].st_name : 0;
            const char *name = e.file + strings->sh_offset + symbol[i].st_name;
            for (const char *const *n = names; *n && symbol[i].st_shndx != SHN_UNDEF; n++)
                if (strlen(*n) < room && !strcmp(name, *n))
                    add_word(out, size, *n);
        }
    }
    free(e.file);
    return true;
}
