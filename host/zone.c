/* See zone.h. */
#include "zone.h"

#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "mem.h"

enum { ZONE_MAGIC = 0x746f6c6c };

struct zone_head {
    uint64_t magic, n;
    struct zone_slot slots[];
};

struct zone {
    struct zone_head *head;
    size_t size;
};

static struct zone *map(int fd, size_t size)
{
    void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (p == MAP_FAILED)
        return NULL;
    struct zone *z = mem_alloc(sizeof *z);
    z->head = p;
    z->size = size;
    return z;
}

struct zone *zone_new(unsigned n, int *fd)
{
    size_t size = sizeof(struct zone_head) + n * sizeof(struct zone_slot);
    *fd = memfd_create("tollgate zone", 0);
    struct zone *z = *fd >= 0 && ftruncate(*fd, (off_t)size) == 0 ? map(*fd, size) : NULL;
    if (z == NULL)
        return NULL;
    z->head->magic = ZONE_MAGIC;
    z->head->n = n;
    return z;
}

struct zone *zone_map(int fd)
{
    off_t size = lseek(fd, 0, SEEK_END);
    struct zone *z = size >= (off_t)sizeof(struct zone_head) ? map(fd, (size_t)size) : NULL;
    if (z == NULL)
        return NULL;
    if (z->head->magic == ZONE_MAGIC && z->size == sizeof *z->head + z->head->n * sizeof(struct zone_slot))
        return z;
    zone_free(z);
    return NULL;
}

void zone_free(struct zone *z)
{
    munmap(z->head, z->size);
    mem_free(z);
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
