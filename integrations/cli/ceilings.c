/* What the GPUs of a store were measured to do at most, for people. */
#include <stdio.h>

#include "ceilings.h"

static void curve(char *out, size_t size, const char *name, const struct kfit_gpu_ceilings *c,
                  const double *ns)
{
    static const double bytes[] = {1e5, 1e6, 1e7, 1e8};
    size_t n = (size_t)snprintf(out, size, "%s", name);
    for (unsigned i = 0; i < sizeof bytes / sizeof *bytes && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s %g MB in %s", i ? "," : "", bytes[i] / 1e6,
                              cli_ns(kfit_ceilings_at(c, ns, bytes[i])));
    unsigned last = KFIT_GPU_CEILING_POINTS - 1;
    if (n < size)
        snprintf(out + n, size - n, ", %.2f TB/s at %.0f MB", (double)c->bytes[last] / ns[last] / 1e3,
                 (double)c->bytes[last] / 1e6);
}

void cli_ceilings_text(const struct kfit_gpu_ceilings *c, char *out, size_t size)
{
    char read[200], copy[200];
    curve(read, sizeof read, "read", c, c->read_ns);
    curve(copy, sizeof copy, "copy", c, c->copy_ns);
    size_t n = (size_t)snprintf(out, size, "%s, %s, %s, %s: %s; %s", c->device, c->model, c->arch, c->driver,
                                read, copy);
    for (unsigned t = 1; t < KFIT_DTYPE_END; t++)
        if (c->flops_per_ns[t] > 0 && n < size)
            n += (size_t)snprintf(out + n, size - n, "; %s %.1f TFLOP/s", kfit_dtype_name((enum kfit_dtype)t),
                                  c->flops_per_ns[t] / 1e3);
}
