#include "kfit/record.h"

#include <math.h>

#include "kfit/hash.h"
#include "kfit/op.h"

#define MAGIC "kfitrec"

/* The bytes: head, key (key_bytes), launches, tensor maps, origin and approver (each NUL-padded to its _bytes), image. Numbers are
 * little-endian, everything but the image starts at a multiple of 8, what pads is zero. */
struct head {
    char magic[8];
    uint32_t version, head_bytes;
    uint64_t checksum; /* XXH3-64 of all that follows */
    uint64_t total_bytes;
    uint64_t env_hard, env_soft;
    int64_t made_unix_s;
    double ns_candidate, ns_incumbent, ns_generic, ratio, lo, hi;
    uint8_t source_digest[32];
    uint32_t kind, op_version;
    uint16_t key_bytes, origin_bytes;
    uint32_t launch_count, workspace_init;
    uint16_t approver_bytes; /* 0 in version 1, more in version 2 */
    uint16_t map_count;      /* more than 0 from version 3 on */
    uint64_t workspace_bytes;
    uint64_t image_bytes;
};
struct launch {
    char entry[KFIT_ENTRY_NAME_MAX];
    uint64_t entry_offset;
    uint32_t grid[3], block[3], cluster[3];
    uint32_t smem_bytes, cooperative, zero;
};
_Static_assert(sizeof(struct head) == 176 && sizeof(struct launch) == 120 && sizeof(struct kfit_tensormap) == 64,
               "the format has no implicit padding");
_Static_assert(KFIT_ORIGIN_MAX % 8 == 0 && KFIT_APPROVER_MAX % 8 == 0, "a text and its NUL always fit");

enum { CHECKED_FROM = offsetof(struct head, total_bytes) };

static size_t origin_bytes(const struct kfit_record *r)
{
    return (strnlen(r->origin, sizeof r->origin - 1) + 8) & ~(size_t)7;
}

static size_t approver_bytes(const struct kfit_record *r)
{
    return r->approver[0] ? (strnlen(r->approver, sizeof r->approver - 1) + 8) & ~(size_t)7 : 0;
}

static bool has_plan(const struct kfit_record *r)
{
    return r->kind == KFIT_RECORD_WINNER;
}

/* What a record claims beyond the bounds is not read; the head keeps the claim, and decoding refuses it. */
static size_t key_bytes(const struct kfit_record *r)
{
    return r->key.h.len < KFIT_KEY_MAX_BYTES ? r->key.h.len : KFIT_KEY_MAX_BYTES;
}

static size_t launches(const struct kfit_record *r)
{
    return !has_plan(r)                               ? 0
           : r->plan.launch_count < KFIT_LAUNCHES_MAX ? r->plan.launch_count
                                                      : KFIT_LAUNCHES_MAX;
}

/* They are written as they are: fields of fixed size, no padding. */
static size_t map_bytes(const struct kfit_record *r)
{
    const uint32_t n = has_plan(r) ? r->plan.tensormap_count : 0;
    return (n < KFIT_TENSORMAPS_MAX ? n : KFIT_TENSORMAPS_MAX) * sizeof(struct kfit_tensormap);
}

size_t kfit_record_size(const struct kfit_record *r)
{
    return sizeof(struct head) + key_bytes(r) + launches(r) * sizeof(struct launch) + map_bytes(r) + origin_bytes(r) +
           approver_bytes(r) + (has_plan(r) ? r->image_bytes : 0);
}

void kfit_record_encode(const struct kfit_record *r, void *out)
{
    struct head h = {
        .magic = MAGIC,
        .version = map_bytes(r) ? 3 : approver_bytes(r) ? 2 : 1,
        .head_bytes = sizeof h,
        .kind = r->kind,
        .total_bytes = kfit_record_size(r),
        .env_hard = r->env_hard,
        .env_soft = r->env_soft,
        .made_unix_s = r->made_unix_s,
        .ns_candidate = r->ns_candidate,
        .ns_incumbent = r->ns_incumbent,
        .ns_generic = r->ns_generic,
        .ratio = r->ratio,
        .lo = r->lo,
        .hi = r->hi,
        .op_version = r->op_version,
        .key_bytes = (uint16_t)key_bytes(r),
        .origin_bytes = (uint16_t)origin_bytes(r),
        .approver_bytes = (uint16_t)approver_bytes(r),
        .map_count = (uint16_t)(has_plan(r) ? r->plan.tensormap_count : 0),
        .launch_count = has_plan(r) ? r->plan.launch_count : 0,
    };
    memcpy(h.source_digest, r->source_digest, sizeof h.source_digest);
    if (has_plan(r)) {
        h.workspace_init = r->plan.workspace_init;
        h.workspace_bytes = r->plan.workspace_bytes;
        h.image_bytes = r->image_bytes;
    }
    uint8_t *p = (uint8_t *)out + sizeof h;
    memcpy(p, r->key.bytes, h.key_bytes);
    p += h.key_bytes;
    for (size_t i = 0; i < launches(r); i++, p += sizeof(struct launch)) {
        const struct kfit_launch *from = &r->plan.launches[i];
        struct launch l = {.entry_offset = from->entry_offset,
                           .smem_bytes = from->smem_bytes,
                           .cooperative = from->cooperative};
        memcpy(l.entry, from->entry, strnlen(from->entry, sizeof l.entry));
        for (unsigned d = 0; d < 3; d++) {
            l.grid[d] = from->grid[d];
            l.block[d] = from->block[d];
            l.cluster[d] = from->cluster[d];
        }
        memcpy(p, &l, sizeof l);
    }
    memcpy(p, r->plan.tensormaps, map_bytes(r));
    p += map_bytes(r);
    memset(p, 0, h.origin_bytes + h.approver_bytes);
    memcpy(p, r->origin, strnlen(r->origin, sizeof r->origin - 1));
    p += h.origin_bytes;
    memcpy(p, r->approver, strnlen(r->approver, sizeof r->approver - 1));
    p += h.approver_bytes;
    if (h.image_bytes)
        memcpy(p, r->image, h.image_bytes);
    memcpy(out, &h, sizeof h);
    h.checksum = XXH3_64bits((uint8_t *)out + CHECKED_FROM, h.total_bytes - CHECKED_FROM);
    memcpy(out, &h, sizeof h);
}

/* Text in a field of `size` bytes: printable ASCII or beyond, then NULs only, at least one. */
static bool text_ok(const char *field, size_t size)
{
    size_t n = strnlen(field, size);
    if (n == size)
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)field[i] < ' ' || field[i] == 0x7f)
            return false;
    for (size_t i = n; i < size; i++)
        if (field[i])
            return false;
    return true;
}

static enum kfit_status decode_plan(const struct head *h, const uint8_t *p, struct kfit_plan *plan,
                                    struct kfit_error *err)
{
    plan->workspace_bytes = h->workspace_bytes;
    plan->workspace_init = h->workspace_init;
    plan->launch_count = h->launch_count;
    for (size_t i = 0; i < h->launch_count; i++, p += sizeof(struct launch)) {
        struct kfit_launch *to = &plan->launches[i];
        struct launch l;
        memcpy(&l, p, sizeof l);
        if (!text_ok(l.entry, sizeof l.entry) || l.zero)
            return kfit_fail(err, KFIT_E_FORMAT, "record: launch %zu is not well-formed", i);
        memcpy(to->entry, l.entry, sizeof to->entry);
        to->entry_offset = l.entry_offset;
        for (unsigned d = 0; d < 3; d++) {
            to->grid[d] = l.grid[d];
            to->block[d] = l.block[d];
            to->cluster[d] = l.cluster[d];
        }
        to->smem_bytes = l.smem_bytes;
        to->cooperative = l.cooperative;
    }
    plan->tensormap_count = h->map_count;
    memcpy(plan->tensormaps, p, h->map_count * sizeof *plan->tensormaps);
    return kfit_plan_check(plan, h->image_bytes, err);
}

static enum kfit_status head_check(const struct head *h, const void *data, size_t size,
                                   struct kfit_error *err)
{
    if (memcmp(h->magic, MAGIC, sizeof h->magic))
        return kfit_fail(err, KFIT_E_FORMAT, "record: does not start with " MAGIC);
    if (!h->version || h->version > KFIT_RECORD_VERSION)
        return kfit_fail(err, KFIT_E_VERSION, "record: version %u, this kfit reads 1 to %u", h->version,
                         KFIT_RECORD_VERSION);
    if (h->head_bytes != sizeof *h || h->total_bytes != size)
        return kfit_fail(err, KFIT_E_FORMAT, "record: %zu bytes, its head says %llu", size,
                         (unsigned long long)h->total_bytes);
    if (h->checksum != XXH3_64bits((const uint8_t *)data + CHECKED_FROM, size - CHECKED_FROM))
        return kfit_fail(err, KFIT_E_FORMAT, "record: checksum does not match; the record is damaged");
    bool winner = h->kind == KFIT_RECORD_WINNER;
    if ((!winner && h->kind != KFIT_RECORD_NEGATIVE) || h->key_bytes > KFIT_KEY_MAX_BYTES ||
        h->origin_bytes > KFIT_ORIGIN_MAX || h->launch_count > KFIT_LAUNCHES_MAX ||
        h->image_bytes > KFIT_IMAGE_BYTES_MAX || !h->env_hard || h->approver_bytes > KFIT_APPROVER_MAX ||
        h->version != (h->map_count ? 3 : h->approver_bytes ? 2 : 1) || h->map_count > KFIT_TENSORMAPS_MAX ||
        (!winner && (h->launch_count || h->map_count || h->image_bytes || h->workspace_bytes || h->workspace_init)))
        return kfit_fail(err, KFIT_E_FORMAT, "record: a field of its head is out of bounds");
    if (size != sizeof *h + h->key_bytes + h->launch_count * sizeof(struct launch) +
                    h->map_count * sizeof(struct kfit_tensormap) + h->origin_bytes + h->approver_bytes + h->image_bytes)
        return kfit_fail(err, KFIT_E_FORMAT, "record: its parts do not add up to %zu bytes", size);
    const double times[] = {h->ns_candidate, h->ns_incumbent, h->ns_generic, h->ratio, h->lo, h->hi};
    for (size_t i = 0; i < sizeof times / sizeof *times; i++)
        if (!isfinite(times[i]) || times[i] < 0)
            return kfit_fail(err, KFIT_E_FORMAT, "record: a time or ratio is negative or not a number");
    return KFIT_OK;
}

enum kfit_status kfit_record_decode(const void *data, size_t size, struct kfit_record *r,
                                    struct kfit_error *err)
{
    struct head h;
    if (size < sizeof h)
        return kfit_fail(err, KFIT_E_FORMAT, "record: %zu bytes, its head alone has %zu", size, sizeof h);
    memcpy(&h, data, sizeof h);
    enum kfit_status s = head_check(&h, data, size, err);
    if (s != KFIT_OK)
        return s;

    struct kfit_record out = {
        .kind = h.kind,
        .op_version = h.op_version,
        .env_hard = h.env_hard,
        .env_soft = h.env_soft,
        .made_unix_s = h.made_unix_s,
        .ns_candidate = h.ns_candidate,
        .ns_incumbent = h.ns_incumbent,
        .ns_generic = h.ns_generic,
        .ratio = h.ratio,
        .lo = h.lo,
        .hi = h.hi,
        .image_bytes = h.image_bytes,
    };
    const uint8_t *key = (const uint8_t *)data + sizeof h;
    const uint8_t *plan = key + h.key_bytes;
    const char *origin = (const char *)plan + h.launch_count * sizeof(struct launch) +
                         h.map_count * sizeof(struct kfit_tensormap);
    const char *approver = origin + h.origin_bytes;
    memcpy(out.source_digest, h.source_digest, sizeof out.source_digest);
    memcpy(out.key.bytes, key, h.key_bytes);
    s = kfit_key_check(&out.key, err);
    if (s != KFIT_OK)
        return s;
    if (out.key.h.len != h.key_bytes)
        return kfit_fail(err, KFIT_E_FORMAT, "record: key of %u bytes in the space of %u", out.key.h.len,
                         h.key_bytes);
    const struct kfit_op *op = kfit_op_of(&out.key);
    if (op->version != h.op_version)
        return kfit_fail(err, KFIT_E_VERSION, "record: made for version %u of op %s, this kfit has %u",
                         h.op_version, op->name, op->version);
    if (!text_ok(origin, h.origin_bytes) || (h.approver_bytes && !text_ok(approver, h.approver_bytes)))
        return kfit_fail(err, KFIT_E_FORMAT, "record: origin or approver is not a text");
    memcpy(out.origin, origin, h.origin_bytes);
    memcpy(out.approver, approver, h.approver_bytes);
    if (origin_bytes(&out) != h.origin_bytes || approver_bytes(&out) != h.approver_bytes)
        return kfit_fail(err, KFIT_E_FORMAT, "record: origin or approver is padded too far");
    if (h.kind == KFIT_RECORD_WINNER) {
        s = decode_plan(&h, plan, &out.plan, err);
        if (s != KFIT_OK)
            return s;
        out.image = approver + h.approver_bytes;
    }
    *r = out;
    return KFIT_OK;
}
