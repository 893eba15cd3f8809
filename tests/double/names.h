/* The rest of libcuda's exports (of CUDA 13.1's): names only, so that asking for all of them is as on the real thing. */
#ifndef KFIT_TEST_DOUBLE_NAMES_H
#define KFIT_TEST_DOUBLE_NAMES_H

/* clang-format off */
#define DOUBLE_NAMES(X) \
    X(cuArray3DCreate) X(cuArray3DCreate_v2) X(cuArray3DGetDescriptor) X(cuArray3DGetDescriptor_v2)        \
    X(cuArrayCreate) X(cuArrayCreate_v2) X(cuArrayDestroy) X(cuArrayGetDescriptor)                         \
    X(cuArrayGetDescriptor_v2) X(cuArrayGetMemoryRequirements) X(cuArrayGetPlane)                          \
    X(cuArrayGetSparseProperties) X(cuCheckpointProcessCheckpoint)                                         \
    X(cuCheckpointProcessGetRestoreThreadId) X(cuCheckpointProcessGetState) X(cuCheckpointProcessLock)     \
    X(cuCheckpointProcessRestore) X(cuCheckpointProcessUnlock) X(cuCoredumpGetAttribute)                   \
    X(cuCoredumpGetAttributeGlobal) X(cuCoredumpSetAttribute) X(cuCoredumpSetAttributeGlobal)              \
    X(cuCtxAttach) X(cuCtxCreate) X(cuCtxCreate_v3) X(cuCtxCreate_v4) X(cuCtxDetach)                       \
    X(cuCtxDisablePeerAccess) X(cuCtxEnablePeerAccess) X(cuCtxFromGreenCtx) X(cuCtxGetApiVersion)          \
    X(cuCtxGetCacheConfig) X(cuCtxGetDevResource) X(cuCtxGetDevice_v2) X(cuCtxGetExecAffinity)             \
    X(cuCtxGetFlags) X(cuCtxGetId) X(cuCtxGetLimit) X(cuCtxGetSharedMemConfig)                             \
    X(cuCtxGetStreamPriorityRange) X(cuCtxPopCurrent) X(cuCtxPopCurrent_v2) X(cuCtxPushCurrent)            \
    X(cuCtxPushCurrent_v2) X(cuCtxRecordEvent) X(cuCtxSetCacheConfig) X(cuCtxSetFlags) X(cuCtxSetLimit)    \
    X(cuCtxSetSharedMemConfig) X(cuCtxSynchronize_v2) X(cuCtxWaitEvent) X(cuDestroyExternalMemory)         \
    X(cuDestroyExternalSemaphore) X(cuDevResourceGenerateDesc) X(cuDevSmResourceSplitByCount)              \
    X(cuDeviceCanAccessPeer) X(cuDeviceComputeCapability) X(cuDeviceGetByPCIBusId)                         \
    X(cuDeviceGetDefaultMemPool) X(cuDeviceGetDevResource) X(cuDeviceGetExecAffinitySupport)               \
    X(cuDeviceGetGraphMemAttribute) X(cuDeviceGetHostAtomicCapabilities) X(cuDeviceGetLuid)                \
    X(cuDeviceGetMemPool) X(cuDeviceGetNvSciSyncAttributes) X(cuDeviceGetP2PAtomicCapabilities)            \
    X(cuDeviceGetP2PAttribute) X(cuDeviceGetPCIBusId) X(cuDeviceGetProperties)                             \
    X(cuDeviceGetTexture1DLinearMaxWidth) X(cuDeviceGetUuid) X(cuDeviceGraphMemTrim)                       \
    X(cuDevicePrimaryCtxRelease) X(cuDevicePrimaryCtxSetFlags) X(cuDevicePrimaryCtxSetFlags_v2)            \
    X(cuDeviceRegisterAsyncNotification) X(cuDeviceSetGraphMemAttribute) X(cuDeviceSetMemPool)             \
    X(cuDeviceTotalMem) X(cuDeviceUnregisterAsyncNotification) X(cuEventDestroy) X(cuEventElapsedTime_v2)  \
    X(cuEventRecordWithFlags) X(cuEventRecordWithFlags_ptsz) X(cuEventRecord_ptsz)                         \
    X(cuExternalMemoryGetMappedBuffer) X(cuExternalMemoryGetMappedMipmappedArray)                          \
    X(cuFlushGPUDirectRDMAWrites) X(cuFuncGetParamInfo) X(cuFuncIsLoaded) X(cuFuncLoad)                    \
    X(cuFuncSetBlockShape) X(cuFuncSetCacheConfig) X(cuFuncSetSharedMemConfig) X(cuFuncSetSharedSize)      \
    X(cuGetExportTable) X(cuGraphAddBatchMemOpNode) X(cuGraphAddDependencies) X(cuGraphAddDependencies_v2) \
    X(cuGraphAddEmptyNode) X(cuGraphAddEventRecordNode) X(cuGraphAddEventWaitNode)                         \
    X(cuGraphAddExternalSemaphoresSignalNode) X(cuGraphAddExternalSemaphoresWaitNode)                      \
    X(cuGraphAddHostNode) X(cuGraphAddMemAllocNode) X(cuGraphAddMemFreeNode) X(cuGraphAddMemcpyNode)       \
    X(cuGraphAddMemsetNode) X(cuGraphBatchMemOpNodeGetParams) X(cuGraphBatchMemOpNodeSetParams)            \
    X(cuGraphChildGraphNodeGetGraph) X(cuGraphConditionalHandleCreate) X(cuGraphDebugDotPrint)             \
    X(cuGraphDestroyNode) X(cuGraphEventRecordNodeGetEvent) X(cuGraphEventRecordNodeSetEvent)              \
    X(cuGraphEventWaitNodeGetEvent) X(cuGraphEventWaitNodeSetEvent) X(cuGraphExecBatchMemOpNodeSetParams)  \
    X(cuGraphExecChildGraphNodeSetParams) X(cuGraphExecEventRecordNodeSetEvent)                            \
    X(cuGraphExecEventWaitNodeSetEvent) X(cuGraphExecExternalSemaphoresSignalNodeSetParams)                \
    X(cuGraphExecExternalSemaphoresWaitNodeSetParams) X(cuGraphExecGetFlags)                               \
    X(cuGraphExecHostNodeSetParams) X(cuGraphExecKernelNodeSetParams) X(cuGraphExecKernelNodeSetParams_v2) \
    X(cuGraphExecMemcpyNodeSetParams) X(cuGraphExecMemsetNodeSetParams) X(cuGraphExecNodeSetParams)        \
    X(cuGraphExternalSemaphoresSignalNodeGetParams) X(cuGraphExternalSemaphoresSignalNodeSetParams)        \
    X(cuGraphExternalSemaphoresWaitNodeGetParams) X(cuGraphExternalSemaphoresWaitNodeSetParams)            \
    X(cuGraphGetEdges) X(cuGraphGetEdges_v2) X(cuGraphGetNodes) X(cuGraphGetRootNodes)                     \
    X(cuGraphHostNodeGetParams) X(cuGraphHostNodeSetParams) X(cuGraphKernelNodeCopyAttributes)             \
    X(cuGraphKernelNodeGetAttribute) X(cuGraphKernelNodeGetParams) X(cuGraphKernelNodeGetParams_v2)        \
    X(cuGraphKernelNodeSetAttribute) X(cuGraphKernelNodeSetParams) X(cuGraphKernelNodeSetParams_v2)        \
    X(cuGraphMemAllocNodeGetParams) X(cuGraphMemFreeNodeGetParams) X(cuGraphMemcpyNodeGetParams)           \
    X(cuGraphMemcpyNodeSetParams) X(cuGraphMemsetNodeGetParams) X(cuGraphMemsetNodeSetParams)              \
    X(cuGraphNodeFindInClone) X(cuGraphNodeGetDependencies) X(cuGraphNodeGetDependencies_v2)               \
    X(cuGraphNodeGetDependentNodes) X(cuGraphNodeGetDependentNodes_v2) X(cuGraphNodeGetEnabled)            \
    X(cuGraphNodeGetType) X(cuGraphNodeSetEnabled) X(cuGraphNodeSetParams) X(cuGraphReleaseUserObject)     \
    X(cuGraphRemoveDependencies) X(cuGraphRemoveDependencies_v2) X(cuGraphRetainUserObject)                \
    X(cuGraphUpload_ptsz) X(cuGraphicsMapResources) X(cuGraphicsMapResources_ptsz)                         \
    X(cuGraphicsResourceGetMappedMipmappedArray) X(cuGraphicsResourceGetMappedPointer)                     \
    X(cuGraphicsResourceGetMappedPointer_v2) X(cuGraphicsResourceSetMapFlags)                              \
    X(cuGraphicsResourceSetMapFlags_v2) X(cuGraphicsSubResourceGetMappedArray) X(cuGraphicsUnmapResources) \
    X(cuGraphicsUnmapResources_ptsz) X(cuGraphicsUnregisterResource) X(cuGreenCtxCreate)                   \
    X(cuGreenCtxDestroy) X(cuGreenCtxGetDevResource) X(cuGreenCtxGetId) X(cuGreenCtxRecordEvent)           \
    X(cuGreenCtxStreamCreate) X(cuGreenCtxWaitEvent) X(cuImportExternalMemory)                             \
    X(cuImportExternalSemaphore) X(cuIpcCloseMemHandle) X(cuIpcGetEventHandle) X(cuIpcGetMemHandle)        \
    X(cuIpcOpenEventHandle) X(cuIpcOpenMemHandle) X(cuIpcOpenMemHandle_v2) X(cuKernelGetAttribute)         \
    X(cuKernelGetParamInfo) X(cuKernelSetAttribute) X(cuKernelSetCacheConfig) X(cuLaunch)                  \
    X(cuLaunchCooperativeKernelMultiDevice) X(cuLaunchGrid) X(cuLaunchGridAsync) X(cuLaunchHostFunc)       \
    X(cuLaunchHostFunc_ptsz) X(cuLibraryEnumerateKernels) X(cuLibraryGetGlobal) X(cuLibraryGetKernelCount) \
    X(cuLibraryGetManaged) X(cuLibraryGetUnifiedFunction) X(cuLinkAddData) X(cuLinkAddData_v2)             \
    X(cuLinkAddFile) X(cuLinkAddFile_v2) X(cuLinkComplete) X(cuLinkCreate) X(cuLinkCreate_v2)              \
    X(cuLinkDestroy) X(cuLogsCurrent) X(cuLogsDumpToFile) X(cuLogsDumpToMemory) X(cuLogsRegisterCallback)  \
    X(cuLogsUnregisterCallback) X(cuMemAdvise) X(cuMemAdvise_v2) X(cuMemAlloc) X(cuMemAllocAsync)          \
    X(cuMemAllocAsync_ptsz) X(cuMemAllocFromPoolAsync) X(cuMemAllocFromPoolAsync_ptsz) X(cuMemAllocHost)   \
    X(cuMemAllocHost_v2) X(cuMemAllocManaged) X(cuMemAllocPitch) X(cuMemAllocPitch_v2)                     \
    X(cuMemBatchDecompressAsync) X(cuMemBatchDecompressAsync_ptsz) X(cuMemDiscardAndPrefetchBatchAsync)    \
    X(cuMemDiscardAndPrefetchBatchAsync_ptsz) X(cuMemDiscardBatchAsync) X(cuMemDiscardBatchAsync_ptsz)     \
    X(cuMemExportToShareableHandle) X(cuMemFree) X(cuMemFreeAsync) X(cuMemFreeAsync_ptsz) X(cuMemFreeHost) \
    X(cuMemGetAccess) X(cuMemGetAddressRange) X(cuMemGetAddressRange_v2)                                   \
    X(cuMemGetAllocationPropertiesFromHandle) X(cuMemGetDefaultMemPool) X(cuMemGetHandleForAddressRange)   \
    X(cuMemGetInfo) X(cuMemGetMemPool) X(cuMemHostAlloc) X(cuMemHostGetDevicePointer)                      \
    X(cuMemHostGetDevicePointer_v2) X(cuMemHostGetFlags) X(cuMemHostRegister) X(cuMemHostRegister_v2)      \
    X(cuMemHostUnregister) X(cuMemImportFromShareableHandle) X(cuMemMapArrayAsync)                         \
    X(cuMemMapArrayAsync_ptsz) X(cuMemPoolCreate) X(cuMemPoolDestroy) X(cuMemPoolExportPointer)            \
    X(cuMemPoolExportToShareableHandle) X(cuMemPoolGetAccess) X(cuMemPoolGetAttribute)                     \
    X(cuMemPoolImportFromShareableHandle) X(cuMemPoolImportPointer) X(cuMemPoolSetAccess)                  \
    X(cuMemPoolSetAttribute) X(cuMemPoolTrimTo) X(cuMemPrefetchAsync) X(cuMemPrefetchAsync_ptsz)           \
    X(cuMemPrefetchAsync_v2) X(cuMemPrefetchAsync_v2_ptsz) X(cuMemPrefetchBatchAsync)                      \
    X(cuMemPrefetchBatchAsync_ptsz) X(cuMemRangeGetAttribute) X(cuMemRangeGetAttributes)                   \
    X(cuMemRetainAllocationHandle) X(cuMemSetMemPool) X(cuMemcpy2D) X(cuMemcpy2DAsync)                     \
    X(cuMemcpy2DAsync_v2) X(cuMemcpy2DAsync_v2_ptsz) X(cuMemcpy2DUnaligned) X(cuMemcpy2DUnaligned_v2)      \
    X(cuMemcpy2DUnaligned_v2_ptds) X(cuMemcpy2D_v2) X(cuMemcpy2D_v2_ptds) X(cuMemcpy3D) X(cuMemcpy3DAsync) \
    X(cuMemcpy3DAsync_v2) X(cuMemcpy3DAsync_v2_ptsz) X(cuMemcpy3DBatchAsync) X(cuMemcpy3DBatchAsync_ptsz)  \
    X(cuMemcpy3DBatchAsync_v2) X(cuMemcpy3DBatchAsync_v2_ptsz) X(cuMemcpy3DPeer) X(cuMemcpy3DPeerAsync)    \
    X(cuMemcpy3DPeerAsync_ptsz) X(cuMemcpy3DPeer_ptds) X(cuMemcpy3D_v2) X(cuMemcpy3D_v2_ptds)              \
    X(cuMemcpyAsync) X(cuMemcpyAsync_ptsz) X(cuMemcpyAtoA) X(cuMemcpyAtoA_v2) X(cuMemcpyAtoA_v2_ptds)      \
    X(cuMemcpyAtoD) X(cuMemcpyAtoD_v2) X(cuMemcpyAtoD_v2_ptds) X(cuMemcpyAtoH) X(cuMemcpyAtoHAsync)        \
    X(cuMemcpyAtoHAsync_v2) X(cuMemcpyAtoHAsync_v2_ptsz) X(cuMemcpyAtoH_v2) X(cuMemcpyAtoH_v2_ptds)        \
    X(cuMemcpyBatchAsync) X(cuMemcpyBatchAsync_ptsz) X(cuMemcpyBatchAsync_v2)                              \
    X(cuMemcpyBatchAsync_v2_ptsz) X(cuMemcpyDtoA) X(cuMemcpyDtoA_v2) X(cuMemcpyDtoA_v2_ptds)               \
    X(cuMemcpyDtoD) X(cuMemcpyDtoDAsync) X(cuMemcpyDtoDAsync_v2_ptsz) X(cuMemcpyDtoD_v2)                   \
    X(cuMemcpyDtoD_v2_ptds) X(cuMemcpyDtoH) X(cuMemcpyDtoHAsync) X(cuMemcpyDtoHAsync_v2_ptsz)              \
    X(cuMemcpyDtoH_v2) X(cuMemcpyDtoH_v2_ptds) X(cuMemcpyHtoA) X(cuMemcpyHtoAAsync)                        \
    X(cuMemcpyHtoAAsync_v2) X(cuMemcpyHtoAAsync_v2_ptsz) X(cuMemcpyHtoA_v2) X(cuMemcpyHtoA_v2_ptds)        \
    X(cuMemcpyHtoD) X(cuMemcpyHtoDAsync) X(cuMemcpyHtoDAsync_v2_ptsz) X(cuMemcpyHtoD_v2)                   \
    X(cuMemcpyHtoD_v2_ptds) X(cuMemcpyPeer) X(cuMemcpyPeerAsync) X(cuMemcpyPeerAsync_ptsz)                 \
    X(cuMemcpyPeer_ptds) X(cuMemcpy_ptds) X(cuMemsetD16) X(cuMemsetD16Async) X(cuMemsetD16Async_ptsz)      \
    X(cuMemsetD16_v2) X(cuMemsetD16_v2_ptds) X(cuMemsetD2D16) X(cuMemsetD2D16Async)                        \
    X(cuMemsetD2D16Async_ptsz) X(cuMemsetD2D16_v2) X(cuMemsetD2D16_v2_ptds) X(cuMemsetD2D32)               \
    X(cuMemsetD2D32Async) X(cuMemsetD2D32Async_ptsz) X(cuMemsetD2D32_v2) X(cuMemsetD2D32_v2_ptds)          \
    X(cuMemsetD2D8) X(cuMemsetD2D8Async) X(cuMemsetD2D8Async_ptsz) X(cuMemsetD2D8_v2)                      \
    X(cuMemsetD2D8_v2_ptds) X(cuMemsetD32) X(cuMemsetD32Async_ptsz) X(cuMemsetD32_v2)                      \
    X(cuMemsetD32_v2_ptds) X(cuMemsetD8) X(cuMemsetD8Async) X(cuMemsetD8Async_ptsz) X(cuMemsetD8_v2)       \
    X(cuMemsetD8_v2_ptds) X(cuMipmappedArrayCreate) X(cuMipmappedArrayDestroy) X(cuMipmappedArrayGetLevel) \
    X(cuMipmappedArrayGetMemoryRequirements) X(cuMipmappedArrayGetSparseProperties)                        \
    X(cuModuleEnumerateFunctions) X(cuModuleGetFunctionCount) X(cuModuleGetGlobal) X(cuModuleGetGlobal_v2) \
    X(cuModuleGetLoadingMode) X(cuModuleGetSurfRef) X(cuModuleGetTexRef) X(cuMulticastAddDevice)           \
    X(cuMulticastBindAddr) X(cuMulticastBindMem) X(cuMulticastCreate) X(cuMulticastGetGranularity)         \
    X(cuMulticastUnbind) X(cuOccupancyAvailableDynamicSMemPerBlock)                                        \
    X(cuOccupancyMaxActiveBlocksPerMultiprocessor) X(cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags) \
    X(cuOccupancyMaxActiveClusters) X(cuOccupancyMaxPotentialBlockSize)                                    \
    X(cuOccupancyMaxPotentialBlockSizeWithFlags) X(cuOccupancyMaxPotentialClusterSize) X(cuParamSetSize)   \
    X(cuParamSetTexRef) X(cuParamSetf) X(cuParamSeti) X(cuParamSetv) X(cuPointerGetAttribute)              \
    X(cuPointerGetAttributes) X(cuPointerSetAttribute) X(cuProfilerInitialize) X(cuProfilerStart)          \
    X(cuProfilerStop) X(cuSignalExternalSemaphoresAsync) X(cuSignalExternalSemaphoresAsync_ptsz)           \
    X(cuStreamAddCallback) X(cuStreamAddCallback_ptsz) X(cuStreamAttachMemAsync)                           \
    X(cuStreamAttachMemAsync_ptsz) X(cuStreamBatchMemOp) X(cuStreamBatchMemOp_ptsz)                        \
    X(cuStreamBatchMemOp_v2) X(cuStreamBatchMemOp_v2_ptsz) X(cuStreamCopyAttributes)                       \
    X(cuStreamCopyAttributes_ptsz) X(cuStreamCreateWithPriority) X(cuStreamDestroy)                        \
    X(cuStreamGetAttribute) X(cuStreamGetAttribute_ptsz) X(cuStreamGetCaptureInfo)                         \
    X(cuStreamGetCaptureInfo_ptsz) X(cuStreamGetCaptureInfo_v2_ptsz) X(cuStreamGetCaptureInfo_v3)          \
    X(cuStreamGetCaptureInfo_v3_ptsz) X(cuStreamGetCtx) X(cuStreamGetCtx_ptsz) X(cuStreamGetCtx_v2)        \
    X(cuStreamGetCtx_v2_ptsz) X(cuStreamGetDevice) X(cuStreamGetDevice_ptsz) X(cuStreamGetFlags)           \
    X(cuStreamGetFlags_ptsz) X(cuStreamGetGreenCtx) X(cuStreamGetId) X(cuStreamGetId_ptsz)                 \
    X(cuStreamGetPriority) X(cuStreamGetPriority_ptsz) X(cuStreamIsCapturing) X(cuStreamIsCapturing_ptsz)  \
    X(cuStreamQuery_ptsz) X(cuStreamSetAttribute) X(cuStreamSetAttribute_ptsz) X(cuStreamSynchronize_ptsz) \
    X(cuStreamUpdateCaptureDependencies) X(cuStreamUpdateCaptureDependencies_ptsz)                         \
    X(cuStreamUpdateCaptureDependencies_v2) X(cuStreamUpdateCaptureDependencies_v2_ptsz)                   \
    X(cuStreamWaitEvent_ptsz) X(cuStreamWaitValue32) X(cuStreamWaitValue32_ptsz) X(cuStreamWaitValue32_v2) \
    X(cuStreamWaitValue32_v2_ptsz) X(cuStreamWaitValue64) X(cuStreamWaitValue64_ptsz)                      \
    X(cuStreamWaitValue64_v2) X(cuStreamWaitValue64_v2_ptsz) X(cuStreamWriteValue32)                       \
    X(cuStreamWriteValue32_ptsz) X(cuStreamWriteValue32_v2) X(cuStreamWriteValue32_v2_ptsz)                \
    X(cuStreamWriteValue64) X(cuStreamWriteValue64_ptsz) X(cuStreamWriteValue64_v2)                        \
    X(cuStreamWriteValue64_v2_ptsz) X(cuSurfObjectCreate) X(cuSurfObjectDestroy)                           \
    X(cuSurfObjectGetResourceDesc) X(cuSurfRefGetArray) X(cuSurfRefSetArray) X(cuTensorMapEncodeIm2col)    \
    X(cuTensorMapEncodeIm2colWide) X(cuTensorMapEncodeTiled) X(cuTensorMapReplaceAddress)                  \
    X(cuTexObjectCreate) X(cuTexObjectDestroy) X(cuTexObjectGetResourceDesc)                               \
    X(cuTexObjectGetResourceViewDesc) X(cuTexObjectGetTextureDesc) X(cuTexRefCreate) X(cuTexRefDestroy)    \
    X(cuTexRefGetAddress) X(cuTexRefGetAddressMode) X(cuTexRefGetAddress_v2) X(cuTexRefGetArray)           \
    X(cuTexRefGetBorderColor) X(cuTexRefGetFilterMode) X(cuTexRefGetFlags) X(cuTexRefGetFormat)            \
    X(cuTexRefGetMaxAnisotropy) X(cuTexRefGetMipmapFilterMode) X(cuTexRefGetMipmapLevelBias)               \
    X(cuTexRefGetMipmapLevelClamp) X(cuTexRefGetMipmappedArray) X(cuTexRefSetAddress)                      \
    X(cuTexRefSetAddress2D) X(cuTexRefSetAddress2D_v2) X(cuTexRefSetAddress2D_v3)                          \
    X(cuTexRefSetAddressMode) X(cuTexRefSetAddress_v2) X(cuTexRefSetArray) X(cuTexRefSetBorderColor)       \
    X(cuTexRefSetFilterMode) X(cuTexRefSetFlags) X(cuTexRefSetFormat) X(cuTexRefSetMaxAnisotropy)          \
    X(cuTexRefSetMipmapFilterMode) X(cuTexRefSetMipmapLevelBias) X(cuTexRefSetMipmapLevelClamp)            \
    X(cuTexRefSetMipmappedArray) X(cuUserObjectCreate) X(cuUserObjectRelease) X(cuUserObjectRetain)        \
    X(cuWaitExternalSemaphoresAsync) X(cuWaitExternalSemaphoresAsync_ptsz)
/* clang-format on */

#endif
