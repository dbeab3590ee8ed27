/* Inside tg.json: what api_json.c (the table), api_json_decode.c and api_json_encode.c share. */
#ifndef TOLLGATE_API_JSON_H
#define TOLLGATE_API_JSON_H

#include "api.h"
#include "json.h"

/* A userdata that stands for its text: a number that a double cannot hold, one of the constants, or
 * any other JSON that is not looked into. */
struct json_literal {
    size_t n;
    char text[];
};

/* Names in the registry: metatables, and null itself. */
#define API_JSON_ARRAY    "tollgate.json.array"
#define API_JSON_NUMBER   "tollgate.json.number"
#define API_JSON_CONSTANT "tollgate.json.constant"
#define API_JSON_RAW      "tollgate.json.raw"
#define API_JSON_NULL     "tollgate.json.null"

void api_json_literal_push(lua_State *L, struct slice text, const char *metatable);

int api_json_decode_text(lua_State *L);
int api_json_encode_text(lua_State *L);
void api_json_encode_open(lua_State *L);

#endif
