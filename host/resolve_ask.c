/* One name's look-up. It asks for both families at once. Whoever waits hears when both have been
 * answered, a moment after the first one that has addresses (RFC 8305, section 3), or, where an old
 * answer is at hand, when the resolver has had its time. */
#include "resolve_internal.h"

#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "container.h"
#include "log.h"
#include "mem.h"

enum {
    RESOLVE_DELAY_MS = 50,      /* for the other family; RFC 8305, section 8 */
    RESOLVE_PATIENCE_MS = 1000, /* for a new answer where there is an old one */
    RESOLVE_RETRY_MS = 1000,    /* after a look-up that found nothing */
    RESOLVE_HELD_RETRY_MS = 5000
};

/* --- telling those who wait --- */

unsigned resolve_known(const struct name *n)
{
    return n->v4.found.n + n->v6.found.n;
}

bool resolve_serves_stale(const struct name *n)
{
    return resolve_known(n) > 0 && loop_now(n->r->loop) < n->fresh_until + n->r->options.stale;
}

/* A datagram socket that is connected sends nothing, but says whether there is a route. */
static bool has_route(const struct ip *ip)
{
    struct address a;
    address_of(ip, 9, &a);
    int fd = socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    bool yes = fd >= 0 && connect(fd, &a.u.sa, sizeof a.u.in6) == 0;
    if (fd >= 0)
        close(fd);
    return yes;
}

void resolve_fill(struct name *n, int port, struct addresses *out)
{
    struct ip ips[ADDRESSES_MAX];
    struct candidates *first = n->reaches_v6 ? &n->v6.found : &n->v4.found;
    struct candidates *second = n->reaches_v6 ? &n->v4.found : &n->v6.found;
    out->n = candidates_order(first, second, loop_now(n->r->loop), ips, ADDRESSES_MAX);
    for (unsigned i = 0; i < out->n; i++)
        address_of(&ips[i], port, &out->v[i]);
}

void resolve_wait_unlink(struct resolve_wait *w)
{
    *w->link = w->next;
    if (w->next != NULL)
        w->next->link = w->link;
}

static void on_tell(struct deferred *d)
{
    struct name *n = CONTAINER(d, struct name, tell);
    struct resolve *r = n->r;
    struct addresses a;
    bool gone = n->gone;
    n->gone = false;
    n->pins++;
    if (gone && n->holds > 0 && r->on_gone != NULL)
        r->on_gone(r->gone_arg, n->host);
    struct resolve_wait *w = n->waits;
    n->waits = NULL; /* who comes meanwhile waits for the next answer */
    if (w != NULL)
        w->link = &w;
    while (w != NULL) {
        struct resolve_wait *one = w;
        resolve_wait_unlink(one);
        int err = resolve_serves_stale(n) ? 0 : n->err != 0 ? n->err : UV_EAI_NONAME;
        if (err == 0)
            resolve_fill(n, one->port, &a);
        one->cb(one->arg, err == 0 ? &a : NULL, err);
        mem_free(one);
    }
    n->pins--;
}

void resolve_tell_waits(struct name *n)
{
    timer_stop(&n->patience);
    if (n->waits != NULL || n->gone)
        loop_defer(n->r->loop, &n->tell, LOOP_COLLECT);
}

static void on_patience(struct timer *t)
{
    struct name *n = CONTAINER(t, struct name, patience);
    if (resolve_serves_stale(n))
        resolve_tell_waits(n);
}

void resolve_be_patient(struct name *n)
{
    if (resolve_serves_stale(n) && n->patience.at == 0)
        timer_set(n->r->loop, &n->patience, RESOLVE_PATIENCE_MS);
}

/* --- look-ups --- */

static uint64_t bounded(uint64_t ms, const struct resolve_options *o)
{
    return ms < o->ttl_min ? o->ttl_min : ms > o->ttl_max ? o->ttl_max : ms;
}

/* Held names are asked for when their time comes. */
void resolve_set_due(struct name *n)
{
    uint64_t now = loop_now(n->r->loop), at = n->fresh_until;
    if (n->holds == 0)
        return;
    if (n->state != NAME_FOUND || at <= now)
        at = now + RESOLVE_HELD_RETRY_MS;
    timer_set(n->r->loop, &n->due, at - now);
}

/* One line where the state changes. */
static void say(const struct name *n, enum name_state state, const char *why)
{
    if (state == n->state)
        return;
    if (state == NAME_FOUND && n->state != NAME_UNKNOWN)
        log_info("resolve: %s: found again", n->host);
    else if (state != NAME_FOUND)
        log_warn("resolve: %s: %s%s", n->host, why,
                 resolve_known(n) > 0 ? "; the last known addresses stay in use" : "");
}

/* Both families have been answered. */
static void conclude(struct name *n, const char *why)
{
    uint64_t now = loop_now(n->r->loop);
    enum name_state state = NAME_FAILING;
    if (n->v4.status == DNS_FOUND || n->v6.status == DNS_FOUND)
        state = NAME_FOUND;
    else if (n->v4.status == DNS_NONE && n->v6.status == DNS_NONE)
        state = NAME_MISSING;
    say(n, state, why);
    n->state = state;
    if (state == NAME_FOUND)
        n->fresh_until = now + bounded(n->ttl, &n->r->options);
    else
        n->retry_at = now + RESOLVE_RETRY_MS;
    resolve_set_due(n);
    resolve_tell_waits(n);
}

static void take(struct name *n, struct family *f, const struct dns_answer *a)
{
    f->status = a->status;
    if (a->status == DNS_FAILED) {
        n->err = a->err;
        return;
    }
    if (candidates_set(&f->found, a->v, a->n))
        n->gone = true;
    if (a->status == DNS_NONE) {
        if (n->err == 0)
            n->err = a->err;
        return;
    }
    uint64_t ttl = (uint64_t)a->ttl * 1000;
    if (ttl < n->ttl)
        n->ttl = ttl;
    if (f == &n->v6)
        n->reaches_v6 = a->n > 0 && has_route(&a->v[0]);
}

/* One family is there: the other has a moment. */
static void found_one(struct name *n)
{
    uint64_t until = loop_now(n->r->loop) + bounded(n->ttl, &n->r->options);
    if (until > n->fresh_until)
        n->fresh_until = until;
    timer_set(n->r->loop, &n->patience, RESOLVE_DELAY_MS);
}

static void on_answer(struct name *n, struct family *f, const struct dns_answer *a)
{
    struct resolve *r = n->r;
    struct family *other = f == &n->v4 ? &n->v6 : &n->v4;
    if (a->status == DNS_STOPPED) {
        if (!r->closing)
            dns_ask(r->dns, n->host, f->query.family, &f->query);
        return;
    }
    f->in_flight = false;
    take(n, f, a);
    if (a->status == DNS_FAILED && dns_outdated(r->dns))
        loop_defer(r->loop, &r->renew, LOOP_COLLECT);
    if (!other->in_flight)
        conclude(n, a->why);
    else if (a->status == DNS_FOUND)
        found_one(n);
}

static void on_v4(struct dns_query *q, const struct dns_answer *a)
{
    struct name *n = CONTAINER(q, struct name, v4.query);
    on_answer(n, &n->v4, a);
}

static void on_v6(struct dns_query *q, const struct dns_answer *a)
{
    struct name *n = CONTAINER(q, struct name, v6.query);
    on_answer(n, &n->v6, a);
}

/* What the hosts file knows in one family is not asked for in the other. */
static bool in_hosts_file(struct name *n)
{
    struct dns_answer v4, v6;
    bool has4 = dns_hosts(n->r->dns, n->host, AF_INET, &v4);
    bool has6 = dns_hosts(n->r->dns, n->host, AF_INET6, &v6);
    if (!has4 && !has6)
        return false;
    take(n, &n->v4, &v4);
    take(n, &n->v6, &v6);
    conclude(n, "");
    return true;
}

void resolve_ask(struct name *n)
{
    struct resolve *r = n->r;
    timer_stop(&n->due);
    n->ttl = UINT64_MAX;
    n->err = 0;
    if (in_hosts_file(n))
        return;
    resolve_be_patient(n);
    n->v4.in_flight = n->v6.in_flight = true;
    dns_ask(r->dns, n->host, AF_INET, &n->v4.query);
    dns_ask(r->dns, n->host, AF_INET6, &n->v6.query);
}

bool resolve_asked(const struct name *n)
{
    return n->v4.in_flight || n->v6.in_flight;
}

static void on_due(struct timer *t)
{
    struct name *n = CONTAINER(t, struct name, due);
    if (!resolve_asked(n) && n->holds > 0)
        resolve_ask(n);
}

void resolve_ask_init(struct name *n)
{
    n->tell.run = on_tell;
    n->patience.cb = on_patience;
    n->due.cb = on_due;
    n->v4.query.cb = on_v4;
    n->v6.query.cb = on_v6;
}
