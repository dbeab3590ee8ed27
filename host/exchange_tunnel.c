/* See exchange.h: what follows a 101. Bytes pass both ways as they come, unread; each side is
 * paused while the other has not taken what there is, so that little more than a window is held a
 * direction. The exchange lives as long as the tunnel, and with it what the request was admitted
 * for.
 *
 * A side that ends (FIN) ends the tunnel, once the other has got what was on the way; on a route
 * with half_close = "answer" only its direction ends, and the other goes on, but not idle for long.
 * A reset is passed on as one. */
#include "container.h"
#include "exchange.h"
#include "log.h"

enum { LINGER_MS = 2000, HALF_IDLE_MS = 60000 };

static void on_idle(struct timer *t);

static bool is_open(const struct exchange *x)
{
    return x->tunnel == TUNNEL_OPEN && x->stage == STAGE_RELAY && x->origin != NULL;
}

/* Something has moved. */
static void touch(struct exchange *x)
{
    uint64_t ms = x->route->tunnel_timeout;
    bool half = x->client_ended || x->origin_ended;
    x->timer.cb = on_idle;
    timer_set(x->sv->loop, &x->timer, half && ms > HALF_IDLE_MS ? HALF_IDLE_MS : ms);
}

/* In good order: what was written to the origin still reaches it. */
static void end(struct exchange *x, enum ended how)
{
    struct upstream_conn *c = x->origin;
    x->origin = NULL;
    upstream_finish(c, LINGER_MS);
    exchange_finish(x, how);
}

static void on_idle(struct timer *t)
{
    struct exchange *x = CONTAINER(t, struct exchange, timer);
    log_write(LOG_DEBUG, x->id, "tunnel: nothing came for timeouts.tunnel");
    end(x, ENDED_TIMEOUT);
}

/* --- from the origin --- */

static void down(struct exchange *x, struct slice bytes)
{
    if (bytes.n == 0)
        return;
    x->relayed += bytes.n;
    x->client.ops->send(x->client.self, &bytes, 1);
    x->origin_paused = exchange_client_full(x);
    if (x->origin_paused)
        stream_pause(x->origin->stream);
    touch(x);
}

static void on_origin_read(void *arg, const char *bytes, size_t n)
{
    down(arg, (struct slice){ bytes, n });
}

static void on_origin_end(void *arg, int err)
{
    struct exchange *x = arg;
    if (err != 0) {
        x->framing = FRAMING_CLOSE; /* the client gets a reset, too */
        exchange_finish(x, ENDED_ORIGIN_CUT);
    } else if (!x->route->half_close_answer || x->client_ended) {
        end(x, ENDED_OK);
    } else {
        x->origin_ended = true;
        x->client.ops->shut(x->client.self);
        touch(x);
    }
}

static void on_origin_drain(void *arg)
{
    struct exchange *x = arg;
    touch(x);
    if (x->paused) {
        x->paused = false;
        x->client.ops->pause(x->client.self, false);
    }
}

/* --- from the client --- */

void exchange_tunnel_up(struct exchange *x, struct slice bytes)
{
    if (!is_open(x) || bytes.n == 0)
        return;
    x->body_seen += bytes.n;
    stream_write(x->origin->stream, bytes);
    if (!x->paused && stream_queued(x->origin->stream) > EXCHANGE_WINDOW) {
        x->paused = true;
        x->client.ops->pause(x->client.self, true);
    }
    touch(x);
}

void exchange_tunnel_client_end(struct exchange *x)
{
    if (!is_open(x))
        return;
    if (!x->route->half_close_answer || x->origin_ended) {
        end(x, ENDED_OK);
        return;
    }
    x->client_ended = true;
    stream_shut(x->origin->stream);
    touch(x);
}

void exchange_tunnel_client_drained(struct exchange *x)
{
    if (!is_open(x))
        return;
    touch(x);
    if (x->origin_paused) {
        x->origin_paused = false;
        stream_resume(x->origin->stream);
    }
}

/* --- the beginning --- */

void exchange_tunnel_begin(struct exchange *x)
{
    static const struct stream_events events = { on_origin_read, on_origin_end, on_origin_drain };
    struct buf early = x->pending;
    int failure = x->origin_failure;
    x->tunnel = TUNNEL_OPEN;
    x->paused = false;
    x->read_on_ms = 0; /* for nobody there is nothing to read */
    x->sv->counters->tunnels++;
    exchange_flush(x);
    buf_init(&x->pending);
    touch(x);
    stream_start(x->origin->stream, &events, x);
    down(x, buf_slice(&early));
    buf_deinit(&early);
    if (failure != 0)
        on_origin_end(x, failure == UV_EOF ? 0 : failure);
    if (is_open(x))
        x->client.ops->tunnel(x->client.self);
}
