/* doctor's checks of what killed programs and slips of the keyboard leave behind. */
#include <ctype.h>
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "cli.h"
#include "doctor.h"
#include "kfit/state.h"

enum { UNFINISHED_S = 600 }; /* a writer that lives needs milliseconds */

struct run_dirs {
    size_t dirs, ended, live, none;
};

/* A run-* that its `kfit run` or `kfit ab` does not hold any more. */
static void look_at_run(const char *path, struct run_dirs *r, struct line *l)
{
    struct cli_traces ts = {0};
    struct cli_list where = {0};
    size_t live = 0;
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    bool held = fd >= 0 && flock(fd, LOCK_SH | LOCK_NB);
    if (fd >= 0)
        close(fd);
    if (fd < 0 || held)
        return;
    cli_list_add(&where, path);
    cli_traces_read(&ts, &where);
    for (size_t i = 0; i < ts.count; i++)
        live += ts.item[i].alive;
    if (r->dirs++ < 3)
        doctor_say(l, "%s%s (%zu traces, %zu of them of processes that still run)", r->dirs > 1 ? ", " : "",
                   path, ts.count, live);
    r->live += live;
    r->ended += ts.count - live;
    r->none += !ts.count;
    cli_traces_free(&ts);
}

/* `kfit run` moves the traces away when its program has ended; one that was killed could not. */
enum level doctor_runs(const struct doctor *d, struct line *l)
{
    struct run_dirs r = {0};
    char base[PATH_MAX], path[2 * PATH_MAX];
    (void)d;
    for (unsigned i = 0; cli_runtime_dir(i, base, sizeof base); i++) {
        DIR *dir = opendir(base);
        for (const struct dirent *e; dir && (e = readdir(dir));) {
            if (strncmp(e->d_name, "run-", 4))
                continue;
            snprintf(path, sizeof path, "%s/%s", base, e->d_name);
            look_at_run(path, &r, l);
        }
        if (dir)
            closedir(dir);
    }
    if (!r.dirs) {
        doctor_say(l, "no traces of a killed run or ab");
        return FINE;
    }
    if (r.dirs > 3)
        doctor_say(l, " and %zu more", r.dirs - 3);
    if (!r.ended && r.live)
        return FINE; /* of a run that ended before its program's children: they go on */
    return doctor_bad(
        l, WARN,
        "left by a `kfit run` or `kfit ab` that was killed: report and tune read such a directory; to keep "
        "its traces, `kfit trace "
        "merge -o FILE.kft DIR`; then, when none of its processes runs, rm -r DIR");
}

/* ".tmp-NAME" of a generation or `current`, "off.PID" */
static bool is_unfinished(const char *name)
{
    return !strncmp(name, ".tmp-", 5) || (!strncmp(name, "off.", 4) && isdigit((unsigned char)name[4]));
}

enum level doctor_unfinished(const struct doctor *d, struct line *l)
{
    static const char *const places[] = {"", "/generations"};
    size_t count = 0;
    for (unsigned i = 0; i < 2; i++) {
        char base[PATH_MAX + 16];
        struct stat st;
        snprintf(base, sizeof base, "%s%s", d->cache, places[i]);
        DIR *dir = opendir(base);
        for (const struct dirent *e; dir && (e = readdir(dir));) {
            if (!is_unfinished(e->d_name) || fstatat(dirfd(dir), e->d_name, &st, AT_SYMLINK_NOFOLLOW) ||
                time(NULL) - st.st_mtime < UNFINISHED_S)
                continue;
            if (count++ < 3)
                doctor_say(l, "%s%s/%s (%lld bytes)", count > 1 ? ", " : "", base, e->d_name,
                           (long long)st.st_size);
        }
        if (dir)
            closedir(dir);
    }
    if (!count) {
        doctor_say(l, "no unfinished files in the cache");
        return FINE;
    }
    if (count > 3)
        doctor_say(l, " and %zu more", count - 3);
    return doctor_bad(l, WARN, "begun by a kfit that was killed, and never read: rm them");
}

struct held_back {
    struct line *l;
    unsigned count;
};

static int say_held(void *ctx, const struct kfit_state_held *h)
{
    struct held_back *b = ctx;
    if (b->count++ < 3)
        doctor_say(b->l, "%sgeneration %llu for %s%s%s%s after %u unclean ends", b->count > 1 ? ", " : "",
                   (unsigned long long)h->generation, h->program, h->label[0] ? " (" : "", h->label,
                   h->label[0] ? ")" : "", h->ends);
    return 0;
}

/* What this host remembers of crashes keeps kernels from running, and must be readable for the next start. */
enum level doctor_state(const struct doctor *d, struct line *l)
{
    char dir[PATH_MAX];
    struct held_back b = {l, 0};
    struct kfit_error err = {0};
    (void)d;
    if (!kfit_state_default_dir(dir, sizeof dir, NULL)) {
        doctor_say(l, "no place for it: neither KFIT_STATE, XDG_STATE_HOME nor HOME is set");
        return doctor_bad(l, WARN,
                          "programs that crash under kfit are started with it again; set KFIT_STATE");
    }
    if (kfit_state_each(dir, say_held, &b, &err) != KFIT_OK) {
        doctor_say(l, "%s%s", b.count ? "; " : "", err.text);
        return doctor_bad(l, FAIL, "it must belong to you and be closed to other writers: chown, chmod go-w");
    }
    if (!b.count) {
        doctor_say(l, "%s, nothing is held back", dir);
        return FINE;
    }
    if (b.count > 3)
        doctor_say(l, " and %u more", b.count - 3);
    return doctor_bad(
        l, WARN,
        "held back in %.150s: such a program only records; find out why it ended, then `kfit on`, or "
        "`kfit rollback`",
        dir);
}

/* A variable with a slip in its name is not read, and nobody says so. */
enum level doctor_environment(const struct doctor *d, struct line *l)
{
    unsigned unknown = 0;
    (void)d;
    for (char **e = environ; *e; e++) {
        size_t n = strcspn(*e, "=");
        const struct cli_variable *v = cli_variables;
        if (strncmp(*e, "KFIT_", 5))
            continue;
        while (v->name && (strlen(v->name) != n || memcmp(v->name, *e, n)))
            v++;
        doctor_say(l, "%s%s%s", l->text[0] ? ", " : "", cli_safe(*e, n), v->name ? "" : " (unknown)");
        unknown += !v->name;
    }
    if (!l->text[0])
        doctor_say(l, "no KFIT_ variable is set");
    if (unknown)
        return doctor_bad(l, WARN, "kfit reads no variable of that name; kfit(1) lists those that it reads");
    return FINE;
}
