/* Inside fetch: what fetch.c (a fetch's life), fetch_conn.c (its connection), fetch_redirect.c and
 * fetch_client.c share. */
#ifndef TOLLGATE_FETCH_INTERNAL_H
#define TOLLGATE_FETCH_INTERNAL_H

#include "fetch.h"

enum fetch_stage {
    FETCH_STAGE_NEW,
    FETCH_STAGE_CONNECT,
    FETCH_STAGE_HEAD, /* the request is sent */
    FETCH_STAGE_BODY,
    FETCH_STAGE_OVER /* complete, or failed */
};

enum fetch_goal { FETCH_GOAL_WHOLE, FETCH_GOAL_HEAD, FETCH_GOAL_PIECE }; /* what a wait is for */

struct fetch {
    struct fetch *next, **link; /* in the client's list from fetch_start on */
    struct fetch_client *client;
    struct fetch_options options;
    struct arena arena, answer_arena; /* of the request; of the head that is being read */

    struct fetch_url url;
    struct tls_remote tls; /* for tls_host; its context is held */
    struct slice tls_host;
    struct request req;
    struct slice req_body;

    enum fetch_stage stage;
    struct origin *origin; /* held from connecting until it is given to the client */
    struct upstream_wait *dialing;
    struct upstream_conn *conn;
    struct parser *parser; /* of this attempt; freed only where it is not feeding */
    struct timer total, silence;
    struct deferred later; /* a failure known at once */
    uint64_t silence_ms, sent_seen;
    uint64_t keep_ms;
    uint32_t redirects; /* left */
    bool retried;       /* or it may not be any more */
    bool surplus;       /* bytes came behind the answer */
    bool answered;      /* the head has come, and is not a redirect's */
    bool complete;
    bool redirecting; /* this answer's body is dropped, and the next request follows it */
    bool paused;

    struct response res;
    struct buf body; /* the whole, or what nobody has taken yet */
    uint64_t received;
    enum fetch_error error;
    const char *detail;
    char detail_text[400];

    enum fetch_goal goal;
    void (*cb)(void *arg); /* NULL: nobody waits */
    void *arg;
};

/* --- fetch.c --- */

/* Records why it failed and ends the connection. The first reason stays. Calls nobody: fetch_report
 * does. */
void fetch_fail(struct fetch *f, enum fetch_error error, const char *detail);
/* Nothing more is needed of the connection. */
void fetch_complete(struct fetch *f);
/* Calls who waits, where there is something to say. The last thing that a caller does with f. */
void fetch_report(struct fetch *f);
/* Fails it before anything was begun, and reports that later in this turn. */
void fetch_fail_later(struct fetch *f, enum fetch_error error, const char *detail);

/* --- fetch_conn.c --- */

void fetch_connect(struct fetch *f, bool fresh);
/* Gives the connection back where it may be used again, else ends it; cancels dialing. */
void fetch_let_go(struct fetch *f, bool reuse);
/* Goes on reading behind a pause. */
void fetch_unpause(struct fetch *f);

/* --- fetch_redirect.c --- */

/* An answer's head is there: whether it is a redirect to be followed. */
bool fetch_redirects(const struct fetch *f);
/* Changes the request to what the redirect asks for, and starts it. Where that cannot be, it fails.
 */
void fetch_follow(struct fetch *f);

/* --- fetch_client.c --- */

struct loop *fetch_loop(const struct fetch *f);
bool fetch_client_add(struct fetch *f); /* false where the client has stopped */
void fetch_client_remove(struct fetch *f);
struct origin *fetch_client_origin(struct fetch_client *c, const struct url *url,
                                   const struct tls_remote *tls);
/* Takes over a reference to an origin, and keeps one while it is among the FETCH_ORIGINS used last.
 */
void fetch_client_keep(struct fetch_client *c, struct origin *o);

#endif
