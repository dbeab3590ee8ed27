/* See exchange.h: how an exchange begins and ends. */
#include "exchange.h"

#include <inttypes.h>
#include <lauxlib.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>

#include "api.h"
#include "container.h"
#include "log.h"
#include "mem.h"

static void on_closing(struct deferred *d);
static void on_finish(struct deferred *d);
static void on_produce(struct deferred *d);
static void exchange_over(struct exchange *x);

uint64_t exchange_random(void)
{
    static uint64_t state[2];
    if (state[0] == 0) {
        ssize_t got = getrandom(state, sizeof state, 0);
        (void)got;
        state[0] |= 1;
    }
    uint64_t a = state[0], b = state[1]; /* xorshift128+, seeded by the kernel */
    state[0] = b;
    a ^= a << 23;
    state[1] = a ^ b ^ (a >> 18) ^ (b >> 5);
    return state[1] + b;
}

/* 21 characters: milliseconds since the epoch and 60 random bits, in Crockford's base 32 (as ULIDs
 * sort by time). */
static void make_id(char out[24])
{
    static const char digits[] = "0123456789abcdefghjkmnpqrstvwxyz";
    uint64_t random = exchange_random(), ms = (uint64_t)loop_wall_ms();
    for (int i = 8; i >= 0; i--, ms >>= 5)
        out[i] = digits[ms & 31];
    for (int i = 20; i >= 9; i--, random >>= 5)
        out[i] = digits[random & 31];
    out[21] = '\0';
}

struct exchange *exchange_new(struct services *sv, struct generation *gen,
                              const struct client *client)
{
    struct exchange *x = mem_zalloc(sizeof *x);
    x->sv = sv;
    x->gen = gen;
    x->client = *client;
    x->client_here = true;
    x->begun = loop_now(sv->loop);
    x->begun_wall = loop_wall_ms();
    x->ctx_ref = x->producer_ref = LUA_NOREF;
    x->closing.run = on_closing;
    x->finish.run = on_finish;
    x->produce.run = on_produce;
    arena_init(&x->arena);
    x->client.address = arena_dup(&x->arena, slice_of(client->address))
                            .p; /* the log phase outlives the connection */
    x->address = x->client.address;
    x->port = x->client.port;
    tls_peer_ref(x->client.tls);
    make_id(x->id);
    generation_hold(gen);
    sv->exchanges++;
    return x;
}

static void exchange_free(struct exchange *x)
{
    struct services *sv = x->sv;
    struct generation *gen = x->gen;
    exchange_drop_tasks(x);
    api_ctx_release(x);
    if (x->reader != NULL)
        llm_reader_free(x->reader);
    mem_free(x->llm);
    timer_deinit(sv->loop, &x->timer);
    loop_undefer(sv->loop, &x->closing);
    loop_undefer(sv->loop, &x->finish);
    loop_undefer(sv->loop, &x->produce);
    loop_undefer(sv->loop, &x->next_attempt);
    buf_deinit(&x->body);
    buf_deinit(&x->failures);
    exchange_hold_drop(x);
    buf_deinit(&x->error_body);
    buf_deinit(&x->pending);
    buf_deinit(&x->head_out);
    buf_deinit(&x->tail);
    buf_deinit(&x->edited);
    buf_deinit(&x->whole_answer);
    buf_deinit(&x->record);
    exchange_budget_leave(x);
    tls_peer_unref(x->client.tls);
    timer_deinit(sv->loop, &x->read_on_timer);
    if (x->producer_ref != LUA_NOREF)
        generation_unref(gen, x->producer_ref);
    arena_deinit(&x->arena);
    mem_free(x);
    sv->exchanges--;
    generation_release(gen);
}

void exchange_forget(struct exchange *x)
{
    x->client_here = false;
    exchange_free(x);
}

/* h: the request's fields; NULL where they cannot be believed. */
static void begin_trace(struct exchange *x, const struct headers *h)
{
    const struct trace_rules *r = &x->gen->settings.tracing;
    if (!r->on)
        return;
    bool accept = r->accept == TRACE_ALWAYS || (r->accept == TRACE_TRUSTED && x->forwarded.trusted);
    if (h == NULL || !accept || trace_read(h, &x->trace) != 0)
        trace_new(&x->trace, r->sample, exchange_random);
    trace_span(x->trace.span, exchange_random);
}

/* Of a target that was not read to its end: for the log, and for the shape of the error. */
static struct slice path_of(struct slice target)
{
    const char *query = target.n > 0 ? memchr(target.p, '?', target.n) : NULL;
    if (target.n == 0 || target.p[0] != '/')
        return SLICE("-");
    return (struct slice){ target.p, query != NULL ? (size_t)(query - target.p) : target.n };
}

void exchange_reject(struct exchange *x, int status, const char *message)
{
    x->sv->counters->requests++;
    x->req.keep_alive = false;
    x->body_done = true;
    begin_trace(x, NULL);
    if (x->req.method.n == 0)
        x->req.method = SLICE("-");
    if (x->req.path.p == NULL)
        x->req.path = path_of(x->req.target);
    exchange_error(x, status, NULL, message);
}

static void answer_no_method(struct exchange *x)
{
    struct slice allow = routes_allow(x->gen->table, &x->req, &x->arena);
    exchange_error_with(x, 405, "method_not_allowed", "This path does not take this method.",
                        SLICE("allow"), allow); /* RFC 9110, section 15.5.6 */
}

static void answer_options(struct exchange *x)
{
    x->res = (struct response){ .status = 204, .minor = 1 };
    headers_init(&x->res.headers, &x->arena);
    headers_add(&x->res.headers, SLICE("allow"), routes_allow(x->gen->table, &x->req, &x->arena));
    x->source = SOURCE_BYTES;
    exchange_answer(x);
}

/* OPTIONS with Max-Forwards goes as far as that says; where no hop is left it is ours (RFC 9110,
 * section 7.6.2). False where it has been answered. */
static bool take_hop(struct exchange *x)
{
    struct slice text = headers_get(&x->req.headers, SLICE("max-forwards"));
    uint32_t n = 0;
    if (text.p == NULL || !slice_eq(x->req.method, SLICE("OPTIONS")))
        return true;
    for (size_t i = 0; i < text.n; i++) {
        if (text.p[i] < '0' || text.p[i] > '9')
            text.n = 0;
        else if (n < UINT32_MAX / 10 - 1) /* no path is longer */
            n = n * 10 + (uint32_t)(text.p[i] - '0');
    }
    if (text.n == 0)
        exchange_error(x, 400, NULL, "malformed Max-Forwards");
    else if (n == 0)
        answer_options(x);
    else
        headers_set(&x->req.headers, SLICE("max-forwards"),
                    arena_printf(&x->arena, "%" PRIu32, n - 1));
    return text.n > 0 && n > 0;
}

/* Where a trusted proxy stands before us, it says who the client is. */
static void find_client(struct exchange *x)
{
    const struct forwarded_rules *r = &x->gen->settings.forwarded;
    struct ip peer = { 0 };
    char text[IP_TEXT];
    if (r->trusted.n == 0 && !r->trusted.local)
        return;
    ip_parse(slice_of(x->client.address), &peer);
    forwarded_read(r, &peer, &x->req.headers, &x->forwarded);
    if (x->forwarded.client.size == 0)
        return;
    x->address = arena_dup(&x->arena, slice_of(ip_text(&x->forwarded.client, text))).p;
    x->port = x->forwarded.port;
}

void exchange_begin(struct exchange *x)
{
    x->sv->counters->requests++;
    x->path = x->req.path;
    find_client(x);
    begin_trace(x, &x->req.headers);
    struct route_match m = routes_match(x->gen->table, &x->req);
    struct slice asked = exchange_upgrade_asked(x);
    headers_remove_hop_by_hop(&x->req.headers); /* now: Connection must not name what plugins add */
    if (m.route == NULL) {
        if (m.method_mismatch)
            answer_no_method(x);
        else
            exchange_error(x, 404, "not_found", "No route matches this host and path.");
        return;
    }
    x->route = m.route;
    x->prefix = m.route->strip_prefix ? m.prefix : 0;
    if (!take_hop(x))
        return;
    if (m.route->quarantined) {
        exchange_error(x, 503, "plugin_quarantined",
                       "A plugin of this route has been switched off since it was stuck.");
        return;
    }
    if (x->req.framing == FRAMING_LENGTH && x->req.length > m.route->body_limit) {
        exchange_error(x, 413, "request_too_large",
                       "The request body is larger than this route allows.");
        return;
    }
    if (x->body_seen > m.route->body_limit) {
        exchange_error(x, 413, "request_too_large",
                       "The request body is larger than this route allows.");
        return;
    }
    if (!exchange_upgrade_begin(x, asked))
        return;
    x->stage = STAGE_ACCESS;
    exchange_phase_run(x, PHASE_ACCESS);
}

void exchange_phase_done(struct exchange *x)
{
    switch (x->phase) {
    case PHASE_ACCESS: exchange_target_start(x); break;
    case PHASE_RESPONSE: exchange_answer_go(x); break;
    case PHASE_FINISH: loop_defer(x->sv->loop, &x->finish, LOOP_FINISH); break;
    case PHASE_LOG: exchange_over(x); break;
    default: break;
    }
}

static void on_produce(struct deferred *d)
{
    exchange_produce(CONTAINER(d, struct exchange, produce));
}

/* --- the end --- */

void exchange_client_gone(struct exchange *x)
{
    x->client_here = false;
    if (x->stage >= STAGE_TAIL)
        return;
    x->sv->counters->client_gone++;
    if (!exchange_read_on(x))
        exchange_finish(x, ENDED_CLIENT_GONE);
}

void exchange_finish(struct exchange *x, enum ended how)
{
    if (x->stage >= STAGE_TAIL)
        return;
    x->stage = STAGE_TAIL;
    x->ended = how;
    x->ended_at = loop_now(x->sv->loop);
    timer_stop(&x->timer);
    loop_undefer(x->sv->loop, &x->produce);
    exchange_unwant_whole(x);
    exchange_ungather(x);
    exchange_read_on_stop(x);
    if (x->origin_wait != NULL)
        upstream_cancel(x->origin_wait);
    x->origin_wait = NULL;
    exchange_origin_let_go(x, x->origin_complete);
    exchange_drop_tasks(x);
    exchange_attempt_over(x, how);
    exchange_settle(x);
    if (x->route != NULL && x->route->hooks[PHASE_FINISH].n > 0)
        loop_defer(x->sv->loop, &x->closing, LOOP_COLLECT);
    else
        loop_defer(x->sv->loop, &x->finish, LOOP_FINISH);
}

/* Not from within exchange_finish, which plugins' own code may be below. */
static void on_closing(struct deferred *d)
{
    exchange_phase_run(CONTAINER(d, struct exchange, closing), PHASE_FINISH);
}

/* Behind the turn's writes to Redis, and the plugins' finish phase: what was
 * held back of the answer may go. It has been counted before, so that a client that has it whole
 * finds it counted even where this worker dies in between. */
static void on_finish(struct deferred *d)
{
    struct exchange *x = CONTAINER(d, struct exchange, finish);
    exchange_log(x);
    if (x->client_here) {
        enum client_after after = x->keep_alive ? CLIENT_KEEP : CLIENT_CLOSE;
        if (x->ended == ENDED_OK) {
            struct slice last[2] = { buf_slice(&x->head_out), buf_slice(&x->tail) };
            x->client.ops->send(x->client.self, last, 2);
        } else {
            after = x->framing == FRAMING_CLOSE ? CLIENT_RESET : CLIENT_ABORT;
        }
        x->client_here = false;
        x->client.ops->done(x->client.self, after);
    }
    x->stage = STAGE_LOG;
    if (x->route == NULL)
        exchange_over(x);
    else
        exchange_phase_run(x, PHASE_LOG);
}

static void exchange_over(struct exchange *x)
{
    exchange_free(x);
}

const char *exchange_ended_name(enum ended e)
{
    static const char *const names[] = { "ok",      "client_gone",  "origin_cut",
                                         "timeout", "plugin_error", "shutdown" };
    return names[e];
}

struct slice exchange_peer_scheme(const struct exchange *x)
{
    return x->client.tls != NULL ? SLICE("https") : SLICE("http");
}

struct slice exchange_scheme(const struct exchange *x)
{
    return x->forwarded.proto.p != NULL ? x->forwarded.proto : exchange_peer_scheme(x);
}
