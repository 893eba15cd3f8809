/* Makes what test_cli.py looks at with kfit, through the public headers:
 *
 *   cli_fixture trace DIR LABEL [KEY CALLS HITS]...   a trace of this process ("" for DIR: $KFIT_TRACE)
 *   cli_fixture kill ...                              the same, then SIGKILL to itself
 *   cli_fixture hold DIR LABEL ...                    the same, prints the path; then the control word for each line read
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kfit/env.h"
#include "kfit/trace.h"

static int fail(const char *what, const struct kfit_error *err)
{
    fprintf(stderr, "cli_fixture: %s: %s\n", what, err->text);
    return 1;
}

static int trace(const char *how, int argc, char **argv)
{
    struct kfit_error err = {0};
    struct kfit_recorder *r;
    struct kfit_recorder_params p = {.dir = argv[0][0] ? argv[0] : getenv("KFIT_TRACE"),
                                     .label = argv[1],
                                     .slot_count = 1024,
                                     .mode = KFIT_MODE_BOTH};
    if (kfit_recorder_create(&r, &p, &err) != KFIT_OK)
        return fail("recorder", &err);
    struct kfit_trace_header *h = kfit_recorder_header(r);
    struct kfit_generic g = {.path = "/usr/lib/libfixture.so", .naming = "cblas_%s", .config = "Fixture 1", .threads = 1,
                             .int_bits = 32};
    kfit_env_host(&h->env, 1, "Fixture 1", NULL);
    uint32_t library = kfit_recorder_generic(r, &g);
    snprintf(h->state_text, sizeof h->state_text, "a fixture\n\033[31m");
    for (int i = 2; i + 2 < argc; i += 3) {
        union kfit_key key;
        if (kfit_key_parse(argv[i], &key, &err) != KFIT_OK)
            return fail("key", &err);
        struct kfit_trace_slot *s = kfit_recorder_slot(r, &key, kfit_key_hash(&key));
        uint64_t calls = strtoull(argv[i + 1], NULL, 10), hits = strtoull(argv[i + 2], NULL, 10);
        s->generic = library;
        s->count[KFIT_REASON_NONE] = hits;
        s->count[KFIT_REASON_NO_RECORD] = calls - hits;
    }
    printf("%s\n", kfit_recorder_path(r));
    fflush(stdout);
    if (!strcmp(how, "kill"))
        raise(SIGKILL);
    for (char line[16]; !strcmp(how, "hold") && fgets(line, sizeof line, stdin);) {
        printf("%u\n", __atomic_load_n(&h->control, __ATOMIC_RELAXED));
        fflush(stdout);
    }
    kfit_recorder_destroy(r);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc >= 4)
        return trace(argv[1], argc - 2, argv + 2);
    fprintf(stderr, "usage: see cli_fixture.c\n");
    return 2;
}
