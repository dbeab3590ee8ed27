/* The figures of all workers in one memory that they share: a slot per worker, written by that worker alone and read by whoever
 * wants the sum. A slot outlives its worker, so a death loses nothing.
 *
 * All fields are 64-bit words that are read and written whole, so no lock is needed; a reader may see one field a moment older than the
 * next. */
#ifndef TOLLGATE_ZONE_H
#define TOLLGATE_ZONE_H

#include <stdbool.h>
#include <stdint.h>

#include "counters.h"

enum { ZONE_WORKERS = 256, ZONE_TEXT = 128 };

enum zone_state { ZONE_EMPTY, ZONE_STARTING, ZONE_SERVING, ZONE_DRAINING };

struct zone_slot {
    uint64_t pid, state;         /* enum zone_state */
    uint64_t beat;               /* CLOCK_MONOTONIC in ms, at the last turn of its loop */
    uint64_t mark;               /* what Lua runs now: zone_mark; 0: none */
    uint64_t generation, generations; /* current, and how many live */
    uint64_t started;            /* CLOCK_REALTIME in ms */
    uint64_t connections, exchanges, lua_bytes;
    uint64_t redis_usable;
    char redis_problem[ZONE_TEXT]; /* written before redis_usable becomes 0 */
    struct counters counters;
};

struct zone;

/* A new one for n workers over an anonymous file; its descriptor, to be inherited, in *fd. NULL where that fails. */
struct zone *zone_new(unsigned n, int *fd);
/* The one behind an inherited descriptor. */
struct zone *zone_map(int fd);
void zone_free(struct zone *z);
unsigned zone_workers(const struct zone *z);
struct zone_slot *zone_slot(struct zone *z, unsigned i);
uint64_t zone_now(void);

/* A mark packs generation, route, plugin (its place in the route's chain) and phase into the one word that is stored before any Lua
 * runs. */
static inline uint64_t zone_mark(uint64_t generation, unsigned route, unsigned hook, unsigned phase)
{
    return generation << 32 | (uint64_t)(route & 0xffff) << 16 | (hook & 0xff) << 8 | (phase & 0x7f) << 1 | 1;
}

#endif
