/* See top_figures.h. */
#include "top_figures.h"

#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"

const char *const top_verdicts[TOP_VERDICTS] = { "admitted", "rate", "concurrency", "budget",
                                                 "unavailable" };
const char *const top_exits[TOP_EXITS] = { "exit", "signal", "watchdog" };

struct reading {
    struct top *t;
    const struct metrics_page *before; /* NULL: no rates */
    struct buf a, b;                   /* labels of the sample that is read */
    struct top_row all, redis;         /* histograms over all routes, and of Redis */
};

/* --- rows --- */

static uint64_t hash_of(struct slice a, struct slice b)
{
    uint64_t h = 0xcbf29ce484222325u;
    for (size_t i = 0; i < a.n; i++)
        h = (h ^ (unsigned char)a.p[i]) * 0x100000001b3u;
    h *= 0x100000001b3u;
    for (size_t i = 0; i < b.n; i++)
        h = (h ^ (unsigned char)b.p[i]) * 0x100000001b3u;
    return h ^ h >> 32;
}

static void grow(struct top_list *l)
{
    l->cap = l->cap == 0 ? 32 : l->cap * 2;
    l->rows = mem_realloc(l->rows, l->cap * sizeof *l->rows);
    mem_free(l->slots);
    l->nslots = l->cap * 2;
    l->slots = mem_zalloc(l->nslots * sizeof *l->slots);
    for (uint32_t i = 0; i < l->n; i++) {
        uint32_t k = (uint32_t)l->rows[i].hash;
        while (l->slots[k & (l->nslots - 1)] != 0)
            k++;
        l->slots[k & (l->nslots - 1)] = i + 1;
    }
}

/* The row of these names, made where there is none. Valid until the next one is made. */
static struct top_row *row_of(struct reading *r, enum top_kind kind, struct slice name,
                              struct slice second)
{
    struct top_list *l = &r->t->lists[kind];
    uint64_t hash = hash_of(name, second);
    if (l->n == l->cap)
        grow(l);
    uint32_t k = (uint32_t)hash;
    for (; l->slots[k & (l->nslots - 1)] != 0; k++) {
        struct top_row *row = &l->rows[l->slots[k & (l->nslots - 1)] - 1];
        if (row->hash == hash && slice_eq(row->name, name) && slice_eq(row->second, second))
            return row;
    }
    struct top_row *row = &l->rows[l->n++];
    l->slots[k & (l->nslots - 1)] = l->n;
    *row = (struct top_row){ .hash = hash, .breaker = NAN, .healthy = NAN };
    row->name = arena_dup(&r->t->arena, name);
    row->second = arena_dup(&r->t->arena, second);
    return row;
}

static struct top_row *labelled(struct reading *r, const struct metrics_sample *s,
                                enum top_kind kind, const char *label, const char *second)
{
    metrics_sample_label(s, label, &r->a);
    buf_clear(&r->b);
    if (second != NULL)
        metrics_sample_label(s, second, &r->b);
    return row_of(r, kind, buf_slice(&r->a), buf_slice(&r->b));
}

static bool label_is(struct reading *r, const struct metrics_sample *s, const char *label,
                     const char *value)
{
    return metrics_sample_label(s, label, &r->b) && slice_eq(buf_slice(&r->b), slice_of(value));
}

/* --- counters and histograms --- */

static void count(struct reading *r, const struct metrics_sample *s, struct top_count *c)
{
    if (isfinite(s->value))
        c->total += s->value;
    if (r->before != NULL)
        c->rate += metrics_sample_growth(s, r->before) / r->t->seconds;
}

/* Adds a bucket of a series, which holds what is in smaller ones too, to the sum of one bound. */
static void bucket(struct reading *r, const struct metrics_sample *s, struct top_row *row,
                   int which)
{
    if (!metrics_sample_label(s, "le", &r->b))
        return;
    buf_add(&r->b, "", 1);
    double upto = strcmp(r->b.p, "+Inf") == 0 ? INFINITY : strtod(r->b.p, NULL);
    struct metrics_bucket *b = row->buckets[which];
    if (b == NULL)
        b = row->buckets[which] =
            arena_alloc(&r->t->arena, (METRICS_BUCKETS + 1) * sizeof *row->buckets[which]);
    int n = row->nbuckets[which], i = 0;
    while (i < n && b[i].upto < upto)
        i++;
    if (i == n || b[i].upto > upto) {
        if (n > METRICS_BUCKETS)
            return;
        memmove(b + i + 1, b + i, (size_t)(n - i) * sizeof *b);
        b[i] = (struct metrics_bucket){ upto, 0 };
        row->nbuckets[which]++;
    }
    b[i].count += r->before != NULL ? metrics_sample_growth(s, r->before) : s->value;
}

static struct top_times times(const struct top_row *row, int which)
{
    return (struct top_times){ metrics_quantile(.5, row->buckets[which], row->nbuckets[which]),
                               metrics_quantile(.95, row->buckets[which], row->nbuckets[which]) };
}

/* --- what there is --- */

typedef void read_fn(struct reading *r, const struct metrics_sample *s);

static void ended(struct reading *r, const struct metrics_sample *s)
{
    struct top_row *row = labelled(r, s, TOP_ROUTES, "route", NULL);
    bool bad = metrics_sample_label(s, "code", &r->b) && r->b.n == 3 && r->b.p[0] == '5';
    bad = bad || (!label_is(r, s, "ended", "ok") && !label_is(r, s, "ended", "client_gone"));
    count(r, s, &row->requests);
    if (bad) {
        count(r, s, &row->errors);
        count(r, s, &r->t->errors);
    }
}

static void refusals(struct reading *r, const struct metrics_sample *s)
{
    count(r, s, &labelled(r, s, TOP_ROUTES, "route", NULL)->refused);
    count(r, s, &r->t->refused);
}

static void duration(struct reading *r, const struct metrics_sample *s)
{
    bucket(r, s, labelled(r, s, TOP_ROUTES, "route", NULL), 0);
    bucket(r, s, &r->all, 0);
}

static void first_byte(struct reading *r, const struct metrics_sample *s)
{
    bucket(r, s, labelled(r, s, TOP_ROUTES, "route", NULL), 1);
}

static void attempts(struct reading *r, const struct metrics_sample *s)
{
    count(r, s, &labelled(r, s, TOP_TARGETS, "target", "route")->requests);
}

static void attempt_errors(struct reading *r, const struct metrics_sample *s)
{
    count(r, s, &labelled(r, s, TOP_TARGETS, "target", "route")->errors);
}

static void used(struct reading *r, const struct metrics_sample *s)
{
    struct top_row *row = labelled(r, s, TOP_MODELS, "model", NULL);
    bool input = label_is(r, s, "direction", "input");
    count(r, s, input ? &row->input : &row->output);
    count(r, s, input ? &r->t->input : &r->t->output);
}

static void reserved(struct reading *r, const struct metrics_sample *s)
{
    count(r, s, &labelled(r, s, TOP_MODELS, "model", NULL)->reserved);
}

static void verdicts(struct reading *r, const struct metrics_sample *s)
{
    for (int i = 0; i < TOP_VERDICTS; i++) {
        if (label_is(r, s, "verdict", top_verdicts[i]))
            count(r, s, &r->t->verdicts[i]);
    }
}

static void restarts(struct reading *r, const struct metrics_sample *s)
{
    for (int i = 0; i < TOP_EXITS; i++) {
        if (label_is(r, s, "reason", top_exits[i]))
            count(r, s, &r->t->restarts[i]);
    }
}

static void reloads(struct reading *r, const struct metrics_sample *s)
{
    count(r, s, label_is(r, s, "outcome", "ok") ? &r->t->reloads : &r->t->reload_failures);
}

static void redis_times(struct reading *r, const struct metrics_sample *s)
{
    bucket(r, s, &r->redis, 0);
}

static void version(struct reading *r, const struct metrics_sample *s)
{
    metrics_sample_label(s, "version", &r->a);
    snprintf(r->t->version, sizeof r->t->version, "%.*s", (int)r->a.n, r->a.n > 0 ? r->a.p : "");
}

#define WORKER(what)                                                                               \
    static void worker_##what(struct reading *r, const struct metrics_sample *s)                   \
    {                                                                                              \
        labelled(r, s, TOP_WORKERS, "worker", NULL)->what = s->value;                              \
    }
WORKER(memory)
WORKER(lua_memory)
WORKER(buffers)
WORKER(connections)
WORKER(in_flight)
WORKER(generations)
#undef WORKER

static void worker_redis(struct reading *r, const struct metrics_sample *s)
{
    labelled(r, s, TOP_WORKERS, "worker", NULL)->redis_usable = s->value;
    r->t->redis_usable += s->value;
}

/* A figure of the whole: a count or, where it is no counter, a value. */
#define COUNT(name, field)                                                                         \
    {                                                                                              \
        name, NULL, offsetof(struct top, field), 0                                                 \
    }
#define VALUE(name, field)                                                                         \
    {                                                                                              \
        name, NULL, 0, offsetof(struct top, field)                                                 \
    }
static const struct {
    const char *name;
    read_fn *read;
    size_t count, value;
} readers[] = {
    { "tollgate_requests_ended_total", ended, 0, 0 },
    { "tollgate_request_duration_seconds_bucket", duration, 0, 0 },
    { "tollgate_request_first_byte_seconds_bucket", first_byte, 0, 0 },
    { "tollgate_refusals_total", refusals, 0, 0 },
    { "tollgate_origin_attempts_total", attempts, 0, 0 },
    { "tollgate_origin_errors_total", attempt_errors, 0, 0 },
    { "tollgate_tokens_used_total", used, 0, 0 },
    { "tollgate_tokens_reserved_total", reserved, 0, 0 },
    { "tollgate_quota_decisions_total", verdicts, 0, 0 },
    { "tollgate_worker_restarts_total", restarts, 0, 0 },
    { "tollgate_reloads_total", reloads, 0, 0 },
    { "tollgate_redis_duration_seconds_bucket", redis_times, 0, 0 },
    { "tollgate_build_info", version, 0, 0 },
    { "tollgate_worker_resident_memory_bytes", worker_memory, 0, 0 },
    { "tollgate_worker_lua_memory_bytes", worker_lua_memory, 0, 0 },
    { "tollgate_worker_buffer_bytes", worker_buffers, 0, 0 },
    { "tollgate_worker_client_connections", worker_connections, 0, 0 },
    { "tollgate_worker_requests_in_flight", worker_in_flight, 0, 0 },
    { "tollgate_worker_generations", worker_generations, 0, 0 },
    { "tollgate_worker_redis_usable", worker_redis, 0, 0 },
    COUNT("tollgate_requests_total", requests),
    COUNT("tollgate_requests_lost_total", lost),
    COUNT("tollgate_gateway_errors_total", gateway_errors),
    COUNT("tollgate_client_gone_total", client_gone),
    COUNT("tollgate_redis_duration_seconds_count", redis),
    COUNT("tollgate_redis_errors_total", redis_errors),
    VALUE("tollgate_requests_in_flight", in_flight),
    VALUE("tollgate_client_connections", connections),
    VALUE("tollgate_quota_pending", pending),
    VALUE("tollgate_ready", ready),
    VALUE("tollgate_generation", generation),
    VALUE("process_start_time_seconds", started),
    VALUE("process_resident_memory_bytes", memory),
};

static void read_sample(struct reading *r, const struct metrics_sample *s)
{
    for (size_t i = 0; i < sizeof readers / sizeof *readers; i++) {
        if (!slice_eq(s->name, slice_of(readers[i].name)))
            continue;
        if (readers[i].read != NULL)
            readers[i].read(r, s);
        else if (readers[i].count > 0)
            count(r, s, (struct top_count *)((char *)r->t + readers[i].count));
        else
            *(double *)((char *)r->t + readers[i].value) = s->value;
        return;
    }
}

/* --- what belongs to targets, whichever route they stand on: known by their names alone --- */

static void read_state(struct reading *r, const struct metrics_sample *s)
{
    bool breaker = slice_eq(s->name, SLICE("breaker_state"));
    if (!breaker && !slice_eq(s->name, SLICE("tollgate_target_healthy")))
        return;
    if (breaker) {
        metrics_sample_label(s, "provider", &r->a);
        metrics_sample_label(s, "model", &r->b);
        buf_add_text(&r->a, ":");
        buf_add_slice(&r->a, buf_slice(&r->b));
    } else {
        metrics_sample_label(s, "target", &r->a);
    }
    bool found = false;
    struct top_list *l = &r->t->lists[TOP_TARGETS];
    for (uint32_t i = 0; i < l->n; i++) {
        if (slice_eq(l->rows[i].name, buf_slice(&r->a))) {
            *(breaker ? &l->rows[i].breaker : &l->rows[i].healthy) = s->value;
            found = true;
        }
    }
    if (!found) { /* not asked so far */
        struct top_row *row = row_of(r, TOP_TARGETS, buf_slice(&r->a), SLICE(""));
        *(breaker ? &row->breaker : &row->healthy) = s->value;
    }
}

/* --- the whole --- */

static void no_rates(struct top *t)
{
    struct top_count *const all[] = { &t->requests,     &t->lost,    &t->gateway_errors,
                                      &t->refused,      &t->errors,  &t->client_gone,
                                      &t->input,        &t->output,  &t->redis,
                                      &t->redis_errors, &t->reloads, &t->reload_failures };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        all[i]->rate = NAN;
    for (int i = 0; i < TOP_VERDICTS; i++)
        t->verdicts[i].rate = NAN;
    for (int i = 0; i < TOP_EXITS; i++)
        t->restarts[i].rate = NAN;
    for (int kind = 0; kind < TOP_KINDS; kind++) {
        for (uint32_t i = 0; i < t->lists[kind].n; i++) {
            struct top_row *row = &t->lists[kind].rows[i];
            row->requests.rate = row->errors.rate = row->refused.rate = NAN;
            row->input.rate = row->output.rate = row->reserved.rate = NAN;
        }
    }
}

void top_read(struct top *t, const struct metrics_page *now, const struct metrics_page *before,
              double seconds)
{
    static const char start[] = "process_start_time_seconds";
    *t = (struct top){ .ready = NAN, .generation = NAN, .started = NAN, .memory = NAN };
    t->in_flight = t->connections = t->pending = NAN;
    arena_init(&t->arena);
    t->restarted =
        before != NULL && metrics_page_value(before, start) != metrics_page_value(now, start);
    struct reading r = { .t = t, .before = t->restarted || !(seconds > 0) ? NULL : before };
    t->seconds = r.before != NULL ? seconds : NAN;
    buf_init(&r.a);
    buf_init(&r.b);
    for (uint32_t i = 0; i < now->n; i++)
        read_sample(&r, &now->samples[i]);
    for (uint32_t i = 0; i < now->n; i++)
        read_state(&r, &now->samples[i]);
    for (uint32_t i = 0; i < t->lists[TOP_ROUTES].n; i++) {
        struct top_row *row = &t->lists[TOP_ROUTES].rows[i];
        row->duration = times(row, 0);
        row->first_byte = times(row, 1);
    }
    t->duration = times(&r.all, 0);
    t->redis_times = times(&r.redis, 0);
    if (r.before == NULL)
        no_rates(t);
    buf_deinit(&r.a);
    buf_deinit(&r.b);
}

void top_deinit(struct top *t)
{
    for (int i = 0; i < TOP_KINDS; i++) {
        mem_free(t->lists[i].rows);
        mem_free(t->lists[i].slots);
    }
    arena_deinit(&t->arena);
}
