/* See quota.h; this file has what callers call, and the end of a turn. Settlements are formatted
 * before admissions there, for one connection: whoever gave a slot back in this turn makes room for
 * who asks in it. */
#include "quota_internal.h"

#include <math.h>

#include "container.h"
#include "log.h"

/* --- small things --- */

void quota_list_init(struct quota_list *l)
{
    l->first = NULL;
    l->last = &l->first;
}

void quota_list_push(struct quota_list *l, struct quota_entry *e)
{
    e->next = NULL;
    *l->last = e;
    l->last = &e->next;
}

struct quota_entry *quota_list_pop(struct quota_list *l)
{
    struct quota_entry *e = l->first;
    if (e == NULL)
        return NULL;
    l->first = e->next;
    if (l->first == NULL)
        l->last = &l->first;
    e->next = NULL;
    return e;
}

void quota_log_error(struct quota *q, const char *what, const char *text)
{
    uint64_t now = loop_now(q->loop);
    if (q->error_logged_at != 0 && now - q->error_logged_at < QUOTA_ERROR_LOG_MS)
        return;
    q->error_logged_at = now;
    log_warn("quota: %s: %s", what, text);
}

const char *quota_limits_check(const struct quota_limits *l)
{
    const double longest = 31 * 86400; /* seconds */
    if (l->has_rate && !(isfinite(l->rate) && l->rate > 0))
        return "rate must be above 0";
    if (l->has_rate && !(l->burst >= 1 && l->burst < 0x1p53))
        return "burst must be at least 1 and below 2^53";
    if (l->has_rate && !(l->burst / l->rate <= longest))
        return "burst / rate must be at most 31 days";
    if (l->has_budget && l->budget > QUOTA_TOKENS_MAX)
        return "a budget must be below 2^53 tokens";
    if (l->has_concurrency && (l->concurrency < 1 || l->concurrency > QUOTA_TOKENS_MAX))
        return "concurrency must be at least 1 and below 2^53";
    return NULL;
}

const struct quota_stats *quota_stats(const struct quota *q)
{
    return q->stats;
}

void quota_count_at(struct quota *q, struct quota_stats *at)
{
    at->pending = q->stats->pending;
    q->stats = at;
}

void quota_set_batch(struct quota *q, void (*on_batch)(void *arg, bool settle, unsigned requests),
                     void *arg)
{
    q->on_batch = on_batch;
    q->on_batch_arg = arg;
}

/* --- the end of a turn --- */

static void decide_at_once(struct quota *q)
{
    struct quota_list list = q->at_once;
    if (list.first == NULL)
        return;
    quota_list_init(&q->at_once);
    for (struct quota_entry *e; (e = list.first) != NULL;) {
        list.first = e->next;
        if (e->result.verdict == QUOTA_ADMITTED) {
            int64_t start;
            e->result.now_ms = quota_now(q);
            quota_month(e->result.now_ms, &start, &e->result.month_end_ms);
            q->stats->admitted++;
            quota_entry_tell(e, false);
        } else {
            quota_entry_unavailable(e);
        }
        quota_entry_release(e);
    }
}

void quota_on_collect(struct deferred *d)
{
    struct quota *q = CONTAINER(d, struct quota, collect);
    struct quota_key *dirty = q->dirty;
    q->dirty = NULL;
    q->dirty_last = &q->dirty;
    quota_hold(q);
    for (struct quota_key *k = dirty; k != NULL; k = k->dirty_next)
        quota_flush_settles(q, k);
    for (struct quota_key *k = dirty, *next; k != NULL; k = next) {
        next = k->dirty_next;
        k->dirty = false;
        quota_flush_waits(q, k);
        quota_key_put(q, k);
    }
    decide_at_once(q);
    quota_let_go(q);
}

/* --- requests --- */

static struct quota_entry *entry_of(void *handle)
{
    return handle;
}

struct quota_wait *quota_admit(struct quota *q, struct slice key_id, struct slice request_id,
                               const struct quota_limits *limits, uint64_t reserve,
                               uint64_t deadline_ms, quota_cb cb, void *arg)
{
    struct quota_entry *e = quota_entry_new(q, key_id, request_id, limits);
    e->cb = cb;
    e->arg = arg;
    e->deadline_ms = deadline_ms > 0 ? deadline_ms : rds_deadline_ms(q->rds);
    e->counted = limits->has_budget;
    e->slotted = limits->has_concurrency;
    e->reserve = !e->counted ? 0 : reserve < QUOTA_TOKENS_MAX ? reserve : QUOTA_TOKENS_MAX;
    if (e->key != NULL) {
        quota_list_push(&e->key->waits, e);
        quota_key_dirty(q, e->key);
    } else {
        bool limited = limits->has_rate || limits->has_budget || limits->has_concurrency;
        e->result.verdict =
            limited ? QUOTA_UNAVAILABLE : QUOTA_ADMITTED; /* limited, but an id is empty */
        quota_list_push(&q->at_once, e);
        loop_defer(q->loop, &q->collect, LOOP_COLLECT);
    }
    return (struct quota_wait *)e;
}

void quota_cancel(struct quota_wait *w)
{
    entry_of(w)->cb = NULL;
}

/* Its reservation's name is not that of the admission that Redis may have decided all the same:
 * that one is settled at 0 or voided under its own, and must not meet this spend. */
static void put_unadmitted_id(struct buf *out, struct slice request_id)
{
    buf_add_slice(out, request_id);
    buf_add_text(out, "~");
}

struct quota_grant *quota_grant_unadmitted(struct quota *q, struct slice key_id,
                                           struct slice request_id,
                                           const struct quota_limits *limits)
{
    int64_t start, end;
    struct buf id;
    buf_init(&id);
    put_unadmitted_id(&id, request_id);
    struct quota_entry *e = quota_entry_new(q, key_id, buf_slice(&id), limits);
    buf_deinit(&id);
    e->form = QUOTA_NONE;
    e->counted = limits->has_budget && e->key != NULL;
    e->month = quota_month(quota_now(q), &start, &end);
    quota_entry_open(e);
    return (struct quota_grant *)e;
}

void quota_settle(struct quota *q, struct quota_grant *g, uint64_t actual)
{
    struct quota_entry *e = entry_of(g);
    quota_entry_close(e);
    e->actual = actual < QUOTA_TOKENS_MAX ? actual : QUOTA_TOKENS_MAX;
    if (e->counted && e->form == QUOTA_FIRST && e->actual > e->reserve)
        q->stats->overspent++;
    if (quota_needs_settling(e))
        quota_send_settlement(e);
    else
        quota_entry_release(e);
}

bool quota_idle(const struct quota *q)
{
    return q->pins == 0 && q->dirty == NULL && q->at_once.first == NULL && q->stats->pending == 0;
}
