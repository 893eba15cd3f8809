/* offline-search/cupti_records.h against NVIDIA's own header, and its record against every version of the kernel record in use. */
#include "kfit_test.h"

#include <cupti.h>
#if CUPTI_API_VERSION >= 130000
#include <cupti_activity_deprecated.h>
#endif

#include "cupti_records.h"

#define AT(theirs, a, b)                                                                                     \
    _Static_assert(offsetof(struct kfit_cupti_kernel, a) == offsetof(theirs, b), #theirs "." #b)
#define RECORD(theirs)                                                                                       \
    _Static_assert(sizeof(struct kfit_cupti_kernel) <= sizeof(theirs), #theirs);                             \
    AT(theirs, kind, kind);                                                                                  \
    AT(theirs, registers, registersPerThread);                                                               \
    AT(theirs, start, start);                                                                                \
    AT(theirs, end, end);                                                                                    \
    AT(theirs, completed, completed);                                                                        \
    AT(theirs, device, deviceId);                                                                            \
    AT(theirs, grid, gridX);                                                                                 \
    AT(theirs, block, blockX);                                                                               \
    AT(theirs, correlation, correlationId);                                                                  \
    AT(theirs, grid_id, gridId);                                                                             \
    AT(theirs, name, name)
RECORD(CUpti_ActivityKernel9); /* 12 */
#if CUPTI_API_VERSION >= 130000
RECORD(CUpti_ActivityKernel10);
#endif

#define SAME(ours, theirs) _Static_assert((int)(ours) == (int)(theirs), #ours)
SAME(KFIT_CUPTI_KERNEL, CUPTI_ACTIVITY_KIND_KERNEL);
SAME(KFIT_CUPTI_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
SAME(KFIT_CUPTI_FLUSH_FORCED, CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
SAME(KFIT_CUPTI_INSUFFICIENT_PRIVILEGES, CUPTI_ERROR_INSUFFICIENT_PRIVILEGES);
SAME(KFIT_CUPTI_MULTIPLE_SUBSCRIBERS, CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED);

#define TYPE_OF(fn, type) _Static_assert(__builtin_types_compatible_p(__typeof__(&(fn)), type), #fn)
TYPE_OF(cuptiGetVersion, CUptiResult(*)(uint32_t *));
TYPE_OF(cuptiGetResultString, CUptiResult(*)(CUptiResult, const char **));
TYPE_OF(cuptiActivityEnable, CUptiResult(*)(CUpti_ActivityKind));
TYPE_OF(cuptiActivityDisable, CUptiResult(*)(CUpti_ActivityKind));
TYPE_OF(cuptiActivityFlushAll, CUptiResult(*)(uint32_t));
TYPE_OF(cuptiActivityGetNextRecord, CUptiResult(*)(uint8_t *, size_t, CUpti_Activity **));
TYPE_OF(cuptiActivityGetNumDroppedRecords, CUptiResult(*)(CUcontext, uint32_t, size_t *));
TYPE_OF(cuptiActivityRegisterCallbacks,
        CUptiResult(*)(CUpti_BuffersCallbackRequestFunc, CUpti_BuffersCallbackCompleteFunc));
_Static_assert(__builtin_types_compatible_p(CUpti_BuffersCallbackRequestFunc, void (*)(uint8_t **, size_t *, size_t *)), "request");
_Static_assert(__builtin_types_compatible_p(CUpti_BuffersCallbackCompleteFunc,
                                            void (*)(CUcontext, uint32_t, uint8_t *, size_t, size_t)),
               "complete");

/* All of it is checked while compiling. */
static void it_compiled(void)
{
    CHECK_INT(offsetof(struct kfit_cupti_kernel, name), 104);
}

static const struct kfit_test tests[] = {
    TEST(it_compiled),
};
TEST_MAIN(tests)
