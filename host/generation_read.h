/* From the resolved configuration, a Lua table, to the structs that requests are served by. Private
 * to generation.c. */
#ifndef TOLLGATE_GENERATION_READ_H
#define TOLLGATE_GENERATION_READ_H

#include "generation.h"

/* Reads registry["tollgate.config"] into g. 0, or -1 with faults. */
int generation_read(struct generation *g, bool check_only, struct buf *faults);
/* Gives back what a route holds outside the arena. */
void generation_read_undo(struct generation *g, struct route *r);

#endif
