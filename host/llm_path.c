/* See llm_path.h. */
#include "llm_path.h"

static const struct slice names[LLM_KEYS] = {
    [LLM_K_ARGUMENTS] = { "arguments", 9 },
    [LLM_K_AUDIO] = { "audio", 5 },
    [LLM_K_BACKGROUND] = { "background", 10 },
    [LLM_K_CACHE_CREATION_INPUT_TOKENS] = { "cache_creation_input_tokens", 27 },
    [LLM_K_CACHE_READ_INPUT_TOKENS] = { "cache_read_input_tokens", 23 },
    [LLM_K_CHOICES] = { "choices", 7 },
    [LLM_K_CODE] = { "code", 4 },
    [LLM_K_COMPLETION_TOKENS] = { "completion_tokens", 17 },
    [LLM_K_CONTENT] = { "content", 7 },
    [LLM_K_CONTENT_BLOCK] = { "content_block", 13 },
    [LLM_K_CONVERSATION] = { "conversation", 12 },
    [LLM_K_CUSTOM] = { "custom", 6 },
    [LLM_K_DATA] = { "data", 4 },
    [LLM_K_DELTA] = { "delta", 5 },
    [LLM_K_ERROR] = { "error", 5 },
    [LLM_K_FILE] = { "file", 4 },
    [LLM_K_FILE_DATA] = { "file_data", 9 },
    [LLM_K_FILE_ID] = { "file_id", 7 },
    [LLM_K_FILE_URL] = { "file_url", 8 },
    [LLM_K_FORMAT] = { "format", 6 },
    [LLM_K_FUNCTION] = { "function", 8 },
    [LLM_K_FUNCTIONS] = { "functions", 9 },
    [LLM_K_FUNCTION_CALL] = { "function_call", 13 },
    [LLM_K_IMAGE_URL] = { "image_url", 9 },
    [LLM_K_INCLUDE_USAGE] = { "include_usage", 13 },
    [LLM_K_INPUT] = { "input", 5 },
    [LLM_K_INPUT_AUDIO] = { "input_audio", 11 },
    [LLM_K_INPUT_TOKENS] = { "input_tokens", 12 },
    [LLM_K_INSTRUCTIONS] = { "instructions", 12 },
    [LLM_K_MAX_COMPLETION_TOKENS] = { "max_completion_tokens", 21 },
    [LLM_K_MAX_OUTPUT_TOKENS] = { "max_output_tokens", 17 },
    [LLM_K_MAX_TOKENS] = { "max_tokens", 10 },
    [LLM_K_MESSAGE] = { "message", 7 },
    [LLM_K_MESSAGES] = { "messages", 8 },
    [LLM_K_MODEL] = { "model", 5 },
    [LLM_K_N] = { "n", 1 },
    [LLM_K_NAME] = { "name", 4 },
    [LLM_K_OUTPUT] = { "output", 6 },
    [LLM_K_OUTPUT_CONFIG] = { "output_config", 13 },
    [LLM_K_OUTPUT_FORMAT] = { "output_format", 13 },
    [LLM_K_OUTPUT_TOKENS] = { "output_tokens", 13 },
    [LLM_K_PARTIAL_JSON] = { "partial_json", 12 },
    [LLM_K_PREVIOUS_RESPONSE_ID] = { "previous_response_id", 20 },
    [LLM_K_PROMPT] = { "prompt", 6 },
    [LLM_K_PROMPT_TOKENS] = { "prompt_tokens", 13 },
    [LLM_K_REASONING] = { "reasoning", 9 },
    [LLM_K_REASONING_CONTENT] = { "reasoning_content", 17 },
    [LLM_K_REFUSAL] = { "refusal", 7 },
    [LLM_K_RESPONSE] = { "response", 8 },
    [LLM_K_RESPONSE_FORMAT] = { "response_format", 15 },
    [LLM_K_RESULT] = { "result", 6 },
    [LLM_K_SOURCE] = { "source", 6 },
    [LLM_K_STREAM] = { "stream", 6 },
    [LLM_K_STREAM_OPTIONS] = { "stream_options", 14 },
    [LLM_K_SUMMARY] = { "summary", 7 },
    [LLM_K_SYSTEM] = { "system", 6 },
    [LLM_K_TEXT] = { "text", 4 },
    [LLM_K_THINKING] = { "thinking", 8 },
    [LLM_K_TOOLS] = { "tools", 5 },
    [LLM_K_TOOL_CALLS] = { "tool_calls", 10 },
    [LLM_K_TOTAL_TOKENS] = { "total_tokens", 12 },
    [LLM_K_TRANSCRIPT] = { "transcript", 10 },
    [LLM_K_TYPE] = { "type", 4 },
    [LLM_K_URL] = { "url", 3 },
    [LLM_K_USAGE] = { "usage", 5 },
    [LLM_K_VARIABLES] = { "variables", 9 },
};

/* Where the names that begin with a letter begin: the keys stand in the order of their first
 * letters. A letter without names has those of none, its next one's place. */
#define AT(letter) [(letter) - 'a']
static const uint8_t first['z' - 'a' + 2] = {
    AT('a') = LLM_K_ARGUMENTS,
    AT('b') = LLM_K_BACKGROUND,
    AT('c') = LLM_K_CACHE_CREATION_INPUT_TOKENS,
    AT('d') = LLM_K_DATA,
    AT('e') = LLM_K_ERROR,
    AT('f') = LLM_K_FILE,
    AT('g') = LLM_K_IMAGE_URL,
    AT('h') = LLM_K_IMAGE_URL,
    AT('i') = LLM_K_IMAGE_URL,
    AT('j') = LLM_K_MAX_COMPLETION_TOKENS,
    AT('k') = LLM_K_MAX_COMPLETION_TOKENS,
    AT('l') = LLM_K_MAX_COMPLETION_TOKENS,
    AT('m') = LLM_K_MAX_COMPLETION_TOKENS,
    AT('n') = LLM_K_N,
    AT('o') = LLM_K_OUTPUT,
    AT('p') = LLM_K_PARTIAL_JSON,
    AT('q') = LLM_K_REASONING,
    AT('r') = LLM_K_REASONING,
    AT('s') = LLM_K_SOURCE,
    AT('t') = LLM_K_TEXT,
    AT('u') = LLM_K_URL,
    AT('v') = LLM_K_VARIABLES,
    AT('w') = LLM_KEYS,
    AT('x') = LLM_KEYS,
    AT('y') = LLM_KEYS,
    AT('z') = LLM_KEYS,
    AT('z' + 1) = LLM_KEYS,
};
#undef AT

static enum llm_key key_of(const struct json_event *e)
{
    if (!e->whole || e->text.n == 0)
        return LLM_K_OTHER;
    char letter = e->text.p[0];
    if (letter < 'a' || letter > 'z')
        return LLM_K_OTHER;
    for (int i = first[letter - 'a']; i < first[letter - 'a' + 1]; i++) {
        if (slice_eq(names[i], e->text))
            return (enum llm_key)i;
    }
    return LLM_K_OTHER;
}

void llm_path_step(struct llm_path *p, const struct json_event *e)
{
    int d = e->depth;
    if (e->type == JSON_KEY && d <= LLM_PATH) {
        enum llm_key key = key_of(e);
        p->key[d] = (uint8_t)key;
    } else if ((e->type == JSON_ARRAY || e->type == JSON_OBJECT) && d < LLM_PATH) {
        p->key[d + 1] = e->type == JSON_ARRAY ? LLM_K_ITEM : LLM_K_OTHER;
    }
}

const char *llm_key_name(enum llm_key key)
{
    return names[key].p;
}
