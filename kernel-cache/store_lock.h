/* Who may have a store open, and where: store/writer.lock, held by fcntl record locks until close. Byte 0
 * belongs to the writer. Byte (number of the PID namespace) is shared by all who use LMDB's lock file, which
 * knows processes by number: users from two namespaces would free each other's snapshots. */
#ifndef KFIT_STORE_LOCK_H
#define KFIT_STORE_LOCK_H

#include "dir.h"

/* *fd holds the lock until it, or any other descriptor of the file in this process, is closed. Fails with
 * errno EROFS preserved as KFIT_E_PERM on a read-only mount. Errors: KFIT_E_BUSY, KFIT_E_PERM, KFIT_E_IO. */
enum kfit_status kfit_store_lock(const struct kfit_dir *d, bool write, int *fd, struct kfit_error *err);

/* Keeps writers out while the data file is copied from a read-only mount; *fd is -1 if no writer
 * ever was there. */
enum kfit_status kfit_store_lock_copy(const struct kfit_dir *d, int *fd, struct kfit_error *err);

#endif
