/* device_lock.h - one measurement at a time per device, across processes. */
#ifndef KFIT_DEVICE_LOCK_H
#define KFIT_DEVICE_LOCK_H

#include "kfit/status.h"

/* Takes the lock of `device` in /run/lock/kfit, else $XDG_RUNTIME_DIR/kfit, else /tmp/kfit-<uid>. An fcntl
 * record lock: it dies with the process and is not inherited. KFIT_E_BUSY names the holder. *fd is the lock.
 * dir: another place, NULL: these. */
enum kfit_status kfit_device_lock(const char *device, const char *dir, int *fd, struct kfit_error *err);
void kfit_device_unlock(int fd);

#endif
