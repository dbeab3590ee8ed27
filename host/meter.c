/* See meter.h. */
#include "meter.h"

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
    /* The text of an encoded answer cannot be counted, so the largest answer is assumed. */
    if (m->on_missing_usage == METER_RESERVED || body == LLM_BODY_ENCODED)
        return m->reserve;
    uint64_t text = usage == NULL ? 0 : llm_tokens(usage->text_bytes, m->bytes_per_token);
    if (m->prompt_tokens >= m->reserve || text > m->reserve - m->prompt_tokens)
        return m->reserve;
    return m->prompt_tokens + text;
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

const char *meter_policy_name(enum meter_policy policy)
{
    return policy == METER_SEEN ? "seen" : "reserved";
}
