#include "lmdb_api.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "library.h"

#define SONAME "liblmdb.so.0"

static struct kfit_lmdb api;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char problem[256]; /* empty: loaded */

static void load(void)
{
    static const char *const sonames[] = {SONAME, NULL};
    static const struct kfit_library_symbol symbols[] = {
#define KFIT_X(name) {"mdb_" #name, offsetof(struct kfit_lmdb, name)},
        KFIT_LMDB_SYMBOLS(KFIT_X)
#undef KFIT_X
    };
    static const struct kfit_library lmdb = {"LMDB", "liblmdb0", sonames, symbols,
                                             sizeof symbols / sizeof *symbols};
    int major, minor;
    if (!kfit_library_load(&lmdb, &api, problem, sizeof problem))
        return;
    const char *text = api.version(&major, &minor, NULL);
    if (major != 0 || minor != 9) /* 1.0 has another file format and other structures */
        snprintf(problem, sizeof problem, SONAME " is %.100s; kfit needs LMDB 0.9", text);
}

enum kfit_status kfit_lmdb_load(const struct kfit_lmdb **out, struct kfit_error *err)
{
    pthread_once(&once, load);
    *out = &api;
    return problem[0] ? kfit_fail(err, KFIT_E_UNSUPPORTED, "%s", problem) : KFIT_OK;
}

enum kfit_status kfit_lmdb_fail(struct kfit_error *err, const struct kfit_lmdb *lmdb, int rc,
                                const char *path, const char *doing)
{
    static const struct {
        int rc;
        enum kfit_status status;
        const char *advice;
    } known[] = {
        {MDB_NOTFOUND, KFIT_E_NOTFOUND, ""},
        {MDB_MAP_FULL, KFIT_E_FULL, ""},
        {ENOSPC, KFIT_E_FULL, "; free some space and try again"},
        {EDQUOT, KFIT_E_FULL, "; free some space and try again"},
        {ENOMEM, KFIT_E_NOMEM, ""},
        {EACCES, KFIT_E_PERM, ""},
        {EPERM, KFIT_E_PERM, ""},
        {EROFS, KFIT_E_PERM, "; it lies on a read-only mount"},
        {EAGAIN, KFIT_E_BUSY, "; try again when other kfit processes have ended"},
        {MDB_READERS_FULL, KFIT_E_BUSY, "; try again when other kfit processes have ended"},
        {MDB_VERSION_MISMATCH, KFIT_E_VERSION, "; it was made by another LMDB"},
        {MDB_INVALID, KFIT_E_FORMAT, "; it is damaged or foreign"},
        {MDB_CORRUPTED, KFIT_E_FORMAT, "; it is damaged"},
        {MDB_PAGE_NOTFOUND, KFIT_E_FORMAT, "; it is damaged"},
        {MDB_PANIC, KFIT_E_FORMAT, "; it is damaged"},
        {MDB_INCOMPATIBLE, KFIT_E_FORMAT, "; it is damaged or foreign"},
    };
    enum kfit_status s = KFIT_E_IO;
    const char *advice = "";
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (known[i].rc == rc) {
            s = known[i].status;
            advice = known[i].advice;
        }
    return kfit_fail(err, s, "%.300s: %s: %s%s", path, doing, lmdb->strerror(rc), advice);
}

/* What a data file of LMDB 0.9 begins with (64-bit, format 1): a page header, then the meta data. Two such
 * pages, the one with the higher transaction number counts. */
struct meta_page {
    uint64_t pgno;
    uint16_t pad, flags;
    uint32_t bounds;
    uint32_t magic, version;
    uint64_t address, mapsize;
    struct {
        uint32_t pad; /* of the first: the page size */
        uint16_t flags, depth;
        uint64_t counts[4], root;
    } dbs[2];
    uint64_t last_page, txnid;
};

enum { META_FLAG = 0x08 };
#define META_MAGIC 0xBEEFC0DEu

static bool meta_read(int fd, uint64_t at, struct meta_page *m)
{
    return pread(fd, m, sizeof *m, (off_t)at) == sizeof *m && (m->flags & META_FLAG) &&
           m->magic == META_MAGIC;
}

enum kfit_status kfit_lmdb_read_root(int fd, const char *path, struct kfit_lmdb_root *out,
                                     struct kfit_error *err)
{
    struct meta_page m[2];
    struct stat st;
    if (!meta_read(fd, 0, &m[0]))
        return kfit_fail(err, KFIT_E_FORMAT, "%.300s: not an LMDB file, or its start is damaged", path);
    if (m[0].version != KFIT_LMDB_FORMAT)
        return kfit_fail(err, KFIT_E_VERSION, "%.300s: LMDB format %u, this kfit reads %u", path,
                         m[0].version, KFIT_LMDB_FORMAT);
    uint32_t page = m[0].dbs[0].pad;
    if (page < 512 || page > 65536 || page & (page - 1))
        return kfit_fail(err, KFIT_E_FORMAT, "%.300s: LMDB page size %u; the file is damaged", path, page);
    if (!meta_read(fd, page, &m[1]) || m[1].version != KFIT_LMDB_FORMAT || m[1].dbs[0].pad != page)
        return kfit_fail(err, KFIT_E_FORMAT, "%.300s: second LMDB meta page is damaged", path);
    const struct meta_page *newest = &m[m[1].txnid > m[0].txnid];
    /* The size is read last: beside a writer the file only grows. */
    if (fstat(fd, &st) || newest->last_page >= (uint64_t)st.st_size / page)
        return kfit_fail(err, KFIT_E_FORMAT,
                         "%.300s: truncated: page %llu of %u bytes is missing, the file has %lld", path,
                         (unsigned long long)newest->last_page, page, (long long)st.st_size);
    *out = (struct kfit_lmdb_root){.page = newest->dbs[1].root,
                                   .last_page = newest->last_page,
                                   .page_bytes = page,
                                   .flags = newest->dbs[1].flags,
                                   .depth = newest->dbs[1].depth};
    return KFIT_OK;
}

enum kfit_status kfit_lmdb_check_file(int fd, const char *path, struct kfit_error *err)
{
    struct kfit_lmdb_root root;
    return kfit_lmdb_read_root(fd, path, &root, err);
}

enum kfit_status kfit_lmdb_open_copy(const struct kfit_lmdb *lmdb, int fd, unsigned tables, const char *path,
                                     MDB_env **out, struct kfit_error *err)
{
    char self[40];
    MDB_env *env = NULL;
    enum kfit_status s = kfit_lmdb_check_file(fd, path, err);
    if (s != KFIT_OK)
        return s;
    struct stat st;
    if (fstat(fd, &st))
        return kfit_fail(err, KFIT_E_IO, "%.300s: %m", path);
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    int rc = lmdb->env_create(&env);
    if (!rc && tables)
        rc = lmdb->env_set_maxdbs(env, tables);
    if (!rc) /* what its meta page asks for may be anything */
        rc = lmdb->env_set_mapsize(env, (size_t)st.st_size);
    if (!rc)
        rc = lmdb->env_open(env, self, MDB_RDONLY | MDB_NOLOCK | MDB_NOSUBDIR | MDB_NOTLS, 0);
    if (rc) {
        if (env)
            lmdb->env_close(env);
        return kfit_lmdb_fail(err, lmdb, rc, path, "opening the copy");
    }
    *out = env;
    return KFIT_OK;
}
