/* See rds_sub.h. rds makes the connection and makes it again; here is who subscribes on it, and who
 * looks whether it still is one: on a connection that only listens, a peer that is gone without a
 * word does not show, so it is asked from time to time. */
#include "rds_sub.h"

#include "container.h"
#include "log.h"
#include "mem.h"

enum { CHECK_MS = 10000, CHECK_DEADLINE_MS = 5000 };

struct rds_sub {
    struct loop *loop;
    struct rds *r;
    struct rds_watch watch;
    struct timer check;
    const struct rds_sub_events *events;
    void *arg;
    bool patterns;
    bool active;         /* subscribed at least once */
    bool refused;        /* and the log knows */
    unsigned connection; /* on which it is subscribed, or asked to be */
    int confirmed;       /* channels, on that connection */
    int nargs;
    struct slice args[]; /* the command; owned but for the first */
};

static void subscribe(struct rds_sub *s)
{
    s->connection = rds_connection(s->r);
    s->confirmed = 0;
    rds_post(s->r, s->nargs, s->args);
    timer_set(s->loop, &s->check, CHECK_MS);
}

static void on_change(struct rds_watch *w, bool usable)
{
    struct rds_sub *s = CONTAINER(w, struct rds_sub, watch);
    if (!usable)
        timer_stop(&s->check);
    else if (s->connection == rds_connection(s->r)) /* it was only slow */
        timer_set(s->loop, &s->check, CHECK_MS);
    else
        subscribe(s);
}

/* Whether Redis answers is for rds to see. */
static void on_check(struct timer *t)
{
    const struct slice ping = SLICE("PING");
    struct rds_sub *s = CONTAINER(t, struct rds_sub, check);
    if (s->confirmed < s->nargs - 1) {
        subscribe(s); /* it was refused */
        return;
    }
    rds_command(s->r, 1, &ping, CHECK_DEADLINE_MS, NULL, NULL);
    timer_set(s->loop, t, CHECK_MS);
}

static struct slice text(const redisReply *r)
{
    bool has = r->type == REDIS_REPLY_STRING;
    return has ? (struct slice){ r->str, (size_t)r->len } : (struct slice){ NULL, 0 };
}

static void confirmed(struct rds_sub *s)
{
    if (++s->confirmed != s->nargs - 1)
        return;
    bool again = s->active;
    s->active = true;
    s->refused = false;
    s->events->on_active(s->arg, again);
}

static void on_push(void *arg, redisReply *reply)
{
    struct rds_sub *s = arg;
    if (reply->type == REDIS_REPLY_ERROR) {
        if (!s->refused)
            log_error("redis: %.*s: %s", (int)s->args[0].n, s->args[0].p, reply->str);
        s->refused = true;
        return;
    }
    struct slice kind = text(reply->element[0]);
    if (slice_eq(kind, SLICE("message")))
        s->events->on_message(s->arg, text(reply->element[1]), text(reply->element[2]),
                              (struct slice){ NULL, 0 });
    else if (slice_eq(kind, SLICE("pmessage")) && reply->elements > 3)
        s->events->on_message(s->arg, text(reply->element[2]), text(reply->element[3]),
                              text(reply->element[1]));
    else if (slice_eq(kind, s->patterns ? SLICE("psubscribe") : SLICE("subscribe")))
        confirmed(s);
}

struct rds_sub *rds_sub_new(struct loop *l, const struct rds *shared, bool patterns, int nchannels,
                            const struct slice *channels, const struct rds_sub_events *events,
                            void *arg)
{
    struct rds_config c = *rds_config_of(shared);
    size_t nargs = (size_t)nchannels + 1;
    struct rds_sub *s = mem_zalloc(sizeof *s + nargs * sizeof s->args[0]);
    s->loop = l;
    s->events = events;
    s->arg = arg;
    s->patterns = patterns;
    s->args[0] = patterns ? SLICE("PSUBSCRIBE") : SLICE("SUBSCRIBE");
    for (s->nargs = 1; s->nargs <= nchannels; s->nargs++) {
        struct slice from = channels[s->nargs - 1];
        s->args[s->nargs] = (struct slice){ mem_strndup(from.p, from.n), from.n };
    }
    s->check.cb = on_check;
    s->watch.on_change = on_change;
    c.bare = true;
    s->r = rds_new(l, &c);
    s->connection = rds_connection(s->r) - 1;
    rds_set_push(s->r, on_push, s);
    rds_watch(s->r, &s->watch);
    rds_start(s->r);
    return s;
}

void rds_sub_free(struct rds_sub *s)
{
    timer_deinit(s->loop, &s->check);
    rds_set_push(s->r, NULL, NULL);
    rds_unwatch(s->r, &s->watch);
    rds_free(s->r);
    for (int i = 1; i < s->nargs; i++)
        mem_free((char *)(uintptr_t)s->args[i].p);
    mem_free(s);
}
