/* llm: what is read of requests, the edits that are made to them, and what is read of answers,
 * whole, byte by byte and in random pieces. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "json.h"
#include "llm.h"

static uint32_t seed = 1;

static uint32_t chance(uint32_t below)
{
    seed = seed * 1664525u + 1013904223u;
    return (seed >> 8) % below;
}

static const struct llm_options options = { 3, 1000, 800, 2000, false };
static const struct llm_options capping = { 3, 1000, 800, 2000, true };

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

static struct llm_request inspect_storage;

static const struct llm_request *inspect(struct slice body, const struct llm_options *o)
{
    enum llm_inspected how = llm_inspect(LLM_OPENAI_CHAT, body, o, &inspect_storage);
    if (how != LLM_OK)
        fail_msg("%s", how == LLM_FAULT ? inspect_storage.fault.message : "unsupported");
    return &inspect_storage;
}

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

static uint64_t prompt_bytes(struct slice body)
{
    static const struct llm_options bytes = { 1, 0, 100000, 1000000, false };
    return inspect(body, &bytes)->prompt_tokens;
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
    /* keys count in schemas, at any depth */
    assert_int_equal(
        prompt_bytes(SLICE("{\"tools\":[{\"type\":\"function\",\"x\":{\"deep\":1}}]}")), 17);
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

static void faults(struct slice body, const char *param, const char *code, const char *message)
{
    assert_int_equal(llm_inspect(LLM_OPENAI_CHAT, body, &options, &inspect_storage), LLM_FAULT);
    const struct llm_fault *f = &inspect_storage.fault;
    assert_string_equal(f->message, message);
    assert_string_equal(f->code, code);
    if (param == NULL)
        assert_null(f->param);
    else
        assert_string_equal(f->param, param);
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

static void leaves_other_apis_alone(void **state)
{
    (void)state;
    for (int i = 0; i < LLM_APIS; i++) {
        if (i != LLM_OPENAI_CHAT)
            assert_int_equal(llm_inspect((enum llm_api)i, SLICE("{}"), &options, &inspect_storage),
                             LLM_UNSUPPORTED);
    }
}

/* The body as it goes out; what went out is inspected again, and needs no edit. */
static void rewrites(const struct llm_options *o, const char *body, const char *want)
{
    struct buf out;
    buf_init(&out);
    const struct llm_request *r = inspect(slice_of(body), o);
    uint64_t reserve = r->reserve;
    bool changed = llm_rewrite(slice_of(body), r, &out);
    assert_int_equal(changed, strcmp(body, want) != 0);
    if (!changed)
        assert_int_equal(out.n, 0);
    else
        buf_add(&out, "", 1);
    assert_string_equal(changed ? out.p : body, want);
    r = inspect(slice_of(want), o);
    assert_int_equal(r->edits, 0);
    assert_int_equal(r->reserve, reserve);
    assert_true(!o->cap_output || r->output_given);
    assert_true(!r->stream || r->include_usage == LLM_TRUE);
    buf_deinit(&out);
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

/* Answers */

struct relay {
    struct buf out;
    struct llm_usage usage;
};

static void emit(void *arg, struct slice piece)
{
    assert_true(piece.n > 0);
    buf_add_slice(arg, piece);
}

/* Feeds in pieces of at most `most` bytes: 0 is whole, 1 byte by byte, more is at random. */
static void relay(struct slice text, enum llm_body body, bool strip, uint32_t most,
                  struct relay *to)
{
    struct llm_reader *r = llm_reader_new(LLM_OPENAI_CHAT, body, strip);
    buf_init(&to->out);
    for (size_t at = 0; at < text.n;) {
        size_t n = most == 0 ? text.n : most == 1 ? 1 : 1 + chance(most);
        if (n > text.n - at)
            n = text.n - at;
        char *copy = malloc(n);
        memcpy(copy, text.p + at, n);
        llm_reader_feed(r, (struct slice){ copy, n }, emit, &to->out);
        free(copy);
        at += n;
        assert_true(strip || to->out.n == at);
        assert_true(at - to->out.n <= text.n);
    }
    llm_reader_end(r, emit, &to->out);
    to->usage = *llm_reader_usage(r);
    llm_reader_free(r);
}

static void same_usage(struct llm_usage a, struct llm_usage b)
{
    assert_int_equal(a.known, b.known);
    assert_int_equal(a.input, b.input);
    assert_int_equal(a.output, b.output);
    assert_int_equal(a.total, b.total);
    assert_int_equal(a.text_bytes, b.text_bytes);
    assert_int_equal(a.done, b.done);
    assert_int_equal(a.error, b.error);
    assert_int_equal(a.malformed, b.malformed);
}

static void reads(struct slice text, enum llm_body body, bool strip, struct slice want,
                  struct llm_usage usage)
{
    for (uint32_t i = 0; i < 14; i++) {
        struct relay got;
        relay(text, body, strip, i < 12 ? i : i * 10, &got);
        same_usage(got.usage, usage);
        if (!slice_eq(buf_slice(&got.out), want))
            fail_msg("relayed: %.*s\nexpected: %.*s", (int)got.out.n, got.out.p, (int)want.n,
                     want.p);
        buf_deinit(&got.out);
    }
}

static void reads_json(const char *text, struct llm_usage usage)
{
    reads(slice_of(text), LLM_BODY_JSON, true, slice_of(text), usage);
}

static void reads_json_answers(void **state)
{
    (void)state;
    reads_json("{\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\",\"content\":"
               "\"h\\u00e9llo\"}}],"
               "\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":12,\"total_tokens\":21,"
               "\"prompt_tokens_details\":{\"prompt_tokens\":1,\"cached_tokens\":0}}}",
               (struct llm_usage){ true, 9, 12, 21, 6, true, false, false });
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
               (struct llm_usage){ true, 3, 4, 7, 0, true, false, false });
    reads_json("{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":null}}",
               (struct llm_usage){ true, 3, 4, 7, 0, true, false, false });
    reads_json("{\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":4,\"total_tokens\":90}}",
               (struct llm_usage){ true, 3, 4, 90, 0, true, false, false });
    reads_json("{\"usage\":{\"total_tokens\":90}}",
               (struct llm_usage){ true, 0, 0, 90, 0, true, false, false });
    reads_json("{\"usage\":{\"prompt_tokens\":40,\"total_tokens\":90}}",
               (struct llm_usage){ true, 40, 50, 90, 0, true, false, false });
    reads_json(
        "{\"usage\":{\"prompt_tokens\":0,\"completion_tokens\":9007199254740992}}",
        (struct llm_usage){ true, 0, LLM_TOKENS_END, LLM_TOKENS_END, 0, true, false, false });
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

struct item {
    const char *lines; /* each ended by LF, the blank line included */
    bool extra;        /* taken out when stripping */
};

#define CHUNK(members) "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\"," members "}\n\n"
#define DELTA(members) "\"choices\":[{\"index\":0,\"delta\":{" members "}}]"
#define USAGE(in, out, total)                                                                      \
    "\"usage\":{\"prompt_tokens\":" in ",\"completion_tokens\":" out ",\"total_tokens\":" total "}"
#define DONE "data: [DONE]\n\n"

/* Adds lines with their ends written as LF, CRLF or CR. */
static void add_lines(struct buf *to, const char *lines, const char *end)
{
    for (const char *p = lines; *p != '\0'; p++) {
        if (*p == '\n')
            buf_add_text(to, end);
        else
            buf_add(to, p, 1);
    }
}

static void reads_stream(const struct item *items, struct llm_usage usage)
{
    static const char *const ends[] = { "\n", "\r\n", "\r" };
    for (int i = 0; i < 3; i++) {
        struct buf all, rest;
        buf_init(&all);
        buf_init(&rest);
        for (const struct item *item = items; item->lines != NULL; item++) {
            add_lines(&all, item->lines, ends[i]);
            if (!item->extra)
                add_lines(&rest, item->lines, ends[i]);
        }
        reads(buf_slice(&all), LLM_BODY_STREAM, false, buf_slice(&all), usage);
        reads(buf_slice(&all), LLM_BODY_STREAM, true, buf_slice(&rest), usage);
        buf_deinit(&all);
        buf_deinit(&rest);
    }
}

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
        (struct llm_usage){ true, 10, 20, 30, 9, true, false, false });
}

static void the_last_usage_wins(void **state)
{
    (void)state;
    reads_stream(
        (struct item[]){ { CHUNK(DELTA("\"content\":\"a\"") "," USAGE("10", "1", "11")), false },
                         { CHUNK(DELTA("\"content\":\"b\"") "," USAGE("10", "2", "12")), false },
                         { CHUNK(DELTA("\"content\":\"c\"") ",\"usage\":null"), false },
                         { NULL, false } },
        (struct llm_usage){ true, 10, 2, 12, 3, false, false, false });
    reads_stream(
        (struct item[]){ /* a bad one does not replace a good one */
                         { CHUNK(DELTA("\"content\":\"a\"") "," USAGE("10", "1", "11")), false },
                         { CHUNK("\"choices\":[]," USAGE("-1", "5", "5")), true },
                         { DONE, false },
                         { NULL, false } },
        (struct llm_usage){ true, 10, 1, 11, 1, true, false, false });
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
        (struct llm_usage){ true, 5, 6, 11, 0, false, false, false });
    /* a comment in front of the event stays */
    struct slice in = SLICE(": c\ndata: {\"choices\":[]," USAGE("3", "4", "7") "}\n\ndata: 1\n\n");
    reads(in, LLM_BODY_STREAM, true, SLICE(": c\ndata: 1\n\n"),
          (struct llm_usage){ true, 3, 4, 7, 0, false, false, false });
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
        (struct llm_usage){ true, 3, 4, 7, 0, false, true, false });
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
        reads(buf_slice(&all), LLM_BODY_STREAM, true, want,
              (struct llm_usage){ true, 3, 4, 7, 0, true, false, false });
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
          (struct llm_usage){ true, 3, 4, 7, 0, false, false, false });
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
    e.type = "own_type";
    error_is(LLM_OPENAI_CHAT, e,
             "{\"error\":{\"message\":\"m\",\"type\":\"own_type\",\"param\":null,\"code\":\"c\"}}");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(knows_paths_and_names),
        cmocka_unit_test(knows_kinds_of_bodies),
        cmocka_unit_test(counts_tokens_rounding_up),
        cmocka_unit_test(reads_a_request),
        cmocka_unit_test(takes_the_larger_maximum),
        cmocka_unit_test(reads_escaped_keys_and_models),
        cmocka_unit_test(counts_the_text_of_the_prompt),
        cmocka_unit_test(counts_attachments_by_number),
        cmocka_unit_test(refuses_what_has_no_meaning),
        cmocka_unit_test(refuses_what_cannot_be_counted),
        cmocka_unit_test(refuses_duplicates_that_decide_cost),
        cmocka_unit_test(leaves_other_apis_alone),
        cmocka_unit_test(edits_as_little_as_it_can),
        cmocka_unit_test(caps_the_output),
        cmocka_unit_test(tells_when_the_usage_event_is_ours),
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
        cmocka_unit_test(writes_errors_in_the_shape_of_the_api),
    };
    return cmocka_run_group_tests_name("llm", tests, NULL, NULL);
}
