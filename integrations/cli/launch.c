/* A program under the shim: what `run` and `ab` tell it through its environment. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>

#include "cli.h"

bool cli_shim(char *path, size_t size)
{
    if (!cli_find_shim(path, size))
        return !cli_fail("libkfit_preload.so is not where this program belongs (../preload or " KFIT_LIBDIR
                         "/kfit); build or install kfit completely");
    if (strpbrk(path, " :"))
        return !cli_fail("%s: LD_PRELOAD cannot hold a path with a space or a colon; move kfit",
                         cli_str(path));
    return true;
}

bool cli_work_dir(char *buf, size_t size, struct kfit_error *err)
{
    char base[PATH_MAX];
    for (unsigned i = 0; cli_runtime_dir(i, base, sizeof base); i++) {
        if (cli_private_dir(base, err) != KFIT_OK)
            continue;
        snprintf(buf, size, "%s/run-XXXXXX", base);
        if (mkdtemp(buf)) {
            int fd = open(buf, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
            if (fd >= 0)
                flock(fd, LOCK_EX | LOCK_NB); /* closed, and free, when this process ends */
            return true;
        }
        kfit_fail(err, KFIT_E_IO, "%s: %s", buf, strerror(errno));
    }
    return false;
}

/* Prepended: what the user preloads stays, after us. */
static void preload(const char *shim)
{
    const char *old = getenv("LD_PRELOAD") ?: "";
    char *all = cli_alloc(NULL, strlen(shim) + strlen(old) + 2);
    sprintf(all, "%s%s%s", shim, *old ? ":" : "", old);
    setenv("LD_PRELOAD", all, 1);
    free(all);
}

void cli_under_shim(const char *shim, const struct cli_served *s)
{
    const struct {
        const char *name, *value;
    } variables[] = {{"KFIT_MODE", s->mode},
                     {"KFIT_TRACE", s->trace},
                     {"KFIT_CACHE", s->cache},
                     {"KFIT_LABEL", s->label},
                     {"KFIT_GENERATION", s->generation},
                     {"KFIT_ALLOW", s->allow},
                     {"KFIT_STRICT", s->strict ? "1" : NULL}};
    preload(shim);
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++)
        if (variables[i].value)
            setenv(variables[i].name, variables[i].value, 1);
}
