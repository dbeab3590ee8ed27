/* access_format: what a format may hold, how values are written, and which lines are kept. */
#include "access_format.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static struct arena arena;

static int setup(void **state)
{
    (void)state;
    arena_init(&arena);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_deinit(&arena);
    return 0;
}

/* The parts of a format: "=literal", ":header", or the field's number. */
static void expect(const char *text, const char *parts)
{
    struct access_format f;
    struct buf fault, out;
    buf_init(&fault);
    buf_init(&out);
    if (access_format_parse(&arena, slice_of(text), &f, &fault) != 0)
        fail_msg("%s: %.*s", text, (int)fault.n, fault.p);
    assert_false(f.json);
    for (uint32_t i = 0; i < f.n; i++) {
        const struct access_part *p = &f.parts[i];
        if (p->field == ACCESS_LITERAL)
            buf_printf(&out, "=%.*s;", (int)p->text.n, p->text.p);
        else if (p->field == ACCESS_HEADER)
            buf_printf(&out, ":%.*s;", (int)p->text.n, p->text.p);
        else
            buf_printf(&out, "%d;", (int)p->field);
    }
    buf_add(&out, "", 1);
    assert_string_equal(out.p, parts);
    buf_deinit(&out);
    buf_deinit(&fault);
}

static void refuse(const char *text, const char *why)
{
    struct access_format f;
    struct buf fault;
    buf_init(&fault);
    assert_int_equal(access_format_parse(&arena, slice_of(text), &f, &fault), -1);
    buf_add(&fault, "", 1);
    if (strstr(fault.p, why) == NULL)
        fail_msg("%s: \"%s\", not \"%s\"", text, fault.p, why);
    buf_deinit(&fault);
}

static void reads_formats(void **state)
{
    (void)state;
    struct access_format f;
    char parts[64];
    assert_int_equal(access_format_parse(&arena, SLICE("json"), &f, NULL), 0);
    assert_true(f.json);
    expect("plain", "=plain;");
    snprintf(parts, sizeof parts, "%d;= ;%d;", ACCESS_ID, ACCESS_STATUS);
    expect("${id} ${status}", parts);
    snprintf(parts, sizeof parts, "=a $ b } {;%d;%d;:User-Agent;=z;", ACCESS_SECONDS, ACCESS_USED);
    expect("a $ b } {${seconds}${used}${header:User-Agent}z", parts);
    assert_int_equal(access_format_parse(&arena, SLICE("combined"), &f, NULL), 0);
    assert_true(f.n > 10);
}

static void refuses_what_makes_no_sense(void **state)
{
    (void)state;
    refuse("${status", "has no }");
    refuse("${nothing}", "no field ${nothing}; there are: time");
    refuse("${}", "no field");
    refuse("${header}", "no field");
    refuse("${header:}", "no name");
    refuse("${header:a b}", "no name");
    refuse("${header:Authorization}", "credential");
    refuse("${header:cookie}", "credential");
    refuse("${header:X-Api-Key}", "credential");
    refuse("a\nb", "control");
    refuse("a\x7f", "control");
}

static void no_value_ends_a_line_or_a_quoted_string(void **state)
{
    (void)state;
    struct buf out;
    buf_init(&out);
    access_format_value(&out, SLICE("a\"b\\c\r\n\0d\xff\x7f e"));
    access_format_value(&out, (struct slice){ NULL, 0 });
    buf_add(&out, "", 1);
    assert_string_equal(out.p, "a\\x22b\\x5cc\\x0d\\x0a\\x00d\\xff\\x7f e-");
    buf_deinit(&out);
}

/* How many of n ids are kept. */
static int kept(const struct access_rules *rules, const char *route, int status, bool well, int n)
{
    int k = 0;
    char id[32];
    for (int i = 0; i < n; i++) {
        snprintf(id, sizeof id, "1m8q5wj6h%012d", i);
        bool keeps = access_keeps(rules, route, status, well, slice_of(id));
        assert_int_equal(keeps, access_keeps(rules, route, status, well, slice_of(id)));
        k += keeps;
    }
    return k;
}

static void keeps_lines_by_the_first_rule_that_fits(void **state)
{
    (void)state;
    const char *chat[] = { "chat" };
    struct access_rules rules = { (struct access_rule[3]){ { .keep = access_share(0) } }, 3 };
    rules.v[0].routes = chat;
    rules.v[0].nroutes = 1;
    rules.v[0].statuses = arena_alloc(&arena, 2 * sizeof *rules.v[0].statuses);
    rules.v[0].statuses[0].low = 404;
    rules.v[0].statuses[0].high = 404;
    rules.v[0].statuses[1].low = 500;
    rules.v[0].statuses[1].high = 599;
    rules.v[0].nstatuses = 2;
    rules.v[1].routes = chat;
    rules.v[1].nroutes = 1;
    rules.v[1].keep = access_share(1);
    rules.v[2].keep = access_share(0.1);
    assert_int_equal(kept(&rules, "chat", 404, false, 1000), 0);
    assert_int_equal(kept(&rules, "chat", 503, false, 1000), 0);
    assert_int_equal(kept(&rules, "chat", 200, true, 1000), 1000);
    assert_int_equal(kept(&rules, "chat", 401, false, 1000), 1000); /* no rule names it */
    assert_int_equal(kept(&rules, "other", 404, false, 1000), 1000);
    assert_in_range(kept(&rules, "other", 200, true, 10000), 850, 1150);
    assert_in_range(kept(&rules, NULL, 302, true, 10000), 850, 1150);
    assert_int_equal(kept(&rules, "other", 200, false, 1000), 1000); /* cut off, or refused */
}

/* What a share keeps, a larger one keeps too. */
static void a_larger_share_keeps_the_same_and_more(void **state)
{
    (void)state;
    struct access_rule a = { .keep = access_share(0.2) }, b = { .keep = access_share(0.6) };
    struct access_rules few = { &a, 1 }, many = { &b, 1 };
    char id[32];
    for (int i = 0; i < 1000; i++) {
        snprintf(id, sizeof id, "%021d", i * 7919);
        if (access_keeps(&few, NULL, 200, true, slice_of(id)))
            assert_true(access_keeps(&many, NULL, 200, true, slice_of(id)));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(reads_formats, setup, teardown),
        cmocka_unit_test_setup_teardown(refuses_what_makes_no_sense, setup, teardown),
        cmocka_unit_test(no_value_ends_a_line_or_a_quoted_string),
        cmocka_unit_test_setup_teardown(keeps_lines_by_the_first_rule_that_fits, setup, teardown),
        cmocka_unit_test(a_larger_share_keeps_the_same_and_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
