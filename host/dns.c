/* See dns.h. c-ares tells which sockets it waits for; each gets a uv_poll handle. A timer drives
 * its retries while questions are under way.
 *
 * The families are asked for one by one, so that an answer of one is not kept back by a server that
 * drops questions for the other; so the hosts file is read here, too: where it knows a name in one
 * family, the other must not be asked for. */
#include "dns.h"

#include <ares.h>
#include <netdb.h>
#include <sys/stat.h>

#include "container.h"
#include "mem.h"

enum { DNS_TICK_MS = 50 };

#define RESOLV_CONF "/etc/resolv.conf"

struct watch {
    uv_poll_t poll;
    struct watch *next;
    struct dns *d;
    ares_socket_t fd;
};

struct dns {
    struct loop *loop;
    ares_channel channel;
    struct watch *watches;
    struct timer tick;
    int in_flight;
    bool system; /* its servers are the system's */
    struct timespec changed;
};

/* --- c-ares on the loop --- */

static void on_poll(uv_poll_t *h, int status, int events)
{
    struct watch *w = h->data;
    ares_socket_t in = (events & UV_READABLE) || status < 0 ? w->fd : ARES_SOCKET_BAD;
    ares_socket_t out = (events & UV_WRITABLE) || status < 0 ? w->fd : ARES_SOCKET_BAD;
    ares_process_fd(w->d->channel, in, out);
}

static void on_watch_closed(uv_handle_t *h)
{
    mem_free(h->data);
}

static void on_socket_state(void *arg, ares_socket_t fd, int readable, int writable)
{
    struct dns *d = arg;
    struct watch **link = &d->watches;
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
        w->d = d;
        w->fd = fd;
        uv_poll_init_socket(&d->loop->uv, &w->poll, fd);
        w->poll.data = w;
        w->next = d->watches;
        d->watches = w;
    }
    uv_poll_start(&w->poll, (readable ? UV_READABLE : 0) | (writable ? UV_WRITABLE : 0), on_poll);
}

static void on_tick(struct timer *t)
{
    struct dns *d = CONTAINER(t, struct dns, tick);
    ares_process_fd(d->channel, ARES_SOCKET_BAD, ARES_SOCKET_BAD);
    if (d->in_flight > 0)
        timer_set(d->loop, t, DNS_TICK_MS);
}

static struct timespec changed_at(void)
{
    struct stat st;
    return stat(RESOLV_CONF, &st) == 0 ? st.st_mtim : (struct timespec){ 0 };
}

struct dns *dns_new(struct loop *l, const struct dns_options *o, const char **why)
{
    struct dns *d = mem_zalloc(sizeof *d);
    struct ares_options options = { .timeout = (int)o->try_ms,
                                    .tries = o->tries,
                                    .lookups = (char[]){ "b" },
                                    .sock_state_cb = on_socket_state,
                                    .sock_state_cb_data = d };
    d->loop = l;
    d->tick.cb = on_tick;
    d->system = o->servers == NULL;
    d->changed = changed_at();
    int err = ares_library_init(ARES_LIB_INIT_ALL);
    if (err != ARES_SUCCESS)
        goto fail;
    err = ares_init_options(&d->channel, &options,
                            ARES_OPT_TIMEOUTMS | ARES_OPT_TRIES | ARES_OPT_LOOKUPS |
                                ARES_OPT_SOCK_STATE_CB);
    if (err == ARES_SUCCESS && o->servers != NULL) {
        err = ares_set_servers_ports_csv(d->channel, o->servers);
        if (err != ARES_SUCCESS)
            ares_destroy(d->channel);
    }
    if (err == ARES_SUCCESS)
        return d;
    ares_library_cleanup();
fail:
    *why = ares_strerror(err);
    mem_free(d);
    return NULL;
}

void dns_free(struct dns *d)
{
    ares_destroy(d->channel);
    ares_library_cleanup();
    timer_deinit(d->loop, &d->tick);
    mem_free(d);
}

bool dns_outdated(const struct dns *d)
{
    struct timespec now = changed_at();
    return d->system && (now.tv_sec != d->changed.tv_sec || now.tv_nsec != d->changed.tv_nsec);
}

/* --- questions --- */

static void set_status(struct dns_answer *a, int status)
{
    a->why = ares_strerror(status);
    switch (status) {
    case ARES_SUCCESS: a->status = DNS_FOUND; return;
    case ARES_EDESTRUCTION: a->status = DNS_STOPPED; return;
    case ARES_ENOTFOUND:
    case ARES_ENODATA:
    case ARES_EBADNAME:
        a->status = DNS_NONE;
        a->err = UV_EAI_NONAME;
        return;
    default: a->status = DNS_FAILED; a->err = status == ARES_ETIMEOUT ? UV_ETIMEDOUT : UV_EAI_AGAIN;
    }
}

static void take(struct dns_answer *a, const struct ares_addrinfo *info, int family)
{
    a->ttl = UINT32_MAX;
    for (const struct ares_addrinfo_cname *c = info->cnames; c != NULL; c = c->next) {
        if (c->ttl >= 0 && (uint32_t)c->ttl < a->ttl)
            a->ttl = (uint32_t)c->ttl;
    }
    for (const struct ares_addrinfo_node *n = info->nodes; n != NULL; n = n->ai_next) {
        if (n->ai_family != family || a->n == DNS_MAX)
            continue;
        a->v[a->n++] = ip_of_sockaddr(n->ai_addr);
        if (n->ai_ttl >= 0 && (uint32_t)n->ai_ttl < a->ttl)
            a->ttl = (uint32_t)n->ai_ttl;
    }
    if (a->n == 0)
        set_status(a, ARES_ENODATA);
}

static void on_answer(void *arg, int status, int timeouts, struct ares_addrinfo *info)
{
    struct dns_query *q = arg;
    struct dns_answer a;
    (void)timeouts;
    memset(&a, 0, offsetof(struct dns_answer, v));
    q->d->in_flight--;
    set_status(&a, status);
    if (status == ARES_SUCCESS) {
        take(&a, info, q->family);
        ares_freeaddrinfo(info);
    }
    q->cb(q, &a);
}

void dns_ask(struct dns *d, const char *host, int family, struct dns_query *q)
{
    struct ares_addrinfo_hints hints = { .ai_family = family, .ai_socktype = SOCK_STREAM };
    q->d = d;
    q->family = family;
    d->in_flight++;
    if (d->tick.at == 0) /* not later, however many are asked */
        timer_set(d->loop, &d->tick, DNS_TICK_MS);
    ares_getaddrinfo(d->channel, host, NULL, &hints, on_answer, q);
}

bool dns_hosts(struct dns *d, const char *host, int family, struct dns_answer *out)
{
    struct hostent *h = NULL;
    uint8_t size = family == AF_INET ? 4 : 16;
    memset(out, 0, offsetof(struct dns_answer, v));
    int err = ares_gethostbyname_file(d->channel, host, family, &h);
    if (err == ARES_SUCCESS) {
        for (char **a = h->h_addr_list; *a != NULL && out->n < DNS_MAX; a++)
            out->v[out->n++] = ip_of_bytes(*a, size);
        ares_free_hostent(h);
    }
    set_status(out, out->n > 0 ? ARES_SUCCESS : ARES_ENODATA);
    return out->n > 0;
}
