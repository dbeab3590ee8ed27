/* See cli_args.h. */
#include "cli_args.h"

#include <stdio.h>
#include <string.h>

static int fault(const char *command, const char *what, const char *which)
{
    fprintf(stderr, "tollgate %s: %s %s (tollgate help lists what there is)\n", command, what,
            which);
    return -1;
}

int cli_args_parse(struct cli_args *a, const char *command, int argc, char **argv, int takes,
                   int words)
{
    *a = (struct cli_args){ .config = "gateway.lua" };
    for (int i = 0; i < argc; i++) {
        const char *arg = argv[i];
        if (strcmp(arg, "-c") == 0 || strcmp(arg, "--config") == 0) {
            if (++i >= argc)
                return fault(command, "a file is missing behind", arg);
            a->config = argv[i];
        } else if (strcmp(arg, "--print") == 0 && (takes & CLI_PRINT)) {
            a->print = true;
        } else if (strcmp(arg, "--json") == 0 && (takes & CLI_JSON)) {
            a->json = true;
        } else if (strcmp(arg, "--rollback") == 0 && (takes & CLI_ROLLBACK)) {
            a->rollback = true;
        } else if (arg[0] == '-') {
            return fault(command, "unknown option", arg);
        } else if (a->nwords == words) {
            return fault(command, "unexpected argument", arg);
        } else {
            a->word[a->nwords++] = arg;
        }
    }
    return 0;
}
