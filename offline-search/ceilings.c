/* A GPU's ceilings as JSON in the store, and the bound. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cjson/cJSON.h>

#include "kfit/ceilings.h"
#include "kfit/op.h"

#define VERSION 1
#define PREFIX  "ceilings/"

static size_t store_key(const char *device, char out[64])
{
    return (size_t)snprintf(out, 64, PREFIX "%.47s", device);
}

/* ---- JSON ---- */

static char *to_json(const struct kfit_gpu_ceilings *c)
{
    cJSON *o = cJSON_CreateObject(), *flops = cJSON_CreateObject();
    cJSON_AddNumberToObject(o, "version", VERSION);
    cJSON_AddStringToObject(o, "device", c->device);
    cJSON_AddStringToObject(o, "model", c->model);
    cJSON_AddStringToObject(o, "arch", c->arch);
    cJSON_AddStringToObject(o, "driver", c->driver);
    cJSON_AddNumberToObject(o, "measured_unix", (double)c->measured_unix_s);
    double bytes[KFIT_GPU_CEILING_POINTS];
    for (unsigned i = 0; i < KFIT_GPU_CEILING_POINTS; i++)
        bytes[i] = (double)c->bytes[i];
    cJSON_AddItemToObject(o, "bytes", cJSON_CreateDoubleArray(bytes, KFIT_GPU_CEILING_POINTS));
    cJSON_AddItemToObject(o, "read_ns", cJSON_CreateDoubleArray(c->read_ns, KFIT_GPU_CEILING_POINTS));
    cJSON_AddItemToObject(o, "copy_ns", cJSON_CreateDoubleArray(c->copy_ns, KFIT_GPU_CEILING_POINTS));
    for (unsigned t = 1; t < KFIT_DTYPE_END; t++)
        if (c->flops_per_ns[t] > 0)
            cJSON_AddNumberToObject(flops, kfit_dtype_name((enum kfit_dtype)t), c->flops_per_ns[t]);
    cJSON_AddItemToObject(o, "flops_per_ns", flops);
    char *text = cJSON_PrintUnformatted(o);
    cJSON_Delete(o);
    return text;
}

static bool numbers(const cJSON *o, const char *name, double out[KFIT_GPU_CEILING_POINTS])
{
    const cJSON *a = cJSON_GetObjectItemCaseSensitive(o, name), *e;
    unsigned n = 0;
    cJSON_ArrayForEach(e, a)
    {
        if (n == KFIT_GPU_CEILING_POINTS || !cJSON_IsNumber(e) || !(e->valuedouble > 0))
            return false;
        out[n++] = e->valuedouble;
    }
    return n == KFIT_GPU_CEILING_POINTS;
}

static bool text(const cJSON *o, const char *name, char *out, size_t size)
{
    const char *v = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, name));
    if (v)
        snprintf(out, size, "%s", v);
    return v && strlen(v) < size;
}

static bool of_json(const char *json, size_t bytes, struct kfit_gpu_ceilings *c)
{
    cJSON *o = cJSON_ParseWithLength(json, bytes);
    const cJSON *flops = cJSON_GetObjectItemCaseSensitive(o, "flops_per_ns");
    double sizes[KFIT_GPU_CEILING_POINTS];
    memset(c, 0, sizeof *c);
    bool ok = cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(o, "version")) == VERSION &&
              text(o, "device", c->device, sizeof c->device) && text(o, "model", c->model, sizeof c->model) &&
              text(o, "arch", c->arch, sizeof c->arch) && text(o, "driver", c->driver, sizeof c->driver) &&
              numbers(o, "bytes", sizes) && numbers(o, "read_ns", c->read_ns) &&
              numbers(o, "copy_ns", c->copy_ns) && cJSON_IsObject(flops);
    for (unsigned i = 0; ok && i < KFIT_GPU_CEILING_POINTS; i++) {
        ok = sizes[i] < 0x1p53 && (!i || sizes[i] > sizes[i - 1]);
        c->bytes[i] = ok ? (uint64_t)sizes[i] : 0;
    }
    for (unsigned t = 1; ok && t < KFIT_DTYPE_END; t++) {
        const cJSON *f = cJSON_GetObjectItemCaseSensitive(flops, kfit_dtype_name((enum kfit_dtype)t));
        ok = !f || (cJSON_IsNumber(f) && f->valuedouble > 0);
        c->flops_per_ns[t] = f && ok ? f->valuedouble : 0;
    }
    double when = ok ? cJSON_GetNumberValue(cJSON_GetObjectItemCaseSensitive(o, "measured_unix")) : 0;
    c->measured_unix_s = when > 0 && when < 0x1p53 ? (int64_t)when : 0;
    cJSON_Delete(o);
    return ok;
}

/* ---- the store ---- */

enum kfit_status kfit_ceilings_load(struct kfit_store *s, struct kfit_gpu_ceilings *c, struct kfit_error *err)
{
    struct kfit_gpu_ceilings found;
    void *value = NULL;
    size_t bytes = 0;
    char key[64];
    enum kfit_status st = kfit_store_get(s, KFIT_TABLE_DEVICES, key, store_key(c->device, key), &value, &bytes, err);
    if (st == KFIT_OK && !of_json(value, bytes, &found))
        st = kfit_fail(err, KFIT_E_FORMAT, "store: the ceilings of %s are damaged", c->device);
    if (st == KFIT_OK && (strcmp(found.device, c->device) || strcmp(found.driver, c->driver) ||
                          strcmp(found.arch, c->arch) || strcmp(found.model, c->model)))
        st = kfit_fail(err, KFIT_E_NOTFOUND, "store: the ceilings of %s were measured on %s, %s, %s", c->device,
                       found.model, found.arch, found.driver);
    if (st == KFIT_OK)
        *c = found;
    free(value);
    return st;
}

enum kfit_status kfit_ceilings_save(struct kfit_store *s, const struct kfit_gpu_ceilings *c, struct kfit_error *err)
{
    char key[64], *json = to_json(c);
    if (!json)
        return kfit_fail(err, KFIT_E_NOMEM, "ceilings: out of memory");
    enum kfit_status st = kfit_store_put(s, KFIT_TABLE_DEVICES, key, store_key(c->device, key), json, strlen(json), err);
    free(json);
    return st;
}

struct walk {
    int (*fn)(void *, const struct kfit_gpu_ceilings *);
    void *ctx;
};

static int walk(void *ctx, const void *key, size_t key_bytes, const void *value, size_t value_bytes, const char *problem)
{
    const struct walk *w = ctx;
    struct kfit_gpu_ceilings c;
    (void)key, (void)key_bytes;
    return !problem && of_json(value, value_bytes, &c) ? w->fn(w->ctx, &c) : 0;
}

enum kfit_status kfit_ceilings_each(struct kfit_store *s, int (*fn)(void *ctx, const struct kfit_gpu_ceilings *c),
                                    void *ctx, struct kfit_error *err)
{
    struct walk w = {fn, ctx};
    return kfit_store_each(s, KFIT_TABLE_DEVICES, PREFIX, sizeof PREFIX - 1, walk, &w, err);
}

/* ---- the bound ---- */

double kfit_ceilings_at(const struct kfit_gpu_ceilings *c, const double ns[KFIT_GPU_CEILING_POINTS], double bytes)
{
    unsigned i = 1;
    while (i + 1 < KFIT_GPU_CEILING_POINTS && bytes > (double)c->bytes[i])
        i++;
    double from = (double)c->bytes[i - 1], to = (double)c->bytes[i], at = (bytes - from) / (to - from);
    return ns[i - 1] + (at > 0 ? at : 0) * (ns[i] - ns[i - 1]);
}

double kfit_ceilings_bound_ns(const struct kfit_gpu_ceilings *c, const union kfit_key *key)
{
    const struct kfit_op *op = kfit_op_of(key);
    struct kfit_tensor t;
    op->tensor(key, 0, &t);
    double by_bytes = kfit_ceilings_at(c, c->read_ns, op->bytes(key)), rate = c->flops_per_ns[t.type],
           by_flops = rate > 0 ? op->flops(key) / rate : 0;
    return by_bytes > by_flops ? by_bytes : by_flops;
}
