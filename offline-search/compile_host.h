#ifndef KFIT_COMPILE_HOST_H
#define KFIT_COMPILE_HOST_H

#include "kfit/compile.h"

/* kfit_compile for device host. */
enum kfit_status kfit_compile_host(const struct kfit_compile_params *params, struct kfit_built *built,
                                   struct kfit_error *err);

#endif
