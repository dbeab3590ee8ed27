/* llm: what is read of answers, at the example of OpenAI's chat, whole, byte by byte and in random
 * pieces. */
#include "llm_rig.h"

static void reads_json_answers(void **state)
{
    (void)state;
    reads_json("{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
               "\"h\\u00e9llo\"}}],"
               "\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12,\"total_tokens\":21,"
               "\"prompt_tokens_details\":{\"prompt_tokens\":1,\"cached_tokens\":0}}}",
               used(9, 12, 21, 6, true, false));
    /* what is text, and what is not */
    reads_json("{\"id\":\"x\",\"choices\":[{\"finish_reason\":\"stop\",\"message\":{\"content\":"
               "null,\"refusal\":\"no\","
               "\"reasoning\":\"abc\",\"reasoning_content\":\"d\",\"tool_calls\":[{\"id\":\"i\","
               "\"type\":\"function\","
               "\"function\":{\"name\":\"fn\",\"arguments\":\"{\\\"a\\\":1}\"}},{\"custom\":{"
               "\"name\":\"c\",\"input\":\"in\"}}],"
               "\"function_call\":{\"name\":\"g\",\"arguments\":\"{}\"},\"audio\":{\"data\":"
               "\"AAAA\",\"transcript\":\"hey\"}}},"
               "{\"message\":{\"content\":[{\"type\":\"text\",\"text\":\"part\"}]}}]}",
               (struct llm_usage){ .text_bytes = 2 + 3 + 1 + 2 + 7 + 1 + 2 + 1 + 2 + 3 + 4,
                                   .done = true });
    reads_json("{\"choices\":[{\"message\":{\"content\":\"hello, wor",
               (struct llm_usage){ .text_bytes = 10 });
    reads_json("{\"error\":{\"message\":\"no\"}}",
               (struct llm_usage){ .done = true, .error = true });
    reads_json("{\"error\":\"no\"}", (struct llm_usage){ .done = true, .error = true });
    reads_json("{\"error\":null}", (struct llm_usage){ .done = true });
    reads_json("[1]", (struct llm_usage){ .done = true });
    reads_json("17", (struct llm_usage){ .done = true });
    reads_json("", (struct llm_usage){ 0 });
    reads_json("{\"x\":{\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12}}}",
               (struct llm_usage){ .done = true });
    /* not complete: not reported */
    reads_json("{\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12}",
               (struct llm_usage){ 0 });
}

static void reads_only_numbers_that_are_counts(void **state)
{
    (void)state;
    const struct llm_usage none = { .done = true };
    reads_json("{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4}}",
               used(3, 4, 7, 0, true, false));
    reads_json("{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":null}}",
               used(3, 4, 7, 0, true, false));
    reads_json("{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":90}}",
               used(3, 4, 90, 0, true, false));
    reads_json("{\"usage\":{\"total_tokens\":90}}",
               (struct llm_usage){
                   .known = true, .total = 90, .text_bytes = 0, .done = true, .error = false });
    reads_json("{\"usage\":{\"prompt_tokens\":40,\"total_tokens\":90}}",
               used(40, 50, 90, 0, true, false));
    reads_json("{\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":9007199254740992}}",
               used(0, LLM_TOKENS_END, LLM_TOKENS_END, 0, true, false));
    reads_json("{\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":9007199254740993}}", none);
    reads_json("{\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":9007199254740992}}", none);
    reads_json("{\"usage\":{\"prompt_tokens\":-3,\"completion_tokens\":4,\"total_tokens\":1}}",
               none);
    reads_json("{\"usage\":{\"prompt_tokens\":3.5,\"completion_tokens\":4}}", none);
    reads_json("{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4e1}}", none);
    reads_json("{\"usage\":{\"prompt_tokens\":\"3\",\"completion_tokens\":4}}", none);
    reads_json("{\"usage\":{\"prompt_tokens\":{},\"completion_tokens\":4,\"total_tokens\":4}}",
               none);
    reads_json("{\"usage\":{\"prompt_tokens\":3}}", none);
    reads_json("{\"usage\":[3,4]}", none);
    reads_json("{\"usage\":null}", none);
    reads_json("{\"usage\":{}}", none);
}

/* Bytes that are no JSON are text that the client got. */
static void counts_unreadable_answers_by_their_bytes(void **state)
{
    (void)state;
    reads_json("<html>", (struct llm_usage){ .text_bytes = 6, .malformed = true });
    reads_json("{\"choices\":[{\"message\":{\"content\":\"abc\"}}] oops",
               (struct llm_usage){ .text_bytes = 3 + 4, .malformed = true });
    reads_json("{\"choices\":[{\"message\":{\"content\":\"abc\x01 de",
               (struct llm_usage){ .text_bytes = 3 + 4, .malformed = true });
    struct slice text = SLICE("plain text");
    reads(text, LLM_BODY_OTHER, true, text, (struct llm_usage){ .text_bytes = 10 });
    reads(text, LLM_BODY_ENCODED, true, text, (struct llm_usage){ 0 });
}

#define CHUNK(members) "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\"," members "}\n\n"
#define DELTA(members) "\"choices\":[{\"index\":0,\"delta\":{" members "}}]"
#define USAGE(in, out, total)                                                                      \
    "\"usage\":{\"prompt_tokens\":" in ",\"completion_tokens\":" out ",\"total_tokens\":" total "}"
#define DONE "data: [DONE]\n\n"

static void reads_streams(void **state)
{
    (void)state;
    reads_stream(
        (struct item[]){
            { ": welcome\n\n", false },
            { CHUNK(DELTA("\"role\":\"assistant\",\"content\":\"\"") ",\"usage\":null"), false },
            { CHUNK(DELTA("\"content\":\"h\\u00e9\xe2\x82\xac\"") ",\"usage\":null"), false },
            { ": ping\n\n", false },
            { CHUNK(DELTA("\"tool_calls\":[{\"index\":0,\"function\":{\"name\":\"f\",\"arguments\":"
                          "\"{}\"}}]")),
              false },
            { CHUNK("\"choices\":[]," USAGE("10", "20", "30")), true },
            { DONE, false },
            { NULL, false } },
        used(10, 20, 30, 9, true, false));
}

static void the_last_usage_wins(void **state)
{
    (void)state;
    reads_stream(
        (struct item[]){ { CHUNK(DELTA("\"content\":\"a\"") "," USAGE("10", "1", "11")), false },
                         { CHUNK(DELTA("\"content\":\"b\"") "," USAGE("10", "2", "12")), false },
                         { CHUNK(DELTA("\"content\":\"c\"") ",\"usage\":null"), false },
                         { NULL, false } },
        used(10, 2, 12, 3, false, false));
    reads_stream(
        (struct item[]){ /* a bad one does not replace a good one */
                         { CHUNK(DELTA("\"content\":\"a\"") "," USAGE("10", "1", "11")), false },
                         { CHUNK("\"choices\":[]," USAGE("-1", "5", "5")), true },
                         { DONE, false },
                         { NULL, false } },
        used(10, 1, 11, 1, true, false));
}

static void takes_out_only_the_usage_event(void **state)
{
    (void)state;
    reads_stream(
        (struct item[]){
            { CHUNK("\"choices\":[],\"prompt_filter_results\":[{}]"), false }, /* as Azure begins */
            { CHUNK("\"choices\":[],\"usage\":null"), false },
            { CHUNK("\"choices\":null," USAGE("1", "1", "2")), false },
            { CHUNK(USAGE("1", "1", "2")), false },
            { CHUNK("\"choices\":[{}]," USAGE("1", "1", "2")), false },
            { CHUNK("\"choices\":[],\"choices\":[1]," USAGE("1", "1", "2")), false },
            { CHUNK("\"x\":{\"choices\":[]," USAGE("1", "1", "2") "}"), false },
            { "data: {\"choices\":[]," USAGE("1", "1", "2") "} x\n\n", false },
            { "data: {\"choices\":[]," USAGE("1", "1", "2") "\n\n", false },
            { "data: [{\"choices\":[]," USAGE("1", "1", "2") "}]\n\n", false },
            { "event: x\n\n", false },
            { "data\n\n", false },
            { "data: plain\n\n", false },
            { "id: 4\nevent: chunk\ndata: {\"choices\":\ndata: [ ],\n: in between\ndata:" USAGE(
                  "3", "4", "7") "}\nretry: 1\n\n",
              true },
            { "\n\n", false },
            { CHUNK(USAGE("5", "6", "11") ",\"choi\\u0063es\":[]"), true },
            { "event: x\ndata: 1\n\n", false },
            { NULL, false } },
        used(5, 6, 11, 0, false, false));
    /* a comment in front of the event stays */
    struct slice in = SLICE(": c\ndata: {\"choices\":[]," USAGE("3", "4", "7") "}\n\ndata: 1\n\n");
    reads(in, LLM_BODY_STREAM, true, SLICE(": c\ndata: 1\n\n"), used(3, 4, 7, 0, false, false));
}

static void notes_errors_in_streams(void **state)
{
    (void)state;
    reads_stream((struct item[]){ { CHUNK(DELTA("\"content\":\"a\"")), false },
                                  { "data: {\"error\":{\"message\":\"overloaded\"}}\n\n", false },
                                  { NULL, false } },
                 (struct llm_usage){ .text_bytes = 1, .error = true });
    reads_stream(
        (struct item[]){
            { "data: {\"choices\":[],\"error\":{}," USAGE("3", "4", "7") "}\n\n", false },
            { NULL, false } },
        used(3, 4, 7, 0, false, true));
    reads_stream((struct item[]){ { "event: error\ndata: busy\n\n", false }, { NULL, false } },
                 (struct llm_usage){ .error = true });
}

static void an_unfinished_event_passes_and_does_not_count(void **state)
{
    (void)state;
    reads_stream((struct item[]){ { CHUNK(DELTA("\"content\":\"a\"")), false },
                                  { "data: {\"choices\":[]," USAGE("3", "4", "7") "}\n", false },
                                  { NULL, false } },
                 (struct llm_usage){ .text_bytes = 1 });
    reads_stream((struct item[]){ { CHUNK(DELTA("\"content\":\"a\"")), false },
                                  { "data: {\"choices\":[{\"delta\":{\"content\":\"bcd", false },
                                  { NULL, false } },
                 (struct llm_usage){ .text_bytes = 4 });
    reads_stream(
        (struct item[]){ /* text of an event that is broken off by its blank line */
                         { "data: {\"choices\":[{\"delta\":{\"content\":\"bcd\n\n", false },
                         { CHUNK(DELTA("\"content\":\"a\"")), false },
                         { DONE, false },
                         { NULL, false } },
        (struct llm_usage){ .text_bytes = 4, .done = true });
}

/* Bytes are held from an event's first line to the value that decides, and no longer. */
static void holds_no_longer_than_it_must(void **state)
{
    (void)state;
    static const struct {
        const char *piece, *out;
    } steps[] = {
        { ": comm", ": comm" },
        { "ent\n", "ent\n" },
        { "\nda", "\n" },
        { "ta: {\"id\":\"x\",\"choices\":[", "" },
        { "{\"delta\"", "data: {\"id\":\"x\",\"choices\":[{\"delta\"" },
        { ":{}}]}\n", ":{}}]}\n" },
        { "\ndata: [", "\ndata: [" },
        { "DONE]\n\ndata: {\"usage\":", "DONE]\n\n" },
        { "null", "data: {\"usage\":null" },
        { ",", "," },
        { "}\n\n", "}\n\n" },
        { "data: {\"choices\":[],\"usage\":{}}\n", "" },
        { "\nda", "" },
        { "ta: x", "data: x" },
    };
    struct buf out;
    buf_init(&out);
    struct llm_reader *r = llm_reader_new(LLM_OPENAI_CHAT, LLM_BODY_STREAM, true);
    for (unsigned i = 0; i < sizeof steps / sizeof *steps; i++) {
        buf_clear(&out);
        llm_reader_feed(r, slice_of(steps[i].piece), emit, &out);
        buf_add(&out, "", 1);
        assert_string_equal(out.p, steps[i].out);
    }
    llm_reader_free(r);
    buf_deinit(&out);
}

static void releases_what_is_too_large_to_hold(void **state)
{
    (void)state;
    for (int over = -1; over <= 1; over++) {
        struct buf all;
        buf_init(&all);
        buf_add_text(&all, "data: {\"choices\":[]," USAGE("3", "4", "7") ",\"x\":\"");
        while (all.n < (size_t)(LLM_HOLD + over - 4))
            buf_add_text(&all, "x");
        buf_add_text(&all, "\"}\n\n");
        assert_int_equal(all.n, LLM_HOLD + over);
        size_t first = all.n;
        buf_add_text(&all, "data: [DONE]\n\n");
        struct slice want = { all.p + first, all.n - first };
        if (over == 1)
            want = buf_slice(&all);
        reads(buf_slice(&all), LLM_BODY_STREAM, true, want, used(3, 4, 7, 0, true, false));
        buf_deinit(&all);
    }
    /* an event without data cannot make the next one pass in part */
    struct buf all;
    buf_init(&all);
    buf_add_text(&all, "id: ");
    for (int i = 0; i < LLM_HOLD; i++)
        buf_add_text(&all, "x");
    buf_add_text(&all, "\n\n");
    size_t rest = all.n;
    buf_add_text(&all, "data: {\"choices\":[]," USAGE("3", "4", "7") "}\n\n");
    reads(buf_slice(&all), LLM_BODY_STREAM, true, (struct slice){ all.p, rest },
          used(3, 4, 7, 0, false, false));
    buf_deinit(&all);
}

/* Without stripping the very piece goes on. */
static void on_same_piece(void *arg, struct slice piece)
{
    struct slice *want = arg;
    assert_ptr_equal(piece.p, want->p);
    assert_int_equal(piece.n, want->n);
    want->n = 0;
}

static void passes_pieces_uncopied(void **state)
{
    (void)state;
    for (int body = LLM_BODY_OTHER; body <= LLM_BODY_ENCODED; body++) {
        struct llm_reader *r = llm_reader_new(LLM_OPENAI_CHAT, (enum llm_body)body, false);
        struct slice piece = SLICE("data: {\"choices\":[]}"), want = piece;
        llm_reader_feed(r, piece, on_same_piece, &want);
        assert_int_equal(want.n, 0);
        llm_reader_end(r, on_same_piece, &want);
        llm_reader_free(r);
    }
    llm_reader_free(NULL);
    struct llm_reader *r = llm_reader_new(LLM_NONE, LLM_BODY_STREAM, true);
    struct slice piece = SLICE("data: {\"choices\":[],\"usage\":{}}\n\n"), want = piece;
    llm_reader_feed(r, piece, on_same_piece, &want);
    assert_int_equal(want.n, 0);
    assert_int_equal(llm_reader_usage(r)->text_bytes, piece.n);
    llm_reader_free(r);
}

static void random_streams_do_not_depend_on_the_split(void **state)
{
    (void)state;
    static const char *const parts[] = { CHUNK(DELTA("\"content\":\"\\ud83d\\ude00 x\"")),
                                         DONE,
                                         CHUNK("\"choices\":[]," USAGE("1", "2", "3")),
                                         CHUNK("\"choices\":[]"),
                                         ": c\n",
                                         "\n",
                                         "\r\n",
                                         "\r",
                                         "data: {",
                                         "\"choices\":[]",
                                         "\"usage\":{}",
                                         "}",
                                         ",",
                                         "event: error\n",
                                         "\"usage\":null",
                                         "data:",
                                         "id: 1\n",
                                         "\xef\xbb\xbf" };
    for (int round = 0; round < 4000; round++) {
        struct buf text;
        buf_init(&text);
        for (uint32_t i = 0, n = 1 + chance(12); i < n; i++)
            buf_add_text(&text, parts[chance(sizeof parts / sizeof *parts)]);
        struct relay whole, plain;
        relay(buf_slice(&text), LLM_BODY_STREAM, true, 0, &whole);
        relay(buf_slice(&text), LLM_BODY_STREAM, false, 0, &plain);
        same_usage(whole.usage, plain.usage);
        assert_true(slice_eq(buf_slice(&plain.out), buf_slice(&text)));
        for (uint32_t most = 1; most < 12; most++) {
            struct relay got;
            relay(buf_slice(&text), LLM_BODY_STREAM, true, most, &got);
            same_usage(got.usage, whole.usage);
            assert_true(slice_eq(buf_slice(&got.out), buf_slice(&whole.out)));
            buf_deinit(&got.out);
        }
        buf_deinit(&whole.out);
        buf_deinit(&plain.out);
        buf_deinit(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_json_answers),
        cmocka_unit_test(reads_only_numbers_that_are_counts),
        cmocka_unit_test(counts_unreadable_answers_by_their_bytes),
        cmocka_unit_test(reads_streams),
        cmocka_unit_test(the_last_usage_wins),
        cmocka_unit_test(takes_out_only_the_usage_event),
        cmocka_unit_test(notes_errors_in_streams),
        cmocka_unit_test(an_unfinished_event_passes_and_does_not_count),
        cmocka_unit_test(holds_no_longer_than_it_must),
        cmocka_unit_test(releases_what_is_too_large_to_hold),
        cmocka_unit_test(passes_pieces_uncopied),
        cmocka_unit_test(random_streams_do_not_depend_on_the_split),
    };
    return cmocka_run_group_tests_name("llm_reader", tests, NULL, NULL);
}
