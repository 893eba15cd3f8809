/* A GPU's trace: kernels and graphs as they are written, read, folded into counts, and found damaged. */
#include "kfit_test.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kfit/trace.h"

static struct kfit_error err;

static struct kfit_recorder *recorder(const char *dir)
{
    struct kfit_recorder *r;
    struct kfit_recorder_params p = {
        .dir = dir, .slot_count = 64, .mode = KFIT_MODE_RECORD, .suffix = "-cuda3", .live = true};
    CHECK_OK(kfit_recorder_create(&r, &p, &err), err);
    return r;
}

static struct kfit_trace_slot *slot(struct kfit_recorder *r, int m)
{
    char text[KFIT_KEY_TEXT_MAX];
    union kfit_key key;
    snprintf(text, sizeof text,
             "gemm/bf16,bf16,bf16/acc=f32/m=%d,n=8,k=8/nt/lda=8,ldb=8,ldc=8/alpha=1,beta=0/align=16", m);
    CHECK_OK(kfit_key_parse(text, &key, &err), err);
    struct kfit_trace_slot *s = kfit_recorder_slot(r, &key, kfit_key_hash(&key));
    CHECK(s);
    return s;
}

static struct kfit_trace_item of_slot(struct kfit_recorder *r, int m, enum kfit_reason decision)
{
    return (struct kfit_trace_item){kfit_item_slot(kfit_recorder_header(r), slot(r, m)), (uint16_t)decision,
                                    1};
}

static struct kfit_trace_item of_kernel(struct kfit_recorder *r, const char *name, enum kfit_launched_by by)
{
    struct kfit_trace_kernel *k = kfit_recorder_kernel(r, name, 7);
    CHECK(k);
    return (struct kfit_trace_item){kfit_item_kernel(kfit_recorder_header(r), k), (uint16_t)by, 1};
}

static void launch(struct kfit_trace_graph *g, uint64_t times)
{
    __atomic_fetch_add(&g->launches, times, __ATOMIC_RELAXED);
}

static struct kfit_trace *read_trace(const char *path)
{
    struct kfit_trace *t;
    CHECK_OK(kfit_trace_read(path, &t, &err), err);
    return t;
}

static const struct kfit_trace_slot *find_slot(const struct kfit_trace *t, int m)
{
    for (size_t i = 0; i < kfit_trace_count(t); i++)
        if (kfit_trace_at(t, i)->key.gemm.m == m)
            return kfit_trace_at(t, i);
    CHECK_MSG(false, "no m=%d", m);
    return NULL;
}

static const struct kfit_trace_kernel *find_kernel(const struct kfit_trace *t, const char *name)
{
    for (size_t i = 0; i < kfit_trace_kernel_count(t); i++)
        if (!strcmp(kfit_trace_kernel_at(t, i)->name, name))
            return kfit_trace_kernel_at(t, i);
    CHECK_MSG(false, "no kernel %s", name);
    return NULL;
}

static void replays_are_calls(void)
{
    struct kfit_recorder *r = recorder(kfit_test_dir());
    CHECK_MSG(strstr(kfit_recorder_path(r), "-cuda3.kft"), "%s", kfit_recorder_path(r));
    CHECK_STR(kfit_recorder_header(r)->device, "cuda3");
    struct stat st;
    CHECK(!stat(kfit_recorder_path(r), &st) && st.st_blocks * 512 >= st.st_size); /* in full */
    const struct kfit_trace_item items[] = {
        of_slot(r, 1, KFIT_REASON_NONE),           of_slot(r, 1, KFIT_REASON_NONE),
        of_slot(r, 1, KFIT_REASON_ALIGN),          of_kernel(r, "norm", KFIT_LAUNCHED_OTHER),
        of_slot(r, 2, KFIT_REASON_NO_RECORD),      of_kernel(r, "gemm", KFIT_LAUNCHED_IN_OP),
        of_kernel(r, "gemm", KFIT_LAUNCHED_IN_OP), of_slot(r, 1, KFIT_REASON_NONE)};
    struct kfit_trace_graph *a = kfit_recorder_graph(r, 3, items, 8),
                            *b = kfit_recorder_graph(r, 3, items, 2);
    struct kfit_trace_graph *empty = kfit_recorder_graph(r, 3, NULL, 0);
    CHECK(a && b && empty && a->ours == 3 && b->ours == 2);
    launch(a, 10);
    launch(b, 1000);
    launch(empty, 5);
    __atomic_store_n(&b->state, KFIT_GRAPH_GONE, __ATOMIC_RELEASE); /* what it ran, it ran */
    kfit_slot_count(slot(r, 1), KFIT_REASON_NONE);
    kfit_recorder_kernel(r, "norm", 7)->launches[KFIT_LAUNCHED_OTHER] += 4;

    struct kfit_trace *t = read_trace(kfit_recorder_path(r));
    CHECK_INT(find_slot(t, 1)->count[KFIT_REASON_NONE], 1 + 3 * 10 + 2 * 1000);
    CHECK_INT(find_slot(t, 1)->count[KFIT_REASON_ALIGN], 10);
    CHECK_INT(find_slot(t, 2)->count[KFIT_REASON_NO_RECORD], 10);
    CHECK_INT(find_kernel(t, "norm")->launches[KFIT_LAUNCHED_OTHER], 4 + 10);
    CHECK_INT(find_kernel(t, "gemm")->launches[KFIT_LAUNCHED_IN_OP], 20);
    CHECK_INT(find_kernel(t, "gemm")->image_hash, 7);
    const struct kfit_trace_launches l = kfit_trace_launches(t);
    CHECK_INT(l.ours, 2031);
    CHECK_INT(l.in_op, 20);
    CHECK_INT(l.other, 14);

    CHECK_INT(kfit_trace_graph_count(t), 3);
    CHECK_INT(kfit_trace_live_skipped(t), 0);
    const struct kfit_trace_graph *g = kfit_trace_graph_at(t, 0);
    const struct kfit_trace_item *i = kfit_trace_graph_items(t, g);
    CHECK_INT(g->count, 6); /* alike neighbours are one */
    CHECK_INT(g->device, 3);
    CHECK(g->made_unix_ns >= kfit_trace_header(t)->start_unix_ns);
    CHECK_INT(i[0].times, 2);
    CHECK(kfit_item_is_ours(&i[0]) && !kfit_item_is_ours(&i[1]) && !kfit_item_is_ours(&i[2]));
    CHECK_INT(kfit_trace_at(t, i[3].what)->key.gemm.m, 2);
    CHECK_STR(kfit_trace_kernel_at(t, i[4].what & KFIT_ITEM_INDEX)->name, "gemm");
    CHECK_INT(i[4].times, 2);
    CHECK_INT(kfit_trace_graph_at(t, 1)->state, KFIT_GRAPH_GONE);
    kfit_trace_destroy(t);
    kfit_recorder_destroy(r);
}

static void counts_stop_at_their_end(void)
{
    struct kfit_recorder *r = recorder(kfit_test_dir());
    struct kfit_trace_item many[70000];
    for (size_t i = 0; i < 70000; i++)
        many[i] = of_slot(r, 1, KFIT_REASON_OFF);
    struct kfit_trace_graph *a = kfit_recorder_graph(r, 0, many, 70000);
    struct kfit_trace_graph *b = kfit_recorder_graph(r, 0, many, 1);
    CHECK_INT(a->count, 2); /* times has 16 bits */
    launch(a, 3);
    struct kfit_trace *t = read_trace(kfit_recorder_path(r));
    CHECK_INT(find_slot(t, 1)->count[KFIT_REASON_OFF], 210000);
    kfit_trace_destroy(t);
    a->launches = UINT64_MAX / UINT16_MAX + 2; /* the product has more than 64 bits */
    t = read_trace(kfit_recorder_path(r));
    CHECK(find_slot(t, 1)->count[KFIT_REASON_OFF] == UINT64_MAX);
    kfit_trace_destroy(t);
    a->launches = 10; /* the sum has */
    launch(b, UINT64_MAX - 5);
    t = read_trace(kfit_recorder_path(r));
    CHECK(find_slot(t, 1)->count[KFIT_REASON_OFF] == UINT64_MAX);
    kfit_trace_destroy(t);
    kfit_recorder_destroy(r);
}

/* A server captures each of its layers: alike but for the addresses. One that captures anew gets its entry back. */
static void alike_graphs_share(void)
{
    struct kfit_recorder *r = recorder(kfit_test_dir());
    const struct kfit_trace_item items[] = {of_slot(r, 1, KFIT_REASON_OFF), of_slot(r, 2, KFIT_REASON_OFF),
                                            of_slot(r, 2, KFIT_REASON_ALIGN)};
    const struct kfit_trace_live *l = &kfit_recorder_header(r)->live;
    struct kfit_trace_graph *g[33];
    for (int i = 0; i < 33; i++)
        CHECK((g[i] = kfit_recorder_graph(r, 0, items, 3)) && (!i || g[i] != g[i - 1]));
    CHECK_INT(l->graphs_used, 33);
    CHECK_INT(l->items_used, 3);
    CHECK(kfit_recorder_graph(r, 0, items, 2) && l->items_used == 5); /* a beginning is another one */

    g[7]->launches = 5;
    __atomic_store_n(&g[7]->state, KFIT_GRAPH_GONE, __ATOMIC_RELEASE);
    CHECK(kfit_recorder_graph(r, 1, items, 3) != g[7]); /* of another GPU */
    CHECK(kfit_recorder_graph(r, 0, items, 3) == g[7] && g[7]->state == KFIT_GRAPH_READY);
    CHECK_INT(g[7]->launches, 5);
    kfit_recorder_destroy(r);
}

static void without_room_it_is_lost_and_said(void)
{
    struct kfit_recorder *r = recorder(kfit_test_dir());
    const struct kfit_trace_live *l = &kfit_recorder_header(r)->live;
    char name[32];
    for (unsigned i = 0; i < 2 * l->kernel_count; i++) {
        snprintf(name, sizeof name, "kernel%u", i);
        struct kfit_trace_kernel *k = kfit_recorder_kernel(r, name, i);
        CHECK(k);
        k->launches[KFIT_LAUNCHED_OTHER]++;
    }
    CHECK(kfit_recorder_kernel(r, "kernel1", 1) != kfit_recorder_kernel(r, "kernel1", 2));

    const uint32_t room = l->item_count;
    struct kfit_trace_item *items = malloc((room + 10) * sizeof *items);
    CHECK(items);
    for (uint32_t i = 0; i < room + 10; i++)
        items[i] = of_slot(r, 1 + (int)(i & 1), i == room + 4 ? KFIT_REASON_NONE : KFIT_REASON_OFF);
    struct kfit_trace_graph *first = kfit_recorder_graph(r, 0, items, room - 2);
    struct kfit_trace_graph *cut = kfit_recorder_graph(r, 0, items + 1, room + 9);
    struct kfit_trace_graph *none = kfit_recorder_graph(r, 0, items + 3, 4);
    CHECK(first && !first->lost && cut && none);
    CHECK_INT(cut->count, 2);
    CHECK_INT(cut->lost, room + 7);
    CHECK_INT(cut->ours, 1); /* lost or not: it is there */
    CHECK_INT(none->count, 0);
    CHECK_INT(none->lost, 4);
    launch(cut, 10);
    launch(none, 1);
    __atomic_store_n(&cut->state, KFIT_GRAPH_GONE, __ATOMIC_RELEASE);
    CHECK(kfit_recorder_graph(r, 0, items + 1, 2) != cut); /* alike as far as it is known */
    while (l->graphs_used < l->graph_count)
        CHECK(kfit_recorder_graph(r, 0, items, 1));
    CHECK(!kfit_recorder_graph(r, 0, items, 1));
    CHECK_INT(l->ours_unlisted, 0);
    CHECK(!kfit_recorder_graph(r, 0, items + room + 4, 1));
    CHECK_INT(l->ours_unlisted, 1);
    free(items);

    struct kfit_trace *t = read_trace(kfit_recorder_path(r));
    CHECK_INT(find_kernel(t, KFIT_TRACE_OTHER_KERNELS)->launches[0],
              2 * l->kernel_count - l->kernel_count * 7 / 8);
    CHECK_INT(kfit_trace_launches(t).other, 2 * l->kernel_count);
    CHECK_INT(find_slot(t, 2)->count[KFIT_REASON_OFF], 10);
    CHECK_INT(find_slot(t, 1)->count[KFIT_REASON_OFF], 10);
    CHECK_INT(kfit_trace_graph_count(t), l->graph_count);
    CHECK_INT(kfit_trace_live_skipped(t), 0);
    kfit_trace_destroy(t);
    kfit_recorder_destroy(r);
}

static void a_host_trace_has_none_of_it(void)
{
    struct kfit_recorder *r;
    const struct kfit_recorder_params p = {.dir = kfit_test_dir(), .slot_count = 64};
    const struct kfit_trace_item item = {0, 0, 1};
    CHECK_OK(kfit_recorder_create(&r, &p, &err), err);
    CHECK(!kfit_recorder_kernel(r, "k", 1) && !kfit_recorder_graph(r, 0, &item, 1));
    CHECK(!kfit_recorder_kernel(NULL, "k", 1) && !kfit_recorder_graph(NULL, 0, &item, 1));
    struct kfit_trace *t = read_trace(kfit_recorder_path(r));
    CHECK_INT(kfit_trace_kernel_count(t) + kfit_trace_graph_count(t), 0);
    CHECK_INT(kfit_trace_header(t)->live.kernels_at, 0);
    CHECK_STR(kfit_trace_header(t)->device, "");
    struct kfit_recorder *gpu = recorder(kfit_test_dir());
    struct kfit_trace *of_gpu = read_trace(kfit_recorder_path(gpu));
    struct kfit_trace_header other = *kfit_trace_header(t);
    CHECK(kfit_trace_same_process(kfit_trace_header(t), kfit_trace_header(of_gpu)));
    other.start_ticks++; /* the pid of one that ended */
    CHECK(!kfit_trace_same_process(&other, kfit_trace_header(of_gpu)));
    kfit_trace_destroy(of_gpu);
    kfit_recorder_destroy(gpu);
    kfit_trace_destroy(t);
    kfit_recorder_destroy(r);
}

static void memory_only(void)
{
    struct kfit_recorder *r = recorder(NULL);
    const struct kfit_trace_item item = of_slot(r, 1, KFIT_REASON_NONE);
    struct kfit_trace_graph *g = kfit_recorder_graph(r, 0, &item, 1);
    CHECK_STR(kfit_recorder_path(r), "");
    CHECK(g && g->ours == 1 && kfit_recorder_kernel(r, "k", 1));
    kfit_recorder_destroy(r);
}

/* The child's own trace has no graphs: CUDA does not live through a fork. The parent's it leaves as they are, also where
 * it still launches them. */
static void a_forked_child_has_no_graphs(void)
{
    struct kfit_recorder *r = recorder(kfit_test_dir());
    const struct kfit_trace_item item = of_slot(r, 1, KFIT_REASON_NONE);
    struct kfit_trace_graph *g = kfit_recorder_graph(r, 0, &item, 1);
    struct kfit_trace_kernel *k = kfit_recorder_kernel(r, "k", 1);
    int out[2];
    CHECK(!pipe(out));
    pid_t pid = fork();
    if (!pid) {
        kfit_recorder_abandon(r);
        launch(g, 1);
        g->state = KFIT_GRAPH_GONE;
        k->launches[0]++;
        CHECK(kfit_recorder_graph(r, 0, &item, 1) && kfit_recorder_kernel(r, "l", 1));
        struct kfit_recorder *own = recorder(kfit_test_dir());
        char path[512] = "";
        snprintf(path, sizeof path, "%s", kfit_recorder_path(own));
        CHECK(write(out[1], path, sizeof path) == sizeof path);
        _exit(0);
    }
    char path[512];
    int status;
    close(out[1]);
    CHECK(read(out[0], path, sizeof path) == sizeof path);
    CHECK(waitpid(pid, &status, 0) == pid && !status);
    CHECK(strcmp(path, kfit_recorder_path(r)));
    struct kfit_trace *own = read_trace(path), *t = read_trace(kfit_recorder_path(r));
    CHECK_INT(kfit_trace_kernel_count(own) + kfit_trace_graph_count(own), 0);
    CHECK_INT(kfit_trace_graph_count(t), 1);
    CHECK_INT(kfit_trace_graph_at(t, 0)->launches, 0);
    CHECK_INT(kfit_trace_graph_at(t, 0)->state, KFIT_GRAPH_READY);
    CHECK_INT(kfit_trace_kernel_count(t), 1);
    kfit_trace_destroy(own);
    kfit_trace_destroy(t);
    kfit_recorder_destroy(r);
}

/* ---- many threads ---- */

enum { THREADS = 8, ROUNDS = 200 };

static pthread_barrier_t together;

static void *hammer(void *arg)
{
    struct kfit_recorder *r = arg;
    for (int i = 0; i < ROUNDS; i++) {
        char name[32];
        snprintf(name, sizeof name, "kernel%d", i);
        pthread_barrier_wait(&together); /* all meet on each new one */
        struct kfit_trace_kernel *k = kfit_recorder_kernel(r, name, 1);
        __atomic_fetch_add(&k->launches[0], 1, __ATOMIC_RELAXED);
        const struct kfit_trace_item items[] = {
            {kfit_item_kernel(kfit_recorder_header(r), k), KFIT_LAUNCHED_OTHER, 1}};
        struct kfit_trace_graph *g = kfit_recorder_graph(r, 0, items, 1);
        launch(g, 2);
        __atomic_store_n(&g->state, KFIT_GRAPH_GONE, __ATOMIC_RELEASE);
    }
    return NULL;
}

static void many_threads_lose_nothing(void)
{
    struct kfit_recorder *r = recorder(kfit_test_dir());
    pthread_t t[THREADS];
    CHECK(!pthread_barrier_init(&together, NULL, THREADS));
    for (int i = 0; i < THREADS; i++)
        CHECK(!pthread_create(&t[i], NULL, hammer, r));
    for (int i = 0; i < THREADS; i++)
        pthread_join(t[i], NULL);
    struct kfit_trace *trace = read_trace(kfit_recorder_path(r));
    CHECK_INT(kfit_trace_kernel_count(trace), ROUNDS);
    CHECK_INT(kfit_recorder_header(r)->live.kernels_used, ROUNDS);
    for (int i = 0; i < ROUNDS; i++)
        CHECK_INT(kfit_trace_kernel_at(trace, (size_t)i)->launches[0], 3 * THREADS);
    kfit_trace_destroy(trace);
    kfit_recorder_destroy(r);
}

/* ---- bytes ---- */

static void check_golden(const struct kfit_trace *t)
{
    CHECK_INT(find_slot(t, 1)->count[KFIT_REASON_NONE], 1000 + 15 * 2);
    CHECK_INT(find_slot(t, 2)->count[KFIT_REASON_NO_RECORD], 2 + 15);
    CHECK_INT(find_slot(t, 4)->count[KFIT_REASON_NEGATIVE], 100);
    CHECK_INT(kfit_trace_kernel_count(t), 3);
    CHECK_INT(find_kernel(t, "gemm_kernel")->launches[KFIT_LAUNCHED_IN_OP], 1000 + 300);
    CHECK_INT(find_kernel(t, "gemm_kernel")->image_hash, INT64_C(0x1122334455667788));
    CHECK_INT(find_kernel(t, "reduce_kernel")->launches[KFIT_LAUNCHED_IN_OP], 500);
    CHECK_INT(find_kernel(t, "norm_kernel")->launches[KFIT_LAUNCHED_OTHER], 7 + 15);
    CHECK_INT(find_kernel(t, "norm_kernel")->image_hash, 0);
}

static void golden_bytes(void)
{
    struct kfit_trace *t = read_trace(GOLDEN "/trace-1-cuda.kft");
    const struct kfit_trace_live *l = &kfit_trace_header(t)->live;
    CHECK_INT(l->kernels_at, 4096 + 8 * 320);
    CHECK_INT(l->graphs_at, 4096 + 8 * 320 + 8 * 256);
    CHECK_INT(l->items_at, 4096 + 8 * 320 + 8 * 256 + 4 * 64);
    CHECK_INT(l->kernels_used, 3);
    CHECK_INT(l->graphs_used, 3);
    CHECK_INT(l->items_used, 5);
    CHECK_STR(kfit_trace_header(t)->job, "job/29500");
    CHECK_STR(kfit_trace_header(t)->device, "cuda0");
    CHECK_INT(kfit_trace_count(t), 3);
    check_golden(t);
    CHECK_INT(kfit_trace_live_skipped(t), 0);
    CHECK_INT(kfit_trace_graph_count(t), 3);
    const struct kfit_trace_graph *g = kfit_trace_graph_at(t, 2);
    const struct kfit_trace_item *i = kfit_trace_graph_items(t, g);
    CHECK_INT(g->state, KFIT_GRAPH_READY);
    CHECK_INT(g->lost, 7);
    CHECK_INT(g->launches, 100);
    CHECK_INT(g->made_unix_ns, INT64_C(1700000012000000000));
    CHECK_INT(g->count, 2);
    CHECK_INT(g->number, 2);
    CHECK_STR(kfit_trace_kernel_at(t, i[0].what & KFIT_ITEM_INDEX)->name, "gemm_kernel");
    CHECK_INT(i[0].decision, KFIT_LAUNCHED_IN_OP);
    CHECK_INT(i[0].times, 3);
    CHECK_INT(kfit_trace_at(t, i[1].what)->key.gemm.m, 4);
    CHECK_INT(i[1].decision, KFIT_REASON_NEGATIVE);
    kfit_trace_destroy(t);
}

/* Written and merged traces count what was replayed once and for all: not again when they are read. */
static void what_was_replayed_is_kept_without_graphs(void)
{
    struct kfit_trace *t = read_trace(GOLDEN "/trace-1-cuda.kft"), *sum, *back;
    char path[128];
    snprintf(path, sizeof path, "%s/copy", kfit_test_dir());
    CHECK_OK(kfit_trace_write(t, path, &err), err);
    back = read_trace(path);
    check_golden(back);
    CHECK_INT(kfit_trace_graph_count(back), 0);
    CHECK_INT(kfit_trace_header(back)->live.kernels_used, 3);

    const struct kfit_trace *const both[] = {t, back};
    CHECK_OK(kfit_trace_merge(both, 2, false, &sum, &err), err);
    CHECK_INT(kfit_trace_kernel_count(sum), 3);
    CHECK_INT(find_kernel(sum, "norm_kernel")->launches[KFIT_LAUNCHED_OTHER], 2 * 22);
    CHECK_INT(find_slot(sum, 1)->count[KFIT_REASON_NONE], 2 * 1030);
    kfit_trace_destroy(back);
    CHECK_OK(kfit_trace_write(sum, path, &err), err);
    back = read_trace(path);
    CHECK_INT(find_kernel(back, "gemm_kernel")->launches[KFIT_LAUNCHED_IN_OP], 2 * 1300);
    CHECK_INT(kfit_trace_graph_count(sum) + kfit_trace_graph_count(back), 0);
    CHECK_INT(kfit_trace_launches(back).ours, kfit_trace_launches(sum).ours);
    kfit_trace_destroy(back);
    kfit_trace_destroy(sum);
    kfit_trace_destroy(t);
}

/* ---- hostile bytes ---- */

enum { KERNELS_AT = 4096 + 8 * 320, GRAPHS_AT = KERNELS_AT + 8 * 256, ITEMS_AT = GRAPHS_AT + 4 * 64 };
#define LIVE(field)     (offsetof(struct kfit_trace_header, live) + offsetof(struct kfit_trace_live, field))
#define GRAPH(i, field) (GRAPHS_AT + (i)*64 + offsetof(struct kfit_trace_graph, field))
#define ITEM(i, field)  (ITEMS_AT + (i)*8 + offsetof(struct kfit_trace_item, field))

static enum kfit_status read_changed(size_t at, uint64_t value, size_t bytes, struct kfit_trace **t)
{
    size_t n;
    char *all = kfit_test_read(GOLDEN "/trace-1-cuda.kft", &n), path[128];
    snprintf(path, sizeof path, "%s/changed", kfit_test_dir());
    CHECK(at + bytes <= n);
    memcpy(all + at, &value, bytes);
    kfit_test_write(path, all, n);
    free(all);
    return kfit_trace_read(path, t, &err);
}

static void parts_in_the_wrong_place_refuse_the_file(void)
{
    static const struct {
        size_t at;
        uint64_t value;
        size_t bytes;
    } table[] = {
        {LIVE(kernels_at), 0, 8},           {LIVE(kernels_at), 4096, 8},
        {LIVE(kernels_at), UINT64_MAX, 8},  {LIVE(graphs_at), KERNELS_AT, 8},
        {LIVE(graphs_at), 1ull << 40, 8},   {LIVE(items_at), GRAPHS_AT, 8},
        {LIVE(items_at), ITEMS_AT + 8, 8},  {LIVE(kernel_count), 9, 4},
        {LIVE(kernel_count), 0, 4},         {LIVE(graph_count), 5, 4},
        {LIVE(graph_count), UINT32_MAX, 4}, {LIVE(item_count), 9, 4},
        {LIVE(item_count), 0, 4},           {LIVE(item_count), UINT32_MAX, 4},
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct kfit_trace *t;
        CHECK_STATUS(read_changed(table[i].at, table[i].value, table[i].bytes, &t), KFIT_E_FORMAT);
        CHECK_MSG(strstr(err.text, "damaged header"), "%s", err.text);
    }
}

static void damaged_entries_are_skipped(void)
{
    static const struct {
        size_t at;
        uint64_t value;
        size_t bytes;
        int skipped, m1, norm; /* calls of m=1, launches of norm_kernel */
    } table[] = {
        {GRAPH(0, state), 1, 4, 1, 1000 + 10, 7 + 5},
        {GRAPH(0, state), 9, 4, 1, 1000 + 10, 7 + 5},
        {GRAPH(0, state), 0, 4, 0, 1000 + 10, 7 + 5}, /* not there */
        {GRAPH(0, first), 6, 4, 1, 1000 + 10, 7 + 5}, /* 3 of 8 from the 7th on */
        {GRAPH(0, first), UINT32_MAX, 4, 1, 1000 + 10, 7 + 5},
        {GRAPH(0, count), 9, 4, 1, 1000 + 10, 7 + 5},
        {GRAPH(0, count), UINT32_MAX, 4, 1, 1000 + 10, 7 + 5},
        {GRAPH(0, count), 1, 4, 0, 1000 + 30, 7 + 5},
        {ITEM(0, what), 8, 4, 1, 1000, 7 + 15}, /* beyond the slots */
        {ITEM(0, what), 0, 4, 1, 1000, 7 + 15}, /* an empty slot */
        {ITEM(0, what), KFIT_ITEM_KERNEL - 1, 4, 1, 1000, 7 + 15},
        {ITEM(0, decision), KFIT_TRACE_REASONS, 2, 1, 1000, 7 + 15},
        {ITEM(0, times), 0, 2, 1, 1000, 7 + 15},
        {ITEM(0, times), 3, 2, 0, 1000 + 45, 7 + 15},
        {ITEM(1, what), KFIT_ITEM_KERNEL | 8, 4, 1, 1000 + 30, 7}, /* beyond the kernels */
        {ITEM(1, what), KFIT_ITEM_KERNEL | 0, 4, 1, 1000 + 30, 7},
        {ITEM(1, what), KFIT_ITEM_UNKNOWN, 4, 1, 1000 + 30, 7},
        {ITEM(1, decision), KFIT_LAUNCHED_BY, 2, 1, 1000 + 30, 7},
        {KERNELS_AT + 6 * 256, KFIT_SLOT_CLAIMED, 4, 2, 1000 + 30, 0}, /* its item as well */
        {KERNELS_AT + 6 * 256 + 40, 'm', 1, 2, 1000 + 30, 0},          /* another name than was hashed */
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct kfit_trace *t;
        CHECK_OK(read_changed(table[i].at, table[i].value, table[i].bytes, &t), err);
        CHECK_MSG((int)kfit_trace_live_skipped(t) == table[i].skipped, "%zu: %zu", i,
                  kfit_trace_live_skipped(t));
        CHECK_MSG((int)find_slot(t, 1)->count[KFIT_REASON_NONE] == table[i].m1, "%zu", i);
        if (table[i].norm)
            CHECK_MSG((int)find_kernel(t, "norm_kernel")->launches[0] == table[i].norm, "%zu", i);
        else
            CHECK_INT(kfit_trace_kernel_count(t), 2);
        kfit_trace_destroy(t);
    }
}

/* Every truncation is refused; with any bit flipped it is refused, or there is nothing in it that was not there. */
static void damaged_copies(void)
{
    size_t n;
    char *bytes = kfit_test_read(GOLDEN "/trace-1-cuda.kft", &n), path[128];
    struct kfit_trace *t;
    snprintf(path, sizeof path, "%s/damaged", kfit_test_dir());
    for (size_t cut = KERNELS_AT; cut < n; cut += 61) {
        kfit_test_write(path, bytes, cut);
        CHECK_STATUS(kfit_trace_read(path, &t, &err), KFIT_E_FORMAT);
    }
    kfit_test_write(path, bytes, n);
    int fd = open(path, O_RDWR);
    for (size_t bit = 8 * LIVE(kernels_at); bit < 8 * n; bit += 1 + kfit_test_random() % 3) {
        if (bit >= 8 * sizeof(struct kfit_trace_header) && bit < 8 * KERNELS_AT)
            bit = 8 * KERNELS_AT; /* slots are test_trace's */
        char flipped = (char)(bytes[bit / 8] ^ (1 << bit % 8));
        CHECK(pwrite(fd, &flipped, 1, (off_t)(bit / 8)) == 1);
        if (kfit_trace_read(path, &t, &err) == KFIT_OK) {
            CHECK_INT(kfit_trace_count(t), 3);
            for (size_t i = 0; i < kfit_trace_kernel_count(t); i++) {
                const char *name = kfit_trace_kernel_at(t, i)->name;
                CHECK_MSG(strstr(name, "_kernel"), "%s", name);
            }
            for (size_t i = 0; i < kfit_trace_graph_count(t); i++) {
                const struct kfit_trace_graph *g = kfit_trace_graph_at(t, i);
                const struct kfit_trace_item *item = kfit_trace_graph_items(t, g);
                for (uint32_t k = 0; k < g->count; k++)
                    CHECK(item[k].what == KFIT_ITEM_UNKNOWN ||
                          (item[k].what & KFIT_ITEM_INDEX) <
                              (item[k].what & KFIT_ITEM_KERNEL ? kfit_trace_kernel_count(t) : 3));
            }
            kfit_trace_destroy(t);
        } else {
            CHECK(bit / 8 < sizeof(struct kfit_trace_header) && err.text[0]);
        }
        CHECK(pwrite(fd, &bytes[bit / 8], 1, (off_t)(bit / 8)) == 1);
    }
    close(fd);
    free(bytes);
}

static const struct kfit_test tests[] = {
    TEST(replays_are_calls),
    TEST(counts_stop_at_their_end),
    TEST(alike_graphs_share),
    TEST(without_room_it_is_lost_and_said),
    TEST(a_host_trace_has_none_of_it),
    TEST(memory_only),
    TEST(a_forked_child_has_no_graphs),
    TEST(many_threads_lose_nothing),
    TEST(golden_bytes),
    TEST(what_was_replayed_is_kept_without_graphs),
    TEST(parts_in_the_wrong_place_refuse_the_file),
    TEST(damaged_entries_are_skipped),
    TEST(damaged_copies),
};
TEST_MAIN(tests)
