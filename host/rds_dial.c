/* Where rds dials to: a Unix socket, an address, or a name, whose addresses are tried in turn; and
 * TLS with it. All of that and the greeting take connect_ms at most. */
#include "dial.h"
#include "rds_internal.h"

static uint64_t time_left(const struct rds *r)
{
    uint64_t now = loop_now(r->loop);
    return r->dial_until > now ? r->dial_until - now : 1;
}

static void greet(struct rds *r)
{
    timer_set(r->loop, &r->clock, time_left(r));
    rds_on_connect(r);
}

static void on_secure(void *arg, int err)
{
    struct rds *r = arg;
    const struct tls_fault *f = stream_fault(r->stream);
    if (err == 0)
        greet(r);
    else
        rds_drop(r, "connecting by TLS: %s", f != NULL ? f->text : uv_strerror(err));
}

static void secure(struct rds *r)
{
    static const struct tls_client_options system_options = { .http = false };
    struct tls_pem_fault f;
    if (r->config.tls == NULL)
        r->config.tls = tls_client_context(&system_options, &f);
    if (r->session == NULL)
        r->session = tls_session_new();
    if (r->config.tls == NULL) {
        rds_drop(r, "TLS: %s", f.text);
        return;
    }
    const char *name = r->config.server_name[0] != '\0' ? r->config.server_name : r->config.host;
    struct stream_tls how = { .context = r->config.tls, .name = name, .session = r->session };
    stream_secure(r->stream, &how, time_left(r), on_secure, r);
}

static void on_dialed(void *arg, struct stream *s, const struct address *to, int err)
{
    struct rds *r = arg;
    (void)to;
    r->dial = NULL;
    r->stream = s;
    if (err == 0 && r->config.secure)
        secure(r);
    else if (err == 0)
        greet(r);
    else if (err == UV_EAI_NONAME || err == UV_EAI_AGAIN)
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
