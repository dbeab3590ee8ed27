/* ctx: one plain table per request, made when the first plugin needs it. Its request and response
 * are small objects over the exchange's own headers, made when asked for. ctx[0] is a handle that
 * is emptied when the request is over, so a plugin that keeps ctx gets an error and not freed
 * memory. */
#include <string.h>

#include "api_ctx.h"

struct handle {
    struct exchange *x;
};

static const char CTX[] = "tollgate.ctx";

struct exchange *api_exchange(lua_State *L, int idx)
{
    struct handle *h = NULL;
    if (lua_istable(L, idx)) {
        lua_rawgeti(L, idx, 0);
        h = lua_touserdata(L, -1);
        lua_pop(L, 1);
    }
    if (h == NULL)
        luaL_error(
            L,
            "argument #%d must be ctx (or call this with a colon: ctx:name(), ctx.request:name())",
            idx);
    if (h->x == NULL)
        luaL_error(L, "this request has ended: ctx cannot be used any more");
    return h->x;
}

/* An object that shares ctx's handle: the table at ctx_idx has it at 0. */
void api_ctx_push_part(lua_State *L, int ctx_idx, const char *metatable)
{
    lua_createtable(L, 1, 1);
    lua_rawgeti(L, ctx_idx, 0);
    lua_rawseti(L, -2, 0);
    luaL_getmetatable(L, metatable);
    lua_setmetatable(L, -2);
}

/* Keeps the value on top in the object at 1, so that it is made once; it stays on the stack. */
void api_ctx_keep_field(lua_State *L, const char *name)
{
    lua_pushstring(L, name);
    lua_pushvalue(L, -2);
    lua_rawset(L, 1);
}

void api_ctx_push(lua_State *L, struct exchange *x)
{
    if (x->ctx_ref != LUA_NOREF) {
        lua_rawgeti(L, LUA_REGISTRYINDEX, x->ctx_ref);
        return;
    }
    lua_createtable(L, 1, 6);
    struct handle *h = lua_newuserdata(L, sizeof *h);
    h->x = x;
    lua_rawseti(L, -2, 0);
    lua_pushstring(L, x->id);
    lua_setfield(L, -2, "id");
    lua_rawgeti(L, LUA_REGISTRYINDEX, x->route->lua_ref);
    lua_setfield(L, -2, "route");
    luaL_getmetatable(L, CTX);
    lua_setmetatable(L, -2);
    lua_pushvalue(L, -1);
    x->ctx_ref = generation_ref(x->gen, L);
}

void api_ctx_release(struct exchange *x)
{
    lua_State *L = x->gen->L;
    if (x->ctx_ref == LUA_NOREF)
        return;
    lua_rawgeti(L, LUA_REGISTRYINDEX, x->ctx_ref);
    lua_rawgeti(L, -1, 0);
    ((struct handle *)lua_touserdata(L, -1))->x = NULL;
    lua_pop(L, 2);
    generation_unref(x->gen, x->ctx_ref);
    x->ctx_ref = LUA_NOREF;
}

/* Whatever the table holds keeps the text: it is not copied. */
static struct slice text_field(lua_State *L, const char *name)
{
    struct slice out = { NULL, 0 };
    lua_pushstring(L, name);
    lua_rawget(L, -2);
    if (lua_type(L, -1) == LUA_TSTRING)
        out.p = lua_tolstring(L, -1, &out.n);
    lua_pop(L, 1);
    return out;
}

struct api_consumer api_consumer(struct exchange *x)
{
    struct api_consumer out = { { NULL, 0 }, { NULL, 0 } };
    if (x->ctx_ref == LUA_NOREF)
        return out;
    lua_State *L = x->gen->L;
    int top = lua_gettop(L);
    lua_rawgeti(L, LUA_REGISTRYINDEX, x->ctx_ref);
    lua_pushliteral(L, "consumer");
    lua_rawget(L, -2);
    if (lua_istable(L, -1)) {
        out.id = text_field(L, "id");
        out.tenant = text_field(L, "tenant");
    }
    lua_settop(L, top);
    return out;
}
/* --- ctx --- */

void api_ctx_push_slice(lua_State *L, struct slice s)
{
    if (s.p == NULL)
        lua_pushnil(L);
    else
        lua_pushlstring(L, s.p, s.n);
}

static void set_text(lua_State *L, const char *name, const char *text)
{
    lua_pushstring(L, text);
    lua_setfield(L, -2, name);
}

static void push_certificate(lua_State *L, const struct tls_peer_certificate *c)
{
    lua_createtable(L, 0, 5);
    set_text(L, "subject", c->subject);
    set_text(L, "issuer", c->issuer);
    set_text(L, "serial", c->serial);
    set_text(L, "fingerprint", c->fingerprint);
    lua_createtable(L, (int)c->nnames, 0);
    for (uint32_t i = 0; i < c->nnames; i++) {
        lua_pushstring(L, c->names[i]);
        lua_rawseti(L, -2, (int)i + 1);
    }
    lua_setfield(L, -2, "names");
}

static void push_client(lua_State *L, const struct exchange *x)
{
    const struct tls_peer *tls = x->client.tls;
    lua_createtable(L, 0, 4);
    if (tls != NULL && tls->certificate != NULL) {
        push_certificate(L, tls->certificate);
        lua_setfield(L, -2, "certificate");
    }
    lua_pushstring(L, x->address);
    lua_setfield(L, -2, "address");
    lua_pushinteger(L, x->port);
    lua_setfield(L, -2, "port");
    lua_pushstring(L, x->client.address);
    lua_setfield(L, -2, "peer");
}

static void push_trace(lua_State *L, const struct trace *t)
{
    if (t->id[0] == '\0') {
        lua_pushnil(L);
        return;
    }
    lua_createtable(L, 0, 5);
    set_text(L, "trace_id", t->id);
    set_text(L, "span_id", t->span);
    if (t->parent[0] != '\0')
        set_text(L, "parent_id", t->parent);
    lua_pushboolean(L, t->sampled);
    lua_setfield(L, -2, "sampled");
    api_ctx_push_slice(L, t->state);
    lua_setfield(L, -2, "state");
}

static void push_usage(lua_State *L, struct exchange *x)
{
    const struct llm_usage *u = x->reader != NULL ? llm_reader_usage(x->reader) : NULL;
    if (u == NULL || !u->known) {
        lua_pushnil(L);
        return;
    }
    lua_createtable(L, 0, 3);
    lua_pushnumber(L, (lua_Number)u->input);
    lua_setfield(L, -2, "input");
    lua_pushnumber(L, (lua_Number)u->output);
    lua_setfield(L, -2, "output");
    lua_pushnumber(L, (lua_Number)u->total);
    lua_setfield(L, -2, "total");
}

/* The one of the current attempt, else of the last; before there was any, the only one there is. */
static void push_target(lua_State *L, const struct exchange *x)
{
    const struct target_set *only = x->route->nmodels == 0 ? x->route->targets : NULL;
    const struct target *t = x->target;
    if (t == NULL && only != NULL && only->n == 1)
        t = &only->v[0];
    if (t == NULL)
        lua_pushnil(L);
    else
        lua_rawgeti(L, LUA_REGISTRYINDEX, t->lua_ref);
}

/* ctx:refusal(status, code, message, headers, param) → status, body, headers: an error in the shape
 * of the route's API, to be returned by access. code, headers and param (the request's member at
 * fault) may be nil. */
static int ctx_refusal(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    int status = (int)luaL_checkinteger(L, 2);
    const char *code = luaL_optstring(L, 3, NULL), *message = luaL_checkstring(L, 4);
    enum llm_api api = x->route->api;
    lua_settop(L, 6);
    struct llm_error e = { .status = status,
                           .code = code,
                           .message = slice_of(message),
                           .param = luaL_optstring(L, 6, NULL),
                           .request_id = slice_of(x->id) };
    struct buf body;
    buf_init(&body);
    llm_error_body(api, &e, &body);
    lua_pushinteger(L, status);
    lua_pushlstring(L, body.p, body.n);
    buf_deinit(&body);
    if (lua_isnil(L, 5))
        lua_createtable(L, 0, 1);
    else
        lua_pushvalue(L, 5);
    lua_pushliteral(L, "application/json");
    lua_setfield(L, -2, "content-type");
    if (x->refusal == NULL)
        x->refusal = arena_dup(&x->arena, slice_of(code != NULL ? code : "refused")).p;
    return 3;
}

static int ctx_index(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    const char *key = lua_type(L, 2) == LUA_TSTRING ? lua_tostring(L, 2) : "";
    bool keep = true; /* parts are made once */
    if (strcmp(key, "request") == 0) {
        api_ctx_push_part(L, 1, API_REQUEST);
    } else if (strcmp(key, "response") == 0 && x->stage >= STAGE_RESPONSE &&
               (x->res.status >= 200 || exchange_switches(x))) {
        api_ctx_push_part(L, 1, API_RESPONSE);
    } else if (strcmp(key, "client") == 0) {
        push_client(L, x);
    } else if (strcmp(key, "trace") == 0) {
        push_trace(L, &x->trace);
    } else if (strcmp(key, "started") == 0) {
        lua_pushnumber(L, (lua_Number)x->begun_wall / 1000);
    } else if (strcmp(key, "refusal") == 0) {
        lua_pushcfunction(L, ctx_refusal);
    } else if (!api_ctx_push_record(L, key)) {
        keep = false;
        if (strcmp(key, "target") == 0)
            push_target(L, x);
        else if (strcmp(key, "model") == 0)
            api_ctx_push_slice(L, exchange_model(x));
        else if (strcmp(key, "upgrade") == 0)
            api_ctx_push_slice(L, x->upgrade);
        else if (strcmp(key, "reached_origin") == 0)
            lua_pushboolean(L, x->reached_origin);
        else if (strcmp(key, "ended") == 0 && x->stage >= STAGE_TAIL)
            lua_pushstring(L, exchange_ended_name(x->ended));
        else if (strcmp(key, "usage") == 0 && x->stage >= STAGE_TAIL)
            push_usage(L, x);
        else if (strcmp(key, "seconds") == 0 && x->stage >= STAGE_TAIL)
            lua_pushnumber(L, (lua_Number)(x->ended_at - x->begun) / 1000);
        else
            lua_pushnil(L);
    }
    if (keep && !lua_isnil(L, -1))
        api_ctx_keep_field(L, key);
    return 1;
}

/* Pushes the json part of the request or response at 1: made by host/lua/body.lua over the native
 * functions. */
int api_ctx_push_json(lua_State *L, bool response)
{
    lua_getfield(L, LUA_REGISTRYINDEX, "tollgate.json_part");
    if (lua_isnil(L, -1)) {
        lua_pop(L, 1);
        lua_getglobal(L, "require");
        lua_pushliteral(L, "tollgate.body");
        lua_call(L, 1, 1);
        lua_getfield(L, LUA_REGISTRYINDEX, "tollgate.body");
        lua_call(L, 1, 1);
        lua_pushvalue(L, -1);
        lua_setfield(L, LUA_REGISTRYINDEX, "tollgate.json_part");
    }
    lua_pushvalue(L, 1);
    lua_pushboolean(L, response);
    lua_call(L, 2, 1);
    api_ctx_keep_field(L, "json");
    return 1;
}

/* --- what request and response share --- */

/* Iterator state: (headers owner, position). */
static int each_next(lua_State *L)
{
    struct exchange *x = api_exchange(L, lua_upvalueindex(1));
    const struct headers *h =
        lua_toboolean(L, lua_upvalueindex(3)) ? &x->res.headers : &x->req.headers;
    uint32_t i = (uint32_t)lua_tointeger(L, lua_upvalueindex(2));
    if (i >= h->n)
        return 0;
    lua_pushinteger(L, (lua_Integer)i + 1);
    lua_replace(L, lua_upvalueindex(2));
    api_ctx_push_slice(L, h->v[i].name);
    api_ctx_push_slice(L, h->v[i].value);
    return 2;
}

int api_ctx_push_each(lua_State *L, bool response)
{
    api_exchange(L, 1);
    lua_pushvalue(L, 1);
    lua_pushinteger(L, 0);
    lua_pushboolean(L, response);
    lua_pushcclosure(L, each_next, 3);
    return 1;
}

/* --- registration --- */

void api_ctx_metatable(lua_State *L, const char *name, lua_CFunction index, lua_CFunction newindex)
{
    luaL_newmetatable(L, name);
    lua_pushcfunction(L, index);
    lua_setfield(L, -2, "__index");
    if (newindex != NULL) {
        lua_pushcfunction(L, newindex);
        lua_setfield(L, -2, "__newindex");
    }
    lua_pushstring(L, name);
    lua_setfield(L, -2, "__metatable"); /* hides it */
    lua_pop(L, 1);
}

void api_open_ctx(lua_State *L)
{
    api_ctx_metatable(L, CTX, ctx_index, NULL);
    api_ctx_open_request(L);
    api_ctx_open_response(L);
}
