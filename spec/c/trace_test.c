/* trace: which traceparent is understood, what becomes of tracestate, and what origins are told. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <string.h>

#include "trace.h"

#define ID     "4bf92f3577b34da6a3ce929d0e0e4736"
#define PARENT "00f067aa0ba902b7"

static struct arena arena;
static struct headers h;

static int setup(void **state)
{
    (void)state;
    arena_init(&arena);
    headers_init(&h, &arena);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    arena_deinit(&arena);
    return 0;
}

static void add(const char *name, const char *value)
{
    headers_add(&h, slice_of(name), slice_of(value));
}

static void takes(const char *value, bool sampled)
{
    struct trace t = { 0 };
    assert_int_equal(trace_parse(slice_of(value), &t), 0);
    assert_string_equal(t.id, ID);
    assert_string_equal(t.parent, PARENT);
    assert_int_equal(t.sampled, sampled);
}

static void refuses(const char *value)
{
    struct trace t = { .id = "x" };
    assert_int_equal(trace_parse(slice_of(value), &t), -1);
    assert_string_equal(t.id, "x");
}

static void reads_traceparent(void **state)
{
    (void)state;
    takes("00-" ID "-" PARENT "-01", true);
    takes("00-" ID "-" PARENT "-00", false);
    takes("00-" ID "-" PARENT "-03", true);
    takes("00-" ID "-" PARENT "-fe", false);
    takes("01-" ID "-" PARENT "-01", true);
    takes("cc-" ID "-" PARENT "-01-what-comes-later", true);
    takes("01-" ID "-" PARENT "-01-", true);
}

static void refuses_what_is_not_exact(void **state)
{
    static const char whole[] = "00-" ID "-" PARENT "-01";
    char part[sizeof whole];
    (void)state;
    for (size_t n = 0; n < sizeof whole - 1; n++) {
        memcpy(part, whole, n);
        part[n] = '\0';
        refuses(part);
    }
    for (size_t i = 0; i < sizeof whole - 1; i++) { /* any place taken by what belongs nowhere */
        memcpy(part, whole, sizeof whole);
        part[i] = 'G';
        refuses(part);
        part[i] = 'A';
        refuses(part);
    }
    refuses("ff-" ID "-" PARENT "-01");
    refuses("00-" ID "-" PARENT "-01-");
    refuses("00-" ID "-" PARENT "-01-more");
    refuses("01-" ID "-" PARENT "-01.more");
    refuses("01-" ID "-" PARENT "-011");
    refuses("00-00000000000000000000000000000000-" PARENT "-01");
    refuses("00-" ID "-0000000000000000-01");
    refuses(" 00-" ID "-" PARENT "-01");
}

static void carries_tracestate(void **state)
{
    char text[TRACE_STATE + 2] = "";
    struct trace t = { 0 };
    (void)state;
    add("TraceParent", "00-" ID "-" PARENT "-01");
    add("tracestate", "a=1, b=2");
    add("Tracestate", "");
    add("tracestate", "c=3");
    assert_int_equal(trace_read(&h, &t), 0);
    assert_true(slice_eq(t.state, SLICE("a=1, b=2,c=3")));
    for (size_t n = TRACE_STATE; n <= TRACE_STATE + 1; n++) {
        memset(text, 'x', n);
        text[n] = '\0';
        headers_set(&h, SLICE("tracestate"), slice_of(text));
        assert_int_equal(trace_read(&h, &t), 0);
        assert_int_equal(t.state.n, n <= TRACE_STATE ? n : 0);
    }
    headers_remove(&h, SLICE("tracestate"));
    assert_int_equal(trace_read(&h, &t), 0);
    assert_null(t.state.p);
}

static void wants_one_traceparent(void **state)
{
    struct trace t = { 0 };
    (void)state;
    assert_int_equal(trace_read(&h, &t), -1);
    add("traceparent", "00-" ID "-" PARENT "-01");
    assert_int_equal(trace_read(&h, &t), 0);
    add("traceparent", "00-" ID "-" PARENT "-01");
    assert_int_equal(trace_read(&h, &t), -1);
}

static const uint64_t *numbers;

static uint64_t next(void)
{
    return *numbers++;
}

static void begins_traces(void **state)
{
    static const uint64_t some[] = { 0x8000000000000000, 1, 0, 0, 0, 0xab };
    struct trace t;
    char span[TRACE_SPAN + 1];
    (void)state;
    numbers = some;
    trace_new(&t, UINT64_MAX, next);
    assert_string_equal(t.id, "00000000000000018000000000000000");
    assert_string_equal(t.parent, "");
    assert_null(t.state.p);
    trace_new(&t, UINT64_MAX, next);
    assert_string_equal(t.id, "00000000000000000000000000000001"); /* never zero */
    trace_span(span, next);
    assert_string_equal(span, "0000000000000001");
    trace_span(span, next);
    assert_string_equal(span, "00000000000000ab");
}

static bool sampled(uint64_t low, uint64_t share)
{
    const uint64_t two[] = { low, 7 };
    struct trace t;
    numbers = two;
    trace_new(&t, share, next);
    return t.sampled;
}

static void samples_by_the_id(void **state)
{
    const uint64_t half = 0x8000000000000000;
    (void)state;
    assert_true(sampled(half - 1, half));
    assert_false(sampled(half, half));
    assert_false(sampled(1, 0));
    assert_false(sampled(0, 0));
    assert_true(sampled(UINT64_MAX, UINT64_MAX));
}

static void tells_origins(void **state)
{
    struct trace t = { .id = ID, .sampled = true, .state = SLICE("a=1") };
    (void)state;
    add("traceparent", "rubbish");
    add("traceparent", "more");
    add("tracestate", "x");
    trace_write(&t, PARENT, &h);
    assert_int_equal(h.n, 2);
    assert_true(slice_eq(h.v[0].value, SLICE("00-" ID "-" PARENT "-01")));
    assert_true(slice_eq(h.v[1].value, SLICE("a=1")));
    t.sampled = false;
    t.state = (struct slice){ NULL, 0 };
    trace_write(&t, PARENT, &h);
    assert_int_equal(h.n, 1);
    assert_true(slice_eq(h.v[0].value, SLICE("00-" ID "-" PARENT "-00")));
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, setup, teardown)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(reads_traceparent),  TEST(refuses_what_is_not_exact),
        TEST(carries_tracestate), TEST(wants_one_traceparent),
        TEST(begins_traces),      TEST(samples_by_the_id),
        TEST(tells_origins),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
