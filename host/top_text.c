/* See top_text.h. */
#include "top_text.h"

#include <stdio.h>
#include <string.h>

/* --- characters --- */

struct range {
    uint32_t from, to;
};

static bool within(const struct range *r, size_t n, uint32_t c)
{
    for (size_t i = 0; i < n; i++) {
        if (c >= r[i].from && c <= r[i].to)
            return true;
    }
    return false;
}
#define WITHIN(ranges, c) within(ranges, sizeof(ranges) / sizeof *(ranges), c)

/* Controls, and what changes the direction or the place of what follows. */
static const struct range unshown[] = { { 0, 0x1f },         { 0x7f, 0x9f },     { 0xad, 0xad },
                                        { 0x61c, 0x61c },    { 0x200b, 0x200f }, { 0x2028, 0x202e },
                                        { 0x2060, 0x206f },  { 0xfeff, 0xfeff }, { 0xfff0, 0xfffb },
                                        { 0xe0000, 0xe0fff } };
/* Marks that stand on the character before them. */
static const struct range marks[] = { { 0x300, 0x36f },   { 0x483, 0x489 },   { 0x591, 0x5bd },
                                      { 0x610, 0x61a },   { 0x64b, 0x65f },   { 0x93a, 0x93c },
                                      { 0x941, 0x94d },   { 0xe31, 0xe31 },   { 0xe34, 0xe3a },
                                      { 0xe47, 0xe4e },   { 0x1ab0, 0x1aff }, { 0x1dc0, 0x1dff },
                                      { 0x20d0, 0x20ff }, { 0xfe00, 0xfe0f }, { 0xfe20, 0xfe2f } };
/* Two cells wide (Unicode's East Asian Width, W and F, by blocks). */
static const struct range wide[] = {
    { 0x1100, 0x115f },   { 0x231a, 0x231b },   { 0x2329, 0x232a },   { 0x23e9, 0x23f3 },
    { 0x25fd, 0x25fe },   { 0x2614, 0x2615 },   { 0x2648, 0x2653 },   { 0x26a1, 0x26a1 },
    { 0x26bd, 0x26be },   { 0x2705, 0x2705 },   { 0x2728, 0x2728 },   { 0x274c, 0x274c },
    { 0x2753, 0x2757 },   { 0x2795, 0x2797 },   { 0x2b50, 0x2b50 },   { 0x2e80, 0x303e },
    { 0x3041, 0xa4cf },   { 0xa960, 0xa97f },   { 0xac00, 0xd7a3 },   { 0xf900, 0xfaff },
    { 0xfe10, 0xfe19 },   { 0xfe30, 0xfe6f },   { 0xff01, 0xff60 },   { 0xffe0, 0xffe6 },
    { 0x16fe0, 0x18cff }, { 0x1b000, 0x1b2ff }, { 0x1f000, 0x1faff }, { 0x20000, 0x3fffd }
};

/* The first character and how many bytes it is: 1 and UINT32_MAX where it is no UTF-8 (RFC 3629,
 * section 4). */
static uint32_t decode(const char *text, size_t n, size_t *used)
{
    static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
    const unsigned char *p = (const unsigned char *)text;
    size_t length = p[0] < 0x80       ? 1
                    : p[0] >> 5 == 6  ? 2
                    : p[0] >> 4 == 14 ? 3
                    : p[0] >> 3 == 30 ? 4
                                      : 0;
    *used = 1;
    if (length == 1)
        return p[0];
    if (length == 0 || length > n)
        return UINT32_MAX;
    uint32_t c = p[0] & (0xffu >> (length + 1));
    for (size_t i = 1; i < length; i++) {
        if (p[i] >> 6 != 2)
            return UINT32_MAX;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < least[length] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return UINT32_MAX;
    *used = length;
    return c;
}

/* One character as it is shown: its bytes in *shown, its cells returned; *at is moved behind it. */
static int next(const struct top_look *look, struct slice *at, struct slice *shown)
{
    size_t used;
    uint32_t c = decode(at->p, at->n, &used);
    *shown = (struct slice){ at->p, used };
    *at = (struct slice){ at->p + used, at->n - used };
    if (c == UINT32_MAX || WITHIN(unshown, c) || (c >= 0x80 && !look->utf8)) {
        *shown = SLICE("?");
        return 1;
    }
    return WITHIN(marks, c) ? 0 : WITHIN(wide, c) ? 2 : 1;
}

int top_text_width(const struct top_look *look, struct slice text)
{
    struct slice shown;
    int width = 0;
    while (text.n > 0)
        width += next(look, &text, &shown);
    return width;
}

static void spaces(struct buf *out, int n)
{
    for (; n > 0; n--)
        buf_add(out, " ", 1);
}

void top_text_fit(struct buf *out, const struct top_look *look, struct slice text, int width,
                  bool right)
{
    int needs = top_text_width(look, text), room = needs > width ? width - 1 : width, used = 0;
    struct slice shown;
    if (right)
        spaces(out, width - needs);
    while (text.n > 0) {
        int cells = next(look, &text, &shown);
        if (used + cells > room)
            break;
        buf_add_slice(out, shown);
        used += cells;
    }
    if (needs > width && width > 0) {
        buf_add_text(out, look->utf8 ? "\u2026" : "~");
        used++;
    }
    if (!right || needs > width)
        spaces(out, width - used);
}

/* --- tables --- */

static int total(const int *widths, int n)
{
    int sum = 0, shown = 0;
    for (int i = 0; i < n; i++) {
        sum += widths[i];
        shown += widths[i] > 0;
    }
    return sum + 2 * (shown > 0 ? shown - 1 : 0);
}

/* The column to make narrower: the widest text that is above its least, or 4 where `hard`; -1. */
static int cuttable(const struct top_column *columns, int n, const int *widths, bool hard)
{
    int cut = -1;
    for (int i = 0; i < n; i++) {
        int least = hard && columns[i].least > 4 ? 4 : columns[i].least;
        if (columns[i].text && widths[i] > least && (cut < 0 || widths[i] > widths[cut]))
            cut = i;
    }
    return cut;
}

static int droppable(const struct top_column *columns, int n, const int *widths)
{
    int drop = -1;
    for (int i = 0; i < n; i++) {
        if (widths[i] > 0 && columns[i].drop > 0 &&
            (drop < 0 || columns[i].drop > columns[drop].drop))
            drop = i;
    }
    return drop;
}

/* Cuts texts, then leaves columns out, then cuts texts more. A width of 0: it is not shown. */
static void fit(const struct top_look *look, const struct top_column *columns, int n, int *widths)
{
    while (total(widths, n) > look->columns) {
        int cut = cuttable(columns, n, widths, false), drop = droppable(columns, n, widths);
        if (cut < 0 && drop < 0)
            cut = cuttable(columns, n, widths, true);
        if (cut >= 0)
            widths[cut]--;
        else if (drop >= 0)
            widths[drop] = 0;
        else
            break;
    }
}

static void line(struct buf *out, const struct top_look *look, const struct top_column *columns,
                 int ncolumns, const int *widths, const struct top_cell *cells)
{
    int left = look->columns;
    bool first = true;
    for (int i = 0; i < ncolumns && left > 0; i++) {
        if (widths[i] == 0)
            continue;
        int gap = first ? 0 : left >= 2 ? 2 : left;
        spaces(out, gap);
        left -= gap;
        int width = widths[i] < left ? widths[i] : left;
        bool alarm = cells[i].alarm && look->colour;
        buf_add_text(out, alarm ? "\033[31m" : "");
        top_text_fit(out, look, cells[i].text, width, !columns[i].text);
        buf_add_text(out, alarm ? "\033[0m" : "");
        left -= width;
        first = false;
    }
    while (out->n > 0 && out->p[out->n - 1] == ' ')
        out->n--;
    buf_add_text(out, "\n");
}

void top_text_table(struct buf *out, const struct top_look *look, const struct top_column *columns,
                    int ncolumns, const struct top_cell *cells, uint32_t nrows, int sorted)
{
    struct top_cell header[TOP_COLUMNS];
    char marked[32];
    int widths[TOP_COLUMNS];
    snprintf(marked, sizeof marked, "%s%s", look->utf8 ? "\u25be" : "*",
             sorted >= 0 ? columns[sorted].title : "");
    for (int i = 0; i < ncolumns; i++) {
        header[i] = (struct top_cell){ slice_of(i == sorted ? marked : columns[i].title), false };
        widths[i] = top_text_width(look, header[i].text);
        for (uint32_t k = 0; k < nrows; k++) {
            int width = top_text_width(look, cells[k * (uint32_t)ncolumns + (uint32_t)i].text);
            widths[i] = width > widths[i] ? width : widths[i];
        }
    }
    fit(look, columns, ncolumns, widths);
    buf_add_text(out, look->colour ? "\033[1m" : "");
    line(out, look, columns, ncolumns, widths, header);
    if (look->colour) {
        out->n--; /* the colour ends before the line does */
        buf_add_text(out, "\033[0m\n");
    }
    for (uint32_t k = 0; k < nrows; k++)
        line(out, look, columns, ncolumns, widths, cells + k * (uint32_t)ncolumns);
}
