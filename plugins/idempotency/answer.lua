-- An origin's answer as it is kept under an idempotency key and played back, without I/O: which header fields, in which form,
-- and when an event stream has come to its proper end.

local M = {}

-- Fields that belong to one message or hop, or are the gateway's own: not kept.
local NEVER = {
  connection = true, ["content-length"] = true, expect = true, host = true, ["keep-alive"] = true, ["proxy-connection"] = true,
  te = true, trailer = true, ["transfer-encoding"] = true, upgrade = true, date = true, via = true, age = true,
  ["idempotency-replayed"] = true,
}

--- Whether a field is kept where the settings name none.
-- @tparam string name in lower case
function M.by_default(name)
  return not NEVER[name] and not name:find("ratelimit", 1, true) -- what was left then is not what is left now
end

--- Whether the settings may name it.
-- @tparam string name in lower case
function M.may_keep(name) return not NEVER[name] end

--- The fields to keep.
-- @tparam function each iterator over name and value, as they came
-- @tparam table|nil names set of lower-case names; nil: by_default
-- @tparam function is_text whether bytes are UTF-8, which JSON needs; a value that is not is left out
-- @treturn {table,...} pairs { name, value }
function M.fields(each, names, is_text)
  local list = {}
  for name, value in each do
    name = name:lower()
    local wanted
    if names then wanted = names[name] and not NEVER[name] else wanted = M.by_default(name) end
    if wanted and is_text(value) then list[#list + 1] = { name, value } end
  end
  return list
end

--- What `access` returns for a stored answer.
-- @tparam string|nil status
-- @tparam {table,...}|nil list pairs { name, value }
-- @treturn number|nil status; nil where something else is stored
-- @treturn table name → string, or list of strings where a field was there several times
function M.replay(status, list)
  status = tonumber(status)
  if not status or type(list) ~= "table" then return nil end
  local out = { ["idempotency-replayed"] = "true" }
  for _, pair in ipairs(list) do
    local name, value, before = pair[1], pair[2], out[pair[1]]
    if type(before) == "table" then
      before[#before + 1] = value
    else
      out[name] = before and { before, value } or value
    end
  end
  return status, out
end

-- Whether an event, the last of its stream, is how a stream of the API ends well.
local ENDS = {
  ["openai-chat"] = function(event) return event:find("^data: ?%[DONE%]%s*$") ~= nil end,
  ["openai-responses"] = function(event)
    local kind = event:match("event: ?(response%.[%w_]+)") or event:match('"type" ?: ?"(response%.[%w_]+)"')
    return kind == "response.completed" or kind == "response.incomplete"
  end,
  ["anthropic-messages"] = function(event) return event:find('message_stop"', 1, true) ~= nil
    or event:find("^event: ?message_stop") ~= nil end,
}

-- What is behind the last empty line that something follows.
local function last_event(body)
  if body:find("\r", 1, true) then body = body:gsub("\r\n", "\n"):gsub("\r", "\n") end
  local text = body:match("^(.-)\n*$")
  return text:match("^.*\n\n(.+)$") or text
end

--- Whether an answer that is complete as HTTP is so for its API too: an event stream that ends without the event that ends it,
-- or in an error, is an origin that failed behind the head.
-- @tparam string api of the route
-- @tparam string|nil content_type
-- @tparam string|nil encoding Content-Encoding; what is encoded cannot be looked at
-- @tparam string body
function M.terminated(api, content_type, encoding, body)
  local ends = ENDS[api]
  local events = (content_type or ""):lower():find("^text/event%-stream%f[%s;%z]")
  if not ends or not events or (encoding and encoding:lower() ~= "identity") then return true end
  return ends(last_event(body))
end

return M
