/* See limit_headers.h. */
#include "limit_headers.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

#include "loop.h"

static int64_t at_least_0(int64_t ms)
{
    return ms > 0 ? ms : 0;
}

/* As OpenAI writes times: 12ms, 1s, 6m0s, 1h2m3s. */
static struct slice duration(struct arena *a, int64_t ms)
{
    if (ms < 1000)
        return arena_printf(a, "%" PRId64 "ms", ms);
    int64_t s = (ms + 999) / 1000;
    if (s < 60)
        return arena_printf(a, "%" PRId64 "s", s);
    if (s < 3600)
        return arena_printf(a, "%" PRId64 "m%" PRId64 "s", s / 60, s % 60);
    return arena_printf(a, "%" PRId64 "h%" PRId64 "m%" PRId64 "s", s / 3600, s / 60 % 60, s % 60);
}

static struct slice rfc3339(struct arena *a, int64_t wall_ms)
{
    struct tm tm;
    time_t s = (wall_ms + 999) / 1000;
    char text[32];
    gmtime_r(&s, &tm);
    strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &tm);
    return arena_dup(a, slice_of(text));
}

static void set(struct headers *h, const char *format, const char *name, struct slice value)
{
    headers_set(h, arena_printf(h->arena, format, name), value);
}

static struct slice number(struct arena *a, uint64_t n)
{
    return arena_printf(a, "%" PRIu64, n);
}

static void set_row(enum llm_api api, const struct limit_row *r, int64_t now_ms, struct headers *h)
{
    struct arena *a = h->arena;
    if (api == LLM_ANTHROPIC_MESSAGES) {
        set(h, "anthropic-ratelimit-%s-limit", r->unit, number(a, r->limit));
        set(h, "anthropic-ratelimit-%s-remaining", r->unit, number(a, r->remaining));
        set(h, "anthropic-ratelimit-%s-reset", r->unit, rfc3339(a, now_ms + r->reset_ms));
        return;
    }
    set(h, "x-ratelimit-limit-%s", r->unit, number(a, r->limit));
    set(h, "x-ratelimit-remaining-%s", r->unit, number(a, r->remaining));
    set(h, "x-ratelimit-reset-%s", r->unit, duration(a, r->reset_ms));
}

static struct limit_row bucket_row(const struct quota_limits *l, const struct quota_result *r,
                                   const struct limit_row *next)
{
    double missing = l->burst - r->tokens;
    return (struct limit_row){ next,
                               "requests",
                               SLICE("requests"),
                               (uint64_t)l->burst,
                               (uint64_t)fmax(0, floor(r->tokens)),
                               missing > 0 ? (int64_t)ceil(missing / l->rate * 1000) : 0,
                               (uint64_t)ceil(l->burst / l->rate) };
}

static struct limit_row budget_row(const struct quota_limits *l, const struct quota_result *r,
                                   const struct limit_row *next)
{
    return (struct limit_row){ next,
                               "tokens",
                               SLICE("tokens"),
                               l->budget,
                               r->spent < l->budget ? l->budget - r->spent : 0,
                               at_least_0(r->month_end_ms - r->now_ms),
                               31 * 86400 };
}

/* Of the rows of a unit the one of which least remains, of these the one that takes longest. */
static const struct limit_row *tightest(const struct limit_row *rows, const char *unit)
{
    const struct limit_row *found = NULL;
    for (const struct limit_row *r = rows; r != NULL; r = r->next) {
        if (strcmp(r->unit, unit) != 0)
            continue;
        if (found == NULL || r->remaining < found->remaining ||
            (r->remaining == found->remaining && r->reset_ms > found->reset_ms))
            found = r;
    }
    return found;
}

static void set_drafts(const struct limit_row *rows, struct headers *h)
{
    struct arena *a = h->arena;
    struct slice policy = { "", 0 }, state = { "", 0 };
    for (const struct limit_row *r = rows; r != NULL; r = r->next) {
        const char *comma = r != rows ? ", " : "";
        policy = arena_printf(a, "%.*s%s\"%.*s\";q=%" PRIu64 ";w=%" PRIu64, (int)policy.n, policy.p,
                              comma, (int)r->name.n, r->name.p, r->limit, r->window_s);
        state = arena_printf(a, "%.*s%s\"%.*s\";r=%" PRIu64 ";t=%" PRId64, (int)state.n, state.p,
                             comma, (int)r->name.n, r->name.p, r->remaining,
                             (at_least_0(r->reset_ms) + 999) / 1000);
    }
    headers_set(h, SLICE("ratelimit-policy"), policy);
    headers_set(h, SLICE("ratelimit"), state);
}

void limit_headers_set(enum llm_api api, const struct limit_row *rows, const struct quota_limits *l,
                       const struct quota_result *r, struct headers *h)
{
    static const char *const units[] = { "requests", "tokens" };
    struct limit_row budget, bucket;
    if (l != NULL && l->has_budget) {
        budget = budget_row(l, r, rows);
        rows = &budget;
    }
    if (l != NULL && l->has_rate) {
        bucket = bucket_row(l, r, rows);
        rows = &bucket;
    }
    if (rows == NULL)
        return;
    for (int i = 0; i < 2; i++) {
        const struct limit_row *row = tightest(rows, units[i]);
        if (row != NULL)
            set_row(api, row, r != NULL ? r->now_ms : loop_wall_ms(), h);
    }
    set_drafts(rows, h);
}
