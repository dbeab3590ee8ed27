/* See upstream.h: asking for a connection. Whoever comes above the limit waits in order; the others
 * dial, and where the origin speaks TLS agree on it, all within one deadline. */
#include "container.h"
#include "mem.h"
#include "upstream_internal.h"

bool upstream_at_limit(const struct origin *o)
{
    return o->u->limits.connections != 0 && o->open >= o->u->limits.connections;
}

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
    if (w->securing != NULL)
        stream_close(w->securing);
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
        upstream_closed(o);
    wait_free(w);
    if (c == NULL)
        upstream_serve_queue(o);
    o->refs++; /* the borrower may let go of it */
    cb(arg, c, err);
    origin_release(o);
}

static uint64_t time_left(const struct upstream_wait *w)
{
    uint64_t now = loop_now(w->origin->u->loop);
    return w->until > now ? w->until - now : 1;
}

/* --- TLS --- */

static void count_handshake(const struct upstream_wait *w, int err)
{
    struct counters *c = w->origin->u->counters;
    if (c == NULL)
        return;
    c->origin_handshakes += err == 0;
    c->origin_handshakes_failed += err != 0;
    c->origin_resumed += err == 0 && tls_resumed(stream_tls(w->securing));
}

static void on_secure(void *arg, int err)
{
    struct upstream_wait *w = arg;
    struct stream *s = w->securing;
    const struct tls_fault *f = stream_fault(s);
    count_handshake(w, err);
    if (err == 0) {
        w->securing = NULL;
        wait_end(w, upstream_conn_new(w->origin, s, &w->to), 0);
        return;
    }
    w->origin->fault = f != NULL ? *f : (struct tls_fault){ .kind = TLS_FAULT_NONE };
    wait_end(w, NULL, err);
}

static void secure(struct upstream_wait *w, struct stream *s, const struct address *a)
{
    struct origin *o = w->origin;
    struct stream_tls how = { .context = o->tls, .name = o->server_name, .session = o->session };
    w->to = *a;
    w->securing = s;
    stream_secure(s, &how, time_left(w), on_secure, w);
}

/* --- dialing --- */

static void on_dialed(void *arg, struct stream *s, const struct address *a, int err)
{
    struct upstream_wait *w = arg;
    w->dial = NULL;
    if (err == 0 && w->origin->tls != NULL)
        secure(w, s, a);
    else
        wait_end(w, err == 0 ? upstream_conn_new(w->origin, s, a) : NULL, err);
}

static void wait_begin(struct upstream_wait *w)
{
    struct origin *o = w->origin;
    struct dial_to to = { .host = o->host, .port = o->port, .path = o->path };
    upstream_opened(o);
    w->counted = true;
    timer_stop(&w->deadline); /* the dial keeps the rest of it */
    w->dial = dial_start(o->u->loop, o->u->resolve, &to, time_left(w), on_dialed, w);
}

void upstream_serve_queue(struct origin *o)
{
    while (o->first != NULL && (o->idle_list != NULL || !upstream_at_limit(o))) {
        struct upstream_wait *w = o->first;
        *w->link = w->next;
        if (w->next != NULL)
            w->next->link = w->link;
        else
            o->last = w->link;
        w->link = NULL;
        if (w->fresh && upstream_at_limit(o)) { /* an idle one makes room */
            upstream_conn_end(o->idle_list);
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
    } else if (upstream_at_limit(o)) { /* somebody else was faster: first in the queue again */
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
    if (upstream_at_limit(o) && o->idle_list != NULL)
        upstream_drop(o->idle_list); /* makes room for a fresh one */
    w->origin = o;
    w->cb = cb;
    w->arg = arg;
    w->fresh = fresh;
    w->until = loop_now(o->u->loop) + connect_ms;
    w->deadline.cb = on_wait_deadline;
    w->later.run = on_wait_later;
    timer_set(o->u->loop, &w->deadline, connect_ms);
    if (upstream_at_limit(o)) {
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
        upstream_closed(o);
    wait_free(w);
    upstream_serve_queue(o);
    upstream_free_unused(o);
}
