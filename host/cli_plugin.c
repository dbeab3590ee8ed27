/* tollgate plugin NAME and tollgate breaker: what a plugin of the running gateway says, or does. */
#include <stdio.h>

#include "cli.h"
#include "cli_args.h"
#include "control_client.h"
#include "json.h"

/* Plugins that have a command of their own. */
static const char BREAKER[] = "breaker";

static int ask(const struct cli_args *a, const char *plugin, int first)
{
    struct buf line, answer;
    buf_init(&line);
    buf_init(&answer);
    buf_add_text(&line, "plugin {\"plugin\":");
    json_quote(&line, slice_of(plugin));
    buf_add_text(&line, ",\"words\":[");
    for (int i = first; i < a->nwords; i++) {
        buf_add_text(&line, i > first ? "," : "");
        json_quote(&line, slice_of(a->word[i]));
    }
    buf_printf(&line, "],\"json\":%s}", a->json ? "true" : "false");
    buf_add(&line, "", 1);
    int code = control_ask(a->config, line.p, &answer);
    if (code != 0)
        cli_faults(a, buf_slice(&answer));
    else
        printf("%.*s%s", (int)answer.n, answer.n > 0 ? answer.p : "",
               answer.n > 0 && answer.p[answer.n - 1] != '\n' ? "\n" : "");
    buf_deinit(&line);
    buf_deinit(&answer);
    return code;
}

int cli_plugin(int argc, char **argv)
{
    struct cli_args a;
    if (cli_args_parse(&a, "plugin", argc, argv) != 0)
        return 2;
    if (a.nwords == 0)
        return cli_misused(&a, "the name of a plugin is missing");
    return ask(&a, a.word[0], 1);
}

int cli_breaker(int argc, char **argv)
{
    struct cli_args a;
    if (cli_args_parse(&a, BREAKER, argc, argv) != 0)
        return 2;
    return ask(&a, BREAKER, 0);
}
