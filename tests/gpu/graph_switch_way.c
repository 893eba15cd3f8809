/* One way of graph_switch.c, tried on a graph of so many nodes: what it makes of each shape, for how long, and beside replays. */
#include "graph_switch.h"

#include <dlfcn.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "kfit/cuda.h"
#include "median.h"

enum { REPLAYS = 21, CLONES = 8, TIMES = 5, LONG_NS = 20000000, THREADS = 32, CHILD_SECONDS = 60 };

/* ---- kernels: thread 0 of a block waits as long as marks[0] says, then leaves a mark ---- */

struct mark {
    uint32_t tag, blocks, smem_bytes, cluster; /* of the first one, tag: ns to wait */
};

/* The comment is for the test double (tests/double). */
#define KERNEL(name, directives, tag)                                                                        \
    ".visible .entry " name "(.param .u64 marks, .param .u32 slot)" directives "{\n"                         \
    ".reg .pred %p; .reg .u32 %r<4>; .reg .u64 %d<6>;\n"                                                     \
    "ld.param.u64 %d0, [marks]; ld.param.u32 %r0, [slot]; cvta.to.global.u64 %d0, %d0;\n"                    \
    "mov.u32 %r1, %tid.x; setp.ne.u32 %p, %r1, 0; @%p bra DONE;\n"                                           \
    "ld.global.u32 %r2, [%d0]; cvt.u64.u32 %d3, %r2; mov.u64 %d4, %globaltimer;\n"                           \
    "SPIN: mov.u64 %d5, %globaltimer; sub.u64 %d5, %d5, %d4; setp.lt.u64 %p, %d5, %d3; @%p bra SPIN;\n"      \
    "mul.wide.u32 %d1, %r0, 16; add.u64 %d0, %d0, %d1; st.global.u32 [%d0], " tag ";\n"                      \
    "red.global.add.u32 [%d0+4], 1;\n"                                                                       \
    "mov.u32 %r2, %dynamic_smem_size; st.global.u32 [%d0+8], %r2;\n"                                         \
    "mov.u32 %r2, %cluster_nctaid.x; st.global.u32 [%d0+12], %r2;\n"                                         \
    "DONE: ret;\n}\n"
static const char ptx[] =
    "/*\nkfit-double 1\narch sm_90\nentry first marks_1 qi\nentry second marks_2 qi\nentry pair marks_pair qi\nend\n*/\n"
    ".version 8.0\n.target sm_90\n.address_size 64\n" KERNEL("first", "", "1") KERNEL("second", "", "2")
        KERNEL("pair", " .explicitcluster .reqnctapercluster 2, 1, 1\n", "3");

enum { FIRST, SECOND, PAIR, KERNELS };

static const struct shape original = {"back", FIRST, 1, 0, 0, false};
const struct shape shapes[] = {
    {"same", SECOND, 1, 0, 0, false},
    {"grid", SECOND, 3, 0, 0, false},
    {"shared", SECOND, 1, 98304, 0, false},
    {"off", FIRST, 1, 0, 0, true},
    {"pair", PAIR, 4, 0, 0, false}, /* compiled for clusters of two */
    {"cluster", SECOND, 4, 0, 2, false},
};
enum { BEFORE = 4 }; /* the others are tried last: a node may not come back from a cluster */

/* ---- the driver, beyond what kfit uses ---- */

struct node_params { /* CUDA_KERNEL_NODE_PARAMS_v2 */
    kfit_cu_function f;
    unsigned grid[3], block[3], smem_bytes;
    void **params, **extra;
    void *kernel, *context;
};
struct update_result {
    int result;
    void *node, *from;
};

#define FUNCTIONS(X)                                                                                         \
    X(cuGraphClone, (kfit_cu_graph *, kfit_cu_graph))                                                        \
    X(cuGraphGetNodes, (kfit_cu_graph, void **, size_t *))                                                   \
    X(cuGraphNodeFindInClone, (void **, void *, kfit_cu_graph))                                              \
    X(cuGraphKernelNodeGetParams_v2, (void *, struct node_params *))                                         \
    X(cuGraphKernelNodeSetParams_v2, (void *, const struct node_params *))                                   \
    X(cuGraphKernelNodeSetAttribute, (void *, int, const void *))                                            \
    X(cuGraphNodeSetEnabled, (kfit_cu_exec, void *, unsigned))                                               \
    X(cuGraphExecKernelNodeSetParams_v2, (kfit_cu_exec, void *, const struct node_params *))                 \
    X(cuGraphExecUpdate_v2, (kfit_cu_exec, kfit_cu_graph, struct update_result *))

static const struct kfit_cuda *cu;
static struct {
#define X(symbol, args) kfit_cu_result(*symbol) args;
    FUNCTIONS(X)
#undef X
} more;

static struct {
    const struct way *way;
    unsigned n;
    kfit_cu_function f[KERNELS];
    kfit_cu_stream stream;
    kfit_cu_event event[2];
    kfit_cu_ptr marks;
    struct mark *seen;
    kfit_cu_graph graph, clone;
    kfit_cu_exec exec, live, before; /* what the program has; what is launched; what was, and may still run */
    void **node;             /* to be named, by slot */
    int update_result;
} run;

/* A process tells its members of the JSON object line by line, whole ones only. */
static char line[4096];

__attribute__((format(printf, 1, 2))) static void tell(const char *fmt, ...)
{
    const size_t n = strlen(line);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line + n, sizeof line - n, fmt, ap);
    va_end(ap);
}

static void told_one(void)
{
    puts(line);
    fflush(stdout);
    *line = '\0';
}

__attribute__((noreturn, format(printf, 1, 2))) static void give_up(const char *fmt, ...)
{
    va_list ap;
    *line = '\0'; /* what was begun */
    tell("\"failed\": \"");
    va_start(ap, fmt);
    vsnprintf(line + strlen(line), 1000, fmt, ap);
    va_end(ap);
    tell("\"");
    told_one();
    exit(1);
}

static const char *error(kfit_cu_result r)
{
    const char *name = NULL;
    if (r)
        cu->error_name(r, &name);
    return !r ? "" : name ? name : "unknown";
}

static void need(kfit_cu_result r, const char *what)
{
    if (r)
        give_up("%s: %d %s", what, r, error(r));
}
#define NEED(call) need(call, #call)

/* ---- measures ---- */

static double now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e6 + (double)t.tv_nsec * 1e-3;
}

static long long host_bytes(void)
{
    long long pages = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%*s %lld", &pages) != 1)
        give_up("/proc/self/statm cannot be read");
    fclose(f);
    return pages * sysconf(_SC_PAGESIZE);
}

static long long device_bytes(void)
{
    size_t free_bytes, total;
    NEED(cu->mem_info(&free_bytes, &total));
    return (long long)(total - free_bytes);
}

/* What a step took: since the last call of this. */
static struct took {
    double us;
    long long host, device;
} last;

static struct took took(void)
{
    const double us = now_us();
    const struct took now = {us, host_bytes(), device_bytes()}, was = last;
    last = now;
    last.us = now_us(); /* reading is not the next step's */
    return (struct took){us - was.us, now.host - was.host, now.device - was.device};
}

static void tell_took(const char *name, struct took t)
{
    tell("%s\"%s\": {\"us\": %.2f, \"host_bytes\": %lld, \"device_bytes\": %lld}", line[strlen(line) - 1] == '{' ? "" : ", ", name,
         t.us, t.host, t.device);
}

/* ---- replays ---- */

static void clear(unsigned wait_ns)
{
    NEED(cu->set32(run.marks, 0, (run.n + 1) * sizeof(struct mark) / 4, run.stream));
    NEED(cu->set32(run.marks, wait_ns, 1, run.stream));
}

static void look(void)
{
    NEED(cu->to_host(run.seen, run.marks, (run.n + 1) * sizeof(struct mark), run.stream));
    NEED(cu->stream_sync(run.stream));
    if (run.before)
        NEED(cu->exec_destroy(run.before));
    run.before = NULL;
}

/* Slots from 0 on, every `step`th or all others, that show a shape after so many replays. */
static unsigned showing(const struct shape *s, unsigned step, bool others, unsigned replays)
{
    static const struct mark nothing;
    const unsigned cluster = s->kernel == PAIR ? 2 : s->cluster ? s->cluster : 1;
    const struct mark ran = {s->kernel + 1, s->grid * replays, s->smem_bytes, cluster}, *want = s->off ? &nothing : &ran;
    unsigned count = 0;
    for (unsigned i = 0; i < run.n; i++)
        count += (i % step != 0) == others && !memcmp(&run.seen[i + 1], want, sizeof *want);
    return count;
}

/* One replay, looked at. */
static kfit_cu_result replay(void)
{
    clear(0);
    kfit_cu_result r = cu->graph_launch(run.live, run.stream);
    if (!r)
        look();
    return r;
}

/* Microseconds on the GPU's clock, the median of some. */
static double replay_us(void)
{
    double us[REPLAYS];
    float ms;
    for (unsigned i = 0; i < REPLAYS; i++) {
        NEED(cu->event_record(run.event[0], run.stream));
        NEED(cu->graph_launch(run.live, run.stream));
        NEED(cu->event_record(run.event[1], run.stream));
        NEED(cu->event_sync(run.event[1]));
        NEED(cu->event_elapsed(&ms, run.event[0], run.event[1]));
        us[i] = (double)ms * 1e3;
    }
    return median(us, REPLAYS);
}

/* ---- switching ---- */

static kfit_cu_result set_cluster(void *node, unsigned x)
{
    const struct kfit_cu_launch_attribute a = {.value.cluster = {x, 1, 1}};
    return more.cuGraphKernelNodeSetAttribute(node, KFIT_CU_LAUNCH_CLUSTER, &a.value);
}

/* A slot's node to a shape, from `from`; of an executable graph, or of the clone that will update or replace it. */
static kfit_cu_result set_node(unsigned slot, const struct shape *s, const struct shape *from)
{
    void *node = run.node[slot], *params[] = {&run.marks, &(unsigned){slot + 1}};
    const struct node_params k = {
        .f = run.f[s->kernel], .grid = {s->grid, 1, 1}, .block = {THREADS, 1, 1}, .smem_bytes = s->smem_bytes, .params = params};
    kfit_cu_result r = 0;
    if (run.way->by == NODE && (s->off || from->off))
        return more.cuGraphNodeSetEnabled(run.exec, node, !s->off);
    if (from->cluster && (r = set_cluster(node, 1)))
        return r;
    r = run.way->by == NODE ? more.cuGraphExecKernelNodeSetParams_v2(run.exec, node, &k)
                            : more.cuGraphKernelNodeSetParams_v2(node, &k);
    return !r && s->cluster ? set_cluster(node, s->cluster) : r; /* which the grid must be a multiple of */
}

/* What makes edited nodes of the clone those that are launched. */
static kfit_cu_result commit(const struct shape *s, unsigned step)
{
    struct update_result u = {0};
    kfit_cu_result r = 0;
    if (run.way->by == UPDATE) {
        r = more.cuGraphExecUpdate_v2(run.exec, run.clone, &u);
        run.update_result = u.result;
    } else if (run.way->by == SWAP) {
        kfit_cu_exec made;
        r = cu->graph_instantiate(&made, run.clone, 0);
        if (r)
            return r;
        run.before = run.live != run.exec ? run.live : NULL;
        run.live = made;
        for (unsigned i = 0; !r && s->off && i < run.n; i += step)
            r = more.cuGraphNodeSetEnabled(run.live, run.node[i], 0);
    }
    return r;
}

struct switched {
    kfit_cu_result r;
    unsigned count;
    double nodes_us, whole_us;
};

static struct switched switch_to(const struct shape *s, const struct shape *from, unsigned step)
{
    struct switched d = {0};
    double begun = now_us();
    for (unsigned i = 0; !d.r && i < run.n; i += step)
        if (!(d.r = set_node(i, s, from)))
            d.count++;
    d.nodes_us = now_us() - begun;
    begun = now_us();
    if (!d.r)
        d.r = commit(s, step);
    d.whole_us = now_us() - begun;
    return d;
}

/* ---- what is told ---- */

static void shape_by_shape(unsigned i, unsigned end)
{
    for (; i < end; i++) {
        const struct shape *s = &shapes[i];
        if (s->off && run.way->by == UPDATE)
            continue; /* an update has no word for it */
        const struct switched d = switch_to(s, &original, EVERY);
        const kfit_cu_result r = replay();
        tell("\"%s\": {\"status\": %d, \"error\": \"%s\", \"switched\": %u, \"of\": %u, \"node_us\": %.3f, \"whole_us\": %.2f", s->name,
               d.r, error(d.r), d.count, (run.n + EVERY - 1) / EVERY, d.nodes_us / (d.count ? d.count : 1), d.whole_us);
        if (run.way->by == UPDATE)
            tell(", \"update_result\": %d", run.update_result);
        tell(", \"replay\": \"%s\", \"right\": %u, \"others_as_before\": %u, \"still_the_first\": %u", error(r), showing(s, EVERY, false, 1),
               showing(&original, EVERY, true, 1), showing(&original, EVERY, false, 1));
        const struct switched b = switch_to(&original, s, EVERY);
        const kfit_cu_result back = replay();
        const bool all = !b.r && !back && showing(&original, 1, false, 1) == run.n;
        const struct mark *m = &run.seen[1];
        tell(", \"back\": %s", all ? "true" : "false");
        if (!all)
            tell(", \"back_error\": \"%s\", \"first_node_ran\": {\"kernel\": %u, \"blocks\": %u, \"cluster\": %u}", error(b.r ? b.r : back), m->tag, m->blocks, m->cluster);
        tell("}");
        told_one();
    }
}

/* All nodes, there and back again. */
static kfit_cu_result all_at_once(void)
{
    double nodes[2 * TIMES], whole[2 * TIMES], first[2 * TIMES], us[2] = {0};
    struct switched d;
    unsigned right[2] = {0};
    for (unsigned i = 0; i < 2 * TIMES; i++) {
        const struct shape *s = i % 2 ? &original : &shapes[0];
        d = switch_to(s, i % 2 ? &shapes[0] : &original, 1);
        if (d.r)
            break;
        nodes[i] = d.nodes_us;
        whole[i] = d.whole_us;
        clear(0);
        NEED(cu->stream_sync(run.stream));
        const double begun = now_us();
        NEED(cu->graph_launch(run.live, run.stream));
        NEED(cu->stream_sync(run.stream));
        first[i] = now_us() - begun;
        look();
        right[i % 2] = showing(s, 1, false, 1);
        us[i % 2] = replay_us();
    }
    tell("\"all\": {\"status\": %d, \"error\": \"%s\"", d.r, error(d.r));
    if (!d.r)
        tell(", \"node_us\": %.3f, \"whole_us\": %.2f, \"first_replay_us\": %.1f, \"replay_us\": %.2f, \"replay_us_back\": %.2f, \"right\": %u, "
               "\"right_back\": %u",
               median(nodes, 2 * TIMES) / run.n, median(whole, 2 * TIMES), median(first, 2 * TIMES), us[0], us[1], right[0], right[1]);
    tell("}");
    told_one();
    return d.r;
}

static const char *who(unsigned replays)
{
    return showing(&original, 1, false, replays) == run.n    ? "first"
           : showing(&shapes[0], 1, false, replays) == run.n ? "second"
                                                             : "mixed";
}

/* While one replay runs and another waits. */
static void in_flight(void)
{
    clear(LONG_NS / run.n);
    NEED(cu->stream_sync(run.stream));
    const double begun = now_us();
    for (unsigned i = 0; i < 2; i++)
        NEED(cu->graph_launch(run.live, run.stream));
    usleep(LONG_NS / 1000 / 10);
    const kfit_cu_result before = cu->stream_query(run.stream);
    const double called = now_us();
    const struct switched d = switch_to(&shapes[0], &original, 1);
    const double call_us = now_us() - called;
    const kfit_cu_result after = cu->stream_query(run.stream);
    look();
    const double all_us = now_us() - begun;
    const char *running = who(2), *next;
    NEED(replay());
    next = who(1);
    tell("\"in_flight\": {\"busy_before\": %s, \"busy_after\": %s, \"status\": %d, \"error\": \"%s\", \"call_us\": %.1f, \"two_replays_us\": %.0f, "
           "\"under_way_ran\": \"%s\", \"next_ran\": \"%s\"}",
           before == KFIT_CU_NOT_READY ? "true" : "false", after == KFIT_CU_NOT_READY ? "true" : "false", d.r, error(d.r), call_us, all_us,
           running, next);
    told_one();
}

/* ---- one way ---- */

static void start(void)
{
    static const char *const names[KERNELS] = {"first", "second", "pair"};
    struct kfit_error err = {0};
    kfit_cu_device device;
    kfit_cu_context context;
    kfit_cu_library library;
    kfit_cu_kernel kernel;
    int major;
    if (kfit_cuda_load(&cu, &err) != KFIT_OK || cu->init(0) || cu->device_get(&device, 0)) {
        printf("\"skipped\": \"%s\"\n", err.text[0] ? err.text : "no GPU");
        exit(77);
    }
    NEED(cu->device_attribute(&major, KFIT_CU_ATTR_COMPUTE_CAPABILITY_MAJOR, device));
    if (major < 9) {
        printf("\"skipped\": \"the GPU has no clusters (compute capability %d.x)\"\n", major);
        exit(77);
    }
    void *libcuda = dlopen("libcuda.so.1", RTLD_NOW);
#define X(symbol, args)                                                                                      \
    *(void **)&more.symbol = libcuda ? dlsym(libcuda, #symbol) : NULL;                                       \
    if (!more.symbol)                                                                                        \
        give_up("the driver has no %s", #symbol);
    FUNCTIONS(X)
#undef X
    NEED(cu->context_retain(&context, device));
    NEED(cu->context_set(context));
    NEED(cu->stream_create(&run.stream, KFIT_CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < 2; i++)
        NEED(cu->event_create(&run.event[i], 0));
    NEED(cu->library_load(&library, ptx, NULL, NULL, 0, NULL, NULL, 0));
    for (unsigned i = 0; i < KERNELS; i++) {
        NEED(cu->library_kernel(&kernel, library, names[i]));
        NEED(cu->kernel_function(&run.f[i], kernel));
        NEED(cu->function_set(run.f[i], KFIT_CU_FUNC_MAX_DYNAMIC_SHARED, 98304));
    }
    NEED(cu->mem_alloc(&run.marks, (run.n + 1) * sizeof(struct mark)));
    run.seen = calloc(run.n + 1, sizeof *run.seen);
    run.node = calloc(run.n, sizeof *run.node);
    if (!run.seen || !run.node)
        give_up("no memory");
    for (unsigned i = 0; i < 3; i++) { /* all kernels are there before memory is looked at */
        const struct kfit_cu_launch_config c = {.grid = {2, 1, 1}, .block = {THREADS, 1, 1}, .stream = run.stream};
        clear(0);
        NEED(cu->launch(&c, run.f[i], (void *[]){&run.marks, &(unsigned){1}}, NULL));
    }
    NEED(cu->stream_sync(run.stream));
}

/* The nodes by slot, as their parameters tell it. */
static void find_nodes(kfit_cu_graph graph)
{
    size_t n = run.n;
    NEED(more.cuGraphGetNodes(graph, run.node, &n));
    void **found = calloc(run.n, sizeof *found);
    if (n != run.n || !found)
        give_up("a graph of %u launches has %zu nodes", run.n, n);
    for (unsigned i = 0; i < run.n; i++) {
        struct node_params k = {0};
        NEED(more.cuGraphKernelNodeGetParams_v2(run.node[i], &k));
        const unsigned slot = k.params ? *(unsigned *)k.params[1] - 1 : run.n;
        if (slot >= run.n || found[slot])
            give_up("node %u says that it is launch %u", i, slot);
        found[slot] = run.node[i];
    }
    memcpy(run.node, found, run.n * sizeof *found);
    free(found);
}

/* Captured, perhaps cloned, instantiated, perhaps destroyed. */
static void make(void)
{
    struct took t;
    took();
    NEED(cu->capture_begin(run.stream, KFIT_CU_CAPTURE_THREAD_LOCAL));
    for (unsigned i = 0; i < run.n; i++) {
        const struct kfit_cu_launch_config c = {.grid = {1, 1, 1}, .block = {THREADS, 1, 1}, .stream = run.stream};
        NEED(cu->launch(&c, run.f[FIRST], (void *[]){&run.marks, &(unsigned){i + 1}}, NULL));
    }
    NEED(cu->capture_end(run.stream, &run.graph));
    tell("\"made\": {");
    tell_took("capture", took());
    find_nodes(run.graph);
    tell_took("find_nodes", took());
    if (run.way->clone) {
        kfit_cu_graph others[CLONES];
        NEED(more.cuGraphClone(&run.clone, run.graph));
        tell_took("first_clone", took());
        for (unsigned i = 0; i < run.n; i++)
            NEED(more.cuGraphNodeFindInClone(&run.node[i], run.node[i], run.clone));
        tell_took("find_in_clone", took());
        for (unsigned i = 0; i < CLONES; i++)
            NEED(more.cuGraphClone(&others[i], run.graph));
        t = took();
        tell_took("clone", (struct took){t.us / CLONES, t.host / CLONES, t.device / CLONES});
        for (unsigned i = 0; i < CLONES; i++)
            NEED(cu->graph_destroy(others[i]));
        took();
    }
    NEED(cu->graph_instantiate(&run.exec, run.way->of_clone ? run.clone : run.graph, 0));
    run.live = run.exec;
    tell_took("instantiate", took());
    if (!run.way->kept)
        NEED(cu->graph_destroy(run.graph));
    tell_took("destroy", took());
    NEED(replay());
    tell_took("first_replay", took());
    tell(", \"right\": %u, \"replay_us\": %.2f}", showing(&original, 1, false, 1), replay_us());
    told_one();
}

int try(const struct way *w, unsigned n)
{
    run.way = w;
    run.n = n;
    alarm(CHILD_SECONDS);
    start();
    make();
    if (!w->kept && !w->clone) { /* any call may be the last */
        shape_by_shape(0, 1);
        return 0;
    }
    shape_by_shape(0, BEFORE);
    if (!all_at_once()) {
        in_flight();
        switch_to(&original, &shapes[0], 1);
    }
    shape_by_shape(BEFORE, SHAPES);
    return 0;
}

int of_device(void)
{
    char name[256] = "";
    int version;
    kfit_cu_device device;
    run.n = 1;
    start();
    NEED(cu->driver_version(&version));
    NEED(cu->device_get(&device, 0));
    NEED(cu->device_name(name, sizeof name, device));
    printf("\"device\": \"%s\"\n\"cuda\": \"%d.%d\"\n", name, version / 1000, version % 1000 / 10);
    return 0;
}
