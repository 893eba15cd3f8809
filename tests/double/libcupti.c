/* libcupti: records of what the double's driver runs while they are asked for, delivered on a thread of its own. What an
 * image lies about its kernels, and what refuses, is in double.h. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "cupti_records.h"
#include "double.h"

#define KFIT_X(member, symbol, args) EXPORT int symbol args;
KFIT_CUPTI_LIST(KFIT_X)
#undef KFIT_X

enum { NOT_INITIALIZED = 15, MAX_LIMIT_REACHED = 12, INVALID_KIND = 21 };

struct record { /* longer than what we know of it, as the real one is */
    struct kfit_cupti_kernel known;
    uint8_t rest[96];
};

static struct {
    void (*request)(uint8_t **, size_t *, size_t *);
    void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t);
    struct record *record;
    size_t count, room;
    bool on;
} cupti;

static void *driver(const char *symbol)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW);
    return lib ? dlsym(lib, symbol) : NULL;
}

static const char *setting(void)
{
    const char *(*text)(const char *, const char *);
    *(void **)&text = driver("kfit_double_text");
    return text ? text("cupti", "") : "";
}

static void seen(const char *name, double start_ns, double end_ns)
{
    if (!cupti.on)
        return;
    if (cupti.count == cupti.room) {
        size_t room = cupti.room ? 2 * cupti.room : 256;
        struct record *more = realloc(cupti.record, room * sizeof *more);
        if (!more)
            abort();
        cupti.record = more;
        cupti.room = room;
    }
    cupti.record[cupti.count++] = (struct record){
        .known = {.kind = KFIT_CUPTI_CONCURRENT_KERNEL, .start = (uint64_t)start_ns, .end = (uint64_t)end_ns, .name = name}};
}

int cuptiGetVersion(uint32_t *version)
{
    *version = 130001;
    return 0;
}

int cuptiGetResultString(int r, const char **text)
{
    *text = r == KFIT_CUPTI_INSUFFICIENT_PRIVILEGES ? "CUPTI_ERROR_INSUFFICIENT_PRIVILEGES"
            : r == KFIT_CUPTI_MULTIPLE_SUBSCRIBERS  ? "CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"
                                                    : "CUPTI_ERROR_UNKNOWN";
    return 0;
}

int cuptiActivityRegisterCallbacks(void (*request)(uint8_t **, size_t *, size_t *),
                                   void (*complete)(void *, uint32_t, uint8_t *, size_t, size_t))
{
    cupti.request = request;
    cupti.complete = complete;
    return 0;
}

int cuptiActivityEnable(int kind)
{
    void (*observe)(void (*)(const char *, double, double));
    int refusal = atoi(setting());
    if (refusal)
        return refusal;
    if (kind != KFIT_CUPTI_CONCURRENT_KERNEL)
        return INVALID_KIND;
    *(void **)&observe = driver("kfit_double_observe");
    if (!cupti.request || !observe)
        return NOT_INITIALIZED;
    observe(seen);
    cupti.on = true;
    return 0;
}

int cuptiActivityDisable(int kind)
{
    (void)kind;
    cupti.on = false;
    return 0;
}

static void *deliver(void *arg)
{
    (void)arg;
    for (size_t done = 0; done < cupti.count;) {
        uint8_t *buffer = NULL;
        size_t bytes = 0, most = 0;
        cupti.request(&buffer, &bytes, &most);
        size_t n = bytes / sizeof *cupti.record < cupti.count - done ? bytes / sizeof *cupti.record : cupti.count - done;
        if (!n)
            break;
        memcpy(buffer, cupti.record + done, n * sizeof *cupti.record);
        done += n;
        cupti.complete(NULL, 0, buffer, bytes, n * sizeof *cupti.record);
    }
    cupti.count = 0;
    return NULL;
}

int cuptiActivityFlushAll(uint32_t flag)
{
    pthread_t t;
    (void)flag;
    if (pthread_create(&t, NULL, deliver, NULL))
        return NOT_INITIALIZED;
    pthread_join(t, NULL);
    return 0;
}

int cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, void **record)
{
    uint8_t *next = *record ? (uint8_t *)*record + sizeof(struct record) : buffer;
    if (next + sizeof(struct record) > buffer + valid)
        return MAX_LIMIT_REACHED;
    *record = next;
    return 0;
}

int cuptiActivityGetNumDroppedRecords(void *context, uint32_t stream, size_t *dropped)
{
    (void)context, (void)stream;
    *dropped = strcmp(setting(), "lost") ? 0 : 3;
    return 0;
}
