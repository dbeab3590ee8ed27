/* The option `tls` of tg.http: how https is spoken with the URL's host. Files are read from the
 * generation's snapshot, or once from the disk. */
#include "api_http.h"
#include "tls_client.h"

struct reader {
    lua_State *L;
    struct fetch *f;
    const char *what;
    struct tls_client client;
    struct tls_remote remote;
};

/* A member's name stands below its value, which is on top of the stack. */
static const char *take_text(struct reader *r, const char *name)
{
    if (lua_type(r->L, -1) != LUA_TSTRING)
        luaL_error(r->L, "%s: tls.%s must be a string, not %s", r->what, name,
                   luaL_typename(r->L, -1));
    struct slice text = api_http_copy(r->L, r->f, lua_gettop(r->L));
    if (text.n == 0 || strlen(text.p) != text.n)
        luaL_error(r->L, "%s: tls.%s must not be empty or hold a NUL", r->what, name);
    return text.p;
}

static void take_member(struct reader *r)
{
    lua_State *L = r->L;
    const char *name = lua_type(L, -2) == LUA_TSTRING ? lua_tostring(L, -2) : "";
    if (strcmp(name, "ca") == 0)
        r->client.ca = take_text(r, name);
    else if (strcmp(name, "cert") == 0)
        r->client.cert = take_text(r, name);
    else if (strcmp(name, "key") == 0)
        r->client.key = take_text(r, name);
    else if (strcmp(name, "server_name") == 0)
        r->remote.name = slice_of(take_text(r, name));
    else if (strcmp(name, "verify") != 0)
        luaL_error(L, "%s: tls has no '%s'; known are ca, cert, key, server_name, verify", r->what,
                   name);
    else if (lua_isboolean(L, -1))
        r->client.insecure = !lua_toboolean(L, -1);
    else
        luaL_error(L, "%s: tls.verify must be a boolean, not %s", r->what, luaL_typename(L, -1));
}

void api_http_take_tls(lua_State *L, struct fetch *f, const char *what, int idx)
{
    struct reader r = { .L = L, .f = f, .what = what, .client.http = true };
    struct tls_pem_fault fault;
    lua_pushnil(L);
    while (lua_next(L, idx) != 0) {
        take_member(&r);
        lua_pop(L, 1);
    }
    if ((r.client.cert == NULL) != (r.client.key == NULL))
        luaL_error(L, "%s: tls.cert and tls.key belong together", what);
    r.remote.context = tls_client_load(&r.client, api_generation(L)->snapshot, &fault);
    if (r.remote.context == NULL)
        luaL_error(L, "%s: tls.%s: %s", what, fault.key, fault.text);
    fetch_set_tls(f, &r.remote);
}
