/* See fetch.h: a fetch's life, and who waits for what. Events of the connection (fetch_conn.c) end
 * in fetch_report, which is the only place from which a callback runs. */
#include "fetch_internal.h"

#include "container.h"
#include "mem.h"

static void on_total(struct timer *t);
static void on_later(struct deferred *d);

const char *fetch_error_name(enum fetch_error e)
{
    static const char *const names[] = { "ok",        "timeout", "refused",
                                         "closed",    "resolve", "too_large",
                                         "malformed", "tls",     "too_many_redirects" };
    return names[e];
}

/* --- making one --- */

struct fetch *fetch_new(struct fetch_client *c)
{
    struct fetch *f = mem_zalloc(sizeof *f);
    f->client = c;
    f->total.cb = on_total;
    f->later.run = on_later;
    f->detail = "";
    arena_init(&f->arena);
    arena_init(&f->answer_arena);
    buf_init(&f->body);
    f->req = (struct request){ .method = SLICE("GET"), .minor = 1, .framing = FRAMING_NONE };
    headers_init(&f->req.headers, &f->arena);
    return f;
}

struct arena *fetch_arena(struct fetch *f)
{
    return &f->arena;
}

struct fetch_options *fetch_options(struct fetch *f)
{
    return &f->options;
}

struct request *fetch_request(struct fetch *f)
{
    return &f->req;
}

void fetch_set_url(struct fetch *f, const struct fetch_url *url)
{
    f->url = *url;
    f->req.authority = url->at.authority;
}

void fetch_set_tls(struct fetch *f, const struct tls_remote *tls)
{
    tls_context_unref(f->tls.context);
    f->tls = *tls;
    f->tls_host = f->url.at.host;
}

const struct fetch_url *fetch_url_of(const struct fetch *f)
{
    return &f->url;
}

void fetch_set_body(struct fetch *f, struct slice body)
{
    f->req_body = body;
    f->req.framing = FRAMING_LENGTH;
    f->req.length = body.n;
}

void fetch_start(struct fetch *f, void (*cb)(void *arg), void *arg)
{
    f->cb = cb;
    f->arg = arg;
    f->goal = f->options.stream ? FETCH_GOAL_HEAD : FETCH_GOAL_WHOLE;
    f->redirects = f->options.redirects;
    if (!fetch_client_add(f)) {
        fetch_fail_later(f, FETCH_CLOSED, "the gateway stops");
        return;
    }
    if (f->options.total_ms != 0)
        timer_set(fetch_loop(f), &f->total, f->options.total_ms);
    fetch_connect(f, false);
}

/* --- its end --- */

void fetch_fail(struct fetch *f, enum fetch_error error, const char *detail)
{
    if (f->stage == FETCH_STAGE_OVER)
        return;
    f->stage = FETCH_STAGE_OVER;
    f->error = error;
    f->detail = detail;
    timer_stop(&f->total);
    fetch_let_go(f, false);
}

void fetch_fail_later(struct fetch *f, enum fetch_error error, const char *detail)
{
    fetch_fail(f, error, detail);
    loop_defer(fetch_loop(f), &f->later, LOOP_COLLECT);
}

static void on_later(struct deferred *d)
{
    fetch_report(CONTAINER(d, struct fetch, later));
}

static void on_total(struct timer *t)
{
    struct fetch *f = CONTAINER(t, struct fetch, total);
    fetch_fail(f, FETCH_TIMEOUT, "the time for the whole request has passed");
    fetch_report(f);
}

void fetch_complete(struct fetch *f)
{
    fetch_let_go(f, true);
    f->stage = FETCH_STAGE_OVER;
    timer_stop(&f->total);
}

void fetch_close(struct fetch *f)
{
    buf_deinit(&f->body);
    fetch_fail(f, FETCH_CLOSED, "the plugin has closed it");
    if (f->cb != NULL)
        loop_defer(fetch_loop(f), &f->later, LOOP_COLLECT);
}

void fetch_free(struct fetch *f)
{
    f->cb = NULL;
    fetch_close(f);
    fetch_client_remove(f);
    timer_deinit(fetch_loop(f), &f->total);
    timer_deinit(fetch_loop(f), &f->silence);
    loop_undefer(fetch_loop(f), &f->later);
    parser_free(f->parser);
    tls_context_unref(f->tls.context);
    buf_deinit(&f->body);
    arena_deinit(&f->arena);
    arena_deinit(&f->answer_arena);
    mem_free(f);
}

/* --- who waits --- */

static bool reached(const struct fetch *f)
{
    if (f->stage == FETCH_STAGE_OVER)
        return true;
    switch (f->goal) {
    case FETCH_GOAL_HEAD: return f->stage == FETCH_STAGE_BODY && !f->redirecting;
    case FETCH_GOAL_PIECE: return f->body.n > 0;
    default: return false;
    }
}

void fetch_report(struct fetch *f)
{
    void (*cb)(void *) = f->cb;
    if (cb == NULL || !reached(f))
        return;
    if (f->options.stream)
        timer_stop(&f->total); /* it counts up to the head */
    f->cb = NULL;
    cb(f->arg);
}

void fetch_await(struct fetch *f, void (*cb)(void *arg), void *arg)
{
    f->goal = FETCH_GOAL_PIECE;
    f->cb = cb;
    f->arg = arg;
}

void fetch_unawait(struct fetch *f)
{
    f->cb = NULL;
}

enum fetch_read fetch_read(struct fetch *f, struct slice *piece)
{
    if (f->body.n > 0) {
        *piece = buf_slice(&f->body);
        buf_clear(&f->body); /* the bytes stay until more are read */
        fetch_unpause(f);
        return FETCH_PIECE;
    }
    if (f->stage != FETCH_STAGE_OVER)
        return FETCH_WAIT;
    return f->error == FETCH_OK ? FETCH_END : FETCH_FAILED;
}

/* --- what came --- */

enum fetch_error fetch_failure(const struct fetch *f)
{
    return f->error;
}

const char *fetch_detail(const struct fetch *f)
{
    return f->detail;
}

bool fetch_answered(const struct fetch *f)
{
    return f->answered;
}

const struct response *fetch_response(const struct fetch *f)
{
    return &f->res;
}

struct slice fetch_final_url(struct fetch *f)
{
    return fetch_url_text(&f->arena, &f->url);
}

struct slice fetch_body(const struct fetch *f)
{
    return (struct slice){ f->body.p != NULL ? f->body.p : "", f->body.n };
}
