/* ceilings.h - a GPU's measured ceilings as one line of text. */
#ifndef CEILINGS_H
#define CEILINGS_H

#include "cli.h"
#include "kfit/ceilings.h"

/* Not escaped. 600 bytes suffice. */
void cli_ceilings_text(const struct kfit_gpu_ceilings *c, char *out, size_t size);

#endif
