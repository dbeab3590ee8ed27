/* See rds_pool.h. A seat is one connection, dialed, idle or lent. Whoever waits stands in one
 * queue; a connection that becomes free, by dialing or by being given back, goes to the first in
 * it. So who dialed need not be who gets it, and one that comes too late serves the next. */
#include "rds_pool.h"

#include "container.h"
#include "mem.h"

struct seat {
    struct seat *next, **link; /* in `dialed`, `idle` or `lent` */
    struct rds_pool *pool;
    struct rds *r;
    struct timer idle; /* how long it may be idle */
};

struct rds_pool_wait {
    struct rds_pool_wait *next, **link;
    struct rds_pool *pool;
    struct timer limit;
    rds_pool_cb cb;
    void *arg;
};

struct rds_pool {
    struct loop *loop;
    struct rds *shared;
    struct rds_config config;
    struct seat *dialed, *idle, *lent;
    unsigned seats, dialing, waits;
    struct rds_pool_wait *first, **last;
    struct deferred serve;
    bool freed;
};

/* --- those who wait --- */

static void wait_free(struct rds_pool_wait *w)
{
    struct rds_pool *p = w->pool;
    timer_deinit(p->loop, &w->limit);
    *w->link = w->next;
    if (w->next != NULL)
        w->next->link = w->link;
    else
        p->last = w->link;
    p->waits--;
    mem_free(w);
}

static void answer(struct rds_pool_wait *w, struct rds *r, enum rds_error err)
{
    rds_pool_cb cb = w->cb;
    void *arg = w->arg;
    wait_free(w);
    cb(arg, r, err);
}

static void on_limit(struct timer *t)
{
    struct rds_pool_wait *w = CONTAINER(t, struct rds_pool_wait, limit);
    answer(w, NULL, w->pool->dialing > 0 ? RDS_DOWN : RDS_TIMEOUT);
}

struct rds_pool_wait *rds_pool_take(struct rds_pool *p, uint64_t timeout_ms, rds_pool_cb cb,
                                    void *arg)
{
    struct rds_pool_wait *w = mem_zalloc(sizeof *w);
    *w = (struct rds_pool_wait){ .link = p->last, .pool = p, .cb = cb, .arg = arg };
    *p->last = w;
    p->last = &w->next;
    p->waits++;
    w->limit.cb = on_limit;
    timer_set(p->loop, &w->limit, timeout_ms);
    loop_defer(p->loop, &p->serve, LOOP_COLLECT);
    return w;
}

void rds_pool_cancel(struct rds_pool_wait *w)
{
    wait_free(w);
}

/* --- connections --- */

static void seat_link(struct seat **list, struct seat *s)
{
    s->next = *list;
    s->link = list;
    if (s->next != NULL)
        s->next->link = &s->next;
    *list = s;
}

static void seat_unlink(struct seat *s)
{
    *s->link = s->next;
    if (s->next != NULL)
        s->next->link = s->link;
}

static void seat_free(struct seat *s)
{
    seat_unlink(s);
    timer_deinit(s->pool->loop, &s->idle);
    s->pool->seats--;
    rds_free(s->r);
    mem_free(s);
}

static void on_idle(struct timer *t)
{
    seat_free(CONTAINER(t, struct seat, idle));
}

static void become_idle(struct seat *s)
{
    struct rds_pool *p = s->pool;
    seat_link(&p->idle, s);
    timer_set(p->loop, &s->idle, RDS_POOL_IDLE_MS);
    loop_defer(p->loop, &p->serve, LOOP_COLLECT);
}

/* The answer to its first PING. */
static void on_dialed(void *arg, redisReply *reply, enum rds_error err)
{
    struct seat *s = arg;
    struct rds_pool *p = s->pool;
    (void)reply;
    p->dialing--;
    if (err == RDS_OK && !p->freed) {
        seat_unlink(s);
        become_idle(s);
        return;
    }
    seat_free(s);
    if (!p->freed)
        loop_defer(p->loop, &p->serve, LOOP_COLLECT);
    else if (p->dialing == 0)
        mem_free(p);
}

static void take_config(struct rds_pool *p)
{
    p->config = *rds_config_of(p->shared);
    p->config.bare = p->config.once = true;
}

static void dial(struct rds_pool *p)
{
    const struct slice ping = SLICE("PING");
    struct seat *s = mem_zalloc(sizeof *s);
    s->pool = p;
    s->idle.cb = on_idle;
    take_config(p); /* a reload may have changed how TLS is spoken */
    s->r = rds_new(p->loop, &p->config);
    seat_link(&p->dialed, s);
    p->seats++;
    p->dialing++;
    rds_start(s->r);
    rds_command(s->r, 1, &ping, p->config.connect_ms, on_dialed, s);
}

/* One that works, or NULL. */
static struct seat *take_idle(struct rds_pool *p)
{
    while (p->idle != NULL) {
        struct seat *s = p->idle;
        if (rds_state(s->r) == RDS_READY)
            return s;
        seat_free(s);
    }
    return NULL;
}

/* Those who ask again while they are answered come next time, so that no coroutine holds the
 * loop. */
static void on_serve(struct deferred *d)
{
    struct rds_pool *p = CONTAINER(d, struct rds_pool, serve);
    bool down = !rds_accepts(p->shared);
    for (unsigned n = p->waits; n > 0 && p->first != NULL; n--) {
        struct seat *s = take_idle(p);
        if (s == NULL && !down)
            break;
        if (s == NULL) {
            answer(p->first, NULL, RDS_DOWN);
            continue;
        }
        seat_unlink(s);
        timer_stop(&s->idle);
        seat_link(&p->lent, s);
        answer(p->first, s->r, RDS_OK);
    }
    while (!down && p->waits > p->dialing && p->seats < RDS_POOL_CONNECTIONS)
        dial(p);
}

void rds_pool_give(struct rds_pool *p, struct rds *r, bool clean)
{
    struct seat *s = p->lent;
    while (s->r != r)
        s = s->next;
    if (clean && rds_state(r) == RDS_READY) {
        seat_unlink(s);
        become_idle(s);
        return;
    }
    seat_free(s);
    loop_defer(p->loop, &p->serve, LOOP_COLLECT);
}

/* --- the whole --- */

struct rds_pool *rds_pool_new(struct loop *l, struct rds *shared)
{
    struct rds_pool *p = mem_zalloc(sizeof *p);
    p->loop = l;
    p->shared = shared;
    take_config(p);
    p->last = &p->first;
    p->serve.run = on_serve;
    return p;
}

void rds_pool_free(struct rds_pool *p)
{
    loop_undefer(p->loop, &p->serve);
    while (p->idle != NULL)
        seat_free(p->idle);
    p->freed = true;
    for (struct seat *s = p->dialed; s != NULL; s = s->next)
        rds_free(s->r); /* on_dialed does the rest, at the end of this turn */
    if (p->dialing == 0)
        mem_free(p);
}
