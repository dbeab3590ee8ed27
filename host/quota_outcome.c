/* What the admission script answers, read. */
#include "quota_internal.h"

#include <math.h>
#include <stdlib.h>

/* "VERDICT TOKENS SPENT INFLIGHT" */
enum quota_outcome quota_read_outcome(const redisReply *reply, struct quota_result *out)
{
    static const char *const words[] = { "admitted ", "rate ", "budget ", "concurrency ",
                                         "exists " };
    if (reply->type != REDIS_REPLY_STRING)
        return QUOTA_OUT_BROKEN;
    for (int i = QUOTA_OUT_ADMITTED; i < QUOTA_OUT_BROKEN; i++) {
        size_t n = strlen(words[i]);
        if (strncmp(reply->str, words[i], n) != 0)
            continue;
        char *at = reply->str + n;
        out->tokens = strtod(at, &at);
        double spent = strtod(at, &at);
        double inflight = strtod(at, &at);
        if (*at != '\0')
            return QUOTA_OUT_BROKEN;
        out->spent = spent > 0 ? (uint64_t)fmin(spent, 0x1p63) : 0;
        out->inflight = inflight > 0 ? (uint64_t)inflight : 0;
        return (enum quota_outcome)i;
    }
    return QUOTA_OUT_BROKEN;
}

/* When one token will be there. */
static int64_t until_token(const struct quota_limits *l, double tokens)
{
    double ms = ceil((1 - tokens) / l->rate * 1000);
    return ms < 1 ? 1 : (int64_t)ms;
}

void quota_put_result(const struct quota_call *c, struct quota_entry *e, enum quota_outcome o,
                      int64_t now)
{
    struct quota_result *r = &e->result;
    r->now_ms = now;
    r->month_end_ms = c->month_end;
    r->retry_ms = 0;
    if (o == QUOTA_OUT_ADMITTED) {
        r->verdict = QUOTA_ADMITTED;
    } else if (o == QUOTA_OUT_RATE) {
        r->verdict = QUOTA_RATE;
        r->retry_ms = until_token(&e->limits, r->tokens);
    } else if (o == QUOTA_OUT_BUDGET) {
        r->verdict = QUOTA_BUDGET;
        r->retry_ms = c->month_end - now;
    } else {
        r->verdict = QUOTA_CONCURRENCY;
        r->retry_ms = QUOTA_CONCURRENCY_RETRY_MS;
    }
}

bool quota_is_text(const redisReply *reply, const char *text)
{
    return reply->type == REDIS_REPLY_STRING && strcmp(reply->str, text) == 0;
}

/* Every outcome can be read, so that a call is believed whole or not at all. */
bool quota_is_sound(const struct quota_call *c, const redisReply *reply)
{
    struct quota_result ignored;
    if (reply->elements != c->n + 2 || !quota_is_text(reply->element[0], "ok"))
        return false;
    for (unsigned i = 0; i < c->n; i++) {
        if (quota_read_outcome(reply->element[2 + i], &ignored) == QUOTA_OUT_BROKEN)
            return false;
    }
    return true;
}
