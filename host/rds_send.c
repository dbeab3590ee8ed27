/* Sending of rds: a command becomes RESP straight in the output buffer, and the buffer goes out in
 * one write at the end of the turn. What may have to be sent (again) later keeps a copy of its
 * bytes: a command that waits for the first connection, and the arguments of a script, in case that
 * Redis has forgotten its text. */
#include "rds_internal.h"

#include <stdio.h>

#include "container.h"
#include "mem.h"

void rds_on_write(struct deferred *d)
{
    struct rds *r = CONTAINER(d, struct rds, write);
    if (r->stream == NULL || r->out.n == 0)
        return;
    if (r->on_ended != NULL) {
        uint64_t now = uv_hrtime();
        for (struct rds_cmd *c = r->unsent.first; c != NULL; c = c->next)
            c->sent_at = now;
    }
    if (r->unsent.first != NULL) {
        *r->sent.last = r->unsent.first;
        r->sent.last = r->unsent.last;
        rds_queue_init(&r->unsent);
    }
    stream_write(r->stream, buf_slice(&r->out));
    buf_clear(&r->out);
    if (r->out.cap > RDS_OUT_KEEP)
        buf_deinit(&r->out);
}

static void put_count(struct buf *out, char kind, size_t n)
{
    char text[24];
    int at = sizeof text;
    text[--at] = '\n';
    text[--at] = '\r';
    do
        text[--at] = (char)('0' + n % 10);
    while ((n /= 10) > 0);
    text[--at] = kind;
    buf_add(out, text + at, sizeof text - (size_t)at);
}

static void put_part(struct buf *out, struct slice part)
{
    put_count(out, '$', part.n);
    buf_add_slice(out, part);
    buf_add(out, "\r\n", 2);
}

static void put_parts(struct buf *out, int n, const struct slice *parts)
{
    for (int i = 0; i < n; i++)
        put_part(out, parts[i]);
}

static void put_script_head(struct buf *out, const struct rds_cmd *c, bool with_body)
{
    put_count(out, '*', (size_t)c->parts);
    put_part(out, with_body ? SLICE("EVAL") : SLICE("EVALSHA"));
    put_part(out, with_body ? c->script->body : (struct slice){ c->script->sha1, 40 });
}

/* Its bytes are in `out`, or in the command where it has to wait. */
static void queue_unsent(struct rds_cmd *c)
{
    rds_queue_push(&c->r->unsent, c);
    loop_defer(c->r->loop, &c->r->write, LOOP_WRITE);
}

void rds_send_kept(struct rds_cmd *c, bool with_body)
{
    if (c->script != NULL)
        put_script_head(&c->r->out, c, with_body);
    buf_add(&c->r->out, c->bytes, c->n);
    queue_unsent(c);
}

void rds_send_waiting(struct rds *r)
{
    r->patient = false;
    for (struct rds_cmd *c; (c = rds_queue_pop(&r->waiting)) != NULL;) {
        if (c->told)
            rds_cmd_release(c);
        else
            rds_send_kept(c, false);
    }
}

/* Keeps a copy of what was put into `from` behind `at`. */
static void keep_bytes(struct rds_cmd *c, const struct buf *from, size_t at)
{
    c->n = from->n - at;
    c->bytes = mem_alloc(c->n);
    memcpy(c->bytes, from->p + at, c->n);
}

bool rds_accepts(const struct rds *r)
{
    bool ready = r->phase == PHASE_READY;
    return !r->freed && (ready ? r->overdue == 0 : r->patient);
}

/* True where the command may be formatted; sets its deadline. Else it fails at the end of the turn.
 */
static bool accept_command(struct rds_cmd *c, uint64_t deadline_ms)
{
    struct rds *r = c->r;
    if (!rds_accepts(r)) {
        rds_fail_later(c, RDS_DOWN);
        return false;
    }
    timer_set(r->loop, &c->deadline, deadline_ms > 0 ? deadline_ms : r->config.deadline_ms);
    return true;
}

/* The bytes of c stand in `out` behind `at`, its own without a head behind `kept`. */
static void place(struct rds_cmd *c, size_t at, size_t kept)
{
    struct rds *r = c->r;
    bool wait = r->phase != PHASE_READY;
    if (wait || c->script != NULL)
        keep_bytes(c, &r->out, kept);
    if (!wait) {
        queue_unsent(c);
        return;
    }
    r->out.n = at;
    rds_queue_push(&r->waiting, c);
}

void rds_command(struct rds *r, int argc, const struct slice *argv, uint64_t deadline_ms, rds_cb cb,
                 void *arg)
{
    struct rds_cmd *c = rds_cmd_new(r, cb, arg);
    if (!accept_command(c, deadline_ms))
        return;
    size_t at = r->out.n;
    put_count(&r->out, '*', (size_t)argc);
    put_parts(&r->out, argc, argv);
    place(c, at, at);
}

static void eval(struct rds_cmd *c, int nkeys, const struct slice *keys, int nargs,
                 const struct slice *args, uint64_t deadline_ms)
{
    if (!accept_command(c, deadline_ms))
        return;
    struct buf *out = &c->r->out;
    size_t at = out->n;
    char count[16];
    snprintf(count, sizeof count, "%d", nkeys);
    c->parts = 3 + nkeys + nargs;
    put_script_head(out, c, false);
    size_t kept = out->n;
    put_part(out, slice_of(count));
    put_parts(out, nkeys, keys);
    put_parts(out, nargs, args);
    place(c, at, kept);
}

void rds_eval(struct rds *r, const struct rds_script *s, int nkeys, const struct slice *keys,
              int nargs, const struct slice *args, uint64_t deadline_ms, rds_cb cb, void *arg)
{
    struct rds_cmd *c = rds_cmd_new(r, cb, arg);
    c->script = s;
    eval(c, nkeys, keys, nargs, args, deadline_ms);
}

void rds_eval_owned(struct rds *r, const struct rds_script *s, int nkeys, const struct slice *keys,
                    int nargs, const struct slice *args, uint64_t deadline_ms, rds_cb cb, void *arg)
{
    struct rds_cmd *c = rds_cmd_new(r, cb, arg);
    c->script = s;
    c->owned = true;
    eval(c, nkeys, keys, nargs, args, deadline_ms);
}

void rds_send_handshake(struct rds *r, int argc, const struct slice *argv, rds_cb cb)
{
    struct rds_cmd *c = rds_cmd_new(r, cb, r);
    c->handshake = true;
    put_count(&r->out, '*', (size_t)argc);
    put_parts(&r->out, argc, argv);
    queue_unsent(c);
}

void rds_post(struct rds *r, int argc, const struct slice *argv)
{
    if (r->phase != PHASE_READY)
        return;
    put_count(&r->out, '*', (size_t)argc);
    put_parts(&r->out, argc, argv);
    loop_defer(r->loop, &r->write, LOOP_WRITE);
}
