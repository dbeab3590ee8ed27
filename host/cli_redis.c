/* See cli_redis.h. */
#include "cli_redis.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

const char *cli_redis_config(const struct generation *g, struct rds_config *c)
{
    char url[PATH_MAX + 32], absolute[PATH_MAX];
    const char *text = g->settings.redis_url;
    if (text == NULL) {
        if (realpath(g->settings.run_dir, absolute) == NULL)
            return "the run directory does not exist: has the gateway been started?";
        snprintf(url, sizeof url, "unix://%s/redis.sock", absolute);
        text = url;
    }
    const char *wrong = rds_config_parse(slice_of(text), c);
    if (wrong == NULL)
        rds_config_secure(c, &g->settings.redis_tls);
    return wrong;
}

struct resolve *cli_redis_resolve(struct loop *l, const struct generation *g, const char **why)
{
    struct resolve *r = resolve_new(l, why);
    if (r == NULL || resolve_set_options(r, &g->settings.resolver, why) == 0)
        return r;
    resolve_free(r);
    return NULL;
}
