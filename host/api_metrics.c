/* tg.metrics: counters, gauges and histograms of plugins, on /metrics of the admin listener. They
 * belong to the worker and outlive a generation, so a plugin that is loaded anew goes on counting.
 *
 * Label values are given in the order in which the labels were declared: hits:inc(1, "GET",
 * 200), or as a table: hits:inc(1, { method = "GET", status = 200 }); the former makes no
 * garbage. A value is a string, a number or a boolean. */
#include <math.h>
#include <stdio.h>

#include "api.h"
#include "metrics.h"

static const char *const types[] = { [METRIC_COUNTER] = "tollgate.metrics.counter",
                                     [METRIC_GAUGE] = "tollgate.metrics.gauge",
                                     [METRIC_HISTOGRAM] = "tollgate.metrics.histogram" };

/* --- making --- */

static const char *check_text(lua_State *L, int idx, const char *what, const char *name)
{
    if (lua_type(L, idx) != LUA_TSTRING)
        luaL_error(L, "%s: %s must be a string, not %s", what, name, luaL_typename(L, idx));
    return lua_tostring(L, idx);
}

static int check_list(lua_State *L, int idx, const char *what, const char *name, int max)
{
    if (lua_isnoneornil(L, idx))
        return 0;
    if (!lua_istable(L, idx))
        luaL_error(L, "%s: %s must be a list, not %s", what, name, luaL_typename(L, idx));
    int n = (int)lua_objlen(L, idx);
    if (n > max)
        luaL_error(L, "%s: %s has more than %d items", what, name, max);
    return n;
}

static void read_labels(lua_State *L, const char *what, struct metric_spec *spec)
{
    spec->nlabels = check_list(L, 3, what, "labels", METRICS_LABELS);
    for (int i = 0; i < spec->nlabels; i++) {
        lua_rawgeti(L, 3, i + 1);
        spec->labels[i] = check_text(L, -1, what, "a label");
        lua_pop(L, 1); /* the table holds it */
    }
}

static void read_buckets(lua_State *L, const char *what, struct metric_spec *spec)
{
    static const double defaults[] = { .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10 };
    spec->nbuckets = check_list(L, 4, what, "buckets", METRICS_BUCKETS);
    if (lua_isnoneornil(L, 4)) {
        spec->nbuckets = sizeof defaults / sizeof *defaults;
        memcpy(spec->buckets, defaults, sizeof defaults);
        return;
    }
    for (int i = 0; i < spec->nbuckets; i++) {
        lua_rawgeti(L, 4, i + 1);
        if (lua_type(L, -1) != LUA_TNUMBER)
            luaL_error(L, "%s: a bucket must be a number, not %s", what, luaL_typename(L, -1));
        spec->buckets[i] = lua_tonumber(L, -1);
        lua_pop(L, 1);
    }
}

static void read_options(lua_State *L, int idx, const char *what, struct metric_spec *spec)
{
    if (lua_isnoneornil(L, idx))
        return;
    if (!lua_istable(L, idx))
        luaL_error(L, "%s: the options must be a table, not %s", what, luaL_typename(L, idx));
    for (lua_pushnil(L); lua_next(L, idx) != 0; lua_pop(L, 1)) {
        lua_Number n = lua_tonumber(L, -1);
        if (lua_type(L, -2) != LUA_TSTRING || strcmp(lua_tostring(L, -2), "series") != 0)
            luaL_error(L, "%s: unknown option; there is: series (the most combinations of labels)",
                       what);
        if (!(n >= 1 && n <= METRICS_SERIES_MAX && n == floor(n)))
            luaL_error(L, "%s: series must be an integer from 1 to %d", what, METRICS_SERIES_MAX);
        spec->series = (uint32_t)n;
    }
}

static int make(lua_State *L, enum metric_kind kind, const char *what)
{
    struct services *sv = api_generation(L)->sv;
    const char *why;
    struct metric_spec spec = { .kind = kind };
    bool buckets = kind == METRIC_HISTOGRAM;
    spec.name = check_text(L, 1, what, "the name");
    spec.help = check_text(L, 2, what, "the help");
    read_labels(L, what, &spec);
    if (buckets)
        read_buckets(L, what, &spec);
    read_options(L, buckets ? 5 : 4, what, &spec);
    if (sv->metrics == NULL)
        sv->metrics = metrics_new();
    struct metric *m = metrics_register(sv->metrics, &spec, &why);
    if (m == NULL)
        return luaL_error(L, "%s: %s: %s", what, spec.name, why);
    struct metric **out = lua_newuserdata(L, sizeof *out);
    *out = m;
    luaL_getmetatable(L, types[kind]);
    lua_setmetatable(L, -2);
    return 1;
}

/* tg.metrics.counter(name, help, labels or nil, { series = number } or nil) → counter. The name
 * ends in _total; labels is a list of names. A name that is registered already, by an earlier
 * generation or by another plugin, gives the same counter; with other labels or as another kind
 * it raises. At most `series` (default 1,000) combinations of label values are kept, what comes
 * beyond is counted with every label "other". May be called while a file loads. */
static int metrics_counter(lua_State *L)
{
    return make(L, METRIC_COUNTER, "tg.metrics.counter");
}

/* tg.metrics.gauge(name, help, labels or nil, { series = number } or nil) → gauge: as
 * tg.metrics.counter, for a figure that goes up and down. */
static int metrics_gauge(lua_State *L)
{
    return make(L, METRIC_GAUGE, "tg.metrics.gauge");
}

/* tg.metrics.histogram(name, help, labels or nil, buckets or nil, { series = number } or nil) →
 * histogram: as tg.metrics.counter. buckets are upper bounds, rising; default 0.005 to 10, for
 * seconds. */
static int metrics_histogram(lua_State *L)
{
    return make(L, METRIC_HISTOGRAM, "tg.metrics.histogram");
}

/* --- counting --- */

/* The values of one call; numbers have their text here. */
struct values {
    struct slice v[METRICS_LABELS];
    char numbers[METRICS_LABELS][32];
};

static void read_value(lua_State *L, int idx, const struct metric *m, const char *what, int i,
                       struct values *out)
{
    lua_Number n;
    switch (lua_type(L, idx)) {
    case LUA_TSTRING: out->v[i].p = lua_tolstring(L, idx, &out->v[i].n); break;
    case LUA_TBOOLEAN: out->v[i] = lua_toboolean(L, idx) ? SLICE("true") : SLICE("false"); break;
    case LUA_TNUMBER:
        n = lua_tonumber(L, idx);
        out->v[i].p = out->numbers[i];
        out->v[i].n = (size_t)snprintf(out->numbers[i], sizeof out->numbers[i], "%.14g", n);
        break;
    default:
        luaL_error(L, "%s:%s: label '%s' must be a string, a number or a boolean, not %s",
                   metric_name(m), what, metric_label(m, i), luaL_typename(L, idx));
    }
}

static void read_table(lua_State *L, int idx, const struct metric *m, const char *what,
                       struct values *out)
{
    int given = 0;
    for (lua_pushnil(L); lua_next(L, idx) != 0; lua_pop(L, 1))
        given++;
    for (int i = 0; i < metric_nlabels(m); i++) {
        lua_pushstring(L, metric_label(m, i));
        lua_rawget(L, idx);
        read_value(L, -1, m, what, i, out);
        lua_pop(L, 1); /* the table holds it */
    }
    if (given != metric_nlabels(m))
        luaL_error(L, "%s:%s: the table of labels has names that the metric has not",
                   metric_name(m), what);
}

/* The series that the arguments from `first` on name. */
static struct metric_series *check_series(lua_State *L, int first, struct metric *m,
                                          const char *what)
{
    struct values values;
    int given = lua_gettop(L) - first + 1, n = metric_nlabels(m);
    if (given == 1 && lua_istable(L, first)) {
        read_table(L, first, m, what, &values);
        return metric_series(m, values.v);
    }
    if ((given < 0 ? 0 : given) != n)
        luaL_error(L, "%s:%s: the metric has %d labels, but %d values were given", metric_name(m),
                   what, n, given < 0 ? 0 : given);
    for (int i = 0; i < n; i++)
        read_value(L, first + i, m, what, i, &values);
    return metric_series(m, values.v);
}

static struct metric *check_metric(lua_State *L, enum metric_kind kind)
{
    return *(struct metric **)luaL_checkudata(L, 1, types[kind]);
}

static lua_Number check_number(lua_State *L, const struct metric *m, const char *what)
{
    if (lua_type(L, 2) != LUA_TNUMBER)
        luaL_error(L, "%s:%s: the number must come first, not a %s", metric_name(m), what,
                   luaL_typename(L, 2));
    return lua_tonumber(L, 2);
}

/* Adds what stands at 2, or 1 where that is left out. */
static int add(lua_State *L, struct metric *m, const char *what, int sign)
{
    bool none = lua_isnoneornil(L, 2) || (lua_istable(L, 2) && lua_gettop(L) == 2);
    lua_Number n = none ? 1 : check_number(L, m, what);
    if (!isfinite(n) || (metric_kind(m) == METRIC_COUNTER && n < 0))
        return luaL_error(
            L, "%s:%s: the number must be finite%s", metric_name(m), what,
            metric_kind(m) == METRIC_COUNTER ? ", and 0 or greater: a counter only rises" : "");
    metric_add(check_series(L, lua_istable(L, 2) ? 2 : 3, m, what), sign * n);
    return 0;
}

/* counter:inc(number or nil, label values…): adds to a counter, 1 where no number is given. */
static int counter_inc(lua_State *L)
{
    return add(L, check_metric(L, METRIC_COUNTER), "inc", 1);
}

/* gauge:inc(number or nil, label values…): adds to a gauge, 1 where no number is given. */
static int gauge_inc(lua_State *L)
{
    return add(L, check_metric(L, METRIC_GAUGE), "inc", 1);
}

/* gauge:dec(number or nil, label values…): takes from a gauge, 1 where no number is given. */
static int gauge_dec(lua_State *L)
{
    return add(L, check_metric(L, METRIC_GAUGE), "dec", -1);
}

/* gauge:set(number, label values…): sets a gauge. */
static int gauge_set(lua_State *L)
{
    struct metric *m = check_metric(L, METRIC_GAUGE);
    lua_Number n = check_number(L, m, "set");
    metric_set(check_series(L, 3, m, "set"), n);
    return 0;
}

/* histogram:observe(number, label values…): counts a figure in its bucket. */
static int histogram_observe(lua_State *L)
{
    struct metric *m = check_metric(L, METRIC_HISTOGRAM);
    lua_Number n = check_number(L, m, "observe");
    if (n != n)
        return luaL_error(L, "%s:observe: the number must not be NaN", metric_name(m));
    metric_observe(m, check_series(L, 3, m, "observe"), n);
    return 0;
}

void api_open_metrics(lua_State *L)
{
    static const luaL_Reg functions[] = { { "counter", metrics_counter },
                                          { "gauge", metrics_gauge },
                                          { "histogram", metrics_histogram },
                                          { "read", api_metrics_read },
                                          { NULL, NULL } };
    static const luaL_Reg methods[][4] = {
        [METRIC_COUNTER] = { { "inc", counter_inc }, { NULL, NULL } },
        [METRIC_GAUGE] = { { "inc", gauge_inc },
                           { "dec", gauge_dec },
                           { "set", gauge_set },
                           { NULL, NULL } },
        [METRIC_HISTOGRAM] = { { "observe", histogram_observe }, { NULL, NULL } },
    };
    for (size_t i = 0; i < sizeof methods / sizeof *methods; i++) {
        luaL_newmetatable(L, types[i]);
        lua_newtable(L);
        luaL_register(L, NULL, methods[i]);
        lua_setfield(L, -2, "__index");
        lua_pop(L, 1);
    }
    lua_newtable(L);
    luaL_register(L, NULL, functions);
    lua_setfield(L, -2, "metrics");
}
