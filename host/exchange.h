/* One request from its first byte to its log line. The exchange owns the request, its body where it
 * is held, the connection to the origin, the coroutine of its plugins and its admission; whatever
 * happens, all of it ends in exchange_finish, once.
 *
 *   HEAD → ACCESS → ORIGIN → RESPONSE → RELAY → TAIL → LOG → gone
 *
 * An answer that does not come from the origin (a plugin's, or the gateway's own error) joins at
 * RESPONSE. In TAIL the settlement goes to Redis, and plugins' finish phase runs to its end, before
 * the last bytes go to the client.
 *
 * Files: exchange.c (life), exchange_body.c (the request's body), exchange_phase.c (plugins),
 * exchange_target.c (which target), exchange_target_phase.c (what plugins say and hear of it),
 * exchange_attempt.c (one target after another), exchange_hold.c (answers that may be followed by
 * another attempt), exchange_request.c (what goes up), exchange_origin.c (the origin),
 * exchange_read.c (what comes back from it), exchange_upgrade.c and exchange_tunnel.c (other
 * protocols than HTTP), exchange_answer.c (to the client), exchange_whole.c (whole answers, and
 * answers read on for nobody), exchange_record.c (copies of answers), exchange_log.c (charge and
 * figures), exchange_line*.c (a line of the access log). */
#ifndef TOLLGATE_EXCHANGE_H
#define TOLLGATE_EXCHANGE_H

#include "forwarded.h"
#include "generation.h"
#include "llm.h"
#include "llm_peek.h"
#include "message.h"
#include "meter.h"
#include "route.h"
#include "services.h"
#include "task.h"
#include "tls_peer.h"
#include "trace.h"

enum { EXCHANGE_WINDOW = 65536 }; /* bytes that may wait for a slower side */

struct exchange;

enum client_after {
    CLIENT_KEEP,  /* the answer is complete; the connection may serve the next request */
    CLIENT_CLOSE, /* complete, but the connection ends */
    CLIENT_ABORT, /* incomplete, which the framing shows */
    CLIENT_RESET  /* incomplete, which only a reset shows */
};

/* What an exchange needs of its client's connection. */
struct client_ops {
    void (*send)(void *self, const struct slice *v, unsigned n);
    size_t (*queued)(void *self);
    /* Whether more of the request's body may come. */
    void (*want_body)(void *self, bool wanted);
    /* From now on all bytes of the client go to exchange_tunnel_up, those held already at once. */
    void (*tunnel)(void *self);
    /* In a tunnel: no bytes for now; the end, while reading goes on. */
    void (*pause)(void *self, bool paused);
    void (*shut)(void *self);
    /* The exchange is over for the client, which forgets it. */
    void (*done)(void *self, enum client_after after);
};

struct client {
    const struct client_ops *ops;
    void *self;
    const char *address; /* text; "" for a Unix socket */
    int port;
    struct tls_peer *tls; /* NULL: plain */
};

enum stage {
    STAGE_HEAD,
    STAGE_ACCESS,
    STAGE_ORIGIN,
    STAGE_RESPONSE,
    STAGE_RELAY,
    STAGE_TAIL,
    STAGE_LOG
};

enum ended {
    ENDED_OK,
    ENDED_CLIENT_GONE,  /* the client left before the answer's end, or broke its own body behind the
                           answer's head */
    ENDED_ORIGIN_CUT,   /* the origin's answer broke off after its head */
    ENDED_TIMEOUT,      /* the origin fell silent after its head */
    ENDED_PLUGIN_ERROR, /* a plugin raised after the head was sent */
    ENDED_SHUTDOWN      /* the drain's limit came first */
};

enum record { RECORD_NONE, RECORD_OPEN, RECORD_TOO_LARGE, RECORD_WHOLE };

/* Asked: by the client, and the route allows it. Agreed: by the origin. */
enum tunnel { TUNNEL_NONE, TUNNEL_ASKED, TUNNEL_AGREED, TUNNEL_OPEN };

enum source { SOURCE_NONE, SOURCE_ORIGIN, SOURCE_BYTES, SOURCE_FUNCTION };

enum hold {
    HOLD_NONE,
    HOLD_STATUS, /* a failing status; its body is being read */
    HOLD_PEEK,   /* a stream; its first event is waited for */
    HOLD_DECIDED /* the next target has been chosen, which is to be admitted first */
};

/* How an attempt on a target ended, as plugins hear of it. */
struct attempt_outcome {
    const char *error;      /* static; NULL: the answer came whole, whatever its status */
    int status;             /* 0: no head came */
    uint64_t ms;            /* that it took */
    int64_t first_byte_ms;  /* to the head; -1: none came */
    int64_t retry_after_ms; /* as the answer asks; -1: it does not */
    struct slice code;      /* of an error in the API's shape; p == NULL: none was read */
    uint32_t n;             /* which of the request's attempts; 0: it was none */
    const char *span;       /* its id; NULL: it was none, or requests are not traced */
};

struct exchange {
    struct services *sv;
    struct generation *gen;     /* held */
    const struct route *route;  /* NULL until matched */
    struct client client;       /* its address is that of the connection */
    const char *address;        /* the client's: what trusted proxies say, else the connection's */
    int port;                   /* likewise; 0: not known */
    struct forwarded forwarded; /* what they say */
    bool client_here;
    enum stage stage;
    enum ended ended;
    struct arena arena;
    struct request req;
    struct slice path; /* as the client asked, whatever plugins made of it */
    struct response res;
    char id[24];
    struct trace trace;
    char attempt_span[TRACE_SPAN + 1]; /* of the current attempt, where requests are traced */
    uint64_t begun, origin_begun, origin_connected, first_byte,
        ended_at;       /* ms of the loop; 0: not come to */
    int64_t begun_wall; /* ms since the epoch */
    size_t prefix;      /* of the path, for strip_prefix */
    struct timer timer;
    struct exchange *next, **link; /* of those in this worker whose finish or log phase waits, or
                                      that are read on; link is NULL elsewhere */

    /* the request's body */
    struct buf body; /* what has come and not gone to the origin; all of it once `whole` */
    uint64_t body_seen;
    size_t buffered;   /* what its buffers have taken of services.buffered */
    bool body_refused; /* limits.buffered had no room for it */
    bool body_done, whole, paused, continued;
    void (*on_whole)(void *arg); /* who waits for the whole body */
    void *on_whole_arg;

    /* plugins */
    struct task *task, *body_task, *log_task;
    int ctx_ref; /* LUA_NOREF until a plugin runs */
    enum phase phase;
    uint32_t hook;
    bool response_hooks_ran;
    struct buf edited;           /* what the last body hook returned */
    const struct hook *answerer; /* whose function makes the answer */

    /* targets and attempts */
    struct target_set *targets; /* of which one serves it; NULL until chosen */
    struct target *target; /* of the current attempt, else of the last; NULL before the first */
    struct target *next_target; /* picked and let pass, not begun */
    uint64_t considered;        /* a bit for each target that was tried or passed over */
    uint32_t attempts;
    bool attempt_open;
    uint64_t attempt_begun, attempts_until; /* ms of the loop */
    int64_t attempt_retry_after;            /* ms, of its answer; -1: none */
    uint64_t retry_ms;                      /* with a 503: when to ask again; 0: not known */
    struct buf failures; /* failed attempts that others followed, as members of a JSON list */
    struct deferred next_attempt;
    struct slice attempt_code; /* of the error in its answer; p == NULL */
    struct buf error_body;     /* the beginning of an answer that failed, for its code */
    bool stream_error;         /* the answer is a stream that begins with an error */
    struct llm_model *model;   /* as the body names it; NULL where it was not read for it */
    enum hold hold;            /* the answer is not relayed yet */
    uint64_t hold_until;       /* ms of the loop; HOLD_STATUS */
    struct buf held_answer;    /* what has come of it */
    struct llm_peek *peek;     /* HOLD_PEEK; in the arena */
    struct request up;         /* as the current target gets it */
    size_t sent_up;            /* of `body`, on this attempt */
    bool held;    /* `body` begins with the request's first byte, for another attempt */
    bool interim; /* something of an answer has gone to the client already */

    /* the origin */
    struct upstream_wait *origin_wait;
    struct upstream_conn *origin;
    struct buf pending; /* bytes of the origin that came while plugins wait */
    bool head_sent_up, upload_done, retried, reached_origin, feeding, origin_complete,
        origin_surplus, origin_paused;
    int origin_failure;       /* the connection failed while plugins wait */
    int let_go;               /* while feeding: what to do with the connection behind it */
    uint64_t origin_keep_ms;  /* how long the origin keeps it idle; 0: not said */
    int origin_status;        /* as it came; a plugin may change res.status. 0: no head came */
    uint64_t origin_limit_ms; /* of the current wait, for the log */

    /* another protocol */
    enum tunnel tunnel;
    struct slice upgrade; /* what is asked for, then what was agreed on; p == NULL: nothing */
    bool client_ended, origin_ended; /* half of an open tunnel */

    /* the answer */
    enum source source;
    struct slice answer; /* SOURCE_BYTES; in the arena */
    int producer_ref;    /* SOURCE_FUNCTION */
    bool producing, producer_blocked;
    enum framing framing; /* towards the client */
    struct buf head_out, tail;
    uint64_t length;  /* of FRAMING_LENGTH */
    uint64_t relayed; /* body bytes to the client */
    bool head_sent, has_body, keep_alive;
    bool gathering, gathered; /* a plugin waits for the whole answer; it is in whole_answer */
    struct buf whole_answer;
    void (*on_gathered)(void *arg);
    void *on_gathered_arg;
    struct deferred gather;
    bool gone;                          /* the client left and the answer is read on */
    bool kept;                          /* a plugin wants that; its body phases go on too */
    uint64_t read_on_ms, read_on_bytes; /* its bounds; 0 ms: not to be read on */
    struct timer read_on_timer;
    enum record recording; /* a copy of the answer, which a plugin wants */
    struct buf record;
    uint64_t record_max;          /* bytes */
    void (*on_record)(void *arg); /* NULL: nobody reads along */
    void *on_record_arg;
    struct deferred closing, finish, produce;

    /* accounting */
    struct quota_wait *admission;
    struct quota_grant *grant;
    struct quota_limits limits;
    struct quota_result verdict;
    bool has_verdict;
    struct slice quota_key;                 /* of the admission, */
    uint64_t quota_reserve, quota_deadline; /* tokens; ms that Redis had for it */
    uint64_t used_before, attempt_used;     /* by attempts that failed; by this one */
    bool unpriced; /* an origin may have worked on it, and has not said at what price */
    struct limit_row *limit_rows; /* that plugins keep themselves; in the arena, newest first */
    const char *refusal;          /* the limit that refused, static; NULL */
    bool metered;
    struct llm_request *llm;
    struct meter meter;
    struct llm_reader *reader;
    enum llm_body answer_body;
    uint64_t used;
    const char *missing_usage; /* why the policy charged, static; NULL */
};

/* --- other protocols (exchange_upgrade.c) --- */

/* The protocols that the request asks for, before fields of one connection are taken away; p ==
 * NULL where it asks for none. */
struct slice exchange_upgrade_asked(struct exchange *x);
/* What the route says to them; false where it was answered. */
bool exchange_upgrade_begin(struct exchange *x, struct slice asked);
/* The origin's head is a 101: NULL where it may be, else what is wrong with it. */
const char *exchange_upgrade_agree(struct exchange *x);

/* --- tunnels (exchange_tunnel.c) --- */

/* The origin has switched and the answer is its 101. */
static inline bool exchange_switches(const struct exchange *x)
{
    return x->tunnel >= TUNNEL_AGREED && x->source == SOURCE_ORIGIN;
}
/* The head goes out, and from then on bytes both ways. */
void exchange_tunnel_begin(struct exchange *x);
void exchange_tunnel_up(struct exchange *x, struct slice bytes);
/* The client's FIN. */
void exchange_tunnel_client_end(struct exchange *x);
void exchange_tunnel_client_drained(struct exchange *x);

/* --- life (exchange.c) --- */

/* A new exchange; its request may be parsed into x->req with x->arena. Holds the generation. */
struct exchange *exchange_new(struct services *sv, struct generation *gen,
                              const struct client *client);
/* The head is in x->req, and as much of the body as came with it was given. Goes on by itself. */
void exchange_begin(struct exchange *x);
/* The head was refused by the parser: answers and closes. */
void exchange_reject(struct exchange *x, int status, const char *message);
/* The connection ended before a head was complete: nothing to answer, nothing to log. */
void exchange_forget(struct exchange *x);
/* The single way out. */
void exchange_finish(struct exchange *x, enum ended how);
const char *exchange_ended_name(enum ended e);
/* 64 bits for ids; no secrets are to be made of them. */
uint64_t exchange_random(void);
/* What our peer speaks, "http" or "https"; and what the client does, as trusted proxies say. */
struct slice exchange_peer_scheme(const struct exchange *x);
struct slice exchange_scheme(const struct exchange *x);

/* --- from the client --- */

void exchange_body(struct exchange *x, struct slice piece);
void exchange_body_end(struct exchange *x);
/* The client left. */
void exchange_client_gone(struct exchange *x);
/* The client took what was queued. */
void exchange_client_drained(struct exchange *x);
/* The client sends its body too slowly. */
void exchange_body_timeout(struct exchange *x);
/* The body's framing is broken. */
void exchange_body_bad(struct exchange *x, int status, const char *message);

/* --- the request's body (exchange_body.c) --- */

/* Calls on_whole once the whole body is in x->body (never at once). True where it is already,
 * without a call. Answers 413 by itself where the body is too large, and then calls nothing. */
bool exchange_want_whole(struct exchange *x, void (*on_whole)(void *arg), void *arg);
void exchange_unwant_whole(struct exchange *x);
/* Says 100 Continue where the client waits for it. */
void exchange_continue(struct exchange *x);
/* Sends on what is in x->body, now that the origin is there. */
void exchange_upload(struct exchange *x);

/* --- what is kept in memory (exchange_budget.c) --- */

/* Whether limits.buffered has room for n bytes more in b. Counts where it has not, and the log
 * hears of it. */
bool exchange_budget_has(struct exchange *x, const struct buf *b, size_t n);
/* Behind each change of a buffer that counts: body, held and gathered answer, copy, pending. */
void exchange_budget_note(struct exchange *x);
void exchange_budget_leave(struct exchange *x);

/* --- answers (exchange_answer.c) --- */

/* Makes the gateway's own error the answer, in the API's shape. Where the head was sent already the
 * exchange is cut off. `code` and `message` as in llm_error. */
void exchange_error(struct exchange *x, int status, const char *code, const char *message);
/* The same with a header field more (name.p NULL: none). */
void exchange_error_with(struct exchange *x, int status, const char *code, const char *message,
                         struct slice name, struct slice value);
/* x->res, x->source and what belongs to it are set: runs the response phase and sends. */
void exchange_answer(struct exchange *x);
void exchange_answer_go(struct exchange *x); /* behind the response phase */
void exchange_relay(struct exchange *x, struct slice piece);
void exchange_relay_end(struct exchange *x);
void exchange_flush(struct exchange *x); /* the head, where no body went with it */
bool exchange_client_full(const struct exchange *x);

void exchange_open_reader(
    struct exchange *x); /* for usage, where the answer is the origin's and metered */

/* --- whole answers, and answers for nobody (exchange_whole.c) --- */

enum exchange_gather { GATHER_DONE, GATHER_WAIT, GATHER_NEVER };

/* In the response phase: GATHER_DONE where the whole answer is there already; GATHER_WAIT, and
 * on_gathered is called later (with NULL nothing is started); GATHER_NEVER where a plugin's
 * function makes it. An answer above the route's body limit becomes a 502. */
enum exchange_gather exchange_gather(struct exchange *x, void (*on_gathered)(void *arg), void *arg);
void exchange_ungather(struct exchange *x);
/* The whole answer, to be read and edited until the response phase ends; NULL where it was not
 * gathered. */
struct buf *exchange_gathered(struct exchange *x);
bool exchange_gather_piece(struct exchange *x, struct slice piece); /* false: too large */
void exchange_gather_end(struct exchange *x);
/* A client that leaves from now on does not cancel the origin: its answer is read on, for so long
 * and so many bytes (or more, where somebody else has asked for that). */
void exchange_keep_origin(struct exchange *x, uint64_t ms, uint64_t bytes);
/* The client left: true where the answer is read on. */
bool exchange_read_on(struct exchange *x);
void exchange_read_on_stop(struct exchange *x);
/* Answers that are read on end now: those of g (NULL: of all), kept ones only where that is true.
 */
void exchange_end_gone(struct services *sv, const struct generation *g, bool kept);

/* --- copies of answers (exchange_record.c) --- */

/* Keeps a copy of the origin's answer, up to so many bytes: as it came, but for usage events that
 * nobody asked for, and before any plugin's edit. Before the answer's head. */
void exchange_record(struct exchange *x, uint64_t max);
/* on_record is called as the copy grows, at its end, and where there will be no more of it. */
void exchange_record_told(struct exchange *x, void (*on_record)(void *arg), void *arg);
void exchange_record_piece(struct exchange *x, struct slice piece);
void exchange_record_end(struct exchange *x);
/* The copy, once the answer has come to its proper end; else NULL, and why: "none" (nothing is
 * recorded, or the origin has not answered), "incomplete", "too_large". */
const struct buf *exchange_recorded(const struct exchange *x, const char **why);

/* --- targets (exchange_target.c) --- */

enum exchange_pick {
    PICK_FOUND,
    PICK_NONE,  /* all have been considered, are out, or were passed over */
    PICK_FAILED /* a plugin raised: the exchange goes on as an error */
};

/* Behind access: chooses among the route's targets and begins the first attempt, or answers. Waits
 * for the body where its model has a say. */
void exchange_target_start(struct exchange *x);
/* The model that the client asks for; p == NULL where its body was not read for it, or names none.
 */
struct slice exchange_model(const struct exchange *x);
/* The next one that nobody passes over, into x->next_target. */
enum exchange_pick exchange_target_pick(struct exchange *x);
/* What was picked is not tried after all. */
void exchange_target_unpick(struct exchange *x);
bool exchange_target_left(const struct exchange *x); /* one that was not considered yet */

/* --- what plugins say and hear of targets (exchange_target_phase.c) --- */

/* PICK_NONE: a plugin passes over it, and asks for `again_ms` (0: did not say). */
enum exchange_pick exchange_target_hooks(struct exchange *x, struct target *t, uint64_t *again_ms);
void exchange_attempt_tell(struct exchange *x, struct target *t, const struct attempt_outcome *o,
                           const struct hooks *hooks);
/* Let pass by all that have a say, and not tried. */
void exchange_not_tried(struct exchange *x, struct target *t);

/* --- attempts (exchange_attempt.c) --- */

/* Begins one on x->next_target. */
void exchange_attempt_begin(struct exchange *x);
/* One failed before an answer began; the connection has been let go. True where another follows,
 * or where the exchange has gone on otherwise. `sent`: its target may have worked on the request.
 */
bool exchange_attempt_failed(struct exchange *x, const char *error, bool sent);
/* Whether another may follow, as far as the request goes; `sent` as above. */
bool exchange_attempt_may_follow(const struct exchange *x, bool sent);
/* Whether the retry budget has one left; counts where it has not. */
bool exchange_attempt_afford(struct exchange *x);
/* This one is over, and x->next_target is tried at the end of this turn. */
void exchange_attempt_follow(struct exchange *x, const char *error, bool sent);
/* A piece of its answer, which may have an error to be told of. */
void exchange_attempt_note(struct exchange *x, struct slice piece);
/* It is over: tells plugins, once. Does nothing where none is open. */
void exchange_attempt_end(struct exchange *x, const char *error);
/* The same with the reason that an exchange's end gives. */
void exchange_attempt_over(struct exchange *x, enum ended how);

/* --- answers that may be followed by another attempt (exchange_hold.c) --- */

/* The head is there: true where the answer is held, and its pieces go to the functions below. */
bool exchange_hold_head(struct exchange *x);
void exchange_hold_piece(struct exchange *x, struct slice piece);
/* All of it has come, or it takes too long: it is decided now. */
void exchange_hold_end(struct exchange *x);
/* What was held of an answer that is relayed after all, as soon as it can go. */
void exchange_hold_deliver(struct exchange *x);
void exchange_hold_drop(struct exchange *x);
/* The deadline of its next piece: ms, or less. */
uint64_t exchange_hold_limit(const struct exchange *x, uint64_t ms);

/* --- the request as it goes up (exchange_request.c) --- */

/* Makes x->up, which is what the target of this attempt is to get: fields of one connection out,
 * those of the gateway and the target in. */
void exchange_request_prepare(struct exchange *x);
/* Sends it on x->origin, with as much of the body as there is. */
void exchange_request_send(struct exchange *x);
void exchange_add_via(struct exchange *x, struct headers *h, int minor);

/* --- the origin (exchange_origin.c) --- */

void exchange_origin_connect(struct exchange *x); /* to x->target */
/* The answer, whose head is there, is what the client gets. */
void exchange_commit(struct exchange *x);
/* A piece of its body. */
void exchange_take(struct exchange *x, struct slice piece);
void exchange_origin_resume(
    struct exchange *x); /* behind the response phase, or once the client has drained */
void exchange_origin_let_go(struct exchange *x, bool reuse);
void exchange_origin_await(
    struct exchange *x); /* the deadline of the answer's head, behind each piece of the request */

/* --- plugins (exchange_phase.c) --- */

/* Runs the hooks of a phase; exchange_phase_done is called at once or later when all have run,
 * unless one answered. */
void exchange_phase_run(struct exchange *x, enum phase phase);
void exchange_phase_done(struct exchange *x); /* exchange.c */
/* Runs the body hooks over a piece and emits what they make of it. False where one failed (the
 * exchange was ended). */
bool exchange_body_hooks(struct exchange *x, struct slice piece, bool last,
                         void (*emit)(void *, struct slice));
void exchange_produce(struct exchange *x); /* SOURCE_FUNCTION: the next pieces */
struct task *exchange_task_new(struct exchange *x);
/* Logs and counts what a plugin did wrong: an error that it raised, or a mistake that no error of
 * Lua's shows. */
void exchange_report(struct exchange *x, const struct hook *h, enum phase phase, const char *error);
void exchange_report_misuse(struct exchange *x, const struct hook *h, enum phase phase,
                            const char *what);
void exchange_drop_tasks(struct exchange *x);
/* Gives up the finish and log phases that wait still: the process ends. Returns how many. */
uint32_t exchange_end_logs(struct services *sv);

/* --- accounting (exchange_log.c) --- */

void exchange_settle(struct exchange *x);
/* Counts it, and gives it its line. */
void exchange_log(struct exchange *x);
/* Tokens that its admission reserved. */
uint64_t exchange_reserved(const struct exchange *x);
/* As the client saw it; 0 where it left before the head. */
int exchange_shown_status(const struct exchange *x);
/* exchange_line.c: appends it, without a line end. */
void exchange_line(struct exchange *x, const struct access_format *format, struct buf *out);

#endif
