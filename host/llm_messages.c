/* Anthropic's messages: what of a request costs, what of an answer is text and usage. A stream
 * tells its usage twice: the input first, with a placeholder for the output, and the whole at the
 * end. */
#include "llm_api.h"

/* Members that decide cost: given twice, gateway and origin could each believe another one. */
static bool decides(enum llm_key key)
{
    switch (key) {
    case LLM_K_MODEL:
    case LLM_K_MAX_TOKENS:
    case LLM_K_SYSTEM:
    case LLM_K_MESSAGES:
    case LLM_K_TOOLS:
    case LLM_K_OUTPUT_CONFIG:
    case LLM_K_OUTPUT_FORMAT:
    case LLM_K_STREAM: return true;
    default: return false;
    }
}

/* Members whose text is sent to the model with all its keys. */
static bool is_schema(enum llm_key key)
{
    return key == LLM_K_TOOLS || key == LLM_K_OUTPUT_CONFIG || key == LLM_K_OUTPUT_FORMAT;
}

/* The depth of the innermost content block that is or holds what has depth d; 0 where there is
 * none. Blocks are messages[].content[], and what tool results (content[]) and documents
 * (source.content[]) nest in them. */
static int block_above(const struct llm_path *p, int d)
{
    int block = 0, at = 2;
    if (llm_path_at(p, 1) != LLM_K_MESSAGES || llm_path_at(p, 2) != LLM_K_ITEM)
        return 0;
    for (;;) {
        if (block > 0 && llm_path_at(p, at + 1) == LLM_K_SOURCE)
            at++;
        at += 2;
        if (at > d || at > LLM_PATH || llm_path_at(p, at - 1) != LLM_K_CONTENT ||
            llm_path_at(p, at) != LLM_K_ITEM)
            return block;
        block = at;
    }
}

static int request_key(struct llm_scan *s, const struct json_event *e)
{
    enum llm_key top = llm_path_at(&s->path, 1);
    int block = block_above(&s->path, e->depth);
    if (e->depth == 1)
        return decides(top) ? llm_once(s, top) : 0;
    /* the input of a tool's use is an object of any shape */
    bool input =
        block > 0 && e->depth > block + 1 && llm_path_at(&s->path, block + 1) == LLM_K_INPUT;
    if (input || is_schema(top))
        s->text += e->decoded;
    return 0;
}

static int request_member(struct llm_scan *s, const struct json_event *e)
{
    switch (llm_path_at(&s->path, 1)) {
    case LLM_K_MODEL: return llm_take_model(s, e);
    case LLM_K_STREAM: return llm_take_stream(s, e);
    case LLM_K_MAX_TOKENS: return llm_take_count(s, e, "max_tokens", 0, &s->max_tokens);
    default: return 0;
    }
}

/* A string in the source of a block: whether it is the attachment, which costs by its kind and not
 * by its bytes. */
static bool take_source(struct llm_part *part, enum llm_key member, const struct json_event *e)
{
    switch (member) {
    case LLM_K_DATA:
        part->bytes += e->decoded;
        part->attached = true;
        return true;
    case LLM_K_URL:
    case LLM_K_FILE_ID: part->attached = true; return true;
    case LLM_K_TYPE: part->plain = part->plain || llm_text_is(e, SLICE("text")); return false;
    default: return false;
    }
}

static void count_message(struct llm_scan *s, const struct json_event *e)
{
    int d = e->depth, block = block_above(&s->path, d);
    enum llm_key member = llm_path_at(&s->path, block + 1), last = llm_path_at(&s->path, d);
    if (block > 0 && d > block && member == LLM_K_INPUT) {
        s->text += llm_bytes(e);
        return;
    }
    if (e->type != JSON_STRING)
        return;
    if (block > 0 && d == block + 1 && last == LLM_K_TYPE)
        s->part[block].image = llm_text_is(e, SLICE("image"));
    bool source = block > 0 && d == block + 2 && member == LLM_K_SOURCE;
    if (!source || !take_source(&s->part[block], last, e))
        s->text += e->decoded;
}

static void count(struct llm_scan *s, const struct json_event *e)
{
    enum llm_key top = llm_path_at(&s->path, 1);
    if (top == LLM_K_MESSAGES)
        count_message(s, e);
    else if (is_schema(top) ? e->depth > 1 : top == LLM_K_SYSTEM && e->type == JSON_STRING)
        s->text += llm_bytes(e);
}

static int request(struct llm_scan *s, const struct json_event *e)
{
    int d = e->depth;
    if (d > 1 && (e->type == JSON_OBJECT || e->type == JSON_OBJECT_END) &&
        block_above(&s->path, d) == d) {
        if (e->type == JSON_OBJECT_END)
            llm_count_part(s, &s->part[d]);
        s->part[d] = (struct llm_part){ 0 };
    }
    if (d == 0 || llm_ends(e))
        return 0;
    if (e->type == JSON_KEY)
        return request_key(s, e);
    count(s, e);
    return d == 1 ? request_member(s, e) : 0;
}

static int request_end(struct llm_scan *s)
{
    if (llm_estimate(s, &s->max_tokens, "max_tokens") != 0)
        return 1;
    llm_cap_output(s, &s->max_tokens, "max_tokens");
    return 0;
}

/* The depth of the content block of an answer, or of the event that begins one; 0 where there is
 * none. */
static int answer_block(const struct llm_path *p)
{
    enum llm_key top = llm_path_at(p, 1);
    if (top == LLM_K_CONTENT_BLOCK)
        return 1;
    return top == LLM_K_CONTENT && llm_path_at(p, 2) == LLM_K_ITEM ? 2 : 0;
}

static bool answer_input(const struct llm_path *p, int d)
{
    int block = answer_block(p);
    return block > 0 && d > block + 1 && llm_path_at(p, block + 1) == LLM_K_INPUT;
}

static bool answer_text(const struct llm_path *p, int d)
{
    enum llm_key last = llm_path_at(p, d);
    int block = answer_block(p);
    if (d == 2 && llm_path_at(p, 1) == LLM_K_DELTA)
        return last == LLM_K_TEXT || last == LLM_K_THINKING || last == LLM_K_PARTIAL_JSON;
    if (block > 0 && d == block + 1)
        return last == LLM_K_TEXT || last == LLM_K_THINKING || last == LLM_K_NAME;
    return answer_input(p, d);
}

static void answer_number(struct llm_answer *a, const struct json_event *e)
{
    struct llm_tally *t = &a->event.tally;
    switch (llm_path_at(&a->path, e->depth)) {
    case LLM_K_INPUT_TOKENS: llm_answer_number(a, e, &t->input); break;
    case LLM_K_CACHE_CREATION_INPUT_TOKENS: llm_answer_number(a, e, &t->cache_write); break;
    case LLM_K_CACHE_READ_INPUT_TOKENS: llm_answer_number(a, e, &t->cache_read); break;
    case LLM_K_OUTPUT_TOKENS: llm_answer_number(a, e, &t->output); break;
    default: break;
    }
}

static void answer(struct llm_answer *a, const struct json_event *e)
{
    const struct llm_path *p = &a->path;
    bool inner = e->depth > 1 && llm_path_at(p, 1) == LLM_K_MESSAGE;
    int d = e->depth - inner;
    enum llm_key member = llm_path_at(p, inner ? 2 : 1);
    if (e->type != JSON_STRING && !llm_ends(e) && answer_input(p, e->depth))
        a->usage.text_bytes += llm_bytes(e);
    if (d == 0 || !llm_begins(e))
        return;
    if (d == 1 && !inner && member == LLM_K_TYPE) {
        a->event.last = llm_text_is(e, SLICE("message_stop"));
        /* more follows what looked like the end: a server's tool has been used */
        if (a->usage.known && llm_text_is(e, SLICE("content_block_start"))) {
            a->usage.known = false;
            a->usage.total = 0;
        }
        a->usage.error = a->usage.error || llm_text_is(e, SLICE("error"));
    } else if (d == 1 && !inner && member == LLM_K_ERROR) {
        llm_answer_error(a, e);
    } else if (d == 1 && member == LLM_K_USAGE && e->type == JSON_OBJECT) {
        *(inner ? &a->event.inner_usage : &a->event.usage) = true;
    } else if (d == 2 && member == LLM_K_USAGE) {
        answer_number(a, e);
    }
}

static void replace(struct llm_number *number, struct llm_number by)
{
    if (by.given)
        *number = by;
}

/* A number that is absent stands as an earlier event gave it. Only the outer usage (message_delta,
 * or an answer that is no stream) tells the output. */
static void answer_end(struct llm_answer *a)
{
    struct llm_tally *sum = &a->sum, *t = &a->event.tally;
    a->usage.done = a->usage.done || a->event.last;
    if ((!a->event.usage && !a->event.inner_usage) || a->event.bad_usage)
        return;
    replace(&sum->input, t->input);
    replace(&sum->cache_write, t->cache_write);
    replace(&sum->cache_read, t->cache_read);
    if (a->event.usage)
        replace(&sum->output, t->output);
    struct llm_tally all = { .input = sum->input, .output = sum->output };
    all.input.value += sum->cache_write.value + sum->cache_read.value;
    if (!all.input.given || all.input.value == 0 || all.input.value > LLM_TOKENS_END)
        return;
    a->usage.input_known = true;
    a->usage.input = all.input.value;
    llm_answer_usage(a, &all);
}

const struct llm_dialect llm_messages = { request,     request_end, answer,
                                          answer_text, answer_end,  NULL };
