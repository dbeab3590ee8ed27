-- Sends the cases of spec/host/conformance_*.lua to nginx and HAProxy as well, and prints where they do something else than the
-- gateway, as a table in Markdown. Run by scripts/conformance; no test: what others do is theirs.
package.path = "./?.lua;./?/init.lua;" .. package.path
local support = require "spec.support"
local answers = require "spec.host.conformance_answers"
local requests = require "spec.host.conformance_requests"

local WAIT_MS = 400 -- for an answer; what has none by then is told as "waits"
local SETTLE_MS = 20

local NGINX = [[
daemon off; worker_processes 1; pid %DIR/nginx.pid; error_log %DIR/nginx.err; master_process off;
events { worker_connections 256; }
http { access_log off; client_body_temp_path %DIR/body; proxy_temp_path %DIR/proxy; fastcgi_temp_path %DIR/f;
  uwsgi_temp_path %DIR/u; scgi_temp_path %DIR/s;
  server { listen 127.0.0.1:%PORT; location / { proxy_pass http://127.0.0.1:%ORIGIN; proxy_http_version 1.1;
    proxy_set_header Connection ""; proxy_next_upstream off; proxy_read_timeout 2s; } } }
]]
local HAPROXY = [[
global
  nbthread 1
defaults
  mode http
  timeout client 5s
  timeout server 2s
  timeout connect 2s
  timeout http-request 5s
frontend f
  bind 127.0.0.1:%PORT
  default_backend b
backend b
  server s 127.0.0.1:%ORIGIN
]]

local function start(program, text, args, origin)
  local dir, port = support.tmpdir(), support.free_port()
  local values = { DIR = dir, PORT = port, ORIGIN = origin.port }
  support.write_file(dir .. "/config", (text:gsub("%%(%u+)", values)))
  for i, arg in ipairs(args) do args[i] = arg:gsub("%%(%u+)", values) end
  support.start { cmd = program, args = args, cwd = dir }
  support.wait_for(function()
    local ok, c = pcall(support.connect, port)
    if ok then c:close() end
    return ok
  end, program)
  return port
end

-- What became of the bytes: "400", "passes", "closes", "waits"; and what reached the origin.
local function ask(port, origin, bytes, method, more)
  local c = support.connect(port, WAIT_MS)
  c:send(bytes)
  local res, err = c:read_response { method = method }
  for _ = 1, more do c:read_response() end
  c:close()
  support.sleep(SETTLE_MS) -- nothing of it is to be taken for the next case's
  if #origin.requests > 0 and (not res or res.status == 200) then return "passes", origin.requests end
  return res and tostring(res.status) or (err == "timeout" and "waits" or "closes"), origin.requests
end

local function shown(text) return "`" .. text:gsub("[^\32-\126]", function(c) return ("\\x%02x"):format(c:byte()) end) .. "`" end

-- The form in which a request went on, where it is not ours.
local function other_form(e, list)
  local req, parts = list[1], {}
  if req.method ~= (e.method or "GET") then parts[#parts + 1] = "as " .. shown(req.method) end
  if req.target ~= e.target then parts[#parts + 1] = "as " .. shown(req.target) end
  if (req.body or "") ~= (e.body or "") then parts[#parts + 1] = "body " .. shown((req.body or ""):sub(1, 20)) end
  if #list > 1 + #(e.more or {}) then parts[#parts + 1] = #list .. " requests" end
  return #parts > 0 and "passes, " .. table.concat(parts, ", ") or "passes"
end

local function ours(e)
  if type(e) == "number" then return tostring(e) end
  return e.none and tostring(e.status) or "passes"
end

local function of_request(port, origin, case)
  local expected = case[4]
  local got, list = ask(port, origin, case[3], case[3]:match "^%u+",
    type(expected) == "table" and expected.more and #expected.more or 0)
  if got == "passes" and type(expected) == "table" and not expected.none then got = other_form(expected, list) end
  return got
end

local function of_answer(port, origin, case)
  local _, _, bytes, _, how = unpack(case)
  origin.handler = function(_, conn)
    conn:write(bytes)
    if not how.stay then return conn:close() end
  end
  local method = how.method or "GET"
  local c = support.connect(port, 3000)
  c:send(("%s / HTTP/%s\r\nHost: a.test\r\n\r\n"):format(method, how.version or "1.1"))
  local res, err, part = c:read_response { method = method }
  c:close()
  local got = res or part
  if not got then return err == "timeout" and "waits" or "closes" end
  if got.status == 502 then return "502" end
  return ("passes%s"):format(not got.complete and ", cut" or "")
end

local function ours_answer(e)
  if e == 502 then return "502" end
  return "passes" .. (e.cut and ", cut" or "")
end

support.run(function()
  local origin = support.origin(function(_, conn) conn:respond { body = "hello" } end)
  local hello = origin.handler
  local peers = {
    { "nginx", start("nginx", NGINX, { "-c", "%DIR/config", "-p", "%DIR" }, origin) },
    { "HAProxy", start("haproxy", HAPROXY, { "-f", "%DIR/config" }, origin) },
  }
  local function compare(title, cases, of, mine)
    local same, rows = 0, {}
    for _, case in ipairs(cases) do
      local expected, row, differs = mine(case[4]), {}, false
      for i, peer in ipairs(peers) do
        origin.handler, origin.requests = hello, {}
        local ok, got = pcall(of, peer[2], origin, case)
        row[i] = ok and got or "bytes that are no HTTP"
        differs = differs or row[i] ~= expected
      end
      if differs then
        rows[#rows + 1] = ("| %s | %s | %s | %s |"):format(case[1], case[2]:gsub("|", "\\|"), expected, table.concat(row, " | "))
      else
        same = same + 1
      end
    end
    print(("\n### %s\n\n%d of %d are alike.\n\n| section | case | Tollgate | nginx | HAProxy |\n|---|---|---|---|---|"):format(
      title, same, #cases))
    print(table.concat(rows, "\n"))
  end
  compare("Requests", requests, of_request, ours)
  compare("Answers", answers, of_answer, ours_answer)
end, 300000)
