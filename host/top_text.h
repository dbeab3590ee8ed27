/* Text in cells of a terminal: what names may show, how wide they are, and tables that fit.
 *
 * Names come from configurations and from requests (models): no control character, no change of
 * direction and no broken UTF-8 of them is shown; each becomes "?". */
#ifndef TOLLGATE_TOP_TEXT_H
#define TOLLGATE_TOP_TEXT_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"

struct top_look {
    int columns, rows;
    bool colour, utf8;
};

/* Appends text cut or filled to exactly `width` cells; what is cut ends with an ellipsis ("~"
 * without UTF-8). */
void top_text_fit(struct buf *out, const struct top_look *look, struct slice text, int width,
                  bool right);
/* How many cells it takes. */
int top_text_width(const struct top_look *look, struct slice text);

struct top_column {
    const char *title;
    bool text; /* else a number, on the right */
    int drop;  /* the highest ones go first where there is no room; 0: never */
    int least; /* cells below which text is not cut */
};

enum { TOP_COLUMNS = 12 };

struct top_cell {
    struct slice text;
    bool alarm; /* in red */
};

/* A header and `nrows` rows of `ncolumns` cells each, a line each that ends in "\n" and is no
 * wider than the look has columns. sorted: the column that is marked; -1: none. */
void top_text_table(struct buf *out, const struct top_look *look, const struct top_column *columns,
                    int ncolumns, const struct top_cell *cells, uint32_t nrows, int sorted);

#endif
