/* cupti_records.h - what we use of CUPTI, NVIDIA's profiling library: kernel records of its activity API, versions 12.6 to 13.
 *
 * Written out here so that no header of CUDA's is needed; tests/test_cupti_abi.c compares it with NVIDIA's own.
 * Only a GPU worker opens CUPTI, only after everything is timed: it slows every launch of a process from then on, and
 * a process has one subscriber. It is never finalised: a process that has made graphs does not survive that. */
#ifndef KFIT_CUPTI_H
#define KFIT_CUPTI_H

#include <stddef.h>
#include <stdint.h>

enum { KFIT_CUPTI_KERNEL = 3, KFIT_CUPTI_CONCURRENT_KERNEL = 10 }; /* CUpti_ActivityKind */
enum { KFIT_CUPTI_FLUSH_FORCED = 1, KFIT_CUPTI_INSUFFICIENT_PRIVILEGES = 35, KFIT_CUPTI_MULTIPLE_SUBSCRIBERS = 39 };

/* How CUpti_ActivityKernel4 to 10 begin. Times in ns of a clock that all records share. */
struct kfit_cupti_kernel {
    uint32_t kind;
    uint8_t cache_config, shared_config;
    uint16_t registers;
    uint32_t partitioned_requested, partitioned_executed;
    uint64_t start, end, completed;
    uint32_t device, context, stream;
    int32_t grid[3], block[3], static_shared, dynamic_shared;
    uint32_t local_per_thread, local_total, correlation;
    int64_t grid_id;
    const char *name; /* CUPTI's, as the image has it (mangled) */
};

/* X(member, symbol, arguments); all return a CUptiResult, 0 if well. */
#define KFIT_CUPTI_LIST(X)                                                                                   \
    X(version, cuptiGetVersion, (uint32_t *))                                                                \
    X(result_string, cuptiGetResultString, (int, const char **))                                             \
    X(register_callbacks, cuptiActivityRegisterCallbacks,                                                    \
      (void (*request)(uint8_t **buffer, size_t *bytes, size_t *max_records),                                \
       void (*complete)(void *context, uint32_t stream, uint8_t *buffer, size_t bytes, size_t valid)))       \
    X(enable, cuptiActivityEnable, (int kind))                                                               \
    X(disable, cuptiActivityDisable, (int kind))                                                             \
    X(flush, cuptiActivityFlushAll, (uint32_t flag))                                                         \
    X(next, cuptiActivityGetNextRecord, (uint8_t *buffer, size_t valid, void **record))                      \
    X(dropped, cuptiActivityGetNumDroppedRecords, (void *context, uint32_t stream, size_t *))

#endif
