/* What the files of rds share: rds.c (life of a command), rds_reply.c (what a reply means),
 * rds_send.c (RESP), rds_conn.c (states, handshake), rds_dial.c (names and addresses). */
#ifndef TOLLGATE_RDS_INTERNAL_H
#define TOLLGATE_RDS_INTERNAL_H

#include "buf.h"
#include "rds.h"

enum {
    RDS_REPLY_MAX = 64 << 20,   /* bytes of one reply; beyond it the peer is broken */
    RDS_ELEMENTS_MAX = 1 << 20, /* of one array in a reply */
    RDS_OUT_KEEP = 1 << 20,     /* bytes; a larger output buffer is given back after use */
    RDS_POOL_MAX = 1024,        /* free commands kept */
    RDS_PRELOADS = 32
};

enum rds_phase { PHASE_IDLE, PHASE_DIAL, PHASE_HANDSHAKE, PHASE_READY, PHASE_BACKOFF };

struct rds_cmd {
    struct rds_cmd *next;
    struct rds *r;
    rds_cb cb;
    void *arg;
    struct timer deadline;
    const struct rds_script *script; /* of an EVALSHA, else NULL */
    char *bytes; /* owned: what it takes to send it (again); behind the head for a script */
    size_t n;
    int parts;          /* of the whole command, where there is a script */
    enum rds_error err; /* while in `failed` */
    bool owned;         /* wants its outcome and no RDS_TIMEOUT */
    bool handshake;     /* of the connection itself: forgotten with it */
    bool late;          /* its deadline has come; it has one more read */
    bool overdue, told;
    uint64_t sent_at; /* ns of CLOCK_MONOTONIC; 0: not sent, or nobody measures */
};

struct rds_queue {
    struct rds_cmd *first, **last;
};

struct rds {
    struct loop *loop;
    struct rds_config config;
    enum rds_phase phase;
    struct stream *stream;
    struct tls_session *session; /* NULL until there is TLS */
    struct dial *dial;
    uint64_t dial_until; /* the greeting included */
    redisReader *reader;
    redisReplyObjectFunctions reader_fn;
    struct buf out;
    struct rds_queue waiting; /* until Redis is reached for the first time */
    struct rds_queue unsent;  /* in `out` */
    struct rds_queue sent;    /* oldest first: replies come in this order */
    struct rds_queue failed;  /* to be told at the end of the turn */
    struct rds_cmd *pool;
    unsigned pooled;
    struct deferred write, dispatch;
    struct timer clock;  /* of the phase: dialing and handshake, backoff, or how long it may hang */
    unsigned overdue;    /* in `sent` */
    unsigned generation; /* of the connection */
    unsigned attempts;   /* since it was last usable for a while */
    uint64_t ready_at;
    bool patient;                                  /* commands may wait for the first connection */
    bool usable, said;                             /* as watchers and the log know it */
    bool reached;                                  /* it was usable once */
    void (*on_push)(void *arg, redisReply *reply); /* NULL: none */
    void *push_arg;
    void (*on_ended)(void *arg, const char *script, uint64_t ns, const char *error); /* or NULL */
    void *on_ended_arg;
    uint64_t read_at; /* ns: when the replies at hand were read */
    bool policy_warned, freed, dispatching;
    struct rds_watch *watches;
    const struct rds_script *preloads[RDS_PRELOADS];
    unsigned npreloads;
    char problem[256], policy[32];
};

/* rds.c */
void rds_queue_init(struct rds_queue *q);
void rds_queue_push(struct rds_queue *q, struct rds_cmd *c);
struct rds_cmd *rds_queue_pop(struct rds_queue *q);
struct rds_cmd *rds_cmd_new(struct rds *r, rds_cb cb, void *arg);
void rds_cmd_release(struct rds_cmd *c);
/* Its callback gets err at the end of this turn. */
void rds_fail_later(struct rds_cmd *c, enum rds_error err);
/* Everything under way fails: what was sent with RDS_CLOSED, the rest with RDS_DOWN, at the end of
 * this turn. */
void rds_fail_all(struct rds *r);
void rds_feed(struct rds *r, const char *bytes, size_t n);

/* rds_reply.c */
/* This server cannot serve: another one, or the same one later, may. */
bool rds_is_unfit(const redisReply *reply);
bool rds_is_push(const struct rds *r, const redisReply *reply);

/* rds_send.c */
void rds_on_write(struct deferred *d);
/* Sends a command that kept its bytes; a script with its whole text where Redis does not know it.
 */
void rds_send_kept(struct rds_cmd *c, bool with_body);
/* A command of the handshake; cb gets r and never an error. */
void rds_send_handshake(struct rds *r, int argc, const struct slice *argv, rds_cb cb);
/* Sends what waited for the first connection. */
void rds_send_waiting(struct rds *r);

/* rds_dial.c */
void rds_dial(struct rds *r);
void rds_forget_dial(struct rds *r);

/* rds_conn.c */
/* r->stream is there. */
void rds_on_connect(struct rds *r);
/* Drops the connection and tries again after the backoff. */
void rds_drop(struct rds *r, const char *format, ...) __attribute__((format(printf, 2, 3)));
void rds_disconnect(struct rds *r);
/* Tells the log and the watchers where the state has changed. */
void rds_tell_state(struct rds *r);
void rds_on_clock(struct timer *t);

#endif
