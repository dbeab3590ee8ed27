/* Where rds dials to: a Unix socket, an address, or a name that is resolved first. */
#include "rds_internal.h"

#include <netdb.h>
#include <stdio.h>

#include "mem.h"

static void connect_to(struct rds *r, const struct address *to)
{
    r->phase = PHASE_DIAL;
    r->stream = stream_dial(r->loop, to, r->config.connect_ms, rds_on_connect, r);
}

/* A name being resolved. It outlives a connection that does not want it any more: libuv's thread
 * cannot always be called back. */
struct rds_lookup {
    uv_getaddrinfo_t req;
    struct rds *r; /* NULL once forgotten */
};

static void on_resolved(uv_getaddrinfo_t *req, int err, struct addrinfo *found)
{
    struct rds_lookup *lookup = req->data;
    struct rds *r = lookup->r;
    struct address to = { .path = "" };
    mem_free(lookup);
    if (r != NULL) {
        r->lookup = NULL;
        if (err == 0 && found->ai_addrlen <= sizeof to.u) {
            memcpy(&to.u, found->ai_addr, found->ai_addrlen);
            connect_to(r, &to);
        } else {
            rds_drop(r, "resolving %s: %s", r->config.host, uv_strerror(err));
        }
    }
    uv_freeaddrinfo(found);
}

void rds_forget_lookup(struct rds *r)
{
    if (r->lookup == NULL)
        return;
    r->lookup->r = NULL;
    uv_cancel((uv_req_t *)&r->lookup->req);
    r->lookup = NULL;
}

static void resolve(struct rds *r)
{
    char port[16];
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM };
    struct rds_lookup *lookup = mem_zalloc(sizeof *lookup);
    snprintf(port, sizeof port, "%d", r->config.port);
    lookup->r = r;
    lookup->req.data = lookup;
    r->phase = PHASE_RESOLVE;
    int err = uv_getaddrinfo(&r->loop->uv, &lookup->req, on_resolved, r->config.host, port, &hints);
    if (err == 0) {
        r->lookup = lookup;
        return;
    }
    mem_free(lookup);
    rds_drop(r, "resolving %s: %s", r->config.host, uv_strerror(err));
}

/* The one place where names become addresses. */
void rds_dial(struct rds *r)
{
    struct address to;
    const char *host = strcmp(r->config.host, "localhost") == 0 ? "127.0.0.1" : r->config.host;
    timer_set(r->loop, &r->clock, r->config.connect_ms);
    if (r->config.path[0] != '\0' ? address_of_path(r->config.path, &to) == 0
                                  : address_of_ip(host, r->config.port, &to) == 0)
        connect_to(r, &to);
    else if (r->config.path[0] != '\0')
        rds_drop(r, "not a path of a Unix socket");
    else
        resolve(r);
}
