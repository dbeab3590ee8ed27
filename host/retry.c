/* See retry.h. */
#include "retry.h"

#include <stdlib.h>
#include <time.h>

enum { FIRST = 400, LAST = 599 }; /* statuses */

static bool *flag_of(struct retry_policy *p, struct slice name)
{
    if (slice_eq(name, SLICE("connect")))
        return &p->connect;
    if (slice_eq(name, SLICE("timeout")))
        return &p->timeout;
    if (slice_eq(name, SLICE("closed")))
        return &p->closed;
    return slice_eq(name, SLICE("bad_answer")) ? &p->bad_answer : NULL;
}

void retry_add_status(struct retry_policy *p, int status)
{
    unsigned bit = (unsigned)(status - FIRST);
    if (status >= FIRST && status <= LAST)
        p->statuses[bit / 64] |= (uint64_t)1 << bit % 64;
}

bool retry_status(const struct retry_policy *p, int status)
{
    unsigned bit = (unsigned)(status - FIRST);
    return status >= FIRST && status <= LAST && (p->statuses[bit / 64] >> bit % 64 & 1) != 0;
}

bool retry_add_error(struct retry_policy *p, struct slice name)
{
    bool *flag = flag_of(p, name);
    if (flag != NULL)
        *flag = true;
    return flag != NULL;
}

bool retry_error(const struct retry_policy *p, const char *name)
{
    const bool *flag = flag_of((struct retry_policy *)p, slice_of(name));
    return flag != NULL && *flag;
}

/* --- Retry-After --- */

/* A number of units of `scale` ms, fractions allowed; -1 where the text is none. */
static int64_t number_ms(struct slice text, double scale)
{
    char copy[32], *end;
    if (text.p == NULL || text.n == 0 || text.n >= sizeof copy)
        return -1;
    memcpy(copy, text.p, text.n);
    copy[text.n] = '\0';
    double value = strtod(copy, &end);
    if (strspn(copy, "0123456789.") != text.n || *end != '\0' || !(value >= 0 && value < 1e9))
        return -1;
    return (int64_t)(value * scale + 0.999);
}

static int64_t date_ms(struct slice text, int64_t wall_ms)
{
    char copy[64];
    struct tm tm = { 0 };
    if (text.p == NULL || text.n >= sizeof copy)
        return -1;
    memcpy(copy, text.p, text.n);
    copy[text.n] = '\0';
    const char *end = strptime(copy, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    if (end == NULL || *end != '\0')
        return -1;
    int64_t ms = (int64_t)timegm(&tm) * 1000 - wall_ms;
    return ms > 0 ? ms : 0;
}

int64_t retry_after_ms(const struct headers *answer, int64_t wall_ms)
{
    struct slice text = headers_get_id(answer, HEADER_RETRY_AFTER);
    int64_t ms = number_ms(headers_get(answer, SLICE("retry-after-ms")), 1);
    if (ms < 0)
        ms = number_ms(text, 1000);
    return ms >= 0 ? ms : date_ms(text, wall_ms);
}

/* --- the budget --- */

/* Clears the slots of seconds that have passed since. */
static void turn(struct retry_budget *b, uint64_t now_ms)
{
    uint64_t now = now_ms / 1000, passed = now - b->second;
    if (now <= b->second)
        return;
    for (uint64_t i = 1; i <= passed && i <= RETRY_WINDOW; i++) {
        b->slot[(b->second + i) % RETRY_WINDOW].requests = 0;
        b->slot[(b->second + i) % RETRY_WINDOW].retries = 0;
    }
    b->second = now;
}

void retry_budget_request(struct retry_budget *b, uint64_t now_ms)
{
    turn(b, now_ms);
    b->slot[b->second % RETRY_WINDOW].requests++;
}

bool retry_budget_left(struct retry_budget *b, double share, uint64_t now_ms)
{
    uint64_t requests = 0, retries = 0;
    turn(b, now_ms);
    for (unsigned i = 0; i < RETRY_WINDOW; i++) {
        requests += b->slot[i].requests;
        retries += b->slot[i].retries;
    }
    return share > 0 && (double)retries + 1 <= RETRY_MIN + share * (double)requests;
}

void retry_budget_spend(struct retry_budget *b, uint64_t now_ms)
{
    turn(b, now_ms);
    b->slot[b->second % RETRY_WINDOW].retries++;
}
