/* What this worker counts, by name: one row here is one field, one line of /metrics and one figure
 * in tests. */
#ifndef TOLLGATE_COUNTERS_H
#define TOLLGATE_COUNTERS_H

#include <stdint.h>

#include "buf.h"

#define COUNTERS(X)                                                                                \
    X(requests, "requests_total", "Requests whose head was complete or refused")                   \
    X(answers_error, "gateway_errors_total",                                                       \
      "Requests that the gateway itself answered with 4xx or 5xx")                                 \
    X(client_gone, "client_gone_total", "Requests whose client left before the answer's end")      \
    X(origin_errors, "origin_errors_total",                                                        \
      "Attempts that failed to connect, timed out or were cut off")                                \
    X(origin_connections, "origin_connections_total", "Connections to origins that were dialed")   \
    X(plugin_errors, "plugin_errors_total", "Phases of plugins that raised")                       \
    X(tokens_reserved, "tokens_reserved_total", "Tokens reserved at admission")                    \
    X(tokens_used, "tokens_used_total", "Tokens settled")                                          \
    X(usage_missing, "usage_missing_total",                                                        \
      "Metered requests settled by policy since no usage came")                                    \
    X(not_estimated, "not_estimated_total",                                                        \
      "Metered requests reserved at a default since they name no maximum")

struct counters {
#define X(field, name, help) uint64_t field;
    COUNTERS(X)
#undef X
};

/* Appends the counters as Prometheus text. */
void counters_write(const struct counters *c, struct buf *out);

#endif
