/* See route.h. */
#include "route.h"

#include "mem.h"

struct entry {
    struct entry *next;
    const struct route *route;
    struct slice path;
    bool prefix;
    uint32_t hash;
};

struct routes {
    struct entry **slots;
    uint32_t nslots, n; /* nslots is a power of two */
};

static uint32_t hash_of(struct slice path, bool prefix)
{
    uint32_t h = prefix ? 0x9e3779b9u : 0x811c9dc5u; /* FNV-1a */
    for (size_t i = 0; i < path.n; i++)
        h = (h ^ (unsigned char)path.p[i]) * 16777619u;
    return h;
}

struct routes *routes_new(void)
{
    struct routes *t = mem_zalloc(sizeof *t);
    t->nslots = 16;
    t->slots = mem_zalloc(t->nslots * sizeof *t->slots);
    return t;
}

void routes_free(struct routes *t)
{
    for (uint32_t i = 0; i < t->nslots; i++) {
        while (t->slots[i] != NULL) {
            struct entry *e = t->slots[i];
            t->slots[i] = e->next;
            mem_free(e);
        }
    }
    mem_free(t->slots);
    mem_free(t);
}

static void insert(struct routes *t, struct entry *e)
{
    struct entry **slot = &t->slots[e->hash & (t->nslots - 1)];
    e->next = *slot;
    *slot = e;
}

static void grow(struct routes *t)
{
    struct entry **old = t->slots;
    uint32_t nold = t->nslots;
    t->nslots *= 2;
    t->slots = mem_zalloc(t->nslots * sizeof *t->slots);
    for (uint32_t i = 0; i < nold; i++) {
        for (struct entry *e = old[i], *next; e != NULL; e = next) {
            next = e->next;
            insert(t, e);
        }
    }
    mem_free(old);
}

void routes_add(struct routes *t, const struct route *route, struct slice path, bool is_prefix)
{
    struct entry *e = mem_zalloc(sizeof *e);
    e->route = route;
    e->path = path;
    e->prefix = is_prefix;
    e->hash = hash_of(path, is_prefix);
    if (++t->n > t->nslots)
        grow(t);
    insert(t, e);
}

/* Without its port, which routes do not look at. */
static struct slice host_of(struct slice authority)
{
    size_t n = authority.n;
    for (size_t i = n; i > 0 && authority.p[i - 1] != ']'; i--) {
        if (authority.p[i - 1] == ':')
            n = i - 1;
    }
    return (struct slice){ authority.p, n };
}

/* -1: no match; else the greater the more specific. */
static int host_rank(const struct route *r, struct slice host)
{
    int best = r->nhosts == 0 ? 0 : -1;
    for (uint32_t i = 0; i < r->nhosts; i++) {
        struct slice want = slice_of(r->hosts[i]);
        if (want.p[0] != '.') {
            if (slice_ieq(want, host))
                return 100000;
        } else if (host.n > want.n) {
            struct slice end = { host.p + host.n - want.n, want.n };
            if (slice_ieq(end, want) && (int)want.n > best)
                best = (int)want.n;
        }
    }
    return best;
}

static bool method_fits(const struct route *r, struct slice method)
{
    for (uint32_t i = 0; i < r->nmethods; i++) {
        if (slice_eq(slice_of(r->methods[i]), method))
            return true;
    }
    return r->nmethods == 0;
}

static bool headers_fit(const struct route *r, const struct headers *h)
{
    for (uint32_t i = 0; i < r->nrequired; i++) {
        struct slice v = headers_get(h, r->required[i].name);
        if (v.p == NULL || (r->required[i].value.p != NULL && !slice_eq(v, r->required[i].value)))
            return false;
    }
    return true;
}

struct search {
    const struct request *req;
    struct slice host, method;
    bool preflight; /* looks only at routes that answer preflights */
    struct route_match match;
    int host_rank;
    bool exact;
    struct buf *allow; /* collects methods instead of deciding */
};

static bool better(const struct search *s, const struct entry *e, int rank)
{
    const struct route *best = s->match.route;
    if (best == NULL || rank != s->host_rank)
        return best == NULL || rank > s->host_rank;
    if (s->exact != !e->prefix)
        return !e->prefix;
    if (s->match.prefix != e->path.n)
        return e->path.n > s->match.prefix;
    if (best->nrequired != e->route->nrequired)
        return e->route->nrequired > best->nrequired;
    return e->route->order < best->order;
}

static bool listed(const struct buf *list, struct slice method)
{
    struct slice rest = buf_slice(list), member;
    while (header_list_next(&rest, &member)) {
        if (slice_eq(member, method))
            return true;
    }
    return false;
}

static void add_methods(struct buf *out, const struct route *r)
{
    for (uint32_t i = 0; i < r->nmethods; i++) {
        if (listed(out, slice_of(r->methods[i])))
            continue;
        if (out->n > 0)
            buf_add_text(out, ", ");
        buf_add_text(out, r->methods[i]);
    }
}

static void consider(struct search *s, const struct entry *e)
{
    int rank = host_rank(e->route, s->host);
    if (rank < 0 || !headers_fit(e->route, &s->req->headers))
        return;
    if (s->allow != NULL) {
        add_methods(s->allow, e->route);
        return;
    }
    if (s->preflight && !e->route->preflight)
        return;
    if (!method_fits(e->route, s->method)) {
        s->match.method_mismatch = true;
        return;
    }
    if (!better(s, e, rank))
        return;
    s->match.route = e->route;
    s->match.prefix = e->path.n;
    s->host_rank = rank;
    s->exact = !e->prefix;
}

static void look(const struct routes *t, struct search *s, struct slice path, bool prefix)
{
    uint32_t h = hash_of(path, prefix);
    for (const struct entry *e = t->slots[h & (t->nslots - 1)]; e != NULL; e = e->next) {
        if (e->hash == h && e->prefix == prefix && slice_eq(e->path, path))
            consider(s, e);
    }
}

static void search_run(const struct routes *t, struct search *s)
{
    struct slice path = s->req->path;
    s->host = host_of(s->req->authority);
    look(t, s, path, false);
    for (size_t n = path.n; n > 0; n--) {
        if (path.p[n - 1] == '/')
            look(t, s, (struct slice){ path.p, n }, true);
    }
}

struct route_match routes_match(const struct routes *t, const struct request *req)
{
    struct search s = { .req = req, .method = req->method };
    search_run(t, &s);
    if (s.match.route != NULL || !s.match.method_mismatch ||
        !slice_eq(req->method, SLICE("OPTIONS")))
        return s.match;
    /* A preflight asks for the route of the method that is to follow it (Fetch standard,
     * section 3.2.2). */
    struct search p = { .req = req,
                        .preflight = true,
                        .method =
                            headers_get(&req->headers, SLICE("access-control-request-method")) };
    if (p.method.p != NULL)
        search_run(t, &p);
    return p.match.route != NULL ? p.match : s.match;
}

struct slice routes_allow(const struct routes *t, const struct request *req, struct arena *a)
{
    struct buf methods;
    buf_init(&methods);
    struct search s = { .req = req, .allow = &methods };
    search_run(t, &s);
    struct slice out = arena_dup(a, buf_slice(&methods));
    buf_deinit(&methods);
    return out;
}
