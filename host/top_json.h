/* `tollgate top --json`: one object, numbers raw, null for what is not known. */
#ifndef TOLLGATE_TOP_JSON_H
#define TOLLGATE_TOP_JSON_H

#include "top_figures.h"

void top_json(struct buf *out, const struct top *t);

#endif
