/* See exchange.h: a request that asks for another protocol (RFC 9110, section 7.8), what the route
 * says to it, and what the origin makes of it.
 *
 * Upgrade belongs to one connection, so it is never passed on by chance: on a route that allows the
 * protocol the gateway asks the origin for it in its own name, and tells the client in its own name
 * that the origin has switched. On others a WebSocket handshake, which has no other purpose, gets a
 * 426; every other offer is passed over, as HTTP/1.1 lets a server do (some clients offer h2c with
 * each request). */
#include "exchange.h"

static bool same_protocol(struct slice asked, struct slice known)
{
    const char *slash = memchr(asked.p, '/', asked.n);
    if (slice_ieq(asked, known))
        return true;
    return slash != NULL && slice_ieq((struct slice){ asked.p, (size_t)(slash - asked.p) }, known);
}

static bool allowed(const struct route *r, struct slice protocol)
{
    for (uint32_t i = 0; i < r->nupgrades; i++) {
        if (same_protocol(protocol, slice_of(r->upgrades[i])))
            return true;
    }
    return r->upgrade_any;
}

struct slice exchange_upgrade_asked(struct exchange *x)
{
    struct headers *h = &x->req.headers;
    struct slice all = { NULL, 0 };
    if (x->req.minor == 0 || x->req.framing != FRAMING_NONE ||
        !headers_has_token(h, HEADER_CONNECTION, SLICE("upgrade")))
        return all;
    for (uint32_t i = 0; i < h->n; i++) {
        if (h->v[i].id != HEADER_UPGRADE)
            continue;
        struct slice v = h->v[i].value;
        all = all.p == NULL
                  ? v
                  : arena_printf(&x->arena, "%.*s,%.*s", (int)all.n, all.p, (int)v.n, v.p);
    }
    return all;
}

static bool answer_426(struct exchange *x)
{
    const struct route *r = x->route;
    struct slice wanted = SLICE("HTTP/1.1"); /* RFC 9110, section 15.5.22: some protocol is named */
    for (uint32_t i = 0; i < r->nupgrades; i++)
        wanted = i == 0
                     ? slice_of(r->upgrades[0])
                     : arena_printf(&x->arena, "%.*s, %s", (int)wanted.n, wanted.p, r->upgrades[i]);
    exchange_error_with(x, 426, "upgrade_required",
                        "This route does not switch to the protocol that was asked for.",
                        SLICE("upgrade"), wanted);
    return false;
}

bool exchange_upgrade_begin(struct exchange *x, struct slice asked)
{
    struct slice rest = asked, one, kept = { NULL, 0 };
    bool websocket = false;
    while (rest.p != NULL && header_list_next(&rest, &one)) {
        websocket = websocket || same_protocol(one, SLICE("websocket"));
        if (!allowed(x->route, one))
            continue;
        kept = kept.p == NULL
                   ? one
                   : arena_printf(&x->arena, "%.*s, %.*s", (int)kept.n, kept.p, (int)one.n, one.p);
    }
    if (kept.p == NULL)
        return websocket ? answer_426(x) : true;
    x->upgrade = kept;
    x->tunnel = TUNNEL_ASKED;
    return true;
}

/* Every protocol that the origin names must be one of those that it was asked for. */
static bool was_asked(const struct exchange *x, struct slice protocol)
{
    struct slice rest = x->upgrade, one;
    while (header_list_next(&rest, &one)) {
        if (slice_ieq(one, protocol))
            return true;
    }
    return false;
}

const char *exchange_upgrade_agree(struct exchange *x)
{
    struct slice all = headers_get_id(&x->res.headers, HEADER_UPGRADE), rest = all, one;
    unsigned n = 0;
    if (x->tunnel != TUNNEL_ASKED || x->res.minor == 0)
        return "switched protocols unasked";
    while (all.p != NULL && header_list_next(&rest, &one)) {
        if (!was_asked(x, one))
            return "switched to a protocol that it was not asked for";
        n++;
    }
    if (n == 0)
        return "switched protocols without saying to which";
    x->tunnel = TUNNEL_AGREED;
    x->upgrade = all;
    return NULL;
}
