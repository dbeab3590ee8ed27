/* metrics: what may be registered, series and their bound, and the text that Prometheus reads. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>

#include <cmocka.h>

#include "log.h"
#include "metrics.h"

static int setup(void **state)
{
    *state = metrics_new();
    return 0;
}

static int teardown(void **state)
{
    metrics_free(*state);
    return 0;
}

static struct metric *make(struct metrics *m, const struct metric_spec *spec)
{
    const char *why;
    struct metric *one = metrics_register(m, spec, &why);
    if (one == NULL)
        fail_msg("%s: %s", spec->name, why);
    return one;
}

static void refuse(struct metrics *m, const struct metric_spec *spec, const char *expected)
{
    const char *why = NULL;
    assert_null(metrics_register(m, spec, &why));
    if (strstr(why, expected) == NULL)
        fail_msg("%s: \"%s\", not \"%s\"", spec->name, why, expected);
}

static void count(struct metric *m, const char *a, const char *b, double v)
{
    const struct slice values[] = { slice_of(a), slice_of(b) };
    metric_add(metric_series(m, values), v);
}

static void expect(const struct metrics *m, const char *text)
{
    struct buf out;
    buf_init(&out);
    metrics_write(m, &out);
    buf_add(&out, "", 1);
    assert_string_equal(out.p, text);
    buf_deinit(&out);
}

static void writes_nothing_for_nothing(void **state)
{
    expect(*state, "");
    expect(NULL, "");
    metrics_free(NULL);
}

static void writes_counters_and_gauges(void **state)
{
    struct metric *c = make(*state, &(struct metric_spec){ .kind = METRIC_COUNTER,
                                                           .name = "a_total",
                                                           .help = "What is a",
                                                           .nlabels = 2,
                                                           .labels = { "method", "code" } });
    struct metric *g = make(
        *state, &(struct metric_spec){ .kind = METRIC_GAUGE, .name = "b", .help = "What\\is\nb" });
    count(c, "GET", "200", 1);
    count(c, "GET", "200", 2.5);
    count(c, "", "x", 9007199254740991.0);
    struct metric_series *s = metric_series(g, NULL);
    expect(*state, "# HELP a_total What is a\n# TYPE a_total counter\n"
                   "a_total{method=\"GET\",code=\"200\"} 3.5\na_total{method=\"\",code=\"x\"} "
                   "9007199254740991\n"
                   "# HELP b What\\\\is\\nb\n# TYPE b gauge\nb 0\n");
    metrics_free(*state);
    *state = metrics_new();
    g = make(*state, &(struct metric_spec){ .kind = METRIC_GAUGE, .name = "b", .help = "h" });
    s = metric_series(g, NULL);
    static const struct {
        double v;
        const char *text;
    } numbers[] = { { 0.1, "0.1" },
                    { -2, "-2" },
                    { INFINITY, "+Inf" },
                    { -INFINITY, "-Inf" },
                    { NAN, "NaN" },
                    { 1e300, "1e+300" },
                    { 0.1 + 0.2, "0.30000000000000004" } };
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char text[80];
        metric_set(s, numbers[i].v);
        snprintf(text, sizeof text, "# HELP b h\n# TYPE b gauge\nb %s\n", numbers[i].text);
        expect(*state, text);
    }
}

static void writes_histograms(void **state)
{
    struct metric *plain = make(*state, &(struct metric_spec){ .kind = METRIC_HISTOGRAM,
                                                               .name = "h_seconds",
                                                               .help = "h",
                                                               .nbuckets = 2,
                                                               .buckets = { 0.5, 1 } });
    struct metric *labelled = make(*state, &(struct metric_spec){ .kind = METRIC_HISTOGRAM,
                                                                  .name = "l",
                                                                  .help = "l",
                                                                  .nlabels = 1,
                                                                  .labels = { "a" },
                                                                  .nbuckets = 1,
                                                                  .buckets = { 10 } });
    static const double seen[] = { 0.25, 0.5, 0.75, 1, 2, -1 };
    const struct slice value = SLICE("x");
    for (size_t i = 0; i < sizeof seen / sizeof *seen; i++)
        metric_observe(plain, metric_series(plain, NULL), seen[i]);
    metric_observe(labelled, metric_series(labelled, &value), 3);
    expect(*state,
           "# HELP h_seconds h\n# TYPE h_seconds histogram\nh_seconds_bucket{le=\"0.5\"} 3\n"
           "h_seconds_bucket{le=\"1\"} 5\nh_seconds_bucket{le=\"+Inf\"} 6\nh_seconds_sum "
           "3.5\nh_seconds_count 6\n"
           "# HELP l l\n# TYPE l histogram\nl_bucket{a=\"x\",le=\"10\"} "
           "1\nl_bucket{a=\"x\",le=\"+Inf\"} 1\n"
           "l_sum{a=\"x\"} 3\nl_count{a=\"x\"} 1\n");
}

static void writes_values_so_that_they_can_be_read(void **state)
{
    static const struct {
        struct slice value;
        const char *text;
    } values[] = {
        { SLICE("a\"b\\c\nd"), "a\\\"b\\\\c\\nd" },
        { SLICE("\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80"), "\xc3\xa4\xe2\x82\xac\xf0\x9f\x98\x80" },
        { SLICE("\xff|\xc3|\xc0\xaf|\xed\xa0\x80|\xf4\x90\x80\x80|\xe2\x82"),
          "?|?|??|???|????|??" },
        { SLICE("a\0b"), "a?b" },
    };
    struct metric *c = make(*state, &(struct metric_spec){ .kind = METRIC_COUNTER,
                                                           .name = "v_total",
                                                           .help = "v",
                                                           .nlabels = 1,
                                                           .labels = { "l" } });
    char text[1024];
    int n = snprintf(text, sizeof text, "# HELP v_total v\n# TYPE v_total counter\n");
    for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        metric_add(metric_series(c, &values[i].value), 1);
        n += snprintf(text + n, sizeof text - (size_t)n, "v_total{l=\"%s\"} 1\n", values[i].text);
    }
    const struct slice twin = SLICE("a?b"); /* what looks the same is the same */
    metric_add(metric_series(c, &twin), 1);
    text[n - 2] = '2';
    expect(*state, text);
}

static void cuts_long_values_between_characters(void **state)
{
    struct metric *c = make(*state, &(struct metric_spec){ .kind = METRIC_COUNTER,
                                                           .name = "v_total",
                                                           .help = "v",
                                                           .nlabels = 1,
                                                           .labels = { "l" } });
    char longs[4096], cut[METRICS_VALUE + 1], text[1024];
    memset(longs, 'x', sizeof longs);
    memcpy(longs + METRICS_VALUE - 1, "\xe2\x82\xac", 3);
    memset(cut, 'x', METRICS_VALUE - 1);
    cut[METRICS_VALUE - 1] = '\0';
    struct slice value = { longs, sizeof longs };
    metric_add(metric_series(c, &value), 1);
    snprintf(text, sizeof text, "# HELP v_total v\n# TYPE v_total counter\nv_total{l=\"%s\"} 1\n",
             cut);
    expect(*state, text);
}

static void keeps_series_apart(void **state)
{
    struct metric *c = make(*state, &(struct metric_spec){ .kind = METRIC_COUNTER,
                                                           .name = "s_total",
                                                           .help = "s",
                                                           .nlabels = 2,
                                                           .labels = { "a", "b" },
                                                           .series = 20000 });
    char a[16], b[16];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < 10000; i++) {
            snprintf(a, sizeof a, "%d", i / 100);
            snprintf(b, sizeof b, "%d", i % 100);
            count(c, a, b, i);
        }
    }
    count(c, "1", "23", 0.5); /* not ("12", "3") */
    struct buf out;
    buf_init(&out);
    metrics_write(*state, &out);
    buf_add(&out, "", 1);
    int lines = 0;
    for (const char *p = out.p; (p = strchr(p, '\n')) != NULL; p++)
        lines++;
    assert_int_equal(lines, 10002);
    assert_non_null(strstr(out.p, "s_total{a=\"1\",b=\"23\"} 246.5\n"));
    assert_non_null(strstr(out.p, "s_total{a=\"12\",b=\"3\"} 2406\n"));
    assert_non_null(strstr(out.p, "s_total{a=\"99\",b=\"99\"} 19998\n"));
    buf_deinit(&out);
}

static void counts_beyond_the_bound_as_other(void **state)
{
    struct metric *c = make(*state, &(struct metric_spec){ .kind = METRIC_COUNTER,
                                                           .name = "o_total",
                                                           .help = "o",
                                                           .nlabels = 2,
                                                           .labels = { "a", "b" },
                                                           .series = 2 });
    struct metric *named = make(*state, &(struct metric_spec){ .kind = METRIC_COUNTER,
                                                               .name = "n_total",
                                                               .help = "n",
                                                               .nlabels = 2,
                                                               .labels = { "a", "b" },
                                                               .series = 1 });
    count(c, "1", "1", 1);
    count(c, "2", "2", 1);
    for (int i = 0; i < 3; i++)
        count(c, "3", i == 1 ? "4" : "3", 1);
    count(c, "other", "other", 1);
    count(c, "1", "1", 1);
    count(named, "other", "other", 1);
    count(named, "x", "x", 1);
    count(named, "y", "y", 1);
    expect(*state,
           "# HELP o_total o\n# TYPE o_total counter\no_total{a=\"1\",b=\"1\"} "
           "2\no_total{a=\"2\",b=\"2\"} 1\n"
           "o_total{a=\"other\",b=\"other\"} 4\n"
           "# HELP n_total n\n# TYPE n_total counter\nn_total{a=\"other\",b=\"other\"} 3\n");
}

static void gives_the_same_metric_again(void **state)
{
    struct metric_spec c = {
        .kind = METRIC_COUNTER, .name = "a_total", .help = "a", .nlabels = 1, .labels = { "x" }
    };
    struct metric_spec h = {
        .kind = METRIC_HISTOGRAM, .name = "h", .help = "h", .nbuckets = 1, .buckets = { 1 }
    };
    struct metric *first = make(*state, &c), *second = make(*state, &h);
    c.help = "another text";
    assert_ptr_equal(make(*state, &c), first);
    assert_ptr_equal(make(*state, &h), second);
    c.labels[0] = "y";
    refuse(*state, &c, "with other labels");
    c.nlabels = 0;
    refuse(*state, &c, "with other labels");
    h.buckets[0] = 2;
    refuse(*state, &h, "with other buckets");
    h = (struct metric_spec){ .kind = METRIC_GAUGE, .name = "h", .help = "h" };
    refuse(*state, &h, "as another kind");
}

static void refuses_what_prometheus_would_not_read(void **state)
{
    char name[METRICS_NAME + 8];
    memset(name, 'a', sizeof name);
    strcpy(name + METRICS_NAME + 1 - 6, "_total");
    static const struct {
        const char *name, *why;
    } counters[] = { { "", "a name is made of" },
                     { "a b_total", "a name is" },
                     { "9_total", "a name is" },
                     { "a:b_total", "a name is" },
                     { "\xc3\xa4_total", "a name is" },
                     { "a", "must end in _total" },
                     { "tollgate_x_total", "the gateway's own" } };
    static const struct {
        const char *label, *why;
    } labels[] = { { "", "a label is" },
                   { "__x", "a label is" },
                   { "a-b", "a label is" },
                   { "1a", "a label is" } };
    for (size_t i = 0; i < sizeof counters / sizeof *counters; i++)
        refuse(
            *state,
            &(struct metric_spec){ .kind = METRIC_COUNTER, .name = counters[i].name, .help = "h" },
            counters[i].why);
    refuse(*state, &(struct metric_spec){ .kind = METRIC_COUNTER, .name = name, .help = "h" },
           "a name is");
    for (size_t i = 0; i < sizeof labels / sizeof *labels; i++)
        refuse(*state,
               &(struct metric_spec){ .kind = METRIC_GAUGE,
                                      .name = "g",
                                      .help = "h",
                                      .nlabels = 1,
                                      .labels = { labels[i].label } },
               labels[i].why);
    refuse(
        *state,
        &(struct metric_spec){
            .kind = METRIC_GAUGE, .name = "g", .help = "h", .nlabels = 2, .labels = { "a", "a" } },
        "the same name");
    refuse(*state, &(struct metric_spec){ .kind = METRIC_GAUGE, .name = "g_total", .help = "h" },
           "only a counter's");
    refuse(*state, &(struct metric_spec){ .kind = METRIC_GAUGE, .name = "g_count", .help = "h" },
           "what a histogram adds");
    refuse(*state, &(struct metric_spec){ .kind = METRIC_HISTOGRAM, .name = "h", .help = "h" },
           "needs a bucket");
    refuse(*state,
           &(struct metric_spec){ .kind = METRIC_HISTOGRAM,
                                  .name = "h",
                                  .help = "h",
                                  .nbuckets = 2,
                                  .buckets = { 1, 1 } },
           "buckets are");
    refuse(*state,
           &(struct metric_spec){ .kind = METRIC_HISTOGRAM,
                                  .name = "h",
                                  .help = "h",
                                  .nbuckets = 1,
                                  .buckets = { INFINITY } },
           "buckets are");
    refuse(*state,
           &(struct metric_spec){ .kind = METRIC_HISTOGRAM,
                                  .name = "h",
                                  .help = "h",
                                  .nbuckets = 1,
                                  .buckets = { 1 },
                                  .nlabels = 1,
                                  .labels = { "le" } },
           "made by it");
    expect(*state, "");
}

static void has_a_bounded_number_of_metrics(void **state)
{
    char name[16];
    for (int i = 0; i < METRICS_MAX; i++) {
        snprintf(name, sizeof name, "g%d", i);
        make(*state, &(struct metric_spec){ .kind = METRIC_GAUGE, .name = name, .help = "h" });
    }
    make(*state, &(struct metric_spec){ .kind = METRIC_GAUGE, .name = "g7", .help = "h" });
    refuse(*state, &(struct metric_spec){ .kind = METRIC_GAUGE, .name = "more", .help = "h" },
           "too many metrics");
}

/* --- areas --- */

static struct metrics_area *area_new(void)
{
    void *p = mmap(NULL, METRICS_AREA, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(p != MAP_FAILED);
    return p;
}

static void merges_areas(void **state)
{
    (void)state;
    struct metrics_area *a = area_new(), *b = area_new();
    struct metrics *one = metrics_new_in(a), *two = metrics_new_in(b), *all = metrics_new();
    const struct metric_spec counter = { METRIC_COUNTER, "x_total", "X", 2,    0,
                                         { "a", "b" },   { 0 },     0,   false };
    const struct metric_spec gauge = { METRIC_GAUGE, "g", "G", 0, 0, { NULL }, { 0 }, 0, false };
    const struct metric_spec histogram = { METRIC_HISTOGRAM, "h",   "H", 0,    1,
                                           { NULL },         { 1 }, 0,   false };
    const struct metric_spec other_kind = {
        METRIC_GAUGE, "h", "H", 0, 0, { NULL }, { 0 }, 0, false
    };
    count(make(one, &counter), "1", "2", 3);
    count(make(two, &counter), "1", "2", 4);
    count(make(two, &counter), "", "2", 5);
    metric_set(metric_series(make(one, &gauge), NULL), 7);
    metric_observe(make(one, &histogram), metric_series(make(one, &histogram), NULL), 0.5);
    make(two, &other_kind);
    metrics_free(one); /* figures outlive who counted them */
    metrics_merge(all, a, true);
    metrics_merge(all, b, true);
    metrics_merge(all, a, false);
    expect(all, "# HELP x_total X\n# TYPE x_total counter\nx_total{a=\"1\",b=\"2\"} "
                "10\nx_total{a=\"\",b=\"2\"} 5\n"
                "# HELP g G\n# TYPE g gauge\ng 7\n"
                "# HELP h H\n# TYPE h histogram\nh_bucket{le=\"1\"} 2\nh_bucket{le=\"+Inf\"} "
                "2\nh_sum 1\nh_count 2\n");
    metrics_free(all);
    metrics_free(two);
    metrics_area_clear(a);
    assert_null(metrics_area_next(a, NULL));
    munmap(a, METRICS_AREA);
    munmap(b, METRICS_AREA);
}

/* What finds no room is counted as "other"; a metric without room counts for nobody. */
static void survives_a_full_area(void **state)
{
    (void)state;
    struct metrics_area *a = area_new();
    struct metrics *m = metrics_new_in(a), *all = metrics_new();
    struct metric_spec wide = {
        METRIC_HISTOGRAM,   "wide", "W", 1, METRICS_BUCKETS, { "id" }, { 0 },
        METRICS_SERIES_MAX, false
    };
    const struct metric_spec late = { METRIC_COUNTER, "late_total", "L", 0,    0,
                                      { NULL },       { 0 },        0,   false };
    char id[16];
    for (int i = 0; i < METRICS_BUCKETS; i++)
        wide.buckets[i] = i;
    log_set_level(LOG_SILENT);
    struct metric *w = make(m, &wide);
    for (int i = 0; i < METRICS_SERIES_MAX; i++) {
        struct slice value = { id, (size_t)snprintf(id, sizeof id, "%d", i) };
        metric_observe(w, metric_series(w, &value), 1);
    }
    struct metric *l = make(m, &late);
    metric_add(metric_series(l, NULL), 1);
    log_set_level(LOG_ERROR);
    metrics_merge(all, a, true);
    uint32_t n = 0;
    for (const struct area_record *r = NULL; (r = metrics_area_next(a, r)) != NULL;)
        n += r->tag == AREA_SERIES;
    assert_in_range(n, 1000, METRICS_SERIES_MAX - 1);
    metrics_free(all);
    metrics_free(m);
    munmap(a, METRICS_AREA);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(writes_nothing_for_nothing, setup, teardown),
        cmocka_unit_test_setup_teardown(writes_counters_and_gauges, setup, teardown),
        cmocka_unit_test_setup_teardown(writes_histograms, setup, teardown),
        cmocka_unit_test_setup_teardown(writes_values_so_that_they_can_be_read, setup, teardown),
        cmocka_unit_test_setup_teardown(cuts_long_values_between_characters, setup, teardown),
        cmocka_unit_test_setup_teardown(keeps_series_apart, setup, teardown),
        cmocka_unit_test_setup_teardown(counts_beyond_the_bound_as_other, setup, teardown),
        cmocka_unit_test_setup_teardown(gives_the_same_metric_again, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_what_prometheus_would_not_read, setup, teardown),
        cmocka_unit_test_setup_teardown(has_a_bounded_number_of_metrics, setup, teardown),
        cmocka_unit_test(merges_areas),
        cmocka_unit_test(survives_a_full_area),
    };
    log_set_level(LOG_ERROR);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
