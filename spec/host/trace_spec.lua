-- W3C trace context: whose trace a request belongs to, what origins, plugins and the access log are told. Which texts are
-- understood is shown in spec/c/trace_test.c.
local support = require "spec.support"
local rig = require "spec.host.target_rig"
local async = support.async

local ID, PARENT = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
local GIVEN = ("00-%s-%s-01"):format(ID, PARENT)
local NONE = ("0"):rep(16)

-- Writes what each phase sees, and what attempts are told, into the log as one line of JSON.
local SEE = [[ local tg = require "tollgate"
  local M = { priority = 50 }
  local function see(ctx, phase)
    ctx.seen = ctx.seen or { attempts = {} }
    ctx.seen[phase] = ctx.trace
  end
  for _, phase in ipairs { "access", "target", "response", "body", "finish" } do
    M[phase] = function(_, ctx) see(ctx, phase) end
  end
  function M.attempt(_, ctx, target, outcome)
    see(ctx, "attempt")
    table.insert(ctx.seen.attempts, { target = target.name, span_id = outcome.span_id, error = outcome.error })
  end
  function M.log(_, ctx)
    see(ctx, "log")
    tg.log.info("seen ", ctx.id, " ", tg.json.encode(ctx.seen))
  end
  return M ]]

local function start(tracing, more)
  local origin = rig.origin "one"
  local config = { tracing = tracing, routes = { { name = "r", path = "/*", plugins = { see = {} },
    targets = { rig.target("one", origin) } } } }
  for key, value in pairs(more or {}) do config[key] = value end
  return support.gateway { config = config, files = { ["plugins/see.lua"] = SEE } }, origin
end

local function seen_by(gw, res)
  return support.decode(gw:wait_log("seen " .. res.headers["x-request-id"] .. " {[^\n]*}\n"):match "{.*}")
end

local function line_of(gw, res)
  local id = res.headers["x-request-id"]
  return support.wait_for(function()
    for _, line in ipairs(gw.access()) do
      if line.id == id then return line end
    end
  end, "the line of " .. tostring(id))
end

-- version, trace id, span id, flags
local function parts(traceparent)
  local version, id, span, flags = (traceparent or ""):match "^(%x%x)%-(%x+)%-(%x+)%-(%x%x)$"
  assert.same({ "00", 32, 16 }, { version, #(id or ""), #(span or "") })
  assert.is_nil(traceparent:find "%u")
  return id, span, flags
end

describe("tracing", function()
  it("is off by default: the fields pass untouched and nothing is made", async(function()
    local gw, origin = start(nil)
    local res = gw:request { headers = { traceparent = "any thing", tracestate = "x" } }
    assert.same({ "any thing", "x" }, { origin.requests[1].headers.traceparent, origin.requests[1].headers.tracestate })
    local seen = seen_by(gw, res)
    assert.is_nil(seen.access)
    assert.is_nil(seen.attempts[1].span_id)
    local line = line_of(gw, res)
    assert.is_nil(line.trace_id)
    assert.is_nil(line.span_id)
    gw:request {}
    assert.is_nil(origin.requests[2].headers.traceparent)
  end))

  it("takes over the client's trace and tells plugins, the log and the origin", async(function()
    local gw, origin = start { accept = true }
    local res = gw:request { headers = { { "Traceparent", GIVEN }, { "tracestate", "a=1" }, { "TraceState", "b=2" } } }
    local id, span, flags = parts(origin.requests[1].headers.traceparent)
    assert.same({ ID, "01", "a=1,b=2" }, { id, flags, origin.requests[1].headers.tracestate })
    local seen = seen_by(gw, res)
    for _, phase in ipairs { "access", "target", "attempt", "response", "body", "finish", "log" } do
      local own = seen[phase].span_id
      assert.same({ trace_id = ID, span_id = own, parent_id = PARENT, sampled = true, state = "a=1,b=2" }, seen[phase])
      assert.equal(seen.access.span_id, own)
    end
    assert.same({ { target = "one", span_id = span } }, seen.attempts)
    assert.is_true(seen.access.span_id ~= span and seen.access.span_id ~= PARENT and span ~= PARENT)
    local line = line_of(gw, res)
    assert.same({ ID, seen.access.span_id }, { line.trace_id, line.span_id })
  end))

  it("begins a trace where none came, or none that is valid; its tracestate goes with it", async(function()
    local gw, origin = start { accept = true }
    local ids = {}
    local values = { false, "ff" .. GIVEN:sub(3), GIVEN:upper(), GIVEN .. "-x", GIVEN:gsub(PARENT, NONE), "00-" .. ID }
    for i, value in ipairs(values) do
      local res = gw:request { headers = { traceparent = value or nil, tracestate = "a=1" } }
      local id, _, flags = parts(origin.requests[i].headers.traceparent)
      assert.is_nil(origin.requests[i].headers.tracestate)
      assert.equal("01", flags)
      assert.is_true(id ~= ID and not ids[id])
      ids[id] = true
      local trace = seen_by(gw, res).access
      assert.same({ trace_id = id, span_id = trace.span_id, sampled = true }, trace)
    end
  end))

  it("goes by the parent's flag, whatever its own share is", async(function()
    for share = 0, 1 do
      local gw, origin = start { accept = true, sample = share }
      for i, flag in ipairs { "00", "01" } do
        local res = gw:request { headers = { traceparent = GIVEN:sub(1, -3) .. flag } }
        assert.equal(flag, (select(3, parts(origin.requests[i].headers.traceparent))))
        assert.equal(flag == "01", seen_by(gw, res).log.sampled)
      end
      gw:request {}
      assert.equal("0" .. share, (select(3, parts(origin.requests[3].headers.traceparent))))
      gw:stop()
    end
  end))

  it("believes trusted proxies alone, or nobody", async(function()
    local function id_with(tracing, trusted)
      local gw, origin = start(tracing, { trusted_proxies = trusted })
      gw:request { headers = { traceparent = GIVEN, tracestate = "a=1" } }
      local id = parts(origin.requests[1].headers.traceparent)
      assert.equal(id == ID and "a=1" or nil, origin.requests[1].headers.tracestate)
      gw:stop()
      return id == ID
    end
    assert.is_true(id_with({}, { "127.0.0.1" }))
    assert.is_true(id_with({ accept = "trusted" }, { "127.0.0.1" }))
    assert.is_false(id_with({ accept = "trusted" }, { "10.0.0.0/8" }))
    assert.is_false(id_with({}, nil))
    assert.is_false(id_with({ accept = false }, { "127.0.0.1" }))
  end))

  it("gives each attempt a span of its own", async(function()
    local names = {} -- of the origins, in the order in which they are asked; the first one fails
    local function origin(name)
      return rig.origin(name, function(_, conn)
        names[#names + 1] = name
        if #names > 1 then return false end
        conn:respond { status = 503, body = "no" }
        return true
      end)
    end
    local origins = { a = origin "a", b = origin "b" }
    local gw = start({ accept = true }, { routes = { { name = "r", path = "/*", plugins = { see = {} },
      retry = { attempts = 2, on = { 503 } },
      targets = { rig.target("a", origins.a), rig.target("b", origins.b) } } } })
    local res = gw:request { headers = { traceparent = GIVEN } }
    assert.same({ 200, 2, names[2] }, { res.status, #names, res.body })
    local id1, span1 = parts(origins[names[1]].requests[1].headers.traceparent)
    local id2, span2 = parts(origins[names[2]].requests[1].headers.traceparent)
    assert.same({ ID, ID }, { id1, id2 })
    local seen = seen_by(gw, res)
    assert.same({ { target = names[1], span_id = span1 }, { target = names[2], span_id = span2 } }, seen.attempts)
    assert.is_true(span1 ~= span2 and span1 ~= seen.log.span_id and span2 ~= seen.log.span_id)
  end))

  it("has fields in a format of the log, for requests that no route takes and bad ones too", async(function()
    local gw = start({ accept = true }, { log = { access = { format = "at|${path}|${trace_id}|${span_id}|" } },
      routes = { { name = "r", path = "/there", plugins = { see = {} } } } })
    local function fields(path)
      local id, span
      support.wait_for(function()
        id, span = gw.process:out():match("at|" .. path .. "|(%x+)|(%x+)|\n")
        return id
      end, "the line of " .. path)
      assert.same({ 32, 16 }, { #id, #span })
      return id
    end
    gw:request { path = "/nowhere", headers = { traceparent = GIVEN } }
    assert.equal(ID, fields "/nowhere")
    local c = gw:connect()
    c:write(("GET /bad HTTP/1.1\r\nTraceparent: %s\r\n\r\n"):format(GIVEN)) -- no Host
    assert.is_true(fields "/bad" ~= ID)
    c:close()
  end))

  it("is checked", async(function()
    local function check(text)
      local dir = support.tmpdir()
      support.write_file(dir .. "/gateway.lua",
        ('return { tracing = %s, routes = { { name = "a", path = "/" } } }'):format(text))
      local res = support.tollgate { "check", "-c", dir .. "/gateway.lua" }
      return res.code, res.out .. res.err
    end
    assert.equal(0, (check "{}"))
    assert.equal(0, (check '{ accept = "trusted", sample = 0.01 }'))
    for text, path in pairs { ['{ accept = "all" }'] = "tracing.accept", ["{ sample = 1.1 }"] = "tracing.sample",
      ["{ sample = -1 }"] = "tracing.sample", ["{ samples = 1 }"] = "tracing.samples", ["true"] = "tracing" } do
      local code, out = check(text)
      assert.is_true(code ~= 0, text)
      assert.is_truthy(out:find(path, 1, true), out)
    end
  end))
end)
