/* tollgate reload and status: ask the running gateway over its Unix socket, which is found by the configuration's run_dir. */
#include <stdio.h>

#include "cli.h"
#include "cli_args.h"
#include "control_client.h"

int cli_reload(int argc, char **argv)
{
    struct cli_args a;
    struct buf answer;
    if (cli_args_parse(&a, "reload", argc, argv, 0, 0) != 0)
        return 2;
    buf_init(&answer);
    int code = control_ask(a.config, "reload", &answer);
    fwrite(answer.p, 1, answer.n, code == 0 ? stdout : stderr);
    if (answer.n > 0 && answer.p[answer.n - 1] != '\n')
        fputc('\n', code == 0 ? stdout : stderr);
    buf_deinit(&answer);
    return code;
}

int cli_status(int argc, char **argv)
{
    struct cli_args a;
    struct buf answer;
    if (cli_args_parse(&a, "status", argc, argv, CLI_JSON, 0) != 0)
        return 2;
    buf_init(&answer);
    int code = control_ask(a.config, a.json ? "status" : "status-text", &answer);
    fwrite(answer.p, 1, answer.n, code == 0 ? stdout : stderr);
    if (a.json && code == 0)
        putchar('\n');
    buf_deinit(&answer);
    return code;
}
