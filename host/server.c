/* See server.h. Where there is no room (limits.connections are there, or nearly all descriptors are
 * in use) whoever has no request under way makes it: a handshake that takes long first, then the
 * one that has been idle longest. Where all are busy a listener does not accept: libuv then stops
 * polling it by itself, and goes on when there is room for the one that waits; what comes behind
 * that stays in the kernel's queue. */
#include "server.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "arrival.h"
#include "client_limit.h"
#include "container.h"
#include "descriptors.h"
#include "log.h"
#include "mem.h"

enum {
    BACKLOG = 1024,
    SLOW_MS = 1000, /* from when on a handshake has to go for others */
    STARVED_MS = 10000,
    FRESH_MS = 100, /* in which a client's next request may be on its way */
    RETRY_MS = 50   /* until somebody looks again whether there is room */
};

union socket {
    uv_handle_t any;
    uv_stream_t stream;
    uv_tcp_t tcp;
    uv_pipe_t pipe;
};

struct listener {
    union socket *handle; /* NULL while closed */
    int fd;               /* where it was given; borrowed */
    unsigned address;     /* in settings.listen */
    struct listener *next;
    struct server *server;
    struct conn_owner owner;
    uint32_t limit;
    bool waiting; /* a connection is ready that was not accepted */
};

/* Keeps connections in a set: conn.h is opaque, and the order does not matter. */
struct entry {
    struct conn *conn;
    struct listener *listener;
    struct crowd_net net;
};

struct server {
    struct services *sv;
    struct generation *(*generation)(void *arg);
    void *arg;
    struct listener *listeners;
    struct entry *entries;
    uint32_t n, cap;
    struct arrivals arrivals; /* before their first request */
    struct idlers idlers;
    struct client_limit client_limit;
    uint32_t waiting;   /* listeners */
    struct timer retry; /* while one waits */
    bool draining, accept_failed;
    bool accepting;   /* accept_waiting is on the stack */
    uint64_t starved; /* when descriptors were short last; 0: not lately */
    void (*on_empty)(void *arg);
    void *on_empty_arg;
    struct deferred empty;
};

static void on_arrival_gone(void *arg, const struct crowd_net *net);
static void on_retry(struct timer *t);

static struct generation *current_generation(void *self)
{
    struct listener *ln = self;
    return ln->server->generation(ln->server->arg);
}

static void on_empty(struct deferred *d)
{
    struct server *s = CONTAINER(d, struct server, empty);
    void (*cb)(void *) = s->on_empty;
    s->on_empty = NULL;
    if (cb != NULL)
        cb(s->on_empty_arg);
}

static void check_empty(struct server *s)
{
    if (s->draining && server_connections(s) == 0)
        loop_defer(s->sv->loop, &s->empty, LOOP_FINISH);
}

struct server *server_new(struct services *sv, struct generation *(*generation)(void *arg),
                          void *arg)
{
    struct server *s = mem_zalloc(sizeof *s);
    s->sv = sv;
    s->generation = generation;
    s->arg = arg;
    s->empty.run = on_empty;
    s->retry.cb = on_retry;
    arrivals_init(&s->arrivals, sv->loop, sv->counters);
    client_limit_init(&s->client_limit, sv->loop, sv->counters);
    return s;
}

static void add(struct server *s, struct conn *c, struct listener *ln, const struct crowd_net *net)
{
    if (s->n == s->cap) {
        s->cap = s->cap == 0 ? 64 : s->cap * 2;
        s->entries = mem_realloc(s->entries, s->cap * sizeof *s->entries);
    }
    conn_set_slot(c, s->n);
    s->entries[s->n++] = (struct entry){ c, ln, *net };
}

static void on_ready(void *arg, struct stream *stream, struct tls_peer *peer, struct slice early,
                     const struct crowd_net *net)
{
    struct listener *ln = arg;
    struct conn *c = conn_new(stream, peer, &ln->owner);
    add(ln->server, c, ln, net);
    if (ln->server->draining)
        conn_drain(c);
    if (early.n > 0)
        conn_feed(c, early);
}

static bool trusted(const struct trusted *proxies, const struct stream *stream)
{
    struct ip peer = { 0 };
    ip_parse(slice_of(stream_peer(stream)), &peer);
    return trusted_has(proxies, &peer);
}

static const struct listen_address *listened_on(const struct listener *ln,
                                                const struct settings *set)
{
    static const struct listen_address none = { .host = NULL };
    return ln->address < set->nlisten ? &set->listen[ln->address] : &none;
}

static bool on_client(void *arg, const struct stream *stream, struct crowd_net *net)
{
    struct listener *ln = arg;
    struct server *s = ln->server;
    const struct settings *set = &s->generation(s->arg)->settings;
    return client_limit_enter(&s->client_limit, set, listened_on(ln, set), stream, net);
}

/* Its client may not have too many already; where a proxy is to name it, that is seen then. */
static bool may_begin(struct listener *ln, struct stream *stream, struct crowd_net *net)
{
    struct server *s = ln->server;
    const struct listen_address *a = listened_on(ln, &s->generation(s->arg)->settings);
    *net = (struct crowd_net){ 0 };
    if (!a->proxied)
        return on_client(ln, stream, net);
    if (trusted(&a->proxies, stream))
        return true;
    arrival_refused(&s->arrivals, stream, "it is not one that may send its header");
    return false;
}

static void begin(struct listener *ln, struct stream *stream, const struct crowd_net *net)
{
    static const struct arrival_events events = { on_client, on_ready, on_arrival_gone };
    struct server *s = ln->server;
    const struct settings *set = &s->generation(s->arg)->settings;
    const struct listen_address *a = listened_on(ln, set);
    struct arrival_how how = { a->proxied, a->tls, set->timeouts.handshake, *net };
    if (a->proxied || a->tls != NULL)
        arrival_start(&s->arrivals, stream, &how, &events, ln);
    else
        add(s, conn_new(stream, NULL, &ln->owner), ln, net);
}

static void set_waiting(struct listener *ln, bool waiting)
{
    struct server *s = ln->server;
    s->waiting += (uint32_t)waiting - (uint32_t)ln->waiting;
    ln->waiting = waiting;
    if (s->waiting == 0)
        timer_stop(&s->retry);
    else if (s->retry.at == 0)
        timer_set(s->sv->loop, &s->retry, RETRY_MS);
}

/* Whether the descriptors that are kept for origins and Redis are all that is left. The log has a
 * line as that begins, and one when it has been over for a while. */
static bool starved(struct server *s)
{
    bool is = descriptors_short();
    uint64_t now = loop_now(s->sv->loop);
    if (is && s->starved == 0)
        log_warn("out of file descriptors (RLIMIT_NOFILE is %lu): idle connections make room, "
                 "others wait to be accepted",
                 descriptors_limit());
    if (is) {
        s->starved = now;
    } else if (s->starved != 0 && now - s->starved > STARVED_MS) {
        log_info("file descriptors are free again");
        s->starved = 0;
    }
    return is;
}

/* Whoever goes tells on_conn_closed or on_arrival_gone. */
static bool evict(struct server *s)
{
    bool gone = arrivals_evict(&s->arrivals, SLOW_MS) || conn_evict(&s->idlers, FRESH_MS);
    s->sv->counters->evicted += gone;
    return gone;
}

static bool evictable(const struct server *s)
{
    return arrivals_evictable(&s->arrivals, SLOW_MS) || conn_evictable(&s->idlers, FRESH_MS);
}

/* Where there is no room one goes for it, but not for a connection that may not stay. */
static void accept_one(struct listener *ln)
{
    struct server *s = ln->server;
    struct crowd_net net;
    int err = 0;
    set_waiting(ln, false);
    struct stream *stream = stream_accept(s->sv->loop, &ln->handle->stream, &err);
    s->sv->counters->accepted += stream != NULL;
    if (stream != NULL && !may_begin(ln, stream, &net)) {
        stream_close(stream);
    } else if (stream != NULL) {
        if (server_connections(s) >= ln->limit)
            evict(s);
        begin(ln, stream, &net);
    } else if (err != UV_EAGAIN) {
        s->sv->counters->accept_errors++;
        log_warn("accept: %s", uv_strerror(err));
    }
}

static void accept_ready(struct server *s, struct listener *ln)
{
    if (server_connections(s) >= ln->limit && !evictable(s))
        return;
    if (starved(s))
        timer_set(s->sv->loop, &s->retry, evict(s) ? 0 : RETRY_MS); /* free behind this turn */
    else
        accept_one(ln);
}

/* One that waits may come where there is room. Not from within what it calls. */
static void accept_waiting(struct server *s)
{
    if (s->accepting)
        return;
    s->accepting = true;
    for (struct listener *ln = s->listeners; ln != NULL && !s->draining; ln = ln->next) {
        if (ln->waiting)
            accept_ready(s, ln);
    }
    s->accepting = false;
    check_empty(s);
}

static void on_retry(struct timer *t)
{
    struct server *s = CONTAINER(t, struct server, retry);
    accept_waiting(s);
    if (s->waiting > 0 && t->at == 0)
        timer_set(s->sv->loop, t, RETRY_MS);
}

static void on_listener_closed(uv_handle_t *h)
{
    mem_free(h);
}

static void close_handle(struct listener *ln)
{
    if (ln->handle != NULL)
        uv_close(&ln->handle->any, on_listener_closed);
    ln->handle = NULL;
    set_waiting(ln, false);
}

static void on_connection(uv_stream_t *h, int status)
{
    struct listener *ln = h->data;
    struct server *s = ln->server;
    if (status != 0) {
        if (status == UV_EINVAL) { /* the master has shut the socket down: the end is near */
            close_handle(ln);
            return;
        }
        if (!s->accept_failed)
            log_error("accept: %s", uv_strerror(status));
        s->accept_failed = true;
        s->sv->counters->accept_errors++;
        return;
    }
    s->accept_failed = false;
    set_waiting(ln, true);
    accept_waiting(s);
    s->sv->counters->deferred += ln->waiting;
}

static void on_arrival_gone(void *arg, const struct crowd_net *net)
{
    struct server *s = ((struct listener *)arg)->server;
    client_limit_leave(&s->client_limit, net);
    accept_waiting(s);
}

static void on_conn_closed(void *self, struct conn *c)
{
    struct server *s = ((struct listener *)self)->server;
    uint32_t slot = conn_slot(c);
    client_limit_leave(&s->client_limit, &s->entries[slot].net);
    s->entries[slot] = s->entries[--s->n];
    if (slot < s->n)
        conn_set_slot(s->entries[slot].conn, slot);
    accept_waiting(s);
}

static int open_handle(struct listener *ln, int fd)
{
    uv_loop_t *uv = &ln->server->sv->loop->uv;
    bool local = uv_guess_handle(fd) == UV_NAMED_PIPE;
    ln->handle = mem_zalloc(sizeof *ln->handle);
    if (local)
        uv_pipe_init(uv, &ln->handle->pipe, 0);
    else
        uv_tcp_init(uv, &ln->handle->tcp);
    ln->handle->any.data = ln;
    return local ? uv_pipe_open(&ln->handle->pipe, fd) : uv_tcp_open(&ln->handle->tcp, fd);
}

struct listener *server_listener(struct server *s, int fd, unsigned address, uint32_t limit)
{
    struct listener *ln = mem_zalloc(sizeof *ln);
    ln->server = s;
    ln->address = address;
    ln->limit = limit;
    ln->fd = fd;
    ln->owner = (struct conn_owner){ s->sv, current_generation, on_conn_closed, ln, &s->idlers };
    ln->next = s->listeners;
    s->listeners = ln;
    return ln;
}

int server_accept_start(struct listener *ln)
{
    if (ln->handle != NULL || ln->server->draining)
        return 0;
    int fd = fcntl(ln->fd, F_DUPFD_CLOEXEC, 0); /* libuv closes what it is given */
    if (fd < 0)
        return -errno;
    int err = open_handle(ln, fd);
    if (err != 0)
        close(fd);
    else
        err = uv_listen(&ln->handle->stream, BACKLOG, on_connection);
    if (err != 0)
        close_handle(ln);
    return err;
}

void server_accept_stop(struct listener *ln)
{
    if (ln->handle != NULL && !ln->waiting) /* what waits has been taken from the socket already */
        close_handle(ln);
}

void server_abort_generation(struct server *s, const struct generation *g)
{
    for (uint32_t i = s->n; i > 0; i--) {
        if (i <= s->n && conn_generation(s->entries[i - 1].conn) == g)
            conn_abort(s->entries[i - 1].conn);
    }
}

void server_drain(struct server *s, void (*cb)(void *arg), void *arg)
{
    s->draining = true;
    s->on_empty = cb;
    s->on_empty_arg = arg;
    for (struct listener *ln = s->listeners; ln != NULL; ln = ln->next)
        close_handle(ln);
    for (uint32_t i = s->n; i > 0; i--) /* one that ends is replaced by the last, which was seen */
        conn_drain(s->entries[i - 1].conn);
    arrivals_drain(&s->arrivals);
    check_empty(s);
}

void server_abort(struct server *s)
{
    while (s->n > 0)
        conn_abort(s->entries[s->n - 1].conn);
    arrivals_abort(&s->arrivals);
}

uint32_t server_connections(const struct server *s)
{
    return s->n + s->arrivals.n;
}

void server_free(struct server *s)
{
    while (s->listeners != NULL) {
        struct listener *ln = s->listeners;
        s->listeners = ln->next;
        mem_free(ln);
    }
    loop_undefer(s->sv->loop, &s->empty);
    timer_deinit(s->sv->loop, &s->retry);
    client_limit_deinit(&s->client_limit);
    mem_free(s->entries);
    mem_free(s);
}
