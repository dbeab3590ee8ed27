/* See gather.h. Only line ends and sizes are looked at here, so that what can never become a
 * head is refused without waiting for its end; the grammar follows when the head is whole. */
#include "gather.h"

#include "chars.h"

enum {
    EMPTY_LINES_MAX = 4,
    START_LINE_ROOM = 64 + 12 /* bytes beside the target: a method, two spaces, the version, CRLF */
};

void gather_init(struct gather *g, bool is_request, const struct parse_limits *limits)
{
    *g = (struct gather){ .is_request = is_request, .limits = limits };
    buf_init(&g->kept);
}

void gather_deinit(struct gather *g)
{
    buf_deinit(&g->kept);
}

void gather_reset(struct gather *g)
{
    g->skipped_cr = false;
    g->empty_lines = 0;
    g->line = 0;
    buf_clear(&g->kept);
}

static void fail(struct parse_fault *fault, int status, const char *text)
{
    *fault = (struct parse_fault){ status, text };
}

static bool too_long(const struct gather *g, size_t n, struct parse_fault *fault)
{
    bool start_line = g->is_request && g->line == 0;
    if (start_line && n > g->limits->url + START_LINE_ROOM)
        fail(fault, 414, "request line too long");
    else if (n > g->limits->head)
        fail(fault, start_line ? 414 : 431, "head too large");
    return fault->status != 0;
}

/* How many of these bytes belong to the head, up to its empty line, or 0 where that has not come
 * yet. */
static size_t find_end(struct gather *g, const char *bytes, size_t n, struct parse_fault *fault)
{
    const struct buf *kept = &g->kept;
    for (size_t at = 0; at < n;) {
        const char *lf = memchr(bytes + at, '\n', n - at);
        size_t i = lf == NULL ? n : (size_t)(lf - bytes);
        if (too_long(g, kept->n + i + (lf != NULL), fault) || lf == NULL)
            return 0;
        char last = i > 0 ? bytes[i - 1] : kept->n > 0 ? kept->p[kept->n - 1] : '\0';
        if (last != '\r') {
            fail(fault, 400, "bare LF");
            return 0;
        }
        bool empty = kept->n + i - g->line == 1;
        g->line = kept->n + i + 1;
        at = i + 1;
        if (empty)
            return at;
    }
    return 0;
}

/* Empty lines before a request line (RFC 9112, section 2.2); returns how many bytes they take. */
static size_t skip_empty_lines(struct gather *g, const char *bytes, size_t n,
                               struct parse_fault *fault)
{
    size_t i = 0;
    for (; i < n && (g->skipped_cr || bytes[i] == '\r'); i++) {
        if (g->skipped_cr && bytes[i] != '\n')
            fail(fault, 400, "bare CR");
        else if (g->skipped_cr && ++g->empty_lines > EMPTY_LINES_MAX)
            fail(fault, 400, "too many empty lines");
        if (fault->status != 0)
            break;
        g->skipped_cr = !g->skipped_cr;
    }
    return i;
}

/* Refuses at once what is not HTTP (a TLS hello, say) and would never end a line. */
static bool starts_well(const struct gather *g, char first, struct parse_fault *fault)
{
    if (g->is_request ? char_is(first, CHAR_TOKEN) : first == 'H')
        return true;
    fail(fault, 400, "not HTTP");
    return false;
}

static struct slice take(struct gather *g, const char *bytes, size_t n, struct arena *arena)
{
    size_t before = g->kept.n;
    char *head = arena_alloc(arena, before + n);
    if (before > 0)
        memcpy(head, g->kept.p, before);
    memcpy(head + before, bytes, n);
    buf_deinit(&g->kept); /* an idle connection keeps nothing */
    return (struct slice){ head, before + n };
}

size_t gather_feed(struct gather *g, const char *bytes, size_t n, struct arena *arena,
                   struct slice *head, struct parse_fault *fault)
{
    size_t skipped = 0;
    *head = (struct slice){ NULL, 0 };
    if (g->kept.n == 0) {
        if (g->is_request)
            skipped = skip_empty_lines(g, bytes, n, fault);
        if (fault->status != 0 || skipped == n || !starts_well(g, bytes[skipped], fault))
            return skipped;
    }
    bytes += skipped;
    n -= skipped;
    size_t end = find_end(g, bytes, n, fault);
    if (fault->status != 0)
        return skipped;
    if (end == 0) {
        buf_add(&g->kept, bytes, n);
        return skipped + n;
    }
    *head = take(g, bytes, end, arena);
    return skipped + end;
}
