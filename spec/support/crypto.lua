-- SHA-256 and gzip for specs, through the system's libcrypto and libz; and key records from secrets.
local ffi = require "ffi"
local json = require "dkjson"

ffi.cdef [[
unsigned char *SHA256(const unsigned char *d, size_t n, unsigned char *md);
int deflateInit2_(void *s, int level, int method, int bits, int memory, int strategy, const char *v, int n);
int deflate(void *s, int flush);
int deflateEnd(void *s);
int inflateInit2_(void *s, int bits, const char *v, int n);
int inflate(void *s, int flush);
int inflateEnd(void *s);
]]

-- Without a name, so that the file can be loaded twice in one Lua state.
local z_stream = ffi.typeof [[struct {
  const char *next_in; unsigned avail_in; unsigned long total_in;
  char *next_out; unsigned avail_out; unsigned long total_out;
  const char *msg; void *state; void *zalloc; void *zfree; void *opaque;
  int data_type; unsigned long adler, reserved;
}]]

local function library(name, file)
  local ok, lib = pcall(ffi.load, name)
  return ok and lib or ffi.load(file)
end

local libcrypto, libz = library("crypto", "libcrypto.so.3"), library("z", "libz.so.1")

local Z_FINISH, Z_STREAM_END, GZIP_BITS = 4, 1, 15 + 16

local M = {}

--- SHA-256 in lower-case hex.
function M.sha256(text)
  local digest = ffi.new("unsigned char[32]")
  libcrypto.SHA256(text, #text, digest)
  return (ffi.string(digest, 32):gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

local function run(z, step, finish, flush)
  local room, parts = ffi.new("char[16384]"), {}
  local rc
  repeat
    z.next_out, z.avail_out = room, 16384
    rc = step(z, flush)
    parts[#parts + 1] = ffi.string(room, 16384 - z.avail_out)
  until rc ~= 0
  finish(z)
  assert(rc == Z_STREAM_END, "zlib: code " .. rc)
  return table.concat(parts)
end

function M.gzip(text)
  local z = z_stream()
  assert(libz.deflateInit2_(z, 6, 8, GZIP_BITS, 8, 0, "1.2", ffi.sizeof(z)) == 0)
  z.next_in, z.avail_in = text, #text
  return run(z, libz.deflate, libz.deflateEnd, Z_FINISH)
end

--- Raises where the bytes are not one whole gzip member.
function M.gunzip(bytes)
  local z = z_stream()
  assert(libz.inflateInit2_(z, GZIP_BITS, "1.2", ffi.sizeof(z)) == 0)
  z.next_in, z.avail_in = bytes, #bytes
  return run(z, libz.inflate, libz.inflateEnd, 0)
end

--- The text of a keys.jsonl: records as tables, where `secret` becomes `secret_sha256`.
function M.keys(records)
  local lines = {}
  for _, record in ipairs(records) do
    local copy = {}
    for name, value in pairs(record) do copy[name] = value end
    copy.secret, copy.secret_sha256 = nil, record.secret and M.sha256(record.secret) or record.secret_sha256
    lines[#lines + 1] = json.encode(copy) .. "\n"
  end
  return table.concat(lines)
end

return M
