/* rds_sub against a real redis-server: messages, a connection that is lost, a Redis that hangs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "log.h"
#include "rds_sub.h"
#include "redis_server.h"
#include "turns.h"

static struct loop loop;
static struct redis_server server;
static struct rds *shared;

struct heard {
    int active, again, messages;
    char text[128]; /* of the last message: channel, message, pattern */
    struct rds_sub *to_free;
};

static void on_message(void *arg, struct slice channel, struct slice message, struct slice pattern)
{
    struct heard *h = arg;
    h->messages++;
    snprintf(h->text, sizeof h->text, "%.*s %.*s %.*s", (int)channel.n, channel.p, (int)message.n,
             message.p, (int)pattern.n, pattern.n > 0 ? pattern.p : "");
    if (h->to_free != NULL)
        rds_sub_free(h->to_free);
}

static void on_active(void *arg, bool again)
{
    struct heard *h = arg;
    h->active++;
    h->again += again;
}

static const struct rds_sub_events events = { on_message, on_active };

static struct rds_sub *subscribe(struct heard *h, bool patterns, const char *a, const char *b)
{
    const struct slice channels[] = { slice_of(a), slice_of(b) };
    memset(h, 0, sizeof *h);
    struct rds_sub *s = rds_sub_new(&loop, shared, patterns, 2, channels, &events, h);
    TURN_UNTIL(&loop, h->active == 1);
    assert_int_equal(h->again, 0);
    return s;
}

static int setup(void **state)
{
    struct rds_config c;
    (void)state;
    turns_init(&loop);
    assert_null(rds_config_parse(slice_of(server.url), &c));
    c.backoff_max_ms = 40;
    shared = rds_new(&loop, &c); /* never started: only says where */
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rds_free(shared);
    turns_for(&loop, 5);
    assert_int_equal(turns_deinit(&loop), 0);
    return 0;
}

static void hears_channels_and_patterns(void **state)
{
    (void)state;
    struct heard named, matched;
    struct rds_sub *a = subscribe(&named, false, "one", "two");
    struct rds_sub *b = subscribe(&matched, true, "t*", "x?");
    redis_do(&server, "PUBLISH one m");
    TURN_UNTIL(&loop, named.messages == 1);
    assert_string_equal(named.text, "one m ");
    redis_do(&server, "PUBLISH two m2");
    TURN_UNTIL(&loop, named.messages == 2 && matched.messages == 1);
    assert_string_equal(named.text, "two m2 ");
    assert_string_equal(matched.text, "two m2 t*");
    rds_sub_free(a);
    redis_do(&server, "PUBLISH two m3");
    TURN_UNTIL(&loop, matched.messages == 2);
    assert_int_equal(named.messages, 2);
    rds_sub_free(b);
}

static void comes_back_and_says_so(void **state)
{
    (void)state;
    struct heard h;
    struct rds_sub *s = subscribe(&h, false, "one", "two");
    redis_do(&server, "CLIENT KILL TYPE pubsub");
    TURN_UNTIL(&loop, h.active == 2);
    assert_int_equal(h.again, 1);
    redis_server_kill(&server);
    redis_server_run(&server);
    TURN_UNTIL(&loop, h.active == 3);
    redis_do(&server, "PUBLISH two back");
    TURN_UNTIL(&loop, h.messages == 1);
    assert_string_equal(h.text, "two back ");
    rds_sub_free(s);
}

static void may_go_from_inside_a_message(void **state)
{
    (void)state;
    struct heard h;
    h.to_free = NULL;
    struct rds_sub *s = subscribe(&h, false, "one", "two");
    h.to_free = s;
    redis_do(&server, "PUBLISH one 1");
    TURN_UNTIL(&loop, h.messages == 1);
    redis_do(&server, "PUBLISH one 2");
    turns_for(&loop, 20);
    assert_int_equal(h.messages, 1);
}

static void goes_while_it_dials(void **state)
{
    (void)state;
    struct heard h = { .active = 0 };
    const struct slice channel = SLICE("one");
    rds_sub_free(rds_sub_new(&loop, shared, false, 1, &channel, &events, &h));
    turns_for(&loop, 20);
    assert_int_equal(h.active, 0);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(hears_channels_and_patterns, setup, teardown),
        cmocka_unit_test_setup_teardown(comes_back_and_says_so, setup, teardown),
        cmocka_unit_test_setup_teardown(may_go_from_inside_a_message, setup, teardown),
        cmocka_unit_test_setup_teardown(goes_while_it_dials, setup, teardown),
    };
    log_set_level(LOG_ERROR);
    redis_server_start(&server, 0, NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_server_stop(&server);
    return failed;
}
