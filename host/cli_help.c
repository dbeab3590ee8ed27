/* tollgate help and version: what the table of commands says, for people. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "cli_args.h"
#include "cli_help.h"

enum { NAME = 13, WIDTH = 96 };

int cli_version(int argc, char **argv)
{
    struct cli_args a;
    if (cli_args_parse(&a, "version", argc, argv) != 0)
        return 2;
    printf(a.json ? "{\"version\":\"%s\"}\n" : "tollgate %s\n", TOLLGATE_VERSION);
    return 0;
}

/* --- help --- */

/* Prints text, indented, broken at spaces. */
static void fold(FILE *to, const char *text, int indent)
{
    int at = indent;
    fprintf(to, "%*s", indent, "");
    while (*text != '\0') {
        int n = (int)strcspn(text, " ");
        if (at + n > WIDTH && at > indent) {
            fprintf(to, "\n%*s", indent, "");
            at = indent;
        }
        at += fprintf(to, "%.*s", n, text);
        text += n;
        if (*text == ' ')
            at += fprintf(to, " "), text++;
    }
    fprintf(to, "\n");
}

static void one(const struct cli_command *c)
{
    char synopsis[512];
    cli_synopsis(c, synopsis, sizeof synopsis);
    printf("%s\n\n", synopsis);
    fold(stdout, c->help, 2);
    for (const struct cli_option *o = c->options; o->flag != NULL; o++) {
        char flag[64];
        snprintf(flag, sizeof flag, "%s%s%s", o->flag, o->value != NULL ? " " : "",
                 o->value != NULL ? o->value : "");
        printf("%s  %-26s  %s\n", o == c->options ? "\n" : "", flag, o->help);
    }
    if (c->text != NULL) {
        printf("\n");
        fold(stdout, c->text, 2);
    }
    if (c->json != NULL) {
        printf("\n  With --json:\n");
        fold(stdout, c->json, 2);
    }
}

void cli_help_all(FILE *to)
{
    fprintf(to, "tollgate, a gateway that runs Lua plugins\n\n");
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++) {
        fprintf(to, "  %-*s", NAME, c->name);
        if (c->words != NULL)
            fprintf(to, "%s%s%*s", c->words, "\n", NAME + 2, "");
        fprintf(to, "%s\n", c->help);
    }
    fprintf(to, "\nThe configuration is gateway.lua in the current folder unless -c names another. "
                "tollgate help COMMAND tells\na command's options; --json is for programs.\n"
                "Exit codes: 0 fine; 1 it failed, and said why; 2 the command line makes no sense; "
                "70 a defect: something was\nleft open at the end of run.\n");
}

bool cli_about(const char *word)
{
    size_t n = strlen(word);
    bool found = false;
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++) {
        if (n == 0 || strncmp(c->name, word, n) != 0 || c->name[n] != ' ')
            continue;
        char synopsis[512];
        cli_synopsis(c, synopsis, sizeof synopsis);
        fprintf(stderr, "tollgate %s: the command is: %s\n", word, synopsis);
        found = true;
    }
    return found;
}

int cli_help(int argc, char **argv)
{
    int used;
    if (argc == 0) {
        cli_help_all(stdout);
        return 0;
    }
    const struct cli_command *c = cli_command_find(argc, argv, &used);
    if (c == NULL || used != argc) {
        fprintf(stderr, "tollgate help: no command '%s'\n\n", argv[0]);
        cli_help_all(stderr);
        return 2;
    }
    one(c);
    return 0;
}
