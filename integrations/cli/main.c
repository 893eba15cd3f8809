/* The table of commands, and who is called. */
#include <errno.h>
#include <string.h>

#include "cli.h"

static const struct cli_command commands[] = {
    {"run", cli_run, NULL, "run a program and record its calls, or replace them from a cache"},
    {"trace", NULL, cli_trace_commands, "what was recorded: ls, merge, export"},
    {"tune", cli_tune, NULL, "search kernels for the recorded keys; can be stopped and resumed"},
    {"eval", cli_eval, NULL, "judge one kernel for one key"},
    {"review", cli_review, NULL, "what was found and is not published yet"},
    {"approve", cli_approve, NULL, "publish it as the next generation"},
    {"rollback", cli_rollback, NULL, "go back to an earlier generation"},
    {"off", cli_off, NULL, "stop replacing calls, now and in new processes"},
    {"on", cli_on, NULL, "undo off"},
    {"status", cli_status, NULL, "processes, live and ended, and what kfit does in them"},
    {"cache", NULL, cli_cache_commands, "what a cache holds: ls, show, verify"},
    {"explain", cli_explain, NULL, "what would run for a key here, and why"},
    {"report", cli_report, NULL, "gain per key and share of time, as text or JSON"},
    {"doctor", cli_doctor, NULL, "what this machine offers, what is missing, what to do"},
    {"demo", cli_demo, NULL, "the whole loop on a real program, in minutes"},
    {0},
};

static int help(FILE *to, const char *prefix, const struct cli_command *table)
{
    fprintf(to, "Usage: %s COMMAND [OPTION...]\n\n", prefix);
    for (const struct cli_command *c = table; c->name; c++)
        fprintf(to, "  %-9s %s\n", c->name, c->help);
    fprintf(to, "\n`%s COMMAND --help' explains each.\n", prefix);
    return to == stdout ? CLI_OK : CLI_USAGE;
}

static int call(const char *prefix, const struct cli_command *table, int argc, char **argv)
{
    if (argc < 2)
        return help(stderr, prefix, table);
    if (!strcmp(argv[1], "--help") || !strcmp(argv[1], "help") || !strcmp(argv[1], "-h"))
        return help(stdout, prefix, table);
    for (const struct cli_command *c = table; c->name; c++) {
        if (strcmp(argv[1], c->name))
            continue;
        char name[64];
        snprintf(name, sizeof name, "%s %s", prefix, c->name);
        argv[1] = name;
        return c->sub ? call(name, c->sub, argc - 1, argv + 1) : c->fn(argc - 1, argv + 1);
    }
    fprintf(stderr, "%s: there is no command \"%s\"\n", prefix, cli_str(argv[1]));
    return help(stderr, prefix, table);
}

int main(int argc, char **argv)
{
    if (argc == 2 && !strcmp(argv[1], "--version")) {
        printf("kfit " KFIT_VERSION "\n");
        return CLI_OK;
    }
    int rc = call("kfit", commands, argc, argv);
    if (fflush(stdout) || ferror(stdout))
        rc = cli_fail("cannot write the output: %s", strerror(errno));
    return rc;
}
