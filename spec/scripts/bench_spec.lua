-- scripts/bench without its measuring: the command line, the table, what --check says, and that every server that
-- is installed accepts the configuration that it would be measured with.
local support = require "spec.support"
local gateway = require "spec.support.gateway"
local async = support.async

local ROWS = [=[[
  {"group": "plain", "name": "CPU a request", "value": 17.0, "unit": "us", "against": 20.0, "peer": "nginx", "goal": 0.85},
  {"group": "plain", "name": "CPU a request", "value": 17.0, "unit": "us", "against": 16.0, "peer": "haproxy", "goal": null},
  {"group": "quota", "name": "Redis's CPU a request", "value": 12.5, "unit": "us", "against": null, "peer": "", "goal": 10},
  {"group": "latency", "name": "p50 added", "value": 1300.0, "unit": "us", "against": 1000.0, "peer": "nginx", "goal": 1.3}
]]=]

-- A row of the group "load", which is what the chart shows.
local function point(series, connections, us)
  return ('{"group": "load", "name": "%s at %d connections", "value": %g, "unit": "us"}')
    :format(series, connections, us)
end

local function bench(...)
  return support.exec { cmd = "scripts/bench", args = { ... }, timeout = 60000 }
end

local function file(name, text)
  local path = support.tmpdir() .. "/" .. name
  support.write_file(path, text)
  return path
end

local function rows() return file("rows.json", ROWS) end

local function check(agreed)
  return bench("--rows", rows(), "--check", "--agreed", file("agreed", agreed))
end

describe("scripts/bench", function()
  it("tells its options", async(function()
    local result = bench "--help"
    assert.equal(0, result.code, result.err)
    for _, option in ipairs { "--quick", "--only", "--check", "--agree", "--rows", "--configs" } do
      assert.truthy(result.out:find(option, 1, true), option)
    end
  end))

  it("refuses what makes no sense with exit code 2, and says what would", async(function()
    local faults = {
      { "invalid choice: 'nothing'", "--only", "nothing" },
      { "must be a whole number above 0, not 0", "--rounds", "0" },
      { "must be a whole number above 0, not -1", "--seconds=-1" },
      { "unrecognized arguments: more", "more" },
      { "not allowed with argument", "--agree", "--check" },
      { "no program: /nonexistent", "--bin", "/nonexistent", "--configs" },
      { "No such file or directory", "--rows", "/nonexistent" },
    }
    for _, fault in ipairs(faults) do
      local result = bench(unpack(fault, 2))
      assert.equal(2, result.code)
      assert.truthy(result.err:find(fault[1], 1, true), result.err)
    end
  end))

  it("makes a table of what was measured", async(function()
    local result = bench("--rows", rows())
    assert.equal(0, result.code, result.err)
    local lines = {}
    for line in result.out:gmatch "[^\n]+" do lines[#lines + 1] = line:gsub("%s%s+", " | ") end
    assert.same({
      "what | value | against | ratio | goal",
      "plain: CPU a request | 17.0 us | nginx 20.0 | 0.85 | ≤ 0.85 | met",
      "plain: CPU a request | 17.0 us | haproxy 16.0 | 1.06",
      "quota: Redis's CPU a request | 12.5 us | ≤ 10.0 us | not met",
      "latency: p50 added | 1300 us | nginx 1000 | 1.30 | ≤ 1.30 | met",
    }, lines)
  end))

  it("writes ratios of CPU time as agreed, keeps those of other groups, and finds none of them regressed", async(function()
    local agreed = file("agreed", "plain.CPU a request/nginx 0.1\nplain.gone/nginx 1\ntls.CPU a megabyte/nginx 0.88\n")
    local result = bench("--rows", rows(), "--agree", "--agreed", agreed)
    assert.equal(0, result.code, result.err)
    assert.equal("tls.CPU a megabyte/nginx 0.880\nplain.CPU a request/nginx 0.850\nplain.CPU a request/haproxy 1.062\n",
      (support.read_file(agreed):gsub("^#[^\n]*\n", "")))
    result = bench("--rows", rows(), "--check", "--agreed", agreed)
    assert.equal(0, result.code, result.err)
    assert.truthy(result.out:find("0 of 3 agreed ratios regressed", 1, true), result.out)
  end))

  it("refuses a file of rows that holds others", async(function()
    for _, text in ipairs { '[{"a": 1}]', "[1]", "{}[" } do
      local result = bench("--rows", file("rows.json", text))
      assert.equal(2, result.code, result.err)
    end
  end))

  it("passes a ratio that is up to 15 % more than agreed, and reports one beyond", async(function()
    local within = check "plain.CPU a request/nginx 0.74\n"
    assert.equal(0, within.code, within.out .. within.err)
    local beyond = check "# why\nplain.CPU a request/nginx 0.73 # here\nplain.CPU a request/haproxy 1.00\n"
    assert.equal(1, beyond.code)
    assert.truthy(beyond.out:find("regressed: plain.CPU a request/nginx: 0.85, agreed 0.73: 16 % more", 1, true), beyond.out)
    assert.truthy(beyond.out:find("1 of 2 agreed ratios regressed", 1, true), beyond.out)
  end))

  it("tells of an agreed ratio that a group which ran does not have", async(function()
    local result = check "plain.something/nginx 0.5\nstreams.something/nginx 0.5\n"
    assert.equal(0, result.code)
    assert.truthy(result.err:find("plain.something/nginx is agreed on and was not measured", 1, true), result.err)
    assert.falsy(result.err:find("streams.something", 1, true), result.err)
  end))

  it("refuses a file of agreed ratios that has a fault, with its line", async(function()
    for _, line in ipairs { "plain.x", "plain.x 0", "plain.x -1", "plain.x nan" } do
      local result = check("# first\n" .. line .. "\n")
      assert.equal(2, result.code, line)
      assert.truthy(result.err:find("line 2: not a key and a ratio", 1, true), result.err)
    end
  end))

  it("has ratios agreed that it can read", async(function()
    local result = bench("--rows", rows(), "--check")
    assert.truthy(result.code < 2, result.err)
  end))

  it("draws cost against load as SVG, with a name at the end of each line and colours for light and dark", async(function()
    local dir = support.tmpdir()
    support.write_file(dir .. "/rows", "[" .. table.concat({ point("nginx", 1, 90), point("nginx", 64, 15),
      point("a <b> & c", 1, 200), point("a <b> & c", 64, 16) }, ",") .. "]")
    local result = bench("--rows", dir .. "/rows", "--chart", dir .. "/chart.svg")
    assert.equal(0, result.code, result.err)
    local parsed = support.exec { cmd = "python3", args = { "-c", [[
import sys, xml.dom.minidom as dom
root = dom.parse(sys.argv[1]).documentElement
words = [t.firstChild.data for t in root.getElementsByTagName("text")]
places = [float(t.getAttribute("y")) for t in root.getElementsByTagName("text") if t.getAttribute("style")]
print(root.tagName, len(root.getElementsByTagName("path")), "a <b> & c" in words, "nginx" in words, "64" in words,
      abs(places[0] - places[1]) >= 16, "prefers-color-scheme: dark" in root.toxml())
]], dir .. "/chart.svg" }, timeout = 60000 }
    assert.equal("svg 2 True True True True True\n", parsed.out, parsed.err)
  end))

  it("draws nothing where the load was not measured", async(function()
    local result = bench("--rows", rows(), "--chart", support.tmpdir() .. "/chart.svg")
    assert.equal(2, result.code)
    assert.truthy(result.err:find("nothing to draw", 1, true), result.err)
  end))

  it("has helpers in C that compile without a warning", async(function()
    local dir = support.tmpdir()
    for _, name in ipairs { "events", "rotate", "count" } do
      local result = support.exec { cmd = "cc", args = { "-O2", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-fPIC", "-c",
        "-o", dir .. "/" .. name .. ".o", "scripts/bench.d/" .. name .. ".c" }, timeout = 60000 }
      assert.equal(0, result.code, result.err)
    end
  end))

  it("gives every server that is installed a configuration that it accepts", async(function()
    local result = bench("--configs", "--bin", gateway.binary())
    assert.equal(0, result.code, result.out .. result.err)
    assert.truthy(result.out:find("tollgate: accepted", 1, true), result.out)
  end))
end)
