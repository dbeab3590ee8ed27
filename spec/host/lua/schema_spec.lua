-- schema: every kind with its bounds, paths of faults, names that are near, defaults, masking, and malformed schemas.

local root = debug.getinfo(1, "S").source:match("^@(.-)spec/host/lua/") or ""
table.insert(package.loaders, 2, function(name)
  local file = name:match("^tollgate%.([%w_]+)$")
  return file and loadfile(root .. "host/lua/" .. file .. ".lua")
end)

local schema = require "tollgate.schema"

local function faults_of(fields, value, options)
  local out, faults = schema.validate(fields, value, options)
  local lines = {}
  for i, fault in ipairs(faults) do lines[i] = schema.format(fault) end
  assert.equal(#faults > 0, out == nil)
  return lines
end

-- The one fault of a value under a field named x, without its path; nil where there is none.
local function fault(field, value)
  local lines = faults_of({ x = field }, { x = value })
  assert.is_true(#lines <= 1, table.concat(lines, "; "))
  return lines[1] and lines[1]:gsub("^x: ", "") or nil
end

local function value_of(field, value)
  return assert(schema.validate({ x = field }, { x = value })).x
end

describe("schema.validate", function()
  describe("kinds", function()
    it("takes strings within length, pattern and choice", function()
      assert.is_nil(fault({ type = "string" }, ""))
      assert.is_nil(fault({ type = "string", min = 2, max = 3 }, "abc"))
      assert.equal("must be at least 2 bytes long", fault({ type = "string", min = 2 }, "a"))
      assert.equal("must be at most 3 bytes long", fault({ type = "string", max = 3 }, "abcd"))
      assert.equal("must not be empty", fault({ type = "string", min = 1 }, ""))
      assert.equal("does not match the pattern ^%d+$", fault({ type = "string", pattern = "^%d+$" }, "a"))
      assert.equal("must be digits", fault({ type = "string", pattern = "^%d+$", hint = "must be digits" }, "a"))
      assert.equal("must be a string, got a number", fault({ type = "string" }, 1))
    end)

    it("names the choices and the nearest one", function()
      local field = { type = "string", one_of = { "refuse", "warn" } }
      assert.is_nil(fault(field, "warn"))
      assert.equal('must be one of "refuse", "warn", got "refuze" (did you mean "refuse"?)', fault(field, "refuze"))
      assert.equal('must be one of "refuse", "warn", got "x"', fault(field, "x"))
      assert.equal("must be one of 1, 2", fault({ type = "integer", one_of = { 1, 2 } }, 3))
    end)

    it("never repeats a wrong secret", function()
      local line = fault({ type = "string", secret = true, one_of = { "a", "b" } }, "hunter2")
      assert.is_nil(line:find("hunter2", 1, true))
    end)

    it("takes numbers within bounds", function()
      assert.is_nil(fault({ type = "number", min = 0, max = 1 }, 0.5))
      assert.equal("must be at least 0", fault({ type = "number", min = 0 }, -1))
      assert.equal("must be at most 1.5", fault({ type = "number", max = 1.5 }, 2))
      assert.equal("must be more than 0", fault({ type = "number", exclusive_min = 0 }, 0))
      assert.is_nil(fault({ type = "number", exclusive_min = 0 }, 1e-9))
      assert.equal("must be a finite number", fault({ type = "number" }, 0 / 0))
      assert.equal("must be a finite number", fault({ type = "number" }, math.huge))
      assert.equal("must be a number, got a string", fault({ type = "number" }, "1"))
    end)

    it("takes integers below 2^53", function()
      assert.is_nil(fault({ type = "integer" }, 2 ^ 53 - 1))
      for _, bad in ipairs { 1.5, 2 ^ 53, -2 ^ 53, math.huge, 0 / 0 } do
        assert.equal("must be an integer below 2^53", fault({ type = "integer" }, bad))
      end
    end)

    it("takes booleans", function()
      assert.is_false(value_of({ type = "boolean" }, false))
      assert.equal("must be true or false, got a string", fault({ type = "boolean" }, "true"))
    end)

    it("takes durations in seconds, with fractions", function()
      assert.equal(0.25, value_of({ type = "duration" }, 0.25))
      for _, bad in ipairs { 0, -1, math.huge, 0 / 0 } do
        assert.equal("must be a number of seconds above 0", fault({ type = "duration" }, bad))
      end
      assert.equal("must be at most 60 seconds", fault({ type = "duration", max = 60 }, 61))
      assert.equal("must be a number of seconds, got a string", fault({ type = "duration" }, "5s"))
    end)

    it("takes sizes as integers or with a unit", function()
      local sizes = { [0] = 0, [100] = 100, ["7"] = 7, ["64k"] = 65536, ["10M"] = 10485760, ["1g"] = 1073741824 }
      for written, bytes in pairs(sizes) do assert.equal(bytes, value_of({ type = "size" }, written)) end
      for _, bad in ipairs { "64kb", "k", "", "1.5k", "-1", 1.5, -1, 0 / 0, 2 ^ 53, "99999999g" } do
        assert.truthy(fault({ type = "size" }, bad), tostring(bad))
      end
      assert.equal("must be at most 65536 bytes", fault({ type = "size", max = 65536 }, "65k"))
    end)

    it("takes lists", function()
      local field = { type = "list", of = { type = "integer" }, min = 1, max = 2 }
      assert.same({ 1, 2 }, value_of(field, { 1, 2 }))
      assert.equal("must have at least 1 item", fault(field, {}))
      assert.equal("must have at most 2 items, has 3", fault(field, { 1, 2, 3 }))
      assert.equal('must be a list, but has the key "a"', fault(field, { a = 1 }))
      assert.equal("must be a list without holes: item 2 is missing", fault(field, { 1, nil, 3 }))
      assert.same({ "x[2]: must be an integer, got a string" }, faults_of({ x = field }, { x = { 1, "b" } }))
    end)

    it("takes maps", function()
      local field = { type = "map", keys = "^%l+$", values = { type = "integer" } }
      assert.same({ a = 1 }, value_of(field, { a = 1 }))
      assert.same({
        "x[1]: must have a name, not a number for a key",
        "x.A: the name does not match the pattern ^%l+$",
        "x.b: must be an integer, got a boolean",
      }, faults_of({ x = field }, { x = { A = 1, b = true, 7 } }))
    end)

    it("takes any plain data, copied", function()
      local given = { a = { 1, { b = true } } }
      local out = value_of({ type = "any" }, given)
      assert.same(given, out)
      assert.are_not.equal(given.a[2], out.a[2])
    end)

    it("refuses functions, odd keys and cycles in any", function()
      local cycle = {}
      cycle.self = cycle
      assert.same({ "x.f: must be plain data, got a function" },
        faults_of({ x = { type = "any" } }, { x = { f = print } }))
      assert.truthy(faults_of({ x = { type = "any" } }, { x = { [true] = 1 } })[1]:find("key", 1, true))
      assert.truthy(faults_of({ x = { type = "any" } }, { x = cycle })[1]:find("nested more than 32 deep", 1, true))
    end)

    it("resolves paths against a directory", function()
      local fields = { x = { type = "path" } }
      local function resolved(path, dir) return schema.validate(fields, { x = path }, { dir = dir }).x end
      assert.equal("/etc/tg/keys", resolved("keys", "/etc/tg"))
      assert.equal("/keys", resolved("keys", "/"))
      assert.equal("keys", resolved("keys", "."))
      assert.equal("keys", resolved("keys"))
      assert.equal("/abs", resolved("/abs", "/etc"))
      assert.equal("must not be empty", fault({ type = "path" }, ""))
      assert.equal("must not hold a zero byte", fault({ type = "path" }, "a\0b"))
    end)
  end)

  describe("alternatives", function()
    local field = { alternatives = {
      { type = "string", min = 3 },
      { type = "list", of = { type = "string", min = 3 } },
      { type = "table", fields = {
        url = { type = "string", required = true }, n = { type = "integer", default = 1 },
      } },
      { type = "boolean", one_of = { false } },
    } }

    it("takes each of them", function()
      assert.equal("abc", value_of(field, "abc"))
      assert.same({ "abc" }, value_of(field, { "abc" }))
      assert.same({ url = "u", n = 1 }, value_of(field, { url = "u" }))
      assert.is_false(value_of(field, false))
    end)

    it("tells the faults of the one that was meant", function()
      assert.same({ "x: must be at least 3 bytes long" }, faults_of({ x = field }, { x = "a" }))
      assert.same({ "x[1]: must be at least 3 bytes long" }, faults_of({ x = field }, { x = { "a" } }))
      assert.same({ "x.urll: unknown key (did you mean url?)", "x.url: is required" },
        faults_of({ x = field }, { x = { urll = "u" } }))
      assert.same({ "x: must be false" }, faults_of({ x = field }, { x = true }))
      assert.same({ "x: must be a string or a list or a table or false, got a number" },
        faults_of({ x = field }, { x = 5 }))
    end)
  end)

  describe("a table with a first field", function()
    local entry = { type = "table", first = "a", fields = { a = { type = "string", required = true }, n = { type = "number" } } }
    local fields = { x = { alternatives = { { type = "string" }, entry, { type = "list", of = { type = "string" } } } } }

    it("takes it with and without its name, and leaves lists alone", function()
      assert.same({ x = { a = "v", n = 1 } }, schema.validate(fields, { x = { "v", n = 1 } }))
      assert.same({ x = { a = "v" } }, schema.validate(fields, { x = { a = "v" } }))
      assert.same({ x = { "v" } }, schema.validate(fields, { x = { "v" } }))
      assert.same({ x = {} }, schema.validate(fields, { x = {} }))
    end)

    it("must name a field that there is", function()
      local _, faults = schema.check { x = { type = "table", first = "b", fields = { a = { type = "string" } } } }
      assert.same({ "x.first: names none of its fields" }, { schema.format(faults[1]) })
    end)
  end)

  describe("tables", function()
    local fields = {
      name = { type = "string", required = true },
      log = { type = "table", default = {}, fields = { level = { type = "string", default = "info" } } },
      bare = { type = "table", fields = { n = { type = "integer", default = 1 } } },
      tags = { type = "list", of = { type = "string" }, default = { "a" } },
    }

    it("fills in defaults, nested ones where the table has one", function()
      assert.same({ name = "n", log = { level = "info" }, tags = { "a" } }, schema.validate(fields, { name = "n" }))
      assert.same({ n = 1 }, schema.validate(fields, { name = "n", bare = {} }).bare)
    end)

    it("neither changes nor shares what it was given, nor its defaults", function()
      local given = { name = "n", bare = {} }
      local out = schema.validate(fields, given)
      assert.same({ name = "n", bare = {} }, given)
      out.tags[1], out.log.level = "changed", "changed"
      local again = schema.validate(fields, given)
      assert.equal("a", again.tags[1])
      assert.equal("info", again.log.level)
      assert.same({}, fields.log.default)
    end)

    it("reports every fault with its path", function()
      assert.same({
        "conf.lgo: unknown key (did you mean log?)",
        "conf.zzz: unknown key",
        "conf.bare.m: unknown key (did you mean n?)",
        "conf.log.level: must be a string, got a number",
        "conf.name: is required",
        "conf.tags[2]: must be a string, got a boolean",
      }, faults_of(fields, {
        lgo = 1, zzz = 1, bare = { m = 1 }, log = { level = 7 }, tags = { "a", true },
      }, { path = "conf" }))
    end)

    it("says so where a table is none", function()
      assert.same({ "must be a table, got a string" }, faults_of(fields, "x"))
      assert.same({ "p: must be a table, got nothing" }, faults_of(fields, nil, { path = "p" }))
    end)

    it("quotes keys that are no names in paths", function()
      assert.same({ 'a["x-y"]: unknown key', "a[1]: unknown key", 'a["end"]: unknown key' },
        (function()
          local lines = faults_of({}, { ["x-y"] = 1, "v", ["end"] = 1 }, { path = "a" })
          return { lines[3], lines[1], lines[2] }
        end)())
    end)
  end)

  it("runs a field's check on a value that passed otherwise", function()
    local field = { type = "integer", check = function(n, path)
      if n == 1 then return "not one" end
      if n == 2 then return { { message = "not two" }, { path = path .. ".deep", message = "nor that" } } end
    end }
    assert.is_nil(fault(field, 3))
    assert.equal("not one", fault(field, 1))
    assert.same({ "x: not two", "x.deep: nor that" }, faults_of({ x = field }, { x = 2 }))
    assert.equal("must be an integer, got a string", fault(field, "1"))
  end)
end)

describe("schema.nearest", function()
  local names = { "burst", "rps", "monthly_tokens", "concurrency" }

  it("finds typing errors", function()
    for wrong, right in pairs {
      brust = "burst", Burst = "burst", burts = "burst", rsp = "rps", rp = "rps", monthly_token = "monthly_tokens",
      monthlyTokens = "monthly_tokens", concurency = "concurrency",
    } do
      assert.equal(right, schema.nearest(wrong, names), wrong)
    end
  end)

  it("finds nothing where nothing is near", function()
    for _, name in ipairs { "zebra", "x", "", ("b"):rep(1000) } do assert.is_nil(schema.nearest(name, names)) end
    assert.is_nil(schema.nearest(7, names))
  end)
end)

describe("schema.check", function()
  local function check(fields)
    local ok, faults = schema.check(fields, "s")
    local lines = {}
    for i, one in ipairs(faults) do lines[i] = schema.format(one) end
    assert.equal(#faults == 0, ok == true)
    return lines
  end

  it("takes a schema that is well formed", function()
    assert.same({}, check {
      a = { type = "string", min = 1, default = "x", doc = "a" },
      b = { alternatives = { { type = "string" }, { type = "boolean", one_of = { false } } }, default = false },
      c = { type = "map", keys = "^%w+$", values = { type = "table", fields = {
        d = { type = "size", default = "1k" },
      } } },
    })
  end)

  it("names what is wrong with one that is not", function()
    local loop = { type = "list" }
    loop.of = loop
    for _, case in ipairs {
      { { a = { typ = "string" } }, "s.a: has no type" },
      { { a = "string" }, 's.a: must be a field such as { type = "string" }, got a string' },
      { { a = { type = "string", defualt = "x" } },
        "s.a.defualt: unknown attribute of a field of type string (did you mean default?)" },
      { { a = { type = "string", min = "1" } }, "s.a.min: must be a number, got a string" },
      { { a = { type = "string", required = true, default = "x" } }, "s.a: has both required and default" },
      { { a = { type = "integer", min = 2, max = 1 } }, "s.a: min 2 is above max 1" },
      { { a = { type = "integer", min = 2, default = 1 } }, "s.a.default: must be at least 2" },
      { { a = { type = "string", one_of = {} } }, "s.a.one_of: must be a list of values" },
      { { a = { type = "list" } }, "s.a: a field of type list needs of" },
      { { a = { type = "map" } }, "s.a: a field of type map needs values" },
      { { a = { type = "table" } }, "s.a: a field of type table needs fields" },
      { { a = { type = "list", of = { type = "list" } } }, "s.a.of: a field of type list needs of" },
      { { a = { alternatives = {} } }, "s.a.alternatives: must be a list of fields" },
      { { a = { alternatives = { { type = "string" } }, type = "string" } },
        "s.a.type: unknown attribute of a field with alternatives" },
      { { a = { type = "string", secret = "yes" } },
        "s.a.secret: must be true, or a function from the value to what is printed" },
      { { { type = "string" } }, "s[1]: the name of a field must be a string" },
    } do
      assert.same({ case[2] }, check(case[1]))
    end
    assert.truthy(check({ a = { type = "strin" } })[1]:find('unknown type "strin" (did you mean string?)', 1, true))
    assert.truthy(check({ a = { type = "string", pattern = "[" } })[1]:find("is no Lua pattern", 1, true))
    assert.truthy(check({ a = loop })[1]:find("contains itself", 1, true))
    assert.same({ "s: must be a table of fields, got a string" }, check("x"))
  end)
end)

describe("schema.print", function()
  it("masks secrets wherever they stand", function()
    local fields = {
      token = { type = "string", secret = true },
      url = { type = "string", secret = function(url) return (url:gsub("//.*@", "//***@")) end },
      headers = { type = "map", values = { secret = true, alternatives = {
        { type = "string" }, { type = "boolean", one_of = { false } } } } },
      list = { type = "list", of = { type = "table", fields = { key = { type = "string", secret = true } } } },
      either = { alternatives = { { type = "string", secret = true }, { type = "list", of = { type = "string" } } } },
      box = { type = "any", secret = true },
      open = { type = "any" },
    }
    local value = {
      token = "t", url = "redis://u:p@h", headers = { a = "v", b = false }, list = { { key = "k" } }, either = "e",
      box = { "inner" }, open = { a = 1 },
    }
    assert.same({
      token = "***", url = "redis://***@h", headers = { a = "***", b = false }, list = { { key = "***" } },
      either = "***", box = "***", open = { a = 1 },
    }, schema.mask(fields, value))
    assert.equal("t", value.token)
    assert.equal('{\n  token = "***",\n}', schema.print({ token = fields.token }, { token = "t" }))
  end)

  it("renders Lua that reads back the same, keys sorted", function()
    local value = {
      b = { 1, 2.5, { true } }, a = "line\nquote\"\\\0001\127é", ["x-y"] = {}, ["end"] = 0.1, c = 1e300, d = -7,
      [3] = 1,
    }
    local source = schema.render(value)
    assert.same(value, assert(loadstring("return " .. source))())
    assert.equal(source, schema.render(value))
    assert.truthy(source:find("  a = .-\n  b = .-\n  c = "))
  end)
end)
