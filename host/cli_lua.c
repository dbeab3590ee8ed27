/* See cli_lua.h. */
#include "cli_lua.h"

#include <stdio.h>

#include "log.h"

int cli_lua_open(struct cli_lua *c)
{
    struct buf faults;
    *c = (struct cli_lua){ 0 };
    log_set_level(LOG_ERROR);
    if (loop_init(&c->loop) != 0)
        return -1;
    c->sv.loop = &c->loop;
    buf_init(&faults);
    c->gen = generation_bare(&c->sv, &faults);
    if (c->gen == NULL)
        fprintf(stderr, "%.*s", (int)faults.n, faults.n > 0 ? faults.p : "");
    buf_deinit(&faults);
    return c->gen != NULL ? 0 : -1;
}

void cli_lua_close(struct cli_lua *c)
{
    if (c->gen != NULL)
        generation_release(c->gen);
    loop_deinit(&c->loop);
    if (c->sv.metrics != NULL)
        metrics_free(c->sv.metrics);
}

lua_State *cli_lua_function(struct cli_lua *c, const char *module, const char *name)
{
    lua_State *L = c->gen->L;
    generation_push_module(c->gen, L, module);
    lua_getfield(L, -1, name);
    lua_remove(L, -2);
    return L;
}

int cli_lua_text(struct cli_lua *c, int nargs, struct buf *out)
{
    lua_State *L = c->gen->L;
    size_t n;
    int err = lua_pcall(L, nargs, 1, 0);
    const char *text = lua_tolstring(L, -1, &n);
    if (text != NULL)
        buf_add(out, text, n);
    lua_pop(L, 1);
    return err == 0 ? 0 : -1;
}

void cli_lua_push_terminal(lua_State *L, const struct terminal *t)
{
    lua_newtable(L);
    lua_pushboolean(L, t->tty);
    lua_setfield(L, -2, "tty");
    lua_pushboolean(L, t->color);
    lua_setfield(L, -2, "color");
    lua_pushboolean(L, t->utf8);
    lua_setfield(L, -2, "utf8");
    lua_pushnumber(L, t->width);
    lua_setfield(L, -2, "width");
    lua_pushnumber(L, t->height);
    lua_setfield(L, -2, "height");
}
