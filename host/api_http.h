/* Inside tg.http: what api_http.c (the table, whole answers), api_http_options.c and
 * api_http_fields.c (arguments) and api_http_stream.c (streamed answers) share. */
#ifndef TOLLGATE_API_HTTP_H
#define TOLLGATE_API_HTTP_H

#include "api.h"
#include "fetch.h"

/* A fetch from (url, options) at 1 and 2, not started. `method` is fixed where it is not NULL.
 * Raises on misuse, with the name `what`. It belongs to a guard on the stack, which frees it unless
 * the pointer is taken out. */
struct fetch **api_http_prepare(lua_State *L, const char *what, const char *method, bool stream);
void api_http_open_guard(lua_State *L);

/* --- api_http_fields.c; each raises on what must not be --- */

/* A copy of a string or number in the fetch's arena; the value stays as it is. */
struct slice api_http_copy(lua_State *L, struct fetch *f, int idx);
void api_http_take_headers(lua_State *L, struct fetch *f, const char *what, int idx);
/* Behind the query that the URL has already. */
void api_http_take_query(lua_State *L, struct fetch *f, const char *what, int idx);
/* How TLS is spoken with the host of the URL, which is set (api_http_tls.c). */
void api_http_take_tls(lua_State *L, struct fetch *f, const char *what, int idx);

/* --- answers --- */

#define API_HTTP_STREAM "tollgate.http.stream" /* metatable of a streamed answer */

/* Pushes a table of status, headers, header_list and url, with a metatable. Callable on a coroutine
 * that waits. */
void api_http_push_head(lua_State *L, struct fetch *f, const char *metatable);
/* Pushes nil, the error's constant and a sentence about it: 3. */
int api_http_push_failure(lua_State *L, const struct fetch *f);

/* Puts the stream into the table on top, which takes ownership of f; it ends with the task at the
 * latest. */
void api_http_push_stream(lua_State *L, struct fetch *f, struct task *t);
void api_http_open_stream(lua_State *L);

#endif
