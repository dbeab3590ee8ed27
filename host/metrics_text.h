/* The rules of metrics' text: what a name may be, and how values and labels are written. */
#ifndef TOLLGATE_METRICS_TEXT_H
#define TOLLGATE_METRICS_TEXT_H

#include "metrics.h"

/* What is wrong with a specification, for people, or NULL. */
const char *metrics_text_fault(const struct metric_spec *spec);
/* Copies a label's value so that it is UTF-8 and at most METRICS_VALUE bytes, cut between
 * characters; what is no UTF-8, or NUL, becomes "?". Returns its length. */
size_t metrics_text_value(char *out, struct slice value);
/* Appends name="value", behind a comma where there is something already. */
void metrics_text_label(struct buf *out, const char *name, struct slice value);
void metrics_text_help(struct buf *out, const char *help);
/* The shortest text that reads as the same number; +Inf, -Inf, NaN. */
void metrics_text_number(struct buf *out, double v);

#endif
