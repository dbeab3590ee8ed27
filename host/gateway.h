/* Everything of one process that serves, however it was started: the services (Redis, quota,
 * pools), the generations of the configuration, client connections, and the end in
 * good order. It knows neither master nor signals. */
#ifndef TOLLGATE_GATEWAY_H
#define TOLLGATE_GATEWAY_H

#include "generation.h"
#include "server.h"

enum { GATEWAY_GENERATIONS = 4 }; /* that may live at once */

struct gateway {
    struct loop *loop;
    struct services sv;
    const char *config; /* borrowed: path of the configuration */
    const char
        *redis_socket; /* borrowed: of the private Redis; NULL where the configuration names one */
    struct generation *current, *pending; /* pending is loaded and waits for its turn */
    struct server *server;
    struct timer limit;  /* of the drain */
    struct timer settle; /* of settling, behind it */
    uint64_t settle_until;
    struct timer redis_wait;
    int redis_waits;
    struct timer oldest; /* reload.drain, for a generation too many */
    struct rds_watch redis_watch;
    bool ending, fetches_cut;
    bool redis_refused;                     /* it may evict what limits depend on */
    void (*on_refused)(struct gateway *gw); /* this Redis must not be used: to be drained */
    void (*on_closing)(struct gateway *gw); /* the last moment to look at figures; may be NULL */
    void (*on_end)(struct gateway *gw);     /* the drain is over, all is closed */
};

/* config, redis_socket, sv.shared and callbacks have been set; the rest is zero. 0 or -1 (logged).
 */
int gateway_init(struct gateway *gw, struct loop *l);
/* True where one more may be loaded now; else the oldest ends within reload.drain. */
bool gateway_has_room(struct gateway *gw);
/* Loads a generation beside the current one, whose plugins are stopped and hand their state over.
 * Takes the snapshot. 0, or -1 with faults, the current one being as before. The first one also
 * starts the services. */
int gateway_load(struct gateway *gw, struct snapshot *from, uint64_t number, struct buf *faults);
/* What was loaded serves from now on. */
void gateway_switch(struct gateway *gw);
/* What was loaded is given up; the current one's plugins start again. */
void gateway_drop(struct gateway *gw);
/* A plugin does not run any more. */
void gateway_quarantine(struct gateway *gw, const char *plugin, bool fail);
void gateway_quarantine_lift(struct gateway *gw);
/* No new connections; answers that are owed are given, up to limit_ms; settlements reach Redis;
 * then everything is closed. */
void gateway_drain(struct gateway *gw, uint64_t limit_ms);
/* What still drains is cut off. */
void gateway_abort(struct gateway *gw);
/* Behind on_end and the loop's run: returns how many leaks were found. */
unsigned gateway_deinit(struct gateway *gw);

/* gateway_redis.c: the connection to Redis and the quota on it. 0 or -1 (logged). */
int gateway_redis_start(struct gateway *gw);

#endif
