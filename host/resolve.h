/* Names to addresses by c-ares, without blocking: cached by TTL, one look-up a name in flight, and
 * the old answer serves while a new one is fetched or cannot be had. IP literals and "localhost"
 * need no look-up. */
#ifndef TOLLGATE_RESOLVE_H
#define TOLLGATE_RESOLVE_H

#include "loop.h"
#include "slice.h"
#include "stream.h"

struct resolve;
struct resolve_wait;

/* NULL where c-ares cannot start; *why is static text then. */
struct resolve *resolve_new(struct loop *l, const char **why);
/* Waits are dropped without a call. */
void resolve_free(struct resolve *r);

/* True where an address is known now; fills *out. Starts a refresh behind an answer past its TTL.
 */
bool resolve_now(struct resolve *r, const char *host, int port, struct address *out);
/* Looks a name up. cb is called once, later: 0 and an address (borrowed), or UV_EAI_NONAME,
 * UV_ETIMEDOUT, … */
struct resolve_wait *resolve_lookup(struct resolve *r, const char *host, int port,
                                    void (*cb)(void *arg, const struct address *address, int err),
                                    void *arg);
void resolve_cancel(struct resolve_wait *w);

#endif
