/* For tests of quota: a Redis, a loop, a connection and a quota, and short words for what they do.
 */
#ifndef TOLLGATE_SPEC_QUOTA_RIG_H
#define TOLLGATE_SPEC_QUOTA_RIG_H

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "log.h"
#include "quota_internal.h"
#include "redis_server.h"
#include "turns.h"

static struct loop loop;
static struct redis_server server;
static struct rds *rds;
static struct quota *quota;

struct ask {
    int calls;
    struct quota_wait *wait;
    struct quota_grant *grant;
    struct quota_result result;
};

static inline void on_ask(void *arg, struct quota_grant *grant, const struct quota_result *result)
{
    struct ask *a = arg;
    a->calls++;
    a->grant = grant;
    a->result = *result;
}

static inline void rig_up(const char *url)
{
    struct rds_config c;
    turns_init(&loop);
    assert_null(rds_config_parse(slice_of(url), &c));
    c.deadline_ms = 1000;
    c.connect_ms = 500;
    c.hang_ms = 150;
    c.backoff_min_ms = 10;
    c.backoff_max_ms = 40;
    rds = rds_new(&loop, &c);
    quota = quota_new(&loop, rds, TOLLGATE_SOURCE_DIR "/scripts/redis", false);
    assert_non_null(quota);
    rds_start(rds);
    TURN_UNTIL(&loop, rds_state(rds) == RDS_READY);
}

static inline int rig_setup(void **state)
{
    (void)state;
    redis_do(&server, "FLUSHALL");
    rig_up(server.url);
    return 0;
}

static inline int rig_teardown(void **state)
{
    (void)state;
    kill(server.pid, SIGCONT); /* where a test failed while it was stopped */
    if (quota != NULL) {
        TURN_UNTIL(&loop, quota_idle(quota));
        quota_free(quota);
    }
    rds_free(rds);
    quota = NULL;
    assert_int_equal(turns_deinit(&loop), 0);
    assert_int_equal(redis_immortal_keys(&server), 0);
    return 0;
}

static inline void ask(struct ask *a, const char *key, const char *id, const struct quota_limits *l,
                       uint64_t reserve)
{
    memset(a, 0, sizeof *a);
    a->wait = quota_admit(quota, slice_of(key), slice_of(id), l, reserve, 0, on_ask, a);
    assert_int_equal(a->calls, 0);
}

static inline enum quota_verdict decide(struct ask *a, const char *key, const char *id,
                                        const struct quota_limits *l, uint64_t reserve)
{
    ask(a, key, id, l, reserve);
    TURN_UNTIL(&loop, a->calls == 1);
    return a->result.verdict;
}

static inline void settle(struct ask *a, uint64_t actual)
{
    assert_non_null(a->grant);
    quota_settle(quota, a->grant, actual);
    a->grant = NULL;
}

static inline void settle_now(struct ask *a, uint64_t actual)
{
    settle(a, actual);
    TURN_UNTIL(&loop, quota_idle(quota));
}

static inline int this_month(void)
{
    int64_t start, end;
    return quota_month(loop_wall_ms(), &start, &end);
}

/* 0 where it is absent. */
static inline long long counter(const char *key)
{
    long long n = redis_number(&server, "GET q:tokens:%s:%d", key, this_month());
    return n == -999 ? 0 : n;
}

/* -999 where it is absent. */
static inline long long reserved(const char *id)
{
    return redis_number(&server, "GET q:reserved:%s", id);
}

/* Every key with its bytes (not its lifetime), in order; to be freed. */
static inline char *snapshot(void)
{
    struct buf out;
    buf_init(&out);
    redisReply *keys = redis_ask(
        &server, "EVAL %s 0",
        "local k = redis.call('KEYS', '*') table.sort(k) local t = {} for i, key in ipairs(k) do "
        "t[i] = key .. '=' .. redis.sha1hex(redis.call('DUMP', key)) end return table.concat(t, ' "
        "')");
    buf_add(&out, keys->str, keys->len + 1);
    freeReplyObject(keys);
    return out.p;
}

#define RATE(r, b)                                                                                 \
    {                                                                                              \
        .has_rate = true, .rate = (r), .burst = (b)                                                \
    }
#define BUDGET(n)                                                                                  \
    {                                                                                              \
        .has_budget = true, .budget = (n)                                                          \
    }
#define CAP(n)                                                                                     \
    {                                                                                              \
        .has_concurrency = true, .concurrency = (n)                                                \
    }

#endif
