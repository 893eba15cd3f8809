/* Options as a table, parsed by argp. */
#include <argp.h>
#include <errno.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

enum { KEY_FIRST = 0x100 };

struct parse {
    const struct cli_usage *usage;
    struct cli_list *args;
};

void cli_list_add(struct cli_list *l, const char *item)
{
    l->item = cli_alloc(l->item, (l->count + 2) * sizeof *l->item);
    l->item[l->count++] = item;
    l->item[l->count] = NULL;
}

static void store(const struct cli_option *o, const char *arg, struct argp_state *state)
{
    char *end;
    errno = 0;
    switch (o->kind) {
    case CLI_FLAG:
        *(bool *)o->to = true;
        break;
    case CLI_TEXT:
        *(const char **)o->to = arg;
        break;
    case CLI_EACH:
        cli_list_add(o->to, arg);
        break;
    case CLI_OPTIONAL:
        *(struct cli_optional *)o->to = (struct cli_optional){true, arg};
        break;
    case CLI_COUNT:
        *(uint64_t *)o->to = strtoull(arg, &end, 10);
        if (*arg < '0' || *arg > '9' || *end || errno)
            argp_error(state, "--%s: \"%s\" is not a whole number", o->name, cli_str(arg));
        break;
    case CLI_REAL:
        *(double *)o->to = strtod(arg, &end);
        if (end == arg || *end || errno || !isfinite(*(double *)o->to) || *(double *)o->to < 0)
            argp_error(state, "--%s: \"%s\" is not a number of zero or more", o->name, cli_str(arg));
        break;
    }
}

static error_t parse_one(int key, char *arg, struct argp_state *state)
{
    struct parse *p = state->input;
    const struct cli_usage *u = p->usage;
    switch (key) {
    case ARGP_KEY_ARG:
        if (u->command)
            return ARGP_ERR_UNKNOWN; /* then argp gives all that is left at once */
        if (p->args->count >= u->max)
            argp_error(state, "one argument too many: \"%s\"", cli_str(arg));
        cli_list_add(p->args, arg);
        return 0;
    case ARGP_KEY_ARGS:
        for (int i = state->next; i < state->argc; i++)
            cli_list_add(p->args, state->argv[i]);
        return 0;
    case ARGP_KEY_END:
        if (p->args->count < u->min)
            argp_error(state, "expected %s", u->args);
        return 0;
    }
    for (const struct cli_option *o = u->options; o->name; o++) {
        if (key == o->letter || key == KEY_FIRST + (int)(o - u->options)) {
            store(o, arg, state);
            return 0;
        }
    }
    return ARGP_ERR_UNKNOWN;
}

/* What the manual pages are made from; see `kfit --describe`. */
static int describe(const char *name, const struct cli_usage *usage)
{
    static const char *const kinds[] = {
        [CLI_FLAG] = "flag", [CLI_TEXT] = "text", [CLI_COUNT] = "count",
        [CLI_REAL] = "real", [CLI_EACH] = "each", [CLI_OPTIONAL] = "optional"};
    cJSON *o = cJSON_CreateObject(), *list = cJSON_AddArrayToObject(o, "options");
    cJSON_AddStringToObject(o, "name", name);
    cJSON_AddStringToObject(o, "args", usage->args);
    cJSON_AddStringToObject(o, "doc", usage->doc);
    for (const struct cli_option *i = usage->options; i->name; i++) {
        cJSON *e = cJSON_CreateObject();
        const char letter[2] = {i->letter, '\0'};
        cJSON_AddStringToObject(e, "name", i->name);
        cJSON_AddStringToObject(e, "letter", letter);
        cJSON_AddStringToObject(e, "kind", kinds[i->kind]);
        cJSON_AddStringToObject(e, "arg", i->arg ? i->arg : "");
        cJSON_AddStringToObject(e, "help", i->help);
        cJSON_AddItemToArray(list, e);
    }
    return cli_json_print(o);
}

void cli_parse(int argc, char **argv, const struct cli_usage *usage, struct cli_list *args)
{
    size_t count = 0;
    if (argc == 2 && !strcmp(argv[1], CLI_DESCRIBE))
        exit(describe(argv[0], usage));
    while (usage->options[count].name)
        count++;
    struct argp_option *options = cli_alloc(NULL, (count + 1) * sizeof *options);
    for (size_t i = 0; i < count; i++) {
        const struct cli_option *o = &usage->options[i];
        options[i] = (struct argp_option){.name = o->name,
                                          .key = o->letter ? o->letter : KEY_FIRST + (int)i,
                                          .arg = o->arg,
                                          .flags = o->kind == CLI_OPTIONAL ? OPTION_ARG_OPTIONAL : 0,
                                          .doc = o->help};
    }
    options[count] = (struct argp_option){0};
    const struct argp argp = {
        .options = options, .parser = parse_one, .args_doc = usage->args, .doc = usage->doc};
    struct parse p = {usage, args};
    argp_err_exit_status = CLI_USAGE;
    error_t e = argp_parse(&argp, argc, argv, usage->command ? ARGP_IN_ORDER : 0, NULL, &p);
    if (e)
        exit(cli_fail("options: %s", strerror(e)));
    free(options);
}

int cli_usage_error(char **argv, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    fprintf(stderr, "%s: ", argv[0]);
    vfprintf(stderr, fmt, ap);
    fprintf(stderr, "\nTry `%s --help' for more information.\n", argv[0]);
    va_end(ap);
    return CLI_USAGE;
}
