/* kfit/cuda.h - the CUDA Driver API, opened at run time.
 *
 * The few declarations we use are written out here, so that kfit builds the same with and without CUDA
 * headers; where the headers are installed, tests/test_cuda_abi.c compares every type, value and signature
 * with them. Symbols are those of driver 12.6 and newer. One list makes the table and its loader.
 *
 * Thread-safety: kfit_cuda_load may be called from any thread; the table is constant afterwards.
 */
#ifndef KFIT_CUDA_H
#define KFIT_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kfit/status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef int kfit_cu_result; /* 0 is success */
typedef int kfit_cu_device;
typedef unsigned long long kfit_cu_ptr, kfit_cu_mem;
typedef struct CUctx_st *kfit_cu_context;
typedef struct CUstream_st *kfit_cu_stream;
typedef struct CUevent_st *kfit_cu_event;
typedef struct CUgraph_st *kfit_cu_graph;
typedef struct CUgraphExec_st *kfit_cu_exec;
typedef struct CUlib_st *kfit_cu_library;
typedef struct CUkern_st *kfit_cu_kernel;
typedef struct CUfunc_st *kfit_cu_function;

enum {
    KFIT_CU_OUT_OF_MEMORY = 2,
    KFIT_CU_NO_DEVICE = 100,
    KFIT_CU_NO_BINARY_FOR_GPU = 209,
    KFIT_CU_NOT_READY = 600,
    KFIT_CU_ILLEGAL_ADDRESS = 700,
    KFIT_CU_LAUNCH_OUT_OF_RESOURCES = 701,
    KFIT_CU_LAUNCH_FAILED = 719,
    KFIT_CU_CAPTURING = 900, /* not allowed while a stream captures */
};
/* CUdevice_attribute */
enum {
    KFIT_CU_ATTR_MULTIPROCESSOR_COUNT = 16,
    KFIT_CU_ATTR_L2_CACHE_SIZE = 38,
    KFIT_CU_ATTR_COMPUTE_CAPABILITY_MAJOR = 75,
    KFIT_CU_ATTR_COMPUTE_CAPABILITY_MINOR = 76,
    KFIT_CU_ATTR_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};
/* CUfunction_attribute */
enum {
    KFIT_CU_FUNC_SHARED_BYTES = 1,
    KFIT_CU_FUNC_LOCAL_BYTES = 3,
    KFIT_CU_FUNC_NUM_REGS = 4,
    KFIT_CU_FUNC_MAX_DYNAMIC_SHARED = 8,
    KFIT_CU_FUNC_NON_PORTABLE_CLUSTER = 14,
};
enum { KFIT_CU_LAUNCH_COOPERATIVE = 2, KFIT_CU_LAUNCH_CLUSTER = 4 };
enum { KFIT_CU_STREAM_NON_BLOCKING = 1, KFIT_CU_CAPTURE_THREAD_LOCAL = 1, KFIT_CU_CAPTURE_RELAXED = 2 };

struct kfit_cu_launch_attribute {
    int id;
    char pad[4];
    union {
        char bytes[64];
        int cooperative;
        struct {
            unsigned x, y, z;
        } cluster;
    } value;
};
struct kfit_cu_launch_config {
    unsigned grid[3], block[3], smem_bytes;
    kfit_cu_stream stream;
    struct kfit_cu_launch_attribute *attrs;
    unsigned attr_count;
};
struct kfit_cu_location {
    int type; /* 1: device */
    int id;
};
struct kfit_cu_mem_prop {
    int type; /* 1: pinned */
    int handle_types;
    struct kfit_cu_location location;
    void *win32;
    unsigned char flags[8];
};
struct kfit_cu_mem_access {
    struct kfit_cu_location location;
    int flags; /* 3: read and write */
};
struct kfit_cu_uuid {
    unsigned char bytes[16];
};

/* A CUtensorMap: what encodes it is the driver's own. */
struct __attribute__((aligned(64))) kfit_cu_tensormap {
    unsigned char bytes[128];
};
enum { KFIT_CU_TENSOR_F16 = 6, KFIT_CU_TENSOR_F32 = 7, KFIT_CU_TENSOR_F64 = 8, KFIT_CU_TENSOR_BF16 = 9 };
enum { KFIT_CU_PROMOTE_L2_128 = 2 };

/* X(member, symbol in libcuda.so.1, arguments) */
#define KFIT_CUDA_LIST(X)                                                                                    \
    X(init, cuInit, (unsigned flags))                                                                        \
    X(driver_version, cuDriverGetVersion, (int *version))                                                    \
    X(error_name, cuGetErrorName, (kfit_cu_result, const char **name))                                       \
    X(error_string, cuGetErrorString, (kfit_cu_result, const char **text))                                   \
    X(device_count, cuDeviceGetCount, (int *count))                                                          \
    X(device_get, cuDeviceGet, (kfit_cu_device * device, int ordinal))                                       \
    X(device_name, cuDeviceGetName, (char *name, int bytes, kfit_cu_device))                                 \
    X(device_uuid, cuDeviceGetUuid_v2, (struct kfit_cu_uuid *, kfit_cu_device))                              \
    X(device_attribute, cuDeviceGetAttribute, (int *value, int attribute, kfit_cu_device))                   \
    X(device_memory, cuDeviceTotalMem_v2, (size_t * bytes, kfit_cu_device))                                  \
    X(context_retain, cuDevicePrimaryCtxRetain, (kfit_cu_context *, kfit_cu_device))                         \
    X(context_release, cuDevicePrimaryCtxRelease_v2, (kfit_cu_device))                                       \
    X(context_state, cuDevicePrimaryCtxGetState, (kfit_cu_device, unsigned *flags, int *active))             \
    X(context_set, cuCtxSetCurrent, (kfit_cu_context))                                                       \
    X(context_current, cuCtxGetCurrent, (kfit_cu_context *))                                                 \
    X(context_device, cuCtxGetDevice, (kfit_cu_device *))                                                    \
    X(context_sync, cuCtxSynchronize, (void))                                                                \
    X(reset_persisting_l2, cuCtxResetPersistingL2Cache, (void))                                              \
    X(library_load, cuLibraryLoadData,                                                                       \
      (kfit_cu_library *, const void *image, int *jit_options, void **jit_values, unsigned jit_count,        \
       int *options, void **values, unsigned count))                                                         \
    X(library_unload, cuLibraryUnload, (kfit_cu_library))                                                    \
    X(library_kernel, cuLibraryGetKernel, (kfit_cu_kernel *, kfit_cu_library, const char *name))             \
    X(kernel_function, cuKernelGetFunction, (kfit_cu_function *, kfit_cu_kernel))                            \
    X(encode_tiled, cuTensorMapEncodeTiled,                                                                  \
      (struct kfit_cu_tensormap *, int type, unsigned rank, void *at, const uint64_t *dims,                  \
       const uint64_t *strides, const uint32_t *box, const uint32_t *element_strides, int interleave,        \
       int swizzle, int promotion, int fill))                                                                \
    X(function_get, cuFuncGetAttribute, (int *value, int attribute, kfit_cu_function))                       \
    X(function_set, cuFuncSetAttribute, (kfit_cu_function, int attribute, int value))                        \
    X(launch, cuLaunchKernelEx,                                                                              \
      (const struct kfit_cu_launch_config *, kfit_cu_function, void **params, void **extra))                 \
    X(mem_info, cuMemGetInfo_v2, (size_t * free, size_t * total))                                            \
    X(mem_alloc, cuMemAlloc_v2, (kfit_cu_ptr *, size_t bytes))                                               \
    X(mem_free, cuMemFree_v2, (kfit_cu_ptr))                                                                 \
    X(copy, cuMemcpy, (kfit_cu_ptr dst, kfit_cu_ptr src, size_t bytes))                                      \
    X(to_device, cuMemcpyHtoDAsync_v2, (kfit_cu_ptr, const void *, size_t bytes, kfit_cu_stream))            \
    X(to_host, cuMemcpyDtoHAsync_v2, (void *, kfit_cu_ptr, size_t bytes, kfit_cu_stream))                    \
    X(on_device, cuMemcpyDtoDAsync_v2, (kfit_cu_ptr, kfit_cu_ptr, size_t bytes, kfit_cu_stream))             \
    X(set32, cuMemsetD32Async, (kfit_cu_ptr, unsigned value, size_t count, kfit_cu_stream))                  \
    X(vm_granularity, cuMemGetAllocationGranularity,                                                         \
      (size_t * bytes, const struct kfit_cu_mem_prop *, int option))                                         \
    X(vm_reserve, cuMemAddressReserve,                                                                       \
      (kfit_cu_ptr *, size_t bytes, size_t alignment, kfit_cu_ptr hint, unsigned long long flags))           \
    X(vm_release_address, cuMemAddressFree, (kfit_cu_ptr, size_t bytes))                                     \
    X(vm_create, cuMemCreate,                                                                                \
      (kfit_cu_mem *, size_t bytes, const struct kfit_cu_mem_prop *, unsigned long long flags))              \
    X(vm_release, cuMemRelease, (kfit_cu_mem))                                                               \
    X(vm_map, cuMemMap, (kfit_cu_ptr, size_t bytes, size_t offset, kfit_cu_mem, unsigned long long flags))   \
    X(vm_unmap, cuMemUnmap, (kfit_cu_ptr, size_t bytes))                                                     \
    X(vm_access, cuMemSetAccess, (kfit_cu_ptr, size_t bytes, const struct kfit_cu_mem_access *, size_t n))   \
    X(stream_create, cuStreamCreate, (kfit_cu_stream *, unsigned flags))                                     \
    X(stream_destroy, cuStreamDestroy_v2, (kfit_cu_stream))                                                  \
    X(stream_sync, cuStreamSynchronize, (kfit_cu_stream))                                                    \
    X(stream_query, cuStreamQuery, (kfit_cu_stream))                                                         \
    X(capture_mode, cuThreadExchangeStreamCaptureMode, (int *mode))                                          \
    X(capture_begin, cuStreamBeginCapture_v2, (kfit_cu_stream, int mode))                                    \
    X(capture_end, cuStreamEndCapture, (kfit_cu_stream, kfit_cu_graph *))                                    \
    X(event_create, cuEventCreate, (kfit_cu_event *, unsigned flags))                                        \
    X(event_destroy, cuEventDestroy_v2, (kfit_cu_event))                                                     \
    X(event_record, cuEventRecord, (kfit_cu_event, kfit_cu_stream))                                          \
    X(event_query, cuEventQuery, (kfit_cu_event))                                                            \
    X(event_sync, cuEventSynchronize, (kfit_cu_event))                                                       \
    X(event_elapsed, cuEventElapsedTime, (float *ms, kfit_cu_event start, kfit_cu_event end))                \
    X(graph_destroy, cuGraphDestroy, (kfit_cu_graph))                                                        \
    X(graph_instantiate, cuGraphInstantiateWithFlags, (kfit_cu_exec *, kfit_cu_graph, unsigned long long))   \
    X(graph_launch, cuGraphLaunch, (kfit_cu_exec, kfit_cu_stream))                                           \
    X(graph_upload, cuGraphUpload, (kfit_cu_exec, kfit_cu_stream))                                           \
    X(exec_destroy, cuGraphExecDestroy, (kfit_cu_exec))

struct kfit_cuda {
#define KFIT_X(member, symbol, args) kfit_cu_result(*member) args;
    KFIT_CUDA_LIST(KFIT_X)
#undef KFIT_X
};

/* Opens libcuda.so.1 and fills the table once per process. KFIT_E_UNSUPPORTED: no driver, or one too old
 * (names the first missing symbol). Does not call cuInit. */
enum kfit_status kfit_cuda_load(const struct kfit_cuda **out, struct kfit_error *err);

/* "GPU-" and the UUID of device 0 as CUDA_VISIBLE_DEVICES orders them; of the MIG instance, if it is one. Makes no context:
 * asking does not disturb who measures there. KFIT_E_UNSUPPORTED: no driver, no GPU. */
enum kfit_status kfit_cuda_identify(char id[48], struct kfit_error *err);

/* For a guest in a process that uses a GPU: from now on kfit_device_cuda loads into, and launches in, whatever context is
 * current, and what it has loaded stays loaded, since unloading may wait for work. Says which context that is now, and
 * describes its device; *ordinal is as the process counts them. Changes no context and makes none; legal while a stream
 * captures, and so are the device's add, seal and launch. KFIT_E_UNSUPPORTED: no driver, no current context, or one that
 * is not its device's primary context. */
struct kfit_device_info;
enum kfit_status kfit_cuda_attach(kfit_cu_context *context, kfit_cu_device *ordinal, struct kfit_device_info *info,
                                  struct kfit_error *err);

/* Whether a launch of k has this function (or CUkernel); *params: how many parameters it has, of which the workspace is the
 * k->nargs-th. Any thread. */
struct kfit_kernel;
bool kfit_cuda_launches(const struct kfit_kernel *k, const void *function, unsigned *params);
/* How many launches a run of k is. Any thread. */
unsigned kfit_cuda_launch_count(const struct kfit_kernel *k);

/* Turns a failed call into a status and a text: "cuMemAlloc_v2: CUDA_ERROR_OUT_OF_MEMORY (out of memory)". what: the
 * driver's name of the function, or a call of the table's member as written, "mem_alloc(&p, 1)". */
enum kfit_status kfit_cuda_fail(const struct kfit_cuda *cu, kfit_cu_result r, const char *what,
                                struct kfit_error *err);

#ifdef __cplusplus
}
#endif
#endif
