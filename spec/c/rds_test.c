/* rds against a real redis-server, and against peers that are none. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "log.h"
#include "rds.h"
#include "redis_server.h"
#include "turns.h"

static struct loop loop;
static struct redis_server server;

/* What a callback saw. */
struct seen {
    int calls;
    enum rds_error err;
    int type;
    long long integer;
    char text[128];
    uint64_t at; /* ns */
    struct rds *to_free;
};

static void on_seen(void *arg, redisReply *reply, enum rds_error err)
{
    struct seen *s = arg;
    s->calls++;
    s->err = err;
    s->at = uv_hrtime();
    s->type = reply != NULL ? reply->type : 0;
    if (reply != NULL) {
        s->integer = reply->integer;
        snprintf(s->text, sizeof s->text, "%s", reply->str != NULL ? reply->str : "");
    }
    if (s->to_free != NULL)
        rds_free(s->to_free);
}

struct changes {
    struct rds_watch watch;
    int up, down;
};

static void on_change(struct rds_watch *w, bool usable)
{
    struct changes *c = (struct changes *)w;
    ++*(usable ? &c->up : &c->down);
}

static struct rds_config config_of(const char *url)
{
    struct rds_config c;
    assert_null(rds_config_parse(slice_of(url), &c));
    c.deadline_ms = 200;
    c.hang_ms = 300;
    c.connect_ms = 300;
    c.backoff_min_ms = 10;
    c.backoff_max_ms = 40;
    return c;
}

static struct rds *start(const char *url)
{
    struct rds_config c = config_of(url);
    struct rds *r = rds_new(&loop, &c);
    rds_start(r);
    return r;
}

static void command(struct rds *r, struct seen *s, uint64_t deadline_ms, const char *a,
                    const char *b, const char *c)
{
    struct slice argv[] = { slice_of(a), slice_of(b != NULL ? b : ""),
                            slice_of(c != NULL ? c : "") };
    memset(s, 0, sizeof *s);
    rds_command(r, c != NULL ? 3 : b != NULL ? 2 : 1, argv, deadline_ms, on_seen, s);
    assert_int_equal(s->calls, 0);
}

static int setup(void **state)
{
    (void)state;
    turns_init(&loop);
    redis_do(&server, "FLUSHALL");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    assert_int_equal(turns_deinit(&loop), 0);
    return 0;
}

/* --- configuration --- */

static void parses_addresses(void **state)
{
    (void)state;
    struct rds_config c;
    assert_null(rds_config_parse(SLICE("redis://127.0.0.1"), &c));
    assert_string_equal(c.host, "127.0.0.1");
    assert_int_equal(c.port, 6379);
    assert_null(rds_config_parse(SLICE("redis://us%40er:p%3a%2f@[::1]:7000/12"), &c));
    assert_string_equal(c.host, "::1");
    assert_string_equal(c.user, "us@er");
    assert_string_equal(c.password, "p:/");
    assert_int_equal(c.port, 7000);
    assert_int_equal(c.database, 12);
    assert_null(rds_config_parse(SLICE("redis://:se@cr?et@cache.internal/0"), &c));
    assert_string_equal(c.host, "cache.internal");
    assert_string_equal(c.password, "se@cr?et");
    assert_false(c.secure);
    assert_null(rds_config_parse(SLICE("rediss://:pw@cache.internal:7000/2"), &c));
    assert_true(c.secure);
    assert_string_equal(c.host, "cache.internal");
    assert_null(rds_config_parse(SLICE("unix:///run/redis.sock"), &c));
    assert_string_equal(c.path, "/run/redis.sock");
    assert_null(rds_config_parse(SLICE("redis+unix://:pw@/run/r.sock?db=3"), &c));
    assert_string_equal(c.path, "/run/r.sock");
    assert_string_equal(c.password, "pw");
    assert_int_equal(c.database, 3);
}

static void refuses_broken_addresses(void **state)
{
    (void)state;
    static const char *const broken[] = { "",
                                          "http://x",
                                          "rediss://",
                                          "redis://",
                                          "redis://h:0",
                                          "redis://h:70000",
                                          "redis://h:1x",
                                          "redis://h/x",
                                          "redis://user@h",
                                          "redis://u:%4@h",
                                          "redis://u:%zz@h",
                                          "redis://u:%00@h",
                                          "redis://[::1",
                                          "redis://[::1]6379",
                                          "unix://relative",
                                          "unix://",
                                          "unix:///p?db=",
                                          "unix:///p?x=1",
                                          "redis://u:@h" };
    struct rds_config c;
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        if (rds_config_parse(slice_of(broken[i]), &c) == NULL)
            fail_msg("accepted: %s", broken[i]);
    }
}

/* --- a Redis that works --- */

static void runs_commands(void **state)
{
    (void)state;
    struct seen set, get, many[500];
    struct rds *r = start(server.url);
    command(r, &set, 0, "SET", "k", "v"); /* waits for the first connection */
    command(r, &get, 0, "GET", "k", NULL);
    TURN_UNTIL(&loop, get.calls == 1);
    assert_int_equal(set.calls, 1);
    assert_string_equal(get.text, "v");
    assert_int_equal(rds_state(r), RDS_READY);
    assert_string_equal(rds_memory_policy(r), "noeviction");
    for (int i = 0; i < 500; i++)
        command(r, &many[i], 0, "INCR", "n", NULL);
    TURN_UNTIL(&loop, many[499].calls == 1);
    for (int i = 0; i < 500; i++)
        assert_int_equal(many[i].integer, i + 1);
    redis_do(&server, "SET big %s", "x");
    redis_do(&server, "SETRANGE big 1000000 x");
    command(r, &get, 0, "STRLEN", "big", NULL);
    command(r, &set, 0, "GET", "big", NULL);
    TURN_UNTIL(&loop, set.calls == 1);
    assert_int_equal(get.integer, 1000001);
    assert_int_equal(set.type, REDIS_REPLY_STRING);
    rds_free(r);
}

static void speaks_tcp_user_password_and_database(void **state)
{
    (void)state;
    struct redis_server other;
    struct seen s;
    char url[160];
    redis_server_start(&other, redis_server_free_port(), "top:secret");
    redis_do(&other, "ACL SETUSER gate on >pass%%word ~* +@all");
    snprintf(url, sizeof url, "redis://gate:pass%%25word@localhost:%d/5", other.port);
    struct rds *r = start(url);
    command(r, &s, 0, "SET", "here", "1");
    TURN_UNTIL(&loop, s.calls == 1);
    assert_int_equal(s.err, RDS_OK);
    redis_do(&other, "SELECT 5");
    assert_int_equal(redis_number(&other, "GET here"), 1);
    rds_free(r);
    snprintf(url, sizeof url, "unix://:top%%3Asecret@%s", other.path);
    r = start(url);
    TURN_UNTIL(&loop, rds_state(r) == RDS_READY);
    rds_free(r);
    snprintf(url, sizeof url, "redis://:wrongpassword@127.0.0.1:%d", other.port);
    r = start(url);
    TURN_UNTIL(&loop, strstr(rds_problem(r), "AUTH: WRONGPASS") != NULL);
    assert_null(strstr(rds_problem(r), "wrongpassword"));
    rds_free(r);
    turns_for(&loop, 5);
    redis_server_stop(&other);
}

static void tolerates_a_denied_config(void **state)
{
    (void)state;
    char url[160];
    redis_do(&server, "ACL SETUSER small on >pw ~* +@all -config");
    snprintf(url, sizeof url, "unix://small:pw@%s", server.path);
    struct rds *r = start(url);
    TURN_UNTIL(&loop, rds_state(r) == RDS_READY);
    assert_string_equal(rds_memory_policy(r), "");
    rds_free(r);
    turns_for(&loop, 5);
    redis_do(&server, "ACL DELUSER small");
}

static void sends_a_forgotten_script_again(void **state)
{
    (void)state;
    struct seen s;
    struct rds_script script;
    char path[128];
    const struct slice key = SLICE("k"), arg = SLICE("41");
    snprintf(path, sizeof path, "%s/plus.lua", server.dir);
    FILE *f = fopen(path, "w");
    fputs("#!lua\nreturn redis.call('INCRBY', KEYS[1], ARGV[1])\n", f);
    fclose(f);
    assert_int_equal(rds_script_load(&script, server.dir, "plus"), 0);
    assert_int_equal(rds_script_load(&(struct rds_script){ .name = "" }, server.dir, "none"),
                     UV_ENOENT);
    struct rds_config c = config_of(server.url);
    struct rds *r = rds_new(&loop, &c);
    rds_preload(r, &script);
    rds_start(r);
    TURN_UNTIL(&loop, rds_state(r) == RDS_READY);
    redisReply *known = redis_ask(&server, "SCRIPT EXISTS %s", script.sha1);
    assert_int_equal(known->element[0]->integer, 1);
    freeReplyObject(known);
    redis_do(&server, "SCRIPT FLUSH");
    for (int i = 1; i <= 3; i++) {
        memset(&s, 0, sizeof s);
        rds_eval(r, &script, 1, &key, 1, &arg, 0, on_seen, &s);
        TURN_UNTIL(&loop, s.calls == 1);
        assert_int_equal(s.type, REDIS_REPLY_INTEGER);
        assert_int_equal(s.integer, 41 * i);
    }
    rds_free(r);
    turns_for(&loop, 5);
    rds_script_deinit(&script);
    unlink(path);
}

static void tells_errors_that_prove_nothing_ran(void **state)
{
    (void)state;
    static const char *const proof[] = { "NOSCRIPT No matching", "MOVED 1 h:1", "ASK 1 h:1",
                                         "TRYAGAIN", "LOADING x" };
    static const char *const none[] = { "ERR LOADING", "MOVEDX", "READONLY You", "OOM command" };
    redisReply reply = { .type = REDIS_REPLY_ERROR };
    for (size_t i = 0; i < sizeof proof / sizeof *proof; i++) {
        reply.str = (char *)(uintptr_t)proof[i];
        assert_true(rds_not_run(&reply));
    }
    for (size_t i = 0; i < sizeof none / sizeof *none; i++) {
        reply.str = (char *)(uintptr_t)none[i];
        assert_false(rds_not_run(&reply));
    }
}

/* --- a Redis that does not work --- */

static void waits_for_the_first_connection_once(void **state)
{
    (void)state;
    struct redis_server late;
    struct seen first, second;
    struct changes changes = { .watch = { NULL, on_change } };
    redis_server_start(&late, 0, NULL);
    redis_server_kill(&late);
    struct rds *r = start(late.url);
    rds_watch(r, &changes.watch);
    uint64_t from = uv_hrtime();
    command(r, &first, 80, "PING", NULL, NULL);
    TURN_UNTIL(&loop, first.calls == 1);
    assert_int_equal(first.err, RDS_DOWN);
    assert_true(first.at - from >= 75000000);
    from = uv_hrtime();
    command(r, &second, 80, "PING", NULL, NULL);
    TURN_UNTIL(&loop, second.calls == 1);
    assert_int_equal(second.err, RDS_DOWN);
    assert_true(second.at - from < 50000000);
    assert_int_equal(changes.up + changes.down, 0);
    redis_server_run(&late);
    TURN_UNTIL(&loop, changes.up == 1);
    command(r, &second, 80, "PING", NULL, NULL);
    TURN_UNTIL(&loop, second.calls == 1);
    assert_string_equal(second.text, "PONG");
    rds_free(r);
    turns_for(&loop, 5);
    redis_server_stop(&late);
}

static void a_pause_costs_one_deadline(void **state)
{
    (void)state;
    struct seen slow, next, after;
    struct changes changes = { .watch = { NULL, on_change } };
    struct rds *r = start(server.url);
    rds_watch(r, &changes.watch);
    TURN_UNTIL(&loop, changes.up == 1);
    kill(server.pid, SIGSTOP);
    uint64_t from = uv_hrtime();
    command(r, &slow, 60, "INCR", "slow", NULL);
    TURN_UNTIL(&loop, slow.calls == 1);
    assert_int_equal(slow.err, RDS_TIMEOUT);
    assert_in_range((slow.at - from) / 1000000, 55, 150);
    assert_int_equal(rds_state(r), RDS_HUNG);
    assert_int_equal(changes.down, 1);
    from = uv_hrtime();
    command(r, &next, 60, "INCR", "slow", NULL);
    TURN_UNTIL(&loop, next.calls == 1);
    assert_int_equal(next.err, RDS_DOWN);
    assert_true(next.at - from < 40000000);
    kill(server.pid, SIGCONT);
    TURN_UNTIL(&loop, changes.up == 2);
    command(r, &after, 60, "GET", "slow", NULL);
    TURN_UNTIL(&loop, after.calls == 1);
    assert_string_equal(after.text, "1");
    assert_int_equal(slow.calls, 1);
    rds_free(r);
}

static void a_long_hang_drops_the_connection(void **state)
{
    (void)state;
    struct seen slow, owned = { .calls = 0 };
    struct rds_script script = { .body = SLICE("return 1") };
    memset(script.sha1, 'a', 40);
    struct rds *r = start(server.url);
    TURN_UNTIL(&loop, rds_state(r) == RDS_READY);
    kill(server.pid, SIGSTOP);
    command(r, &slow, 30, "PING", NULL, NULL);
    rds_eval_owned(r, &script, 0, NULL, 0, NULL, 30, on_seen, &owned);
    TURN_UNTIL(&loop, slow.calls == 1);
    turns_for(&loop, 50);
    assert_int_equal(owned.calls, 0); /* its outcome is still to come */
    TURN_UNTIL(&loop, owned.calls == 1);
    assert_int_equal(owned.err, RDS_CLOSED);
    assert_int_equal(slow.err, RDS_TIMEOUT);
    kill(server.pid, SIGCONT);
    TURN_UNTIL(&loop, rds_state(r) == RDS_READY);
    rds_free(r);
}

static void a_lost_connection_is_told_and_dialed_again(void **state)
{
    (void)state;
    struct seen blocked, down;
    struct changes changes = { .watch = { NULL, on_change } };
    struct rds *r = start(server.url);
    rds_watch(r, &changes.watch);
    TURN_UNTIL(&loop, changes.up == 1);
    command(r, &blocked, 4000, "BLPOP", "nothing", "0");
    turns_for(&loop, 20);
    redis_do(&server, "CLIENT KILL TYPE normal SKIPME yes");
    TURN_UNTIL(&loop, blocked.calls == 1);
    assert_int_equal(blocked.err, RDS_CLOSED);
    command(r, &down, 0, "PING", NULL, NULL);
    TURN_UNTIL(&loop, down.calls == 1);
    assert_int_equal(down.err, RDS_DOWN);
    TURN_UNTIL(&loop, changes.up == 2);
    assert_int_equal(changes.down, 1);
    rds_free(r);
}

static void a_replica_is_not_usable(void **state)
{
    (void)state;
    struct seen s;
    struct changes changes = { .watch = { NULL, on_change } };
    struct rds *r = start(server.url);
    rds_watch(r, &changes.watch);
    TURN_UNTIL(&loop, changes.up == 1);
    redis_do(&server, "REPLICAOF 127.0.0.1 1");
    command(r, &s, 0, "SET", "k", "v");
    TURN_UNTIL(&loop, s.calls == 1);
    assert_int_equal(strncmp(s.text, "READONLY", 8), 0);
    assert_int_equal(changes.down, 1);
    TURN_UNTIL(&loop, strcmp(rds_problem(r), "it is a replica") == 0);
    redis_do(&server, "REPLICAOF NO ONE");
    TURN_UNTIL(&loop, changes.up == 2);
    rds_free(r);
}

/* --- peers that are no Redis --- */

static const char *fake_answer;
static uv_pipe_t fake_listener, fake_clients[64];
static int fake_count;

static void on_fake_alloc(uv_handle_t *h, size_t n, uv_buf_t *out)
{
    static char bytes[65536];
    (void)h, (void)n;
    *out = uv_buf_init(bytes, sizeof bytes);
}

static void on_fake_read(uv_stream_t *s, ssize_t n, const uv_buf_t *b)
{
    (void)b;
    uv_buf_t out = uv_buf_init((char *)(uintptr_t)fake_answer, (unsigned)strlen(fake_answer));
    if (n > 0)
        uv_try_write(s, &out, 1);
    else
        uv_read_stop(s);
}

static void on_fake_connection(uv_stream_t *l, int err)
{
    (void)err;
    if (fake_count == 64)
        return;
    uv_pipe_t *c = &fake_clients[fake_count++];
    uv_pipe_init(l->loop, c, 0);
    uv_accept(l, (uv_stream_t *)c);
    uv_read_start((uv_stream_t *)c, on_fake_alloc, on_fake_read);
}

static void survives(const char *answer, const char *problem)
{
    char path[96], url[128];
    struct seen s;
    snprintf(path, sizeof path, "%s/fake.sock", server.dir);
    snprintf(url, sizeof url, "unix://%s", path);
    fake_answer = answer;
    fake_count = 0;
    uv_pipe_init(&loop.uv, &fake_listener, 0);
    assert_int_equal(uv_pipe_bind(&fake_listener, path), 0);
    assert_int_equal(uv_listen((uv_stream_t *)&fake_listener, 8, on_fake_connection), 0);
    struct rds *r = start(url);
    command(r, &s, 100, "PING", NULL, NULL);
    TURN_UNTIL(&loop, s.calls == 1);
    assert_int_equal(s.err, RDS_DOWN);
    TURN_UNTIL(&loop, strstr(rds_problem(r), problem) != NULL);
    rds_free(r);
    uv_close((uv_handle_t *)&fake_listener, NULL);
    for (int i = 0; i < fake_count; i++)
        uv_close((uv_handle_t *)&fake_clients[i], NULL);
    turns_for(&loop, 5);
    unlink(path);
}

static void survives_broken_peers(void **state)
{
    (void)state;
    survives("HTTP/1.1 400 Bad Request\r\n\r\n", "broken reply");
    survives("*2147483647\r\n", "broken reply");
    survives("*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n*1\r\n:1\r\n",
             "broken reply");
    survives("+OK\r\n+OK\r\n+OK\r\n+OK\r\n+OK\r\n", "nobody asked");
    survives("-LOADING Redis is loading the dataset in memory\r\n", "no answer");
    survives(
        "-LOADING Redis is loading\r\n-LOADING Redis is loading\r\n-LOADING Redis is loading\r\n",
        "PING: LOADING");
    survives("-MASTERDOWN Link\r\n-MASTERDOWN Link\r\n-MASTERDOWN Link with MASTER is down\r\n",
             "PING: MASTERDOWN");
    survives("$100\r\nabc", "no answer to the greeting");
}

static void resolves_names(void **state)
{
    (void)state;
    struct rds *r = start("redis://no-such-host.invalid:1");
    turns_for(&loop, 1); /* gone before the resolver answers, or after */
    rds_free(r);
    r = start("redis://no-such-host.invalid:1");
    TURN_UNTIL(&loop, rds_state(r) == RDS_BACKOFF);
    rds_free(r);
}

/* --- the end --- */

static void frees_with_commands_under_way(void **state)
{
    (void)state;
    struct seen sent, unsent, waiting;
    struct rds *r = start(server.url);
    TURN_UNTIL(&loop, rds_state(r) == RDS_READY);
    command(r, &sent, 4000, "BLPOP", "nothing", "0");
    turns_for(&loop, 10);
    command(r, &unsent, 0, "PING", NULL, NULL);
    rds_free(r);
    assert_int_equal(sent.calls + unsent.calls, 0);
    turns_for(&loop, 5);
    assert_int_equal(sent.err, RDS_CLOSED);
    assert_int_equal(unsent.err, RDS_DOWN);
    r = start(server.url);
    command(r, &waiting, 0, "PING", NULL, NULL);
    rds_free(r);
    turns_for(&loop, 5);
    assert_int_equal(waiting.calls, 1);
    assert_int_equal(waiting.err, RDS_DOWN);
}

static void frees_from_inside_a_callback(void **state)
{
    (void)state;
    struct seen first, second, third;
    struct rds *r = start(server.url);
    TURN_UNTIL(&loop, rds_state(r) == RDS_READY);
    command(r, &first, 0, "PING", NULL, NULL);
    command(r, &second, 0, "PING", NULL, NULL);
    first.to_free = r;
    TURN_UNTIL(&loop, second.calls == 1);
    assert_int_equal(first.err, RDS_OK);
    assert_int_equal(second.err, RDS_CLOSED);
    r = start(server.url); /* from a timeout, and from a failure at the turn's end */
    TURN_UNTIL(&loop, rds_state(r) == RDS_READY);
    command(r, &first, 20, "BLPOP", "nothing", "0");
    command(r, &second, 1000, "PING", NULL, NULL);
    first.to_free = r;
    TURN_UNTIL(&loop, second.calls == 1);
    assert_int_equal(first.err, RDS_TIMEOUT);
    struct redis_server none;
    redis_server_start(&none, 0, NULL);
    redis_server_stop(&none);
    r = start(none.url);
    command(r, &first, 20, "PING", NULL, NULL);
    TURN_UNTIL(&loop, first.calls == 1);
    command(r, &second, 0, "PING", NULL, NULL);
    command(r, &third, 0, "PING", NULL, NULL);
    second.to_free = r;
    TURN_UNTIL(&loop, third.calls == 1);
    assert_int_equal(third.err, RDS_DOWN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parses_addresses),
        cmocka_unit_test(refuses_broken_addresses),
        cmocka_unit_test(tells_errors_that_prove_nothing_ran),
        cmocka_unit_test_setup_teardown(runs_commands, setup, teardown),
        cmocka_unit_test_setup_teardown(speaks_tcp_user_password_and_database, setup, teardown),
        cmocka_unit_test_setup_teardown(tolerates_a_denied_config, setup, teardown),
        cmocka_unit_test_setup_teardown(sends_a_forgotten_script_again, setup, teardown),
        cmocka_unit_test_setup_teardown(waits_for_the_first_connection_once, setup, teardown),
        cmocka_unit_test_setup_teardown(a_pause_costs_one_deadline, setup, teardown),
        cmocka_unit_test_setup_teardown(a_long_hang_drops_the_connection, setup, teardown),
        cmocka_unit_test_setup_teardown(a_lost_connection_is_told_and_dialed_again, setup,
                                        teardown),
        cmocka_unit_test_setup_teardown(a_replica_is_not_usable, setup, teardown),
        cmocka_unit_test_setup_teardown(survives_broken_peers, setup, teardown),
        cmocka_unit_test_setup_teardown(resolves_names, setup, teardown),
        cmocka_unit_test_setup_teardown(frees_with_commands_under_way, setup, teardown),
        cmocka_unit_test_setup_teardown(frees_from_inside_a_callback, setup, teardown),
    };
    log_set_level(getenv("SPEC_LOG") != NULL ? LOG_DEBUG : LOG_ERROR);
    redis_server_start(&server, 0, NULL);
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    redis_server_stop(&server);
    return failed;
}
