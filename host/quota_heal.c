/* Healing of q:conc: slots of requests whose gateway died. Only a refusal for concurrency looks for
 * them, at most once a second for a key, at a sample of the set, so that an ordinary refusal stays
 * cheap however many are in flight. */
#include "quota_internal.h"

#include <stdlib.h>

bool quota_may_heal(const struct quota_call *c)
{
    uint64_t at = c->key->healed_at;
    return !c->healed && (at == 0 || loop_now(c->q->loop) - at >= c->q->heal_ms);
}

static void on_healed(void *arg, redisReply *reply, enum rds_error err)
{
    struct quota *q = arg;
    if (err == RDS_OK && reply->type == REDIS_REPLY_STRING)
        q->stats->healed += strtoull(reply->str, NULL, 10);
    else if (err == RDS_OK && reply->type == REDIS_REPLY_ERROR)
        quota_log_error(q, "heal", reply->str);
    quota_let_go(q);
}

/* The names of reservations stand one behind the other in `names`; the slices are cut once it does
 * not grow any more. */
static void drop_dead(struct quota_call *c, const redisReply *members)
{
    struct quota *q = c->q;
    struct quota_args *a = &q->args;
    size_t end[QUOTA_HEAL_SAMPLE];
    quota_args_clear(a);
    quota_args_key(a, c->key->conc);
    for (size_t i = 0; i < members->elements && i < QUOTA_HEAL_SAMPLE; i++) {
        struct slice member = { members->element[i]->str, members->element[i]->len };
        if (members->element[i]->type != REDIS_REPLY_STRING)
            return;
        quota_name_reserved(&a->names, c->key, member);
        end[i] = a->names.n;
        quota_args_slice(a, member);
    }
    for (int i = 0; i < a->nargs; i++) {
        size_t start = i == 0 ? 0 : end[i - 1];
        quota_args_key(a, (struct slice){ a->names.p + start, end[i] - start });
    }
    if (a->nargs == 0)
        return;
    quota_hold(q);
    rds_eval(q->rds, &q->heal, a->nkeys, a->keys, a->nargs, a->args, 0, on_healed, q);
}

static void on_members(void *arg, redisReply *reply, enum rds_error err)
{
    struct quota_call *c = arg;
    struct quota *q = c->q;
    bool sound = err == RDS_OK && reply->type == REDIS_REPLY_ARRAY;
    if (sound && quota_anybody_waits(c)) {
        drop_dead(c, reply);
        quota_ask(c); /* behind the heal on the same connection */
    } else {
        quota_refuse_all(c);
    }
    quota_let_go(q);
}

void quota_heal(struct quota_call *c)
{
    struct quota *q = c->q;
    const struct slice argv[] = { SLICE("SRANDMEMBER"), c->key->conc, SLICE("100") };
    c->healed = true;
    c->key->healed_at = loop_now(q->loop);
    quota_hold(q);
    rds_command(q->rds, 3, argv, 0, on_members, c);
}
