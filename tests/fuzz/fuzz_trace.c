/* libFuzzer: any bytes as a trace file, as they are and made whole: a right header, and each slot's and kernel's hash
 * that of what it holds, to reach what is behind them. What is accepted is written as it was read, merges, and adds up.
 *     CC=clang meson setup build-fuzz -Db_sanitize=address,undefined -Db_lundef=false
 *     build-fuzz/tests/fuzz/fuzz_trace -max_total_time=60 CORPUS tests/golden */
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "kfit/hash.h"
#include "kfit/trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int fd = -1;
static char path[32];

static void check(int ok)
{
    if (!ok)
        abort();
}

/* As a double: hostile counters overflow sums of integers. */
static double calls_in(const struct kfit_trace *t)
{
    double n = 0;
    for (size_t i = 0; i < kfit_trace_count(t); i++) {
        const struct kfit_trace_slot *s = kfit_trace_at(t, i);
        check(kfit_key_check(&s->key, NULL) == KFIT_OK && s->hash == kfit_key_hash(&s->key));
        for (unsigned r = 0; r < KFIT_TRACE_REASONS; r++)
            n += (double)s->count[r];
    }
    return n;
}

/* Every item names something that is there, or says that it does not. */
static void walk_graphs(const struct kfit_trace *t)
{
    const struct kfit_trace_live *l = &kfit_trace_header(t)->live;
    check(kfit_trace_kernel_count(t) <= l->kernel_count && kfit_trace_graph_count(t) <= l->graph_count);
    for (size_t i = 0; i < kfit_trace_kernel_count(t); i++)
        check(memchr(kfit_trace_kernel_at(t, i)->name, 0, sizeof kfit_trace_kernel_at(t, i)->name) != NULL);
    for (size_t i = 0; i < kfit_trace_graph_count(t); i++) {
        const struct kfit_trace_graph *g = kfit_trace_graph_at(t, i);
        const struct kfit_trace_item *item = kfit_trace_graph_items(t, g);
        for (uint32_t k = 0; k < g->count; k++) {
            const bool kernel = item[k].what & KFIT_ITEM_KERNEL;
            check(item[k].what == KFIT_ITEM_UNKNOWN ||
                  (item[k].times && (item[k].what & KFIT_ITEM_INDEX) <
                                        (kernel ? kfit_trace_kernel_count(t) : kfit_trace_count(t))));
        }
    }
}

static void trace(const void *data, size_t size)
{
    struct kfit_trace *t, *sum = NULL;
    struct kfit_error err;
    check(!ftruncate(fd, 0) && pwrite(fd, data, size, 0) == (ssize_t)size);
    if (kfit_trace_read(path, &t, &err) != KFIT_OK) {
        check(!t && err.text[0]);
        return;
    }
    const double calls = calls_in(t);
    walk_graphs(t);
    (void)kfit_trace_alive(t);
    check(kfit_trace_count(t) + kfit_trace_skipped(t) <= kfit_trace_header(t)->slot_count);
    const struct kfit_trace *const twice[] = {t, t};
    if (kfit_trace_merge(twice, 1, true, &sum, &err) == KFIT_OK && calls < 1e12)
        check(calls_in(sum) == calls);
    kfit_trace_destroy(sum);
    if (kfit_trace_merge(twice, 2, false, &sum, &err) == KFIT_OK && calls < 1e12)
        check(calls_in(sum) == 2 * calls && kfit_trace_kernel_count(sum) == kfit_trace_kernel_count(t));
    kfit_trace_destroy(sum);
    kfit_trace_destroy(t);
}

static void trace_made_whole(const uint8_t *data, size_t size)
{
    enum { SLOTS = 4, KERNELS = 4, GRAPHS = 4, ITEMS = 8 };
    static struct whole {
        struct kfit_trace_header header;
        struct kfit_trace_slot slot[SLOTS];
        struct kfit_trace_kernel kernel[KERNELS];
        struct kfit_trace_graph graph[GRAPHS];
        struct kfit_trace_item item[ITEMS];
    } file;
    memset(&file, 0, sizeof file);
    memcpy(&file, data, size < sizeof file ? size : sizeof file);
    memcpy(file.header.magic, KFIT_TRACE_MAGIC, sizeof file.header.magic);
    file.header.version = KFIT_TRACE_VERSION;
    file.header.header_bytes = sizeof file.header;
    file.header.slot_bytes = sizeof file.slot[0];
    file.header.slot_count = SLOTS;
    file.header.file_bytes = sizeof file;
    file.header.live = (struct kfit_trace_live){.kernels_at = offsetof(struct whole, kernel),
                                                .graphs_at = offsetof(struct whole, graph),
                                                .items_at = offsetof(struct whole, item),
                                                .kernel_count = KERNELS,
                                                .graph_count = GRAPHS,
                                                .item_count = ITEMS};
    for (int i = 0; i < KERNELS; i++) {
        struct kfit_trace_kernel *k = &file.kernel[i];
        k->name[sizeof k->name - 1] = 0;
        k->hash = XXH3_64bits_withSeed(k->name, strlen(k->name), k->image_hash);
    }
    for (int i = 0; i < SLOTS; i++)
        if (kfit_key_check(&file.slot[i].key, NULL) == KFIT_OK)
            file.slot[i].hash = kfit_key_hash(&file.slot[i].key);
    trace(&file, sizeof file);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (fd < 0) {
        fd = memfd_create("fuzz", 0);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    trace(data, size);
    trace_made_whole(data, size);
    return 0;
}
