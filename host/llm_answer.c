/* Usage and errors of answers, as far as all APIs have them in common. */
#include "llm_api.h"

void llm_answer_number(struct llm_answer *a, const struct json_event *e, struct llm_number *out)
{
    if (e->type == JSON_NULL)
        return;
    out->given = llm_uint(e, &out->value) && out->value <= LLM_TOKENS_END;
    a->event.bad_usage = a->event.bad_usage || !out->given;
}

void llm_answer_usage(struct llm_answer *a, const struct llm_tally *t)
{
    uint64_t sum = t->input.value + t->output.value;
    /* Some vendors fill in the parts and leave the total at 0. */
    bool has_total = t->total.given && t->total.value > 0;
    if (!has_total && (!t->input.given || !t->output.given || sum == 0 || sum > LLM_TOKENS_END))
        return;
    struct llm_usage *u = &a->usage;
    u->known = true;
    u->input_known = t->input.given;
    u->input = t->input.value;
    u->output = t->output.value;
    u->total = has_total ? t->total.value : sum;
    if (t->input.given && !t->output.given && u->total > u->input)
        u->output = u->total - u->input;
}

bool llm_answer_error(struct llm_answer *a, const struct json_event *e)
{
    if (!llm_begins(e) || e->type == JSON_NULL || e->type == JSON_FALSE)
        return false;
    a->usage.error = true;
    return true;
}
