/* Memory that lives as long as one request: allocation moves a pointer, and everything is given
 * back at once. The first block is kept over a reset, so that a connection in its steady state
 * allocates nothing. */
#ifndef TOLLGATE_ARENA_H
#define TOLLGATE_ARENA_H

#include <stdarg.h>
#include <stddef.h>

#include "slice.h"

struct arena_block;

struct arena {
    struct arena_block *first, *last;
};

void arena_init(struct arena *a);
void arena_deinit(struct arena *a);
/* Gives back all that was allocated; slices into the arena are no longer valid. */
void arena_reset(struct arena *a);
/* n bytes, aligned to 8, not cleared. */
void *arena_alloc(struct arena *a, size_t n);
void *arena_zalloc(struct arena *a, size_t n);
/* A copy with a NUL behind it (not counted in the slice). */
struct slice arena_dup(struct arena *a, struct slice s);
struct slice arena_printf(struct arena *a, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
