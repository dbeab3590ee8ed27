/* What a line of the access log looks like, and which lines are kept; read once, when a generation
 * is loaded. Plain data: the values come from who serves (exchange_line.c). */
#ifndef TOLLGATE_ACCESS_FORMAT_H
#define TOLLGATE_ACCESS_FORMAT_H

#include <stdint.h>

#include "arena.h"
#include "buf.h"

/* name, what it is. A field that a request has not is "-". */
#define ACCESS_FIELDS(X)                                                                           \
    X(TIME, "time", "when the request began, as 2026-01-31T12:00:00.123Z")                         \
    X(TIME_CLF, "time_clf", "the same as [31/Jan/2026:12:00:00 +0000]")                            \
    X(ID, "id", "the request's id, as in x-request-id")                                            \
    X(TRACE_ID, "trace_id", "of the request, where `tracing` is on")                               \
    X(SPAN_ID, "span_id", "likewise; that of the request as a whole")                              \
    X(CLIENT, "client", "its address, by a trusted proxy where one stands before us")              \
    X(PEER, "peer", "address of the connection, where a trusted proxy named another client")       \
    X(TLS_VERSION, "tls_version", "of the connection, where it is secured")                        \
    X(TLS_CIPHER, "tls_cipher", "likewise")                                                        \
    X(TLS_SNI, "tls_sni", "the name that the client asked for")                                    \
    X(METHOD, "method", "as it came")                                                              \
    X(PATH, "path", "as the client asked, without the query")                                      \
    X(PROTOCOL, "protocol", "HTTP/1.0 or HTTP/1.1")                                                \
    X(ROUTE, "route", "name of the route")                                                         \
    X(CONSUMER, "consumer", "id of the key")                                                       \
    X(TENANT, "tenant", "of the key")                                                              \
    X(STATUS, "status", "as the client saw it")                                                    \
    X(TARGET, "target", "the last one that the request went to")                                   \
    X(ATTEMPTS, "attempts", "on targets")                                                          \
    X(CACHE, "cache", "Cache-Status of the answer")                                                \
    X(UPGRADE, "upgrade", "protocol of a tunnel, such as websocket")                               \
    X(REFUSAL, "refusal", "the limit or rule that refused it")                                     \
    X(ENDED, "ended", "ok, client_gone, origin_cut, timeout, plugin_error or shutdown")            \
    X(BYTES_IN, "bytes_in", "of the request's body")                                               \
    X(BYTES_OUT, "bytes_out", "of the answer's body")                                              \
    X(SECONDS, "seconds", "from the head to the answer's end")                                     \
    X(ACCESS_SECONDS, "access_seconds", "from the head until it went to an origin")                \
    X(CONNECT_SECONDS, "connect_seconds", "until a connection to the origin was there")            \
    X(FIRST_BYTE_SECONDS, "first_byte_seconds", "from the head to the origin's head")              \
    X(ORIGIN_SECONDS, "origin_seconds", "that the origin took, from connecting to the end")        \
    X(MODEL, "model", "that the request named")                                                    \
    X(STREAM, "stream", "true or false")                                                           \
    X(PROMPT_ESTIMATE, "prompt_estimate", "tokens of the prompt, as estimated")                    \
    X(RESERVED, "reserved", "tokens reserved")                                                     \
    X(USED, "used", "tokens charged")                                                              \
    X(INPUT, "input", "tokens that the origin reported")                                           \
    X(OUTPUT, "output", "likewise")                                                                \
    X(USAGE_MISSING, "usage_missing", "why tokens were charged by policy")                         \
    X(HEADER, "header:NAME", "a field of the request; credentials are refused")

enum access_field {
#define X(id, name, help) ACCESS_##id,
    ACCESS_FIELDS(X)
#undef X
        ACCESS_LITERAL
};

struct access_part {
    enum access_field field;
    struct slice text; /* of a literal; the name of a header */
};

struct access_format {
    bool json; /* else parts */
    struct access_part *parts;
    uint32_t n;
};

/* Reads "json", "combined" or a text with ${field}; text is borrowed for as long as out lives. 0,
 * or -1 with a sentence about what is wrong appended to `fault`. */
int access_format_parse(struct arena *a, struct slice text, struct access_format *out,
                        struct buf *fault);
/* A value, so that no client's text ends a line or a quoted string: '"', '\', control characters
 * and bytes beyond ASCII as \xHH; "-" where it is empty. */
void access_format_value(struct buf *out, struct slice value);

/* --- which lines are kept --- */

struct access_rule {
    const char **routes; /* none: any */
    uint32_t nroutes;
    struct {
        int low, high;
    } * statuses; /* none: whatever went well */
    uint32_t nstatuses;
    uint64_t keep; /* of 2^64 ids: so many, less one */
};

struct access_rules {
    struct access_rule *v;
    uint32_t n;
};

/* share: 0 to 1. */
uint64_t access_share(double share);
/* The first rule that fits decides; without one the line is kept. The choice depends on the id
 * alone, so that all replicas and all logs keep the same requests. route: or NULL; well: it was
 * neither refused nor cut off, and its status is below 400. */
bool access_keeps(const struct access_rules *rules, const char *route, int status, bool well,
                  struct slice id);

#endif
