/* Where a command finds the Redis of the gateway whose configuration it has loaded. */
#ifndef TOLLGATE_CLI_REDIS_H
#define TOLLGATE_CLI_REDIS_H

#include "generation.h"
#include "rds.h"

/* NULL, or what is wrong (static text). c->resolve is the caller's to set. */
const char *cli_redis_config(const struct generation *g, struct rds_config *c);

#endif
