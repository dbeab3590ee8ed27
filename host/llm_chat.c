/* OpenAI's chat completions, and the many vendors that speak this dialect: what of a request costs,
 * what of an answer is text and usage. Pessimistic: what may become tokens of the prompt counts. */
#include <stdio.h>

#include "llm_api.h"

/* Members that decide cost: given twice, gateway and origin could each believe another one. */
static bool decides(enum llm_key key)
{
    switch (key) {
    case LLM_K_MODEL:
    case LLM_K_MESSAGES:
    case LLM_K_MAX_TOKENS:
    case LLM_K_MAX_COMPLETION_TOKENS:
    case LLM_K_N:
    case LLM_K_STREAM:
    case LLM_K_STREAM_OPTIONS:
    case LLM_K_TOOLS:
    case LLM_K_FUNCTIONS:
    case LLM_K_RESPONSE_FORMAT: return true;
    default: return false;
    }
}

/* Members whose text is sent to the model with all its keys. */
static bool is_schema(enum llm_key key)
{
    return key == LLM_K_TOOLS || key == LLM_K_FUNCTIONS || key == LLM_K_RESPONSE_FORMAT;
}

static int request_key(struct llm_scan *s, const struct json_event *e)
{
    enum llm_key top = llm_path_at(&s->path, 1), key = llm_path_at(&s->path, e->depth);
    if (e->depth == 1)
        return decides(key) ? llm_once(s, key) : 0;
    if (is_schema(top))
        s->text += e->decoded;
    if (top == LLM_K_STREAM_OPTIONS && e->depth == 2) {
        s->stream_options.has_members = true;
        return key == LLM_K_INCLUDE_USAGE ? llm_once(s, key) : 0;
    }
    return 0;
}

static int take_stream_options(struct llm_scan *s, const struct json_event *e)
{
    if (e->type != JSON_OBJECT && e->type != JSON_NULL)
        return llm_refuse(s, "stream_options", "invalid_type",
                          "'stream_options' must be an object");
    s->stream_options.is = e->type == JSON_OBJECT ? LLM_OPTIONS_OBJECT : LLM_OPTIONS_NULL;
    s->stream_options.start = (size_t)e->start;
    s->stream_options.end = (size_t)e->end;
    return 0;
}

static int take_include_usage(struct llm_scan *s, const struct json_event *e)
{
    s->stream_options.include_start = (size_t)e->start;
    s->stream_options.include_end = (size_t)e->end;
    return llm_take_bool(s, e, "stream_options.include_usage", &s->out->include_usage);
}

static int request_member(struct llm_scan *s, const struct json_event *e)
{
    switch (llm_path_at(&s->path, 1)) {
    case LLM_K_MODEL: return llm_take_model(s, e);
    case LLM_K_STREAM: return llm_take_stream(s, e);
    case LLM_K_STREAM_OPTIONS: return take_stream_options(s, e);
    case LLM_K_MAX_TOKENS: return llm_take_count(s, e, "max_tokens", 0, &s->max_tokens);
    case LLM_K_MAX_COMPLETION_TOKENS:
        return llm_take_count(s, e, "max_completion_tokens", 0, &s->max_completion_tokens);
    case LLM_K_N: return llm_take_count(s, e, "n", 1, &s->n);
    default: return 0;
    }
}

/* How often the string at depth d is an attachment, which costs by its kind and not by its bytes:
 * messages[].content[].image_url.url and its like. */
static uint64_t *attachment(struct llm_scan *s, int d)
{
    const struct llm_path *p = &s->path;
    if (d < 5 || d > 6 || llm_path_at(p, 2) != LLM_K_ITEM || llm_path_at(p, 3) != LLM_K_CONTENT ||
        llm_path_at(p, 4) != LLM_K_ITEM)
        return NULL;
    enum llm_key part = llm_path_at(p, 5), member = llm_path_at(p, 6);
    if (part == LLM_K_IMAGE_URL && (d == 5 || member == LLM_K_URL))
        return &s->images;
    if (d == 6 && part == LLM_K_INPUT_AUDIO && member == LLM_K_DATA)
        return &s->files;
    if (d == 6 && part == LLM_K_FILE && (member == LLM_K_FILE_DATA || member == LLM_K_FILE_ID))
        return &s->files;
    return NULL;
}

static void count_string(struct llm_scan *s, const struct json_event *e)
{
    enum llm_key top = llm_path_at(&s->path, 1);
    uint64_t *count = top == LLM_K_MESSAGES ? attachment(s, e->depth) : NULL;
    if (count != NULL)
        ++*count;
    else if (top == LLM_K_MESSAGES || is_schema(top))
        s->text += e->decoded;
}

static int request(struct llm_scan *s, const struct json_event *e)
{
    if (e->depth == 0 || llm_ends(e))
        return 0;
    if (e->type == JSON_KEY)
        return request_key(s, e);
    if (e->type == JSON_STRING)
        count_string(s, e);
    else if (e->depth > 1 && is_schema(llm_path_at(&s->path, 1)))
        s->text += llm_bytes(e);
    if (e->depth == 1)
        return request_member(s, e);
    if (e->depth == 2 && llm_path_at(&s->path, 1) == LLM_K_STREAM_OPTIONS &&
        llm_path_at(&s->path, 2) == LLM_K_INCLUDE_USAGE)
        return take_include_usage(s, e);
    return 0;
}

/* Asks for usage in the options that are there. Whether there are none, so that they must be put
 * into the body. */
static bool ask_for_usage(struct llm_scan *s)
{
    struct llm_request *r = s->out;
    r->strip_usage = r->stream && r->include_usage != LLM_TRUE;
    if (!r->strip_usage)
        return false;
    if (s->stream_options.is == LLM_OPTIONS_NULL)
        llm_add_edit(r, s->stream_options.start, s->stream_options.end, "{\"include_usage\":true}");
    else if (s->stream_options.include_end > 0)
        llm_add_edit(r, s->stream_options.include_start, s->stream_options.include_end, "true");
    else if (s->stream_options.is == LLM_OPTIONS_OBJECT)
        llm_add_edit(r, s->stream_options.end, s->stream_options.end, "\"include_usage\":true%s",
                     s->stream_options.has_members ? "," : "");
    return s->stream_options.is == LLM_OPTIONS_ABSENT;
}

static void plan_edits(struct llm_scan *s)
{
    struct llm_request *r = s->out;
    const struct llm_number *max = &s->max_completion_tokens;
    char cap[48] = "";
    bool options = ask_for_usage(s);
    unsigned long long output = r->output_max;
    if (s->options->cap_output && !r->output_given && max->null_end > 0)
        llm_add_edit(r, max->null_start, max->null_end, "%llu", output);
    else if (s->options->cap_output && !r->output_given)
        snprintf(cap, sizeof cap, "\"max_completion_tokens\":%llu", output);
    if (cap[0] == '\0' && !options)
        return;
    llm_add_edit(r, s->members, s->members, "%s%s%s%s", cap, cap[0] != '\0' && options ? "," : "",
                 options ? "\"stream_options\":{\"include_usage\":true}" : "",
                 s->has_members ? "," : "");
}

static int request_end(struct llm_scan *s)
{
    /* Where both are given, which of them counts is the origin's choice. */
    bool older = s->max_tokens.given && (!s->max_completion_tokens.given ||
                                         s->max_tokens.value > s->max_completion_tokens.value);
    if (llm_estimate(s, older ? &s->max_tokens : &s->max_completion_tokens,
                     older ? "max_tokens" : "max_completion_tokens") != 0)
        return 1;
    plan_edits(s);
    return 0;
}

static void answer_usage(struct llm_answer *a, const struct json_event *e)
{
    struct llm_tally *t = &a->event.tally;
    if (!llm_begins(e))
        return;
    switch (llm_path_at(&a->path, 2)) {
    case LLM_K_PROMPT_TOKENS: llm_answer_number(a, e, &t->input); break;
    case LLM_K_COMPLETION_TOKENS: llm_answer_number(a, e, &t->output); break;
    case LLM_K_TOTAL_TOKENS: llm_answer_number(a, e, &t->total); break;
    default: break;
    }
}

/* A member of the answer. The event that only reports usage has a usage object and no choices. */
static void answer_member(struct llm_answer *a, const struct json_event *e)
{
    bool begin = llm_begins(e);
    switch (llm_path_at(&a->path, 1)) {
    case LLM_K_CHOICES:
        if (begin && e->type != JSON_ARRAY)
            a->event.other = true;
        a->event.no_choices = e->type == JSON_ARRAY_END;
        break;
    case LLM_K_USAGE:
        if (begin && e->type != JSON_OBJECT)
            a->event.other = true;
        a->event.usage = a->event.usage || e->type == JSON_OBJECT;
        break;
    case LLM_K_ERROR:
        if (llm_answer_error(a, e))
            a->event.other = true;
        break;
    default: break;
    }
}

static void answer(struct llm_answer *a, const struct json_event *e)
{
    enum llm_key top = e->depth > 0 ? llm_path_at(&a->path, 1) : LLM_K_OTHER;
    if (e->depth == 0)
        a->event.other = a->event.other || (e->type != JSON_OBJECT && e->type != JSON_OBJECT_END);
    else if (e->depth == 1)
        answer_member(a, e);
    else if (top == LLM_K_CHOICES)
        a->event.other = true;
    else if (top == LLM_K_USAGE && e->depth == 2)
        answer_usage(a, e);
}

static bool answer_text(const struct llm_path *p, int d)
{
    enum llm_key side = llm_path_at(p, 3), last = llm_path_at(p, d);
    if (d < 4 || llm_path_at(p, 1) != LLM_K_CHOICES || llm_path_at(p, 2) != LLM_K_ITEM ||
        (side != LLM_K_DELTA && side != LLM_K_MESSAGE))
        return false;
    switch (llm_path_at(p, 4)) {
    case LLM_K_CONTENT: /* some vendors make it an array of parts */
    case LLM_K_REASONING_CONTENT:
    case LLM_K_REASONING:
    case LLM_K_REFUSAL: return last != LLM_K_TYPE;
    case LLM_K_FUNCTION_CALL: return d == 5 && (last == LLM_K_NAME || last == LLM_K_ARGUMENTS);
    case LLM_K_AUDIO: return d == 5 && last == LLM_K_TRANSCRIPT;
    case LLM_K_TOOL_CALLS:
        return d == 7 && (last == LLM_K_NAME || last == LLM_K_ARGUMENTS || last == LLM_K_INPUT) &&
               (llm_path_at(p, 6) == LLM_K_FUNCTION || llm_path_at(p, 6) == LLM_K_CUSTOM);
    default: return false;
    }
}

/* The last usage wins: vendors that send it on every chunk send it cumulated. Vendors' own copies
 * of it elsewhere (x_groq.usage) are not read. */
static void answer_end(struct llm_answer *a)
{
    if (a->event.usage && !a->event.bad_usage)
        llm_answer_usage(a, &a->event.tally);
}

static bool answer_extra(const struct llm_answer *a)
{
    return a->event.usage && a->event.no_choices && !a->event.other;
}

const struct llm_dialect llm_chat = { request,     request_end, answer,
                                      answer_text, answer_end,  answer_extra };
