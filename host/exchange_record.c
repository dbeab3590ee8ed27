/* See exchange.h: a copy of the origin's answer, for a plugin that stores it. It is taken where a
 * piece has passed the usage reader and has not met the plugins' body phase: so a replay of it goes
 * the same way through the plugins as the answer itself did.
 *
 * A copy that grows beyond its limit, or finds no room in limits.buffered, is let go at once; it is
 * whole, or nobody gets it. */
#include "exchange.h"

void exchange_record(struct exchange *x, uint64_t max)
{
    x->recording = RECORD_OPEN;
    x->record_max = max;
}

void exchange_record_told(struct exchange *x, void (*on_record)(void *arg), void *arg)
{
    x->on_record = on_record;
    x->on_record_arg = arg;
}

static void tell(struct exchange *x)
{
    if (x->on_record != NULL)
        x->on_record(x->on_record_arg);
}

void exchange_record_piece(struct exchange *x, struct slice piece)
{
    if (x->recording != RECORD_OPEN || x->source != SOURCE_ORIGIN)
        return;
    if (piece.n <= x->record_max - x->record.n && exchange_budget_has(x, &x->record, piece.n)) {
        buf_add_slice(&x->record, piece);
        exchange_budget_note(x);
        tell(x);
        return;
    }
    buf_deinit(&x->record);
    exchange_budget_note(x);
    x->recording = RECORD_TOO_LARGE;
    tell(x);
}

void exchange_record_end(struct exchange *x)
{
    if (x->recording == RECORD_OPEN && x->source == SOURCE_ORIGIN && x->origin_complete)
        x->recording = RECORD_WHOLE;
    tell(x);
}

const struct buf *exchange_recorded(const struct exchange *x, const char **why)
{
    static const char *const names[] = { "none", "incomplete", "too_large", NULL };
    *why = names[x->source == SOURCE_ORIGIN ? x->recording : RECORD_NONE];
    return *why == NULL ? &x->record : NULL;
}
