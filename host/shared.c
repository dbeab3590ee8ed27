/* See shared.h: the operations on a region. Its making is in shared_region.c, what happens inside
 * of a shard in shared_shard.c. Between take and give there is no call out of these files. */
#include "shared.h"

#include <errno.h>
#include <time.h>

#include "shared_internal.h"
#include "siphash.h"

enum {
    SPINS = 100, /* tries before sleeping: most locks are held for less than a microsecond */
    /* After a miss this process waits no more for the shard until it has got it, or for so long:
     * its owner may be stopped. */
    AVOID_MS = 100
};

/* --- locks --- */

static inline void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

/* As pthread_mutex_lock, but no longer than SHARED_LOCK_MS. */
static int wait_for(struct shared *s, uint32_t i, struct shard *sh)
{
    int err = EBUSY;
    for (int k = 0; k < SPINS && err == EBUSY; k++) {
        pause_briefly();
        err = pthread_mutex_trylock(&sh->lock);
    }
    if (err != EBUSY)
        return err;
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    uint64_t now = (uint64_t)t.tv_sec * 1000 + (uint64_t)t.tv_nsec / 1000000;
    if (now < s->avoid_until[i])
        return EBUSY;
    t.tv_nsec += SHARED_LOCK_MS * 1000000;
    t.tv_sec += t.tv_nsec / 1000000000;
    t.tv_nsec %= 1000000000;
    err = pthread_mutex_clocklock(&sh->lock, CLOCK_MONOTONIC, &t);
    if (err == ETIMEDOUT)
        s->avoid_until[i] = now + AVOID_MS;
    return err;
}

/* The shard, locked; NULL where that took too long. */
static struct shard *take(struct shared *s, uint32_t i)
{
    struct shard *sh = shared_shard(s, i);
    int err = pthread_mutex_trylock(&sh->lock);
    if (err == EBUSY)
        err = wait_for(s, i, sh);
    if (err == EOWNERDEAD) {
        shard_empty(sh);
        shard_count(&sh->emptied, 1);
        err = pthread_mutex_consistent(&sh->lock);
    }
    if (err == 0) {
        s->avoid_until[i] = 0;
        return sh;
    }
    atomic_fetch_add_explicit(&sh->misses, 1, memory_order_relaxed);
    return NULL;
}

static enum shared_result give(struct shard *sh, enum shared_result r)
{
    pthread_mutex_unlock(&sh->lock);
    return r;
}

/* One half of the hash chooses the shard, the other the place in it. */
static struct shard *take_of(struct shared *s, struct slice key, uint32_t *hash)
{
    uint64_t h = siphash(s->region->secret, key);
    *hash = (uint32_t)h;
    return take(s, (uint32_t)(h >> 32) & (s->nshards - 1));
}

/* --- operations --- */

/* Numbers and booleans as bytes in `room`. */
static struct slice bytes_of(const struct shared_value *v, char room[8])
{
    if (v->type == SHARED_STRING)
        return v->text;
    if (v->type == SHARED_BOOLEAN) {
        room[0] = v->boolean;
        return (struct slice){ room, 1 };
    }
    memcpy(room, &v->number, sizeof v->number);
    return (struct slice){ room, sizeof v->number };
}

static bool fits(const struct shared *s, struct slice key, size_t n)
{
    return key.n > 0 && key.n <= SHARED_KEY_MAX && n <= SHARED_VALUE_MAX &&
           shard_blocks(key.n, n) <= s->entry_max;
}

static uint64_t end_of(const struct shared *s, uint64_t ttl)
{
    return ttl == 0 ? 0 : s->hooks.now() + ttl;
}

enum shared_result shared_get(struct shared *s, struct slice key, struct shared_value *out)
{
    uint32_t hash;
    struct shard *sh = take_of(s, key, &hash);
    if (sh == NULL)
        return SHARED_BUSY;
    uint32_t e = shard_find(sh, hash, key, &s->hooks);
    if (e == 0)
        return give(sh, SHARED_NOT_FOUND);
    size_t n = shard_value_size(sh, e);
    out->type = shard_type(sh, e);
    shard_read(sh, e, s->scratch);
    shard_touch(sh, e);
    give(sh, SHARED_OK);
    if (out->type == SHARED_STRING)
        out->text = (struct slice){ s->scratch, n };
    else if (out->type == SHARED_BOOLEAN)
        out->boolean = s->scratch[0];
    else
        memcpy(&out->number, s->scratch, sizeof out->number);
    return SHARED_OK;
}

static enum shared_result put(struct shared *s, struct slice key, const struct shared_value *v,
                              uint64_t ttl, bool replace, bool *forced)
{
    char room[8];
    struct slice bytes = bytes_of(v, room);
    uint64_t expires = end_of(s, ttl);
    uint32_t hash;
    *forced = false;
    if (!fits(s, key, bytes.n))
        return SHARED_NO_MEMORY;
    struct shard *sh = take_of(s, key, &hash);
    if (sh == NULL)
        return SHARED_BUSY;
    uint32_t e = shard_find(sh, hash, key, &s->hooks);
    if (e != 0 && !replace)
        return give(sh, SHARED_EXISTS);
    if (e != 0)
        shard_remove(sh, e);
    shard_insert(sh, hash, key, v->type, bytes, expires, &s->hooks, forced);
    return give(sh, SHARED_OK);
}

enum shared_result shared_set(struct shared *s, struct slice key, const struct shared_value *v,
                              uint64_t ttl, bool *forced)
{
    return put(s, key, v, ttl, true, forced);
}

enum shared_result shared_add(struct shared *s, struct slice key, const struct shared_value *v,
                              uint64_t ttl, bool *forced)
{
    return put(s, key, v, ttl, false, forced);
}

/* The entry that is there, under the lock. */
static enum shared_result incr_entry(struct shard *sh, uint32_t e, double by, double *out)
{
    if (shard_type(sh, e) != SHARED_NUMBER)
        return SHARED_NOT_NUMBER;
    shard_read(sh, e, out);
    *out += by;
    shard_write(sh, e, out);
    shard_touch(sh, e);
    return SHARED_OK;
}

enum shared_result shared_incr(struct shared *s, struct slice key, double by, const double *init,
                               uint64_t init_ttl, double *out, bool *forced)
{
    uint64_t expires = init != NULL ? end_of(s, init_ttl) : 0;
    uint32_t hash;
    *forced = false;
    if (init != NULL && !fits(s, key, sizeof *out))
        return SHARED_NO_MEMORY;
    struct shard *sh = take_of(s, key, &hash);
    if (sh == NULL)
        return SHARED_BUSY;
    uint32_t e = shard_find(sh, hash, key, &s->hooks);
    if (e != 0)
        return give(sh, incr_entry(sh, e, by, out));
    if (init == NULL)
        return give(sh, SHARED_NOT_FOUND);
    *out = *init + by;
    shard_insert(sh, hash, key, SHARED_NUMBER, (struct slice){ (char *)out, sizeof *out }, expires,
                 &s->hooks, forced);
    return give(sh, SHARED_OK);
}

/* Whether the entry has this value, under the lock. */
static bool has_value(struct shared *s, struct shard *sh, uint32_t e, const struct shared_value *v)
{
    char room[8];
    struct slice bytes = bytes_of(v, room);
    if (shard_type(sh, e) != v->type || shard_value_size(sh, e) != bytes.n)
        return false;
    shard_read(sh, e, s->scratch);
    return memcmp(s->scratch, bytes.p, bytes.n) == 0;
}

enum shared_result shared_swap(struct shared *s, struct slice key,
                               const struct shared_value *before, const struct shared_value *v,
                               uint64_t ttl, bool *forced)
{
    char room[8];
    struct slice bytes = bytes_of(v, room);
    uint64_t expires = end_of(s, ttl);
    uint32_t hash;
    *forced = false;
    if (!fits(s, key, bytes.n))
        return SHARED_NO_MEMORY;
    struct shard *sh = take_of(s, key, &hash);
    if (sh == NULL)
        return SHARED_BUSY;
    uint32_t e = shard_find(sh, hash, key, &s->hooks);
    if ((e != 0) != (before != NULL) || (e != 0 && !has_value(s, sh, e, before)))
        return give(sh, SHARED_CHANGED);
    if (e != 0 && shard_type(sh, e) == v->type && shard_value_size(sh, e) == bytes.n) {
        shard_write(sh, e, bytes.p);
        shard_set_expires(sh, e, expires);
        shard_touch(sh, e);
        return give(sh, SHARED_OK);
    }
    if (e != 0)
        shard_remove(sh, e);
    shard_insert(sh, hash, key, v->type, bytes, expires, &s->hooks, forced);
    return give(sh, SHARED_OK);
}

enum shared_result shared_delete(struct shared *s, struct slice key)
{
    uint32_t hash;
    struct shard *sh = take_of(s, key, &hash);
    if (sh == NULL)
        return SHARED_BUSY;
    uint32_t e = shard_find(sh, hash, key, &s->hooks);
    if (e != 0)
        shard_remove(sh, e);
    return give(sh, e != 0 ? SHARED_OK : SHARED_NOT_FOUND);
}

enum shared_result shared_expire(struct shared *s, struct slice key, uint64_t ttl)
{
    uint64_t expires = end_of(s, ttl);
    uint32_t hash;
    struct shard *sh = take_of(s, key, &hash);
    if (sh == NULL)
        return SHARED_BUSY;
    uint32_t e = shard_find(sh, hash, key, &s->hooks);
    if (e == 0)
        return give(sh, SHARED_NOT_FOUND);
    shard_set_expires(sh, e, expires);
    shard_touch(sh, e);
    return give(sh, SHARED_OK);
}

enum shared_result shared_ttl(struct shared *s, struct slice key, uint64_t *ttl)
{
    uint32_t hash;
    uint64_t now = s->hooks.now();
    struct shard *sh = take_of(s, key, &hash);
    if (sh == NULL)
        return SHARED_BUSY;
    uint32_t e = shard_find(sh, hash, key, &s->hooks);
    if (e == 0)
        return give(sh, SHARED_NOT_FOUND);
    uint64_t expires = shard_expires(sh, e);
    *ttl = expires > now ? expires - now : 0; /* not past: it would not have been found */
    return give(sh, SHARED_OK);
}

enum shared_result shared_flush(struct shared *s)
{
    enum shared_result r = SHARED_OK;
    for (uint32_t i = 0; i < s->nshards; i++) {
        struct shard *sh = take(s, i);
        if (sh == NULL) {
            r = SHARED_BUSY;
            continue;
        }
        shard_empty(sh);
        give(sh, SHARED_OK);
    }
    return r;
}

static uint64_t figure(_Atomic uint64_t *c)
{
    return atomic_load_explicit(c, memory_order_relaxed);
}

void shared_stats(const struct shared *s, struct shared_stats *out)
{
    *out = (struct shared_stats){ 0 };
    for (uint32_t i = 0; i < s->nshards; i++) {
        struct shard *sh = shared_shard(s, i);
        out->size += (uint64_t)sh->nblocks * SHARD_BLOCK;
        out->entries += figure(&sh->entries);
        out->bytes += figure(&sh->used) * SHARD_BLOCK;
        out->evictions += figure(&sh->evictions);
        out->expired += figure(&sh->expired);
        out->lock_misses += figure(&sh->misses);
        out->emptied += figure(&sh->emptied);
    }
}
