-- scripts/reference: what it writes into plugins/README.md and host/lua/README.md is up to date, follows the sources, and
-- leaves the rest of the documents alone.
local support = require "spec.support"
local async = support.async

local BEGIN = "<!-- scripts/reference writes from here -->\n"
local STALE = "%s is out of date; run: scripts/reference\n"

-- A copy of what the script reads.
local function tree()
  local dir = support.tmpdir()
  local res = support.exec { cmd = "cp",
    args = { "-R", "--parents", "scripts/reference", "scripts/lua", "plugins", "host", dir } }
  assert.equal(0, res.code, res.err)
  return dir
end

local function reference(dir, ...)
  return support.exec { cmd = "luajit", args = { dir .. "/scripts/reference", ... } }
end

local function edit(path, from, to)
  local text = assert(support.read_file(path))
  local at, last = text:find(from, 1, true)
  assert(at, path .. " has no " .. from)
  support.write_file(path, text:sub(1, at - 1) .. to .. text:sub(last + 1))
end

describe("the reference", function()
  it("is up to date", async(function()
    local res = reference(".", "--check")
    assert.same({ 0, "", "" }, { res.code, res.out, res.err })
  end))

  it("is made by a script that luacheck has nothing against", async(function()
    local res = support.exec { cmd = "luacheck", args = { "-q", "--no-color", "scripts/reference" } }
    assert.equal(0, res.code, res.out)
  end))

  it("follows a plugin's schema and comment, and is told to be out of date until it does", async(function()
    local dir = tree()
    edit(dir .. "/plugins/auth.lua", "let requests without a key pass", "let <b>|everybody pass")
    edit(dir .. "/plugins/auth.lua", "-- auth: who calls.", "-- auth: who knocks.")
    local stale = reference(dir, "--check")
    assert.same({ 1, "", STALE:format "host/man/gateway.lua.5" .. STALE:format "plugins/README.md" },
      { stale.code, stale.out, stale.err })
    local res = reference(dir)
    assert.same({ 0, "wrote host/man/gateway.lua.5\nwrote plugins/README.md\n", "" }, { res.code, res.out, res.err })
    local text = support.read_file(dir .. "/plugins/README.md")
    assert.matches("| `anonymous` | boolean | `false` | let \\<b>\\|everybody pass, without a consumer |", text, 1, true)
    assert.matches("\n## auth (priority 900)\n\nWho knocks. ", text, 1, true)
    assert.equal(0, reference(dir, "--check").code)
  end))

  it("follows the schema of the configuration, in the manual page", async(function()
    local dir = tree()
    edit(dir .. "/host/lua/config_schema.lua", 'doc = "name in the Via field; false: none"',
      'doc = ".TH is no \\\\macro - see `check`"')
    local stale = reference(dir, "--check")
    assert.same({ 1, STALE:format "host/man/gateway.lua.5" }, { stale.code, stale.err })
    assert.equal(0, reference(dir).code)
    assert.matches("\n.BR \"via\" \" (string, or \\fBfalse\\fR; default \\fB\\(dqtollgate\\(dq\\fR)\"\n"
      .. "\\&.TH is no \\emacro \\- see \\fBcheck\\fR.\n", support.read_file(dir .. "/host/man/gateway.lua.5"), 1, true)
    assert.equal(0, reference(dir, "--check").code)
  end))

  it("shows types, bounds and defaults of all kinds of fields", async(function()
    local dir = tree()
    support.write_file(dir .. "/plugins/odd.lua", [[
-- odd: has every kind of field.
return { priority = -1, once = true, schema = {
  a = { type = "integer", min = 1, max = 5, default = 2, doc = "one" },
  b = { type = "number", exclusive_min = 0, required = true },
  c = { type = "list", of = { type = "string" }, min = 2, default = { "x", "y" } }, d = { type = "duration", min = 1 },
  e = { type = "map", values = { type = "table", fields = { f = { type = "boolean", default = false, doc = "two" } } } },
  g = { alternatives = { { type = "path" }, { type = "size", min = 1024, max = 2 ^ 20 } } },
  h = { type = "table", fields = { i = { type = "string", one_of = { "p", "q" } } } } } }
]])
    assert.equal(0, reference(dir).code)
    -- The last in order: nothing that ships has a priority below this.
    local section = support.read_file(dir .. "/plugins/README.md"):match("\n(## odd .-)\n\n<!%-%-")
    assert.equal([[
## odd (priority -1, once a route)

Has every kind of field.

| setting | type | default | |
|---|---|---|---|
| `b` | number > 0 | required |  |
| `a` | integer 1 to 5 | `2` | one |
| `c` | list of string, at least 2 | `{ "x", "y" }` |  |
| `d` | seconds ≥ 1 |  |  |
| `e` | name → table of `f` |  |  |
| `e.NAME.f` | boolean | `false` | two |
| `g` | path, or size 1k to 1m |  |  |
| `h` | table of `i` |  |  |
| `h.i` | `"p"`, `"q"` |  |  |
]], section .. "\n")
  end))

  it("follows the comments above functions, in both forms, and shows no others", async(function()
    local dir = tree()
    support.write_file(dir .. "/host/api_odd.c", [[
/* tg.odd: odd things. This file is short. They
 * are here. */

/* Not for plugins. */
static int inner(void);

/* tg.odd.one|two(a, b or nil) → number: adds *both*.
 *
 * More of it. */
static int odd_one(lua_State *L);

/*** Adds them.
 * @function tg.odd.three
 * @tparam number a the
 *   first
 * @tparam[opt] table|string b
 * @treturn number|nil the sum
 * @treturn string why not */
static int odd_three(lua_State *L);

/* odd:stop(): ends. */
]])
    local stale = reference(dir, "--check")
    assert.same({ 1, "host/lua/README.md is out of date; run: scripts/reference\n" }, { stale.code, stale.err })
    assert.equal(0, reference(dir).code)
    local section = support.read_file(dir .. "/host/lua/README.md"):match("\n(### tg%.odd\n.-)\n### ")
    assert.equal([[
### tg.odd

Odd things. They are here.

- `tg.odd.one(a, b or nil)` `tg.odd.two(a, b or nil)` → number: adds \*both\*.

  More of it.
- `tg.odd.three(a, [b])`: Adds them.
  - `a`: number, the first
  - `b`: table or string
  - returns number or nil, the sum
  - returns string, why not
- `odd:stop()`: ends.
]], section)
  end))

  it("leaves what people wrote as it is", async(function()
    local dir = tree()
    local path = dir .. "/plugins/README.md"
    edit(path, "# Plugins that ship", "# Plugins\n\nMine.")
    edit(path, BEGIN, BEGIN .. "not mine\n")
    support.write_file(path, support.read_file(path) .. "\nMine too.\n")
    assert.equal(0, reference(dir).code)
    local text = support.read_file(path)
    local expected = support.read_file("plugins/README.md"):gsub("# Plugins that ship", "# Plugins\n\nMine.")
    assert.equal(expected .. "\nMine too.\n", text)
  end))

  it("refuses a document without its marks, and arguments that it does not know", async(function()
    local dir = tree()
    edit(dir .. "/plugins/README.md", BEGIN, "")
    local res = reference(dir)
    assert.equal(1, res.code)
    assert.matches("plugins/README.md has no lines <!-- scripts/reference writes from here --> and <!-- to here -->",
      res.err, 1, true)
    assert.equal(2, reference(".", "--chek", "x").code)
    assert.equal(2, reference(".", "--chek").code)
  end))
end)
