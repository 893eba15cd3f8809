/* Scenes of captures and graphs. Kernels a, b, c; a graph of (a, b, b) unless said otherwise. */
#include <dlfcn.h>
#include <pthread.h>

#include "driver_calls.h"

static kfit_cu_function a, b, c;

static void start(void)
{
    start_gpu();
    a = function("a");
    b = function("b");
    c = function("c");
}

static void begin(int mode)
{
    OK(cu.cuStreamBeginCapture_v2(stream, mode));
}

static kfit_cu_graph end(void)
{
    kfit_cu_graph graph;
    OK(cu.cuStreamEndCapture(stream, &graph));
    return graph;
}

static kfit_cu_graph captured(void)
{
    begin(0);
    launch_on(stream, a, 1);
    launch_on(stream, b, 2);
    return end();
}

static kfit_cu_exec instantiated(kfit_cu_graph graph)
{
    kfit_cu_exec exec;
    OK(cu.cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

static void replay(kfit_cu_exec exec, int times)
{
    while (times--)
        OK(cu.cuGraphLaunch(exec, stream));
}

/* replays N: each one counts, of either form of cuGraphLaunch and of every way to instantiate. */
static void play_replays(int argc, char **argv)
{
    IS(argc, 1);
    start();
    kfit_cu_graph graph = captured();
    kfit_cu_exec exec[6];
    char log[64];
    struct { /* CUDA_GRAPH_INSTANTIATE_PARAMS */
        uint64_t flags;
        void *upload, *node;
        int result;
    } how = {0};
    OK(cu.cuGraphInstantiate(&exec[0], graph, NULL, log, sizeof log));
    OK(cu.cuGraphInstantiate_v2(&exec[1], graph, NULL, log, sizeof log));
    OK(cu.cuGraphInstantiateWithFlags(&exec[2], graph, 0));
    OK(cu.cuGraphInstantiateWithParams(&exec[3], graph, &how));
    OK(cu.cuGraphInstantiateWithParams_ptsz(&exec[4], graph, &how));
    kfit_cu_result (*newest)(kfit_cu_exec *, kfit_cu_graph, unsigned long long);
    OK(cu.cuGetProcAddress("cuGraphInstantiate", (void **)&newest, 12000, 0));
    OK(newest(&exec[5], graph, 0));
    OK(cu.cuGraphDestroy(graph));
    for (int i = 0; i < 6; i++)
        for (int n = 0; n < atoi(argv[0]); n++)
            OK((n % 2 ? cu.cuGraphLaunch_ptsz : cu.cuGraphLaunch)(exec[i], stream));
    SEEN(cu.kfit_double_launches(), 6 * 3 * atoi(argv[0]));
    for (int i = 0; i < 6; i++)
        OK(cu.cuGraphExecDestroy(exec[i]));
}

/* Work forked to another stream and joined is in the capture; so is what the thread's own stream captures. */
static void play_streams(int argc, char **argv)
{
    kfit_cu_event fork, join;
    kfit_cu_graph graph;
    (void)argc, (void)argv;
    start();
    OK(cu.cuEventCreate(&fork, 0));
    OK(cu.cuEventCreate(&join, 0));
    begin(0);
    launch_on(stream, a, 1);
    OK(cu.cuEventRecord(fork, stream));
    OK(cu.cuStreamWaitEvent(second, fork, 0));
    launch_on(second, b, 2);
    OK(cu.cuEventRecord(join, second));
    OK(cu.cuStreamWaitEvent(stream, join, 0));
    launch_on(stream, c, 1);
    replay(instantiated(end()), 10);
    launch_on(second, b, 1); /* the capture is over */

    OK(cu.cuStreamBeginCapture_v2_ptsz(NULL, 1));
    OK(cu.cuLaunchKernel_ptsz(a, 1, 1, 1, 32, 1, 1, 0, NULL, (void *[]){&(int){0}}, NULL));
    OK(cu.cuStreamEndCapture_ptsz(NULL, &graph));
    replay(instantiated(graph), 100);
    OK(cu.cuStreamBeginCapture_ptsz(NULL));
    OK(cu.cuStreamEndCapture_ptsz(NULL, &graph));
    OK(cu.cuStreamBeginCapture(stream));
    launch_on(stream, a, 1);
    replay(instantiated(end()), 1000);
}

/* A thread's own streams on two GPUs, both in captures at once: one handle. */
static void play_both(int argc, char **argv)
{
    kfit_cu_context context[2];
    kfit_cu_function f[2];
    kfit_cu_graph graph[2];
    kfit_cu_stream own = (kfit_cu_stream)2;
    (void)argc, (void)argv;
    OK(cu.cuInit(0));
    for (int gpu = 0; gpu < 2; gpu++) {
        OK(cu.cuDevicePrimaryCtxRetain(&context[gpu], gpu));
        OK(cu.cuCtxSetCurrent(context[gpu]));
        f[gpu] = function(gpu ? "b" : "a");
        OK(cu.cuStreamBeginCapture_v2(own, 2));
        launch_on(own, f[gpu], 1);
    }
    for (int gpu = 0; gpu < 2; gpu++) {
        OK(cu.cuCtxSetCurrent(context[gpu]));
        launch_on(own, f[gpu], 1 + gpu);
        OK(cu.cuStreamEndCapture(own, &graph[gpu]));
    }
    for (int gpu = 0; gpu < 2; gpu++) {
        OK(cu.cuCtxSetCurrent(context[gpu]));
        kfit_cu_exec exec = instantiated(graph[gpu]);
        for (int i = 0; i < 10; i++)
            OK(cu.cuGraphLaunch(exec, own));
    }
}

/* The end of a capture whose begin nobody saw ends none of those that were seen. */
static void play_unheard(int argc, char **argv)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5"};
    void *libc = dlopen("libc.so.6", RTLD_LAZY), *(*plain)(void *, const char *) = NULL;
    kfit_cu_result (*unheard)(kfit_cu_stream, int);
    kfit_cu_graph graph;
    (void)argc, (void)argv;
    for (int i = 0; i < 2 && !plain; i++)
        *(void **)&plain = dlvsym(libc, "dlsym", versions[i]);
    *(void **)&unheard = plain(libcuda, "cuStreamBeginCapture_v2");
    start();
    launch_on(stream, a, 1);
    begin(2);
    launch_on(stream, a, 1);
    OK(unheard(second, 2));
    OK(cu.cuStreamEndCapture(second, &graph));
    launch_on(stream, a, 2);
    replay(instantiated(end()), 10);
}

/* A graph gets its kernels also by nodes, as a copy, as a child, and by a capture into it. */
static void play_made(int argc, char **argv)
{
    struct {
        kfit_cu_function f;
        unsigned shape[7];
        void **params, **extra;
        void *kernel, *context;
    } node = {.shape = {1, 1, 1, 32, 1, 1, 0}, .params = (void *[]){&(int){0}}};
    struct {
        int type, reserved[3];
        union {
            char node[240];
            kfit_cu_graph child;
        } of;
    } any = {.type = 0};
    kfit_cu_graph graph, clone, other;
    kfit_cu_library library;
    kfit_cu_kernel kernel;
    void *n;
    (void)argc, (void)argv;
    start();
    OK(cu.cuLibraryLoadData(&library, image_of("c"), NULL, NULL, 0, NULL, NULL, 0));
    OK(cu.cuLibraryGetKernel(&kernel, library, "c"));
    graph = captured();
    OK(cu.cuGraphClone(&clone, graph));
    replay(instantiated(clone), 1); /* a 1, b 2 */
    OK(cu.cuGraphAddChildGraphNode(&n, clone, NULL, 0, graph));
    replay(instantiated(clone), 10); /* a 2, b 4 */
    OK(cu.cuGraphDestroy(graph));
    node.f = c;
    OK(cu.cuGraphCreate(&other, 0));
    OK(cu.cuGraphAddKernelNode(&n, other, NULL, 0, &node));
    node.f = NULL;
    node.kernel = kernel;
    OK(cu.cuGraphAddKernelNode_v2(&n, other, NULL, 0, &node));
    memset(any.of.node, 0, sizeof any.of.node);
    memcpy(any.of.node, &node, sizeof node);
    OK(cu.cuGraphAddNode(&n, other, NULL, 0, &any));
    any.type = 4;
    memset(any.of.node, 0, sizeof any.of.node);
    any.of.child = clone;
    OK(cu.cuGraphAddNode_v2(&n, other, NULL, NULL, 0, &any));
    OK(cu.cuStreamBeginCaptureToGraph(stream, other, NULL, NULL, 0, 0));
    launch_on(stream, a, 1);
    IS(end() == other, 1);
    replay(instantiated(other), 100); /* a 3, b 4, c 3 */
}

/* No launch of a graph in a capture: the driver refuses it, and the capture is broken. */
static void play_nested(int argc, char **argv)
{
    kfit_cu_graph graph;
    (void)argc, (void)argv;
    start();
    kfit_cu_exec inner = instantiated(captured());
    begin(2);
    launch_on(stream, c, 1);
    IS(cu.cuGraphLaunch(inner, stream), 900);
    IS(cu.cuStreamEndCapture(stream, &graph), 901);
    SEEN(cu.kfit_double_launches(), 0);
    replay(inner, 1);
}

/* Other contents are another entry; the same are the same one; what cannot be is none. */
static void play_update(int argc, char **argv)
{
    int result;
    void *node;
    char info[64]; /* CUgraphExecUpdateResultInfo */
    (void)argc, (void)argv;
    start();
    kfit_cu_graph first = captured();
    kfit_cu_exec exec = instantiated(first);
    replay(exec, 1); /* a 1, b 2 */
    for (int i = 0; i < 5000; i++)
        OK(cu.cuGraphExecUpdate_v2(exec, first, info));
    replay(exec, 10);
    begin(0);
    launch_on(stream, c, 3);
    kfit_cu_graph other = end();
    OK(cu.cuGraphExecUpdate(exec, other, &node, &result));
    replay(exec, 100); /* c 3 */
    begin(0);
    launch_on(stream, a, 1);
    IS(cu.cuGraphExecUpdate_v2(exec, end(), info), 910);
    replay(exec, 1000);
    OK(cu.cuGraphExecDestroy(exec));
}

/* A destroyed graph's address is the next one's, of which nothing is known; so with executable graphs. */
static void play_destroyed(int argc, char **argv)
{
    kfit_cu_graph graph = NULL, next;
    kfit_cu_exec exec = NULL, other;
    (void)argc, (void)argv;
    start();
    graph = captured();
    exec = instantiated(graph);
    replay(exec, 1);
    OK(cu.cuGraphExecDestroy(exec));
    OK(cu.cuGraphDestroy(graph));
    OK(cu.cuGraphCreate(&next, 0));
    other = instantiated(next);
    SEEN(next == graph && other == exec, 1);
    replay(other, 10);
}

/* A capture that another call breaks ends with nothing; what comes after it counts. */
static void play_broken(int argc, char **argv)
{
    kfit_cu_event event;
    kfit_cu_graph graph;
    (void)argc, (void)argv;
    start();
    OK(cu.cuEventCreate(&event, 0));
    for (int mode = 0; mode < 2; mode++) {
        begin(mode);
        launch_on(stream, a, 1);
        IS(cu.cuEventQuery(event), 900);
        FAILS(cu.cuStreamEndCapture(second, &graph));
        IS(cu.cuStreamEndCapture(stream, &graph), 901);
        FAILS(cu.cuStreamEndCapture(stream, &graph));
        launch_on(stream, b, 1);
    }
    begin(2);
    launch_on(stream, c, 1);
    OK(cu.cuEventQuery(event));
    replay(instantiated(end()), 10);
}

/* Nothing captures any more: a launch asks for no capture, on either stream. */
static void nothing_captures(void)
{
    unsigned asked = ON_DOUBLE ? cu.kfit_double_capture_queries() : 0;
    launch_on(stream, b, 1);
    launch_on(second, b, 1);
    SEEN(cu.kfit_double_capture_queries(), asked);
}

static void *end_elsewhere(void *unused)
{
    kfit_cu_context context;
    kfit_cu_graph graph;
    (void)unused;
    OK(cu.cuDevicePrimaryCtxRetain(&context, 0));
    OK(cu.cuCtxSetCurrent(context));
    return (void *)(intptr_t)cu.cuStreamEndCapture(stream, &graph);
}

/* More captures at once than there is room for; of the two that nothing is known of one breaks, and the other is the last. */
static void ends_beyond_what_is_known(kfit_cu_event event)
{
    enum { ROOM = 64 };
    kfit_cu_stream streams[ROOM], unknown[2];
    kfit_cu_graph graph;
    for (int i = 0; i < ROOM + 2; i++) {
        kfit_cu_stream *s = i < ROOM ? &streams[i] : &unknown[i - ROOM];
        OK(cu.cuStreamCreate(s, 0));
        OK(cu.cuStreamBeginCapture_v2(*s, i == ROOM + 1 ? 0 : 2));
        launch_on(*s, a, 1);
    }
    IS(cu.cuEventQuery(event), 900);
    FAILS(cu.cuStreamEndCapture(second, &graph)); /* as nothing captures there, it ends nothing */
    IS(cu.cuStreamEndCapture(unknown[1], &graph), 901);
    FAILS(cu.cuStreamEndCapture(unknown[1], &graph));
    FAILS(cu.cuStreamEndCapture(second, &graph));
    for (int i = 0; i < ROOM; i++)
        OK(cu.cuStreamEndCapture(streams[i], &graph));
    launch_on(unknown[0], a, 1); /* not a launch yet */
    OK(cu.cuStreamEndCapture(unknown[0], &graph));
}

/* However captures end, and whoever tries to end them: those that go on are heard, and none is when the last has ended. As
 * the double has it. */
static void play_ends(int argc, char **argv)
{
    kfit_cu_event event;
    kfit_cu_graph graph;
    pthread_t other;
    void *r;
    (void)argc, (void)argv;
    start();
    OK(cu.cuEventCreate(&event, 0));
    nothing_captures();
    IS(cu.cuLaunchKernelEx(NULL, a, NULL, NULL), 1); /* and a launch of nothing is the driver's to refuse */

    begin(0); /* broken */
    launch_on(stream, a, 1);
    IS(cu.cuEventQuery(event), 900);
    IS(cu.cuStreamEndCapture(stream, &graph), 901);
    nothing_captures();

    begin(2); /* ended by a stream that does not capture */
    launch_on(stream, a, 1);
    FAILS(cu.cuStreamEndCapture(second, &graph));
    launch_on(stream, a, 1);
    FAILS(cu.cuStreamEndCapture(second, &graph));
    launch_on(stream, a, 1);
    replay(instantiated(end()), 1); /* a 3 */
    nothing_captures();
    FAILS(cu.cuStreamEndCapture(stream, &graph)); /* again */
    nothing_captures();

    begin(1); /* by a thread that did not begin it, and it goes on */
    launch_on(stream, a, 1);
    OK(pthread_create(&other, NULL, end_elsewhere, NULL));
    OK(pthread_join(other, &r));
    IS((intptr_t)r, 908);
    launch_on(stream, a, 1);
    replay(instantiated(end()), 10000); /* a 2 */
    nothing_captures();

    begin(2); /* two at once, of which one breaks */
    OK(cu.cuStreamBeginCapture_v2(second, 0));
    launch_on(stream, a, 1);
    launch_on(second, c, 1);
    IS(cu.cuEventQuery(event), 900);
    IS(cu.cuStreamEndCapture(second, &graph), 901);
    FAILS(cu.cuStreamEndCapture(second, &graph));
    launch_on(stream, a, 1);
    replay(instantiated(end()), 10); /* a 2 */
    nothing_captures();

    begin(2); /* and both whole, the first to begin the first to end */
    OK(cu.cuStreamBeginCapture_v2(second, 2));
    launch_on(stream, a, 1);
    graph = end();
    launch_on(second, c, 1);
    kfit_cu_exec exec = instantiated(graph);
    OK(cu.cuStreamEndCapture(second, &graph));
    replay(exec, 100);
    replay(instantiated(graph), 1000); /* c 1 */
    nothing_captures();

    ends_beyond_what_is_known(event);
    nothing_captures();
}

/* many N: graphs and executable graphs made and destroyed all day; long ones; more captures at once than there is room. */
static void play_many(int argc, char **argv)
{
    enum { AT_ONCE = 80 };
    kfit_cu_stream streams[AT_ONCE];
    kfit_cu_graph graph;
    IS(argc, 1);
    start();
    for (int i = 0; i < atoi(argv[0]); i++) {
        graph = captured();
        kfit_cu_exec exec = instantiated(graph);
        replay(exec, 1);
        OK(cu.cuGraphDestroy(graph));
        OK(cu.cuGraphExecDestroy(exec));
    }
    begin(0);
    for (int i = 0; i < 20000; i++)
        launch_on(stream, i % 2 ? a : c, 1);
    graph = end();
    kfit_cu_exec exec = instantiated(graph);
    replay(exec, 1);
    for (int i = 0; i < AT_ONCE; i++) {
        OK(cu.cuStreamCreate(&streams[i], 0));
        OK(cu.cuStreamBeginCapture_v2(streams[i], 2));
        launch_on(streams[i], b, 1);
    }
    for (int i = 0; i < AT_ONCE; i++)
        OK(cu.cuStreamEndCapture(streams[i], &graph));
    launch_on(stream, b, 1); /* nothing captures any more */
}

const struct scene graph_scenes[] = {
    {"replays", play_replays}, {"streams", play_streams},
    {"made", play_made},       {"nested", play_nested},
    {"update", play_update},   {"destroyed", play_destroyed},
    {"broken", play_broken},   {"many", play_many},
    {"ends", play_ends},       {"both", play_both},
    {"unheard", play_unheard}, {NULL, NULL},
};
