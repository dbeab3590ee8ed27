/* See exchange.h: limits.buffered, what a worker keeps of bodies and answers for plugins and for
 * another attempt. Each exchange counts what its buffers have taken, so that whatever became of
 * them, nothing is left in the sum once all have ended. What is held already may come to its end;
 * what would need more than is left is refused where it grows. */
#include <inttypes.h>

#include "exchange.h"
#include "log.h"

enum { OVER_MS = 10000 };

static void set_taken(struct exchange *x, size_t n)
{
    x->sv->buffered = x->sv->buffered - x->buffered + n;
    x->buffered = n;
}

void exchange_budget_note(struct exchange *x)
{
    struct services *sv = x->sv;
    set_taken(x, x->body.cap + x->held_answer.cap + x->pending.cap + x->whole_answer.cap +
                     x->record.cap);
    if (sv->budget_spent == 0 || loop_now(sv->loop) - sv->budget_spent < OVER_MS)
        return;
    sv->budget_spent = 0;
    log_info("limits.buffered: nothing has been refused for %d s", OVER_MS / 1000);
}

void exchange_budget_leave(struct exchange *x)
{
    set_taken(x, 0);
}

bool exchange_budget_has(struct exchange *x, const struct buf *b, size_t n)
{
    struct services *sv = x->sv;
    uint64_t limit = x->gen->settings.buffered;
    size_t doubled = b->cap > n ? b->cap : n, grows = b->cap - b->n < n ? doubled : 0;
    if (grows == 0 || sv->buffered + grows <= limit)
        return true;
    sv->counters->unbuffered++;
    if (sv->budget_spent == 0)
        log_warn("limits.buffered: %zu of %" PRIu64
                 " bytes are taken: bodies and answers that plugins want whole are refused",
                 sv->buffered, limit);
    sv->budget_spent = loop_now(sv->loop);
    return false;
}
