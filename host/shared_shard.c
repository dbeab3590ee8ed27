/* See shared_shard.h. In memory: struct shard, the buckets (numbers of entries), the blocks. An
 * entry's first block has its head; key and value follow, through as many blocks as they need. */
#include "shared_shard.h"

/* Of the oldest entries, looked at when one is made: those that have expired go. */
enum { SWEEP = 2 };

struct block {
    uint32_t next; /* block of the same entry, or of the free ones; 0 ends it */
    union {
        struct {                    /* the first of an entry */
            uint32_t last, nblocks; /* so that freeing costs the same for all sizes */
            uint32_t chain;         /* entry of the same bucket */
            uint32_t newer, older;
            uint32_t hash;
            uint32_t value_n;
            uint64_t expires __attribute__((packed, aligned(4))); /* ms; 0: never */
            uint16_t key_n;
            uint8_t type;
            char head[SHARD_BLOCK - 43];
        };
        char more[SHARD_BLOCK - 4];
    };
};

static const size_t HEAD_ROOM = sizeof(((struct block *)NULL)->head);
static const size_t ROOM = sizeof(((struct block *)NULL)->more);

_Static_assert(sizeof(struct block) == SHARD_BLOCK, "blocks have one size");
_Static_assert(sizeof(struct shard) % sizeof(uint32_t) == 0, "buckets follow a shard's head");

static uint32_t *buckets(struct shard *sh)
{
    return (uint32_t *)(sh + 1);
}

static size_t blocks_at(uint32_t mask)
{
    size_t n = sizeof(struct shard) + ((size_t)mask + 1) * sizeof(uint32_t);
    return (n + SHARD_ALIGN - 1) / SHARD_ALIGN * SHARD_ALIGN;
}

static struct block *block(struct shard *sh, uint32_t number)
{
    return (struct block *)((char *)sh + blocks_at(sh->mask)) + (number - 1);
}

void shard_init(struct shard *sh, uint64_t n)
{
    uint32_t nbuckets = 1;
    while ((uint64_t)nbuckets * 2 * SHARD_BLOCK <= n)
        nbuckets *= 2;
    sh->mask = nbuckets - 1;
    sh->nblocks = (uint32_t)((n - blocks_at(sh->mask)) / SHARD_BLOCK);
}

void shard_empty(struct shard *sh)
{
    memset(buckets(sh), 0, ((size_t)sh->mask + 1) * sizeof(uint32_t));
    sh->fresh = sh->free = sh->nfree = 0;
    sh->newest = sh->oldest = 0;
    atomic_store_explicit(&sh->entries, 0, memory_order_relaxed);
    atomic_store_explicit(&sh->used, 0, memory_order_relaxed);
}

uint64_t shard_blocks(size_t key_n, size_t value_n)
{
    uint64_t n = (uint64_t)key_n + value_n;
    return n <= HEAD_ROOM ? 1 : 1 + (n - HEAD_ROOM + ROOM - 1) / ROOM;
}

/* --- bytes along a chain of blocks --- */

struct cursor {
    struct shard *sh;
    char *p;
    size_t room; /* left in this block */
    uint32_t next;
};

static struct cursor cursor_at(struct shard *sh, uint32_t number)
{
    struct block *e = block(sh, number);
    return (struct cursor){ sh, e->head, HEAD_ROOM, e->next };
}

/* The next contiguous bytes, at most n, at least one. */
static char *cursor_piece(struct cursor *c, size_t n, size_t *got)
{
    if (c->room == 0) {
        struct block *b = block(c->sh, c->next);
        c->p = b->more;
        c->room = ROOM;
        c->next = b->next;
    }
    char *p = c->p;
    *got = n < c->room ? n : c->room;
    c->p += *got;
    c->room -= *got;
    return p;
}

static void cursor_write(struct cursor *c, const void *from, size_t n)
{
    for (size_t at = 0, got; at < n; at += got) {
        char *p = cursor_piece(c, n - at, &got);
        memcpy(p, (const char *)from + at, got);
    }
}

static void cursor_read(struct cursor *c, void *to, size_t n)
{
    for (size_t at = 0, got; at < n; at += got) {
        const char *p = cursor_piece(c, n - at, &got);
        memcpy((char *)to + at, p, got);
    }
}

static bool cursor_equal(struct cursor *c, struct slice text)
{
    for (size_t at = 0, got; at < text.n; at += got) {
        const char *p = cursor_piece(c, text.n - at, &got);
        if (memcmp(p, text.p + at, got) != 0)
            return false;
    }
    return true;
}

static struct cursor cursor_at_value(struct shard *sh, uint32_t number)
{
    struct cursor c = cursor_at(sh, number);
    size_t n = block(sh, number)->key_n;
    for (size_t at = 0, got; at < n; at += got)
        cursor_piece(&c, n - at, &got);
    return c;
}

/* --- the order of use --- */

static void order_add(struct shard *sh, uint32_t number)
{
    struct block *e = block(sh, number);
    e->newer = 0;
    e->older = sh->newest;
    if (sh->newest != 0)
        block(sh, sh->newest)->newer = number;
    else
        sh->oldest = number;
    sh->newest = number;
}

static void order_remove(struct shard *sh, uint32_t number)
{
    const struct block *e = block(sh, number);
    if (e->newer != 0)
        block(sh, e->newer)->older = e->older;
    else
        sh->newest = e->older;
    if (e->older != 0)
        block(sh, e->older)->newer = e->newer;
    else
        sh->oldest = e->newer;
}

void shard_touch(struct shard *sh, uint32_t number)
{
    if (sh->newest == number)
        return;
    order_remove(sh, number);
    order_add(sh, number);
}

/* --- entries --- */

void shard_remove(struct shard *sh, uint32_t number)
{
    struct block *e = block(sh, number);
    uint32_t *link = &buckets(sh)[e->hash & sh->mask];
    while (*link != number)
        link = &block(sh, *link)->chain;
    *link = e->chain;
    order_remove(sh, number);
    block(sh, e->last)->next = sh->free;
    sh->free = number;
    sh->nfree += e->nblocks;
    shard_count(&sh->used, -(uint64_t)e->nblocks);
    shard_count(&sh->entries, (uint64_t)-1);
}

static bool has_expired(const struct block *e, const struct shard_hooks *hooks)
{
    return e->expires != 0 && e->expires <= hooks->now();
}

uint32_t shard_find(struct shard *sh, uint32_t hash, struct slice key,
                    const struct shard_hooks *hooks)
{
    uint32_t number = buckets(sh)[hash & sh->mask];
    while (number != 0) {
        const struct block *e = block(sh, number);
        struct cursor c = cursor_at(sh, number);
        if (e->hash == hash && e->key_n == key.n && cursor_equal(&c, key)) {
            if (!has_expired(e, hooks))
                return number;
            shard_remove(sh, number);
            shard_count(&sh->expired, 1);
            return 0;
        }
        number = e->chain;
    }
    return 0;
}

/* Lets the oldest entry go; whether it had not expired. */
static bool drop_oldest(struct shard *sh, const struct shard_hooks *hooks)
{
    bool live = !has_expired(block(sh, sh->oldest), hooks);
    shard_remove(sh, sh->oldest);
    shard_count(live ? &sh->evictions : &sh->expired, 1);
    return live;
}

static void make_room(struct shard *sh, uint32_t nblocks, const struct shard_hooks *hooks,
                      bool *forced)
{
    for (int i = 0; i < SWEEP && sh->oldest != 0 && has_expired(block(sh, sh->oldest), hooks); i++)
        drop_oldest(sh, hooks);
    while (sh->nfree + (sh->nblocks - sh->fresh) < nblocks) {
        if (drop_oldest(sh, hooks))
            *forced = true;
    }
}

static uint32_t take_block(struct shard *sh)
{
    if (sh->nfree == 0)
        return ++sh->fresh;
    uint32_t number = sh->free;
    sh->free = block(sh, number)->next;
    sh->nfree--;
    return number;
}

/* A chain of blocks that are free by now. */
static uint32_t take_chain(struct shard *sh, uint32_t nblocks)
{
    uint32_t first = take_block(sh), last = first;
    for (uint32_t i = 1; i < nblocks; i++) {
        uint32_t number = take_block(sh);
        block(sh, last)->next = number;
        last = number;
    }
    block(sh, last)->next = 0;
    struct block *e = block(sh, first);
    e->last = last;
    e->nblocks = nblocks;
    return first;
}

void shard_insert(struct shard *sh, uint32_t hash, struct slice key, uint8_t type,
                  struct slice value, uint64_t expires, const struct shard_hooks *hooks,
                  bool *forced)
{
    uint32_t nblocks = (uint32_t)shard_blocks(key.n, value.n),
             *bucket = &buckets(sh)[hash & sh->mask];
    make_room(sh, nblocks, hooks, forced);
    uint32_t number = take_chain(sh, nblocks);
    struct block *e = block(sh, number);
    e->hash = hash;
    e->key_n = (uint16_t)key.n;
    e->value_n = (uint32_t)value.n;
    e->type = type;
    e->expires = expires;
    struct cursor c = cursor_at(sh, number);
    cursor_write(&c, key.p, key.n);
    if (hooks->amid != NULL)
        hooks->amid();
    cursor_write(&c, value.p, value.n);
    e->chain = *bucket;
    *bucket = number;
    order_add(sh, number);
    shard_count(&sh->used, nblocks);
    shard_count(&sh->entries, 1);
}

uint8_t shard_type(struct shard *sh, uint32_t number)
{
    return block(sh, number)->type;
}

size_t shard_value_size(struct shard *sh, uint32_t number)
{
    return block(sh, number)->value_n;
}

void shard_read(struct shard *sh, uint32_t number, void *out)
{
    struct cursor c = cursor_at_value(sh, number);
    cursor_read(&c, out, shard_value_size(sh, number));
}

void shard_write(struct shard *sh, uint32_t number, const void *value)
{
    struct cursor c = cursor_at_value(sh, number);
    cursor_write(&c, value, shard_value_size(sh, number));
}

uint64_t shard_expires(struct shard *sh, uint32_t number)
{
    return block(sh, number)->expires;
}

void shard_set_expires(struct shard *sh, uint32_t number, uint64_t expires)
{
    block(sh, number)->expires = expires;
}
