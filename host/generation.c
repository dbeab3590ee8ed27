/* See generation.h: a generation's Lua state and its life. Reading the configuration is in
 * generation_read.c. */
#include "generation.h"

#include <dirent.h>
#include <lauxlib.h>
#include <limits.h>
#include <lualib.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "api.h"
#include "generation_read.h"
#include "log.h"
#include "lua_sources.h"
#include "mem.h"
#include "paths.h"
#include "zone.h"

int generation_ref(struct generation *g, lua_State *L)
{
    g->refs_lua++;
    return luaL_ref(L, LUA_REGISTRYINDEX);
}

void generation_unref(struct generation *g, int ref)
{
    g->refs_lua--;
    luaL_unref(g->L, LUA_REGISTRYINDEX, ref);
}

/* --- the Lua state --- */

/* Puts the embedded files into package.preload as "tollgate.NAME". */
static int preload(lua_State *L)
{
    lua_getglobal(L, "package");
    lua_getfield(L, -1, "preload");
    for (const struct lua_source *s = lua_sources; s->name != NULL; s++) {
        char chunk[96], module[96];
        snprintf(chunk, sizeof chunk, "@host/lua/%s.lua", s->name);
        snprintf(module, sizeof module, "tollgate.%s", s->name);
        if (luaL_loadbuffer(L, s->text, s->n, chunk) != 0)
            return lua_error(L);
        lua_setfield(L, -2, module);
    }
    lua_getfield(L, -1, "tollgate.runtime");
    lua_getfield(L, LUA_REGISTRYINDEX, "tollgate.wait");
    lua_call(L, 1, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, "tollgate.runtime");
    return 0;
}

static int traceback(lua_State *L)
{
    const char *message = lua_tostring(L, 1);
    luaL_traceback(L, L, message != NULL ? message : luaL_typename(L, 1), 1);
    return 1;
}

/* Calls a function of the runtime that is on the stack below its arguments; false with a fault
 * where it raises. */
static bool call(struct generation *g, int nargs, int nresults, struct buf *faults)
{
    lua_State *L = g->L;
    int base = lua_gettop(L) - nargs;
    lua_pushcfunction(L, traceback);
    lua_insert(L, base);
    uint64_t before = task_pool_mark(&g->tasks, zone_mark(g->number, ZONE_NO_ROUTE, 0, MARK_LOAD));
    int status = lua_pcall(L, nargs, nresults, base);
    task_pool_mark(&g->tasks, before);
    lua_remove(L, base);
    if (status == 0)
        return true;
    buf_printf(faults, "%s\n", lua_tostring(L, -1));
    lua_pop(L, 1);
    return false;
}

static void push_runtime(lua_State *L, const char *name)
{
    lua_getfield(L, LUA_REGISTRYINDEX, "tollgate.runtime");
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
}

static bool open_state(struct generation *g, struct buf *faults)
{
    g->L = luaL_newstate();
    if (g->L == NULL) {
        buf_add_text(faults, "no memory for a Lua state\n");
        return false;
    }
    luaL_openlibs(g->L);
    task_pool_init(&g->tasks, g->L);
    g->tasks.watch = &g->sv->watch;
    api_open(g);
    lua_pushcfunction(g->L, preload);
    return call(g, 0, 0, faults);
}

/* (folder) → the names in it; an empty list where it cannot be read. */
static int list_folder(lua_State *L)
{
    DIR *d = opendir(luaL_checkstring(L, 1));
    int n = 0;
    lua_newtable(L);
    if (d == NULL)
        return 1;
    for (struct dirent *e = readdir(d); e != NULL; e = readdir(d)) {
        lua_pushstring(L, e->d_name);
        lua_rawseti(L, -2, ++n);
    }
    closedir(d);
    return 1;
}

/* (path) → the same without links, or nil. */
static int real_path(lua_State *L)
{
    char absolute[PATH_MAX];
    lua_pushstring(L, realpath(luaL_checkstring(L, 1), absolute));
    return 1;
}

/* (path) → the file's text, or nil and why. */
static int read_text(lua_State *L)
{
    const char *path = luaL_checkstring(L, 1);
    struct slice text;
    int err = snapshot_file(api_generation(L)->snapshot, path, &text);
    if (err == 0) {
        lua_pushlstring(L, text.p != NULL ? text.p : "", text.n);
        return 1;
    }
    lua_pushnil(L);
    lua_pushfstring(L, "%s: %s", path, strerror(-err));
    return 2;
}

/* (path) → the routing policy: the one that is to be tried, else what the file says; nil where
 * there is none. */
static int read_policy(lua_State *L)
{
    struct generation *g = api_generation(L);
    if (g->sv->policy.p != NULL)
        snapshot_put_file(g->snapshot, luaL_checkstring(L, 1), g->sv->policy);
    return read_text(L);
}

/* (name) → an environment value or nil. */
static int read_env(lua_State *L)
{
    struct slice v = snapshot_env(api_generation(L)->snapshot, luaL_checkstring(L, 1));
    if (v.p == NULL)
        return 0;
    lua_pushlstring(L, v.p, v.n);
    return 1;
}

/* (user) → nil, or why we cannot become it. */
static int become(lua_State *L)
{
    struct generation *g = api_generation(L);
    char why[512];
    if (g->sv->become == NULL ||
        g->sv->become(luaL_checkstring(L, 1), g->snapshot, why, sizeof why) == 0)
        return 0;
    lua_pushstring(L, why);
    return 1;
}

/* Leaves the resolved configuration in the registry. */
static bool load(struct generation *g, const char *path, struct buf *faults)
{
    lua_State *L = g->L;
    char home[PATH_MAX], plugins[PATH_MAX + 16];
    snprintf(plugins, sizeof plugins, "%s/plugins", paths_home(home, sizeof home));
    push_runtime(L, "load");
    lua_pushstring(L, path);
    lua_pushstring(L, plugins);
    lua_createtable(L, 0, 7);
    lua_pushcfunction(L, read_text);
    lua_setfield(L, -2, "read");
    lua_pushcfunction(L, read_policy);
    lua_setfield(L, -2, "policy");
    lua_pushcfunction(L, read_env);
    lua_setfield(L, -2, "env");
    lua_pushcfunction(L, list_folder);
    lua_setfield(L, -2, "list");
    lua_pushcfunction(L, real_path);
    lua_setfield(L, -2, "real");
    lua_pushcfunction(L, become);
    lua_setfield(L, -2, "become");
    if (!call(g, 3, 2, faults))
        return false;
    if (lua_isnil(L, -2)) {
        buf_printf(faults, "%s\n", lua_tostring(L, -1));
        lua_pop(L, 2);
        return false;
    }
    lua_pop(L, 1);
    lua_setfield(L, LUA_REGISTRYINDEX, "tollgate.config");
    return true;
}

static void generation_free(struct generation *g)
{
    for (uint32_t i = 0; i < g->nroutes; i++)
        generation_read_undo(g, &g->routes[i]);
    generation_undo_listen(g);
    if (g->table != NULL)
        routes_free(g->table);
    if (g->L != NULL) {
        api_redis_scripts_stop(g);
        api_timers_end(g);
        task_pool_deinit(&g->tasks);
        if (g->tasks.alive != 0 || g->refs_lua != 0)
            log_error("leak: a generation ends with %u tasks and %d Lua references", g->tasks.alive,
                      g->refs_lua);
        g->sv->leaks += g->tasks.alive + (uint32_t)g->refs_lua;
        lua_close(g->L);
    }
    *g->link = g->next;
    if (g->next != NULL)
        g->next->link = g->link;
    g->sv->ngenerations--;
    tls_context_unref(g->settings.redis_tls.context);
    arena_deinit(&g->arena);
    buf_deinit(&g->warnings);
    snapshot_free(g->snapshot);
    mem_free(g);
}

static struct generation *generation_new(struct services *sv, struct snapshot *from,
                                         uint64_t number)
{
    struct generation *g = mem_zalloc(sizeof *g);
    g->sv = sv;
    g->refs = 1;
    g->number = number;
    g->snapshot = from;
    arena_init(&g->arena);
    buf_init(&g->warnings);
    g->next = sv->generations;
    g->link = &sv->generations;
    if (g->next != NULL)
        g->next->link = &g->next;
    sv->generations = g;
    sv->ngenerations++;
    return g;
}

struct generation *generation_load(struct services *sv, const char *path, bool check_only,
                                   struct buf *faults)
{
    return generation_load_from(sv, path, snapshot_new(), 1, check_only, faults);
}

struct generation *generation_load_from(struct services *sv, const char *path,
                                        struct snapshot *from, uint64_t number, bool check_only,
                                        struct buf *faults)
{
    struct generation *g = generation_new(sv, from, number);
    if (open_state(g, faults) && load(g, path, faults) &&
        generation_read(g, check_only, faults) == 0) {
        for (const struct quarantine *q = sv->quarantine; q != NULL; q = q->next)
            generation_quarantine(g, q);
        return g;
    }
    generation_free(g);
    return NULL;
}

struct generation *generation_bare(struct services *sv, struct buf *faults)
{
    struct generation *g = generation_new(sv, NULL, 1);
    g->settings.parse = (struct parse_limits){ .head = 16384, .url = 8192, .fields = 100 };
    if (open_state(g, faults)) {
        api_open_process(g->L);
        return g;
    }
    generation_free(g);
    return NULL;
}

void generation_push_module(struct generation *g, lua_State *L, const char *name)
{
    (void)g;
    lua_getglobal(L, "require");
    lua_pushstring(L, name);
    lua_call(L, 1, 1);
}

void generation_print(struct generation *g, struct buf *out)
{
    push_runtime(g->L, "print");
    lua_getfield(g->L, LUA_REGISTRYINDEX, "tollgate.config");
    if (call(g, 1, 1, out)) {
        buf_add_text(out, lua_tostring(g->L, -1));
        lua_pop(g->L, 1);
    }
}

/* --- holders --- */

void generation_hold(struct generation *g)
{
    g->refs++;
}

void generation_release(struct generation *g)
{
    if (g->refs == 1)
        generation_stop(g); /* which may leave a timer behind that holds it */
    if (--g->refs == 0)
        generation_free(g);
}
