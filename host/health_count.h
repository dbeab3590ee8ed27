/* When a health check's results make a target go down or come up: after so many in a row. Plain
 * data. */
#ifndef TOLLGATE_HEALTH_COUNT_H
#define TOLLGATE_HEALTH_COUNT_H

#include <stdbool.h>
#include <stdint.h>

#include "target_state.h"

struct health_thresholds {
    uint32_t healthy, unhealthy; /* results in a row, at least 1 */
};

struct health_count {
    uint32_t good, bad; /* in a row; one of them is 0 */
};

/* Takes a result in. True where *health changes by it. */
bool health_count_result(struct health_count *c, const struct health_thresholds *t, bool good,
                         enum target_health *health);

#endif
