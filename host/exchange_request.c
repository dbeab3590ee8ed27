/* See exchange.h: the request as the origin gets it. */
#include <string.h>

#include "exchange.h"

enum { OWN_FIELDS = 10 }; /* that the gateway adds at most */

static void add_forwarded(struct exchange *x, struct headers *h, const struct target *t)
{
    struct forwarded_hop hop = { .peer = slice_of(x->client.address),
                                 .scheme = exchange_peer_scheme(x),
                                 .authority = x->req.authority };
    forwarded_write(&x->gen->settings.forwarded, &x->forwarded, &hop, h);
    headers_set(h, SLICE("host"),
                t->preserve_host && x->req.authority.n > 0 ? x->req.authority : t->url.authority);
    if (headers_get_id(h, HEADER_X_REQUEST_ID).p == NULL)
        headers_add(h, SLICE("x-request-id"), slice_of(x->id));
}

void exchange_add_via(struct exchange *x, struct headers *h, int minor)
{
    struct slice via = x->gen->settings.via[minor];
    if (via.p != NULL)
        headers_add(h, SLICE("via"), via);
}

static struct slice target_of(struct exchange *x)
{
    const struct target *t = x->target;
    struct slice path = x->req.path;
    if (x->prefix > 0) { /* keeps the '/' that ends the prefix */
        path.p += x->prefix - 1;
        path.n -= x->prefix - 1;
    }
    if (t->url.path.n == 0 && x->req.query.p == NULL)
        return path;
    return arena_printf(&x->arena, "%.*s%.*s%s%.*s", (int)t->url.path.n, t->url.path.p, (int)path.n,
                        path.p, x->req.query.p != NULL ? "?" : "", (int)x->req.query.n,
                        x->req.query.p != NULL ? x->req.query.p : "");
}

/* Whether the target's model takes the place of the one that the client names. */
static bool renames(const struct exchange *x)
{
    return x->model != NULL && x->model->end > 0 && x->target->model_json.p != NULL &&
           !slice_eq(x->model->name, slice_of(x->target->model));
}

void exchange_request_prepare(struct exchange *x)
{
    const struct target *t = x->target;
    struct headers *h = &x->up.headers;
    x->up = x->req;
    headers_init(h, &x->arena);
    headers_reserve(h, x->req.headers.n + t->nset + OWN_FIELDS);
    memcpy(h->v, x->req.headers.v, x->req.headers.n * sizeof *h->v);
    h->n = x->req.headers.n;
    headers_remove_hop_by_hop(h);
    headers_remove_id(h, HEADER_EXPECT);
    add_forwarded(x, h, t);
    if (x->tunnel == TUNNEL_ASKED)
        headers_add(h, SLICE("upgrade"), x->upgrade);
    exchange_add_via(x, h, x->req.minor);
    if (x->trace.id[0] != '\0')
        trace_write(&x->trace, x->attempt_span, h);
    if (x->metered) /* an answer that is read must not be encoded */
        headers_set(h, SLICE("accept-encoding"), SLICE("identity"));
    for (uint32_t i = 0; i < t->nset; i++) {
        if (t->set[i].value.p != NULL)
            headers_set(h, t->set[i].name, t->set[i].value);
        else
            headers_remove(h, t->set[i].name);
    }
    if (x->whole) { /* it may have been edited */
        x->up.framing =
            x->req.framing == FRAMING_NONE && x->body.n == 0 ? FRAMING_NONE : FRAMING_LENGTH;
        x->up.length = x->body.n;
        if (renames(x))
            x->up.length += x->target->model_json.n - (x->model->end - x->model->start);
    }
}

/* The whole body in three parts: every byte is as it came, but those of the model. */
static void put_body(const struct exchange *x, struct slice v[3])
{
    struct slice body = buf_slice(&x->body);
    v[0] = body;
    if (!renames(x))
        return;
    v[0].n = x->model->start;
    v[1] = x->target->model_json;
    v[2] = (struct slice){ body.p + x->model->end, body.n - x->model->end };
}

void exchange_request_send(struct exchange *x)
{
    struct upstream_conn *c = x->origin;
    struct buf head;
    buf_init(&head);
    message_write_request(&head, &x->up, target_of(x), false);
    x->head_sent_up = true;
    x->reached_origin = x->unpriced = true;
    if (x->up.framing == FRAMING_NONE)
        x->upload_done = true;
    if (x->body_done && x->up.framing == FRAMING_LENGTH) { /* in one write */
        struct slice v[4] = { buf_slice(&head) };
        put_body(x, v + 1);
        stream_writev(c->stream, v, 4);
        x->upload_done = true;
    } else {
        stream_write(c->stream, buf_slice(&head));
        exchange_upload(x);
    }
    buf_deinit(&head);
}
