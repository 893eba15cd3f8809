/* The pages of an LMDB 0.9 data file, looked at before LMDB looks: it believes every number in them. */
#ifndef KFIT_LMDB_PAGES_H
#define KFIT_LMDB_PAGES_H

#include "kfit/status.h"

/* Walks the one unnamed table of the file behind fd, which nobody can change any more and whose meta pages
 * kfit_lmdb_check_file has passed: every page is in the file, of the right kind and at the depth the meta page
 * says; every node lies within its page; keys ascend. KFIT_E_FORMAT if not. Free pages are not
 * looked at: a reader never comes there. Any thread. */
enum kfit_status kfit_lmdb_check_pages(int fd, const char *path, struct kfit_error *err);

#endif
