/* Entries (one request each) and calls (one script call each): their memory and their lists. */
#include "quota_internal.h"

#include "mem.h"

/* --- entries --- */

/* The reservation's name and the member of q:conc, both in e->text. */
static void put_names(struct quota_entry *e, struct slice request_id)
{
    struct buf b;
    buf_init(&b);
    if (e->key->tag.n > 0 && !slice_starts(request_id, e->key->tag))
        buf_add_slice(&b, e->key->tag);
    buf_add_slice(&b, request_id);
    size_t id_n = b.n;
    quota_name_reserved(&b, e->key, (struct slice){ b.p, id_n });
    e->text = b.n <= sizeof e->near ? e->near : mem_alloc(b.n);
    memcpy(e->text, b.p, b.n);
    e->id = (struct slice){ e->text, id_n };
    e->name = (struct slice){ e->text + id_n, b.n - id_n };
    buf_deinit(&b);
}

struct quota_entry *quota_entry_new(struct quota *q, struct slice key_id, struct slice request_id,
                                    const struct quota_limits *limits)
{
    struct quota_entry *e = q->pool;
    if (e != NULL) {
        q->pool = e->next;
        q->pooled--;
        memset(e, 0, offsetof(struct quota_entry, near));
    } else {
        e = mem_zalloc(sizeof *e);
    }
    e->q = q;
    e->limits = *limits;
    e->text = e->near;
    if (key_id.n > 0 && request_id.n > 0 &&
        (limits->has_rate || limits->has_budget || limits->has_concurrency)) {
        e->key = quota_key_get(q, key_id);
        put_names(e, request_id);
    }
    return e;
}

void quota_entry_free(struct quota_entry *e)
{
    if (e->text != e->near)
        mem_free(e->text);
    mem_free(e);
}

void quota_entry_release(struct quota_entry *e)
{
    struct quota *q = e->q;
    e->done = true;
    if (e->pins > 0)
        return;
    if (e->key != NULL)
        quota_key_put(q, e->key);
    if (q->pooled >= QUOTA_POOL_MAX) {
        quota_entry_free(e);
        return;
    }
    if (e->text != e->near)
        mem_free(e->text);
    e->text = e->near;
    e->next = q->pool;
    q->pool = e;
    q->pooled++;
}

void quota_entry_open(struct quota_entry *e)
{
    struct quota *q = e->q;
    e->open = true;
    e->prev = NULL;
    e->next = q->open;
    if (q->open != NULL)
        q->open->prev = e;
    q->open = e;
}

void quota_entry_close(struct quota_entry *e)
{
    *(e->prev != NULL ? &e->prev->next : &e->q->open) = e->next;
    if (e->next != NULL)
        e->next->prev = e->prev;
    e->open = false;
    e->prev = e->next = NULL;
}

bool quota_needs_settling(const struct quota_entry *e)
{
    return e->counted || e->slotted;
}

void quota_entry_tell(struct quota_entry *e, bool granted)
{
    quota_cb cb = e->cb;
    e->cb = NULL;
    if (cb != NULL)
        cb(e->arg, granted ? (struct quota_grant *)e : NULL, &e->result);
}

void quota_entry_unavailable(struct quota_entry *e)
{
    int64_t start;
    if (e->cb == NULL)
        return;
    e->q->stats->unavailable++;
    e->result = (struct quota_result){ .verdict = QUOTA_UNAVAILABLE,
                                       .retry_ms = -1,
                                       .now_ms = quota_now(e->q) };
    quota_month(e->result.now_ms, &start, &e->result.month_end_ms);
    quota_entry_tell(e, false);
}

/* --- calls --- */

struct quota_call *quota_call_new(struct quota *q, struct quota_key *key)
{
    struct quota_call *c = q->call_pool;
    if (c != NULL)
        q->call_pool = c->next;
    else
        c = mem_alloc(sizeof *c);
    memset(c, 0, offsetof(struct quota_call, entries));
    c->q = q;
    c->key = key;
    key->refs++;
    c->next = q->calls;
    if (q->calls != NULL)
        q->calls->prev = c;
    q->calls = c;
    return c;
}

void quota_call_release(struct quota_call *c)
{
    struct quota *q = c->q;
    timer_deinit(q->loop, &c->deadline);
    *(c->prev != NULL ? &c->prev->next : &q->calls) = c->next;
    if (c->next != NULL)
        c->next->prev = c->prev;
    quota_key_put(q, c->key);
    c->next = q->call_pool;
    q->call_pool = c;
}
