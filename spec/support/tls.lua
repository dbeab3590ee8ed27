-- TLS for specs: a throw-away authority made with the openssl command, and TLS beneath the streams of stream.lua by
-- OpenSSL in memory (FFI), so that a spec sees and does whatever it likes with the bytes on both sides of it.
--
--   local ca = support.tls.authority()
--   local id = ca:issue { names = { "localhost", "127.0.0.1" } }
--   local origin = support.origin(handler, { tls = id })
local ffi = require "ffi"
local files = require "spec.support.files"
local http = require "spec.support.http"
local loop = require "spec.support.loop"
local process = require "spec.support.process"
local stream = require "spec.support.stream"

ffi.cdef [[
typedef struct SSL SSL; typedef struct SSL_CTX SSL_CTX; typedef struct BIO BIO; typedef struct SSL_METHOD SSL_METHOD;
const SSL_METHOD *TLS_server_method(void); const SSL_METHOD *TLS_client_method(void);
SSL_CTX *SSL_CTX_new(const SSL_METHOD *m); void SSL_CTX_free(SSL_CTX *c);
int SSL_CTX_use_certificate_chain_file(SSL_CTX *c, const char *file);
int SSL_CTX_use_PrivateKey_file(SSL_CTX *c, const char *file, int type);
int SSL_CTX_load_verify_locations(SSL_CTX *c, const char *file, const char *dir);
void SSL_CTX_set_verify(SSL_CTX *c, int mode, void *cb);
long SSL_CTX_ctrl(SSL_CTX *c, int cmd, long n, void *p);
int SSL_CTX_set_cipher_list(SSL_CTX *c, const char *list);
int SSL_CTX_set_session_id_context(SSL_CTX *c, const char *id, unsigned n);
int SSL_CTX_set_alpn_protos(SSL_CTX *c, const char *protos, unsigned n);
SSL *SSL_new(SSL_CTX *c); void SSL_free(SSL *s);
BIO *BIO_new(const void *method); const void *BIO_s_mem(void);
int BIO_write(BIO *b, const void *p, int n); int BIO_read(BIO *b, void *p, int n); size_t BIO_ctrl_pending(BIO *b);
void SSL_set_bio(SSL *s, BIO *r, BIO *w);
void SSL_set_accept_state(SSL *s); void SSL_set_connect_state(SSL *s);
long SSL_ctrl(SSL *s, int cmd, long n, void *p); int SSL_set1_host(SSL *s, const char *name);
int SSL_do_handshake(SSL *s); int SSL_read(SSL *s, void *p, int n); int SSL_write(SSL *s, const void *p, int n);
int SSL_shutdown(SSL *s); int SSL_get_error(const SSL *s, int r); int SSL_session_reused(const SSL *s);
int SSL_key_update(SSL *s, int type); int SSL_renegotiate(SSL *s);
const void *SSL_get_current_cipher(const SSL *s); const char *SSL_CIPHER_get_name(const void *c);
int SSL_CTX_set_ciphersuites(SSL_CTX *c, const char *list);
void *SSL_get1_peer_certificate(const SSL *s); void X509_free(void *x); const void *EVP_sha256(void);
int X509_digest(const void *x, const void *md, unsigned char *out, unsigned *n);
void SSL_get0_alpn_selected(const SSL *s, const unsigned char **p, unsigned *n);
const char *SSL_get_version(const SSL *s); const char *SSL_get_servername(const SSL *s, int type);
void *SSL_get1_session(SSL *s); int SSL_set_session(SSL *s, void *session); void SSL_SESSION_free(void *session);
unsigned long ERR_get_error(void); const char *ERR_reason_error_string(unsigned long e); void ERR_clear_error(void);
]]
local ssl, crypto = ffi.load("libssl.so.3"), ffi.load("libcrypto.so.3")

local M = {}

-- --- the authority ---

local Authority = {}
Authority.__index = Authority

local CONFIG = [[
[ca]
default_ca = own
[own]
dir = %s
database = $dir/index
new_certs_dir = $dir
serial = $dir/serial
default_md = sha256
default_crl_days = 30
policy = any
unique_subject = no
[any]
organizationName = optional
commonName = supplied
[authority]
basicConstraints = critical, CA:TRUE
subjectKeyIdentifier = hash
[req]
distinguished_name = name
[name]
]]

local function openssl(dir, ...)
  local done = process.exec { cmd = "openssl", args = { ... }, cwd = dir, timeout = 20000 }
  if done.code ~= 0 then error("openssl " .. table.concat({ ... }, " ") .. ":\n" .. done.err, 3) end
  return done.out
end

local function new_key(dir, name, kind)
  if kind == "rsa" then
    return openssl(dir, "genpkey", "-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048", "-out", name .. ".key")
  end
  openssl(dir, "genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", name .. ".key")
end

--- A new authority: .dir, .cert (a file's path).
-- @param name its common name (default "Spec CA")
function M.authority(name)
  local dir = files.tmpdir()
  local self = setmetatable({ dir = dir, cert = dir .. "/ca.crt", name = name or "Spec CA", issued = 0 }, Authority)
  files.write_file(dir .. "/ca.conf", CONFIG:format(dir))
  files.write_file(dir .. "/index", "")
  files.write_file(dir .. "/serial", "01\n")
  new_key(dir, "ca")
  openssl(dir, "req", "-config", "ca.conf", "-new", "-x509", "-key", "ca.key", "-subj", "/CN=" .. self.name, "-days", "30",
    "-extensions", "authority", "-out", "ca.crt")
  return self
end

local function alternatives(names)
  local list = {}
  for i, name in ipairs(names) do
    local typed = name:find("^%u+:") or name:find("^email:")
    list[i] = typed and name or (name:find("^[%d.]+$") or name:find(":", 1, true)) and "IP:" .. name or "DNS:" .. name
  end
  return table.concat(list, ",")
end

local DAY = 86400

local function stamp(days) return os.date("!%Y%m%d%H%M%SZ", os.time() + days * DAY) end

--- Issues a certificate: { name (CN), org (O), names (DNS names, addresses, or with their type as in "URI:…"; default
-- localhost and 127.0.0.1), expired, early, days (that it is good for, default 20; fractions count), self_signed,
-- key ("ec" or "rsa") }.
-- @return { cert, key (files' paths), ca (the authority's file) }
function Authority:issue(options)
  options = options or {}
  self.issued = self.issued + 1
  local file, name = "c" .. self.issued, options.name or "spec"
  local names = alternatives(options.names or { "localhost", "127.0.0.1" })
  local from = options.expired and -10 or options.early and 5 or -1
  local to = options.expired and -2 or options.days or 20
  new_key(self.dir, file, options.key)
  local extensions = file .. ".ext"
  files.write_file(self.dir .. "/" .. extensions,
    "basicConstraints = critical, CA:FALSE\nsubjectAltName = " .. names .. "\n")
  openssl(self.dir, "req", "-config", "ca.conf", "-new", "-key", file .. ".key", "-subj",
    (options.org and "/O=" .. options.org or "") .. "/CN=" .. name, "-out", file .. ".csr")
  local args = { "ca", "-config", "ca.conf", "-batch", "-notext", "-in", file .. ".csr", "-out", file .. ".crt", "-extfile",
    extensions, "-startdate", stamp(from), "-enddate", stamp(to) }
  if options.self_signed then
    for _, arg in ipairs { "-selfsign", "-keyfile", file .. ".key" } do args[#args + 1] = arg end
  else
    for _, arg in ipairs { "-cert", "ca.crt", "-keyfile", "ca.key" } do args[#args + 1] = arg end
  end
  openssl(self.dir, unpack(args))
  local path = self.dir .. "/" .. file
  return { cert = path .. ".crt", key = path .. ".key", ca = self.cert }
end

--- Revokes a certificate of `issue`; returns the path of a file with the authority's certificate and its list.
function Authority:revoke(identity)
  openssl(self.dir, "ca", "-config", "ca.conf", "-cert", "ca.crt", "-keyfile", "ca.key", "-revoke", identity.cert)
  openssl(self.dir, "ca", "-config", "ca.conf", "-cert", "ca.crt", "-keyfile", "ca.key", "-gencrl", "-out", "crl.pem")
  return files.write_file(self.dir .. "/ca-and-crl.pem",
    files.read_file(self.cert) .. files.read_file(self.dir .. "/crl.pem"))
end

-- --- contexts ---

local FILE_PEM, VERIFY_PEER, VERIFY_REQUIRED = 1, 1, 3
local CTRL_MIN_VERSION, CTRL_MAX_VERSION, CTRL_HOSTNAME = 123, 124, 55
local VERSIONS = { ["1.0"] = 0x301, ["1.1"] = 0x302, ["1.2"] = 0x303, ["1.3"] = 0x304 }

local function last_error()
  local e = crypto.ERR_get_error()
  local text = e ~= 0 and crypto.ERR_reason_error_string(e)
  crypto.ERR_clear_error()
  return text and text ~= nil and ffi.string(text) or "unknown"
end

local function must(ok) if ok ~= 1 then error("tls: " .. last_error(), 3) end end

--- A context of one end: { cert, key (paths), ca (path: the peer's certificate is verified by it), required (a server
-- wants one), min, max ("1.2"), ciphers (of TLS 1.2 and before), suites (of 1.3), alpn (list, a client's), server }.
function M.context(options)
  local c = ffi.gc(ssl.SSL_CTX_new(options.server and ssl.TLS_server_method() or ssl.TLS_client_method()),
    ssl.SSL_CTX_free)
  if options.cert then
    must(ssl.SSL_CTX_use_certificate_chain_file(c, options.cert))
    must(ssl.SSL_CTX_use_PrivateKey_file(c, options.key, FILE_PEM))
  end
  if options.verify_ca then
    must(ssl.SSL_CTX_load_verify_locations(c, options.verify_ca, nil))
    ssl.SSL_CTX_set_verify(c, options.server and VERIFY_REQUIRED or VERIFY_PEER, nil)
  end
  if options.ciphers then must(ssl.SSL_CTX_set_cipher_list(c, options.ciphers)) end
  if options.suites then must(ssl.SSL_CTX_set_ciphersuites(c, options.suites)) end
  if options.min then ssl.SSL_CTX_ctrl(c, CTRL_MIN_VERSION, VERSIONS[options.min], nil) end
  if options.max then ssl.SSL_CTX_ctrl(c, CTRL_MAX_VERSION, VERSIONS[options.max], nil) end
  if options.server then ssl.SSL_CTX_set_session_id_context(c, "spec", 4) end
  if options.alpn then
    local protos = ""
    for _, name in ipairs(options.alpn) do protos = protos .. string.char(#name) .. name end
    ssl.SSL_CTX_set_alpn_protos(c, protos, #protos)
  end
  return c
end

-- --- a handle that looks like luv's ---

local WANT_READ, ZERO_RETURN = 2, 6
local ROOM = 65536
local room = ffi.new("char[?]", ROOM)

local Handle = {}
Handle.__index = Handle

local function flush(self, cb)
  local parts = {}
  while crypto.BIO_ctrl_pending(self.out) > 0 do
    local n = crypto.BIO_read(self.out, room, ROOM)
    parts[#parts + 1] = ffi.string(room, n)
  end
  local bytes = table.concat(parts)
  if bytes == "" then
    if cb then cb() end
    return true
  end
  if self.tap then bytes = self.tap(bytes) end
  return self.raw:write(bytes, cb)
end

local function tell(self, err, data)
  if self.over or not self.on_read then return end
  if not data then self.over = true end
  self.on_read(err, data)
end

local function shake(self)
  crypto.ERR_clear_error()
  local r = ssl.SSL_do_handshake(self.ssl)
  local failed = r ~= 1 and ssl.SSL_get_error(self.ssl, r) ~= WANT_READ
  if failed then self.error = last_error() end
  flush(self)
  if failed then return tell(self, "ETLS: " .. self.error) end
  if r ~= 1 then return end
  self.secure = true
  local queued = self.queued
  self.queued = {}
  for _, one in ipairs(queued) do self:write(one[1], one[2]) end
  return true
end

local function pump(self)
  if not self.secure and not shake(self) then return end
  while not self.over and not self.paused and not self.raw:is_closing() do
    crypto.ERR_clear_error()
    local n = ssl.SSL_read(self.ssl, room, ROOM)
    if n <= 0 then
      local why = ssl.SSL_get_error(self.ssl, n)
      flush(self)
      if why == ZERO_RETURN then return tell(self, nil, nil) end
      if why ~= WANT_READ then
        self.error = last_error()
        tell(self, "ETLS: " .. self.error)
      end
      return
    end
    tell(self, nil, ffi.string(room, n))
  end
end

function Handle:read_start(on_read)
  self.on_read, self.paused = on_read, false
  local started = self.raw:read_start(function(err, data)
    if data then
      crypto.BIO_write(self.input, data, #data)
      pump(self)
    else
      tell(self, err or "ECUT: the peer did not end TLS")
    end
  end)
  pump(self)
  return started
end

function Handle:read_stop()
  self.paused = true
  return self.raw:read_stop()
end

function Handle:write(bytes, cb)
  if not self.secure then
    self.queued[#self.queued + 1] = { bytes, cb }
    return true
  end
  if #bytes > 0 and ssl.SSL_write(self.ssl, bytes, #bytes) <= 0 then return nil, "ETLS: " .. last_error() end
  return flush(self, cb)
end

function Handle:shutdown()
  ssl.SSL_shutdown(self.ssl)
  flush(self)
  return self.raw:shutdown()
end

--- Says close_notify and closes; without it where `cut` is set.
function Handle:close(cb)
  if self.secure and not self.cut and not self.over then
    ssl.SSL_shutdown(self.ssl)
    flush(self)
  end
  return self.raw:close(cb)
end

function Handle:close_reset(cb) return self.raw:close_reset(cb) end
function Handle:is_closing() return self.raw:is_closing() end
function Handle:fileno() return self.raw:fileno() end
function Handle:resumed() return ssl.SSL_session_reused(self.ssl) == 1 end
function Handle:version() return ffi.string(ssl.SSL_get_version(self.ssl)) end

function Handle:server_name()
  local name = ssl.SSL_get_servername(self.ssl, 0)
  return name ~= nil and ffi.string(name) or nil
end

function Handle:cipher() return ffi.string(ssl.SSL_CIPHER_get_name(ssl.SSL_get_current_cipher(self.ssl))) end

--- The protocol that ALPN chose, or nil.
function Handle:alpn()
  local p, n = ffi.new("const unsigned char *[1]"), ffi.new("unsigned[1]")
  ssl.SSL_get0_alpn_selected(self.ssl, p, n)
  return n[0] > 0 and ffi.string(p[0], n[0]) or nil
end

--- SHA-256 of the peer's certificate, in hex.
function Handle:fingerprint()
  local cert = ssl.SSL_get1_peer_certificate(self.ssl)
  local out, n = ffi.new("unsigned char[32]"), ffi.new("unsigned[1]", 32)
  crypto.X509_digest(cert, crypto.EVP_sha256(), out, n)
  crypto.X509_free(cert)
  return (ffi.string(out, 32):gsub(".", function(c) return ("%02x"):format(c:byte()) end))
end

--- Asks the peer for new keys.
function Handle:update_keys()
  ssl.SSL_key_update(self.ssl, 1)
  ssl.SSL_do_handshake(self.ssl)
  flush(self)
end

--- Asks for a renegotiation (TLS 1.2).
function Handle:renegotiate()
  ssl.SSL_renegotiate(self.ssl)
  ssl.SSL_do_handshake(self.ssl)
  flush(self)
end

--- The session, for the `session` of another client.
function Handle:session() return ffi.gc(ssl.SSL_get1_session(self.ssl), ssl.SSL_SESSION_free) end

--- TLS on a luv handle. options: context (of M.context), server, name (a client's SNI), verify_name, session, tap
-- (function(bytes) of what is written to the socket, returning what is written instead).
-- @return a handle for stream.wrap; .secure, .error, and methods as above
function M.handle(raw, options)
  local self = setmetatable({ raw = raw, context = options.context, queued = {}, tap = options.tap }, Handle)
  self.ssl = ffi.gc(ssl.SSL_new(options.context), ssl.SSL_free)
  self.input, self.out = crypto.BIO_new(crypto.BIO_s_mem()), crypto.BIO_new(crypto.BIO_s_mem())
  ssl.SSL_set_bio(self.ssl, self.input, self.out)
  if options.name then ssl.SSL_ctrl(self.ssl, CTRL_HOSTNAME, 0, ffi.cast("void *", options.name)) end
  if options.verify_name then ssl.SSL_set1_host(self.ssl, options.verify_name) end
  if options.session then ssl.SSL_set_session(self.ssl, options.session) end
  if options.server then ssl.SSL_set_accept_state(self.ssl) else ssl.SSL_set_connect_state(self.ssl) end
  return self
end

--- SHA-256 of the first certificate in a file, in hex.
function M.fingerprint(file)
  return (openssl(nil, "x509", "-in", file, "-noout", "-fingerprint", "-sha256"):match("=(%S+)"):gsub(":", ""):lower())
end

--- A client: connects to a port of 127.0.0.1 and waits for the end of the handshake. options: those of M.context and
-- M.handle, name (SNI, and with verify_ca what is verified), limit_ms.
-- @return a connection like that of support.connect, its handle in .tls; or nil and the reason
function M.connect(port, options)
  options = options or {}
  local context = M.context(options)
  local conn = http.connect(port, options.limit_ms, function(raw)
    return M.handle(raw, { context = context, name = options.name, verify_name = options.verify_ca and options.name,
      session = options.session, tap = options.tap })
  end)
  conn.tls = conn.handle
  local ok = pcall(loop.wait_for, function() return conn.tls.secure or conn.closed end, "the handshake", options.limit_ms)
  if ok and conn.tls.secure then return conn end
  conn:close()
  return nil, conn.tls.error or conn.err or "timeout"
end

-- Writes one byte at a time.
local Drip = {}
function Drip:__index(name) return Drip[name] or function(_, ...) return self.raw[name](self.raw, ...) end end
function Drip:write(bytes, cb)
  for i = 1, #bytes do self.raw:write(bytes:sub(i, i), i == #bytes and cb or nil) end
  return true
end

--- TLS of a server's on a connection that stream.lua has accepted. options: those of M.context, and drip: whatever it
-- writes goes out byte by byte.
function M.accept(conn, options)
  conn.handle:read_stop()
  local raw = options.drip and setmetatable({ raw = conn.handle }, Drip) or conn.handle
  return stream.wrap(M.handle(raw, { context = M.context(setmetatable({ server = true }, { __index = options })),
    server = true }), 10000)
end

--- What stream.listen wraps accepted handles with. options: those of M.context and M.handle.
function M.acceptor(options)
  local context = M.context(setmetatable({ server = true }, { __index = options }))
  return function(raw) return M.handle(raw, { context = context, server = true, tap = options.tap }) end
end

return M
