/* See upstream.h. Idle connections are used last in, first out: the pool shrinks by itself when
 * load falls. */
#include <strings.h>

#include "container.h"
#include "mem.h"
#include "upstream_internal.h"

static void on_gone(void *arg, const char *host);

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
    tls_context_unref(u->tls);
    u->tls = NULL;
}

void upstream_count(struct upstream *u, struct counters *c)
{
    u->counters = c;
}

static bool is_at(const struct origin *o, const struct url *url)
{
    if (url->unix_path.p != NULL)
        return slice_eq(slice_of(o->path), url->unix_path);
    return o->path[0] == '\0' && slice_ieq(slice_of(o->host), url->host) && o->port == url->port;
}

static bool is_secured_by(const struct origin *o, struct tls_context *context, struct slice name)
{
    return o->tls == context && (context == NULL || slice_ieq(slice_of(o->server_name), name));
}

static struct origin *origin_new(struct upstream *u, const struct url *url,
                                 struct tls_context *context, struct slice name)
{
    struct origin *o = mem_zalloc(sizeof *o + url->host.n + 1);
    memcpy(o->host, url->host.p != NULL ? url->host.p : "", url->host.n);
    if (url->unix_path.p != NULL && url->unix_path.n < sizeof o->path)
        memcpy(o->path, url->unix_path.p, url->unix_path.n);
    o->port = url->port;
    if (context != NULL) {
        o->tls = tls_context_ref(context);
        o->session = tls_session_new();
        o->server_name = mem_strndup(name.p, name.n);
    }
    o->u = u;
    o->last = &o->first;
    o->next = u->origins;
    u->origins = o;
    return o;
}

static void origin_free(struct origin *o)
{
    tls_context_unref(o->tls);
    tls_session_unref(o->session);
    mem_free(o->server_name);
    mem_free(o);
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
        origin_free(o);
    }
    tls_context_unref(u->tls);
    mem_free(u);
}

/* The system's authorities, which are looked at anew with each configuration. */
static struct tls_context *default_tls(struct upstream *u)
{
    static const struct tls_client_options options = { .http = true };
    struct tls_pem_fault f;
    if (u->tls == NULL)
        u->tls = tls_client_context(&options, &f);
    return u->tls;
}

struct origin *upstream_origin(struct upstream *u, const struct url *url,
                               const struct tls_remote *tls)
{
    struct tls_context *context = NULL;
    struct slice name = url->host;
    if (url->tls) {
        context = tls != NULL && tls->context != NULL ? tls->context : default_tls(u);
        if (tls != NULL && tls->name.p != NULL)
            name = tls->name;
    }
    struct origin *o = u->origins;
    while (o != NULL && !(is_at(o, url) && is_secured_by(o, context, name)))
        o = o->next;
    if (o == NULL)
        o = origin_new(u, url, context, name);
    o->refs++;
    return o;
}

const struct tls_fault *origin_fault(const struct origin *o)
{
    return &o->fault;
}

void upstream_free_unused(struct origin *o)
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
    origin_free(o);
}

void origin_release(struct origin *o)
{
    o->refs--;
    upstream_free_unused(o);
}

/* The name is asked for again at the end of its TTL only while somebody is connected. */
void upstream_opened(struct origin *o)
{
    if (o->open++ == 0 && o->path[0] == '\0')
        o->name = resolve_hold(o->u->resolve, o->host);
}

void upstream_closed(struct origin *o)
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

struct upstream_conn *upstream_conn_new(struct origin *o, struct stream *s,
                                        const struct address *to)
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

static void conn_free(struct upstream_conn *c, bool idle, uint64_t linger_ms)
{
    if (linger_ms > 0)
        stream_finish(c->stream, linger_ms);
    else if (idle)
        stream_leave(c->stream);
    else
        stream_close(c->stream);
    timer_deinit(c->origin->u->loop, &c->expiry);
    if (c->parser != NULL)
        parser_free(c->parser);
    mem_free(c);
}

void upstream_conn_end(struct upstream_conn *c)
{
    struct origin *o = c->origin;
    conn_unlink(c);
    conn_free(c, true, 0);
    upstream_closed(o);
}

static void drop(struct upstream_conn *c, uint64_t linger_ms)
{
    struct origin *o = c->origin;
    bool idle = c->link != NULL;
    if (idle)
        conn_unlink(c);
    conn_free(c, idle, linger_ms);
    upstream_closed(o);
    upstream_serve_queue(o);
    upstream_free_unused(o);
}

void upstream_drop(struct upstream_conn *c)
{
    drop(c, 0);
}

void upstream_finish(struct upstream_conn *c, uint64_t linger_ms)
{
    drop(c, linger_ms);
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
    upstream_serve_queue(o);
}
