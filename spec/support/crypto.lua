-- SHA-256, HMAC and gzip for specs, through the system's libcrypto and libz; and key records from secrets.
local ffi = require "ffi"
local json = require "dkjson"

ffi.cdef [[
unsigned char *SHA256(const unsigned char *d, size_t n, unsigned char *md);
const void *EVP_sha256(void);
unsigned char *HMAC(const void *md, const void *key, int key_n, const unsigned char *d, size_t n, unsigned char *out,
  unsigned *out_n);
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

local function hex(bytes)
  return (bytes:gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

--- SHA-256 in lower-case hex.
function M.sha256(text)
  local digest = ffi.new("unsigned char[32]")
  libcrypto.SHA256(text, #text, digest)
  return hex(ffi.string(digest, 32))
end

--- HMAC-SHA256 in lower-case hex, or with raw = true as bytes.
function M.hmac_sha256(key, text, raw)
  local digest = ffi.new("unsigned char[32]")
  libcrypto.HMAC(libcrypto.EVP_sha256(), key, #key, text, #text, digest, nil)
  local bytes = ffi.string(digest, 32)
  return raw and bytes or hex(bytes)
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
