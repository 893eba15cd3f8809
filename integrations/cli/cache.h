/* cache.h - commands of `kfit cache` that live in files of their own. */
#ifndef CLI_CACHE_H
#define CLI_CACHE_H

#include "cli.h"

int cli_cache_diff(int argc, char **argv);
int cli_cache_disable(int argc, char **argv);
int cli_cache_enable(int argc, char **argv);
int cli_cache_gc(int argc, char **argv);
/* All generations, the current one marked: `kfit cache ls --generations`. */
int cli_cache_generations(const char *dir, bool json);

#endif
