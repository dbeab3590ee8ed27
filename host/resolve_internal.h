/* What resolve.c (names, and what callers see) and resolve_ask.c (one name's look-up) share. */
#ifndef TOLLGATE_RESOLVE_INTERNAL_H
#define TOLLGATE_RESOLVE_INTERNAL_H

#include "candidates.h"
#include "dns.h"
#include "resolve.h"

enum name_state { NAME_UNKNOWN, NAME_FOUND, NAME_MISSING, NAME_FAILING };

struct resolve_wait {
    struct resolve_wait *next, **link;
    struct name *name;
    int port;
    void (*cb)(void *arg, const struct addresses *a, int err);
    void *arg;
};

struct family {
    struct candidates found;
    struct dns_query query;
    bool in_flight;
    enum dns_status status; /* of the last answer */
};

struct name {
    struct name *next;
    struct resolve *r;
    struct family v4, v6;
    uint64_t fresh_until, retry_at;
    uint64_t ttl; /* ms; the least of this look-up */
    int err;      /* of the last look-up that found nothing */
    enum name_state state;
    bool reaches_v6;
    bool gone; /* it has lost addresses, which has not been told yet */
    uint32_t holds;
    uint32_t pins; /* callbacks under way that use it */
    struct resolve_wait *waits;
    struct deferred tell;
    struct timer patience, due; /* due: the next look-up, while held */
    char host[];
};

struct resolve {
    struct loop *loop;
    struct dns *dns;
    struct resolve_options options;
    char *servers;      /* owned: options.servers */
    struct name *names; /* the one used last is first */
    uint32_t nnames;
    struct deferred renew; /* the system's resolver has changed */
    bool closing;
    void (*on_gone)(void *arg, const char *host);
    void *gone_arg;
};

/* resolve_ask.c */
void resolve_ask_init(struct name *n);
void resolve_ask(struct name *n);
bool resolve_asked(const struct name *n); /* a look-up is under way */
/* Sets the time of the next look-up of a held name. */
void resolve_set_due(struct name *n);
/* Those who wait hear at the end of this turn. */
void resolve_tell_waits(struct name *n);
/* Where an old answer is at hand, the new one is not waited for for ever. */
void resolve_be_patient(struct name *n);
unsigned resolve_known(const struct name *n);
bool resolve_serves_stale(const struct name *n);
void resolve_fill(struct name *n, int port, struct addresses *out);
void resolve_wait_unlink(struct resolve_wait *w);

#endif
