/* What `tollgate top` shows, out of two pages of metrics: totals since the gateway's start, and
 * what was added between the two pages a second.
 *
 * Where the gateway has been started anew in between, or there is only one page, there are no
 * rates: they are NaN, as is all that is not known. A rate is never negative. */
#ifndef TOLLGATE_TOP_FIGURES_H
#define TOLLGATE_TOP_FIGURES_H

#include "arena.h"
#include "metrics.h"
#include "metrics_read.h"

struct top_count {
    double total, rate;
};

/* Seconds, of what ended between the pages; of all since the start where there are no rates. */
struct top_times {
    double p50, p95;
};

enum top_kind { TOP_ROUTES, TOP_TARGETS, TOP_MODELS, TOP_WORKERS, TOP_KINDS };

/* A row of a kind; what the kind does not have is 0. */
struct top_row {
    struct slice name, second; /* route; target and route; model; worker */
    uint64_t hash;
    struct top_count requests; /* that ended; attempts on a target */
    struct top_count errors;   /* 5xx, or the answer did not get to its end; attempts that failed */
    struct top_count refused;
    struct top_times duration, first_byte;
    struct top_count input, output, reserved; /* tokens */
    double breaker, healthy; /* as breaker_state and target_healthy say; NaN: not known */
    double memory, lua_memory, buffers, connections, in_flight, generations, redis_usable;
    struct metrics_bucket *buckets[2]; /* counts of one bound each, of duration and first byte */
    int nbuckets[2];
};

struct top_list {
    struct top_row *rows;
    uint32_t n, cap, nslots;
    uint32_t *slots;
};

enum { TOP_VERDICTS = 5, TOP_EXITS = 3 };

struct top {
    struct arena arena;
    double seconds;                    /* between the pages; NaN: no rates */
    bool restarted;                    /* the gateway has been started anew between them */
    double ready, generation, started; /* started: seconds since the epoch */
    char version[32];
    struct top_count requests, lost, gateway_errors, refused, errors, client_gone, input, output;
    struct top_times duration;
    double in_flight, connections, memory;
    struct top_count verdicts[TOP_VERDICTS]; /* of quota */
    double pending;
    struct top_count redis, redis_errors;
    struct top_times redis_times;
    double redis_usable; /* how many workers' connections to Redis are */
    struct top_count restarts[TOP_EXITS], reloads, reload_failures;
    struct top_list lists[TOP_KINDS];
};

extern const char *const top_verdicts[TOP_VERDICTS]; /* as metrics name them */
extern const char *const top_exits[TOP_EXITS];

/* before: NULL, or the page that was read `seconds` ago. top_deinit in any case. */
void top_read(struct top *t, const struct metrics_page *now, const struct metrics_page *before,
              double seconds);
void top_deinit(struct top *t);

#endif
