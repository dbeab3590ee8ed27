/* See health.h. */
#include "health.h"

#include <inttypes.h>
#include <stdio.h>

#include "container.h"
#include "dial.h"
#include "health_count.h"
#include "log.h"
#include "mem.h"
#include "zone.h"

enum {
    HEALTH_BELIEVED = 3,    /* intervals that a result is believed for */
    HEALTH_SLACK_MS = 5000, /* and what a busy loop may add */
    HEALTH_SPREAD_MS = 1000 /* the first checks are spread over so long */
};

struct check {
    struct health *owner;
    const struct target *target;
    struct timer timer;
    struct fetch *fetch; /* under way; one of both, or none */
    struct dial *dial;
    struct health_count count;
};

struct health {
    struct services *sv;
    struct parse_limits parse;
    uint32_t n;
    struct check v[];
};

static void again(struct check *c)
{
    timer_set(c->owner->sv->loop, &c->timer, c->target->check->interval_ms);
}

/* --- a result --- */

static void tell(const struct check *c, bool up, const char *why)
{
    const struct target *t = c->target;
    if (up)
        log_info("target %s (%s) is healthy again", t->name, t->url_text);
    else
        log_warn("target %s (%s) is unhealthy, %" PRIu32 " checks in a row failed: %s", t->name,
                 t->url_text, t->check->thresholds.unhealthy, why);
}

static void take(struct check *c, bool good, const char *why)
{
    const struct target_check *p = c->target->check;
    uint64_t now = zone_now();
    enum target_health before = target_state_health(&c->target->state, now), health = before;
    if (health_count_result(&c->count, &p->thresholds, good, &health) &&
        (health == TARGET_HEALTH_DOWN || before == TARGET_HEALTH_DOWN))
        tell(c, health == TARGET_HEALTH_UP, why);
    target_state_set_health(&c->target->state, health,
                            now + HEALTH_BELIEVED * p->interval_ms + p->timeout_ms +
                                HEALTH_SLACK_MS);
    again(c);
}

/* --- by a request --- */

static bool wanted(const struct target_check *p, int status)
{
    if (p->nstatus == 0)
        return status >= 200 && status < 400;
    for (uint32_t i = 0; i < p->nstatus; i++) {
        if (status >= p->status[i].first && status <= p->status[i].last)
            return true;
    }
    return false;
}

static void on_answer(void *arg)
{
    struct check *c = arg;
    struct fetch *f = c->fetch;
    char why[160];
    bool good = fetch_answered(f) && wanted(c->target->check, fetch_response(f)->status);
    if (fetch_answered(f))
        snprintf(why, sizeof why, "it answered with status %d", fetch_response(f)->status);
    else
        snprintf(why, sizeof why, "%s", fetch_detail(f));
    c->fetch = NULL;
    fetch_free(f);
    take(c, good, why);
}

/* The answer's head decides; its body is not read, and the connection ends. */
static void ask(struct check *c)
{
    const struct target_check *p = c->target->check;
    struct fetch *f = c->fetch = fetch_new(c->owner->sv->fetch);
    struct fetch_options *o = fetch_options(f);
    struct tls_remote tls = p->tls;
    o->total_ms = o->connect_ms = p->timeout_ms;
    o->parse = c->owner->parse;
    o->stream = true;
    fetch_set_url(f, &p->url);
    if (tls.context != NULL) {
        tls_context_ref(tls.context);
        fetch_set_tls(f, &tls);
    }
    struct request *req = fetch_request(f);
    req->method = SLICE("GET");
    headers_add(&req->headers, SLICE("user-agent"), SLICE("tollgate-health-check"));
    for (uint32_t i = 0; i < p->nheaders; i++)
        headers_set(&req->headers, p->headers[i].name, p->headers[i].value);
    fetch_start(f, on_answer, c);
}

/* --- by a connection --- */

static void on_dialed(void *arg, struct stream *s, const struct address *a, int err)
{
    struct check *c = arg;
    (void)a;
    c->dial = NULL;
    if (s != NULL)
        stream_close(s);
    take(c, s != NULL, s != NULL ? "" : uv_strerror(err));
}

static void knock(struct check *c)
{
    const struct url *u = &c->target->url;
    char host[256], path[sizeof(struct address)];
    snprintf(host, sizeof host, "%.*s", (int)u->host.n, u->host.p);
    snprintf(path, sizeof path, "%.*s", (int)u->unix_path.n, u->unix_path.p);
    const struct dial_to to = { .host = host, .port = u->port, .path = path };
    c->dial = dial_start(c->owner->sv->loop, c->owner->sv->resolve, &to,
                         c->target->check->timeout_ms, on_dialed, c);
}

/* --- life --- */

static void on_due(struct timer *t)
{
    struct check *c = CONTAINER(t, struct check, timer);
    struct services *sv = c->owner->sv;
    if (sv->leads != NULL && !sv->leads(sv->leads_arg)) {
        c->count = (struct health_count){ 0, 0 }; /* another one counts */
        again(c);
    } else if (c->target->check->tcp) {
        knock(c);
    } else {
        ask(c);
    }
}

static bool has(const struct health *h, const struct target *t)
{
    for (uint32_t i = 0; i < h->n; i++) {
        if (h->v[i].target->state.key == t->state.key)
            return true;
    }
    return false;
}

static void add(struct health *h, const struct target *t)
{
    uint64_t interval = t->check->interval_ms;
    struct check *c = &h->v[h->n];
    if (t->state.entry == NULL || has(h, t))
        return;
    h->n++;
    c->owner = h;
    c->target = t;
    c->timer.cb = on_due;
    timer_set(h->sv->loop, &c->timer,
              t->state.key % (interval < HEALTH_SPREAD_MS ? interval : HEALTH_SPREAD_MS));
}

static void each(const struct generation *g, void (*fn)(struct health *h, const struct target *t),
                 struct health *h)
{
    for (uint32_t i = 0; i < g->nroutes; i++) {
        const struct route *r = &g->routes[i];
        for (uint32_t k = 0; k <= r->nmodels; k++) {
            const struct target_set *set = k < r->nmodels ? &r->models[k] : r->targets;
            for (uint32_t n = 0; set != NULL && n < set->n; n++) {
                if (set->v[n].check != NULL)
                    fn(h, &set->v[n]);
            }
        }
    }
}

static void count(struct health *h, const struct target *t)
{
    (void)t;
    h->n++;
}

static void forget(struct health *h, const struct target *t)
{
    if (!has(h, t))
        target_state_set_health(&t->state, TARGET_HEALTH_UNKNOWN, 0);
}

struct health *health_start(struct generation *g, const struct generation *old)
{
    struct health none = { .n = 0 }, *h = NULL;
    if (g->sv->target_table == NULL)
        return NULL;
    each(g, count, &none);
    if (none.n > 0) {
        h = mem_zalloc(sizeof *h + none.n * sizeof *h->v);
        h->sv = g->sv;
        h->parse = g->settings.parse;
        each(g, add, h);
    }
    none.n = 0;
    if (old != NULL)
        each(old, forget, h != NULL ? h : &none);
    return h;
}

void health_stop(struct health *h)
{
    if (h == NULL)
        return;
    for (uint32_t i = 0; i < h->n; i++) {
        struct check *c = &h->v[i];
        timer_deinit(h->sv->loop, &c->timer);
        if (c->fetch != NULL)
            fetch_free(c->fetch);
        if (c->dial != NULL)
            dial_cancel(c->dial);
    }
    mem_free(h);
}
