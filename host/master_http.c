/* See master.h: the admin listener. /healthz (the master turns), /readyz (requests can be served;
 * 503 says why not), /metrics and /status; and, where the configuration has a token, actions for
 * who has it (master_http_act.c). A Host that is neither an IP address nor localhost is refused, so
 * that no web page reaches it through a name of its own. One request a connection, and few
 * connections at once: it is for probes. */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#include "arrival.h"
#include "container.h"
#include "log.h"
#include "master.h"
#include "master_http.h"
#include "mem.h"
#include "tls_config.h"

enum { BACKLOG = 128, CONNECTIONS = 64, DEADLINE_MS = 10000, LINGER_MS = 1000 };

struct http {
    uv_tcp_t handle;
    struct master *m;
    struct http_client *clients;
    unsigned n;
    bool waiting;
    struct tls_context *tls;    /* a reference; NULL: plain */
    struct arrivals arrivals;   /* whose handshake is under way */
    struct counters handshakes; /* of ours, which are no client's */
};

static void accept_waiting(struct http *h);

void http_client_free(struct http_client *c)
{
    struct http *h = c->h;
    if (c->asked != NULL)
        c->asked->client = NULL;
    if (c->stream != NULL)
        stream_close(c->stream);
    timer_deinit(&h->m->loop, &c->deadline);
    parser_free(c->parser);
    arena_deinit(&c->arena);
    *c->link = c->next;
    if (c->next != NULL)
        c->next->link = c->link;
    mem_free(c);
    h->n--;
    accept_waiting(h);
}

/* --- answers --- */

static const char *reason(int status)
{
    switch (status) {
    case 200: return "OK";
    case 401: return "Unauthorized";
    case 404: return "Not Found";
    case 405: return "Method Not Allowed";
    case 409: return "Conflict";
    case 421: return "Misdirected Request";
    case 503: return "Service Unavailable";
    default: return "Bad Request";
    }
}

void http_answer(struct http_client *c, int status, const char *type, const char *field,
                 struct slice body)
{
    struct buf out;
    buf_init(&out);
    buf_printf(
        &out,
        "HTTP/1.1 %d %s\r\ncontent-type: %s\r\ncontent-length: %zu\r\ncache-control: no-store\r\n",
        status, reason(status), type, body.n);
    buf_printf(&out, "%sconnection: close\r\n\r\n", field);
    if (!slice_eq(c->req.method, SLICE("HEAD")))
        buf_add_slice(&out, body);
    stream_write(c->stream, buf_slice(&out));
    buf_deinit(&out);
    stream_finish(c->stream, LINGER_MS);
    c->stream = NULL;
    http_client_free(c);
}

static void answer(struct http_client *c, int status, const char *type, struct slice body)
{
    http_answer(c, status, type, "", body);
}

static bool host_allowed(struct slice h)
{
    struct address a;
    char name[64];
    if (h.n > 0 && h.p[0] == '[') {
        const char *end = memchr(h.p, ']', h.n);
        h = end != NULL ? (struct slice){ h.p + 1, (size_t)(end - h.p) - 1 } : h;
    } else {
        const char *colon = h.n > 0 ? memchr(h.p, ':', h.n) : NULL;
        h.n = colon != NULL ? (size_t)(colon - h.p) : h.n;
    }
    if (h.n == 0 || slice_ieq(h, SLICE("localhost")))
        return true;
    if (h.n >= sizeof name)
        return false;
    memcpy(name, h.p, h.n);
    name[h.n] = '\0';
    return address_of_ip(name, 0, &a) == 0;
}

static void serve_ready(struct http_client *c)
{
    const char *why = master_not_ready(c->h->m);
    if (why == NULL)
        answer(c, 200, "text/plain", SLICE("ready\n"));
    else
        answer(c, 503, "text/plain", arena_printf(&c->arena, "not ready: %s\n", why));
}

static void serve_written(struct http_client *c, const char *type,
                          void (*write)(struct master *m, struct buf *out))
{
    struct buf out;
    buf_init(&out);
    write(c->h->m, &out);
    answer(c, 200, type, buf_slice(&out));
    buf_deinit(&out);
}

static void on_status(void *arg, bool ok, struct slice plugins)
{
    struct http_asked *asked = arg;
    struct http_client *c = asked->client;
    struct buf out;
    mem_free(asked);
    if (c == NULL)
        return;
    c->asked = NULL;
    buf_init(&out);
    master_status(c->m, ok ? plugins : SLICE(""), &out);
    answer(c, 200, "application/json", buf_slice(&out));
    buf_deinit(&out);
}

static void serve_status(struct http_client *c)
{
    struct http_asked *asked = mem_zalloc(sizeof *asked);
    asked->client = c;
    c->asked = asked;
    master_command_status(c->m, on_status, asked);
}

static void serve(struct http_client *c)
{
    struct slice path = c->req.path;
    if (!host_allowed(c->req.authority))
        answer(c, 421, "text/plain",
               SLICE("the admin listener answers only to an IP address or localhost\n"));
    else if (http_act(c))
        return;
    else if (!slice_eq(c->req.method, SLICE("GET")) && !slice_eq(c->req.method, SLICE("HEAD")))
        http_answer(c, 405, "text/plain", "allow: GET, HEAD\r\n", /* RFC 9110, section 15.5.6 */
                    SLICE("this is for reading: GET or HEAD\n"));
    else if (slice_eq(path, SLICE("/healthz")))
        answer(c, 200, "text/plain", SLICE("ok\n"));
    else if (slice_eq(path, SLICE("/readyz")))
        serve_ready(c);
    else if (slice_eq(path, SLICE("/metrics")))
        serve_written(c, "text/plain; version=0.0.4", master_metrics);
    else if (slice_eq(path, SLICE("/status")))
        serve_status(c);
    else
        answer(c, 404, "text/plain",
               SLICE("not found: there are /healthz, /readyz, /metrics and /status\n"));
}

/* --- clients --- */

static int on_head(void *arg)
{
    (void)arg;
    return 1; /* a body is not read */
}

static int on_body(void *arg, struct slice piece)
{
    (void)arg, (void)piece;
    return 1;
}

static void on_message_end(void *arg)
{
    (void)arg;
}

static void on_read(void *arg, const char *bytes, size_t n)
{
    struct http_client *c = arg;
    size_t used;
    if (c->asked != NULL) /* a body, which is not read */
        return;
    int fault = parser_feed(c->parser, bytes, n, &used);
    if (fault != 0)
        answer(c, fault, "text/plain", SLICE("the request makes no sense\n"));
    else if (c->req.path.p != NULL)
        serve(c);
}

static void on_end(void *arg, int err)
{
    (void)err;
    http_client_free(arg);
}

static void on_deadline(struct timer *t)
{
    http_client_free(CONTAINER(t, struct http_client, deadline));
}

static void begin(struct http *h, struct stream *s)
{
    static const struct parse_events parse_events = { on_head, on_body, on_message_end };
    static const struct stream_events stream_events = { on_read, on_end, NULL };
    static const struct parse_limits limits = { .head = 8192, .url = 1024, .fields = 64 };
    struct http_client *c = mem_zalloc(sizeof *c);
    c->h = h;
    c->m = h->m;
    c->stream = s;
    c->next = h->clients;
    c->link = &h->clients;
    if (c->next != NULL)
        c->next->link = &c->next;
    h->clients = c;
    h->n++;
    arena_init(&c->arena);
    c->parser = parser_new_request(&limits, &parse_events, c);
    parser_next_request(c->parser, &c->req, &c->arena);
    c->deadline.cb = on_deadline;
    timer_set(&h->m->loop, &c->deadline, DEADLINE_MS);
    stream_start(s, &stream_events, c);
}

static void on_ready(void *arg, struct stream *s, struct tls_peer *peer, struct slice early,
                     const struct crowd_net *net)
{
    (void)early, (void)net; /* there is none behind a handshake; nobody is counted */
    tls_peer_unref(peer);
    begin(arg, s);
}

static void on_gone(void *arg, const struct crowd_net *net)
{
    (void)net;
    accept_waiting(arg);
}

static void accept_one(struct http *h)
{
    static const struct arrival_events events = { NULL, on_ready, on_gone };
    int err = 0;
    h->waiting = false;
    struct stream *s = stream_accept(&h->m->loop, (uv_stream_t *)&h->handle, &err);
    if (s == NULL)
        return;
    struct arrival_how how = { .tls = h->tls, .timeout_ms = DEADLINE_MS };
    if (h->tls != NULL)
        arrival_start(&h->arrivals, s, &how, &events, h);
    else
        begin(h, s);
}

static void accept_waiting(struct http *h)
{
    if (h->waiting && h->n + h->arrivals.n < CONNECTIONS)
        accept_one(h);
}

static void on_connection(uv_stream_t *handle, int status)
{
    struct http *h = handle->data;
    if (status != 0)
        return;
    if (h->n + h->arrivals.n >= CONNECTIONS)
        h->waiting = true;
    else
        accept_one(h);
}

static void on_closed(uv_handle_t *handle)
{
    mem_free(handle->data);
}

int master_http_fd(const struct master *m)
{
    uv_os_fd_t fd = -1;
    uv_fileno((const uv_handle_t *)&m->http->handle, &fd);
    return fd;
}

int master_http_start(struct master *m, const char *host, int port, int fd)
{
    struct address a;
    struct sockaddr_storage ss;
    int size = sizeof ss;
    bool v6 = strchr(host, ':') != NULL;
    struct http *h = mem_zalloc(sizeof *h);
    h->m = m;
    arrivals_init(&h->arrivals, &m->loop, &h->handshakes);
    uv_tcp_init(&m->loop.uv, &h->handle);
    h->handle.data = h;
    int err = address_of_ip(host, port, &a);
    if (err == 0)
        err = fd >= 0 ? uv_tcp_open(&h->handle, fd) : uv_tcp_bind(&h->handle, &a.u.sa, 0);
    if (fd >= 0)
        fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (err == 0)
        err = uv_listen((uv_stream_t *)&h->handle, BACKLOG, on_connection);
    if (err != 0) {
        log_error("cannot listen on %s%s%s:%d: %s", v6 ? "[" : "", host, v6 ? "]" : "", port,
                  uv_strerror(err));
        uv_close((uv_handle_t *)&h->handle, on_closed);
        return -1;
    }
    uv_tcp_getsockname(&h->handle, (struct sockaddr *)&ss, &size);
    port =
        ntohs(v6 ? ((struct sockaddr_in6 *)&ss)->sin6_port : ((struct sockaddr_in *)&ss)->sin_port);
    log_info("admin on %s%s%s:%d", v6 ? "[" : "", host, v6 ? "]" : "", port);
    m->http = h;
    return 0;
}

void master_http_tls(struct master *m)
{
    struct snapshot *from = m->plan->snapshot;
    struct slice bytes = snapshot_note(from, "admin.tls");
    struct tls_context *made = NULL;
    struct arena a;
    struct buf text;
    if (m->http == NULL)
        return;
    arena_init(&a);
    buf_init(&text);
    struct tls_config *c = bytes.n > 0 ? tls_config_read(&a, bytes) : NULL;
    if (c != NULL)
        made = tls_config_load(c, from, zone_tickets(m->zone), &text, &text);
    if (made != NULL || bytes.n == 0) {
        tls_context_unref(m->http->tls);
        m->http->tls = made;
    } else { /* which the trial could */
        log_error("the admin listener's TLS cannot be set: %.*s", (int)text.n, text.p);
    }
    buf_deinit(&text);
    arena_deinit(&a);
}

void master_http_stop(struct master *m)
{
    struct http *h = m->http;
    if (h == NULL)
        return;
    m->http = NULL;
    h->waiting = false;
    while (h->clients != NULL)
        http_client_free(h->clients);
    arrivals_abort(&h->arrivals);
    tls_context_unref(h->tls);
    uv_close((uv_handle_t *)&h->handle, on_closed);
}
