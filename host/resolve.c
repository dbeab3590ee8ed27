/* See resolve.h. Names stand in a list, the one used last first: there are few. */
#include "resolve_internal.h"

#include <string.h>
#include <strings.h>

#include "container.h"
#include "mem.h"

enum {
    RESOLVE_BEHIND_MS = 30000, /* past its TTL an answer serves so long without being waited for */
    RESOLVE_NAMES = 1024       /* that are remembered; those used longest ago go first */
};

const struct resolve_options resolve_defaults = {
    .ttl_min = 5000, .ttl_max = 300000, .stale = 86400000, .try_ms = 2000, .tries = 2
};

/* --- the resolver --- */

static struct dns *new_dns(struct resolve *r, const struct resolve_options *o, const char **why)
{
    return dns_new(
        r->loop,
        &(struct dns_options){ .servers = o->servers, .try_ms = o->try_ms, .tries = o->tries },
        why);
}

/* What was under way is asked anew (on_answer). */
static void replace_dns(struct resolve *r, struct dns *fresh)
{
    struct dns *old = r->dns;
    r->dns = fresh;
    dns_free(old);
}

static void on_renew(struct deferred *d)
{
    struct resolve *r = CONTAINER(d, struct resolve, renew);
    const char *why = NULL;
    struct dns *fresh = new_dns(r, &r->options, &why);
    if (fresh != NULL)
        replace_dns(r, fresh);
}

struct resolve *resolve_new(struct loop *l, const char **why)
{
    struct resolve *r = mem_zalloc(sizeof *r);
    r->loop = l;
    r->options = resolve_defaults;
    r->renew.run = on_renew;
    r->dns = new_dns(r, &r->options, why);
    if (r->dns != NULL)
        return r;
    mem_free(r);
    return NULL;
}

static bool same_text(const char *a, const char *b)
{
    return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

int resolve_set_options(struct resolve *r, const struct resolve_options *o, const char **why)
{
    bool same = same_text(r->options.servers, o->servers) && r->options.try_ms == o->try_ms &&
                r->options.tries == o->tries;
    if (!same) {
        struct dns *fresh = new_dns(r, o, why);
        if (fresh == NULL)
            return -1;
        replace_dns(r, fresh);
    }
    char *servers = o->servers != NULL ? mem_strdup(o->servers) : NULL;
    mem_free(r->servers);
    r->servers = servers;
    r->options = *o;
    r->options.servers = servers;
    return 0;
}

static void name_free(struct name *n)
{
    struct loop *l = n->r->loop;
    loop_undefer(l, &n->tell);
    timer_deinit(l, &n->patience);
    timer_deinit(l, &n->due);
    candidates_deinit(&n->v4.found);
    candidates_deinit(&n->v6.found);
    while (n->waits != NULL) {
        struct resolve_wait *w = n->waits;
        n->waits = w->next;
        mem_free(w);
    }
    mem_free(n);
}

void resolve_free(struct resolve *r)
{
    r->closing = true;
    dns_free(r->dns);
    while (r->names != NULL) {
        struct name *n = r->names;
        r->names = n->next;
        name_free(n);
    }
    loop_undefer(r->loop, &r->renew);
    mem_free(r->servers);
    mem_free(r);
}

/* --- names --- */

static bool in_use(const struct name *n)
{
    return resolve_asked(n) || n->waits != NULL || n->holds > 0 || n->pins > 0;
}

/* Forgets the name used longest ago: plugins may ask for any number of hosts. */
static void forget_one(struct resolve *r)
{
    struct name **victim = NULL;
    for (struct name **link = &r->names; *link != NULL; link = &(*link)->next) {
        if (!in_use(*link))
            victim = link;
    }
    if (victim == NULL)
        return;
    struct name *n = *victim;
    *victim = n->next;
    r->nnames--;
    name_free(n);
}

static struct name *find(struct resolve *r, const char *host)
{
    struct name **link = &r->names;
    while (*link != NULL && strcasecmp((*link)->host, host) != 0)
        link = &(*link)->next;
    struct name *n = *link;
    if (n != NULL && n != r->names) {
        *link = n->next; /* to the front */
        n->next = r->names;
        r->names = n;
    }
    return n;
}

static struct name *name_of(struct resolve *r, const char *host)
{
    struct name *n = find(r, host);
    if (n != NULL)
        return n;
    if (r->nnames >= RESOLVE_NAMES)
        forget_one(r);
    n = mem_zalloc(sizeof *n + strlen(host) + 1);
    memcpy(n->host, host, strlen(host) + 1);
    n->r = r;
    resolve_ask_init(n);
    n->next = r->names;
    r->names = n;
    r->nnames++;
    return n;
}

/* --- for callers --- */

bool resolve_now(struct resolve *r, const char *host, int port, struct addresses *out)
{
    if (addresses_known(host, port, out))
        return true;
    struct name *n = name_of(r, host);
    uint64_t now = loop_now(r->loop);
    if (now >= n->fresh_until && now >= n->retry_at && resolve_known(n) > 0 && !resolve_asked(n))
        resolve_ask(n);
    bool serves = resolve_known(n) > 0 &&
                  (now < n->fresh_until + RESOLVE_BEHIND_MS || n->state == NAME_FAILING);
    if (!serves || !resolve_serves_stale(n))
        return false;
    resolve_fill(n, port, out);
    return true;
}

struct resolve_wait *resolve_lookup(struct resolve *r, const char *host, int port,
                                    void (*cb)(void *arg, const struct addresses *a, int err),
                                    void *arg)
{
    struct resolve_wait *w = mem_zalloc(sizeof *w);
    struct name *n = name_of(r, host);
    w->name = n;
    w->port = port;
    w->cb = cb;
    w->arg = arg;
    w->next = n->waits;
    w->link = &n->waits;
    if (w->next != NULL)
        w->next->link = &w->next;
    n->waits = w;
    uint64_t now = loop_now(r->loop);
    if (resolve_asked(n)) {
        resolve_be_patient(n);
        return w;
    }
    if (now < n->fresh_until || now < n->retry_at)
        resolve_tell_waits(n); /* known by now, or it failed a moment ago */
    else
        resolve_ask(n);
    return w;
}

void resolve_cancel(struct resolve_wait *w)
{
    resolve_wait_unlink(w);
    mem_free(w);
}

void resolve_tell(struct resolve *r, const char *host, const struct address *a, bool worked)
{
    struct ip ip = ip_of_sockaddr(&a->u.sa);
    struct name *n = a->path[0] == '\0' ? find(r, host) : NULL;
    struct candidate *c = NULL;
    if (n != NULL)
        c = candidates_find(ip.size == 4 ? &n->v4.found : &n->v6.found, &ip);
    if (c == NULL)
        return;
    if (worked)
        candidate_worked(c);
    else
        candidate_failed(c, loop_now(r->loop));
}

struct resolve_hold *resolve_hold(struct resolve *r, const char *host)
{
    struct addresses none;
    if (addresses_known(host, 0, &none))
        return NULL;
    struct name *n = name_of(r, host);
    if (n->holds++ == 0)
        resolve_set_due(n);
    return (struct resolve_hold *)n;
}

void resolve_unhold(struct resolve_hold *h)
{
    struct name *n = (struct name *)h;
    if (n != NULL && --n->holds == 0)
        timer_stop(&n->due);
}

bool resolve_has(const struct resolve_hold *h, const struct ip *ip)
{
    const struct name *n = (const struct name *)h;
    if (n == NULL || n->state == NAME_UNKNOWN)
        return true;
    return candidates_find(ip->size == 4 ? &n->v4.found : &n->v6.found, ip) != NULL;
}

void resolve_watch(struct resolve *r, void (*on_gone)(void *arg, const char *host), void *arg)
{
    r->on_gone = on_gone;
    r->gone_arg = arg;
}
