/* OpenAI's responses: what of a request costs, what of an answer is text and usage. A request may
 * refer to input that it does not show, which counts as a configured number of tokens. Of a stream
 * only the deltas are text, for each done event repeats them. */
#include "llm_api.h"

/* Members that decide cost: given twice, gateway and origin could each believe another one. */
static bool decides(enum llm_key key)
{
    switch (key) {
    case LLM_K_MODEL:
    case LLM_K_INPUT:
    case LLM_K_INSTRUCTIONS:
    case LLM_K_MAX_OUTPUT_TOKENS:
    case LLM_K_STREAM:
    case LLM_K_TOOLS:
    case LLM_K_TEXT:
    case LLM_K_PREVIOUS_RESPONSE_ID:
    case LLM_K_CONVERSATION:
    case LLM_K_PROMPT:
    case LLM_K_BACKGROUND: return true;
    default: return false;
    }
}

/* Whether all there, keys and numbers too, is sent to the model. */
static bool in_schema(const struct llm_path *p, int d)
{
    enum llm_key top = llm_path_at(p, 1);
    return d > 1 && (top == LLM_K_TOOLS ||
                     (top == LLM_K_TEXT && d > 2 && llm_path_at(p, 2) == LLM_K_FORMAT));
}

/* Whether what has depth d can be a part with an attachment: of a message or a tool's output, such
 * an output itself (a screenshot), or a variable of a stored prompt. */
static bool is_part(const struct llm_path *p, int d)
{
    enum llm_key third = llm_path_at(p, 3);
    if (llm_path_at(p, 1) == LLM_K_PROMPT)
        return d == 3 && llm_path_at(p, 2) == LLM_K_VARIABLES;
    if (llm_path_at(p, 1) != LLM_K_INPUT || llm_path_at(p, 2) != LLM_K_ITEM)
        return false;
    return d == 3 ? third == LLM_K_OUTPUT
                  : d == 4 && (third == LLM_K_CONTENT || third == LLM_K_OUTPUT) &&
                        llm_path_at(p, 4) == LLM_K_ITEM;
}

static int request_member(struct llm_scan *s, const struct json_event *e)
{
    enum llm_ask background;
    switch (llm_path_at(&s->path, 1)) {
    case LLM_K_MODEL: return llm_take_model(s, e);
    case LLM_K_STREAM: return llm_take_stream(s, e);
    case LLM_K_MAX_OUTPUT_TOKENS:
        return llm_take_count(s, e, "max_output_tokens", 0, &s->max_tokens);
    case LLM_K_BACKGROUND:
        if (llm_take_bool(s, e, "background", &background) != 0)
            return 1;
        s->out->background = background == LLM_TRUE;
        return 0;
    case LLM_K_PREVIOUS_RESPONSE_ID:
    case LLM_K_CONVERSATION:
    case LLM_K_PROMPT: s->out->hidden = s->out->hidden || e->type != JSON_NULL; return 0;
    default: return 0;
    }
}

/* A member of a part: whether it is an attachment, which costs by its kind and not by its bytes.
 * Only a file's id does not tell which kind that is. */
static bool take_attachment(struct llm_scan *s, const struct json_event *e, struct llm_part *part)
{
    switch (llm_path_at(&s->path, e->depth)) {
    case LLM_K_IMAGE_URL: s->images++; return true;
    case LLM_K_FILE_DATA:
    case LLM_K_FILE_URL: s->files++; return true;
    case LLM_K_FILE_ID: part->attached = true; return true;
    case LLM_K_TYPE:
        part->image =
            llm_text_is(e, SLICE("input_image")) || llm_text_is(e, SLICE("computer_screenshot"));
        return false;
    default: return false;
    }
}

static bool is_attachment(struct llm_scan *s, const struct json_event *e)
{
    const struct llm_path *p = &s->path;
    int d = e->depth;
    if (is_part(p, d - 1))
        return take_attachment(s, e, &s->part[d - 1]);
    if (is_part(p, d - 2) && llm_path_at(p, d - 1) == LLM_K_INPUT_AUDIO &&
        llm_path_at(p, d) == LLM_K_DATA) {
        s->files++;
        return true;
    }
    /* what an image generation has made */
    bool image = d == 3 && llm_path_at(p, 1) == LLM_K_INPUT && llm_path_at(p, 3) == LLM_K_RESULT;
    s->images += image;
    return image;
}

static void count_string(struct llm_scan *s, const struct json_event *e)
{
    enum llm_key top = llm_path_at(&s->path, 1);
    if (top != LLM_K_INPUT && top != LLM_K_INSTRUCTIONS && top != LLM_K_PROMPT)
        return;
    if (top == LLM_K_INPUT && e->depth == 3 && llm_path_at(&s->path, 3) == LLM_K_TYPE &&
        llm_text_is(e, SLICE("item_reference")))
        s->out->hidden = true;
    if (!is_attachment(s, e))
        s->text += e->decoded;
}

static int request(struct llm_scan *s, const struct json_event *e)
{
    int d = e->depth;
    if (d > 1 && (e->type == JSON_OBJECT || e->type == JSON_OBJECT_END) && is_part(&s->path, d)) {
        if (e->type == JSON_OBJECT_END)
            llm_count_part(s, &s->part[d]);
        s->part[d] = (struct llm_part){ 0 };
    }
    if (d == 0 || llm_ends(e))
        return 0;
    if (e->type == JSON_KEY && d == 1)
        return decides(llm_path_at(&s->path, 1)) ? llm_once(s, llm_path_at(&s->path, 1)) : 0;
    if (in_schema(&s->path, d))
        s->text += llm_bytes(e);
    else if (e->type == JSON_STRING)
        count_string(s, e);
    return d == 1 ? request_member(s, e) : 0;
}

static int request_end(struct llm_scan *s)
{
    if (llm_estimate(s, &s->max_tokens, "max_output_tokens") != 0)
        return 1;
    llm_cap_output(s, &s->max_tokens, "max_output_tokens");
    return 0;
}

static void answer_type(struct llm_answer *a, const struct json_event *e)
{
    bool failed = llm_text_is(e, SLICE("response.failed"));
    if (failed || llm_text_is(e, SLICE("error")))
        a->usage.error = true;
    if (failed || llm_text_is(e, SLICE("response.completed")) ||
        llm_text_is(e, SLICE("response.incomplete")))
        a->event.last = true;
}

static void answer_number(struct llm_answer *a, const struct json_event *e)
{
    struct llm_tally *t = &a->event.tally;
    switch (llm_path_at(&a->path, e->depth)) {
    case LLM_K_INPUT_TOKENS: llm_answer_number(a, e, &t->input); break;
    case LLM_K_OUTPUT_TOKENS: llm_answer_number(a, e, &t->output); break;
    case LLM_K_TOTAL_TOKENS: llm_answer_number(a, e, &t->total); break;
    default: break;
    }
}

/* An answer is a response; an event of a stream wraps one, where it has more than a delta. */
static void answer(struct llm_answer *a, const struct json_event *e)
{
    const struct llm_path *p = &a->path;
    bool inner = e->depth > 1 && llm_path_at(p, 1) == LLM_K_RESPONSE;
    int d = e->depth - inner;
    enum llm_key member = llm_path_at(p, inner ? 2 : 1);
    if (d == 0 || !llm_begins(e))
        return;
    if (d == 1 && !inner && member == LLM_K_TYPE)
        answer_type(a, e);
    else if (d == 1 && member == LLM_K_ERROR)
        llm_answer_error(a, e);
    else if (d == 1 && member == LLM_K_USAGE && e->type == JSON_OBJECT)
        *(inner ? &a->event.inner_usage : &a->event.usage) = true;
    else if (d == 2 && member == LLM_K_USAGE)
        answer_number(a, e);
}

static bool answer_text(const struct llm_path *p, int d)
{
    enum llm_key part = llm_path_at(p, 3), last = llm_path_at(p, d);
    if (d == 1)
        return last == LLM_K_DELTA;
    if (llm_path_at(p, 1) != LLM_K_OUTPUT || llm_path_at(p, 2) != LLM_K_ITEM)
        return false;
    if (d == 3)
        return last == LLM_K_NAME || last == LLM_K_ARGUMENTS || last == LLM_K_INPUT ||
               last == LLM_K_CODE;
    return d == 5 && (part == LLM_K_CONTENT || part == LLM_K_SUMMARY) &&
           llm_path_at(p, 4) == LLM_K_ITEM && (last == LLM_K_TEXT || last == LLM_K_REFUSAL);
}

/* Before the last event, a response's usage is not final. */
static void answer_end(struct llm_answer *a)
{
    a->usage.done = a->usage.done || a->event.last;
    if ((a->event.usage || (a->event.inner_usage && a->event.last)) && !a->event.bad_usage)
        llm_answer_usage(a, &a->event.tally);
}

const struct llm_dialect llm_responses = { request,     request_end, answer,
                                           answer_text, answer_end,  NULL };
