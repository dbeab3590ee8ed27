/* Where in a document a JSON event stands, as far as the LLM APIs give names to places: one key a
 * level. */
#ifndef TOLLGATE_LLM_PATH_H
#define TOLLGATE_LLM_PATH_H

#include <stdint.h>

#include "json.h"

enum { LLM_PATH = 12 }; /* levels that are told apart */

enum llm_key {
    LLM_K_OTHER, /* a member whose name means nothing here */
    LLM_K_ITEM,  /* an element of an array */
    LLM_K_ARGUMENTS,
    LLM_K_AUDIO,
    LLM_K_BACKGROUND,
    LLM_K_CACHE_CREATION_INPUT_TOKENS,
    LLM_K_CACHE_READ_INPUT_TOKENS,
    LLM_K_CHOICES,
    LLM_K_CODE,
    LLM_K_COMPLETION_TOKENS,
    LLM_K_CONTENT,
    LLM_K_CONTENT_BLOCK,
    LLM_K_CONVERSATION,
    LLM_K_CUSTOM,
    LLM_K_DATA,
    LLM_K_DELTA,
    LLM_K_ERROR,
    LLM_K_FILE,
    LLM_K_FILE_DATA,
    LLM_K_FILE_ID,
    LLM_K_FILE_URL,
    LLM_K_FORMAT,
    LLM_K_FUNCTION,
    LLM_K_FUNCTIONS,
    LLM_K_FUNCTION_CALL,
    LLM_K_IMAGE_URL,
    LLM_K_INCLUDE_USAGE,
    LLM_K_INPUT,
    LLM_K_INPUT_AUDIO,
    LLM_K_INPUT_TOKENS,
    LLM_K_INSTRUCTIONS,
    LLM_K_MAX_COMPLETION_TOKENS,
    LLM_K_MAX_OUTPUT_TOKENS,
    LLM_K_MAX_TOKENS,
    LLM_K_MESSAGE,
    LLM_K_MESSAGES,
    LLM_K_MODEL,
    LLM_K_N,
    LLM_K_NAME,
    LLM_K_OUTPUT,
    LLM_K_OUTPUT_CONFIG,
    LLM_K_OUTPUT_FORMAT,
    LLM_K_OUTPUT_TOKENS,
    LLM_K_PARTIAL_JSON,
    LLM_K_PREVIOUS_RESPONSE_ID,
    LLM_K_PROMPT,
    LLM_K_PROMPT_TOKENS,
    LLM_K_REASONING,
    LLM_K_REASONING_CONTENT,
    LLM_K_REFUSAL,
    LLM_K_RESPONSE,
    LLM_K_RESPONSE_FORMAT,
    LLM_K_RESULT,
    LLM_K_SOURCE,
    LLM_K_STREAM,
    LLM_K_STREAM_OPTIONS,
    LLM_K_SUMMARY,
    LLM_K_SYSTEM,
    LLM_K_TEXT,
    LLM_K_THINKING,
    LLM_K_TOOLS,
    LLM_K_TOOL_CALLS,
    LLM_K_TOTAL_TOKENS,
    LLM_K_TRANSCRIPT,
    LLM_K_TYPE,
    LLM_K_URL,
    LLM_K_USAGE,
    LLM_K_VARIABLES,
    LLM_KEYS
};

struct llm_path {
    uint8_t
        key[LLM_PATH + 1]; /* key[d]: the step that leads to what has depth d; key[0] is unused */
};

/* Follows the scanner; called with each event before anything asks. */
void llm_path_step(struct llm_path *p, const struct json_event *e);
/* A constant. */
const char *llm_key_name(enum llm_key key);

static inline enum llm_key llm_path_at(const struct llm_path *p, int depth)
{
    return depth <= LLM_PATH ? (enum llm_key)p->key[depth] : LLM_K_OTHER;
}

#endif
