/* What time does to quota: leases are renewed, dead slots heal, months change. */
#include "quota_rig.h"

static const struct quota_limits full = { true, true, true, 0.001, 100, 10000, 10 };

/* --- leases --- */

static void leases_are_renewed(void **state)
{
    (void)state;
    struct ask a, b;
    decide(&a, "k", "alive", &full, 100);
    decide(&b, "k", "lapsed", &full, 100);
    redis_do(&server, "PEXPIRE q:reserved:alive 2000");
    redis_do(&server, "PEXPIRE q:conc:k 2000");
    redis_do(&server, "DEL q:reserved:lapsed");
    quota->renew_ms = 20;
    timer_set(&loop, &quota->renew, 20);
    TURN_UNTIL(&loop, redis_number(&server, "PTTL q:reserved:alive") > 200000);
    assert_true(redis_number(&server, "PTTL q:conc:k") > 200000);
    TURN_UNTIL(&loop, quota_stats(quota)->lapsed == 1);
    turns_for(&loop, 50);
    assert_int_equal(reserved("lapsed"), -999); /* a renewal never creates a key */
    assert_int_equal(quota_stats(quota)->lapsed, 1);
    quota->renew_ms = QUOTA_RENEW_MS;
    timer_set(&loop, &quota->renew, 60000);
    settle(&a, 10);
    settle_now(&b, 20);
    assert_int_equal(counter("k"), 30);
    assert_int_equal(quota_stats(quota)->lapsed, 1);
}

static void dead_slots_heal(void **state)
{
    (void)state;
    struct ask a, b;
    const struct quota_limits l = CAP(2);
    assert_int_equal(decide(&a, "k", "alive", &l, 0), QUOTA_ADMITTED);
    redis_do(&server, "SADD q:conc:k dead");
    assert_int_equal(decide(&b, "k", "r1", &l, 0), QUOTA_ADMITTED);
    TURN_UNTIL(&loop, quota_idle(quota));
    assert_int_equal(quota_stats(quota)->healed, 1);
    settle_now(&b, 0);
    redis_do(&server, "SADD q:conc:k dead");
    assert_int_equal(decide(&b, "k", "r2", &l, 0), QUOTA_CONCURRENCY); /* once a second is enough */
    quota->heal_ms = 1;
    turns_for(&loop, 10);
    assert_int_equal(decide(&b, "k", "r3", &l, 0), QUOTA_ADMITTED);
    assert_int_equal(redis_number(&server, "SISMEMBER q:conc:k alive"), 1);
    settle(&a, 0);
    settle(&b, 0);
}

static void a_busy_key_heals_many(void **state)
{
    (void)state;
    static struct ask a[300];
    const struct quota_limits l = CAP(300);
    char id[16];
    redis_do(&server, "EVAL %s 1 q:conc:k",
             "for i = 1, 300 do redis.call('SADD', KEYS[1], 'dead' .. i) end");
    redis_do(&server, "EXPIRE q:conc:k 300");
    quota->heal_ms = 1;
    int admitted = 0;
    for (int i = 0; i < 300; i++) {
        snprintf(id, sizeof id, "r%d", i);
        admitted += decide(&a[i], "k", id, &l, 0) == QUOTA_ADMITTED;
        turns_for(&loop, 2);
    }
    assert_true(admitted > 250);
    for (int i = 0; i < 300; i++) {
        if (a[i].grant != NULL)
            settle(&a[i], 0);
    }
}

/* --- months --- */

static void a_wrong_month_is_asked_again(void **state)
{
    (void)state;
    struct ask a[3];
    char id[16];
    quota->clock_offset = 40ll * 86400000;
    for (int i = 0; i < 3; i++) {
        snprintf(id, sizeof id, "r%d", i);
        ask(&a[i], "k", id, &full, 100);
    }
    TURN_UNTIL(&loop, quota_idle(quota));
    for (int i = 0; i < 3; i++)
        assert_int_equal(a[i].result.verdict, QUOTA_ADMITTED);
    assert_int_equal(counter("k"), 300);
    assert_in_range(quota->clock_offset + 1000, 0, 2000);
    for (int i = 0; i < 3; i++)
        settle(&a[i], 1);
    TURN_UNTIL(&loop, quota_idle(quota));
    assert_int_equal(redis_number(&server, "EXISTS q:tokens:k:%d", this_month()), 1);
    assert_int_equal(redis_number(&server, "DBSIZE"), 2);
}

static void settles_in_the_month_of_admission(void **state)
{
    (void)state;
    struct ask a, b;
    decide(&a, "k", "r1", &full, 100);
    decide(&b, "k", "r2", &full, 100);
    redis_do(&server, "SET q:tokens:k:202001 500 EX 100");
    ((struct quota_entry *)a.grant)->month = 202001;
    settle(&a, 30); /* of two months in one turn */
    settle_now(&b, 40);
    assert_int_equal(redis_number(&server, "GET q:tokens:k:202001"), 430);
    assert_in_range(redis_number(&server, "TTL q:tokens:k:202001"), 40 * 86400 - 5, 40 * 86400);
    assert_int_equal(counter("k"), 140);
}

#define WITH_REDIS(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_REDIS(leases_are_renewed),
        WITH_REDIS(dead_slots_heal),
        WITH_REDIS(a_busy_key_heals_many),
        WITH_REDIS(a_wrong_month_is_asked_again),
        WITH_REDIS(settles_in_the_month_of_admission),
    };
    log_set_level(getenv("SPEC_LOG") != NULL ? LOG_DEBUG : LOG_ERROR);
    redis_server_start(&server, 0, NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_server_stop(&server);
    return failed;
}
