/* llm_messages: what Anthropic's messages cost, and what of their answers is text and usage. */
#include "llm_rig.h"

static void reads_a_request(void **state)
{
    (void)state;
    const struct llm_request *r =
        inspect(SLICE("{\"model\":\"claude-sonnet-4\",\"max_tokens\":50,\"system\":\"abcd\","
                      "\"messages\":[{\"role\":\"user\",\"content\":\"hello\"}],\"stream\":true,"
                      "\"thinking\":{\"type\":\"enabled\",\"budget_tokens\":1024}}"),
                &options);
    assert_true(slice_eq(r->model, SLICE("claude-sonnet-4")));
    assert_true(r->stream && r->output_given && !r->strip_usage && !r->hidden);
    assert_int_equal(r->prompt_tokens, 5);
    assert_int_equal(r->reserve, 55);
    r = inspect(SLICE("{\"max_tokens\":0}"), &options);
    assert_true(r->output_given && r->reserve == 0);
    r = inspect(SLICE("{}"), &options);
    assert_true(!r->output_given && r->reserve == 1000);
}

#define BLOCKS(text) SLICE("{\"messages\":[{\"content\":[" text "]}]}")

static void counts_the_text_of_the_prompt(void **state)
{
    (void)state;
    assert_int_equal(prompt_bytes(SLICE("{\"system\":[{\"type\":\"text\",\"text\":\"abc\"}]}")), 7);
    assert_int_equal(prompt_bytes(BLOCKS("{\"type\":\"text\",\"text\":\"h\\u00e9\"}")), 7);
    assert_int_equal(
        prompt_bytes(BLOCKS("{\"type\":\"thinking\",\"thinking\":\"abc\",\"signature\":\"de\"}")),
        8 + 3 + 2);
    assert_int_equal(prompt_bytes(BLOCKS("{\"type\":\"tool_result\",\"tool_use_id\":\"t\","
                                         "\"content\":\"abc\",\"is_error\":false}")),
                     11 + 1 + 3);
    assert_int_equal(prompt_bytes(BLOCKS("{\"type\":\"tool_result\",\"content\":[{\"type\":"
                                         "\"text\",\"text\":\"abc\"}]}")),
                     11 + 4 + 3);
    /* of a tool's input all that the client has chosen, at any depth */
    assert_int_equal(
        prompt_bytes(BLOCKS("{\"type\":\"tool_use\",\"name\":\"f\",\"input\":{\"key\":[1,true,"
                            "null,{\"a\":\"b\",\"source\":{\"data\":\"cd\"}}]}}")),
        8 + 1 + 3 + 1 + 4 + 4 + 1 + 1 + 6 + 4 + 2);
    assert_int_equal(prompt_bytes(BLOCKS("{\"input\":[[[[[[[[[[[{\"abc\":{\"d\":1}}]]]]]]]]]]]}")),
                     3 + 1 + 1);
    assert_int_equal(prompt_bytes(SLICE("{\"tools\":[{\"name\":\"f\",\"input_schema\":{\"x\":{"
                                        "\"maximum\":10}}}]}")),
                     4 + 1 + 12 + 1 + 7 + 2);
    assert_int_equal(prompt_bytes(SLICE("{\"output_config\":{\"format\":{\"schema\":{}}}}")),
                     6 + 6);
    /* not what is no prompt */
    assert_int_equal(prompt_bytes(SLICE("{\"metadata\":{\"user_id\":\"x\"},\"stop_sequences\":["
                                        "\"x\"],\"thinking\":{\"type\":\"enabled\"}}")),
                     0);
}

#define SOURCE(members) "\"source\":{" members "}"

static void counts_attachments_by_number(void **state)
{
    (void)state;
    const uint64_t image = 100000, file = 1000000;
    static const char *const sources[] = { SOURCE("\"data\":\"AAAAAAAA\",\"media_type\":\"\""),
                                           SOURCE("\"url\":\"https://example.org/\""),
                                           SOURCE("\"file_id\":\"file_1\"") };
    for (int i = 0; i < 3; i++) {
        char body[300];
#define KIND(format) "{\"messages\":[{\"content\":[" format "]}]}"
        snprintf(body, sizeof body, KIND("{\"type\":\"image\",%s}"), sources[i]);
        assert_int_equal(prompt_bytes(slice_of(body)), image + 5);
        snprintf(body, sizeof body, KIND("{%s,\"type\":\"image\"}"), sources[i]);
        assert_int_equal(prompt_bytes(slice_of(body)), image + 5);
        snprintf(body, sizeof body, KIND("{%s,\"type\":\"document\",\"title\":\"abc\"}"),
                 sources[i]);
        assert_int_equal(prompt_bytes(slice_of(body)), file + 8 + 3);
        snprintf(body, sizeof body, KIND("{\"content\":[{\"type\":\"image\",%s},{%s}]}"),
                 sources[i], sources[i]);
        assert_int_equal(prompt_bytes(slice_of(body)), image + 5 + file);
        snprintf(body, sizeof body,
                 KIND("{\"source\":{\"content\":[{\"type\":\"image\",%s},{\"text\":\"abc\"}]}}"),
                 sources[i]);
        assert_int_equal(prompt_bytes(slice_of(body)), image + 5 + 3);
#undef KIND
    }
}

static void knows_documents_that_are_text(void **state)
{
    (void)state;
    assert_int_equal(
        prompt_bytes(BLOCKS("{\"type\":\"document\"," SOURCE("\"type\":\"text\",\"data\":"
                                                             "\"abcdef\"") "}")),
        8 + 4 + 6);
    assert_int_equal(prompt_bytes(BLOCKS("{" SOURCE("\"data\":\"abcdef\",\"type\":\"text\"") "}")),
                     4 + 6);
    assert_int_equal(prompt_bytes(BLOCKS("{\"type\":\"search_result\",\"source\":\"abc\"}")),
                     13 + 3);
    /* elsewhere the same names are text */
    assert_int_equal(prompt_bytes(SLICE("{\"messages\":[{" SOURCE("\"data\":\"abc\"") "}]}")), 3);
    assert_int_equal(prompt_bytes(BLOCKS("{\"x\":{" SOURCE("\"data\":\"abc\"") "}}")), 3);
    assert_int_equal(prompt_bytes(SLICE("{\"system\":[{" SOURCE("\"data\":\"abc\"") "}]}")), 3);
}

static void refuses_what_has_no_meaning(void **state)
{
    (void)state;
    faults(SLICE("{\"max_tokens\":\"5\"}"), "max_tokens", "invalid_type",
           "'max_tokens' must be an integer");
    faults(SLICE("{\"max_tokens\":-1}"), "max_tokens", "invalid_value",
           "'max_tokens' must be an integer of at least 0");
    faults(SLICE("{\"stream\":0}"), "stream", "invalid_type", "'stream' must be true or false");
    static const char *const members[] = {
        "model", "max_tokens", "system",        "messages",
        "tools", "stream",     "output_config", "output_format"
    };
    for (unsigned i = 0; i < sizeof members / sizeof *members; i++) {
        char body[200], message[80];
        snprintf(body, sizeof body, "{\"%s\":null,\"%s\":null}", members[i], members[i]);
        snprintf(message, sizeof message, "'%s' is given twice", members[i]);
        faults(slice_of(body), members[i], "duplicate_parameter", message);
    }
}

static void caps_the_output(void **state)
{
    (void)state;
    rewrites(&options, "{\"stream\":true}", "{\"stream\":true}");
    rewrites(&capping, "{\"messages\":[ ]}", "{\"max_tokens\":1000,\"messages\":[ ]}");
    rewrites(&capping, "{\"max_tokens\":null}", "{\"max_tokens\":1000}");
    rewrites(&capping, "{\"max_tokens\":5}", "{\"max_tokens\":5}");
}

static void reads_json_answers(void **state)
{
    (void)state;
    const struct llm_usage none = { .done = true };
    reads_json("{\"type\":\"message\",\"content\":[{\"type\":\"text\",\"text\":\"abc\"},{\"type\":"
               "\"thinking\",\"thinking\":\"de\",\"signature\":\"x\"},{\"type\":\"tool_use\","
               "\"name\":\"f\",\"input\":{\"a\":[\"b\",1.5,true]}}],\"usage\":{\"input_tokens\":9,"
               "\"cache_creation_input_tokens\":100,\"cache_read_input_tokens\":1000,"
               "\"cache_creation\":{\"input_tokens\":7},\"output_tokens\":12}}",
               used(1109, 12, 1121, 3 + 2 + 1 + 1 + 1 + 3 + 4, true, false));
    reads_json("{\"usage\":{\"input_tokens\":9,\"cache_read_input_tokens\":null,"
               "\"output_tokens\":12}}",
               used(9, 12, 21, 0, true, false));
    reads_json("{\"usage\":{\"input_tokens\":9,\"cache_read_input_tokens\":\"1\","
               "\"output_tokens\":12}}",
               none);
    reads_json("{\"usage\":{\"input_tokens\":0,\"output_tokens\":0}}", none);
    reads_json("{\"usage\":{\"output_tokens\":12}}", none);
    reads_json("{\"usage\":{\"input_tokens\":9007199254740992,\"cache_read_input_tokens\":1,"
               "\"output_tokens\":0}}",
               none);
    reads_json("{\"usage\":null}", none);
    reads_json("{\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\"}}",
               (struct llm_usage){ .done = true, .error = true });
    reads_json("{\"content\":[{\"type\":\"tool_use\",\"input\":{\"key\":\"val",
               (struct llm_usage){ .text_bytes = 6 });
}

#define EVENT(type, members) "event: " type "\ndata: {\"type\":\"" type "\"" members "}\n\n"
#define START(usage)         EVENT("message_start", ",\"message\":{\"usage\":{" usage "}}")
#define TEXT(text)                                                                                 \
    EVENT("content_block_delta", ",\"delta\":{\"type\":\"text_delta\",\"text\":\"" text "\"}")
#define END(usage)                                                                                 \
    EVENT("message_delta", ",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{" usage "}")
#define STOP EVENT("message_stop", "")
#define PING EVENT("ping", "")

/* The events, with a ping among them. */
static void reads_events(const char *first, const char *second, const char *third,
                         struct llm_usage usage)
{
    reads_stream((struct item[]){ { first, false },
                                  { second, false },
                                  { PING, false },
                                  { third, false },
                                  { NULL, false } },
                 usage);
}

static void a_number_that_is_absent_stands(void **state)
{
    (void)state;
    const char *start = START("\"input_tokens\":9,\"cache_read_input_tokens\":100,"
                              "\"cache_creation_input_tokens\":null,\"output_tokens\":1");
    reads_events(start, TEXT("abc"), END("\"output_tokens\":12") STOP,
                 used(109, 12, 121, 3, true, false));
    reads_events(start, TEXT("abc"), END("\"input_tokens\":null,\"output_tokens\":12"),
                 used(109, 12, 121, 3, false, false));
    reads_events(start, TEXT("abc"), END("\"input_tokens\":50,\"output_tokens\":12") STOP,
                 used(150, 12, 162, 3, true, false));
    reads_events(start, END("\"output_tokens\":12"), END("\"output_tokens\":20") STOP,
                 used(109, 20, 129, 0, true, false));
    /* the end has the last word, and only what is a number */
    reads_events(START("\"input_tokens\":0,\"output_tokens\":0"), TEXT("abc"),
                 END("\"input_tokens\":7,\"output_tokens\":3") STOP,
                 used(7, 3, 10, 3, true, false));
    reads_events(start, END("\"output_tokens\":12"), END("\"output_tokens\":-1") STOP,
                 used(109, 12, 121, 0, true, false));
}

static void before_the_end_only_the_input_is_known(void **state)
{
    (void)state;
    struct llm_usage input = { .input_known = true, .input = 109, .text_bytes = 3 };
    const char *start = START("\"input_tokens\":9,\"cache_read_input_tokens\":100,"
                              "\"output_tokens\":1");
    reads_events(start, TEXT("abc"), "", input);
    input.done = true;
    reads_events(start, TEXT("abc"), STOP, input);
    reads_events(start, TEXT("abc"), END("\"output_tokens\":null") STOP, input);
    input.done = false;
    reads_events(start, TEXT("abc"), "event: message_delta\ndata: {\"usage\":{\"output_tokens\":12",
                 input);
    /* what seemed to be the end was not, where a server's tool has been used */
    input.output = 12;
    reads_events(start, END("\"output_tokens\":12"),
                 EVENT("content_block_start", ",\"content_block\":{\"text\":\"\"}") TEXT("abc"),
                 input);
    /* without an input that can be believed, nothing is */
    reads_events(START("\"output_tokens\":1"), TEXT("abc"), END("\"output_tokens\":12"),
                 (struct llm_usage){ .text_bytes = 3 });
    reads_events(START("\"input_tokens\":0,\"output_tokens\":1"), TEXT("abc"), "",
                 (struct llm_usage){ .text_bytes = 3 });
    reads_events(START("\"input_tokens\":-9,\"output_tokens\":1"), TEXT("abc"), "",
                 (struct llm_usage){ .text_bytes = 3 });
}

#define DELTA(members) EVENT("content_block_delta", ",\"delta\":{" members "}")

static void knows_what_is_text(void **state)
{
    (void)state;
    reads_stream(
        (struct item[]){
            { EVENT("content_block_start",
                    ",\"content_block\":{\"id\":\"x\",\"name\":\"fn\",\"input\":{}}"),
              false },
            { DELTA("\"partial_json\":\"{\\\"a\\\"\""), false },
            { EVENT("content_block_stop", ",\"index\":0"), false },
            { DELTA("\"thinking\":\"abc\""), false },
            { DELTA("\"type\":\"signature_delta\",\"signature\":\"xxxx\""), false },
            { DELTA("\"citation\":{\"cited_text\":\"xxxx\"}"), false },
            { DELTA("\"text\":\"h\\u00e9\""), false },
            { EVENT("an_event_of_the_future", ",\"text\":\"xxxx\",\"x\":{\"text\":\"x\"}"), false },
            { "data: {\"delta\":{\"text\":\"cut o", false },
            { NULL, false } },
        (struct llm_usage){ .text_bytes = 2 + 4 + 3 + 3 + 5 });
}

static void notes_errors_in_streams(void **state)
{
    (void)state;
    const char *start = START("\"input_tokens\":9,\"output_tokens\":1");
    struct llm_usage input = { .input_known = true, .input = 9, .text_bytes = 3, .error = true };
    reads_events(start, TEXT("abc"), EVENT("error", ",\"error\":{\"type\":\"overloaded_error\"}"),
                 input);
    reads_events(start, TEXT("abc"), "data: {\"type\":\"error\"}\n\n", input);
    reads_events(start, END("\"output_tokens\":12"), EVENT("error", ",\"error\":{}"),
                 used(9, 12, 21, 0, false, true));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_request),
        cmocka_unit_test(counts_the_text_of_the_prompt),
        cmocka_unit_test(counts_attachments_by_number),
        cmocka_unit_test(knows_documents_that_are_text),
        cmocka_unit_test(refuses_what_has_no_meaning),
        cmocka_unit_test(caps_the_output),
        cmocka_unit_test(reads_json_answers),
        cmocka_unit_test(a_number_that_is_absent_stands),
        cmocka_unit_test(before_the_end_only_the_input_is_known),
        cmocka_unit_test(knows_what_is_text),
        cmocka_unit_test(notes_errors_in_streams),
    };
    api = LLM_ANTHROPIC_MESSAGES;
    return cmocka_run_group_tests_name("llm_messages", tests, NULL, NULL);
}
