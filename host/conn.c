/* See conn.h. */
#include "conn.h"

#include "container.h"
#include "log.h"
#include "mem.h"
#include "pace.h"

enum { LINGER_MS = 2000, TLS_HANDSHAKE = 22 }; /* the first byte of a ClientHello */

struct conn {
    const struct conn_owner *owner;
    struct stream *stream;
    struct tls_peer *tls; /* a reference; NULL: plain */
    struct parser *parser;
    struct exchange *x; /* whose request is read or whose answer is owed */
    struct timer read_timer, write_timer;
    struct pace pace; /* of the body */
    struct idler idler;
    uint64_t idle_since;
    struct buf held; /* pipelined behind the request that is served */
    uint32_t slot;
    uint64_t write_mark; /* stream_sent when the write deadline began */
    bool head_seen;      /* of the current request */
    bool begun;          /* its exchange has been started */
    bool request_done;   /* its last byte has been read */
    bool discarding;     /* answered already: the rest of its body is dropped */
    bool broken;         /* framing lost: nothing more is parsed */
    bool clogged;        /* the next request waits until the client has taken its answers */
    bool ending;         /* ends once the client has taken its answers */
    bool draining, body_paused, full, half_closed;
    bool too_slow; /* the body: its deadline does not move any more */
    bool tunnel;   /* bytes go through, unread */
};

static int on_head(void *arg);
static int on_body(void *arg, struct slice piece);
static void on_message_end(void *arg);
static void on_read(void *arg, const char *bytes, size_t n);
static void on_end(void *arg, int err);
static void on_drain(void *arg);
static void on_left(void *arg, int err);
static void on_read_deadline(struct timer *t);
static void on_write_deadline(struct timer *t);
static void client_send(void *self, const struct slice *v, unsigned n);
static size_t client_queued(void *self);
static void client_want_body(void *self, bool wanted);
static void client_tunnel(void *self);
static void client_pause(void *self, bool paused);
static void client_shut(void *self);
static void client_done(void *self, enum client_after after);

static const struct parse_events parse_events = { on_head, on_body, on_message_end };
static const struct stream_events stream_events = { on_read, on_end, on_drain };
static const struct client_ops client_ops = { client_send,   client_queued, client_want_body,
                                              client_tunnel, client_pause,  client_shut,
                                              client_done };

enum {
    DRAIN_IDLE_MS = 100
}; /* for what a client may have sent when it had not seen yet that we end */

static const struct settings *settings_of(const struct conn *c)
{
    return &c->owner->generation(c->owner->self)->settings;
}

static void enter_idlers(struct conn *c)
{
    c->idle_since = loop_now(c->owner->sv->loop);
    idle_enter(c->owner->idlers, &c->idler);
}

/* It is between two requests, and its client has all of the last answer. */
static void become_idle(struct conn *c)
{
    if (c->x != NULL || c->discarding || c->ending || c->tunnel || stream_queued(c->stream) > 0)
        return;
    enter_idlers(c);
}

struct conn *conn_new(struct stream *s, struct tls_peer *tls, const struct conn_owner *owner)
{
    struct conn *c = mem_zalloc(sizeof *c);
    c->owner = owner;
    c->stream = s;
    c->tls = tls;
    c->parser = parser_new_request(&settings_of(c)->parse, &parse_events, c);
    c->read_timer.cb = on_read_deadline;
    c->write_timer.cb = on_write_deadline;
    buf_init(&c->held);
    timer_set(owner->sv->loop, &c->read_timer, settings_of(c)->timeouts.head);
    stream_start(s, &stream_events, c);
    stream_watch_left(s, on_left);
    become_idle(c);
    return c;
}

enum how { HOW_FINISH, HOW_CLOSE, HOW_LEAVE, HOW_RESET };

/* An answer that waits for a slow reader is written first, for as long as the write deadline
 * allows. */
static void conn_end(struct conn *c, enum how how)
{
    const struct conn_owner *owner = c->owner;
    idle_leave(owner->idlers, &c->idler);
    if (how == HOW_FINISH && stream_queued(c->stream) > 0) {
        c->broken = c->ending = true;
        timer_stop(&c->read_timer);
        stream_resume(c->stream); /* else a reset would not be seen */
        return;
    }
    timer_deinit(owner->sv->loop, &c->read_timer);
    timer_deinit(owner->sv->loop, &c->write_timer);
    if (how == HOW_FINISH)
        stream_finish(c->stream, LINGER_MS);
    else if (how == HOW_RESET)
        stream_reset(c->stream);
    else if (how == HOW_LEAVE)
        stream_leave(c->stream);
    else
        stream_close(c->stream);
    parser_free(c->parser);
    buf_deinit(&c->held);
    tls_peer_unref(c->tls);
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
    c->pace.bytes += piece.n;
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

/* Behind the client's FIN nothing can come any more that is worth waiting for. */
static void set_deadline(struct conn *c, uint64_t ms)
{
    timer_set(c->owner->sv->loop, &c->read_timer, c->half_closed ? 1 : ms);
}

static void begin_request(struct conn *c)
{
    struct generation *gen = c->owner->generation(c->owner->self);
    struct client client = { &client_ops, c, stream_peer(c->stream), stream_peer_port(c->stream),
                             c->tls };
    c->x = exchange_new(c->owner->sv, gen, &client);
    c->head_seen = c->begun = c->request_done = c->discarding = c->body_paused = c->too_slow =
        false;
    c->pace = (struct pace){ 0, 0, 0 };
    parser_next_request(c->parser, &c->x->req, &c->x->arena);
    enter_idlers(c);
    set_deadline(c, gen->settings.timeouts.head);
}

static void refuse(struct conn *c, int status)
{
    idle_leave(c->owner->idlers, &c->idler);
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

/* The body's deadline runs while it is the client's turn; so does the time in which it has to come
 * at limits.body_rate. */
static void set_body_deadline(struct conn *c)
{
    const struct exchange *x = c->x;
    const struct route *route = x != NULL ? x->route : NULL;
    const struct settings *set = settings_of(c);
    uint64_t wait = route != NULL ? route->body_timeout : set->timeouts.body;
    bool held_off = x != NULL && x->req.expect_continue && !x->continued && x->body_seen == 0;
    bool turn = c->head_seen && !c->request_done && !c->body_paused && !held_off;
    pace_turn(&c->pace, turn, loop_now(c->owner->sv->loop));
    if (turn && pace_slow(&c->pace, route != NULL ? route->body_rate : set->body_rate, wait))
        c->too_slow = true;
    if (turn)
        set_deadline(c, c->too_slow ? 1 : wait);
    else if (c->head_seen)
        timer_stop(&c->read_timer);
}

/* The rest of a body that nobody wanted has been read. Returns false where the connection ended. */
static bool discarded(struct conn *c, bool more)
{
    c->discarding = false;
    if (c->draining && !more) {
        conn_end(c, HOW_FINISH);
        return false;
    }
    set_deadline(c, settings_of(c)->timeouts.keepalive);
    become_idle(c);
    return true;
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
            if (c->tls == NULL && bytes[0] == TLS_HANDSHAKE)
                log_debug("client %s: TLS came to a port without", stream_peer(c->stream));
            refuse(c, fault);
            return n;
        }
        if (c->head_seen && !c->begun && c->x != NULL) {
            c->begun = true;
            idle_leave(c->owner->idlers, &c->idler);
            exchange_begin(c->x);
        }
        set_body_deadline(c);
        if (c->discarding && c->request_done && !discarded(c, total < n))
            return n;
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
    if (c->tunnel) {
        exchange_tunnel_up(c->x, (struct slice){ bytes, n });
        return;
    }
    size_t used = 0;
    if (!c->clogged && !(c->request_done && c->x != NULL))
        used = parse(c, bytes, n);
    if (used < n && !c->broken)
        hold(c, bytes + used, n - used);
}

void conn_feed(struct conn *c, struct slice bytes)
{
    on_read(c, bytes.p, bytes.n);
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
    set_deadline(c, s->timeouts.keepalive);
    if (c->full) {
        c->full = false;
        stream_resume(c->stream);
    }
    if (held.n > 0)
        on_read(c, held.p, held.n);
    else
        become_idle(c);
    buf_deinit(&held);
}

/* --- ends --- */

static void on_end(void *arg, int err)
{
    struct conn *c = arg;
    bool owed = c->x != NULL && c->begun;
    if (err == 0 && c->tunnel) {
        exchange_tunnel_client_end(c->x);
        return;
    }
    if (err == 0 && owed && c->x->route != NULL && c->x->route->half_close_answer &&
        c->request_done) {
        c->half_closed = true;
        return;
    }
    if (err == 0 &&
        (c->ending || (owed && c->broken))) /* what it has been answered may still be read */
        return;
    conn_lost(c, err == 0 && c->x == NULL ? HOW_FINISH : HOW_CLOSE);
}

/* The client left while its bytes were not read: the same, but for what may still be unread. */
static void on_left(void *arg, int err)
{
    struct conn *c = arg;
    bool owed = c->x != NULL && c->begun;
    bool stays = c->x == NULL || c->broken || c->tunnel ||
                 (owed && c->x->route != NULL && c->x->route->half_close_answer);
    if (err != 0 || !stays)
        conn_lost(c, HOW_CLOSE);
}

static void on_drain(void *arg)
{
    struct conn *c = arg;
    timer_stop(&c->write_timer);
    if (c->ending) {
        conn_end(c, HOW_FINISH);
    } else if (c->clogged) {
        c->clogged = false;
        next_request(c);
    } else if (c->x != NULL && c->begun) {
        exchange_client_drained(c->x);
    } else if (c->x == NULL) {
        become_idle(c);
    }
}

static void on_read_deadline(struct timer *t)
{
    struct conn *c = CONTAINER(t, struct conn, read_timer);
    if (c->x == NULL) { /* idle (nothing is owed that a reset could overtake, but for TLS's own
                           end), or slow with a body that nobody wants */
        bool nothing = c->tls == NULL && !c->discarding && stream_queued(c->stream) == 0;
        conn_end(c, c->draining && nothing ? HOW_CLOSE : HOW_FINISH);
    } else if (c->begun) {
        c->broken = true;
        exchange_body_timeout(c->x);
    } else if (parser_busy(c->parser) && !c->half_closed) {
        c->broken = c->begun = true;
        idle_leave(c->owner->idlers, &c->idler);
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

const struct generation *conn_generation(const struct conn *c)
{
    return c->x != NULL ? c->x->gen : NULL;
}

void conn_drain(struct conn *c)
{
    c->draining = true;
    if (c->x == NULL && !c->discarding) /* a request may be on its way already: it is answered */
        set_deadline(c, DRAIN_IDLE_MS);
}

bool conn_evictable(const struct idlers *idlers, uint64_t ms)
{
    const struct conn *c =
        idlers->first != NULL ? CONTAINER(idlers->first, struct conn, idler) : NULL;
    return c != NULL && loop_now(c->owner->sv->loop) - c->idle_since >= ms;
}

bool conn_evict(struct idlers *idlers, uint64_t ms)
{
    if (!conn_evictable(idlers, ms))
        return false;
    conn_lost(CONTAINER(idlers->first, struct conn, idler), HOW_LEAVE);
    return true;
}

void conn_abort(struct conn *c)
{
    struct exchange *x = c->x;
    bool cut = c->ending; /* where only a reset shows that the answer is not complete */
    if (x != NULL && c->begun && x->stage < STAGE_TAIL) {
        cut = x->framing == FRAMING_CLOSE && x->head_sent;
        exchange_finish(x, ENDED_SHUTDOWN);
        x->client_here = false;
        c->x = NULL;
    }
    conn_lost(c, cut ? HOW_RESET : HOW_CLOSE);
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
    set_body_deadline(c);
    if (c->request_done)
        return;
    if (wanted)
        stream_resume(c->stream);
    else
        stream_pause(c->stream);
}

static void client_tunnel(void *self)
{
    struct conn *c = self;
    struct buf held = c->held;
    buf_init(&c->held);
    c->tunnel = true;
    timer_stop(&c->read_timer);
    if (c->full) {
        c->full = false;
        stream_resume(c->stream);
    }
    exchange_tunnel_up(c->x, buf_slice(&held));
    buf_deinit(&held);
    if (c->half_closed)
        exchange_tunnel_client_end(c->x);
}

static void client_pause(void *self, bool paused)
{
    struct conn *c = self;
    if (paused)
        stream_pause(c->stream);
    else
        stream_resume(c->stream);
}

static void client_shut(void *self)
{
    stream_shut(((struct conn *)self)->stream);
}

static void client_done(void *self, enum client_after after)
{
    struct conn *c = self;
    c->x = NULL;
    c->tunnel = false;
    if (after != CLIENT_KEEP || c->broken) {
        conn_end(c, after == CLIENT_RESET ? HOW_RESET : HOW_FINISH);
        return;
    }
    if (c->request_done) {
        c->clogged = stream_queued(c->stream) > EXCHANGE_WINDOW;
        if (!c->clogged)
            next_request(c);
        return;
    }
    c->discarding = true;
    client_want_body(c, true);
}
