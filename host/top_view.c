/* See top_view.h. */
#include "top_view.h"

#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

#include "mem.h"
#include "top_rows.h"

enum { SHARE = 3, HEAD = 5 };

/* --- the tables --- */

/* Rows from `from` on, `n` of them, with a header. */
static void table(struct buf *out, const struct top_look *look, const struct top_view *v,
                  struct top *t, int kind, uint32_t from, uint32_t n)
{
    const struct top_table *of = &top_tables[kind];
    struct top_column columns[TOP_COLUMNS];
    struct top_cell *cells = mem_alloc((n * (size_t)of->n + 1) * sizeof *cells), *cell = cells;
    struct arena texts;
    arena_init(&texts);
    for (int i = 0; i < of->n; i++)
        columns[i] = of->fields[i].column;
    for (uint32_t k = from; k < from + n; k++) {
        const struct top_row *row = &t->lists[kind].rows[k];
        for (int i = 0; i < of->n; i++, cell++) {
            const struct top_field *f = &of->fields[i];
            *cell = (struct top_cell){ .alarm = false };
            if (f->form == TOP_TEXT) {
                cell->text = top_name(row, f);
                continue;
            }
            double number = top_number(row, f);
            cell->text = top_form(&texts, f->form, number);
            cell->alarm = (f->alarm == '+' && number > 0) || (f->alarm == '0' && number <= 0);
        }
    }
    top_text_table(out, look, columns, of->n, cells, n, v->sort[kind]);
    arena_deinit(&texts);
    mem_free(cells);
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
    struct arena texts, *a = &texts;
    arena_init(a);
    uint32_t n = t->lists[TOP_WORKERS].n;
    double restarts = 0, quota = 0;
    for (int i = 0; i < TOP_EXITS; i++)
        restarts += t->restarts[i].total;
    for (int i = 1; i < TOP_VERDICTS; i++)
        quota += t->verdicts[i].rate;
#define R(count) S(top_form(a, TOP_RATE, (count).rate))
    struct slice text = arena_printf(
        a, "tollgate %s  %s  up %.*s  generation %.*s  reloads %.0f, %.0f failed  restarts %.0f",
        t->version, t->ready > 0 ? "ready" : "not ready", S(up(a, now - t->started)),
        S(top_form(a, TOP_NUMBER, t->generation)), t->reloads.total, t->reload_failures.total,
        restarts);
    head_line(out, look, text, !(t->ready > 0));
    text = arena_printf(a,
                        "requests %.*s/s  errors %.*s/s  p50 %.*s  p95 %.*s  in flight %.*s  "
                        "connections %.*s  lost %.0f",
                        R(t->requests), R(t->errors), S(top_form(a, TOP_SECONDS, t->duration.p50)),
                        S(top_form(a, TOP_SECONDS, t->duration.p95)),
                        S(top_form(a, TOP_NUMBER, t->in_flight)),
                        S(top_form(a, TOP_NUMBER, t->connections)), t->lost.total);
    head_line(out, look, text, t->errors.rate > 0);
    text = arena_printf(a, "tokens in %.*s/s  out %.*s/s  client left %.*s/s  refused %.*s/s",
                        R(t->input), R(t->output), R(t->client_gone), R(t->refused));
    head_line(out, look, text, false);
    text = arena_printf(a,
                        "quota admitted %.*s/s  refused %.*s/s (rate %.*s  concurrency %.*s  "
                        "budget %.*s  unavailable %.*s)  pending %.*s",
                        R(t->verdicts[0]), S(top_form(a, TOP_RATE, quota)), R(t->verdicts[1]),
                        R(t->verdicts[2]), R(t->verdicts[3]), R(t->verdicts[4]),
                        S(top_form(a, TOP_NUMBER, t->pending)));
    head_line(out, look, text, t->verdicts[4].rate > 0);
    text = arena_printf(a,
                        "redis usable by %.0f of %u workers  %.*s/s  p50 %.*s  p95 %.*s  errors "
                        "%.*s/s",
                        t->redis_usable, n, R(t->redis),
                        S(top_form(a, TOP_SECONDS, t->redis_times.p50)),
                        S(top_form(a, TOP_SECONDS, t->redis_times.p95)), R(t->redis_errors));
    head_line(out, look, text, t->redis_usable < n || t->redis_errors.rate > 0);
#undef R
    arena_deinit(a);
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
    struct buf text;
    buf_init(&text);
    buf_add_text(&text, v->kind < TOP_KINDS ? top_tables[v->kind].title : "overview");
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
        top_sort(t, v->sort, v->reverse);
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
    top_sort(t, v->sort, v->reverse);
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
    int kind = v->kind < TOP_KINDS ? v->kind : TOP_ROUTES, n = top_tables[kind].n;
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
