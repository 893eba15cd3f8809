/* The shim's list of the driver's functions against NVIDIA's own: each row's name and version are those of a published
 * type, and that takes what the wrapper has. A parameter too many, too few or of another width does not compile. */
#define __CUDA_API_VERSION_INTERNAL /* the types of old versions, too */
#include <cuda.h>
#include <cudaTypedefs.h>

#include "driver_hooks.h"
#include "kfit/cuda.h"
#include "kfit_test.h"

#pragma GCC diagnostic error "-Wconversion"
#pragma GCC diagnostic error "-Wint-conversion"
#pragma GCC diagnostic ignored "-Wsign-conversion" /* enums */
#pragma GCC diagnostic ignored "-Wincompatible-pointer-types"
#pragma GCC diagnostic ignored "-Wdiscarded-qualifiers"
#pragma GCC diagnostic ignored "-Wenum-conversion"

/* One form of each: both have the same parameters. */
#undef KFIT_BOTH
#define KFIT_BOTH(X, symbol, asked, since, params, args, before, after)                                      \
    X(symbol, 0, asked, since, params, args, before, after)

#define X(symbol, flags, asked, since, params, args, before, after)                                          \
    static PFN_##asked##_v##since theirs_##symbol;                                                           \
    __attribute__((unused)) static CUresult call_##symbol params                                             \
    {                                                                                                        \
        return theirs_##symbol args;                                                                         \
    }
KFIT_DRIVER_LIST(X)
#undef X

/* As graphs.c reads them. */
static void parameters_of_nodes(void)
{
    CHECK_INT(offsetof(CUDA_KERNEL_NODE_PARAMS_v1, func), 0);
    CHECK_INT(offsetof(CUDA_KERNEL_NODE_PARAMS_v2, func), 0);
    CHECK_INT(offsetof(CUDA_KERNEL_NODE_PARAMS_v2, kern), 56);
    CHECK_INT(offsetof(CUDA_KERNEL_NODE_PARAMS_v3, kern), 56);
    CHECK_INT(offsetof(CUgraphNodeParams, kernel), 16);
    CHECK_INT(offsetof(CUgraphNodeParams, graph) + offsetof(CUDA_CHILD_GRAPH_NODE_PARAMS, graph), 16);
    CHECK_INT(CU_GRAPH_NODE_TYPE_KERNEL, 0);
    CHECK_INT(CU_GRAPH_NODE_TYPE_GRAPH, 4);
    CHECK_INT(CU_STREAM_CAPTURE_STATUS_ACTIVE, 1);
    CHECK_INT(CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM, KFIT_PTSZ);
    CHECK_INT((intptr_t)CU_STREAM_PER_THREAD, 2);
    CHECK_INT((intptr_t)CU_STREAM_LEGACY, 1);
}

static const struct kfit_test tests[] = {
    TEST(parameters_of_nodes),
};
TEST_MAIN(tests)
