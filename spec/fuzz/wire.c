/* See wire.h. What is written again is compared with what was read by reading it: `said` holds what
 * has to survive, so neither framing fields nor the connection's, but the framing itself. */
#include "wire.h"

static void say_headers(struct buf *out, const struct headers *h)
{
    for (uint32_t i = 0; i < h->n; i++) {
        const struct header *f = &h->v[i];
        CHECK(header_name_valid(f->name) && header_value_valid(f->value));
        CHECK(f->id == header_id(f->name));
        CHECK(slice_eq(f->value, slice_trim(f->value)));
        if (f->id == HEADER_HOST || f->id == HEADER_CONNECTION || f->id == HEADER_CONTENT_LENGTH ||
            f->id == HEADER_TRANSFER_ENCODING)
            continue;
        buf_printf(out, "%.*s: %.*s\n", (int)f->name.n, f->name.p, (int)f->value.n, f->value.p);
    }
}

static void check_target(const struct request *q)
{
    if (slice_eq(q->path, SLICE("*")))
        return;
    CHECK(q->path.n > 0 && q->path.p[0] == '/');
    for (size_t i = 0; i < q->path.n; i++)
        CHECK(q->path.p[i] > ' ' && q->path.p[i] < 0x7f);
    for (size_t i = 0; i < q->query.n; i++)
        CHECK(q->query.p[i] > ' ' && q->query.p[i] < 0x7f && q->query.p[i] != '#');
}

static void say_request(struct wire *w)
{
    struct request *q = &w->request;
    check_target(q);
    buf_printf(&w->said, "%.*s %.*s%s%.*s @%.*s framing %d length %llu expect %d upgrade %d\n",
               (int)q->method.n, q->method.p, (int)q->path.n, q->path.p,
               q->query.p == NULL ? "" : "?", (int)q->query.n, q->query.p == NULL ? "" : q->query.p,
               (int)q->authority.n, q->authority.p, q->framing, (unsigned long long)q->length,
               q->expect_continue, q->upgrade);
    say_headers(&w->said, &q->headers);
}

static void say_response(struct wire *w)
{
    struct response *s = &w->response;
    CHECK(s->status >= 100 && s->status <= 599);
    buf_printf(&w->said, "%d framing %d length %llu head_length %d\n", s->status, s->framing,
               (unsigned long long)s->length, s->head_length);
    say_headers(&w->said, &s->headers);
}

static void write_request(struct wire *w)
{
    struct request *q = &w->request;
    struct buf target;
    buf_init(&target);
    buf_add_slice(&target, q->path);
    if (q->query.p != NULL) {
        buf_add_text(&target, "?");
        buf_add_slice(&target, q->query);
    }
    message_write_request(&w->again, q, buf_slice(&target), false);
    buf_deinit(&target);
}

static int on_head(void *arg)
{
    struct wire *w = arg;
    w->heads++;
    if (w->is_request) {
        if (!w->request.upgrade) /* as before it goes to an origin: it would be named again */
            headers_remove_id(&w->request.headers, HEADER_UPGRADE);
        say_request(w);
        write_request(w);
    } else {
        say_response(w);
        message_write_response(&w->again, &w->response, false, false);
    }
    return 0;
}

static int on_body(void *arg, struct slice piece)
{
    struct wire *w = arg;
    CHECK(piece.n > 0);
    CHECK((w->is_request ? w->request.framing : w->response.framing) != FRAMING_NONE);
    buf_add_slice(&w->body, piece);
    return 0;
}

static void next(struct wire *w)
{
    arena_reset(&w->arena);
    if (w->is_request)
        parser_next_request(w->parser, &w->request, &w->arena);
    else
        parser_next_response(w->parser, &w->response, &w->arena, slice_of(w->method));
}

static void on_end(void *arg)
{
    struct wire *w = arg;
    enum framing framing = w->is_request ? w->request.framing : w->response.framing;
    uint64_t length = w->is_request ? w->request.length : w->response.length;
    CHECK(framing != FRAMING_LENGTH || length == w->body.n);
    buf_printf(&w->said, "= %zu ", w->body.n);
    buf_add_slice(&w->said, buf_slice(&w->body));
    buf_add_text(&w->said, "\n");
    bool chunked = framing == FRAMING_CHUNKED;
    if (chunked && w->body.n > 0)
        buf_printf(&w->again, "%zx\r\n", w->body.n);
    buf_add_slice(&w->again, buf_slice(&w->body));
    if (chunked)
        buf_add_text(&w->again, w->body.n > 0 ? "\r\n0\r\n\r\n" : "0\r\n\r\n");
    buf_clear(&w->body);
    w->ended++;
    next(w);
}

static const struct parse_limits limits = { .head = 2048, .url = 512, .fields = 20 };
static const struct parse_events events = { on_head, on_body, on_end };

/* Returns the fault; *at counts the bytes that were taken. */
static int feed(struct wire *w, struct slice piece, size_t *at)
{
    while (piece.n > 0) {
        size_t used;
        int status = parser_feed(w->parser, piece.p, piece.n, &used);
        CHECK(used <= piece.n);
        *at += used;
        if (status != 0)
            return status;
        CHECK(used > 0);
        piece.p += used;
        piece.n -= used;
        if (w->ended >= WIRE_MESSAGES)
            return -1;
    }
    return 0;
}

void wire_read(struct wire *w, bool is_request, const char *method, struct slice bytes,
               enum fuzz_cut cut)
{
    *w = (struct wire){ .is_request = is_request, .method = method };
    arena_init(&w->arena);
    w->parser = is_request ? parser_new_request(&limits, &events, w)
                           : parser_new_response(&limits, &events, w);
    next(w);
    struct fuzz_random random = fuzz_random(bytes);
    struct slice piece, rest = bytes;
    char *hold = NULL;
    int status = 0;
    size_t at = 0;
    while (status == 0 && (piece = fuzz_piece(&rest, cut, &random, &hold)).n > 0)
        status = feed(w, piece, &at);
    free(hold);
    if (status == 0)
        status = parser_eof(w->parser);
    if (status > 0) {
        CHECK(parser_fault(w->parser) != NULL);
        CHECK(is_request ? status >= 400 && status < 600 : status == 502);
        buf_printf(&w->said, "! %d %s\n", status, parser_fault(w->parser));
    }
    w->whole = status <= 0 && w->heads == w->ended;
}

void wire_deinit(struct wire *w)
{
    parser_free(w->parser);
    arena_deinit(&w->arena);
    buf_deinit(&w->said);
    buf_deinit(&w->again);
    buf_deinit(&w->body);
}
