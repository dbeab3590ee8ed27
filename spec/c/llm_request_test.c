/* llm: what is read of requests, at the example of OpenAI's chat, and the edits that are made to
 * them. */
#include "llm_rig.h"

static void reads_a_request(void **state)
{
    (void)state;
    const struct llm_request *r =
        inspect(SLICE("{\"model\":\"gpt-4o\",\"messages\":[{\"role\":\"user\","
                      "\"content\":\"hello\"}],\"max_tokens\":50,\"n\":3,\"stream\":true,"
                      "\"stream_options\":{\"include_usage\":true}}"),
                &options);
    assert_true(slice_eq(r->model, SLICE("gpt-4o")));
    assert_int_equal(r->model_start, 9);
    assert_int_equal(r->model_end, 17);
    assert_true(r->stream && r->output_given && r->include_usage == LLM_TRUE && !r->strip_usage);
    assert_int_equal(r->prompt_tokens, 3); /* "user" and "hello" */
    assert_int_equal(r->output_max, 50);
    assert_int_equal(r->n, 3);
    assert_int_equal(r->reserve, 153);

    r = inspect(SLICE(" {} "), &options);
    assert_null(r->model.p);
    assert_true(!r->stream && !r->output_given && r->include_usage == LLM_ABSENT);
    assert_int_equal(r->reserve, 1000);

    r = inspect(SLICE("{\"model\":null,\"n\":null,\"stream\":null,\"max_tokens\":null,\"stream_"
                      "options\":null,"
                      "\"max_completion_tokens\":null}"),
                &options);
    assert_true(r->model.p == NULL && !r->stream && !r->output_given);
    assert_int_equal(r->reserve, 1000);
}

static void takes_the_larger_maximum(void **state)
{
    (void)state;
    assert_int_equal(
        inspect(SLICE("{\"max_tokens\":5,\"max_completion_tokens\":7}"), &options)->reserve, 7);
    assert_int_equal(
        inspect(SLICE("{\"max_tokens\":9,\"max_completion_tokens\":7}"), &options)->reserve, 9);
    assert_int_equal(
        inspect(SLICE("{\"max_tokens\":null,\"max_completion_tokens\":7}"), &options)->reserve, 7);
    assert_int_equal(
        inspect(SLICE("{\"max_tokens\":9,\"max_completion_tokens\":null}"), &options)->reserve, 9);
    const struct llm_request *r = inspect(SLICE("{\"max_tokens\":0}"), &options);
    assert_true(r->output_given && r->reserve == 0);
}

static void reads_escaped_keys_and_models(void **state)
{
    (void)state;
    struct slice body = SLICE("{\"mod\\u0065l\":\"a\\/b\",\"\\u006e\":2,\"max_tokens\":5}");
    const struct llm_request *r = inspect(body, &options);
    assert_true(slice_eq(r->model, SLICE("a/b")));
    assert_ptr_equal(r->model.p, r->model_copy);
    assert_int_equal(r->reserve, 10);
    body = SLICE("{\"model\":\"a/\xc3\xa9\"}");
    r = inspect(body, &options);
    assert_ptr_equal(r->model.p, body.p + 10);
    assert_true(slice_eq(r->model, SLICE("a/\xc3\xa9")));
}

static void counts_the_text_of_the_prompt(void **state)
{
    (void)state;
    assert_int_equal(prompt_bytes(SLICE("{\"messages\":\"abc\"}")), 3);
    assert_int_equal(prompt_bytes(SLICE("{\"messages\":[\"ab\",[\"c\"]]}")), 3);
    assert_int_equal(
        prompt_bytes(SLICE("{\"messages\":[{\"role\":\"user\",\"content\":\"\\u00e9\\n\"}]}")), 7);
    assert_int_equal(prompt_bytes(SLICE(
                         "{\"messages\":[{\"content\":[{\"type\":\"text\",\"text\":\"abc\"}]}]}")),
                     7);
    assert_int_equal(
        prompt_bytes(SLICE("{\"messages\":[{\"tool_calls\":[{\"id\":\"i\",\"function\":"
                           "{\"name\":\"f\",\"arguments\":\"{}\"}}]}]}")),
        4);
    /* keys and numbers count in schemas, at any depth */
    assert_int_equal(
        prompt_bytes(SLICE("{\"tools\":[{\"type\":\"function\",\"x\":{\"deep\":1}}]}")), 18);
    assert_int_equal(prompt_bytes(SLICE("{\"functions\":[{\"name\":\"f\"}]}")), 5);
    assert_int_equal(prompt_bytes(SLICE("{\"response_format\":{\"type\":\"text\"}}")), 8);
    assert_int_equal(prompt_bytes(SLICE("{\"tools\":[[[[[[[[[[[{\"abc\":\"d\"}]]]]]]]]]]]}")), 4);
    /* not what is no prompt */
    assert_int_equal(
        prompt_bytes(
            SLICE("{\"user\":\"someone\",\"metadata\":{\"messages\":\"abc\"},\"stop\":[\"x\"]}")),
        0);
}

static void counts_attachments_by_number(void **state)
{
    (void)state;
    const uint64_t image = 100000, file = 1000000;
#define PART(text) SLICE("{\"messages\":[{\"content\":[" text "]}]}")
    assert_int_equal(
        prompt_bytes(PART("{\"image_url\":{\"url\":\"data:xxxxxxxx\",\"detail\":\"low\"}}")),
        image + 3);
    assert_int_equal(
        prompt_bytes(PART("{\"image_url\":\"data:xxxxxxxx\"},{\"image_url\":{\"url\":\"h\"}}")),
        2 * image);
    assert_int_equal(prompt_bytes(PART("{\"input_audio\":{\"data\":\"AAAA\",\"format\":\"wav\"}}")),
                     file + 3);
    assert_int_equal(
        prompt_bytes(PART("{\"file\":{\"file_data\":\"AAAA\",\"filename\":\"a.pdf\"}}")), file + 5);
    assert_int_equal(prompt_bytes(PART("{\"type\":\"file\",\"file\":{\"file_id\":\"file-1\"}}")),
                     file + 4);
#undef PART
    /* elsewhere the same names are text */
    assert_int_equal(prompt_bytes(SLICE("{\"messages\":[{\"image_url\":{\"url\":\"abc\"}}]}")), 3);
    assert_int_equal(
        prompt_bytes(SLICE("{\"messages\":[{\"content\":{\"image_url\":{\"url\":\"abc\"}}}]}")), 3);
    assert_int_equal(
        prompt_bytes(
            SLICE("{\"messages\":[{\"content\":[{\"file\":{\"x\":{\"file_id\":\"abc\"}}}]}]}")),
        3);
    assert_int_equal(
        prompt_bytes(SLICE("{\"tools\":[{\"content\":[{\"image_url\":{\"url\":\"abc\"}}]}]}")),
        7 + 9 + 3 + 3);
    const struct llm_request *r = inspect(SLICE("{\"max_tokens\":1,\"messages\":[{\"content\":["
                                                "{\"image_url\":{\"url\":\"x\"}},{\"file\":{\"file_"
                                                "id\":\"x\"}},{\"text\":\"abcd\"}]}]}"),
                                          &options);
    assert_int_equal(r->prompt_tokens, 800 + 2000 + 2);
}

static void refuses_what_has_no_meaning(void **state)
{
    (void)state;
    faults(SLICE("[]"), NULL, "invalid_type", "the body must be a JSON object");
    faults(SLICE("\"x\""), NULL, "invalid_type", "the body must be a JSON object");
    faults(SLICE("1"), NULL, "invalid_type", "the body must be a JSON object");
    faults(SLICE(""), NULL, "invalid_json",
           "the body is not valid JSON: the text ends too early, at byte 0");
    faults(SLICE("{} x"), NULL, "invalid_json",
           "the body is not valid JSON: more follows the value, at byte 3");
    faults(SLICE("{\"n\":1,}"), NULL, "invalid_json",
           "the body is not valid JSON: a member's name is expected, at byte 7");
    faults(SLICE("{\"model\":5}"), "model", "invalid_type", "'model' must be a string");
    faults(SLICE("{\"model\":{}}"), "model", "invalid_type", "'model' must be a string");
    faults(SLICE("{\"stream\":1}"), "stream", "invalid_type", "'stream' must be true or false");
    faults(SLICE("{\"stream\":\"true\"}"), "stream", "invalid_type",
           "'stream' must be true or false");
    faults(SLICE("{\"n\":0}"), "n", "invalid_value", "'n' must be an integer of at least 1");
    faults(SLICE("{\"n\":-1}"), "n", "invalid_value", "'n' must be an integer of at least 1");
    faults(SLICE("{\"n\":\"2\"}"), "n", "invalid_type", "'n' must be an integer");
    faults(SLICE("{\"n\":[]}"), "n", "invalid_type", "'n' must be an integer");
    faults(SLICE("{\"max_tokens\":1.5}"), "max_tokens", "invalid_value",
           "'max_tokens' must be an integer of at least 0");
    faults(SLICE("{\"max_tokens\":1e3}"), "max_tokens", "invalid_value",
           "'max_tokens' must be an integer of at least 0");
    faults(SLICE("{\"max_completion_tokens\":-5}"), "max_completion_tokens", "invalid_value",
           "'max_completion_tokens' must be an integer of at least 0");
    faults(SLICE("{\"max_completion_tokens\":true}"), "max_completion_tokens", "invalid_type",
           "'max_completion_tokens' must be an integer");
    faults(SLICE("{\"stream_options\":[]}"), "stream_options", "invalid_type",
           "'stream_options' must be an object");
    faults(SLICE("{\"stream_options\":{\"include_usage\":1}}"), "stream_options.include_usage",
           "invalid_type", "'stream_options.include_usage' must be true or false");
}

static void refuses_what_cannot_be_counted(void **state)
{
    (void)state;
    assert_int_equal(inspect(SLICE("{\"max_tokens\":9007199254740991}"), &options)->reserve,
                     LLM_TOKENS_END - 1);
    faults(SLICE("{\"max_tokens\":9007199254740992}"), "max_tokens", "invalid_value",
           "'max_tokens' is too large");
    faults(SLICE("{\"n\":99999999999999999999999999}"), "n", "invalid_value", "'n' is too large");
    const char *message = "the request may cost more tokens than can be counted";
    faults(SLICE("{\"max_tokens\":9007199254740991,\"messages\":\"a\"}"), "max_tokens",
           "invalid_value", message);
    faults(SLICE("{\"n\":9007199254740991}"), "n", "invalid_value", message);
    faults(SLICE("{\"n\":9007199254740991,\"max_completion_tokens\":9007199254740991}"), "n",
           "invalid_value", message);
    char body[600] = "{\"model\":\"";
    memset(body + 10, 'm', LLM_MODEL + 1);
    strcpy(body + 10 + LLM_MODEL + 1, "\"}");
    faults(slice_of(body), "model", "invalid_value", "'model' is longer than 256 bytes");
    strcpy(body + 10 + LLM_MODEL, "\"}");
    assert_int_equal(inspect(slice_of(body), &options)->model.n, LLM_MODEL);
}

static void refuses_duplicates_that_decide_cost(void **state)
{
    (void)state;
    static const char *const members[] = {
        "model",          "messages", "max_tokens", "max_completion_tokens", "n", "stream",
        "stream_options", "tools",    "functions",  "response_format"
    };
    for (unsigned i = 0; i < sizeof members / sizeof *members; i++) {
        char body[200], message[80];
        snprintf(body, sizeof body, "{\"%s\":null,\"x\":1,\"\\u00%02x%s\":null}", members[i],
                 members[i][0], members[i] + 1);
        snprintf(message, sizeof message, "'%s' is given twice", members[i]);
        faults(slice_of(body), members[i], "duplicate_parameter", message);
    }
    faults(SLICE("{\"stream_options\":{\"include_usage\":true,\"include_usage\":false}}"),
           "include_usage", "duplicate_parameter", "'include_usage' is given twice");
    inspect(SLICE("{\"x\":1,\"x\":2,\"a\":{\"model\":1,\"model\":2},\"include_usage\":1,\"stream_"
                  "options\":"
                  "{\"include_usage\":true}}"),
            &options);
}

static void leaves_what_is_no_api_alone(void **state)
{
    (void)state;
    assert_int_equal(llm_inspect(LLM_NONE, SLICE("{}"), &options, &inspect_storage),
                     LLM_UNSUPPORTED);
}

static void edits_as_little_as_it_can(void **state)
{
    (void)state;
    const struct llm_options *o = &options;
    rewrites(o, "{\"big\":12345678901234567890,\"a\":[ ]}",
             "{\"big\":12345678901234567890,\"a\":[ ]}");
    rewrites(o, "{\"stream\":false,\"stream_options\":{}}",
             "{\"stream\":false,\"stream_options\":{}}");
    rewrites(o, "{\"stream\":true,\"stream_options\":{\"include_usage\":true}}",
             "{\"stream\":true,\"stream_options\":{\"include_usage\":true}}");
    rewrites(o, " { \"stream\":true}",
             " {\"stream_options\":{\"include_usage\":true}, \"stream\":true}");
    rewrites(o, "{\"stream\":true,\"stream_options\":{ }}",
             "{\"stream\":true,\"stream_options\":{\"include_usage\":true }}");
    rewrites(o, "{\"stream_options\":{\"x\": [\"\\ud800\"]},\"stream\":true}",
             "{\"stream_options\":{\"include_usage\":true,\"x\": [\"\\ud800\"]},\"stream\":true}");
    rewrites(o, "{\"stream_options\":null,\"stream\":true}",
             "{\"stream_options\":{\"include_usage\":true},\"stream\":true}");
    rewrites(o, "{\"stream_options\":{\"a\":1,\"include_usage\": false ,\"b\":2},\"stream\":true}",
             "{\"stream_options\":{\"a\":1,\"include_usage\": true ,\"b\":2},\"stream\":true}");
    rewrites(o, "{\"stream\":true,\"stream_options\":{\"include_\\u0075sage\":null}}",
             "{\"stream\":true,\"stream_options\":{\"include_\\u0075sage\":true}}");
}

static void caps_the_output(void **state)
{
    (void)state;
    const struct llm_options *o = &capping;
    rewrites(o, "{}", "{\"max_completion_tokens\":1000}");
    rewrites(o, "{ }", "{\"max_completion_tokens\":1000 }");
    rewrites(o, "{\"n\":2}", "{\"max_completion_tokens\":1000,\"n\":2}");
    rewrites(o, "{\"max_tokens\":5}", "{\"max_tokens\":5}");
    rewrites(o, "{\"max_completion_tokens\":0}", "{\"max_completion_tokens\":0}");
    rewrites(o, "{\"max_tokens\":null}", "{\"max_completion_tokens\":1000,\"max_tokens\":null}");
    rewrites(o, "{\"max_completion_tokens\":null}", "{\"max_completion_tokens\":1000}");
    rewrites(o, "{\"stream\":true}",
             "{\"max_completion_tokens\":1000,\"stream_options\":{\"include_usage\":true},"
             "\"stream\":true}");
    rewrites(o, "{\"stream\":true,\"stream_options\":{\"x\":1}}",
             "{\"max_completion_tokens\":1000,\"stream\":true,\"stream_options\":{\"include_"
             "usage\":true,\"x\":1}}");
    rewrites(o, "{\"max_completion_tokens\":null,\"stream_options\":null,\"stream\":true}",
             "{\"max_completion_tokens\":1000,\"stream_options\":{\"include_usage\":true},"
             "\"stream\":true}");
    rewrites(o,
             "{\"stream_options\":{\"include_usage\":false},\"stream\":true,\"max_completion_"
             "tokens\":null}",
             "{\"stream_options\":{\"include_usage\":true},\"stream\":true,\"max_completion_"
             "tokens\":1000}");
    struct llm_options large = capping;
    large.default_output = LLM_TOKENS_END - 1;
    rewrites(&large, "{\"stream\":true}",
             "{\"max_completion_tokens\":9007199254740991,"
             "\"stream_options\":{\"include_usage\":true},\"stream\":true}");
}

static void tells_when_the_usage_event_is_ours(void **state)
{
    (void)state;
    assert_true(inspect(SLICE("{\"stream\":true}"), &options)->strip_usage);
    const struct llm_request *r =
        inspect(SLICE("{\"stream\":true,\"stream_options\":{\"include_usage\":false}}"), &options);
    assert_true(r->strip_usage && r->include_usage == LLM_FALSE);
    assert_false(
        inspect(SLICE("{\"stream_options\":{\"include_usage\":false}}"), &options)->strip_usage);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_request),
        cmocka_unit_test(takes_the_larger_maximum),
        cmocka_unit_test(reads_escaped_keys_and_models),
        cmocka_unit_test(counts_the_text_of_the_prompt),
        cmocka_unit_test(counts_attachments_by_number),
        cmocka_unit_test(refuses_what_has_no_meaning),
        cmocka_unit_test(refuses_what_cannot_be_counted),
        cmocka_unit_test(refuses_duplicates_that_decide_cost),
        cmocka_unit_test(leaves_what_is_no_api_alone),
        cmocka_unit_test(edits_as_little_as_it_can),
        cmocka_unit_test(caps_the_output),
        cmocka_unit_test(tells_when_the_usage_event_is_ours),
    };
    return cmocka_run_group_tests_name("llm_request", tests, NULL, NULL);
}
