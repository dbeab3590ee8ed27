/* See exchange.h: which of the route's targets a request goes to. Each is considered once for a
 * request: in turn by balance, passed over while it is out, left to the last while it is down, and
 * passed over by any plugin that says so. */
#include <stdlib.h>

#include "exchange.h"
#include "zone.h"

enum { RETRY_UNKNOWN_MS = 1000 }; /* where nothing says when a target will be there again */

bool exchange_target_left(const struct exchange *x)
{
    return (x->targets->usable & ~x->considered) != 0;
}

/* Remembers the nearest time at which something may be there. */
static void come_back(struct exchange *x, uint64_t ms)
{
    ms = ms > 0 ? ms : RETRY_UNKNOWN_MS;
    if (x->retry_ms == 0 || ms < x->retry_ms)
        x->retry_ms = ms;
}

/* Whether another worker's, or this one's, experience keeps it out. */
static bool out(struct exchange *x, const struct target *t, uint64_t now)
{
    uint64_t until = target_state_until(&t->state);
    if (until <= now)
        return false;
    come_back(x, until - now);
    return true;
}

/* One that a health check found down is asked where nothing else is left: a check may be wrong, and
 * the request cannot fare worse. */
enum exchange_pick exchange_target_pick(struct exchange *x)
{
    struct target_set *set = x->targets;
    uint64_t now = set->n > 1 ? zone_now() : 0, down = 0;
    for (;;) {
        int i = balance_pick(set->items, set->n, x->route->balance, ~(x->considered | down));
        if (i < 0 && down == 0)
            return PICK_NONE;
        if (i < 0)
            i = balance_pick(set->items, set->n, x->route->balance, down);
        struct target *t = &set->v[i];
        uint64_t again = 0, bit = (uint64_t)1 << i;
        if ((down & bit) == 0 && set->n > 1 &&
            target_state_health(&t->state, now) == TARGET_HEALTH_DOWN) {
            down |= bit;
            continue;
        }
        down &= ~bit;
        x->considered |= bit;
        if (set->n > 1 && out(x, t, now))
            continue;
        enum exchange_pick said = exchange_target_hooks(x, t, &again);
        if (said == PICK_NONE)
            come_back(x, again);
        if (said == PICK_FOUND)
            x->next_target = t;
        if (said != PICK_NONE)
            return said;
    }
}

void exchange_target_unpick(struct exchange *x)
{
    struct target *t = x->next_target;
    x->next_target = NULL;
    if (t != NULL)
        exchange_not_tried(x, t);
}

static void answer_none(struct exchange *x)
{
    x->sv->counters->no_target++;
    exchange_error(x, 503, "no_target_available", "No target of this route is available.");
}

/* The set is known. */
static void start(struct exchange *x)
{
    const struct route *r = x->route;
    uint64_t now = loop_now(x->sv->loop);
    x->attempts_until = now + r->retry.timeout_ms;
    if (x->targets->n > 1 && r->retry.attempts > 1) {
        x->held = !x->whole;
        retry_budget_request(r->budget, now);
    }
    switch (exchange_target_pick(x)) {
    case PICK_FOUND: exchange_attempt_begin(x); break;
    case PICK_NONE: answer_none(x); break;
    default: break;
    }
}

/* --- by model --- */

static int compare(const void *name, const void *set)
{
    const struct slice *a = name, *b = &((const struct target_set *)set)->alias;
    int order = memcmp(a->p, b->p, a->n < b->n ? a->n : b->n);
    return order != 0 ? order : (a->n > b->n) - (a->n < b->n);
}

static void choose(struct exchange *x)
{
    const struct route *r = x->route;
    struct slice name = x->model != NULL ? x->model->name : (struct slice){ NULL, 0 };
    if (name.p != NULL && r->nmodels > 0)
        x->targets = bsearch(&name, r->models, r->nmodels, sizeof *r->models, compare);
    if (x->targets == NULL)
        x->targets = r->targets;
    if (x->targets != NULL)
        start(x);
    else if (name.p != NULL)
        exchange_error(
            x, 404, "model_not_found",
            arena_printf(&x->arena, "The model '%.*s' does not exist.", (int)name.n, name.p).p);
    else
        exchange_error(x, 400, "missing_required_parameter", "The request names no model.");
}

/* The whole body is there. */
static void on_body(void *arg)
{
    struct exchange *x = arg;
    struct llm_fault fault;
    x->model = arena_alloc(&x->arena, sizeof *x->model);
    if (llm_find_model(buf_slice(&x->body), x->model, &fault) == LLM_OK) {
        choose(x);
        return;
    }
    x->model = NULL;
    exchange_error(x, 400, fault.code, arena_dup(&x->arena, slice_of(fault.message)).p);
}

static void read_model(struct exchange *x)
{
    struct slice coding = headers_get_id(&x->req.headers, HEADER_CONTENT_ENCODING);
    if (x->req.framing == FRAMING_NONE && x->body.n == 0)
        choose(x);
    else if (coding.p != NULL && !slice_ieq(coding, SLICE("identity")))
        exchange_error(x, 415, "unsupported_content_encoding",
                       "A request body on this route must not be content-encoded: its model could "
                       "not be read.");
    else if (exchange_want_whole(x, on_body, x))
        on_body(x);
}

struct slice exchange_model(const struct exchange *x)
{
    if (x->model != NULL)
        return x->model->name;
    return x->metered ? x->llm->model : (struct slice){ NULL, 0 };
}

void exchange_target_start(struct exchange *x)
{
    const struct route *r = x->route;
    if (r->reads_model) {
        read_model(x);
        return;
    }
    x->targets = r->targets;
    if (x->targets != NULL)
        start(x);
    else
        exchange_error(x, 500, "no_target",
                       "No plugin answered this request and the route has no target.");
}
