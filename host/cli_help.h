/* What tells of commands where the command line makes no sense. */
#ifndef TOLLGATE_CLI_HELP_H
#define TOLLGATE_CLI_HELP_H

#include <stdbool.h>
#include <stdio.h>

/* All commands, a line each. */
void cli_help_all(FILE *to);
/* Where commands of two words begin with `word`: says on stderr which there are. */
bool cli_about(const char *word);

#endif
