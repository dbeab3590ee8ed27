/* What the files of quota share.
 *
 * One quota_entry follows a request all the way: it waits for its turn's end, is asked for in a
 * call, is open as a grant while the request runs, and is settled, where need be later. quota_wait
 * and quota_grant are this entry under the names that callers know. */
#ifndef TOLLGATE_QUOTA_INTERNAL_H
#define TOLLGATE_QUOTA_INTERNAL_H

#include "quota.h"

enum {
    QUOTA_BATCH = 64,    /* requests in one script call */
    QUOTA_LEASE_S = 300, /* of q:reserved and q:conc */
    QUOTA_RENEW_MS = 60000,
    QUOTA_HEAL_MS = 1000,    /* between two heals of one key */
    QUOTA_HEAL_SAMPLE = 100, /* members looked at */
    QUOTA_CONCURRENCY_RETRY_MS = 1000,
    QUOTA_MONTH_TRIES = 2,      /* further ones after "wrong month" */
    QUOTA_KEPT_MAX = 100000,    /* settlements that wait for Redis */
    QUOTA_RESEND_WINDOW = 1024, /* of them under way at once */
    QUOTA_RESEND_MIN_MS = 1000,
    QUOTA_RESEND_MAX_MS = 30000,
    QUOTA_BROKEN_TRIES = 3, /* for a settlement that Redis answers with an error of its own */
    QUOTA_IDLE_KEYS = 4096,
    QUOTA_POOL_MAX = 4096,
    QUOTA_ERROR_LOG_MS = 10000 /* between two log lines about error replies */
};

#define QUOTA_TOKENS_MAX ((1ull << 53) - 1)

struct quota_entry;

struct quota_list {
    struct quota_entry *first, **last;
};

/* One API key: its names in Redis and what this turn collected for it. */
struct quota_key {
    struct quota_key *next;                  /* in its hash bucket */
    struct quota_key *idle_prev, *idle_next; /* while nobody holds it */
    struct quota_key *dirty_next;            /* in q->dirty */
    unsigned refs, hash;
    bool dirty;
    uint64_t healed_at; /* loop_now; 0: never */
    uint64_t renewal;   /* the last one that renewed its set */
    struct quota_list waits, settles;
    struct slice id, rps, conc, tokens; /* tokens without the month */
    struct slice tag;                   /* "{keyId}." of request ids, or empty */
    char text[];
};

/* What the script is told about an absent reservation; see settle.lua. */
enum quota_form { QUOTA_FIRST, QUOTA_AGAIN, QUOTA_NONE, QUOTA_VOID };

struct quota_entry {
    struct quota_entry *next, *prev; /* prev only in q->open */
    struct quota *q;
    struct quota_key *key; /* holds a reference; NULL where no Redis is needed */
    struct quota_limits limits;
    uint64_t reserve, actual, deadline_ms;
    int month; /* yyyymm of admission */
    enum quota_form form;
    bool open, counted, slotted; /* counted: charges q:tokens; slotted: has a place in q:conc */
    bool lapsed, resent, done;   /* done: to be released when the last pin goes */
    unsigned pins, tries;
    struct quota_result result;
    quota_cb cb; /* NULL once told or cancelled */
    void *arg;
    struct slice name, id; /* q:reserved:…, and the member of q:conc; both in text */
    char *text, near[112];
};

/* A script call under way: an admission (with heal and asking again), or a settlement. */
struct quota_call {
    struct quota_call *next, *prev;
    struct quota *q;
    struct quota_key *key; /* holds a reference */
    struct timer deadline;
    bool late, healed;
    int month, tries;
    int64_t month_start, month_end;
    unsigned n;
    struct quota_entry *entries[QUOTA_BATCH];
};

/* Arguments of a script call while it is put together. Numbers are written into a place of their
 * own; everything else is borrowed. */
struct quota_args {
    int nkeys, nargs, nnumbers;
    struct slice keys[3 + QUOTA_HEAL_SAMPLE], args[8 + 4 * QUOTA_BATCH];
    char numbers[8 + 2 * QUOTA_BATCH][32];
    struct buf names;
};

struct quota {
    struct loop *loop;
    struct rds *rds;
    struct rds_script admit, settle, heal;
    struct rds_watch watch;
    bool hash_tags, freed, overflowed, renewal_missed;
    unsigned pins; /* commands under way and callbacks running */
    struct quota_key **buckets;
    unsigned nbuckets, nkeys, nidle;
    struct quota_key *idle_first, *idle_last;
    struct quota_key *dirty, **dirty_last; /* have something to send at the end of this turn */
    struct quota_call *calls, *call_pool;
    struct quota_entry *pool;
    unsigned pooled, seed;
    struct quota_entry *open;  /* grants; doubly linked */
    struct quota_list at_once; /* decided without Redis */
    struct quota_list stuck,
        kept; /* settlements: wait for an event; to be sent as the window allows */
    unsigned resending;
    uint64_t resend_ms;
    struct deferred collect;
    struct timer renew, resend;
    uint64_t renew_ms, heal_ms, renewals, error_logged_at;
    unsigned kept_max;
    uint64_t lost_before_free;
    int64_t clock_offset; /* of Redis's clock to ours, ms */
    struct quota_args args;
    struct quota_stats *stats, own; /* stats: &own, or where the caller wants them */
    void (*on_batch)(void *arg, bool settle, unsigned requests); /* NULL: nobody counts */
    void *on_batch_arg;
};

/* quota.c */
void quota_list_init(struct quota_list *l);
void quota_list_push(struct quota_list *l, struct quota_entry *e);
struct quota_entry *quota_list_pop(struct quota_list *l);
void quota_on_collect(struct deferred *d);
void quota_log_error(struct quota *q, const char *what, const char *text);

/* quota_life.c */
void quota_hold(struct quota *q);
void quota_let_go(struct quota *q); /* q may be gone afterwards */

/* quota_entry.c */
struct quota_entry *quota_entry_new(struct quota *q, struct slice key_id, struct slice request_id,
                                    const struct quota_limits *limits);
void quota_entry_release(struct quota_entry *e);
void quota_entry_free(struct quota_entry *e);
void quota_entry_open(struct quota_entry *e);
void quota_entry_close(struct quota_entry *e);
/* Runs its callback, where it still has one. */
void quota_entry_tell(struct quota_entry *e, bool granted);
void quota_entry_unavailable(struct quota_entry *e);
bool quota_needs_settling(const struct quota_entry *e);
struct quota_call *quota_call_new(struct quota *q, struct quota_key *key);
void quota_call_release(struct quota_call *c);

/* quota_keys.c */
struct quota_key *quota_key_get(struct quota *q, struct slice id);
void quota_key_put(struct quota *q, struct quota_key *k);
void quota_key_dirty(struct quota *q, struct quota_key *k);
void quota_keys_free(struct quota *q);
/* The name of a member's reservation. */
void quota_name_reserved(struct buf *out, const struct quota_key *k, struct slice member);

/* quota_month.c */
int64_t quota_now(const struct quota *q);
void quota_learn_clock(struct quota *q, int64_t redis_ms);
/* yyyymm, and its bounds in ms; the end is outside. */
int quota_month(int64_t ms, int64_t *start, int64_t *end);

/* quota_args.c */
void quota_args_clear(struct quota_args *a);
void quota_args_key(struct quota_args *a, struct slice key);
void quota_args_counter(struct quota_args *a, const struct quota_key *k, int month);
void quota_args_slice(struct quota_args *a, struct slice s);
void quota_args_integer(struct quota_args *a, uint64_t n);
void quota_args_double(struct quota_args *a, double n);

/* quota_admit.c */
void quota_flush_waits(struct quota *q, struct quota_key *k);
void quota_ask(struct quota_call *c);
bool quota_anybody_waits(const struct quota_call *c);
/* Ends a call; what its entries' results say is told. */
void quota_refuse_all(struct quota_call *c);

/* quota_outcome.c */
enum quota_outcome {
    QUOTA_OUT_ADMITTED,
    QUOTA_OUT_RATE,
    QUOTA_OUT_BUDGET,
    QUOTA_OUT_CONCURRENCY,
    QUOTA_OUT_EXISTS, /* its reservation was there already */
    QUOTA_OUT_BROKEN
};
enum quota_outcome quota_read_outcome(const redisReply *reply, struct quota_result *out);
/* Completes e's result, which has the numbers of the outcome already. */
void quota_put_result(const struct quota_call *c, struct quota_entry *e, enum quota_outcome o,
                      int64_t now);
bool quota_is_text(const redisReply *reply, const char *text);
bool quota_is_sound(const struct quota_call *c, const redisReply *reply);

/* quota_heal.c */
bool quota_may_heal(const struct quota_call *c);
void quota_heal(struct quota_call *c);

/* quota_settle.c */
/* Settles e, as its form and actual say, at the end of this turn. */
void quota_send_settlement(struct quota_entry *e);
void quota_flush_settles(struct quota *q, struct quota_key *k);
/* Keeps e until Redis can take it. */
void quota_keep(struct quota_entry *e);
void quota_resend(struct quota *q);
void quota_on_resend(struct timer *t);

/* quota_renew.c */
void quota_renew(struct quota *q);
void quota_on_renew(struct timer *t);

#endif
