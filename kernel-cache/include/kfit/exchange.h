/* kfit/exchange.h - one generation as one file, to be carried to another cache. CLI only.
 *
 * The file is a line "kfit generation file 1 M D\n", where M is the length of the manifest and D its SHA-256 in
 * hex digits, then the manifest, with its signature if it has one, then the generation's data. Its length is
 * exactly what these say; nothing in it is read before it was checked, nor from the file itself: from a sealed
 * copy.
 */
#ifndef KFIT_EXCHANGE_H
#define KFIT_EXCHANGE_H

#include "kfit/trust.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Writes g to path, which must not exist (KFIT_E_EXISTS): in full, durably, or not at all. A generation with a
 * record that does not decode is not written (KFIT_E_FORMAT). */
enum kfit_status kfit_generation_export(struct kfit_generation *g, const char *path, struct kfit_error *err);

/* Opens such a file as kfit_generation_open_trusted opens a published generation, whoever it belongs to and
 * whatever it holds; every record in it decodes. Errors: KFIT_E_NOTFOUND, KFIT_E_FORMAT (damaged, cut, longer
 * than it says), KFIT_E_VERSION, KFIT_E_DIGEST, KFIT_E_TRUST (also for a wrong signature when trust is NULL),
 * KFIT_E_UNSUPPORTED, KFIT_E_IO. */
enum kfit_status kfit_generation_open_file(const char *path, const char *trust, struct kfit_generation **out,
                                           struct kfit_error *err);

struct kfit_import_params {
    const char *dir;
    struct kfit_generation *from; /* of kfit_generation_open_file */
    const char *approver;         /* if it gets another number */
    const struct kfit_secret_key *sign;
    bool drop_signature; /* rather than fail where it cannot be kept */
};

enum kfit_imported {
    KFIT_IMPORTED,          /* published and current */
    KFIT_IMPORTED_BEFORE,   /* the very same is there; nothing was done */
    KFIT_IMPORTED_SIGNATURE /* it was there with another signature, or none; it has this one now */
};

/* Publishes it: under its own number if that is above all that are there, so that its manifest and signature
 * stay as they are and the number means the same everywhere; else under the next one, with a manifest of its
 * own that names the old number, signed by sign (KFIT_E_TRUST if it was signed and sign is NULL, unless
 * drop_signature). Then makes it current. A reader or a crash at any moment sees the old or the new one. Where
 * the same content is published already nothing changes but the signature, and `current` stays. */
enum kfit_status kfit_generation_import(const struct kfit_import_params *p, uint64_t *number,
                                        enum kfit_imported *how, struct kfit_error *err);

#ifdef __cplusplus
}
#endif
#endif
