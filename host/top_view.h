/* `tollgate top` as text: a frame for a terminal, whose lines fit and are no more than it has, or
 * all tables one behind the other for whatever is none. */
#ifndef TOLLGATE_TOP_VIEW_H
#define TOLLGATE_TOP_VIEW_H

#include "top_figures.h"
#include "top_keys.h"
#include "top_text.h"

struct top_view {
    int kind;            /* enum top_kind: its table alone; TOP_KINDS: an overview */
    int sort[TOP_KINDS]; /* column of each table */
    bool reverse;
    uint32_t scroll;  /* rows that are above; cut to what there is when a frame is made */
    const char *note; /* a line that stands out; NULL: none */
};

void top_view_init(struct top_view *v);
/* A key as top_keys.h has it. False: it ends the program. rows: lines of the terminal. */
bool top_view_key(struct top_view *v, int key, int rows);
/* Appends a frame: look->rows lines at most, the last one without a line break. t: NULL where
 * nothing is known yet. now: seconds since the epoch. */
void top_view_frame(struct buf *out, const struct top_look *look, struct top_view *v, struct top *t,
                    double now);
/* Appends the same for a stream: all rows. */
void top_view_plain(struct buf *out, const struct top_look *look, struct top_view *v, struct top *t,
                    double now);

#endif
