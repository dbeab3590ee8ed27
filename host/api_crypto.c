/* tg.crypto: digests, random bytes and encodings; tg.uuid. Text is bytes: whatever a string holds.
 * Where a result may be had in several encodings it is hexadecimal unless the caller says
 * otherwise, which is safe in headers, keys and logs. */
#include <errno.h>
#include <limits.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/sha.h>
#include <sys/random.h>

#include "api.h"
#include "encoding.h"

enum { RANDOM_MAX = 65536 }; /* bytes */

enum encoding { HEX, RAW, BASE64, BASE64URL, ENCODINGS };

static const char *const encoding_names[ENCODINGS] = { "hex", "raw", "base64", "base64url" };

static struct slice check_bytes(lua_State *L, int idx, const char *function, const char *name)
{
    struct slice s;
    if (lua_type(L, idx) != LUA_TSTRING)
        luaL_error(L, "%s: %s must be a string, not %s", function, name, luaL_typename(L, idx));
    s.p = lua_tolstring(L, idx, &s.n);
    return s;
}

static enum encoding check_encoding(lua_State *L, int idx, const char *function)
{
    if (lua_isnoneornil(L, idx))
        return HEX;
    for (int i = 0; i < ENCODINGS && lua_type(L, idx) == LUA_TSTRING; i++) {
        if (strcmp(lua_tostring(L, idx), encoding_names[i]) == 0)
            return (enum encoding)i;
    }
    luaL_error(L, "%s: the encoding must be \"hex\", \"raw\", \"base64\" or \"base64url\"",
               function);
    return HEX;
}

static int push_encoded(lua_State *L, struct slice bytes, enum encoding encoding)
{
    if (encoding == RAW) {
        lua_pushlstring(L, bytes.p, bytes.n);
        return 1;
    }
    char *out = lua_newuserdata(L, bytes.n * 2 + 4);
    size_t n = encoding == HEX ? encoding_hex(bytes, out)
                               : encoding_base64(bytes, encoding == BASE64URL, out);
    lua_pushlstring(L, out, n);
    return 1;
}

static int push_decoded(lua_State *L, const char *bytes, long n)
{
    if (n == ENCODING_INVALID) {
        lua_pushnil(L);
        lua_pushliteral(L, "invalid");
        return 2;
    }
    lua_pushlstring(L, bytes, (size_t)n);
    return 1;
}

static void random_bytes(lua_State *L, void *out, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t got = getrandom((char *)out + at, n - at, 0);
        if (got < 0 && errno != EINTR)
            luaL_error(L, "the system gives no random bytes");
        at += got > 0 ? (size_t)got : 0;
    }
}

/* tg.crypto.sha256(data, encoding or nil) → string: the SHA-256 of a string (FIPS 180-4). The
 * encoding is "hex" (the default), "raw", "base64" or "base64url". */
static int crypto_sha256(lua_State *L)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    struct slice data = check_bytes(L, 1, "tg.crypto.sha256", "data");
    enum encoding encoding = check_encoding(L, 2, "tg.crypto.sha256");
    SHA256((const unsigned char *)data.p, data.n, digest);
    return push_encoded(L, (struct slice){ (char *)digest, sizeof digest }, encoding);
}

/* tg.crypto.hmac_sha256(key, data, encoding or nil) → string: HMAC with SHA-256 (RFC 2104).
 * Encodings as for sha256. Compare signatures with tg.crypto.equal. */
static int crypto_hmac_sha256(lua_State *L)
{
    unsigned char digest[SHA256_DIGEST_LENGTH];
    unsigned n = 0;
    struct slice key = check_bytes(L, 1, "tg.crypto.hmac_sha256", "key");
    struct slice data = check_bytes(L, 2, "tg.crypto.hmac_sha256", "data");
    enum encoding encoding = check_encoding(L, 3, "tg.crypto.hmac_sha256");
    luaL_argcheck(L, key.n <= INT_MAX, 1, "the key is too long");
    if (HMAC(EVP_sha256(), key.p, (int)key.n, (const unsigned char *)data.p, data.n, digest, &n) ==
        NULL)
        return luaL_error(L, "tg.crypto.hmac_sha256: libcrypto failed");
    return push_encoded(L, (struct slice){ (char *)digest, n }, encoding);
}

/* tg.crypto.random(n, encoding or nil) → string: n random bytes (1 to 65536) of the system, fit for
 * keys, in an encoding as for sha256. "hex" makes 2n characters of them. */
static int crypto_random(lua_State *L)
{
    lua_Number n = lua_type(L, 1) == LUA_TNUMBER ? lua_tonumber(L, 1) : 0;
    enum encoding encoding = check_encoding(L, 2, "tg.crypto.random");
    if (!(n >= 1 && n <= RANDOM_MAX && n == (lua_Number)(size_t)n))
        return luaL_error(L, "tg.crypto.random: n must be an integer from 1 to %d (bytes)",
                          RANDOM_MAX);
    char *bytes = lua_newuserdata(L, (size_t)n);
    random_bytes(L, bytes, (size_t)n);
    return push_encoded(L, (struct slice){ bytes, (size_t)n }, encoding);
}

/* tg.crypto.equal(a, b) → boolean: whether two strings are equal, in a time that does not tell
 * where they differ. That of strings of different lengths tells that they are. */
static int crypto_equal(lua_State *L)
{
    struct slice a = check_bytes(L, 1, "tg.crypto.equal", "a"),
                 b = check_bytes(L, 2, "tg.crypto.equal", "b");
    lua_pushboolean(L, a.n == b.n && CRYPTO_memcmp(a.p, b.p, a.n) == 0);
    return 1;
}

/* tg.crypto.base64_encode(data) → string, with padding (RFC 4648, section 4). */
static int crypto_base64_encode(lua_State *L)
{
    return push_encoded(L, check_bytes(L, 1, "tg.crypto.base64_encode", "data"), BASE64);
}

/* tg.crypto.base64url_encode(data) → string, without padding (RFC 4648, section 5). */
static int crypto_base64url_encode(lua_State *L)
{
    return push_encoded(L, check_bytes(L, 1, "tg.crypto.base64url_encode", "data"), BASE64URL);
}

/* tg.crypto.hex_encode(data) → string, in lower case. */
static int crypto_hex_encode(lua_State *L)
{
    return push_encoded(L, check_bytes(L, 1, "tg.crypto.hex_encode", "data"), HEX);
}

static int base64_decode(lua_State *L, const char *function, bool url)
{
    struct slice text = check_bytes(L, 1, function, "text");
    char *out = lua_newuserdata(L, text.n / 4 * 3 + 3);
    return push_decoded(L, out, encoding_base64_decode(text, url, out));
}

/* tg.crypto.base64_decode(text) → string; nil, "invalid" where the text is not exactly what an
 * encoder makes: white space, missing padding, characters of another alphabet. */
static int crypto_base64_decode(lua_State *L)
{
    return base64_decode(L, "tg.crypto.base64_decode", false);
}

/* tg.crypto.base64url_decode(text) → string; nil, "invalid". Padding may be there or not. */
static int crypto_base64url_decode(lua_State *L)
{
    return base64_decode(L, "tg.crypto.base64url_decode", true);
}

/* tg.crypto.hex_decode(text) → string; nil, "invalid". Either case. */
static int crypto_hex_decode(lua_State *L)
{
    struct slice text = check_bytes(L, 1, "tg.crypto.hex_decode", "text");
    char *out = lua_newuserdata(L, text.n / 2 + 1);
    return push_decoded(L, out, encoding_hex_decode(text, out));
}

/* tg.uuid() → string: a random UUID (version 4 of RFC 9562), in lower case. */
static int tg_uuid(lua_State *L)
{
    unsigned char b[16];
    char hex[32], out[36], *p = out;
    random_bytes(L, b, sizeof b);
    b[6] = (unsigned char)(0x40 | (b[6] & 0x0f));
    b[8] = (unsigned char)(0x80 | (b[8] & 0x3f));
    encoding_hex((struct slice){ (char *)b, sizeof b }, hex);
    for (size_t i = 0; i < sizeof hex; i++) {
        if (i == 8 || i == 12 || i == 16 || i == 20)
            *p++ = '-';
        *p++ = hex[i];
    }
    lua_pushlstring(L, out, sizeof out);
    return 1;
}

void api_open_crypto(lua_State *L)
{
    static const luaL_Reg functions[] = {
        { "sha256", crypto_sha256 },
        { "hmac_sha256", crypto_hmac_sha256 },
        { "random", crypto_random },
        { "equal", crypto_equal },
        { "base64_encode", crypto_base64_encode },
        { "base64_decode", crypto_base64_decode },
        { "base64url_encode", crypto_base64url_encode },
        { "base64url_decode", crypto_base64url_decode },
        { "hex_encode", crypto_hex_encode },
        { "hex_decode", crypto_hex_decode },
        { NULL, NULL },
    };
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    lua_setfield(L, -2, "crypto");
    lua_pushcfunction(L, tg_uuid);
    lua_setfield(L, -2, "uuid");
}
