/* The manual page tollgate(1): what the table of commands says, in the macros of man(7), for the
 * build to install. What no row of the table has stands here: files, variables, exit codes. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "cli_table.h"

static const char before[] =
    ".TH TOLLGATE 1 \"\" \"tollgate " TOLLGATE_VERSION "\" \"Tollgate Manual\"\n"
    ".SH NAME\n"
    "tollgate \\- gateway for HTTP and LLM APIs that runs Lua plugins\n"
    ".SH SYNOPSIS\n"
    ".B tollgate\n"
    ".I COMMAND\n"
    "[options] [words]\n"
    ".SH DESCRIPTION\n"
    "A process that accepts HTTP requests, passes them through plugins, and on to targets.\n"
    "What it serves stands in one file, described in\n"
    ".BR gateway.lua (5);\n"
    "it is gateway.lua in the current folder unless\n"
    ".B \\-c\n"
    "names another.\n"
    "Commands that ask a running gateway find it by its configuration.\n"
    ".PP\n"
    "An option with a value takes it as the next word or behind\n"
    ".BR = .\n"
    ".B tollgate COMMAND \\-\\-help\n"
    "tells of one command.\n"
    ".SH COMMANDS\n";

static const char after[] =
    ".SH FILES\n"
    ".TP\n"
    ".I gateway.lua\n"
    "The configuration.\n"
    ".TP\n"
    ".I keys.jsonl\n"
    "Keys of clients, a JSON record a line, where the configuration names such a file.\n"
    ".TP\n"
    ".I run_dir/admin.sock\n"
    "The socket by which commands ask the running gateway; for its user only.\n"
    ".SH ENVIRONMENT\n"
    ".TP\n"
    ".B NO_COLOR\n"
    "Where it is set and not empty, there are no colours unless\n"
    ".B \\-\\-color=always\n"
    "asks for them.\n"
    ".TP\n"
    ".B TOLLGATE_HOME\n"
    "The folder that has the plugins and scripts that ship, where it is not share/tollgate beside\n"
    "the program's own folder.\n"
    ".TP\n"
    ".B TOLLGATE_REDIS\n"
    "The Redis of tollgate exec and test, where\n"
    ".B \\-\\-redis\n"
    "names none.\n"
    ".TP\n"
    ".B XDG_RUNTIME_DIR\n"
    "Where the gateway leaves a link to its socket; /tmp without it.\n"
    ".PP\n"
    "A configuration reads others by env.\n"
    ".SH EXIT STATUS\n"
    ".TP\n"
    ".B 0\n"
    "It went well.\n"
    ".TP\n"
    ".B 1\n"
    "It failed, and said why.\n"
    ".TP\n"
    ".B 2\n"
    "The command line makes no sense.\n"
    ".TP\n"
    ".B 70\n"
    "A defect: something was left open at the end of run, exec or test.\n"
    ".SH SEE ALSO\n"
    ".BR gateway.lua (5),\n"
    ".BR redis\\-server (1)\n";

/* Text as it is, whatever it has of roff's own. */
static void words(const char *text)
{
    if (*text == '.' || *text == '\'')
        fputs("\\&", stdout);
    for (; *text != '\0'; text++) {
        if (*text == '\\')
            fputs("\\e", stdout);
        else if (*text == '-')
            fputs("\\-", stdout);
        else if (*text == '"')
            fputs("\\(dq", stdout); /* in a macro's argument it would end it */
        else if (*text == '`')
            fputs("\\(ga", stdout);
        else
            putchar(*text);
    }
}

/* A line of text as a sentence. */
static void sentence(const char *text)
{
    size_t n = strlen(text);
    char first[2] = { text[0], '\0' };
    if (text[0] >= 'a' && text[0] <= 'z')
        first[0] = (char)(text[0] - 'a' + 'A');
    words(first);
    words(text + 1);
    fputs(n > 0 && text[n - 1] == '.' ? "\n" : ".\n", stdout);
}

static void option(const struct cli_option *o)
{
    printf(".TP\n.BI \"");
    words(o->flag);
    if (o->value != NULL) {
        printf(" \" \"");
        words(o->value);
    }
    printf("\"\n");
    words(o->help);
    printf("\n");
}

static void command(const struct cli_command *c)
{
    printf(".SS \"tollgate ");
    words(c->name);
    printf("%s", c->words != NULL ? " " : "");
    words(c->words != NULL ? c->words : "");
    printf("\"\n");
    sentence(c->help);
    if (c->text != NULL)
        words(c->text), printf("\n");
    for (const struct cli_option *o = c->options; o->flag != NULL; o++)
        option(o);
    if (c->json != NULL) {
        printf(".PP\nWith\n.BR \\-\\-json :\n");
        words(c->json);
        printf("\n");
    }
}

int cli_man(int argc, char **argv)
{
    (void)argc, (void)argv;
    fputs(before, stdout);
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++)
        command(c);
    fputs(after, stdout);
    return 0;
}
