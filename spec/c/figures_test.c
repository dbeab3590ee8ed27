/* figures: handles that are the same for the same names, their bounds, and which models get series.
 */
#include "figures.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "log.h"

struct rig {
    struct metrics *m;
    struct figures *f;
};

static int setup(void **state)
{
    struct rig *r = calloc(1, sizeof *r);
    log_set_level(LOG_SILENT);
    r->m = metrics_new();
    r->f = figures_new(r->m);
    *state = r;
    return 0;
}

static int teardown(void **state)
{
    struct rig *r = *state;
    figures_free(r->f);
    metrics_free(r->m);
    free(r);
    return 0;
}

static char *text(const struct rig *r)
{
    struct buf out;
    buf_init(&out);
    metrics_write(r->m, &out);
    buf_add(&out, "", 1);
    return out.p;
}

static void shows(const struct rig *r, const char *line, bool expected)
{
    char *all = text(r);
    if ((strstr(all, line) != NULL) != expected)
        fail_msg("%s is %sthere: %s", line, expected ? "not " : "", all);
    free(all);
}

static unsigned lines(const struct rig *r, const char *prefix)
{
    unsigned n = 0;
    char *all = text(r);
    for (const char *at = all; (at = strstr(at, prefix)) != NULL; at++)
        n++;
    free(all);
    return n;
}

static void counts_ends_by_route_status_and_how(void **state)
{
    struct rig *r = *state;
    struct figures_end e = { .status = 200, .ended = "ok", .ms = 30 };
    struct figures_route *chat = figures_route(r->f, "chat");
    assert_ptr_equal(figures_route(r->f, "chat"), chat);
    figures_ended(chat, &e);
    figures_ended(chat, &e);
    e = (struct figures_end){ .status = 0, .ended = "gone", .ms = 400000, .refusal = "rate" };
    figures_ended(figures_route(r->f, ""), &e);
    e = (struct figures_end){
        .status = 429, .ended = "ok", .refusal = "rate", .first_byte = true, .first_byte_ms = 7
    };
    figures_ended(chat, &e);
    shows(r, "ended_total{route=\"chat\",code=\"200\",ended=\"ok\"} 2\n", true);
    shows(r, "ended_total{route=\"\",code=\"none\",ended=\"gone\"} 1\n", true);
    shows(r, "refusals_total{route=\"chat\",limit=\"rate\"} 1\n", true);
    shows(r, "duration_seconds_bucket{route=\"chat\",status=\"2xx\",le=\"0.025\"} 0\n", true);
    shows(r, "duration_seconds_bucket{route=\"chat\",status=\"2xx\",le=\"0.05\"} 2\n", true);
    shows(r, "duration_seconds_sum{route=\"chat\",status=\"2xx\"} 0.06\n", true);
    shows(r, "duration_seconds_bucket{route=\"\",status=\"none\",le=\"300\"} 0\n", true);
    shows(r, "first_byte_seconds_count{route=\"chat\",status=\"4xx\"} 1\n", true);
    shows(r, "first_byte_seconds_count{route=\"chat\",status=\"2xx\"}", false);
}

static void bounds_what_a_stranger_chooses(void **state)
{
    struct rig *r = *state;
    char name[32];
    struct figures_route *last = NULL;
    for (int i = 0; i < FIGURES_ROUTES + 5; i++) {
        snprintf(name, sizeof name, "r%d", i);
        last = figures_route(r->f, name);
    }
    assert_ptr_equal(figures_route(r->f, "yet another"), last);
    struct figures_end e = { .status = 200, .ended = "ok" };
    figures_ended(last, &e);
    shows(r, "ended_total{route=\"other\",code=\"200\",ended=\"ok\"} 1\n", true);
    struct figures_route *one = figures_route(r->f, "r1");
    for (int i = 0; i < 2 * FIGURES_VARIANTS; i++) { /* statuses of an origin, codes of a plugin */
        snprintf(name, sizeof name, "limit-%d", i);
        e = (struct figures_end){ .status = 200 + i, .ended = "ok", .refusal = name };
        figures_ended(one, &e);
    }
    assert_int_equal(lines(r, "ended_total{route=\"r1\""), FIGURES_VARIANTS + 1);
    assert_int_equal(lines(r, "refusals_total{route=\"r1\""), FIGURES_VARIANTS + 1);
    shows(r, "code=\"other\",ended=\"ok\"} 32\n", true);
    shows(r, "limit=\"other\"} 32\n", true);
}

static void count_model(const struct rig *r, struct slice model, bool known)
{
    struct figures_tokens t = { .reserved_output = 5, .input = 1, .output = 2, .over_reserved = 2 };
    figures_tokens(r->f, model, known, &t);
}

static void gives_series_to_models_that_are_known(void **state)
{
    struct rig *r = *state;
    char longest[FIGURES_MODEL_NAME + 1];
    memset(longest, 'm', sizeof longest);
    count_model(r, SLICE("a"), false);
    shows(r, "{model=\"a\"", false);
    count_model(r, SLICE("a"), true);
    count_model(r, SLICE("a"), false); /* it is known by now */
    shows(r, "used_total{model=\"a\",direction=\"output\"} 4\n", true);
    shows(r, "used_total{model=\"other\",direction=\"output\"} 2\n", true);
    count_model(r, (struct slice){ longest, FIGURES_MODEL_NAME }, true);
    assert_int_equal(lines(r, "over_reserved_total{"), 3);
    count_model(r, (struct slice){ longest, FIGURES_MODEL_NAME + 1 }, true);
    count_model(r, SLICE("with space"), true);
    count_model(r, SLICE("nul\0"), true);
    count_model(r, SLICE("\xc3\xa4"), true);
    count_model(r, SLICE(""), true);
    assert_int_equal(lines(r, "over_reserved_total{"), 3);
    for (int i = 0; i < 2 * FIGURES_MODELS; i++) {
        snprintf(longest, sizeof longest, "vendor/model-%d", i);
        count_model(r, slice_of(longest), true);
    }
    assert_in_range(lines(r, "over_reserved_total{"), FIGURES_MODELS, FIGURES_MODELS + 1);
}

static void tells_plugins_and_targets_apart(void **state)
{
    struct rig *r = *state;
    struct figures_hook *h = figures_hook(r->f, "p", "access");
    assert_ptr_not_equal(figures_hook(r->f, "p", "log"), h);
    assert_ptr_equal(figures_hook(r->f, "p", "access"), h);
    *figures_hook_called(h) += 0.5;
    figures_hook_failed(h);
    shows(r, "plugin_seconds_total{plugin=\"p\",phase=\"access\"} 0.5\n", true);
    shows(r, "plugin_errors_total{plugin=\"p\",phase=\"access\"} 1\n", true);
    shows(r, "plugin_errors_total{plugin=\"p\",phase=\"log\"}", false);
    struct figures_target *t = figures_target(r->f, "route", "target");
    figures_attempt(t);
    figures_attempt_failed(t, "timeout");
    figures_attempt_failed(t, "timeout");
    shows(r, "attempts_total{route=\"route\",target=\"target\"} 1\n", true);
    shows(r, "errors_total{route=\"route\",target=\"target\",error=\"timeout\"} 2\n", true);
}

static void measures_redis(void **state)
{
    struct rig *r = *state;
    figures_redis(r->f, "admit", 200000, NULL);
    figures_redis(r->f, NULL, 0, "down");
    figures_redis(r->f, NULL, 2000000000, "timeout");
    figures_batch(r->f, false, 3);
    shows(r, "redis_duration_seconds_bucket{command=\"admit\",le=\"0.0001\"} 0\n", true);
    shows(r, "redis_duration_seconds_bucket{command=\"admit\",le=\"0.00025\"} 1\n", true);
    shows(r, "redis_duration_seconds_count{command=\"command\"} 1\n", true);
    shows(r, "redis_errors_total{error=\"down\"} 1\n", true);
    shows(r, "quota_batch_requests_bucket{script=\"admit\",le=\"4\"} 1\n", true);
}

static void counts_for_nobody_without_figures(void **state)
{
    (void)state;
    struct figures_end e = { .status = 200, .ended = "ok" };
    struct figures_tokens t = { .input = 1 };
    figures_ended(figures_route(NULL, "r"), &e);
    figures_tokens(NULL, SLICE("m"), true, &t);
    figures_usage_missing(NULL, "cut_off");
    assert_null(figures_hook_called(figures_hook(NULL, "p", "access")));
    figures_hook_failed(NULL);
    figures_attempt(figures_target(NULL, "r", "t"));
    figures_attempt_failed(NULL, "closed");
    figures_redis(NULL, NULL, 1, NULL);
    figures_batch(NULL, true, 1);
    figures_free(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(counts_ends_by_route_status_and_how, setup, teardown),
        cmocka_unit_test_setup_teardown(bounds_what_a_stranger_chooses, setup, teardown),
        cmocka_unit_test_setup_teardown(gives_series_to_models_that_are_known, setup, teardown),
        cmocka_unit_test_setup_teardown(tells_plugins_and_targets_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(measures_redis, setup, teardown),
        cmocka_unit_test(counts_for_nobody_without_figures),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
