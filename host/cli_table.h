/* The commands of tollgate: one table, which finds a command, reads its arguments, and is what
 * help, shell completions and the man page are made of. To add a command: a row in cli_table.c, a
 * function in cli.h. */
#ifndef TOLLGATE_CLI_TABLE_H
#define TOLLGATE_CLI_TABLE_H

#include <stdbool.h>
#include <stddef.h>

/* What an option sets; see cli_args.h. CLI_OWN: the command reads it by itself. */
enum cli_option_id {
    CLI_CONFIG,
    CLI_JSON,
    CLI_COLOR,
    CLI_PRINT,
    CLI_ROLLBACK,
    CLI_INTERVAL,
    CLI_ONCE,
    CLI_REDIS,
    CLI_OWN,
    CLI_OPTIONS = CLI_OWN
};

struct cli_option {
    enum cli_option_id id;
    const char *flag;
    const char *value; /* how help names it, NULL for a switch; "FILE" is completed by files, "a|b"
                          by these words */
    const char *help;
};

struct cli_command {
    const char *name;  /* one word, or two */
    const char *words; /* what stands behind the options, as help shows it; NULL: nothing */
    int nwords;        /* at most so many; -1: all that follows the first belongs to what is run */
    const char *help;  /* one line */
    const char *text;  /* a paragraph for `tollgate help NAME` and the man page, or NULL */
    struct cli_option options[10]; /* until flag is NULL, which the last one is */
    int (*run)(int argc, char **argv);
    const char *json; /* what --json prints, for help and the man page; NULL where there is none */
};

/* Until name is NULL. */
extern const struct cli_command cli_commands[];

/* The command that argv begins with; *used is how many words its name has. NULL where there is
 * none. */
const struct cli_command *cli_command_find(int argc, char **argv, int *used);
/* By its name, which must be there. */
const struct cli_command *cli_command_named(const char *name);

/* "tollgate NAME [options] WORDS". */
void cli_synopsis(const struct cli_command *c, char *out, size_t size);

#endif
