/* Where rds dials to: a Unix socket, an address, or a name, whose addresses are tried in turn. */
#include "dial.h"
#include "rds_internal.h"

static void on_dialed(void *arg, struct stream *s, const struct address *to, int err)
{
    struct rds *r = arg;
    (void)to;
    r->dial = NULL;
    r->stream = s;
    if (err == 0) {
        uint64_t now = loop_now(r->loop);
        timer_set(r->loop, &r->clock, r->dial_until > now ? r->dial_until - now : 1);
        rds_on_connect(r);
    } else if (err == UV_EAI_NONAME || err == UV_EAI_AGAIN)
        rds_drop(r, "resolving %s: %s", r->config.host, uv_strerror(err));
    else
        rds_drop(r, "connecting: %s", uv_strerror(err));
}

void rds_forget_dial(struct rds *r)
{
    if (r->dial != NULL)
        dial_cancel(r->dial);
    r->dial = NULL;
}

void rds_dial(struct rds *r)
{
    struct dial_to to = { .host = r->config.host, .port = r->config.port, .path = r->config.path };
    r->phase = PHASE_DIAL;
    r->dial_until = loop_now(r->loop) + r->config.connect_ms;
    r->dial = dial_start(r->loop, r->config.resolve, &to, r->config.connect_ms, on_dialed, r);
}
