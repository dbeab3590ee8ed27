/* OpenAI's embeddings. The prompt is all they cost: text, or the ids of tokens, each of which is
 * one. The vectors that come back are no text, and there is no stream. */
#include "llm_api.h"

static int request(struct llm_scan *s, const struct json_event *e)
{
    enum llm_key top = llm_path_at(&s->path, 1);
    if (e->depth == 0 || llm_ends(e))
        return 0;
    if (e->type == JSON_KEY) {
        bool decides = e->depth == 1 && (top == LLM_K_MODEL || top == LLM_K_INPUT);
        return decides ? llm_once(s, top) : 0;
    }
    if (top == LLM_K_INPUT && e->type == JSON_STRING)
        s->text += e->decoded;
    else if (top == LLM_K_INPUT && e->type == JSON_NUMBER)
        s->tokens++;
    return e->depth == 1 && top == LLM_K_MODEL ? llm_take_model(s, e) : 0;
}

static int request_end(struct llm_scan *s)
{
    const struct llm_number none = { .given = true };
    return llm_estimate(s, &none, "input");
}

static void answer_usage(struct llm_answer *a, const struct json_event *e)
{
    switch (llm_path_at(&a->path, 2)) {
    case LLM_K_PROMPT_TOKENS: llm_answer_number(a, e, &a->event.tally.input); break;
    case LLM_K_TOTAL_TOKENS: llm_answer_number(a, e, &a->event.tally.total); break;
    default: break;
    }
}

static void answer(struct llm_answer *a, const struct json_event *e)
{
    enum llm_key top = llm_path_at(&a->path, 1);
    if (e->depth == 1 && top == LLM_K_USAGE)
        a->event.usage = a->event.usage || e->type == JSON_OBJECT;
    else if (e->depth == 1 && top == LLM_K_ERROR)
        llm_answer_error(a, e);
    else if (e->depth == 2 && top == LLM_K_USAGE && llm_begins(e))
        answer_usage(a, e);
}

static bool answer_text(const struct llm_path *p, int d)
{
    (void)p;
    (void)d;
    return false;
}

static void answer_end(struct llm_answer *a)
{
    struct llm_tally *t = &a->event.tally;
    if (!a->event.usage || a->event.bad_usage)
        return;
    if (!t->input.given)
        t->input = t->total;
    t->output = (struct llm_number){ .given = true };
    llm_answer_usage(a, t);
}

const struct llm_dialect llm_embeddings = { request,     request_end, answer,
                                            answer_text, answer_end,  NULL };
