/* quota against a real Redis: what is decided, and what stays in the keys. */
#include "quota_rig.h"

/* --- plain data --- */

static void names_keys(void **state)
{
    (void)state;
    struct buf b;
    buf_init(&b);
    quota_key_rps(&b, SLICE("a:b%{c}\x01 \x7f\xc3\xa9"), false);
    assert_true(slice_eq(buf_slice(&b), SLICE("q:rps:a%3Ab%25%7Bc%7D%01%20%7F\xc3\xa9")));
    buf_clear(&b);
    quota_key_conc(&b, SLICE("a:b"), true);
    assert_true(slice_eq(buf_slice(&b), SLICE("q:conc:{a%3Ab}")));
    buf_clear(&b);
    quota_key_tokens(&b, SLICE("k"), 1709251199999, false); /* the last ms of a leap February */
    assert_true(slice_eq(buf_slice(&b), SLICE("q:tokens:k:202402")));
    buf_clear(&b);
    quota_key_tokens(&b, SLICE("k"), 1709251200000, true);
    assert_true(slice_eq(buf_slice(&b), SLICE("q:tokens:{k}:202403")));
    buf_deinit(&b);
}

static void knows_months(void **state)
{
    (void)state;
    int64_t start, end;
    for (int64_t ms = 0; ms < 4102444800000; ms += 86400000) { /* each day until 2100 */
        time_t t = (time_t)(ms / 1000);
        struct tm tm;
        gmtime_r(&t, &tm);
        assert_int_equal(quota_month(ms, &start, &end), (tm.tm_year + 1900) * 100 + tm.tm_mon + 1);
        assert_true(start <= ms && ms < end);
        tm = (struct tm){ .tm_year = tm.tm_year, .tm_mon = tm.tm_mon, .tm_mday = 1 };
        assert_int_equal(start / 1000, timegm(&tm));
        tm.tm_mon++;
        assert_int_equal(end / 1000, timegm(&tm));
    }
}

static void bounds_limits(void **state)
{
    (void)state;
    const struct quota_limits good[] = { { .has_rate = false },    RATE(0.5, 1),
                                         RATE(1e9, 1e12),          BUDGET(0),
                                         BUDGET((1ull << 53) - 1), CAP(1),
                                         RATE(1.0 / 86400, 31) };
    const struct quota_limits bad[] = {
        RATE(0, 1),   RATE(-1, 1),  RATE(NAN, 1),          RATE(INFINITY, 1),
        RATE(1, 0.5), RATE(1, NAN), RATE(1.0 / 86400, 32), BUDGET(1ull << 53),
        CAP(0)
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        assert_null(quota_limits_check(&good[i]));
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_non_null(quota_limits_check(&bad[i]));
}

/* --- decisions --- */

static void no_limit_costs_no_redis(void **state)
{
    (void)state;
    struct ask a;
    const struct quota_limits none = { .has_rate = false };
    long long before = redis_number(&server, "EVAL %s 0", "return #redis.call('KEYS', '*')");
    kill(server.pid, SIGSTOP);
    assert_int_equal(decide(&a, "k", "r", &none, 100), QUOTA_ADMITTED);
    assert_null(a.grant);
    kill(server.pid, SIGCONT);
    assert_int_equal(before, 0);
    const struct quota_limits some = CAP(1);
    assert_int_equal(decide(&a, "", "r", &some, 0), QUOTA_UNAVAILABLE);
    assert_int_equal(decide(&a, "k", "", &some, 0), QUOTA_UNAVAILABLE);
}

static void a_bucket_admits_its_burst(void **state)
{
    (void)state;
    static struct ask a[200];
    const struct quota_limits l = RATE(0.01, 10);
    int admitted = 0;
    char id[16];
    for (int i = 0; i < 200; i++) {
        snprintf(id, sizeof id, "r%d", i);
        ask(&a[i], "k", id, &l, 0);
    }
    TURN_UNTIL(&loop, quota_idle(quota));
    for (int i = 0; i < 200; i++) {
        assert_int_equal(a[i].calls, 1);
        assert_int_equal(a[i].result.verdict, i < 10 ? QUOTA_ADMITTED : QUOTA_RATE);
        if (a[i].result.verdict == QUOTA_RATE)
            assert_in_range(a[i].result.retry_ms, 90000, 100000);
        admitted += a[i].grant != NULL;
        if (a[i].grant != NULL)
            settle(&a[i], 0);
    }
    assert_int_equal(admitted, 10);
    assert_int_equal(redis_number(&server, "DBSIZE"), 1); /* no reservation for a rate */
    assert_in_range(redis_number(&server, "PTTL q:rps:k"), 1990000, 2000000);
    assert_int_equal(redis_number(&server, "EXISTS q:rps:k"), 1);
}

/* tokens(now) = min(burst, tokens + rate * elapsed), from the last refill, fractions kept. */
static void a_bucket_refills(void **state)
{
    (void)state;
    struct ask a;
    const struct quota_limits l = RATE(2, 5), fast = RATE(1000, 5);
    long long now = loop_wall_ms();
    redis_do(&server, "HSET q:rps:k tokens 0.25 last_refill %lld", now - 1000);
    redis_do(&server, "PEXPIRE q:rps:k 100000");
    assert_int_equal(decide(&a, "k", "r1", &l, 0), QUOTA_ADMITTED);
    settle(&a, 0);
    redisReply *fields = redis_ask(&server, "HMGET q:rps:k tokens last_refill");
    double tokens = strtod(fields->element[0]->str, NULL);
    long long last = strtoll(fields->element[1]->str, NULL, 10);
    assert_true(last >= now);
    assert_true(fabs(tokens - (0.25 + (double)(last - (now - 1000)) * 2 / 1000 - 1)) < 1e-9);
    assert_true(a.result.tokens == tokens);
    freeReplyObject(fields);
    redis_do(&server, "HSET q:rps:k tokens 0 last_refill %lld", now - 3600000);
    assert_int_equal(decide(&a, "k", "r2", &l, 0), QUOTA_ADMITTED);
    settle(&a, 0);
    assert_true(a.result.tokens == 4); /* never above the burst */
    redis_do(&server, "HSET q:rps:k tokens 0 last_refill %lld", (long long)loop_wall_ms() - 3);
    assert_int_equal(decide(&a, "k", "r3", &fast, 0),
                     QUOTA_ADMITTED); /* a new rate applies from the last refill */
    settle(&a, 0);
    assert_in_range(redis_number(&server, "PTTL q:rps:k"), 900, 1000); /* a second at least */
}

static void a_refill_in_the_future_is_repaired(void **state)
{
    (void)state;
    struct ask a;
    const struct quota_limits l = RATE(0.001, 5);
    long long now = loop_wall_ms();
    redis_do(&server, "HSET q:rps:k tokens 0.5 last_refill %lld", now + 3600000);
    assert_int_equal(decide(&a, "k", "r", &l, 0), QUOTA_RATE);
    assert_in_range(redis_number(&server, "HGET q:rps:k last_refill"), now, loop_wall_ms());
    redisReply *tokens = redis_ask(&server, "HGET q:rps:k tokens");
    assert_string_equal(tokens->str, "0.5");
    freeReplyObject(tokens);
}

static void a_budget_fits_exactly(void **state)
{
    (void)state;
    static struct ask a[150];
    const struct quota_limits l = BUDGET(1000);
    char id[16];
    for (int i = 0; i < 150; i++) {
        snprintf(id, sizeof id, "r%d", i);
        ask(&a[i], "k", id, &l, i == 140 ? 10 : 90);
    }
    TURN_UNTIL(&loop, quota_idle(quota));
    for (int i = 0; i < 150; i++) {
        assert_int_equal(a[i].result.verdict, i < 11 || i == 140 ? QUOTA_ADMITTED : QUOTA_BUDGET);
        if (a[i].grant == NULL)
            assert_int_equal(a[i].result.retry_ms, a[i].result.month_end_ms - a[i].result.now_ms);
    }
    assert_int_equal(counter("k"), 1000);
    assert_int_equal(a[140].result.spent, 1000);
    for (int i = 0; i < 150; i++) {
        if (a[i].grant != NULL)
            settle(&a[i], 5);
    }
    TURN_UNTIL(&loop, quota_idle(quota));
    assert_int_equal(counter("k"), 60);
    assert_int_equal(redis_number(&server, "DBSIZE"), 1);
    assert_in_range(redis_number(&server, "TTL q:tokens:k:%d", this_month()), 40 * 86400 - 5,
                    40 * 86400);
}

static void big_numbers_stay_whole(void **state)
{
    (void)state;
    struct ask a;
    const struct quota_limits l = BUDGET((1ull << 53) - 1);
    assert_int_equal(decide(&a, "k", "r", &l, (1ull << 53) - 2), QUOTA_ADMITTED);
    assert_int_equal(counter("k"), (1ll << 53) - 2);
    assert_int_equal(a.result.spent, (1ull << 53) - 2);
    assert_int_equal(reserved("r"), (1ll << 53) - 2);
    struct ask b;
    assert_int_equal(decide(&b, "k", "r2", &l, 2), QUOTA_BUDGET);
    assert_int_equal(decide(&b, "k", "r2", &l, UINT64_MAX), QUOTA_BUDGET);
    settle_now(&a, 1000000000000001);
    assert_int_equal(counter("k"), 1000000000000001);
}

static void slots_are_given_back(void **state)
{
    (void)state;
    struct ask a, b;
    const struct quota_limits l = CAP(1);
    assert_int_equal(decide(&a, "k", "first", &l, 0), QUOTA_ADMITTED);
    assert_int_equal(a.result.inflight, 1);
    assert_int_equal(reserved("first"), 0);
    assert_in_range(redis_number(&server, "TTL q:conc:k"), 295, 300);
    assert_in_range(redis_number(&server, "TTL q:reserved:first"), 295, 300);
    assert_int_equal(decide(&b, "k", "second", &l, 0), QUOTA_CONCURRENCY);
    assert_int_equal(b.result.retry_ms, 1000);
    settle(&a, 0);
    ask(&b, "k", "third", &l, 0); /* in one turn settlements go before admissions */
    TURN_UNTIL(&loop, b.calls == 1);
    assert_int_equal(b.result.verdict, QUOTA_ADMITTED);
    settle(&b, 0);
}

static struct {
    const struct quota_limits *limits;
    int left, admitted;
    struct ask ask;
} sequence;

static void on_sequence(void *arg, struct quota_grant *grant, const struct quota_result *result)
{
    char id[24];
    (void)arg, (void)result;
    sequence.admitted += grant != NULL;
    if (grant != NULL)
        quota_settle(quota, grant, 0);
    if (sequence.left-- == 0)
        return;
    snprintf(id, sizeof id, "s%d", sequence.left);
    quota_admit(quota, SLICE("k"), slice_of(id), sequence.limits, 0, 0, on_sequence, NULL);
}

static void a_thousand_in_sequence_at_a_cap_of_one(void **state)
{
    (void)state;
    const struct quota_limits l = CAP(1);
    sequence.limits = &l;
    sequence.left = 999;
    sequence.admitted = 0;
    quota_admit(quota, SLICE("k"), SLICE("s"), &l, 0, 0, on_sequence, NULL);
    TURN_UNTIL(&loop, sequence.left == -1 && quota_idle(quota));
    assert_int_equal(sequence.admitted, 1000);
    assert_int_equal(redis_number(&server, "DBSIZE"), 0);
}

/* All or nothing: each limit in turn refuses, the others stay as they were. */
static void a_refusal_changes_nothing(void **state)
{
    (void)state;
    const struct quota_limits wide = { true, true, true, 0.001, 3, 1000, 3 };
    struct quota_limits narrow[3] = { wide, wide, wide };
    const enum quota_verdict verdicts[] = { QUOTA_RATE, QUOTA_BUDGET, QUOTA_CONCURRENCY };
    struct ask a, b;
    assert_int_equal(decide(&a, "k", "in", &wide, 100), QUOTA_ADMITTED);
    redis_do(&server, "HSET q:rps:full tokens 0.5 last_refill %lld", (long long)loop_wall_ms());
    redis_do(&server, "PEXPIRE q:rps:full 100000");
    narrow[1].budget = 150;
    narrow[2].concurrency = 1;
    for (int i = 0; i < 3; i++) {
        char *before = snapshot();
        assert_int_equal(decide(&b, i == 0 ? "full" : "k", "out", &narrow[i], 60), verdicts[i]);
        char *after = snapshot();
        assert_string_equal(before, after);
        free(before);
        free(after);
    }
    assert_int_equal(decide(&b, "k", "raised", &wide, 900),
                     QUOTA_ADMITTED); /* a raised limit admits at once */
    assert_int_equal(b.result.spent, 1000);
    assert_int_equal(b.result.inflight, 2);
    settle(&a, 0);
    settle(&b, 0);
}

static void a_reservation_that_exists_refuses(void **state)
{
    (void)state;
    struct ask a, b;
    const struct quota_limits l = { true, true, true, 0.001, 3, 1000, 3 };
    redis_do(&server, "SET q:reserved:r -1 EX 100");
    char *before = snapshot();
    assert_int_equal(decide(&a, "k", "r", &l, 10), QUOTA_UNAVAILABLE);
    char *after = snapshot();
    assert_string_equal(before, after);
    free(before);
    free(after);
    ask(&a, "k", "same", &l, 10); /* also within one batch */
    ask(&b, "k", "same", &l, 20);
    TURN_UNTIL(&loop, a.calls == 1 && b.calls == 1);
    assert_int_equal(a.result.verdict, QUOTA_ADMITTED);
    assert_int_equal(b.result.verdict, QUOTA_UNAVAILABLE);
    assert_int_equal(counter("k"), 10);
    settle(&a, 1);
}

/* --- a batch decides as its requests one by one would --- */

struct step {
    struct quota_limits limits;
    uint64_t reserve;
};

static struct step random_step(unsigned *seed, const struct step *before)
{
    struct step s = *before;
    if (rand_r(seed) % 8 == 0) { /* other limits, as of another route or after a reload */
        s.limits.has_rate = rand_r(seed) % 4 != 0;
        s.limits.has_budget = rand_r(seed) % 4 != 0;
        s.limits.has_concurrency =
            rand_r(seed) % 4 != 0 || (!s.limits.has_rate && !s.limits.has_budget);
        s.limits.burst = 1 + rand_r(seed) % 40;
        s.limits.rate =
            s.limits.burst / (30 * 86400.0); /* so slow that the clock does not matter */
        s.limits.budget = (uint64_t)(rand_r(seed) % 3000);
        s.limits.concurrency = 1 + (uint64_t)(rand_r(seed) % 40);
    }
    s.reserve = (uint64_t)(rand_r(seed) % 100);
    return s;
}

/* A cap's heal asks again behind others; it is not what is compared here. */
static void never_heal(const char *key)
{
    struct quota_key *k = quota_key_get(quota, slice_of(key));
    quota->heal_ms = UINT64_MAX;
    k->healed_at = 1;
    quota_key_put(quota, k);
}

static void same_result(const struct ask *a, const struct ask *b)
{
    assert_int_equal(a->result.verdict, b->result.verdict);
    assert_int_equal(a->result.spent, b->result.spent);
    assert_int_equal(a->result.inflight, b->result.inflight);
    assert_true(fabs(a->result.tokens - b->result.tokens) < 0.01);
}

static void a_batch_decides_as_one_by_one(void **state)
{
    (void)state;
    enum { STEPS = 150, ROUNDS = 12 };
    static struct ask batch[STEPS], single[STEPS];
    char id[32], key[2][16];
    unsigned seed = 7;
    struct step step = { { true, true, true, 10 / (30 * 86400.0), 10, 1000, 10 }, 0 };
    for (int round = 0; round < ROUNDS; round++) {
        snprintf(key[0], sizeof key[0], "batch%d", round);
        snprintf(key[1], sizeof key[1], "single%d", round);
        never_heal(key[0]);
        never_heal(key[1]);
        static struct step steps[STEPS];
        for (int i = 0; i < STEPS; i++) {
            steps[i] = step = random_step(&seed, &step);
            snprintf(id, sizeof id, "b%d.%d", round, i);
            ask(&batch[i], key[0], id, &step.limits, step.reserve);
        }
        TURN_UNTIL(&loop, quota_idle(quota));
        for (int i = 0; i < STEPS; i++) {
            snprintf(id, sizeof id, "s%d.%d", round, i);
            decide(&single[i], key[1], id, &steps[i].limits, steps[i].reserve);
            same_result(&batch[i], &single[i]);
        }
        for (int i = 0; i < STEPS; i++) { /* and settlements: all at once, and one by one */
            if (batch[i].grant != NULL)
                settle(&batch[i], (uint64_t)i);
        }
        TURN_UNTIL(&loop, quota_idle(quota));
        for (int i = 0; i < STEPS; i++) {
            if (single[i].grant != NULL)
                settle_now(&single[i], (uint64_t)i);
        }
        assert_int_equal(counter(key[0]), counter(key[1]));
    }
}

/* --- many, and gone --- */

static const struct quota_limits full = { true, true, true, 1, 100, 10000, 10 };

static void many_keys_in_one_turn(void **state)
{
    (void)state;
    enum { KEYS = 10000 };
    static struct ask a[KEYS];
    char key[16], id[16];
    for (int i = 0; i < KEYS; i++) {
        snprintf(key, sizeof key, "k%d", i);
        snprintf(id, sizeof id, "r%d", i);
        memset(&a[i], 0, sizeof a[i]);
        quota_admit(quota, slice_of(key), slice_of(id), &full, 1, 30000, on_ask, &a[i]);
    }
    TURN_UNTIL(&loop, quota_idle(quota));
    for (int i = 0; i < KEYS; i++) {
        assert_int_equal(a[i].result.verdict, QUOTA_ADMITTED);
        settle(&a[i], 1);
    }
    TURN_UNTIL(&loop, quota_idle(quota));
    assert_int_equal(redis_number(&server, "DBSIZE"), 2 * KEYS);
    assert_true(quota->nkeys <= QUOTA_IDLE_KEYS);
    redis_do(&server, "FLUSHALL");
}

static void a_cancelled_wait_is_not_called(void **state)
{
    (void)state;
    struct ask a, b;
    ask(&a, "k", "r1", &full, 10); /* before it was sent */
    quota_cancel(a.wait);
    turns_for(&loop, 10);
    assert_int_equal(redis_number(&server, "DBSIZE"), 0);
    ask(&a, "k", "r2", &full, 10); /* under way: admitted, and settled at 0 */
    ask(&b, "k", "r3", &full, 10);
    kill(server.pid, SIGSTOP);
    turns_for(&loop, 10);
    quota_cancel(a.wait);
    kill(server.pid, SIGCONT);
    TURN_UNTIL(&loop, quota_idle(quota));
    assert_int_equal(a.calls, 0);
    assert_int_equal(b.result.verdict, QUOTA_ADMITTED);
    assert_int_equal(counter("k"), 10);
    assert_int_equal(reserved("r2"), -999);
    assert_int_equal(redis_number(&server, "SCARD q:conc:k"), 1);
    settle(&b, 10);
}

#define WITH_REDIS(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_keys),
        cmocka_unit_test(knows_months),
        cmocka_unit_test(bounds_limits),
        WITH_REDIS(no_limit_costs_no_redis),
        WITH_REDIS(a_bucket_admits_its_burst),
        WITH_REDIS(a_bucket_refills),
        WITH_REDIS(a_refill_in_the_future_is_repaired),
        WITH_REDIS(a_budget_fits_exactly),
        WITH_REDIS(big_numbers_stay_whole),
        WITH_REDIS(slots_are_given_back),
        WITH_REDIS(a_thousand_in_sequence_at_a_cap_of_one),
        WITH_REDIS(a_refusal_changes_nothing),
        WITH_REDIS(a_reservation_that_exists_refuses),
        WITH_REDIS(a_batch_decides_as_one_by_one),
        WITH_REDIS(many_keys_in_one_turn),
        WITH_REDIS(a_cancelled_wait_is_not_called),
    };
    log_set_level(getenv("SPEC_LOG") != NULL ? LOG_DEBUG : LOG_ERROR);
    redis_server_start(&server, 0, NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_server_stop(&server);
    return failed;
}
