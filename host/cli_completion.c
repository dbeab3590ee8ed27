/* tollgate completion: what the table of commands says, as scripts for shells. Values that are
 * shown as "a|b" are completed by these words, FILE by files. */
#include <stdio.h>
#include <string.h>

#include "cli.h"
#include "cli_args.h"

/* The words that may stand where `values` is shown as "a|b" or "[a|b X]", spaces between. */
static void print_choices(const char *values)
{
    for (; *values != '\0' && *values != ' '; values++) {
        if (*values != '[' && *values != ']')
            putchar(*values == '|' ? ' ' : *values);
    }
}

/* --- bash --- */

/* Whether a row above, or an option before, has the same flag: bash looks at the flag alone. */
static bool told_before(const struct cli_command *c, const struct cli_option *o)
{
    for (const struct cli_command *before = cli_commands; before <= c; before++) {
        for (const struct cli_option *other = before->options; other->flag != NULL; other++) {
            if (other == o)
                return false;
            if (strcmp(other->flag, o->flag) == 0)
                return true;
        }
    }
    return false;
}

/* What may stand behind an option with a value. */
static void bash_values(void)
{
    printf("  case $prev in\n");
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++) {
        for (const struct cli_option *o = c->options; o->flag != NULL; o++) {
            if (o->value == NULL || told_before(c, o))
                continue;
            printf("    %s%s) ", o->flag, o->id == CLI_CONFIG ? " | --config" : "");
            if (strcmp(o->value, "FILE") == 0) {
                printf("_tollgate_files; ");
            } else if (strchr(o->value, '|') != NULL) {
                printf("COMPREPLY=($(compgen -W '");
                print_choices(o->value);
                printf("' -- \"$cur\")); ");
            }
            printf("return ;;\n");
        }
    }
    printf("  esac\n");
}

/* Names of commands, of two words the first, each once. */
static void bash_names(void)
{
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++)
        printf("%s%.*s", c > cli_commands ? " " : "", (int)strcspn(c->name, " "), c->name);
}

static void bash_words(const struct cli_command *c)
{
    printf(strchr(c->name, ' ') != NULL ? "    '%s ') words='" : "    '%s '*) words='", c->name);
    for (const struct cli_option *o = c->options; o->flag != NULL; o++)
        printf("%s ", o->flag);
    if (strcmp(c->name, "help") == 0)
        bash_names();
    else if (c->words != NULL && strchr(c->words, '|') != NULL)
        print_choices(c->words);
    printf("'");
    if (c->words != NULL &&
        (strncmp(c->words, "FILE", 4) == 0 || strstr(c->words, "ARGUMENTS") != NULL))
        printf("; [[ $cur == -* ]] || { _tollgate_files; return; }");
    printf(" ;;\n");
}

static void bash(void)
{
    printf("# bash completion of tollgate; made by tollgate completion bash\n"
           "_tollgate_files() {\n"
           "  compopt -o filenames 2>/dev/null\n"
           "  mapfile -t COMPREPLY < <(compgen -f -- \"$cur\")\n"
           "}\n"
           "_tollgate() {\n"
           "  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} words=\n"
           "  COMPREPLY=()\n"
           "  # --color=never is three words to bash\n"
           "  if [[ $cur == = ]]; then cur=; elif [[ $prev == = ]]; then "
           "prev=${COMP_WORDS[COMP_CWORD-2]}; fi\n");
    bash_values();
    printf("  if ((COMP_CWORD == 1)); then\n    COMPREPLY=($(compgen -W '");
    bash_names();
    printf("' -- \"$cur\"))\n    return\n  fi\n"
           "  case \"${COMP_WORDS[1]} $( ((COMP_CWORD > 2)) && echo \"${COMP_WORDS[2]}\") \" in\n");
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++)
        bash_words(c);
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++) {
        const char *second = strchr(c->name, ' ');
        if (second != NULL)
            printf("    '%.*s  ') words=%s ;;\n", (int)(second - c->name), c->name, second + 1);
    }
    printf("  esac\n"
           "  COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
           "}\n"
           "complete -F _tollgate tollgate\n");
}

/* --- zsh and fish --- */

/* Text within single quotes, for zsh and fish. */
static void quoted(const char *text, const char *apostrophe)
{
    for (; *text != '\0'; text++) {
        if (*text == '\'')
            fputs(apostrophe, stdout);
        else if (*text == '[' || *text == ']' || *text == ':')
            putchar(*text == ':' ? ',' : *text == '[' ? '(' : ')');
        else
            putchar(*text);
    }
}

static void zsh(void)
{
    printf("#compdef tollgate\n# zsh completion of tollgate; made by tollgate completion zsh\n"
           "_tollgate() {\n"
           "  local -a commands\n"
           "  if (( CURRENT == 2 )); then\n    commands=(\n");
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++) {
        printf("      '%.*s:", (int)strcspn(c->name, " "), c->name);
        quoted(c->help, "'\\''");
        printf("'\n");
    }
    printf("    )\n    _describe command commands\n    return\n  fi\n"
           "  case $words[2] in\n");
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++) {
        const char *second = strchr(c->name, ' ');
        printf("    %.*s) _arguments", (int)strcspn(c->name, " "), c->name);
        if (second != NULL)
            printf(" '2:what:(%s)'", second + 1);
        for (const struct cli_option *o = c->options; o->flag != NULL; o++) {
            printf(" '%s[", o->flag);
            quoted(o->help, "'\\''");
            printf("]");
            if (o->value != NULL && strchr(o->value, '|') != NULL) {
                printf(":value:(");
                print_choices(o->value);
                printf(")");
            } else if (o->value != NULL) {
                printf(":%s:%s", o->value, strcmp(o->value, "FILE") == 0 ? "_files" : " ");
            }
            printf("'");
        }
        if (c->words != NULL && strchr(c->words, '|') != NULL) {
            printf(" '2:what:(");
            print_choices(c->words);
            printf(")'");
        } else if (c->words != NULL) {
            printf(" '*:argument:_files'");
        }
        printf(" ;;\n");
    }
    printf("  esac\n}\n_tollgate \"$@\"\n");
}

static void fish(void)
{
    printf("# fish completion of tollgate; made by tollgate completion fish\n"
           "complete -c tollgate -f\n");
    for (const struct cli_command *c = cli_commands; c->name != NULL; c++) {
        const char *second = strchr(c->name, ' ');
        int n = (int)strcspn(c->name, " ");
        printf("complete -c tollgate -n __fish_use_subcommand -a %.*s -d '", n, c->name);
        quoted(c->help, "\\'");
        printf("'\n");
        if (second != NULL)
            printf("complete -c tollgate -n '__fish_seen_subcommand_from %.*s' -a %s\n", n, c->name,
                   second + 1);
        if (c->words != NULL && strchr(c->words, '|') != NULL) {
            printf("complete -c tollgate -n '__fish_seen_subcommand_from %.*s' -a '", n, c->name);
            print_choices(c->words);
            printf("'\n");
        }
        if (strcmp(c->name, "exec") == 0)
            printf("complete -c tollgate -n '__fish_seen_subcommand_from exec' -F\n");
        for (const struct cli_option *o = c->options; o->flag != NULL; o++) {
            printf("complete -c tollgate -n '__fish_seen_subcommand_from %.*s' %s %s", n, c->name,
                   o->flag[1] == '-' ? "-l" : "-s", o->flag + (o->flag[1] == '-' ? 2 : 1));
            if (o->value != NULL && strchr(o->value, '|') != NULL) {
                printf(" -x -a '");
                print_choices(o->value);
                printf("'");
            } else if (o->value != NULL) {
                printf(strcmp(o->value, "FILE") == 0 ? " -r -F" : " -x");
            }
            printf(" -d '");
            quoted(o->help, "\\'");
            printf("'\n");
        }
    }
}

int cli_completion(int argc, char **argv)
{
    struct cli_args a;
    if (cli_args_parse(&a, "completion", argc, argv) != 0)
        return 2;
    const char *shell = a.nwords > 0 ? a.word[0] : "";
    if (strcmp(shell, "bash") == 0)
        bash();
    else if (strcmp(shell, "zsh") == 0)
        zsh();
    else if (strcmp(shell, "fish") == 0)
        fish();
    else
        return cli_misused(&a, "name the shell: bash, zsh or fish");
    return 0;
}
