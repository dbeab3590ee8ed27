/* See exchange.h: what goes to the client. A piece of the answer passes the usage reader, then the
 * plugins' body phase, then gets its framing. The head waits for the first piece, so that both go
 * in one write.
 *
 * Where an admission is to be settled, or plugins have a finish phase, the answer's very end (the
 * last bytes of a known length, or the last chunk) is held back until that is done. */
#include "exchange.h"

#include <inttypes.h>

#include "put.h"

enum { CLIENT_FULL = 32768, DRAIN_UPLOAD = 65536 }; /* bytes */

bool exchange_client_full(const struct exchange *x)
{
    return x->client_here && x->client.ops->queued(x->client.self) > CLIENT_FULL;
}

static void edit(void *arg, struct slice piece);

/* --- the gateway's own answers --- */

static enum llm_api api_of(const struct exchange *x)
{
    return x->route != NULL && x->route->api != LLM_NONE ? x->route->api
                                                         : llm_api_of_path(x->req.path);
}

/* For SDKs in ms too; rounded up, so that nobody comes too early. */
static void add_retry_after(struct exchange *x)
{
    uint64_t ms = x->retry_ms > 0 ? x->retry_ms : 1000;
    headers_add(&x->res.headers, SLICE("retry-after"),
                arena_printf(&x->arena, "%" PRIu64, (ms + 999) / 1000));
    if (x->retry_ms > 0)
        headers_add(&x->res.headers, SLICE("retry-after-ms"),
                    arena_printf(&x->arena, "%" PRIu64, ms));
}

void exchange_error_with(struct exchange *x, int status, const char *code, const char *message,
                         struct slice name, struct slice value)
{
    if (x->stage >= STAGE_RELAY) {
        exchange_finish(x, ENDED_PLUGIN_ERROR);
        return;
    }
    enum llm_api api = api_of(x);
    struct llm_error e = {
        .status = status, .code = code, .message = slice_of(message), .request_id = slice_of(x->id)
    };
    struct buf body;
    x->sv->counters->answers_error++;
    timer_stop(&x->timer);
    exchange_unwant_whole(x);
    if (x->origin_wait != NULL)
        upstream_cancel(x->origin_wait);
    x->origin_wait = NULL;
    exchange_ungather(x);
    x->gathered = false;
    buf_deinit(&x->whole_answer);
    exchange_budget_note(x);
    exchange_origin_let_go(x, false);
    exchange_drop_tasks(x);
    exchange_hold_drop(x);
    exchange_attempt_over(x, ENDED_PLUGIN_ERROR); /* where the origin was not at fault */
    buf_init(&body);
    llm_error_body(api, &e, &body);
    x->res = (struct response){ .status = status, .minor = 1 };
    headers_init(&x->res.headers, &x->arena);
    headers_add(&x->res.headers, SLICE("content-type"), SLICE("application/json"));
    if (name.p != NULL)
        headers_add(&x->res.headers, name, value);
    if (status == 503)
        add_retry_after(x);
    x->answer = arena_dup(&x->arena, buf_slice(&body));
    x->source = SOURCE_BYTES;
    buf_deinit(&body);
    exchange_answer(x);
}

void exchange_error(struct exchange *x, int status, const char *code, const char *message)
{
    exchange_error_with(x, status, code, message, (struct slice){ NULL, 0 },
                        (struct slice){ NULL, 0 });
}

/* --- the head --- */

void exchange_answer(struct exchange *x)
{
    x->stage = STAGE_RESPONSE;
    if (x->route == NULL || x->response_hooks_ran) {
        exchange_answer_go(x);
        return;
    }
    x->response_hooks_ran = true;
    exchange_phase_run(x, PHASE_RESPONSE);
}

static bool edits_body(const struct exchange *x)
{
    return x->route != NULL && x->route->hooks[PHASE_BODY].n > 0;
}

static enum framing open_framing(const struct exchange *x)
{
    return x->req.minor >= 1 ? FRAMING_CHUNKED : FRAMING_CLOSE;
}

/* Sets has_body, framing and the length that goes with it in `head`. */
static void frame(struct exchange *x, struct response *head)
{
    bool strip = x->llm != NULL && x->llm->strip_usage && x->source == SOURCE_ORIGIN;
    x->has_body = !message_no_body(x->req.method, x->res.status);
    if (!x->has_body) {
        x->framing = FRAMING_NONE;
        if (x->source == SOURCE_BYTES && x->res.status >= 200 && x->res.status != 204) {
            head->length = x->answer.n;
            head->head_length = true;
        }
    } else if (edits_body(x) || (strip && !x->gathered) || x->source == SOURCE_FUNCTION) {
        x->framing = open_framing(x);
    } else if (x->gathered) {
        x->framing = FRAMING_LENGTH;
        head->length = x->whole_answer.n;
    } else if (x->source == SOURCE_BYTES) {
        x->framing = FRAMING_LENGTH;
        head->length = x->answer.n;
    } else if (x->res.framing == FRAMING_LENGTH) {
        x->framing = FRAMING_LENGTH;
    } else {
        x->framing = open_framing(x);
    }
    head->framing = x->framing;
}

/* Whether the client's connection may go on: also where its body has not been read to the end and
 * what is left is small enough to be read and dropped. */
static bool may_keep(const struct exchange *x)
{
    if (!x->req.keep_alive || x->framing == FRAMING_CLOSE || x->sv->draining)
        return false;
    if (x->body_done)
        return true;
    return x->req.framing == FRAMING_LENGTH && x->req.length - x->body_seen <= DRAIN_UPLOAD &&
           (!x->req.expect_continue || x->continued);
}

static void add_missing(struct exchange *x)
{
    struct headers *h = &x->res.headers;
    if (headers_get_id(h, HEADER_DATE).p == NULL) {
        char date[30];
        message_date(loop_wall_ms() / 1000, date);
        headers_add(h, SLICE("date"), arena_dup(&x->arena, slice_of(date)));
    }
    if (headers_get_id(h, HEADER_X_REQUEST_ID).p == NULL)
        headers_add(h, SLICE("x-request-id"), slice_of(x->id));
    if (api_of(x) == LLM_ANTHROPIC_MESSAGES && headers_get(h, SLICE("request-id")).p == NULL)
        headers_add(h, SLICE("request-id"), slice_of(x->id)); /* what Anthropic's SDK reads */
}

void exchange_open_reader(struct exchange *x)
{
    if (!x->metered || x->source != SOURCE_ORIGIN || x->reader != NULL)
        return;
    x->answer_body = llm_body_of(headers_get_id(&x->res.headers, HEADER_CONTENT_TYPE),
                                 headers_get_id(&x->res.headers, HEADER_CONTENT_ENCODING));
    x->reader = llm_reader_new(x->route->api, x->answer_body, x->llm->strip_usage);
}

void exchange_answer_go(struct exchange *x)
{
    struct response head;
    bool switches = exchange_switches(x);
    if (switches)
        headers_set(&x->res.headers, SLICE("upgrade"), x->upgrade); /* whatever plugins did */
    exchange_open_reader(x);
    add_missing(x);
    head = x->res;
    frame(x, &head);
    x->length = head.length;
    x->keep_alive = !switches && may_keep(x);
    message_write_response(&x->head_out, &head, !switches && !x->keep_alive,
                           x->keep_alive && x->req.minor == 0);
    x->stage = STAGE_RELAY;
    if (x->gathered) {
        edit(x, buf_slice(&x->whole_answer));
        exchange_relay_end(x);
        return;
    }
    switch (x->source) {
    case SOURCE_BYTES:
        exchange_relay(x, x->answer);
        exchange_relay_end(x);
        break;
    case SOURCE_FUNCTION:
        exchange_flush(x);
        if (x->has_body)
            loop_defer(x->sv->loop, &x->produce, LOOP_COLLECT);
        else
            exchange_relay_end(x);
        break;
    default:
        if (!x->feeding)
            exchange_origin_resume(x);
        break;
    }
}

/* A stream that goes on for minutes does not hold its head. */
static void head_is_out(struct exchange *x)
{
    buf_deinit(&x->head_out);
    x->head_sent = true;
}

void exchange_flush(struct exchange *x)
{
    if (x->stage != STAGE_RELAY || x->head_out.n == 0 || x->tail.n > 0 || !x->client_here)
        return;
    struct slice v = buf_slice(&x->head_out);
    x->client.ops->send(x->client.self, &v, 1);
    head_is_out(x);
}

/* --- the body --- */

static bool holds_end(const struct exchange *x)
{
    return x->grant != NULL || (x->route != NULL && x->route->hooks[PHASE_FINISH].n > 0);
}

/* Gives a piece its framing and sends it, with the head where that waits still. */
static void put(void *arg, struct slice piece)
{
    struct exchange *x = arg;
    char size[24];
    struct slice v[4] = { buf_slice(&x->head_out), { size, 0 }, piece, { "", 0 } };
    if (piece.n == 0 || !x->client_here)
        return;
    x->relayed += piece.n;
    if (x->framing == FRAMING_LENGTH && x->relayed >= x->length && holds_end(x)) {
        buf_add_slice(&x->tail, piece);
        return;
    }
    if (x->framing == FRAMING_CHUNKED) {
        v[1].n = (size_t)(put_slice(put_hex(size, piece.n), SLICE("\r\n")) - size);
        v[3] = SLICE("\r\n");
    }
    x->client.ops->send(x->client.self, v, 4);
    head_is_out(x);
}

static void edit(void *arg, struct slice piece)
{
    struct exchange *x = arg;
    if (x->stage != STAGE_RELAY || !x->has_body)
        return;
    if (!x->gathered)
        exchange_record_piece(x, piece);
    if (x->gone && !x->kept)
        return;
    if (edits_body(x))
        exchange_body_hooks(x, piece, false, put);
    else
        put(x, piece);
}

void exchange_relay(struct exchange *x, struct slice piece)
{
    if (!x->has_body || x->stage != STAGE_RELAY)
        return;
    if (x->gone && piece.n > x->read_on_bytes) {
        exchange_finish(x, ENDED_CLIENT_GONE);
        return;
    }
    x->read_on_bytes -= x->gone ? piece.n : 0;
    if (x->reader != NULL && x->source == SOURCE_ORIGIN)
        llm_reader_feed(x->reader, piece, edit, x);
    else
        edit(x, piece);
}

void exchange_relay_end(struct exchange *x)
{
    if (x->stage != STAGE_RELAY)
        return;
    if (x->has_body) {
        if (x->reader != NULL && x->source == SOURCE_ORIGIN && !x->gathered)
            llm_reader_end(x->reader, edit, x);
        exchange_record_end(x);
        if (x->stage == STAGE_RELAY && edits_body(x) && (!x->gone || x->kept) &&
            !exchange_body_hooks(x, (struct slice){ "", 0 }, true, put))
            return;
        if (x->framing == FRAMING_CHUNKED)
            buf_add_text(&x->tail, "0\r\n\r\n");
    } else {
        exchange_record_end(x);
    }
    exchange_finish(x, x->gone ? ENDED_CLIENT_GONE : ENDED_OK);
}

void exchange_client_drained(struct exchange *x)
{
    if (x->stage != STAGE_RELAY)
        return;
    if (x->tunnel == TUNNEL_OPEN)
        exchange_tunnel_client_drained(x);
    else if (x->source == SOURCE_ORIGIN && x->origin_paused)
        exchange_origin_resume(x);
    else if (x->producer_blocked)
        loop_defer(x->sv->loop, &x->produce, LOOP_COLLECT);
}
