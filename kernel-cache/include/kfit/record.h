/* kfit/record.h - one published result for one key in one environment, as bytes.
 *
 * Value layout in LMDB, little-endian: a fixed head (struct in record.c, with XXH3-64 of all that follows it),
 * the plan, the image. The same bytes are used in the store and in a generation. Version 1 has no approver, version
 * 2 has one; each is written where it says all, both are read.
 * Thread-safety: pure.
 */
#ifndef KFIT_RECORD_H
#define KFIT_RECORD_H

#include "kfit/env.h"
#include "kfit/key.h"
#include "kfit/plan.h"

#ifdef __cplusplus
extern "C" {
#endif

#define KFIT_RECORD_VERSION  3u
#define KFIT_IMAGE_BYTES_MAX (4u << 20)
#define KFIT_ORIGIN_MAX      96
#define KFIT_APPROVER_MAX    64

enum kfit_record_kind {
    KFIT_RECORD_WINNER = 1,
    KFIT_RECORD_NEGATIVE /* tuned, generic kept: no plan, no image */
};

struct kfit_record {
    union kfit_key key;
    uint32_t kind; /* enum kfit_record_kind */
    uint32_t op_version;
    uint64_t env_hard, env_soft; /* hashes of struct kfit_env */
    int64_t made_unix_s;
    double ns_candidate, ns_incumbent, ns_generic; /* medians, as the deciding mode measured them */
    double ratio, lo, hi;                          /* incumbent / candidate, 95 % interval */
    uint8_t source_digest[32]; /* SHA-256 of the candidate's source and knob values: the winner's identity */
    char origin[KFIT_ORIGIN_MAX];     /* "seed:CANDIDATE", "llm:MODEL", "person:NAME" */
    char approver[KFIT_APPROVER_MAX]; /* who let it into a generation; "": nobody yet */
    struct kfit_plan plan;
    const void *image; /* borrowed: from the caller when encoding, from the bytes when decoding */
    uint64_t image_bytes;
};

/* Bytes needed by kfit_record_encode. */
size_t kfit_record_size(const struct kfit_record *r);
/* Writes exactly kfit_record_size(r) bytes. */
void kfit_record_encode(const struct kfit_record *r, void *out);
/* Checks everything (version, lengths, checksum, key, plan, op version known) before *r is filled; r->image
 * points into data. Errors: KFIT_E_FORMAT, KFIT_E_VERSION. Accepts any bytes at all. */
enum kfit_status kfit_record_decode(const void *data, size_t size, struct kfit_record *r,
                                    struct kfit_error *err);

#ifdef __cplusplus
}
#endif
#endif
