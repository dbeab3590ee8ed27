/* See headers.h. Fields are few, so a look-up walks the list and compares ids, names only where
 * the name has none. */
#include "headers.h"

#include "chars.h"

static const struct slice names[HEADER_COUNT] = {
    [HEADER_OTHER] = { "", 0 },
#define NAME(id, text) [id] = { text, sizeof(text) - 1 }
    NAME(HEADER_ACCEPT_ENCODING, "accept-encoding"),
    NAME(HEADER_AUTHORIZATION, "authorization"),
    NAME(HEADER_CACHE_STATUS, "cache-status"),
    NAME(HEADER_CONNECTION, "connection"),
    NAME(HEADER_CONTENT_ENCODING, "content-encoding"),
    NAME(HEADER_CONTENT_LENGTH, "content-length"),
    NAME(HEADER_CONTENT_TYPE, "content-type"),
    NAME(HEADER_DATE, "date"),
    NAME(HEADER_EXPECT, "expect"),
    NAME(HEADER_FORWARDED, "forwarded"),
    NAME(HEADER_HOST, "host"),
    NAME(HEADER_KEEP_ALIVE, "keep-alive"),
    NAME(HEADER_PROXY_AUTHENTICATE, "proxy-authenticate"),
    NAME(HEADER_PROXY_AUTHORIZATION, "proxy-authorization"),
    NAME(HEADER_PROXY_CONNECTION, "proxy-connection"),
    NAME(HEADER_RETRY_AFTER, "retry-after"),
    NAME(HEADER_SERVER, "server"),
    NAME(HEADER_TE, "te"),
    NAME(HEADER_TRACEPARENT, "traceparent"),
    NAME(HEADER_TRACESTATE, "tracestate"),
    NAME(HEADER_TRAILER, "trailer"),
    NAME(HEADER_TRANSFER_ENCODING, "transfer-encoding"),
    NAME(HEADER_UPGRADE, "upgrade"),
    NAME(HEADER_VIA, "via"),
    NAME(HEADER_X_API_KEY, "x-api-key"),
    NAME(HEADER_X_FORWARDED_FOR, "x-forwarded-for"),
    NAME(HEADER_X_FORWARDED_HOST, "x-forwarded-host"),
    NAME(HEADER_X_FORWARDED_PROTO, "x-forwarded-proto"),
    NAME(HEADER_X_REQUEST_ID, "x-request-id"),
#undef NAME
};

/* A name's length leaves at most three that it may be. */
static const unsigned char by_length[][3] = {
    [2] = { HEADER_TE },
    [3] = { HEADER_VIA },
    [4] = { HEADER_HOST, HEADER_DATE },
    [6] = { HEADER_EXPECT, HEADER_SERVER },
    [7] = { HEADER_UPGRADE, HEADER_TRAILER },
    [9] = { HEADER_X_API_KEY, HEADER_FORWARDED },
    [10] = { HEADER_CONNECTION, HEADER_KEEP_ALIVE, HEADER_TRACESTATE },
    [11] = { HEADER_RETRY_AFTER, HEADER_TRACEPARENT },
    [12] = { HEADER_CONTENT_TYPE, HEADER_X_REQUEST_ID, HEADER_CACHE_STATUS },
    [13] = { HEADER_AUTHORIZATION },
    [14] = { HEADER_CONTENT_LENGTH },
    [15] = { HEADER_ACCEPT_ENCODING, HEADER_X_FORWARDED_FOR },
    [16] = { HEADER_CONTENT_ENCODING, HEADER_X_FORWARDED_HOST, HEADER_PROXY_CONNECTION },
    [17] = { HEADER_TRANSFER_ENCODING, HEADER_X_FORWARDED_PROTO },
    [18] = { HEADER_PROXY_AUTHENTICATE },
    [19] = { HEADER_PROXY_AUTHORIZATION },
};

/* The first eight bytes, or the n that there are. */
static uint64_t load(const char *p, size_t n)
{
    uint64_t w = 0;
    uint32_t low, high;
    if (n >= 8) {
        memcpy(&w, p, 8);
    } else if (n >= 4) { /* twice four; some bytes stand in both */
        memcpy(&low, p, 4);
        memcpy(&high, p + n - 4, 4);
        w = (uint64_t)high << 32 | low;
    } else {
        for (size_t i = 0; i < n; i++)
            w = w << 8 | (unsigned char)p[i];
    }
    return w;
}

/* Equal but for case. `known` is of lower-case letters and '-': only where it has a letter, which
 * 0x40 marks, may the name differ, in 0x20. */
static bool same_word(uint64_t name, uint64_t known)
{
    uint64_t differ = name ^ known, bit = 0x2020202020202020u;
    return ((differ & ~bit) | (differ << 1 & ~known & bit << 1)) == 0;
}

/* Whether a name is a known one of the same length; eight bytes at a time, the last ones twice. */
static bool is_known(const char *name, const char *known, size_t n)
{
    if (n < 8)
        return same_word(load(name, n), load(known, n));
    for (size_t at = 0; at + 8 < n; at += 8)
        if (!same_word(load(name + at, 8), load(known + at, 8)))
            return false;
    return same_word(load(name + n - 8, 8), load(known + n - 8, 8));
}

enum header_id header_id(struct slice name)
{
    if (name.n >= sizeof by_length / sizeof *by_length)
        return HEADER_OTHER;
    const unsigned char *may_be = by_length[name.n];
    for (int i = 0; i < 3 && may_be[i] != HEADER_OTHER; i++)
        if (is_known(name.p, names[may_be[i]].p, name.n))
            return may_be[i];
    return HEADER_OTHER;
}

static bool all_of(struct slice s, unsigned class)
{
    for (size_t i = 0; i < s.n; i++)
        if (!char_is(s.p[i], class))
            return false;
    return true;
}

bool header_name_valid(struct slice name)
{
    return name.n > 0 && all_of(name, CHAR_TOKEN);
}

bool header_value_valid(struct slice value)
{
    return all_of(value, CHAR_VALUE);
}

bool header_list_next(struct slice *rest, struct slice *member)
{
    while (rest->n > 0) {
        const char *comma = memchr(rest->p, ',', rest->n);
        size_t n = comma == NULL ? rest->n : (size_t)(comma - rest->p);
        size_t skip = comma == NULL ? n : n + 1;
        *member = slice_trim((struct slice){ rest->p, n });
        rest->p += skip;
        rest->n -= skip;
        if (member->n > 0)
            return true;
    }
    return false;
}

void headers_init(struct headers *h, struct arena *arena)
{
    *h = (struct headers){ .arena = arena };
}

void headers_reserve(struct headers *h, uint32_t n)
{
    if (n <= h->cap)
        return;
    struct header *v = arena_alloc(h->arena, n * sizeof *v);
    if (h->n > 0)
        memcpy(v, h->v, h->n * sizeof *v);
    h->v = v;
    h->cap = n;
}

void headers_add(struct headers *h, struct slice name, struct slice value)
{
    if (h->n == h->cap)
        headers_reserve(h, h->cap == 0 ? 16 : h->cap * 2);
    h->v[h->n++] = (struct header){ name, value, header_id(name) };
}

static bool is(const struct header *f, enum header_id id, struct slice name)
{
    return f->id == id && (id != HEADER_OTHER || slice_ieq(f->name, name));
}

static int find(const struct headers *h, enum header_id id, struct slice name, uint32_t from)
{
    for (uint32_t i = from; i < h->n; i++)
        if (is(&h->v[i], id, name))
            return (int)i;
    return -1;
}

int headers_find(const struct headers *h, struct slice name, uint32_t from)
{
    return find(h, header_id(name), name, from);
}

struct slice headers_get(const struct headers *h, struct slice name)
{
    int i = headers_find(h, name, 0);
    return i < 0 ? (struct slice){ NULL, 0 } : h->v[i].value;
}

struct slice headers_get_id(const struct headers *h, enum header_id id)
{
    int i = find(h, id, (struct slice){ NULL, 0 }, 0);
    return i < 0 ? (struct slice){ NULL, 0 } : h->v[i].value;
}

static int remove_from(struct headers *h, enum header_id id, struct slice name, uint32_t from)
{
    int first = find(h, id, name, from);
    if (first < 0) /* as mostly */
        return 0;
    uint32_t kept = (uint32_t)first;
    for (uint32_t i = kept + 1; i < h->n; i++)
        if (!is(&h->v[i], id, name))
            h->v[kept++] = h->v[i];
    int removed = (int)(h->n - kept);
    h->n = kept;
    return removed;
}

void headers_set(struct headers *h, struct slice name, struct slice value)
{
    enum header_id id = header_id(name);
    int i = find(h, id, name, 0);
    if (i < 0) {
        headers_add(h, name, value);
        return;
    }
    h->v[i] = (struct header){ name, value, id };
    remove_from(h, id, name, (uint32_t)i + 1);
}

int headers_remove(struct headers *h, struct slice name)
{
    return remove_from(h, header_id(name), name, 0);
}

int headers_remove_id(struct headers *h, enum header_id id)
{
    return remove_from(h, id, (struct slice){ NULL, 0 }, 0);
}

void headers_remove_at(struct headers *h, uint32_t i)
{
    h->n--;
    memmove(&h->v[i], &h->v[i + 1], (h->n - i) * sizeof *h->v);
}

bool headers_has_token(const struct headers *h, enum header_id id, struct slice token)
{
    for (uint32_t i = 0; i < h->n; i++) {
        if (h->v[i].id != id)
            continue;
        struct slice rest = h->v[i].value, member;
        while (header_list_next(&rest, &member))
            if (slice_ieq(member, token))
                return true;
    }
    return false;
}

static bool hop_by_hop(const struct headers *h, const struct header *f)
{
    switch (f->id) {
    case HEADER_CONNECTION:
    case HEADER_KEEP_ALIVE:
    case HEADER_PROXY_AUTHENTICATE:
    case HEADER_PROXY_AUTHORIZATION:
    case HEADER_PROXY_CONNECTION:
    case HEADER_TE:
    case HEADER_TRAILER:
    case HEADER_TRANSFER_ENCODING:
    case HEADER_UPGRADE: return true;
    case HEADER_OTHER: break;
    default: return false;
    }
    struct slice prefix = SLICE("x-forwarded-");
    if (f->name.n >= prefix.n && slice_ieq((struct slice){ f->name.p, prefix.n }, prefix))
        return false;
    return headers_has_token(h, HEADER_CONNECTION, f->name);
}

void headers_remove_hop_by_hop(struct headers *h)
{
    /* What Connection names goes first, while Connection is still there to be read. */
    bool *drop = arena_zalloc(h->arena, h->n);
    for (uint32_t i = 0; i < h->n; i++)
        drop[i] = hop_by_hop(h, &h->v[i]);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < h->n; i++)
        if (!drop[i])
            h->v[kept++] = h->v[i];
    h->n = kept;
}
