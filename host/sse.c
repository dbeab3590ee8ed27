/* See sse.h. One state per place in a line; the bytes of data and of what nobody reads are passed
 * over in a loop of their own. */
#include "sse.h"

enum {
    MARK,     /* a byte order mark may stand here, or have begun */
    LINE,     /* at the start of a line */
    FIELD,    /* in a field's name */
    DATA_GAP, /* behind "data:", where one space is skipped */
    DATA,
    NAME_GAP,
    NAME,
    SKIP,    /* a comment, or the value of another field */
    BLANK_CR /* behind the CR of a blank line */
};

void sse_init(struct sse *s, void (*on_data)(void *, struct slice),
              void (*on_event)(void *, const struct sse_event *), void *arg)
{
    memset(s, 0, sizeof *s);
    s->on_data = on_data;
    s->on_event = on_event;
    s->arg = arg;
    s->state = MARK;
}

static void dispatch(struct sse *s, uint64_t end)
{
    struct sse_event e = { { s->name, s->name_n }, s->start, end };
    bool report = s->has_data;
    s->state = LINE;
    s->in_event = s->has_data = false;
    if (report)
        s->on_event(s->arg, &e);
    s->name_n = 0;
}

static bool field_is(const struct sse *s, struct slice name)
{
    return slice_eq((struct slice){ s->field, s->field_n }, name);
}

/* The field's name is complete, by a colon or by the line's end. */
static void begin_value(struct sse *s)
{
    if (field_is(s, SLICE("data"))) {
        if (s->has_data)
            s->on_data(s->arg, SLICE("\n"));
        s->has_data = true;
        s->state = DATA_GAP;
    } else if (field_is(s, SLICE("event"))) {
        s->name_n = 0;
        s->state = NAME_GAP;
    } else {
        s->state = SKIP;
    }
}

/* c, at offset `at`, begins a line and ends none. */
static void begin_line(struct sse *s, char c, uint64_t at)
{
    if (c == ':') {
        s->state = SKIP;
        return;
    }
    if (!s->in_event)
        s->start = at;
    s->in_event = true;
    s->field[0] = c;
    s->field_n = 1;
    s->state = FIELD;
}

/* c, at offset `at`, is a CR or an LF. */
static void end_line(struct sse *s, char c, uint64_t at)
{
    if (s->state == FIELD)
        begin_value(s);
    s->cr = c == '\r';
    if (s->state != LINE)
        s->state = LINE;
    else if (s->cr)
        s->state = BLANK_CR;
    else
        dispatch(s, at + 1);
}

static void field_byte(struct sse *s, char c)
{
    if (c == ':')
        begin_value(s);
    else if (s->field_n < sizeof s->field)
        s->field[s->field_n++] = c; /* one that fills it is none that we know */
}

/* Whether c was taken. Bytes that only begin like a mark begin a line of an unknown field. */
static bool mark_byte(struct sse *s, char c)
{
    static const char mark[] = "\xef\xbb\xbf";
    if (c == mark[s->matched]) {
        if (++s->matched == 3)
            s->state = LINE;
        return true;
    }
    s->state = LINE;
    if (s->matched > 0)
        begin_line(s, mark[0], 0);
    return false;
}

/* The first CR or LF at or behind p. */
static const char *line_end(const char *p, const char *end)
{
    while (p < end && *p != '\n' && *p != '\r')
        p++;
    return p;
}

static void take_name(struct sse *s, const char *p, size_t n)
{
    size_t room = SSE_NAME - (size_t)s->name_n;
    if (n > room)
        n = room;
    memcpy(s->name + s->name_n, p, n);
    s->name_n = (uint8_t)(s->name_n + n);
}

/* The rest of a line's value, as far as it is there. Returns its end. */
static const char *value(struct sse *s, const char *p, const char *end)
{
    if (s->state == DATA_GAP || s->state == NAME_GAP) {
        s->state = s->state == DATA_GAP ? DATA : NAME;
        if (*p == ' ')
            p++;
    }
    const char *stop = line_end(p, end);
    if (s->state == DATA && stop > p)
        s->on_data(s->arg, (struct slice){ p, (size_t)(stop - p) });
    else if (s->state == NAME && stop > p)
        take_name(s, p, (size_t)(stop - p));
    return stop;
}

void sse_feed(struct sse *s, struct slice bytes)
{
    const char *p = bytes.p, *end = p + bytes.n;
    while (p < end) {
        uint64_t at = s->offset + (uint64_t)(p - bytes.p);
        if (s->cr) {
            bool lf = *p == '\n';
            s->cr = false;
            p += lf;
            if (s->state == BLANK_CR)
                dispatch(s, at + lf);
            continue;
        }
        if (s->state == MARK) {
            p += mark_byte(s, *p);
        } else if (*p == '\n' || *p == '\r') {
            end_line(s, *p++, at);
        } else if (s->state == LINE) {
            begin_line(s, *p++, at);
        } else if (s->state == FIELD) {
            field_byte(s, *p++);
        } else {
            p = value(s, p, end);
        }
    }
    s->offset += bytes.n;
}

void sse_end(struct sse *s)
{
    if (s->state == BLANK_CR)
        dispatch(s, s->offset);
    s->cr = false;
}

uint64_t sse_pending(const struct sse *s)
{
    if (s->state == MARK && s->matched > 0)
        return 0;
    return s->in_event ? s->start : s->offset;
}
