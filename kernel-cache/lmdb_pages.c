/* The layout is that of mdb.c of LMDB 0.9, data format 1, 64-bit little-endian: MDB_page, MDB_node, MDB_meta. */
#include "lmdb_pages.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "lmdb_api.h"

enum { BRANCH = 1, LEAF = 2, OVERFLOW = 4, BIG = 1 };
enum { HEADER = 16, NODE = 8, DEPTH_MAX = 32, KEY_MAX = 511 };

struct page_head {
    uint64_t number;
    uint16_t pad, flags;
    uint16_t lower, upper; /* of an overflow page, both together: how many pages */
};
_Static_assert(sizeof(struct page_head) == HEADER, "as in the file");

struct node {
    uint16_t lo, hi, flags, key_bytes;
};
_Static_assert(sizeof(struct node) == NODE, "as in the file");

struct walk {
    const uint8_t *file;
    size_t page_bytes;
    uint64_t pages; /* of the file */
    unsigned depth; /* of the leaves */
    const uint8_t *last_key;
    size_t last_key_bytes;
    const char *problem;
};

static bool fail(struct walk *w, const char *problem)
{
    w->problem = problem;
    return false;
}

/* The n pages from `number` on. That a page is reached twice needs no look of its own: keys would not ascend. */
static const uint8_t *take_pages(struct walk *w, uint64_t number, uint64_t n, struct page_head *head)
{
    if (number < 2 || number >= w->pages || n > w->pages - number)
        return fail(w, "refers to a page that is not in the file"), NULL;
    const uint8_t *page = w->file + number * w->page_bytes;
    memcpy(head, page, sizeof *head);
    return head->number == number ? page : (fail(w, "has a page that says it is another"), NULL);
}

static bool overflow(struct walk *w, uint64_t number, size_t bytes)
{
    struct page_head head;
    uint64_t pages = (HEADER + bytes + w->page_bytes - 1) / w->page_bytes;
    if (!take_pages(w, number, pages, &head))
        return false;
    return (head.flags == OVERFLOW && (head.lower | (uint32_t)head.upper << 16) == pages) ||
           fail(w, "has a large value whose pages are not those of one");
}

/* Node i of a page: within it, and no part of it outside. */
static bool read_node(struct walk *w, const uint8_t *page, const struct page_head *head, unsigned i,
                      struct node *n, const uint8_t **key)
{
    uint16_t at;
    memcpy(&at, page + HEADER + 2 * i, sizeof at);
    if (at < head->upper || at + (size_t)NODE > w->page_bytes)
        return fail(w, "has an entry outside its page");
    memcpy(n, page + at, sizeof *n);
    *key = page + at + NODE;
    if (n->key_bytes > KEY_MAX || at + (size_t)NODE + n->key_bytes > w->page_bytes)
        return fail(w, "has a key outside its page");
    return true;
}

static bool leaf_entry(struct walk *w, const uint8_t *page, const struct node *n, const uint8_t *key)
{
    const uint8_t *data = key + n->key_bytes;
    size_t bytes = n->lo | (size_t)n->hi << 16, room = (size_t)(page + w->page_bytes - data);
    size_t common = n->key_bytes < w->last_key_bytes ? n->key_bytes : w->last_key_bytes;
    int order = memcmp(w->last_key ? w->last_key : key, key, common);
    if (!n->key_bytes || (w->last_key && (order > 0 || (!order && w->last_key_bytes >= n->key_bytes))))
        return fail(w, "has keys that do not ascend");
    w->last_key = key;
    w->last_key_bytes = n->key_bytes;
    if (n->flags & ~BIG)
        return fail(w, "has an entry of a kind that a generation has not");
    if (!(n->flags & BIG))
        return bytes <= room || fail(w, "has a value outside its page");
    uint64_t number;
    if (room < sizeof number)
        return fail(w, "has a value outside its page");
    memcpy(&number, data, sizeof number);
    return overflow(w, number, bytes);
}

static bool tree(struct walk *w, uint64_t number, unsigned depth)
{
    struct page_head head;
    const uint8_t *page = take_pages(w, number, 1, &head), *key;
    struct node n;
    if (!page)
        return false;
    bool leaf = depth == w->depth;
    unsigned count = (head.lower - HEADER) / 2u;
    if (head.flags != (leaf ? LEAF : BRANCH) || head.lower < HEADER || head.lower % 2 ||
        head.lower > head.upper || head.upper > w->page_bytes || count < (leaf ? 1 : 2))
        return fail(w, "has a page of another kind than belongs there");
    for (unsigned i = 0; i < count; i++) {
        if (!read_node(w, page, &head, i, &n, &key))
            return false;
        if (leaf ? !leaf_entry(w, page, &n, key)
                 : !tree(w, n.lo | (uint64_t)n.hi << 16 | (uint64_t)n.flags << 32, depth + 1))
            return false;
    }
    return true;
}

enum kfit_status kfit_lmdb_check_pages(int fd, const char *path, struct kfit_error *err)
{
    struct kfit_lmdb_root root;
    struct stat st;
    struct walk w = {0};
    enum kfit_status s = kfit_lmdb_read_root(fd, path, &root, err);
    if (s != KFIT_OK)
        return s;
    if (root.page == UINT64_MAX && !root.depth)
        return KFIT_OK; /* an empty table */
    if (root.flags || !root.depth || root.depth > DEPTH_MAX)
        return kfit_fail(err, KFIT_E_FORMAT, "%.300s: its table is not a generation's", path);
    if (fstat(fd, &st))
        return kfit_fail(err, KFIT_E_IO, "%.300s: %m", path);
    const size_t size = (size_t)st.st_size;
    w.page_bytes = root.page_bytes;
    w.pages = root.last_page + 1; /* kfit_lmdb_read_root: the file has them */
    w.depth = root.depth;
    void *file = mmap(NULL, size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (file == MAP_FAILED)
        return kfit_fail(err, KFIT_E_NOMEM, "%.300s: out of memory for looking at %zu bytes", path, size);
    w.file = file;
    if (!tree(&w, root.page, 1))
        s = kfit_fail(err, KFIT_E_FORMAT, "%.300s: %s; the file is damaged, or made to harm", path,
                      w.problem);
    munmap(file, size);
    return s;
}
