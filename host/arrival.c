/* See arrival.h. The first byte tells TLS (RFC 8446, section 5.1: a record's type, below 32) from a
 * plain request, whose method begins with a letter. */
#include "arrival.h"

#include <stdio.h>
#include <string.h>

#include "container.h"
#include "log.h"
#include "mem.h"
#include "proxy_protocol.h"

enum {
    LINGER_MS = 2000,
    WARN_MS = 1000,
    SILENT_MS = 1000 /* for a client that connected just before we said that we end */
};

struct arrival {
    struct arrival *next, **link;
    struct arrivals *list;
    struct stream *stream;
    struct tls_context *tls; /* a reference; NULL: none */
    const struct arrival_events *events;
    void *arg;
    struct timer deadline; /* of the header, and of the first byte behind it */
    uint64_t began, until;
    bool begun;        /* its first byte has come */
    bool proxied;      /* the header is awaited */
    struct buf header; /* as much of it as has come */
    struct crowd_net net;
};

static void arrival_free(struct arrival *a)
{
    *a->link = a->next;
    if (a->next != NULL)
        a->next->link = a->link;
    else
        a->list->end = a->link;
    a->list->n--;
    timer_deinit(a->list->loop, &a->deadline);
    if (a->tls != NULL)
        tls_context_unref(a->tls);
    buf_deinit(&a->header);
    mem_free(a);
}

/* The stream has been given back already. */
static void gone(struct arrival *a)
{
    const struct arrival_events *events = a->events;
    void *arg = a->arg;
    struct crowd_net net = a->net;
    arrival_free(a);
    events->on_gone(arg, &net);
}

static void ready(struct arrival *a, struct tls_peer *peer, struct slice early)
{
    struct stream *s = a->stream;
    const struct arrival_events *events = a->events;
    void *arg = a->arg;
    struct crowd_net net = a->net;
    struct buf header = a->header; /* early may be in it */
    buf_init(&a->header);
    arrival_free(a);
    events->on_ready(arg, s, peer, early, &net);
    buf_deinit(&header);
}

/* --- why it failed --- */

static enum tls_failure failure_of(int err, const struct tls_fault *f)
{
    switch (f != NULL ? f->kind : TLS_FAULT_NONE) {
    case TLS_FAULT_CERTIFICATE: return TLS_FAILED_CERTIFICATE;
    case TLS_FAULT_REFUSED: return TLS_FAILED_ALERT;
    case TLS_FAULT_HTTP: return TLS_FAILED_HTTP;
    case TLS_FAULT_NOT_TLS: return TLS_FAILED_NOT_TLS;
    case TLS_FAULT_PROTOCOL: return TLS_FAILED_PROTOCOL;
    default: return err == UV_ETIMEDOUT ? TLS_FAILED_TIMEOUT : TLS_FAILED_CUT;
    }
}

static void fail(struct arrival *a, int err)
{
    const struct tls_fault *f = stream_fault(a->stream);
    a->list->counters->tls_failures[failure_of(err, f)]++;
    log_debug("client %s: TLS handshake: %s", stream_peer(a->stream),
              f != NULL && f->text[0] != '\0' ? f->text : uv_strerror(err));
    if (err == UV_EPROTO) /* it has an alert to read */
        stream_finish(a->stream, LINGER_MS);
    else
        stream_close(a->stream);
    gone(a);
}

/* --- the handshake --- */

static void count(struct counters *c, const struct tls_peer *p)
{
    if (strcmp(p->version, "1.3") == 0)
        c->tls13++;
    else
        c->tls12++;
    c->tls_resumed += p->resumed;
}

static void on_secure(void *arg, int err)
{
    struct arrival *a = arg;
    if (err != 0) {
        fail(a, err);
        return;
    }
    struct tls_peer *peer = tls_peer_new(tls_ssl(stream_tls(a->stream)));
    count(a->list->counters, peer);
    ready(a, peer, (struct slice){ "", 0 });
}

/* --- the first byte --- */

static bool is_letter(char c)
{
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static void answer_plain(struct arrival *a, bool head)
{
    static const char text[] = "This port speaks TLS: write https:// instead of http://.\n";
    char answer[256];
    int n =
        snprintf(answer, sizeof answer,
                 "HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain\r\ncontent-length: %zu\r\n"
                 "connection: close\r\n\r\n%s",
                 sizeof text - 1, head ? "" : text);
    a->list->counters->tls_failures[TLS_FAILED_HTTP]++;
    log_debug("client %s: a plain HTTP request came to a port of TLS", stream_peer(a->stream));
    stream_write(a->stream, (struct slice){ answer, (size_t)n });
    stream_finish(a->stream, LINGER_MS);
    gone(a);
}

static void on_first(struct arrival *a, struct slice came)
{
    uint64_t now = loop_now(a->list->loop);
    timer_stop(&a->deadline);
    if (is_letter(came.p[0])) {
        answer_plain(a, slice_starts(came, SLICE("HEAD ")));
        return;
    }
    struct stream_tls how = { .context = a->tls, .early = came };
    stream_secure(a->stream, &how, a->until > now ? a->until - now : 1, on_secure, a);
}

/* --- the header of the PROXY protocol --- */

void arrival_refused(struct arrivals *list, const struct stream *s, const char *why)
{
    uint64_t now = loop_now(list->loop);
    list->counters->proxy_refused++;
    if (list->warned != 0 && now - list->warned < WARN_MS)
        return;
    list->warned = now;
    log_warn("client %s: PROXY protocol: %s; closed", stream_peer(s), why);
}

static void refuse(struct arrival *a, const char *why)
{
    arrival_refused(a->list, a->stream, why);
    stream_close(a->stream);
    gone(a);
}

static void on_header(struct arrival *a, const struct proxy_header *h, size_t used)
{
    char text[IP_TEXT];
    struct slice rest = { a->header.p + used, a->header.n - used };
    a->proxied = false;
    if (h->source.size != 0)
        stream_set_peer(a->stream, ip_text(&h->source, text), h->source_port);
    if (!a->events->on_client(a->arg, a->stream, &a->net)) {
        stream_close(a->stream);
        gone(a);
        return;
    }
    if (a->tls == NULL)
        ready(a, NULL, rest);
    else if (rest.n > 0)
        on_first(a, rest);
}

static void on_proxied(struct arrival *a, struct slice came)
{
    struct proxy_header h;
    const char *why = NULL;
    size_t used;
    buf_add_slice(&a->header, came);
    switch (proxy_protocol_parse(buf_slice(&a->header), &h, &used, &why)) {
    case PROXY_MORE: break;
    case PROXY_DONE: on_header(a, &h, used); break;
    case PROXY_BAD: refuse(a, why); break;
    }
}

/* --- the stream --- */

static void on_read(void *arg, const char *bytes, size_t n)
{
    struct arrival *a = arg;
    struct slice came = { bytes, n };
    a->begun = true;
    if (a->proxied)
        on_proxied(a, came);
    else
        on_first(a, came);
}

/* Without a byte: somebody looked whether the port is open. */
static void on_end(void *arg, int err)
{
    struct arrival *a = arg;
    (void)err;
    if (a->proxied && a->begun) {
        refuse(a, "the connection ended within the header");
        return;
    }
    stream_close(a->stream);
    gone(a);
}

static void end_now(struct arrival *a)
{
    stream_close(a->stream);
    gone(a);
}

static void on_deadline(struct timer *t)
{
    struct arrival *a = CONTAINER(t, struct arrival, deadline);
    if (a->list->draining && !a->begun)
        end_now(a);
    else if (a->proxied)
        refuse(a, "the header did not come in time");
    else
        fail(a, UV_ETIMEDOUT);
}

void arrivals_init(struct arrivals *list, struct loop *l, struct counters *counters)
{
    *list = (struct arrivals){ .loop = l, .counters = counters };
    list->end = &list->first;
}

void arrival_start(struct arrivals *list, struct stream *s, const struct arrival_how *how,
                   const struct arrival_events *events, void *arg)
{
    static const struct stream_events stream_events = { on_read, on_end, NULL };
    struct arrival *a = mem_zalloc(sizeof *a);
    a->list = list;
    a->link = list->end;
    *list->end = a;
    list->end = &a->next;
    list->n++;
    a->stream = s;
    a->tls = how->tls != NULL ? tls_context_ref(how->tls) : NULL;
    a->proxied = how->proxied;
    a->net = how->net;
    buf_init(&a->header);
    a->events = events;
    a->arg = arg;
    a->began = loop_now(list->loop);
    a->until = a->began + how->timeout_ms;
    a->deadline.cb = on_deadline;
    timer_set(list->loop, &a->deadline, how->timeout_ms);
    stream_start(s, &stream_events, a);
}

/* --- the end --- */

void arrivals_drain(struct arrivals *list)
{
    list->draining = true;
    for (struct arrival *a = list->first; a != NULL; a = a->next) {
        if (!a->begun || a->proxied) /* proxies send their header at once */
            timer_set(list->loop, &a->deadline, SILENT_MS);
    }
}

bool arrivals_evictable(const struct arrivals *list, uint64_t ms)
{
    return list->first != NULL && loop_now(list->loop) - list->first->began >= ms;
}

bool arrivals_evict(struct arrivals *list, uint64_t ms)
{
    if (!arrivals_evictable(list, ms))
        return false;
    end_now(list->first);
    return true;
}

void arrivals_abort(struct arrivals *list)
{
    struct arrival *next;
    for (struct arrival *a = list->first; a != NULL; a = next) {
        next = a->next;
        end_now(a);
    }
}
