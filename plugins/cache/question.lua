-- What makes two requests the same question: everything that can change the answer, framed so that no two different
-- questions make one text. Plain functions, without I/O.

local M = {}

--- A list of values as one text: each with its length before it, nil told from "".
-- @tparam table list of strings, with holes
-- @tparam integer n how many
-- @treturn string
function M.frame(list, n)
  local out = {}
  for i = 1, n do
    local value = list[i]
    out[i] = value == nil and "-," or ("%d:%s,"):format(#value, value)
  end
  return table.concat(out)
end

-- Header fields that say on whose behalf a client asks the origin; those that the gateway itself took are gone by now.
M.CREDENTIALS = { "authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie" }

-- Header fields that change answers of LLM APIs.
M.VARIES = { "anthropic-version", "anthropic-beta", "openai-beta", "openai-organization", "openai-project" }

--- The key of a question, without its namespace.
-- @tparam table q version, route, api, method, host (or nil), path, query (or nil), body (canonical, or nil), kind (of
--   namespace), owner
-- @tparam function header (name) gives a request's field, or nil
-- @tparam {string,...} names further header fields that count
-- @tparam function sha256 (text) in hexadecimal
-- @treturn string 64 hexadecimal digits
function M.hash(q, header, names, sha256)
  local list, n = { "1", q.version, q.route, q.api, q.method, q.host, q.path, q.query, q.body and sha256(q.body), q.kind,
    q.owner }, 11
  for _, group in ipairs { M.CREDENTIALS, M.VARIES, names } do
    list[n + 1] = tostring(#group)
    n = n + 1
    for _, name in ipairs(group) do
      list[n + 1], list[n + 2] = name, header(name)
      n = n + 2
    end
  end
  return sha256(M.frame(list, n))
end

local function above(value, limit)
  return limit ~= nil and type(value) == "number" and value > limit
end

-- Members whose presence means something only where they are neither null nor empty.
local function given(value)
  local text = tostring(value)
  return value ~= nil and value ~= false and text ~= "null" and text ~= "[]" and text ~= "{}"
end

--- Why a request's body asks for what must not come from a cache, or nil. What refers to something that others may change
-- (a conversation, a stored prompt without a version), or is worked on behind its answer, never does.
-- @tparam table members of the body, decoded one level deep
-- @tparam table rules max_temperature, max_n (numbers or nil), tools (boolean), members (names)
-- @tparam function decode of JSON
-- @treturn string|nil
function M.bypass(members, rules, decode)
  if members.background == true then return "background" end
  if given(members.conversation) then return "conversation" end
  if given(members.prompt) and type(members.prompt) == "userdata" then
    local prompt = decode(tostring(members.prompt))
    if type(prompt) == "table" and prompt.id and not given(prompt.version) then return "prompt" end
  end
  local temperature = members.temperature
  if type(temperature) ~= "number" then temperature = 1 end -- what the APIs take where none is named
  if above(temperature, rules.max_temperature) then return "temperature" end
  if above(members.n, rules.max_n) then return "n" end
  if rules.tools and (given(members.tools) or given(members.functions)) then return "tools" end
  for _, name in ipairs(rules.members) do
    if given(members[name]) then return name end
  end
  return nil
end

return M
