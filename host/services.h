/* What a worker has one of, for those who serve requests. Owned by the worker; outlives every
 * generation. */
#ifndef TOLLGATE_SERVICES_H
#define TOLLGATE_SERVICES_H

#include <stdbool.h>

#include "access_log.h"
#include "counters.h"
#include "fetch.h"
#include "figures.h"
#include "loop.h"
#include "metrics.h"
#include "quota.h"
#include "rds.h"
#include "rds_pool.h"
#include "resolve.h"
#include "shared.h"
#include "task.h"
#include "upstream.h"

struct exchange;
struct snapshot;
struct target_table;
struct ticket_ring;

/* A plugin that was stuck too often. */
struct quarantine {
    struct quarantine *next;
    bool fail; /* its routes answer 503; else its hooks are left out */
    char plugin[];
};

/* What a plugin found about the routing version that this replica should run. */
struct routing_report {
    bool known;          /* else it could not be asked for */
    uint64_t version;    /* 0: none was published */
    uint64_t stale_ms;   /* not ready where nothing was confirmed for so long; 0: never */
    struct slice policy; /* p == NULL: what the version says is in files */
};

/* Who waits for the replica's metrics. Embedded in its owner. */
struct metrics_reader {
    struct metrics_reader *next, **link; /* link is NULL outside the list */
    uint64_t id;                         /* of the question whose answer it takes */
    /* Called once, out of the list already. text is borrowed. */
    void (*done)(struct metrics_reader *r, struct slice text);
};

struct services {
    struct loop *loop;
    struct resolve *resolve;
    struct upstream *upstream;
    struct target_table *target_table; /* what is known of targets; NULL in tools */
    struct fetch_client *fetch;        /* what plugins fetch by, over upstream */
    struct rds *rds;                   /* NULL in tools that have no Redis */
    struct rds_pool *rds_pool;         /* connections to lend; NULL likewise */
    struct quota *quota;               /* NULL likewise */
    struct quota_stats *quota_at;      /* where it counts; NULL: in memory of its own */
    struct shared *shared; /* NULL while a configuration loads, and in tools that have none */
    struct access_log *access_log;     /* NULL in tools */
    const struct ticket_ring *tickets; /* keys of TLS session tickets; NULL in tools */
    struct counters *counters;         /* of this worker; NULL in tools, which serve no requests */
    struct metrics *metrics;           /* of plugins; NULL in tools until the first is registered */
    struct figures *figures;           /* what the host counts in metrics; NULL in tools */
    uint32_t plugin_errors;            /* what raised, since the start */
    uint32_t exchanges;                /* alive */
    size_t buffered;                   /* bytes that they keep: exchange_budget.c */
    uint64_t budget_spent;    /* when that had no room last, ms of the loop; 0: not lately */
    struct exchange *logging; /* those whose log phase waits */
    struct exchange *gone;    /* those whose answer is read on without a client */
    uint32_t leaks;           /* found so far */
    bool draining;            /* answers say that their connection ends */
    bool hash_tags;
    struct task_watch watch;
    struct generation *generations; /* all that live, newest first */
    uint32_t ngenerations;
    struct quarantine *quarantine; /* plugins that do not run any more */
    const char *replica;           /* its name; NULL in tools, which are none */
    bool (*leads)(
        void *arg); /* true in one worker of the replica at a time; NULL where there is only us */
    void *leads_arg;
    void (*follow)(void *arg,
                   const struct routing_report *r); /* tells the master; NULL where there is none */
    void *follow_arg;
    const uint64_t
        *routing_version; /* that the replica runs; 0: not known; NULL where there is no master */
    /* Asks the master, which answers with the id; NULL where there is none. */
    void (*ask_metrics)(void *arg, uint64_t id);
    void *ask_metrics_arg;
    struct metrics_reader *metrics_readers;
    uint64_t metrics_asked,
        metrics_answered; /* last ids; a question is on its way where they differ */
    /* Becomes the configuration's user before plugins are loaded; NULL: stays who it is. -1 and
     * why. */
    int (*become)(const char *user, struct snapshot *read, char *why, size_t size);
    struct slice
        policy; /* a routing policy to be tried, in place of the one in its file; p == NULL: none */
};

/* Lua that raised outside a request's phase. */
static inline void services_plugin_failed(struct services *sv, const char *plugin,
                                          const char *phase)
{
    sv->plugin_errors++;
    figures_hook_failed(figures_hook(sv->figures, plugin, phase));
}

#endif
