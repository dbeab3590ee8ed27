/* See stream.h: dialing and accepting. */
#include <arpa/inet.h>

#include "stream_internal.h"

static void remember_peer(struct stream *s)
{
    struct sockaddr_storage ss;
    int n = sizeof ss;
    if (s->u.handle.type != UV_TCP ||
        uv_tcp_getpeername(&s->u.tcp, (struct sockaddr *)&ss, &n) != 0)
        return;
    if (ss.ss_family == AF_INET6) {
        const struct sockaddr_in6 *a = (const struct sockaddr_in6 *)&ss;
        s->port = ntohs(a->sin6_port);
        if (IN6_IS_ADDR_V4MAPPED(&a->sin6_addr))
            inet_ntop(AF_INET, &a->sin6_addr.s6_addr[12], s->peer, sizeof s->peer);
        else
            uv_ip6_name(a, s->peer, sizeof s->peer);
    } else {
        s->port = ntohs(((const struct sockaddr_in *)&ss)->sin_port);
        uv_ip4_name((const struct sockaddr_in *)&ss, s->peer, sizeof s->peer);
    }
}

struct stream *stream_accept(struct loop *l, uv_stream_t *listener, int *err)
{
    struct stream *s = stream_new(l, listener->type == UV_NAMED_PIPE);
    *err = uv_accept(listener, &s->u.stream);
    if (*err != 0) {
        stream_close(s);
        return NULL;
    }
    s->connected = true;
    if (s->u.handle.type == UV_TCP)
        uv_tcp_nodelay(&s->u.tcp, 1);
    remember_peer(s);
    return s;
}

/* A dial to a local port where nobody listens can be given that very port as its own and so meet
 * itself: TCP allows it (RFC 9293, section 3.5, simultaneous open). It would keep the port from
 * whoever wants to listen there. */
static bool met_itself(const struct stream *s)
{
    struct sockaddr_storage us, peer;
    int nus = sizeof us, npeer = sizeof peer;
    memset(&us, 0, sizeof us);
    memset(&peer, 0, sizeof peer);
    return s->u.handle.type == UV_TCP &&
           uv_tcp_getsockname(&s->u.tcp, (struct sockaddr *)&us, &nus) == 0 &&
           uv_tcp_getpeername(&s->u.tcp, (struct sockaddr *)&peer, &npeer) == 0 && nus == npeer &&
           memcmp(&us, &peer, (size_t)nus) == 0;
}

static void on_connected(uv_connect_t *req, int err)
{
    struct stream *s = req->data;
    if (s->closed || s->on_ready == NULL)
        return;
    if (err == 0 && met_itself(s))
        err = UV_ECONNREFUSED;
    if (err == 0) {
        s->connected = true;
        if (s->u.handle.type == UV_TCP)
            uv_tcp_nodelay(&s->u.tcp, 1);
        remember_peer(s);
    }
    stream_tell_ready(s, err);
}

struct stream *stream_dial(struct loop *l, const struct address *to, uint64_t timeout_ms,
                           void (*on_connect)(void *arg, int err), void *arg)
{
    struct stream *s = stream_new(l, to->path[0] != '\0');
    s->on_ready = on_connect;
    s->arg = arg;
    timer_set(l, &s->deadline, timeout_ms);
    if (to->path[0] != '\0') {
        uv_pipe_connect(&s->connect, &s->u.pipe, to->path, on_connected);
        return s;
    }
    int err = uv_tcp_connect(&s->connect, &s->u.tcp, &to->u.sa, on_connected);
    if (err != 0)
        stream_fail_later(s, err);
    return s;
}
