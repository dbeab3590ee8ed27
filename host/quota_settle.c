/* Settlement: grants that ended, and voids, go to Redis in one call a key and month. What cannot be
 * delivered is kept, bounded, and sent again when Redis is back: with the form "again" where it may
 * have been there before.
 *
 * Two lists keep it: `stuck` has what failed since the last occasion (Redis became usable, or the
 * timer ran), `kept` what this occasion sends, no more than a window of it under way, so that a
 * long list does not look like a hung Redis. */
#include "quota_internal.h"

#include "container.h"
#include "log.h"

/* --- what is kept --- */

static void lose(struct quota_entry *e)
{
    e->q->stats->lost++;
    quota_entry_release(e);
}

static void arm_resend(struct quota *q)
{
    if (q->resend.at == 0 && !q->freed)
        timer_set(q->loop, &q->resend, q->resend_ms);
}

void quota_keep(struct quota_entry *e)
{
    struct quota *q = e->q;
    if (q->freed || q->stats->pending >= q->kept_max) {
        if (!q->freed && !q->overflowed)
            log_error("quota: more than %u settlements wait for Redis; further ones are lost",
                      q->kept_max);
        q->overflowed = true;
        lose(e);
        return;
    }
    q->stats->pending++;
    quota_list_push(&q->stuck, e);
    arm_resend(q);
}

static void send_kept(struct quota *q)
{
    while (q->resending < QUOTA_RESEND_WINDOW) {
        struct quota_entry *e = quota_list_pop(&q->kept);
        if (e == NULL)
            return;
        q->stats->pending--;
        q->resending++;
        e->resent = true;
        quota_send_settlement(e);
    }
}

void quota_resend(struct quota *q)
{
    if (q->stuck.first != NULL) {
        *q->kept.last = q->stuck.first;
        q->kept.last = q->stuck.last;
        quota_list_init(&q->stuck);
    }
    send_kept(q);
}

void quota_on_resend(struct timer *t)
{
    struct quota *q = CONTAINER(t, struct quota, resend);
    if (rds_state(q->rds) == RDS_READY)
        quota_resend(q);
    if (q->resend_ms < QUOTA_RESEND_MAX_MS)
        q->resend_ms *= 2;
    if (q->stuck.first != NULL || q->kept.first != NULL)
        arm_resend(q);
}

/* One of the window is back. */
static void came_back(struct quota_entry *e, bool delivered)
{
    struct quota *q = e->q;
    if (delivered)
        q->resend_ms = QUOTA_RESEND_MIN_MS;
    if (!e->resent || q->freed)
        return;
    e->resent = false;
    q->resending--;
    if (!delivered)
        arm_resend(q);
    else if (q->kept.first != NULL)
        send_kept(q);
    if (delivered && q->stats->pending == 0)
        q->overflowed = false;
}

/* --- replies --- */

static void delivered(struct quota_entry *e, const redisReply *outcome)
{
    struct quota_stats *s = e->q->stats;
    if (outcome->type != REDIS_REPLY_STRING || strcmp(outcome->str, "type") == 0) {
        log_error("quota: %.*s holds something else; its settlement is lost", (int)e->name.n,
                  e->name.p);
        s->lost++;
    } else if (e->form == QUOTA_VOID) {
        s->voided++;
    } else {
        s->settled++;
        if (strcmp(outcome->str, "lapsed") == 0 && !e->lapsed)
            s->lapsed++;
    }
    came_back(e, true);
    quota_entry_release(e);
}

static void undelivered(struct quota_entry *e, bool may_have_run)
{
    if (may_have_run && e->form == QUOTA_FIRST)
        e->form = QUOTA_AGAIN;
    came_back(e, false);
    quota_keep(e);
}

/* Errors that Redis, or the script before its first write, answers without having changed anything.
 */
static bool has_run(const redisReply *reply)
{
    static const char *const words[] = { "READONLY", "MASTERDOWN", "OOM",         "MISCONF",
                                         "BUSY",     "NOAUTH",     "CLUSTERDOWN", "TYPE" };
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (rds_is_error(reply, words[i]))
            return false;
    }
    return !rds_not_run(reply);
}

/* An error that time does not mend would be sent for ever. */
static bool is_broken(const redisReply *reply)
{
    return has_run(reply) || rds_is_error(reply, "TYPE");
}

static void failed(struct quota_entry *e, const redisReply *reply)
{
    if (!is_broken(reply) || ++e->tries < QUOTA_BROKEN_TRIES) {
        undelivered(e, has_run(reply));
        return;
    }
    log_error("quota: the settlement of %.*s is lost: %s", (int)e->id.n, e->id.p, reply->str);
    came_back(e, false);
    lose(e);
}

static void on_settled(void *arg, redisReply *reply, enum rds_error err)
{
    struct quota_call *c = arg;
    struct quota *q = c->q;
    bool error = err == RDS_OK && reply->type == REDIS_REPLY_ERROR;
    bool sound = err == RDS_OK && reply->type == REDIS_REPLY_ARRAY && reply->elements == c->n;
    if (error)
        quota_log_error(q, "settle", reply->str);
    for (unsigned i = 0; i < c->n; i++) {
        if (sound)
            delivered(c->entries[i], reply->element[i]);
        else if (error)
            failed(c->entries[i], reply);
        else
            undelivered(c->entries[i], err != RDS_DOWN);
    }
    quota_call_release(c);
    quota_let_go(q);
}

/* --- sending --- */

static void put_args(struct quota_args *a, const struct quota_call *c)
{
    static const char *const forms[] = { "first", "again", "none", "void" };
    const struct quota_entry *first = c->entries[0];
    const struct slice yes = SLICE("1"), no = SLICE("0");
    quota_args_clear(a);
    if (first->counted)
        quota_args_counter(a, c->key, c->month);
    if (first->slotted)
        quota_args_key(a, c->key->conc);
    quota_args_integer(a, c->n);
    quota_args_slice(a, first->counted ? yes : no);
    quota_args_slice(a, first->slotted ? yes : no);
    for (unsigned i = 0; i < c->n; i++) {
        const struct quota_entry *e = c->entries[i];
        quota_args_key(a, e->name);
        quota_args_slice(a, e->id);
        quota_args_slice(a, slice_of(forms[e->form]));
        quota_args_integer(a, e->counted ? e->actual : 0);
        quota_args_integer(a, e->counted ? e->reserve : 0);
    }
}

static void send_call(struct quota_call *c)
{
    struct quota *q = c->q;
    struct quota_args *a = &q->args;
    put_args(a, c);
    quota_hold(q);
    if (q->on_batch != NULL)
        q->on_batch(q->on_batch_arg, true, c->n);
    rds_eval_owned(q->rds, &q->settle, a->nkeys, a->keys, a->nargs, a->args, 0, on_settled, c);
}

void quota_flush_settles(struct quota *q, struct quota_key *k)
{
    struct quota_call *c = NULL;
    for (struct quota_entry *e; (e = quota_list_pop(&k->settles)) != NULL;) {
        const struct quota_entry *first = c != NULL ? c->entries[0] : NULL;
        if (c != NULL && (c->n == QUOTA_BATCH || first->month != e->month ||
                          first->counted != e->counted || first->slotted != e->slotted)) {
            send_call(c);
            c = NULL;
        }
        if (c == NULL) {
            c = quota_call_new(q, k);
            c->month = e->month;
        }
        c->entries[c->n++] = e;
    }
    if (c != NULL)
        send_call(c);
}

void quota_send_settlement(struct quota_entry *e)
{
    if (e->q->freed) {
        lose(e);
        return;
    }
    quota_list_push(&e->key->settles, e);
    quota_key_dirty(e->q, e->key);
}
