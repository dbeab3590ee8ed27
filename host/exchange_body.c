/* See exchange.h: the request's body on its way from the client to the origin.
 *
 * Until the origin is there, up to EXCHANGE_WINDOW bytes are held and the client is asked to pause;
 * who asks for the whole body gets it, up to the route's limit. From then on each piece goes on as
 * it comes, and the client pauses while the origin is slower. Where another attempt may follow,
 * what has gone is kept, up to retry.buffer. */
#include "exchange.h"

#include <inttypes.h>
#include <stdio.h>

static void pause_client(struct exchange *x, bool paused)
{
    if (x->paused == paused || !x->client_here)
        return;
    x->paused = paused;
    x->client.ops->want_body(x->client.self, !paused);
}

void exchange_continue(struct exchange *x)
{
    if (!x->req.expect_continue || x->continued || x->head_sent || !x->client_here)
        return;
    x->continued = true;
    if (x->body_seen > 0 || x->body_done)
        return; /* the client did not wait */
    struct slice line = SLICE("HTTP/1.1 100 Continue\r\n\r\n");
    x->client.ops->send(x->client.self, &line, 1);
    x->client.ops->want_body(x->client.self, true); /* its deadline begins */
}

/* --- the whole of it --- */

bool exchange_want_whole(struct exchange *x, void (*on_whole)(void *arg), void *arg)
{
    x->whole = true;
    if (x->body_done)
        return true;
    x->on_whole = on_whole;
    x->on_whole_arg = arg;
    exchange_continue(x);
    pause_client(x, false);
    return false;
}

void exchange_unwant_whole(struct exchange *x)
{
    x->on_whole = NULL;
}

/* --- towards the origin --- */

static void send_chunk(struct exchange *x, struct slice piece)
{
    char size[24];
    struct slice v[3] = { { size, 0 }, piece, SLICE("\r\n") };
    if (piece.n == 0)
        return;
    v[0].n = (size_t)snprintf(size, sizeof size, "%zx\r\n", piece.n);
    stream_writev(x->origin->stream, v, 3);
}

static void send_up(struct exchange *x, struct slice piece)
{
    if (x->up.framing == FRAMING_CHUNKED)
        send_chunk(x, piece);
    else
        stream_write(x->origin->stream, piece);
    exchange_origin_await(x);
}

static void finish_up(struct exchange *x)
{
    if (x->upload_done)
        return;
    x->upload_done = true;
    if (x->up.framing == FRAMING_CHUNKED)
        stream_write(x->origin->stream, SLICE("0\r\n\r\n"));
    exchange_origin_await(x);
}

/* All of x->body has gone up. It stays for another attempt while it is small enough. */
static void went_up(struct exchange *x)
{
    x->held = x->held && x->body.n <= x->route->retry.buffer;
    x->sent_up = x->whole || x->held ? x->body.n : 0;
    if (x->sent_up == 0)
        buf_deinit(&x->body);
    exchange_budget_note(x);
}

void exchange_upload(struct exchange *x)
{
    if (x->origin == NULL || !x->head_sent_up || x->upload_done)
        return;
    send_up(x, (struct slice){ x->body.p + x->sent_up, x->body.n - x->sent_up });
    went_up(x);
    if (x->body_done) {
        finish_up(x);
        return;
    }
    exchange_continue(x);
    pause_client(x, stream_queued(x->origin->stream) > EXCHANGE_WINDOW);
}

/* --- from the client --- */

/* The client's fault. Where the answer has begun already it can only be cut off. */
static void refuse(struct exchange *x, int status, const char *code, const char *message)
{
    if (x->stage >= STAGE_RELAY)
        exchange_finish(x, ENDED_CLIENT_GONE);
    else
        exchange_error(x, status, code, message);
}

/* False where the request ends since its body, which is wanted whole, finds no room. */
static bool has_room(struct exchange *x, struct slice piece)
{
    bool wanted = x->whole || x->on_whole != NULL;
    if (!x->body_refused && (!wanted || exchange_budget_has(x, &x->body, piece.n)))
        return true;
    x->body_refused = true;
    x->sent_up = 0;
    buf_deinit(&x->body);
    exchange_budget_note(x);
    refuse(x, 503, "overloaded", "The gateway has no room for this request now; try again later.");
    return false;
}

void exchange_body(struct exchange *x, struct slice piece)
{
    x->body_seen += piece.n;
    if (x->stage >= STAGE_TAIL || x->upload_done)
        return; /* nobody wants it any more */
    if (x->route != NULL && x->body_seen > x->route->body_limit) {
        refuse(x, 413, "request_too_large", "The request body is larger than this route allows.");
        return;
    }
    if (x->origin != NULL && x->head_sent_up && !x->whole) {
        x->held = x->held && exchange_budget_has(x, &x->body, piece.n);
        if (x->held)
            buf_add_slice(&x->body, piece);
        send_up(x, piece);
        went_up(x);
        pause_client(x, stream_queued(x->origin->stream) > EXCHANGE_WINDOW);
        return;
    }
    if (!has_room(x, piece))
        return;
    buf_add_slice(&x->body, piece);
    exchange_budget_note(x);
    if (x->on_whole == NULL && x->stage != STAGE_HEAD && x->body.n >= EXCHANGE_WINDOW)
        pause_client(x, true);
}

void exchange_body_end(struct exchange *x)
{
    x->body_done = true;
    if (x->stage >= STAGE_TAIL)
        return;
    if (x->on_whole != NULL) {
        void (*on_whole)(void *) = x->on_whole;
        x->on_whole = NULL;
        on_whole(x->on_whole_arg);
        return;
    }
    if (x->origin != NULL && x->head_sent_up && !x->upload_done)
        finish_up(x);
}

void exchange_body_timeout(struct exchange *x)
{
    x->req.keep_alive = false;
    refuse(x, 408, "request_timeout", "The request body did not arrive in time.");
}

void exchange_body_bad(struct exchange *x, int status, const char *message)
{
    x->req.keep_alive = false;
    refuse(x, status, "bad_request", message);
}
