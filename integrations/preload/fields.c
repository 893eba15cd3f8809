/* Where a handle of cuBLAS keeps what its getters answer.
 *
 * A getter does next to nothing: it looks at a logger, then hands over a field of the handle. But after a call of cuBLAS its
 * code is not in the near caches, and asking two of them costs as much as all the rest of a call. Where the field is changes
 * with releases, so it is taken from the getter's own instructions, once: if they are, operands set aside, those of one that
 * somebody has read, two of its operands say where the byte is that says that a handle is one, and where the field. From then
 * on we do what it would do. Any other code, of another release or a wrapper, is not known, and is called each time. */
#include <dlfcn.h>
#include <link.h>
#include <string.h>

#include "cublas.h"
#include "kfit/hash.h"

enum { CODE_MOST = 256, FIELD_MOST = 4096 };

/* A getter, from its first instruction to its return. hash: XXH3-64 of that many bytes, 0 in place of the operands, of four
 * bytes each: addresses, which every build has others of, and the two that are sought. */
struct getter {
    unsigned bytes, valid, field; /* where the two operands are */
    uint8_t addresses[8];         /* 0: no more */
    uint64_t hash;
};

enum { GETTER_STREAM, GETTER_POINTER_MODE, GETTER_MATH_MODE, GETTERS };

/* One row per way that the compiler made them. */
static const struct getter known[][GETTERS] = {
    /* 12.8.4, 12.9, 13.0 to 13.8 */
    {{183, 126, 145, {30, 45, 60, 67, 105, 162}, 0x1e39c6ef43a20479},
     {183, 135, 145, {30, 45, 60, 67, 105, 162}, 0xf7746e9f52c5e55a},
     {183, 126, 145, {30, 45, 60, 67, 105, 162}, 0x9d37316c54ad331}},
    /* 13.10 */
    {{197, 119, 145, {34, 49, 64, 71, 97, 164}, 0x7b5e4b9c78c98d15},
     {193, 129, 139, {30, 45, 60, 67, 98, 160}, 0x8e767b8218ead8a5},
     {196, 119, 145, {34, 49, 64, 71, 97, 163}, 0xee669056f8388295}},
};

static bool operand(const unsigned char *code, unsigned at, uint32_t *value)
{
    memcpy(value, code + at, sizeof *value);
    return *value && *value < FIELD_MOST;
}

/* How many bytes of a function there are; 0: not known. */
static size_t bytes_of(const void *function)
{
    Dl_info info;
    ElfW(Sym) *symbol = NULL;
    return dladdr1(function, &info, (void **)&symbol, RTLD_DL_SYMENT) && symbol && info.dli_saddr == function
               ? symbol->st_size
               : 0;
}

static bool is_getter(const struct getter *g, const void *function, uint32_t *valid, uint32_t *field)
{
    unsigned char code[CODE_MOST];
    if (bytes_of(function) < g->bytes)
        return false;
    memcpy(code, function, g->bytes);
    if (!operand(code, g->valid, valid) || !operand(code, g->field, field))
        return false;
    memset(code + g->valid, 0, 4);
    memset(code + g->field, 0, 4);
    for (unsigned i = 0; i < sizeof g->addresses && g->addresses[i]; i++)
        memset(code + g->addresses[i], 0, 4);
    return XXH3_64bits(code, g->bytes) == g->hash;
}

void kfit_cublas_find_fields(struct kfit_cublas *c)
{
    const void *const functions[GETTERS] = {(void *)c->stream, (void *)c->pointer_mode, (void *)c->math_mode};
    uint32_t valid[GETTERS], field[GETTERS];
    for (unsigned i = 0; i < sizeof known / sizeof *known; i++) {
        unsigned n = 0;
        while (n < GETTERS && is_getter(&known[i][n], functions[n], &valid[n], &field[n]) &&
               valid[n] == valid[0])
            n++;
        if (n == GETTERS)
            c->fields = (struct kfit_cublas_fields){(uint16_t)valid[0], (uint16_t)field[GETTER_STREAM],
                                                    (uint16_t)field[GETTER_POINTER_MODE],
                                                    (uint16_t)field[GETTER_MATH_MODE]};
    }
}
