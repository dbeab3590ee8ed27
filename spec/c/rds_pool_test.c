/* rds_pool against a real redis-server: who gets a connection, which one, and why not. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "log.h"
#include "rds_pool.h"
#include "redis_server.h"
#include "turns.h"

static struct loop loop;
static struct redis_server server;
static struct rds *shared;
static struct rds_pool *pool;

struct taken {
    int calls;
    struct rds *r;
    enum rds_error err;
};

static void on_taken(void *arg, struct rds *r, enum rds_error err)
{
    struct taken *t = arg;
    t->calls++;
    t->r = r;
    t->err = err;
}

static struct rds_pool_wait *take(struct taken *t, uint64_t timeout_ms)
{
    memset(t, 0, sizeof *t);
    struct rds_pool_wait *w = rds_pool_take(pool, timeout_ms, on_taken, t);
    assert_int_equal(t->calls, 0);
    return w;
}

static struct rds *must_take(void)
{
    struct taken t;
    take(&t, 5000);
    TURN_UNTIL(&loop, t.calls == 1);
    assert_int_equal(t.err, RDS_OK);
    assert_int_equal(rds_state(t.r), RDS_READY);
    return t.r;
}

static int setup(void **state)
{
    struct rds_config c;
    (void)state;
    turns_init(&loop);
    assert_null(rds_config_parse(slice_of(server.url), &c));
    c.connect_ms = 300;
    c.backoff_max_ms = 40;
    shared = rds_new(&loop, &c);
    pool = rds_pool_new(&loop, shared);
    rds_start(shared);
    TURN_UNTIL(&loop, rds_state(shared) == RDS_READY);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rds_free(shared);
    rds_pool_free(pool);
    turns_for(&loop, 5);
    assert_int_equal(turns_deinit(&loop), 0);
    return 0;
}

static void lends_what_came_back_clean(void **state)
{
    (void)state;
    struct rds *first = must_take(), *second = must_take();
    assert_ptr_not_equal(first, second);
    rds_pool_give(pool, first, true);
    assert_ptr_equal(must_take(), first);
    unsigned connection = rds_connection(second);
    assert_int_equal(connection, 0);
    rds_pool_give(pool, first, false);
    rds_pool_give(pool, second, true);
    assert_ptr_equal(must_take(), second);
    rds_pool_give(pool, second, true);
}

static void serves_the_longest_wait_first(void **state)
{
    (void)state;
    struct rds *all[RDS_POOL_CONNECTIONS];
    struct taken first, second, gone, late;
    for (int i = 0; i < RDS_POOL_CONNECTIONS; i++)
        all[i] = must_take();
    take(&late, 10);
    TURN_UNTIL(&loop, late.calls == 1);
    assert_int_equal(late.err, RDS_TIMEOUT);
    assert_null(late.r);
    struct rds_pool_wait *cancelled = take(&gone, 5000);
    take(&first, 5000);
    take(&second, 5000);
    rds_pool_cancel(cancelled);
    rds_pool_give(pool, all[0], false);
    TURN_UNTIL(&loop, first.calls == 1);
    assert_int_equal(second.calls, 0);
    rds_pool_give(pool, all[1], true);
    TURN_UNTIL(&loop, second.calls == 1);
    assert_ptr_equal(second.r, all[1]);
    assert_int_equal(gone.calls + late.calls, 1);
    all[0] = first.r;
    for (int i = 0; i < RDS_POOL_CONNECTIONS; i++)
        rds_pool_give(pool, all[i], true);
}

static void a_lost_connection_stays_lost(void **state)
{
    (void)state;
    struct rds *kept = must_take(), *idle = must_take();
    rds_pool_give(pool, idle, true);
    redis_do(&server, "CLIENT KILL TYPE normal SKIPME yes");
    TURN_UNTIL(&loop, rds_state(kept) != RDS_READY && rds_state(idle) != RDS_READY);
    TURN_UNTIL(&loop, rds_state(shared) == RDS_READY);
    assert_false(rds_accepts(kept));
    turns_for(&loop, 60); /* longer than any backoff */
    assert_false(rds_accepts(kept));
    rds_pool_give(pool, kept, true);
    struct rds *fresh = must_take();
    rds_pool_give(pool, fresh, true);
}

static void nobody_waits_for_a_redis_that_is_down(void **state)
{
    (void)state;
    struct taken t;
    redis_server_kill(&server);
    TURN_UNTIL(&loop, rds_state(shared) != RDS_READY);
    take(&t, 1000000);
    TURN_UNTIL(&loop, t.calls == 1);
    assert_int_equal(t.err, RDS_DOWN);
    redis_server_run(&server);
    TURN_UNTIL(&loop, rds_state(shared) == RDS_READY);
    rds_pool_give(pool, must_take(), true);
}

static void goes_while_it_dials(void **state)
{
    (void)state;
    struct taken t;
    rds_pool_cancel(take(&t, 1000));
    struct rds_pool_wait *w = take(&t, 1000);
    turns_for(&loop, 0);
    if (t.calls == 0)
        rds_pool_cancel(w);
    else
        rds_pool_give(pool, t.r, true);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(lends_what_came_back_clean, setup, teardown),
        cmocka_unit_test_setup_teardown(serves_the_longest_wait_first, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lost_connection_stays_lost, setup, teardown),
        cmocka_unit_test_setup_teardown(nobody_waits_for_a_redis_that_is_down, setup, teardown),
        cmocka_unit_test_setup_teardown(goes_while_it_dials, setup, teardown),
    };
    log_set_level(LOG_ERROR);
    redis_server_start(&server, 0, NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_server_stop(&server);
    return failed;
}
