-- What the specs of real clients share: a gateway with a route for each LLM API, and node scripts. A script is the
-- body of an async function in a frame; the value that it returns is printed as JSON and comes back as a table.
local assert = require "luassert"
local support = require "spec.support"

local M = { secret = "sk-test", answer = "Hello, world!" }

-- Around every script. `failure` shows what a client raised.
local FRAME = [[
const failure = (err) => ({ name: err.name === 'Error' ? err.constructor.name : err.name, status: err.status ?? err.statusCode,
  code: err.code ?? undefined, message: err.message });
const hash = (text) => require('crypto').createHash('sha256').update(text).digest('hex');
const big = 'All work and no play. Ünïcödé "quoted"\n'.repeat(30000).slice(0, 1 << 20);
const heard = () => process.env.HEARD && fetch(process.env.HEARD).then((res) => res.text());
const parallel = (n, one) => Promise.all(Array.from({ length: n }, (_, i) => one(i + 1)));
%FRAME%
(async () => { %SCRIPT% })().then((value) => console.log(JSON.stringify(value ?? null)),
  (err) => { console.error(err); process.exit(1); });
]]

--- Fails where the packages are not installed.
function M.require_package(name)
  local found = io.open(support.npm.path() .. "/" .. name .. "/package.json")
  assert(found, "the npm packages are missing: scripts/setup --tests")
  found:close()
end

--- A function (gw, script, env) that runs a script within a client's own frame.
function M.runner(frame)
  return function(gw, script, env)
    local variables = { KEY = M.secret, HOST = "http://127.0.0.1:" .. gw.port, URL = "http://127.0.0.1:" .. gw.port .. "/v1",
      LANGSMITH_TRACING = "false", DO_NOT_TRACK = "1" }
    for name, value in pairs(env or {}) do variables[name] = value end
    local source = FRAME:gsub("%%(%u+)%%", { FRAME = frame, SCRIPT = script })
    local result = support.npm.node { source = source, env = variables }
    assert(result.code == 0, result.err)
    return support.decode(result.out)
  end
end

--- A gateway before an origin (its url), with the limits of the only key.
function M.start(limits, url, quota)
  local record = { id = "k", tenant = "t", secret = M.secret }
  for name, value in pairs(limits) do record[name] = value end
  local routes = {}
  for _, path in ipairs { "chat/completions", "responses", "embeddings", "messages" } do
    routes[#routes + 1] = { name = path:match("%a+"), path = "/v1/" .. path, methods = { "POST" },
      targets = { { url = url } }, plugins = { quota = quota or {} } }
  end
  return support.gateway {
    files = { ["keys.jsonl"] = support.keys { record } },
    config = { plugins = { auth = { keys = "keys.jsonl" } }, routes = routes },
  }
end

--- The statuses of the access log once it has n lines, in order.
function M.statuses(gw, n)
  local list = {}
  for i, line in ipairs(gw:wait_access(n)) do list[i] = line.status end
  return list
end

--- An origin whose streams each tell "stream I, part 1 stream I, part 2 …", I being what the last message says.
function M.many_streams(read)
  return support.llm_origin { delay_ms = 3, each = function(_, body)
    local deltas = {}
    for i = 1, 10 do deltas[i] = ("stream %s, part %d "):format(read(body), i) end
    return { deltas = deltas }
  end }
end

--- Asserts that texts[i] is what stream i tells.
function M.assert_own_streams(texts, n)
  assert.equal(n, #texts)
  for i, text in ipairs(texts) do
    local parts = {}
    for part = 1, 10 do parts[part] = ("stream %d, part %d "):format(i, part) end
    assert.equal(table.concat(parts), text)
  end
end

--- What a client tells once it has read something, by a GET on `url`, and what waits for it: a client may drop what it has
-- received and not read yet where the connection breaks.
-- @return { url, wait() }: each wait() takes one telling
function M.ear()
  local told = 0
  local origin = support.origin(function(_, conn)
    told = told + 1
    conn:respond {}
  end)
  return { url = origin.url, wait = function()
    support.wait_for(function() return told > 0 end, "the client to have read what came")
    told = told - 1
  end }
end

--- Ways in which a stream goes wrong, by the model that a request names.
M.broken = { cut = { cut_after = 5 }, reset = { cut_after = 5, cut = "reset" }, fail = { fail_after = 5 } }

--- An origin whose streams break as the model says, once the script has called heard(); and the environment for the script.
function M.broken_streams()
  local ear = M.ear()
  return support.llm_origin { before_end = ear.wait, each = function(_, body) return M.broken[body.model] end },
    { HEARD = ear.url }
end

M.tool = { name = "get_tide", arguments = '{"port":"Brest","hours":[6,18]}' }

return M
