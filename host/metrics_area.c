/* See metrics_area.h. */
#include "metrics_area.h"

#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>

struct metrics_area {
    _Atomic uint64_t used; /* bytes of records */
    char records[];
};

struct area_record *metrics_area_add(struct metrics_area *a, enum area_tag tag, size_t size)
{
    uint64_t used = atomic_load_explicit(&a->used, memory_order_relaxed);
    size = (size + 7) / 8 * 8;
    if (size > METRICS_AREA - sizeof *a - used)
        return NULL;
    struct area_record *r = (struct area_record *)(a->records + used);
    memset(r, 0, size);
    r->size = (uint32_t)size;
    r->tag = tag;
    return r;
}

void metrics_area_added(struct metrics_area *a, const struct area_record *r)
{
    atomic_fetch_add_explicit(&a->used, r->size, memory_order_release);
}

const struct area_record *metrics_area_next(const struct metrics_area *a,
                                            const struct area_record *r)
{
    uint64_t used = atomic_load_explicit(&a->used, memory_order_acquire);
    const char *at = r != NULL ? (const char *)r + r->size : a->records;
    return at < a->records + used ? (const struct area_record *)at : NULL;
}

void metrics_area_clear(struct metrics_area *a)
{
    atomic_store_explicit(&a->used, 0, memory_order_release);
    madvise(a, METRICS_AREA,
            MADV_REMOVE); /* the area begins on a page: gives its memory back, zeroed */
}
