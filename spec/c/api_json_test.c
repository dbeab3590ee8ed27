/* tg.json: what survives a decode and an encode, what either refuses, and that an error leaks
 * nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include <lualib.h>

#include "api.h"

static lua_State *L;

/* Every snippet begins with these. */
static const char prelude[] =
    "local json = tg.json\n"
    "local function same(a, b) if a ~= b then error(('%s is not %s'):format(tostring(a), "
    "tostring(b)), 2) end end\n"
    "local function trip(text, expected)\n"
    "  same(json.encode(assert(json.decode(text))), expected or text)\n"
    "end\n"
    "local function bad(text, expected)\n"
    "  local value, err = json.decode(text) same(value, nil) same(err, expected)\n"
    "end\n"
    "local function raises(value, expected)\n"
    "  local ok, err = pcall(json.encode, value) same(ok, false) same(err, expected)\n"
    "end\n";

static int setup(void **state)
{
    (void)state;
    L = luaL_newstate();
    luaL_openlibs(L);
    lua_newtable(L);
    api_open_json(L);
    assert_int_equal(lua_gettop(L), 1);
    lua_setglobal(L, "tg");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    lua_close(L);
    return 0;
}

static void run(const char *code)
{
    struct buf b;
    buf_init(&b);
    buf_add_text(&b, prelude);
    buf_add_text(&b, code);
    int rc = luaL_loadbuffer(L, b.p, b.n, "=snippet");
    buf_deinit(&b);
    if (rc != 0 || lua_pcall(L, 0, 0, 0) != 0)
        fail_msg("%s", lua_tostring(L, -1));
    assert_int_equal(lua_gettop(L), 0);
}

static void decodes(void **state)
{
    (void)state;
    run("same(json.decode '7', 7) same(json.decode ' \"x\" ', 'x') same(json.decode 'false', "
        "false)\n"
        "same(json.decode 'null', json.null) same(tostring(json.null), 'null')\n"
        "local v = json.decode '{\"a\":[1,null,{\"b\":[]}],\"\":true}'\n"
        "same(#v.a, 3) same(v.a[1], 1) same(v.a[2], json.null) same(#v.a[3].b, 0) same(v[''], "
        "true)\n"
        "same(getmetatable(v), nil) same(getmetatable(v.a), json.array_mt)\n"
        "same(getmetatable(v.a[3].b), json.array_mt)\n"
        "assert(not pcall(json.decode)) assert(not pcall(json.decode, 7))\n"
        "same(getmetatable(json.null), 'tollgate.json.constant')\n");
}

static void refuses_text(void **state)
{
    (void)state;
    run("bad('', 'the text ends too early at byte 1')\n"
        "bad('[1', 'the text ends too early at byte 3')\n"
        "bad('[1,]', 'a value is expected at byte 4')\n"
        "bad('[0x10]', \"',' or ']' is expected at byte 3\")\n"
        "bad('NaN', 'a value is expected at byte 1')\n"
        "bad('{\"a\":1, \"a\":2}', 'duplicate member at byte 9')\n"
        "bad('{\"a\":false,\"\\\\u0061\":2}', 'duplicate member at byte 12')\n"
        "bad('{\"a\":null,\"b\":{\"a\":1},\"a\":2}', 'duplicate member at byte 23')\n"
        "bad('\"\\255\"', 'invalid UTF-8 at byte 2')\n"
        "bad(('['):rep(129), 'nested too deeply at byte 129')\n"
        "local deep = ('['):rep(128) .. (']'):rep(128)\n"
        "trip(deep) trip((deep:gsub('^%[(.*)%]$', '{\"a\":%1}')))\n");
}

static void keeps_numbers(void **state)
{
    (void)state;
    run("for _, t in ipairs { '0', '-0', '1', '-1', '0.1', '1e+300', '9007199254740992', '1.5', "
        "'1e-300',\n"
        "  '-9007199254740992', '0.30000000000000004', '1.7976931348623157e+308', "
        "'123456789012.5',\n"
        "  '1e+20', '0.0001', '3.141592653589793' } do\n"
        "  same(type(json.decode(t)), 'number') trip(t)\n"
        "end\n"
        "trip('1.0', '1') trip('1E2', '100') trip('0.10', '0.1') trip('-0.0', '-0') trip('0e9', "
        "'0')\n"
        "trip('1e20', '1e+20') trip('0.00000', '0')\n"
        "same(json.decode '5e-324', 5e-324) trip('5e-324', '4.94065645841247e-324')\n"
        "for _, t in ipairs { '9007199254740993', '-9007199254740993', '9007199254740994',\n"
        "  '18446744073709551615', '100000000000000000000', '0.1234567890123456789', '1e400', "
        "'-1e400',\n"
        "  '1e-400', '3e-324', '12345678901234567.0', '1.00000000000000001', ('7'):rep(1000),\n"
        "  '0.' .. ('0'):rep(400) .. '1', '0.30000000000000003' } do\n"
        "  local n = json.decode(t)\n"
        "  same(getmetatable(n), 'tollgate.json.number') same(tostring(n), t) trip(t)\n"
        "  trip('[' .. t .. ',{\"a\":' .. t .. '}]')\n"
        "  assert(n == json.number(t)) assert(n ~= json.number '5')\n"
        "end\n"
        "same(json.encode(json.number '1.0'), '1.0')\n"
        "for _, t in ipairs { '', ' 1', '1 ', '0x1', '[1]', '\"1\"', 'null', '1,2', '-', '1.' } "
        "do\n"
        "  assert(not pcall(json.number, t), t)\n"
        "end\n"
        "assert(not pcall(json.number, 7))\n"
        "same(json.encode(2^53), '9007199254740992') same(json.encode(2^60), "
        "'1.152921504606847e+18')\n"
        "same(json.encode(1/3), '0.3333333333333333') same(json.encode(0.1 + 0.2), "
        "'0.30000000000000004')\n");
}

static void keeps_strings(void **state)
{
    (void)state;
    run("trip('\"\\\\u0041\\\\n\\\\/\\\\u00e9\\\\ud83d\\\\ude00\"', "
        "'\"A\\\\n/\\195\\169\\240\\159\\152\\128\"')\n"
        "trip('\"\\\\u0000\\\\u001f\\\\\"\\\\\\\\\"')\n"
        "same(json.encode 'a\\255b', '\"a\\239\\191\\189b\"')\n"
        /* Above and below the length from which strings are taken from the text. */
        "local part = "
        "'a\\\\u0041\\\\n\\\\\\\\\\\\\"\\\\/"
        "\\\\b\\\\f\\\\r\\\\t\\\\u0000\\\\u00e9\\\\u20ac\\\\ud83d\\\\ude00\\\\ud83d\\\\udbff\\\\udf"
        "ff\\\\ude00\\\\ud83dx\\195\\169\\\\ud800\\\\u0041'\n"
        "local expected = json.decode('\"' .. part .. '\"')\n"
        "assert(#expected < 64)\n"
        "for _, n in ipairs { 3, 7, 8, 50, 5000 } do\n"
        "  same(json.decode('\"' .. part:rep(n) .. '\"'), expected:rep(n))\n"
        "  same(next(json.decode('{\"' .. part:rep(n) .. '\":1}')), expected:rep(n))\n"
        "end\n"
        "for _, n in ipairs { 255, 256, 257, 100000 } do\n"
        "  local plain = ('x\\195\\169z'):rep(n / 4) .. ('y'):rep(n % 4)\n"
        "  same(#plain, n) same(json.decode('[\"' .. plain .. '\"]')[1], plain) trip('[\"' .. "
        "plain .. '\"]')\n"
        "end\n"
        "bad('{\"' .. ('k'):rep(300) .. '\":1,\"' .. ('k'):rep(300) .. '\":1}', 'duplicate member "
        "at byte 307')\n");
}

static void encodes_tables(void **state)
{
    (void)state;
    run("same(json.encode {}, '{}') same(json.encode(json.array {}), '[]') "
        "same(json.encode(json.array()), '[]')\n"
        "same(json.encode { json.empty_array, json.null, true }, '[[],null,true]')\n"
        "same(json.encode { 1, 'x', { 2 } }, '[1,\"x\",[2]]')\n"
        "same(json.encode(setmetatable({}, json.array_mt)), '[]')\n"
        "same(json.encode { b = 1, a = { d = {}, c = { z = 0, y = 0 } }, ['a b'] = 2, [''] = 3, aa "
        "= 4, ['1'] = 5 },\n"
        "  '{\"\":3,\"1\":5,\"a\":{\"c\":{\"y\":0,\"z\":0},\"d\":{}},\"a "
        "b\":2,\"aa\":4,\"b\":1}')\n"
        "same(json.encode { ['a\\0b'] = 1, ['a\\0a'] = 2, a = 3 }, "
        "'{\"a\":3,\"a\\\\u0000a\":2,\"a\\\\u0000b\":1}')\n"
        "local shared = { 1 } same(json.encode { shared, shared }, '[[1],[1]]')\n"
        "trip '{\"a\":[],\"b\":{},\"c\":[[],{}],\"d\":null}' trip '[null,null]'\n"
        "local t = {} for i = 1, 1000 do t[('k%04d'):format(1001 - i)] = { i, x = nil } end\n"
        "local text = json.encode(t) trip(text)\n"
        "local sparse = {} for i = 3, 1, -1 do sparse[i] = i end same(json.encode(sparse), "
        "'[1,2,3]')\n"
        "local again = json.array { 1 } same(json.array(again), again)\n"
        "assert(not pcall(json.array, 7)) assert(not pcall(json.array, setmetatable({}, {})))\n");
}

static void refuses_values(void **state)
{
    (void)state;
    run("raises(print, 'cannot encode a function')\n"
        "raises({ a = { { b = print } } }, 'cannot encode a function (at a[1].b)')\n"
        "raises({ 0/0 }, 'cannot encode NaN (at [1])')\n"
        "raises({ x = -math.huge }, 'cannot encode an infinite number (at x)')\n"
        "raises(coroutine.create(print), 'cannot encode a coroutine')\n"
        "raises({ io.stdout }, 'cannot encode a userdata (at [1])')\n"
        "raises({ newproxy() }, 'cannot encode a userdata (at [1])')\n"
        "raises(require 'ffi'.new('int64_t', 1), 'cannot encode a cdata')\n"
        "raises(nil, 'cannot encode nil (null is tg.json.null)')\n"
        "assert(not pcall(json.encode))\n"
        "local mixed = 'cannot encode a table whose keys are neither 1 to n nor all strings'\n"
        "for _, t in ipairs { { 1, a = 2 }, { [2] = 1 }, { [0] = 1 }, { [1.5] = 1 }, { [true] = 1 "
        "}, { 1, nil, 3 },\n"
        "    json.array { a = 1 }, { [-1] = 1, a = 1 }, { [200] = 'ok' } } do\n"
        "  raises(t, mixed)\n"
        "end\n"
        "local loop = {} loop[1] = loop\n"
        "local ok, err = pcall(json.encode, loop)\n"
        "assert(not ok and err:find 'nested more than 128 deep, or in itself' and #err < 500, "
        "err)\n"
        "local deep = {} for _ = 1, 127 do deep = { a = deep } end\n"
        "trip(json.encode(deep)) assert(not pcall(json.encode, { deep }))\n"
        /* Where it failed, nothing but garbage is left. */
        "for _ = 1, 1000 do pcall(json.encode, { ('x'):rep(1000), a = 1, b = { print } }) end\n");
}

static void takes_foreign_nulls(void **state)
{
    (void)state;
    lua_pushlightuserdata(L, NULL);
    lua_setglobal(L, "cjson_null");
    lua_pushlightuserdata(L, L);
    lua_setglobal(L, "pointer");
    run("same(json.encode { cjson_null }, '[null]') raises(pointer, 'cannot encode a userdata')\n");
}

static int encode_both(lua_State *l)
{
    struct buf *out = lua_touserdata(l, 1);
    lua_pushinteger(l, 1);
    api_json_encode(l, -2, out);
    api_json_encode(l, 3, out);
    return 0;
}

static void encodes_for_the_host(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out);
    for (int i = 0; i < 2; i++) { /* a table, then what it refuses */
        lua_pushcfunction(L, encode_both);
        lua_pushlightuserdata(L, &out);
        assert_int_equal(luaL_dostring(L, i == 0 ? "return {a={1}}" : "return {a=print}"), 0);
        assert_int_equal(lua_pcall(L, 2, 0, 0), i == 0 ? 0 : LUA_ERRRUN);
    }
    assert_string_equal(lua_tostring(L, -1), "cannot encode a function (at a)");
    lua_settop(L, 0);
    assert_true(slice_eq(buf_slice(&out), SLICE("{\"a\":[1]}1")));
    buf_deinit(&out);
}

static void leaves_what_lies_deep_as_text(void **state)
{
    (void)state;
    run("local v = json.decode('{\"a\":[1, {\"b\":2}],\"c\":{},\"d\":1.0,\"e\":[]}', 1)\n"
        "same(tostring(v.a), '[1, {\"b\":2}]') same(tostring(v.c), '{}') same(v.d, 1)\n"
        "same(json.encode(v), '{\"a\":[1, {\"b\":2}],\"c\":{},\"d\":1,\"e\":[]}')\n"
        "v = json.decode('[[[1.0]],{\"x\":{\"y\":1e2}}]', 2)\n"
        "same(tostring(v[1][1]), '[1.0]') same(tostring(v[2].x), '{\"y\":1e2}')\n"
        "same(getmetatable(v[2].x), 'tollgate.json.raw')\n"
        "same(json.decode('7', 1), 7)\n"
        "local none, err = json.decode('{\"a\":[1,}', 1) same(none, nil)\n"
        "same(err, 'a value is expected at byte 9')\n"
        "same(pcall(json.decode, '1', 0), false)\n");
}

static void embeds_text(void **state)
{
    (void)state;
    run("same(json.encode { a = json.raw ' [1.0, 2] ' }, '{\"a\": [1.0, 2] }')\n"
        "same(tostring(json.raw '1.0'), '1.0')\n"
        "local none, err = json.raw '[1' same(none, nil) same(err, 'the text ends too early at "
        "byte "
        "3')\n"
        "same(pcall(json.raw, {}), false)\n");
}

static void has_a_canonical_form(void **state)
{
    (void)state;
    run("same(json.canonical [[ {\"b\":1.0,\"a\":\"\\u0041\"} ]], '{\"a\":\"A\",\"b\":1.0}')\n"
        "same(json.canonical('{\"b\":1,\"a\":2}', { 'a', 'x' }), '{\"b\":1}')\n"
        "local none, err = json.canonical '{\"a\":1,\"a\":1}' same(none, nil)\n"
        "same(err, 'duplicate member at byte 8')\n"
        "same(pcall(json.canonical, '{}', { 1 }), false)\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(decodes, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_text, setup, teardown),
        cmocka_unit_test_setup_teardown(keeps_numbers, setup, teardown),
        cmocka_unit_test_setup_teardown(keeps_strings, setup, teardown),
        cmocka_unit_test_setup_teardown(encodes_tables, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_values, setup, teardown),
        cmocka_unit_test_setup_teardown(takes_foreign_nulls, setup, teardown),
        cmocka_unit_test_setup_teardown(encodes_for_the_host, setup, teardown),
        cmocka_unit_test_setup_teardown(leaves_what_lies_deep_as_text, setup, teardown),
        cmocka_unit_test_setup_teardown(embeds_text, setup, teardown),
        cmocka_unit_test_setup_teardown(has_a_canonical_form, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
