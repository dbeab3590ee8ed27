/* The tables that `tollgate top` shows: which columns there are, what a row has in each, as text
 * and as what it is sorted by. */
#ifndef TOLLGATE_TOP_ROWS_H
#define TOLLGATE_TOP_ROWS_H

#include "top_figures.h"
#include "top_text.h"

enum top_form {
    TOP_TEXT,
    TOP_RATE,
    TOP_TOTAL,
    TOP_SECONDS,
    TOP_BYTES,
    TOP_NUMBER,
    TOP_BREAKER,
    TOP_HEALTH,
    TOP_USABLE
};

struct top_field {
    struct top_column column;
    enum top_form form;
    size_t at;  /* in struct top_row */
    char alarm; /* '+': where it is above 0; '0': where it is 0 */
};

struct top_table {
    const char *title;
    const struct top_field *fields;
    int n;
};

extern const struct top_table top_tables[TOP_KINDS];

/* A number for people, "-" where it is not known; the arena's, or static. */
struct slice top_form(struct arena *a, enum top_form form, double v);
/* What a row has in a field: of TOP_TEXT the name, "-" where it is empty; else the number. */
struct slice top_name(const struct top_row *r, const struct top_field *f);
double top_number(const struct top_row *r, const struct top_field *f);
/* Sorts the rows of each table by a field of it: names from the first, numbers from the greatest,
 * what is not known last. */
void top_sort(struct top *t, const int by[TOP_KINDS], bool reverse);

#endif
