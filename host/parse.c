/* See parse.h. A head is gathered until its empty line (gather.c), checked (parse_head.c), read
 * by http_parser in one piece, and checked again as fields (parse_rules.c). A body is cut into
 * pieces that hold one run of data each, so http_parser never has to be stopped inside one. Both
 * sides know where a message ends; that they agree is checked too, since a difference would be a
 * hole to smuggle requests through. */
#include "parse.h"

#include <http_parser.h>

#include "chunked.h"
#include "gather.h"
#include "mem.h"
#include "parse_head.h"

enum { FIELDS_ROOM = 8 }; /* for fields that are likely to be added on the way */

enum state { IDLE, HEAD, BODY, END, FAILED };

/* Interim responses before a final one. Their heads last as long as what the request has allocated,
 * so an origin may not send them without end; one every 20 s (102, as a sign of life) reaches 20
 * minutes. */
#define INTERIM_MAX 64

struct parser {
    http_parser hp;
    enum state state;
    bool is_request;
    bool head_method; /* the response answers HEAD */
    bool ended;       /* http_parser has seen the message's end */
    struct parse_limits limits;
    struct parse_events events;
    void *arg;
    struct request *request;
    struct response *response;
    struct headers *headers; /* of either */
    struct arena *arena;
    struct gather gather;
    struct parse_head head;
    struct slice name, piece; /* what http_parser reported last */
    uint32_t interims;        /* since the last final response */
    enum framing framing;     /* kept apart: the caller may change the message from on_head on */
    uint64_t left;            /* of a body with a length */
    struct chunked chunked;
    struct parse_fault fault;
};

static int fail(struct parser *p, int status, const char *text)
{
    p->state = FAILED;
    p->fault = (struct parse_fault){ p->is_request ? status : 502, text };
    return p->fault.status;
}

static int on_target(http_parser *hp, const char *at, size_t n)
{
    struct parser *p = hp->data;
    p->request->target = (struct slice){ at, n };
    return 0;
}

static int on_reason(http_parser *hp, const char *at, size_t n)
{
    struct parser *p = hp->data;
    p->response->reason = (struct slice){ at, n };
    return 0;
}

static int on_name(http_parser *hp, const char *at, size_t n)
{
    struct parser *p = hp->data;
    p->name = (struct slice){ at, n };
    return 0;
}

static int on_value(http_parser *hp, const char *at, size_t n)
{
    struct parser *p = hp->data;
    headers_add(p->headers, p->name, slice_trim((struct slice){ at, n }));
    return 0;
}

/* Whether http_parser will look for the body where we do. */
static bool framing_agreed(const http_parser *hp, enum framing framing, uint64_t length)
{
    bool chunked = (hp->flags & F_CHUNKED) != 0, sized = (hp->flags & F_CONTENTLENGTH) != 0;
    return chunked == (framing == FRAMING_CHUNKED) && sized == (framing == FRAMING_LENGTH) &&
           (!sized || hp->content_length == length);
}

static int request_complete(struct parser *p)
{
    struct request *r = p->request;
    r->minor = p->hp.http_minor;
    struct parse_fault f = parse_rules_request(r, &p->limits);
    if (f.status != 0)
        return fail(p, f.status, f.text);
    if (!framing_agreed(&p->hp, r->framing, r->length))
        return fail(p, 400, "framing can be read in two ways");
    p->framing = r->framing;
    p->left = r->length;
    return 0;
}

static int response_complete(struct parser *p, enum framing *declared)
{
    struct response *r = p->response;
    r->status = p->hp.status_code;
    r->minor = p->hp.http_minor;
    struct parse_fault f = parse_rules_response(r, p->head_method, declared);
    if (f.status != 0)
        return fail(p, f.status, f.text);
    p->interims = r->status < 200 ? p->interims + 1 : 0;
    if (p->interims > INTERIM_MAX)
        return fail(p, 502, "interim responses without a final one");
    if (r->framing != FRAMING_NONE && !framing_agreed(&p->hp, *declared, r->length))
        return fail(p, 502, "framing can be read in two ways");
    p->framing = r->framing;
    p->left = r->length;
    return 0;
}

/* Returns 1 where there is no body whatever the fields say, and -1 for a fault. */
static int on_headers(http_parser *hp)
{
    struct parser *p = hp->data;
    hp->upgrade = 0; /* whether the protocol changes is not decided here */
    if (p->headers->n != p->head.fields) {
        fail(p, 400, "fields can be read in two ways");
        return -1;
    }
    if (p->is_request)
        return request_complete(p) == 0 ? 0 : -1;
    enum framing declared;
    if (response_complete(p, &declared) != 0)
        return -1;
    return p->response->framing == FRAMING_NONE;
}

static int on_piece(http_parser *hp, const char *at, size_t n)
{
    struct parser *p = hp->data;
    p->piece = (struct slice){ at, n };
    return 0;
}

static int on_complete(http_parser *hp)
{
    struct parser *p = hp->data;
    p->ended = true;
    return 0;
}

static const http_parser_settings settings = {
    .on_url = on_target,
    .on_status = on_reason,
    .on_header_field = on_name,
    .on_header_value = on_value,
    .on_headers_complete = on_headers,
    .on_body = on_piece,
    .on_message_complete = on_complete,
};

/* Returns 0 or the status of a fault. */
static int execute(struct parser *p, const char *bytes, size_t n)
{
    size_t took = http_parser_execute(&p->hp, &settings, bytes, n);
    if (p->state == FAILED)
        return p->fault.status;
    enum http_errno error = HTTP_PARSER_ERRNO(&p->hp);
    if (error != HPE_OK)
        return fail(p, 400, http_errno_description(error));
    return took == n ? 0 : fail(p, 400, "bytes behind the message's end");
}

static struct parser *parser_new(bool is_request, const struct parse_limits *limits,
                                 const struct parse_events *events, void *arg)
{
    struct parser *p = mem_zalloc(sizeof *p);
    /* The limit is ours; http_parser's own is one number for the whole process. */
    http_parser_set_max_header_size(UINT32_MAX);
    p->is_request = is_request;
    p->limits = *limits;
    p->events = *events;
    p->arg = arg;
    gather_init(&p->gather, is_request, &p->limits);
    return p;
}

struct parser *parser_new_request(const struct parse_limits *limits,
                                  const struct parse_events *events, void *arg)
{
    return parser_new(true, limits, events, arg);
}

struct parser *parser_new_response(const struct parse_limits *limits,
                                   const struct parse_events *events, void *arg)
{
    return parser_new(false, limits, events, arg);
}

void parser_free(struct parser *p)
{
    if (p == NULL)
        return;
    gather_deinit(&p->gather);
    mem_free(p);
}

static void next(struct parser *p, struct headers *headers, struct arena *arena)
{
    if (p->state == FAILED)
        return;
    p->state = HEAD;
    p->headers = headers;
    p->arena = arena;
    p->ended = false;
    gather_reset(&p->gather);
    headers_init(headers, arena);
}

void parser_next_request(struct parser *p, struct request *out, struct arena *arena)
{
    *out = (struct request){ .minor = 1 };
    p->request = out;
    next(p, &out->headers, arena);
}

void parser_next_response(struct parser *p, struct response *out, struct arena *arena,
                          struct slice method)
{
    *out = (struct response){ .reason = SLICE("") };
    p->response = out;
    p->head_method = slice_eq(method, SLICE("HEAD"));
    next(p, &out->headers, arena);
}

static void read_head(struct parser *p, char *head, size_t n)
{
    struct parse_fault f = p->is_request ? parse_head_request(head, &p->limits, &p->head)
                                         : parse_head_response(head, &p->limits, &p->head);
    if (p->is_request) { /* known also where the rest is refused */
        p->request->method = p->head.method;
        p->request->target = p->head.target;
    }
    if (f.status != 0) {
        fail(p, f.status, f.text);
        return;
    }
    headers_reserve(p->headers, p->head.fields + FIELDS_ROOM);
    http_parser_init(&p->hp, p->is_request ? HTTP_REQUEST : HTTP_RESPONSE);
    p->hp.data = p;
    /* http_parser has a list of methods; to us, as to RFC 9110, section 9.1, any token is one. */
    size_t method = p->is_request ? p->head.method.n : 0;
    if (method > 0 && execute(p, "POST", 4) != 0)
        return;
    if (execute(p, head + method, n - method) != 0)
        return;
    bool sized = p->framing == FRAMING_LENGTH;
    if (p->ended != (p->framing == FRAMING_NONE || (sized && p->left == 0)))
        fail(p, 400, "the message's end can be read in two ways");
    else
        p->state = p->ended ? END : BODY;
    chunked_init(&p->chunked, p->limits.head, p->limits.fields);
}

static size_t feed_head(struct parser *p, const char *bytes, size_t n)
{
    struct slice head;
    struct parse_fault f = { 0, NULL };
    size_t took = gather_feed(&p->gather, bytes, n, p->arena, &head, &f);
    if (f.status != 0)
        fail(p, f.status, f.text);
    else if (head.p != NULL)
        read_head(p, (char *)head.p, head.n);
    return took;
}

/* Passes the next run of the body to http_parser; returns its length. */
static size_t feed_body(struct parser *p, const char *bytes, size_t n)
{
    bool feed = true, end = false;
    if (p->framing == FRAMING_CHUNKED) {
        n = chunked_next(&p->chunked, bytes, n, &feed);
        if (n == 0) {
            fail(p, p->chunked.status, p->chunked.fault);
            return 0;
        }
        end = chunked_ended(&p->chunked);
    } else if (p->framing == FRAMING_LENGTH) {
        n = n < p->left ? n : (size_t)p->left;
        p->left -= n;
        end = p->left == 0;
    }
    p->piece = (struct slice){ NULL, 0 };
    if (feed && execute(p, bytes, n) != 0)
        return 0;
    if (p->ended != end)
        fail(p, 400, "the body's end can be read in two ways");
    else if (end)
        p->state = END;
    return n;
}

static void finish(struct parser *p)
{
    p->state = IDLE;
    p->events.on_end(p->arg);
}

int parser_feed(struct parser *p, const char *bytes, size_t n, size_t *consumed)
{
    bool stop = false;
    *consumed = 0;
    while (!stop && p->state != IDLE && p->state != FAILED && p->state != END && *consumed < n) {
        enum state was = p->state;
        const char *at = bytes + *consumed;
        size_t rest = n - *consumed;
        *consumed += was == HEAD ? feed_head(p, at, rest) : feed_body(p, at, rest);
        if (p->state == FAILED)
            break;
        if (was == HEAD && p->state != HEAD)
            stop = p->events.on_head(p->arg) != 0;
        else if (was == BODY && p->piece.n > 0)
            stop = p->events.on_body(p->arg, p->piece) != 0;
    }
    int status = p->fault.status;
    if (p->state == END && !stop)
        finish(p);
    return status;
}

int parser_eof(struct parser *p)
{
    if (p->state == BODY && p->framing == FRAMING_CLOSE) {
        if (execute(p, NULL, 0) != 0)
            return p->fault.status;
        p->state = END;
    }
    if (p->state == END) {
        finish(p);
        return 0;
    }
    if (parser_busy(p))
        return fail(p, 400, p->state == HEAD ? "closed inside a head" : "closed inside a body");
    return p->fault.status;
}

const char *parser_fault(const struct parser *p)
{
    return p->fault.text == NULL ? "" : p->fault.text;
}

bool parser_busy(const struct parser *p)
{
    return p->state == BODY || p->state == END || (p->state == HEAD && p->gather.kept.n > 0);
}
