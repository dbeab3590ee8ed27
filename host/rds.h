/* One connection to Redis: commands in a pipeline, each with its deadline, scripts by file. It
 * speaks over `stream` with hiredis's reply reader only (see host/README.md for why not its async
 * half).
 *
 * Every callback runs exactly once, and never before the call that started it has returned.
 * Commands of one turn go out in one write, at the turn's end (LOOP_WRITE).
 *
 * When a command's deadline passes, its callback gets RDS_TIMEOUT and the connection counts as
 * hung: while a command is overdue, new ones fail at once with RDS_DOWN, so a paused Redis costs
 * one deadline and not one a request. A connection that stays hung for `hang_ms` is dropped;
 * commands under way get RDS_CLOSED. */
#ifndef TOLLGATE_RDS_H
#define TOLLGATE_RDS_H

#include <hiredis/hiredis.h>

#include "loop.h"
#include "resolve.h"
#include "slice.h"
#include "stream.h"
#include "tls_client.h"

enum rds_error {
    RDS_OK = 0,
    RDS_TIMEOUT, /* sent, no reply within the deadline: outcome unknown, the reply may still come */
    RDS_CLOSED,  /* sent, and the connection was lost: outcome unknown */
    RDS_DOWN     /* never sent */
};

struct rds_config {
    bool secure;             /* rediss:// */
    struct tls_context *tls; /* borrowed until rds_new, which takes a reference of its own; NULL:
                                the system's authorities, where it is secure */
    char server_name[256];   /* whose certificate it must show; "": the host's */
    char host[256];          /* name or address; empty with a Unix socket */
    int port;
    char path[108]; /* Unix socket */
    char user[128], password[512];
    int database;
    struct resolve *resolve; /* borrowed; NULL: host must be an address */
    uint64_t deadline_ms;    /* of a command that names none */
    uint64_t connect_ms;     /* for dialing and the handshake together */
    uint64_t hang_ms;
    uint64_t backoff_min_ms, backoff_max_ms;
    bool bare; /* one connection more to a Redis that another watches: nothing is logged of its
                  state, its memory policy is not asked for */
    bool once; /* once it was usable, a connection that is lost is not replaced: commands fail */
};

/* Parses redis://[user[:password]@]host[:port][/db], the same with rediss:// for TLS,
 * redis+unix:///path?db=0, unix:///path.
 * Percent-encoding in user and password is decoded. NULL, or what is wrong (static text). Times get
 * their defaults. */
const char *rds_config_parse(struct slice url, struct rds_config *out);

/* Says how TLS is spoken; of no effect where it is not. */
void rds_config_secure(struct rds_config *c, const struct tls_remote *peer);

struct rds;
/* reply is borrowed until the callback returns, NULL with an error. An error reply of Redis is
 * RDS_OK with reply->type REDIS_REPLY_ERROR. */
typedef void (*rds_cb)(void *arg, redisReply *reply, enum rds_error err);

struct rds *rds_new(struct loop *l, const struct rds_config *config);
void rds_start(struct rds *r);
/* The next connection speaks TLS like this. */
void rds_secure(struct rds *r, const struct tls_remote *peer);
/* Drops the connection; callbacks under way run with RDS_CLOSED or RDS_DOWN at the end of this
 * turn, then the memory goes. May be called from inside a callback. */
void rds_free(struct rds *r);

enum rds_state { RDS_CONNECTING, RDS_READY, RDS_HUNG, RDS_BACKOFF };
enum rds_state rds_state(const struct rds *r);
/* Why it is not ready, for people; static or owned by r. */
const char *rds_problem(const struct rds *r);
/* Redis's maxmemory-policy, read at each connect; "" where it is not known (not connected yet,
 * CONFIG denied). */
const char *rds_memory_policy(const struct rds *r);
uint64_t rds_deadline_ms(const struct rds *r);
const struct rds_config *rds_config_of(const struct rds *r);
/* False where a command would fail at once with RDS_DOWN. */
bool rds_accepts(const struct rds *r);
/* Another number for each connection. */
unsigned rds_connection(const struct rds *r);

/* Called on each change between usable and not (for who keeps work until Redis is back). Several
 * may watch. */
struct rds_watch {
    struct rds_watch *next;
    void (*on_change)(struct rds_watch *w, bool usable);
};
void rds_watch(struct rds *r, struct rds_watch *w);
void rds_unwatch(struct rds *r, struct rds_watch *w);

/* Sends a command; argv is borrowed for the call. deadline_ms 0: the default. Until Redis was
 * reached once, a command waits for the connection within its deadline; the first that waits in
 * vain ends that patience for those after it. cb may be NULL. */
void rds_command(struct rds *r, int argc, const struct slice *argv, uint64_t deadline_ms, rds_cb cb,
                 void *arg);

/* Tells of each command that has ended, before its callback: the script's name or NULL, ns since it
 * was written to the socket (0: it was not), and NULL or what failed: "timeout", "closed", "down",
 * "reply" (Redis answered an error); all static but the name. on_ended must not call rds, and is
 * not called any more behind rds_free. */
void rds_set_meter(struct rds *r,
                   void (*on_ended)(void *arg, const char *script, uint64_t ns, const char *error),
                   void *arg);

/* For subscriptions: from now on what Redis says without being asked (message, pmessage, and each
 * confirmation of SUBSCRIBE, UNSUBSCRIBE and theirs with P; and an error while no command is under
 * way) goes to on_push and answers no command. reply is borrowed until it returns, and it may free
 * r. Once subscribed, a connection of RESP2 takes PING as its only other command. */
void rds_set_push(struct rds *r, void (*on_push)(void *arg, redisReply *reply), void *arg);
/* Sends what is answered by pushes: SUBSCRIBE and the like. Nothing where the connection is down.
 */
void rds_post(struct rds *r, int argc, const struct slice *argv);

/* A script of scripts/redis; loaded once, shared by all connections. */
struct rds_script {
    char name[64];
    struct slice body; /* owned */
    char sha1[41];
};
/* Reads dir/name.lua. 0, or a negative UV_E*. */
int rds_script_load(struct rds_script *s, const char *dir, const char *name);
/* The same of a text that has been read; copied. */
int rds_script_set(struct rds_script *s, const char *name, struct slice text);
void rds_script_deinit(struct rds_script *s);
/* Makes each new connection send the script ahead, so that even the first call is short. s is
 * borrowed until rds_forget or rds_free. */
void rds_preload(struct rds *r, const struct rds_script *s);
void rds_forget(struct rds *r, const struct rds_script *s);
/* EVALSHA; where Redis does not know the script, EVAL with its body, and nobody notices. keys and
 * args are borrowed for the call, the script until cb has run. */
void rds_eval(struct rds *r, const struct rds_script *s, int nkeys, const struct slice *keys,
              int nargs, const struct slice *args, uint64_t deadline_ms, rds_cb cb, void *arg);
/* The same for who must know the outcome however late it comes: cb never gets RDS_TIMEOUT. The
 * deadline only makes the connection count as hung. */
void rds_eval_owned(struct rds *r, const struct rds_script *s, int nkeys, const struct slice *keys,
                    int nargs, const struct slice *args, uint64_t deadline_ms, rds_cb cb,
                    void *arg);

/* True for an error reply that proves that the command did not run: NOSCRIPT, MOVED, ASK, TRYAGAIN,
 * LOADING. */
bool rds_not_run(const redisReply *reply);
/* True for an error reply that begins with this word. */
bool rds_is_error(const redisReply *reply, const char *word);

#endif
