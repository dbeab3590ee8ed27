/* The arguments of commands, as cli_table.h has them, and how a command says what came of it. */
#ifndef TOLLGATE_CLI_ARGS_H
#define TOLLGATE_CLI_ARGS_H

#include <stdbool.h>

#include "cli_table.h"
#include "slice.h"

enum { CLI_WORDS = 8 };

struct cli_args {
    const struct cli_command *command;
    const char *config;             /* gateway.lua unless -c names another */
    bool json;                      /* --json */
    const char *value[CLI_OPTIONS]; /* of options by their id; "" for a switch; NULL: not given */
    const char *word[CLI_WORDS];
    int nwords;
    int rest; /* where the first word stands in argv, for commands that hand on what follows */
};

/* 0, or -1 with a sentence on stderr: the exit code is 2 then. */
int cli_args_parse(struct cli_args *a, const char *command, int argc, char **argv);

/* Says on stderr that the command failed: "tollgate NAME: text", or {"error":"text"}. Returns 1. */
int cli_failed(const struct cli_args *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Faults with their places, a line each, without the command's name. Returns 1. */
int cli_faults(const struct cli_args *a, struct slice lines);
/* A text for people on stdout, as {"message":"text"} with --json; a line's end is added where it
 * has none. */
void cli_say(const struct cli_args *a, struct slice text);

#endif
