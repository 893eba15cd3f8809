/* The control word, and taking over generations approved while this process runs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kfit/generation.h"
#include "internal.h"

/* As torchrun, Open MPI, MPICH and Slurm tell it: ranks must not change their tables one after another. */
static bool one_of_several(void)
{
    static const char *const sizes[] = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_NTASKS"};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        const char *text = secure_getenv(sizes[i]);
        if (text && *text && strcmp(text, "1"))
            return true;
    }
    return false;
}

bool kfit_follow_allowed(const struct kfit_dispatcher_params *p)
{
    if (!p->follow || !(p->mode & KFIT_MODE_DISPATCH) || !p->cache_dir)
        return false;
    const char *why = p->generation      ? "a generation is pinned (KFIT_GENERATION)"
                      : one_of_several() ? "this is one of several ranks, and all must hold one table"
                                         : NULL;
    if (why)
        kfit_logf(&p->log, KFIT_LOG_WARN, "new generations are not followed: %s", why);
    return !why;
}

/* Whether a process that started now would have what this one has. */
static bool nothing_new(const struct kfit_dispatcher *d, const struct kfit_book *b)
{
    uint64_t number, bans_hash = 0;
    uint8_t digest[32];
    char text[8], *bans = NULL;
    if (d->params.state_dir) {
        enum kfit_status s = kfit_state_bans(d->params.state_dir, &bans, NULL);
        bans_hash = bans ? kfit_text_hash(bans) : 0;
        free(bans);
        if (s != KFIT_OK && s != KFIT_E_NOTFOUND)
            return false;
    }
    return b->state_reason == KFIT_REASON_NONE && bans_hash == b->host_bans &&
           !kfit_switched_off(d->params.cache_dir, text, sizeof text) &&
           kfit_generation_current(d->params.cache_dir, &number, digest, NULL) == KFIT_OK &&
           number == b->info.generation && !memcmp(digest, b->info.digest, sizeof digest);
}

/* Any thread, in a call, others calling meanwhile. What is there goes on until the new book is whole; both then
 * stay, because nobody knows who is still in a call that began with the old one. */
static void take_over(struct kfit_dispatcher *d)
{
    struct kfit_book *old = kfit_book(d), *b;
    if (nothing_new(d, old))
        return;
    if (d->followed == KFIT_FOLLOW_MAX) {
        kfit_logf(&d->params.log, KFIT_LOG_WARN,
                  "%u generations were followed; restart the process to take over another", d->followed);
        snprintf(d->header->state_text, sizeof d->header->state_text,
                 "%.160s, but no more: %u were taken over; restart it", old->state_text, d->followed);
        return;
    }
    b = kfit_book_make();
    if (!b || !kfit_book_choose(d, b)) {
        kfit_book_destroy(b);
        kfit_logf(&d->params.log, KFIT_LOG_ERROR,
                  "no memory to take over a new generation; restart the process");
        return;
    }
    d->followed++;
    b->before = old;
    kfit_book_show(d, b);
    __atomic_store_n(&d->book, b, __ATOMIC_RELEASE);
    kfit_book_retire(old);
}

bool kfit_attend(struct kfit_dispatcher *d, uint32_t control)
{
    if ((control & KFIT_CONTROL_RELOAD) && !__atomic_exchange_n(&d->guard->reload, 1, __ATOMIC_ACQUIRE)) {
        /* first, so that a request that comes while this one is served is not lost */
        __atomic_fetch_and(&d->header->control, ~(uint32_t)KFIT_CONTROL_RELOAD, __ATOMIC_ACQ_REL);
        struct kfit_visit v = kfit_visit_begin();
        if (d->follows)
            take_over(d);
        kfit_visit_end(v);
        __atomic_store_n(&d->guard->reload, 0, __ATOMIC_RELEASE);
    }
    return kfit_control_is_off(control);
}
