/* Connections to the same Redis that are lent, one user at a time, for what the shared connection
 * cannot do: commands that wait on the server or change the connection's state.
 *
 * A bounded number is open at once; who finds none free waits for one. A connection that is given
 * back as it came is lent again, any other is closed. One that is lost while it is lent stays
 * lost: its commands fail with RDS_DOWN, so no state is forgotten unnoticed. While the shared
 * connection is known not to work, nobody waits. */
#ifndef TOLLGATE_RDS_POOL_H
#define TOLLGATE_RDS_POOL_H

#include "rds.h"

enum {
    RDS_POOL_CONNECTIONS = 16, /* lent, idle and dialed together */
    RDS_POOL_IDLE_MS = 30000
};

struct rds_pool;
struct rds_pool_wait;

/* `shared` is borrowed until rds_pool_free. */
struct rds_pool *rds_pool_new(struct loop *l, struct rds *shared);
/* All that was lent has been given back, and nobody waits any more. */
void rds_pool_free(struct rds_pool *p);

/* r is NULL with an error: RDS_TIMEOUT where all were lent for too long, RDS_DOWN where Redis
 * cannot be reached. */
typedef void (*rds_pool_cb)(void *arg, struct rds *r, enum rds_error err);
/* Borrows a connection. The result is valid until cb runs or rds_pool_cancel is called. */
struct rds_pool_wait *rds_pool_take(struct rds_pool *p, uint64_t timeout_ms, rds_pool_cb cb,
                                    void *arg);
void rds_pool_cancel(struct rds_pool_wait *w);
/* Gives it back; `clean` says that it is as it was lent. Callbacks of its commands that are still
 * to come get RDS_CLOSED. */
void rds_pool_give(struct rds_pool *p, struct rds *r, bool clean);

#endif
