/* For tests: a proxy in front of a Unix socket that loses or delays what it is told to. Runs on the
 * test's loop. */
#ifndef TOLLGATE_SPEC_PROXY_H
#define TOLLGATE_SPEC_PROXY_H

#include <stdio.h>

#include "buf.h"
#include "stream.h"

enum { PROXY_LINKS = 64 };

struct proxy_link {
    struct stream *client, *server; /* NULL once closed */
    struct buf held;
};

struct proxy {
    struct loop *loop;
    uv_pipe_t listener;
    struct address to;
    char path[96], url[128];
    bool hold_requests; /* kept until proxy_release, also when the client has gone */
    bool drop_replies;
    bool refuse; /* new connections are closed at once */
    struct proxy_link links[PROXY_LINKS];
    int n;
};

static struct proxy proxy;

static inline void proxy_shut(struct stream **s)
{
    if (*s != NULL)
        stream_close(*s);
    *s = NULL;
}

static inline void on_proxy_request(void *arg, const char *bytes, size_t n)
{
    struct proxy_link *k = arg;
    if (proxy.hold_requests)
        buf_add(&k->held, bytes, n);
    else if (k->server != NULL)
        stream_write(k->server, (struct slice){ bytes, n });
}

static inline void on_proxy_client_end(void *arg, int err)
{
    struct proxy_link *k = arg;
    (void)err;
    proxy_shut(&k->client);
    if (k->held.n == 0)
        proxy_shut(&k->server);
}

static inline void on_proxy_reply(void *arg, const char *bytes, size_t n)
{
    struct proxy_link *k = arg;
    if (!proxy.drop_replies && k->client != NULL)
        stream_write(k->client, (struct slice){ bytes, n });
}

static inline void on_proxy_server_end(void *arg, int err)
{
    struct proxy_link *k = arg;
    (void)err;
    proxy_shut(&k->server);
    proxy_shut(&k->client);
}

static inline void on_proxy_dialed(void *arg, int err)
{
    static const struct stream_events events = { on_proxy_reply, on_proxy_server_end, NULL };
    struct proxy_link *k = arg;
    if (err != 0)
        on_proxy_server_end(k, err);
    else
        stream_start(k->server, &events, k);
}

static inline void on_proxy_connection(uv_stream_t *listener, int err)
{
    static const struct stream_events events = { on_proxy_request, on_proxy_client_end, NULL };
    struct stream *client = stream_accept(proxy.loop, listener, &err);
    if (client == NULL)
        return;
    if (proxy.refuse || proxy.n == PROXY_LINKS) {
        stream_close(client);
        return;
    }
    struct proxy_link *k = &proxy.links[proxy.n++];
    buf_init(&k->held);
    k->client = client;
    stream_start(client, &events, k);
    k->server = stream_dial(proxy.loop, &proxy.to, 1000, on_proxy_dialed, k);
}

static inline void proxy_start(struct loop *l, const char *dir, const char *to)
{
    memset(&proxy, 0, sizeof proxy);
    proxy.loop = l;
    address_of_path(to, &proxy.to);
    snprintf(proxy.path, sizeof proxy.path, "%s/proxy.sock", dir);
    snprintf(proxy.url, sizeof proxy.url, "unix://%s", proxy.path);
    uv_pipe_init(&l->uv, &proxy.listener, 0);
    if (uv_pipe_bind(&proxy.listener, proxy.path) != 0 ||
        uv_listen((uv_stream_t *)&proxy.listener, 64, on_proxy_connection) != 0)
        abort();
}

/* The clients' connections break; what is held is still to come. */
static inline void proxy_cut(void)
{
    for (int i = 0; i < proxy.n; i++)
        on_proxy_client_end(&proxy.links[i], 0);
}

/* What was held goes on to Redis; true where there was something. */
static inline bool proxy_release(void)
{
    bool any = false;
    proxy.hold_requests = false;
    for (int i = 0; i < proxy.n; i++) {
        struct proxy_link *k = &proxy.links[i];
        if (k->held.n > 0 && k->server != NULL) {
            stream_write(k->server, buf_slice(&k->held));
            any = true;
        }
        buf_clear(&k->held);
    }
    return any;
}

static inline void proxy_stop(void)
{
    for (int i = 0; i < proxy.n; i++) {
        proxy_shut(&proxy.links[i].client);
        proxy_shut(&proxy.links[i].server);
        buf_deinit(&proxy.links[i].held);
    }
    uv_close((uv_handle_t *)&proxy.listener, NULL);
    unlink(proxy.path);
}

#endif
