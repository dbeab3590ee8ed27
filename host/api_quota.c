/* tg.quota: the fast path for plugins. Limits are made once and handed over as an object; an
 * admission is a C call that makes no table. The exchange owns what was admitted and settles it
 * when the request ends. */
#include "api.h"
#include "limit_headers.h"

static const char LIMITS[] = "tollgate.quota.limits";

static bool limit_field(lua_State *L, const char *name, double *out)
{
    lua_getfield(L, 1, name);
    bool there = !lua_isnil(L, -1);
    if (there && lua_type(L, -1) != LUA_TNUMBER)
        luaL_error(L, "tg.quota.limits: %s must be a number", name);
    if (there)
        *out = lua_tonumber(L, -1);
    lua_pop(L, 1);
    return there;
}

static uint64_t whole(lua_State *L, const char *name, double v)
{
    if (!(v >= 0 && v < 9007199254740992.0 && v == (double)(uint64_t)v))
        luaL_error(L, "tg.quota.limits: %s must be an integer from 0 to 2^53 - 1", name);
    return (uint64_t)v;
}

/* tg.quota.limits{ rate = requests a second, burst = requests, budget = tokens a month, concurrency
 * = requests } → limits. A field left out is not enforced; burst goes with rate. Raises on what the
 * bucket's bounds exclude. */
static int quota_limits(lua_State *L)
{
    struct quota_limits l = { 0 };
    double v = 0;
    luaL_checktype(L, 1, LUA_TTABLE);
    l.has_rate = limit_field(L, "rate", &l.rate);
    bool burst = limit_field(L, "burst", &l.burst);
    if (l.has_rate != burst)
        return luaL_error(L, "tg.quota.limits: rate and burst go together");
    l.has_budget = limit_field(L, "budget", &v);
    l.budget = l.has_budget ? whole(L, "budget", v) : 0;
    l.has_concurrency = limit_field(L, "concurrency", &v);
    l.concurrency = l.has_concurrency ? whole(L, "concurrency", v) : 0;
    const char *wrong = quota_limits_check(&l);
    if (wrong != NULL)
        return luaL_error(L, "tg.quota.limits: %s", wrong);
    struct quota_limits *out = lua_newuserdata(L, sizeof *out);
    *out = l;
    luaL_getmetatable(L, LIMITS);
    lua_setmetatable(L, -2);
    return 1;
}

static const char *const verdict_names[] = { "admitted", "rate", "concurrency", "budget",
                                             "unavailable" };

static int push_verdict(lua_State *L, const struct exchange *x)
{
    lua_pushstring(L, verdict_names[x->verdict.verdict]);
    lua_pushnumber(L, (lua_Number)x->verdict.retry_ms);
    return 2;
}

static void on_verdict(void *arg, struct quota_grant *grant, const struct quota_result *result)
{
    struct exchange *x = arg;
    x->admission = NULL;
    x->grant = grant;
    x->verdict = *result;
    x->has_verdict = result->verdict != QUOTA_UNAVAILABLE;
    if (result->verdict != QUOTA_ADMITTED)
        x->refusal = verdict_names[result->verdict];
    task_resume(x->task, push_verdict(task_lua(x->task), x));
}

static void on_cancel(void *arg)
{
    struct exchange *x = arg;
    if (x->admission != NULL)
        quota_cancel(x->admission);
    x->admission = NULL;
}

static void check_unadmitted(lua_State *L, const struct exchange *x)
{
    if (x->grant != NULL || x->admission != NULL)
        luaL_error(L, "this request has been admitted already");
    if (x->stage != STAGE_ACCESS)
        luaL_error(L, "a request is admitted in its access phase");
}

/* For another attempt, which may have to be admitted again. */
static void remember(struct exchange *x, struct slice key, uint64_t reserve, uint64_t deadline)
{
    x->quota_key = arena_dup(&x->arena, key);
    x->quota_reserve = reserve;
    x->quota_deadline = deadline;
}

/* tg.quota.admit(ctx, key id, limits, reserve in tokens, deadline in ms or nil) → verdict, retry in
 * ms. Waits. The verdict is "admitted", "rate", "concurrency", "budget" or "unavailable"; the time
 * is when another try makes sense. */
static int quota_admit_(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    struct slice key;
    key.p = luaL_checklstring(L, 2, &key.n);
    struct quota_limits *l = luaL_checkudata(L, 3, LIMITS);
    lua_Number reserve = luaL_optnumber(L, 4, 0), deadline = luaL_optnumber(L, 5, 0);
    luaL_argcheck(L, key.n > 0, 2, "the key id must not be empty");
    luaL_argcheck(L, reserve >= 0 && reserve < 9007199254740992.0, 4,
                  "must be an integer from 0 to 2^53 - 1");
    luaL_argcheck(L, deadline >= 0 && deadline < 1e9, 5, "must be a number of milliseconds");
    check_unadmitted(L, x);
    if (!l->has_rate && !l->has_budget && !l->has_concurrency) {
        lua_pushliteral(L, "admitted");
        lua_pushnumber(L, 0);
        return 2;
    }
    struct task *task = task_check(L, "tg.quota.admit");
    if (task != x->task)
        return luaL_error(L, "tg.quota.admit must be called in the request's own phase");
    x->limits = *l;
    remember(x, key, (uint64_t)reserve, (uint64_t)deadline);
    x->admission = quota_admit(x->sv->quota, key, slice_of(x->id), l, (uint64_t)reserve,
                               (uint64_t)deadline, on_verdict, x);
    return task_wait(L, task, on_cancel, x);
}

/* tg.quota.allow(ctx, key id, limits): lets a request through that Redis could not decide; what it
 * spends is settled once Redis is back. */
static int quota_allow(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    struct slice key;
    key.p = luaL_checklstring(L, 2, &key.n);
    struct quota_limits *l = luaL_checkudata(L, 3, LIMITS);
    luaL_argcheck(L, key.n > 0, 2, "the key id must not be empty");
    check_unadmitted(L, x);
    x->refusal = NULL;
    x->limits = *l;
    remember(x, key, 0, 0);
    if (x->metered && l->has_budget)
        x->grant = quota_grant_unadmitted(x->sv->quota, key, slice_of(x->id), l);
    return 0;
}

static uint64_t check_count(lua_State *L, int idx)
{
    lua_Number n = luaL_checknumber(L, idx);
    luaL_argcheck(L, n >= 0 && n < 9007199254740992.0, idx, "must be a number from 0 to 2^53 - 1");
    return (uint64_t)n;
}

/* tg.quota.window(ctx, name, limit, remaining, reset in ms, seconds): adds a limit on requests that
 * the plugin keeps by itself to what the limit headers tell: so many of `limit` in a window of so
 * many seconds remain, and are whole again after `reset`. Belongs to the access phase. The name may
 * hold letters, digits, _ . and -. */
static int quota_window(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    size_t n;
    const char *name = luaL_checklstring(L, 2, &n);
    luaL_argcheck(L,
                  n > 0 && strspn(name, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                        "0123456789_.-") == n,
                  2, "must be letters, digits, _ . and -");
    uint64_t limit = check_count(L, 3), remaining = check_count(L, 4), reset = check_count(L, 5),
             seconds = check_count(L, 6);
    if (x->stage != STAGE_ACCESS)
        return luaL_error(L, "tg.quota.window belongs to the access phase");
    struct limit_row *row = arena_alloc(&x->arena, sizeof *row);
    *row = (struct limit_row){
        x->limit_rows, "requests", arena_dup(&x->arena, (struct slice){ name, n }),
        limit,         remaining,  (int64_t)reset,
        seconds
    };
    x->limit_rows = row;
    return 0;
}

static void set_headers(const struct exchange *x, struct headers *h)
{
    limit_headers_set(x->route->api, x->limit_rows, x->has_verdict ? &x->limits : NULL,
                      x->has_verdict ? &x->verdict : NULL, h);
}

/* tg.quota.headers(ctx) → table of the limit headers: after the last verdict, and of windows that
 * plugins told of; empty where there is neither. */
static int quota_headers(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    struct headers h;
    headers_init(&h, &x->arena);
    set_headers(x, &h);
    lua_createtable(L, 0, (int)h.n);
    for (uint32_t i = 0; i < h.n; i++) {
        lua_pushlstring(L, h.v[i].name.p, h.v[i].name.n);
        lua_pushlstring(L, h.v[i].value.p, h.v[i].value.n);
        lua_rawset(L, -3);
    }
    return 1;
}

/* tg.quota.apply_headers(ctx): sets them on the response. */
static int quota_apply_headers(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    if (x->stage != STAGE_RESPONSE)
        return luaL_error(L, "tg.quota.apply_headers belongs to the response phase");
    set_headers(x, &x->res.headers);
    return 0;
}

void api_open_quota(lua_State *L)
{
    static const luaL_Reg functions[] = { { "limits", quota_limits },
                                          { "admit", quota_admit_ },
                                          { "allow", quota_allow },
                                          { "window", quota_window },
                                          { "headers", quota_headers },
                                          { "apply_headers", quota_apply_headers },
                                          { NULL, NULL } };
    luaL_newmetatable(L, LIMITS);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    lua_setfield(L, -2, "quota");
}
