/* See arrival.h. The first byte tells TLS (RFC 8446, section 5.1: a record's type, below 32) from a
 * plain request, whose method begins with a letter. */
#include "arrival.h"

#include <stdio.h>
#include <string.h>

#include "container.h"
#include "log.h"
#include "mem.h"

enum { LINGER_MS = 2000 };

struct arrival {
    struct arrival *next, **link;
    struct arrivals *list;
    struct stream *stream;
    struct tls_context *tls; /* a reference */
    const struct arrival_events *events;
    void *arg;
    struct timer deadline; /* of the first byte */
    uint64_t until;
    bool begun; /* its first byte has come */
};

static void arrival_free(struct arrival *a)
{
    *a->link = a->next;
    if (a->next != NULL)
        a->next->link = a->link;
    a->list->n--;
    timer_deinit(a->list->loop, &a->deadline);
    tls_context_unref(a->tls);
    mem_free(a);
}

/* The stream has been given back already. */
static void gone(struct arrival *a)
{
    void (*cb)(void *) = a->events->on_gone;
    void *arg = a->arg;
    arrival_free(a);
    cb(arg);
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
    struct stream *s = a->stream;
    void (*cb)(void *, struct stream *, struct tls_peer *) = a->events->on_ready;
    void *on = a->arg;
    count(a->list->counters, peer);
    arrival_free(a);
    cb(on, s, peer);
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

static void on_read(void *arg, const char *bytes, size_t n)
{
    struct arrival *a = arg;
    uint64_t now = loop_now(a->list->loop);
    struct slice came = { bytes, n };
    timer_stop(&a->deadline);
    a->begun = true;
    if (is_letter(bytes[0])) {
        answer_plain(a, slice_starts(came, SLICE("HEAD ")));
        return;
    }
    struct stream_tls how = { .context = a->tls, .early = came };
    stream_secure(a->stream, &how, a->until > now ? a->until - now : 1, on_secure, a);
}

/* Without a byte: somebody looked whether the port is open. */
static void on_end(void *arg, int err)
{
    struct arrival *a = arg;
    (void)err;
    stream_close(a->stream);
    gone(a);
}

static void on_deadline(struct timer *t)
{
    struct arrival *a = CONTAINER(t, struct arrival, deadline);
    fail(a, UV_ETIMEDOUT);
}

void arrivals_init(struct arrivals *list, struct loop *l, struct counters *counters)
{
    *list = (struct arrivals){ .loop = l, .counters = counters };
}

void arrival_start(struct arrivals *list, struct stream *s, struct tls_context *tls,
                   uint64_t timeout_ms, const struct arrival_events *events, void *arg)
{
    static const struct stream_events stream_events = { on_read, on_end, NULL };
    struct arrival *a = mem_zalloc(sizeof *a);
    a->list = list;
    a->next = list->first;
    a->link = &list->first;
    if (a->next != NULL)
        a->next->link = &a->next;
    list->first = a;
    list->n++;
    a->stream = s;
    a->tls = tls_context_ref(tls);
    a->events = events;
    a->arg = arg;
    a->until = loop_now(list->loop) + timeout_ms;
    a->deadline.cb = on_deadline;
    timer_set(list->loop, &a->deadline, timeout_ms);
    stream_start(s, &stream_events, a);
}

/* --- the end --- */

static void end_all(struct arrivals *list, bool begun_too)
{
    struct arrival *next;
    for (struct arrival *a = list->first; a != NULL; a = next) {
        next = a->next;
        if (a->begun && !begun_too)
            continue;
        stream_close(a->stream);
        gone(a);
    }
}

void arrivals_drain(struct arrivals *list)
{
    end_all(list, false);
}

void arrivals_abort(struct arrivals *list)
{
    end_all(list, true);
}
