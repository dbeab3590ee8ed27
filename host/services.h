/* What a worker has one of, for those who serve requests. Owned by the worker; outlives every generation. */
#ifndef TOLLGATE_SERVICES_H
#define TOLLGATE_SERVICES_H

#include <stdbool.h>

#include "counters.h"
#include "fetch.h"
#include "loop.h"
#include "metrics.h"
#include "quota.h"
#include "rds.h"
#include "rds_pool.h"
#include "resolve.h"
#include "shared.h"
#include "upstream.h"

struct exchange;

struct services {
    struct loop *loop;
    struct resolve *resolve;
    struct upstream *upstream;
    struct fetch_client *fetch; /* what plugins fetch by, over upstream */
    struct rds *rds;      /* NULL in tools that have no Redis */
    struct rds_pool *rds_pool; /* connections to lend; NULL likewise */
    struct quota *quota;  /* NULL likewise */
    struct shared *shared; /* NULL while a configuration loads, and in tools that have none */
    struct buf *access_log; /* lines of this turn; NULL where switched off */
    struct deferred *access_flush;
    struct counters counters;
    struct metrics *metrics; /* of plugins; NULL until the first is registered */
    uint32_t exchanges;   /* alive */
    struct exchange *logging; /* those whose log phase waits */
    struct exchange *gone;    /* those whose answer is read on without a client */
    uint32_t leaks;       /* found so far */
    bool draining;        /* answers say that their connection ends */
    bool hash_tags;
    const char *via;      /* pseudonym in Via, or NULL */
};

#endif
