/* Directories and files that must be ours: opened by descriptor, owner and mode checked,
 * replaced by rename. */
#ifndef KFIT_DIR_H
#define KFIT_DIR_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/stat.h>

#include "kfit/status.h"

struct kfit_dir {
    int fd;
    char path[256]; /* for messages; cut if longer */
};

/* Opens a directory that belongs to the user or root and that no group or other may write. parent NULL: name
 * is a path, where links are followed; else a plain entry of parent. make_mode not 0: made if missing. */
enum kfit_status kfit_dir_open(struct kfit_dir *out, const struct kfit_dir *parent, const char *name,
                               mode_t make_mode, struct kfit_error *err);
void kfit_dir_close(struct kfit_dir *d);

/* Opens the regular file d/name for reading, same rule for owner and mode. */
enum kfit_status kfit_dir_file(const struct kfit_dir *d, const char *name, int *fd, struct stat *st,
                               struct kfit_error *err);
/* Reads all of a small file into buf, adds a NUL. KFIT_E_FORMAT if it does not fit. */
enum kfit_status kfit_dir_read(const struct kfit_dir *d, const char *name, char *buf, size_t size,
                               size_t *bytes, struct kfit_error *err);
/* The same for a file that a person names: its path may lead through links, as in mounted secrets, and the
 * directories on the way are the person's business. */
enum kfit_status kfit_file_read(const char *path, char *buf, size_t size, size_t *bytes, struct stat *st,
                                struct kfit_error *err);
/* Writes d/name in full beside it, makes it durable, renames. One writer at a time. */
enum kfit_status kfit_dir_replace(const struct kfit_dir *d, const char *name, const void *data, size_t bytes,
                                  mode_t mode, struct kfit_error *err);

/* Calls fn with the name of each entry of d, in no order, until it returns non-zero. */
enum kfit_status kfit_dir_each(const struct kfit_dir *d,
                               int (*fn)(void *ctx, const struct kfit_dir *d, const char *name), void *ctx,
                               struct kfit_error *err);

/* Makes d/name if missing and takes a write lock (fcntl) on its first byte, until *fd or any other
 * descriptor of that file in this process is closed. KFIT_E_BUSY says who holds it. */
enum kfit_status kfit_dir_lock(const struct kfit_dir *d, const char *name, int *fd, struct kfit_error *err);

/* Status for errno after a failed system call on d/name, with what was being done. */
enum kfit_status kfit_dir_fail(const struct kfit_dir *d, const char *name, const char *doing,
                               struct kfit_error *err);

#endif
