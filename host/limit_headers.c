/* See limit_headers.h. */
#include "limit_headers.h"

#include <math.h>
#include <time.h>

#include "loop.h"
#include "put.h"

static int64_t at_least_0(int64_t ms)
{
    return ms > 0 ? ms : 0;
}

/* What was written from start on. */
static struct slice written(const char *start, const char *end)
{
    return (struct slice){ start, (size_t)(end - start) };
}

/* As OpenAI writes times: 12ms, 1s, 6m0s, 1h2m3s. */
static struct slice duration(struct arena *a, int64_t ms)
{
    char *start = arena_alloc(a, 3 * (PUT_NUMBER + 1)), *to = start;
    if (ms < 1000)
        return written(start, put_slice(put_number(to, (uint64_t)at_least_0(ms)), SLICE("ms")));
    uint64_t s = (uint64_t)(ms + 999) / 1000;
    if (s >= 3600)
        to = put_slice(put_number(to, s / 3600), SLICE("h"));
    if (s >= 60)
        to = put_slice(put_number(to, s / 60 % 60), SLICE("m"));
    return written(start, put_slice(put_number(to, s % 60), SLICE("s")));
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

static struct slice number(struct arena *a, uint64_t n)
{
    char *start = arena_alloc(a, PUT_NUMBER);
    return written(start, put_number(start, n));
}

/* The units that clients look for: each has a limit, what remains, and when it is full again. */
static const struct unit {
    const char *name;
    struct slice openai[3], anthropic[3];
} units[] = { { "requests",
                { SLICE("x-ratelimit-limit-requests"), SLICE("x-ratelimit-remaining-requests"),
                  SLICE("x-ratelimit-reset-requests") },
                { SLICE("anthropic-ratelimit-requests-limit"),
                  SLICE("anthropic-ratelimit-requests-remaining"),
                  SLICE("anthropic-ratelimit-requests-reset") } },
              { "tokens",
                { SLICE("x-ratelimit-limit-tokens"), SLICE("x-ratelimit-remaining-tokens"),
                  SLICE("x-ratelimit-reset-tokens") },
                { SLICE("anthropic-ratelimit-tokens-limit"),
                  SLICE("anthropic-ratelimit-tokens-remaining"),
                  SLICE("anthropic-ratelimit-tokens-reset") } } };

static void set_row(enum llm_api api, const struct unit *u, const struct limit_row *r,
                    int64_t now_ms, struct headers *h)
{
    struct arena *a = h->arena;
    bool anthropic = api == LLM_ANTHROPIC_MESSAGES;
    const struct slice *names = anthropic ? u->anthropic : u->openai;
    headers_set(h, names[0], number(a, r->limit));
    headers_set(h, names[1], number(a, r->remaining));
    headers_set(h, names[2],
                anthropic ? rfc3339(a, now_ms + r->reset_ms) : duration(a, r->reset_ms));
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

static char *put_parameter(char *to, struct slice name, uint64_t value)
{
    return put_number(put_slice(to, name), value);
}

/* draft-ietf-httpapi-ratelimit-headers: a list of policies, and one of what is left of each. */
static void set_drafts(const struct limit_row *rows, struct headers *h)
{
    size_t room = 0;
    for (const struct limit_row *r = rows; r != NULL; r = r->next)
        room += r->name.n + sizeof ", \"\";q=;w=" + 2 * PUT_NUMBER;
    char *policies = arena_alloc(h->arena, room), *states = arena_alloc(h->arena, room);
    char *policy = policies, *state = states;
    for (const struct limit_row *r = rows; r != NULL; r = r->next) {
        struct slice open = r != rows ? SLICE(", \"") : SLICE("\"");
        policy = put_slice(put_slice(policy, open), r->name);
        policy = put_parameter(policy, SLICE("\";q="), r->limit);
        policy = put_parameter(policy, SLICE(";w="), r->window_s);
        state = put_slice(put_slice(state, open), r->name);
        state = put_parameter(state, SLICE("\";r="), r->remaining);
        state =
            put_parameter(state, SLICE(";t="), (uint64_t)(at_least_0(r->reset_ms) + 999) / 1000);
    }
    headers_set(h, SLICE("ratelimit-policy"), written(policies, policy));
    headers_set(h, SLICE("ratelimit"), written(states, state));
}

void limit_headers_set(enum llm_api api, const struct limit_row *rows, const struct quota_limits *l,
                       const struct quota_result *r, struct headers *h)
{
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
        const struct limit_row *row = tightest(rows, units[i].name);
        if (row != NULL)
            set_row(api, &units[i], row, r != NULL ? r->now_ms : loop_wall_ms(), h);
    }
    set_drafts(rows, h);
}
