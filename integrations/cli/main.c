/* The table of commands, and who is called. */
#include <errno.h>
#include <string.h>

#include "cli.h"

static const struct cli_command commands[] = {
    {"run", cli_run, NULL, "run a program and record its calls, or replace them from a cache"},
    {"trace", NULL, cli_trace_commands, "what was recorded: ls, kernels, graphs, merge, export"},
    {"tune", cli_tune, NULL, "search kernels for the recorded keys; can be stopped and resumed"},
    {"eval", cli_eval, NULL, "judge one kernel for one key"},
    {"review", cli_review, NULL, "what was found and is not published yet"},
    {"approve", cli_approve, NULL, "publish it as the next generation"},
    {"rollback", cli_rollback, NULL, "go back to an earlier generation"},
    {"retime", cli_retime, NULL, "judge stale winners again, after an upgrade"},
    {"off", cli_off, NULL, "stop replacing calls, now and in new processes"},
    {"on", cli_on, NULL, "undo off"},
    {"status", cli_status, NULL, "processes, live and ended, and what kfit does in them"},
    {"cache", NULL, cli_cache_commands, "what a cache holds: ls, diff, bans, sign, export, gc ..."},
    {"key", NULL, cli_key_commands, "keys that sign generations: new, show"},
    {"explain", cli_explain, NULL, "what would run for a key here, and why"},
    {"ab", cli_ab, NULL, "measure what dispatch brings a program, end to end"},
    {"report", cli_report, NULL, "gain per key and share of time, as text or JSON"},
    {"metrics", cli_metrics, NULL, "counters for Prometheus, as a page or as a file"},
    {"top", cli_top, NULL, "what live processes call, again and again"},
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

static void describe(cJSON *list, const char *prefix, const struct cli_command *table)
{
    for (const struct cli_command *c = table; c->name; c++) {
        cJSON *o = cJSON_CreateObject();
        char name[64];
        snprintf(name, sizeof name, "%s%s", prefix, c->name);
        cJSON_AddStringToObject(o, "name", name);
        cJSON_AddStringToObject(o, "help", c->help);
        cJSON_AddBoolToObject(o, "group", c->sub != NULL);
        cJSON_AddItemToArray(list, o);
        strcat(name, " ");
        if (c->sub)
            describe(list, name, c->sub);
    }
}

/* The commands and the environment; each command's options are printed by `kfit COMMAND --describe`. */
static int describe_all(void)
{
    cJSON *root = cJSON_CreateObject();
    cJSON_AddStringToObject(root, "version", KFIT_VERSION);
    describe(cJSON_AddArrayToObject(root, "commands"), "", commands);
    cJSON *list = cJSON_AddArrayToObject(root, "variables");
    for (const struct cli_variable *v = cli_variables; v->name; v++) {
        cJSON *o = cJSON_CreateObject();
        cJSON_AddStringToObject(o, "name", v->name);
        cJSON_AddStringToObject(o, "help", v->help);
        cJSON_AddBoolToObject(o, "program", v->program);
        cJSON_AddBoolToObject(o, "kfit", v->kfit);
        cJSON_AddItemToArray(list, o);
    }
    return cli_json_print(root);
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
    int rc = CLI_OK;
    if (argc == 2 && !strcmp(argv[1], "--version"))
        printf("kfit " KFIT_VERSION "\n");
    else if (argc == 2 && !strcmp(argv[1], CLI_DESCRIBE))
        rc = describe_all();
    else
        rc = call("kfit", commands, argc, argv);
    if (fflush(stdout) || ferror(stdout))
        rc = cli_fail("cannot write the output: %s", strerror(errno));
    return rc;
}
