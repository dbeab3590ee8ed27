/* See conn.h. */
#include "conn.h"

#include "log.h"
#include "mem.h"

enum { LINGER_MS = 2000 };

#define CONTAINER(ptr, type, member) ((type *)((char *)(ptr) - offsetof(type, member)))

struct conn {
    const struct conn_owner *owner;
    struct stream *stream;
    struct parser *parser;
    struct exchange *x;   /* whose request is read or whose answer is owed */
    struct timer read_timer, write_timer;
    struct buf held;      /* pipelined behind the request that is served */
    uint32_t slot;
    uint64_t write_mark;  /* stream_sent when the write deadline began */
    bool head_seen;       /* of the current request */
    bool begun;           /* its exchange has been started */
    bool request_done;    /* its last byte has been read */
    bool discarding;      /* answered already: the rest of its body is dropped */
    bool broken;          /* framing lost: nothing more is parsed */
    bool draining, body_paused, full, half_closed;
};

static int on_head(void *arg);
static int on_body(void *arg, struct slice piece);
static void on_message_end(void *arg);
static void on_read(void *arg, const char *bytes, size_t n);
static void on_end(void *arg, int err);
static void on_drain(void *arg);
static void on_read_deadline(struct timer *t);
static void on_write_deadline(struct timer *t);
static void client_send(void *self, const struct slice *v, unsigned n);
static size_t client_queued(void *self);
static void client_want_body(void *self, bool wanted);
static void client_done(void *self, enum client_after after);

static const struct parse_events parse_events = { on_head, on_body, on_message_end };
static const struct stream_events stream_events = { on_read, on_end, on_drain };
static const struct client_ops client_ops = { client_send, client_queued, client_want_body, client_done };

static const struct settings *settings_of(const struct conn *c)
{
    return &c->owner->generation(c->owner->self)->settings;
}

struct conn *conn_new(struct stream *s, const struct conn_owner *owner)
{
    struct conn *c = mem_zalloc(sizeof *c);
    c->owner = owner;
    c->stream = s;
    c->parser = parser_new_request(&settings_of(c)->parse, &parse_events, c);
    c->read_timer.cb = on_read_deadline;
    c->write_timer.cb = on_write_deadline;
    buf_init(&c->held);
    timer_set(owner->sv->loop, &c->read_timer, settings_of(c)->timeouts.head);
    stream_start(s, &stream_events, c);
    return c;
}

enum how { HOW_FINISH, HOW_CLOSE, HOW_RESET };

static void conn_end(struct conn *c, enum how how)
{
    const struct conn_owner *owner = c->owner;
    timer_deinit(owner->sv->loop, &c->read_timer);
    timer_deinit(owner->sv->loop, &c->write_timer);
    if (how == HOW_FINISH)
        stream_finish(c->stream, LINGER_MS);
    else if (how == HOW_RESET)
        stream_reset(c->stream);
    else
        stream_close(c->stream);
    parser_free(c->parser);
    buf_deinit(&c->held);
    owner->closed(owner->self, c);
    mem_free(c);
}

/* The client is gone, or has to go: the exchange hears of it, the connection ends. */
static void conn_lost(struct conn *c, enum how how)
{
    struct exchange *x = c->x;
    c->x = NULL;
    if (x != NULL && c->begun)
        exchange_client_gone(x);
    else if (x != NULL)
        exchange_forget(x);
    conn_end(c, how);
}

/* --- requests out of bytes --- */

static int on_head(void *arg)
{
    struct conn *c = arg;
    c->head_seen = true;
    return 0;
}

static int on_body(void *arg, struct slice piece)
{
    struct conn *c = arg;
    if (c->x != NULL)
        exchange_body(c->x, piece);
    return 0;
}

static void on_message_end(void *arg)
{
    struct conn *c = arg;
    c->request_done = true;
    if (c->x != NULL)
        exchange_body_end(c->x);
}

static void begin_request(struct conn *c)
{
    struct generation *gen = c->owner->generation(c->owner->self);
    struct client client = { &client_ops, c, stream_peer(c->stream), stream_peer_port(c->stream) };
    c->x = exchange_new(c->owner->sv, gen, &client);
    c->head_seen = c->begun = c->request_done = c->discarding = c->body_paused = false;
    parser_next_request(c->parser, &c->x->req, &c->x->arena);
    timer_set(c->owner->sv->loop, &c->read_timer, gen->settings.timeouts.head);
}

static void refuse(struct conn *c, int status)
{
    c->broken = true;
    timer_stop(&c->read_timer);
    if (c->x == NULL) { /* the rest of a body that nobody wanted */
        conn_end(c, HOW_FINISH);
    } else if (c->begun || c->head_seen) {
        c->begun = true;
        exchange_body_bad(c->x, status, parser_fault(c->parser));
    } else {
        c->begun = true;
        exchange_reject(c->x, status, parser_fault(c->parser));
    }
}

static void set_read_deadline(struct conn *c)
{
    struct loop *l = c->owner->sv->loop;
    if (c->request_done || c->body_paused)
        timer_stop(&c->read_timer);
    else if (c->head_seen)
        timer_set(l, &c->read_timer, settings_of(c)->timeouts.body);
}

/* Parses as far as the current request goes. Returns how many bytes were used. */
static size_t parse(struct conn *c, const char *bytes, size_t n)
{
    size_t total = 0;
    while (total < n && !c->broken && !(c->request_done && c->x != NULL)) {
        size_t used = 0;
        if (c->x == NULL && !c->discarding)
            begin_request(c);
        int fault = parser_feed(c->parser, bytes + total, n - total, &used);
        total += used;
        if (fault != 0) {
            refuse(c, fault);
            return n;
        }
        set_read_deadline(c);
        if (c->head_seen && !c->begun && c->x != NULL) {
            c->begun = true;
            c->owner->begin(c->x);
        }
        if (c->discarding && c->request_done)
            c->discarding = false;
    }
    return total;
}

static void hold(struct conn *c, const char *bytes, size_t n)
{
    buf_add(&c->held, bytes, n);
    if (c->held.n > settings_of(c)->pipelined) {
        c->full = true;
        stream_pause(c->stream);
    }
}

static void on_read(void *arg, const char *bytes, size_t n)
{
    struct conn *c = arg;
    if (c->broken)
        return;
    size_t used = 0;
    if (!(c->request_done && c->x != NULL)) {
        used = parse(c, bytes, n);
    }
    if (used < n && !c->broken)
        hold(c, bytes + used, n - used);
}

/* The next request: from what was pipelined, else idle. */
static void next_request(struct conn *c)
{
    struct buf held = c->held;
    const struct settings *s = settings_of(c);
    c->head_seen = c->begun = c->request_done = false;
    buf_init(&c->held);
    if (held.n == 0 && (c->draining || c->half_closed)) {
        buf_deinit(&held);
        conn_end(c, HOW_FINISH);
        return;
    }
    timer_set(c->owner->sv->loop, &c->read_timer, s->timeouts.keepalive);
    if (c->full) {
        c->full = false;
        stream_resume(c->stream);
    }
    if (held.n > 0)
        on_read(c, held.p, held.n);
    buf_deinit(&held);
}

/* --- ends --- */

static void on_end(void *arg, int err)
{
    struct conn *c = arg;
    bool owed = c->x != NULL && c->begun;
    if (err == 0 && owed && c->x->route != NULL && c->x->route->half_close_answer && c->request_done) {
        c->half_closed = true;
        return;
    }
    if (err == 0 && owed && c->broken) /* it has been refused: the answer may still be read */
        return;
    conn_lost(c, HOW_CLOSE);
}

static void on_drain(void *arg)
{
    struct conn *c = arg;
    timer_stop(&c->write_timer);
    if (c->x != NULL && c->begun)
        exchange_client_drained(c->x);
}

static void on_read_deadline(struct timer *t)
{
    struct conn *c = CONTAINER(t, struct conn, read_timer);
    if (c->x == NULL) { /* idle, or slow with a body that nobody wants */
        conn_end(c, HOW_FINISH);
    } else if (c->begun) {
        c->broken = true;
        exchange_body_timeout(c->x);
    } else if (parser_busy(c->parser)) {
        c->broken = c->begun = true;
        exchange_reject(c->x, 408, "The request's head did not arrive in time.");
    } else {
        conn_lost(c, HOW_FINISH);
    }
}

static void on_write_deadline(struct timer *t)
{
    struct conn *c = CONTAINER(t, struct conn, write_timer);
    if (stream_queued(c->stream) == 0)
        return;
    if (stream_sent(c->stream) != c->write_mark) {
        c->write_mark = stream_sent(c->stream);
        timer_set(c->owner->sv->loop, t, settings_of(c)->timeouts.write);
        return;
    }
    log_debug("client %s takes nothing: closed", stream_peer(c->stream));
    conn_lost(c, HOW_RESET);
}

uint32_t conn_slot(const struct conn *c)
{
    return c->slot;
}

void conn_set_slot(struct conn *c, uint32_t slot)
{
    c->slot = slot;
}

void conn_drain(struct conn *c)
{
    c->draining = true;
    if (c->x == NULL && !c->discarding)
        conn_end(c, HOW_FINISH);
}

void conn_abort(struct conn *c)
{
    struct exchange *x = c->x;
    if (x != NULL && c->begun && x->stage < STAGE_TAIL) {
        exchange_finish(x, ENDED_SHUTDOWN);
        x->client_here = false;
        c->x = NULL;
    }
    conn_lost(c, HOW_CLOSE);
}

/* --- for the exchange --- */

static void client_send(void *self, const struct slice *v, unsigned n)
{
    struct conn *c = self;
    stream_writev(c->stream, v, n);
    if (stream_queued(c->stream) > 0 && c->write_timer.at == 0) {
        c->write_mark = stream_sent(c->stream);
        timer_set(c->owner->sv->loop, &c->write_timer, settings_of(c)->timeouts.write);
    }
}

static size_t client_queued(void *self)
{
    return stream_queued(((struct conn *)self)->stream);
}

static void client_want_body(void *self, bool wanted)
{
    struct conn *c = self;
    c->body_paused = !wanted;
    set_read_deadline(c);
    if (c->request_done)
        return;
    if (wanted)
        stream_resume(c->stream);
    else
        stream_pause(c->stream);
}

static void client_done(void *self, enum client_after after)
{
    struct conn *c = self;
    c->x = NULL;
    if (after != CLIENT_KEEP || c->broken) {
        conn_end(c, after == CLIENT_RESET ? HOW_RESET : HOW_FINISH);
        return;
    }
    if (c->request_done) {
        next_request(c);
        return;
    }
    c->discarding = true;
    client_want_body(c, true);
}
