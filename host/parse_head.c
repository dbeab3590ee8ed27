/* The grammar of heads; see parse_head.h. One scan that goes forward only: every loop ends at
 * the first byte that is not of its class, at the latest at the CRLF that ends the head, so no
 * bound is checked on the way. */
#include "parse_head.h"

#include "chars.h"

enum { METHOD_MAX = 64 /* bytes; the longest registered one has 17 */ };

static const struct parse_fault fine = { 0, NULL };

static struct parse_fault fault(int status, const char *text)
{
    return (struct parse_fault){ status, text };
}

static char *skip(char *p, unsigned class)
{
    while (char_is(*p, class))
        p++;
    return p;
}

static bool line_ends(const char *p)
{
    return p[0] == '\r' && p[1] == '\n';
}

/* Why a line's text ended where it should not have. */
static struct parse_fault bad_byte(char c)
{
    if (c == '\r')
        return fault(400, "bare CR");
    return fault(400, c == '\0' ? "NUL in the head" : "control character in the head");
}

/* http_parser 2.9 takes every name that begins like this for Transfer-Encoding. */
static bool like_transfer_encoding(const char *p, size_t n)
{
    struct slice real = SLICE("transfer-encoding");
    return n > real.n && slice_ieq((struct slice){ p, real.n }, real);
}

static struct parse_fault check_name(const char *p, const char *end)
{
    if (end > p && *end == ':' && like_transfer_encoding(p, (size_t)(end - p)))
        return fault(400, "field name can be taken for Transfer-Encoding");
    if (end > p && *end == ':')
        return fine;
    if (end == p && (*p == ' ' || *p == '\t'))
        return fault(400, "line folding, or space before a field name"); /* RFC 9112, section 5.2 */
    if (*end == ' ' || *end == '\t')
        return fault(400, "space in or behind a field name"); /* RFC 9112, section 5.1 */
    return fault(400, "field name is no token");
}

static struct parse_fault check_fields(char *p, const struct parse_limits *limits, uint32_t *fields)
{
    for (*fields = 0; !line_ends(p); p += 2) {
        char *end = skip(p, CHAR_TOKEN);
        struct parse_fault f = check_name(p, end);
        if (f.status != 0)
            return f;
        if (++*fields > limits->fields)
            return fault(431, "too many header fields");
        p = skip(end + 1, CHAR_VALUE);
        if (!line_ends(p))
            return bad_byte(*p);
        /* http_parser takes SP behind the digits of a Content-Length but not HTAB. */
        for (char *q = p; q[-1] == ' ' || q[-1] == '\t'; q--)
            q[-1] = ' ';
    }
    return fine;
}

/* "HTTP/1.0" or "HTTP/1.1" (RFC 9112, section 2.3); http_parser reports it again, as numbers. */
static struct parse_fault check_version(const char *p)
{
    for (const char *want = "HTTP/"; *want != '\0'; want++, p++)
        if (*p != *want)
            return fault(400, "malformed HTTP version");
    if (!char_is(p[0], CHAR_DIGIT) || p[1] != '.' || !char_is(p[2], CHAR_DIGIT))
        return fault(400, "malformed HTTP version");
    if (p[0] != '1' || p[2] > '1')
        return fault(505, "HTTP version is neither 1.0 nor 1.1");
    return fine;
}

/* method SP request-target SP HTTP-version CRLF (RFC 9112, section 3) */
struct parse_fault parse_head_request(char *head, const struct parse_limits *limits,
                                      struct parse_head *out)
{
    char *p = skip(head, CHAR_TOKEN);
    out->method = (struct slice){ head, (size_t)(p - head) };
    out->target = (struct slice){ "", 0 };
    if (p == head || *p != ' ')
        return fault(400, "malformed method");
    /* TRACE would show a client the credentials that are added for the target. */
    if (out->method.n > METHOD_MAX || slice_eq(out->method, SLICE("CONNECT")) ||
        slice_eq(out->method, SLICE("TRACE")))
        return fault(501, "method not implemented");
    char *target = ++p;
    while (*p > ' ' && *p < 0x7f)
        p++;
    if (p == target || *p != ' ')
        return fault(400, "malformed request line");
    out->target = (struct slice){ target, (size_t)(p - target) };
    if (out->target.n > limits->url)
        return fault(414, "request target too long");
    struct parse_fault f = check_version(++p);
    if (f.status != 0)
        return f;
    p += sizeof "HTTP/1.1" - 1;
    if (!line_ends(p))
        return fault(400, "malformed request line");
    return check_fields(p + 2, limits, &out->fields);
}

/* HTTP-version SP status-code [ SP [ reason-phrase ] ] CRLF (RFC 9112, section 4); the grammar
 * wants the second SP, but many origins leave it out with the phrase, and nobody reads it in two
 * ways. */
struct parse_fault parse_head_response(char *head, const struct parse_limits *limits,
                                       struct parse_head *out)
{
    struct parse_fault f = check_version(head);
    if (f.status != 0)
        return f;
    char *p = head + sizeof "HTTP/1.1" - 1;
    bool valid = p[0] == ' ' && p[1] >= '1' && p[1] <= '5' && char_is(p[2], CHAR_DIGIT) &&
                 char_is(p[3], CHAR_DIGIT);
    if (!valid)
        return fault(400, "malformed status line");
    p += 4;
    if (*p == ' ')
        p = skip(p, CHAR_VALUE);
    if (!line_ends(p))
        return fault(400, "malformed status line");
    return check_fields(p + 2, limits, &out->fields);
}
