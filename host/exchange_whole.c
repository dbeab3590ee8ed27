/* See exchange.h: two ways in which an answer does not simply pass through.
 *
 * A plugin asks for the whole answer in its response phase: it is gathered, up to the route's body
 * limit, while the plugin waits, and goes out behind that phase with the length that it then has.
 * Usage is read from what the origin sent, before any edit.
 *
 * A client leaves while the origin still answers, and the answer is read on, bounded in bytes and
 * time: for its usage (on_client_gone = "drain"), so that what the origin charges is what is
 * settled, or because a plugin keeps it. What is only read for its usage ends with the process;
 * what a plugin keeps has as long as a drain takes.
 */
#include "container.h"
#include "exchange.h"
#include "log.h"

/* --- the whole answer --- */

static void on_gather(struct deferred *d)
{
    struct exchange *x = CONTAINER(d, struct exchange, gather);
    if (x->gathering)
        exchange_origin_resume(x);
}

enum exchange_gather exchange_gather(struct exchange *x, void (*on_gathered)(void *arg), void *arg)
{
    if (x->gathered)
        return GATHER_DONE;
    if (x->source == SOURCE_FUNCTION || exchange_switches(x))
        return GATHER_NEVER;
    if (x->source == SOURCE_BYTES) {
        buf_add_slice(&x->whole_answer, x->answer);
        exchange_budget_note(x);
        x->gathered = true;
        return GATHER_DONE;
    }
    if (on_gathered == NULL)
        return GATHER_WAIT;
    exchange_open_reader(x);
    x->gathering = true;
    x->on_gathered = on_gathered;
    x->on_gathered_arg = arg;
    x->gather.run = on_gather;
    loop_defer(x->sv->loop, &x->gather, LOOP_COLLECT);
    return GATHER_WAIT;
}

void exchange_ungather(struct exchange *x)
{
    x->gathering = false;
    x->on_gathered = NULL;
    loop_undefer(x->sv->loop, &x->gather);
}

struct buf *exchange_gathered(struct exchange *x)
{
    return x->gathered ? &x->whole_answer : NULL;
}

static void keep(void *arg, struct slice piece)
{
    struct exchange *x = arg;
    buf_add_slice(&x->whole_answer, piece);
    exchange_record_piece(x, piece);
}

bool exchange_gather_piece(struct exchange *x, struct slice piece)
{
    if (x->whole_answer.n + piece.n > x->route->body_limit)
        return false;
    if (x->reader != NULL)
        llm_reader_feed(x->reader, piece, keep, x);
    else
        keep(x, piece);
    exchange_budget_note(x);
    return true;
}

void exchange_gather_end(struct exchange *x)
{
    void (*cb)(void *) = x->on_gathered;
    if (x->reader != NULL)
        llm_reader_end(x->reader, keep, x);
    exchange_record_end(x);
    x->gathering = false;
    x->gathered = true;
    x->on_gathered = NULL;
    exchange_origin_let_go(x, true);
    cb(x->on_gathered_arg);
}

/* --- reading on without a client --- */

static void on_read_on_limit(struct timer *t)
{
    exchange_finish(CONTAINER(t, struct exchange, read_on_timer), ENDED_CLIENT_GONE);
}

void exchange_keep_origin(struct exchange *x, uint64_t ms, uint64_t bytes)
{
    x->kept = true;
    x->read_on_ms = ms > x->read_on_ms ? ms : x->read_on_ms;
    x->read_on_bytes = bytes > x->read_on_bytes ? bytes : x->read_on_bytes;
}

/* Only an answer whose request has gone up whole is worth reading on. */
bool exchange_read_on(struct exchange *x)
{
    bool owed = x->origin != NULL && x->upload_done &&
                (x->stage == STAGE_ORIGIN || x->source == SOURCE_ORIGIN);
    if (x->read_on_ms == 0 || !owed || x->hold == HOLD_DECIDED)
        return false;
    x->gone = true;
    x->read_on_timer.cb = on_read_on_limit;
    timer_set(x->sv->loop, &x->read_on_timer, x->read_on_ms);
    x->next = x->sv->gone;
    x->link = &x->sv->gone;
    if (x->next != NULL)
        x->next->link = &x->next;
    x->sv->gone = x;
    if (x->stage == STAGE_RELAY)
        exchange_origin_resume(x);
    return true;
}

void exchange_read_on_stop(struct exchange *x)
{
    timer_stop(&x->read_on_timer);
    if (!x->gone || x->link == NULL)
        return;
    *x->link = x->next;
    if (x->next != NULL)
        x->next->link = x->link;
    x->link = NULL;
}

void exchange_end_gone(struct services *sv, const struct generation *g, bool kept)
{
    for (struct exchange *x = sv->gone, *next; x != NULL; x = next) {
        next = x->next;
        if ((kept || !x->kept) && (g == NULL || x->gen == g))
            exchange_finish(x, ENDED_SHUTDOWN);
    }
}
