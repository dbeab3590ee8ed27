/* Scripts of Redis that plugins bring along: one a file, beside the Lua file that names it. A
 * script is read once in a generation, also where it is asked for at every request; new
 * connections get it ahead until the generation stops. It goes with the generation's Lua state,
 * or with the last call that was under way then. */
#include "api_redis.h"
#include "mem.h"

static const char SCRIPT[] = "tollgate.redis.script", LOADED[] = "tollgate.redis.scripts";

struct redis_script {
    struct rds_script script;
    struct redis_script *next; /* in the generation */
    char *path;
    unsigned refs;
    bool ahead; /* new connections get it */
};

void api_redis_script_unref(struct redis_script *s)
{
    if (--s->refs > 0)
        return;
    rds_script_deinit(&s->script);
    mem_free(s->path);
    mem_free(s);
}

/* While files load the worker may have no Redis yet. */
void api_redis_scripts_start(struct generation *g)
{
    for (struct redis_script *s = g->redis_scripts; s != NULL; s = s->next) {
        if (g->sv->rds != NULL && !s->ahead)
            rds_preload(g->sv->rds, &s->script);
        s->ahead = g->sv->rds != NULL;
    }
}

void api_redis_scripts_stop(struct generation *g)
{
    for (struct redis_script *s = g->redis_scripts; s != NULL; s = s->next) {
        if (s->ahead)
            rds_forget(g->sv->rds, &s->script);
    }
    g->redis_scripts = NULL;
}

static int script_gc(lua_State *L)
{
    struct redis_script **s = lua_touserdata(L, 1);
    api_redis_script_unref(*s);
    return 0;
}

/* Pushes the folder of the Lua file that calls. */
static void push_folder(lua_State *L)
{
    lua_Debug ar;
    for (int level = 1; lua_getstack(L, level, &ar) != 0; level++) {
        lua_getinfo(L, "S", &ar);
        if (ar.source[0] != '@')
            continue;
        const char *path = ar.source + 1, *slash = strrchr(path, '/');
        if (slash == NULL)
            lua_pushliteral(L, ".");
        else
            lua_pushlstring(L, path, (size_t)(slash - path));
        return;
    }
    luaL_error(L, "tg.redis.script: no Lua file calls this, so there is no folder to look in");
}

/* Reads the script and pushes its object. */
static void push_new(lua_State *L, const char *folder, const char *name, const char *path)
{
    struct generation *g = api_generation(L);
    struct redis_script **out = lua_newuserdata(L, sizeof *out);
    struct redis_script *s = mem_zalloc(sizeof *s);
    struct slice text;
    int err = g->snapshot == NULL ? rds_script_load(&s->script, folder, name)
                                  : snapshot_file(g->snapshot, path, &text);
    if (err == 0 && g->snapshot != NULL)
        err = rds_script_set(&s->script, name, text);
    if (err != 0) {
        mem_free(s);
        luaL_error(L, "tg.redis.script: %s: %s", path,
                   err == UV_EINVAL || err == UV_EIO ? "must be a file of 1 byte to 1 MiB"
                                                     : uv_strerror(err));
    }
    s->refs = 1;
    s->path = mem_strdup(path);
    *out = s;
    luaL_getmetatable(L, SCRIPT);
    lua_setmetatable(L, -2);
    if (g->stopped)
        return;
    s->next = g->redis_scripts;
    g->redis_scripts = s;
    api_redis_scripts_start(g);
}

/* tg.redis.script(name) → script: the script in the file name.lua beside the Lua file that
 * calls, so in the plugin's own folder. Does not wait; may be called while a file loads. Raises
 * where the file cannot be read. */
static int redis_script(lua_State *L)
{
    if (lua_type(L, 1) != LUA_TSTRING)
        return luaL_error(L, "tg.redis.script: the name must be a string, not %s",
                          luaL_typename(L, 1));
    const char *name = lua_tostring(L, 1);
    size_t n = strlen(name);
    if (n == 0 || n >= sizeof((struct rds_script *)0)->name || strchr(name, '/') != NULL)
        return luaL_error(L,
                          "tg.redis.script: '%s' must be a file's name of 1 to 63 bytes without "
                          "folder and without .lua",
                          name);
    push_folder(L);
    const char *folder = lua_tostring(L, -1);
    const char *path = lua_pushfstring(L, "%s/%s.lua", folder, name);
    lua_getfield(L, LUA_REGISTRYINDEX, LOADED);
    lua_getfield(L, -1, path);
    if (!lua_isnil(L, -1))
        return 1;
    lua_pop(L, 1);
    push_new(L, folder, name, path);
    lua_pushvalue(L, -1);
    lua_setfield(L, -3, path);
    return 1;
}

/* Adds the list at idx, or none where it is nil; returns how many. */
static int add_texts(lua_State *L, int idx, const char *what, const char *name,
                     struct redis_args *a)
{
    int before = a->n;
    if (!lua_isnoneornil(L, idx))
        api_redis_add_list(L, idx, api_redis_list(L, idx, what, name, NULL), what, name, a);
    return a->n - before;
}

/* script:run(keys, args, { timeout = seconds } or nil) → reply; nil, err: as tg.redis.call. keys
 * and args are lists of strings and numbers, or nil: KEYS and ARGV in the script. It is sent by
 * its digest, and with its text where Redis does not know that. Waits. */
static int script_run(lua_State *L)
{
    struct redis_script *s = *(struct redis_script **)luaL_checkudata(L, 1, SCRIPT);
    struct redis_args a;
    a.n = 0;
    lua_settop(L, 4);
    const char *what = lua_pushfstring(L, "%s: script:run", s->path);
    int nkeys = add_texts(L, 2, what, "keys", &a);
    int nargs = add_texts(L, 3, what, "args", &a);
    uint64_t timeout = api_redis_timeout_option(L, 4, what);
    struct task *task = task_check(L, what);
    struct rds *r = api_generation(L)->sv->rds;
    if (r == NULL)
        return api_redis_push_error(L, "down");
    struct redis_call *c = api_redis_call_new(task, 0, NULL);
    c->script = s;
    s->refs++;
    rds_eval(r, &s->script, nkeys, a.v, nargs, a.v + nkeys, timeout, api_redis_call_reply, c);
    return api_redis_call_wait(L, c);
}

void api_redis_open_script(lua_State *L)
{
    luaL_newmetatable(L, SCRIPT);
    lua_pushcfunction(L, script_gc);
    lua_setfield(L, -2, "__gc");
    lua_newtable(L);
    lua_pushcfunction(L, script_run);
    lua_setfield(L, -2, "run");
    lua_setfield(L, -2, "__index");
    lua_pop(L, 1);
    lua_newtable(L);
    lua_setfield(L, LUA_REGISTRYINDEX, LOADED);
    lua_pushcfunction(L, redis_script);
    lua_setfield(L, -2, "script");
}
