/* A set of flat host images; the host device's load in three steps. Contracts as in kfit/device.h. */
#ifndef KFIT_IMAGE_SET_H
#define KFIT_IMAGE_SET_H

#include "kfit/device.h"

enum kfit_status kfit_image_set_open(struct kfit_modules **out, struct kfit_error *err);
enum kfit_status kfit_image_set_add(struct kfit_modules *m, const struct kfit_image *image, unsigned nargs,
                                    struct kfit_error *err);
enum kfit_status kfit_image_set_seal(struct kfit_modules *m, struct kfit_kernel *kernels,
                                     struct kfit_error *err);
void kfit_image_set_close(struct kfit_modules *m);

#endif
