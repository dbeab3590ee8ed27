/* See generation_read.h: a route's targets, from the checked table to structs. The fields' getters
 * read the table on top of the stack. */
#include <lauxlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "generation_read.h"
#include "json.h"
#include "siphash.h"
#include "zone.h"

static int refuse_change(lua_State *L)
{
    return luaL_error(L, "a target cannot be changed");
}

static void put_field(lua_State *L, const char *name, const char *value)
{
    lua_pushstring(L, value);
    lua_setfield(L, -2, name);
}

/* What plugins get: name, provider, model and url. All requests share it, so it is an empty table
 * before the one that has them. */
static void make_lua_target(struct generation *g, struct target *t)
{
    lua_State *L = g->L;
    lua_newtable(L);
    lua_createtable(L, 0, 3);
    lua_createtable(L, 0, 4);
    put_field(L, "name", t->name);
    put_field(L, "provider", t->provider);
    put_field(L, "model", t->model);
    put_field(L, "url", t->url_text);
    lua_setfield(L, -2, "__index");
    lua_pushcfunction(L, refuse_change);
    lua_setfield(L, -2, "__newindex");
    lua_pushboolean(L, 0);
    lua_setfield(L, -2, "__metatable");
    lua_setmetatable(L, -2);
    t->lua_ref = generation_ref(g, L);
}

/* What it is called in the zone: the same in all workers and generations. */
static uint64_t key_of(const struct target *t)
{
    static const uint64_t no_secret[2];
    struct buf text;
    buf_init(&text);
    buf_printf(&text, "%s\n%s\n%s", t->url_text, t->provider, t->model != NULL ? t->model : "");
    generation_describe_check(t->check, &text); /* what one check finds is not another's */
    uint64_t key = siphash(no_secret, buf_slice(&text));
    buf_deinit(&text);
    return key;
}

static void find_state(struct generation *g, struct target *t)
{
    char name[TARGET_NAME];
    snprintf(name, sizeof name, "%s %s", t->name, t->url_text);
    t->state = target_table_get(g->sv->target_table, key_of(t), name, zone_now());
}

static void quote_model(struct generation *g, struct target *t)
{
    struct buf text;
    if (t->model == NULL)
        return;
    buf_init(&text);
    json_quote(&text, slice_of(t->model));
    t->model_json = arena_dup(&g->arena, buf_slice(&text));
    buf_deinit(&text);
}

static const char *where_of(struct generation *g, const struct url *url)
{
    bool local = url->unix_path.p != NULL;
    struct slice at = local ? url->unix_path : url->authority;
    const char *scheme = local ? "unix:" : url->tls ? "https://" : "http://";
    return arena_printf(&g->arena, "%s%.*s", scheme, (int)at.n, at.p).p;
}

/* The target's table is on top of the stack. */
static int read_target(struct generation *g, const struct route *r, struct target *t,
                       bool check_only, struct buf *faults)
{
    t->name = generation_get_text(g, "name");
    t->provider = generation_get_text(g, "provider");
    t->model = generation_get_text(g, "model");
    t->url_text = generation_get_text(g, "url");
    t->preserve_host = generation_get_bool(g, "preserve_host");
    t->set = generation_get_headers(g, "headers", &t->nset);
    generation_enter(g, "timeouts");
    t->timeouts.connect = generation_get_number(g, "connect");
    t->timeouts.first_byte = generation_get_number(g, "first_byte");
    t->timeouts.idle = generation_get_number(g, "idle");
    generation_leave(g);
    quote_model(g, t);
    t->figures = figures_target(g->sv->figures, r->name, t->name);
    make_lua_target(g, t);
    const char *wrong = url_parse(&g->arena, slice_of(t->url_text), &t->url);
    if (wrong != NULL) {
        buf_printf(faults, "route %s: target %s: %s\n", r->name, t->name, wrong);
        return -1;
    }
    t->where = where_of(g, &t->url);
    struct tls_remote tls;
    if (generation_read_tls(g, true, &tls, faults) != 0)
        return -1;
    int err = generation_read_check(g, &tls, &t->check, faults);
    if (!check_only)
        t->origin = upstream_origin(g->sv->upstream, &t->url, &tls);
    tls_context_unref(tls.context);
    if (err == 0 && !check_only && g->sv->target_table != NULL)
        find_state(g, t);
    return err;
}

/* Each worker begins at a place of its own. */
static void begin_anywhere(struct target_set *set)
{
    uint32_t random = 0, weights = 0;
    ssize_t got = getrandom(&random, sizeof random, 0);
    (void)got;
    for (uint32_t i = 0; i < set->n; i++)
        weights += set->items[i].weight;
    if (weights > 0)
        balance_turn(set->items, set->n, random % (weights < 1000 ? weights : 1000));
}

/* The list of targets is a member of the table on top of the stack. */
static int read_set(struct generation *g, const struct route *r, struct target_set *set,
                    bool check_only, struct buf *faults)
{
    int err = 0;
    uint32_t n = generation_enter(g, "targets");
    set->v = arena_zalloc(&g->arena, (n + 1) * sizeof *set->v);
    set->items = arena_zalloc(&g->arena, (n + 1) * sizeof *set->items);
    for (; set->n < n; set->n++) {
        struct target *t = &set->v[set->n];
        struct balance_item *item = &set->items[set->n];
        lua_rawgeti(g->L, -1, (int)set->n + 1);
        t->place = set->n;
        item->weight = (uint32_t)generation_get_number(g, "weight");
        item->tier = (uint32_t)generation_get_number(g, "tier");
        if (item->weight > 0)
            set->usable |= (uint64_t)1 << set->n;
        if (read_target(g, r, t, check_only, faults) != 0)
            err = -1;
        lua_pop(g->L, 1);
    }
    generation_leave(g);
    begin_anywhere(set);
    return err;
}

static void read_retry(struct generation *g, struct route *r)
{
    struct retry_policy *p = &r->retry;
    generation_enter(g, "retry");
    p->attempts = (uint32_t)generation_get_number(g, "attempts");
    p->timeout_ms = generation_get_number(g, "timeout");
    lua_getfield(g->L, -1, "budget");
    p->budget = lua_tonumber(g->L, -1);
    lua_pop(g->L, 1);
    p->unsafe = generation_get_bool(g, "unsafe");
    p->peek = generation_get_bool(g, "peek");
    p->buffer = generation_get_number(g, "buffer");
    p->out_ms = generation_get_number(g, "retry_after");
    uint32_t n = generation_enter(g, "on");
    for (uint32_t i = 0; i < n; i++) {
        lua_rawgeti(g->L, -1, (int)i + 1);
        if (lua_type(g->L, -1) == LUA_TNUMBER)
            retry_add_status(p, (int)lua_tointeger(g->L, -1));
        else
            retry_add_error(p, slice_of(lua_tostring(g->L, -1)));
        lua_pop(g->L, 1);
    }
    generation_leave(g);
    generation_leave(g);
    r->budget = arena_zalloc(&g->arena, sizeof *r->budget);
}

int generation_read_targets(struct generation *g, struct route *r, bool check_only,
                            struct buf *faults)
{
    int err = 0;
    const char *balance = generation_get_text(g, "balance");
    r->balance =
        strcmp(balance, "least_in_flight") == 0 ? BALANCE_LEAST_IN_FLIGHT : BALANCE_ROUND_ROBIN;
    read_retry(g, r);
    struct target_set *other = arena_zalloc(&g->arena, sizeof *other);
    err |= read_set(g, r, other, check_only, faults);
    r->targets = other->n > 0 ? other : NULL;
    for (uint32_t i = 0; i < other->n && r->api != LLM_NONE; i++)
        r->reads_model = r->reads_model || other->v[i].model != NULL;
    uint32_t n = generation_enter(g, "models");
    r->models = arena_zalloc(&g->arena, (n + 1) * sizeof *r->models);
    for (; r->nmodels < n; r->nmodels++) {
        struct target_set *set = &r->models[r->nmodels];
        lua_rawgeti(g->L, -1, (int)r->nmodels + 1);
        set->alias = slice_of(generation_get_text(g, "alias"));
        err |= read_set(g, r, set, check_only, faults);
        lua_pop(g->L, 1);
    }
    r->reads_model = r->reads_model || n > 0;
    generation_leave(g);
    return err;
}

static void undo_set(struct generation *g, struct target_set *set)
{
    for (uint32_t i = 0; i < set->n; i++) {
        generation_unref(g, set->v[i].lua_ref);
        generation_undo_check(set->v[i].check);
        if (set->v[i].origin != NULL)
            origin_release(set->v[i].origin);
    }
}

void generation_undo_targets(struct generation *g, struct route *r)
{
    if (r->targets != NULL)
        undo_set(g, r->targets);
    for (uint32_t i = 0; i < r->nmodels; i++)
        undo_set(g, &r->models[i]);
}
