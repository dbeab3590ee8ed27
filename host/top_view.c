/* See top_view.h. */
#include "top_view.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"

enum { SHARE = 3, HEAD = 5 };

/* --- numbers --- */

enum form { TEXT, RATE, TOTAL, SECONDS, BYTES, NUMBER, BREAKER, HEALTH, USABLE };

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

static struct slice formed(struct arena *a, enum form form, double v)
{
    static const char *const breakers[] = { "closed", "half-open", "open" };
    if (isnan(v))
        return SLICE("-");
    switch (form) {
    case RATE: return scaled(a, v, 1000, v > 0);
    case SECONDS: return seconds(a, v);
    case BYTES: return scaled(a, v, 1024, false);
    case BREAKER: return slice_of(v >= 0 && v <= 2 ? breakers[(int)v] : "?");
    case HEALTH: return v > 0 ? SLICE("up") : SLICE("down");
    case USABLE: return v > 0 ? SLICE("usable") : SLICE("away");
    default: return scaled(a, v, 1000, false);
    }
}

/* --- tables --- */

struct field {
    struct top_column column;
    enum form form;
    size_t at;  /* in struct top_row */
    char alarm; /* '+': above 0; '0': where it is 0 */
};

struct table {
    const char *title;
    const struct field *fields;
    int n;
};

#define AT(field) offsetof(struct top_row, field)
static const struct field routes[] = {
    { { "ROUTE", true, 0, 20 }, TEXT, AT(name), 0 },
    { { "REQ/S", false, 0, 0 }, RATE, AT(requests.rate), 0 },
    { { "P50", false, 0, 0 }, SECONDS, AT(duration.p50), 0 },
    { { "P95", false, 0, 0 }, SECONDS, AT(duration.p95), 0 },
    { { "ERR/S", false, 0, 0 }, RATE, AT(errors.rate), '+' },
    { { "REFUSED/S", false, 2, 0 }, RATE, AT(refused.rate), 0 },
    { { "TTFB P95", false, 5, 0 }, SECONDS, AT(first_byte.p95), 0 },
    { { "REQUESTS", false, 1, 0 }, TOTAL, AT(requests.total), 0 },
    { { "ERRORS", false, 3, 0 }, TOTAL, AT(errors.total), 0 },
    { { "REFUSED", false, 4, 0 }, TOTAL, AT(refused.total), 0 },
};
static const struct field targets[] = {
    { { "TARGET", true, 0, 24 }, TEXT, AT(name), 0 },
    { { "ROUTE", true, 1, 12 }, TEXT, AT(second), 0 },
    { { "TRY/S", false, 0, 0 }, RATE, AT(requests.rate), 0 },
    { { "FAIL/S", false, 0, 0 }, RATE, AT(errors.rate), '+' },
    { { "BREAKER", false, 0, 0 }, BREAKER, AT(breaker), '+' },
    { { "HEALTH", false, 0, 0 }, HEALTH, AT(healthy), '0' },
    { { "TRIES", false, 3, 0 }, TOTAL, AT(requests.total), 0 },
    { { "FAILED", false, 2, 0 }, TOTAL, AT(errors.total), 0 },
};
static const struct field models[] = {
    { { "MODEL", true, 0, 24 }, TEXT, AT(name), 0 },
    { { "IN TOK/S", false, 0, 0 }, RATE, AT(input.rate), 0 },
    { { "OUT TOK/S", false, 0, 0 }, RATE, AT(output.rate), 0 },
    { { "INPUT", false, 1, 0 }, TOTAL, AT(input.total), 0 },
    { { "OUTPUT", false, 2, 0 }, TOTAL, AT(output.total), 0 },
    { { "RESERVED", false, 3, 0 }, TOTAL, AT(reserved.total), 0 },
};
static const struct field workers[] = {
    { { "WORKER", true, 0, 3 }, TEXT, AT(name), 0 },
    { { "CONNECTIONS", false, 0, 0 }, NUMBER, AT(connections), 0 },
    { { "IN FLIGHT", false, 0, 0 }, NUMBER, AT(in_flight), 0 },
    { { "MEMORY", false, 0, 0 }, BYTES, AT(memory), 0 },
    { { "LUA", false, 3, 0 }, BYTES, AT(lua_memory), 0 },
    { { "BUFFERS", false, 4, 0 }, BYTES, AT(buffers), 0 },
    { { "GENERATIONS", false, 2, 0 }, NUMBER, AT(generations), 0 },
    { { "REDIS", false, 0, 0 }, USABLE, AT(redis_usable), '0' },
};
#define TABLE(title, fields)                                                                       \
    {                                                                                              \
        title, fields, sizeof(fields) / sizeof *(fields)                                           \
    }
static const struct table tables[TOP_KINDS] = {
    [TOP_ROUTES] = TABLE("routes", routes),
    [TOP_TARGETS] = TABLE("targets", targets),
    [TOP_MODELS] = TABLE("models", models),
    [TOP_WORKERS] = TABLE("workers", workers),
};

static double number_at(const struct top_row *r, const struct field *f)
{
    return *(const double *)((const char *)r + f->at);
}

static struct slice text_at(const struct top_row *r, const struct field *f)
{
    struct slice s = *(const struct slice *)((const char *)r + f->at);
    return s.n > 0 ? s : SLICE("-"); /* no route took it */
}

/* --- order --- */

struct order {
    const struct field *by;
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
    if (o->by->form == TEXT) {
        order = by_text(text_at(a, o->by), text_at(b, o->by));
    } else {
        double x = number_at(a, o->by), y = number_at(b, o->by);
        order = isnan(x) || isnan(y) ? isnan(x) - isnan(y) : (x < y) - (x > y);
    }
    order = o->reverse ? -order : order;
    return order != 0 ? order : by_text(a->name, b->name);
}

/* --- the tables --- */

/* Rows from `from` on, `n` of them, with a header. */
static void table(struct buf *out, const struct top_look *look, const struct top_view *v,
                  struct top *t, int kind, uint32_t from, uint32_t n)
{
    const struct table *of = &tables[kind];
    struct top_column columns[TOP_COLUMNS];
    struct top_cell *cells = mem_alloc((n * (size_t)of->n + 1) * sizeof *cells), *cell = cells;
    for (int i = 0; i < of->n; i++)
        columns[i] = of->fields[i].column;
    for (uint32_t k = from; k < from + n; k++) {
        const struct top_row *row = &t->lists[kind].rows[k];
        for (int i = 0; i < of->n; i++, cell++) {
            const struct field *f = &of->fields[i];
            *cell = (struct top_cell){ .alarm = false };
            if (f->form == TEXT) {
                cell->text = text_at(row, f);
                continue;
            }
            double number = number_at(row, f);
            cell->text = formed(&t->arena, f->form, number);
            cell->alarm = (f->alarm == '+' && number > 0) || (f->alarm == '0' && number <= 0);
        }
    }
    top_text_table(out, look, columns, of->n, cells, n, v->sort[kind]);
    mem_free(cells);
}

static void sort_all(const struct top_view *v, struct top *t)
{
    for (int kind = 0; kind < TOP_KINDS; kind++) {
        struct order o = { &tables[kind].fields[v->sort[kind]], v->reverse };
        struct top_list *l = &t->lists[kind];
        if (l->n > 0)
            qsort_r(l->rows, l->n, sizeof *l->rows, compare, &o);
    }
}

/* --- the head --- */

static void head_line(struct buf *out, const struct top_look *look, struct slice text, bool alarm)
{
    int width = top_text_width(look, text);
    buf_add_text(out, alarm && look->colour ? "\033[31m" : "");
    top_text_fit(out, look, text, width < look->columns ? width : look->columns, false);
    buf_add_text(out, alarm && look->colour ? "\033[0m" : "");
    buf_add_text(out, "\n");
}

#define S(s) (int)(s).n, (s).p

static struct slice up(struct arena *a, double s)
{
    long n = isfinite(s) && s > 0 && s < 1e10 ? (long)s : 0;
    return n >= 86400  ? arena_printf(a, "%ldd%02ldh", n / 86400, n / 3600 % 24)
           : n >= 3600 ? arena_printf(a, "%ldh%02ldm", n / 3600, n / 60 % 60)
                       : arena_printf(a, "%ldm%02lds", n / 60, n % 60);
}

static void head(struct buf *out, const struct top_look *look, struct top *t, double now)
{
    struct arena *a = &t->arena;
    uint32_t n = t->lists[TOP_WORKERS].n;
    double restarts = 0, quota = 0;
    for (int i = 0; i < TOP_EXITS; i++)
        restarts += t->restarts[i].total;
    for (int i = 1; i < TOP_VERDICTS; i++)
        quota += t->verdicts[i].rate;
#define R(count) S(formed(a, RATE, (count).rate))
    struct slice text = arena_printf(
        a, "tollgate %s  %s  up %.*s  generation %.*s  reloads %.0f, %.0f failed  restarts %.0f",
        t->version, t->ready > 0 ? "ready" : "not ready", S(up(a, now - t->started)),
        S(formed(a, NUMBER, t->generation)), t->reloads.total, t->reload_failures.total, restarts);
    head_line(out, look, text, !(t->ready > 0));
    text = arena_printf(a,
                        "requests %.*s/s  errors %.*s/s  p50 %.*s  p95 %.*s  in flight %.*s  "
                        "connections %.*s  lost %.0f",
                        R(t->requests), R(t->errors), S(formed(a, SECONDS, t->duration.p50)),
                        S(formed(a, SECONDS, t->duration.p95)), S(formed(a, NUMBER, t->in_flight)),
                        S(formed(a, NUMBER, t->connections)), t->lost.total);
    head_line(out, look, text, t->errors.rate > 0);
    text = arena_printf(a, "tokens in %.*s/s  out %.*s/s  client left %.*s/s  refused %.*s/s",
                        R(t->input), R(t->output), R(t->client_gone), R(t->refused));
    head_line(out, look, text, false);
    text = arena_printf(a,
                        "quota admitted %.*s/s  refused %.*s/s (rate %.*s  concurrency %.*s  "
                        "budget %.*s  unavailable %.*s)  pending %.*s",
                        R(t->verdicts[0]), S(formed(a, RATE, quota)), R(t->verdicts[1]),
                        R(t->verdicts[2]), R(t->verdicts[3]), R(t->verdicts[4]),
                        S(formed(a, NUMBER, t->pending)));
    head_line(out, look, text, t->verdicts[4].rate > 0);
    text = arena_printf(a,
                        "redis usable by %.0f of %u workers  %.*s/s  p50 %.*s  p95 %.*s  errors "
                        "%.*s/s",
                        t->redis_usable, n, R(t->redis), S(formed(a, SECONDS, t->redis_times.p50)),
                        S(formed(a, SECONDS, t->redis_times.p95)), R(t->redis_errors));
    head_line(out, look, text, t->redis_usable < n || t->redis_errors.rate > 0);
#undef R
}

/* --- a frame --- */

/* How many rows each table of an overview gets: a few for all, then what is left from the first. */
static void share(const struct top *t, int room, uint32_t rows[TOP_KINDS])
{
    for (int round = 0; round < 2; round++) {
        for (int kind = 0; kind < TOP_KINDS; kind++) {
            uint32_t n = t->lists[kind].n;
            int wants = (int)(n < 100000 ? n : 100000) - (round == 0 ? 0 : (int)rows[kind]);
            int header = round == 0 ? 1 : 0;
            if (round == 0) {
                rows[kind] = 0;
                wants = wants < SHARE ? wants : SHARE;
            }
            if (n == 0 || (round == 1 && rows[kind] == 0) || room - header <= 0)
                continue;
            room -= header;
            wants = wants < room ? wants : room;
            rows[kind] += (uint32_t)wants;
            room -= wants;
        }
    }
}

static void body(struct buf *out, const struct top_look *look, struct top_view *v, struct top *t,
                 int room)
{
    uint32_t rows[TOP_KINDS];
    if (v->kind < TOP_KINDS) {
        memset(rows, 0, sizeof rows);
        rows[v->kind] = room > 1 ? (uint32_t)room - 1 : 0;
    } else {
        share(t, room, rows);
    }
    for (int kind = 0; kind < TOP_KINDS; kind++) {
        uint32_t n = t->lists[kind].n, from = 0;
        bool scrolls = kind == v->kind || (v->kind == TOP_KINDS && kind == TOP_ROUTES);
        uint32_t most = n > rows[kind] ? n - rows[kind] : 0;
        if (scrolls)
            from = v->scroll = v->scroll < most ? v->scroll : most;
        if (rows[kind] > 0)
            table(out, look, v, t, kind, from, n - from < rows[kind] ? n - from : rows[kind]);
    }
}

static int lines_of(const struct buf *out, size_t from)
{
    int n = 0;
    for (size_t i = from; i < out->n; i++)
        n += out->p[i] == '\n';
    return n;
}

static void foot(struct buf *out, const struct top_look *look, const struct top_view *v,
                 const struct top *t)
{
    static const char *const names[] = { "routes", "targets", "models", "workers", "overview" };
    struct buf text;
    buf_init(&text);
    buf_printf(&text, "%s", names[v->kind]);
    if (t != NULL && v->kind < TOP_KINDS)
        buf_printf(&text, ", %u from %u on", t->lists[v->kind].n, v->scroll + 1);
    else if (t != NULL)
        buf_printf(&text, ", %u routes", t->lists[TOP_ROUTES].n);
    buf_add_text(&text, "  q quit  tab or </> sort  r reverse  up/down scroll  0-4 tables");
    buf_add_text(out, look->colour ? "\033[2m" : "");
    int width = top_text_width(look, buf_slice(&text));
    top_text_fit(out, look, buf_slice(&text), width < look->columns ? width : look->columns, false);
    buf_add_text(out, look->colour ? "\033[0m" : "");
    buf_deinit(&text);
}

void top_view_frame(struct buf *out, const struct top_look *look, struct top_view *v, struct top *t,
                    double now)
{
    struct buf lines;
    buf_init(&lines);
    if (v->note != NULL)
        head_line(&lines, look, slice_of(v->note), true);
    if (t != NULL) {
        sort_all(v, t);
        head(&lines, look, t, now);
        body(&lines, look, v, t, look->rows - 1 - lines_of(&lines, 0));
    }
    int room = look->rows - 1; /* of a very low terminal only the first lines fit */
    const char *at = lines.p, *end = at != NULL ? at + lines.n : NULL;
    while (room > 0 && at != NULL && at < end) {
        const char *stop = memchr(at, '\n', (size_t)(end - at));
        buf_add(out, at, (size_t)(stop + 1 - at));
        at = stop + 1;
        room--;
    }
    for (; room > 0; room--)
        buf_add_text(out, "\n");
    foot(out, look, v, t);
    buf_deinit(&lines);
}

void top_view_plain(struct buf *out, const struct top_look *look, struct top_view *v, struct top *t,
                    double now)
{
    if (v->note != NULL)
        head_line(out, look, slice_of(v->note), true);
    sort_all(v, t);
    head(out, look, t, now);
    for (int kind = 0; kind < TOP_KINDS; kind++) {
        if (t->lists[kind].n == 0)
            continue;
        buf_add_text(out, "\n");
        table(out, look, v, t, kind, 0, t->lists[kind].n);
    }
}

/* --- keys --- */

void top_view_init(struct top_view *v)
{
    *v = (struct top_view){ .kind = TOP_KINDS };
    v->sort[TOP_ROUTES] = v->sort[TOP_TARGETS] = v->sort[TOP_MODELS] = 1;
    v->sort[TOP_TARGETS] = 2;
}

bool top_view_key(struct top_view *v, int key, int rows)
{
    int kind = v->kind < TOP_KINDS ? v->kind : TOP_ROUTES, n = tables[kind].n;
    uint32_t page = rows > 12 ? (uint32_t)rows - HEAD - 3 : 1;
    uint32_t before = v->scroll;
    switch (key) {
    case 'q':
    case 'Q': return false;
    case '\t':
    case '>':
    case TOP_KEY_RIGHT: v->sort[kind] = (v->sort[kind] + 1) % n; break;
    case '<':
    case TOP_KEY_LEFT: v->sort[kind] = (v->sort[kind] + n - 1) % n; break;
    case 'r': v->reverse = !v->reverse; break;
    case 'k':
    case TOP_KEY_UP: v->scroll -= v->scroll > 0; break;
    case 'j':
    case TOP_KEY_DOWN: v->scroll += v->scroll < UINT32_MAX; break;
    case TOP_KEY_PAGE_UP: v->scroll -= before < page ? before : page; break;
    case ' ':
    case TOP_KEY_PAGE_DOWN: v->scroll = before < UINT32_MAX - page ? before + page : before; break;
    case TOP_KEY_HOME: v->scroll = 0; break;
    case TOP_KEY_END: v->scroll = UINT32_MAX; break;
    default:
        if (key >= '0' && key <= '4') {
            v->kind = key == '0' ? TOP_KINDS : key - '1';
            v->scroll = 0;
        }
    }
    return true;
}
