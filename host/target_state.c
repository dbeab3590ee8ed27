/* See target_state.h. */
#include "target_state.h"

#include <stdatomic.h>
#include <stdio.h>

enum { HEALTH_BITS = 2 };
enum { PROBES = 16 }; /* entries looked at from a key's own place on */

/* Keys that are no target's. */
#define FREE UINT64_C(0)
#define BUSY UINT64_C(1) /* being taken over */

struct target_entry {
    _Atomic uint64_t key;
    _Atomic uint64_t touched; /* ms: when a configuration last named it */
    _Atomic uint64_t until;   /* ms */
    _Atomic uint64_t health; /* enum target_health, and above it until when it is believed, in ms */
    char name[TARGET_NAME];  /* written while BUSY */
};

struct target_table {
    struct target_entry v[TARGET_STATES];
};

size_t target_table_size(void)
{
    return sizeof(struct target_table);
}

/* The entry of that key, or one that may be taken: a free one, else the one touched first. */
static struct target_entry *look(struct target_table *t, uint64_t key)
{
    struct target_entry *best = NULL;
    for (unsigned i = 0; i < PROBES; i++) {
        struct target_entry *e = &t->v[(key + i) % TARGET_STATES];
        uint64_t found = atomic_load(&e->key);
        if (found == key)
            return e;
        if (found == BUSY)
            continue;
        if (best == NULL || (found == FREE && atomic_load(&best->key) != FREE) ||
            (atomic_load(&best->key) != FREE && e->touched < best->touched))
            best = e;
    }
    return best;
}

struct target_state target_table_get(struct target_table *t, uint64_t key, const char *name,
                                     uint64_t now)
{
    key = key > BUSY ? key : key + 2;
    for (unsigned tries = 0; tries < PROBES; tries++) {
        struct target_entry *e = look(t, key);
        if (e == NULL)
            break;
        uint64_t found = atomic_load(&e->key);
        if (found == key) {
            atomic_store(&e->touched, now);
            return (struct target_state){ e, key };
        }
        if (found == BUSY || !atomic_compare_exchange_strong(&e->key, &found, BUSY))
            continue; /* another worker was faster */
        atomic_store(&e->until, 0);
        atomic_store(&e->health, TARGET_HEALTH_UNKNOWN);
        snprintf(e->name, sizeof e->name, "%s", name);
        atomic_store(&e->touched, now);
        atomic_store(&e->key, key);
        return (struct target_state){ e, key };
    }
    return (struct target_state){ NULL, 0 };
}

static bool is_ours(const struct target_state *s)
{
    return s->entry != NULL && atomic_load(&s->entry->key) == s->key;
}

void target_state_out(const struct target_state *s, uint64_t until)
{
    if (!is_ours(s))
        return;
    uint64_t before = atomic_load(&s->entry->until);
    while (before < until && !atomic_compare_exchange_weak(&s->entry->until, &before, until))
        continue;
}

uint64_t target_state_until(const struct target_state *s)
{
    return is_ours(s) ? atomic_load(&s->entry->until) : 0;
}

static enum target_health health_of(const struct target_entry *e, uint64_t now)
{
    uint64_t v = atomic_load(&e->health);
    enum target_health health = (enum target_health)(v & ((1 << HEALTH_BITS) - 1));
    return now < v >> HEALTH_BITS ? health : TARGET_HEALTH_UNKNOWN;
}

void target_state_set_health(const struct target_state *s, enum target_health health,
                             uint64_t until)
{
    if (is_ours(s))
        atomic_store(&s->entry->health, until << HEALTH_BITS | (uint64_t)health);
}

enum target_health target_state_health(const struct target_state *s, uint64_t now)
{
    return is_ours(s) ? health_of(s->entry, now) : TARGET_HEALTH_UNKNOWN;
}

void target_table_each(struct target_table *t, uint64_t now,
                       void (*fn)(void *arg, const char *name, enum target_health health,
                                  uint64_t until),
                       void *arg)
{
    for (unsigned i = 0; i < TARGET_STATES; i++) {
        const struct target_entry *e = &t->v[i];
        uint64_t key = atomic_load(&e->key), until = atomic_load(&e->until);
        enum target_health health = health_of(e, now);
        if (key != FREE && key != BUSY && (health != TARGET_HEALTH_UNKNOWN || until > now))
            fn(arg, e->name, health, until > now ? until : 0);
    }
}
