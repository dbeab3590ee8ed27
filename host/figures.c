/* See figures.h: the metrics, and the tables of handles. */
#include <sys/random.h>

#include "figures_internal.h"
#include "log.h"
#include "mem.h"
#include "siphash.h"

enum { TABLE_FIRST = 16 };

/* --- handles by name --- */

static void grow(struct figures_names *t)
{
    struct figures_name **old = t->slots;
    uint32_t n = t->nslots;
    t->nslots = n == 0 ? TABLE_FIRST : n * 2;
    t->slots = mem_zalloc(t->nslots * sizeof *t->slots);
    for (uint32_t i = 0; i < n; i++) {
        for (struct figures_name *h = old[i], *next; h != NULL; h = next) {
            next = h->chain;
            struct figures_name **slot = &t->slots[h->hash & (t->nslots - 1)];
            h->chain = *slot;
            *slot = h;
        }
    }
    mem_free(old);
}

static struct figures_name *handle_new(struct figures *f, const struct figures_names *t,
                                       struct slice key)
{
    struct figures_name *h = mem_zalloc(t->size);
    h->f = f;
    h->key = mem_strndup(key.p, key.n); /* ends in a NUL more */
    h->nkey = key.n;
    return h;
}

static struct figures_name *other(struct figures *f, struct figures_names *t, int parts)
{
    static const char word[] = "other\0other\0other"; /* three parts at most */
    if (t->other == NULL)
        t->other = handle_new(f, t, (struct slice){ word, (size_t)parts * sizeof "other" - 1 });
    return t->other;
}

struct figures_name *figures_name(struct figures *f, struct figures_names *t, struct slice key,
                                  int parts, bool find)
{
    uint64_t hash = siphash(f->secret, key);
    struct figures_name *h = t->nslots > 0 ? t->slots[hash & (t->nslots - 1)] : NULL;
    while (h != NULL && (h->hash != hash || h->nkey != key.n || memcmp(h->key, key.p, key.n) != 0))
        h = h->chain;
    if (h != NULL)
        return h;
    if (find)
        return NULL;
    if (t->n >= t->limit)
        return other(f, t, parts);
    if (t->n == t->nslots)
        grow(t);
    h = handle_new(f, t, key);
    h->hash = hash;
    struct figures_name **slot = &t->slots[hash & (t->nslots - 1)];
    h->chain = *slot;
    *slot = h;
    t->n++;
    return h;
}

const char *figures_part(const struct figures_name *n, int i)
{
    const char *at = n->key;
    for (; i > 0; i--)
        at += strlen(at) + 1;
    return at;
}

static void names_free(struct figures_names *t, void (*deinit)(struct figures_name *h))
{
    for (uint32_t i = 0; i <= t->nslots; i++) {
        struct figures_name *h = i < t->nslots ? t->slots[i] : t->other;
        for (struct figures_name *next; h != NULL; h = next) {
            next = h->chain;
            if (deinit != NULL)
                deinit(h);
            mem_free(h->key);
            mem_free(h);
        }
    }
    mem_free(t->slots);
}

/* --- series --- */

struct metric_series *figures_series(struct metric *m, const char *a, const char *b, const char *c)
{
    struct slice values[3] = { slice_of(a), slice_of(b != NULL ? b : ""),
                               slice_of(c != NULL ? c : "") };
    return metric_series(m, values);
}

double *figures_value(struct metric *m, const char *a, const char *b, const char *c)
{
    return metric_value(figures_series(m, a, b, c));
}

/* --- the metrics --- */

static const double request_buckets[] = { .005, .01, .025, .05, .1, .25, .5, 1,
                                          2.5,  5,   10,   30,  60, 120, 300 };
static const double redis_buckets[] = { .0001, .00025, .0005, .001, .0025, .005, .01,
                                        .025,  .05,    .1,    .25,  .5,    1 };
static const double batch_buckets[] = { 1, 2, 4, 8, 16, 32, 64 };

/* labels: up to three, NULL behind the last. */
static struct metric *define(struct figures *f, enum metric_kind kind, const char *name,
                             const char *help, const char *const labels[4], const double *buckets,
                             int nbuckets)
{
    const char *why;
    struct metric_spec spec = {
        .kind = kind, .name = name, .help = help, .series = METRICS_SERIES_MAX, .own = true
    }; /* handles bound the series */
    while (labels[spec.nlabels] != NULL) {
        spec.labels[spec.nlabels] = labels[spec.nlabels];
        spec.nlabels++;
    }
    spec.nbuckets = nbuckets;
    for (int i = 0; i < nbuckets; i++)
        spec.buckets[i] = buckets[i];
    struct metric *m = metrics_register(f->metrics, &spec, &why);
    if (m == NULL)
        log_error("metric %s: %s", name, why); /* a mistake of ours, which a test shows */
    return m;
}

#define LABELS(...) ((const char *const[4]){ __VA_ARGS__, NULL })
#define COUNTER(name, help, ...)                                                                   \
    define(f, METRIC_COUNTER, "tollgate_" name, help, LABELS(__VA_ARGS__), NULL, 0)
#define HISTOGRAM(name, help, buckets, ...)                                                        \
    define(f, METRIC_HISTOGRAM, "tollgate_" name, help, LABELS(__VA_ARGS__), buckets,              \
           sizeof(buckets) / sizeof *(buckets))

static void define_requests(struct figures *f)
{
    f->ended = COUNTER("requests_ended_total",
                       "Requests that ended, by status (none: no head was sent) and how", "route",
                       "code", "ended");
    f->duration =
        HISTOGRAM("request_duration_seconds", "From a request's head to the end of its answer",
                  request_buckets, "route", "status");
    f->first_byte = HISTOGRAM("request_first_byte_seconds",
                              "From a request's head to the head of the origin's answer",
                              request_buckets, "route", "status");
    f->refusals =
        COUNTER("refusals_total", "Requests refused by a limit or another rule", "route", "limit");
    f->reserved = COUNTER("tokens_reserved_total", "Tokens reserved for requests that ended",
                          "model", "direction");
    f->used = COUNTER("tokens_used_total", "Tokens charged", "model", "direction");
    f->over_reserved = COUNTER("tokens_over_reserved_total",
                               "Tokens reserved and given back, since fewer were used", "model");
    f->usage_missing = COUNTER("usage_missing_total",
                               "Metered requests charged by policy since no usage came", "cause");
}

static void define_parts(struct figures *f)
{
    f->plugin_seconds = COUNTER("plugin_seconds_total",
                                "Seconds that plugins ran, without their waits", "plugin", "phase");
    f->plugin_calls = COUNTER("plugin_calls_total", "Calls of plugins", "plugin", "phase");
    f->plugin_errors =
        COUNTER("plugin_errors_total", "Calls of plugins that raised", "plugin", "phase");
    f->attempts = COUNTER("origin_attempts_total", "Attempts on targets", "route", "target");
    f->attempt_errors =
        COUNTER("origin_errors_total", "Attempts that failed without a usable answer", "route",
                "target", "error");
    f->redis_seconds =
        HISTOGRAM("redis_duration_seconds", "From a command sent to Redis to its reply",
                  redis_buckets, "command");
    f->redis_errors =
        COUNTER("redis_errors_total", "Commands that Redis did not carry out", "error");
    f->batches = HISTOGRAM("quota_batch_requests", "Requests in one call of a quota script",
                           batch_buckets, "script");
    f->batch[0] = figures_series(f->batches, "admit", NULL, NULL);
    f->batch[1] = figures_series(f->batches, "settle", NULL, NULL);
}

/* --- the whole --- */

struct figures *figures_new(struct metrics *m)
{
    struct figures *f = mem_zalloc(sizeof *f);
    f->metrics = m;
    if (getentropy(f->secret, sizeof f->secret) != 0)
        log_warn("figures: the system gives no random bytes");
    f->routes =
        (struct figures_names){ .limit = FIGURES_ROUTES, .size = sizeof(struct figures_route) };
    f->targets =
        (struct figures_names){ .limit = FIGURES_TARGETS, .size = sizeof(struct figures_target) };
    f->hooks =
        (struct figures_names){ .limit = FIGURES_HOOKS, .size = sizeof(struct figures_hook) };
    f->models =
        (struct figures_names){ .limit = FIGURES_MODELS, .size = sizeof(struct figures_model) };
    f->commands =
        (struct figures_names){ .limit = FIGURES_COMMANDS, .size = sizeof(struct figures_command) };
    define_requests(f);
    define_parts(f);
    return f;
}

static void variants_free(struct figures_variant *v, bool owned)
{
    for (struct figures_variant *next; v != NULL; v = next) {
        next = v->next;
        if (owned)
            mem_free((char *)(uintptr_t)v->text);
        mem_free(v);
    }
}

static void route_deinit(struct figures_name *h)
{
    struct figures_route *r = (struct figures_route *)h;
    variants_free(r->ends, false);
    variants_free(r->refusals, true);
}

static void target_deinit(struct figures_name *h)
{
    variants_free(((struct figures_target *)h)->errors, false);
}

void figures_free(struct figures *f)
{
    if (f == NULL)
        return;
    names_free(&f->routes, route_deinit);
    names_free(&f->targets, target_deinit);
    names_free(&f->hooks, NULL);
    names_free(&f->models, NULL);
    names_free(&f->commands, NULL);
    mem_free(f);
}
