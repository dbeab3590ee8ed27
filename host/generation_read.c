/* See generation_read.h. The table has been validated by host/lua/config.lua: types are as they
 * should be, defaults are filled in, durations are in milliseconds and sizes in bytes. Text is
 * copied into the generation's arena. */
#include "generation_read.h"

#include <lauxlib.h>
#include <string.h>

#include "zone.h"

/* --- fields of the table on top of the stack --- */

static const char *text_at(struct generation *g, int idx)
{
    size_t n;
    const char *s = lua_tolstring(g->L, idx, &n);
    return s == NULL ? NULL : arena_dup(&g->arena, (struct slice){ s, n }).p;
}

const char *generation_get_text(struct generation *g, const char *name)
{
    lua_getfield(g->L, -1, name);
    const char *s = lua_isstring(g->L, -1) ? text_at(g, -1) : NULL;
    lua_pop(g->L, 1);
    return s;
}

uint64_t generation_get_number(struct generation *g, const char *name)
{
    lua_getfield(g->L, -1, name);
    uint64_t n = (uint64_t)lua_tonumber(g->L, -1);
    lua_pop(g->L, 1);
    return n;
}

bool generation_get_bool(struct generation *g, const char *name)
{
    lua_getfield(g->L, -1, name);
    bool b = lua_toboolean(g->L, -1);
    lua_pop(g->L, 1);
    return b;
}

uint32_t generation_enter(struct generation *g, const char *name)
{
    lua_getfield(g->L, -1, name);
    return lua_istable(g->L, -1) ? (uint32_t)lua_objlen(g->L, -1) : 0;
}

void generation_leave(struct generation *g)
{
    lua_pop(g->L, 1);
}

const char **generation_get_texts(struct generation *g, const char *name, uint32_t *n)
{
    *n = generation_enter(g, name);
    const char **v = arena_alloc(&g->arena, (*n + 1) * sizeof *v);
    for (uint32_t i = 0; i < *n; i++) {
        lua_rawgeti(g->L, -1, (int)i + 1);
        v[i] = text_at(g, -1);
        lua_pop(g->L, 1);
    }
    generation_leave(g);
    return v;
}

struct header *generation_get_headers(struct generation *g, const char *name, uint32_t *n)
{
    *n = generation_enter(g, name);
    struct header *v = arena_zalloc(&g->arena, (*n + 1) * sizeof *v);
    for (uint32_t i = 0; i < *n; i++) {
        lua_rawgeti(g->L, -1, (int)i + 1);
        v[i].name = slice_of(generation_get_text(g, "name"));
        v[i].id = header_id(v[i].name);
        const char *value = generation_get_text(g, "value");
        if (value != NULL)
            v[i].value = slice_of(value);
        lua_pop(g->L, 1);
    }
    generation_leave(g);
    return v;
}

/* --- settings --- */

static int read_redis(struct generation *g, struct settings *s, struct buf *faults)
{
    s->redis_eviction_refuse = true;
    if (!generation_get_bool(g, "redis"))
        return 0;
    generation_enter(g, "redis");
    s->redis_url = generation_get_text(g, "url");
    s->redis_timeout = generation_get_number(g, "timeout");
    s->redis_connect_timeout = generation_get_number(g, "connect_timeout");
    s->redis_hash_tags = generation_get_bool(g, "hash_tags");
    const char *eviction = generation_get_text(g, "eviction");
    s->redis_eviction_refuse = eviction == NULL || strcmp(eviction, "refuse") == 0;
    int err = generation_read_tls(g, false, &s->redis_tls, faults);
    generation_leave(g);
    return err;
}

static void read_limits(struct generation *g, struct settings *s)
{
    generation_enter(g, "timeouts");
    s->timeouts.head = generation_get_number(g, "head");
    s->timeouts.body = generation_get_number(g, "body");
    s->timeouts.keepalive = generation_get_number(g, "keepalive");
    s->timeouts.write = generation_get_number(g, "write");
    s->timeouts.drain = generation_get_number(g, "drain");
    s->timeouts.handshake = generation_get_number(g, "handshake");
    s->timeouts.ticket_keys = generation_get_number(g, "ticket_keys");
    generation_leave(g);
    generation_enter(g, "limits");
    s->parse.head = generation_get_number(g, "head");
    s->parse.url = generation_get_number(g, "url");
    s->parse.fields = (uint32_t)generation_get_number(g, "fields");
    s->connections = (uint32_t)generation_get_number(g, "connections");
    s->connections_per_address = (uint32_t)generation_get_number(g, "connections_per_address");
    s->buffered = generation_get_number(g, "buffered");
    s->pipelined = generation_get_number(g, "pipelined");
    s->body_rate = generation_get_number(g, "body_rate");
    generation_leave(g);
    generation_enter(g, "upstream");
    s->upstream.idle = (uint32_t)generation_get_number(g, "keepalive");
    s->upstream.idle_ms = generation_get_number(g, "keepalive_timeout");
    s->upstream.connections = (uint32_t)generation_get_number(g, "connections");
    generation_leave(g);
}

static void read_supervision(struct generation *g, struct settings *s)
{
    s->workers = (uint32_t)generation_get_number(g, "workers");
    s->watchdog = generation_get_number(g, "watchdog");
    generation_enter(g, "quarantine");
    s->quarantine_after = (uint32_t)generation_get_number(g, "after");
    s->quarantine_policy = generation_get_text(g, "policy");
    generation_leave(g);
    generation_enter(g, "reload");
    s->reload_watch = generation_get_bool(g, "watch");
    s->reload_drain = generation_get_number(g, "drain");
    s->reload_check = generation_get_number(g, "check");
    s->reload_memory = generation_get_number(g, "memory");
    generation_leave(g);
}

/* Via as origins and clients get it (RFC 9110, section 7.6.3), of requests and answers in either
 * version. */
static void read_via(struct generation *g, struct settings *s)
{
    const char *name = generation_get_text(g, "via");
    for (int minor = 0; name != NULL && minor < 2; minor++)
        s->via[minor] = arena_printf(&g->arena, "1.%d %s", minor, name);
}

static int read_settings(struct generation *g, struct buf *faults)
{
    struct settings *s = &g->settings;
    read_supervision(g, s);
    int err = generation_read_listen(g, faults);
    err |= read_redis(g, s, faults);
    read_limits(g, s);
    generation_read_network(g);
    s->data_dir = generation_get_text(g, "data_dir");
    s->run_dir = generation_get_text(g, "run_dir");
    s->user = generation_get_text(g, "user");
    s->core_dumps = generation_get_bool(g, "core_dumps");
    read_via(g, s);
    generation_enter(g, "shared");
    s->shared_size = generation_get_number(g, "size");
    generation_leave(g);
    generation_enter(g, "log");
    s->log_level = generation_get_text(g, "level");
    if (generation_read_access(g, s, faults) != 0)
        err = -1;
    generation_leave(g);
    generation_warn_connections(g);
    return err;
}

/* --- routes --- */

static void read_paths(struct generation *g, const struct route *r)
{
    uint32_t n = generation_enter(g, "paths");
    for (uint32_t i = 0; i < n; i++) {
        lua_rawgeti(g->L, -1, (int)i + 1);
        const char *kind = generation_get_text(g, "kind");
        routes_add(g->table, r, slice_of(generation_get_text(g, "path")),
                   strcmp(kind, "prefix") == 0);
        lua_pop(g->L, 1);
    }
    generation_leave(g);
}

/* Adds one plugin's phases; the chain's entry is on top of the stack. */
static void read_hooks(struct generation *g, struct route *r, unsigned place)
{
    static const char *const phases[PHASES] = { "access", "target", "attempt", "response",
                                                "body",   "finish", "log" };
    lua_State *L = g->L;
    struct hook h = { .plugin = generation_get_text(g, "name"),
                      .place = place,
                      .skip_on_error = generation_get_bool(g, "skip_on_error") };
    generation_enter(g, "plugin");
    r->preflight = r->preflight || generation_get_bool(g, "preflight");
    generation_leave(g);
    for (int p = 0; p < PHASES; p++) {
        generation_enter(g, "plugin");
        lua_getfield(L, -1, phases[p]);
        lua_remove(L, -2);
        if (lua_isnil(L, -1)) {
            lua_pop(L, 1);
            continue;
        }
        h.fn = generation_ref(g, L);
        lua_getfield(L, -1, "conf");
        h.conf = generation_ref(g, L);
        h.mark = zone_mark(g->number, r->order, place, (unsigned)p);
        h.figures = figures_hook(g->sv->figures, h.plugin, phases[p]);
        r->hooks[p].v[r->hooks[p].n++] = h;
    }
}

static void read_chain(struct generation *g, struct route *r)
{
    uint32_t n = generation_enter(g, "chain");
    for (int p = 0; p < PHASES; p++)
        r->hooks[p].v = arena_alloc(&g->arena, (n + 1) * sizeof(struct hook));
    for (uint32_t i = 0; i < n; i++) {
        lua_rawgeti(g->L, -1, (int)i + 1);
        read_hooks(g, r, i);
        lua_pop(g->L, 1);
    }
    generation_leave(g);
}

static int refuse_change(lua_State *L)
{
    return luaL_error(L, "ctx.route cannot be changed");
}

/* ctx.route: name and api. All requests share it, so it is an empty table before the one that has
 * them. */
static void make_lua_route(struct generation *g, struct route *r, const char *api)
{
    lua_State *L = g->L;
    lua_newtable(L);
    lua_createtable(L, 0, 3);
    lua_createtable(L, 0, 2);
    lua_pushstring(L, r->name);
    lua_setfield(L, -2, "name");
    lua_pushstring(L, api);
    lua_setfield(L, -2, "api");
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, refuse_change);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    r->lua_ref = generation_ref(g, L);
}

static int read_route(struct generation *g, struct route *r, bool check_only, struct buf *faults)
{
    const char *api = generation_get_text(g, "api"),
               *half_close = generation_get_text(g, "half_close");
    r->name = generation_get_text(g, "name");
    r->figures = figures_route(g->sv->figures, r->name);
    llm_api_of_name(slice_of(api), &r->api);
    r->hosts = generation_get_texts(g, "hosts", &r->nhosts);
    for (uint32_t i = 0; i < r->nhosts; i++) {
        if (r->hosts[i][0] == '*')
            r->hosts[i]++; /* "*.x" as ".x" */
    }
    r->methods = generation_get_texts(g, "methods", &r->nmethods);
    r->required = generation_get_headers(g, "headers", &r->nrequired);
    r->strip_prefix = generation_get_bool(g, "strip_prefix");
    r->retry_stale = generation_get_bool(g, "retry_stale");
    r->upgrade_any = generation_get_bool(g, "upgrade_any");
    r->upgrades = generation_get_texts(g, "upgrades", &r->nupgrades);
    r->half_close_answer = half_close != NULL && strcmp(half_close, "answer") == 0;
    generation_enter(g, "timeouts");
    r->body_timeout = generation_get_number(g, "body");
    r->tunnel_timeout = generation_get_number(g, "tunnel");
    generation_leave(g);
    generation_enter(g, "limits");
    r->body_limit = generation_get_number(g, "body");
    r->body_rate = generation_get_number(g, "body_rate");
    generation_leave(g);
    make_lua_route(g, r, api);
    read_chain(g, r);
    read_paths(g, r);
    return generation_read_targets(g, r, check_only, faults);
}

int generation_read(struct generation *g, bool check_only, struct buf *faults)
{
    lua_getfield(g->L, LUA_REGISTRYINDEX, "tollgate.config");
    int err = read_settings(g, faults);
    g->table = routes_new();
    uint32_t n = generation_enter(g, "routes");
    g->routes = arena_zalloc(&g->arena, (n + 1) * sizeof *g->routes);
    for (g->nroutes = 0; g->nroutes < n; g->nroutes++) {
        struct route *r = &g->routes[g->nroutes];
        r->order = g->nroutes;
        lua_rawgeti(g->L, -1, (int)g->nroutes + 1);
        if (read_route(g, r, check_only, faults) != 0)
            err = -1;
        lua_pop(g->L, 1);
    }
    generation_leave(g);
    generation_leave(g);
    return err;
}

void generation_read_undo(struct generation *g, struct route *r)
{
    for (int p = 0; p < PHASES; p++) {
        for (uint32_t i = 0; i < r->hooks[p].n; i++) {
            generation_unref(g, r->hooks[p].v[i].fn);
            generation_unref(g, r->hooks[p].v[i].conf);
        }
    }
    generation_unref(g, r->lua_ref);
    generation_undo_targets(g, r);
}
