/* See resolve.h. c-ares tells which sockets it waits for; each gets a uv_poll handle. A timer
 * drives its retries while look-ups are in flight. */
#include "resolve.h"

#include <ares.h>
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>

#include "container.h"
#include "log.h"
#include "mem.h"

enum {
    RESOLVE_TRY_MS = 2000,
    RESOLVE_TRIES = 2,
    RESOLVE_TICK_MS = 250,
    RESOLVE_TTL_MIN_S = 5,
    RESOLVE_TTL_MAX_S = 300,
    RESOLVE_RETRY_S = 1, /* after a failed look-up */
    RESOLVE_MAX_ADDRESSES = 8,
    RESOLVE_NAMES = 1024 /* that are remembered; those used longest ago go first */
};

struct resolve_wait {
    struct resolve_wait *next, **link;
    struct name *name; /* NULL while it is only deferred */
    struct deferred later;
    struct resolve *r;
    int port;
    int err;
    void (*cb)(void *arg, const struct address *address, int err);
    void *arg;
};

struct name {
    struct name *next;
    struct resolve *r;
    struct address addresses[RESOLVE_MAX_ADDRESSES];
    int n; /* 0: never found */
    uint64_t fresh_until, retry_at;
    bool in_flight;
    uint32_t deferred; /* waits that know their answer and hear of it later */
    struct resolve_wait *waits;
    char host[];
};

struct watch {
    uv_poll_t poll;
    struct watch *next;
    struct resolve *r;
    ares_socket_t fd;
};

struct resolve {
    struct loop *loop;
    ares_channel channel;
    struct name *names; /* the one used last is first */
    uint32_t nnames;
    struct watch *watches;
    struct resolve_wait *deferred;
    struct timer tick;
    int in_flight;
};

/* --- c-ares on the loop --- */

static void on_poll(uv_poll_t *h, int status, int events)
{
    struct watch *w = h->data;
    ares_socket_t in = (events & UV_READABLE) || status < 0 ? w->fd : ARES_SOCKET_BAD;
    ares_socket_t out = (events & UV_WRITABLE) || status < 0 ? w->fd : ARES_SOCKET_BAD;
    ares_process_fd(w->r->channel, in, out);
}

static void on_watch_closed(uv_handle_t *h)
{
    mem_free(h->data);
}

static void on_socket_state(void *arg, ares_socket_t fd, int readable, int writable)
{
    struct resolve *r = arg;
    struct watch **link = &r->watches;
    while (*link != NULL && (*link)->fd != fd)
        link = &(*link)->next;
    struct watch *w = *link;
    if (!readable && !writable) {
        if (w != NULL) {
            *link = w->next;
            uv_poll_stop(&w->poll);
            uv_close((uv_handle_t *)&w->poll, on_watch_closed);
        }
        return;
    }
    if (w == NULL) {
        w = mem_zalloc(sizeof *w);
        w->r = r;
        w->fd = fd;
        uv_poll_init_socket(&r->loop->uv, &w->poll, fd);
        w->poll.data = w;
        w->next = r->watches;
        r->watches = w;
    }
    uv_poll_start(&w->poll, (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0), on_poll);
}

static void on_tick(struct timer *t)
{
    struct resolve *r = CONTAINER(t, struct resolve, tick);
    ares_process_fd(r->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    if (r->in_flight > 0)
        timer_set(r->loop, t, RESOLVE_TICK_MS);
}

struct resolve *resolve_new(struct loop *l, const char **why)
{
    struct resolve *r = mem_zalloc(sizeof *r);
    struct ares_options o = { .timeout = RESOLVE_TRY_MS,
                              .tries = RESOLVE_TRIES,
                              .lookups = (char[]){ "fb" },
                              .sock_state_cb = on_socket_state,
                              .sock_state_cb_data = r };
    r->loop = l;
    r->tick.cb = on_tick;
    int err = ares_library_init(ARES_LIB_INIT_ALL);
    if (err == ARES_SUCCESS)
        err = ares_init_options(&r->channel, &o,
                                ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS |
                                    ARES_OPT_SOCK_STATE_CB);
    if (err != ARES_SUCCESS) {
        *why = ares_strerror(err);
        mem_free(r);
        return NULL;
    }
    return r;
}

static void wait_unlink(struct resolve_wait *w)
{
    *w->link = w->next;
    if (w->next != NULL)
        w->next->link = w->link;
}

static void wait_link(struct resolve_wait *w, struct resolve_wait **list)
{
    w->next = *list;
    if (w->next != NULL)
        w->next->link = &w->next;
    w->link = list;
    *list = w;
}

static void waits_drop(struct resolve_wait *w)
{
    while (w != NULL) {
        struct resolve_wait *next = w->next;
        loop_undefer(w->r->loop, &w->later);
        mem_free(w);
        w = next;
    }
}

void resolve_free(struct resolve *r)
{
    for (struct name *n = r->names; n != NULL; n = n->next) {
        waits_drop(n->waits);
        n->waits = NULL;
    }
    waits_drop(r->deferred);
    ares_destroy(r->channel); /* look-ups in flight end with ARES_EDESTRUCTION */
    ares_library_cleanup();
    while (r->names != NULL) {
        struct name *n = r->names;
        r->names = n->next;
        mem_free(n);
    }
    timer_deinit(r->loop, &r->tick);
    mem_free(r);
}

/* --- names --- */

static int error_of(int status)
{
    switch (status) {
    case ARES_ENOTFOUND:
    case ARES_ENODATA:
    case ARES_EBADNAME: return UV_EAI_NONAME;
    case ARES_ETIMEOUT: return UV_ETIMEDOUT;
    default: return UV_EAI_AGAIN;
    }
}

static void set_port(struct address *a, int port)
{
    if (a->u.sa.sa_family == AF_INET6)
        a->u.in6.sin6_port = htons((uint16_t)port);
    else
        a->u.in.sin_port = htons((uint16_t)port);
}

/* Takes the addresses, IPv4 first: an origin on a host without IPv6 routes is the common case. */
static void take_addresses(struct name *n, const struct ares_addrinfo *info)
{
    int ttl = RESOLVE_TTL_MAX_S, count = 0;
    static const int families[] = { AF_INET, AF_INET6 };
    for (int f = 0; f < 2; f++) {
        for (const struct ares_addrinfo_node *a = info->nodes; a != NULL; a = a->ai_next) {
            if (a->ai_family != families[f] || count == RESOLVE_MAX_ADDRESSES)
                continue;
            struct address *out = &n->addresses[count++];
            memset(out, 0, sizeof *out);
            memcpy(&out->u, a->ai_addr, a->ai_addrlen);
            if (a->ai_ttl < ttl)
                ttl = a->ai_ttl;
        }
    }
    if (count == 0)
        return;
    n->n = count;
    if (ttl < RESOLVE_TTL_MIN_S)
        ttl = RESOLVE_TTL_MIN_S;
    n->fresh_until = loop_now(n->r->loop) + (uint64_t)ttl * 1000;
}

static void on_answer(void *arg, int status, int timeouts, struct ares_addrinfo *info)
{
    struct name *n = arg;
    struct resolve *r = n->r;
    (void)timeouts;
    r->in_flight--;
    if (status == ARES_EDESTRUCTION)
        return;
    if (status == ARES_SUCCESS) {
        take_addresses(n, info);
        ares_freeaddrinfo(info);
    } else {
        n->retry_at = loop_now(r->loop) + RESOLVE_RETRY_S * 1000;
        log_warn("resolve: %s: %s%s", n->host, ares_strerror(status),
                 n->n > 0 ? "; the last known address stays in use" : "");
    }
    while (n->waits != NULL) {
        struct resolve_wait *w = n->waits;
        wait_unlink(w);
        w->name = NULL;
        w->err = n->n > 0 ? 0 : status == ARES_SUCCESS ? UV_EAI_NONAME : error_of(status);
        struct address a = n->addresses[0];
        if (w->err == 0)
            set_port(&a, w->port);
        w->cb(w->arg, w->err == 0 ? &a : NULL, w->err);
        mem_free(w);
    }
    n->in_flight = false; /* only now: a callback must not make it forgotten */
}

/* Forgets the name used longest ago that nobody waits for: plugins may ask for any number of hosts.
 */
static void forget_one(struct resolve *r)
{
    struct name **victim = NULL;
    for (struct name **link = &r->names; *link != NULL; link = &(*link)->next) {
        if (!(*link)->in_flight && (*link)->waits == NULL && (*link)->deferred == 0)
            victim = link;
    }
    if (victim == NULL)
        return;
    struct name *n = *victim;
    *victim = n->next;
    r->nnames--;
    mem_free(n);
}

static struct name *name_of(struct resolve *r, const char *host)
{
    struct name **link = &r->names;
    while (*link != NULL && strcasecmp((*link)->host, host) != 0)
        link = &(*link)->next;
    struct name *n = *link;
    if (n != NULL) {
        *link = n->next; /* to the front */
    } else {
        if (r->nnames >= RESOLVE_NAMES)
            forget_one(r);
        n = mem_zalloc(sizeof *n + strlen(host) + 1);
        memcpy(n->host, host, strlen(host) + 1);
        n->r = r;
        r->nnames++;
    }
    n->next = r->names;
    r->names = n;
    return n;
}

static void refresh(struct name *n)
{
    struct resolve *r = n->r;
    struct ares_addrinfo_hints hints = { .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM };
    n->in_flight = true;
    r->in_flight++;
    timer_set(r->loop, &r->tick, RESOLVE_TICK_MS);
    ares_getaddrinfo(r->channel, n->host, NULL, &hints, on_answer, n); /* may answer at once */
}

bool resolve_now(struct resolve *r, const char *host, int port, struct address *out)
{
    if (strcasecmp(host, "localhost") == 0)
        host = "127.0.0.1"; /* RFC 6761, section 6.3 */
    if (address_of_ip(host, port, out) == 0)
        return true;
    struct name *n = name_of(r, host);
    uint64_t now = loop_now(r->loop);
    if (n->n == 0)
        return false;
    if (now >= n->fresh_until && now >= n->retry_at && !n->in_flight)
        refresh(n);
    *out = n->addresses[0];
    set_port(out, port);
    return true;
}

static void on_wait_later(struct deferred *d)
{
    struct resolve_wait *w = CONTAINER(d, struct resolve_wait, later);
    struct address a;
    wait_unlink(w);
    w->name->deferred--;
    if (w->err == 0 && w->name->n > 0) {
        a = w->name->addresses[0];
        set_port(&a, w->port);
    }
    w->cb(w->arg, w->err == 0 ? &a : NULL, w->err);
    mem_free(w);
}

struct resolve_wait *resolve_lookup(struct resolve *r, const char *host, int port,
                                    void (*cb)(void *arg, const struct address *address, int err),
                                    void *arg)
{
    struct resolve_wait *w = mem_zalloc(sizeof *w);
    struct name *n = name_of(r, host);
    w->r = r;
    w->port = port;
    w->cb = cb;
    w->arg = arg;
    w->name = n;
    w->later.run = on_wait_later;
    if (!n->in_flight && loop_now(r->loop) < n->retry_at) {
        w->err = UV_EAI_NONAME; /* it failed a moment ago */
        n->deferred++;
        wait_link(w, &r->deferred);
        loop_defer(r->loop, &w->later, LOOP_COLLECT);
        return w;
    }
    if (!n->in_flight)
        refresh(n);
    if (n->in_flight) {
        wait_link(w, &n->waits);
        return w;
    }
    /* Answered at once (a hosts file): the caller still hears of it later. */
    w->err = n->n > 0 ? 0 : UV_EAI_NONAME;
    n->deferred++;
    wait_link(w, &r->deferred);
    loop_defer(r->loop, &w->later, LOOP_COLLECT);
    return w;
}

void resolve_cancel(struct resolve_wait *w)
{
    wait_unlink(w);
    if (w->later.link != NULL)
        w->name->deferred--;
    loop_undefer(w->r->loop, &w->later);
    mem_free(w);
}
