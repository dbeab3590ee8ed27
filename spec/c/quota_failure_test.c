/* quota when Redis, or the way to it, fails: lost replies, late replies, pauses, broken keys. */
#include "quota_rig.h"

#include "proxy.h"

static const struct quota_limits full = { true, true, true, 0.001, 100, 10000, 10 };

/* The quota reaches Redis through a proxy. */
static int proxied_setup(void **state)
{
    (void)state;
    redis_do(&server, "FLUSHALL");
    rig_up(server.url);
    quota_free(quota);
    rds_free(rds);
    proxy_start(&loop, server.dir, server.path);
    struct rds_config c;
    assert_null(rds_config_parse(slice_of(proxy.url), &c));
    c.deadline_ms = 60;
    c.connect_ms = 500;
    c.hang_ms = 100;
    c.backoff_min_ms = 10;
    c.backoff_max_ms = 40;
    rds = rds_new(&loop, &c);
    quota = quota_new(&loop, rds, TOLLGATE_SOURCE_DIR "/scripts/redis", false);
    rds_start(rds);
    TURN_UNTIL(&loop, rds_state(rds) == RDS_READY);
    return 0;
}

static int proxied_teardown(void **state)
{
    kill(server.pid, SIGCONT);
    TURN_UNTIL(&loop, quota_idle(quota));
    quota_free(quota);
    quota = NULL;
    proxy_stop();
    return rig_teardown(state);
}

/* Until Redis is back and has heard everything. */
static void be_patient(void)
{
    TURN_UNTIL(&loop, rds_state(rds) == RDS_READY);
    TURN_UNTIL(&loop, quota_idle(quota));
}

static void nothing_is_left(const char *id)
{
    assert_int_equal(counter("k"), 0);
    assert_int_equal(redis_number(&server, "SISMEMBER q:conc:k %s", id), 0);
    assert_true(reserved(id) < 0);
}

/* --- an admission whose reply is lost --- */

static void a_lost_reply_leaves_no_charge(void **state)
{
    (void)state;
    struct ask a;
    proxy.drop_replies = true;
    assert_int_equal(decide(&a, "k", "r", &full, 100), QUOTA_UNAVAILABLE);
    assert_int_equal(counter("k"), 100); /* Redis has decided */
    proxy_cut();
    proxy.drop_replies = false;
    be_patient();
    nothing_is_left("r");
    assert_int_equal(quota_stats(quota)->voided, 1);
    assert_int_equal(a.calls, 1);
}

static void a_late_admission_runs_into_the_void(void **state)
{
    (void)state;
    struct ask a;
    proxy.hold_requests = true;
    assert_int_equal(decide(&a, "k", "r", &full, 100), QUOTA_UNAVAILABLE);
    proxy_cut();
    for (int i = 0; i < proxy.n; i++) /* only what follows passes */
        assert_true(i > 0 || proxy.links[i].held.n > 0);
    proxy.hold_requests = false;
    be_patient();
    assert_int_equal(reserved("r"), -1);
    assert_true(proxy_release());
    turns_for(&loop, 30);
    nothing_is_left("r");
    assert_int_equal(reserved("r"), -1);
    assert_int_equal(redis_number(&server, "EXISTS q:rps:k"), 0);
}

static void a_late_answer_is_settled_at_nothing(void **state)
{
    (void)state;
    struct ask a;
    kill(server.pid, SIGSTOP);
    assert_int_equal(decide(&a, "k", "r", &full, 100), QUOTA_UNAVAILABLE);
    kill(server.pid, SIGCONT);
    be_patient();
    nothing_is_left("r");
    assert_int_equal(quota_stats(quota)->voided, 0);
    assert_int_equal(quota_stats(quota)->settled, 1);
    assert_int_equal(a.calls, 1);
}

/* The request goes on without Redis; what it spends is charged once, whatever becomes of its
 * admission. */
static void an_unadmitted_spend_survives_the_void(void **state)
{
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        struct ask a;
        redis_do(&server, "FLUSHDB");
        proxy.drop_replies = lost == 1;
        kill(server.pid, SIGSTOP);
        assert_int_equal(decide(&a, "k", "r", &full, 100), QUOTA_UNAVAILABLE);
        a.grant = quota_grant_unadmitted(quota, SLICE("k"), SLICE("r"), &full);
        settle(&a, 42);
        turns_for(&loop, 5);
        kill(server.pid, SIGCONT);
        turns_for(&loop, 20);
        if (lost)
            proxy_cut();
        proxy.drop_replies = false;
        be_patient();
        assert_int_equal(counter("k"), 42);
    }
}

/* --- a settlement whose reply is lost --- */

static void settle_through(const char *id, bool drop, bool hold)
{
    struct ask a;
    assert_int_equal(decide(&a, "k", id, &full, 100), QUOTA_ADMITTED);
    proxy.drop_replies = drop;
    proxy.hold_requests = hold;
    settle(&a, 30);
    turns_for(&loop, 20);
    proxy_cut();
    proxy.drop_replies = proxy.hold_requests = false;
    be_patient();
}

static void a_settlement_is_sent_again(void **state)
{
    (void)state;
    settle_through("done", true, false); /* it had been done */
    assert_int_equal(counter("k"), 30);
    assert_int_equal(reserved("done"), -999);
    settle_through("late", false, true); /* it had not; and then the first comes too */
    assert_int_equal(counter("k"), 60);
    assert_true(proxy_release());
    turns_for(&loop, 30);
    assert_int_equal(counter("k"), 60);
    assert_int_equal(redis_number(&server, "SCARD q:conc:k"), 0);
}

static void what_cannot_be_settled_is_kept(void **state)
{
    (void)state;
    static struct ask a[100];
    char id[16];
    for (int i = 0; i < 100; i++) {
        struct quota_limits wide = full;
        wide.concurrency = 100;
        snprintf(id, sizeof id, "r%d", i);
        ask(&a[i], i % 2 == 0 ? "k" : "other", id, &wide, 100);
    }
    TURN_UNTIL(&loop, quota_idle(quota));
    proxy.refuse = true;
    proxy_cut();
    TURN_UNTIL(&loop, rds_state(rds) == RDS_BACKOFF);
    for (int i = 0; i < 100; i++)
        settle(&a[i], 7);
    TURN_UNTIL(&loop, quota_stats(quota)->pending == 100);
    assert_false(quota_idle(quota));
    proxy.refuse = false;
    be_patient();
    assert_int_equal(counter("k"), 350);
    assert_int_equal(counter("other"), 350);
    assert_int_equal(quota_stats(quota)->settled, 100);
}

static void what_is_kept_is_bounded(void **state)
{
    (void)state;
    struct ask a[5];
    char id[16];
    for (int i = 0; i < 5; i++) {
        snprintf(id, sizeof id, "r%d", i);
        decide(&a[i], "k", id, &full, 100);
    }
    quota->kept_max = 3;
    proxy.refuse = true;
    proxy_cut();
    log_set_level(LOG_ERROR + 1);
    TURN_UNTIL(&loop, rds_state(rds) == RDS_BACKOFF);
    for (int i = 0; i < 5; i++)
        settle(&a[i], 7);
    TURN_UNTIL(&loop, quota_stats(quota)->pending == 3);
    assert_int_equal(quota_stats(quota)->lost, 2);
    log_set_level(LOG_ERROR);
    proxy.refuse = false;
    be_patient();
    assert_int_equal(counter("k"), 3 * 7 + 2 * 100);
}

/* --- Redis itself --- */

static void forgotten_scripts_are_invisible(void **state)
{
    (void)state;
    struct ask a;
    redis_do(&server, "SCRIPT FLUSH");
    assert_int_equal(decide(&a, "k", "r", &full, 100), QUOTA_ADMITTED);
    redis_do(&server, "SCRIPT FLUSH");
    settle_now(&a, 5);
    assert_int_equal(counter("k"), 5);
}

static void a_pause_costs_one_deadline(void **state)
{
    (void)state;
    struct ask a;
    kill(server.pid, SIGSTOP);
    uint64_t from = uv_hrtime();
    assert_int_equal(decide(&a, "k", "r1", &full, 100), QUOTA_UNAVAILABLE);
    assert_in_range((uv_hrtime() - from) / 1000000, 55, 120);
    from = uv_hrtime();
    for (int i = 0; i < 20; i++)
        assert_int_equal(decide(&a, "k", "r2", &full, 100), QUOTA_UNAVAILABLE);
    assert_true(uv_hrtime() - from < 200000000);
    turns_for(&loop, 250); /* dropped by now */
    kill(server.pid, SIGCONT);
    be_patient();
    nothing_is_left("r1");
    assert_int_equal(decide(&a, "k", "r3", &full, 100), QUOTA_ADMITTED);
    settle(&a, 0);
}

static void a_full_redis_refuses_but_settles(void **state)
{
    (void)state;
    struct ask a, b;
    assert_int_equal(decide(&a, "k", "r1", &full, 100), QUOTA_ADMITTED);
    redis_do(&server, "CONFIG SET maxmemory 1");
    assert_int_equal(decide(&b, "k", "r2", &full, 100), QUOTA_UNAVAILABLE);
    settle_now(&a, 20);
    redis_do(&server, "CONFIG SET maxmemory 0");
    assert_int_equal(counter("k"), 20);
    assert_int_equal(reserved("r2"), -1);
}

static void keys_of_another_type_change_nothing(void **state)
{
    (void)state;
    static const char *const break_it[] = { "SET q:rps:k 1 EX 100",
                                            "HSET q:rps:k tokens many last_refill 1",
                                            "RPUSH q:tokens:k:%d 1", "SET q:tokens:k:%d 1.5 EX 100",
                                            "SET q:conc:k 1 EX 100" };
    for (size_t i = 0; i < sizeof break_it / sizeof *break_it; i++) {
        struct ask a;
        redis_do(&server, "FLUSHDB");
        redis_do(&server, break_it[i], this_month());
        redis_do(&server, "EVAL %s 0",
                 "for _, k in ipairs(redis.call('KEYS', '*')) do redis.call('EXPIRE', k, 100) end");
        char *before = snapshot();
        assert_int_equal(decide(&a, "k", "r", &full, 100), QUOTA_UNAVAILABLE);
        TURN_UNTIL(&loop, quota_idle(quota));
        assert_int_equal(reserved("r"), -1); /* a call that errs is voided */
        redis_do(&server, "DEL q:reserved:r");
        char *after = snapshot();
        assert_string_equal(before, after);
        free(before);
        free(after);
    }
    assert_int_equal(quota_stats(quota)->lost, 0);
}

static void a_settlement_that_can_never_be_done_is_lost_once(void **state)
{
    (void)state;
    struct ask a, b, c;
    decide(&a, "k", "r1", &full, 100);
    decide(&b, "k", "r2", &full, 100);
    decide(&c, "k", "r3", &full, 100);
    redis_do(&server, "DEL q:reserved:r2");
    redis_do(&server, "RPUSH q:reserved:r2 x");
    redis_do(&server, "EXPIRE q:reserved:r2 100");
    log_set_level(LOG_ERROR + 1);
    settle(&a, 10); /* a broken reservation spoils only itself */
    settle(&b, 10);
    settle_now(&c, 10);
    assert_int_equal(counter("k"), 120);
    assert_int_equal(quota_stats(quota)->lost, 1);
    decide(&a, "k", "r4", &full, 100);
    redis_do(&server, "DEL q:tokens:k:%d", this_month());
    redis_do(&server, "RPUSH q:tokens:k:%d x", this_month());
    redis_do(&server, "EXPIRE q:tokens:k:%d 100", this_month());
    quota->resend_ms = 20;
    settle(&a, 10);
    TURN_UNTIL(&loop, quota_stats(quota)->lost == 2);
    log_set_level(LOG_ERROR);
    assert_true(quota_idle(quota));
}

/* --- the end --- */

static void on_freeing(void *arg, struct quota_grant *grant, const struct quota_result *result)
{
    on_ask(arg, grant, result);
    if (quota != NULL)
        quota_free(quota);
    quota = NULL;
}

static void frees_with_work_under_way(void **state)
{
    (void)state;
    struct ask a, b, c;
    log_set_level(LOG_ERROR + 1);
    decide(&a, "k", "never settled", &full, 1);
    ask(&b, "k", "under way", &full, 1);
    turns_for(&loop, 1);
    ask(&c, "k", "collected", &full, 1);
    quota_free(quota);
    quota = NULL;
    assert_int_equal(b.calls, 1);
    assert_int_equal(c.calls, 1);
    assert_int_equal(c.result.verdict, QUOTA_UNAVAILABLE);
    turns_for(&loop, 20);
    log_set_level(LOG_ERROR);
}

static void frees_from_inside_a_callback(void **state)
{
    (void)state;
    static struct ask a[100];
    char id[16];
    log_set_level(LOG_ERROR + 1);
    for (int i = 0; i < 100; i++) {
        snprintf(id, sizeof id, "r%d", i);
        memset(&a[i], 0, sizeof a[i]);
        quota_admit(quota, SLICE("k"), slice_of(id), &full, 1, 0, i == 5 ? on_freeing : on_ask,
                    &a[i]);
    }
    TURN_UNTIL(&loop, quota == NULL);
    for (int i = 0; i < 100; i++)
        assert_int_equal(a[i].calls, 1);
    turns_for(&loop, 20);
    log_set_level(LOG_ERROR);
}

#define WITH_REDIS(test) cmocka_unit_test_setup_teardown(test, rig_setup, rig_teardown)
#define WITH_PROXY(test) cmocka_unit_test_setup_teardown(test, proxied_setup, proxied_teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_PROXY(a_lost_reply_leaves_no_charge),
        WITH_PROXY(a_late_admission_runs_into_the_void),
        WITH_PROXY(a_late_answer_is_settled_at_nothing),
        WITH_PROXY(an_unadmitted_spend_survives_the_void),
        WITH_PROXY(a_settlement_is_sent_again),
        WITH_PROXY(what_cannot_be_settled_is_kept),
        WITH_PROXY(what_is_kept_is_bounded),
        WITH_PROXY(a_pause_costs_one_deadline),
        WITH_REDIS(forgotten_scripts_are_invisible),
        WITH_REDIS(a_full_redis_refuses_but_settles),
        WITH_REDIS(keys_of_another_type_change_nothing),
        WITH_REDIS(a_settlement_that_can_never_be_done_is_lost_once),
        WITH_REDIS(frees_with_work_under_way),
        WITH_REDIS(frees_from_inside_a_callback),
    };
    log_set_level(getenv("SPEC_LOG") != NULL ? LOG_DEBUG : LOG_ERROR);
    redis_server_start(&server, 0, NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_server_stop(&server);
    return failed;
}
