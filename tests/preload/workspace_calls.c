/* Scenes of kernels that work in memory of ours, on the double or on a GPU: workspace_calls LIBCUBLAS SCENE. The published
 * kernel (workspace.cu) multiplies nothing, but notes for each run where it worked. A scene ends with a line "done"; what is
 * wrong ends it before. cuBLAS is called by a symbol, the driver by dlsym. */
#include <dlfcn.h>
#include <string.h>

#include "workspace_calls.h"

/* Weak: nobody defines them until the library is opened. */
#define WEAK __attribute__((weak))
typedef void *any;
extern WEAK int cublasCreate_v2(any *);
extern WEAK int cublasSetStream_v2(any, kfit_cu_stream);
extern WEAK int cublasSetWorkspace_v2(any, void *, size_t);
extern WEAK int cublasGemmEx(any, int, int, int, int, int, const void *, const void *, int, int, const void *, int,
                             int, const void *, void *, int, int, int, int);

#define X(symbol, parameters) kfit_cu_result(*symbol) parameters;
MORE(X)
#undef X

enum { R_16BF = 14, COMPUTE_32F = 68, TENSOR_OP = 99, WORKSPACE_BYTES = 32 << 20 };

const struct kfit_cuda *cu;
kfit_cu_context context;
kfit_cu_stream one, two, own = (kfit_cu_stream)2; /* CU_STREAM_PER_THREAD */
unsigned calls;
bool capturing;
struct seen seen;
static any blas;
static kfit_cu_ptr notes, operand, results;
static size_t free_first; /* before anything of cuBLAS was there */

static int start(const char *cublas)
{
    kfit_cu_device device;
    kfit_cu_ptr workspace;
    if (kfit_cuda_load(&cu, NULL) != KFIT_OK || cu->init(0) || cu->device_get(&device, 0))
        return 77;
    void *libcuda = dlopen("libcuda.so.1", RTLD_LAZY);
#define X(symbol, parameters)                                                                                \
    *(void **)&symbol = dlsym(libcuda, #symbol);                                                             \
    THAT(symbol != NULL);
    MORE(X)
#undef X
    OK(cu->context_retain(&context, device));
    OK(cu->context_set(context));
    OK(cu->stream_create(&one, KFIT_CU_STREAM_NON_BLOCKING));
    OK(cu->stream_create(&two, KFIT_CU_STREAM_NON_BLOCKING));
    OK(cu->mem_alloc(&notes, sizeof seen));
    OK(cu->mem_alloc(&operand, 4096));
    OK(cu->mem_alloc(&results, C_BYTES * CALLS_MAX));
    OK(cu->mem_alloc(&workspace, WORKSPACE_BYTES));
    OK(cu->set32(notes, 0, sizeof seen / 4, one));
    OK(cu->set32(operand, 0, 1024, one));
    OK(cu->context_sync());
    OK(cu->mem_info(&free_first, &(size_t){0}));
    if (!dlopen(cublas, RTLD_NOW | RTLD_GLOBAL)) {
        printf("%s\n", dlerror());
        exit(1);
    }
    OK(cublasCreate_v2(&blas));
    OK(cublasSetWorkspace_v2(blas, (void *)(uintptr_t)workspace, WORKSPACE_BYTES));
    return 0;
}

/* A product with m columns, 13 or others; returns its number. */
static unsigned gemm_of(kfit_cu_stream stream, int m)
{
    static const float alpha = 1, beta;
    THAT(calls < CALLS_MAX);
    OK(cublasSetStream_v2(blas, stream));
    OK(cublasGemmEx(blas, 0, 0, m, 7, 5, &alpha, (void *)(uintptr_t)operand, R_16BF, m, (void *)(uintptr_t)notes, R_16BF, 5,
                    &beta, (void *)(uintptr_t)(results + C_BYTES * calls), R_16BF, m, COMPUTE_32F, TENSOR_OP));
    if (!capturing)
        OK(cu->context_sync());
    return calls++;
}

unsigned gemm(kfit_cu_stream stream)
{
    return gemm_of(stream, 13);
}

unsigned runs(void)
{
    OK(cu->context_sync());
    OK(cu->copy((kfit_cu_ptr)(uintptr_t)&seen, notes, sizeof seen));
    return (unsigned)seen.count;
}

uint64_t at(unsigned i)
{
    THAT(i < runs());
    return seen.run[i].at;
}

uint64_t at_call(unsigned call)
{
    for (unsigned i = runs(); i-- > 0;)
        if (seen.run[i].c == results + C_BYTES * call)
            return seen.run[i].at;
    printf("call %u was not run by us\n", call);
    exit(1);
}

void launch(kfit_cu_exec exec)
{
    OK(cu->graph_launch(exec, one));
    OK(cu->context_sync());
}

uint64_t slab_of(kfit_cu_exec exec)
{
    const unsigned n = runs();
    launch(exec);
    for (unsigned i = n; i < runs(); i++)
        THAT(at(i) == at(n));
    return at(n);
}

void begin(void)
{
    OK(cu->capture_begin(one, 0));
    capturing = true;
}

kfit_cu_graph end(void)
{
    kfit_cu_graph graph;
    capturing = false;
    OK(cu->capture_end(one, &graph));
    return graph;
}

kfit_cu_graph captured(int n)
{
    begin();
    while (n--)
        gemm(one);
    return end();
}

kfit_cu_exec made_of(kfit_cu_graph graph)
{
    kfit_cu_exec exec;
    OK(cu->graph_instantiate(&exec, graph, 0));
    return exec;
}

void all_differ(const uint64_t *slab, unsigned n)
{
    for (unsigned i = 0; i < n; i++)
        for (unsigned j = 0; j < i; j++)
            if (slab[i] == slab[j]) {
                printf("%u and %u work in the same\n", j, i);
                exit(1);
            }
}

/* ---- scenes ---- */

static void play_streams(void)
{
    uint64_t slab[5];
    kfit_cu_stream third, streams[] = {one, two, NULL, own};
    for (int i = 0; i < 8; i++)
        gemm(streams[i % 4]);
    for (unsigned i = 0; i < 4; i++) {
        slab[i] = at(i);
        THAT(slab[i] == at(i + 4));
    }
    OK(cu->stream_destroy(two));
    OK(cu->stream_create(&third, KFIT_CU_STREAM_NON_BLOCKING)); /* whose handle may have been another stream's */
    gemm(third);
    slab[4] = at(8);
    all_differ(slab, 5);
    printf("%s", third == two ? "used again\n" : "");
}

static void play_captures(void)
{
    kfit_cu_graph first = captured(3);
    gemm(one);
    kfit_cu_exec a = made_of(first), b = made_of(captured(2));
    uint64_t slab[] = {at(0), slab_of(a), slab_of(b), 0};
    THAT(slab_of(a) == slab[1] && slab_of(b) == slab[2]);
    OK(cu->exec_destroy(a)); /* it might be running */
    OK(cu->graph_destroy(first));
    slab[3] = slab_of(made_of(captured(1)));
    all_differ(slab, 4);
}

/* Two streams of one capture. */
static void play_forked(void)
{
    kfit_cu_event fork, join;
    unsigned call[4];
    OK(cu->event_create(&fork, 0));
    OK(cu->event_create(&join, 0));
    begin();
    call[0] = gemm(one);
    OK(cu->event_record(fork, one));
    OK(cuStreamWaitEvent(two, fork, 0));
    call[1] = gemm(two);
    call[2] = gemm(one);
    call[3] = gemm(two);
    OK(cu->event_record(join, two));
    OK(cuStreamWaitEvent(one, join, 0));
    launch(made_of(end()));
    THAT(at_call(call[0]) == at_call(call[2]) && at_call(call[1]) == at_call(call[3]));
    THAT(at_call(call[0]) != at_call(call[1]));
}

/* One stream whose launches do not wait for each other. */
static void play_untied(void)
{
    unsigned call[3];
    begin();
    call[0] = gemm(one);
    OK(cuStreamUpdateCaptureDependencies(one, NULL, 0, 0)); /* adds none */
    call[1] = gemm(one);
    OK(cuStreamUpdateCaptureDependencies(one, NULL, 0, 1)); /* what follows waits for nothing */
    call[2] = gemm(one);
    launch(made_of(end()));
    THAT(at_call(call[0]) == at_call(call[1]) && at_call(call[0]) != at_call(call[2]));
}

/* Executable graphs of one graph, and of copies of it, may run at once. */
static void play_again(void)
{
    kfit_cu_graph graph = captured(2), clone, inner = captured(2);
    kfit_cu_exec exec[6];
    uint64_t slab[10];
    char info[64]; /* CUgraphExecUpdateResultInfo */
    exec[0] = made_of(graph);
    slab[0] = slab_of(exec[0]);
    exec[1] = made_of(graph);
    OK(cuGraphInstantiate_v2(&exec[2], graph, NULL, NULL, 0));
    OK(cuGraphClone(&clone, graph));
    exec[3] = made_of(clone);
    exec[4] = made_of(graph);
    exec[5] = made_of(inner);
    for (int i = 1; i < 6; i++)
        slab[i] = slab_of(exec[i]);
    /* what is updated takes from the graph, and what is made of that next does not */
    OK(cuGraphExecUpdate_v2(exec[5], graph, info));
    OK(cuGraphExecUpdate_v2(exec[4], graph, info));
    slab[6] = slab_of(exec[5]);
    slab[7] = slab_of(exec[4]);
    THAT(slab_of(exec[0]) == slab[0]);
    /* the copy first */
    graph = captured(1);
    OK(cuGraphClone(&clone, graph));
    slab[8] = slab_of(made_of(clone));
    slab[9] = slab_of(made_of(graph));
    all_differ(slab, 10);
}

/* The slabs of n calls that an executable graph runs twice each, once in each of two. */
static void two_slabs(kfit_cu_exec exec, unsigned n, uint64_t slab[2])
{
    const unsigned before = runs();
    unsigned in_first = 0;
    launch(exec);
    THAT(runs() == before + 2 * n);
    slab[0] = at(before);
    slab[1] = 0;
    for (unsigned i = before; i < before + 2 * n; i++) {
        in_first += at(i) == slab[0];
        if (at(i) != slab[0]) {
            THAT(!slab[1] || at(i) == slab[1]);
            slab[1] = at(i);
        }
    }
    THAT(in_first == n);
}

/* As children, twice in one graph. */
static void play_children(void)
{
    kfit_cu_graph child = captured(2), parent;
    kfit_cu_exec alone = made_of(child);
    uint64_t slab[5];
    void *node;
    OK(cuGraphCreate(&parent, 0));
    OK(cuGraphAddChildGraphNode(&node, parent, NULL, 0, child));
    OK(cuGraphAddChildGraphNode(&node, parent, NULL, 0, child));
    kfit_cu_exec first = made_of(parent), second = made_of(parent);
    slab[0] = slab_of(alone);
    two_slabs(first, 2, slab + 1);
    two_slabs(second, 2, slab + 3);
    all_differ(slab, 5);
}

/* One that grew after something was made of it; one of more children than anybody counts on. */
static void play_grown(void)
{
    enum { MANY = 70 };
    kfit_cu_graph parent;
    uint64_t slab[4], at_first[MANY];
    void *node[MANY];
    OK(cuGraphCreate(&parent, 0));
    OK(cuGraphAddChildGraphNode(&node[0], parent, NULL, 0, captured(2)));
    kfit_cu_exec first = made_of(parent);
    OK(cuGraphAddChildGraphNode(&node[1], parent, &node[0], 1, captured(2)));
    slab[0] = slab_of(first);
    two_slabs(made_of(parent), 2, slab + 1);
    slab[3] = slab_of(first);
    THAT(slab[3] == slab[0]);
    all_differ(slab, 3);
    for (int i = 2; i < MANY; i++)
        OK(cuGraphAddChildGraphNode(&node[i], parent, &node[i - 1], 1, captured(2)));
    for (int again = 0; again < 2; again++) {
        kfit_cu_exec exec = made_of(parent);
        const unsigned run = runs();
        launch(exec);
        THAT(runs() == run + 2 * MANY);
        for (unsigned i = 0; i < MANY; i++) {
            at_first[i] = at(run + 2 * i);
            THAT(at(run + 2 * i + 1) == at_first[i]); /* one may read what the other wrote */
        }
        all_differ(at_first, MANY);
    }
}

/* A graph that someone holds while it is captured into gets the original's calls. */
static void play_into(void)
{
    kfit_cu_graph graph;
    OK(cuGraphCreate(&graph, 0));
    OK(cuStreamBeginCaptureToGraph(one, graph, NULL, NULL, 0, 0));
    capturing = true;
    gemm(one);
    end();
    launch(made_of(graph));
    THAT(runs() == 0);
}

/* A slab each, until there are none; a second of one graph gets one all the same. */
static void play_many(void)
{
    uint64_t slab[64];
    unsigned n = 0, had;
    size_t before, after, total;
    kfit_cu_graph first = captured(1);
    kfit_cu_exec exec = made_of(first);
    OK(cu->mem_info(&before, &total));
    do {
        had = runs();
        launch(exec);
        if (runs() > had)
            slab[n++] = at(had);
        exec = made_of(captured(1));
    } while (runs() > had && n < 62);
    gemm(one); /* has none yet, and gets none */
    OK(cu->mem_info(&after, &total));
    printf("%u slabs%s\n", n, before == after ? "" : ", more memory");
    slab[n++] = slab_of(made_of(first));
    all_differ(slab, n);
}

/* What the first call took is all that is taken. */
static void play_memory(void)
{
    size_t after_one, after, total;
    int mode = 0;
    gemm(one);
    OK(cu->mem_info(&after_one, &total));
    OK(cu->capture_mode(&mode));
    THAT(mode == 0); /* as it was */
    OK(cu->capture_mode(&mode));
    for (int i = 0; i < 20; i++) {
        gemm(two);
        kfit_cu_graph graph = captured(1);
        launch(made_of(graph));
        launch(made_of(graph));
    }
    OK(cu->mem_info(&after, &total));
    printf("%zu KiB, then %zu\n", (free_first - after_one) >> 10, (after_one - after) >> 10);
}

/* The first call of all comes in a capture. */
static void play_first(void)
{
    slab_of(made_of(captured(2)));
}

/* Two kernels, of which one leaves its memory zero, and the other does not. */
static void play_zero(void)
{
    for (int i = 0; i < 6; i++)
        gemm_of(one, i % 2 ? 17 : 13);
    for (unsigned i = 0; i < 6; i++)
        THAT(at(i) == at(i % 2) && (i % 2 || seen.run[i].first == 0));
    THAT(at(0) != at(1));
    begin();
    gemm_of(one, 13), gemm_of(one, 17), gemm_of(one, 13);
    kfit_cu_graph graph = end();
    for (int i = 0; i < 2; i++) {
        const unsigned run = runs();
        launch(made_of(graph));
        THAT(at(run) == at(run + 2) && at(run + 1) == at(run) + 256);
        THAT(!seen.run[run].first && !seen.run[run + 2].first);
    }
}

int main(int argc, char **argv)
{
    static const struct scene scenes[] = {
        {"streams", play_streams},   {"captures", play_captures}, {"forked", play_forked},
        {"untied", play_untied},     {"again", play_again},       {"children", play_children},
        {"grown", play_grown},       {"into", play_into},         {"many", play_many},
        {"memory", play_memory},     {"first", play_first},       {"zero", play_zero},
        {NULL, NULL},
    };
    const struct scene *const sets[] = {scenes, odd_scenes};
    if (argc != 3)
        return 2;
    setvbuf(stdout, NULL, _IOLBF, 0);
    const int why_not = start(argv[1]);
    for (int i = 0; !why_not && i < 2; i++)
        for (const struct scene *scene = sets[i]; scene->name; scene++)
            if (!strcmp(argv[2], scene->name)) {
                scene->play();
                printf("done\n");
                return 0;
            }
    return why_not ? why_not : 2;
}
