/* kfit/cuda.h against NVIDIA's own header: every type, value and signature that we wrote out. */
#include "kfit_test.h"

#include <cuda.h>

#include "kfit/cuda.h"

#define SAME_SIZE(ours, theirs)     _Static_assert(sizeof(ours) == sizeof(theirs), #ours)
#define SAME_AT(ours, a, theirs, b) _Static_assert(offsetof(ours, a) == offsetof(theirs, b), #ours "." #a)

SAME_SIZE(kfit_cu_result, CUresult);
SAME_SIZE(kfit_cu_device, CUdevice);
SAME_SIZE(kfit_cu_ptr, CUdeviceptr);
SAME_SIZE(kfit_cu_mem, CUmemGenericAllocationHandle);
SAME_SIZE(struct kfit_cu_launch_attribute, CUlaunchAttribute);
SAME_AT(struct kfit_cu_launch_attribute, value, CUlaunchAttribute, value);
SAME_AT(struct kfit_cu_launch_attribute, value.cluster.y, CUlaunchAttribute, value.clusterDim.y);
SAME_SIZE(struct kfit_cu_launch_config, CUlaunchConfig);
SAME_AT(struct kfit_cu_launch_config, block, CUlaunchConfig, blockDimX);
SAME_AT(struct kfit_cu_launch_config, smem_bytes, CUlaunchConfig, sharedMemBytes);
SAME_AT(struct kfit_cu_launch_config, stream, CUlaunchConfig, hStream);
SAME_AT(struct kfit_cu_launch_config, attr_count, CUlaunchConfig, numAttrs);
SAME_SIZE(struct kfit_cu_mem_prop, CUmemAllocationProp);
SAME_AT(struct kfit_cu_mem_prop, location, CUmemAllocationProp, location);
SAME_AT(struct kfit_cu_mem_prop, flags, CUmemAllocationProp, allocFlags);
SAME_SIZE(struct kfit_cu_mem_access, CUmemAccessDesc);
SAME_AT(struct kfit_cu_mem_access, flags, CUmemAccessDesc, flags);
SAME_SIZE(struct kfit_cu_uuid, CUuuid);

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(KFIT_CU_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY);
SAME(KFIT_CU_NO_DEVICE, CUDA_ERROR_NO_DEVICE);
SAME(KFIT_CU_NO_BINARY_FOR_GPU, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME(KFIT_CU_NOT_READY, CUDA_ERROR_NOT_READY);
SAME(KFIT_CU_ILLEGAL_ADDRESS, CUDA_ERROR_ILLEGAL_ADDRESS);
SAME(KFIT_CU_LAUNCH_OUT_OF_RESOURCES, CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
SAME(KFIT_CU_LAUNCH_FAILED, CUDA_ERROR_LAUNCH_FAILED);
SAME(KFIT_CU_ATTR_MULTIPROCESSOR_COUNT, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME(KFIT_CU_ATTR_L2_CACHE_SIZE, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
SAME(KFIT_CU_ATTR_COMPUTE_CAPABILITY_MAJOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME(KFIT_CU_ATTR_COMPUTE_CAPABILITY_MINOR, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME(KFIT_CU_ATTR_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME(KFIT_CU_FUNC_SHARED_BYTES, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME(KFIT_CU_FUNC_LOCAL_BYTES, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME(KFIT_CU_FUNC_NUM_REGS, CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME(KFIT_CU_FUNC_MAX_DYNAMIC_SHARED, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME(KFIT_CU_FUNC_NON_PORTABLE_CLUSTER, CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
SAME(KFIT_CU_LAUNCH_COOPERATIVE, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
SAME(KFIT_CU_LAUNCH_CLUSTER, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME(KFIT_CU_STREAM_NON_BLOCKING, CU_STREAM_NON_BLOCKING);
SAME(KFIT_CU_CAPTURE_THREAD_LOCAL, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME(KFIT_CU_CAPTURE_RELAXED, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME(1, CU_MEM_LOCATION_TYPE_DEVICE);
SAME(1, CU_MEM_ALLOCATION_TYPE_PINNED);
SAME(3, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);

/* The header's macros turn each base name into the versioned symbol it declares; ours must be that symbol. */
#define TEXT(x)  TEXT_(x)
#define TEXT_(x) #x
static const struct {
    const char *ours, *theirs;
} names[] = {
    {"cuDeviceGetUuid_v2", TEXT(cuDeviceGetUuid)},
    {"cuDeviceTotalMem_v2", TEXT(cuDeviceTotalMem)},
    {"cuDevicePrimaryCtxRelease_v2", TEXT(cuDevicePrimaryCtxRelease)},
    {"cuMemGetInfo_v2", TEXT(cuMemGetInfo)},
    {"cuMemAlloc_v2", TEXT(cuMemAlloc)},
    {"cuMemFree_v2", TEXT(cuMemFree)},
    {"cuMemcpyHtoDAsync_v2", TEXT(cuMemcpyHtoDAsync)},
    {"cuMemcpyDtoHAsync_v2", TEXT(cuMemcpyDtoHAsync)},
    {"cuMemcpyDtoDAsync_v2", TEXT(cuMemcpyDtoDAsync)},
    {"cuStreamDestroy_v2", TEXT(cuStreamDestroy)},
    {"cuStreamBeginCapture_v2", TEXT(cuStreamBeginCapture)},
    {"cuEventDestroy_v2", TEXT(cuEventDestroy)},
    /* the newest that the shim hooks */
    {"cuGraphInstantiateWithFlags", TEXT(cuGraphInstantiate)},
    {"cuGraphExecUpdate_v2", TEXT(cuGraphExecUpdate)},
    {"cuGraphAddKernelNode_v2", TEXT(cuGraphAddKernelNode)},
    {"cuGraphAddNode_v2", TEXT(cuGraphAddNode)},
    {"cuGetProcAddress_v2", TEXT(cuGetProcAddress)},
    {"cuCtxDestroy_v2", TEXT(cuCtxDestroy)},
    {"cuDevicePrimaryCtxReset_v2", TEXT(cuDevicePrimaryCtxReset)},
    {"cuLaunchKernelEx", TEXT(cuLaunchKernelEx)},
};

static void symbols_are_the_versions_the_header_means(void)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        CHECK_STR(names[i].ours, names[i].theirs);
}

static void launch_config_bytes(void)
{
    /* The same launch written through both declarations gives the same bytes. */
    CUlaunchAttribute attr;
    struct kfit_cu_launch_attribute our_attr;
    memset(&attr, 0, sizeof attr);
    memset(&our_attr, 0, sizeof our_attr);
    attr.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attr.value.clusterDim.x = 4, attr.value.clusterDim.y = 2, attr.value.clusterDim.z = 1;
    our_attr.id = KFIT_CU_LAUNCH_CLUSTER;
    our_attr.value.cluster.x = 4, our_attr.value.cluster.y = 2, our_attr.value.cluster.z = 1;
    CHECK(!memcmp(&attr, &our_attr, sizeof attr));
    CUlaunchConfig config;
    struct kfit_cu_launch_config ours;
    memset(&config, 0, sizeof config);
    memset(&ours, 0, sizeof ours);
    config.gridDimX = 1, config.gridDimY = 2, config.gridDimZ = 3;
    config.blockDimX = 4, config.blockDimY = 5, config.blockDimZ = 6;
    config.sharedMemBytes = 7, config.numAttrs = 8;
    for (unsigned i = 0; i < 3; i++)
        ours.grid[i] = i + 1, ours.block[i] = i + 4;
    ours.smem_bytes = 7, ours.attr_count = 8;
    CHECK(!memcmp(&config, &ours, sizeof config));
}

static void without_a_driver_the_message_says_so(void)
{
    const struct kfit_cuda *cu;
    struct kfit_error err = {0};
    enum kfit_status s = kfit_cuda_load(&cu, &err);
    if (s == KFIT_OK)
        SKIP("this machine has an NVIDIA driver");
    CHECK_STATUS(s, KFIT_E_UNSUPPORTED);
    CHECK(strstr(err.text, "NVIDIA driver") || strstr(err.text, "lacks"));
}

static const struct kfit_test tests[] = {
    TEST(symbols_are_the_versions_the_header_means),
    TEST(launch_config_bytes),
    TEST(without_a_driver_the_message_says_so),
};
TEST_MAIN(tests)
