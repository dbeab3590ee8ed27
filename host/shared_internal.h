/* What the files of the shared dictionary have in common. */
#ifndef TOLLGATE_SHARED_INTERNAL_H
#define TOLLGATE_SHARED_INTERNAL_H

#include "shared.h"
#include "shared_shard.h"

enum { SHARED_SHARDS_MAX = 64, SHARED_HEAD = 4096 /* bytes */ };

/* The start of the region; written once. Shards of the same size follow, at SHARED_HEAD. */
struct shared_region {
    char magic[16]; /* changes with the layout of anything in the region */
    uint64_t size;
    uint64_t secret[2]; /* of the hash */
};

/* A process's view of the region. */
struct shared {
    struct shared_region *region;
    char *scratch; /* values on their way out; as large as one may be */
    uint64_t shard_size;
    uint64_t entry_max; /* blocks */
    struct shard_hooks hooks;
    uint32_t nshards; /* a power of two */
    int fd;
    uint64_t avoid_until[SHARED_SHARDS_MAX]; /* ms of CLOCK_MONOTONIC */
};

static inline struct shard *shared_shard(const struct shared *s, uint32_t i)
{
    return (struct shard *)((char *)s->region + SHARED_HEAD + i * s->shard_size);
}

#endif
