/* tollgate reload, upgrade and status: ask the running gateway over its Unix socket, which is found
 * by the configuration's run_dir. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "cli_args.h"
#include "control_client.h"

enum { UPGRADE_STEP_MS = 50, UPGRADE_TRIES = 1200 };

int cli_reload(int argc, char **argv)
{
    struct cli_args a;
    struct buf answer;
    if (cli_args_parse(&a, "reload", argc, argv, 0, 0) != 0)
        return 2;
    buf_init(&answer);
    int code = control_ask(a.config, "reload", &answer);
    fprintf(code == 0 ? stdout : stderr, "%.*s", (int)answer.n, answer.n > 0 ? answer.p : "");
    if (answer.n > 0 && answer.p[answer.n - 1] != '\n')
        fputc('\n', code == 0 ? stdout : stderr);
    buf_deinit(&answer);
    return code;
}

/* Once the new program answers and has replaced all workers. */
static int wait_upgraded(const char *config)
{
    for (int i = 0; i < UPGRADE_TRIES; i++) {
        struct buf status;
        buf_init(&status);
        bool done = control_try(config, "status", &status) == 0 && status.n > 0 &&
                    memmem(status.p, status.n, "\"upgrading\":false", 17) != NULL;
        buf_deinit(&status);
        if (done) {
            printf("upgraded\n");
            return 0;
        }
        usleep(UPGRADE_STEP_MS * 1000);
    }
    fprintf(stderr, "tollgate upgrade: the workers have not all been replaced yet; see its log\n");
    return 1;
}

int cli_upgrade(int argc, char **argv)
{
    struct cli_args a;
    struct buf answer;
    if (cli_args_parse(&a, "upgrade", argc, argv, 0, 0) != 0)
        return 2;
    buf_init(&answer);
    int code = control_ask(a.config, "upgrade", &answer);
    fprintf(code == 0 ? stdout : stderr, "%.*s\n", (int)answer.n, answer.n > 0 ? answer.p : "");
    buf_deinit(&answer);
    return code == 0 ? wait_upgraded(a.config) : code;
}

int cli_status(int argc, char **argv)
{
    struct cli_args a;
    struct buf answer;
    if (cli_args_parse(&a, "status", argc, argv, CLI_JSON, 0) != 0)
        return 2;
    buf_init(&answer);
    int code = control_ask(a.config, a.json ? "status" : "status-text", &answer);
    fprintf(code == 0 ? stdout : stderr, "%.*s", (int)answer.n, answer.n > 0 ? answer.p : "");
    if (a.json && code == 0)
        putchar('\n');
    buf_deinit(&answer);
    return code;
}
