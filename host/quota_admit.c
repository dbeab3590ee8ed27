/* Admission: the requests that one key collected in a turn become script calls, in the order of
 * their arrival, and the answers become verdicts.
 *
 * A call lives until its outcome is known. At its deadline those who wait are told "unavailable",
 * and from then on the entries are on their own: admitted all the same, they settle at 0; where the
 * outcome stays unknown, they are voided. The call is asked again only after an answer that proves
 * that nothing changed. */
#include "quota_internal.h"

#include "container.h"

#include <stdlib.h>

/* --- the ends of a call --- */

/* Nobody learned what Redis did. */
static void end_unknown(struct quota_call *c)
{
    for (unsigned i = 0; i < c->n; i++) {
        struct quota_entry *e = c->entries[i];
        quota_entry_unavailable(e);
        e->form = QUOTA_VOID;
        e->actual = 0;
        if (quota_needs_settling(e))
            quota_send_settlement(e);
        else
            quota_entry_release(e);
    }
    quota_call_release(c);
}

/* Nothing happened in Redis. */
static void end_unavailable(struct quota_call *c)
{
    for (unsigned i = 0; i < c->n; i++) {
        quota_entry_unavailable(c->entries[i]);
        quota_entry_release(c->entries[i]);
    }
    quota_call_release(c);
}

static void admitted(struct quota_entry *e)
{
    e->q->stats->admitted++;
    if (e->cb != NULL) {
        quota_entry_open(e);
        quota_entry_tell(e, true);
        return;
    }
    /* Too late, or its request has gone. */
    e->actual = 0;
    if (quota_needs_settling(e))
        quota_send_settlement(e);
    else
        quota_entry_release(e);
}

static void refused(struct quota_entry *e)
{
    struct quota_stats *s = e->q->stats;
    if (e->cb != NULL) {
        uint64_t *count = e->result.verdict == QUOTA_RATE     ? &s->refused_rate
                          : e->result.verdict == QUOTA_BUDGET ? &s->refused_budget
                                                              : &s->refused_concurrency;
        ++*count;
        quota_entry_tell(e, false);
    }
    quota_entry_release(e);
}

void quota_refuse_all(struct quota_call *c)
{
    for (unsigned i = 0; i < c->n; i++)
        refused(c->entries[i]);
    quota_call_release(c);
}

/* --- reading an answer --- */

/* Hands each verdict out. Those refused for concurrency stay in the call where a heal may help
 * them. */
static void hand_out(struct quota_call *c, redisReply *const *outcomes, int64_t now)
{
    unsigned n = c->n;
    bool may_heal = quota_may_heal(c);
    c->n = 0;
    for (unsigned i = 0; i < n; i++) {
        struct quota_entry *e = c->entries[i];
        if (c->q->freed) /* by one of the callbacks */
            quota_entry_unavailable(e);
        enum quota_outcome o = quota_read_outcome(outcomes[i], &e->result);
        quota_put_result(c, e, o, now);
        if (o == QUOTA_OUT_ADMITTED) {
            admitted(e);
        } else if (o == QUOTA_OUT_EXISTS) {
            quota_entry_unavailable(e);
            quota_entry_release(e);
        } else if (o == QUOTA_OUT_CONCURRENCY && may_heal && e->cb != NULL) {
            c->entries[c->n++] = e;
        } else {
            refused(e);
        }
    }
    if (c->n == 0 || c->q->freed)
        quota_refuse_all(c);
    else
        quota_heal(c);
}

bool quota_anybody_waits(const struct quota_call *c)
{
    for (unsigned i = 0; i < c->n; i++) {
        if (c->entries[i]->cb != NULL)
            return true;
    }
    return false;
}

/* The estimate of Redis's month was wrong; nothing changed there. */
static void wrong_month(struct quota_call *c)
{
    if (c->tries++ < QUOTA_MONTH_TRIES && quota_anybody_waits(c) && !c->q->freed)
        quota_ask(c);
    else
        end_unavailable(c);
}

static void answered(struct quota_call *c, redisReply *reply)
{
    if (reply->type == REDIS_REPLY_ERROR) {
        quota_log_error(c->q, "admit", reply->str);
        if (rds_not_run(reply))
            end_unavailable(c);
        else
            end_unknown(c);
        return;
    }
    if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 ||
        reply->element[1]->type != REDIS_REPLY_STRING) {
        quota_log_error(c->q, "admit", "an answer of another form");
        end_unknown(c);
        return;
    }
    int64_t now = strtoll(reply->element[1]->str, NULL, 10);
    quota_learn_clock(c->q, now);
    if (quota_is_text(reply->element[0], "month")) {
        wrong_month(c);
    } else if (quota_is_sound(c, reply)) {
        hand_out(c, reply->element + 2, now);
    } else {
        quota_log_error(c->q, "admit", "an answer of another form");
        end_unknown(c);
    }
}

static void on_answer(void *arg, redisReply *reply, enum rds_error err)
{
    struct quota_call *c = arg;
    struct quota *q = c->q;
    if (err == RDS_DOWN)
        end_unavailable(c);
    else if (err != RDS_OK)
        end_unknown(c);
    else
        answered(c, reply);
    quota_let_go(q);
}

/* --- asking --- */

static void put_keys(struct quota_args *a, const struct quota_call *c, const struct quota_limits *l)
{
    if (l->has_rate)
        quota_args_key(a, c->key->rps);
    if (l->has_budget)
        quota_args_counter(a, c->key, c->month);
    if (l->has_concurrency)
        quota_args_key(a, c->key->conc);
    for (unsigned i = 0; i < c->n && (l->has_budget || l->has_concurrency); i++)
        quota_args_key(a, c->entries[i]->name);
}

static void put_args(struct quota_args *a, const struct quota_call *c, const struct quota_limits *l)
{
    const struct slice none = { "", 0 };
    quota_args_integer(a, c->n);
    if (l->has_rate) {
        quota_args_double(a, l->rate);
        quota_args_double(a, l->burst);
    } else {
        quota_args_slice(a, none);
        quota_args_slice(a, none);
    }
    if (l->has_budget)
        quota_args_integer(a, l->budget);
    else
        quota_args_slice(a, none);
    quota_args_integer(a, (uint64_t)c->month_start);
    quota_args_integer(a, (uint64_t)c->month_end);
    if (l->has_concurrency)
        quota_args_integer(a, l->concurrency);
    else
        quota_args_slice(a, none);
    for (unsigned i = 0; i < c->n; i++) {
        quota_args_slice(a, c->entries[i]->id);
        quota_args_integer(a, c->entries[i]->reserve);
    }
}

void quota_ask(struct quota_call *c)
{
    struct quota *q = c->q;
    struct quota_args *a = &q->args;
    const struct quota_limits *l = &c->entries[0]->limits;
    c->month = quota_month(quota_now(q), &c->month_start, &c->month_end);
    for (unsigned i = 0; i < c->n; i++)
        c->entries[i]->month = c->month;
    quota_args_clear(a);
    put_keys(a, c, l);
    put_args(a, c, l);
    quota_hold(q);
    if (q->on_batch != NULL)
        q->on_batch(q->on_batch_arg, false, c->n);
    rds_eval_owned(q->rds, &q->admit, a->nkeys, a->keys, a->nargs, a->args,
                   c->entries[0]->deadline_ms, on_answer, c);
}

/* --- collecting --- */

static void on_deadline(struct timer *t)
{
    struct quota_call *c = CONTAINER(t, struct quota_call, deadline);
    struct quota *q = c->q;
    if (!c->late) { /* after a long turn the answer may stand in the socket */
        c->late = true;
        timer_set(q->loop, t, 1);
        return;
    }
    quota_hold(q);
    for (unsigned i = 0; i < c->n; i++)
        quota_entry_unavailable(c->entries[i]);
    quota_let_go(q);
}

static bool same_terms(const struct quota_entry *a, const struct quota_entry *b)
{
    const struct quota_limits *x = &a->limits, *y = &b->limits;
    return x->has_rate == y->has_rate && x->has_budget == y->has_budget &&
           x->has_concurrency == y->has_concurrency &&
           (!x->has_rate || (x->rate == y->rate && x->burst == y->burst)) &&
           (!x->has_budget || x->budget == y->budget) &&
           (!x->has_concurrency || x->concurrency == y->concurrency) &&
           a->deadline_ms == b->deadline_ms;
}

void quota_flush_waits(struct quota *q, struct quota_key *k)
{
    struct quota_call *c = NULL;
    for (struct quota_entry *e; (e = quota_list_pop(&k->waits)) != NULL;) {
        if (e->cb == NULL) { /* cancelled before anything was sent */
            quota_entry_release(e);
            continue;
        }
        if (c != NULL && (c->n == QUOTA_BATCH || !same_terms(c->entries[0], e))) {
            quota_ask(c);
            c = NULL;
        }
        if (c == NULL) {
            c = quota_call_new(q, k);
            c->deadline.cb = on_deadline;
            timer_set(q->loop, &c->deadline, e->deadline_ms);
        }
        c->entries[c->n++] = e;
    }
    if (c != NULL)
        quota_ask(c);
}
