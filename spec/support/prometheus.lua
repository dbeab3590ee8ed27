-- Reads the text that Prometheus scrapes (format 0.0.4), and raises where it breaks its rules: HELP and TYPE once and before
-- the samples of their metric, no sample twice, buckets that rise up to +Inf, which is the count.
local M = {}

local UNESCAPED = { n = "\n", ["\\"] = "\\", ['"'] = '"' }

local function labels_of(text)
  local labels, at = {}, 1
  while at <= #text do
    local from, to, name, value = text:find('^,?([%a_][%w_]*)="(.-)"', at)
    while from and value:match("(\\*)$"):len() % 2 == 1 do -- that quote was escaped
      local _, further = text:find('"', to + 1, true)
      assert(further, "labels without an end: " .. text)
      to = further
      value = text:sub(from, to):match('^,?[^=]*="(.*)"$')
    end
    assert(from, "malformed labels: " .. text)
    assert(labels[name] == nil, "a label twice: " .. text)
    labels[name] = value:gsub("\\(.)", UNESCAPED)
    at = to + 1
  end
  return labels
end

local function number(text)
  if text == "+Inf" then return math.huge end
  if text == "-Inf" then return -math.huge end
  return assert(tonumber(text), "not a number: " .. text)
end

-- The metric that a sample belongs to.
local function metric_of(name, types)
  local base = name:match "^(.*)_bucket$" or name:match "^(.*)_sum$" or name:match "^(.*)_count$"
  return types[base] == "histogram" and base or name
end

local function check_histogram(name, one)
  local last, before = 0, -math.huge
  for _, bucket in ipairs(one.buckets) do
    assert(bucket.le > before and bucket.n >= last, name .. ": buckets must rise")
    before, last = bucket.le, bucket.n
  end
  assert(before == math.huge and one.count == last, name .. ": the last bucket is +Inf, and the count")
  assert(one.sum, name .. ": no sum")
end

local function check_histograms(samples, types)
  local all = {}
  for _, sample in ipairs(samples) do
    local base = metric_of(sample.name, types)
    if types[base] == "histogram" then
      local key = base .. " " .. sample.series:gsub(',?le="[^"]*"', ""):gsub("^[^{]*", ""):gsub("^{}$", "")
      local one = all[key] or { buckets = {} }
      all[key] = one
      if sample.name == base .. "_bucket" then
        one.buckets[#one.buckets + 1] = { le = number(sample.labels.le), n = sample.value }
      else
        one[sample.name:match "_(%a+)$"] = sample.value
      end
    end
  end
  for key, one in pairs(all) do check_histogram(key, one) end
end

--- All samples, in order: a list of { name, labels, value, series }; series is the text before the value.
-- @return samples, types (metric → kind), help (metric → text)
function M.parse(text)
  local samples, types, help, seen = {}, {}, {}, {}
  assert(text:sub(-1) == "\n", "no line end at the end")
  for line in text:gmatch "([^\n]*)\n" do
    local what, name, rest = line:match "^# (%u+) (%S+) (.*)$"
    if what then
      local into = what == "HELP" and help or types
      assert(into[name] == nil, what .. " twice: " .. name)
      into[name] = rest
    else
      local series, value = line:match "^([%a_:].*) (%S+)$"
      assert(series, "malformed line: " .. line)
      assert(not seen[series], "twice: " .. series)
      seen[series] = true
      local metric, labels = series:match "^([%w_:]+){(.*)}$"
      local sample = { name = metric or series, labels = labels_of(labels or ""), value = number(value), series = series }
      assert(types[metric_of(sample.name, types)] and help[metric_of(sample.name, types)], "no HELP and TYPE before " .. line)
      samples[#samples + 1] = sample
    end
  end
  check_histograms(samples, types)
  return samples, types, help
end

local function has(labels, wanted)
  for name, value in pairs(wanted or {}) do
    if labels[name] ~= tostring(value) then return false end
  end
  return true
end

--- The sum of the samples of that name whose labels are among others these; nil where there is none.
function M.sum(samples, name, labels)
  local sum
  for _, sample in ipairs(samples) do
    if sample.name == name and has(sample.labels, labels) then sum = (sum or 0) + sample.value end
  end
  return sum
end

return M
