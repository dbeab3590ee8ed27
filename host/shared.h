/* The dictionary that all workers of a replica share: keys to strings, numbers and booleans, in one
 * region of memory of fixed size. Another process maps the region by its descriptor; nothing in it
 * is a pointer.
 *
 * - The region is cut into shards by the key's hash. A shard that is full lets its least recently
 *   used entry go.
 * - An operation holds one shard's lock, for a search and a copy. Who does not get the lock in time
 *   (SHARED_LOCK_MS; at once where that happened a moment ago) gets SHARED_BUSY: a miss, counted.
 * - A shard whose owner died within an operation is emptied by the next who takes its lock, and
 *   counted.
 *
 * No operation allocates. One struct belongs to one thread. */
#ifndef TOLLGATE_SHARED_H
#define TOLLGATE_SHARED_H

#include <stdbool.h>
#include <stdint.h>

#include "slice.h"

enum {
    SHARED_KEY_MAX = 65535, /* bytes, at least 1 */
    /* Bytes; less where an entry's share of a shard is less: about 240 KiB in a region of 1 MiB,
     * 480 KiB from 2 MiB, 960 KiB from 256 MiB. */
    SHARED_VALUE_MAX = 1 << 20,
    SHARED_LOCK_MS = 5 /* an owner that is alive may lose its processor for some */
};
#define SHARED_SIZE_MIN ((uint64_t)1 << 20)
#define SHARED_SIZE_MAX ((uint64_t)16 << 30)

enum shared_result {
    SHARED_OK,
    SHARED_BUSY,
    SHARED_NOT_FOUND,
    SHARED_EXISTS,
    SHARED_NOT_NUMBER,
    SHARED_CHANGED,
    SHARED_NO_MEMORY /* larger than an entry may be; nothing has changed */
};

enum shared_type { SHARED_STRING, SHARED_NUMBER, SHARED_BOOLEAN };

struct shared_value {
    enum shared_type type;
    struct slice text;
    double number;
    bool boolean;
};

struct shared_stats {
    uint64_t size;      /* bytes that entries may take in all shards */
    uint64_t entries;   /* with those that have expired, until somebody looks for them */
    uint64_t bytes;     /* that they take */
    uint64_t evictions; /* entries that went before their time */
    uint64_t expired;   /* entries that were found expired and went */
    uint64_t lock_misses, emptied;
};

struct shared;

/* A new region of `size` bytes (SHARED_SIZE_MIN to _MAX; memory is used as it fills). 0 or
 * -errno. */
int shared_new(struct shared **out, uint64_t size);
/* A region that another process made. Takes the descriptor over, unless it fails. 0 or -errno;
 * -EINVAL where it is no region of this version. */
int shared_map(struct shared **out, int fd);
/* Unmaps it; the region lives as long as anybody has it mapped or open. NULL is fine. */
void shared_free(struct shared *s);
/* The descriptor; closed on exec unless it is handed on. Borrowed. */
int shared_fd(const struct shared *s);

/* Times to live are in ms; 0 is for ever. Keys and values are copied. */

/* out->text is borrowed until the next shared_get. */
enum shared_result shared_get(struct shared *s, struct slice key, struct shared_value *out);
/* *forced: another entry had to go before its time. */
enum shared_result shared_set(struct shared *s, struct slice key, const struct shared_value *v,
                              uint64_t ttl, bool *forced);
/* Only where there is none: else SHARED_EXISTS. */
enum shared_result shared_add(struct shared *s, struct slice key, const struct shared_value *v,
                              uint64_t ttl, bool *forced);
/* Adds to a number; its time to live stays. Where there is no entry and `init` is not NULL, makes
 * *init + by. */
enum shared_result shared_incr(struct shared *s, struct slice key, double by, const double *init,
                               uint64_t init_ttl, double *out, bool *forced);
/* Replaces the value that is `before`, type and bytes, in one step: else SHARED_CHANGED. NULL for
 * `before`: where there is no entry. */
enum shared_result shared_swap(struct shared *s, struct slice key,
                               const struct shared_value *before, const struct shared_value *v,
                               uint64_t ttl, bool *forced);
enum shared_result shared_delete(struct shared *s, struct slice key);
/* From now on. */
enum shared_result shared_expire(struct shared *s, struct slice key, uint64_t ttl);
/* *ttl: what is left. Is no use of the entry. */
enum shared_result shared_ttl(struct shared *s, struct slice key, uint64_t *ttl);
/* All entries; SHARED_BUSY where those of a shard are left. */
enum shared_result shared_flush(struct shared *s);
/* Takes no lock: figures of a moment, not of one moment. */
void shared_stats(const struct shared *s, struct shared_stats *out);

/* For tests, in this process: another clock (ms), and a function that is called while a new entry
 * is half written and its shard locked. NULL: the real clock; no function. */
void shared_set_hooks(struct shared *s, uint64_t (*now)(void), void (*amid)(void));

#endif
