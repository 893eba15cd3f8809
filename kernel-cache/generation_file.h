/* A generation as a file: what publishing and exchange need of an open one. */
#ifndef KFIT_GENERATION_FILE_H
#define KFIT_GENERATION_FILE_H

#include "kfit/generation.h"

/* Opens a sealed copy whose digest is the manifest's. copy becomes the generation's, also on failure. path is
 * for messages. */
enum kfit_status kfit_generation_adopt(const struct kfit_manifest *m, int copy, const char *path,
                                       struct kfit_generation **out, struct kfit_error *err);
/* The sealed copy, the generation's own. */
int kfit_generation_fd(const struct kfit_generation *g);
/* Decodes every record and counts them: what a manifest promises. */
enum kfit_status kfit_generation_check(struct kfit_generation *g, struct kfit_error *err);

#endif
