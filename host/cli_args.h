/* The arguments of commands, as cli_table.h has them, and how a command says what came of it. */
#ifndef TOLLGATE_CLI_ARGS_H
#define TOLLGATE_CLI_ARGS_H

#include <stdbool.h>

#include "cli_table.h"
#include "slice.h"

enum { CLI_WORDS = 8, CLI_OWN_MAX = 128 };

/* An option that the command reads by itself. */
struct cli_own {
    const struct cli_option *option;
    const char *value;
};

struct cli_args {
    const struct cli_command *command;
    const char *config;              /* gateway.lua unless -c names another */
    bool json;                       /* --json, wherever it stands */
    const char *value[CLI_OPTIONS];  /* of options by their id; "" for a switch; NULL: not given */
    struct cli_own own[CLI_OWN_MAX]; /* options with CLI_OWN, in their order */
    int nown;
    const char *word[CLI_WORDS];
    int nwords;
    int rest; /* where the first word stands in argv, for commands that hand on what follows */
};

/* 0, or -1, and cli_misused has told why: the exit code is 2 then. */
int cli_args_parse(struct cli_args *a, const char *command, int argc, char **argv);

/* Says on stderr that the command failed: "tollgate NAME: text", or {"error":"text"}. Returns 1. */
int cli_failed(const struct cli_args *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* The same where the arguments make no sense. Returns 2. */
int cli_misused(const struct cli_args *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Faults with their places, a line each, without the command's name. Returns 1. */
int cli_faults(const struct cli_args *a, struct slice lines);
/* A text for people on stdout, as {"message":"text"} with --json; a line's end is added where it
 * has none. */
void cli_say(const struct cli_args *a, struct slice text);

#endif
