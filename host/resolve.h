/* Names to addresses, without blocking: all addresses of both families, cached by TTL within
 * bounds, one look-up a name in flight.
 *
 * Behind its TTL an answer goes on serving for a moment while it is asked for again, and for hours
 * where the resolver is down (RFC 8767); "no such name" is believed, and kept for a second. A name
 * that has connections is asked for again whenever its TTL ends, and whoever keeps connections
 * hears which names have lost addresses. IP literals and "localhost" need no look-up. */
#ifndef TOLLGATE_RESOLVE_H
#define TOLLGATE_RESOLVE_H

#include "address.h"
#include "loop.h"

struct resolve;
struct resolve_wait;
struct resolve_hold;

struct resolve_options {
    const char *servers;       /* "127.0.0.1:53,[::1]:53"; NULL: those of the system. Borrowed. */
    uint64_t ttl_min, ttl_max; /* ms; bounds of what an answer says */
    uint64_t stale;            /* ms for which an answer serves while the resolver is down */
    uint64_t try_ms;           /* the first wait for an answer */
    int tries;
};

/* What serves without a configuration. */
extern const struct resolve_options resolve_defaults;

/* NULL where c-ares cannot start; *why is static text then. */
struct resolve *resolve_new(struct loop *l, const char **why);
/* Changes nothing where the options are the same. 0, or -1 with static text: a server is none. */
int resolve_set_options(struct resolve *r, const struct resolve_options *o, const char **why);
/* Waits are dropped without a call; nothing is held any more. */
void resolve_free(struct resolve *r);

/* True where addresses are known now; fills *out in the order of candidates.h. */
bool resolve_now(struct resolve *r, const char *host, int port, struct addresses *out);
/* Looks a name up. cb is called once, later: 0 and addresses (borrowed), or UV_EAI_NONAME,
 * UV_ETIMEDOUT, … */
struct resolve_wait *resolve_lookup(struct resolve *r, const char *host, int port,
                                    void (*cb)(void *arg, const struct addresses *a, int err),
                                    void *arg);
void resolve_cancel(struct resolve_wait *w);

/* How a dial to an address of a name went; the order remembers. */
void resolve_tell(struct resolve *r, const char *host, const struct address *a, bool worked);

/* Keeps a name asked for while it is held: NULL where it needs no look-up. */
struct resolve_hold *resolve_hold(struct resolve *r, const char *host);
void resolve_unhold(struct resolve_hold *h);
/* Whether the name still has this address. True as well where nothing is known of it. */
bool resolve_has(const struct resolve_hold *h, const struct ip *ip);
/* Who hears, at the end of a turn, that addresses of a held name have gone. One at most. */
void resolve_watch(struct resolve *r, void (*on_gone)(void *arg, const char *host), void *arg);

#endif
