/* Scenes that few programs play: threads, captures that nobody saw begin, graphs within others. */
#include <dlfcn.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <unistd.h>

#include "workspace_calls.h"

/* ---- threads ---- */

/* The thread's own streams, which all have one handle: some in one capture, and each one's capture at once. */
static kfit_cu_event fork_event, join_event;
static unsigned own_call;
static kfit_cu_graph own_graph;

static sem_t finished;

/* With a thread would go its stream. */
static void *in_thread(void *f)
{
    OK(cu->context_set(context));
    (*(void (**)(void))f)();
    OK(sem_post(&finished));
    while (pause())
        ;
    return NULL;
}

static void elsewhere(void (*f)(void))
{
    pthread_t thread;
    OK(pthread_create(&thread, NULL, in_thread, &f));
    while (sem_wait(&finished))
        ;
}

static void join_in(void)
{
    OK(cuStreamWaitEvent(own, fork_event, 0));
    own_call = gemm(own);
    OK(cu->event_record(join_event, own));
    OK(cuStreamWaitEvent(one, join_event, 0));
}

/* Of a capture, gone before it ends: the next one may have its handle, and need not wait for what it launched. */
static void play_retired(void)
{
    unsigned call[2];
    OK(cu->event_create(&fork_event, 0));
    OK(cu->event_create(&join_event, 0));
    begin();
    OK(cu->event_record(fork_event, one));
    for (int i = 0; i < 2; i++) {
        kfit_cu_stream brief;
        OK(cu->stream_create(&brief, KFIT_CU_STREAM_NON_BLOCKING));
        OK(cuStreamWaitEvent(brief, fork_event, 0));
        call[i] = gemm(brief);
        OK(cu->event_record(join_event, brief));
        OK(cuStreamWaitEvent(one, join_event, 0));
        OK(cu->stream_destroy(brief));
    }
    launch(made_of(end()));
    THAT(at_call(call[0]) != at_call(call[1]));
}

static void capture_own(void)
{
    OK(cu->capture_begin(own, RELAXED));
    own_call = gemm(own);
    OK(cu->capture_end(own, &own_graph));
}

static void play_own(void)
{
    unsigned call[2];
    kfit_cu_exec exec[4];
    kfit_cu_graph graph;
    OK(cu->event_create(&fork_event, 0));
    OK(cu->event_create(&join_event, 0));
    OK(cu->capture_begin(one, RELAXED));
    capturing = true;
    OK(cu->event_record(fork_event, one));
    elsewhere(join_in);
    call[0] = own_call;
    elsewhere(join_in);
    call[1] = own_call;
    launch(made_of(end()));
    all_differ((uint64_t[]){at_call(call[0]), at_call(call[1])}, 2);
    OK(cu->capture_begin(own, RELAXED));
    capturing = true;
    call[0] = gemm(own);
    elsewhere(capture_own);
    gemm(own);
    capturing = false;
    OK(cu->capture_end(own, &graph));
    exec[0] = made_of(graph);
    exec[1] = made_of(graph);
    exec[2] = made_of(own_graph);
    exec[3] = made_of(own_graph);
    uint64_t slab[4];
    for (int i = 0; i < 4; i++)
        slab[i] = slab_of(exec[i]);
    all_differ(slab, 4);
}

/* Another thread calls on the same stream while a kernel of two launches is between them. As the double has it. */
static unsigned launches;

static void call_meanwhile(void)
{
    calls++; /* of the call that is under way */
    gemm(one);
}

static void seen_launch(const char *name, double start_ns, double end_ns)
{
    (void)name, (void)start_ns, (void)end_ns;
    if (++launches == 2)
        elsewhere(call_meanwhile);
}

static void play_split(void)
{
    void (*observe)(void (*)(const char *, double, double));
    gemm(one);
    *(void **)&observe = dlsym(dlopen("libcuda.so.1", RTLD_LAZY), "kfit_double_observe");
    THAT(observe != NULL);
    observe(seen_launch);
    gemm(one);
    observe(NULL);
    gemm(one);
    THAT(runs() % 2 == 0);
    for (unsigned i = 0; i < runs(); i += 2)
        THAT(at(i) == at(i + 1) && seen.run[i].c == seen.run[i + 1].c);
}

/* ---- captures and graphs ---- */

/* A capture whose begin nobody saw gets the original's calls: what is in a graph must not work in its stream's memory. */
static void play_unseen(void)
{
    void *(*plain)(void *, const char *) = NULL;
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    void *libc = dlopen("libc.so.6", RTLD_LAZY), *libcuda = dlopen("libcuda.so.1", RTLD_LAZY);
    kfit_cu_result (*unseen)(kfit_cu_stream, int), (*unseen_end)(kfit_cu_stream, kfit_cu_graph *);
    kfit_cu_graph graph;
    for (int i = 0; i < 3 && !plain; i++)
        *(void **)&plain = dlvsym(libc, "dlsym", versions[i]);
    THAT(plain != NULL);
    *(void **)&unseen = plain(libcuda, "cuStreamBeginCapture_v2");
    THAT(unseen && (void *)unseen != dlsym(libcuda, "cuStreamBeginCapture_v2"));
    gemm(one);
    OK(unseen(one, 0));
    capturing = true;
    gemm(one);
    launch(made_of(end()));
    THAT(runs() == 1);

    *(void **)&unseen_end = plain(libcuda, "cuStreamEndCapture"); /* and one whose end nobody saw */
    begin();
    gemm(one);
    OK(unseen_end(one, &graph));
    capturing = false;
    slab_of(made_of(captured(1)));
}

/* A call beside a capture, on another stream: what it asks of the driver, and has not asked before, breaks no capture of any
 * mode. */
static void play_beside(void)
{
    kfit_cu_stream stream[3];
    unsigned call[3][2];
    gemm(two);
    for (int mode = 0; mode < 3; mode++) {
        kfit_cu_graph graph;
        OK(cu->stream_create(&stream[mode], KFIT_CU_STREAM_NON_BLOCKING));
        OK(cu->capture_begin(one, mode));
        capturing = true;
        call[mode][0] = gemm(one);
        call[mode][1] = gemm(stream[mode]);
        capturing = false;
        OK(cu->capture_end(one, &graph));
        launch(made_of(graph));
        THAT(at_call(call[mode][0]) != at_call(call[mode][1]));
    }
}

/* A copy of a graph that is still being captured. */
static void play_copied(void)
{
    kfit_cu_graph clone, graph;
    uint64_t slab[3], id;
    int status;
    begin();
    gemm(one);
    OK(cuStreamGetCaptureInfo_v2(one, &status, &id, &graph, NULL, NULL));
    OK(cuGraphClone(&clone, graph));
    gemm(one);
    graph = end();
    slab[0] = slab_of(made_of(graph));
    slab[1] = slab_of(made_of(clone));
    slab[2] = slab_of(made_of(graph));
    all_differ(slab, 3);
}

/* A copy of a graph that is in another: the whole and the part may run at once. */
static void play_inside(void)
{
    kfit_cu_graph parent, inside, clone;
    uint64_t slab[3];
    void *node;
    OK(cuGraphCreate(&parent, 0));
    OK(cuGraphAddChildGraphNode(&node, parent, NULL, 0, captured(2)));
    slab[0] = slab_of(made_of(parent));
    OK(cuGraphChildGraphNodeGetGraph(node, &inside));
    OK(cuGraphClone(&clone, inside));
    slab[1] = slab_of(made_of(clone));
    slab[2] = slab_of(made_of(parent));
    all_differ(slab, 3);
}

/* One executable graph updated from one graph, over and over, takes no more memory; only what others may still run in. */
static void play_updated(void)
{
    char info[64]; /* CUgraphExecUpdateResultInfo */
    kfit_cu_graph graph = captured(1);
    kfit_cu_exec exec[4];
    uint64_t slab[5];
    exec[0] = made_of(graph);
    slab[0] = slab_of(exec[0]);
    for (int i = 0; i < 20; i++)
        OK(cuGraphExecUpdate_v2(exec[0], graph, info));
    THAT(slab_of(exec[0]) == slab[0]);
    exec[1] = made_of(graph);
    slab[1] = slab_of(exec[1]);
    OK(cuGraphExecUpdate_v2(exec[0], graph, info));
    slab[2] = slab_of(exec[0]);
    exec[2] = made_of(graph);
    slab[3] = slab_of(exec[2]);
    OK(cu->exec_destroy(exec[2]));
    exec[3] = made_of(captured(1)); /* whose handle may have been that one's */
    OK(cuGraphExecUpdate_v2(exec[3], graph, info));
    slab[4] = slab_of(exec[3]);
    all_differ(slab, 5);
}

/* A child that is moved, not copied: its handle is the parent's, and goes with it. As the double has it. */
static void play_moved(void)
{
    struct { /* CUgraphNodeParams */
        int type, reserved[3];
        kfit_cu_graph child;
        int ownership;
        char rest[236];
    } params = {.type = 4, .child = captured(2), .ownership = 1};
    kfit_cu_graph parent, clone, next[2];
    uint64_t slab[4];
    void *node;
    OK(cuGraphCreate(&parent, 0));
    THAT(cuGraphAddNode_v2(&node, parent, NULL, NULL, 0, NULL) == 1); /* CUDA_ERROR_INVALID_VALUE */
    OK(cuGraphAddNode_v2(&node, parent, NULL, NULL, 0, &params));
    OK(cuGraphClone(&clone, params.child));
    slab[0] = slab_of(made_of(parent));
    slab[1] = slab_of(made_of(clone));
    all_differ(slab, 2);
    OK(cu->graph_destroy(parent));
    for (int i = 0; i < 2; i++)
        next[i] = captured(1);
    for (int i = 0; i < 2; i++)
        slab[2 + i] = slab_of(made_of(next[i]));
    THAT(next[0] == params.child || next[1] == params.child);
    all_differ(slab, 4);
}

const struct scene odd_scenes[] = {
    {"own", play_own},
    {"retired", play_retired},
    {"split", play_split},
    {"unseen", play_unseen},
    {"copied", play_copied}, {"beside", play_beside},
    {"inside", play_inside},
    {"moved", play_moved},
    {"updated", play_updated},
    {NULL, NULL},
};
