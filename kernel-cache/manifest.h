/* The two small texts beside a generation: generations/<n>.json and current. */
#ifndef KFIT_MANIFEST_H
#define KFIT_MANIFEST_H

#include "dir.h"
#include "kfit/generation.h"

#define KFIT_MANIFEST_VERSION    1u
#define KFIT_MANIFEST_BYTES_MAX  4096
#define KFIT_STATEMENT_BYTES_MAX (KFIT_MANIFEST_BYTES_MAX + 64)
#define KFIT_EXPORT_VERSION      1u
#define KFIT_EXPORT_HEAD_MAX     (KFIT_MANIFEST_BYTES_MAX + 128)
#define KFIT_DATA_BYTES_MAX      (1ull << 30) /* of a generation */
#define KFIT_CURRENT_BYTES_MAX   96

/* Both write a NUL-terminated text and return its length; the sizes above always suffice. Control characters
 * in names become '?'. */
size_t kfit_manifest_format(const struct kfit_manifest *m, char buf[KFIT_MANIFEST_BYTES_MAX]);
size_t kfit_current_format(uint64_t number, const uint8_t sha256[32], char buf[KFIT_CURRENT_BYTES_MAX]);

/* The bytes that a signature is made over: a line that says what they are, then the manifest as format writes
 * it without its signature. So every value that anybody reads is covered, whatever the file's spacing and
 * order; a field that this version does not know is neither read nor covered. */
size_t kfit_manifest_statement(const struct kfit_manifest *m, char buf[KFIT_STATEMENT_BYTES_MAX]);

/* Both accept any bytes; path is for messages. The manifest is one flat JSON object, fields in any order,
 * unknown ones skipped (version 1 may grow), each at most once. signed_by and
 * signature come together or not at all. Errors: KFIT_E_FORMAT, KFIT_E_VERSION. */
enum kfit_status kfit_manifest_parse(const char *text, size_t bytes, const char *path,
                                     struct kfit_manifest *m, struct kfit_error *err);
enum kfit_status kfit_current_parse(const char *text, size_t bytes, const char *path, uint64_t *number,
                                    uint8_t sha256[32], struct kfit_error *err);

/* What stands before the data in an exported generation (kfit/exchange.h): the line and the manifest. Format
 * returns the length. Parse takes the file's first bytes, at most KFIT_EXPORT_HEAD_MAX are of use, and its
 * length, which must be what line and manifest say; *offset is where the data begins. */
size_t kfit_export_head(const struct kfit_manifest *m, char buf[KFIT_EXPORT_HEAD_MAX]);
enum kfit_status kfit_export_parse(const char *text, size_t bytes, uint64_t file_bytes, const char *path,
                                   struct kfit_manifest *m, size_t *offset, struct kfit_error *err);

/* Reads generations/<number>.json, where d is generations/; the number inside must be the same. */
enum kfit_status kfit_manifest_load(const struct kfit_dir *d, uint64_t number, struct kfit_manifest *m,
                                    struct kfit_error *err);
enum kfit_status kfit_current_load(const struct kfit_dir *cache, uint64_t *number, uint8_t sha256[32],
                                   struct kfit_error *err);

/* Strict decimal up to max at *p (before end), advances *p; and n bytes as lower-case hex digits. */
bool kfit_scan_number(const char **p, const char *end, uint64_t max, uint64_t *out);
bool kfit_scan_hex(const char **p, const char *end, uint8_t *out, size_t n);
bool kfit_scan_digest(const char **p, const char *end, uint8_t out[32]);

/* Calls fn with each number that has a manifest in generations/, in no order, until it returns non-zero. */
enum kfit_status kfit_generation_numbers(const struct kfit_dir *d, int (*fn)(void *ctx, uint64_t number),
                                         void *ctx, struct kfit_error *err);

#endif
