/* LMDB without linking to it: a table of its functions, filled by dlopen. Only kernel-cache sees this. */
#ifndef KFIT_LMDB_API_H
#define KFIT_LMDB_API_H

#include <lmdb.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kfit/status.h"

#define KFIT_LMDB_SYMBOLS(X)                                                                                 \
    X(env_create)                                                                                            \
    X(env_open)                                                                                              \
    X(env_close)                                                                                             \
    X(env_copyfd2)                                                                                           \
    X(env_info)                                                                                              \
    X(env_set_mapsize)                                                                                       \
    X(env_set_maxdbs)                                                                                        \
    X(txn_begin)                                                                                             \
    X(txn_commit)                                                                                            \
    X(txn_abort)                                                                                             \
    X(dbi_open)                                                                                              \
    X(get)                                                                                                   \
    X(put)                                                                                                   \
    X(del)                                                                                                   \
    X(cursor_open)                                                                                           \
    X(cursor_close)                                                                                          \
    X(cursor_get)                                                                                            \
    X(reader_check)                                                                                          \
    X(strerror)                                                                                              \
    X(version)

struct kfit_lmdb {
#define KFIT_X(name) __typeof__(mdb_##name) *name;
    KFIT_LMDB_SYMBOLS(KFIT_X)
#undef KFIT_X
};

#define KFIT_LMDB_FORMAT 1u /* of the data file, as its meta pages and our manifests say */

/* Looks beside the object that holds this code, then among the system's libraries. KFIT_E_UNSUPPORTED with
 * the reason if there is none. The table lives until exit. Any thread. */
enum kfit_status kfit_lmdb_load(const struct kfit_lmdb **out, struct kfit_error *err);

/* Turns an LMDB or errno code into a status and the text "<path>: <doing>: <why>". */
enum kfit_status kfit_lmdb_fail(struct kfit_error *err, const struct kfit_lmdb *lmdb, int rc,
                                const char *path, const char *doing);

/* Reads the two meta pages of a data file and checks what LMDB takes for granted: magic, version, page size,
 * and that the file is as long as its newest meta page says (a shorter one is a SIGBUS later). */
enum kfit_status kfit_lmdb_check_file(int fd, const char *path, struct kfit_error *err);

/* The unnamed table of a data file, after the same checks. */
struct kfit_lmdb_root {
    uint64_t page, last_page;
    uint32_t page_bytes;
    uint16_t flags, depth;
};
enum kfit_status kfit_lmdb_read_root(int fd, const char *path, struct kfit_lmdb_root *out,
                                     struct kfit_error *err);

/* Opens the data file behind fd (a private, sealed copy) for reading, without a lock file. */
enum kfit_status kfit_lmdb_open_copy(const struct kfit_lmdb *lmdb, int fd, unsigned tables, const char *path,
                                     MDB_env **out, struct kfit_error *err);

#endif
