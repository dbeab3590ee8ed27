/* llm_model.c and llm_peek.c: the model that a body names, errors that a stream begins with. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "llm_peek.h"

/* --- models --- */

static void test_model(void **state)
{
    (void)state;
    static const char *const bodies[][2] = {
        { "{\"model\":\"m\"}", "m" },
        { "  {\"a\":[{\"model\":\"no\"}], \"model\" : \"x\\u0041\\\"\" , \"b\":1}", "xA\"" },
        { "{\"mod\\u0065l\":\"deep\"}", "deep" },
        { "{\"messages\":[],\"n\":12345678901234567890}", NULL },
        { "{\"model\":null}", NULL },
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct slice body = slice_of(bodies[i][0]);
        struct llm_model m;
        struct llm_fault f;
        assert_int_equal(LLM_OK, llm_find_model(body, &m, &f));
        if (bodies[i][1] == NULL) {
            assert_null(m.name.p);
            assert_int_equal(0, m.end);
            continue;
        }
        assert_true(slice_eq(m.name, slice_of(bodies[i][1])));
        assert_int_equal('"', body.p[m.start]);
        assert_int_equal('"', body.p[m.end - 1]);
    }
}

static void test_no_model(void **state)
{
    (void)state;
    static const char *const bodies[][2] = {
        { "{\"model\":\"a\",\"model\":\"b\"}", "duplicate_parameter" },
        { "{\"model\":null,\"mod\\u0065l\":\"b\"}", "duplicate_parameter" },
        { "{\"model\":{\"x\":1}}", "invalid_type" },
        { "{\"model\":7}", "invalid_type" },
        { "[{\"model\":\"a\"}]", "invalid_type" },
        { "{\"model\":\"a\"", "invalid_json" },
        { "{\"model\":\"a\"} x", "invalid_json" },
        { "", "invalid_json" },
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        struct llm_model m;
        struct llm_fault f;
        assert_int_equal(LLM_FAULT, llm_find_model(slice_of(bodies[i][0]), &m, &f));
        assert_string_equal(bodies[i][1], f.code);
    }
    char body[400] = "{\"model\":\"";
    memset(body + 10, 'x', 300);
    memcpy(body + 310, "\"}", 3);
    struct llm_model m;
    struct llm_fault f;
    assert_int_equal(LLM_FAULT, llm_find_model(slice_of(body), &m, &f));
    assert_string_equal("invalid_value", f.code);
}

/* --- errors --- */

static void test_code(void **state)
{
    (void)state;
    static const char *const bodies[][2] = {
        { "{\"error\":{\"message\":\"x\",\"type\":\"t\",\"code\":\"insufficient_quota\"}}",
          "insufficient_quota" },
        { "{\"error\":{\"type\":\"server_error\",\"code\":null}}", "server_error" },
        { "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}", "overloaded_error" },
        { "{\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"m\"}",
          "rate_limit_exceeded" },
        { "{\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_error\"}}}",
          "server_error" },
        { "{\"error\":{\"code\":503}}", "503" },
        { "{\"error\":\"text\"}", NULL },
        { "{\"code\":\"x\",\"type\":\"y\"}", NULL },
        { "{\"error\":null,\"code\":\"x\"}", NULL },
        { "{\"error\":{\"code\":\"x\"}", NULL },
        { "<html>", NULL },
    };
    for (size_t i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        char text[LLM_ERROR_CODE];
        struct slice code = llm_error_code(slice_of(bodies[i][0]), text);
        if (bodies[i][1] == NULL)
            assert_null(code.p);
        else
            assert_true(slice_eq(code, slice_of(bodies[i][1])));
    }
}

struct stream {
    const char *bytes;
    enum llm_peeked found;
    const char *code;
};

static void test_streams(void **state)
{
    (void)state;
    static const struct stream streams[] = {
        { "data: {\"choices\":[]}\n\n", LLM_PEEK_FINE, NULL },
        { "data: {\"error\":{\"code\":\"c\"}}\n\n", LLM_PEEK_ERROR, "c" },
        { ": hi\r\n\r\nevent: ping\r\ndata: {\"type\":\"ping\"}\r\n\r\nevent: error\r\ndata: "
          "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}\r\n\r\n",
          LLM_PEEK_ERROR, "overloaded_error" },
        { "event: ping\ndata: {}\n\ndata: {\"type\":\"message_start\"}\n\n", LLM_PEEK_FINE, NULL },
        { "event: error\ndata: it broke\n\n", LLM_PEEK_ERROR, NULL },
        { "data: [DONE]\n\n", LLM_PEEK_FINE, NULL },
        { "data: {\"id\":\"x\",\"error\":null}\n\ndata: {\"error\":{}}\n\n", LLM_PEEK_FINE, NULL },
        { "data: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"e\"},"
          "\"usage\":null}}\n\n",
          LLM_PEEK_ERROR, "e" },
        { ": one\n\n: two\n\n", LLM_PEEK_MORE, NULL },
        { "data: {\"error\":{}}", LLM_PEEK_MORE, NULL },
    };
    for (size_t i = 0; i < sizeof streams / sizeof *streams; i++) {
        size_t n = strlen(streams[i].bytes);
        for (size_t step = 1; step <= n; step++) {
            struct llm_peek p;
            llm_peek_init(&p);
            for (size_t at = 0; at < n; at += step)
                llm_peek_feed(
                    &p, (struct slice){ streams[i].bytes + at, step < n - at ? step : n - at });
            assert_int_equal(streams[i].found, p.found);
            if (streams[i].code != NULL)
                assert_true(slice_eq(p.code, slice_of(streams[i].code)));
            else
                assert_null(p.code.p);
            llm_peek_deinit(&p);
        }
    }
}

/* What is long is no error, and nothing grows. */
static void test_long(void **state)
{
    (void)state;
    static const char *const units[] = { ": comment\n", "data: xxxxxxxxx\n",
                                         "event: ping\ndata: {}\n\n" };
    for (size_t i = 0; i < sizeof units / sizeof *units; i++) {
        struct llm_peek p;
        size_t fed = 0;
        llm_peek_init(&p);
        for (; p.found == LLM_PEEK_MORE && fed < 100000; fed += strlen(units[i]))
            llm_peek_feed(&p, slice_of(units[i]));
        assert_int_equal(LLM_PEEK_FINE, p.found);
        assert_in_range(fed, LLM_PEEK / 2, 2 * LLM_PEEK);
        assert_in_range(p.data.n, 0, LLM_PEEK);
        llm_peek_deinit(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_model), cmocka_unit_test(test_no_model),
        cmocka_unit_test(test_code),  cmocka_unit_test(test_streams),
        cmocka_unit_test(test_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
