/* See top_rows.h. */
#include "top_rows.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* --- numbers --- */

/* Four digits at most, with k, M, G or T. */
static struct slice scaled(struct arena *a, double v, double step, bool rate)
{
    static const char units[] = " kMGT";
    int unit = 0;
    while (fabs(v) >= (unit == 0 && step < 1024 ? 9999.5 : step * .9995) && unit < 4) {
        v /= step;
        unit++;
    }
    const char *form = (unit > 0 || rate) && fabs(v) < 9.95 ? "%.1f%c" : "%.0f%c";
    struct slice s = arena_printf(a, form, v, units[unit]);
    s.n -= unit == 0;
    return s;
}

static struct slice seconds(struct arena *a, double v)
{
    if (v < .00995)
        return arena_printf(a, "%.1fms", v * 1000);
    if (v < .9995)
        return arena_printf(a, "%.0fms", v * 1000);
    return arena_printf(a, v < 9.95 ? "%.1fs" : "%.0fs", v);
}

struct slice top_form(struct arena *a, enum top_form form, double v)
{
    static const char *const breakers[] = { "closed", "half-open", "open" };
    if (isnan(v))
        return SLICE("-");
    switch (form) {
    case TOP_RATE: return scaled(a, v, 1000, v > 0);
    case TOP_SECONDS: return seconds(a, v);
    case TOP_BYTES: return scaled(a, v, 1024, false);
    case TOP_BREAKER: return slice_of(v >= 0 && v <= 2 ? breakers[(int)v] : "?");
    case TOP_HEALTH: return v > 0 ? SLICE("up") : SLICE("down");
    case TOP_USABLE: return v > 0 ? SLICE("usable") : SLICE("away");
    default: return scaled(a, v, 1000, false);
    }
}

/* --- tables --- */

#define AT(field) offsetof(struct top_row, field)
static const struct top_field routes[] = {
    { { "ROUTE", true, 0, 20 }, TOP_TEXT, AT(name), 0 },
    { { "REQ/S", false, 0, 0 }, TOP_RATE, AT(requests.rate), 0 },
    { { "P50", false, 0, 0 }, TOP_SECONDS, AT(duration.p50), 0 },
    { { "P95", false, 0, 0 }, TOP_SECONDS, AT(duration.p95), 0 },
    { { "ERR/S", false, 0, 0 }, TOP_RATE, AT(errors.rate), '+' },
    { { "REFUSED/S", false, 2, 0 }, TOP_RATE, AT(refused.rate), 0 },
    { { "TTFB P95", false, 5, 0 }, TOP_SECONDS, AT(first_byte.p95), 0 },
    { { "REQUESTS", false, 1, 0 }, TOP_TOTAL, AT(requests.total), 0 },
    { { "ERRORS", false, 3, 0 }, TOP_TOTAL, AT(errors.total), 0 },
    { { "REFUSED", false, 4, 0 }, TOP_TOTAL, AT(refused.total), 0 },
};
static const struct top_field targets[] = {
    { { "TARGET", true, 0, 24 }, TOP_TEXT, AT(name), 0 },
    { { "ROUTE", true, 1, 12 }, TOP_TEXT, AT(second), 0 },
    { { "TRY/S", false, 0, 0 }, TOP_RATE, AT(requests.rate), 0 },
    { { "FAIL/S", false, 0, 0 }, TOP_RATE, AT(errors.rate), '+' },
    { { "BREAKER", false, 0, 0 }, TOP_BREAKER, AT(breaker), '+' },
    { { "HEALTH", false, 0, 0 }, TOP_HEALTH, AT(healthy), '0' },
    { { "TRIES", false, 3, 0 }, TOP_TOTAL, AT(requests.total), 0 },
    { { "FAILED", false, 2, 0 }, TOP_TOTAL, AT(errors.total), 0 },
};
static const struct top_field models[] = {
    { { "MODEL", true, 0, 24 }, TOP_TEXT, AT(name), 0 },
    { { "IN TOK/S", false, 0, 0 }, TOP_RATE, AT(input.rate), 0 },
    { { "OUT TOK/S", false, 0, 0 }, TOP_RATE, AT(output.rate), 0 },
    { { "INPUT", false, 1, 0 }, TOP_TOTAL, AT(input.total), 0 },
    { { "OUTPUT", false, 2, 0 }, TOP_TOTAL, AT(output.total), 0 },
    { { "RESERVED", false, 3, 0 }, TOP_TOTAL, AT(reserved.total), 0 },
};
static const struct top_field workers[] = {
    { { "WORKER", true, 0, 3 }, TOP_TEXT, AT(name), 0 },
    { { "CONNECTIONS", false, 0, 0 }, TOP_NUMBER, AT(connections), 0 },
    { { "IN FLIGHT", false, 0, 0 }, TOP_NUMBER, AT(in_flight), 0 },
    { { "MEMORY", false, 0, 0 }, TOP_BYTES, AT(memory), 0 },
    { { "LUA", false, 3, 0 }, TOP_BYTES, AT(lua_memory), 0 },
    { { "BUFFERS", false, 4, 0 }, TOP_BYTES, AT(buffers), 0 },
    { { "GENERATIONS", false, 2, 0 }, TOP_NUMBER, AT(generations), 0 },
    { { "REDIS", false, 0, 0 }, TOP_USABLE, AT(redis_usable), '0' },
};
#define TABLE(title, fields)                                                                       \
    {                                                                                              \
        title, fields, sizeof(fields) / sizeof *(fields)                                           \
    }
const struct top_table top_tables[TOP_KINDS] = {
    [TOP_ROUTES] = TABLE("routes", routes),
    [TOP_TARGETS] = TABLE("targets", targets),
    [TOP_MODELS] = TABLE("models", models),
    [TOP_WORKERS] = TABLE("workers", workers),
};

double top_number(const struct top_row *r, const struct top_field *f)
{
    return *(const double *)((const char *)r + f->at);
}

struct slice top_name(const struct top_row *r, const struct top_field *f)
{
    struct slice s = *(const struct slice *)((const char *)r + f->at);
    return s.n > 0 ? s : SLICE("-"); /* no route took it */
}

/* --- order --- */

struct order {
    const struct top_field *by;
    bool reverse;
};

static int by_text(struct slice a, struct slice b)
{
    size_t n = a.n < b.n ? a.n : b.n;
    int order = n > 0 ? memcmp(a.p, b.p, n) : 0;
    return order != 0 ? order : (a.n > b.n) - (a.n < b.n);
}

/* Numbers from the greatest, what is not known last, and what is equal by name. */
static int compare(const void *pa, const void *pb, void *arg)
{
    const struct top_row *a = pa, *b = pb;
    const struct order *o = arg;
    int order = 0;
    if (o->by->form == TOP_TEXT) {
        order = by_text(top_name(a, o->by), top_name(b, o->by));
    } else {
        double x = top_number(a, o->by), y = top_number(b, o->by);
        order = isnan(x) || isnan(y) ? isnan(x) - isnan(y) : (x < y) - (x > y);
    }
    order = o->reverse ? -order : order;
    return order != 0 ? order : by_text(a->name, b->name);
}

void top_sort(struct top *t, const int by[TOP_KINDS], bool reverse)
{
    for (int kind = 0; kind < TOP_KINDS; kind++) {
        struct order o = { &top_tables[kind].fields[by[kind]], reverse };
        struct top_list *l = &t->lists[kind];
        if (l->n > 0)
            qsort_r(l->rows, l->n, sizeof *l->rows, compare, &o);
    }
}
