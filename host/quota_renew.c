/* Leases: what an open grant holds in Redis is renewed long before it lapses. EXPIRE only, which
 * never creates a key: a reservation that has gone stays gone, and its settlement says what it
 * cost. */
#include "quota_internal.h"

#include "container.h"

static void on_renewed(void *arg, redisReply *reply, enum rds_error err)
{
    struct quota_entry *e = arg;
    struct quota *q = e->q;
    if (err == RDS_OK && reply->type == REDIS_REPLY_INTEGER && reply->integer == 0 && !e->lapsed) {
        e->lapsed = true;
        q->stats->lapsed++;
    } else if (err != RDS_OK) {
        q->renewal_missed = true;
    }
    e->pins--;
    if (e->done)
        quota_entry_release(e);
    quota_let_go(q);
}

static void renew_entry(struct quota *q, struct quota_entry *e)
{
    struct slice argv[] = { SLICE("EXPIRE"), e->name, SLICE("300") };
    _Static_assert(QUOTA_LEASE_S == 300, "the text above");
    e->pins++;
    quota_hold(q);
    rds_command(q->rds, 3, argv, 0, on_renewed, e);
    if (!e->slotted || e->key->renewal == q->renewals)
        return;
    e->key->renewal = q->renewals;
    argv[1] = e->key->conc;
    rds_command(q->rds, 3, argv, 0, NULL, NULL);
}

void quota_renew(struct quota *q)
{
    q->renewal_missed = rds_state(q->rds) != RDS_READY;
    if (q->renewal_missed)
        return;
    q->renewals++;
    for (struct quota_entry *e = q->open; e != NULL; e = e->next) {
        if (quota_needs_settling(e) && e->form == QUOTA_FIRST && !e->lapsed)
            renew_entry(q, e);
    }
}

void quota_on_renew(struct timer *t)
{
    struct quota *q = CONTAINER(t, struct quota, renew);
    timer_set(q->loop, &q->renew, q->renew_ms);
    quota_renew(q);
}
