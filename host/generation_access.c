/* See generation_read.h: what the configuration says of the access log. */
#include "generation_read.h"

static void read_statuses(struct generation *g, struct access_rule *r)
{
    lua_State *L = g->L;
    r->nstatuses = generation_enter(g, "statuses");
    r->statuses = arena_alloc(&g->arena, (r->nstatuses + 1) * sizeof *r->statuses);
    for (uint32_t i = 0; i < r->nstatuses; i++) {
        lua_rawgeti(L, -1, (int)i + 1);
        lua_rawgeti(L, -1, 1);
        lua_rawgeti(L, -2, 2);
        r->statuses[i].low = (int)lua_tointeger(L, -2);
        r->statuses[i].high = (int)lua_tointeger(L, -1);
        lua_pop(L, 3);
    }
    generation_leave(g);
}

static void read_rules(struct generation *g, struct access_rules *rules)
{
    rules->n = generation_enter(g, "sample");
    rules->v = arena_zalloc(&g->arena, (rules->n + 1) * sizeof *rules->v);
    for (uint32_t i = 0; i < rules->n; i++) {
        struct access_rule *r = &rules->v[i];
        lua_rawgeti(g->L, -1, (int)i + 1);
        r->routes = generation_get_texts(g, "routes", &r->nroutes);
        read_statuses(g, r);
        lua_getfield(g->L, -1, "keep");
        r->keep = access_share(lua_tonumber(g->L, -1));
        lua_pop(g->L, 2);
    }
    generation_leave(g);
}

static int read_format(struct generation *g, struct access_format *out, struct buf *faults)
{
    struct buf fault;
    buf_init(&fault);
    int err = access_format_parse(&g->arena, slice_of(generation_get_text(g, "format")), out,
                                  &fault);
    if (err != 0)
        buf_printf(faults, "log.access.format: %.*s\n", (int)fault.n, fault.p);
    buf_deinit(&fault);
    return err;
}

int generation_read_access(struct generation *g, struct settings *s, struct buf *faults)
{
    int err = 0;
    generation_enter(g, "access");
    if (lua_istable(g->L, -1)) {
        struct access_settings *a = arena_zalloc(&g->arena, sizeof *a);
        a->to = generation_get_text(g, "to");
        err = read_format(g, &a->format, faults);
        read_rules(g, &a->rules);
        s->access = a;
    }
    generation_leave(g);
    return err;
}
