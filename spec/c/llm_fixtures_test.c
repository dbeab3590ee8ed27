/* llm and meter: an answer of each API and oddity, written after the APIs' documentation as if
 * recorded (spec/fixtures/llm), fed whole, byte by byte and split at random, and cut off anywhere:
 * what is read, relayed and charged does not depend on it. */
#include "llm_rig.h"
#include "meter.h"

#define DIR TOLLGATE_SOURCE_DIR "/spec/fixtures/llm/"

/* A prompt of an estimated 100 tokens, and 1000 of output. */
static const struct meter meter = { 100, 1100, 3, METER_SEEN };

struct fixture {
    const char *file;
    enum llm_api api;
    struct llm_usage usage;
    uint64_t charge; /* where usage is missing */
    enum meter_cause cause;
};

#define USED(in, out, text, done)                                                                  \
    { true, true, in, out, in + out, text, done, false, false }, in + out, METER_USAGE
/* and where usage is missing, in part or whole, what the policy makes of it */
#define NONE(text, done, error)                                                                    \
    {                                                                                              \
        false, false, 0, 0, 0, text, done, error, false                                            \
    }
#define INPUT(in, text, error)                                                                     \
    {                                                                                              \
        false, true, in, 0, 0, text, false, error, false                                           \
    }

static const struct fixture fixtures[] = {
    { "chat.json", LLM_OPENAI_CHAT, USED(19, 10, 23, true) },
    { "chat-tools.json", LLM_OPENAI_CHAT, USED(82, 17, 24, true) },
    { "chat-stream.sse", LLM_OPENAI_CHAT, USED(23, 6, 18, true) },
    { "chat-tools.sse", LLM_OPENAI_CHAT, USED(64, 15, 24, true) },
    { "chat-azure.sse", LLM_OPENAI_CHAT, USED(31, 3, 15, true) },
    { "chat-comments.sse", LLM_OPENAI_CHAT, USED(14, 9, 20, true) },
    { "chat-usage-on-each.sse", LLM_OPENAI_CHAT, USED(11, 4, 11, false) },
    { "chat-usage-null.sse", LLM_OPENAI_CHAT, NONE(16, true, false), 106, METER_NO_USAGE },
    { "chat-usage-zero.sse", LLM_OPENAI_CHAT, NONE(12, true, false), 104, METER_NO_USAGE },
    { "chat-no-usage.sse", LLM_OPENAI_CHAT, NONE(20, true, false), 107, METER_NO_USAGE },
    { "chat-groq.sse", LLM_OPENAI_CHAT, NONE(17, true, false), 106, METER_NO_USAGE },
    { "chat-error.sse", LLM_OPENAI_CHAT, NONE(18, false, true), 106, METER_ERROR_EVENT },
    { "chat-cut.sse", LLM_OPENAI_CHAT, NONE(23, false, false), 108, METER_CUT_OFF },

    { "responses.json", LLM_OPENAI_RESPONSES, USED(36, 87, 41, true) },
    { "responses-tools.json", LLM_OPENAI_RESPONSES, USED(291, 23, 35, true) },
    { "responses-queued.json", LLM_OPENAI_RESPONSES, NONE(0, true, false), 100, METER_NO_USAGE },
    { "responses-failed.json", LLM_OPENAI_RESPONSES, NONE(0, true, true), 100, METER_ERROR_EVENT },
    { "responses-stream.sse", LLM_OPENAI_RESPONSES, USED(37, 11, 20, true) },
    { "responses-tools.sse", LLM_OPENAI_RESPONSES, USED(64, 47, 38, true) },
    { "responses-refusal.sse", LLM_OPENAI_RESPONSES, USED(50, 5, 9, true) },
    { "responses-incomplete.sse", LLM_OPENAI_RESPONSES, USED(37, 16, 12, true) },
    { "responses-failed.sse", LLM_OPENAI_RESPONSES, NONE(2, true, true), 101, METER_ERROR_EVENT },
    { "responses-error.sse", LLM_OPENAI_RESPONSES, NONE(2, false, true), 101, METER_ERROR_EVENT },
    { "responses-cut.sse", LLM_OPENAI_RESPONSES, NONE(16, false, false), 106, METER_CUT_OFF },

    { "embeddings.json", LLM_OPENAI_EMBEDDINGS, USED(8, 0, 0, true) },
    { "embeddings-base64.json", LLM_OPENAI_EMBEDDINGS, USED(5, 0, 0, true) },
    { "embeddings-no-usage.json", LLM_OPENAI_EMBEDDINGS, NONE(0, true, false), 100,
      METER_NO_USAGE },
    { "embeddings-usage-zero.json", LLM_OPENAI_EMBEDDINGS, NONE(0, true, false), 100,
      METER_NO_USAGE },

    { "messages.json", LLM_ANTHROPIC_MESSAGES, USED(2125, 150, 19, true) },
    { "messages-tools.json", LLM_ANTHROPIC_MESSAGES, USED(472, 89, 43, true) },
    { "messages-cache-null.json", LLM_ANTHROPIC_MESSAGES, USED(10, 3, 3, true) },
    { "messages-error.json", LLM_ANTHROPIC_MESSAGES, NONE(0, true, true), 100, METER_ERROR_EVENT },
    { "messages-stream.sse", LLM_ANTHROPIC_MESSAGES, USED(25, 15, 19, true) },
    { "messages-cache.sse", LLM_ANTHROPIC_MESSAGES, USED(2124, 42, 27, true) },
    { "messages-tools.sse", LLM_ANTHROPIC_MESSAGES, USED(472, 89, 41, true) },
    { "messages-search.sse", LLM_ANTHROPIC_MESSAGES, USED(10682, 510, 45, true) },
    { "messages-late-input.sse", LLM_ANTHROPIC_MESSAGES, USED(33, 7, 5, true) },
    { "messages-error.sse", LLM_ANTHROPIC_MESSAGES, INPUT(25, 4, true), 27, METER_ERROR_EVENT },
    { "messages-cut.sse", LLM_ANTHROPIC_MESSAGES, INPUT(1000, 16, false), 1006, METER_CUT_OFF },
};

enum { FIXTURES = sizeof fixtures / sizeof *fixtures };

/* Reads a fixture; lines of a stream end in `end`. */
static void load(const struct fixture *f, const char *end, struct buf *to)
{
    char path[512], bytes[8192];
    snprintf(path, sizeof path, DIR "%s", f->file);
    FILE *file = fopen(path, "rb");
    if (file == NULL)
        fail_msg("cannot open %s", path);
    size_t n = fread(bytes, 1, sizeof bytes - 1, file);
    assert_true(feof(file) && n > 0);
    fclose(file);
    bytes[n] = '\0';
    buf_init(to);
    add_lines(to, bytes, end);
}

static enum llm_body body_of(const struct fixture *f)
{
    return slice_ends(slice_of(f->file), SLICE(".sse")) ? LLM_BODY_STREAM : LLM_BODY_JSON;
}

static struct meter_charge charge(const struct fixture *f, const struct llm_usage *u, bool gone)
{
    bool cut = gone || strstr(f->file, "-cut") != NULL;
    struct meter_facts facts = { true, 200, !cut, gone, body_of(f) };
    return meter_charge(&meter, u, &facts);
}

static void are_read_as_the_table_says(void **state)
{
    (void)state;
    static const char *const ends[] = { "\n", "\r\n", "\r" };
    for (int i = 0; i < 3 * FIXTURES; i++) {
        const struct fixture *f = &fixtures[i / 3];
        struct buf text;
        load(f, ends[i % 3], &text);
        api = f->api;
        what = f->file;
        reads(buf_slice(&text), body_of(f), false, buf_slice(&text), f->usage);
        struct meter_charge c = charge(f, &f->usage, false);
        assert_int_equal(c.tokens, f->charge);
        assert_string_equal(meter_cause_name(c.cause), meter_cause_name(f->cause));
        buf_deinit(&text);
    }
}

/* What stripping takes out: the event of a chat's stream with usage and without choices. */
static struct slice usage_event(struct slice text)
{
    static const char mark[] = "\"choices\":[],\"usage\":{";
    struct slice none = { text.p, 0 };
    const char *at = memmem(text.p, text.n, mark, sizeof mark - 1);
    if (at == NULL)
        return none;
    const char *start = at,
               *end = (const char *)memmem(at, text.n - (size_t)(at - text.p), "\n\n", 2);
    assert_non_null(end);
    while (start > text.p && start[-1] != '\n')
        start--;
    return (struct slice){ start, (size_t)(end + 2 - start) };
}

static void are_stripped_of_the_usage_event_only(void **state)
{
    (void)state;
    int stripped = 0;
    for (int i = 0; i < FIXTURES; i++) {
        const struct fixture *f = &fixtures[i];
        struct buf text, rest;
        load(f, "\n", &text);
        struct slice event = usage_event(buf_slice(&text));
        size_t before = (size_t)(event.p - text.p);
        buf_init(&rest);
        buf_add(&rest, text.p, before);
        buf_add(&rest, event.p + event.n, text.n - before - event.n);
        stripped += event.n > 0;
        api = f->api;
        what = f->file;
        reads(buf_slice(&text), body_of(f), true, buf_slice(&rest), f->usage);
        buf_deinit(&text);
        buf_deinit(&rest);
    }
    assert_int_equal(stripped, 3);
}

/* Wherever the client leaves, the split does not matter, and it is never free. */
static void cost_something_wherever_they_are_cut(void **state)
{
    (void)state;
    for (int i = 0; i < 40 * FIXTURES; i++) {
        const struct fixture *f = &fixtures[i / 40];
        struct buf text;
        load(f, "\n", &text);
        text.n = chance((uint32_t)text.n);
        api = f->api;
        what = f->file;
        struct relay whole;
        relay(buf_slice(&text), body_of(f), false, 0, &whole);
        struct meter_charge c = charge(f, &whole.usage, true);
        assert_int_equal(c.cause, whole.usage.known ? METER_USAGE : METER_CLIENT_GONE);
        uint64_t input = whole.usage.input_known ? whole.usage.input : meter.prompt_tokens;
        assert_true(c.tokens > 0 && c.tokens >= input);
        reads(buf_slice(&text), body_of(f), false, buf_slice(&text), whole.usage);
        buf_deinit(&whole.out);
        buf_deinit(&text);
    }
}

static void are_read_alike_when_they_are_damaged(void **state)
{
    (void)state;
    static const char bytes[] = "{}[]\",:\\\n\r0-a \xc3";
    for (int i = 0; i < 20 * FIXTURES; i++) {
        const struct fixture *f = &fixtures[i / 20];
        struct buf text;
        load(f, "\n", &text);
        for (int damage = i % 3; damage >= 0; damage--)
            text.p[chance((uint32_t)text.n)] = bytes[chance(sizeof bytes - 1)];
        api = f->api;
        what = f->file;
        struct relay whole;
        relay(buf_slice(&text), body_of(f), false, 0, &whole);
        reads(buf_slice(&text), body_of(f), false, buf_slice(&text), whole.usage);
        buf_deinit(&whole.out);
        buf_deinit(&text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(are_read_as_the_table_says),
        cmocka_unit_test(are_stripped_of_the_usage_event_only),
        cmocka_unit_test(cost_something_wherever_they_are_cut),
        cmocka_unit_test(are_read_alike_when_they_are_damaged),
    };
    return cmocka_run_group_tests_name("llm_fixtures", tests, NULL, NULL);
}
