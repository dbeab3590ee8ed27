/* tg.llm: metering for plugins. The body is read and scanned in C and never becomes a Lua string.
 */
#include <string.h>

#include "api.h"
#include "mem.h"

static const char OPTIONS[] = "tollgate.llm.options";

struct options {
    struct llm_options llm;
    enum meter_policy on_missing_usage;
    uint64_t read_on_ms, read_on_bytes; /* where a client left; 0: not read on */
};

static double number_field(lua_State *L, const char *name, double fallback)
{
    lua_getfield(L, 1, name);
    double v = lua_isnil(L, -1) ? fallback : luaL_checknumber(L, -1);
    lua_pop(L, 1);
    if (!(v >= 0 && v < 9007199254740992.0))
        luaL_error(L, "tg.llm.options: %s is out of range", name);
    return v;
}

/* tg.llm.options{ bytes_per_token, default_output, image_tokens, file_tokens, hidden_tokens
 * (tokens), cap_output (boolean), on_missing_usage = "seen" | "reserved", drain_ms, drain_bytes
 * (how far an answer is read on for its usage when the client has left; 0: not at all) } → options
 * for tg.llm.meter. */
static int llm_options_(lua_State *L)
{
    struct options o;
    luaL_checktype(L, 1, LUA_TTABLE);
    o.llm.bytes_per_token = number_field(L, "bytes_per_token", 3);
    o.llm.default_output = (uint64_t)number_field(L, "default_output", 4096);
    o.llm.image_tokens = (uint64_t)number_field(L, "image_tokens", 1500);
    o.llm.file_tokens = (uint64_t)number_field(L, "file_tokens", 5000);
    o.llm.hidden_tokens = (uint64_t)number_field(L, "hidden_tokens", 4096);
    lua_getfield(L, 1, "cap_output");
    o.llm.cap_output = lua_isnil(L, -1) || lua_toboolean(L, -1);
    lua_getfield(L, 1, "on_missing_usage");
    const char *policy = luaL_optstring(L, -1, "seen");
    if (!meter_policy_of_name(slice_of(policy), &o.on_missing_usage))
        return luaL_error(L, "tg.llm.options: on_missing_usage must be \"seen\" or \"reserved\"");
    o.read_on_ms = (uint64_t)number_field(L, "drain_ms", 0);
    o.read_on_bytes = (uint64_t)number_field(L, "drain_bytes", 0);
    if (o.llm.bytes_per_token <= 0)
        return luaL_error(L, "tg.llm.options: bytes_per_token must be greater than 0");
    *(struct options *)lua_newuserdata(L, sizeof o) = o;
    luaL_getmetatable(L, OPTIONS);
    lua_setmetatable(L, -2);
    return 1;
}

static int push_fault(lua_State *L, int status, const char *code, const char *message,
                      const char *param)
{
    lua_pushnil(L);
    lua_pushinteger(L, status);
    lua_pushstring(L, code);
    lua_pushstring(L, message);
    lua_pushstring(L, param);
    return 5;
}

/* The body is there: scans it, edits it and pushes what tg.llm.meter returns. */
static int inspect(lua_State *L, struct exchange *x, const struct options *o)
{
    struct buf edited;
    struct slice body = { x->body.p != NULL ? x->body.p : "", x->body.n };
    mem_free(x->llm);
    x->llm = mem_zalloc(sizeof *x->llm);
    switch (llm_inspect(x->route->api, body, &o->llm, x->llm)) {
    case LLM_FAULT:
        return push_fault(L, 400, x->llm->fault.code, x->llm->fault.message, x->llm->fault.param);
    case LLM_UNSUPPORTED: lua_pushinteger(L, 0); return 1;
    default: break;
    }
    x->llm->model = x->llm->model.p != NULL ? arena_dup(&x->arena, x->llm->model) : x->llm->model;
    buf_init(&edited);
    if (llm_rewrite(body, x->llm, &edited)) {
        buf_deinit(&x->body);
        x->body = edited;
        exchange_budget_note(x);
    } else {
        buf_deinit(&edited);
    }
    x->metered = true;
    if (o->read_on_ms > x->read_on_ms)
        x->read_on_ms = o->read_on_ms;
    if (o->read_on_ms > 0 && o->read_on_bytes > x->read_on_bytes)
        x->read_on_bytes = o->read_on_bytes;
    x->meter = meter_of(x->llm, o->llm.bytes_per_token, o->on_missing_usage);
    if (!x->llm->output_given || x->llm->hidden)
        x->sv->counters->not_estimated++;
    lua_pushnumber(L, (lua_Number)x->llm->reserve);
    return 1;
}

/* tg.llm.want_usage(ctx) → whether the client itself asked for usage in its stream; nil where the
 * body cannot be read. The gateway then asks for it anyway and takes it out again, as tg.llm.meter
 * does; a request that is not metered yet is from then on, without limits. Access phase, once the
 * body has been read. */
static int llm_want_usage(lua_State *L)
{
    static const struct options plain = {
        .llm = { .bytes_per_token = 3,
                 .default_output = 4096,
                 .image_tokens = 1500,
                 .file_tokens = 5000,
                 .hidden_tokens = 4096 },
    };
    struct exchange *x = api_exchange(L, 1);
    if (x->stage != STAGE_ACCESS || !x->whole || !x->body_done)
        return luaL_error(
            L, "tg.llm.want_usage belongs to the access phase, once the body has been read");
    if (!x->metered) {
        inspect(L, x, &plain);
        if (!x->metered) {
            lua_settop(L, 0);
            lua_pushnil(L);
            return 1;
        }
    }
    lua_pushboolean(L, x->llm->include_usage == LLM_TRUE);
    return 1;
}

/* tg.llm.taken_usage(ctx) → string: the event with usage that only the gateway had asked for, as
 * the origin sent it; "" where there is none. finish and log phase. */
static int llm_taken_usage(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    if (x->stage < STAGE_TAIL)
        return luaL_error(L, "tg.llm.taken_usage belongs to the finish and log phase");
    struct slice taken = x->reader != NULL ? llm_reader_taken(x->reader) : (struct slice){ "", 0 };
    lua_pushlstring(L, taken.p, taken.n);
    return 1;
}

struct whole {
    struct exchange *x;
    const struct options *o; /* an argument of the waiting call, so it is not collected */
};

static void on_whole(void *arg)
{
    struct whole w = *(struct whole *)arg;
    mem_free(arg);
    task_resume(w.x->task, inspect(task_lua(w.x->task), w.x, w.o));
}

static void on_cancel(void *arg)
{
    struct whole *w = arg;
    exchange_unwant_whole(w->x);
    mem_free(w);
}

/* tg.llm.meter(ctx, options) → tokens to reserve; or nil, status, code, message, param of an error
 * to answer. Waits for the request's body, reads what it may cost, and makes the edits that bound
 * and report it (a maximum of output, usage in streams). 0 for a route whose API is not metered,
 * and for a request without a body that is no POST. */
static int llm_meter(lua_State *L)
{
    struct exchange *x = api_exchange(L, 1);
    struct options *o = luaL_checkudata(L, 2, OPTIONS);
    if (x->stage != STAGE_ACCESS)
        return luaL_error(L, "tg.llm.meter belongs to the access phase");
    if (x->metered)
        return luaL_error(L, "this request is metered already");
    struct slice coding = headers_get_id(&x->req.headers, HEADER_CONTENT_ENCODING);
    if (coding.p != NULL && !slice_ieq(coding, SLICE("identity")))
        return push_fault(
            L, 415, "unsupported_content_encoding",
            "A request body on this route must not be content-encoded: its cost could not be read.",
            NULL);
    if (x->req.framing == FRAMING_NONE && !slice_eq(x->req.method, SLICE("POST"))) {
        lua_pushinteger(L, 0); /* it asks for nothing that costs tokens */
        return 1;
    }
    if (x->body_done && exchange_want_whole(x, NULL, NULL))
        return inspect(L, x, o);
    struct task *task = task_check(L, "tg.llm.meter");
    if (task != x->task)
        return luaL_error(L, "tg.llm.meter must be called in the request's own phase");
    struct whole *w = mem_alloc(sizeof *w);
    *w = (struct whole){ x, o };
    exchange_want_whole(x, on_whole, w);
    return task_wait(L, task, on_cancel, w);
}

void api_open_llm(lua_State *L)
{
    luaL_newmetatable(L, OPTIONS);
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_pop(L, 1);
    lua_createtable(L, 0, 4);
    lua_pushcfunction(L, llm_want_usage);
    lua_setfield(L, -2, "want_usage");
    lua_pushcfunction(L, llm_taken_usage);
    lua_setfield(L, -2, "taken_usage");
    lua_pushcfunction(L, llm_options_);
    lua_setfield(L, -2, "options");
    lua_pushcfunction(L, llm_meter);
    lua_setfield(L, -2, "meter");
    lua_setfield(L, -2, "llm");
}
