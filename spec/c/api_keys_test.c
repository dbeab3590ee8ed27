/* tg.keys: what Lua sees of a record, and that it is one table per record. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

#include <lualib.h>

#include "api.h"

static lua_State *L;
static char path[64];

static int setup(void **state)
{
    (void)state;
    snprintf(path, sizeof path, "/tmp/api-keys-test-%ld.jsonl", (long)getpid());
    L = luaL_newstate();
    luaL_openlibs(L);
    lua_newtable(L);
    api_open_keys(L);
    assert_int_equal(lua_gettop(L), 1);
    lua_setglobal(L, "tg");
    lua_pushstring(L, path);
    lua_setglobal(L, "path");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    lua_close(L);
    unlink(path);
    return 0;
}

static void run(const char *code)
{
    if (luaL_dostring(L, code) != 0)
        fail_msg("%s", lua_tostring(L, -1));
    assert_int_equal(lua_gettop(L), 0);
}

static void finds(void **state)
{
    (void)state;
    run("local f = assert(io.open(path, 'w'))\n"
        "f:write([[{\"id\":\"a\",\"secret_sha256\":"
        "\"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad\"}\n"
        "{\"id\":\"b\",\"tenant\":\"t\",\"plan\":\"p\",\"rps\":0.5,\"burst\":2,\"monthly_tokens\":"
        "0,"
        "\"concurrency\":3,\"routes\":[\"x\",\"y\"],\"disabled\":true,\"secret_sha256\":"
        "\"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\"}]])\n"
        "f:close()\n"
        "local store = assert(tg.keys.open(path))\n"
        "assert(store:count() == 2)\n"
        "local a, b = store:find 'abc', store:find ''\n"
        "assert(a.id == 'a' and a.disabled == false)\n"
        "for name in pairs(a) do assert(name == 'id' or name == 'disabled', name) end\n"
        "assert(b.id == 'b' and b.tenant == 't' and b.plan == 'p' and b.rps == 0.5 and b.burst == "
        "2)\n"
        "assert(b.monthly_tokens == 0 and b.concurrency == 3 and b.disabled == true)\n"
        "assert(#b.routes == 2 and b.routes[1] == 'x' and b.routes[2] == 'y')\n"
        "collectgarbage()\n"
        "assert(store:find 'abc' == a and store:find '' == b and a ~= b)\n"
        "assert(store:find 'abd' == nil and select('#', store:find 'abd') == 1)\n");
}

static void reports_faults(void **state)
{
    (void)state;
    run("local f = assert(io.open(path, 'w'))\n"
        "f:write '\\n{\"id\":7}' f:close()\n"
        "local store, err = tg.keys.open(path)\n"
        "assert(store == nil and err == path .. ':2: id must be a string', err)\n"
        "store, err = tg.keys.open 'nowhere.jsonl'\n"
        "assert(store == nil and err == 'nowhere.jsonl: cannot be read: No such file or "
        "directory', err)\n");
}

static void raises_on_misuse(void **state)
{
    (void)state;
    run("local f = assert(io.open(path, 'w')) f:close()\n"
        "local store = assert(tg.keys.open(path))\n"
        "assert(store:count() == 0)\n"
        "for _, f in ipairs { function() tg.keys.open() end, function() tg.keys.open 'a\\0b' end,\n"
        "    function() store:find() end, function() store:find(7) end, function() store.find 'x' "
        "end,\n"
        "    function() store.count(io.stdout) end } do\n"
        "  assert(not pcall(f))\n"
        "end\n"
        "debug.getmetatable(store).__gc(store)\n"
        "local ok, err = pcall(store.find, store, 'x')\n"
        "assert(not ok and err:find('closed', 1, true), err)\n");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(finds, setup, teardown),
        cmocka_unit_test_setup_teardown(reports_faults, setup, teardown),
        cmocka_unit_test_setup_teardown(raises_on_misuse, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
