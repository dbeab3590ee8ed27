/* See generation.h: a generation's Lua state and its life. Reading the configuration is in generation_read.c. */
#include "generation.h"

#include <dirent.h>
#include <lauxlib.h>
#include <limits.h>
#include <lualib.h>
#include <stdio.h>
#include <string.h>

#include "api.h"
#include "generation_read.h"
#include "log.h"
#include "lua_sources.h"
#include "mem.h"
#include "paths.h"

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

/* Calls a function of the runtime that is on the stack below its arguments; false with a fault where it raises. */
static bool call(struct generation *g, int nargs, int nresults, struct buf *faults)
{
    lua_State *L = g->L;
    int base = lua_gettop(L) - nargs;
    lua_pushcfunction(L, traceback);
    lua_insert(L, base);
    int status = lua_pcall(L, nargs, nresults, base);
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

/* Leaves the resolved configuration in the registry. */
static bool load(struct generation *g, const char *path, struct buf *faults)
{
    lua_State *L = g->L;
    char home[PATH_MAX], plugins[PATH_MAX + 16];
    snprintf(plugins, sizeof plugins, "%s/plugins", paths_home(home, sizeof home));
    push_runtime(L, "load");
    lua_pushstring(L, path);
    lua_pushstring(L, plugins);
    lua_pushcfunction(L, list_folder);
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
    if (g->table != NULL)
        routes_free(g->table);
    if (g->L != NULL) {
        task_pool_deinit(&g->tasks);
        if (g->tasks.alive != 0 || g->refs_lua != 0)
            log_error("leak: a generation ends with %u tasks and %d Lua references", g->tasks.alive, g->refs_lua);
        g->sv->leaks += g->tasks.alive + (uint32_t)g->refs_lua;
        lua_close(g->L);
    }
    arena_deinit(&g->arena);
    mem_free(g);
}

struct generation *generation_load(struct services *sv, const char *path, bool check_only, struct buf *faults)
{
    struct generation *g = mem_zalloc(sizeof *g);
    g->sv = sv;
    g->refs = 1;
    arena_init(&g->arena);
    if (open_state(g, faults) && load(g, path, faults) && generation_read(g, check_only, faults) == 0)
        return g;
    generation_free(g);
    return NULL;
}

struct generation *generation_bare(struct services *sv, struct buf *faults)
{
    struct generation *g = mem_zalloc(sizeof *g);
    g->sv = sv;
    g->refs = 1;
    arena_init(&g->arena);
    g->settings.parse = (struct parse_limits){ .head = 16384, .url = 8192, .fields = 100 };
    if (open_state(g, faults))
        return g;
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

/* --- init and stop --- */

static void on_settled(void *owner, enum task_outcome outcome)
{
    (void)owner, (void)outcome; /* a task that waits is not kept */
}

/* Calls plugin[phase](conf) of the chain entry on top of L's stack. */
static bool call_entry(struct generation *g, const char *phase, const char *where, struct buf *faults)
{
    lua_State *L = g->L;
    bool fine = true;
    lua_getfield(L, -1, "plugin");
    lua_getfield(L, -1, phase);
    lua_remove(L, -2);
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        return true;
    }
    struct task *t = task_new(&g->tasks, on_settled, NULL);
    lua_getfield(L, -2, "conf");
    lua_xmove(L, task_lua(t), 2);
    switch (task_call(t, 1)) {
    case TASK_WAITS:
        fine = false;
        buf_printf(faults, "%s: %s must not wait; start a timer with tg.timer.after(0, fn) instead\n", where, phase);
        break;
    case TASK_ERROR:
        fine = false;
        buf_printf(faults, "%s: %s: %s\n", where, phase, task_error(t));
        break;
    default:
        break;
    }
    task_free(t);
    return fine;
}

static bool each_entry(struct generation *g, const char *phase, struct buf *faults)
{
    lua_State *L = g->L;
    bool fine = true;
    lua_getfield(L, LUA_REGISTRYINDEX, "tollgate.config");
    if (lua_isnil(L, -1)) { /* a bare one */
        lua_pop(L, 1);
        return true;
    }
    lua_getfield(L, -1, "routes");
    int nroutes = (int)lua_objlen(L, -1);
    for (int i = 1; i <= nroutes; i++) {
        lua_rawgeti(L, -1, i);
        lua_getfield(L, -1, "chain");
        int n = (int)lua_objlen(L, -1);
        for (int k = 1; k <= n; k++) {
            lua_rawgeti(L, -1, k);
            lua_getfield(L, -1, "path");
            const char *where = lua_tostring(L, -1); /* stays in the entry */
            lua_pop(L, 1);
            fine = call_entry(g, phase, where, faults) && fine;
            lua_pop(L, 1);
        }
        lua_pop(L, 2);
    }
    lua_pop(L, 2);
    return fine;
}

int generation_start(struct generation *g, struct buf *faults)
{
    return each_entry(g, "init", faults) ? 0 : -1;
}

void generation_stop(struct generation *g)
{
    struct buf faults;
    if (g->stopped)
        return;
    g->stopped = true;
    buf_init(&faults);
    if (!each_entry(g, "stop", &faults)) {
        buf_add(&faults, "", 1);
        log_error("%s", faults.p);
    }
    buf_deinit(&faults);
    api_timers_stop(g);
}

void generation_hold(struct generation *g)
{
    g->refs++;
}

void generation_release(struct generation *g)
{
    if (--g->refs > 0)
        return;
    generation_stop(g);
    generation_free(g);
}
