/* See upstream.h. Idle connections are used last in, first out: the pool shrinks by itself when
 * load falls. */
#include "upstream.h"

#include <strings.h>

#include "container.h"
#include "dial.h"
#include "mem.h"

struct origin {
    struct origin *next;
    struct upstream *u;
    uint32_t refs, open, idle; /* open: on loan, idle or being dialed */
    struct upstream_conn *idle_list;
    struct upstream_wait *first, **last; /* who waits for the limit, in order */
    struct resolve_hold *name;           /* held while there are connections */
    uint32_t epoch;                      /* counts how often the name has lost addresses */
    int port;
    char path[108];
    char host[];
};

struct upstream_wait {
    struct upstream_wait *next, **link; /* in the origin's queue */
    struct origin *origin;
    struct timer deadline;
    struct deferred later;
    struct dial *dial;
    bool counted; /* in origin->open */
    bool fresh;
    int err;
    uint64_t until;
    void (*cb)(void *arg, struct upstream_conn *c, int err);
    void *arg;
};

struct upstream {
    struct loop *loop;
    struct resolve *resolve;
    struct upstream_limits limits;
    struct origin *origins;
};

static void serve_queue(struct origin *o);
static void on_gone(void *arg, const char *host);

static bool at_limit(const struct origin *o)
{
    return o->u->limits.connections != 0 && o->open >= o->u->limits.connections;
}

/* --- origins --- */

struct upstream *upstream_new(struct loop *l, struct resolve *r,
                              const struct upstream_limits *limits)
{
    struct upstream *u = mem_zalloc(sizeof *u);
    u->loop = l;
    u->resolve = r;
    u->limits = *limits;
    resolve_watch(r, on_gone, u);
    return u;
}

void upstream_set_limits(struct upstream *u, const struct upstream_limits *limits)
{
    u->limits = *limits;
}

void upstream_free(struct upstream *u)
{
    resolve_watch(u->resolve, NULL, NULL);
    while (u->origins != NULL) {
        struct origin *o = u->origins;
        o->refs++; /* so that the last drop does not free it */
        while (o->idle_list != NULL)
            upstream_drop(o->idle_list);
        u->origins = o->next;
        mem_free(o);
    }
    mem_free(u);
}

struct origin *upstream_origin(struct upstream *u, const struct url *url)
{
    struct origin *o;
    for (o = u->origins; o != NULL; o = o->next) {
        bool same = url->unix_path.p != NULL
                        ? slice_eq(slice_of(o->path), url->unix_path)
                        : o->path[0] == '\0' && slice_ieq(slice_of(o->host), url->host) &&
                              o->port == url->port;
        if (same)
            break;
    }
    if (o == NULL) {
        o = mem_zalloc(sizeof *o + url->host.n + 1);
        memcpy(o->host, url->host.p != NULL ? url->host.p : "", url->host.n);
        if (url->unix_path.p != NULL && url->unix_path.n < sizeof o->path)
            memcpy(o->path, url->unix_path.p, url->unix_path.n);
        o->port = url->port;
        o->u = u;
        o->last = &o->first;
        o->next = u->origins;
        u->origins = o;
    }
    o->refs++;
    return o;
}

static void origin_free_unused(struct origin *o)
{
    if (o->refs > 0 || o->open > o->idle || o->first != NULL)
        return;
    while (o->idle_list != NULL) {
        o->refs = 1; /* upstream_drop comes back here */
        upstream_drop(o->idle_list);
    }
    o->refs = 0;
    struct origin **link = &o->u->origins;
    while (*link != o)
        link = &(*link)->next;
    *link = o->next;
    mem_free(o);
}

void origin_release(struct origin *o)
{
    o->refs--;
    origin_free_unused(o);
}

/* The name is asked for again at the end of its TTL only while somebody is connected. */
static void origin_opened(struct origin *o)
{
    if (o->open++ == 0 && o->path[0] == '\0')
        o->name = resolve_hold(o->u->resolve, o->host);
}

static void origin_closed(struct origin *o)
{
    if (--o->open > 0)
        return;
    resolve_unhold(o->name);
    o->name = NULL;
}

/* --- idle connections --- */

static void conn_unlink(struct upstream_conn *c)
{
    *c->link = c->next;
    if (c->next != NULL)
        c->next->link = c->link;
    c->link = NULL;
    c->origin->idle--;
    timer_stop(&c->expiry);
}

static void on_idle_read(void *arg, const char *bytes, size_t n)
{
    (void)bytes, (void)n;
    upstream_drop(arg);
}

static void on_idle_end(void *arg, int err)
{
    (void)err;
    upstream_drop(arg);
}

static const struct stream_events idle_events = { on_idle_read, on_idle_end, NULL };

static void on_expiry(struct timer *t)
{
    upstream_drop(CONTAINER(t, struct upstream_conn, expiry));
}

static struct upstream_conn *conn_new(struct origin *o, struct stream *s, const struct address *to)
{
    struct upstream_conn *c = mem_zalloc(sizeof *c);
    c->origin = o;
    c->stream = s;
    c->ip = ip_of_sockaddr(&to->u.sa);
    c->epoch = o->epoch;
    c->uses = 1;
    c->expiry.cb = on_expiry;
    return c;
}

struct upstream_conn *upstream_take(struct origin *o)
{
    struct upstream_conn *c = o->idle_list;
    if (c == NULL)
        return NULL;
    conn_unlink(c);
    c->uses++;
    return c;
}

static void conn_free(struct upstream_conn *c)
{
    stream_close(c->stream);
    timer_deinit(c->origin->u->loop, &c->expiry);
    if (c->parser != NULL)
        parser_free(c->parser);
    mem_free(c);
}

void upstream_drop(struct upstream_conn *c)
{
    struct origin *o = c->origin;
    if (c->link != NULL)
        conn_unlink(c);
    conn_free(c);
    origin_closed(o);
    serve_queue(o);
    origin_free_unused(o);
}

/* The name does not have this connection's address any more. */
static bool has_left(struct upstream_conn *c)
{
    struct origin *o = c->origin;
    if (c->epoch == o->epoch || c->ip.size == 0)
        return false;
    c->epoch = o->epoch;
    return !resolve_has(o->name, &c->ip);
}

static void let_go(struct origin *o)
{
    o->refs++; /* it stays until we are through */
    for (struct upstream_conn *c = o->idle_list, *next; c != NULL; c = next) {
        next = c->next;
        if (has_left(c))
            upstream_drop(c);
    }
}

/* Those that are idle are let go now, those on loan when they come back. */
static void on_gone(void *arg, const char *host)
{
    struct upstream *u = arg;
    for (struct origin *o = u->origins, *next; o != NULL; o = next) {
        if (o->path[0] == '\0' && strcasecmp(o->host, host) == 0) {
            o->epoch++;
            let_go(o);
            next = o->next;
            origin_release(o);
        } else {
            next = o->next;
        }
    }
}

void upstream_put(struct upstream_conn *c, uint64_t keep_ms)
{
    struct origin *o = c->origin;
    struct upstream *u = o->u;
    if (o->idle >= u->limits.idle || o->refs == 0 || has_left(c)) {
        upstream_drop(c);
        return;
    }
    if (keep_ms == 0 || keep_ms > u->limits.idle_ms)
        keep_ms = u->limits.idle_ms;
    c->arg = NULL;
    c->next = o->idle_list;
    c->link = &o->idle_list;
    if (c->next != NULL)
        c->next->link = &c->next;
    o->idle_list = c;
    o->idle++;
    stream_start(c->stream, &idle_events, c);
    timer_set(u->loop, &c->expiry, keep_ms);
    serve_queue(o);
}

/* --- asking for one --- */

static void wait_free(struct upstream_wait *w)
{
    struct loop *l = w->origin->u->loop;
    if (w->link != NULL) {
        *w->link = w->next;
        if (w->next != NULL)
            w->next->link = w->link;
        else
            w->origin->last = w->link;
    }
    if (w->dial != NULL)
        dial_cancel(w->dial);
    timer_deinit(l, &w->deadline);
    loop_undefer(l, &w->later);
    mem_free(w);
}

static void wait_end(struct upstream_wait *w, struct upstream_conn *c, int err)
{
    struct origin *o = w->origin;
    void (*cb)(void *, struct upstream_conn *, int) = w->cb;
    void *arg = w->arg;
    if (c == NULL && w->counted)
        origin_closed(o);
    wait_free(w);
    if (c == NULL)
        serve_queue(o);
    o->refs++; /* the borrower may let go of it */
    cb(arg, c, err);
    origin_release(o);
}

static void on_dialed(void *arg, struct stream *s, const struct address *a, int err)
{
    struct upstream_wait *w = arg;
    w->dial = NULL;
    wait_end(w, err == 0 ? conn_new(w->origin, s, a) : NULL, err);
}

static uint64_t time_left(const struct upstream_wait *w)
{
    uint64_t now = loop_now(w->origin->u->loop);
    return w->until > now ? w->until - now : 1;
}

static void wait_begin(struct upstream_wait *w)
{
    struct origin *o = w->origin;
    struct dial_to to = { .host = o->host, .port = o->port, .path = o->path };
    origin_opened(o);
    w->counted = true;
    timer_stop(&w->deadline); /* the dial keeps the rest of it */
    w->dial = dial_start(o->u->loop, o->u->resolve, &to, time_left(w), on_dialed, w);
}

/* Whoever waits gets an idle connection, or dials where the limit leaves room. */
static void serve_queue(struct origin *o)
{
    while (o->first != NULL && (o->idle_list != NULL || !at_limit(o))) {
        struct upstream_wait *w = o->first;
        *w->link = w->next;
        if (w->next != NULL)
            w->next->link = w->link;
        else
            o->last = w->link;
        w->link = NULL;
        if (w->fresh && at_limit(o)) { /* an idle one makes room */
            struct upstream_conn *c = o->idle_list;
            conn_unlink(c);
            conn_free(c);
            origin_closed(o);
        }
        if (o->idle_list != NULL && !w->fresh) {
            loop_defer(o->u->loop, &w->later, LOOP_COLLECT);
            return;
        }
        wait_begin(w);
    }
}

static void on_wait_later(struct deferred *d)
{
    struct upstream_wait *w = CONTAINER(d, struct upstream_wait, later);
    struct origin *o = w->origin;
    struct upstream_conn *c = upstream_take(o);
    if (c != NULL) {
        wait_end(w, c, 0);
    } else if (at_limit(o)) { /* somebody else was faster: first in the queue again */
        w->next = o->first;
        w->link = &o->first;
        if (w->next != NULL)
            w->next->link = &w->next;
        else
            o->last = &w->next;
        o->first = w;
    } else {
        wait_begin(w);
    }
}

static void on_wait_deadline(struct timer *t)
{
    wait_end(CONTAINER(t, struct upstream_wait, deadline), NULL, UV_ETIMEDOUT);
}

struct upstream_wait *upstream_get(struct origin *o, uint64_t connect_ms, bool fresh,
                                   void (*cb)(void *arg, struct upstream_conn *c, int err),
                                   void *arg)
{
    struct upstream_wait *w = mem_zalloc(sizeof *w);
    if (at_limit(o) && o->idle_list != NULL)
        upstream_drop(o->idle_list); /* makes room for a fresh one */
    w->origin = o;
    w->cb = cb;
    w->arg = arg;
    w->fresh = fresh;
    w->until = loop_now(o->u->loop) + connect_ms;
    w->deadline.cb = on_wait_deadline;
    w->later.run = on_wait_later;
    timer_set(o->u->loop, &w->deadline, connect_ms);
    if (at_limit(o)) {
        w->link = o->last;
        *o->last = w;
        o->last = &w->next;
    } else {
        wait_begin(w);
    }
    return w;
}

void upstream_cancel(struct upstream_wait *w)
{
    struct origin *o = w->origin;
    if (w->counted)
        origin_closed(o);
    wait_free(w);
    serve_queue(o);
    origin_free_unused(o);
}
