/* The arguments that commands share. */
#ifndef TOLLGATE_CLI_ARGS_H
#define TOLLGATE_CLI_ARGS_H

#include <stdbool.h>

enum { CLI_PRINT = 1, CLI_JSON = 2, CLI_ROLLBACK = 4 }; /* flags that a command takes */
enum { CLI_WORDS = 8 };

struct cli_args {
    const char *config; /* gateway.lua unless -c names another */
    bool print, json, rollback;
    const char *word[CLI_WORDS];
    int nwords;
};

/* Reads -c FILE, the flags that `takes` allows, and up to `words` further words. 0, or -1 with a
 * sentence on stderr. */
int cli_args_parse(struct cli_args *a, const char *command, int argc, char **argv, int takes,
                   int words);

#endif
