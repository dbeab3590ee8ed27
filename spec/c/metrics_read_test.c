/* metrics_read: what is read and what refused, growth over resets, quantiles as Prometheus has
 * them. */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

#include <cmocka.h>

#include "metrics_read.h"

static int try(struct metrics_page *p, const char *text, uint32_t *line)
{
    struct buf b;
    buf_init(&b);
    buf_add_text(&b, text);
    int err = metrics_page_read(p, &b, line);
    assert_int_equal(b.n, 0);
    return err;
}

static void read_page(struct metrics_page *p, const char *text)
{
    uint32_t line;
    metrics_page_init(p);
    assert_int_equal(try(p, text, &line), 0);
}

static void expect_label(const struct metrics_sample *s, const char *label, const char *value)
{
    struct buf out;
    buf_init(&out);
    assert_int_equal(metrics_sample_label(s, label, &out), value != NULL);
    assert_true(slice_eq(buf_slice(&out), slice_of(value != NULL ? value : "")));
    buf_deinit(&out);
}

static void reads_what_metrics_write(void **state)
{
    struct metrics_page p;
    (void)state;
    read_page(
        &p, "# HELP a_total x\n# TYPE a_total counter\n\n"
            "a_total{route=\"say \\\"hi\\\", \\\\ and\\nmore}\",code=\"200\"} 12\n"
            "a_total{route=\"\",code=\"\"} 1e+300\nb NaN\nc{le=\"+Inf\"} +Inf\nd -Inf 1700000000\n"
            "e{a=\"1\",} 9007199254740993\n");
    assert_int_equal(p.n, 6);
    expect_label(&p.samples[0], "route", "say \"hi\", \\ and\nmore}");
    expect_label(&p.samples[0], "code", "200");
    expect_label(&p.samples[0], "rout", NULL);
    expect_label(&p.samples[1], "route", "");
    assert_true(p.samples[0].value == 12 && p.samples[1].value == 1e300);
    assert_true(isnan(metrics_page_value(&p, "b")) && isinf(p.samples[3].value));
    expect_label(&p.samples[3], "le", "+Inf");
    assert_true(metrics_page_value(&p, "d") == -INFINITY);
    assert_true(isnan(metrics_page_value(&p, "a_total")));
    assert_true(p.samples[5].value > 9e15);
    metrics_page_deinit(&p);
}

static void refuses_what_is_malformed(void **state)
{
    static const char *const bad[] = {
        "a 1",
        "a\n",
        "a \n",
        "1a 1\n",
        "a{b=\"c\" 1\n",
        "a{b=\"c\"}1\n",
        "a{b=c} 1\n",
        "a{b=\"c} 1\n",
        "a{=\"c\"} 1\n",
        "a{b=\"\\x\"} 1\n",
        "a{b=\"c\"d=\"e\"} 1\n",
        "a one\n",
        "a 1x\n",
        "a{b=\"c\\\"} 1\n",
        "{} 1\n",
    };
    struct metrics_page p;
    uint32_t line;
    (void)state;
    metrics_page_init(&p);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char text[128];
        snprintf(text, sizeof text, "good 1\n%s", bad[i]);
        if (try(&p, text, &line) != UV_EINVAL || line != 2 || p.n != 0)
            fail_msg("%s: line %u", bad[i], line);
        assert_true(isnan(metrics_page_value(&p, "good")));
    }
    assert_int_equal(try(&p, "", &line), 0);
    assert_int_equal(p.n, 0);
    assert_int_equal(try(&p, "good 1\n", &line), 0);
    assert_true(metrics_page_value(&p, "good") == 1);
    metrics_page_deinit(&p);
}

static void finds_among_many(void **state)
{
    struct metrics_page p;
    struct buf text;
    uint32_t line;
    char name[64];
    (void)state;
    metrics_page_init(&p);
    buf_init(&text);
    for (int i = 0; i < 50000; i++)
        buf_printf(&text, "m%d{route=\"r%d\"} %d\n", i % 7, i, i);
    buf_add_text(&text, "z 5\n");
    assert_int_equal(metrics_page_read(&p, &text, &line), 0);
    assert_int_equal(p.n, 50001);
    for (uint32_t i = 0; i < p.n; i += 97)
        assert_ptr_equal(metrics_page_find(&p, &p.samples[i]), &p.samples[i]);
    snprintf(name, sizeof name, "z");
    assert_true(metrics_page_value(&p, name) == 5);
    buf_deinit(&text);
    metrics_page_deinit(&p);
}

static void growth_is_never_negative(void **state)
{
    static const double grown[] = { 5, 3, 7, 0, 0, 0, 4 };
    struct metrics_page before, now;
    (void)state;
    read_page(&before, "a 10\nb 10\nd 10\ne 10\nf 10\ng NaN\n");
    read_page(&now, "a 15\nb 3\nc 7\nd 10\ne NaN\nf -1\ng 4\n");
    for (uint32_t i = 0; i < now.n; i++)
        assert_true(metrics_sample_growth(&now.samples[i], &before) == grown[i]);
    assert_true(metrics_sample_growth(&now.samples[0], NULL) == 15);
    metrics_page_deinit(&before);
    metrics_page_deinit(&now);
}

/* Vectors of Prometheus' own tests (promql/testdata/histograms.test), and its rules. */
static void quantiles(void **state)
{
    const struct metrics_bucket two[] = { { .1, 5 }, { .2, 8 }, { 1, 11 }, { INFINITY, 12 } },
                                negative[] = { { -.2, 1 }, { -.1, 2 }, { .3, 2 }, { INFINITY, 3 } },
                                above[] = { { 0, 0 }, { INFINITY, 4 } },
                                none[] = { { 1, 0 }, { INFINITY, 0 } },
                                open[] = { { 1, 5 }, { 2, 6 } },
                                falling[] = { { 1, 10 }, { 2, 9 }, { 3, 20 }, { INFINITY, 20 } };
    const struct {
        const struct metrics_bucket *b;
        int n;
        double q, v;
    } rows[] = {
        { two, 4, 0, 0 },
        { two, 4, .25, .06 },
        { two, 4, .5, .1 + .1 / 3 },
        { two, 4, .75, .2 + .8 / 3 },
        { two, 4, 1, 1 },
        { two, 4, .99, 1 },
        { two, 4, -1, -INFINITY },
        { two, 4, 2, INFINITY },
        { two, 4, NAN, NAN },
        { negative, 4, .2, -.2 },
        { negative, 4, .5, -.15 },
        { negative, 4, .9, .3 },
        { above, 2, .5, 0 },
        { none, 2, .5, NAN },
        { open, 2, .5, NAN },
        { two, 1, .5, NAN },
        { NULL, 0, .5, NAN },
        { falling, 4, .75, 2.5 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        double v = metrics_quantile(rows[i].q, rows[i].b, rows[i].n);
        bool same = isnan(rows[i].v)   ? isnan(v)
                    : isinf(rows[i].v) ? v == rows[i].v
                                       : fabs(v - rows[i].v) < 1e-12;
        if (!same)
            fail_msg("row %zu: %.17g, not %.17g", i, v, rows[i].v);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_metrics_write),
        cmocka_unit_test(refuses_what_is_malformed),
        cmocka_unit_test(finds_among_many),
        cmocka_unit_test(growth_is_never_negative),
        cmocka_unit_test(quantiles),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
