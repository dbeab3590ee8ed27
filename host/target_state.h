/* What the workers of a replica know together of each target: until when it is not to be asked, and
 * whether a health check finds it up. A fixed table in memory that they share, found by a hash of
 * what the target is; it outlives reloads and workers.
 *
 * All fields are 64-bit words, read and written whole: no lock is needed. Where the table is full,
 * the entry whose target has not been in a configuration for the longest makes room; who still
 * holds it sees by its key that it is another's, and then nothing is known and nothing written. */
#ifndef TOLLGATE_TARGET_STATE_H
#define TOLLGATE_TARGET_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum {
    TARGET_STATES = 4096,
    TARGET_NAME = 192 /* bytes of an entry's name, its end included */
};

enum target_health { TARGET_HEALTH_UNKNOWN, TARGET_HEALTH_UP, TARGET_HEALTH_DOWN };

struct target_table;

/* A target's entry, as a configuration that names the target holds it; plain data, may be copied.
 * Zeroed it belongs to nobody. */
struct target_state {
    struct target_entry *entry;
    uint64_t key;
};

size_t target_table_size(void);
/* The entry of a key, found or made; `now` is CLOCK_MONOTONIC in ms. The name is for people; what
 * does not fit is cut off. */
struct target_state target_table_get(struct target_table *t, uint64_t key, const char *name,
                                     uint64_t now);
/* Calls fn for each entry of which more is known than its name. */
void target_table_each(struct target_table *t, uint64_t now,
                       void (*fn)(void *arg, const char *name, enum target_health health,
                                  uint64_t until),
                       void *arg);

/* Not to be asked before `until` (CLOCK_MONOTONIC in ms); an earlier time does not replace a later
 * one. */
void target_state_out(const struct target_state *s, uint64_t until);
/* 0 where it was never out. */
uint64_t target_state_until(const struct target_state *s);
/* Believed before `until`: unknown from then on. */
void target_state_set_health(const struct target_state *s, enum target_health health,
                             uint64_t until);
enum target_health target_state_health(const struct target_state *s, uint64_t now);

#endif
