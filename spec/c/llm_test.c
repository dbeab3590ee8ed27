/* llm: names, paths, kinds of bodies and errors of the APIs. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "llm.h"

static void knows_paths_and_names(void **state)
{
    (void)state;
    static const struct {
        const char *path;
        enum llm_api api;
    } paths[] = {
        { "/v1/chat/completions", LLM_OPENAI_CHAT },
        { "/chat/completions", LLM_OPENAI_CHAT },
        { "/openai/deployments/x/chat/completions", LLM_OPENAI_CHAT },
        { "/v1/responses", LLM_OPENAI_RESPONSES },
        { "/x/v1/embeddings", LLM_OPENAI_EMBEDDINGS },
        { "/v1/messages", LLM_ANTHROPIC_MESSAGES },
        { "/messages", LLM_NONE },
        { "/responses", LLM_NONE },
        { "/v2/embeddings", LLM_NONE },
        { "/v1/messages/count_tokens", LLM_NONE },
        { "/v1/chat/completions/x", LLM_NONE },
        { "/v1/completions", LLM_NONE },
        { "/xchat/completions", LLM_NONE },
        { "/", LLM_NONE },
    };
    for (unsigned i = 0; i < sizeof paths / sizeof *paths; i++)
        assert_int_equal(llm_api_of_path(slice_of(paths[i].path)), paths[i].api);
    static const char *const names[] = { "none", "openai-chat", "openai-responses",
                                         "openai-embeddings", "anthropic-messages" };
    for (int i = 0; i < LLM_APIS; i++) {
        enum llm_api api;
        assert_string_equal(llm_api_name((enum llm_api)i), names[i]);
        assert_true(llm_api_of_name(slice_of(names[i]), &api));
        assert_int_equal(api, i);
    }
    enum llm_api api;
    assert_false(llm_api_of_name(SLICE("openai"), &api));
}

static void knows_kinds_of_bodies(void **state)
{
    (void)state;
    struct slice none = { NULL, 0 };
    assert_int_equal(llm_body_of(SLICE("application/json"), none), LLM_BODY_JSON);
    assert_int_equal(llm_body_of(SLICE("Application/JSON; charset=utf-8"), none), LLM_BODY_JSON);
    assert_int_equal(llm_body_of(SLICE("application/problem+json"), none), LLM_BODY_JSON);
    assert_int_equal(llm_body_of(SLICE("text/event-stream;charset=utf-8"), none), LLM_BODY_STREAM);
    assert_int_equal(llm_body_of(SLICE("text/event-stream"), SLICE("identity")), LLM_BODY_STREAM);
    assert_int_equal(llm_body_of(SLICE("text/event-stream"), SLICE("gzip")), LLM_BODY_ENCODED);
    assert_int_equal(llm_body_of(SLICE("text/html"), none), LLM_BODY_OTHER);
    assert_int_equal(llm_body_of(SLICE("+json"), none), LLM_BODY_OTHER);
    assert_int_equal(llm_body_of(none, none), LLM_BODY_OTHER);
}

static void counts_tokens_rounding_up(void **state)
{
    (void)state;
    assert_int_equal(llm_tokens(0, 3), 0);
    assert_int_equal(llm_tokens(1, 3), 1);
    assert_int_equal(llm_tokens(3, 3), 1);
    assert_int_equal(llm_tokens(4, 3), 2);
    assert_int_equal(llm_tokens(5, 2.5), 2);
    assert_int_equal(llm_tokens(1, 0.25), 4);
    assert_int_equal(llm_tokens(UINT64_MAX, 0.001), LLM_TOKENS_END);
    assert_int_equal(llm_tokens(10, 0), LLM_TOKENS_END);
    assert_int_equal(llm_tokens(0, 0), 0);
}

static void error_is(enum llm_api api, struct llm_error e, const char *want)
{
    struct buf b;
    buf_init(&b);
    llm_error_body(api, &e, &b);
    buf_add(&b, "", 1);
    assert_string_equal(b.p, want);
    buf_deinit(&b);
}

static void writes_errors_in_the_shape_of_the_api(void **state)
{
    (void)state;
    struct llm_error e = { 429, NULL, "insufficient_quota", SLICE("a \"b\"\n"), NULL, SLICE("r1") };
    error_is(LLM_OPENAI_CHAT, e,
             "{\"error\":{\"message\":\"a \\\"b\\\"\\n\",\"type\":\"insufficient_quota\","
             "\"param\":null,\"code\":\"insufficient_quota\"}}");
    error_is(LLM_ANTHROPIC_MESSAGES, e,
             "{\"type\":\"error\",\"error\":{\"type\":\"rate_limit_error\","
             "\"message\":\"a \\\"b\\\"\\n\"},\"request_id\":\"r1\"}");
    error_is(LLM_NONE, e,
             "{\"error\":{\"message\":\"a \\\"b\\\"\\n\",\"type\":\"insufficient_quota\","
             "\"code\":\"insufficient_quota\",\"request_id\":\"r1\"}}");
    e = (struct llm_error){ 400, NULL, NULL, SLICE("m"), "n", { NULL, 0 } };
    error_is(LLM_OPENAI_RESPONSES, e,
             "{\"error\":{\"message\":\"m\",\"type\":\"invalid_request_error\","
             "\"param\":\"n\",\"code\":null}}");
    error_is(
        LLM_ANTHROPIC_MESSAGES, e,
        "{\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"m\"}}");
    error_is(LLM_NONE, e,
             "{\"error\":{\"message\":\"m\",\"type\":\"invalid_request_error\",\"code\":null}}");
    static const struct {
        int status;
        const char *openai, *anthropic;
    } kinds[] = { { 401, "invalid_request_error", "authentication_error" },
                  { 403, "permission_error", "permission_error" },
                  { 404, "invalid_request_error", "not_found_error" },
                  { 413, "invalid_request_error", "request_too_large" },
                  { 429, "rate_limit_error", "rate_limit_error" },
                  { 500, "server_error", "api_error" },
                  { 503, "server_error", "api_error" },
                  { 504, "server_error", "timeout_error" },
                  { 529, "server_error", "overloaded_error" } };
    for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char want[160];
        e = (struct llm_error){ kinds[i].status, NULL, "c", SLICE("m"), NULL, { NULL, 0 } };
        snprintf(want, sizeof want,
                 "{\"error\":{\"message\":\"m\",\"type\":\"%s\",\"param\":null,\"code\":\"c\"}}",
                 kinds[i].openai);
        error_is(LLM_OPENAI_EMBEDDINGS, e, want);
        snprintf(want, sizeof want,
                 "{\"type\":\"error\",\"error\":{\"type\":\"%s\",\"message\":\"m\"}}",
                 kinds[i].anthropic);
        error_is(LLM_ANTHROPIC_MESSAGES, e, want);
    }
    e = (struct llm_error){ 529, NULL, NULL, SLICE("m"), NULL, SLICE("req_1") };
    error_is(LLM_ANTHROPIC_MESSAGES, e,
             "{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"},"
             "\"request_id\":\"req_1\"}");
    e.status = 413;
    error_is(LLM_ANTHROPIC_MESSAGES, e,
             "{\"type\":\"error\",\"error\":{\"type\":\"request_too_large\",\"message\":\"m\"},"
             "\"request_id\":\"req_1\"}");
    e = (struct llm_error){ 529, "own_type", "c", SLICE("m"), NULL, { NULL, 0 } };
    error_is(LLM_OPENAI_CHAT, e,
             "{\"error\":{\"message\":\"m\",\"type\":\"own_type\",\"param\":null,\"code\":\"c\"}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_paths_and_names),
        cmocka_unit_test(knows_kinds_of_bodies),
        cmocka_unit_test(counts_tokens_rounding_up),
        cmocka_unit_test(writes_errors_in_the_shape_of_the_api),
    };
    return cmocka_run_group_tests_name("llm", tests, NULL, NULL);
}
