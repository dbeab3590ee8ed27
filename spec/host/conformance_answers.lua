-- Raw answers of an origin and what RFC 9110 and 9112 make of them: { section, what it is, bytes, expected, how }. Expected is
-- 502, which is all that the client gets, or a table of what it gets:
--
--   status (200), body (""), fields: but Via, X-Request-Id, Content-Length, Transfer-Encoding, Connection and Date, as
--   "name=value; …" in order; reuse: the origin's connection is used again; cut: the answer breaks off
--
-- `how`: method ("GET") and version ("1.1") of the request; stay: the origin keeps its connection open behind the
-- bytes; code ("bad_origin_answer"): of the error.

local M = {}

local function ok(fields, body) return "HTTP/1.1 200 OK\r\n" .. fields .. "\r\n" .. (body or "") end

local function sized(body, fields) return ok(("Content-Length: %d\r\n%s"):format(#body, fields or ""), body) end

local function chunked(body, fields) return ok("Transfer-Encoding: chunked\r\n" .. (fields or ""), body) end

local STAY = { stay = true }

local function add(section, what, bytes, expected, how) M[#M + 1] = { section, what, bytes, expected, how or {} } end

-- RFC 9112, 4: status line
add("9112 4", "a plain answer", sized "hello", { body = "hello", reuse = true }, STAY)
add("9112 4", "no reason, with its space", "HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n", { reuse = true }, STAY)
add("9112 4", "no reason, and no space", "HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", { reuse = true }, STAY)
add("9112 4", "a reason beyond ASCII", "HTTP/1.1 200 \195\164\r\nContent-Length: 0\r\n\r\n", { reuse = true }, STAY)
add("9110 15", "a status that nobody knows", "HTTP/1.1 299 Odd\r\nContent-Length: 0\r\n\r\n", { status = 299,
  reuse = true }, STAY)
add("9110 15", "an error that nobody knows", "HTTP/1.1 599 Odd\r\nContent-Length: 0\r\n\r\n", { status = 599,
  reuse = true }, STAY)
for what, line in pairs { ["a status of two digits"] = "HTTP/1.1 20 OK", ["a status of four digits"] = "HTTP/1.1 2000 OK",
  ["a status of 600"] = "HTTP/1.1 600 No", ["a status of 099"] = "HTTP/1.1 099 No", ["no number"] = "HTTP/1.1 abc OK",
  ["a signed status"] = "HTTP/1.1 +20 OK", ["no status"] = "HTTP/1.1", ["two spaces"] = "HTTP/1.1  200 OK",
  ["HTAB for a space"] = "HTTP/1.1\t200 OK", ["a space before it"] = " HTTP/1.1 200 OK", ["HTTP/2.0"] = "HTTP/2.0 200 OK",
  ["HTTP/1.10"] = "HTTP/1.10 200 OK", ["another protocol"] = "ICY 200 OK", ["http in lower case"] = "http/1.1 200 OK",
  ["a control character in the reason"] = "HTTP/1.1 200 O\1K", ["NUL in the reason"] = "HTTP/1.1 200 O\0K",
  ["HTTP/0.9"] = "<html>hello</html>" } do
  add("9112 4", what, line .. "\r\nContent-Length: 0\r\n\r\n", 502)
end
add("9112 8", "nothing", "", 502, { code = "origin_closed" })
add("9112 8", "half a head", "HTTP/1.1 200 OK\r\nContent-Le", 502, { code = "origin_closed" })
add("9112 2.2", "an empty line before it", "\r\n" .. sized "hello", 502)
add("9112 2.2", "bare LF", "HTTP/1.1 200 OK\nContent-Length: 0\n\n", 502)
add("9112 2.2", "bare CR", "HTTP/1.1 200 OK\rContent-Length: 0\r\n\r\n", 502)
add("9112 2.2", "bare LF as the empty line", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\n", 502)

-- RFC 9112, 5: fields
add("9112 5", "fields go on in order", sized("", "X-A: 1\r\nX-B:\r\nX-A: 2\r\n"), { fields = "x-a=1; x-b=; x-a=2",
  reuse = true }, STAY)
add("9110 5.3", "each Set-Cookie stays a line of its own", sized("", "Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n"),
  { fields = "set-cookie=a=1; set-cookie=b=2", reuse = true }, STAY)
for what, fields in pairs { ["space before the colon"] = "X : 1\r\n", ["no colon"] = "X\r\n", ["no name"] = ": 1\r\n",
  ["a name that is no token"] = "X(y): 1\r\n", ["a folded line"] = "X: 1\r\n 2\r\n", ["NUL"] = "X: a\0b\r\n",
  ["a control character"] = "X: a\1b\r\n", ["bare CR, which splits answers"] = "X: a\rSet-Cookie: b=1\r\n",
  ["bare LF, which splits answers"] = "X: a\nSet-Cookie: b=1\r\n", ["more fields than the limit"] = ("X: 1\r\n"):rep(40),
  ["more bytes than the limit"] = "X: " .. ("a"):rep(5000) .. "\r\n" } do
  add("9112 5", what, sized("", fields), 502)
end

-- RFC 9112, 6: framing
add("9112 6.3", "two lengths", ok("Content-Length: 1\r\nContent-Length: 2\r\n", "ab"), 502)
add("9112 6.3", "two equal lengths", ok("Content-Length: 2\r\nContent-Length: 2\r\n", "ab"), 502)
add("9112 6.3", "a list of lengths", ok("Content-Length: 2, 2\r\n", "ab"), 502)
for _, value in ipairs { "x", "-1", "+2", "0x2", "", "2 2", "9223372036854775808", "2.0" } do
  add("9110 8.6", ('the Content-Length "%s"'):format(value), ok("Content-Length: " .. value .. "\r\n", "ab"), 502)
end
add("9112 6.1", "both framings", ok("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 502)
add("9112 6.1", "another coding", ok "Transfer-Encoding: gzip\r\n", 502)
add("9112 6.1", "another coding before chunked", ok("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), 502)
add("9112 6.1", "chunked twice", ok("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"), 502)
add("9112 6.1", "Transfer-Encoding in HTTP/1.0", "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 502)
add("9112 6.3", "a body that ends with its connection", ok("X-A: 1\r\n", "hello"), { body = "hello", fields = "x-a=1" })
add("9112 6.3", "HTTP/1.0, by its connection", "HTTP/1.0 200 OK\r\n\r\nhello", { body = "hello" })
add("9112 9.3", "HTTP/1.0 with a length and keep-alive",
  "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 5\r\n\r\nhello", { body = "hello", reuse = true }, STAY)
add("9112 9.3", "HTTP/1.0 with a length", "HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", { body = "hello" }, STAY)
add("9112 9.6", "Connection: close", sized("hello", "Connection: close\r\n"), { body = "hello" }, STAY)
add("9112 8", "a body that is cut", ok("Content-Length: 9\r\n", "hello"), { body = "hello", cut = true })
add("9112 8", "chunks that are cut", chunked "5\r\nhello\r\n", { body = "hello", cut = true })
add("9112 9.2", "bytes behind the end, which nobody asked for", sized "hello" .. sized "poison", { body = "hello" }, STAY)
add("9112 9.2", "a byte behind the end", sized "hello" .. "\n", { body = "hello" }, STAY)

-- RFC 9112, 7.1: chunks
add("9112 7.1", "chunks", chunked "5\r\nhello\r\n0\r\n\r\n", { body = "hello", reuse = true }, STAY)
add("9112 7.1", "chunk extensions are dropped", chunked "5;a=b\r\nhello\r\n0\r\n\r\n", { body = "hello", reuse = true }, STAY)
add("9112 7.1.2", "trailers are dropped", chunked "5\r\nhello\r\n0\r\nX-T: 1\r\n\r\n", { body = "hello", reuse = true }, STAY)
add("9112 7.1", "a first chunk size that is none", chunked "zz\r\n", 502)
add("9112 7.1", "a first chunk size before bare LF", chunked "5\nhello\r\n0\r\n\r\n", 502)
add("9112 7.1", "chunks for a client of HTTP/1.0", chunked "5\r\nhello\r\n0\r\n\r\n", { body = "hello", reuse = true },
  { stay = true, version = "1.0" })

-- Answers without a body
add("9112 6.3", "HEAD, whatever the length says", ok "Content-Length: 5\r\nX-A: 1\r\n", { fields = "x-a=1", reuse = true },
  { stay = true, method = "HEAD" })
add("9112 6.3", "HEAD, and yet a body", sized "hello", {}, { stay = true, method = "HEAD" })
add("9112 6.3", "204", "HTTP/1.1 204 No Content\r\nX-A: 1\r\n\r\n", { status = 204, fields = "x-a=1", reuse = true }, STAY)
add("9112 6.3", "204, and yet a body", "HTTP/1.1 204 No Content\r\n\r\nhello", { status = 204 }, STAY)
add("9110 8.6", "204 with Content-Length: 0", "HTTP/1.1 204 No Content\r\nContent-Length: 0\r\n\r\n", { status = 204,
  reuse = true }, STAY)
add("9112 6.3", "304 with the length of what it stands for",
  'HTTP/1.1 304 Not Modified\r\nETag: "a"\r\nContent-Length: 5\r\n\r\n',
  { status = 304, fields = 'etag="a"', reuse = true }, STAY)
add("9110 15.3.6", "205", "HTTP/1.1 205 Reset Content\r\nContent-Length: 0\r\n\r\n", { status = 205, reuse = true }, STAY)

-- RFC 9110, 15.2: interim answers
add("9110 15.2", "100 before the answer ends here", "HTTP/1.1 100 Continue\r\n\r\n" .. sized "hello", { body = "hello",
  reuse = true }, STAY)
add("9110 15.2", "102 before the answer ends here", "HTTP/1.1 102 Processing\r\n\r\n" .. sized "hello",
  { body = "hello", reuse = true }, STAY)
add("9110 15.2", "an interim answer with a body", "HTTP/1.1 100 Continue\r\nContent-Length: 5\r\n\r\nhello" .. sized "hello", 502)
add("9110 15.2", "interim answers without end", ("HTTP/1.1 100 Continue\r\n\r\n"):rep(200), 502, STAY)
add("9110 15.2.2", "101 that nobody asked for",
  "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nbytes", 502, STAY)

-- RFC 9110, 7.6: what ends here
add("9110 7.6.1", "fields that Connection names end here", sized("", "Connection: X-A\r\nX-A: 1\r\nX-C: 3\r\n"),
  { fields = "x-c=3", reuse = true }, STAY)
add("9110 7.6.1", "hop-by-hop fields end here", sized("",
  "Keep-Alive: 5\r\nProxy-Authenticate: Basic\r\nTrailer: x\r\nX-C: 3\r\n"),
  { fields = "x-c=3", reuse = true }, STAY)

-- What belongs to the origin and the client
add("9110 14", "a part of a whole",
  "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-4/9\r\nContent-Length: 5\r\n\r\nhello",
  { status = 206, body = "hello", fields = "content-range=bytes 0-4/9", reuse = true }, STAY)
add("9110 8.4", "a coded body", sized("\31\139x", "Content-Encoding: gzip\r\n"), { body = "\31\139x",
  fields = "content-encoding=gzip",
  reuse = true }, STAY)
add("9110 11", "a challenge", 'HTTP/1.1 401 No\r\nWWW-Authenticate: Basic realm="a"\r\nContent-Length: 0\r\n\r\n',
  { status = 401, fields = 'www-authenticate=Basic realm="a"', reuse = true }, STAY)

return M
