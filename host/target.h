/* Where a route's requests may go: targets, in sets of which a request gets one. A generation owns
 * them; what changes while it serves (turns, requests in flight) is this worker's own. */
#ifndef TOLLGATE_TARGET_H
#define TOLLGATE_TARGET_H

#include "balance.h"
#include "fetch_url.h"
#include "figures.h"
#include "headers.h"
#include "health_count.h"
#include "target_state.h"
#include "upstream.h"
#include "url.h"

struct status_range {
    int first, last;
};

/* How a target is checked (health.h). */
struct target_check {
    bool tcp; /* by a connection alone */
    struct fetch_url url;
    struct tls_remote tls; /* its context is held */
    uint64_t interval_ms, timeout_ms;
    struct health_thresholds thresholds;
    struct status_range *status; /* what is good; none: 200 to 399 */
    uint32_t nstatus;
    struct header *headers;
    uint32_t nheaders;
};

struct target {
    const char *name;        /* "provider:model", or the provider: in logs, ctx and commands */
    const char *provider;    /* who answers */
    const char *model;       /* the provider's name of the model; NULL: as the client asks */
    struct slice model_json; /* the same as a JSON string, quotes included; p == NULL: none */
    const char *url_text;    /* as configured */
    const char *where;       /* the same without its path, which may hold a key: for the log */
    struct url url;
    struct origin *origin; /* held; NULL in a configuration that is only checked */
    struct header *set;    /* headers set, or removed where value.p is NULL */
    uint32_t nset;
    bool preserve_host;
    struct {
        uint64_t connect, first_byte, idle;
    } timeouts;                       /* ms */
    uint32_t place;                   /* in its set */
    struct target_state state;        /* what the replica's workers know of it */
    const struct target_check *check; /* NULL: none */
    struct figures_target *figures;
    int lua_ref; /* the table that plugins get */
};

struct target_set {
    struct slice alias; /* the model whose requests it gets; p == NULL: all other ones */
    struct target *v;
    struct balance_item *items; /* at the same places */
    uint32_t n;                 /* at most BALANCE_MAX */
    uint64_t usable;            /* a bit for each that has a weight */
};

#endif
