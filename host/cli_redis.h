/* Where a command finds the Redis of the gateway whose configuration it has loaded. */
#ifndef TOLLGATE_CLI_REDIS_H
#define TOLLGATE_CLI_REDIS_H

#include "generation.h"
#include "rds.h"

/* NULL, or what is wrong (static text). c->resolve is the caller's to set. */
const char *cli_redis_config(const struct generation *g, struct rds_config *c);
/* A resolver as the configuration has it; NULL, and *why is static text. */
struct resolve *cli_redis_resolve(struct loop *l, const struct generation *g, const char **why);

#endif
