/* tollgate usage: what keys have used of their budgets. The budgets stand in the configuration and
 * in key records, the counters in the gateway's Redis; host/lua/usage.lua puts them together, in a
 * coroutine of the loaded configuration's Lua state. */
#include <stdio.h>
#include <unistd.h>

#include "api.h"
#include "cli.h"
#include "cli_args.h"
#include "cli_lua.h"
#include "cli_redis.h"
#include "generation.h"
#include "log.h"
#include "rds.h"

struct usage {
    struct loop loop;
    struct services sv;
    struct generation *gen;
    struct task *task;
    const struct cli_args *args;
    int code;
};

/* --- the report --- */

static void finish(struct usage *u, enum task_outcome outcome)
{
    u->code = 1;
    if (outcome == TASK_ERROR) {
        cli_failed(u->args, "%s", task_error(u->task));
        return;
    }
    lua_State *L = task_lua(u->task);
    u->code = (int)lua_tointeger(L, 1);
    if (lua_gettop(L) >
        1) { /* why Redis did not answer; the connection knows better where it has none */
        const char *problem =
            rds_state(u->sv.rds) == RDS_READY ? lua_tostring(L, 2) : rds_problem(u->sv.rds);
        cli_failed(u->args, "redis: %s", problem);
    }
}

static void on_settled(void *owner, enum task_outcome outcome)
{
    struct usage *u = owner;
    finish(u, outcome);
    loop_stop(&u->loop);
}

static void report(struct usage *u, const struct cli_args *a)
{
    u->task = task_new(&u->gen->tasks, on_settled, u);
    lua_State *L = task_lua(u->task);
    generation_push_module(u->gen, L, "tollgate.usage");
    lua_getfield(L, -1, "run");
    lua_remove(L, -2);
    lua_getfield(L, LUA_REGISTRYINDEX, "tollgate.config");
    if (a->nwords > 0)
        lua_pushstring(L, a->word[0]);
    else
        lua_pushnil(L);
    lua_pushboolean(L, a->json);
    struct terminal t;
    terminal_look(&t, STDOUT_FILENO, a->value[CLI_COLOR]);
    cli_lua_push_terminal(L, &t);
    enum task_outcome outcome = task_call(u->task, 4);
    if (outcome == TASK_WAITS) {
        uv_ref((uv_handle_t *)&u->loop
                   .alarm); /* between two attempts to connect there is only a timer */
        loop_run(&u->loop);
        uv_unref((uv_handle_t *)&u->loop.alarm);
    } else {
        finish(u, outcome);
    }
    task_free(u->task);
}

/* --- where the gateway's Redis is --- */

static int open_redis(struct usage *u)
{
    struct rds_config c;
    const char *why = NULL, *wrong = cli_redis_config(u->gen, &c);
    if (wrong == NULL && (u->sv.resolve = cli_redis_resolve(&u->loop, u->gen, &why)) == NULL)
        wrong = why;
    if (wrong != NULL) {
        cli_failed(u->args, "%s", wrong);
        return -1;
    }
    c.resolve = u->sv.resolve;
    u->sv.rds = rds_new(&u->loop, &c);
    rds_start(u->sv.rds);
    return 0;
}

static void close_all(struct usage *u)
{
    if (u->gen != NULL) {
        u->gen->stopped = true; /* nothing was started */
        generation_release(u->gen);
    }
    if (u->sv.rds != NULL)
        rds_free(u->sv.rds);
    if (u->sv.resolve != NULL)
        resolve_free(u->sv.resolve);
    loop_deinit(&u->loop);
    metrics_free(u->sv.metrics);
}

int cli_usage(int argc, char **argv)
{
    struct cli_args a;
    struct usage u = { .code = 1 };
    struct buf faults;
    if (cli_args_parse(&a, "usage", argc, argv) != 0)
        return 2;
    log_set_level(LOG_ERROR); /* what Redis's connection has to say is in the report */
    if (loop_init(&u.loop) != 0)
        return 1;
    u.sv.loop = &u.loop;
    u.args = &a;
    buf_init(&faults);
    u.gen = generation_load(&u.sv, a.config, true, &faults);
    if (u.gen == NULL)
        cli_faults(&a, buf_slice(&faults));
    else if (open_redis(&u) == 0)
        report(&u, &a);
    buf_deinit(&faults);
    close_all(&u);
    return u.code;
}
