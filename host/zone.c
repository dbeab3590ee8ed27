/* See zone.h. */
#include "zone.h"

#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include "mem.h"
#include "metrics.h"
#include "tls_tickets.h"

enum { ZONE_MAGIC = 0x746f6c6d, PAGE = 65536, LEAD_STALE_MS = 1000 };

/* Behind the slots, from a page on: an area for each slot, then two for workers that have gone,
 * which are used by turns, then the table of targets. */
struct zone_head {
    uint64_t magic, n;
    uint64_t gone;    /* which of the two */
    uint64_t routing; /* version */
    struct zone_totals totals;
    _Atomic uint64_t leader; /* slot + 1; 0: none */
    char replica[ZONE_REPLICA];
    struct ticket_ring tickets;
    struct zone_slot slots[];
};

struct zone {
    struct zone_head *head;
    size_t size;
};

static size_t areas_at(uint64_t n)
{
    return (sizeof(struct zone_head) + n * sizeof(struct zone_slot) + PAGE - 1) / PAGE * PAGE;
}

static size_t targets_at(uint64_t n)
{
    return areas_at(n) + (n + 2) * METRICS_AREA;
}

static size_t size_of(uint64_t n)
{
    return targets_at(n) + target_table_size();
}

static struct zone *map(int fd, size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (p == MAP_FAILED)
        return NULL;
    struct zone *z = mem_alloc(sizeof *z);
    z->head = p;
    z->size = size;
    return z;
}

void zone_name_replica(char out[ZONE_REPLICA])
{
    char host[ZONE_REPLICA - 10] = "";
    uint32_t random = 0;
    if (gethostname(host, sizeof host) != 0 || host[0] == '\0')
        strcpy(host, "replica");
    host[sizeof host - 1] = '\0'; /* one that is longer is cut */
    if (getrandom(&random, sizeof random, 0) != sizeof random)
        random = (uint32_t)(zone_now() * 2654435761u) ^ (uint32_t)getpid();
    snprintf(out, ZONE_REPLICA, "%s-%08" PRIx32, host, random);
}

const char *zone_replica(const struct zone *z)
{
    return z->head->replica;
}

struct zone *zone_new(unsigned n, int *fd)
{
    size_t size = size_of(n);
    *fd = memfd_create("tollgate zone", 0);
    struct zone *z = *fd >= 0 && ftruncate(*fd, (off_t)size) == 0 ? map(*fd, size) : NULL;
    if (z == NULL)
        return NULL;
    z->head->magic = ZONE_MAGIC;
    z->head->n = n;
    zone_name_replica(z->head->replica);
    return z;
}

struct zone *zone_map(int fd)
{
    off_t size = lseek(fd, 0, SEEK_END);
    struct zone *z = size >= (off_t)sizeof(struct zone_head) ? map(fd, (size_t)size) : NULL;
    if (z == NULL)
        return NULL;
    if (z->head->magic == ZONE_MAGIC && z->size == size_of(z->head->n))
        return z;
    zone_free(z);
    return NULL;
}

void zone_free(struct zone *z)
{
    munmap(z->head, z->size);
    mem_free(z);
}

void zone_layout(char *out, size_t size)
{
    snprintf(out, size, "zone %x: %zu, %zu, %zu, %zu", (unsigned)ZONE_MAGIC,
             sizeof(struct zone_head), sizeof(struct zone_slot), (size_t)METRICS_AREA,
             target_table_size());
}

unsigned zone_slots(const struct zone *z)
{
    return (unsigned)z->head->n;
}

struct zone_slot *zone_slot(struct zone *z, unsigned i)
{
    return &z->head->slots[i];
}

const struct zone_slot *zone_at(struct zone *z, unsigned place)
{
    for (unsigned i = 0; i < zone_slots(z); i++) {
        const struct zone_slot *s = zone_slot(z, i);
        if (s->state == ZONE_SERVING && s->place == place)
            return s;
    }
    return NULL;
}

uint64_t zone_now(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (uint64_t)ts.tv_sec * 1000 + (uint64_t)ts.tv_nsec / 1000000;
}

struct metrics_area *zone_metrics(struct zone *z, unsigned i)
{
    return (struct metrics_area *)((char *)z->head + areas_at(z->head->n) + i * METRICS_AREA);
}

struct target_table *zone_targets(struct zone *z)
{
    return (struct target_table *)((char *)z->head + targets_at(z->head->n));
}

struct metrics_area *zone_metrics_gone(struct zone *z)
{
    return zone_metrics(z, (unsigned)(z->head->n + z->head->gone % 2));
}

void zone_metrics_fold(struct zone *z, unsigned i)
{
    struct metrics_area *before = zone_metrics_gone(z), *own = zone_metrics(z, i);
    if (metrics_area_next(own, NULL) == NULL)
        return;
    struct metrics *all =
        metrics_new_in(zone_metrics(z, (unsigned)(z->head->n + (z->head->gone + 1) % 2)));
    metrics_merge(all, own, false);
    metrics_merge(all, before, false);
    metrics_free(all);
    z->head->gone++;
    metrics_area_clear(before);
    metrics_area_clear(own);
}

static bool may_lead(struct zone *z, uint64_t leader)
{
    if (leader == 0 || leader > z->head->n)
        return false;
    const struct zone_slot *s = &z->head->slots[leader - 1];
    bool lives = s->state == ZONE_STARTING || s->state == ZONE_SERVING;
    return lives && zone_now() < s->beat + LEAD_STALE_MS;
}

bool zone_leads(struct zone *z, unsigned slot)
{
    uint64_t leader = atomic_load(&z->head->leader);
    const struct zone_slot *s = &z->head->slots[slot];
    if (leader == slot + 1u)
        return s->state != ZONE_DRAINING;
    if (may_lead(z, leader) || s->state == ZONE_DRAINING)
        return false;
    return atomic_compare_exchange_strong(&z->head->leader, &leader, slot + 1u);
}

struct zone_totals *zone_totals(struct zone *z)
{
    return &z->head->totals;
}

uint64_t *zone_routing(struct zone *z)
{
    return &z->head->routing;
}

struct ticket_ring *zone_tickets(struct zone *z)
{
    return &z->head->tickets;
}
