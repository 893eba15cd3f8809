/* cli.h - what the commands of `kfit` share: the table's row, options, messages, traces, places.
 *
 * Data goes to stdout, messages to stderr; exit status 0, 1 (failed), 2 (usage). Whatever comes from a trace,
 * a cache or the environment passes cli_safe before it reaches a terminal. One thread, except where said.
 */
#ifndef CLI_H
#define CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cjson/cJSON.h>

#include "kfit/generation.h"
#include "kfit/store.h"
#include "kfit/trace.h"

enum { CLI_OK, CLI_FAILED, CLI_USAGE };

/* One row of a table of commands; the table ends with a row without name. Either fn or sub. */
struct cli_command {
    const char *name;
    int (*fn)(int argc, char **argv); /* argv[0] is "kfit NAME" */
    const struct cli_command *sub;
    const char *help; /* one line */
};

int cli_run(int argc, char **argv);
int cli_tune(int argc, char **argv);
int cli_eval(int argc, char **argv);
int cli_review(int argc, char **argv);
int cli_approve(int argc, char **argv);
int cli_rollback(int argc, char **argv);
int cli_retime(int argc, char **argv);
int cli_off(int argc, char **argv);
int cli_on(int argc, char **argv);
int cli_status(int argc, char **argv);
int cli_explain(int argc, char **argv);
int cli_report(int argc, char **argv);
int cli_metrics(int argc, char **argv);
int cli_top(int argc, char **argv);
int cli_doctor(int argc, char **argv);
int cli_ab(int argc, char **argv);
int cli_demo(int argc, char **argv);
int cli_cache_verify(int argc, char **argv);
int cli_cache_sign(int argc, char **argv);
int cli_cache_export(int argc, char **argv);
int cli_cache_import(int argc, char **argv);
extern const struct cli_command cli_trace_commands[], cli_cache_commands[], cli_key_commands[];

/* ---- options (options.c) ---- */

struct cli_list {
    const char **item;
    size_t count;
};

#define CLI_ANY SIZE_MAX

enum cli_kind {
    CLI_FLAG,    /* bool */
    CLI_TEXT,    /* const char * */
    CLI_COUNT,   /* uint64_t */
    CLI_REAL,    /* double */
    CLI_EACH,    /* struct cli_list: may be repeated */
    CLI_OPTIONAL /* struct cli_optional: --name or --name=VALUE */
};

struct cli_optional {
    bool given;
    const char *value;
};

struct cli_option { /* the list ends with an option without name */
    const char *name;
    char letter; /* 0: none */
    enum cli_kind kind;
    void *to;
    const char *arg, *help;
};

struct cli_usage {
    const char *args, *doc; /* "TRACE|DIR..." */
    const struct cli_option *options;
    size_t min, max; /* number of arguments */
    bool command;    /* arguments are a command line: what follows its first word is not ours */
};

/* Parses with argp: fills every option's target, and args (borrowed strings; the array lives until exit).
 * Does not return for --help (exit 0) or a usage error (exit 2, said on stderr). */
void cli_parse(int argc, char **argv, const struct cli_usage *usage, struct cli_list *args);
/* As the only argument: prints the table (of kfit) or the usage (of a command) as JSON, for man/pages.py. */
#define CLI_DESCRIBE "--describe"
/* For what only the command can check: says it, and returns CLI_USAGE. */
__attribute__((format(printf, 2, 3))) int cli_usage_error(char **argv, const char *fmt, ...);
void cli_list_add(struct cli_list *l, const char *item);

#define CLI_OPTION_CACHE(to)                                                                                 \
    {                                                                                                        \
        "cache", 'c', CLI_TEXT, to, "DIR", "cache directory ($KFIT_CACHE, else ~/.cache/kfit)"               \
    }
#define CLI_OPTION_JSON(to)                                                                                  \
    {                                                                                                        \
        "json", 'j', CLI_FLAG, to, NULL, "print JSON"                                                        \
    }

/* ---- the environment (variables.c) ---- */

struct cli_variable { /* the list ends with one without name */
    const char *name;
    bool program, kfit; /* who reads it: programs under the shim or with libkfit; the kfit command */
    const char *help;
};

extern const struct cli_variable cli_variables[];

/* ---- messages and text (text.c) ---- */

__attribute__((format(printf, 1, 2))) int cli_fail(const char *fmt, ...); /* says it; returns CLI_FAILED */
__attribute__((format(printf, 1, 2))) void cli_say(const char *fmt, ...);
/* "kfit: WHAT: err's text, or the status' own"; returns CLI_FAILED. what may be NULL. */
int cli_failed(const char *what, enum kfit_status s, const struct kfit_error *err);
extern const struct kfit_log cli_log; /* warnings and errors to stderr */

/* s (at most max bytes, NUL or not) with everything but printable ASCII as \xNN, cut at 1000 bytes. The text
 * lives until the 16th next call of a function that returns text of this kind. */
const char *cli_safe(const char *s, size_t max);
#define SAFE(array) cli_safe(array, sizeof(array))
const char *cli_str(const char *s); /* cli_safe of a NUL-terminated string */
const char *cli_key(const union kfit_key *key);
const char *cli_ns(double ns);        /* "45.2 us"; "-" if not positive */
const char *cli_when(int64_t unix_s); /* local time; "-" if 0 */
const char *cli_user(void);           /* who runs kfit */
/* realloc that ends the program when there is no memory */
__attribute__((returns_nonnull)) void *cli_alloc(void *p, size_t bytes);

/* Prints and frees. */
int cli_json_print(cJSON *root);
/* cli_write_file of what fill writes, with the permissions of any new file. fill returns CLI_OK or, after a message,
 * what cli_write is to return; errors of `to` are looked for here. */
int cli_write(const char *path, int (*fill)(void *ctx, FILE *to), void *ctx);
/* The same for JSON, and frees it. */
int cli_json_write(cJSON *root, const char *path);
cJSON *cli_json_reasons(const uint64_t count[KFIT_TRACE_REASONS]); /* {"no_record": 12, ...}, non-zero only */

/* ---- places (places.c) ---- */

/* Files of our own installation, found relative to the running program, so that a moved tree works. */
bool cli_find_shim(char *path, size_t size);
bool cli_find_runner(char *path, size_t size);
bool cli_find_runner_cuda(char *path, size_t size);
bool cli_find_probe_cuda(char *path, size_t size);
bool cli_find_demo(char *path, size_t size); /* the folder of its scripts */
/* dir, else the default, in buf; absolute where it exists. */
const char *cli_cache_dir(const char *dir, char *buf, size_t size);
/* Makes path (0700) and its parents where missing; it must be writable. */
enum kfit_status cli_make_dir(const char *path, struct kfit_error *err);
/* The same, and it must be ours and closed to other writers: for places anybody could have prepared. */
enum kfit_status cli_private_dir(const char *path, struct kfit_error *err);
/* Where recorders of this user write when nobody says where. Returns false if there is no i-th place. */
bool cli_runtime_dir(unsigned i, char *buf, size_t size);
/* A whole file of at most max bytes, malloc'ed, NUL beyond the end. */
enum kfit_status cli_read_file(const char *path, size_t max, char **out, size_t *bytes,
                               struct kfit_error *err);
/* Writes path anew: beside it, made durable, then renamed, so that readers see the old file or the new one. */
enum kfit_status cli_write_file(const char *path, const void *data, size_t bytes, unsigned mode,
                                struct kfit_error *err);

/* ---- a program under the shim (launch.c) ---- */

/* Where the shim is; false after a message if it is nowhere, or where LD_PRELOAD cannot name it. */
bool cli_shim(char *path, size_t size);
/* A fresh run-XXXXXX on tmpfs for the traces of one command, where `status` and the others look, locked as long as
 * this process lives: doctor sees by that whose owner is gone. The caller removes it. False: none to be had, err
 * says why. */
bool cli_work_dir(char *buf, size_t size, struct kfit_error *err);

struct cli_served { /* values of KFIT_*; NULL: as it is in the environment */
    const char *mode, *trace, *cache, *label, *generation, *allow;
    bool strict; /* false: as it is in the environment */
};
/* In the child, before exec: sets up its environment. */
void cli_under_shim(const char *shim, const struct cli_served *s);

/* ---- traces (traces.c) ---- */

struct cli_trace {
    char *path;
    struct kfit_trace *t;
    bool alive;
};

struct cli_traces {
    struct cli_trace *item;
    size_t count;
    size_t unreadable; /* named on stderr, unless quiet */
    bool quiet;        /* set by the caller who reads again and again */
    /* merged by hard environment, in order of appearance; filled by cli_traces_merge */
    struct kfit_trace **group;
    size_t groups;
};

/* Reads the files and the *.kft of the directories (and of their run-* directories) in where; with none
 * given: of the default places, and of every process of ours that has a trace mapped. A file that cannot be
 * read is named on stderr; false if one that was named by the user cannot be, or does not exist. */
bool cli_traces_read(struct cli_traces *ts, const struct cli_list *where);
bool cli_traces_merge(struct cli_traces *ts);
void cli_traces_free(struct cli_traces *ts);
void cli_trace_totals(const struct kfit_trace *t, uint64_t count[KFIT_TRACE_REASONS]);
/* Pids of processes with kfit's kernels loaded and no trace file mapped: nobody can switch those off. */
size_t cli_unreachable(int *pids, size_t max);

/* ---- keys (keys.c) ---- */

struct cli_keys {
    union kfit_key *item; /* each once */
    size_t count;
};

/* False, and why, if text is no key. */
bool cli_keys_add(struct cli_keys *keys, const char *text, struct kfit_error *err);
/* One key a line; what follows a # is a comment. Names every bad line on stderr; false if there was one, or
 * no key that is new. */
bool cli_keys_read(struct cli_keys *keys, const char *path);

/* ---- libraries (generic.c) ---- */

/* Finds out how the library (NULL: the system's) names its functions, what it says of itself, its threads. */
enum kfit_status cli_generic_probe(const char *path, struct kfit_generic *g, struct kfit_error *err);
/* libcublas: path, or in the folder path (a toolkit's, or that of PyPI's packages), or (NULL) where the
 * loader finds it, or in the toolkit's usual place. The file is found, not opened. */
enum kfit_status cli_generic_cublas(const char *path, struct kfit_generic *g, struct kfit_error *err);
/* Name and version, as the shim puts them into the environment. */
const char *cli_generic_name(const struct kfit_generic *g, char buf[64]);

#endif
