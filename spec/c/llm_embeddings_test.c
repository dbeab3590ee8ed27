/* llm_embeddings: a prompt of text or of ids, and no output. */
#include "llm_rig.h"
#include "meter.h"

static void reads_a_request(void **state)
{
    (void)state;
    const struct llm_request *r =
        inspect(SLICE("{\"model\":\"text-embedding-3-small\",\"input\":\"hello\","
                      "\"dimensions\":512,\"encoding_format\":\"base64\",\"user\":\"someone\"}"),
                &options);
    assert_true(slice_eq(r->model, SLICE("text-embedding-3-small")));
    assert_true(r->output_given && !r->stream && !r->hidden);
    assert_int_equal(r->prompt_tokens, 2);
    assert_int_equal(r->output_max, 0);
    assert_int_equal(r->reserve, 2);
    r = inspect(SLICE("{\"stream\":true,\"n\":0}"), &capping);
    assert_true(!r->stream && r->edits == 0 && r->reserve == 0);
}

static void counts_text_by_bytes_and_ids_by_number(void **state)
{
    (void)state;
    static const struct {
        const char *body;
        uint64_t tokens;
    } inputs[] = {
        { "{\"input\":\"abcd\"}", 2 },           { "{\"input\":[\"ab\",\"cd\"]}", 2 },
        { "{\"input\":[1,20,300000]}", 3 },      { "{\"input\":[[1,2],[3],[]]}", 3 },
        { "{\"input\":[[1,2],\"abc\"]}", 3 },    { "{\"input\":[]}", 0 },
        { "{\"input\":null,\"x\":[1,2,3]}", 0 },
    };
    for (unsigned i = 0; i < sizeof inputs / sizeof *inputs; i++)
        assert_int_equal(inspect(slice_of(inputs[i].body), &options)->reserve, inputs[i].tokens);
}

static void refuses_what_has_no_meaning(void **state)
{
    (void)state;
    faults(SLICE("{\"input\":\"a\",\"input\":\"b\"}"), "input", "duplicate_parameter",
           "'input' is given twice");
    faults(SLICE("{\"model\":\"a\",\"model\":\"b\"}"), "model", "duplicate_parameter",
           "'model' is given twice");
    faults(SLICE("{\"model\":1}"), "model", "invalid_type", "'model' must be a string");
    faults(SLICE("{\"input\":[1,]}"), NULL, "invalid_json",
           "the body is not valid JSON: a value is expected, at byte 12");
    const struct llm_options tiny = { 1e-20, 0, 0, 0, 0, false };
    assert_int_equal(llm_inspect(api, SLICE("{\"input\":\"a\"}"), &tiny, &inspect_storage),
                     LLM_FAULT);
    assert_string_equal(inspect_storage.fault.param, "input");
}

static void edits_nothing(void **state)
{
    (void)state;
    rewrites(&capping, "{\"input\":[ ],\"big\":12345678901234567890}",
             "{\"input\":[ ],\"big\":12345678901234567890}");
}

static void reads_answers(void **state)
{
    (void)state;
    const struct llm_usage none = { .done = true };
#define DATA "\"data\":[{\"embedding\":[0.1,-2e-5]},{\"embedding\":\"AAAA\"}]"
    reads_json("{" DATA ",\"usage\":{\"prompt_tokens\":8,\"total_tokens\":8}}",
               used(8, 0, 8, 0, true, false));
    reads_json("{\"usage\":{\"prompt_tokens\":8}}", used(8, 0, 8, 0, true, false));
    reads_json("{\"usage\":{\"total_tokens\":8}}", used(8, 0, 8, 0, true, false));
    reads_json("{\"usage\":{\"prompt_tokens\":8,\"completion_tokens\":0,\"total_tokens\":0}}",
               used(8, 0, 8, 0, true, false));
    reads_json("{" DATA "}", none);
    reads_json("{\"usage\":null}", none);
    reads_json("{\"usage\":{}}", none);
    reads_json("{\"usage\":{\"prompt_tokens\":0,\"total_tokens\":0}}", none);
    reads_json("{\"usage\":{\"prompt_tokens\":\"8\",\"total_tokens\":8}}", none);
    reads_json("{\"data\":{\"usage\":{\"prompt_tokens\":8}}}", none);
    reads_json("{\"error\":{\"message\":\"x\"}}",
               (struct llm_usage){ .done = true, .error = true });
    reads_json("{" DATA, (struct llm_usage){ 0 });
#undef DATA
}

/* Whatever is wrong with an answer, the prompt was read: it is charged, and nothing beyond it. */
static void charges_the_prompt_where_usage_is_missing(void **state)
{
    (void)state;
    const struct llm_request *r = inspect(SLICE("{\"input\":[1,2,3,4,5,6,7]}"), &options);
    static const enum meter_policy policies[] = { METER_SEEN, METER_RESERVED };
    static const enum llm_body bodies[] = { LLM_BODY_OTHER, LLM_BODY_JSON, LLM_BODY_STREAM,
                                            LLM_BODY_ENCODED };
    static const char *const answers[] = { "",       "{",          "{\"data\":[]}",
                                           "[DONE]", "plain text", "data: {\"usage\":{}}\n\n" };
    for (unsigned i = 0; i < 2 * 4 * 6; i++) {
        struct meter m = meter_of(r, 3, policies[i % 2]);
        enum llm_body body = bodies[i / 2 % 4];
        struct relay got;
        relay(slice_of(answers[i / 8]), body, false, 0, &got);
        struct meter_facts facts = { true, 200, true, false, body };
        struct meter_charge c = meter_charge(&m, &got.usage, &facts);
        assert_int_equal(c.tokens, 7);
        assert_true(c.cause == METER_NO_USAGE || c.cause == METER_UNREADABLE);
        buf_deinit(&got.out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_a_request),
        cmocka_unit_test(counts_text_by_bytes_and_ids_by_number),
        cmocka_unit_test(refuses_what_has_no_meaning),
        cmocka_unit_test(edits_nothing),
        cmocka_unit_test(reads_answers),
        cmocka_unit_test(charges_the_prompt_where_usage_is_missing),
    };
    api = LLM_OPENAI_EMBEDDINGS;
    return cmocka_run_group_tests_name("llm_embeddings", tests, NULL, NULL);
}
