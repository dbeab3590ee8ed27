/* See meter.h. */
#include "meter.h"

struct meter meter_of(const struct llm_request *r, double bytes_per_token,
                      enum meter_policy on_missing_usage)
{
    enum meter_policy policy = r->background ? METER_RESERVED : on_missing_usage;
    return (struct meter){ r->prompt_tokens, r->reserve, bytes_per_token, policy };
}

static enum meter_cause cause_of(const struct llm_usage *usage, const struct meter_facts *facts)
{
    if (usage != NULL && usage->known)
        return METER_USAGE;
    if (!facts->reached_origin)
        return METER_NOT_REACHED;
    if (facts->status != 0 && (facts->status < 200 || facts->status > 299))
        return METER_ORIGIN_ERROR;
    if (facts->client_gone)
        return METER_CLIENT_GONE;
    if (usage != NULL && usage->error)
        return METER_ERROR_EVENT;
    if (!facts->complete)
        return METER_CUT_OFF;
    bool readable = facts->body == LLM_BODY_JSON || facts->body == LLM_BODY_STREAM;
    if (!readable || (usage != NULL && usage->malformed))
        return METER_UNREADABLE;
    return METER_NO_USAGE;
}

static uint64_t missing(const struct meter *m, const struct llm_usage *usage, enum llm_body body)
{
    uint64_t output = m->reserve > m->prompt_tokens ? m->reserve - m->prompt_tokens : 0;
    uint64_t input = m->reserve - output, text = 0;
    if (usage != NULL) {
        input = usage->input_known ? usage->input : input;
        text = llm_tokens(usage->text_bytes, m->bytes_per_token);
        text = usage->output > text ? usage->output : text;
    }
    uint64_t seen = input + (text < output ? text : output);
    /* The text of an encoded answer cannot be counted, so the largest answer is assumed. */
    bool whole = m->on_missing_usage == METER_RESERVED || body == LLM_BODY_ENCODED;
    return whole && seen < m->reserve ? m->reserve : seen;
}

struct meter_charge meter_charge(const struct meter *m, const struct llm_usage *usage,
                                 const struct meter_facts *facts)
{
    enum meter_cause cause = cause_of(usage, facts);
    if (cause == METER_USAGE)
        return (struct meter_charge){ usage->total, cause };
    if (cause == METER_NOT_REACHED || cause == METER_ORIGIN_ERROR)
        return (struct meter_charge){ 0, cause };
    return (struct meter_charge){ missing(m, usage, facts->body), cause };
}

const char *meter_cause_name(enum meter_cause cause)
{
    static const char *const names[METER_CAUSES] = { "usage",       "not_reached", "origin_error",
                                                     "client_gone", "error_event", "cut_off",
                                                     "unreadable",  "no_usage" };
    return names[cause];
}

bool meter_policy_of_name(struct slice name, enum meter_policy *out)
{
    *out = slice_eq(name, SLICE("reserved")) ? METER_RESERVED : METER_SEEN;
    return *out == METER_RESERVED || slice_eq(name, SLICE("seen"));
}
