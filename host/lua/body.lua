-- ctx.request.json and ctx.response.json: single values of a JSON body, read and edited by their place. Everything that is not
-- edited stays as it came, byte for byte: large numbers, [], escapes, white space.

local json = require("tollgate").json

local native -- functions of the host, over a body that is there

local Json = {}
Json.__index = Json

--- Reads a value. Waits for the body.
-- @tparam string|table path a member's name, or a list of names and indices from 1: { "messages", 1, "content" }
-- @return the value as tg.json.decode gives it; nil where it is absent
-- @treturn string "invalid: …" where the body is no JSON
function Json:get(path)
  self.part:read()
  local text, err = native.get(self.part, self.response, path)
  if not text then
    return nil, err
  end
  return json.decode(text)
end

--- Replaces a value, or adds a member where its object is there. Waits for the body.
-- @tparam string|table path as in get
-- @param value what tg.json.encode takes
-- @treturn boolean true, or nil
-- @treturn string "absent" where the place does not exist, "invalid: …" where the body is no JSON
function Json:set(path, value)
  local text = json.encode(value)
  self.part:read()
  return native.set(self.part, self.response, path, text)
end

--- Takes a member or an element out. Waits for the body.
-- @tparam string|table path as in get
-- @treturn boolean whether it was there, or nil
-- @treturn string "invalid: …" where the body is no JSON
function Json:remove(path)
  self.part:read()
  return native.remove(self.part, self.response, path)
end

-- part is ctx.request or ctx.response; both serve as ctx for the native functions.
local function make(part, response)
  return setmetatable({ part = part, response = response }, Json)
end

return function(functions)
  native = functions
  return make
end
