/* See rds.h; this file has the life of a command. Replies are matched to commands by their order,
 * which is all that RESP2 gives, so a command lives from its call until its reply or the end of the
 * connection, also where its deadline has told its caller before. */
#include "rds_internal.h"

#include <stdio.h>

#include "container.h"
#include "mem.h"

/* --- queues and memory --- */

void rds_queue_init(struct rds_queue *q)
{
    q->first = NULL;
    q->last = &q->first;
}

void rds_queue_push(struct rds_queue *q, struct rds_cmd *c)
{
    c->next = NULL;
    *q->last = c;
    q->last = &c->next;
}

struct rds_cmd *rds_queue_pop(struct rds_queue *q)
{
    struct rds_cmd *c = q->first;
    if (c == NULL)
        return NULL;
    q->first = c->next;
    if (q->first == NULL)
        q->last = &q->first;
    return c;
}

static void on_deadline(struct timer *t);

struct rds_cmd *rds_cmd_new(struct rds *r, rds_cb cb, void *arg)
{
    struct rds_cmd *c = r->pool;
    if (c != NULL) {
        r->pool = c->next;
        r->pooled--;
        memset(c, 0, sizeof *c);
    } else {
        c = mem_zalloc(sizeof *c);
    }
    c->r = r;
    c->cb = cb;
    c->arg = arg;
    c->deadline.cb = on_deadline;
    return c;
}

void rds_cmd_release(struct rds_cmd *c)
{
    struct rds *r = c->r;
    timer_deinit(r->loop, &c->deadline);
    mem_free(c->bytes);
    if (r->pooled >= RDS_POOL_MAX) {
        mem_free(c);
        return;
    }
    c->next = r->pool;
    r->pool = c;
    r->pooled++;
}

static void measure(const struct rds_cmd *c, const redisReply *reply, enum rds_error err)
{
    static const char *const errors[] = { NULL, "timeout", "closed", "down" };
    const struct rds *r = c->r;
    const char *error = errors[err];
    uint64_t now = err == RDS_OK ? r->read_at : uv_hrtime();
    if (err == RDS_OK && reply->type == REDIS_REPLY_ERROR)
        error = "reply";
    r->on_ended(r->on_ended_arg, c->script != NULL ? c->script->name : NULL,
                c->sent_at != 0 && now > c->sent_at ? now - c->sent_at : 0, error);
}

static void tell(struct rds_cmd *c, redisReply *reply, enum rds_error err)
{
    if (c->told)
        return;
    c->told = true;
    if (c->r->on_ended != NULL && !c->handshake)
        measure(c, reply, err);
    if (c->cb != NULL)
        c->cb(c->arg, reply, err);
}

/* --- failing at the end of the turn --- */

void rds_fail_later(struct rds_cmd *c, enum rds_error err)
{
    c->err = err;
    timer_deinit(c->r->loop, &c->deadline);
    rds_queue_push(&c->r->failed, c);
    loop_defer(c->r->loop, &c->r->dispatch, LOOP_COLLECT);
}

static void fail_queue(struct rds_queue *q, enum rds_error err)
{
    for (struct rds_cmd *c; (c = rds_queue_pop(q)) != NULL;) {
        if (c->handshake)
            rds_cmd_release(c);
        else
            rds_fail_later(c, err);
    }
}

void rds_fail_all(struct rds *r)
{
    fail_queue(&r->sent, RDS_CLOSED);
    fail_queue(&r->unsent, RDS_DOWN);
    r->overdue = 0;
    buf_clear(&r->out);
}

static void destroy(struct rds *r)
{
    loop_undefer(r->loop, &r->dispatch);
    loop_undefer(r->loop, &r->write);
    timer_deinit(r->loop, &r->clock);
    while (r->pool != NULL) {
        struct rds_cmd *c = r->pool;
        r->pool = c->next;
        mem_free(c);
    }
    buf_deinit(&r->out);
    OPENSSL_cleanse(r->config.password, sizeof r->config.password);
    tls_context_unref(r->config.tls);
    tls_session_unref(r->session);
    mem_free(r);
}

static void on_dispatch(struct deferred *d)
{
    struct rds *r = CONTAINER(d, struct rds, dispatch);
    for (struct rds_cmd *c; (c = rds_queue_pop(&r->failed)) != NULL;) {
        tell(c, NULL, c->err);
        rds_cmd_release(c);
    }
    if (r->freed)
        destroy(r);
}

/* --- deadlines --- */

/* In vain: the connection never came. Those behind it in the queue keep their own deadlines. */
static void expire_waiting(struct rds_cmd *c)
{
    struct rds *r = c->r;
    r->patient = false;
    tell(c, NULL, RDS_DOWN);
    while (!r->freed && r->waiting.first != NULL && r->waiting.first->told)
        rds_cmd_release(rds_queue_pop(&r->waiting));
}

static void on_deadline(struct timer *t)
{
    struct rds_cmd *c = CONTAINER(t, struct rds_cmd, deadline);
    struct rds *r = c->r;
    if (!c->late) { /* after a long turn the reply may stand in the socket: read before judging */
        c->late = true;
        timer_set(r->loop, t, 1);
        return;
    }
    if (r->phase != PHASE_READY) { /* only what waits has a deadline then */
        expire_waiting(c);
        return;
    }
    c->overdue = true;
    if (r->overdue++ == 0) {
        snprintf(r->problem, sizeof r->problem, "no reply within the deadline");
        timer_set(r->loop, &r->clock, r->config.hang_ms);
        rds_tell_state(r);
    }
    if (!r->freed && !c->owned)
        tell(c, NULL, RDS_TIMEOUT);
}

/* --- replies --- */

static void no_longer_overdue(struct rds *r, struct rds_cmd *c)
{
    c->overdue = c->late = false;
    timer_set(r->loop, &c->deadline, r->config.deadline_ms);
    if (--r->overdue > 0)
        return;
    timer_stop(&r->clock);
    rds_tell_state(r);
}

static void answered(struct rds *r, struct rds_cmd *c, redisReply *reply)
{
    if (c->overdue)
        no_longer_overdue(r, c);
    if (c->script != NULL && !c->told && r->phase == PHASE_READY &&
        rds_is_error(reply, "NOSCRIPT")) {
        rds_send_kept(c, true); /* under the deadline that it has */
        return;
    }
    unsigned generation = r->generation;
    bool unfit = !c->handshake && rds_is_unfit(reply);
    tell(c, reply, RDS_OK);
    rds_cmd_release(c);
    if (unfit && !r->freed && generation == r->generation)
        rds_drop(r, "Redis refuses: %.*s", (int)strcspn(reply->str, "\r\n"), reply->str);
}

/* False where the connection is gone, or r with it. */
static bool take_reply(struct rds *r, redisReply *reply)
{
    unsigned generation = r->generation;
    bool push = r->on_push != NULL && rds_is_push(r, reply);
    struct rds_cmd *c = push ? NULL : rds_queue_pop(&r->sent);
    if (push)
        r->on_push(r->push_arg, reply);
    else if (c != NULL)
        answered(r, c, reply);
    freeReplyObject(reply);
    if (r->freed || generation != r->generation)
        return false;
    if (!push && c == NULL)
        rds_drop(r, "a reply that nobody asked for");
    return push || c != NULL;
}

void rds_feed(struct rds *r, const char *bytes, size_t n)
{
    if (r->on_ended != NULL)
        r->read_at = uv_hrtime();
    redisReaderFeed(r->reader, bytes, n);
    for (;;) {
        void *reply = NULL;
        if (redisReaderGetReply(r->reader, &reply) != REDIS_OK) {
            rds_drop(r, "broken reply: %s", r->reader->errstr);
            return;
        }
        if (reply == NULL)
            break;
        if (!take_reply(r, reply))
            return;
    }
    if (r->reader->len - r->reader->pos > RDS_REPLY_MAX)
        rds_drop(r, "a reply beyond %d bytes", RDS_REPLY_MAX);
}

/* --- the whole --- */

struct rds *rds_new(struct loop *l, const struct rds_config *config)
{
    struct rds *r = mem_zalloc(sizeof *r);
    r->loop = l;
    r->config = *config;
    if (r->config.tls != NULL)
        tls_context_ref(r->config.tls);
    r->patient = true;
    r->clock.cb = rds_on_clock;
    r->write.run = rds_on_write;
    r->dispatch.run = on_dispatch;
    buf_init(&r->out);
    rds_queue_init(&r->waiting);
    rds_queue_init(&r->unsent);
    rds_queue_init(&r->sent);
    rds_queue_init(&r->failed);
    snprintf(r->problem, sizeof r->problem, "not connected yet");
    return r;
}

void rds_secure(struct rds *r, const struct tls_remote *peer)
{
    struct tls_context *old = r->config.tls;
    rds_config_secure(&r->config, peer);
    if (r->config.tls != NULL)
        tls_context_ref(r->config.tls);
    if (old != r->config.tls) { /* the old one's session is not good for it */
        tls_session_unref(r->session);
        r->session = NULL;
    }
    tls_context_unref(old);
}

void rds_free(struct rds *r)
{
    if (r->freed)
        return;
    r->freed = true;
    r->on_ended = NULL;
    rds_disconnect(r);
    fail_queue(&r->waiting, RDS_DOWN);
    loop_defer(r->loop, &r->dispatch, LOOP_COLLECT);
}

const char *rds_memory_policy(const struct rds *r)
{
    return r->policy;
}

uint64_t rds_deadline_ms(const struct rds *r)
{
    return r->config.deadline_ms;
}

const char *rds_problem(const struct rds *r)
{
    return r->problem;
}

const struct rds_config *rds_config_of(const struct rds *r)
{
    return &r->config;
}

unsigned rds_connection(const struct rds *r)
{
    return r->generation;
}

void rds_set_meter(struct rds *r,
                   void (*on_ended)(void *arg, const char *script, uint64_t ns, const char *error),
                   void *arg)
{
    r->on_ended = on_ended;
    r->on_ended_arg = arg;
}

void rds_set_push(struct rds *r, void (*on_push)(void *arg, redisReply *reply), void *arg)
{
    r->on_push = on_push;
    r->push_arg = arg;
}

void rds_preload(struct rds *r, const struct rds_script *s)
{
    if (r->npreloads < RDS_PRELOADS)
        r->preloads[r->npreloads++] = s;
}

void rds_forget(struct rds *r, const struct rds_script *s)
{
    for (unsigned i = 0; i < r->npreloads; i++) {
        if (r->preloads[i] == s)
            r->preloads[i--] = r->preloads[--r->npreloads];
    }
}
