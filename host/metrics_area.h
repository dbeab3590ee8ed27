/* Memory in which a worker keeps what its metrics count, so that the master can read it while the
 * worker runs, and after its death: records behind each other, of metrics and of their series.
 * Records are only added. Whoever reads sees whole records, their figures as they are now.
 *
 * One process writes; any may read. Nothing in it is a pointer. */
#ifndef TOLLGATE_METRICS_AREA_H
#define TOLLGATE_METRICS_AREA_H

#include <stddef.h>
#include <stdint.h>

#define METRICS_AREA ((size_t)32 << 20) /* bytes; memory is used as it fills */

enum area_tag { AREA_METRIC = 1, AREA_SERIES };

struct area_record {
    uint32_t size, tag; /* size: of all of it, a multiple of 8 */
    union {
        struct {
            uint32_t kind, nlabels, nbuckets, series; /* as in metrics.h */
            uint64_t text; /* bytes of name, help and labels, a NUL behind each; they follow the
                              bounds of the buckets */
            double bounds[];
        } metric;
        struct {
            uint32_t metric, nkey; /* which of the area's metrics; the key follows the counts */
            uint64_t ncounts;
            double value;
            uint64_t counts[];
        } series;
    };
};

struct metrics_area;

/* A new record of so many bytes, all zero but size and tag; nobody sees it before
 * metrics_area_added. NULL where the area is full. */
struct area_record *metrics_area_add(struct metrics_area *a, enum area_tag tag, size_t size);
void metrics_area_added(struct metrics_area *a, const struct area_record *r);
/* The record behind r; the first for NULL; NULL behind the last. */
const struct area_record *metrics_area_next(const struct metrics_area *a,
                                            const struct area_record *r);
/* All records go; for when nobody writes. */
void metrics_area_clear(struct metrics_area *a);

#endif
