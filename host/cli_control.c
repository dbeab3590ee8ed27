/* tollgate reload, upgrade and status: ask the running gateway over its Unix socket, which is found
 * by the configuration's run_dir. */
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "cli_args.h"
#include "cli_lua.h"
#include "control_client.h"
#include "progress.h"

enum { UPGRADE_STEP_MS = 50, UPGRADE_TRIES = 1200 };

/* Asks and says what the answer was. */
static int ask(const struct cli_args *a, const char *verb, const char *doing)
{
    struct buf answer;
    buf_init(&answer);
    progress_begin(doing);
    int code = control_ask(a->config, verb, &answer);
    progress_end();
    if (code == 0)
        cli_say(a, buf_slice(&answer));
    else
        cli_faults(a, buf_slice(&answer));
    buf_deinit(&answer);
    return code;
}

int cli_reload(int argc, char **argv)
{
    struct cli_args a;
    if (cli_args_parse(&a, "reload", argc, argv) != 0)
        return 2;
    return ask(&a, "reload", "reloading");
}

/* Once the new program answers and has replaced all workers. */
static int wait_upgraded(const struct cli_args *a)
{
    progress_begin("replacing the workers");
    bool done = false;
    for (int i = 0; i < UPGRADE_TRIES && !done; i++) {
        struct buf status;
        buf_init(&status);
        done = control_try(a->config, "status", &status) == 0 && status.n > 0 &&
               memmem(status.p, status.n, "\"upgrading\":false", 17) != NULL;
        buf_deinit(&status);
        if (!done)
            usleep(UPGRADE_STEP_MS * 1000);
    }
    progress_end();
    if (!done)
        return cli_failed(a, "the workers have not all been replaced yet; see the gateway's log");
    cli_say(a, SLICE("upgraded"));
    return 0;
}

int cli_upgrade(int argc, char **argv)
{
    struct cli_args a;
    struct buf answer;
    if (cli_args_parse(&a, "upgrade", argc, argv) != 0)
        return 2;
    buf_init(&answer);
    progress_begin("trying the new program");
    int code = control_ask(a.config, "upgrade", &answer);
    progress_end();
    if (code != 0)
        cli_faults(&a, buf_slice(&answer));
    else if (!a.json) /* one value is to be on stdout */
        cli_say(&a, buf_slice(&answer));
    buf_deinit(&answer);
    return code == 0 ? wait_upgraded(&a) : code;
}

static int show(const struct cli_args *a, struct slice status)
{
    struct cli_lua lua;
    struct terminal t;
    struct buf page;
    buf_init(&page);
    terminal_look(&t, STDOUT_FILENO, a->value[CLI_COLOR]);
    int code = cli_lua_open(&lua);
    if (code == 0) {
        lua_State *L = cli_lua_function(&lua, "tollgate.status_form", "page");
        lua_pushlstring(L, status.p, status.n);
        cli_lua_push_terminal(L, &t);
        code = cli_lua_text(&lua, 2, &page);
    }
    if (code == 0)
        printf("%.*s", (int)page.n, page.p);
    else
        cli_failed(a, "the gateway's answer cannot be read: %.*s", (int)page.n,
                   page.n > 0 ? page.p : "");
    buf_deinit(&page);
    cli_lua_close(&lua);
    return code == 0 ? 0 : 1;
}

int cli_status(int argc, char **argv)
{
    struct cli_args a;
    struct buf answer;
    if (cli_args_parse(&a, "status", argc, argv) != 0)
        return 2;
    buf_init(&answer);
    int code = control_ask(a.config, "status", &answer);
    if (code != 0)
        cli_faults(&a, buf_slice(&answer));
    else if (a.json)
        printf("%.*s\n", (int)answer.n, answer.p);
    else
        code = show(&a, buf_slice(&answer));
    buf_deinit(&answer);
    return code;
}
