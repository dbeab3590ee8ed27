/* The Lua runtime's files as they are embedded; the table ends with a NULL name. */
#ifndef TOLLGATE_LUA_SOURCES_H
#define TOLLGATE_LUA_SOURCES_H

#include <stddef.h>

struct lua_source {
    const char *name; /* file name without .lua */
    const char *text;
    size_t n;
};

extern const struct lua_source lua_sources[];

#endif
