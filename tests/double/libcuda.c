#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cuda.h"

struct gpu gpu;

/* ---- settings ---- */

static const char *settings(void)
{
    static char text[4096];
    char path[512];
    if (text[0])
        return text;
    strcpy(text, "\n");
    const char *home = getenv("HOME");
    snprintf(path, sizeof path, "%s/kfit-double", home ? home : "");
    FILE *f = fopen(path, "r");
    if (f) {
        size_t n = fread(text + 1, 1, sizeof text - 2, f);
        text[1 + n] = '\0';
        fclose(f);
    }
    return text;
}

const char *kfit_double_text(const char *name, const char *otherwise)
{
    static char value[64];
    char line[64];
    if (!settings()[1])
        return otherwise;
    snprintf(line, sizeof line, "\n%s ", name);
    const char *p = strstr(settings(), line);
    if (!p)
        return otherwise;
    p += strlen(line);
    snprintf(value, sizeof value, "%.*s", (int)strcspn(p, "\n"), p);
    return value;
}

double kfit_double_number(const char *name, double otherwise)
{
    const char *v = kfit_double_text(name, NULL);
    return v ? atof(v) : otherwise;
}

/* ---- faults ---- */

static sigjmp_buf back;
static volatile sig_atomic_t inside; /* device code, or a copy */

static void fault(int number)
{
    if (inside)
        siglongjmp(back, 1);
    signal(number, SIG_DFL); /* somebody else's: let it happen again */
}

static void catch_faults(void)
{
    struct sigaction on = {.sa_handler = fault, .sa_flags = SA_NODEFER};
    sigaction(SIGSEGV, &on, NULL);
    sigaction(SIGBUS, &on, NULL);
}

void guarded(void (*f)(const void *), const void *arg)
{
    if (gpu.sticky || gpu.hung)
        return;
    inside = 1;
    if (sigsetjmp(back, 0))
        gpu.sticky = KFIT_CU_ILLEGAL_ADDRESS;
    else
        f(arg);
    inside = 0;
}

void device_hang(void)
{
    gpu.hung = true;
}

/* ---- the device ---- */

/* A forked child has no GPU, whatever it inherits. */
static void forked(void)
{
    gpu.ready = false;
    gpu.forked = true;
}

kfit_cu_result cuInit(unsigned flags)
{
    (void)flags;
    if (gpu.forked)
        return NOT_INITIALIZED;
    if (!gpu.ready)
        pthread_atfork(NULL, NULL, forked);
    if (!gpu.ready)
        gpu.used = (size_t)kfit_double_number("others", 0);
    gpu.ready = true;
    catch_faults();
    return kfit_double_number("gpus", 1) > 0 ? 0 : KFIT_CU_NO_DEVICE;
}

kfit_cu_result cuDriverGetVersion(int *version)
{
    *version = (int)kfit_double_number("driver", 13000);
    return 0;
}

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {0, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {KFIT_CU_OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {KFIT_CU_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {KFIT_CU_NO_BINARY_FOR_GPU, "CUDA_ERROR_NO_BINARY_FOR_GPU", "no kernel image is available for execution on the device"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {KFIT_CU_NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {KFIT_CU_ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {KFIT_CU_LAUNCH_OUT_OF_RESOURCES, "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES", "too many resources requested for launch"},
    {KFIT_CU_LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {COOPERATIVE_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {KFIT_CU_CAPTURING, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CLUSTER_SIZE, "CUDA_ERROR_INVALID_CLUSTER_SIZE", "cluster misconfiguration"},
};

static kfit_cu_result of_error(kfit_cu_result r, const char **out, bool name)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].code == r)
            return *out = name ? errors[i].name : errors[i].text, 0;
    return *out = NULL, INVALID_VALUE;
}

kfit_cu_result cuGetErrorName(kfit_cu_result r, const char **name)
{
    return of_error(r, name, true);
}

kfit_cu_result cuGetErrorString(kfit_cu_result r, const char **text)
{
    return of_error(r, text, false);
}

kfit_cu_result cuDeviceGetCount(int *count)
{
    *count = (int)kfit_double_number("gpus", 1);
    return gpu.ready ? 0 : NOT_INITIALIZED;
}

kfit_cu_result cuDeviceGet(kfit_cu_device *device, int ordinal)
{
    *device = ordinal;
    return ordinal < kfit_double_number("gpus", 1) ? 0 : 101;
}

kfit_cu_result cuDeviceGetName(char *name, int bytes, kfit_cu_device d)
{
    (void)d;
    snprintf(name, (size_t)bytes, "kfit test double");
    return 0;
}

kfit_cu_result cuDeviceGetUuid_v2(struct kfit_cu_uuid *uuid, kfit_cu_device d)
{
    memset(uuid, (int)kfit_double_number("uuid", 0xd0) + d, sizeof *uuid);
    return 0;
}

kfit_cu_result cuDeviceGetAttribute(int *value, int attribute, kfit_cu_device d)
{
    int cc = (int)kfit_double_number("cc", 90);
    (void)d;
    switch (attribute) {
    case KFIT_CU_ATTR_MULTIPROCESSOR_COUNT: *value = (int)kfit_double_number("sms", 4); return 0;
    case KFIT_CU_ATTR_L2_CACHE_SIZE: *value = (int)kfit_double_number("l2", 65536); return 0;
    case KFIT_CU_ATTR_COMPUTE_CAPABILITY_MAJOR: *value = cc / 10; return 0;
    case KFIT_CU_ATTR_COMPUTE_CAPABILITY_MINOR: *value = cc % 10; return 0;
    case KFIT_CU_ATTR_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: *value = (int)kfit_double_number("smem", 232448); return 0;
    default: return INVALID_VALUE;
    }
}

/* The address first, which is what kernels here read; the rest only so that a wrong one is refused as there. */
kfit_cu_result cuTensorMapEncodeTiled(struct kfit_cu_tensormap *out, int type, unsigned rank, void *at, const uint64_t *dims,
                                      const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides,
                                      int interleave, int swizzle, int promotion, int fill)
{
    static const unsigned size[] = {[KFIT_CU_TENSOR_F16] = 2, [KFIT_CU_TENSOR_F32] = 4, [KFIT_CU_TENSOR_F64] = 8,
                                    [KFIT_CU_TENSOR_BF16] = 2};
    bool ok = type >= KFIT_CU_TENSOR_F16 && type <= KFIT_CU_TENSOR_BF16 && (rank == 2 || rank == 3) && (uintptr_t)at % 16 == 0 &&
              (uintptr_t)out % 64 == 0 && !interleave && swizzle >= 0 && swizzle <= 3 && promotion >= 0 && !fill &&
              (box[0] * size[type]) % 16 == 0 && (!swizzle || box[0] * size[type] <= 16u << swizzle);
    for (unsigned i = 0; ok && i < rank; i++)
        ok = dims[i] - 1 < UINT32_MAX && box[i] - 1 < 256 && element_strides[i] == 1 && (!i || strides[i - 1] % 16 == 0);
    if (!ok)
        return INVALID_VALUE;
    memset(out, 0, sizeof *out);
    memcpy(out->bytes, &at, sizeof at);
    return 0;
}

size_t memory(void)
{
    return (size_t)kfit_double_number("memory", 4e9);
}

kfit_cu_result cuDeviceTotalMem_v2(size_t *bytes, kfit_cu_device d)
{
    (void)d;
    *bytes = memory();
    return 0;
}

/* ---- contexts ---- */

__thread struct CUctx_st *current;
static struct CUctx_st primary[GPUS_MAX];

static bool no_gpu(kfit_cu_device d)
{
    return d < 0 || d >= GPUS_MAX || d >= kfit_double_number("gpus", 1);
}

kfit_cu_result cuDevicePrimaryCtxRetain(kfit_cu_context *context, kfit_cu_device d)
{
    if (!gpu.ready || no_gpu(d))
        return NOT_INITIALIZED;
    primary[d] = (struct CUctx_st){d, true, true};
    *context = &primary[d];
    return 0;
}

kfit_cu_result cuDevicePrimaryCtxRelease_v2(kfit_cu_device d)
{
    (void)d;
    return 0;
}

kfit_cu_result cuDevicePrimaryCtxGetState(kfit_cu_device d, unsigned *flags, int *active)
{
    if (!gpu.ready || no_gpu(d))
        return NOT_INITIALIZED;
    *flags = 0;
    *active = primary[d].active;
    return 0;
}

kfit_cu_result cuCtxCreate_v2(kfit_cu_context *context, unsigned flags, kfit_cu_device d)
{
    (void)flags;
    if (!gpu.ready || no_gpu(d))
        return NOT_INITIALIZED;
    *context = current = calloc(1, sizeof *current);
    if (current)
        current->device = d;
    return current ? 0 : KFIT_CU_OUT_OF_MEMORY;
}

kfit_cu_result cuCtxSetCurrent(kfit_cu_context context)
{
    current = context;
    return gpu.sticky;
}

kfit_cu_result cuCtxGetCurrent(kfit_cu_context *context)
{
    *context = current;
    return gpu.ready ? 0 : NOT_INITIALIZED;
}

kfit_cu_result cuCtxGetDevice(kfit_cu_device *d)
{
    if (!gpu.ready || !current)
        return INVALID_CONTEXT;
    *d = current->device;
    return 0;
}

kfit_cu_result wait_for_all(void)
{
    ENTER_UNCAPTURED;
    while (gpu.hung)
        pause();
    return 0;
}

kfit_cu_result cuCtxSynchronize(void)
{
    return wait_for_all();
}

kfit_cu_result cuCtxResetPersistingL2Cache(void)
{
    ENTER;
    return 0;
}
