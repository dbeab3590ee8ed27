/* The heads of requests and responses as plain data, and how they are written. All slices live
 * in the arena that the message was parsed into, or are literals. */
#ifndef TOLLGATE_MESSAGE_H
#define TOLLGATE_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"
#include "headers.h"
#include "slice.h"

/* How a body's end is known (RFC 9112, section 6.3). */
enum framing {
    FRAMING_NONE,    /* no body */
    FRAMING_LENGTH,  /* Content-Length: `length` bytes */
    FRAMING_CHUNKED, /* Transfer-Encoding: chunked */
    FRAMING_CLOSE    /* until the connection closes; responses only */
};

struct request {
    struct slice method; /* as received, a token */
    struct slice target; /* as received, in origin-form or "*" (absolute-form is split) */
    /* Normalised, begins with '/': what routes match and what goes upstream; "*" for OPTIONS *. */
    struct slice path;
    struct slice query;     /* without '?'; p == NULL where there is none */
    struct slice authority; /* of absolute-form, else of Host; empty where HTTP/1.0 has no Host */
    int minor;              /* HTTP/1.minor: 0 or 1 */
    struct headers headers;
    enum framing framing;
    uint64_t length;      /* with FRAMING_LENGTH */
    bool keep_alive;      /* the connection may be used again, as far as the client is concerned */
    bool expect_continue; /* Expect: 100-continue, HTTP/1.1 and with a body */
    bool upgrade;         /* Connection: upgrade with an Upgrade field */
};

struct response {
    int status;
    struct slice reason; /* as received; not forwarded */
    int minor;
    struct headers headers;
    enum framing framing;
    uint64_t length;  /* with FRAMING_LENGTH, or with head_length */
    bool head_length; /* FRAMING_NONE after HEAD or in a 304, with a Content-Length to pass on */
    bool keep_alive;
};

/* The standard reason phrase, or "Unknown". */
const char *message_reason(int status);
/* True where a response of this status to this method has no body whatever its fields say: HEAD,
 * 1xx, 204, 304 (RFC 9112, section 6.3). */
bool message_no_body(struct slice method, int status);
/* GET, HEAD, OPTIONS, TRACE, PUT, DELETE (RFC 9110, section 9.2.2). */
bool message_idempotent(struct slice method);

/* Append a head to out, from the start line to the empty line. Content-Length, Transfer-Encoding
 * and Connection in `headers` are skipped; framing fields are written from `framing` and
 * `length`, none with FRAMING_NONE unless `head_length`, and never in a 1xx or 204. Host is
 * written first, from `headers` or else from `authority`. `close` (or FRAMING_CLOSE) adds
 * "Connection: close"; `keep_alive_10` adds "Connection: keep-alive" (for HTTP/1.0 peers); an
 * Upgrade in `headers` is named there as well. Names
 * and values must be valid; they are not checked. */
void message_write_request(struct buf *out, const struct request *r, struct slice target,
                           bool close);
void message_write_response(struct buf *out, const struct response *r, bool close,
                            bool keep_alive_10);

/* IMF-fixdate (RFC 9110, section 5.6.7) of a UNIX time in seconds; writes 29 characters and a
 * NUL. Times outside the years 0 to 9999, which the format cannot hold, become the nearest that
 * it can. */
void message_date(int64_t seconds, char out[30]);

#endif
