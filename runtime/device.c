#include <string.h>

#include "kfit/device.h"

static const struct kfit_device *const devices[] = {&kfit_device_host, &kfit_device_cuda};

const struct kfit_device *kfit_device_by_name(const char *name)
{
    for (size_t i = 0; i < sizeof devices / sizeof *devices; i++)
        if (!strcmp(devices[i]->name, name))
            return devices[i];
    return NULL;
}
