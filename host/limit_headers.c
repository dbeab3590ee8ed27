/* See limit_headers.h. */
#include "limit_headers.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <time.h>

/* One limit as clients see it. */
struct row {
    const char *name; /* requests, tokens */
    uint64_t limit, remaining;
    int64_t reset_ms; /* until it is whole again */
    uint64_t window_s;
};

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

static void set_row(enum llm_api api, const struct row *r, int64_t now_ms, struct headers *h)
{
    struct arena *a = h->arena;
    if (api == LLM_ANTHROPIC_MESSAGES) {
        set(h, "anthropic-ratelimit-%s-limit", r->name, number(a, r->limit));
        set(h, "anthropic-ratelimit-%s-remaining", r->name, number(a, r->remaining));
        set(h, "anthropic-ratelimit-%s-reset", r->name, rfc3339(a, now_ms + r->reset_ms));
        return;
    }
    set(h, "x-ratelimit-limit-%s", r->name, number(a, r->limit));
    set(h, "x-ratelimit-remaining-%s", r->name, number(a, r->remaining));
    set(h, "x-ratelimit-reset-%s", r->name, duration(a, r->reset_ms));
}

static struct row bucket_row(const struct quota_limits *l, const struct quota_result *r)
{
    double missing = l->burst - r->tokens;
    return (struct row){ "requests", (uint64_t)l->burst, (uint64_t)fmax(0, floor(r->tokens)),
                         missing > 0 ? (int64_t)ceil(missing / l->rate * 1000) : 0,
                         (uint64_t)ceil(l->burst / l->rate) };
}

static struct row budget_row(const struct quota_limits *l, const struct quota_result *r)
{
    return (struct row){ "tokens", l->budget, r->spent < l->budget ? l->budget - r->spent : 0,
                         at_least_0(r->month_end_ms - r->now_ms), 31 * 86400 };
}

void limit_headers_set(enum llm_api api, const struct quota_limits *l, const struct quota_result *r,
                       struct headers *h)
{
    struct arena *a = h->arena;
    struct slice policy = { NULL, 0 }, state = { NULL, 0 };
    struct row rows[2];
    int n = 0;
    if (l->has_rate)
        rows[n++] = bucket_row(l, r);
    if (l->has_budget)
        rows[n++] = budget_row(l, r);
    for (int i = 0; i < n; i++) {
        const struct row *w = &rows[i];
        const char *comma = i > 0 ? ", " : "";
        set_row(api, w, r->now_ms, h);
        policy =
            arena_printf(a, "%.*s%s\"%s\";q=%" PRIu64 ";w=%" PRIu64, (int)policy.n,
                         policy.p != NULL ? policy.p : "", comma, w->name, w->limit, w->window_s);
        state = arena_printf(a, "%.*s%s\"%s\";r=%" PRIu64 ";t=%" PRId64, (int)state.n,
                             state.p != NULL ? state.p : "", comma, w->name, w->remaining,
                             (w->reset_ms + 999) / 1000);
    }
    if (n > 0) {
        headers_set(h, SLICE("ratelimit-policy"), policy);
        headers_set(h, SLICE("ratelimit"), state);
    }
}
