-- Raw requests and what RFC 9110, 9112 and 3986 make of them: { section, what it is, bytes, expected }. Expected is a status
-- with which the request is refused and its connection ends, or a table of what the origin gets:
--
--   target, method ("GET"), body (""): of the request; fields: those that are not the gateway's own (Host, X-Forwarded-*, Via,
--   X-Request-Id, framing), as "name=value; …" in order; xfh: X-Forwarded-Host; via; length: Content-Length or "chunked";
--   status (200): of the answer; closes: the client's connection ends behind the answer; none: the origin gets nothing

local M = {}

local function get(fields, target) return ("GET %s HTTP/1.1\r\nHost: a.test\r\n%s\r\n"):format(target or "/", fields or "") end

local function post(fields, body) return "POST / HTTP/1.1\r\nHost: a.test\r\n" .. fields .. "\r\n" .. (body or "") end

local function chunked(body, fields) return post("Transfer-Encoding: chunked\r\n" .. (fields or ""), body) end

local function add(section, what, bytes, expected) M[#M + 1] = { section, what, bytes, expected } end

-- RFC 9112, 2.2: message parsing
add("9112 2.2", "a plain request", get(), { target = "/" })
add("9112 2.2", "an empty line before the request line", "\r\n" .. get(), { target = "/" })
add("9112 2.2", "four empty lines before it", ("\r\n"):rep(4) .. get(), { target = "/" })
add("9112 2.2", "endless empty lines before it", ("\r\n"):rep(64) .. get(), 400)
add("9112 2.2", "bare LF at the ends of all lines", "GET / HTTP/1.1\nHost: a.test\n\n", 400)
add("9112 2.2", "bare LF behind the request line", "GET / HTTP/1.1\nHost: a.test\r\n\r\n", 400)
add("9112 2.2", "bare LF behind a field", "GET / HTTP/1.1\r\nHost: a.test\r\nX: 1\n\r\n", 400)
add("9112 2.2", "bare LF as the empty line", "GET / HTTP/1.1\r\nHost: a.test\r\n\n", 400)
add("9112 2.2", "bare CR in a value", get "X: a\rb\r\n", 400)
add("9112 2.2", "bare CR behind a field", "GET / HTTP/1.1\r\nHost: a.test\rX: 1\r\n\r\n", 400)
add("9112 2.2", "CR CR LF", "GET / HTTP/1.1\r\nHost: a.test\r\r\n\r\n", 400)
add("9112 2.2", "white space between the request line and the first field", "GET / HTTP/1.1\r\n Host: a.test\r\n\r\n", 400)
add("9112 2.2", "NUL before the request", "\0" .. get(), 400)

-- RFC 9112, 2.3 and RFC 9110, 2.5: versions
add("9112 2.3", "HTTP/1.0", "GET / HTTP/1.0\r\n\r\n", { target = "/", via = "1.0 tollgate", closes = true })
add("9112 2.3", "HTTP/1.0 with keep-alive", "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
  { target = "/", via = "1.0 tollgate" })
add("9112 2.3", "HTTP/1.2", "GET / HTTP/1.2\r\nHost: a.test\r\n\r\n", 505)
add("9112 2.3", "HTTP/2.0", "GET / HTTP/2.0\r\nHost: a.test\r\n\r\n", 505)
add("9112 2.3", "HTTP/0.9", "GET /\r\n\r\n", 400)
add("9112 2.3", "HTTP/01.1", "GET / HTTP/01.1\r\nHost: a.test\r\n\r\n", 400)
add("9112 2.3", "HTTP/1.10", "GET / HTTP/1.10\r\nHost: a.test\r\n\r\n", 400)
add("9112 2.3", "HTTP/1.", "GET / HTTP/1.\r\nHost: a.test\r\n\r\n", 400)
add("9112 2.3", "http/1.1 in lower case", "GET / http/1.1\r\nHost: a.test\r\n\r\n", 400)
add("9112 2.3", "another protocol", "GET / HTPP/1.1\r\nHost: a.test\r\n\r\n", 400)
add("9113 3.4", "the preface of HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505)

-- RFC 9112, 3: request line
add("9112 3", "two spaces behind the method", "GET  / HTTP/1.1\r\nHost: a.test\r\n\r\n", 400)
add("9112 3", "two spaces behind the target", "GET /  HTTP/1.1\r\nHost: a.test\r\n\r\n", 400)
add("9112 3", "space before the method", " GET / HTTP/1.1\r\nHost: a.test\r\n\r\n", 400)
add("9112 3", "space behind the version", "GET / HTTP/1.1 \r\nHost: a.test\r\n\r\n", 400)
add("9112 3", "HTAB for a space", "GET\t/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 400)
add("9112 3", "form feed for a space", "GET\12/ HTTP/1.1\r\nHost: a.test\r\n\r\n", 400)
add("9112 3", "a space in the target", "GET /a b HTTP/1.1\r\nHost: a.test\r\n\r\n", 400)
add("9112 3", "no target", "GET HTTP/1.1\r\nHost: a.test\r\n\r\n", 400)
add("9112 3", "a target that is longer than the limit", get("", "/" .. ("a"):rep(300)), 414)
add("9112 3", "a target that does not end", "GET /" .. ("a"):rep(10000), 414)
add("9112 3.1", "a TLS hello", "\22\3\1\0\200\1\0\0", 400)
add("9112 3.1", "a method that is no token", "G(T / HTTP/1.1\r\nHost: a.test\r\n\r\n", 400)
add("9112 3.1", "a method beyond ASCII", "G\195\132T / HTTP/1.1\r\nHost: a.test\r\n\r\n", 400)
add("9112 3.1", "a method in lower case is another method", "get / HTTP/1.1\r\nHost: a.test\r\n\r\n",
  { target = "/", method = "get" })
add("9112 3.1", "a method that nobody knows goes on", "BREW / HTTP/1.1\r\nHost: a.test\r\n\r\n",
  { target = "/", method = "BREW" })
add("9112 3.1", "a method of 65 bytes", ("A"):rep(65) .. " / HTTP/1.1\r\nHost: a.test\r\n\r\n", 501)

-- RFC 9112, 3.2: request target
add("9112 3.2.1", "origin-form with a query", get("", "/a?b=c&d"), { target = "/a?b=c&d" })
add("9112 3.2.1", "an empty query", get("", "/a?"), { target = "/a?" })
add("9112 3.2.1", "a target without a slash", get("", "a"), 400)
add("9112 3.2.1", "a target that begins with two slashes", get("", "//b.test/a"), { target = "/b.test/a" })
add("9112 3.2.1", "a fragment", get("", "/a#b"), 400)
add("9112 3.2.2", "absolute-form: its host counts, not that of Host", "GET http://b.test/a HTTP/1.1\r\nHost: a.test\r\n\r\n",
  { target = "/a", xfh = "b.test" })
add("9112 3.2.2", "absolute-form without a path", "GET http://b.test HTTP/1.1\r\nHost: b.test\r\n\r\n",
  { target = "/", xfh = "b.test" })
add("9112 3.2.2", "absolute-form without a path, with a query", "GET http://b.test?c HTTP/1.1\r\nHost: b.test\r\n\r\n",
  { target = "/?c", xfh = "b.test" })
add("9112 3.2.2", "absolute-form with its scheme in capitals", "GET HTTP://b.test/a HTTP/1.1\r\nHost: b.test\r\n\r\n",
  { target = "/a", xfh = "b.test" })
add("9112 3.2.2", "absolute-form with user info", "GET http://u:p@b.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n", 400)
add("9112 3.2.2", "absolute-form without a host", "GET http:///a HTTP/1.1\r\nHost: a.test\r\n\r\n", 400)
add("9112 3.2.2", "absolute-form with another scheme", "GET ftp://b.test/ HTTP/1.1\r\nHost: b.test\r\n\r\n", 400)
add("9112 3.2.2", "absolute-form with a bad Host", "GET http://b.test/ HTTP/1.1\r\nHost: a b\r\n\r\n", 400)
add("9112 3.2.3", "authority-form with CONNECT", "CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\n\r\n", 501)
add("9112 3.2.3", "authority-form with GET", "GET a.test:80 HTTP/1.1\r\nHost: a.test\r\n\r\n", 400)
add("9112 3.2.4", "asterisk-form with OPTIONS", "OPTIONS * HTTP/1.1\r\nHost: a.test\r\n\r\n", { none = true, status = 404 })
add("9112 3.2.4", "asterisk-form with GET", "GET * HTTP/1.1\r\nHost: a.test\r\n\r\n", 400)

-- RFC 9112, 3.2 and RFC 9110, 7.2: Host
add("9112 3.2", "no Host in 1.1", "GET / HTTP/1.1\r\n\r\n", 400)
add("9112 3.2", "no Host in 1.0", "GET / HTTP/1.0\r\n\r\n", { target = "/", via = "1.0 tollgate", closes = true })
add("9112 3.2", "two Hosts", get "Host: b.test\r\n", 400)
add("9112 3.2", "two equal Hosts", get "Host: a.test\r\n", 400)
add("9112 3.2", "two Hosts as a list", "GET / HTTP/1.1\r\nHost: a.test, b.test\r\n\r\n", 400)
add("9112 3.2", "a Host with a space", "GET / HTTP/1.1\r\nHost: a b\r\n\r\n", 400)
add("9112 3.2", "a Host with user info", "GET / HTTP/1.1\r\nHost: u@a.test\r\n\r\n", 400)
add("9112 3.2", "a Host with a path", "GET / HTTP/1.1\r\nHost: a.test/x\r\n\r\n", 400)
add("9112 3.2", "a Host with a port that is none", "GET / HTTP/1.1\r\nHost: a.test:x\r\n\r\n", 400)
add("9112 3.2", "a Host with a port beyond 65535", "GET / HTTP/1.1\r\nHost: a.test:65536\r\n\r\n", 400)
add("9112 3.2", "a Host that is an IPv6 address", "GET / HTTP/1.1\r\nHost: [::1]:80\r\n\r\n", { target = "/", xfh = "[::1]:80" })
add("9112 3.2", "a Host with an IPv6 address that is none", "GET / HTTP/1.1\r\nHost: [::1\r\n\r\n", 400)

-- RFC 9112, 5 and RFC 9110, 5: fields
add("9112 5", "white space around a value is taken off", get "X-A: \t b c \t\r\n", { target = "/", fields = "x-a=b c" })
add("9112 5", "no white space before a value", get "X-A:b\r\n", { target = "/", fields = "x-a=b" })
add("9112 5", "an empty value", get "X-A:\r\n", { target = "/", fields = "x-a=" })
add("9110 5.3", "a field that is there twice stays so, in order", get "X-A: 1\r\nX-B: 2\r\nX-A: 3\r\n",
  { target = "/", fields = "x-a=1; x-b=2; x-a=3" })
add("9112 5.1", "space before the colon", get "X : 1\r\n", 400)
add("9112 5.1", "HTAB before the colon", get "X\t: 1\r\n", 400)
add("9112 5.1", "no name", get ": 1\r\n", 400)
add("9112 5.1", "no colon", get "X\r\n", 400)
add("9112 5.1", "a name that is no token", get "X(y): 1\r\n", 400)
add("9112 5.1", "a name beyond ASCII", get "X\195\164: 1\r\n", 400)
add("9112 5.1", "a name in quotes", get '"X": 1\r\n', 400)
add("9112 5.2", "a folded value", get "X: 1\r\n\tmore\r\n", 400)
add("9112 5.2", "a folded first line", get " X: 1\r\n", 400)
add("9112 5.2", "folding behind Transfer-Encoding", post("Transfer-Encoding:\r\n chunked\r\n", "0\r\n\r\n"), 400)
add("9110 5.5", "NUL in a value", get "X: a\0b\r\n", 400)
add("9110 5.5", "a control character in a value", get "X: a\1b\r\n", 400)
add("9110 5.5", "DEL in a value", get "X: a\127b\r\n", 400)
add("9110 5.5", "bytes beyond ASCII in a value go on", get "X-A: \195\164\r\n", { target = "/", fields = "x-a=\195\164" })
add("9110 5.4", "more fields than the limit", get(("X: 1\r\n"):rep(40)), 431)
add("9110 5.4", "a head larger than the limit", get("X: " .. ("a"):rep(5000) .. "\r\n"), 431)

-- RFC 9112, 6: body
add("9112 6.2", "a body by Content-Length", post("Content-Length: 3\r\n", "abc"), { target = "/", method = "POST", body = "abc",
  length = "3" })
add("9112 6.2", "a body of no bytes", post "Content-Length: 0\r\n", { target = "/", method = "POST", length = "0" })
add("9112 6.3", "a POST without framing has no body", post "", { target = "/", method = "POST" })
add("9112 6.2", "a GET with a body", "GET / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 2\r\n\r\nab",
  { target = "/", body = "ab", length = "2" })
add("9112 6.3", "Content-Length twice, different", post("Content-Length: 3\r\nContent-Length: 4\r\n", "abcd"), 400)
add("9112 6.3", "Content-Length twice, equal", post("Content-Length: 3\r\nContent-Length: 3\r\n", "abc"), 400)
add("9112 6.3", "Content-Length as a list", post("Content-Length: 3, 3\r\n", "abc"), 400)
for what, value in pairs { ["negative"] = "-1", signed = "+3", hexadecimal = "0x3", empty = "", ["with a space in it"] = "1 0",
  ["with a fraction"] = "3.0", ["with an exponent"] = "3e0", ["beyond 2^63"] = "9223372036854775808",
  ["beyond 2^64"] = "18446744073709551619", ["with an underscore"] = "1_0", ["in quotes"] = '"3"' } do
  add("9110 8.6", "Content-Length " .. what, post("Content-Length: " .. value .. "\r\n", "abc"), 400)
end
add("9110 8.6", "Content-Length with leading zeros", post("Content-Length: 003\r\n", "abc"),
  { target = "/", method = "POST", body = "abc", length = "3" })
add("9112 6.1", "Transfer-Encoding and Content-Length", post("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
  "0\r\n\r\n"), 400)
add("9112 6.1", "Content-Length behind Transfer-Encoding", chunked("0\r\n\r\n", "Content-Length: 3\r\n"), 400)
add("9112 6.1", "Transfer-Encoding in HTTP/1.0", "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400)
add("9112 6.1", "Transfer-Encoding twice", chunked("0\r\n\r\n", "Transfer-Encoding: chunked\r\n"), 400)
add("9112 6.1", "chunked twice", post("Transfer-Encoding: chunked, chunked\r\n", "0\r\n\r\n"), 400)
add("9112 6.1", "chunked not last", post("Transfer-Encoding: chunked, gzip\r\n", "0\r\n\r\n"), 400)
add("9112 6.1", "another coding before chunked", post("Transfer-Encoding: gzip, chunked\r\n", "0\r\n\r\n"), 501)
add("9112 6.1", "identity", post("Transfer-Encoding: identity\r\n", ""), 501)
add("9112 6.1", "an empty Transfer-Encoding", post("Transfer-Encoding: \r\n", ""), 400)
add("9112 6.1", "chunked with a parameter", post("Transfer-Encoding: chunked;q=1\r\n", "0\r\n\r\n"), 400)
add("9112 6.1", "chunked in quotes", post('Transfer-Encoding: "chunked"\r\n', "0\r\n\r\n"), 400)
add("9112 6.1", "chunked behind a vertical tab", post("Transfer-Encoding: \11chunked\r\n", "0\r\n\r\n"), 400)
add("9112 6.1", "chunked in capitals", post("Transfer-Encoding: CHUNKED\r\n", "3\r\nabc\r\n0\r\n\r\n"),
  { target = "/", method = "POST", body = "abc", length = "chunked" })
add("9112 6.1", "Transfer_Encoding is another field, which two readers may confuse",
  post("Transfer_Encoding: chunked\r\nContent-Length: 3\r\n", "abc"),
  { target = "/", method = "POST", body = "abc", length = "3", fields = "transfer_encoding=chunked" })

-- RFC 9112, 7.1: chunks
add("9112 7.1", "chunks", chunked "3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
  { target = "/", method = "POST", body = "abcde", length = "chunked" })
add("9112 7.1", "a size in capitals with leading zeros", chunked "00A\r\n0123456789\r\n0\r\n\r\n",
  { target = "/", method = "POST", body = "0123456789", length = "chunked" })
for what, bytes in pairs { ["that is no number"] = "g\r\n", ["that is empty"] = "\r\n", ["that is negative"] = "-1\r\n",
  ["that is signed"] = "+3\r\nabc\r\n0\r\n\r\n", ["with 0x"] = "0x3\r\nabc\r\n0\r\n\r\n",
  ["behind a space"] = " 3\r\nabc\r\n0\r\n\r\n", ["before bare LF"] = "3\nabc\r\n0\r\n\r\n",
  ["beyond 2^64"] = "fffffffffffffffff\r\n", ["of 17 digits"] = "00000000000000003\r\nabc\r\n0\r\n\r\n",
  ["that is smaller than the chunk"] = "2\r\nabc\r\n0\r\n\r\n", ["before space and CRLF"] = "3 \r\nabc\r\n0\r\n\r\n" } do
  add("9112 7.1", "a chunk size " .. what, chunked(bytes), 400)
end
add("9112 7.1", "a chunk that ends in LF", chunked "3\r\nabc\n0\r\n\r\n", 400)
add("9112 7.1.1", "a chunk extension is dropped", chunked '3;a=b;c="d;e"\r\nabc\r\n0;f\r\n\r\n',
  { target = "/", method = "POST", body = "abc", length = "chunked" })
add("9112 7.1.1", "a chunk extension with bare LF", chunked "3;a\nabc\r\n0\r\n\r\n", 400)
add("9112 7.1.1", "a chunk extension with a control character", chunked "3;a=\1\r\nabc\r\n0\r\n\r\n", 400)
add("9112 7.1.1", "chunk extensions without end", chunked("1;" .. ("a"):rep(20000) .. "\r\n"), 400)
add("9112 7.1.2", "trailers are dropped", chunked "3\r\nabc\r\n0\r\nX-T: 1\r\nContent-Length: 9\r\n\r\n",
  { target = "/", method = "POST", body = "abc", length = "chunked" })
add("9112 7.1.2", "a trailer that is none", chunked "0\r\nbad trailer\r\n\r\n", 400)
add("9112 7.1.2", "a folded trailer", chunked "0\r\nX: 1\r\n y\r\n\r\n", 400)
add("9112 7.1.2", "trailers larger than a head", chunked("0\r\nX: " .. ("a"):rep(5000) .. "\r\n\r\n"), 431)

-- RFC 9112, 9 and RFC 9110, 7.6.1: connections
add("9112 9.6", "Connection: close ends it", get "Connection: close\r\n", { target = "/", closes = true })
add("9112 9.6", "close among others, in capitals", get "Connection: x-a, CLOSE\r\n", { target = "/", closes = true })
add("9110 7.6.1", "fields that Connection names end here", get "Connection: X-A, x-b\r\nX-A: 1\r\nX-B: 2\r\nX-C: 3\r\n",
  { target = "/", fields = "x-c=3" })
add("9110 7.6.1", "hop-by-hop fields end here", get("Keep-Alive: 5\r\nProxy-Connection: x\r\nTE: trailers\r\nTrailer: x\r\n" ..
  "Upgrade: h2c\r\nX-C: 3\r\n"), { target = "/", fields = "x-c=3" })
add("9110 7.6.1", "Connection cannot strip what frames and routes",
  post("Connection: content-length, host, x-forwarded-for, via\r\nContent-Length: 3\r\n", "abc"),
  { target = "/", method = "POST", body = "abc", length = "3", xfh = "a.test" })
add("9110 7.6.1", "Connection cannot strip Transfer-Encoding",
  chunked("3\r\nabc\r\n0\r\n\r\n", "Connection: transfer-encoding\r\n"),
  { target = "/", method = "POST", body = "abc", length = "chunked" })
add("9110 7.6.1", "a Connection option that is no token", get "Connection: a b\r\n", { target = "/" })
add("9110 7.6.3", "Via is told behind what is there", get "Via: 1.0 first\r\n", { target = "/", via = "1.0 first, 1.1 tollgate" })
add("9110 7.8", "an upgrade that nobody allows is passed over",
  get "Connection: upgrade\r\nUpgrade: h2c\r\nHTTP2-Settings: x\r\n",
  { target = "/", fields = "http2-settings=x" })
add("9112 9.3.2", "requests behind one another", get("", "/1") .. get("", "/2") .. get("", "/3"),
  { target = "/1", more = { "/2", "/3" } })
add("9112 9.3.2", "a request behind an empty line", get("", "/1") .. "\r\n" .. get("", "/2"), { target = "/1", more = { "/2" } })

-- RFC 9110, 9.3: methods
add("9110 9.3.2", "HEAD", "HEAD / HTTP/1.1\r\nHost: a.test\r\n\r\n", { target = "/", method = "HEAD" })
add("9110 9.3.6", "CONNECT with a path", "CONNECT / HTTP/1.1\r\nHost: a.test\r\n\r\n", 501)
add("9110 9.3.8", "TRACE, which would show what is added for the origin", "TRACE / HTTP/1.1\r\nHost: a.test\r\n\r\n", 501)
add("9110 9.3.8", "TRACE with a body", "TRACE / HTTP/1.1\r\nHost: a.test\r\nContent-Length: 1\r\n\r\nx", 501)
add("9110 7.6.2", "Max-Forwards of OPTIONS that is no number",
  "OPTIONS / HTTP/1.1\r\nHost: a.test\r\nMax-Forwards: 9999999999x\r\n\r\n",
  { none = true, status = 400 })
add("9110 7.6.2", "OPTIONS without hops left ends here", "OPTIONS / HTTP/1.1\r\nHost: a.test\r\nMax-Forwards: 0\r\n\r\n",
  { none = true, status = 204 })
add("9110 7.6.2", "OPTIONS goes on with one hop less", "OPTIONS / HTTP/1.1\r\nHost: a.test\r\nMax-Forwards: 7\r\n\r\n",
  { target = "/", method = "OPTIONS", fields = "max-forwards=6" })
add("9110 7.6.2", "Max-Forwards of other methods goes on as it is", get "Max-Forwards: 0\r\n",
  { target = "/", fields = "max-forwards=0" })

-- RFC 9110, 10.1: Expect
add("9110 10.1.1", "an expectation that nobody knows", post("Content-Length: 3\r\nExpect: the-best\r\n", "abc"), 417)
add("9110 10.1.1", "100-continue without a body means nothing", get "Expect: 100-continue\r\n", { target = "/" })
add("9110 10.1.1", "100-continue in HTTP/1.0 means nothing",
  "POST / HTTP/1.0\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\nx",
  { target = "/", method = "POST", body = "x", length = "1", via = "1.0 tollgate", closes = true })

-- RFC 9110, 8, 12, 13 and 14: what belongs to the origin
add("9110 13", "conditions go on", get 'If-None-Match: "a", W/"b"\r\nIf-Modified-Since: Tue, 01 Dec 2026 00:00:00 GMT\r\n',
  { target = "/", fields = 'if-none-match="a", W/"b"; if-modified-since=Tue, 01 Dec 2026 00:00:00 GMT' })
add("9110 14", "ranges go on", get 'Range: bytes=0-1,5-\r\nIf-Range: "a"\r\n',
  { target = "/", fields = 'range=bytes=0-1,5-; if-range="a"' })
add("9110 12.5", "negotiation goes on", get "Accept: a/b;q=0.1\r\nAccept-Encoding: gzip\r\n",
  { target = "/", fields = "accept=a/b;q=0.1; accept-encoding=gzip" })
add("9110 8.4", "a coded body goes on as it is", post("Content-Encoding: gzip\r\nContent-Length: 2\r\n", "\31\139"),
  { target = "/", method = "POST", body = "\31\139", length = "2", fields = "content-encoding=gzip" })
add("9110 11.7", "credentials for a proxy end here", get "Proxy-Authorization: Basic x\r\nX-C: 3\r\n",
  { target = "/", fields = "x-c=3" })
add("7239 4", "Forwarded and X-Forwarded-* cannot be forged",
  get "Forwarded: for=1.1.1.1\r\nX-Forwarded-For: 1.1.1.1\r\nX-C: 3\r\n",
  { target = "/", fields = "x-c=3" })

-- RFC 3986, 6.2.2: one path for one resource
for given, path in pairs { ["/a/./b"] = "/a/b", ["/a/x/../b"] = "/a/b", ["/a/%2e/b"] = "/a/b", ["/a/x/%2E%2e/b"] = "/a/b",
  ["/%61"] = "/a", ["/%7Ea"] = "/~a", ["/a%2fb"] = "/a%2Fb", ["/a/.%2e/b"] = "/b", ["/a;p=1/b"] = "/a;p=1/b",
  ["/a%3Fb"] = "/a%3Fb", ["/a%23b"] = "/a%23b", ["/a/..."] = "/a/...", ["/a/b/.."] = "/a/", ["/a/."] = "/a/" } do
  add("3986 6.2.2", "the path " .. given, get("", given), { target = path })
end
for what, given in pairs { ["an encoded NUL"] = "/%00", ["half an encoding"] = "/%4", ["an encoding that is none"] = "/%zz",
  ["a climb above the root"] = "/../a", ["a climb above the root, encoded"] = "/a/%2e%2e/%2e%2e/b", ["a backslash"] = "/a\\b",
  ["an encoded backslash"] = "/a%5cb", ["bytes beyond ASCII"] = "/\195\164", ["a dot segment with a parameter"] = "/a/..;/b",
  ["an encoded control character"] = "/a%0ab", ["a quote"] = '/a"b', ["an angle bracket"] = "/a<b" } do
  add("3986 2", "a path with " .. what, get("", given), 400)
end
add("3986 2", "a query with an encoding that is none", get("", "/?%f"), 400)
add("3986 2", "a query keeps its dots and slashes", get("", "/a?../%2e//x?y"), { target = "/a?../%2e//x?y" })
add("3986 6.2.2", "empty segments, which origins see in two ways", get("", "/a//b"), { target = "/a/b" })

return M
