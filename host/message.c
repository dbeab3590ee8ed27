/* See message.h. A head is written with one reservation: its size is known before the first
 * byte. */
#include "message.h"

#include "put.h"

enum {
    FRAMING_ROOM = 128
}; /* bytes: the longest framing and Connection fields and the empty line */

static const char *const reasons[600] = {
    [100] = "Continue",
    [101] = "Switching Protocols",
    [102] = "Processing",
    [103] = "Early Hints",
    [200] = "OK",
    [201] = "Created",
    [202] = "Accepted",
    [203] = "Non-Authoritative Information",
    [204] = "No Content",
    [205] = "Reset Content",
    [206] = "Partial Content",
    [207] = "Multi-Status",
    [208] = "Already Reported",
    [226] = "IM Used",
    [300] = "Multiple Choices",
    [301] = "Moved Permanently",
    [302] = "Found",
    [303] = "See Other",
    [304] = "Not Modified",
    [305] = "Use Proxy",
    [307] = "Temporary Redirect",
    [308] = "Permanent Redirect",
    [400] = "Bad Request",
    [401] = "Unauthorized",
    [402] = "Payment Required",
    [403] = "Forbidden",
    [404] = "Not Found",
    [405] = "Method Not Allowed",
    [406] = "Not Acceptable",
    [407] = "Proxy Authentication Required",
    [408] = "Request Timeout",
    [409] = "Conflict",
    [410] = "Gone",
    [411] = "Length Required",
    [412] = "Precondition Failed",
    [413] = "Content Too Large",
    [414] = "URI Too Long",
    [415] = "Unsupported Media Type",
    [416] = "Range Not Satisfiable",
    [417] = "Expectation Failed",
    [421] = "Misdirected Request",
    [422] = "Unprocessable Content",
    [423] = "Locked",
    [424] = "Failed Dependency",
    [425] = "Too Early",
    [426] = "Upgrade Required",
    [428] = "Precondition Required",
    [429] = "Too Many Requests",
    [431] = "Request Header Fields Too Large",
    [451] = "Unavailable For Legal Reasons",
    [500] = "Internal Server Error",
    [501] = "Not Implemented",
    [502] = "Bad Gateway",
    [503] = "Service Unavailable",
    [504] = "Gateway Timeout",
    [505] = "HTTP Version Not Supported",
    [506] = "Variant Also Negotiates",
    [507] = "Insufficient Storage",
    [508] = "Loop Detected",
    [511] = "Network Authentication Required",
    [529] = "Overloaded", /* not registered; LLM providers use it */
};

const char *message_reason(int status)
{
    const char *reason = status >= 0 && status < 600 ? reasons[status] : NULL;
    return reason == NULL ? "Unknown" : reason;
}

bool message_no_body(struct slice method, int status)
{
    return status < 200 || status == 204 || status == 304 || slice_eq(method, SLICE("HEAD"));
}

bool message_idempotent(struct slice method)
{
    switch (method.n) {
    case 3: return slice_eq(method, SLICE("GET")) || slice_eq(method, SLICE("PUT"));
    case 4: return slice_eq(method, SLICE("HEAD"));
    case 5: return slice_eq(method, SLICE("TRACE"));
    case 6: return slice_eq(method, SLICE("DELETE"));
    case 7: return slice_eq(method, SLICE("OPTIONS"));
    default: return false;
    }
}

static char *put_field(char *to, struct slice name, struct slice value)
{
    to = put_slice(to, name);
    to = put_slice(to, SLICE(": "));
    to = put_slice(to, value);
    return put_slice(to, SLICE("\r\n"));
}

static size_t fields_size(const struct headers *h)
{
    size_t n = 0;
    for (uint32_t i = 0; i < h->n; i++)
        n += h->v[i].name.n + h->v[i].value.n + 4;
    return n;
}

/* All fields but those of framing and connection, and but `skip`, which stands elsewhere
 * already. */
static char *put_fields(char *to, const struct headers *h, enum header_id skip)
{
    for (uint32_t i = 0; i < h->n; i++) {
        const struct header *f = &h->v[i];
        bool written_apart = f->id == HEADER_CONTENT_LENGTH || f->id == HEADER_TRANSFER_ENCODING ||
                             f->id == HEADER_CONNECTION || (skip != HEADER_OTHER && f->id == skip);
        if (!written_apart)
            to = put_field(to, f->name, f->value);
    }
    return to;
}

/* RFC 9110, section 7.8: who sends Upgrade names it in Connection. */
static char *put_connection(char *to, const struct headers *h, struct slice option)
{
    bool upgrade = headers_get_id(h, HEADER_UPGRADE).p != NULL;
    if (option.n == 0 && !upgrade)
        return to;
    to = put_slice(to, SLICE("Connection: "));
    to = put_slice(to, option);
    if (upgrade)
        to = put_slice(to, option.n > 0 ? SLICE(", upgrade") : SLICE("upgrade"));
    return put_slice(to, SLICE("\r\n"));
}

static char *put_length(char *to, uint64_t length)
{
    to = put_slice(to, SLICE("Content-Length: "));
    to = put_number(to, length);
    return put_slice(to, SLICE("\r\n"));
}

static char *put_framing(char *to, enum framing framing, uint64_t length)
{
    if (framing == FRAMING_LENGTH)
        return put_length(to, length);
    if (framing == FRAMING_CHUNKED)
        return put_slice(to, SLICE("Transfer-Encoding: chunked\r\n"));
    return to;
}

void message_write_request(struct buf *out, const struct request *r, struct slice target,
                           bool close)
{
    struct slice host = headers_get_id(&r->headers, HEADER_HOST);
    if (host.p == NULL)
        host = r->authority;
    size_t room = r->method.n + target.n + host.n + fields_size(&r->headers) + FRAMING_ROOM;
    char *start = buf_reserve(out, room);
    char *to = put_slice(start, r->method);
    *to++ = ' ';
    to = put_slice(to, target);
    to = put_slice(to, SLICE(" HTTP/1.1\r\n"));
    to = put_field(to, SLICE("Host"), host); /* first, as RFC 9110, section 7.2 wants it */
    to = put_fields(to, &r->headers, HEADER_HOST);
    to = put_framing(to, r->framing, r->length);
    to = put_connection(to, &r->headers, close ? SLICE("close") : SLICE(""));
    to = put_slice(to, SLICE("\r\n"));
    out->n += (size_t)(to - start);
}

void message_write_response(struct buf *out, const struct response *r, bool close,
                            bool keep_alive_10)
{
    struct slice reason = slice_of(message_reason(r->status));
    char *start = buf_reserve(out, reason.n + fields_size(&r->headers) + FRAMING_ROOM);
    char *to = put_slice(start, SLICE("HTTP/1.1 "));
    to = put_number(to, (uint64_t)r->status);
    *to++ = ' ';
    to = put_slice(to, reason);
    to = put_slice(to, SLICE("\r\n"));
    to = put_fields(to, &r->headers, HEADER_OTHER);
    /* RFC 9110, section 8.6 and RFC 9112, section 6.1: no framing fields in these. */
    bool bare = r->status < 200 || r->status == 204;
    if (!bare && r->framing == FRAMING_NONE && r->head_length)
        to = put_length(to, r->length);
    else if (!bare)
        to = put_framing(to, r->framing, r->length);
    struct slice option = SLICE("");
    if (close || r->framing == FRAMING_CLOSE)
        option = SLICE("close");
    else if (keep_alive_10)
        option = SLICE("keep-alive");
    to = put_connection(to, &r->headers, option);
    to = put_slice(to, SLICE("\r\n"));
    out->n += (size_t)(to - start);
}

static void put_digits(char *to, int width, int value)
{
    for (int i = width - 1; i >= 0; i--, value /= 10)
        to[i] = (char)('0' + value % 10);
}

void message_date(int64_t seconds, char out[30])
{
    static const char days[] = "ThuFriSatSunMonTueWed"; /* 1 January 1970 was a Thursday */
    static const char months[] = "MarAprMayJunJulAugSepOctNovDecJanFeb";
    const int64_t first = -62167219200, last = 253402300799; /* years 0000 and 9999 */
    seconds = seconds < first ? first : seconds > last ? last : seconds;

    /* Days are counted from 1 March of a year divisible by 400, so that a leap day ends its year
     * and the months before it follow a linear rule. The offset makes every count positive. */
    int64_t day = (seconds - first) / 86400, second = (seconds - first) % 86400;
    int64_t shifted =
        day + 146097 - 60; /* 146097 days are 400 years; year 0 began 60 days before March */
    int64_t era = shifted / 146097, of_era = shifted % 146097;
    int64_t year = (of_era - of_era / 1460 + of_era / 36524 - of_era / 146096) / 365;
    int of_year = (int)(of_era - (365 * year + year / 4 - year / 100));
    int month = (5 * of_year + 2) / 153;
    int of_month = of_year - (153 * month + 2) / 5 + 1;
    year += era * 400 - 400 + (month >= 10);

    memcpy(out, "Thu, 01 Jan 1970 00:00:00 GMT", 30);
    memcpy(out, days + 3 * ((day + 2) % 7), 3); /* day 0 was a Saturday */
    put_digits(out + 5, 2, of_month);
    memcpy(out + 8, months + 3 * month, 3);
    put_digits(out + 12, 4, (int)year);
    put_digits(out + 17, 2, (int)(second / 3600));
    put_digits(out + 20, 2, (int)(second / 60 % 60));
    put_digits(out + 23, 2, (int)(second % 60));
}
