/* Which route serves a request. Candidates are found by path in a hash table (the exact path, then
 * each prefix that ends in '/'), so the number of routes does not matter; among them the most
 * specific host wins, then the exact or longest path, then the number of required headers, then the
 * order of the configuration. */
#ifndef TOLLGATE_ROUTE_H
#define TOLLGATE_ROUTE_H

#include <stdbool.h>
#include <stdint.h>

#include "figures.h"
#include "headers.h"
#include "llm.h"
#include "message.h"
#include "retry.h"
#include "target.h"

enum phase {
    PHASE_ACCESS,
    PHASE_TARGET,
    PHASE_ATTEMPT,
    PHASE_RESPONSE,
    PHASE_BODY,
    PHASE_FINISH,
    PHASE_LOG,
    PHASES
};

/* One plugin's function on one route, as registry references of the generation's Lua state. */
struct hook {
    int fn, conf;
    const char *plugin;
    uint32_t place; /* of the plugin in the route's chain */
    uint64_t mark;  /* for the watchdog */
    struct figures_hook *figures;
    bool skip_on_error;
    bool off; /* quarantined: left out */
};

struct hooks {
    struct hook *v;
    uint32_t n;
};

struct route {
    const char *name;
    enum llm_api api;
    const char **hosts; /* lower case; "*.x" as ".x" */
    uint32_t nhosts;
    const char **methods;
    uint32_t nmethods;
    struct header *required; /* value.p NULL: present with any value */
    uint32_t nrequired;
    bool strip_prefix, half_close_answer;
    const char **upgrades; /* protocols that it may switch to */
    uint32_t nupgrades;
    bool upgrade_any;
    bool retry_stale; /* once more, where a kept connection turns out to be closed */
    bool quarantined; /* a plugin of it is, and must not be left out: 503 */
    bool preflight;   /* a plugin answers CORS preflights: they come here whatever `methods` says */
    uint64_t body_timeout;      /* ms, between two pieces of a request's body */
    uint64_t tunnel_timeout;    /* ms, without a byte either way */
    uint64_t body_limit;        /* bytes */
    uint64_t body_rate;         /* bytes a second that a body has to come at; 0: any */
    struct target_set *targets; /* of requests that none of `models` takes; NULL: there is none */
    struct target_set *models;  /* by the model that a request names, sorted by it */
    uint32_t nmodels;
    bool reads_model; /* the body's model is read: it chooses the targets, or is replaced */
    enum balance_kind balance;
    struct retry_policy retry;
    struct retry_budget *budget; /* of this worker */
    struct hooks hooks[PHASES];
    struct figures_route *figures;
    int lua_ref; /* ctx.route */
    uint32_t order;
};

struct routes; /* the table */

struct routes *routes_new(void);
void routes_free(struct routes *t);
/* `path` is "/exact" or "/prefix/" with is_prefix. route and path are borrowed and outlive the
 * table. */
void routes_add(struct routes *t, const struct route *route, struct slice path, bool is_prefix);

struct route_match {
    const struct route *route; /* NULL: none */
    size_t prefix;             /* bytes of the path that strip_prefix removes */
    bool method_mismatch;      /* a path matched, no method: 405 */
};
struct route_match routes_match(const struct routes *t, const struct request *req);
/* The methods of all routes that match but for the method, as the value of Allow. */
struct slice routes_allow(const struct routes *t, const struct request *req, struct arena *a);

#endif
