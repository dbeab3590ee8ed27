/* Settlement against a real Redis: each row of the table, and what it does to the counters. */
#include "quota_rig.h"

static const struct quota_limits full = { true, true, true, 1, 100, 10000, 10 };

/* Admits 100 tokens on a counter of 1000, sets the stage, settles at 30. Returns the counter. */
static long long row(const char *id, enum quota_form form, const char *stage)
{
    struct ask a;
    redis_do(&server, "SET q:tokens:k:%d 1000 EX 100", this_month());
    assert_int_equal(decide(&a, "k", id, &full, 100), QUOTA_ADMITTED);
    ((struct quota_entry *)a.grant)->form = form;
    if (strcmp(stage, "absent") == 0)
        redis_do(&server, "DEL q:reserved:%s", id);
    else if (strcmp(stage, "there") != 0)
        redis_do(&server, "SET q:reserved:%s %s EX 100", id, stage);
    settle_now(&a, 30);
    assert_int_equal(redis_number(&server, "SISMEMBER q:conc:k %s", id), 0);
    return counter("k");
}

static void settles_row_by_row(void **state)
{
    (void)state;
    assert_int_equal(row("f1", QUOTA_FIRST, "there"), 1030);
    assert_int_equal(reserved("f1"), -999);
    assert_int_equal(row("f2", QUOTA_FIRST, "60"), 1070); /* by actual - what stands there */
    assert_int_equal(row("f3", QUOTA_FIRST, "-1"), 1100);
    assert_int_equal(reserved("f3"), -1);
    assert_int_equal(row("f4", QUOTA_FIRST, "absent"), 1030);
    assert_int_equal(reserved("f4"), -1);
    assert_in_range(redis_number(&server, "TTL q:reserved:f4"), 86390, 86400);
    assert_int_equal(row("a1", QUOTA_AGAIN, "there"), 1030);
    assert_int_equal(row("a2", QUOTA_AGAIN, "-1"), 1100);
    assert_int_equal(row("a3", QUOTA_AGAIN, "absent"), 1100);
    assert_int_equal(reserved("a3"), -999);
    assert_int_equal(row("v1", QUOTA_VOID, "there"), 1000);
    assert_int_equal(reserved("v1"), -999);
    assert_int_equal(row("v2", QUOTA_VOID, "-1"), 1100);
    assert_int_equal(row("v3", QUOTA_VOID, "absent"), 1100);
    assert_int_equal(reserved("v3"), -1);
    assert_in_range(redis_number(&server, "TTL q:reserved:v3"), 290, 300);
    assert_int_equal(quota_stats(quota)->voided, 3);
    assert_int_equal(quota_stats(quota)->settled, 7);
}

static void settles_what_redis_had_not_admitted(void **state)
{
    (void)state;
    for (int again = 0; again < 2; again++) { /* sent twice, it charges once */
        struct ask a = { .grant = quota_grant_unadmitted(quota, SLICE("k"), SLICE("r"), &full) };
        settle_now(&a, 70);
        assert_int_equal(counter("k"), 70);
    }
    assert_int_equal(reserved("r~"), -1);
    assert_in_range(redis_number(&server, "TTL q:reserved:r~"), 86390, 86400);
    const struct quota_limits rate = RATE(1, 1);
    struct ask a = { .grant = quota_grant_unadmitted(quota, SLICE("k"), SLICE("r2"), &rate) };
    settle_now(&a, 70);
    assert_int_equal(counter("k"), 70);
}

static void never_below_zero_and_above_budget_when_spent(void **state)
{
    (void)state;
    struct ask a;
    const struct quota_limits l = BUDGET(100);
    assert_int_equal(decide(&a, "k", "r1", &l, 100), QUOTA_ADMITTED);
    redis_do(&server, "SET q:tokens:k:%d 20 EX 100", this_month());
    settle_now(&a, 10);
    assert_int_equal(counter("k"), 0);
    assert_int_equal(decide(&a, "k", "r2", &l, 100), QUOTA_ADMITTED);
    settle_now(&a, 150);
    assert_int_equal(counter("k"), 150);
    assert_int_equal(quota_stats(quota)->overspent, 1);
    assert_int_equal(decide(&a, "k", "r3", &l, 1), QUOTA_BUDGET);
}

static void one_turn_settles_in_few_calls(void **state)
{
    (void)state;
    static struct ask a[130];
    const struct quota_limits l = CAP(1000);
    char id[16];
    redis_do(&server, "CONFIG RESETSTAT");
    for (int i = 0; i < 130; i++) {
        snprintf(id, sizeof id, "r%d", i);
        ask(&a[i], "k", id, &l, 0);
    }
    TURN_UNTIL(&loop, quota_idle(quota));
    for (int i = 0; i < 130; i++)
        settle(&a[i], 0);
    TURN_UNTIL(&loop, quota_idle(quota));
    redisReply *stats = redis_ask(&server, "INFO commandstats");
    assert_non_null(strstr(stats->str, "cmdstat_evalsha:calls=6,")); /* 3 of each */
    freeReplyObject(stats);
    assert_int_equal(redis_number(&server, "DBSIZE"), 0);
}

static void hash_tags_keep_a_decision_together(void **state)
{
    (void)state;
    struct ask a;
    quota->hash_tags = true;
    assert_int_equal(decide(&a, "a:b", "u1", &full, 5), QUOTA_ADMITTED);
    assert_int_equal(redis_number(&server, "GET q:reserved:{a%%3Ab}.u1"), 5);
    assert_int_equal(redis_number(&server, "SISMEMBER q:conc:{a%%3Ab} {a%%3Ab}.u1"), 1);
    assert_int_equal(redis_number(&server, "GET q:tokens:{a%%3Ab}:%d", this_month()), 5);
    assert_int_equal(redis_number(&server, "EXISTS q:rps:{a%%3Ab}"), 1);
    settle_now(&a, 5);
    assert_int_equal(decide(&a, "a:b", "{a%3Ab}.u2", &full, 5),
                     QUOTA_ADMITTED); /* minted so already */
    assert_int_equal(redis_number(&server, "GET q:reserved:{a%%3Ab}.u2"), 5);
    settle_now(&a, 5);
    assert_int_equal(redis_number(&server, "SCARD q:conc:{a%%3Ab}"), 0);
}

#define WITH_REDIS(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_REDIS(settles_row_by_row),
        WITH_REDIS(settles_what_redis_had_not_admitted),
        WITH_REDIS(never_below_zero_and_above_budget_when_spent),
        WITH_REDIS(one_turn_settles_in_few_calls),
        WITH_REDIS(hash_tags_keep_a_decision_together),
    };
    log_set_level(getenv("SPEC_LOG") != NULL ? LOG_DEBUG : LOG_ERROR);
    redis_server_start(&server, 0, NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_server_stop(&server);
    return failed;
}
