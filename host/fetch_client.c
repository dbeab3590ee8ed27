/* See fetch.h. The pool frees an origin with the last reference to it, and its idle connections
 * with it. What plugins fetch from is held by nobody between two requests, so the client does that:
 * it keeps a reference to each of the FETCH_ORIGINS origins used last. How long a connection stays
 * idle is the pool's affair. */
#include "fetch_internal.h"
#include "mem.h"

struct fetch_client {
    struct loop *loop;
    struct upstream *upstream;
    struct fetch *fetches;
    struct origin *kept[FETCH_ORIGINS]; /* the one used last is at the end */
    uint32_t nkept;
    bool stopped;
};

struct fetch_client *fetch_client_new(struct loop *l, struct upstream *u)
{
    struct fetch_client *c = mem_zalloc(sizeof *c);
    c->loop = l;
    c->upstream = u;
    return c;
}

void fetch_client_stop(struct fetch_client *c)
{
    c->stopped = true;
    while (c->fetches != NULL) {
        struct fetch *f = c->fetches;
        fetch_client_remove(f);
        fetch_fail(f, FETCH_CLOSED, "the gateway stops");
        fetch_report(f);
    }
}

void fetch_client_free(struct fetch_client *c)
{
    c->stopped = true;
    while (c->fetches != NULL) {
        struct fetch *f = c->fetches;
        fetch_unawait(f);
        fetch_client_remove(f);
        fetch_fail(f, FETCH_CLOSED, "the gateway stops");
    }
    for (uint32_t i = 0; i < c->nkept; i++)
        origin_release(c->kept[i]);
    mem_free(c);
}

struct loop *fetch_loop(const struct fetch *f)
{
    return f->client->loop;
}

bool fetch_client_add(struct fetch *f)
{
    struct fetch_client *c = f->client;
    if (c->stopped)
        return false;
    f->next = c->fetches;
    f->link = &c->fetches;
    if (f->next != NULL)
        f->next->link = &f->next;
    c->fetches = f;
    return true;
}

void fetch_client_remove(struct fetch *f)
{
    if (f->link == NULL)
        return;
    *f->link = f->next;
    if (f->next != NULL)
        f->next->link = f->link;
    f->link = NULL;
}

struct origin *fetch_client_origin(struct fetch_client *c, const struct url *url,
                                   const struct tls_remote *tls)
{
    return upstream_origin(c->upstream, url, tls);
}

/* Takes the origin at i out of the list. */
static struct origin *take(struct fetch_client *c, uint32_t i)
{
    struct origin *o = c->kept[i];
    c->nkept--;
    memmove(&c->kept[i], &c->kept[i + 1], (c->nkept - i) * sizeof c->kept[0]);
    return o;
}

void fetch_client_keep(struct fetch_client *c, struct origin *o)
{
    uint32_t i = 0;
    while (i < c->nkept && c->kept[i] != o)
        i++;
    if (i < c->nkept)
        origin_release(take(c, i)); /* one reference is enough */
    else if (c->nkept == FETCH_ORIGINS)
        origin_release(take(c, 0));
    c->kept[c->nkept++] = o;
}
