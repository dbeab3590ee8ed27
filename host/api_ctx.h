/* Inside ctx: what api_ctx.c (ctx itself), api_request.c and api_response.c share. */
#ifndef TOLLGATE_API_CTX_H
#define TOLLGATE_API_CTX_H

#include "api.h"

/* Metatables in the registry. */
#define API_REQUEST          "tollgate.request"
#define API_RESPONSE         "tollgate.response"
#define API_REQUEST_HEADERS  "tollgate.request.headers"
#define API_RESPONSE_HEADERS "tollgate.response.headers"

/* Pushes an object that shares the handle of the ctx (or part of it) at ctx_idx. */
void api_ctx_push_part(lua_State *L, int ctx_idx, const char *metatable);
/* Keeps the value on top in the object at 1, so that it is made once; it stays on the stack. */
void api_ctx_keep_field(lua_State *L, const char *name);
/* Pushes one of the functions of api_record.c; false where it has none of that name. */
bool api_ctx_push_record(lua_State *L, const char *key);
/* nil where s.p is NULL. */
void api_ctx_push_slice(lua_State *L, struct slice s);
/* Pushes the json part of the request or response at 1; one result. */
int api_ctx_push_json(lua_State *L, bool response);
/* Pushes an iterator over the fields of the request or response at 1; one result. */
int api_ctx_push_each(lua_State *L, bool response);

void api_ctx_metatable(lua_State *L, const char *name, lua_CFunction index, lua_CFunction newindex);
void api_ctx_open_request(lua_State *L);
void api_ctx_open_response(lua_State *L);

#endif
