/* One shard of the shared dictionary: a hash table whose entries are chains of blocks of one size,
 * and the order of their use. Whoever calls holds the shard's lock; only shared.c does.
 *
 * - Any free block serves any entry, so there is no fragmentation: an entry fits as soon as enough
 *   older ones have gone.
 * - Blocks have numbers, 1 the first; no pointer is kept, so each process may map the region where
 *   it likes.
 * - Zeroed memory is an empty shard, but for nblocks and mask. Blocks are touched when they are
 *   first needed. */
#ifndef TOLLGATE_SHARED_SHARD_H
#define TOLLGATE_SHARED_SHARD_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "slice.h"

enum { SHARD_BLOCK = 128, SHARD_ALIGN = 64 }; /* bytes */

struct shard {
    pthread_mutex_t lock;    /* robust, of several processes */
    uint32_t nblocks, mask;  /* fixed; mask is the number of buckets - 1 */
    uint32_t fresh;          /* blocks 1 to fresh have been used */
    uint32_t free, nfree;    /* those of them that are free, as a chain */
    uint32_t newest, oldest; /* entries by last use */
    /* Written under the lock, read without it. */
    _Atomic uint64_t entries, used, evictions, expired, emptied; /* used: blocks */
    _Atomic uint64_t misses; /* of the lock; written by those who do not have it */
};

/* Of one process; what tests replace. */
struct shard_hooks {
    uint64_t (*now)(void); /* ms */
    void (*amid)(void);    /* NULL, or called when a new entry is half made */
};

/* Lays a shard out in n bytes of zeroed memory, aligned to SHARD_ALIGN. Not the lock. */
void shard_init(struct shard *sh, uint64_t n);
/* Forgets all entries; asks nothing of what is there, so it also mends a shard that somebody left
 * half written. */
void shard_empty(struct shard *sh);

/* Blocks that an entry of a key and a value of these many bytes needs. */
uint64_t shard_blocks(size_t key_n, size_t value_n);

/* The entry's number, or 0. One that has expired goes. */
uint32_t shard_find(struct shard *sh, uint32_t hash, struct slice key,
                    const struct shard_hooks *hooks);
/* Makes an entry of a key that is not there, as the newest. Older ones go where there is no room;
 * *forced is set where one of them had not expired. `expires` in ms, 0: never. The caller has made
 * sure that it fits into an empty shard. */
void shard_insert(struct shard *sh, uint32_t hash, struct slice key, uint8_t type,
                  struct slice value, uint64_t expires, const struct shard_hooks *hooks,
                  bool *forced);
void shard_remove(struct shard *sh, uint32_t entry);
/* Makes it the newest. */
void shard_touch(struct shard *sh, uint32_t entry);

uint8_t shard_type(struct shard *sh, uint32_t entry);
size_t shard_value_size(struct shard *sh, uint32_t entry);
void shard_read(struct shard *sh, uint32_t entry, void *out);
/* Replaces the value by one of the same size. */
void shard_write(struct shard *sh, uint32_t entry, const void *value);
uint64_t shard_expires(struct shard *sh, uint32_t entry);
void shard_set_expires(struct shard *sh, uint32_t entry, uint64_t expires);

/* Adds to a counter whose only writer holds the lock. */
static inline void shard_count(_Atomic uint64_t *c, uint64_t n)
{
    atomic_store_explicit(c, atomic_load_explicit(c, memory_order_relaxed) + n,
                          memory_order_relaxed);
}

#endif
