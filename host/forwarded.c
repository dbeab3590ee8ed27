/* See forwarded.h. Both forms are read into the same list of hops, of which the last HOPS_MAX are
 * kept. What cannot be understood ends the walk: then the nearest proxy that was understood stands
 * for the client. */
#include "forwarded.h"

#include "chars.h"
#include "url.h"

enum { HOPS_MAX = 32 };

struct hop {
    struct slice node, proto, host; /* node.p == NULL: cannot be understood */
};

struct hops {
    uint32_t n; /* all that came */
    struct hop v[HOPS_MAX];
};

bool trusted_has(const struct trusted *t, const struct ip *peer)
{
    if (peer->size == 0)
        return t->local;
    for (uint32_t i = 0; i < t->n; i++) {
        if (cidr_has(&t->v[i], peer))
            return true;
    }
    return false;
}

static struct hop *push(struct hops *hops)
{
    struct hop *h = &hops->v[hops->n++ % HOPS_MAX];
    *h = (struct hop){ { NULL, 0 }, { NULL, 0 }, { NULL, 0 } };
    return h;
}

/* --- nodes: "192.0.2.1", "192.0.2.1:80", "[2001:db8::1]:80", "2001:db8::1" --- */

static int port_of(struct slice text)
{
    int port = 0;
    if (text.n == 0 || text.n > 5)
        return 0;
    for (size_t i = 0; i < text.n; i++) {
        if (!char_is(text.p[i], CHAR_DIGIT))
            return 0; /* RFC 7239, section 6.3: a name for it */
        port = port * 10 + (text.p[i] - '0');
    }
    return port <= 65535 ? port : 0;
}

static bool node_of(struct slice text, struct ip *ip, int *port)
{
    struct slice rest = { NULL, 0 };
    *port = 0;
    if (text.n == 0)
        return false;
    const char *colon = memchr(text.p, ':', text.n);
    if (text.p[0] == '[') {
        const char *end = memchr(text.p, ']', text.n);
        if (end == NULL)
            return false;
        rest = (struct slice){ end + 1, (size_t)(text.p + text.n - end - 1) };
        text = (struct slice){ text.p + 1, (size_t)(end - text.p - 1) };
        if (memchr(text.p, ':', text.n) == NULL)
            return false;
    } else if (colon != NULL && colon == memrchr(text.p, ':', text.n)) {
        rest = (struct slice){ colon, (size_t)(text.p + text.n - colon) };
        text.n -= rest.n;
    }
    if (rest.n > 0 && rest.p[0] != ':')
        return false;
    if (rest.n > 0)
        *port = port_of((struct slice){ rest.p + 1, rest.n - 1 });
    return ip_parse(text, ip) == 0;
}

/* --- X-Forwarded-* --- */

/* The member of a list that belongs to the hop so many places from the right: the same place, or
 * the only or the first one where there are fewer. */
static struct slice member_of(const struct headers *h, enum header_id id, uint32_t from_right)
{
    struct slice kept[HOPS_MAX], member;
    uint32_t n = 0;
    for (uint32_t i = 0; i < h->n; i++) {
        struct slice rest = h->v[i].value;
        if (h->v[i].id != id)
            continue;
        while (header_list_next(&rest, &member))
            kept[n++ % HOPS_MAX] = member;
    }
    if (n == 0 || from_right >= HOPS_MAX)
        return (struct slice){ NULL, 0 };
    return kept[(from_right < n ? n - 1 - from_right : 0) % HOPS_MAX];
}

static void read_x(const struct headers *h, struct hops *hops)
{
    struct slice member;
    for (uint32_t i = 0; i < h->n; i++) {
        struct slice rest = h->v[i].value;
        if (h->v[i].id != HEADER_X_FORWARDED_FOR)
            continue;
        while (header_list_next(&rest, &member))
            push(hops)->node = member;
    }
}

/* --- Forwarded (RFC 7239, section 4) --- */

static void skip_spaces(struct slice *s)
{
    while (s->n > 0 && (s->p[0] == ' ' || s->p[0] == '\t')) {
        s->p++;
        s->n--;
    }
}

static bool take_char(struct slice *s, char c)
{
    if (s->n == 0 || s->p[0] != c)
        return false;
    s->p++;
    s->n--;
    return true;
}

static struct slice take_token(struct slice *s)
{
    struct slice token = { s->p, 0 };
    while (token.n < s->n && char_is(s->p[token.n], CHAR_TOKEN))
        token.n++;
    s->p += token.n;
    s->n -= token.n;
    return token;
}

/* A token, or a quoted string without its quotes; one with escapes is well formed, but no address
 * and no host. */
static bool take_value(struct slice *s, struct slice *value)
{
    bool escaped = false;
    if (!take_char(s, '"')) {
        *value = take_token(s);
        return value->n > 0;
    }
    *value = (struct slice){ s->p, 0 };
    while (s->n > 0 && s->p[0] != '"') {
        bool escape = s->p[0] == '\\' && s->n > 1;
        escaped = escaped || escape;
        s->p += escape ? 2 : 1;
        s->n -= escape ? 2 : 1;
    }
    value->n = (size_t)(s->p - value->p);
    if (escaped)
        value->n = 0;
    return take_char(s, '"');
}

static bool take_pair(struct slice *s, struct hop *hop)
{
    struct slice value, name = take_token(s);
    if (name.n == 0 || !take_char(s, '=') || !take_value(s, &value))
        return false;
    if (slice_ieq(name, SLICE("for")))
        hop->node = value;
    else if (slice_ieq(name, SLICE("proto")))
        hop->proto = value;
    else if (slice_ieq(name, SLICE("host")))
        hop->host = value;
    return true;
}

static bool take_line(struct slice s, struct hops *hops)
{
    for (skip_spaces(&s); s.n > 0; skip_spaces(&s)) {
        if (take_char(&s, ','))
            continue;
        struct hop *hop = push(hops);
        do {
            skip_spaces(&s);
            if (s.n > 0 && s.p[0] != ';' && s.p[0] != ',' && !take_pair(&s, hop))
                return false;
            skip_spaces(&s);
        } while (take_char(&s, ';'));
        if (s.n > 0 && !take_char(&s, ','))
            return false;
    }
    return true;
}

/* A line that is not well formed hides what stands before it. */
static void read_rfc7239(const struct headers *h, struct hops *hops)
{
    for (uint32_t i = 0; i < h->n; i++) {
        if (h->v[i].id == HEADER_FORWARDED && !take_line(h->v[i].value, hops))
            push(hops);
    }
}

/* --- the walk --- */

static bool credible_proto(struct slice s)
{
    return slice_ieq(s, SLICE("http")) || slice_ieq(s, SLICE("https"));
}

static bool credible_host(struct slice s)
{
    struct slice host;
    int port;
    return s.n > 0 && url_authority(s, &host, &port);
}

void forwarded_read(const struct forwarded_rules *r, const struct ip *peer, const struct headers *h,
                    struct forwarded *out)
{
    struct hops hops = { .n = 0 };
    struct hop at = { { NULL, 0 }, { NULL, 0 }, { NULL, 0 } };
    uint32_t from_right = 0;
    *out = (struct forwarded){ .trusted = trusted_has(&r->trusted, peer) };
    if (!out->trusted)
        return;
    if (r->read == FORWARDED_X)
        read_x(h, &hops);
    else
        read_rfc7239(h, &hops);
    uint32_t n = hops.n < HOPS_MAX ? hops.n : HOPS_MAX;
    for (uint32_t i = 0; i < n; i++) {
        const struct hop *hop = &hops.v[(hops.n - 1 - i) % HOPS_MAX];
        struct ip ip;
        int port;
        at = *hop;
        from_right = i;
        if (!node_of(hop->node, &ip, &port))
            break;
        out->client = ip;
        out->port = port;
        if (!trusted_has(&r->trusted, &ip))
            break;
    }
    if (r->read == FORWARDED_X) {
        at.proto = member_of(h, HEADER_X_FORWARDED_PROTO, from_right);
        at.host = member_of(h, HEADER_X_FORWARDED_HOST, from_right);
    }
    if (credible_proto(at.proto))
        out->proto = at.proto;
    if (credible_host(at.host))
        out->host = at.host;
}

/* --- for the origin --- */

/* All lines of a field as one list, and a member more (n == 0: none). */
static struct slice extended(const struct headers *h, enum header_id id, struct slice more)
{
    struct slice all = { NULL, 0 };
    for (uint32_t i = 0; i < h->n; i++) {
        struct slice v = h->v[i].value;
        if (h->v[i].id != id || v.n == 0)
            continue;
        all = all.p == NULL
                  ? v
                  : arena_printf(h->arena, "%.*s, %.*s", (int)all.n, all.p, (int)v.n, v.p);
    }
    if (all.p == NULL)
        return more;
    if (more.n == 0)
        return all;
    return arena_printf(h->arena, "%.*s, %.*s", (int)all.n, all.p, (int)more.n, more.p);
}

static bool same_name(struct slice a, struct slice b)
{
    for (size_t i = 0; i < b.n; i++) {
        char c = a.p[i] == '_' ? '-' : (char)(a.p[i] | 0x20);
        if (c != b.p[i] && a.p[i] != b.p[i])
            return false;
    }
    return true;
}

/* What only a proxy may say is taken away from others; so is, from all, what only looks like it to
 * an origin that takes "_" for "-". */
static void remove_claims(struct headers *h, bool trusted)
{
    const struct slice prefix = SLICE("x-forwarded-"), real = SLICE("x-real-ip");
    for (uint32_t i = h->n; i > 0; i--) {
        struct slice name = h->v[i - 1].name;
        bool claim = (name.n > prefix.n && same_name(name, prefix)) ||
                     (name.n == real.n && same_name(name, real));
        if (claim && (!trusted || memchr(name.p, '_', name.n) != NULL))
            headers_remove_at(h, i - 1);
    }
}

static void write_x(const struct forwarded *f, const struct forwarded_hop *hop, struct headers *h)
{
    struct slice list = hop->peer;
    struct slice host = f->host.p != NULL ? f->host : hop->authority;
    if (f->trusted)
        list = extended(h, HEADER_X_FORWARDED_FOR, hop->peer);
    headers_set(h, SLICE("x-forwarded-for"), list.n > 0 ? list : SLICE("unknown"));
    headers_set(h, SLICE("x-forwarded-proto"), f->proto.p != NULL ? f->proto : hop->scheme);
    if (host.n > 0)
        headers_set(h, SLICE("x-forwarded-host"), host);
    else
        headers_remove_id(h, HEADER_X_FORWARDED_HOST);
}

/* RFC 7239, section 6: an IPv6 address is in brackets and quoted, an unknown one is said to be so.
 * Section 4: what is no token is quoted. */
static struct slice element_of(const struct forwarded_hop *hop, struct arena *a)
{
    bool six = hop->peer.n > 0 && memchr(hop->peer.p, ':', hop->peer.n) != NULL;
    struct slice peer = hop->peer.n > 0 ? hop->peer : SLICE("unknown");
    struct slice host = hop->authority;
    const char *open = six ? "\"[" : "", *close = six ? "]\"" : "";
    if (host.n == 0)
        return arena_printf(a, "for=%s%.*s%s;proto=%.*s", open, (int)peer.n, peer.p, close,
                            (int)hop->scheme.n, hop->scheme.p);
    const char *quote =
        memchr(host.p, ':', host.n) != NULL || memchr(host.p, '[', host.n) != NULL ? "\"" : "";
    return arena_printf(a, "for=%s%.*s%s;host=%s%.*s%s;proto=%.*s", open, (int)peer.n, peer.p,
                        close, quote, (int)host.n, host.p, quote, (int)hop->scheme.n,
                        hop->scheme.p);
}

void forwarded_write(const struct forwarded_rules *r, const struct forwarded *f,
                     const struct forwarded_hop *hop, struct headers *h)
{
    if (r->write & FORWARDED_RFC7239) {
        struct slice element = element_of(hop, h->arena);
        headers_set(h, SLICE("forwarded"),
                    f->trusted ? extended(h, HEADER_FORWARDED, element) : element);
    } else {
        headers_remove_id(h, HEADER_FORWARDED);
    }
    remove_claims(h, f->trusted);
    if (r->write & FORWARDED_X) {
        write_x(f, hop, h);
        return;
    }
    headers_remove_id(h, HEADER_X_FORWARDED_FOR);
    headers_remove_id(h, HEADER_X_FORWARDED_PROTO);
    headers_remove_id(h, HEADER_X_FORWARDED_HOST);
}
