/* See cli_args.h. */
#include "cli_args.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "json.h"

static int fault(const struct cli_args *a, const char *what, const char *which)
{
    cli_misused(a, "%s %s (tollgate help %s tells what there is)", what, which, a->command->name);
    return -1;
}

static const struct cli_option *option_of(const struct cli_command *c, const char *arg, size_t n)
{
    if (strcmp(arg, "--config") == 0)
        arg = "-c", n = 2;
    for (const struct cli_option *o = c->options; o->flag != NULL; o++) {
        if (strlen(o->flag) == n && strncmp(o->flag, arg, n) == 0)
            return o;
    }
    return NULL;
}

/* Whether `value` is one of "a|b|c". */
static bool among(const char *value, const char *choices)
{
    size_t n = strlen(value);
    for (const char *at = choices;; at = strchr(at, '|') + 1) {
        if (strncmp(at, value, n) == 0 && (at[n] == '|' || at[n] == '\0'))
            return true;
        if (strchr(at, '|') == NULL)
            return false;
    }
}

static bool is_number(const char *text)
{
    char *rest;
    strtod(text, &rest);
    return *rest == '\0' && rest != text;
}

/* Takes the option at argv[i]; returns how many arguments it was, or -1. */
static int take(struct cli_args *a, int argc, char **argv, int i)
{
    const char *equals = strncmp(argv[i], "--", 2) == 0 ? strchr(argv[i], '=') : NULL;
    size_t n = equals != NULL ? (size_t)(equals - argv[i]) : strlen(argv[i]);
    const struct cli_option *o = option_of(a->command, argv[i], n);
    if (o == NULL || (equals != NULL && o->value == NULL))
        return fault(a, "unknown option", argv[i]);
    const char *value = o->value == NULL ? "" : equals != NULL ? equals + 1 : argv[i + 1];
    int used = o->value != NULL && equals == NULL ? 2 : 1;
    if (i + used > argc)
        return fault(a,
                     strcmp(o->value, "FILE") == 0 ? "a file is missing behind"
                                                   : "a value is missing behind",
                     argv[i]);
    if (o->value != NULL && strchr(o->value, '|') != NULL && !among(value, o->value))
        return fault(a, "must be one of", o->value);
    if (o->value != NULL && strcmp(o->value, "N") == 0 && !is_number(value))
        return fault(a, "not a number:", value);
    if (o->id < CLI_OPTIONS)
        a->value[o->id] = value;
    else if (a->nown < CLI_OWN_MAX)
        a->own[a->nown++] = (struct cli_own){ o, value };
    else
        return fault(a, "too many options, from", argv[i]);
    return used;
}

/* Says how a fault in front of it is to be told, too. */
static bool asks_json(const struct cli_command *c, int argc, char **argv)
{
    if (option_of(c, "--json", strlen("--json")) == NULL)
        return false;
    for (int i = 0; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0)
            return true;
    }
    return false;
}

int cli_args_parse(struct cli_args *a, const char *command, int argc, char **argv)
{
    *a = (struct cli_args){ .command = cli_command_named(command),
                            .config = "gateway.lua",
                            .rest = argc };
    a->json = asks_json(a->command, argc, argv);
    int used;
    for (int i = 0; i < argc; i += used) {
        used = 1;
        bool option = argv[i][0] == '-' && argv[i][1] != '\0';
        if (a->command->nwords < 0 &&
            !(option && option_of(a->command, argv[i], strcspn(argv[i], "=")) != NULL)) {
            a->rest = i;
            return 0;
        }
        if (option) {
            used = take(a, argc, argv, i);
            if (used < 0)
                return -1;
        } else if (a->nwords == a->command->nwords) {
            return fault(a, "unexpected argument", argv[i]);
        } else {
            a->word[a->nwords++] = argv[i];
        }
    }
    if (a->value[CLI_CONFIG] != NULL)
        a->config = a->value[CLI_CONFIG];
    return 0;
}

/* --- what is said --- */

static struct slice trimmed(struct slice text)
{
    while (text.n > 0 && text.p[text.n - 1] == '\n')
        text.n--;
    return text;
}

static void say_json(FILE *to, const char *name, struct slice text)
{
    struct buf out;
    buf_init(&out);
    buf_printf(&out, "{\"%s\":", name);
    json_quote(&out, trimmed(text));
    fprintf(to, "%.*s}\n", (int)out.n, out.p);
    buf_deinit(&out);
}

static void failed(const struct cli_args *a, const char *format, va_list list)
{
    struct buf text;
    char piece[8192];
    vsnprintf(piece, sizeof piece, format, list);
    buf_init(&text);
    if (!a->json)
        buf_printf(&text, "tollgate %s: ", a->command->name);
    buf_add_text(&text, piece);
    cli_faults(a, buf_slice(&text));
    buf_deinit(&text);
}

int cli_failed(const struct cli_args *a, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    failed(a, format, list);
    va_end(list);
    return 1;
}

int cli_misused(const struct cli_args *a, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    failed(a, format, list);
    va_end(list);
    return 2;
}

int cli_faults(const struct cli_args *a, struct slice lines)
{
    lines = trimmed(lines);
    if (a->json)
        say_json(stderr, "error", lines);
    else if (lines.n > 0)
        fprintf(stderr, "%.*s\n", (int)lines.n, lines.p);
    return 1;
}

void cli_say(const struct cli_args *a, struct slice text)
{
    text = trimmed(text);
    if (a->json)
        say_json(stdout, "message", text);
    else if (text.n > 0)
        printf("%.*s\n", (int)text.n, text.p);
}
