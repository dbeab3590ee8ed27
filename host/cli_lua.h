/* Commands that have a Lua module of the host write what they show: a Lua state without a
 * configuration. */
#ifndef TOLLGATE_CLI_LUA_H
#define TOLLGATE_CLI_LUA_H

#include "generation.h"
#include "terminal.h"

struct cli_lua {
    struct loop loop;
    struct services sv;
    struct generation *gen;
};

/* 0, or -1 with why on stderr. */
int cli_lua_open(struct cli_lua *c);
void cli_lua_close(struct cli_lua *c);
/* Pushes the function `name` of the module tollgate.MODULE. */
lua_State *cli_lua_function(struct cli_lua *c, const char *module, const char *name);
/* Calls it with what was pushed on it; one result, a string, appended to out. 0, or -1 with why in
 * out. */
int cli_lua_text(struct cli_lua *c, int nargs, struct buf *out);
/* Pushes { tty, color, utf8, width, height }. */
void cli_lua_push_terminal(lua_State *L, const struct terminal *t);

#endif
