/* Metrics' text read back: a page of samples, what became of each since the page before, and
 * quantiles of histograms.
 *
 * A page keeps the text; series are found by it, as they are written the same way each time. What
 * the format (Prometheus, 0.0.4) does not allow is refused whole, with the number of the line. */
#ifndef TOLLGATE_METRICS_READ_H
#define TOLLGATE_METRICS_READ_H

#include <stdbool.h>
#include <stdint.h>

#include "buf.h"

struct metrics_sample {
    struct slice series;       /* name and labels as they stand there; the page's */
    struct slice name, labels; /* parts of it; labels without their braces */
    double value;              /* may be infinite or no number */
    uint64_t hash;             /* of the series */
};

struct metrics_page {
    struct buf text;
    struct metrics_sample *samples;
    uint32_t n, cap;
    uint32_t *slots; /* hash table: 1 + place in samples; 0: none */
    uint32_t nslots; /* a power of two; 0: no table */
};

struct metrics_bucket {
    double upto, count; /* upper bound, and how many up to it, those of smaller bounds included */
};

void metrics_page_init(struct metrics_page *p);
void metrics_page_deinit(struct metrics_page *p);
/* Takes the bytes out of text, which is empty then. 0; UV_EINVAL, the page empty and *line the
 * number of the first bad line. */
int metrics_page_read(struct metrics_page *p, struct buf *text, uint32_t *line);
/* The sample of that series; NULL where there is none. */
const struct metrics_sample *metrics_page_find(const struct metrics_page *p,
                                               const struct metrics_sample *of);
/* Its value there, NaN where there is none. `series` without labels is the bare name. */
double metrics_page_value(const struct metrics_page *p, const char *series);
/* The label's value, unescaped, in *out, which is cleared first. False, and "", where there is
 * none. */
bool metrics_sample_label(const struct metrics_sample *s, const char *label, struct buf *out);
/* How much a counter has grown since an earlier page (NULL: from nothing). One that went back has
 * begun anew, from 0. Never negative; what is no number counts as 0. */
double metrics_sample_growth(const struct metrics_sample *s, const struct metrics_page *before);

/* As Prometheus' histogram_quantile has it: linear within a bucket, from 0 in the first one where
 * its bound is above 0; the highest finite bound where the quantile is in the last. Buckets by
 * rising bounds, the last +Inf; counts that fall are held. NaN where nothing was counted, there are
 * fewer than two buckets, or q is no number; -Inf below 0 and +Inf above 1. */
double metrics_quantile(double q, const struct metrics_bucket *buckets, int n);

#endif
