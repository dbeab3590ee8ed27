-- What the scripts say that they need is what scripts/setup installs: a machine that only ran that can run them.
local support = require "spec.support"

-- The words of `name=(…)` in a shell script.
local function list(text, name)
  local words = {}
  for word in assert(text:match("\n" .. name .. "=(%b())"), name):sub(2, -2):gmatch "%S+" do words[word] = true end
  return words
end

it("scripts/setup --tests installs what the fuzz targets are built with", function()
  local setup = support.read_file "scripts/setup"
  local installed = list(setup, "build_packages")
  for word in pairs(list(setup, "test_packages")) do installed[word] = true end
  for word in pairs(list(support.read_file "scripts/fuzz", "packages")) do
    assert.is_true(installed[word] or false, word .. " is not installed by scripts/setup --tests")
  end
end)
