/* See llm.h: names, paths and errors of the APIs. */
#include "llm.h"

#include "json.h"
#include "llm_api.h"

static const struct {
    struct slice name;
    const struct llm_dialect *dialect; /* NULL: not read */
} apis[LLM_APIS] = {
    [LLM_NONE] = { { "none", 4 }, NULL },
    [LLM_OPENAI_CHAT] = { { "openai-chat", 11 }, &llm_chat },
    [LLM_OPENAI_RESPONSES] = { { "openai-responses", 16 }, &llm_responses },
    [LLM_OPENAI_EMBEDDINGS] = { { "openai-embeddings", 17 }, &llm_embeddings },
    [LLM_ANTHROPIC_MESSAGES] = { { "anthropic-messages", 18 }, &llm_messages },
};

const struct llm_dialect *llm_dialect_of(enum llm_api api)
{
    return apis[api].dialect;
}

/* "/chat/completions" is an API's own name wherever it is mounted; the others are common words, and
 * count only under a version. */
enum llm_api llm_api_of_path(struct slice path)
{
    if (slice_ends(path, SLICE("/chat/completions")))
        return LLM_OPENAI_CHAT;
    if (slice_ends(path, SLICE("/v1/responses")))
        return LLM_OPENAI_RESPONSES;
    if (slice_ends(path, SLICE("/v1/embeddings")))
        return LLM_OPENAI_EMBEDDINGS;
    if (slice_ends(path, SLICE("/v1/messages")))
        return LLM_ANTHROPIC_MESSAGES;
    return LLM_NONE;
}

const char *llm_api_name(enum llm_api api)
{
    return apis[api].name.p;
}

bool llm_api_of_name(struct slice name, enum llm_api *out)
{
    for (int i = 0; i < LLM_APIS; i++) {
        if (slice_eq(apis[i].name, name)) {
            *out = (enum llm_api)i;
            return true;
        }
    }
    return false;
}

uint64_t llm_tokens(uint64_t bytes, double bytes_per_token)
{
    double tokens = (double)bytes / bytes_per_token;
    if (!(tokens < (double)LLM_TOKENS_END))
        return bytes == 0 ? 0 : LLM_TOKENS_END;
    uint64_t whole = (uint64_t)tokens;
    return (double)whole < tokens ? whole + 1 : whole;
}

enum llm_body llm_body_of(struct slice content_type, struct slice content_encoding)
{
    struct slice coding = slice_trim(content_encoding), type = content_type;
    if (coding.n > 0 && !slice_ieq(coding, SLICE("identity")))
        return LLM_BODY_ENCODED;
    const char *semicolon = type.n == 0 ? NULL : memchr(type.p, ';', type.n);
    if (semicolon != NULL)
        type.n = (size_t)(semicolon - type.p);
    type = slice_trim(type);
    if (slice_ieq(type, SLICE("text/event-stream")))
        return LLM_BODY_STREAM;
    if (slice_ieq(type, SLICE("application/json")))
        return LLM_BODY_JSON;
    bool json = type.n > 5 && slice_ieq((struct slice){ type.p + type.n - 5, 5 }, SLICE("+json"));
    return json ? LLM_BODY_JSON : LLM_BODY_OTHER;
}

struct kind {
    int status; /* 0 for all others below 500, 500 for all others from there on */
    const char *type;
};

static const char *kind_of(const struct kind *kinds, int status)
{
    int i = 0;
    while (kinds[i].status != status && kinds[i].status != 0)
        i++;
    return kinds[i].status == 0 && status >= 500 ? kind_of(kinds, 500) : kinds[i].type;
}

/* A spent quota is a type of its own there, an unknown key is not. */
static const char *openai_type(const struct llm_error *e)
{
    static const struct kind kinds[] = { { 403, "permission_error" },
                                         { 429, "rate_limit_error" },
                                         { 500, "server_error" },
                                         { 0, "invalid_request_error" } };
    bool quota = e->code != NULL && strcmp(e->code, "insufficient_quota") == 0;
    return quota ? e->code : kind_of(kinds, e->status);
}

static const char *anthropic_type(int status)
{
    static const struct kind kinds[] = { { 401, "authentication_error" },
                                         { 402, "billing_error" },
                                         { 403, "permission_error" },
                                         { 404, "not_found_error" },
                                         { 413, "request_too_large" },
                                         { 429, "rate_limit_error" },
                                         { 500, "api_error" },
                                         { 504, "timeout_error" },
                                         { 529, "overloaded_error" },
                                         { 0, "invalid_request_error" } };
    return kind_of(kinds, status);
}

/* `before`, then text quoted, or null where there is none. */
static void add_text(struct buf *out, const char *before, const char *text)
{
    buf_add_text(out, before);
    if (text != NULL)
        json_quote(out, slice_of(text));
    else
        buf_add_text(out, "null");
}

static void anthropic_error(const struct llm_error *e, struct buf *out)
{
    const char *type = e->type != NULL ? e->type : anthropic_type(e->status);
    add_text(out, "{\"type\":\"error\",\"error\":{\"type\":", type);
    buf_add_text(out, ",\"message\":");
    json_quote(out, e->message);
    buf_add_text(out, "}");
    if (e->request_id.n > 0) {
        buf_add_text(out, ",\"request_id\":");
        json_quote(out, e->request_id);
    }
    buf_add_text(out, "}");
}

static void openai_error(const struct llm_error *e, bool plain, struct buf *out)
{
    buf_add_text(out, "{\"error\":{\"message\":");
    json_quote(out, e->message);
    add_text(out, ",\"type\":", e->type != NULL ? e->type : openai_type(e));
    if (!plain)
        add_text(out, ",\"param\":", e->param);
    add_text(out, ",\"code\":", e->code);
    if (plain && e->request_id.n > 0) {
        buf_add_text(out, ",\"request_id\":");
        json_quote(out, e->request_id);
    }
    buf_add_text(out, "}}");
}

void llm_error_body(enum llm_api api, const struct llm_error *e, struct buf *out)
{
    if (api == LLM_ANTHROPIC_MESSAGES)
        anthropic_error(e, out);
    else
        openai_error(e, api == LLM_NONE, out);
}
