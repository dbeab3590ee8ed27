/* What a worker counts, mostly without labels: one row here is one field, one line of /metrics and
 * one figure in tests. It is counted where the master reads it (zone.h), so that a worker's death
 * loses nothing. `lost` is written by the master, once the worker is dead. */
#ifndef TOLLGATE_COUNTERS_H
#define TOLLGATE_COUNTERS_H

#include <stdint.h>

#define COUNTERS(X)                                                                                \
    X(requests, "requests_total", "Requests whose head was complete or refused")                   \
    X(lost, "requests_lost_total", "Requests that a worker had when it died")                      \
    X(answers_error, "gateway_errors_total",                                                       \
      "Requests that the gateway itself answered with 4xx or 5xx")                                 \
    X(client_gone, "client_gone_total", "Requests whose client left before the answer's end")      \
    X(retries, "retries_total", "Attempts that followed one that failed")                          \
    X(failovers, "failovers_total",                                                                \
      "Requests answered by a target that was not the first one they were given to")               \
    X(retries_refused, "retries_refused_total",                                                    \
      "Failed attempts that nothing followed since the retry budget was spent")                    \
    X(no_target, "no_target_total", "Requests for which no target was available")                  \
    X(origin_connections, "origin_connections_total", "Connections to origins that were dialed")   \
    X(origin_handshakes, "origin_tls_handshakes_total", "TLS handshakes with origins")             \
    X(origin_resumed, "origin_tls_resumed_total",                                                  \
      "TLS handshakes with origins that resumed a session")                                        \
    X(origin_handshakes_failed, "origin_tls_failures_total",                                       \
      "TLS handshakes with origins that failed")                                                   \
    X(accepted, "client_connections_accepted_total", "Client connections that were accepted")      \
    X(deferred, "client_connections_deferred_total",                                               \
      "Client connections that had to wait since limits.connections was reached")                  \
    X(evicted, "client_connections_evicted_total",                                                 \
      "Client connections without a request that were ended since there was no room")              \
    X(crowded, "client_connections_refused_total",                                                 \
      "Client connections closed at once since their address had limits.connections_per_address")  \
    X(accept_errors, "client_accept_errors_total",                                                 \
      "Client connections that could not be accepted")                                             \
    X(proxy_refused, "proxy_protocol_refused_total",                                               \
      "Client connections without a good header of the PROXY protocol where it has to be")         \
    X(unbuffered, "buffered_refused_total",                                                        \
      "Bodies and answers that were not kept whole since limits.buffered was reached")             \
    X(tunnels, "tunnels_total", "Requests after which another protocol was spoken")                \
    X(tls_resumed, "tls_handshakes_resumed_total",                                                 \
      "TLS handshakes with clients that went on from an earlier session")                          \
    X(not_estimated, "not_estimated_total",                                                        \
      "Metered requests reserved at a default since they name no maximum")

enum tls_failure {
    TLS_FAILED_CERTIFICATE, /* of the client: not accepted, or none where one is required */
    TLS_FAILED_ALERT,       /* the client did not want us */
    TLS_FAILED_HTTP,        /* a plain request */
    TLS_FAILED_NOT_TLS,
    TLS_FAILED_CUT,
    TLS_FAILED_TIMEOUT,
    TLS_FAILED_PROTOCOL, /* anything else: no version or cipher in common */
    TLS_FAILURES
};

struct counters {
#define X(field, name, help) uint64_t field;
    COUNTERS(X)
#undef X
    uint64_t ended; /* shown by route, status and end instead */
    uint64_t tls12, tls13, tls_failures[TLS_FAILURES];
};

#endif
