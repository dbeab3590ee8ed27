/* A registry's parts. Private to metrics*.c. */
#ifndef TOLLGATE_METRICS_INTERNAL_H
#define TOLLGATE_METRICS_INTERNAL_H

#include "metrics.h"

struct metric_series {
    struct metric_series *chain; /* of the same slot */
    uint64_t hash;
    char *key; /* each value behind its length; owned */
    size_t nkey;
    char *labels;      /* as text; owned */
    double *value;     /* of a histogram: the sum; in the area, or &own */
    uint64_t *buckets; /* of a histogram: counts, not cumulated, the last beyond all bounds */
    double own;
};

struct metric {
    struct metrics *registry;
    struct metric_spec spec; /* its texts are owned */
    struct metric_series **slots, **all;
    uint32_t nslots, n, limit;
    uint32_t place; /* among the area's metrics */
    bool placed;
    struct metric_series *other; /* beyond the limit; NULL until then */
    bool other_listed;           /* it is in `all`: a plugin had named one so */
};

struct metrics {
    struct metric **all;
    uint32_t n;
    uint64_t secret[2];
    struct metrics_area *area; /* NULL: figures are in our own memory */
    uint32_t placed;           /* metrics in the area */
};

/* metrics_place.c: tells those who read the area of a metric. */
void metrics_place(struct metrics *m, struct metric *one);
/* Gives a series its figures, in the area where there is one. False where that is full; with `must`
 * they are for nobody then. */
bool metrics_place_series(const struct metric *m, struct metric_series *s, bool must);

#endif
