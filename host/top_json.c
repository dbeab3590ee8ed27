/* See top_json.h. A count is {"total", "rate"}, times are {"p50", "p95"} in seconds. */
#include "top_json.h"

#include <math.h>

#include "json.h"

/* Appends ,"name": or, behind an opening brace or bracket, "name": alone. */
static void member(struct buf *out, const char *name)
{
    char last = out->n > 0 ? out->p[out->n - 1] : '{';
    buf_add_text(out, last == '{' || last == '[' ? "" : ",");
    if (name != NULL)
        buf_printf(out, "\"%s\":", name);
}

static void value(struct buf *out, double v)
{
    if (!isfinite(v))
        buf_add_text(out, "null");
    else if (v == floor(v) && fabs(v) < 9007199254740992.0)
        buf_printf(out, "%.0f", v);
    else
        buf_printf(out, "%.9g", v);
}

static void number(struct buf *out, const char *name, double v)
{
    member(out, name);
    value(out, v);
}

static void boolean(struct buf *out, const char *name, double v)
{
    member(out, name);
    buf_add_text(out, isnan(v) ? "null" : v > 0 ? "true" : "false");
}

static void text(struct buf *out, const char *name, struct slice s)
{
    member(out, name);
    json_quote(out, s);
}

static void count(struct buf *out, const char *name, struct top_count c)
{
    member(out, name);
    buf_add_text(out, "{");
    number(out, "total", c.total);
    number(out, "rate", c.rate);
    buf_add_text(out, "}");
}

static void times(struct buf *out, const char *name, struct top_times t)
{
    member(out, name);
    buf_add_text(out, "{");
    number(out, "p50", t.p50);
    number(out, "p95", t.p95);
    buf_add_text(out, "}");
}

/* --- rows --- */

static void route(struct buf *out, const struct top_row *r)
{
    text(out, "route", r->name);
    count(out, "requests", r->requests);
    count(out, "errors", r->errors);
    count(out, "refused", r->refused);
    times(out, "duration", r->duration);
    times(out, "first_byte", r->first_byte);
}

static void target(struct buf *out, const struct top_row *r)
{
    static const char *const states[] = { "closed", "half_open", "open" };
    text(out, "target", r->name);
    text(out, "route", r->second);
    count(out, "attempts", r->requests);
    count(out, "errors", r->errors);
    member(out, "breaker");
    if (r->breaker >= 0 && r->breaker <= 2)
        json_quote(out, slice_of(states[(int)r->breaker]));
    else
        buf_add_text(out, "null");
    boolean(out, "healthy", r->healthy);
}

static void model(struct buf *out, const struct top_row *r)
{
    text(out, "model", r->name);
    count(out, "input", r->input);
    count(out, "output", r->output);
    number(out, "reserved", r->reserved.total);
}

static void worker(struct buf *out, const struct top_row *r)
{
    text(out, "worker", r->name);
    number(out, "connections", r->connections);
    number(out, "in_flight", r->in_flight);
    number(out, "memory", r->memory);
    number(out, "lua_memory", r->lua_memory);
    number(out, "buffers", r->buffers);
    number(out, "generations", r->generations);
    boolean(out, "redis_usable", r->redis_usable);
}

static void list(struct buf *out, const char *name, const struct top_list *l,
                 void (*write)(struct buf *, const struct top_row *))
{
    member(out, name);
    buf_add_text(out, "[");
    for (uint32_t i = 0; i < l->n; i++) {
        member(out, NULL);
        buf_add_text(out, "{");
        write(out, &l->rows[i]);
        buf_add_text(out, "}");
    }
    buf_add_text(out, "]");
}

/* --- the whole --- */

static void whole(struct buf *out, const struct top *t)
{
    text(out, "version", slice_of(t->version));
    number(out, "started", t->started);
    number(out, "seconds", t->seconds);
    member(out, "restarted");
    buf_add_text(out, t->restarted ? "true" : "false");
    boolean(out, "ready", t->ready);
    number(out, "generation", t->generation);
    count(out, "requests", t->requests);
    number(out, "in_flight", t->in_flight);
    number(out, "connections", t->connections);
    count(out, "errors", t->errors);
    count(out, "refused", t->refused);
    count(out, "client_gone", t->client_gone);
    count(out, "lost", t->lost);
    times(out, "duration", t->duration);
}

static void tokens(struct buf *out, const struct top *t)
{
    member(out, "tokens");
    buf_add_text(out, "{");
    count(out, "input", t->input);
    count(out, "output", t->output);
    buf_add_text(out, "}");
}

static void quota(struct buf *out, const struct top *t)
{
    member(out, "quota");
    buf_add_text(out, "{");
    for (int i = 0; i < TOP_VERDICTS; i++)
        count(out, top_verdicts[i], t->verdicts[i]);
    number(out, "pending", t->pending);
    buf_add_text(out, "}");
}

static void redis(struct buf *out, const struct top *t)
{
    member(out, "redis");
    buf_add_text(out, "{");
    number(out, "usable", t->redis_usable);
    count(out, "commands", t->redis);
    count(out, "errors", t->redis_errors);
    times(out, "duration", t->redis_times);
    buf_add_text(out, "}");
}

void top_json(struct buf *out, const struct top *t)
{
    buf_add_text(out, "{");
    whole(out, t);
    tokens(out, t);
    quota(out, t);
    redis(out, t);
    member(out, "restarts");
    buf_add_text(out, "{");
    for (int i = 0; i < TOP_EXITS; i++)
        number(out, top_exits[i], t->restarts[i].total);
    buf_add_text(out, "}");
    number(out, "reloads", t->reloads.total);
    number(out, "reload_failures", t->reload_failures.total);
    list(out, "routes", &t->lists[TOP_ROUTES], route);
    list(out, "targets", &t->lists[TOP_TARGETS], target);
    list(out, "models", &t->lists[TOP_MODELS], model);
    list(out, "workers", &t->lists[TOP_WORKERS], worker);
    buf_add_text(out, "}\n");
}
