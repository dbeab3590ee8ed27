/* One request of a plugin's to an HTTP origin, over the gateway's own pool of connections. It knows
 * nothing of Lua.
 *
 * An answer is gathered whole, up to a limit, or streamed: then at most two windows of it are held,
 * and the connection is not read while nobody takes what is there. A fetch waits for one thing at a
 * time; the callback of a wait runs once, later, and never behind fetch_free. */
#ifndef TOLLGATE_FETCH_H
#define TOLLGATE_FETCH_H

#include "buf.h"
#include "fetch_url.h"
#include "loop.h"
#include "message.h"
#include "parse.h"
#include "upstream.h"

struct fetch;
struct fetch_client;

enum {
    FETCH_WINDOW = 65536, /* bytes held of a streamed answer before its connection is paused */
    FETCH_DISCARD =
        65536, /* bytes of a redirect's body that are read so that its connection can be kept */
    FETCH_ORIGINS = 64, /* origins whose idle connections are kept between requests */
    FETCH_REDIRECTS_MAX = 20
};

enum fetch_error {
    FETCH_OK,
    FETCH_TIMEOUT,   /* one of the deadlines */
    FETCH_REFUSED,   /* no connection could be made */
    FETCH_CLOSED,    /* the connection ended before the answer did, or the gateway stops */
    FETCH_RESOLVE,   /* the host's name has no address */
    FETCH_TOO_LARGE, /* more body than `max_body` */
    FETCH_MALFORMED, /* an answer, or a redirect, that cannot be used */
    FETCH_TLS,       /* TLS failed: a certificate that is not accepted, or the like */
    FETCH_TOO_MANY_REDIRECTS
};
/* "timeout", "refused", "closed", "resolve", "too_large", "malformed", "tls", "too_many_redirects".
 */
const char *fetch_error_name(enum fetch_error e);

struct fetch_options {
    struct parse_limits parse; /* of the answer's head */
    uint64_t
        total_ms; /* to the end of the answer; streamed: to its head. Redirects included. 0: none */
    uint64_t connect_ms;    /* name, wait for the pool's limit, dialing; each time */
    uint64_t first_byte_ms; /* from the request sent to the answer's head; 0: none */
    uint64_t idle_ms;       /* between two pieces of the answer, not while paused; 0: none */
    uint64_t max_body;      /* bytes; 0: no limit, for streams */
    uint32_t redirects;     /* how many are followed; 0: a redirect is an answer as any other */
    bool stream;
};

/* --- the client: one a worker --- */

struct fetch_client *fetch_client_new(struct loop *l, struct upstream *u);
/* Ends all fetches with FETCH_CLOSED, which runs their callbacks, and every later one. */
void fetch_client_stop(struct fetch_client *c);
/* Fetches that are left lose their connections without a call. Before upstream_free. */
void fetch_client_free(struct fetch_client *c);

/* --- one request --- */

/* To be filled before fetch_start; slices live in fetch_arena or are literals. */
struct fetch *fetch_new(struct fetch_client *c);
struct arena *fetch_arena(struct fetch *f);
struct fetch_options *fetch_options(struct fetch *f);
/* Where to, and the Host field unless one is in the headers. */
void fetch_set_url(struct fetch *f, const struct fetch_url *url);
/* How TLS is spoken with that host, also where redirects lead back to it; other hosts get the
 * system's authorities. Takes the reference to the context; name lives in fetch_arena. */
void fetch_set_tls(struct fetch *f, const struct tls_remote *tls);
const struct fetch_url *fetch_url_of(const struct fetch *f);
/* Method, headers; no framing fields. */
struct request *fetch_request(struct fetch *f);
/* A body, also an empty one. */
void fetch_set_body(struct fetch *f, struct slice body);

/* Sends it. cb is called once: when the answer is complete or, streamed, when its head is there; or
 * it has failed. */
void fetch_start(struct fetch *f, void (*cb)(void *arg), void *arg);
/* Cancels at any time, in a callback too: a connection that still owes an answer is closed. */
void fetch_free(struct fetch *f);

/* FETCH_OK or why it failed, with a sentence about it; static, or the fetch's own. */
enum fetch_error fetch_failure(const struct fetch *f);
const char *fetch_detail(const struct fetch *f);
/* Whether the answer's head has come. Of a stream that failed later, what had come can still be
 * read. */
bool fetch_answered(const struct fetch *f);
/* The answer, hop-by-hop fields removed; and where it came from. From the head on, until
 * fetch_free. */
const struct response *fetch_response(const struct fetch *f);
struct slice fetch_final_url(struct fetch *f);
/* The whole body. */
struct slice fetch_body(const struct fetch *f);

enum fetch_read { FETCH_PIECE, FETCH_END, FETCH_FAILED, FETCH_WAIT };
/* The next piece of a streamed body, borrowed until the next call or turn. What had arrived before
 * a failure comes first. With FETCH_WAIT, fetch_await says once when it is worth asking again. */
enum fetch_read fetch_read(struct fetch *f, struct slice *piece);
void fetch_await(struct fetch *f, void (*cb)(void *arg), void *arg);
void fetch_unawait(struct fetch *f);
/* Ends the connection and drops what was not read; who waits hears of it later. Reading gives
 * FETCH_FAILED with FETCH_CLOSED, unless the answer was complete. */
void fetch_close(struct fetch *f);

#endif
