/* A subscription: a connection of its own to Redis that only listens, and comes back when it is
 * lost. What is published while it is away is lost; on_active says when it was. */
#ifndef TOLLGATE_RDS_SUB_H
#define TOLLGATE_RDS_SUB_H

#include "rds.h"

struct rds_sub;

struct rds_sub_events {
    /* A message; `pattern` has no bytes where the subscription is to channels by name. Borrowed
     * until it returns. */
    void (*on_message)(void *arg, struct slice channel, struct slice message, struct slice pattern);
    /* All channels are subscribed, for the first time or again: what was published before then, and
     * after the last message, is lost. */
    void (*on_active)(void *arg, bool again);
};

/* Subscribes to channels, or to patterns as of PSUBSCRIBE. The channels are copied, events are
 * borrowed. `shared` says where Redis is. */
struct rds_sub *rds_sub_new(struct loop *l, const struct rds *shared, bool patterns, int nchannels,
                            const struct slice *channels, const struct rds_sub_events *events,
                            void *arg);
/* No event comes any more. May be called from inside one. */
void rds_sub_free(struct rds_sub *s);

#endif
