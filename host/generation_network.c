/* See generation_read.h: addresses beyond host and port, whom names are
 * asked of, which proxies are believed, and whose traces. */
#include "generation_read.h"

#include <string.h>

/* The texts have been checked. */
static void read_trusted(struct generation *g, const char *name, struct trusted *out)
{
    uint32_t n;
    const char **texts = generation_get_texts(g, name, &n);
    struct cidr *v = arena_alloc(&g->arena, (n + 1) * sizeof *v);
    *out = (struct trusted){ .v = v };
    for (uint32_t i = 0; i < n; i++) {
        if (strcmp(texts[i], "unix") == 0)
            out->local = true;
        else if (cidr_parse(slice_of(texts[i]), &v[out->n]) == 0)
            out->n++;
    }
}

static void read_forwarded(struct generation *g, struct settings *s)
{
    uint32_t n;
    const char **forms = generation_get_texts(g, "forwarded", &n);
    for (uint32_t i = n; i > 0; i--) { /* the first is the one that is read */
        s->forwarded.read =
            strcmp(forms[i - 1], "forwarded") == 0 ? FORWARDED_RFC7239 : FORWARDED_X;
        s->forwarded.write |= s->forwarded.read;
    }
    read_trusted(g, "trusted_proxies", &s->forwarded.trusted);
}

/* What stands beside an address that is listened on, on top of the stack. */
static void read_place(struct generation *g, struct listen_address *a)
{
    a->path = generation_get_text(g, "path");
    a->mode = (unsigned)generation_get_number(g, "mode");
    lua_getfield(g->L, -1, "proxy_protocol");
    a->proxied = !lua_isnil(g->L, -1);
    bool own_list = lua_istable(g->L, -1);
    lua_pop(g->L, 1);
    if (own_list)
        read_trusted(g, "proxy_protocol", &a->proxies);
    else
        a->proxies = g->settings.forwarded.trusted;
}

static void read_places(struct generation *g, struct settings *s)
{
    generation_enter(g, "listen");
    for (uint32_t i = 0; i < s->nlisten; i++) {
        lua_rawgeti(g->L, -1, (int)i + 1);
        read_place(g, &s->listen[i]);
        lua_pop(g->L, 1);
    }
    generation_leave(g);
}

static void read_resolver(struct generation *g, struct settings *s)
{
    generation_enter(g, "resolver");
    s->resolver = (struct resolve_options){
        .servers = generation_get_text(g, "servers"),
        .ttl_min = generation_get_number(g, "ttl_min"),
        .ttl_max = generation_get_number(g, "ttl_max"),
        .stale = generation_get_number(g, "stale"),
        .try_ms = generation_get_number(g, "timeout"),
        .tries = (int)generation_get_number(g, "tries"),
    };
    generation_leave(g);
}

static void read_tracing(struct generation *g, struct settings *s)
{
    if (!generation_get_bool(g, "tracing"))
        return;
    generation_enter(g, "tracing");
    const char *accept = generation_get_text(g, "accept");
    lua_getfield(g->L, -1, "sample");
    s->tracing = (struct trace_rules){ .on = true, .sample = access_share(lua_tonumber(g->L, -1)) };
    if (strcmp(accept, "never") != 0)
        s->tracing.accept = strcmp(accept, "always") == 0 ? TRACE_ALWAYS : TRACE_TRUSTED;
    lua_pop(g->L, 1);
    generation_leave(g);
}

void generation_read_network(struct generation *g)
{
    read_resolver(g, &g->settings);
    read_forwarded(g, &g->settings);
    read_tracing(g, &g->settings);
    read_places(g, &g->settings);
}
