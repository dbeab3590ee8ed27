/* The fast path: admission and settlement of requests in Redis, batched per key and turn. The rules
 * are those of the contract in scripts/README.md; the decisions are made by the scripts admit,
 * settle and heal.
 *
 * The host owns an admission until its outcome is known, whatever becomes of the request: a late
 * "admitted" is settled at 0, and one whose connection was lost is voided. */
#ifndef TOLLGATE_QUOTA_H
#define TOLLGATE_QUOTA_H

#include "buf.h"
#include "loop.h"
#include "rds.h"

/* Limits of one key as one route sees them. 0 (has_* false) means not enforced. */
struct quota_limits {
    bool has_rate, has_budget, has_concurrency;
    double rate;          /* requests a second, > 0 */
    double burst;         /* >= 1 */
    uint64_t budget;      /* tokens in a UTC month, < 2^53 */
    uint64_t concurrency; /* requests in flight, >= 1 */
};
/* NULL, or what is wrong (static text): bounds of rate, burst, burst/rate <= 31 days and
 * budget < 2^53. */
const char *quota_limits_check(const struct quota_limits *l);

enum quota_verdict {
    QUOTA_ADMITTED,
    QUOTA_RATE, /* refused by the bucket */
    QUOTA_CONCURRENCY,
    QUOTA_BUDGET,
    QUOTA_UNAVAILABLE /* Redis did not answer in time, or answered an error */
};

struct quota_result {
    enum quota_verdict verdict;
    /* The state behind the decision, of the limits that are enforced; else 0. */
    double tokens;  /* left in the bucket */
    uint64_t spent; /* tokens consumed and reserved in the month */
    uint64_t inflight;
    int64_t retry_ms;     /* with a refusal: when it makes sense to try again; -1 where unknown */
    int64_t month_end_ms; /* end of the UTC month, since the epoch */
    int64_t now_ms;       /* Redis's clock, estimated */
};

struct quota;
struct quota_grant; /* one request's admission; owned by quota, given back by quota_settle */

typedef void (*quota_cb)(void *arg, struct quota_grant *grant, const struct quota_result *result);

/* script_dir holds admit.lua, settle.lua and heal.lua. NULL and a log line where one cannot be
 * read. r is borrowed until quota_free. */
struct quota *quota_new(struct loop *l, struct rds *r, const char *script_dir, bool hash_tags);
/* The same by a function that reads a file: 0 and text, borrowed until the next call, or a negative
 * UV_E*. */
typedef int (*quota_read)(void *arg, const char *path, struct slice *text);
struct quota *quota_new_from(struct loop *l, struct rds *r, const char *script_dir, bool hash_tags,
                             quota_read read, void *arg);
/* Reads the scripts and does nothing with them, for who wants to know that they can be read: 0, or
 * a negative UV_E* with the path of one that cannot. */
int quota_try(const char *script_dir, quota_read read, void *arg, char *path, size_t size);
/* Ends renewal; who still waits is told "unavailable", what could not be settled is logged as lost.
 * Wait for quota_idle first for a clean end. To be called before rds_free of its r. May be called
 * from inside a callback. */
void quota_free(struct quota *q);
/* True where nothing is under way to Redis or kept for later (open grants are their owners'). */
bool quota_idle(const struct quota *q);

/* Decides one request. cb is called once, later in this turn or a later one: with a grant where
 * admitted (to be given to quota_settle exactly once), else NULL. Where no limit is set it admits
 * without Redis and grant is NULL. Grants of a rate alone settle without Redis. `reserve` is in
 * tokens; 0 for requests without tokens. key_id must not be empty. key_id and request_id are
 * copied. deadline_ms 0: the connection's default. */
struct quota_wait *quota_admit(struct quota *q, struct slice key_id, struct slice request_id,
                               const struct quota_limits *limits, uint64_t reserve,
                               uint64_t deadline_ms, quota_cb cb, void *arg);
/* The request went away before its verdict: cb will not be called, the outcome is still owned here.
 * Not after cb ran. */
void quota_cancel(struct quota_wait *w);
/* A grant without Redis (on_redis_error = "allow"): nothing was charged, the actual spend is
 * settled later. Its closing mark in Redis is q:reserved:{requestId}~, so that it never meets what
 * becomes of an admission of the same request. */
struct quota_grant *quota_grant_unadmitted(struct quota *q, struct slice key_id,
                                           struct slice request_id,
                                           const struct quota_limits *limits);

/* Settles at `actual` tokens; takes the grant back. It is written to Redis at the end of this turn,
 * before LOOP_FINISH. */
void quota_settle(struct quota *q, struct quota_grant *g, uint64_t actual);

/* The names of keys, as the contract has them (parts percent-encoded); for tools. */
void quota_key_rps(struct buf *out, struct slice key_id, bool hash_tags);
void quota_key_tokens(struct buf *out, struct slice key_id, int64_t now_ms, bool hash_tags);
void quota_key_conc(struct buf *out, struct slice key_id, bool hash_tags);

/* Since the start, but for pending. */
struct quota_stats {
    uint64_t admitted; /* by Redis, also where nobody waited any more, or without limits */
    uint64_t refused_rate, refused_concurrency, refused_budget, unavailable;
    uint64_t settled, voided;
    uint64_t overspent; /* settled above what was reserved */
    uint64_t lapsed;    /* leases that were gone before their request ended */
    uint64_t healed;    /* dead slots dropped */
    uint64_t pending;   /* settlements that wait for Redis now */
    uint64_t lost;      /* settlements that will never be made */
};
const struct quota_stats *quota_stats(const struct quota *q);
/* Goes on counting at `at`, which has what was counted before, and outlives q. */
void quota_count_at(struct quota *q, struct quota_stats *at);
/* Says how many requests each script call has. */
void quota_set_batch(struct quota *q, void (*on_batch)(void *arg, bool settle, unsigned requests),
                     void *arg);

#endif
