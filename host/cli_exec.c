/* tollgate exec and tollgate test: a Lua file, or busted, in one coroutine with the plugins'
 * primitives at hand and no gateway around it. When it has ended and its timers too, what is left
 * open is a defect of the code that ran: it is named, and the exit code says so. tollgate new runs
 * the same way. */
#include <lauxlib.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "cli.h"
#include "cli_args.h"
#include "container.h"
#include "generation.h"
#include "log.h"
#include "paths.h"
#include "rds.h"

enum { EXIT_LEAK = 70 };

struct exec {
    struct loop loop;
    struct services sv;
    struct generation *gen;
    struct task *task;
    struct timer poll;
    int code;
    bool done;
};

enum { POLL_MS = 5 };

/* --- the run --- */

static void finish(struct exec *e, enum task_outcome outcome)
{
    e->done = true;
    if (outcome == TASK_ERROR) {
        fprintf(stderr, "%s\n", task_error(e->task));
        e->code = 1;
    } else {
        e->code = (int)lua_tointeger(task_lua(e->task), 1);
        lua_settop(task_lua(e->task), 0);
    }
    task_free(e->task);
    e->task = NULL;
}

static void on_settled(void *owner, enum task_outcome outcome)
{
    finish(owner, outcome);
}

/* Ends the loop once the main chunk and every timer of after() have ended; a timer of every() would
 * never. */
static void on_poll(struct timer *t)
{
    struct exec *e = CONTAINER(t, struct exec, poll);
    if (e->done && (e->code != 0 || !api_timers_pending(e->gen)))
        loop_stop(&e->loop);
    else
        timer_set(&e->loop, t, POLL_MS);
}

/* Calls a function of host/lua/exec.lua with `first`, unless it is NULL, and a list of the
 * arguments. */
static void run(struct exec *e, const char *function, const char *first, int argc, char **argv)
{
    e->task = task_new(&e->gen->tasks, on_settled, e);
    lua_State *co = task_lua(e->task);
    generation_push_module(e->gen, co, "tollgate.exec");
    lua_getfield(co, -1, function);
    lua_remove(co, -2);
    if (first != NULL)
        lua_pushstring(co, first);
    lua_newtable(co);
    for (int i = 0; i < argc; i++) {
        lua_pushstring(co, argv[i]);
        lua_rawseti(co, -2, i + 1);
    }
    enum task_outcome outcome = task_call(e->task, lua_gettop(co) - 1);
    if (outcome != TASK_WAITS)
        finish(e, outcome);
    e->poll.cb = on_poll;
    timer_set(&e->loop, &e->poll, POLL_MS);
    uv_ref((uv_handle_t *)&e->loop
               .alarm); /* with no socket open, a timer is all that keeps the loop */
    loop_run(&e->loop);
    uv_unref((uv_handle_t *)&e->loop.alarm);
    if (e->code == 0 && e->sv.plugin_errors > 0)
        e->code = 1; /* a timer raised; that was logged */
}

/* --- what it runs in --- */

static int open_redis(struct exec *e, const char *url)
{
    struct rds_config c;
    const char *wrong = rds_config_parse(slice_of(url), &c);
    if (wrong != NULL) {
        fprintf(stderr, "tollgate: --redis: %s\n", wrong); /* it may hold a password */
        return -1;
    }
    c.resolve = e->sv.resolve;
    e->sv.rds = rds_new(&e->loop, &c);
    e->sv.rds_pool = rds_pool_new(&e->loop, e->sv.rds);
    rds_start(e->sv.rds);
    return 0;
}

static int open_services(struct exec *e, const char *redis)
{
    struct upstream_limits limits = { .idle = 16, .idle_ms = 5000 };
    const char *why = NULL;
    e->sv.loop = &e->loop;
    e->sv.resolve = resolve_new(&e->loop, &why);
    if (e->sv.resolve == NULL) {
        fprintf(stderr, "tollgate: c-ares: %s\n", why);
        return -1;
    }
    e->sv.upstream = upstream_new(&e->loop, e->sv.resolve, &limits);
    if (shared_new(&e->sv.shared, SHARED_SIZE_MIN) != 0) {
        fprintf(stderr, "tollgate: no memory for tg.shared\n");
        return -1;
    }
    e->sv.fetch = fetch_client_new(&e->loop, e->sv.upstream);
    return redis != NULL ? open_redis(e, redis) : 0;
}

static int close_services(struct exec *e)
{
    timer_deinit(&e->loop, &e->poll);
    if (e->task != NULL)
        task_free(e->task);
    if (e->gen != NULL) {
        generation_stop(e->gen);
        api_timers_give_up(e->gen);
        generation_release(e->gen);
    }
    if (e->sv.rds != NULL) {
        rds_pool_free(e->sv.rds_pool);
        rds_free(e->sv.rds);
    }
    if (e->sv.fetch != NULL)
        fetch_client_free(e->sv.fetch);
    if (e->sv.upstream != NULL)
        upstream_free(e->sv.upstream);
    if (e->sv.resolve != NULL)
        resolve_free(e->sv.resolve);
    int left = loop_deinit(&e->loop);
    if (e->sv.shared != NULL)
        shared_free(e->sv.shared);
    metrics_free(e->sv.metrics);
    return left > 0 || e->sv.leaks > 0;
}

/* NULL: none. */
static const char *redis_of(const struct cli_args *a)
{
    const char *url = a->value[CLI_REDIS] != NULL ? a->value[CLI_REDIS] : getenv("TOLLGATE_REDIS");
    return url != NULL && url[0] != '\0' ? url : NULL;
}

static int exec_main(const char *function, const char *redis, const char *first, int argc,
                     char **argv)
{
    struct exec e = { .code = 1 };
    struct buf faults;
    if (loop_init(&e.loop) != 0)
        return 1;
    buf_init(&faults);
    log_set_level(LOG_WARN);
    if (open_services(&e, redis) == 0)
        e.gen = generation_bare(&e.sv, &faults);
    if (e.gen != NULL)
        run(&e, function, first, argc, argv);
    else
        fprintf(stderr, "%.*s", (int)faults.n, faults.n > 0 ? faults.p : "");
    buf_deinit(&faults);
    if (close_services(&e) != 0)
        return EXIT_LEAK;
    return e.code;
}

int cli_exec(int argc, char **argv)
{
    struct cli_args a;
    if (cli_args_parse(&a, "exec", argc, argv) != 0)
        return 2;
    argc -= a.rest, argv += a.rest;
    if (argc < 1)
        return cli_misused(&a, "name a file: tollgate exec [--redis URL] FILE [arguments]");
    return exec_main("file", redis_of(&a), argv[0], argc - 1, argv + 1);
}

int cli_test(int argc, char **argv)
{
    struct cli_args a;
    if (cli_args_parse(&a, "test", argc, argv) != 0)
        return 2;
    return exec_main("test", redis_of(&a), NULL, argc - a.rest, argv + a.rest);
}

int cli_new(int argc, char **argv)
{
    char home[PATH_MAX], plugins[PATH_MAX + 16];
    struct cli_args a;
    if (cli_args_parse(&a, "new plugin", argc, argv) != 0)
        return 2;
    if (a.nwords == 0)
        return cli_misused(&a, "the name of the plugin is missing");
    char *args[] = { (char *)a.word[0], a.json ? "json" : "text" };
    snprintf(plugins, sizeof plugins, "%s/plugins", paths_home(home, sizeof home));
    return exec_main("new", NULL, plugins, 2, args);
}
