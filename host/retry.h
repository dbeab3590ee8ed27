/* When a request is sent to another target: the policy of a route, and the budget that keeps
 * retries from multiplying an outage. Plain data and a clock that is passed in.
 *
 * The budget is that of Finagle: in any RETRY_WINDOW seconds there may be as many retries as a
 * share of the requests begun in them, and RETRY_MIN more, so that a quiet gateway retries too.
 * Only retries whose request a target may have worked on count: one that was never connected to had
 * no work, so going on to the next multiplies nothing. */
#ifndef TOLLGATE_RETRY_H
#define TOLLGATE_RETRY_H

#include <stdbool.h>
#include <stdint.h>

#include "headers.h"

enum { RETRY_WINDOW = 10, RETRY_MIN = 10 }; /* seconds; retries in them */

struct retry_policy {
    uint32_t attempts;   /* at most, the first included */
    uint64_t timeout_ms; /* of all attempts, up to the head that is relayed */
    double budget;       /* share of requests; 0: none is retried */
    bool unsafe;         /* also where the method is not idempotent and its bytes have gone */
    bool peek;           /* look at a stream's first event before the head is committed */
    uint64_t buffer;     /* bytes of a body kept for another attempt */
    uint64_t out_ms; /* the longest that a Retry-After keeps a target out; 0: it is not obeyed */
    bool connect, timeout, closed, bad_answer; /* what is retried besides statuses */
    uint64_t statuses[4];                      /* bits from 400 on */
};

void retry_add_status(struct retry_policy *p, int status);
bool retry_status(const struct retry_policy *p, int status);
/* "connect", "timeout", "closed" or "bad_answer"; false where it is none of them. */
bool retry_add_error(struct retry_policy *p, struct slice name);
bool retry_error(const struct retry_policy *p, const char *name);

/* When an answer asks to come back, from `wall_ms` on: retry-after-ms, which LLM providers send,
 * else Retry-After, as seconds or as a date (RFC 9110, section 10.2.3). -1 where it does not, or
 * not in a way that can be read. */
int64_t retry_after_ms(const struct headers *answer, int64_t wall_ms);

/* Zeroed at the start. Time is in ms, and does not go back. */
struct retry_budget {
    uint64_t second; /* of the newest slot */
    struct {
        uint32_t requests, retries;
    } slot[RETRY_WINDOW];
};

void retry_budget_request(struct retry_budget *b, uint64_t now_ms);
/* Whether one more is left; retry_budget_spend takes it. */
bool retry_budget_left(struct retry_budget *b, double share, uint64_t now_ms);
void retry_budget_spend(struct retry_budget *b, uint64_t now_ms);

#endif
