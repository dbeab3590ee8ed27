/* The rules about the fields of a head; see parse_head.h. What it accepts has one meaning for
 * every reader; where the RFCs let a recipient choose between repairing and refusing, it
 * refuses. */
#include "chars.h"
#include "parse_head.h"
#include "url.h"

static const struct parse_fault fine = { 0, NULL };

static struct parse_fault fault(int status, const char *text)
{
    return (struct parse_fault){ status, text };
}

static int count(const struct headers *h, enum header_id id)
{
    int n = 0;
    for (uint32_t i = 0; i < h->n; i++)
        n += h->v[i].id == id;
    return n;
}

/* Only "chunked", once. A coding that is not known is 501 (RFC 9112, section 6.1); one that
 * makes the length unknowable, 400 (section 6.3). */
static struct parse_fault check_codings(const struct headers *h)
{
    int codings = 0, chunked = 0;
    bool malformed = false, last_chunked = false;
    for (uint32_t i = 0; i < h->n; i++) {
        if (h->v[i].id != HEADER_TRANSFER_ENCODING)
            continue;
        struct slice rest = h->v[i].value, member;
        while (header_list_next(&rest, &member)) {
            last_chunked = slice_ieq(member, SLICE("chunked"));
            chunked += last_chunked;
            codings++;
            malformed |=
                !header_name_valid(member); /* parameters too: no coding that we know has any */
        }
    }
    if (codings == 0 || malformed || chunked > 1 || (chunked == 1 && !last_chunked))
        return fault(400, "malformed Transfer-Encoding");
    if (codings > 1 || chunked == 0)
        return fault(501, "transfer coding not implemented");
    bool exact = count(h, HEADER_TRANSFER_ENCODING) == 1 &&
                 headers_get_id(h, HEADER_TRANSFER_ENCODING).n == sizeof "chunked" - 1;
    return exact ? fine : fault(400, "malformed Transfer-Encoding"); /* empty members beside it */
}

/* One Content-Length of digits only. RFC 9110, section 8.6 lets equal repetitions be merged;
 * nobody sends them in good faith. */
static struct parse_fault check_length(const struct headers *h, uint64_t *length)
{
    struct slice text = headers_get_id(h, HEADER_CONTENT_LENGTH);
    uint64_t value = 0;
    if (count(h, HEADER_CONTENT_LENGTH) != 1)
        return fault(400, "Content-Length more than once");
    if (text.n == 0)
        return fault(400, "malformed Content-Length");
    for (size_t i = 0; i < text.n; i++) {
        if (!char_is(text.p[i], CHAR_DIGIT))
            return fault(400, "malformed Content-Length");
        uint64_t digit = (uint64_t)(text.p[i] - '0');
        /* Below 2^63, so that sums with it do not overflow. */
        if (value > (INT64_MAX - digit) / 10)
            return fault(400, "Content-Length too large");
        value = value * 10 + digit;
    }
    *length = value;
    return fine;
}

/* RFC 9112, section 6.3, as far as fields tell. */
static struct parse_fault check_framing(const struct headers *h, int minor, enum framing *framing,
                                        uint64_t *length)
{
    bool coded = count(h, HEADER_TRANSFER_ENCODING) > 0,
         sized = count(h, HEADER_CONTENT_LENGTH) > 0;
    if (coded && minor == 0)
        return fault(400, "Transfer-Encoding in HTTP/1.0");
    if (coded && sized)
        return fault(400, "Transfer-Encoding with Content-Length");
    *framing = coded ? FRAMING_CHUNKED : sized ? FRAMING_LENGTH : FRAMING_NONE;
    if (coded)
        return check_codings(h);
    return sized ? check_length(h, length) : fine;
}

/* RFC 9112, section 9.3 */
static bool keeps_alive(const struct headers *h, int minor)
{
    if (headers_has_token(h, HEADER_CONNECTION, SLICE("close")))
        return false;
    return minor >= 1 || headers_has_token(h, HEADER_CONNECTION, SLICE("keep-alive"));
}

/* The authority without the colon of an empty port, which means nothing. */
static bool take_authority(struct slice text, struct slice *out)
{
    struct slice host;
    int port;
    if (!url_authority(text, &host, &port))
        return false;
    *out = (struct slice){ text.p, text.n - (text.p[text.n - 1] == ':') };
    return true;
}

static bool query_valid(struct slice query)
{
    for (size_t i = 0; i < query.n; i++) {
        if (query.p[i] == '%') {
            if (query.n - i < 3 || !char_is(query.p[i + 1], CHAR_HEX) ||
                !char_is(query.p[i + 2], CHAR_HEX))
                return false;
            i += 2;
        } else if (!char_is(query.p[i], CHAR_QUERY)) {
            return false;
        }
    }
    return true;
}

/* absolute-path [ "?" query ] (RFC 9112, section 3.2.1) */
static struct parse_fault split_origin_form(struct request *r)
{
    struct slice path = r->target;
    const char *mark = memchr(path.p, '?', path.n);
    if (mark != NULL) {
        path.n = (size_t)(mark - path.p);
        r->query = (struct slice){ mark + 1, r->target.n - path.n - 1 };
        if (!query_valid(r->query))
            return fault(400, "malformed query");
    }
    if (url_normalise(r->headers.arena, path, &r->path) != 0)
        return fault(400, "malformed path");
    return fine;
}

static bool starts_without_case(struct slice s, struct slice prefix)
{
    return s.n >= prefix.n && slice_ieq((struct slice){ s.p, prefix.n }, prefix);
}

/* Takes scheme and authority off an absolute-form (RFC 9112, section 3.2.2); what is left is in
 * origin-form. */
static struct parse_fault split_absolute_form(struct request *r)
{
    struct slice rest = r->target;
    size_t scheme = starts_without_case(rest, SLICE("http://"))    ? 7
                    : starts_without_case(rest, SLICE("https://")) ? 8
                                                                   : 0;
    if (scheme == 0)
        return fault(400, "request target is neither in origin-form nor an http(s) URI");
    rest.p += scheme;
    rest.n -= scheme;
    size_t n = 0;
    while (n < rest.n && rest.p[n] != '/' && rest.p[n] != '?')
        n++;
    if (!take_authority((struct slice){ rest.p, n }, &r->authority))
        return fault(400, "malformed authority in the request target");
    rest.p += n;
    rest.n -= n;
    if (rest.n == 0) /* RFC 9112, sections 3.2.1 and 3.2.4 */
        r->target = slice_eq(r->method, SLICE("OPTIONS")) ? SLICE("*") : SLICE("/");
    else if (rest.p[0] == '?')
        r->target = arena_printf(r->headers.arena, "/%.*s", (int)rest.n, rest.p);
    else
        r->target = rest;
    return fine;
}

static struct parse_fault check_host(struct request *r, struct slice *host)
{
    int hosts = count(&r->headers, HEADER_HOST);
    *host = (struct slice){ "", 0 };
    if (hosts > 1)
        return fault(400, "more than one Host");
    if (hosts == 0)
        return r->minor == 0 ? fine : fault(400, "no Host"); /* RFC 9112, section 3.2 */
    if (!take_authority(headers_get_id(&r->headers, HEADER_HOST), host))
        return fault(400, "malformed Host");
    return fine;
}

/* Target, path, query and authority. */
static struct parse_fault check_target(struct request *r)
{
    struct slice host;
    struct parse_fault f = check_host(r, &host);
    if (f.status != 0)
        return f;
    r->authority = host;
    if (r->target.p[0] != '/' && !slice_eq(r->target, SLICE("*"))) {
        f = split_absolute_form(r);
        if (f.status != 0)
            return f;
        /* The target's authority wins, and nobody downstream may see the other one (RFC 9112,
         * section 3.2.2). */
        headers_set(&r->headers, SLICE("Host"), r->authority);
    }
    if (r->target.p[0] == '/')
        return split_origin_form(r);
    r->path = r->target;
    return slice_eq(r->method, SLICE("OPTIONS")) ? fine : fault(400, "\"*\" is for OPTIONS only");
}

/* RFC 9110, section 10.1.1: HTTP/1.0 knows no expectations (and what is sent on as HTTP/1.1 must
 * not hold one), and 100-continue without a body expects nothing. */
static struct parse_fault check_expect(struct request *r)
{
    if (r->minor == 0) {
        headers_remove_id(&r->headers, HEADER_EXPECT);
        return fine;
    }
    for (uint32_t i = 0; i < r->headers.n; i++) {
        if (r->headers.v[i].id != HEADER_EXPECT)
            continue;
        struct slice rest = r->headers.v[i].value, member;
        while (header_list_next(&rest, &member)) {
            if (!slice_ieq(member, SLICE("100-continue")))
                return fault(417, "expectation is not 100-continue");
            r->expect_continue = r->framing == FRAMING_CHUNKED || r->length > 0;
        }
    }
    return fine;
}

/* Each option is compared with each field later on, so there may not be many. */
static bool too_many_options(const struct headers *h, uint32_t max)
{
    uint32_t options = 0;
    for (uint32_t i = 0; i < h->n; i++) {
        struct slice rest = h->v[i].value, member;
        while (h->v[i].id == HEADER_CONNECTION && header_list_next(&rest, &member))
            options++;
    }
    return options > max;
}

struct parse_fault parse_rules_request(struct request *r, const struct parse_limits *limits)
{
    const struct headers *h = &r->headers;
    struct parse_fault f = check_target(r);
    if (f.status == 0)
        f = check_framing(h, r->minor, &r->framing, &r->length);
    if (f.status == 0)
        f = check_expect(r);
    if (f.status != 0)
        return f;
    if (too_many_options(h, limits->fields))
        return fault(431, "too many connection options");
    r->keep_alive = keeps_alive(h, r->minor);
    r->upgrade = r->minor >= 1 && count(h, HEADER_UPGRADE) > 0 &&
                 headers_has_token(h, HEADER_CONNECTION, SLICE("upgrade"));
    return fine;
}

struct parse_fault parse_rules_response(struct response *r, bool head, enum framing *declared)
{
    struct parse_fault f = check_framing(&r->headers, r->minor, declared, &r->length);
    if (f.status != 0)
        return f;
    bool bodied = *declared == FRAMING_CHUNKED || r->length > 0;
    r->keep_alive = keeps_alive(&r->headers, r->minor);
    if (!message_no_body(head ? SLICE("HEAD") : SLICE("GET"), r->status)) {
        r->framing = *declared == FRAMING_NONE ? FRAMING_CLOSE : *declared;
        r->keep_alive = r->keep_alive && r->framing != FRAMING_CLOSE;
        return fine;
    }
    /* These end with their head whatever the fields say (RFC 9112, section 6.3). An origin that
     * names a body in 1xx or 204 (RFC 9110, section 8.6 forbids it) may send one: before the
     * final answer that is not to be told from it, so it is a fault; behind a 204, the
     * connection is not used again. */
    if (r->status < 200 && bodied)
        return fault(400, "interim response with a body");
    if (r->status == 101 || (r->status == 204 && bodied))
        r->keep_alive = false;
    r->framing = FRAMING_NONE;
    r->head_length = *declared == FRAMING_LENGTH && r->status >= 200 && r->status != 204;
    if (!r->head_length)
        r->length = 0;
    return fine;
}
