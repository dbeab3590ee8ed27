/* Where rds dials to: a Unix socket, an address, or a name that is resolved first. */
#include "rds_internal.h"

static void connect_to(struct rds *r, const struct address *to)
{
    r->phase = PHASE_DIAL;
    r->stream = stream_dial(r->loop, to, r->config.connect_ms, rds_on_connect, r);
}

static void on_resolved(void *arg, const struct address *to, int err)
{
    struct rds *r = arg;
    r->lookup = NULL;
    if (err == 0)
        connect_to(r, to);
    else
        rds_drop(r, "resolving %s: %s", r->config.host, uv_strerror(err));
}

void rds_forget_lookup(struct rds *r)
{
    if (r->lookup != NULL)
        resolve_cancel(r->lookup);
    r->lookup = NULL;
}

static void look_up(struct rds *r)
{
    struct address to;
    if (r->config.resolve == NULL) {
        rds_drop(r, "%s is no address, and there is no resolver", r->config.host);
    } else if (resolve_now(r->config.resolve, r->config.host, r->config.port, &to)) {
        connect_to(r, &to);
    } else {
        r->phase = PHASE_RESOLVE;
        r->lookup =
            resolve_lookup(r->config.resolve, r->config.host, r->config.port, on_resolved, r);
    }
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
        look_up(r);
}
