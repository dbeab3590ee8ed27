/* llm_responses: what OpenAI's responses cost, and what of their answers is text and usage. */
#include "llm_rig.h"

static void reads_a_request(void **state)
{
    (void)state;
    const struct llm_request *r =
        inspect(SLICE("{\"model\":\"gpt-4.1\",\"input\":\"hello\",\"instructions\":\"abcd\","
                      "\"max_output_tokens\":50,\"stream\":true}"),
                &options);
    assert_true(slice_eq(r->model, SLICE("gpt-4.1")));
    assert_true(r->stream && r->output_given && !r->strip_usage && !r->hidden && !r->background);
    assert_int_equal(r->prompt_tokens, 3);
    assert_int_equal(r->reserve, 53);

    r = inspect(SLICE("{\"input\":null,\"max_output_tokens\":null,\"stream\":null,\"background\":"
                      "null,\"previous_response_id\":null,\"conversation\":null,\"prompt\":null}"),
                &options);
    assert_true(!r->stream && !r->output_given && !r->hidden && !r->background);
    assert_int_equal(r->reserve, 1000);
    assert_true(inspect(SLICE("{\"background\":true}"), &options)->background);
}

static void counts_the_text_of_the_prompt(void **state)
{
    (void)state;
    assert_int_equal(prompt_bytes(SLICE("{\"input\":\"abc\",\"user\":\"x\",\"metadata\":{\"input\":"
                                        "\"x\"},\"stop\":[\"x\"]}")),
                     3);
    assert_int_equal(
        prompt_bytes(SLICE("{\"input\":[{\"role\":\"user\",\"content\":\"h\\u00e9\"}]}")), 7);
    assert_int_equal(prompt_bytes(SLICE("{\"input\":[{\"type\":\"message\",\"content\":[{\"type\":"
                                        "\"input_text\",\"text\":\"abc\"}]}]}")),
                     7 + 10 + 3);
    assert_int_equal(
        prompt_bytes(SLICE("{\"input\":[{\"type\":\"function_call_output\",\"call_id\":\"c\","
                           "\"output\":\"{\\\"x\\\":1}\"},{\"encrypted_content\":\"abcd\"}]}")),
        20 + 1 + 7 + 4);
    /* keys and numbers count in schemas; of text only its format is one */
    assert_int_equal(prompt_bytes(SLICE("{\"tools\":[{\"name\":\"f\",\"parameters\":{\"a\":[true,"
                                        "17]}}]}")),
                     4 + 1 + 10 + 1 + 4 + 2);
    assert_int_equal(prompt_bytes(SLICE("{\"text\":{\"verbosity\":\"low\",\"format\":{\"name\":"
                                        "\"f\",\"schema\":{\"x\":null}}}}")),
                     4 + 1 + 6 + 1 + 4);
    assert_int_equal(prompt_bytes(SLICE("{\"tools\":null,\"text\":null}")), 0);
}

static void counts_attachments_by_number(void **state)
{
    (void)state;
    const uint64_t image = 100000, file = 1000000;
#define PART(text)   SLICE("{\"input\":[{\"content\":[" text "]}]}")
#define OUTPUT(text) SLICE("{\"input\":[{\"output\":" text "}]}")
    assert_int_equal(prompt_bytes(PART("{\"image_url\":\"data:xxxxxxxx\",\"detail\":\"low\"}")),
                     image + 3);
    assert_int_equal(prompt_bytes(PART("{\"file_data\":\"AAAA\",\"filename\":\"a.pdf\"}")),
                     file + 5);
    assert_int_equal(prompt_bytes(PART("{\"file_url\":\"https://x/\"}")), file);
    assert_int_equal(prompt_bytes(PART("{\"input_audio\":{\"data\":\"AAAA\",\"format\":\"wav\"}}")),
                     file + 3);
    /* what a file's id stands for is told by the type, in front of it or behind */
    assert_int_equal(prompt_bytes(PART("{\"type\":\"input_file\",\"file_id\":\"f\"}")), file + 10);
    assert_int_equal(prompt_bytes(PART("{\"type\":\"input_image\",\"file_id\":\"f\"}")),
                     image + 11);
    assert_int_equal(
        prompt_bytes(PART("{\"file_id\":\"f\",\"type\":\"input_image\"},{\"file_id\":\"f\"}")),
        image + 11 + file);
    assert_int_equal(
        prompt_bytes(PART("{\"type\":\"input_image\",\"file_id\":null,\"image_url\":\"u\"}")),
        image + 11);
    assert_int_equal(prompt_bytes(OUTPUT("[{\"image_url\":\"u\"},{\"text\":\"abc\"}]")), image + 3);
    assert_int_equal(prompt_bytes(OUTPUT("{\"file_id\":\"f\",\"type\":\"computer_screenshot\"}")),
                     image + 19);
    assert_int_equal(prompt_bytes(SLICE("{\"input\":[{\"result\":\"AAAA\"}]}")), image);
    /* elsewhere the same names are text */
    assert_int_equal(prompt_bytes(SLICE("{\"input\":[{\"image_url\":\"abc\"}]}")), 3);
    assert_int_equal(prompt_bytes(SLICE("{\"input\":{\"content\":[{\"file_id\":\"abc\"}]}}")), 3);
    assert_int_equal(prompt_bytes(SLICE("{\"tools\":[{\"output\":[{\"file_id\":\"abc\"}]}]}")),
                     6 + 7 + 3);
#undef PART
#undef OUTPUT
}

static void adds_for_input_that_is_not_shown(void **state)
{
    (void)state;
    const uint64_t hidden = 10000000;
    static const char *const bodies[] = {
        "{\"previous_response_id\":\"resp_1\"}",
        "{\"conversation\":\"conv_1\"}",
        "{\"conversation\":{\"id\":\"conv_1\"},\"previous_response_id\":\"resp_1\"}",
    };
    for (unsigned i = 0; i < sizeof bodies / sizeof *bodies; i++) {
        assert_int_equal(prompt_bytes(slice_of(bodies[i])), hidden);
        assert_true(inspect(slice_of(bodies[i]), &options)->hidden);
    }
    assert_int_equal(prompt_bytes(SLICE("{\"prompt\":{\"id\":\"pmpt\",\"variables\":{\"a\":\"bc\","
                                        "\"d\":{\"type\":\"input_image\",\"image_url\":\"u\"}}}}")),
                     hidden + 4 + 2 + 11 + 100000);
    assert_int_equal(
        prompt_bytes(SLICE("{\"input\":[{\"type\":\"item_reference\",\"id\":\"m\"}]}")),
        hidden + 14 + 1);
    const struct llm_request *r =
        inspect(SLICE("{\"previous_response_id\":\"r\",\"input\":\"abc\",\"max_output_tokens\":9}"),
                &options);
    assert_int_equal(r->reserve, 4000 + 1 + 9);
    faults(SLICE("{\"previous_response_id\":\"r\",\"max_output_tokens\":9007199254740000}"),
           "max_output_tokens", "invalid_value",
           "the request may cost more tokens than can be counted");
}

static void refuses_what_has_no_meaning(void **state)
{
    (void)state;
    faults(SLICE("{\"model\":5}"), "model", "invalid_type", "'model' must be a string");
    faults(SLICE("{\"stream\":1}"), "stream", "invalid_type", "'stream' must be true or false");
    faults(SLICE("{\"background\":\"yes\"}"), "background", "invalid_type",
           "'background' must be true or false");
    faults(SLICE("{\"max_output_tokens\":-1}"), "max_output_tokens", "invalid_value",
           "'max_output_tokens' must be an integer of at least 0");
    static const char *const members[] = {
        "model", "input",  "instructions", "max_output_tokens",    "stream",     "tools",
        "text",  "prompt", "conversation", "previous_response_id", "background",
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
    rewrites(&capping, "{}", "{\"max_output_tokens\":1000}");
    rewrites(&capping, "{ \"input\":[ ],\"big\":12345678901234567890}",
             "{\"max_output_tokens\":1000, \"input\":[ ],\"big\":12345678901234567890}");
    rewrites(&capping, "{\"a\":1,\"max_output_tokens\": null }",
             "{\"a\":1,\"max_output_tokens\": 1000 }");
    rewrites(&capping, "{\"max_output_tokens\":5}", "{\"max_output_tokens\":5}");
}

#define USAGE(in, out, total)                                                                      \
    "\"usage\":{\"input_tokens\":" in ",\"output_tokens\":" out ",\"total_tokens\":" total "}"

static void reads_json_answers(void **state)
{
    (void)state;
    reads_json("{\"error\":null,\"output\":[{\"type\":\"message\",\"content\":[{\"type\":"
               "\"output_text\",\"text\":\"abc\"},{\"refusal\":\"no\"}]}],"
               "\"usage\":{\"input_tokens\":9,\"input_tokens_details\":{\"input_tokens\":1},"
               "\"output_tokens\":12,\"total_tokens\":21}}",
               used(9, 12, 21, 5, true, false));
    /* what is text, and what is not */
    reads_json("{\"output\":[{\"id\":\"i\",\"summary\":[{\"text\":\"ab\"}],\"content\":[{\"text\":"
               "\"c\",\"annotations\":[{\"text\":\"x\"}]}],\"encrypted_content\":\"x\"},"
               "{\"name\":\"fn\",\"arguments\":\"{}\",\"input\":\"in\",\"code\":\"1\"},"
               "{\"result\":\"AAAA\"}],\"instructions\":\"x\",\"text\":{\"x\":\"x\"}}",
               (struct llm_usage){ .text_bytes = 2 + 1 + 2 + 2 + 2 + 1, .done = true });
    reads_json("{\"usage\":null}", (struct llm_usage){ .done = true });
    reads_json("{" USAGE("3", "4", "0") "}", used(3, 4, 7, 0, true, false));
    reads_json("{" USAGE("0", "0", "0") "}", (struct llm_usage){ .done = true });
    reads_json("{" USAGE("3", "-4", "7") "}", (struct llm_usage){ .done = true });
    reads_json("{\"status\":\"failed\",\"error\":{\"code\":\"x\"}," USAGE("3", "0", "3") "}",
               used(3, 0, 3, 0, true, true));
    reads_json("{\"output\":[{\"content\":[{\"text\":\"hello, wor",
               (struct llm_usage){ .text_bytes = 10 });
    reads_json("<html>", (struct llm_usage){ .text_bytes = 6, .malformed = true });
}

#define EVENT(type, members) "event: " type "\ndata: {\"type\":\"" type "\"," members "}\n\n"

static void counts_deltas_only(void **state)
{
    (void)state;
    reads_stream(
        (struct item[]){
            { EVENT("response.created", "\"response\":{\"usage\":null,\"error\":null}"), false },
            { EVENT("response.output_text.delta", "\"delta\":\"h\\u00e9\",\"obfuscation\":\"x\""),
              false },
            { EVENT("response.output_text.done", "\"text\":\"h\\u00e9\""), false },
            { EVENT("response.function_call_arguments.delta", "\"delta\":\"{}\""), false },
            { EVENT("response.function_call_arguments.done", "\"arguments\":\"{}\""), false },
            { EVENT("response.output_item.done", "\"item\":{\"arguments\":\"{}\"}"), false },
            { EVENT("response.completed", "\"response\":{\"output\":[{\"content\":[{\"text\":"
                                          "\"h\\u00e9\"}]}]," USAGE("10", "20", "30") "}"),
              false },
            { NULL, false } },
        used(10, 20, 30, 5, true, false));
}

/* Usage counts where the event is the last one, whether its type is told before it or after it. */
static void only_the_last_event_has_the_usage(void **state)
{
    (void)state;
    static const char *const ends[] = { "response.completed", "response.incomplete",
                                        "response.failed" };
    for (int i = 0; i < 3; i++) {
        char before[200], after[200];
        snprintf(before, sizeof before, "data: {\"type\":\"%s\",\"response\":{%s}}\n\n", ends[i],
                 USAGE("1", "2", "3"));
        snprintf(after, sizeof after, "data: {\"response\":{%s},\"type\":\"%s\"}\n\n",
                 USAGE("1", "2", "3"), ends[i]);
        struct llm_usage usage = used(1, 2, 3, 0, true, i == 2);
        reads_stream((struct item[]){ { before, false }, { NULL, false } }, usage);
        reads_stream((struct item[]){ { after, false }, { NULL, false } }, usage);
    }
    reads_stream(
        (struct item[]){
            { EVENT("response.in_progress", "\"response\":{" USAGE("1", "2", "3") "}"), false },
            { NULL, false } },
        (struct llm_usage){ 0 });
    reads_stream(
        (struct item[]){ { EVENT("response.incomplete", "\"response\":{\"usage\":null}"), false },
                         { NULL, false } },
        (struct llm_usage){ .done = true });
}

static void notes_errors_in_streams(void **state)
{
    (void)state;
    reads_stream(
        (struct item[]){ { "data: {\"type\":\"response.x.delta\",\"delta\":\"ab\"}\n\n", false },
                         { "data: {\"type\":\"error\",\"code\":null}\n\n", false },
                         { NULL, false } },
        (struct llm_usage){ .text_bytes = 2, .error = true });
    reads_stream(
        (struct item[]){ { "data: {\"error\":{\"message\":\"x\"}}\n\n", false }, { NULL, false } },
        (struct llm_usage){ .error = true });
    reads_stream(
        (struct item[]){
            { EVENT("response.failed", "\"response\":{\"error\":{\"code\":\"x\"}}"), false },
            { NULL, false } },
        (struct llm_usage){ .done = true, .error = true });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_request),
        cmocka_unit_test(counts_the_text_of_the_prompt),
        cmocka_unit_test(counts_attachments_by_number),
        cmocka_unit_test(adds_for_input_that_is_not_shown),
        cmocka_unit_test(refuses_what_has_no_meaning),
        cmocka_unit_test(caps_the_output),
        cmocka_unit_test(reads_json_answers),
        cmocka_unit_test(counts_deltas_only),
        cmocka_unit_test(only_the_last_event_has_the_usage),
        cmocka_unit_test(notes_errors_in_streams),
    };
    api = LLM_OPENAI_RESPONSES;
    return cmocka_run_group_tests_name("llm_responses", tests, NULL, NULL);
}
