-- Names of cached resources, written as templates such as "stats:{tenantId}:current_month". `webhook` drops by them and
-- `cache` fills by them, so both read them here: plain functions, without I/O.
--
-- A template is segments between colons, each either literal or one field in braces. A field fills its whole segment
-- and is percent-encoded, so that two different sets of fields never make one key. The first field is the one by which
-- Redis Cluster places key and fence (`redis.hash_tags`).

local M = {}

-- What an invalidation publishes the dropped keys on, one message a key: for caches inside of replicas.
M.CHANNEL = "cache:invalidate"

-- First segments of keys that are no cached resources; dropping one of these would forget a limit or a lock.
local TAKEN = { q = true, cache = true, cb = true, cfg = true, fence = true, idem = true, rl = true, hook = true }

local function segments(text)
  local list = {}
  for segment in (text .. ":"):gmatch("([^:]*):") do list[#list + 1] = segment end
  return list
end

local function parse_segment(template, segment)
  local field = segment:match("^{([%a_][%w_]*)}$")
  if field then
    template.parts[#template.parts + 1] = { field = field }
    template.fields[#template.fields + 1] = field
    return true
  end
  if not segment:find("^[%w_.-]+$") then return nil end
  template.parts[#template.parts + 1] = { literal = segment }
  return true
end

--- Reads a template.
-- @tparam string text
-- @treturn table|nil { text, parts, fields = names in order, shape = the text with all fields unnamed: equal where two
-- templates make the same keys }
-- @treturn string what is wrong
function M.parse(text)
  local template = { text = text, parts = {}, fields = {}, shape = (text:gsub("{[%w_]*}", "{}")) }
  for _, segment in ipairs(segments(text)) do
    if not parse_segment(template, segment) then
      return nil, ("%q is neither a field in braces, such as {tenantId}, nor letters, digits, _ . and -"):format(segment)
    end
  end
  local first = template.parts[1].literal
  if not first or #template.parts < 2 then return nil, 'must begin with a name and a colon, such as "balance:{tenantId}"' end
  if TAKEN[first] then return nil, ("keys that begin with %s: are not cached resources"):format(first) end
  return template
end

--- The key for a set of fields.
-- @tparam table template of `parse`
-- @tparam table values text by field
-- @tparam table redis with `encode` and `tag`: tg.redis
-- @treturn string|nil
-- @treturn string the field that has no value, or an empty one
function M.key(template, values, redis)
  local out, tagged = {}, false
  for i, part in ipairs(template.parts) do
    local value = part.field and values[part.field]
    if part.literal then
      out[i] = part.literal
    elseif not value or value == "" then
      return nil, part.field
    else
      out[i] = (tagged and redis.encode or redis.tag)(value)
      tagged = true
    end
  end
  return table.concat(out, ":")
end

--- The key that holds the generation of a cached key: it goes up with every invalidation, and a fill that began under
-- another one is dropped.
-- @tparam string key
-- @treturn string
function M.fence(key)
  return "fence:" .. key
end

return M
