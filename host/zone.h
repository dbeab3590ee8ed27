/* The figures of all workers in one memory that they share: a slot per worker, written by that
 * worker alone and read by whoever wants the sum. A slot outlives its worker, so a death loses
 * nothing.
 *
 * Beside each slot there is an area for what the worker and its plugins count in metrics
 * (metrics_area.h), and one for what workers that have gone counted.
 *
 * All fields of a slot are 64-bit words that are read and written whole, so no lock is needed; a
 * reader may see one field a moment older than the next. */
#ifndef TOLLGATE_ZONE_H
#define TOLLGATE_ZONE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "access_log.h"
#include "counters.h"
#include "metrics_area.h"
#include "quota.h"
#include "target_state.h"

enum { ZONE_WORKERS = 256, ZONE_TEXT = 128, ZONE_REPLICA = 64, ZONE_NO_ROUTE = 0xffff };

/* What Lua a mark names: phases of requests as route.h numbers them, then these. */
enum { MARK_TIMER = 16, MARK_INIT, MARK_STOP, MARK_LOAD, MARK_COMMAND };

enum zone_state { ZONE_EMPTY, ZONE_STARTING, ZONE_SERVING, ZONE_DRAINING };

struct zone_slot {
    uint64_t pid, state;              /* enum zone_state */
    uint64_t beat;                    /* CLOCK_MONOTONIC in ms, at the last turn of its loop */
    uint64_t mark;                    /* what Lua runs now: zone_mark; 0: none */
    uint64_t generation, generations; /* current, and how many live */
    uint64_t started;                 /* CLOCK_REALTIME in ms */
    uint64_t connections, exchanges, lua_bytes, buffers; /* buffers: bytes in buf.h's */
    uint64_t buffered;                                   /* of limits.buffered */
    uint64_t place;                                      /* whose sockets it accepts on */
    uint64_t redis_usable;
    char redis_problem[ZONE_TEXT]; /* written before redis_usable becomes 0 */
    struct counters counters;
    struct quota_stats quota;
    struct access_counts access;
    uint64_t log_dropped; /* entries of the error log */
};

/* Why a worker that was to serve on ended. */
enum zone_exit { EXIT_CODE, EXIT_SIGNAL, EXIT_WATCHDOG, EXIT_REASONS };

/* What the master counts; it outlives an upgrade. */
struct zone_totals {
    uint64_t reloads, reload_failures;
    uint64_t restarts[EXIT_REASONS];
    uint64_t log_dropped;                 /* entries of its error log */
    uint64_t lines_written, lines_failed; /* of the access log; by the log writer */
};

struct ticket_ring;
struct zone;

/* A new one with n slots over an anonymous file; its descriptor, to be inherited, in *fd. NULL
 * where that fails. */
struct zone *zone_new(unsigned n, int *fd);
/* The one behind an inherited descriptor. */
struct zone *zone_map(int fd);
void zone_free(struct zone *z);
/* Text that differs where another program lays zones out differently. */
void zone_layout(char *out, size_t size);
unsigned zone_slots(const struct zone *z);
/* The slot whose worker accepts on the sockets of a place; NULL where none does now. */
const struct zone_slot *zone_at(struct zone *z, unsigned place);
struct zone_slot *zone_slot(struct zone *z, unsigned i);
uint64_t zone_now(void);
/* The area of a slot. */
struct metrics_area *zone_metrics(struct zone *z, unsigned i);
/* That of workers that have gone. */
struct metrics_area *zone_metrics_gone(struct zone *z);
/* The worker of a slot has gone: what it counted is kept (gauges are not), and its area is empty.
 * For the master. */
void zone_metrics_fold(struct zone *z, unsigned i);
struct zone_totals *zone_totals(struct zone *z);
/* What the workers know of targets. */
struct target_table *zone_targets(struct zone *z);
/* Keys of TLS session tickets. Written by the master. */
struct ticket_ring *zone_tickets(struct zone *z);
/* The version of the routing policy that the replica runs; 0: not known. Written by the master. */
uint64_t *zone_routing(struct zone *z);
/* The replica's name: the host's, a dash, and random digits. As long as the zone. */
const char *zone_replica(const struct zone *z);
/* Makes such a name. */
void zone_name_replica(char out[ZONE_REPLICA]);
/* True in one worker at a time: the one that asked first, and another once that has gone, drains,
 * or has not turned for a while. */
bool zone_leads(struct zone *z, unsigned slot);

static inline uint64_t zone_mark_generation(uint64_t m)
{
    return m >> 32;
}
static inline unsigned zone_mark_route(uint64_t m)
{
    return m >> 16 & 0xffff;
}
static inline unsigned zone_mark_hook(uint64_t m)
{
    return m >> 8 & 0xff;
}
static inline unsigned zone_mark_phase(uint64_t m)
{
    return m >> 1 & 0x7f;
}

/* A mark packs generation, route, plugin (its place in the route's chain) and phase into the one
 * word that is stored before any Lua runs. */
static inline uint64_t zone_mark(uint64_t generation, unsigned route, unsigned hook, unsigned phase)
{
    return generation << 32 | (uint64_t)(route & 0xffff) << 16 | (hook & 0xff) << 8 |
           (phase & 0x7f) << 1 | 1;
}

#endif
