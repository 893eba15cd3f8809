/* Runs a seed's threads as fibers: a cluster of blocks at a time, each thread until it waits for others. What cannot go on
 * (a barrier that nobody completes) is reported, not waited for. Addresses of shared memory: 24 bits in a block, the
 * block's rank above them. */
#include "kfit_cuda.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <sys/mman.h>
#include <ucontext.h>
#include <vector>

enum { STACK = 96 << 10, STATIC = 1 << 23, RANK = 1 << 24, CAN_MOVE = 0 };

#if KFIT_EPI == KFIT_EPI_BIAS
extern "C" void kfit_main(const kfit_in *, const kfit_in *, kfit_out *, const kfit_out *, void *);
#else
extern "C" void kfit_main(const kfit_in *, const kfit_in *, kfit_out *, void *);
#endif

emulated_dim threadIdx, blockIdx;
float shared[1];

struct barrier {
    int64_t pending, arrivals, bytes;
    unsigned phase;
};

struct warp {
    unsigned arrived, generation;
    float value[32], c[32][4];
    unsigned a[32][4], b[32][2];
    float result[32][4];
};

struct block {
    std::vector<char> smem;
    std::map<unsigned, barrier> barriers;
    unsigned arrived, generation;
    std::vector<warp> warps;
    emulated_dim index;
};

struct fiber {
    ucontext_t context;
    unsigned tid;
    block *home;
    char *stack;
    bool done;
};

struct argument {
    const char *at;
    size_t bytes;
    bool write;
};

static std::vector<block> cluster;
static std::vector<fiber> fibers;
static unsigned now, threads, cluster_arrived, cluster_generation;
static ucontext_t scheduler;
static bool moved; /* has anything gone on since all were asked? */
static char failure[256];
static std::vector<argument> arguments;
static std::map<unsigned, unsigned> cluster_waits; /* fiber: generation it arrived in */
static void *call[5];

static fiber &me(void) { return fibers[now]; }

static void yield(void) { swapcontext(&me().context, &scheduler); }

static void fail(const char *text)
{
    if (!failure[0])
        snprintf(failure, sizeof failure, "%s (block %u,%u thread %u)", text, blockIdx.x, blockIdx.y, threadIdx.x);
    for (;;)
        yield();
}

template <class F> static void wait_until(F ready)
{
    while (!ready())
        yield();
    moved = true;
}

/* ---- memory ---- */

void emulated_check(const void *p, size_t bytes, bool write)
{
    const char *at = (const char *)p;
    if ((uintptr_t)at % bytes)
        fail("misaligned access to global memory");
    for (const argument &a : arguments)
        if (at >= a.at && at + bytes <= a.at + a.bytes && (a.write || !write))
            return;
    fail(write ? "writes outside of the output" : "reads outside of the arguments");
}

void emulated_misaligned(void) { fail("misaligned in shared memory, or a copy of odd size"); }

unsigned emulated_address(const void *p)
{
    if (p == shared)
        return 1024;
    return STATIC + (unsigned)(me().stack + STACK - (const char *)p); /* the same distance in every thread */
}

static block &block_of(unsigned at)
{
    unsigned rank = at / RANK;
    return rank ? cluster[rank - 1] : *me().home;
}

void *emulated_shared(unsigned at, unsigned bytes)
{
    block &b = block_of(at);
    size_t offset = at % RANK - 1024;
    if (at % RANK < 1024 || offset + bytes > b.smem.size() || at % bytes)
        fail("outside of shared memory, or misaligned in it");
    return b.smem.data() + offset;
}

unsigned emulated_map(unsigned at, unsigned rank)
{
    if (rank >= cluster.size())
        fail("no such rank in the cluster");
    return at % RANK + (rank + 1) * RANK;
}

/* ---- waiting for others ---- */

void emulated_sync(void)
{
    block &b = *me().home;
    unsigned generation = b.generation;
    if (++b.arrived == threads) {
        b.arrived = 0;
        b.generation++;
    }
    moved = true;
    wait_until([&] { return b.generation != generation; });
}

/* The last lane to come computes for all. */
template <class F> static void together(F compute)
{
    warp &w = me().home->warps[me().tid / 32];
    unsigned generation = w.generation;
    if (++w.arrived == 32) {
        compute(w);
        w.arrived = 0;
        w.generation++;
    }
    moved = true;
    wait_until([&] { return w.generation != generation; });
}

float emulated_shuffle(float v, unsigned lane_mask)
{
    warp &w = me().home->warps[me().tid / 32];
    const unsigned lane = me().tid % 32;
    w.value[lane] = v;
    together([&](warp &x) {
        for (unsigned i = 0; i < 32; i++)
            x.result[i][0] = x.value[i ^ lane_mask];
    });
    return w.result[lane][0];
}

static float half_of(unsigned word, unsigned i) { return emulated_widen((unsigned short)(word >> 16 * i), KFIT_TYPE_A); }

void emulated_mma(float c[4], const unsigned a[4], unsigned b0, unsigned b1)
{
    warp &w = me().home->warps[me().tid / 32];
    const unsigned lane = me().tid % 32;
    memcpy(w.a[lane], a, 16);
    memcpy(w.c[lane], c, 16);
    w.b[lane][0] = b0;
    w.b[lane][1] = b1;
    together([](warp &x) {
        float m[16][16], n[16][8];
        for (unsigned l = 0; l < 32; l++)
            for (unsigned i = 0; i < 2; i++) {
                unsigned g = l / 4, k = l % 4 * 2 + i;
                m[g][k] = half_of(x.a[l][0], i);
                m[g + 8][k] = half_of(x.a[l][1], i);
                m[g][k + 8] = half_of(x.a[l][2], i);
                m[g + 8][k + 8] = half_of(x.a[l][3], i);
                n[k][g] = half_of(x.b[l][0], i);
                n[k + 8][g] = half_of(x.b[l][1], i);
            }
        for (unsigned l = 0; l < 32; l++)
            for (unsigned i = 0; i < 4; i++) {
                unsigned row = l / 4 + i / 2 * 8, col = l % 4 * 2 + i % 2;
                double s = x.c[l][i];
                for (unsigned k = 0; k < 16; k++)
                    s += (double)m[row][k] * n[k][col];
                x.result[l][i] = (float)s;
            }
    });
    memcpy(c, w.result[lane], 16);
}

unsigned emulated_rank(void) { return (unsigned)(me().home - cluster.data()); }

void emulated_cluster_arrive(void)
{
    cluster_waits[now] = cluster_generation;
    if (++cluster_arrived == fibers.size()) {
        cluster_arrived = 0;
        cluster_generation++;
    }
    moved = true;
}

void emulated_cluster_wait(void)
{
    wait_until([] { return cluster_waits[now] != cluster_generation; });
}

/* ---- barriers in shared memory ---- */

static barrier &barrier_at(unsigned at)
{
    block &b = block_of(at);
    auto found = b.barriers.find(at % RANK);
    if (found == b.barriers.end())
        fail("a barrier that was not initialised");
    return found->second;
}

static void settle(barrier &b)
{
    if (!b.pending && !b.bytes) {
        b.phase ^= 1;
        b.pending = b.arrivals;
        moved = true;
    }
}

void emulated_barrier_init(unsigned at, unsigned arrivals)
{
    block_of(at).barriers[at % RANK] = barrier{arrivals, arrivals, 0, 0};
}

void emulated_barrier_expect(unsigned at, unsigned bytes)
{
    barrier &b = barrier_at(at);
    b.bytes += bytes;
    b.pending--;
    settle(b);
}

void emulated_barrier_complete(unsigned at, unsigned bytes)
{
    barrier &b = barrier_at(at);
    b.bytes -= bytes;
    settle(b);
}

void emulated_barrier_wait(unsigned at, unsigned phase)
{
    barrier *b = &barrier_at(at);
    wait_until([&] { return b->phase != phase; });
}

/* ---- a launch ---- */

static void run_thread(void)
{
#if KFIT_EPI == KFIT_EPI_BIAS
    kfit_main((const kfit_in *)call[0], (const kfit_in *)call[1], (kfit_out *)call[2], (const kfit_out *)call[3], call[4]);
#else
    kfit_main((const kfit_in *)call[0], (const kfit_in *)call[1], (kfit_out *)call[2], call[3]);
#endif
    me().done = true;
    moved = true;
    for (;;)
        yield();
}

static void run_cluster(void)
{
    size_t left = fibers.size();
    while (left && !failure[0]) {
        moved = false;
        left = 0;
        for (now = 0; now < fibers.size() && !failure[0]; now++) {
            fiber &f = me();
            if (f.done)
                continue;
            threadIdx = {f.tid, 0, 0};
            blockIdx = f.home->index;
            swapcontext(&scheduler, &f.context);
            left += !f.done;
        }
        if (left && !moved && !failure[0])
            snprintf(failure, sizeof failure, "%zu threads wait for what never comes", left);
    }
}

/* args: the op's arguments, bytes of each, which may be written (the output alone). NULL: well; else what went wrong. */
extern "C" __attribute__((visibility("default"))) const char *
kfit_emulate(const unsigned grid[3], const unsigned cluster_dim[3], unsigned block_threads, unsigned smem_bytes, unsigned nargs,
             void *const args[], const size_t bytes[], unsigned out)
{
    threads = block_threads;
    failure[0] = '\0';
    arguments.clear();
    for (unsigned i = 0; i < nargs; i++) {
        arguments.push_back({(const char *)args[i], bytes[i], i == out});
        call[i] = args[i];
    }
    call[nargs] = NULL;
    const unsigned ranks = cluster_dim[1];
    char *stacks = (char *)mmap(NULL, (size_t)ranks * threads * STACK, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (stacks == MAP_FAILED || cluster_dim[0] != 1 || cluster_dim[2] != 1 || grid[2] != 1)
        return "cannot emulate such a launch";
    for (unsigned y = 0; y < grid[1] && !failure[0]; y += ranks)
        for (unsigned x = 0; x < grid[0] && !failure[0]; x++) {
            cluster.assign(ranks, block());
            fibers.assign((size_t)ranks * threads, fiber());
            cluster_waits.clear();
            cluster_arrived = 0;
            for (unsigned r = 0; r < ranks; r++) {
                cluster[r].smem.assign(smem_bytes, (char)0xff); /* NaN */
                cluster[r].warps.assign(threads / 32, warp());
                cluster[r].index = {x, y + r, 0};
                for (unsigned t = 0; t < threads; t++) {
                    fiber &f = fibers[(size_t)r * threads + t];
                    f.tid = t;
                    f.home = &cluster[r];
                    f.stack = stacks + ((size_t)r * threads + t) * STACK;
                    getcontext(&f.context);
                    f.context.uc_stack.ss_sp = f.stack;
                    f.context.uc_stack.ss_size = STACK;
                    f.context.uc_link = NULL;
                    makecontext(&f.context, run_thread, 0);
                }
            }
            run_cluster();
        }
    munmap(stacks, (size_t)ranks * threads * STACK);
    return failure[0] ? failure : NULL;
}
