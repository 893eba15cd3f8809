/* The driver's hooked functions, listed once: wrappers, exports (exports.map.in), the table of real functions and the
 * lookup by name, version and pointer are made from it. This file is for the preprocessor only.
 *
 * A wrapper calls the real function with its own arguments, then lets driver.c (launches, images) or graphs.c
 * (captures, graphs) see the result. */
#ifndef KFIT_DRIVER_HOOKS_H
#define KFIT_DRIVER_HOOKS_H

#define KFIT_LAUNCH_SHAPE                                                                                    \
    kfit_cu_function f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,        \
        unsigned smem, kfit_cu_stream stream
#define KFIT_LOAD_OPTIONS                                                                                    \
    int *jit_options, void **jit_values, unsigned jit_count, int *options, void **values, unsigned count
#define KFIT_NODE  void **node, kfit_cu_graph graph, void *const *after, size_t n
#define KFIT_EDGES void *const *after, const void *edges, size_t n

/* X(symbol, flags of cuGetProcAddress, its name there, first version that it gives this symbol for, parameters,
 *   arguments, done before the call, done after it with r its result) */
#define KFIT_DRIVER_LIST(X)                                                                                  \
    /* launches: driver.c */                                                                                 \
    KFIT_BOTH(X, cuLaunchKernel, cuLaunchKernel, 4000, (KFIT_LAUNCH_SHAPE, void **params, void **extra),     \
              (f, gx, gy, gz, bx, by, bz, smem, stream, params, extra), ,                                    \
              kfit_launched(r, f, STREAM(stream)))                                                           \
    KFIT_BOTH(X, cuLaunchKernelEx, cuLaunchKernelEx, 11060,                                                  \
              (const struct kfit_cu_launch_config *config, kfit_cu_function f, void **params, void **extra), \
              (config, f, params, extra), , kfit_launched(r, f, STREAM(r ? NULL : config->stream)))                     \
    KFIT_BOTH(X, cuGraphLaunch, cuGraphLaunch, 10000, (kfit_cu_exec exec, kfit_cu_stream stream),            \
              (exec, stream), , kfit_exec_launched(r, exec))                             \
    KFIT_BOTH(X, cuLaunchCooperativeKernel, cuLaunchCooperativeKernel, 9000,                                 \
              (KFIT_LAUNCH_SHAPE, void **params), (f, gx, gy, gz, bx, by, bz, smem, stream, params), ,       \
              kfit_launched(r, f, STREAM(stream)))                                                           \
    /* images: driver.c */                                                                                   \
    X(cuModuleLoad, 0, cuModuleLoad, 2000, (void **module, const char *path), (module, path), ,              \
      kfit_loaded_file(r, (void *const *)module, path))                                                      \
    X(cuModuleLoadData, 0, cuModuleLoadData, 2000, (void **module, const void *image), (module, image), ,    \
      kfit_loaded(r, (void *const *)module, image))                                                          \
    X(cuModuleLoadDataEx, 0, cuModuleLoadDataEx, 2010,                                                       \
      (void **module, const void *image, unsigned count, int *options, void **values),                       \
      (module, image, count, options, values), , kfit_loaded(r, (void *const *)module, image))               \
    X(cuModuleLoadFatBinary, 0, cuModuleLoadFatBinary, 2000, (void **module, const void *image),             \
      (module, image), , kfit_loaded(r, (void *const *)module, image))                                       \
    X(cuModuleUnload, 0, cuModuleUnload, 2000, (void *module), (module), kfit_unloading(module), )           \
    X(cuLibraryLoadData, 0, cuLibraryLoadData, 12000,                                                        \
      (kfit_cu_library * library, const void *image, KFIT_LOAD_OPTIONS),                                     \
      (library, image, jit_options, jit_values, jit_count, options, values, count), ,                        \
      kfit_loaded(r, (void *const *)library, image))                                                         \
    X(cuLibraryLoadFromFile, 0, cuLibraryLoadFromFile, 12000,                                                \
      (kfit_cu_library * library, const char *path, KFIT_LOAD_OPTIONS),                                      \
      (library, path, jit_options, jit_values, jit_count, options, values, count), ,                         \
      kfit_loaded_file(r, (void *const *)library, path))                                                     \
    X(cuLibraryUnload, 0, cuLibraryUnload, 12000, (kfit_cu_library library), (library),                      \
      kfit_unloading(library), )                                                                             \
    X(cuLibraryGetModule, 0, cuLibraryGetModule, 12000, (void **module, kfit_cu_library library),            \
      (module, library), , kfit_library_module(r, (void *const *)module, library))                           \
    X(cuKernelGetFunction, 0, cuKernelGetFunction, 12000, (kfit_cu_function * f, kfit_cu_kernel kernel),     \
      (f, kernel), , kfit_kernel_function(r, f, kernel))                                                     \
    X(cuCtxDestroy, 0, cuCtxDestroy, 2000, (kfit_cu_context context), (context), kfit_unloading_all(), )     \
    X(cuCtxDestroy_v2, 0, cuCtxDestroy, 4000, (kfit_cu_context context), (context), kfit_unloading_all(), )  \
    X(cuDevicePrimaryCtxReset, 0, cuDevicePrimaryCtxReset, 7000, (kfit_cu_device device), (device),          \
      kfit_unloading_all(), )                                                                                \
    X(cuDevicePrimaryCtxReset_v2, 0, cuDevicePrimaryCtxReset, 11000, (kfit_cu_device device), (device),      \
      kfit_unloading_all(), )                                                                                \
    /* captures: graphs.c */                                                                                 \
    KFIT_BOTH(X, cuStreamBeginCapture, cuStreamBeginCapture, 10000, (kfit_cu_stream stream), (stream), ,     \
              kfit_capture_begun(r, STREAM(stream), false))                                                         \
    KFIT_BOTH(X, cuStreamBeginCapture_v2, cuStreamBeginCapture, 10010, (kfit_cu_stream stream, int mode),    \
              (stream, mode), , kfit_capture_begun(r, STREAM(stream), false))                                       \
    KFIT_BOTH(X, cuStreamBeginCaptureToGraph, cuStreamBeginCaptureToGraph, 12030,                            \
              (kfit_cu_stream stream, kfit_cu_graph graph, KFIT_EDGES, int mode),                            \
              (stream, graph, after, edges, n, mode), , kfit_capture_begun(r, STREAM(stream), true))               \
    KFIT_BOTH(X, cuStreamUpdateCaptureDependencies, cuStreamUpdateCaptureDependencies, 11030,                \
              (kfit_cu_stream stream, void **after, size_t n, unsigned flags), (stream, after, n, flags), ,  \
              kfit_capture_untied(r, STREAM(stream), flags))                                                 \
    KFIT_BOTH(X, cuStreamUpdateCaptureDependencies_v2, cuStreamUpdateCaptureDependencies, 12030,             \
              (kfit_cu_stream stream, void **after, const void *edges, size_t n, unsigned flags),            \
              (stream, after, edges, n, flags), , kfit_capture_untied(r, STREAM(stream), flags))             \
    KFIT_BOTH(X, cuStreamEndCapture, cuStreamEndCapture, 10000,                                              \
              (kfit_cu_stream stream, kfit_cu_graph * graph), (stream, graph),                               \
              const bool unplaced = kfit_capture_unplaced(STREAM(stream)),                                   \
              kfit_capture_ended(r, STREAM(stream), graph, unplaced))                                        \
    X(cuStreamDestroy, 0, cuStreamDestroy, 2000, (kfit_cu_stream stream), (stream), kfit_stream_going(stream), ) \
    X(cuStreamDestroy_v2, 0, cuStreamDestroy, 4000, (kfit_cu_stream stream), (stream), kfit_stream_going(stream), ) \
    /* graphs: graphs.c */                                                                                   \
    X(cuGraphAddKernelNode, 0, cuGraphAddKernelNode, 10000, (KFIT_NODE, const void *params),                 \
      (node, graph, after, n, params), , kfit_graph_kernel(r, graph, params, false))                         \
    X(cuGraphAddKernelNode_v2, 0, cuGraphAddKernelNode, 12000, (KFIT_NODE, const void *params),              \
      (node, graph, after, n, params), , kfit_graph_kernel(r, graph, params, true))                          \
    X(cuGraphAddChildGraphNode, 0, cuGraphAddChildGraphNode, 10000, (KFIT_NODE, kfit_cu_graph child),        \
      (node, graph, after, n, child), UNLESS(kfit_graph_use(child)), kfit_graph_child(r, graph, child))      \
    X(cuGraphChildGraphNodeGetGraph, 0, cuGraphChildGraphNodeGetGraph, 10000,                                \
      (void *node, kfit_cu_graph *child), (node, child), , kfit_graph_shown(r))                              \
    X(cuGraphAddNode, 0, cuGraphAddNode, 12020, (KFIT_NODE, void *params), (node, graph, after, n, params),  \
      UNLESS(kfit_graph_use_node(params)), kfit_graph_node(r, graph, params))                                \
    X(cuGraphAddNode_v2, 0, cuGraphAddNode, 12030,                                                           \
      (void **node, kfit_cu_graph graph, KFIT_EDGES, void *params), (node, graph, after, edges, n, params),  \
      UNLESS(kfit_graph_use_node(params)), kfit_graph_node(r, graph, params))                                \
    X(cuGraphNodeSetParams, 0, cuGraphNodeSetParams, 12020, (void *node, void *params), (node, params),      \
      UNLESS(kfit_graph_use_node(params)), kfit_graph_used_node(r, params))                                  \
    X(cuGraphExecNodeSetParams, 0, cuGraphExecNodeSetParams, 12020,                                          \
      (kfit_cu_exec exec, void *node, void *params), (exec, node, params),                                   \
      UNLESS(kfit_graph_use_node(params)), kfit_graph_used_node(r, params))                                  \
    X(cuGraphExecChildGraphNodeSetParams, 0, cuGraphExecChildGraphNodeSetParams, 11010,                      \
      (kfit_cu_exec exec, void *node, kfit_cu_graph child), (exec, node, child),                             \
      UNLESS(kfit_graph_use(child)), kfit_graph_used(r, child))                                              \
    X(cuGraphClone, 0, cuGraphClone, 10000, (kfit_cu_graph * clone, kfit_cu_graph graph), (clone, graph),    \
      UNLESS(kfit_graph_use(graph)), kfit_graph_cloned(r, clone, graph))                                     \
    X(cuGraphDestroy, 0, cuGraphDestroy, 10000, (kfit_cu_graph graph), (graph), kfit_graph_going(graph), )   \
    X(cuGraphInstantiate, 0, cuGraphInstantiate, 10000,                                                      \
      (kfit_cu_exec * exec, kfit_cu_graph graph, void **node, char *log, size_t size),                       \
      (exec, graph, node, log, size),                                                                        \
      UNLESS(kfit_graph_use(graph)), kfit_exec_made(r, exec, graph))                                         \
    X(cuGraphInstantiate_v2, 0, cuGraphInstantiate, 11000,                                                   \
      (kfit_cu_exec * exec, kfit_cu_graph graph, void **node, char *log, size_t size),                       \
      (exec, graph, node, log, size),                                                                        \
      UNLESS(kfit_graph_use(graph)), kfit_exec_made(r, exec, graph))                                         \
    X(cuGraphInstantiateWithFlags, 0, cuGraphInstantiateWithFlags, 11040,                                    \
      (kfit_cu_exec * exec, kfit_cu_graph graph, unsigned long long flags), (exec, graph, flags),            \
      UNLESS(kfit_graph_use(graph)), kfit_exec_made(r, exec, graph))                                         \
    KFIT_BOTH(X, cuGraphInstantiateWithParams, cuGraphInstantiateWithParams, 12000,                          \
              (kfit_cu_exec * exec, kfit_cu_graph graph, void *params), (exec, graph, params),               \
      UNLESS(kfit_graph_use(graph)), kfit_exec_made(r, exec, graph))                                         \
    X(cuGraphExecUpdate, 0, cuGraphExecUpdate, 10020,                                                        \
      (kfit_cu_exec exec, kfit_cu_graph graph, void **node, int *result), (exec, graph, node, result),       \
      UNLESS(kfit_graph_update(exec, graph)), kfit_exec_made(r, &exec, graph))                                        \
    X(cuGraphExecUpdate_v2, 0, cuGraphExecUpdate, 12000,                                                     \
      (kfit_cu_exec exec, kfit_cu_graph graph, void *result), (exec, graph, result),                         \
      UNLESS(kfit_graph_update(exec, graph)), kfit_exec_made(r, &exec, graph))                                        \
    X(cuGraphExecDestroy, 0, cuGraphExecDestroy, 10000, (kfit_cu_exec exec), (exec),                         \
      kfit_exec_going(exec), )                                                                               \
    /* pointers: route.c */                                                                                  \
    X(cuGetProcAddress, 0, cuGetProcAddress, 11030,                                                          \
      (const char *name, void **out, int version, uint64_t flags), (name, out, version, flags), ,            \
      kfit_answered(r, name, out, version, flags))                                                           \
    X(cuGetProcAddress_v2, 0, cuGetProcAddress, 12000,                                                       \
      (const char *name, void **out, int version, uint64_t flags, int *status),                              \
      (name, out, version, flags, status), , kfit_answered(r, name, out, version, flags))

#define KFIT_PTSZ 2 /* CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM */

/* The form whose stream 0 is the legacy one, and the form whose stream 0 is the thread's own. */
#define KFIT_BOTH(X, symbol, asked, since, params, args, before, after)                                      \
    X(symbol, 0, asked, since, params, args, before, after)                                                  \
    X(symbol##_ptsz, KFIT_PTSZ, asked, (since < 7000 ? 7000 : since), params, args, before, after)

/* Not hooked, but asked by us. X(symbol, parameters, arguments) */
#define KFIT_DRIVER_QUERIES(X)                                                                               \
    X(cuFuncGetName, (const char **name, kfit_cu_function f), (name, f))                                     \
    X(cuFuncGetModule, (void **module, kfit_cu_function f), (module, f))                                     \
    X(cuKernelGetName, (const char **name, kfit_cu_kernel k), (name, k))                                     \
    X(cuKernelGetLibrary, (kfit_cu_library * library, kfit_cu_kernel k), (library, k))                       \
    X(cuStreamGetId, (kfit_cu_stream stream, unsigned long long *id), (stream, id))                          \
    X(cuGraphGetNodes, (kfit_cu_graph graph, void **nodes, size_t *n), (graph, nodes, n))                    \
    X(cuGraphNodeGetType, (void *node, int *type), (node, type))                                             \
    X(cuGraphKernelNodeGetParams_v2, (void *node, void *params), (node, params))                             \
    X(cuGraphKernelNodeSetParams_v2, (void *node, const void *params), (node, params))                       \
    X(cuStreamGetCaptureInfo_v2,                                                                             \
      (kfit_cu_stream stream, int *status, uint64_t *id, kfit_cu_graph *graph, void *const **nodes,          \
       size_t *n),                                                                                           \
      (stream, status, id, graph, nodes, n))

#endif
