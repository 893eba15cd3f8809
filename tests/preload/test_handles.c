/* The tables of the driver's handles (handles.c) against a plain model of them, and what their places are like after a long
 * day. */
#include <pthread.h>
#include <time.h>

#include "driver.h"
#include "kfit_test.h"

_Alignas(64) struct kfit_driver kfit_driver; /* where the tables are kept */

enum { PLACES_LOG2 = 16, PLACES = 1 << PLACES_LOG2, ROOM = 12 << 10 };

static void lock(void)
{
    CHECK(kfit_handles_lock());
}

static bool put(enum kfit_handles which, uint64_t key, uint64_t owner, uint64_t value)
{
    const struct kfit_handle h = {key, owner, value, {0}};
    return kfit_handle_put(which, &h);
}

/* An address as a driver gives them, never twice. */
static uint64_t fresh_key(void)
{
    static uint64_t last = 0x7f0000000000;
    return last += 16 * (1 + kfit_test_random() % 64);
}

/* One of many that all come to lie at a place: the inverse of what the hash multiplies by. */
static uint64_t key_at(uint64_t place, uint64_t which)
{
    return (place << (64 - PLACES_LOG2) | (which + 1)) * 0xf1de83e19937733d;
}

/* ---- the model: a list, looked through from the front ---- */

struct model {
    struct kfit_handle at[ROOM];
    size_t count;
};

static size_t place_in(const struct model *m, uint64_t key)
{
    size_t i = 0;
    while (i < m->count && m->at[i].key != key)
        i++;
    return i;
}

static void forget(struct model *m, size_t i)
{
    m->at[i] = m->at[--m->count];
}

static void compare(enum kfit_handles which, const struct model *m)
{
    for (size_t i = 0; i < m->count; i++) {
        const struct kfit_handle *h = kfit_handle_find(which, m->at[i].key);
        CHECK_MSG(h, "%#" PRIx64 " is lost", m->at[i].key);
        CHECK(h->key == m->at[i].key && h->owner == m->at[i].owner && h->value == m->at[i].value);
    }
}

/* Few keys, so that most steps meet one that is there, and all of eight places next to one another, over the end of the
 * table: one chain, in which each is in the others' way. */
static void any_steps_as_a_list_would(void)
{
    enum { KEYS = 400, OWNERS = 40, STEPS = 60000 };
    static struct model model[KFIT_HANDLES];
    static uint64_t key[KEYS];
    for (int i = 0; i < KEYS; i++)
        key[i] = key_at((uint64_t)(i % 8 - 4), (uint64_t)i);
    lock();
    for (unsigned step = 0; step < STEPS; step++) {
        const enum kfit_handles which = (enum kfit_handles)(kfit_test_random() % KFIT_HANDLES);
        struct model *m = &model[which];
        const uint64_t r = kfit_test_random(), k = key[r % KEYS], owner = 100 + (r >> 20) % OWNERS;
        const size_t i = place_in(m, k);
        const bool there = i < m->count;
        struct kfit_handle out;
        switch (r >> 40 & 15) {
        case 0: /* an owner goes */
            kfit_handle_drop(which, owner);
            for (size_t j = m->count; j--;)
                if (m->at[j].owner == owner)
                    forget(m, j);
            break;
        case 1:
            if (r >> 50 & 63)
                break;
            kfit_handle_drop(which, 0);
            m->count = 0;
            break;
        case 2:
        case 3:
        case 4:
        case 5:
            CHECK_INT(kfit_handle_take(which, k, &out), there);
            if (there) {
                CHECK(out.key == k && out.owner == m->at[i].owner && out.value == m->at[i].value);
                forget(m, i);
            }
            break;
        case 6:
        case 7:
            CHECK_INT(kfit_handle_find(which, k) != NULL, there);
            break;
        default:
            CHECK(put(which, k, owner, r));
            m->at[there ? i : m->count++] = (struct kfit_handle){k, owner, r, {0}};
        }
        if (step % 100 == 0)
            for (unsigned w = 0; w < KFIT_HANDLES; w++)
                compare((enum kfit_handles)w, &model[w]);
    }
    kfit_handles_unlock();
}

static void fill(struct model *m)
{
    while (m->count < ROOM) {
        m->at[m->count] = (struct kfit_handle){fresh_key(), 1, m->count, {0}};
        CHECK(put(KFIT_GRAPHS, m->at[m->count].key, 1, m->count));
        m->count++;
    }
    CHECK(!put(KFIT_GRAPHS, fresh_key(), 1, 0)); /* no more; but one that is there may change */
    CHECK(put(KFIT_GRAPHS, m->at[0].key, 1, m->at[0].value));
    compare(KFIT_GRAPHS, m);
}

/* Filled to its room, half taken out: the others are there, behind those that went as well. And as many again: it has
 * room for them as long as places are used again. */
static void found_behind_those_that_went(void)
{
    static struct model m;
    struct kfit_handle out;
    lock();
    fill(&m);
    for (int round = 0; round < 3; round++) {
        for (size_t i = m.count; i--;)
            if (kfit_test_random() % 2) {
                CHECK(kfit_handle_take(KFIT_GRAPHS, m.at[i].key, &out));
                CHECK(!kfit_handle_find(KFIT_GRAPHS, m.at[i].key));
                forget(&m, i);
            }
        compare(KFIT_GRAPHS, &m);
        fill(&m);
    }
    kfit_handle_drop(KFIT_GRAPHS, 1);
    for (size_t i = 0; i < m.count; i++)
        CHECK(!kfit_handle_find(KFIT_GRAPHS, m.at[i].key));
    kfit_handles_unlock();
}

static void what_is_no_handle_is_not_kept(void)
{
    struct kfit_handle out;
    CHECK(!kfit_handle_find(KFIT_EXECS, 0)); /* before there are any tables */
    lock();
    for (uint64_t key = 0; key < 2; key++) {
        CHECK(!put(KFIT_EXECS, key, 1, 1));
        CHECK(!kfit_handle_find(KFIT_EXECS, key));
        CHECK(!kfit_handle_take(KFIT_EXECS, key, &out));
    }
    kfit_handles_unlock();
}

static double ns_per_miss(void)
{
    enum { MISSES = 1000 };
    struct timespec from, to;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &from);
    for (int i = 0; i < MISSES; i++)
        CHECK(!kfit_handle_find(KFIT_EXECS, fresh_key()));
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &to);
    return ((double)(to.tv_sec - from.tv_sec) * 1e9 + (double)(to.tv_nsec - from.tv_nsec)) / MISSES;
}

/* A program that makes and destroys all day: had each left its place used up, a search for one that is not there would go
 * through all of them. */
static void not_far_to_search(double before)
{
    const double after = ns_per_miss();
    CHECK_MSG(after < 20 * before + 500, "%.0f ns for one that is not there, and %.0f before", after, before);
}

/* Chains of four, which go from the front, everywhere. */
static void places_are_used_again(void)
{
    enum { CHAIN = 4 };
    struct kfit_handle out;
    lock();
    CHECK(put(KFIT_EXECS, fresh_key(), 1, 1));
    const double before = ns_per_miss();
    for (uint64_t place = 0; place < PLACES; place++) {
        for (uint64_t i = 0; i < CHAIN; i++)
            CHECK(put(KFIT_EXECS, key_at(place, i), 1, 1));
        for (uint64_t i = 0; i < CHAIN; i++)
            CHECK(kfit_handle_take(KFIT_EXECS, key_at(place, i), &out));
    }
    not_far_to_search(before);
    kfit_handles_unlock();
}

/* As many as there is room for, and each in its turn, by chance, makes way for another. */
static void a_full_table_for_days(void)
{
    static struct model m;
    struct kfit_handle out;
    lock();
    CHECK(put(KFIT_EXECS, fresh_key(), 1, 1));
    const double before = ns_per_miss();
    kfit_handle_drop(KFIT_EXECS, 1);
    for (; m.count < ROOM; m.count++)
        CHECK(put(KFIT_EXECS, m.at[m.count].key = fresh_key(), 1, 1));
    for (unsigned i = 0; i < 40 * PLACES; i++) {
        uint64_t *key = &m.at[kfit_test_random() % ROOM].key;
        CHECK(kfit_handle_take(KFIT_EXECS, *key, &out));
        CHECK(put(KFIT_EXECS, *key = fresh_key(), 1, 1));
    }
    not_far_to_search(before);
    kfit_handles_unlock();
}

/* Without the lock, while others come and go around it. */
static uint64_t stays[200];
static uint32_t over;

static void *look(void *unused)
{
    uintptr_t lost = 0;
    (void)unused;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED))
        for (int i = 0; i < 200; i++) {
            const struct kfit_handle *h = kfit_handle_find(KFIT_FUNCTIONS, stays[i]);
            lost += !h || __atomic_load_n(&h->value, __ATOMIC_RELAXED) != (uint64_t)i;
        }
    return (void *)lost;
}

static void one_that_stays_is_always_found(void)
{
    pthread_t thread[3];
    lock();
    for (int i = 0; i < 200; i++)
        CHECK(put(KFIT_FUNCTIONS, stays[i] = fresh_key(), 1, (uint64_t)i));
    kfit_handles_unlock();
    for (int i = 0; i < 3; i++)
        CHECK(!pthread_create(&thread[i], NULL, look, NULL));
    for (int round = 0; round < 50; round++) {
        lock();
        for (int i = 0; i < 1000; i++)
            CHECK(put(KFIT_FUNCTIONS, fresh_key(), 2, ~UINT64_C(0)));
        kfit_handle_drop(KFIT_FUNCTIONS, 2);
        kfit_handles_unlock();
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 3; i++) {
        void *lost;
        pthread_join(thread[i], &lost);
        CHECK_INT((uintptr_t)lost, 0);
    }
}

/* Handles that come and go at one place, each once: while a key is there, so is its value. */
static void *look_at_one(void *unused)
{
    const struct kfit_handle *h = kfit_driver.handles->at[KFIT_FUNCTIONS];
    uintptr_t without = 0;
    (void)unused;
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        const uint64_t key = __atomic_load_n(&h->key, __ATOMIC_ACQUIRE), value = __atomic_load_n(&h->value, __ATOMIC_ACQUIRE);
        without += !value && key > 1 && __atomic_load_n(&h->key, __ATOMIC_RELAXED) == key;
    }
    return (void *)without;
}

static void one_that_goes_is_never_without_its_value(void)
{
    enum { ROUNDS = 3000000 };
    struct kfit_handle out;
    pthread_t thread;
    void *without;
    lock();
    CHECK(!pthread_create(&thread, NULL, look_at_one, NULL));
    for (uint64_t round = 0; round < ROUNDS; round++) {
        CHECK(put(KFIT_FUNCTIONS, key_at(0, round), 1, 1));
        CHECK(kfit_handle_take(KFIT_FUNCTIONS, key_at(0, round), &out));
    }
    kfit_handles_unlock();
    __atomic_store_n(&over, 1, __ATOMIC_RELAXED);
    pthread_join(thread, &without);
    CHECK_INT((uintptr_t)without, 0);
}

static const struct kfit_test tests[] = {
    TEST(any_steps_as_a_list_would), TEST(found_behind_those_that_went), TEST(what_is_no_handle_is_not_kept),
    TEST(places_are_used_again),     TEST(a_full_table_for_days),        TEST(one_that_stays_is_always_found),
    TEST(one_that_goes_is_never_without_its_value),
};
TEST_MAIN(tests)
