/* tollgate publish: has the configuration checked, then raises the routing version in the gateway's
 * Redis, so that all replicas load it. host/lua/publish.lua does the part that talks to Redis, in a
 * Lua state without a configuration. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "api.h"
#include "cli.h"
#include "cli_args.h"
#include "cli_redis.h"
#include "load_check.h"
#include "log.h"
#include "mem.h"
#include "paths.h"

struct publish {
    struct loop loop;
    struct services sv;
    struct generation *gen; /* a bare one */
    struct task *task;
    bool ended;
    enum task_outcome outcome;
    const struct cli_args *args;
    struct slice policy; /* p == NULL: files */
    lua_Number of;       /* 0: the new version */
    char seen[32];       /* "": any */
};

static void on_settled(void *owner, enum task_outcome outcome)
{
    struct publish *p = owner;
    p->ended = true;
    p->outcome = outcome;
    loop_stop(&p->loop);
}

/* Begins a call of a function of publish.lua: arguments are to be pushed on what it returns. */
static lua_State *begin(struct publish *p, const char *function)
{
    p->task = task_new(&p->gen->tasks, on_settled, p);
    p->ended = false;
    lua_State *L = task_lua(p->task);
    generation_push_module(p->gen, L, "tollgate.publish");
    lua_getfield(L, -1, function);
    lua_remove(L, -2);
    return L;
}

/* 0, or -1 with a sentence on stderr; then task_free is to be called. */
static int call(struct publish *p, int nargs)
{
    p->outcome = task_call(p->task, nargs);
    if (p->outcome == TASK_WAITS) {
        uv_ref((uv_handle_t *)&p->loop.alarm);
        loop_run(&p->loop);
        uv_unref((uv_handle_t *)&p->loop.alarm);
    }
    if (p->outcome != TASK_ERROR)
        return 0;
    const char *problem = task_error(p->task);
    if (p->sv.rds != NULL && rds_state(p->sv.rds) != RDS_READY)
        cli_failed(p->args, "redis: %s", rds_problem(p->sv.rds));
    else
        cli_failed(p->args, "%.*s", (int)strcspn(problem, "\n"), problem);
    return -1;
}

static struct slice keep(lua_State *L, int idx)
{
    size_t n;
    const char *text = lua_tolstring(L, idx, &n);
    return text != NULL ? (struct slice){ mem_strndup(text, n), n } : (struct slice){ NULL, 0 };
}

static int prepare(struct publish *p)
{
    lua_State *L = begin(p, "prepare");
    lua_pushstring(L, p->args->config);
    int err = call(p, 1);
    if (err == 0 && lua_isstring(L, 2)) {
        cli_faults(p->args, slice_of(lua_tostring(L, 2)));
        err = -1;
    }
    if (err == 0)
        p->policy = keep(L, 1);
    task_free(p->task);
    return err;
}

static int former(struct publish *p)
{
    lua_State *L = begin(p, "former");
    int err = call(p, 0);
    if (err == 0) {
        p->policy = keep(L, 1);
        p->of = lua_tonumber(L, 2);
        snprintf(p->seen, sizeof p->seen, "%s", lua_tostring(L, 3));
    }
    task_free(p->task);
    return err;
}

static int commit(struct publish *p)
{
    char home[PATH_MAX], script[PATH_MAX + 32];
    snprintf(script, sizeof script, "%s/scripts/redis/publish.lua", paths_home(home, sizeof home));
    lua_State *L = begin(p, "commit");
    lua_pushstring(L, script);
    if (p->policy.p != NULL)
        lua_pushlstring(L, p->policy.p, p->policy.n);
    else
        lua_pushnil(L);
    if (p->of != 0)
        lua_pushnumber(L, p->of);
    else
        lua_pushnil(L);
    if (p->seen[0] != '\0')
        lua_pushstring(L, p->seen);
    else
        lua_pushnil(L);
    int err = call(p, 4);
    const char *version = err == 0 ? lua_tostring(L, 1) : "";
    if (err == 0 && p->args->json)
        printf(p->of != 0 ? "{\"version\":%s,\"policy_of\":%.0f}\n" : "{\"version\":%s}\n", version,
               p->of);
    else if (err == 0 && p->of != 0)
        printf("published version %s, the policy of version %.0f\n", version, p->of);
    else if (err == 0)
        printf("published version %s\n", version);
    task_free(p->task);
    return err;
}

/* Faults go to stderr. */
static struct generation *check(const struct publish *p)
{
    struct buf faults;
    buf_init(&faults);
    struct generation *g = load_check_try(p->args->config, p->policy, &faults);
    if (faults.n > 0)
        cli_faults(p->args, buf_slice(&faults));
    buf_deinit(&faults);
    return g;
}

static int open_redis(struct publish *p, const struct generation *checked)
{
    struct rds_config c;
    const char *why = NULL, *wrong = cli_redis_config(checked, &c);
    if (wrong == NULL && (p->sv.resolve = cli_redis_resolve(&p->loop, checked, &why)) == NULL)
        wrong = why;
    if (wrong != NULL) {
        cli_failed(p->args, "%s", wrong);
        return -1;
    }
    c.resolve = p->sv.resolve;
    p->sv.rds = rds_new(&p->loop, &c);
    rds_start(p->sv.rds);
    return 0;
}

static int publish(struct publish *p, bool rollback)
{
    struct generation *checked;
    if (prepare(p) != 0)
        return -1;
    bool files = p->policy.p == NULL;
    if ((checked = check(p)) == NULL || open_redis(p, checked) != 0)
        return -1;
    if (rollback && files) {
        cli_failed(p->args, "--rollback is for routing.source = \"redis\"; put the former files in "
                            "place and publish them");
        return -1;
    }
    if (rollback && (former(p) != 0 || check(p) == NULL))
        return -1;
    return commit(p);
}

int cli_publish(int argc, char **argv)
{
    struct cli_args a;
    struct publish *p = mem_zalloc(sizeof *p);
    struct buf faults;
    if (cli_args_parse(&a, "publish", argc, argv) != 0) {
        mem_free(p);
        return 2;
    }
    log_set_level(LOG_SILENT);
    if (loop_init(&p->loop) != 0)
        return 1;
    p->args = &a;
    p->sv.loop = &p->loop;
    buf_init(&faults);
    p->gen = generation_bare(&p->sv, &faults);
    int code = p->gen != NULL && publish(p, a.value[CLI_ROLLBACK] != NULL) == 0 ? 0 : 1;
    fflush(stdout);
    _exit(code); /* what the check has open ends with the process */
}
